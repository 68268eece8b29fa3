//! `canopy ns check --repair`, with damage that a disk could do.

mod common;

use canopy_namespace::keys::Space;
use canopy_namespace::{Contents, Namespace, system_clock};
use canopy_store::storage::LocalStorage;
use canopy_store::{Batch, Durability, Environment};
use common::{Mounted, failure, ns, shell, success};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

fn check(place: &Path, arguments: &[&str]) -> Output {
    ns("check").arg(place).args(arguments).output().unwrap()
}

#[track_caller]
fn told(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Takes names of files away behind everybody's back, and with them their inodes.
fn damage(namespace: &Path, id: u64) {
    let storage = LocalStorage::existing(namespace).unwrap();
    let environment = Environment::system(Arc::new(storage));
    let contents = Contents::new(&namespace.join("contents")).unwrap();
    let opened = Namespace::open(&environment, contents, system_clock()).unwrap();
    let mut batch = Batch::new();
    for (parent, name) in opened.names(id).unwrap() {
        batch.delete(canopy_store::Key::named(parent, &name).as_ref()).unwrap();
    }
    batch.delete_range(&Space::Names.range_of(id)).unwrap();
    opened.table().write(&batch, Durability::Durable).unwrap();
    opened.close().unwrap();
}

#[test]
fn what_was_lost_is_found_again() {
    let mounted = Mounted::new();
    shell(
        &mounted.on,
        "mkdir -p a/b; echo precious > a/b/file; head -c 70000 /dev/urandom > large",
    );
    let large = fs::read(mounted.path("large")).unwrap();
    let ids = ["a/b", "large"].map(|name| fs::metadata(mounted.path(name)).unwrap().ino());
    mounted.unmount();
    assert_eq!(told(&check(&mounted.namespace, &["--repair"]), 0), "no faults\n");
    ids.iter().for_each(|id| damage(&mounted.namespace, *id));
    let faults = told(&check(&mounted.namespace, &[]), 1);
    assert!(faults.contains("names lie in what is no directory"), "{faults}");
    let done = told(&check(&mounted.namespace, &["--repair"]), 1);
    assert!(done.contains(&format!("file {}: is now lost+found/#{}", ids[0], ids[0])), "{done}");
    assert!(done.ends_with("all faults are mended\n"), "{done}");
    assert_eq!(success(&check(&mounted.namespace, &[])), "no faults\n");
    mounted.mount(&[]);
    let found = mounted.path("lost+found");
    assert_eq!(fs::metadata(&found).unwrap().mode(), 0o40700);
    let file = found.join(format!("#{}/file", ids[0]));
    assert_eq!(fs::read_to_string(file).unwrap(), "precious\n");
    assert_eq!(fs::read(found.join(format!("#{}", ids[1]))).unwrap(), large);
    mounted.assert_sound();
}

#[test]
fn a_namespace_is_repaired_while_it_is_in_use() {
    let mounted = Mounted::new();
    shell(
        &mounted.on,
        "mkdir a; for i in $(seq 300); do head -c $((i * 50)) /dev/zero > a/$i; done",
    );
    assert_eq!(success(&check(&mounted.on, &["--repair"])), "no faults\n");
    // The disk has lost an object, and has one that nobody knows.
    let id = fs::metadata(mounted.path("a/300")).unwrap().ino();
    let object = |id: u64| mounted.namespace.join(format!("contents/{:02x}/{id:016x}", id % 256));
    shell(&mounted.on, "sync a");
    fs::rename(object(id), object(id + (1 << 20))).unwrap();
    let on = mounted.on.clone();
    let writing = std::thread::spawn(move || {
        shell(&on, "for i in $(seq 300); do echo $i > new$i; mv new$i a/new$i; done");
    });
    let done = told(&check(&mounted.on, &["--repair"]), 1);
    assert!(done.contains("its contents are missing: reading fails until"), "{done}");
    assert!(done.contains("programs may see what was before until"), "{done}");
    writing.join().unwrap();
    assert_eq!(success(&check(&mounted.on, &[])), "no faults\n");
    assert!(fs::read(mounted.path("a/300")).is_err());
    let found = shell(&mounted.on, "cat lost+found/*");
    assert_eq!(found.len(), 15_000);
    mounted.unmount();
    mounted.mount(&["--read-only"]);
    assert!(failure(&check(&mounted.on, &["--repair"])).contains("Read-only file system"));
    mounted.assert_sound();
}

#[test]
fn namespaces_with_chunks_are_refused_mounted_or_not() {
    let mut mounted = Mounted::created();
    mounted.namespace = mounted.place.path().join("chunked");
    let create = ns("create").args(["--chunk-size", "8K"]).arg(&mounted.namespace).output();
    success(&create.unwrap());
    mounted.mount(&[]);
    let refused = |place: &Path| {
        let said = failure(&ns("check").arg("--repair").arg(place).output().unwrap());
        assert!(said.contains("cannot be repaired yet"), "{said}");
    };
    refused(&mounted.on);
    mounted.unmount();
    refused(&mounted.namespace);
}

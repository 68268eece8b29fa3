//! `canopy ns import` and `canopy ns export`: what is copied into a namespace and out again is what it
//! was.

use super::tree::{make, see};
use super::{Fixture, check, run, succeed};
use canopy_namespace::{Contents, Namespace, Privileges, ROOT, system_clock};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;

#[test]
fn everything_comes_back() {
    let place = Fixture::new();
    let source = place.directory("source");
    make(&source);
    let before = see(&source);
    let namespace = place.namespace("namespace");
    let said = succeed(&[&"import", &source, &namespace, &"--data"]);
    assert_eq!(said, format!("imported {} entries\n", before.len() - 1));
    check(&namespace);
    let copy = place.join("copy");
    succeed(&[&"export", &namespace, &copy]);
    let after = see(&copy);
    for (path, seen) in &before {
        assert_eq!(Some(seen), after.get(path), "{path:?}");
    }
    assert_eq!(before.len(), after.len());
    check(&namespace);
}

#[test]
fn a_tree_below_is_exported_alone_and_into_what_is_empty() {
    let place = Fixture::new();
    let source = place.directory("source");
    make(&source);
    let namespace = place.namespace("namespace");
    succeed(&[&"import", &source, &namespace, &"--data", &"--into", &"new:name"]);
    let copy = place.directory("copy");
    let what = format!("{}:/new:name/sub", namespace.display());
    succeed(&[&"export", &what, &copy]);
    let (sub, exported) = (see(&source.join("sub")), see(&copy));
    assert_eq!(sub.len(), exported.len());
    for (path, seen) in &sub {
        assert_eq!(Some(seen), exported.get(path), "{path:?}");
    }
    let (code, _, said) = run(&[&"export", &namespace, &copy]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("is not empty"), "{said}");
    let fifo = place.join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)
        .expect("a fifo");
    let (code, _, said) = run(&[&"export", &namespace, &fifo]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("fifo: Not a directory"), "{said}");
}

#[test]
fn without_data_contents_are_absent() {
    let place = Fixture::new();
    let source = place.directory("source");
    make(&source);
    let namespace = place.namespace("namespace");
    succeed(&[&"import", &source, &namespace]);
    check(&namespace);
    assert_eq!(fs::read_dir(namespace.join("contents")).expect("objects").count(), 0);
    let copy = place.join("copy");
    let (code, _, said) = run(&[&"export", &namespace, &copy]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("file-4096: its contents are not in the namespace"), "{said}");
    let [before, after] = ["source", "copy"].map(|name| place.join(name).join("file-10485760"));
    let [before, after] = [before, after].map(|path| path.metadata().expect("attributes"));
    assert_eq!(before.modified().expect("a time"), after.modified().expect("a time"));
    assert_eq!(before.len(), after.len());
}

#[test]
fn absent_contents_are_no_zeros() {
    let place = Fixture::new();
    let source = place.directory("source");
    fs::write(source.join("file"), "text").expect("a file");
    fs::hard_link(source.join("file"), source.join("again")).expect("a link");
    let directory = place.namespace("namespace");
    succeed(&[&"import", &source, &directory]);
    let storage = LocalStorage::new(&directory).expect("a storage");
    let contents = Contents::new(&directory.join("contents")).expect("a directory");
    let environment = Environment::system(Arc::new(storage));
    let namespace = Namespace::open(&environment, contents, system_clock()).expect("a namespace");
    let id = namespace.lookup(ROOT, b"again").expect("a file").id;
    let keep = Privileges::Keep;
    for failed in [
        namespace.open_file(id).map(drop),
        namespace.truncate(id, 1, keep),
        namespace.truncate(id, 100, keep),
    ] {
        assert_eq!(failed.expect_err("absent").errno(), Errno::NODATA);
    }
    assert_eq!(namespace.inode(id).expect("a file").size, 4);
    namespace.truncate(id, 0, keep).expect("nothing left");
    let opened = namespace.open_file(id).expect("a file like any other");
    namespace.write(&opened, None, b"new", keep).expect("writing");
    namespace.close_file(&opened).expect("closing");
    assert_eq!(namespace.lookup(ROOT, b"file").expect("a file").size, 3);
    namespace.sync().expect("a sync");
    drop(namespace);
    check(&directory);
}

#[test]
fn names_that_are_there_already_stop_it() {
    let place = Fixture::new();
    let (one, other) = (place.directory("one"), place.directory("other"));
    fs::create_dir_all(one.join("shared/a")).expect("a directory");
    fs::create_dir(one.join("x")).expect("a directory");
    File::create(other.join("new")).expect("a file");
    fs::create_dir(other.join("shared")).expect("a directory");
    let namespace = place.namespace("namespace");
    succeed(&[&"import", &one, &namespace]);
    let (code, _, said) = run(&[&"import", &other, &namespace]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("has shared there already"), "{said}");
    check(&namespace);
    let tree = || succeed(&[&"du", &"-a", &"--apparent-size", &namespace]);
    let count = |told: String| told.lines().count();
    assert_eq!(count(tree()), 4);
    succeed(&[&"import", &other, &namespace, &"--into", &"shared/a"]);
    check(&namespace);
    succeed(&[&"import", &other, &namespace, &"--into", &"shared/b"]);
    fs::remove_dir(other.join("shared")).expect("removing");
    succeed(&[&"import", &other, &namespace]);
    check(&namespace);
    assert_eq!(count(tree()), 4 + 2 + 3 + 1);
    let (code, _, said) = run(&[&"import", &other, &namespace, &"--into", &"new/x"]);
    assert_eq!((code, said.contains("not a directory")), (2, true), "{said}");
}

#[test]
fn trees_are_as_deep_as_they_like() {
    const DEPTH: usize = 1500;
    let place = Fixture::new();
    let source = place.directory("source");
    let mut at = rustix::fs::open(&source, OFlags::DIRECTORY, Mode::empty()).expect("a directory");
    let name = "d".repeat(200);
    for level in 0..DEPTH {
        for sibling in [format!("a{level}"), format!("z{level}")] {
            rustix::fs::mkdirat(&at, sibling, Mode::RWXU).expect("a directory");
        }
        rustix::fs::mkdirat(&at, &*name, Mode::RWXU).expect("a directory");
        at = rustix::fs::openat(&at, &*name, OFlags::DIRECTORY, Mode::empty()).expect("opening");
    }
    let namespace = place.namespace("namespace");
    let said = succeed(&[&"import", &source, &namespace]);
    assert_eq!(said, format!("imported {} entries\n", 3 * DEPTH));
    check(&namespace);
    let told = succeed(&[&"du", &"-s", &namespace]);
    assert_eq!(told, "0\t/\n");
    let copy = place.join("copy");
    let said = succeed(&[&"export", &namespace, &copy]);
    assert_eq!(said, format!("exported {} entries\n", 3 * DEPTH));
    let found = Command::new("find").arg(&copy).output().expect("find");
    assert_eq!(found.stdout.iter().filter(|byte| **byte == b'\n').count(), 3 * DEPTH + 1);
}

#[test]
fn mounts_are_not_crossed_unless_asked() {
    let place = Fixture::new();
    let source = place.directory("source");
    fs::create_dir(source.join("mounted")).expect("a directory");
    let mounted = source.join("mounted");
    let status = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&mounted).status();
    assert!(status.expect("mount").success());
    File::create(mounted.join("inside")).expect("a file");
    let [without, with] = ["without", "with"].map(|name| place.namespace(name));
    let ran = [
        run(&[&"import", &source, &without]),
        run(&[&"import", &source, &with, &"--cross-mounts"]),
    ];
    let status = Command::new("umount").arg(&mounted).status();
    assert!(status.expect("umount").success());
    for ((code, said, errors), entries) in ran.into_iter().zip(["1 entry", "2 entries"]) {
        assert_eq!((code, errors.as_str()), (0, ""));
        assert_eq!(said, format!("imported {entries}\n"));
    }
    check(&without);
    check(&with);
}

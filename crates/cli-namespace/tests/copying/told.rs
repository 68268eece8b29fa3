//! The output of du, and errors of namespaces that cannot be opened.

use super::{Fixture, check, run, succeed};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn du_counts_links_once() {
    let place = Fixture::new();
    let source = place.directory("source");
    fs::create_dir_all(source.join("a/b")).expect("directories");
    fs::write(source.join("a/one"), vec![1; 3000]).expect("a file");
    fs::write(source.join("a/b/two"), vec![1; 100_000]).expect("a file");
    fs::hard_link(source.join("a/one"), source.join("a/b/again")).expect("a link");
    let namespace = place.namespace("namespace");
    succeed(&[&"import", &source, &namespace, &"--data"]);
    let du = |words: &[&dyn AsRef<Path>]| {
        let all: Vec<&dyn AsRef<Path>> = [&[&"du" as &dyn AsRef<Path>], words].concat();
        succeed(&all)
    };
    let within = |path: &str| format!("{}:{path}", namespace.display());
    assert_eq!(du(&[&namespace, &"--apparent-size", &"-s"]), "101\t/\n");
    let levels = du(&[&namespace, &"--apparent-size", &"--max-depth", &"1"]);
    assert_eq!(levels, "101\t/a\n101\t/\n");
    let told = du(&[&"--apparent-size", &within("a/b/"), &"-a"]);
    assert_eq!(told.lines().count(), 3);
    assert!(told.ends_with("101\t/a/b\n"), "{told}");
    assert_eq!(du(&[&namespace, &"--apparent-size", &"-s", &"-h"]), "101K\t/\n");
    let json = "[\n{\"bytes\":103000,\"path\":\"/a\"}\n]\n";
    assert_eq!(du(&[&"--apparent-size", &"-s", &"--json", &within("/a")]), json);
    assert_eq!(du(&[&"--apparent-size", &within("/a/one")]), "3\t/a/one\n");
    let (code, _, said) = run(&[&"du", &within("/a/none")]);
    assert_eq!((code, said.contains("/a/none: no such file")), (2, true), "{said}");
}

#[test]
fn namespaces_in_use_are_told() {
    let place = Fixture::new();
    let source = place.directory("source");
    let namespace = place.namespace("namespace");
    let tables = fs::read_dir(&namespace).expect("a namespace");
    let mut locks = tables.map(|entry| entry.expect("an entry").path().join("lock"));
    let lock = locks.find(|lock| lock.exists()).expect("a lock");
    let lock = File::open(lock).expect("a lock");
    flock(&lock, FlockOperation::LockExclusive).expect("a lock");
    let copy = place.join("copy");
    let commands: [&[&dyn AsRef<Path>]; 3] =
        [&[&"import", &source, &namespace], &[&"export", &namespace, &copy], &[&"du", &namespace]];
    for words in commands {
        let (code, _, said) = run(words);
        assert_eq!(code, 2);
        assert!(said.contains("is mounted, or used by another command: unmount it"), "{said}");
    }
    assert!(!copy.exists());
}

#[test]
fn a_namespace_is_not_imported_into_itself() {
    let place = Fixture::new();
    let source = place.directory("source");
    fs::write(source.join("file"), "text").expect("a file");
    let namespace = place.namespace("source/namespace");
    std::os::unix::fs::symlink(&namespace, place.join("link")).expect("a link");
    for within in [&namespace, &place.join("link"), &namespace.join("contents/..")] {
        fs::create_dir_all(namespace.join("contents")).expect("a directory");
        let (code, said, told) = run(&[&"import", within, &namespace, &"--data"]);
        assert_eq!((code, said.as_str()), (2, ""), "{told}");
        assert!(told.contains("lies in the namespace, which cannot be imported into"), "{told}");
    }
    assert_eq!(succeed(&[&"find", &namespace]), "/\n");
    // Of a tree that it lies in, all else is.
    let (code, _, told) = run(&[&"import", &source, &namespace, &"--data"]);
    assert_eq!(code, 1);
    assert!(told.contains("namespace: the namespace itself is not imported into it"), "{told}");
    assert_eq!(succeed(&[&"find", &namespace]), "/\n/file\n");
    check(&namespace);
    // Nor is what it has in it, mounted elsewhere.
    let bound = place.directory("bound");
    let mut mount = Command::new("mount");
    let mounted = mount.arg("--bind").arg(namespace.join("contents")).arg(&bound).status();
    assert!(mounted.expect("mount runs").success());
    let (code, said, told) = run(&[&"import", &bound, &namespace, &"--data"]);
    let unmounted = Command::new("umount").arg(&bound).status();
    assert!(unmounted.expect("umount runs").success());
    assert_eq!((code, said.as_str()), (2, ""), "{told}");
    assert!(told.contains("lies in the namespace, which cannot be imported into"), "{told}");
}

/// The directories above the source need not be there for the caller.
#[test]
fn a_source_without_a_path_is_imported() {
    let place = Fixture::new();
    let above = place.directory("above");
    fs::create_dir_all(above.join("source/directory")).expect("directories");
    fs::set_permissions(&above, fs::Permissions::from_mode(0o700)).expect("a mode");
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).expect("a mode");
    let program = place.join("canopy-ns");
    fs::copy(env!("CARGO_BIN_EXE_canopy-ns"), &program).expect("a program");
    let own = place.directory("own");
    chown(&own, Some(2001), Some(2001)).expect("an owner");
    let namespace = own.join("namespace");
    let as_user = |words: &[&dyn AsRef<Path>]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "2001", "--regid", "2001", "--clear-groups"]);
        command.arg(&program).arg("ns").args(words.iter().map(|word| word.as_ref()));
        command.current_dir(above.join("source")).output().expect("setpriv runs")
    };
    let made = as_user(&[&"create", &namespace]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let imported = as_user(&[&"import", &".", &namespace]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let found = as_user(&[&"find", &namespace]);
    assert_eq!(String::from_utf8_lossy(&found.stdout), "/\n/directory\n", "{found:?}");
}

#[test]
fn others_than_root_are_told_what_they_cannot_keep() {
    let place = Fixture::new();
    let source = place.directory("source");
    fs::write(source.join("file"), "text").expect("a file");
    fs::write(source.join("closed"), "text").expect("a file");
    let namespace = place.namespace("namespace");
    succeed(&[&"import", &source, &namespace, &"--data"]);
    for path in [&place.0, &namespace] {
        let status = Command::new("chown").arg("-R").arg("4242:4242").arg(path).status();
        assert!(status.expect("chown").success());
    }
    let copy = place.join("copy");
    // Where others get to.
    let program = place.join("canopy-ns");
    fs::copy(env!("CARGO_BIN_EXE_canopy-ns"), &program).expect("a program");
    let mut export = Command::new(program);
    export.args(["ns", "export"]).arg(&namespace).arg(&copy);
    let done = export.uid(4242).gid(4242).output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("file: its owner 0 and group 0"), "{said}");
    assert!(said.contains("3 things were not exported"), "{said}");
    assert_eq!(fs::read(copy.join("file")).expect("a file"), b"text");
}

/// A tmpfs at a directory, unmounted when it goes away.
struct Tmpfs(std::path::PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn tmpfs(at: std::path::PathBuf) -> Tmpfs {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&at).status();
    assert!(mounted.expect("mount runs").success());
    Tmpfs(at)
}

#[test]
fn du_adds_up_more_than_64_bits() {
    let place = Fixture::new();
    let source = tmpfs(place.directory("source"));
    fs::create_dir(source.0.join("large")).expect("a directory");
    for name in ["a", "b", "c"] {
        let file = File::create(source.0.join("large").join(name)).expect("a file");
        file.set_len(i64::MAX as u64).expect("a hole");
    }
    fs::write(source.0.join("small"), "1234").expect("a file");
    let namespace = place.namespace("namespace");
    succeed(&[&"import", &source.0, &namespace]);
    let du = |words: &[&dyn AsRef<Path>]| {
        let all: Vec<&dyn AsRef<Path>> = [&[&"du" as &dyn AsRef<Path>, &namespace], words].concat();
        succeed(&all)
    };
    let json = du(&[&"--apparent-size", &"--json"]);
    let large = 3 * i128::from(i64::MAX);
    let line = |bytes: i128, path: &str| format!("{{\"bytes\":{bytes},\"path\":\"{path}\"}}");
    assert_eq!(json, format!("[\n{},\n{}\n]\n", line(large, "/large"), line(large + 4, "/")));
    assert_eq!(du(&[&"--apparent-size", &"-h"]), "24E\t/large\n25E\t/\n");
    // Holes take no space.
    assert_eq!(du(&[&"-s"]), "4\t/\n");
}

#[test]
fn times_that_cannot_be_kept_are_told() {
    let place = Fixture::new();
    let source = tmpfs(place.directory("source"));
    for (name, time) in [("far", "2300-01-01"), ("near", "1901-01-01"), ("old", "1600-01-01")] {
        let touched = Command::new("touch").args(["-d", time]).arg(source.0.join(name)).status();
        assert!(touched.expect("touch runs").success());
    }
    let namespace = place.namespace("namespace");
    let (code, _, said) = run(&[&"import", &source.0, &namespace]);
    let what = "one of its times is before 1677 or after 2262: it has the nearest now";
    assert_eq!(code, 1, "{said}");
    for name in ["far", "old"] {
        assert!(said.contains(&format!("{name}: {what}")), "{said}");
    }
    assert!(!said.contains("near: "), "{said}");
    check(&namespace);
}

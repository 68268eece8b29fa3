//! `canopy ns index`, and what all subcommands of `canopy ns` have in common.

mod common;

use common::{Mounted, failure, ns, success, wait_until};
use std::fs;

/// Returns the indexes that there are; those being built are in parentheses.
fn indexes(place: &std::path::Path, change: &[&str]) -> String {
    success(&ns("index").arg(place).args(change).output().unwrap()).trim_end().to_owned()
}

#[test]
fn indexes_are_built_while_files_change() {
    let mounted = Mounted::with(&["--threads", "1", "--no-passthrough"]);
    for at in 0..2000 {
        let bytes = vec![b'x'; at % 50 * 100];
        fs::write(mounted.path(format!("file{at}.{}", at % 7)), bytes).unwrap();
    }
    assert_eq!(indexes(&mounted.on, &[]), "size uid gid mtime ext");
    let told = indexes(&mounted.on, &["--add", "name,atime,user.run"]);
    assert!(told.starts_with("size uid gid mtime ext"), "{told}");
    let mut at = 0;
    wait_until("the indexes are built", || {
        fs::rename(mounted.path(format!("file{at}.{}", at % 7)), mounted.path(format!("new{at}")))
            .unwrap();
        at += 1;
        !indexes(&mounted.on, &[]).contains('(')
    });
    assert_eq!(indexes(&mounted.on, &[]), "size uid gid mtime ext name atime user.run");
    let found = fs::read_dir(mounted.path("[name~new*]")).unwrap().count();
    assert_eq!(found, at);
    assert_eq!(success(&ns("check").arg(&mounted.on).output().unwrap()), "no faults\n");
    assert_eq!(
        indexes(&mounted.on, &["--remove", "name,size"]),
        "uid gid mtime ext atime user.run"
    );
    assert_eq!(fs::read_dir(mounted.path("[name~new*]")).unwrap().count(), found);
    mounted.assert_sound();
}

#[test]
fn indexes_of_what_is_not_mounted_are_built_at_once() {
    let mounted = Mounted::created();
    let namespace = mounted.place.path().join("another");
    success(&ns("create").arg(&namespace).args(["--indexes", "none"]).output().unwrap());
    assert_eq!(indexes(&namespace, &[]), "");
    assert_eq!(indexes(&namespace, &["--add", "type"]), "type");
    let said = failure(&ns("index").arg(&namespace).args(["--add", "colour"]).output().unwrap());
    assert!(said.contains("colour: there is no such attribute; there are size, "), "{said}");
    mounted.mount(&[]);
    for change in ["--add", "--remove"] {
        let said =
            failure(&ns("index").arg(&mounted.on).args([change, "colour"]).output().unwrap());
        assert!(said.contains("colour: there is no such attribute; there are size, "), "{said}");
    }
    let both = ["--add", "type", "--remove", "size,type"];
    let said = failure(&ns("index").arg(&mounted.on).args(both).output().unwrap());
    assert!(said.contains("type: either --add or --remove"), "{said}");
}

#[test]
fn each_subcommand_explains_itself() {
    for line in [
        "create",
        "info",
        "check",
        "index",
        "quota",
        "import",
        "export",
        "du",
        "find",
        "mount",
        "unmount",
        "snapshot create",
        "snapshot list",
        "snapshot delete",
        "view add",
        "view list",
        "view remove",
    ] {
        let words = line.split(' ');
        let subcommand = || {
            let mut command = ns(words.clone().next().unwrap());
            command.args(words.clone().skip(1));
            command
        };
        let told = success(&subcommand().arg("--help").output().unwrap());
        assert!(told.contains("Example: canopy ns "), "{told}");
        if line != "du" {
            let short = success(&subcommand().arg("-h").output().unwrap());
            assert!(short.contains("Usage: "), "{short}");
        }
        // What the parent of a mount's process adds is not for users.
        assert!(!told.contains("--detached"), "{told}");
        // There is no index that it would need.
        let with = subcommand().args(["--index", "/no/such", "--help"]).output().unwrap();
        assert_eq!(success(&with), told);
    }
}

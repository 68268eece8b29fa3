//! Commands that read the records of all tables.

use crate::common::{shell, success};
use crate::trial::{Trial, UIDS, assert_same, lines};
use std::fs;

/// All that find(1) knows of an entry but its device.
const ALL: &str = "%P|%y|%m|%U|%G|%n|%s|%b|%i|%l|%T@|%C@|%d\\n";

/// Compares all that commands print with programs in the mount.
fn check(trial: &Trial, what: &str) {
    for words in [
        &["-printf", ALL][..],
        &["-type", "f", "-links", "+1", "-printf", ALL],
        &["-name", "file1*", "-size", "+0", "-printf", "%P\\n"],
        &["-type", "d", "-empty", "-printf", "%P\\n"],
        &["-newermt", "2020-01-01", "-not", "-newermt", "2021-01-01", "-printf", "%P\\n"],
    ] {
        let expected = trial.program(0, &[&["find", "."], words].concat());
        let found = trial.ns(&[&["find", "@"], words].concat());
        assert!(found.status.success(), "{found:?}");
        assert_same(&lines(&found), &expected, &format!("{what}: find {words:?}"));
    }
    // Which name of a file with several is counted depends on the order of the walk.
    for words in [&["-s"][..], &["-s", "--apparent-size"]] {
        let expected = trial.program(0, &[&["du", "--block-size=1"], words, &["."]].concat());
        let expected = Vec::from_iter(expected.iter().map(|line| line.replace("\t.", "\t/")));
        let mut command = crate::common::ns("du");
        command.args(words).arg(&trial.site.namespace).env("DU_BLOCK_SIZE", "1");
        let found = lines(&command.output().unwrap());
        assert_same(&found, &expected, &format!("{what}: du {words:?}"));
    }
}

fn check_export(trial: &Trial, name: &str) {
    let out = trial.site.path(name);
    let told = success(&trial.ns(&["export", "@", out.to_str().unwrap()]));
    assert!(told.starts_with("exported "), "{told}");
    let facts = "find . -printf '%P|%y|%m|%U|%G|%n|%l|%T@\\n' | sort; \
                 find . -type f -exec sha256sum {} + | sort -k 2; { getfacl -R -P -n . 2> /dev/null || true; }; \
                 { getfattr -R -h -d -m '^(user|trusted)' . 2> /dev/null || true; }";
    // The order of names differs; that of lines in a file's block does not.
    let sorted = |text: String| {
        let mut lines = Vec::from_iter(text.lines().map(str::to_owned));
        lines.sort();
        lines
    };
    let exported = sorted(shell(&out, facts));
    assert_same(&exported, &sorted(shell(&trial.on, facts)), "export");
    fs::remove_dir_all(out).unwrap();
}

fn check_index(trial: &Trial, index: &str, what: &str) {
    let on = trial.on.to_str().unwrap();
    for uid in UIDS {
        for words in [
            &["find", on, "-printf", ALL][..],
            &["find", on, "-type", "f", "-links", "+1", "-printf", "%p\\n"],
        ] {
            let found = lines(&trial.canopy(index, uid, words).output().unwrap());
            let expected = trial.program(uid, words);
            assert_same(&found, &expected, &format!("{what}: uid {uid}, {words:?}"));
        }
    }
}

#[test]
fn records_of_servers_are_what_a_mount_shows() {
    let mut trial = Trial::new();
    check(&trial, "running");
    check_export(&trial, "out");
    trial.index("index", &["index"]);
    check_index(&trial, "index", "running");
    // All directories are spread over all servers.
    success(&trial.site.cluster(&["spread", "/big", "@"]));
    shell(&trial.on, "for i in $(seq 60); do : > a/b/new$i; done; rm big/file5*");
    check(&trial, "spread");
    // One of two processes dies. The other one takes its servers over.
    trial.site.processes.remove(1).kill();
    shell(&trial.on, "for i in $(seq 50); do : > a/late$i; done");
    check(&trial, "after a crash");
    trial.index("again", &["index"]);
    check_index(&trial, "again", "after a crash");
}

#[test]
fn a_stopped_cluster_is_read() {
    let mut trial = Trial::new();
    let expected = trial.program(0, &["find", ".", "-printf", "%P|%s|%i\\n"]);
    success(&trial.site.unmount("on"));
    for process in trial.site.processes.drain(..) {
        process.kill();
    }
    // Until their leases have ended, the processes might live.
    let find = || trial.ns(&["find", "@", "-printf", "%P|%s|%i\\n"]);
    crate::common::wait_until("the leases have ended", || find().status.success());
    assert_same(&lines(&find()), &expected, "stopped");
    let out = trial.site.path("out");
    success(&trial.ns(&["export", "@", out.to_str().unwrap()]));
    assert_eq!(fs::read(out.join("closed/file")).unwrap(), b"secret\n");
    assert_eq!(fs::metadata(out.join("a/large")).unwrap().len(), 3_000_000);
    let told = success(&trial.ns(&["info", "@"]));
    assert!(told.starts_with("servers   4\n"), "{told}");
    let refused = trial.ns(&["index", "@", "--add", "atime"]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("canopy cluster start"), "{told}");
}

#[test]
fn indexes_of_attributes_are_set_on_all_servers() {
    let trial = Trial::new();
    let told = success(&trial.ns(&["index", "@", "--add", "atime", "--remove", "ext"]));
    assert!(told.contains("atime") && !told.contains("ext"), "{told}");
    let sorted = || {
        let told = success(&trial.ns(&["index", "@"]));
        let mut names = Vec::from_iter(told.split_whitespace().map(str::to_owned));
        names.sort();
        names.join(" ")
    };
    crate::common::wait_until("it is built", || sorted() == "atime gid mtime size uid");
    check(&trial, "with other indexes");
}

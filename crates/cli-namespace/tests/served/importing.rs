//! `canopy ns import` into a namespace on several servers: by real processes, of real trees.

use crate::common::{as_user, failure, ns, shell, success, wait_until};
use crate::site::Site;
use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

/// A tree with each kind of file and attribute, with a directory that is large enough to be spread.
const TREE: &str = "
    mkdir -p big deep/a/b/c empty closed
    for i in $(seq 120); do echo $i > big/file$i; done; for i in $(seq 10); do mkdir -p big/d$i; : > big/d$i/inner; done
    ln big/file1 deep/one; ln deep/one deep/a/one; ln -s ../big deep/link; ln -s nowhere deep/dangling
    mkfifo deep/fifo; mknod deep/device c 1 3
    head -c 3000000 /dev/urandom > deep/large; ln deep/large big/large
    truncate -s 9M deep/sparse; echo end >> deep/sparse; truncate -s 20M deep/hole
    setfattr -n user.note -v one deep/a big/file2; setfattr -n trusted.note -v two deep/large
    setfacl -m u:2001:rwx,g:2002:--- deep/a; setfacl -d -m u:2001:rx deep; setfacl -m u:2002:r big/file3
    echo secret > closed/file; chown -R 2001:2002 closed; chmod 2770 closed; chmod 4755 big/file4
    find . -depth -exec touch -h -d '2020-01-02 03:04:05.123456789' {} +; touch -d 2019-01-01 deep/a .";

/// Prints everything that a copy of a tree has to have in common with it.
const FACTS: &str = "
    find . ! -type d -printf '%y %m %U %G %n %s %T@ %l %P\\n' | sort; find . -type d -printf '%m %U %G %T@ %P\\n' | sort
    find . | sort | xargs -d'\\n' getfattr -h -d -m '^(user|trusted)\\.'
    find . ! -type l | sort | xargs -d'\\n' getfacl -n -p
    find . -type f -links +1 -printf '%P\\n' | sort | xargs -d'\\n' stat -c %h";

const CONTENTS: &str = "find . -type f | sort | xargs -d'\\n' sha256sum";

fn import(source: &Path, namespace: &str, options: &[&str]) -> Output {
    ns("import").arg(source).arg(namespace).args(options).output().unwrap()
}

#[track_caller]
fn assert_copied(source: &Path, copy: &Path, commands: &[&str]) {
    for command in commands {
        let [expected, found] = [source, copy].map(|tree| shell(tree, command));
        let different = found.lines().zip(expected.lines()).find(|(one, other)| one != other);
        assert!(found == expected, "{different:?}, {} {}", found.len(), expected.len());
    }
}

#[test]
fn a_tree_is_imported_with_all_attributes() {
    let mut site = Site::with(4, 2, &["--split-entries", "64"]);
    let source = site.path("source");
    fs::create_dir(&source).unwrap();
    shell(&source, TREE);
    let (url, on) = (site.url(), site.mount("on", &[]));
    let told = success(&import(&source, &url, &["--data", "--json", "--into", "/copy"]));
    let count = shell(&source, "find . -mindepth 1 | wc -l");
    assert_eq!(told, format!("{{\"entries\":{},\"faults\":0}}\n", count.trim()));
    // A mount that has seen nothing before.
    let fresh = site.mount("fresh", &[]);
    assert_copied(&source, &fresh.join("copy"), &[FACTS, CONTENTS]);
    let same = shell(&on.join("copy"), "stat -c %i big/file1 deep/one deep/a/one | uniq | wc -l");
    assert_eq!(same.trim(), "1");
    // The large directory was spread before it was filled.
    let partitions = success(&site.cluster(&["partitions", "/copy/big", "@"]));
    assert!(partitions.lines().count() > 8, "{partitions}");
    // By the place, into a directory that is there, without contents.
    fs::create_dir(on.join("there")).unwrap();
    fs::write(on.join("there/before"), "").unwrap();
    let place = site.namespace.to_str().unwrap().to_owned();
    success(&import(&source, &place, &["--into", "there"]));
    assert!(fs::read(on.join("there/big/file7")).is_err());
    assert_eq!(fs::metadata(on.join("there/deep/large")).unwrap().len(), 3_000_000);
    fs::remove_file(on.join("there/before")).unwrap();
    assert_copied(&source.join("deep"), &fresh.join("there/deep"), &[FACTS]);
    // Nothing of an import that cannot be done is there.
    shell(&source, "mkdir ../other; echo > ../other/new; mkdir ../other/big");
    let told = failure(&import(&site.path("other"), &url, &["--into", "/there"]));
    assert!(told.contains("has big there already; nothing was imported"), "{told}");
    assert!(!on.join("there/new").exists());
    let told = failure(&import(&on.join("copy"), &place, &["--into", "/itself"]));
    assert!(told.contains("cannot be imported into itself"), "{told}");
    let told = failure(&import(&source, &url, &["--into", "/nowhere/at/all"]));
    assert!(told.contains("/nowhere"), "{told}");
    let user = as_user(2001, crate::common::CANOPY)
        .args(["ns", "import"])
        .arg(site.path("other"))
        .args([&url, "--into", "/user"])
        .output();
    failure(&user.unwrap());
    assert!(!on.join("user").exists());
    // 'ns check' is that of the cluster.
    for name in [&url, &place, &on.to_str().unwrap().to_owned()] {
        let checked = ns("check").arg(name).output().unwrap();
        assert_eq!(success(&checked), "no faults\n");
    }
    let checked = ns("check").arg(&place).arg("--data").output().unwrap();
    assert_eq!(success(&checked), "no faults\n");
    let told = failure(&ns("check").arg(&place).args(["--snapshot", "none"]).output().unwrap());
    assert!(told.contains("has no snapshot none"), "{told}");
    for on in ["fresh", "on"] {
        success(&site.unmount(on));
    }
}

#[test]
fn an_interrupted_import_is_completed() {
    let mut site = Site::with(4, 2, &["--split-entries", "64", "--chunk-size", "64K"]);
    let source = site.path("source");
    fs::create_dir(&source).unwrap();
    shell(&source, TREE);
    let many = "for d in $(seq 20); do mkdir m$d; for f in $(seq 30); do echo $f > m$d/f$f; done; ln m$d/f1 m$d/again; \
                head -c 200000 /dev/urandom > m$d/large; done; touch -d 2018-01-01 .";
    shell(&source, many);
    let (url, on) = (site.url(), site.mount("on", &[]));
    let options = ["--data", "--into", "/copy"];
    // A mount that looks all the time would have leases of the directories that are made.
    let copied = format!("{}:/copy", site.namespace.display());
    let entries = || {
        let found = ns("find").arg(&copied).output().unwrap();
        found.stdout.iter().filter(|byte| **byte == b'\n').count()
    };
    let (mut at_least, mut killed) = (20, 0);
    for round in 0..3 {
        let mut command = ns("import");
        command.arg(&source).arg(&url).args(options).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        wait_until("some of it is there", || {
            entries() > at_least || child.try_wait().unwrap().is_some()
        });
        // Users do not see it before it is complete.
        if child.try_wait().unwrap().is_none() {
            let list = as_user(2001, "ls").arg(on.join("copy")).output().unwrap();
            assert!(!list.status.success() || child.try_wait().unwrap().is_some());
        }
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
        at_least = entries() + 100;
        if round == 1 {
            site.processes.remove(0).kill();
        }
    }
    let other = site.path("other");
    fs::create_dir(&other).unwrap();
    let url = site.url();
    assert!(killed > 0);
    if is_marked(&on.join("copy")) {
        let told = failure(&import(&other, &url, &options));
        assert!(told.contains("was interrupted there"), "{told}");
        success(&import(&source, &url, &options));
    }
    let fresh = site.mount("fresh", &[]);
    assert_copied(&source, &fresh.join("copy"), &[FACTS, CONTENTS]);
    assert!(!is_marked(&fresh.join("copy")));
    assert_eq!(success(&site.cluster(&["check", "@"])), "no faults\n");
    for on in ["fresh", "on"] {
        success(&site.unmount(on));
    }
}

fn is_marked(directory: &Path) -> bool {
    let shown = shell(directory, "getfattr -d -m trusted.canopy .");
    shown.contains("trusted.canopy.import")
}

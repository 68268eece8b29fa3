//! `canopy index ns:PATH` against a scan of the mount: all that both can know is the same, for
//! every user. Needs root, and `canopy` built beside.

mod common;
#[path = "../../cli/tests/common/mod.rs"]
mod site;

use canopy_namespace::{Contents, Namespace, New, ROOT, SetXattr, system_clock};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use common::{Mounted, as_user, failure, ns, success, wait_until};
use rand::RngExt;
use site::length::rounds;
use site::{UIDS, assert_same, random_tree, seeded, sorted};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

/// A mounted namespace with a copy of a random tree, and what canopy's indexes are configured by.
struct Trial {
    mounted: Mounted,
    configuration: PathBuf,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let mounted = Mounted::new();
        let tree = mounted.place.path().join("tree");
        let mut random = seeded(seed);
        random_tree(&tree, &mut random, true);
        mounted.unmount();
        let mut import = ns("import");
        success(&import.arg(&tree).arg(&mounted.namespace).arg("--data").output().unwrap());
        mounted.mount(&[]);
        for (number, uid) in UIDS.iter().enumerate() {
            // Gates, what only some may list, and attributes that only some may read.
            let directory = mounted.path(format!("gate{number}"));
            fs::create_dir_all(directory.join("in/deep")).unwrap();
            let file = directory.join("in/file");
            fs::write(&file, "x").unwrap();
            for (name, value) in [("user.note", "one"), ("trusted.note", "two")] {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(&file, name, value.as_bytes(), flags).unwrap();
            }
            let mode = [0o711, 0o700, 0o750, 0o755, 0o751][random.random_range(0..5)];
            let mode = fs::Permissions::from_mode(mode);
            std::os::unix::fs::chown(&directory, Some(*uid), Some(3001)).unwrap();
            fs::set_permissions(&directory, mode).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        }
        let configuration = mounted.place.path().join("canopy.toml");
        // A scan does not know that this mount minds ACLs.
        fs::write(&configuration, "trust_fs = [\"fuse.canopy\"]\n").unwrap();
        Trial { mounted, configuration }
    }

    fn canopy(&self, index: &str) -> Command {
        let mut command = Command::new(site::built("canopy"));
        command.arg("--index").arg(self.mounted.place.path().join(index));
        command.env("CANOPY_SITE_CONFIG", &self.configuration).env("TZ", "UTC").current_dir("/");
        command
    }

    /// Indexes the namespace by its records.
    fn index(&self, index: &str, options: &[&OsStr]) -> Output {
        let mut source = std::ffi::OsString::from("ns:");
        source.push(&self.mounted.namespace);
        self.canopy(index).arg("index").arg(source).args(options).output().unwrap()
    }

    /// Returns the output of a command as a user.
    fn answer_for(&self, index: &str, uid: u32, words: &[&str]) -> Vec<String> {
        let canopy = site::built("canopy");
        let mut command = as_user(uid, canopy.to_str().unwrap());
        command.arg("--index").arg(self.mounted.place.path().join(index)).args(words);
        command.env("TZ", "UTC").current_dir("/");
        sorted(&command.output().unwrap().stdout, b'\n')
    }
}

#[test]
fn configured_sources_may_be_namespaces() {
    let trial = Trial::new(5300);
    let on = trial.mounted.on.to_str().unwrap();
    let namespace = trial.mounted.namespace.to_str().unwrap();
    let shown = |index: &str| trial.answer_for(index, 0, &["find", on]);
    for (index, text) in [
        ("listed", format!("sources = ['ns:{namespace}']\n")),
        (
            "table",
            format!("[[sources]]\npath = 'ns:{namespace}'\nname = 'named'\nexclude = ['gate1']\n"),
        ),
    ] {
        fs::write(&trial.configuration, text).unwrap();
        success(&trial.canopy(index).arg("index").output().unwrap());
    }
    let gate = format!("{on}/gate1");
    let mut expected = shown("listed");
    assert!(expected.contains(&gate));
    expected.retain(|path| *path != gate && !path.starts_with(&format!("{gate}/")));
    assert_same(&shown("table"), &expected, "options of a source");
    let sources = success(&trial.canopy("table").args(["source", "list"]).output().unwrap());
    assert!(sources.contains("named"), "{sources}");
}

/// All columns that a mount tells, too: not the time of birth.
const ALL: &str = "%p|%f|%y|%m|%U|%G|%n|%s|%b|%i|%l|%T@|%A@|%C@|%D|%F|%d|%S\\n";

#[test]
fn records_tell_every_user_what_a_scan_of_the_mount_tells() {
    for seed in [5100, 5101, 5102].into_iter().take(rounds(1, 3)) {
        let trial = Trial::new(seed);
        let on = trial.mounted.on.to_str().unwrap();
        // Reading directories for the first time changes when they were read. A scan soon after
        // changes cannot prove who was let in, and asks for another one.
        for _ in 0..2 {
            let scan = || trial.canopy("scanned").args(["index", on]).output().unwrap();
            wait_until("a scan is complete", || scan().status.success());
        }
        success(&trial.index("read", &[]));
        let gates = UIDS.iter().enumerate().map(|(number, _)| format!("{on}/gate{number}/in"));
        for start in gates.chain([on.to_owned()]) {
            for uid in UIDS.into_iter().chain([common::NOBODY]) {
                for words in [
                    &["find", &start, "-printf", ALL][..],
                    &["find", &start, "-xattr", "user.note=o*"],
                    &["find", &start, "-xattr", "trusted.*"],
                    &["find", &start, "-acl"],
                    &["find", &start, "-readable", "-printf", "%p\\n"],
                    &["find", &start, "-xtype", "d"],
                    &["du", "-a", &start],
                    &["ls", "-la", "--inode", &start],
                ] {
                    let [read, scanned] =
                        ["read", "scanned"].map(|index| trial.answer_for(index, uid, words));
                    assert_same(&read, &scanned, &format!("seed {seed} uid {uid} {words:?}"));
                }
            }
        }
        assert!(trial.answer_for("read", 0, &["find", on]).len() > 15);
        let changed = trial.mounted.path("gate0/in/new");
        fs::write(&changed, "y").unwrap();
        success(&trial.index("read", &[]));
        // It was replaced as a whole.
        let found = trial.answer_for("read", 0, &["find", on, "-name", "new"]);
        assert_eq!(found, [changed.to_str().unwrap()]);
        let told = success(&trial.canopy("read").args(["info", "--json"]).output().unwrap());
        assert_eq!(told.matches("\"root\"").count(), 1, "{told}");
        // Unmounted it is the same, but for the device.
        let before = trial.answer_for("read", 0, &["find", on, "-printf", "%p|%i|%s|%C@\\n"]);
        trial.mounted.unmount();
        success(&trial.index("read", &["--root".as_ref(), on.as_ref()]));
        let after = trial.answer_for("read", 0, &["find", on, "-printf", "%p|%i|%s|%C@\\n"]);
        assert_same(&after, &before, "unmounted");
    }
}

#[test]
fn options_of_a_scan_hold_for_records() {
    let trial = Trial::new(5200);
    let shown = |index: &str, words: &[&str]| {
        let root = ["find", "/records"];
        trial.answer_for(index, 0, &[&root, words].concat())
    };
    trial.mounted.unmount();
    fn option<'a>(words: &[&'a str]) -> Vec<&'a OsStr> {
        words.iter().map(|word| OsStr::new(*word)).collect()
    }
    let root = ["--root", "/records", "--name", "named"];
    success(&trial.index("all", &option(&root)));
    let some = ["--exclude", "gate1", "--exclude", "gate2/in", "--no-xattrs"];
    success(&trial.index("some", &option(&[&root[..], &some].concat())));
    let is_left_out =
        |path: &String| path.starts_with("/records/gate1") || path.starts_with("/records/gate2/in");
    let mut expected = shown("all", &[]);
    expected.retain(|path| !is_left_out(path));
    assert_eq!(shown("some", &[]), expected);
    assert!(
        shown("some", &["-xattr", "*"]).is_empty() && !shown("all", &["-xattr", "*"]).is_empty()
    );
    let told = success(&trial.canopy("all").arg("info").output().unwrap());
    assert!(told.contains("/records (named)"), "{told}");
}

#[test]
fn errors_of_sources_are_reported() {
    let trial = Trial::new(5300);
    trial.mounted.unmount();
    let said = failure(&trial.index("index", &[]));
    assert!(said.contains("is not mounted: say with --root"), "{said}");
    let said = failure(&trial.index("index", &["--root".as_ref(), "/no/where/at".as_ref()]));
    assert!(said.contains("/no/where"), "{said}");
    let mut other = trial.canopy("index");
    other.args(["index", "/tmp", "--root", "/records"]);
    assert!(failure(&other.output().unwrap()).contains("--root is for one namespace"));
    let mut missing = trial.canopy("index");
    missing.args(["index", "ns:/no/where", "--root", "/records"]);
    assert!(failure(&missing.output().unwrap()).contains("no such directory"));
}

#[test]
fn a_private_mount_is_for_root_alone() {
    let trial = Trial::new(5400);
    trial.mounted.unmount();
    trial.mounted.mount(&["--private"]);
    success(&trial.index("index", &[]));
    let on = trial.mounted.on.to_str().unwrap();
    assert!(trial.answer_for("index", 0, &["find", on]).len() > 5);
    for uid in [2001, common::NOBODY] {
        assert!(trial.answer_for("index", uid, &["find", on]).is_empty());
    }
}

#[test]
fn large_directories_come_in_parts() {
    const FILES: u32 = 150_000;
    let mounted = Mounted::created();
    let storage = Arc::new(LocalStorage::existing(&mounted.namespace).unwrap());
    let contents = Contents::new(&mounted.namespace.join("contents")).unwrap();
    let environment = Environment::system(storage);
    let namespace = Namespace::open(&environment, contents, system_clock()).unwrap();
    for number in 0..FILES {
        let mode = if number % 50 == 0 { 0o040_755 } else { 0o100_644 };
        let new = New { mode, ..New::default() };
        let made =
            namespace.create(ROOT, format!("entry{number}").as_bytes(), &new, false).unwrap();
        if number % 1000 == 7 {
            let privileges = canopy_namespace::Privileges::Keep;
            let how = SetXattr::Any;
            namespace.set_xattr(made.id, b"user.a", b"1", how, privileges).unwrap();
        }
    }
    namespace.close().unwrap();
    drop(namespace);
    let trial = Trial { configuration: Path::new("/dev/null").into(), mounted };
    success(&trial.index("index", &["--root".as_ref(), "/records".as_ref()]));
    let count = |words: &[&str]| {
        trial.answer_for("index", 0, &[&["find", "/records", "--count"], words].concat())
    };
    assert_eq!(count(&[]), [(FILES + 1).to_string()]);
    assert_eq!(count(&["-mindepth", "1", "-type", "d"]), [(FILES / 50).to_string()]);
    assert_eq!(count(&["-xattr", "user.a"]), [(FILES / 1000).to_string()]);
}

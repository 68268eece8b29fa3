//! A follower of a namespace against a new index of it, for several users: random changes, with the
//! processes killed in between. Needs root, and `canopy` built beside.

mod common;
#[path = "../../cli/tests/common/mod.rs"]
mod site;

use common::{Mounted, NOBODY, as_user, success, wait_until};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::Value;
use site::length::rounds;
use site::{UIDS, assert_same, seeded, sorted};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A mounted namespace, and what canopy's indexes are configured by.
struct Trial {
    mounted: Mounted,
    configuration: PathBuf,
}

/// All that an index tells of entries.
const ALL: &str = "%p|%f|%y|%m|%U|%G|%n|%s|%b|%i|%l|%T@|%A@|%C@|%d\\n";

impl Trial {
    fn new() -> Self {
        let mounted = Mounted::new();
        let configuration = mounted.place.path().join("canopy.toml");
        fs::write(&configuration, "trust_fs = [\"fuse.canopy\"]\n").unwrap();
        Trial { mounted, configuration }
    }

    fn source(&self) -> String {
        format!("ns:{}", self.mounted.namespace.display())
    }

    fn canopy(&self, index: &str, words: &[&str]) -> Command {
        let mut command = Command::new(site::built("canopy"));
        command.arg("--index").arg(self.mounted.place.path().join(index)).args(words);
        command.env("CANOPY_SITE_CONFIG", &self.configuration).env("TZ", "UTC").current_dir("/");
        command
    }

    /// Reads what has changed, as the daemon does; returns what is said.
    fn follow(&self) -> String {
        let source = self.source();
        success(&self.canopy("followed", &["index", "--follow", &source]).output().unwrap())
    }

    fn answer_for(&self, index: &str, uid: u32, words: &[&str]) -> Vec<String> {
        let canopy = site::built("canopy");
        let mut command = as_user(uid, canopy.to_str().unwrap());
        command.arg("--index").arg(self.mounted.place.path().join(index)).args(words);
        command.env("TZ", "UTC").current_dir("/");
        sorted(&command.output().unwrap().stdout, b'\n')
    }

    /// Fails unless the index that follows says what a new one does.
    fn assert_followed(&self, what: &str) {
        let on = self.mounted.on.to_str().unwrap();
        let source = self.source();
        let _ = fs::remove_dir_all(self.mounted.place.path().join("new"));
        success(&self.canopy("new", &["index", &source]).output().unwrap());
        for uid in UIDS.into_iter().chain([0, NOBODY]) {
            for words in [
                &["find", on, "-printf", ALL][..],
                &["find", on, "-xattr", "user.note=o*"],
                &["find", on, "-acl"],
                &["du", "-a", on],
            ] {
                let [followed, new] =
                    ["followed", "new"].map(|index| self.answer_for(index, uid, words));
                assert_same(&followed, &new, &format!("{what}, uid {uid}, {words:?}"));
            }
        }
    }

    /// Returns the time of the last question to the namespace whose answer the index has, as the
    /// daemon reports it.
    fn followed(&self) -> Option<SystemTime> {
        let status = self.canopy("followed", &["watch", "--status", "--json"]).output().unwrap();
        let status: Value = serde_json::from_slice(&status.stdout).ok()?;
        let followed_s = status["namespaces"][0]["followed_s"].as_f64()?;
        Some(UNIX_EPOCH + Duration::from_secs_f64(followed_s))
    }

    /// Changes something at random.
    fn change(&self, random: &mut StdRng) {
        let mut directories = vec![self.mounted.on.clone()];
        let (mut files, mut at) = (Vec::new(), 0);
        while at < directories.len() {
            for entry in fs::read_dir(&directories[at]).unwrap().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => directories.push(entry.path()),
                    false => files.push(entry.path()),
                }
            }
            at += 1;
        }
        let name = format!("n{}", random.random_range(0..1000));
        let directory = directories.choose(random).unwrap().clone();
        let any = |random: &mut StdRng| match files.choose(random) {
            Some(file) if random.random_bool(0.6) => file.clone(),
            _ => directories.choose(random).unwrap().clone(),
        };
        // What does not work is not done.
        let new = directory.join(name);
        let one = any(random);
        let _ = match random.random_range(0..12) {
            0..3 => fs::write(&new, vec![1; random.random_range(0..9000)]),
            3 | 4 => fs::create_dir(&new),
            5 => fs::rename(&one, &new),
            6 => fs::hard_link(&one, &new),
            7 => match random.random_bool(0.3) {
                true if one != self.mounted.on => fs::remove_dir_all(&one),
                _ => fs::remove_file(&one),
            },
            8 => {
                let modes = [0o700, 0o711, 0o750, 0o755, 0o751];
                fs::set_permissions(&one, Permissions::from_mode(*modes.choose(random).unwrap()))
            }
            9 => std::os::unix::fs::chown(&one, UIDS.choose(random).copied(), Some(3001)),
            10 => {
                let flags = rustix::fs::XattrFlags::empty();
                let _ = rustix::fs::setxattr(&one, "user.note", b"one", flags);
                let acl = Command::new("setfacl").args(["-m", "u:2001:rx"]).arg(&one).output();
                acl.map(drop)
            }
            _ => File::options().write(true).open(&one).and_then(|file| file.set_len(77)),
        };
    }
}

#[test]
fn a_followed_namespace_equals_a_new_index() {
    for seed in [6100, 6101, 6102].into_iter().take(rounds(1, 3)) {
        let trial = Trial::new();
        let mut random = seeded(seed);
        for round in 0..12 {
            for _ in 0..random.random_range(1..30) {
                trial.change(&mut random);
            }
            if round % 5 == 3 {
                trial.mounted.unmount();
                trial.mounted.mount(&[]);
            }
            trial.follow();
            trial.assert_followed(&format!("seed {seed}, round {round}"));
        }
    }
}

#[test]
fn only_what_has_changed_is_read() {
    let trial = Trial::new();
    for number in 0..50 {
        let directory = trial.mounted.path(format!("d{number}/in"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), "x").unwrap();
    }
    let first = trial.follow();
    assert!(first.contains("in 101 directories looked at"), "{first}");
    let same = trial.follow();
    assert!(same.starts_with("nothing has changed since generation 1"), "{same}");
    fs::write(trial.mounted.path("d7/in/file"), "more").unwrap();
    let one = trial.follow();
    assert!(one.contains("1 entry in 1 directory looked at"), "{one}");
    // Its times change, too, which the directory above tells, and the next one above not.
    fs::write(trial.mounted.path("d8/in/new"), "more").unwrap();
    let two = trial.follow();
    assert!(two.contains("3 entries in 2 directories looked at"), "{two}");
    fs::set_permissions(trial.mounted.path("d9"), Permissions::from_mode(0o700)).unwrap();
    trial.follow();
    fs::rename(trial.mounted.path("d9"), trial.mounted.path("d10/in/d9")).unwrap();
    trial.follow();
    trial.assert_followed("at the end");
    assert!(trial.follow().starts_with("nothing has changed"));
    // Who knows nothing any more reads all, and what is as it was stays.
    fs::remove_file(trial.mounted.place.path().join("followed/watch/namespaces.json")).unwrap();
    trial.follow();
    trial.assert_followed("without what was known");
}

/// A daemon that follows the namespace; killed at the end.
struct Daemon(Child);

impl Daemon {
    fn start(trial: &Trial) -> Self {
        let source = trial.source();
        let mut command = trial.canopy("followed", &["watch", &source, "--interval", "0.3"]);
        Daemon(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_daemon_follows_a_namespace_though_processes_are_killed() {
    let trial = Trial::new();
    let mut random = seeded(6200);
    let mut daemon = Some(Daemon::start(&trial));
    let on = trial.mounted.on.to_str().unwrap().to_owned();
    let shown = |index: &str| trial.answer_for(index, 0, &["find", &on, "-printf", ALL]);
    for round in 0..6 {
        for _ in 0..random.random_range(5..60) {
            trial.change(&mut random);
        }
        if round % 2 == 0 {
            daemon = None;
            daemon.replace(Daemon::start(&trial));
        }
        if round == 3 {
            trial.mounted.crash();
            trial.mounted.mount(&[]);
        }
        let mark = trial.mounted.path(format!("mark{round}"));
        fs::write(&mark, "x").unwrap();
        let begun = (Instant::now(), SystemTime::now());
        wait_until("the index has followed", || trial.followed() > Some(begun.1));
        println!("round {round}: {:.1} s", begun.0.elapsed().as_secs_f64());
        let mark = mark.to_str().unwrap();
        assert!(shown("followed").iter().any(|line| line.starts_with(mark)), "{mark}");
        trial.assert_followed(&format!("round {round}"));
    }
    let status = trial.canopy("followed", &["watch", "--status"]).output().unwrap();
    let status = success(&status);
    assert!(status.contains("running, by records") && status.contains("ns:"), "{status}");
    drop(daemon);
}

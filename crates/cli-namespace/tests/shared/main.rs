//! Namespaces in a directory that many machines share. Machines are processes with another name of
//! the host, and a directory of their own for what is cached. Needs root and /dev/fuse.

#[path = "../common/mod.rs"]
mod common;

use canopy_store::storage::{Machine, SharedDirectory};
use common::{CANOPY, failure, success, wait_until};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

struct Fixture {
    place: TempDir,
    namespace: PathBuf,
}

impl Fixture {
    /// A namespace that the machines n1 and n2 may write to.
    fn new() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "mounting needs root");
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let namespace = place.path().join("namespace");
        let fixture = Fixture { place, namespace };
        let made = success(&fixture.on("n1", &["create", "@", "--shared"]));
        assert!(made.starts_with("made "), "{made}");
        let storage = SharedDirectory::open(&fixture.namespace).unwrap();
        assert_eq!(storage.notes().names().unwrap(), ["n1"]);
        storage.notes().add(&Machine::named("n2"), Some(&Machine::named("n1"))).unwrap();
        for machine in ["n1", "n2", "n3"] {
            fs::create_dir(fixture.mounted(machine)).unwrap();
        }
        fixture
    }

    /// Runs `canopy ns` on a machine; `@` is the namespace, and `on` where it is mounted.
    fn on(&self, machine: &str, words: &[&str]) -> Output {
        let mut command = Command::new("unshare");
        let line = format!("hostname {machine}; exec \"$@\"");
        command.args(["--uts", "bash", "-c", &line, "bash", CANOPY, "ns"]);
        command.env("XDG_CACHE_HOME", self.cache(machine));
        for word in words {
            match *word {
                "@" => command.arg(&self.namespace),
                "on" => command.arg(self.mounted(machine)),
                word => command.arg(word),
            };
        }
        command.output().unwrap()
    }

    fn cache(&self, machine: &str) -> PathBuf {
        self.place.path().join(format!("cache-{machine}"))
    }

    fn mounted(&self, machine: &str) -> PathBuf {
        self.place.path().join(machine)
    }

    /// Processes of a machine that have the namespace mounted.
    fn processes(&self, machine: &str) -> Vec<i32> {
        let on = self.mounted(machine);
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let id = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let on = on.to_str().unwrap().as_bytes();
            if line.split(|byte| *byte == 0).any(|word| word == on) {
                found.extend(id);
            }
        }
        found
    }

    fn crash(&self, machine: &str) {
        for id in self.processes(machine) {
            let id = nix::unistd::Pid::from_raw(id);
            let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = Command::new("umount").arg("-l").arg(self.mounted(machine)).output();
        wait_until("the process has ended", || self.processes(machine).is_empty());
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        ["n1", "n2", "n3"].into_iter().for_each(|machine| self.crash(machine));
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn large(byte: u8) -> Vec<u8> {
    (0..9_000_000u32).map(|at| (at % 241) as u8 ^ byte).collect()
}

#[test]
fn machines_use_a_namespace_in_turn() {
    let place = Fixture::new();
    for round in 0..4 {
        let machine = ["n1", "n2"][round % 2];
        success(&place.on(machine, &["mount", "@", "on"]));
        let on = place.mounted(machine);
        for before in 0..round {
            assert!(fs::read(on.join(format!("large-{before}"))).unwrap() == large(before as u8));
            assert_eq!(fs::read_dir(on.join(format!("many-{before}"))).unwrap().count(), 200);
        }
        fs::write(on.join(format!("large-{round}")), large(round as u8)).unwrap();
        let many = on.join(format!("many-{round}"));
        fs::create_dir(&many).unwrap();
        (0..200).for_each(|at| fs::write(many.join(at.to_string()), "small").unwrap());
        // Processes of one machine keep each other out, as where storage has locks.
        let said = failure(&place.on(machine, &["import", "/etc/default", "@"]));
        assert!(said.contains("is mounted, or used by another command"), "{said}");
        success(&place.on(machine, &["unmount", "on"]));
    }
    assert_eq!(success(&place.on("n1", &["check", "--data", "@"])), "no faults\n");
    assert!(success(&place.on("n2", &["info", "@"])).contains("records"));
    assert!(success(&place.on("n1", &["find", "@", "-name", "large-*"])).lines().count() == 4);
    // Files of one machine are not in the directory that all share.
    let names = fs::read_dir(&place.namespace).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names = Vec::from_iter(names);
    names.sort();
    assert_eq!(names, ["machines", "objects", "shared", "temporary"]);
    assert_eq!(fs::metadata(&place.namespace).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(place.namespace.join("temporary")).unwrap().count(), 0);
}

#[test]
fn a_machine_takes_over_from_one_that_died() {
    let place = Fixture::new();
    for round in 0..4u8 {
        let machine = ["n1", "n2"][usize::from(round % 2)];
        success(&place.on(machine, &["mount", "@", "on"]));
        let on = place.mounted(machine);
        for before in 0..round {
            assert!(fs::read(on.join(format!("synced-{before}"))).unwrap() == large(before));
        }
        write_synced(&on.join(format!("synced-{round}")), &large(round)).unwrap();
        fs::write(on.join(format!("lost-{round}")), large(round)).unwrap();
        place.crash(machine);
    }
    success(&place.on("n1", &["mount", "@", "on"]));
    success(&place.on("n1", &["unmount", "on"]));
    assert_eq!(success(&place.on("n1", &["check", "--data", "@"])), "no faults\n");
}

#[test]
fn the_machine_that_comes_last_has_the_namespace() {
    let place = Fixture::new();
    success(&place.on("n1", &["mount", "@", "on"]));
    let [first, second] = ["n1", "n2"].map(|machine| place.mounted(machine));
    write_synced(&first.join("before"), b"synced").unwrap();
    success(&place.on("n2", &["mount", "@", "on"]));
    assert_eq!(fs::read(second.join("before")).unwrap(), b"synced");
    write_synced(&second.join("by-second"), b"second").unwrap();
    // Any call of the first one shows that it has lost the namespace.
    assert!(write_synced(&first.join("by-first"), b"first").is_err());
    assert!(write_synced(&first.join("by-first"), b"first").is_err());
    write_synced(&second.join("by-second"), b"still").unwrap();
    place.crash("n1");
    success(&place.on("n2", &["unmount", "on"]));
    assert_eq!(success(&place.on("n2", &["check", "--data", "@"])), "no faults\n");
    success(&place.on("n1", &["mount", "@", "on"]));
    assert_eq!(fs::read(first.join("by-second")).unwrap(), b"still");
    assert!(!first.join("by-first").exists());
}

#[test]
fn a_machine_that_was_not_tried_is_refused() {
    let place = Fixture::new();
    for words in [&["mount", "@", "on"][..], &["check", "@"], &["import", "/etc/default", "@"]] {
        let said = failure(&place.on("n3", words));
        assert!(said.contains("machine n3 may not write here"), "{said}");
        assert!(said.ends_with("and, at the same time, on n1 or n2\n"), "{said}");
    }
    success(&place.on("n1", &["mount", "@", "on"]));
    write_synced(&place.mounted("n1").join("file"), b"it is not fenced").unwrap();
    success(&place.on("n1", &["unmount", "on"]));
}

#[test]
fn kinds_of_namespaces_are_not_mixed() {
    let place = Fixture::new();
    let said = failure(&place.on("n1", &["create", "@"]));
    assert!(said.contains("is not empty"), "{said}");
    let said = failure(&place.on("n1", &["create", "@", "--shared"]));
    assert!(said.contains("is not empty"), "{said}");
    let said = failure(&place.on("n1", &["create", "s3://bucket/place", "--shared"]));
    assert!(said.contains("--shared is for directories"), "{said}");
    let said = failure(&place.on("n1", &["create", "/tmp/x", "--shared", "--chunk-size", "1K"]));
    assert!(said.contains("--chunk-size"), "{said}");
    fs::write(place.namespace.join("shared"), "CANOPY SHARED DIRECTORY 2\n").unwrap();
    let said = failure(&place.on("n1", &["mount", "@", "on"]));
    assert!(said.contains("another version of canopy made this shared directory"), "{said}");
}

#[test]
fn no_namespace_is_made_in_a_shared_directory() {
    let fixture = Fixture::new();
    for below in ["zz", "objects/zz", "objects/a/zz"] {
        let directory = fixture.namespace.join(below);
        fs::create_dir_all(directory.parent().unwrap()).unwrap();
        for options in [&[][..], &["--shared"]] {
            let create = ["create", directory.to_str().unwrap()];
            let said = failure(&fixture.on("n1", &[&create, options].concat()));
            assert!(said.contains("which machines share: give a directory elsewhere"), "{said}");
            assert!(!directory.exists());
        }
    }
}

#[test]
fn one_of_two_machines_that_make_a_namespace_may_write() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    for round in 0..10 {
        let namespace = place.path().join(format!("namespace-{round}"));
        fs::create_dir(&namespace).unwrap();
        let machines = ["n1", "n2"];
        let started = machines.map(|machine| {
            let mut command = Command::new("unshare");
            let line = format!("hostname {machine}; exec \"$@\"");
            command.args(["--uts", "bash", "-c", &line, "bash", CANOPY, "ns", "create"]);
            command.arg(&namespace).arg("--shared").stderr(std::process::Stdio::piped());
            command.stdout(std::process::Stdio::piped()).spawn().unwrap()
        });
        let ended = started.map(|child| child.wait_with_output().unwrap());
        let made = Vec::from_iter(
            machines.iter().zip(&ended).filter(|(_, output)| output.status.success()),
        );
        assert_eq!(made.len(), 1, "{ended:?}");
        let names = SharedDirectory::open(&namespace).unwrap().notes().names().unwrap();
        assert_eq!(names, [*made[0].0], "{ended:?}");
    }
}

//! `canopy store probe`: machines that share a directory, and file systems that promise too little.
//! Machines are processes with another name of the host. Needs root and /dev/fuse.

mod clients;

use canopy_store::storage::SharedDirectory;
use clients::Fault;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Starts the probe as a machine of that name.
fn start(machine: &str, directory: &Path, options: &[&str]) -> Child {
    let mut command = Command::new("unshare");
    let line = format!("hostname {machine}; exec -a canopy \"$@\"");
    command.args(["--uts", "bash", "-c", &line, "bash", env!("CARGO_BIN_EXE_canopy-store")]);
    command.args(["store", "probe"]).args(options).arg(directory);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs the probe on two machines and returns the exit code, output and messages of each.
fn both(machines: [(&str, &Path); 2], options: &[&str]) -> [(Option<i32>, String, String); 2] {
    let started = machines.map(|(machine, directory)| start(machine, directory, options));
    started.map(|child| said(child.wait_with_output().unwrap()))
}

fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn left(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names =
        Vec::from_iter(entries.map(|one| one.unwrap().file_name().into_string().unwrap()));
    names.sort();
    names
}

#[test]
fn machines_that_pass_may_write() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for (code, out, messages) in both([("n1", at), ("n2", at)], &["--rounds", "3"]) {
        assert_eq!(code, Some(0), "{out}{messages}");
        assert!(out.contains("passed: n") && out.contains(" can share "), "{out}");
        assert!(out.matches("at once, 3 times").count() == 10, "{out}");
        assert_eq!(messages, "canopy: waiting for the same command on another machine\n");
    }
    assert_eq!(left(at), [""; 0]);

    let storage = SharedDirectory::make(at).unwrap();
    let before = storage.notes().names().unwrap();
    let own = before[0].clone();
    let json = both([("n1", at), ("n2", at)], &["--rounds", "1", "--json"]);
    for (code, out, messages) in json {
        assert_eq!((code, &*messages), (Some(0), ""), "{out}");
        let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&shown["passed"], &shown["may_write"]), (&true.into(), &false.into()), "{out}");
    }
    assert_eq!(storage.notes().names().unwrap(), before, "nobody knows n1 and n2");

    let [(code, out, messages), _] = both([(&own, at), ("n1", at)], &["--rounds", "1"]);
    assert_eq!(code, Some(0), "{messages}");
    assert!(out.contains(" may write to "), "{out}");
    let [_, (code, out, messages)] = both([("n1", at), ("n2", at)], &["--rounds", "1"]);
    assert_eq!(code, Some(0), "{messages}");
    assert!(out.ends_with(&format!("may write to {}\n", storage.root().display())), "{out}");
    let mut names = [own.clone(), "n1".to_owned(), "n2".to_owned()];
    names.sort();
    assert_eq!(storage.notes().names().unwrap(), names);

    for (code, out, messages) in both([("n9", at), ("n9", at)], &["--rounds", "1"]) {
        assert!(code == Some(2) && out.is_empty(), "{out}");
        assert!(messages.contains("both commands ran on one machine, n9"), "{messages}");
    }
    assert_eq!(left(at), ["machines", "objects", "shared", "temporary"]);
}

#[test]
fn the_first_machine_says_how_often_everything_is_tried() {
    let directory = tempfile::tempdir().unwrap();
    let started = [("n1", "2"), ("n2", "5")]
        .map(|(machine, rounds)| start(machine, directory.path(), &["--rounds", rounds]));
    let [one, other] = started.map(|child| said(child.wait_with_output().unwrap()));
    for (code, out, messages) in [&one, &other] {
        assert_eq!(*code, Some(0), "{out}{messages}");
        let counts = ["2", "5"].map(|n| out.matches(&format!("at once, {n} times")).count());
        assert!([[10, 0], [0, 10]].contains(&counts), "{out}");
    }
}

#[test]
fn who_comes_alone_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let alone = start("n1", directory.path(), &["--wait", "0"]);
    let (code, out, messages) = said(alone.wait_with_output().unwrap());
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(messages.contains("no other machine came: run 'canopy store probe'"), "{messages}");
    assert_eq!(left(directory.path()), [""; 0]);

    // One that is killed while it waits keeps nobody from meeting.
    let mut killed = start("n1", directory.path(), &[]);
    let first = directory.path().join(".canopy-probe/1");
    while !first.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    for (code, out, messages) in
        both([("n2", directory.path()), ("n3", directory.path())], &["--rounds", "1"])
    {
        assert!(code == Some(0) && out.contains("passed: "), "{out}{messages}");
    }

    let mut command = Command::new(env!("CARGO_BIN_EXE_canopy-store"));
    command.arg0("canopy").args(["store", "probe", "/nonesuch"]);
    let (code, _, messages) = said(command.output().unwrap());
    assert_eq!(code, Some(2));
    assert_eq!(messages, "canopy: /nonesuch: No such file or directory\n");
}

/// Returns the findings of both machines about a file system, and whether one of them can make a shared
/// directory there.
fn tried(fault: Fault) -> ([(Option<i32>, String, String); 2], Result<(), String>) {
    let place = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| place.path().join(name));
    [&one, &other].into_iter().for_each(|on| fs::create_dir(on).unwrap());
    let sessions = clients::mount([&one, &other], fault);
    let found = both([("n1", &one), ("n2", &other)], &["--rounds", "2", "--wait", "5"]);
    let directory = one.join("directory");
    fs::create_dir(&directory).unwrap();
    let made = SharedDirectory::make(&directory).map(drop).map_err(|error| error.to_string());
    drop(sessions);
    (found, made)
}

#[test]
fn a_file_system_that_keeps_its_promises_passes() {
    let (found, made) = tried(Fault::Nothing);
    for (code, out, messages) in found {
        assert_eq!(code, Some(0), "{out}{messages}");
        assert!(out.contains("passed: ") && out.contains("n1 sees, on fuse"), "{out}");
    }
    assert_eq!(made, Ok(()));
}

#[test]
fn names_that_come_late_are_refused() {
    let late = Duration::from_millis(300);
    for fault in [Fault::LateNames(late), Fault::RemembersMissing(late)] {
        let (found, made) = tried(fault);
        for (code, out, messages) in found {
            assert_eq!(code, Some(2), "{fault:?}: {out}{messages}");
            let is_late = |line: &str| {
                line.starts_with("  new names      late 2 times of 2, by ")
                    && line.ends_with(" ms at most")
            };
            assert!(
                out.lines().filter(|line| is_late(line)).count() == 2,
                "{fault:?}: {out}{messages}"
            );
            let told = ": refused: n";
            assert!(
                messages.contains(told) && messages.contains("negative_timeout=0"),
                "{messages}"
            );
        }
        // One machine alone cannot find that out.
        assert_eq!(made, Ok(()), "{fault:?}");
    }
}

#[test]
fn listings_may_come_late() {
    let (found, _) = tried(Fault::LateListings(Duration::from_millis(300)));
    for (code, out, messages) in found {
        assert_eq!(code, Some(0), "{out}{messages}");
        assert!(out.contains("  in listings    late 2 times of 2, by "), "{out}");
        assert!(out.contains("  new names      at once, 2 times"), "{out}");
    }
}

#[test]
fn file_systems_without_links_or_that_overwrite_are_refused() {
    let (found, made) = tried(Fault::NoLinks);
    for (code, _, messages) in found {
        assert!(code == Some(2) && messages.contains("cannot link"), "{messages}");
    }
    let said = made.unwrap_err();
    assert!(said.contains("this file system cannot hold tables that machines share: "), "{said}");

    let (found, _) = tried(Fault::Overwrites(Duration::from_millis(300)));
    for (code, _, messages) in found {
        assert!(code == Some(2), "{messages}");
        assert!(messages.contains("refused: two machines created one name"), "{messages}");
    }
}

#[test]
fn places_of_others_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let victim = tempfile::tempdir().unwrap();
    fs::write(victim.path().join("1"), "kept").unwrap();
    let refused = |reason: &str| {
        let probe = start("n1", directory.path(), &["--wait", "1"]);
        let (code, _, messages) = said(probe.wait_with_output().unwrap());
        assert!(code == Some(2) && messages.contains(reason), "{messages}");
    };
    symlink(victim.path(), directory.path().join(".canopy-probe")).unwrap();
    refused("is not a directory of yours");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
    refused("others can write to");
    assert_eq!(fs::read(victim.path().join("1")).unwrap(), b"kept");
}

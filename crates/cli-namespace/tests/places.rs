//! How users name a namespace: by its directory, by where it is mounted, with odd bytes, and by what
//! only looks like it.

mod common;

use common::{CANOPY, Mounted, NOBODY, as_user, failure, ns, success, wait_until};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

fn output_of(subcommand: &str, place: &Path) -> String {
    success(&ns(subcommand).arg(place).output().unwrap())
}

#[test]
fn a_mounted_namespace_goes_by_both_of_its_places() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), "text").unwrap();
    for subcommand in ["info", "check", "index", "quota", "find"] {
        assert!(!output_of(subcommand, &mounted.on).is_empty());
        // Between the two answers the daemon may write an SSTable; soon it has none left to write.
        wait_until(&format!("{subcommand} tells the same of both"), || {
            output_of(subcommand, &mounted.namespace) == output_of(subcommand, &mounted.on)
        });
    }
    for place in [&mounted.namespace, &mounted.on] {
        let name = place.file_name().unwrap();
        let made = ns("snapshot").arg("create").arg(place).arg(name).output().unwrap();
        assert_eq!(success(&made), "");
        let listed = ns("snapshot").arg("list").arg(place).output().unwrap();
        assert!(success(&listed).contains(name.to_str().unwrap()));
    }
    let added = ns("index").arg(&mounted.namespace).args(["--add", "atime"]).output().unwrap();
    assert!(success(&added).contains("atime"));
    assert!(output_of("index", &mounted.on).contains("atime"));
    mounted.assert_sound();
}

#[test]
fn errors_name_what_is_mounted_there() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("below")).unwrap();
    let on = mounted.on.display();
    for (subcommand, place, expected) in [
        ("du", mounted.path("below"), format!("is mounted on {on}: name {on}")),
        ("export", mounted.path("below"), format!("is mounted on {on}: name {on}")),
        ("find", mounted.path("below"), format!("is mounted on {on}: name {on}")),
        ("check", mounted.path("below"), format!("is mounted on {on}: name {on}")),
    ] {
        let mut command = ns(subcommand);
        let target = (subcommand == "export").then(|| mounted.place.path().join("copy"));
        let said = failure(&command.arg(&place).args(target).output().unwrap());
        assert!(said.contains(&expected), "{subcommand}: {said}");
    }
    let check = as_user(NOBODY, CANOPY).args(["ns", "check"]).arg(&mounted.on).output().unwrap();
    assert!(failure(&check).contains("only its owner and root may do this"));
    let again = ns("mount").args([&mounted.namespace, &mounted.on]).output().unwrap();
    assert!(failure(&again).contains("something is mounted there; first unmount it"));
    mounted.assert_sound();
}

#[test]
fn a_namespace_may_have_any_name() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let [namespace, on] = [&b"na \n\\\xff me"[..], b"on \n\\\xff it"]
        .map(|name| place.path().join(OsStr::from_bytes(name)));
    success(&ns("create").arg(&namespace).output().unwrap());
    fs::create_dir(&on).unwrap();
    success(&ns("mount").args([&namespace, &on]).output().unwrap());
    fs::write(on.join("file"), "text").unwrap();
    for place in [&on, &namespace] {
        assert_eq!(output_of("find", place), "/\n/file\n");
        assert_eq!(output_of("check", place), "no faults\n");
    }
    success(&ns("unmount").arg(&on).output().unwrap());
    assert_eq!(output_of("check", &namespace), "no faults\n");
}

#[test]
fn only_root_and_the_owner_say_where_a_namespace_is_mounted() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), "text").unwrap();
    // As a user's fusermount3 mounts what a program of that user answers, or does not.
    let claim = mounted.place.path().join("claim");
    fs::create_dir(&claim).unwrap();
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let (fd, id) = (device.as_raw_fd(), NOBODY);
    let data = format!("fd={fd},rootmode=40000,user_id={id},group_id={id},allow_other");
    let kind = Some("fuse.canopy");
    mount(Some(&mounted.namespace), &claim, kind, MsFlags::empty(), Some(data.as_str())).unwrap();
    let index = mounted.place.path().join("index");
    let mut indexed = Command::new(CANOPY);
    indexed.arg("--index").arg(&index).arg("index");
    indexed.arg(format!("ns:{}", mounted.namespace.display()));
    let outputs = [ns("find").arg(&mounted.namespace).output(), indexed.output()];
    umount2(&claim, MntFlags::MNT_DETACH).unwrap();
    let outputs = outputs.map(Result::unwrap);
    assert_eq!(success(&outputs[0]), "/\n/file\n");
    success(&outputs[1]);
    let mut list = Command::new(Path::new(CANOPY).with_file_name("canopy"));
    let listed =
        success(&list.arg("--index").arg(&index).args(["source", "list"]).output().unwrap());
    assert!(listed.starts_with(&format!("{}: ", mounted.on.display())), "{listed}");
    assert_eq!(listed.lines().count(), 1);
    mounted.assert_sound();
}

#[test]
fn a_mount_that_was_left_behind_keeps_nobody_waiting() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), "text").unwrap();
    output_of("check", &mounted.on);
    for id in mounted.processes() {
        kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
    }
    wait_until("nobody answers", || fs::read_dir(&mounted.on).is_err());
    let said = failure(&ns("check").arg(&mounted.on).output().unwrap());
    assert!(said.contains("was killed; first unmount it: canopy unmount"), "{said}");
    assert_eq!(output_of("check", &mounted.namespace), "no faults\n");
    let other = mounted.place.path().join("other");
    fs::create_dir(&other).unwrap();
    success(&ns("mount").args([&mounted.namespace, &other]).output().unwrap());
    mounted.unmount();
    success(&ns("unmount").arg(&other).output().unwrap());
    assert_eq!(output_of("check", &mounted.namespace), "no faults\n");
}

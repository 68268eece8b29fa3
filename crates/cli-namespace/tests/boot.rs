//! How the system mounts namespaces: mount(8) by /etc/fstab, and systemd by a unit. The package is
//! tried with both in `packaging/try`.

mod common;

use common::{CANOPY, Mounted, has, success, wait_until};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Runs what mount(8) runs, with the program that the tests have.
fn mount_helper(mounted: &Mounted, options: &[&str]) -> Output {
    let script = fs::read_to_string(packaging("mount.fuse.canopy")).unwrap();
    let script = script.replace("/usr/bin/canopy", CANOPY);
    let path = mounted.place.path().join("mount.fuse.canopy");
    fs::write(&path, script).unwrap();
    let mut command = Command::new("sh");
    command.arg(path).arg(&mounted.namespace).arg(&mounted.on).args(options);
    command.output().unwrap()
}

#[test]
fn the_helper_of_mount_takes_its_options() {
    let mounted = Mounted::created();
    success(&mount_helper(&mounted, &["-f", "-o", "rw"]));
    assert!(!mounted.is_mounted());
    success(&mount_helper(&mounted, &["-n", "-v", "-o", "ro,nosuid,_netdev", "-t", "fuse.canopy"]));
    let lines = String::from_utf8_lossy(&fs::read("/proc/self/mounts").unwrap()).into_owned();
    let own = lines.lines().find(|line| line.contains(mounted.on.to_str().unwrap())).unwrap();
    assert!(own.contains("ro,nosuid,"), "{own}");
    mounted.unmount();
    success(&mount_helper(&mounted, &[]));
    fs::write(mounted.path("file"), "text").unwrap();
    let again = mount_helper(&mounted, &[]);
    assert_eq!(again.status.code(), Some(32));
    assert!(String::from_utf8_lossy(&again.stderr).contains("canopy: "), "{again:?}");
    mounted.assert_sound();
}

#[test]
fn systemd_is_told_when_the_mount_is_there() {
    let mounted = Mounted::created();
    let path = mounted.place.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut command = Command::new(CANOPY);
    command.args(["ns", "mount", "--foreground"]).arg(&mounted.namespace).arg(&mounted.on);
    let mut child = command.env("NOTIFY_SOCKET", &path).spawn().unwrap();
    let mut message = [0; 100];
    let length = socket.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"READY=1\n");
    fs::write(mounted.path("file"), "text").unwrap();
    mounted.unmount();
    assert!(child.wait().unwrap().success());
    wait_until("it is unmounted", || !mounted.is_mounted());
}

#[test]
fn the_unit_is_right() {
    if !has("systemd-analyze") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(packaging("canopy-ns@.service")).unwrap();
    let path = place.path().join("canopy-ns@projects.service");
    fs::write(&path, unit.replace("/usr/bin/canopy", CANOPY)).unwrap();
    let mut command = Command::new("systemd-analyze");
    let checked = command.args(["verify", "--man=no"]).arg(&path).output().unwrap();
    let complaints = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && !complaints.contains("canopy-ns@"), "{complaints}");
    // It has what the command calls its options.
    let words = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/canopy "));
    let expected = "ns mount --foreground $OPTIONS ${NAMESPACE} ${DIRECTORY}";
    assert_eq!(words, Some(expected));
}

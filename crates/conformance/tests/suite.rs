//! Runs the program as users do, which takes root, on tmpfs and on the file system of the build.

use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Where tmpfs is on every machine that has it.
const TMPFS: &str = "/dev/shm";

/// Fewer cases than there are; it is raised when many are added.
const CASES_MIN: u64 = 14_000;

/// A script of which each case but the first fails.
const WRONG: &str = "
case own/right
  mkdir d 0755
case own/wrong-errno
  u1: unlink missing => EACCES
case own/wrong-value
  create f 0644
  stat f mode size => 0644 1
case own/wrong-success
  mkdir d 0755
  rmdir d => ENOTEMPTY
case own/no-such-call
  teleport f
";

fn directory(parent: &str) -> TempDir {
    let directory = TempDir::new_in(parent).unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}

fn conformance(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_canopy-conformance")).args(arguments).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn assert_conforms(parent: &str) {
    let directory = directory(parent);
    let output = conformance(&[text(directory.path()), "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&stderr);
    assert_eq!(report["failed"], 0, "{report:#}");
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(report["cases"].as_u64().unwrap() >= CASES_MIN, "{report:#}");
    // Whatever is skipped is named, and is little.
    let skipped = report["skipped"].as_u64().unwrap();
    assert_eq!(report["not_passed"].as_array().unwrap().len() as u64, skipped, "{report:#}");
    assert!(skipped < CASES_MIN / 100, "{report:#}");
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "something was left behind");
}

#[test]
fn tmpfs_conforms() {
    assert_conforms(TMPFS);
}

#[test]
fn the_file_system_of_the_build_conforms() {
    assert_conforms(env!("CARGO_TARGET_TMPDIR"));
}

#[test]
fn wrong_expectations_are_reported() {
    let directory = directory(TMPFS);
    let script = directory.path().join("script");
    std::fs::write(&script, WRONG).unwrap();
    let output = conformance(&[text(directory.path()), "--script", text(&script)]);
    assert_eq!(output.status.code(), Some(1));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let failures = Vec::from_iter(stdout.lines().filter(|line| line.starts_with("FAILED")));
    assert_eq!(
        failures,
        [
            "FAILED own/wrong-errno: u1: unlink missing: expected EACCES, got ENOENT",
            "FAILED own/wrong-value: root: stat f mode size: expected 0644 1, got 0644 0",
            "FAILED own/wrong-success: root: rmdir d: expected ENOTEMPTY, got success",
            "FAILED own/no-such-call: root: teleport f: expected success, got no answer (no call is \
             named teleport)",
        ]
    );
    assert!(stdout.contains("5 cases: 1 passed, 4 failed, 0 failed as known, 0 skipped"));
}

#[test]
fn known_failures_are_no_surprise() {
    let directory = directory(TMPFS);
    let (script, known) = (directory.path().join("script"), directory.path().join("known"));
    std::fs::write(&script, WRONG).unwrap();
    std::fs::write(&known, "own/wrong-* # on purpose\nown/no-such-call\nown/right\n").unwrap();
    let place = text(directory.path());
    let output = conformance(&[place, "--script", text(&script), "--known", text(&known)]);
    assert_eq!(output.status.code(), Some(0));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("known  own/wrong-errno: u1: unlink missing"), "{stdout}");
    assert!(stdout.contains("5 cases: 1 passed, 0 failed, 4 failed as known"), "{stdout}");
    assert!(stdout.contains("1 that are known to fail passed"), "{stdout}");
}

#[test]
fn others_than_root_are_told() {
    // Where others get to.
    let directory = directory(TMPFS);
    let program = directory.path().join("canopy-conformance");
    std::fs::copy(env!("CARGO_BIN_EXE_canopy-conformance"), &program).unwrap();
    let output = Command::new(program).arg(TMPFS).uid(65533).gid(65533).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "canopy-conformance: only root can make calls as several users\n");
}

#[test]
fn mistakes_on_the_command_line_are_told() {
    for (arguments, message) in [
        (&[][..], "which directory? (see --help)"),
        (&["/missing"], "/missing: cannot be found: No such file or directory (os error 2)"),
        (&["/", "--wrong"], "no option is named --wrong"),
        (&["/", "--filter"], "--filter needs a value"),
        (&["/", "--filter", "nonsense"], "no case has nonsense in its name"),
    ] {
        let output = conformance(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr, format!("canopy-conformance: {message}\n"));
    }
    assert!(conformance(&["--list", "--filter", "rename/"]).status.success());
}

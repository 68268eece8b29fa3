//! Shared parts of the tests of mounts: a namespace that is mounted as a user would, and running
//! programs. All of it needs root and /dev/fuse.

#![allow(dead_code, missing_docs, unused_imports)]

// Some tests also have the other module `common`, which has this file, too.
#[allow(clippy::duplicate_mod)]
#[path = "../../../cli/tests/common/requirements.rs"]
pub mod requirements;

pub use requirements::has;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const CANOPY: &str = env!("CARGO_BIN_EXE_canopy-ns");

/// A user without any rights, and what he is called where a name is needed.
pub const NOBODY: u32 = 65534;

/// A namespace on a directory, both below one that every user can search. Nothing is left mounted,
/// whatever happens.
pub struct Mounted {
    pub place: TempDir,
    pub namespace: PathBuf,
    pub on: PathBuf,
}

impl Mounted {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(options: &[&str]) -> Self {
        let mounted = Self::created();
        mounted.mount(options);
        mounted
    }

    /// A namespace that is not mounted yet.
    pub fn created() -> Self {
        Self::created_with(&[])
    }

    /// The same, made with options.
    pub fn created_with(options: &[&str]) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "mounting needs root");
        let place = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let (namespace, on) = (place.path().join("namespace"), place.path().join("on"));
        fs::create_dir(&on).unwrap();
        success(&ns("create").args(options).arg(&namespace).output().unwrap());
        Mounted { place, namespace, on }
    }

    pub fn mount(&self, options: &[&str]) {
        let mut command = ns("mount");
        command.args(options).arg(&self.namespace).arg(&self.on);
        success(&command.output().unwrap());
    }

    pub fn unmount(&self) {
        success(&ns("unmount").arg(&self.on).output().unwrap());
    }

    /// Unmounts it, and fails if the records have faults.
    pub fn assert_sound(&self) {
        self.unmount();
        let checked = success(&ns("check").arg(&self.namespace).output().unwrap());
        assert_eq!(checked, "no faults\n");
    }

    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.on.join(name.as_ref())
    }

    /// The processes that have the namespace mounted.
    pub fn processes(&self) -> Vec<i32> {
        let own = self.namespace.as_os_str().as_bytes();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            let id = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            if words.next() == Some(CANOPY.as_bytes()) && words.any(|word| word == own) {
                found.extend(id);
            }
        }
        found
    }

    /// Kills the process that answers the kernel, as a crash would, and lets the mount go.
    pub fn crash(&self) {
        for id in self.processes() {
            let id = nix::unistd::Pid::from_raw(id);
            let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL);
        }
        self.let_go();
        let lock = File::open(self.table().join("lock")).unwrap();
        let is_free = || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        wait_until("the process has ended", is_free);
    }

    /// Where the records lie.
    pub fn table(&self) -> PathBuf {
        let mut entries = fs::read_dir(&self.namespace).unwrap().flatten();
        entries.find(|entry| entry.file_name().len() == 32).unwrap().path()
    }

    /// Takes the mount away, whether or not anybody answers or uses it.
    pub fn let_go(&self) {
        while self.is_mounted() {
            let _ = Command::new("umount").arg("-l").arg(&self.on).output();
        }
    }

    pub fn is_mounted(&self) -> bool {
        // The mounts of this thread, which may have its own.
        let mounts = fs::read("/proc/thread-self/mounts").unwrap();
        let mounts = String::from_utf8_lossy(&mounts).into_owned();
        let on = self.on.to_str().unwrap();
        mounts.lines().any(|line| line.split(' ').nth(1) == Some(on))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.namespace.join("mount.log")).unwrap()
    }

    /// How many contents lie in files of their own.
    pub fn objects(&self) -> usize {
        let parts = fs::read_dir(self.namespace.join("contents")).unwrap();
        parts.map(|part| fs::read_dir(part.unwrap().path()).unwrap().count()).sum()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.let_go();
        let begun = Instant::now();
        while !self.processes().is_empty() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The command `canopy ns` with a subcommand.
pub fn ns(subcommand: &str) -> Command {
    let mut command = Command::new(CANOPY);
    command.args(["ns", subcommand]);
    command
}

/// Fails unless a program has succeeded; gives what it has said.
#[track_caller]
pub fn success(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {said}{told}", output.status);
    told
}

/// Fails unless a command of ours has failed with one line; gives it.
#[track_caller]
pub fn failure(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("canopy: ") && said.lines().count() == 1, "{said}");
    said
}

/// Runs a line of the shell in a directory; fails if it does.
#[track_caller]
pub fn shell(directory: &Path, line: &str) -> String {
    let mut command = Command::new("bash");
    command.args(["-e", "-o", "pipefail", "-c", line]).current_dir(directory);
    success(&command.env("LC_ALL", "C.UTF-8").output().unwrap())
}

/// A program as another user without further groups.
pub fn as_user(uid: u32, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    let uid = uid.to_string();
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", program]);
    command
}

#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

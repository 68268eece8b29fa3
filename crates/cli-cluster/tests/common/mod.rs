//! Shared parts of the tests of clusters: running programs as users. Needs root.

#![allow(dead_code, missing_docs)]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Lines, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const CANOPY: &str = env!("CARGO_BIN_EXE_canopy-cluster");

/// A user without any rights.
pub const NOBODY: u32 = 65534;

/// The program of `canopy ns`, which is built beside this one.
pub fn canopy_ns() -> PathBuf {
    let path = Path::new(CANOPY).with_file_name("canopy-ns");
    assert!(path.exists(), "build all commands first: {} is missing", path.display());
    path
}

/// A namespace on several servers, below a directory that every user can search.
pub struct Place {
    pub dir: TempDir,
    pub namespace: PathBuf,
}

impl Place {
    pub fn new(servers: u32) -> Self {
        Self::with(servers, &[])
    }

    pub fn with(servers: u32, options: &[&str]) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests need root");
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let namespace = dir.path().join("namespace");
        let mut create = Command::new(canopy_ns());
        create.args(["ns", "create", "--servers", &servers.to_string()]).args(options);
        create.arg(&namespace);
        success(&create.output().unwrap());
        Place { dir, namespace }
    }

    /// Makes a namespace of two servers on a file system of its own, of this size.
    pub fn on_disk_of(size: &str) -> Self {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(dir.path());
        success(&mount.output().unwrap());
        let namespace = dir.path().join("namespace");
        let mut create = Command::new(canopy_ns());
        success(&create.args(["ns", "create", "--servers", "2"]).arg(&namespace).output().unwrap());
        Place { dir, namespace }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `canopy cluster` in the directory of the place; `@` is the namespace.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(CANOPY);
        command.arg("cluster").current_dir(self.dir.path());
        for word in words {
            match *word {
                "@" => command.arg(&self.namespace),
                word => command.arg(word),
            };
        }
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // There is none, but for a namespace with a disk of its own.
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).output();
    }
}

#[track_caller]
pub fn success(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The message of a command that fails, with exit code 2.
#[track_caller]
pub fn failure(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.starts_with("canopy: "), "{errors}");
    assert_eq!(output.stdout, b"", "{errors}");
    errors
}

/// A process of a cluster. It is killed if the test forgets it.
pub struct Process {
    pub child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a process and waits until it serves: with its address, and the servers that it said it
    /// runs.
    pub fn start(mut command: Command) -> (Self, String, String) {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Process { child, lines };
        let line = process.line();
        let said = line.strip_prefix("listening on ").unwrap().split_once(", running servers ");
        let (address, running) = said.unwrap();
        (process, address.to_owned(), running.to_owned())
    }

    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.lines.next() {
            Some(line) => line.unwrap(),
            None => {
                let mut errors = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
                panic!("the process ended: {errors}")
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Waits for its end, and returns its exit code and messages.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap().code(), errors)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something holds; a minute is enough on any machine.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

//! Tests of what copies trees into namespaces and out of them: the real command on real trees. They
//! need root.

mod interrupted;
mod told;
mod tree;
mod whole;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory of the test, removed with all that lies in it, however deep.
struct Fixture(PathBuf);

impl Fixture {
    fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests need root");
        Fixture(tempfile::tempdir().expect("a directory").keep())
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes a directory.
    fn directory(&self, name: &str) -> PathBuf {
        std::fs::create_dir(self.join(name)).expect("a directory");
        self.join(name)
    }

    /// Makes an empty namespace.
    fn namespace(&self, name: &str) -> PathBuf {
        let namespace = self.join(name);
        succeed(&[&"create", &namespace]);
        namespace
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = Command::new("rm").arg("-rf").arg(&self.0).status();
    }
}

/// Returns the command that does something to namespaces.
fn command(words: &[&dyn AsRef<Path>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopy-ns"));
    command.arg("ns").args(words.iter().map(|word| word.as_ref()));
    command
}

/// Runs it and returns the exit code, standard output and standard error.
fn run(words: &[&dyn AsRef<Path>]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command(words).output().expect("the command runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

/// Runs it, which succeeds without saying anything but what is returned.
fn succeed(words: &[&dyn AsRef<Path>]) -> String {
    let (code, stdout, stderr) = run(words);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    stdout
}

fn check(namespace: &Path) {
    assert_eq!(succeed(&[&"check", &namespace]), "no faults\n");
}

//! Programs of peers that run during a measurement, each with a directory of its own.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time until a program answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time that a program has to end.
const GRACE: Duration = Duration::from_secs(5);

/// A directory, which is removed when this is dropped.
pub struct Own(PathBuf);

impl Own {
    pub fn new(scratch: &Path, name: &str) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("canopy-bench-{name}-{}-{number}", std::process::id());
        let path = scratch.join(name);
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Own(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program in the foreground. It is stopped when this is dropped.
pub struct Daemon(Child);

impl Daemon {
    /// Starts a program; its output goes to a file in a directory.
    pub fn start(command: &mut Command, own: &Own) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = File::options().create(true).append(true).open(own.path().join("output"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Daemon(command.spawn().with_context(|| format!("cannot run {name}"))?))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let begin = Instant::now();
        while begin.elapsed() < GRACE && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while !holds()? {
        ensure!(begin.elapsed() < PATIENCE, "{what} does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Returns a port that was free just now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

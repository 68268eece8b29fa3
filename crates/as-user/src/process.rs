//! A process that runs a service, from the side of its parent.

use crate::frame::{Frame, decode, take};
use crate::service::{ARGUMENT, Service};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a wait looks whether anybody still wants its outcome.
const LOOKED_EVERY: Duration = Duration::from_millis(100);

/// Starts this program again, for a service. The process does nothing before it gets its identity
/// through the socket, which is its standard input. It ends with the thread that calls this.
pub(crate) fn spawn(
    service: &Service,
    socket: UnixStream,
    output: Stdio,
    errors: Stdio,
) -> io::Result<Child> {
    // The program of this process, even if its file was replaced since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(service.program).args([ARGUMENT, service.name]).env_clear();
    let kept = service.variables.iter();
    command.envs(kept.filter_map(|name| Some((name, std::env::var_os(name)?))));
    if !service.keeps_directory {
        command.current_dir("/");
    }
    command.stdin(OwnedFd::from(socket)).stdout(output).stderr(errors).spawn()
}

/// Encodes who a process is to be: a user and all groups, the main one first.
pub(crate) fn identity(uid: u32, gids: &[u32]) -> io::Result<Frame> {
    Frame::encode(&(uid, gids))
}

/// A process that runs a service for one user, and for one caller. It is killed when this is
/// dropped, and ends with the thread that has started it.
pub struct Process {
    child: Child,
    socket: UnixStream,
    received: Vec<u8>,
}

impl Process {
    /// Starts a process, which owns its standard output and error alone from then on. It waits for
    /// [`introduce`](Self::introduce).
    ///
    /// # Errors
    /// Fails where no process can be started.
    pub fn start(service: &Service, output: Stdio, errors: Stdio) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let child = spawn(service, theirs, output, errors)?;
        Ok(Process { child, socket, received: Vec::new() })
    }

    /// Sends the user that the process is to become, with all groups, the main one first.
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn introduce(&self, uid: u32, gids: &[u32]) -> io::Result<()> {
        identity(uid, gids)?.send(&self.socket, 0, false)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// Fails if it is longer than a frame may be, or if the process has ended.
    pub fn send(&self, what: &impl Serialize) -> io::Result<()> {
        Frame::encode(what)?.send(&self.socket, 0, false)
    }

    /// Waits for the next frame, as long as `is_wanted` returns true.
    ///
    /// # Errors
    /// Fails with `TimedOut` once it is too late or unwanted, with `UnexpectedEof` if the process has
    /// ended, and for what is not a `T`.
    pub fn receive<T: DeserializeOwned>(
        &mut self,
        until: Instant,
        is_wanted: &dyn Fn() -> bool,
    ) -> io::Result<T> {
        decode(&self.next_body(until, is_wanted)?)
    }

    fn next_body(&mut self, until: Instant, is_wanted: &dyn Fn() -> bool) -> io::Result<Vec<u8>> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(body) = take(&mut self.received)? {
                return Ok(body);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !is_wanted() {
                return Err(ErrorKind::TimedOut.into());
            }
            if !self.can_be_read(left.min(LOOKED_EVERY))? {
                continue;
            }
            match rustix::io::read(&self.socket, &mut chunk)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.received.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// Returns whether a process that has nothing more to say has ended, or says something.
    pub fn is_over(&self) -> bool {
        self.can_be_read(Duration::ZERO).unwrap_or(true)
    }

    fn can_be_read(&self, within: Duration) -> io::Result<bool> {
        let mut waited = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // Rounded up, so that the last millisecond is not spent in a loop.
        let within = PollTimeout::try_from(within + Duration::from_micros(999));
        match poll(&mut waited, within.unwrap_or(PollTimeout::MAX)) {
            Err(nix::errno::Errno::EINTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
    }

    /// Takes standard error, if it is a pipe. The process gets no more requests: it must not wait for
    /// one while its messages are read to their end.
    pub fn take_errors(&mut self) -> Option<ChildStderr> {
        let _ = self.socket.shutdown(Shutdown::Write);
        self.child.stderr.take()
    }

    /// Waits for the end of a process that gets no more requests.
    ///
    /// # Errors
    /// Fails if the kernel does not report it.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        let _ = self.socket.shutdown(Shutdown::Write);
        self.child.wait()
    }

    /// Ends a process: one that does not end by itself in this time, or as long as `may_wait`
    /// returns true, is killed.
    pub fn end(mut self, within: Duration, may_wait: &dyn Fn() -> bool) {
        let _ = self.socket.shutdown(Shutdown::Write);
        let until = Instant::now() + within;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > until || !may_wait() {
                return;
            }
            std::thread::sleep(LOOKED_EVERY / 10);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! A process that has become the user who asks, and opens what is asked for as that user.
//!
//! Its standard output is the connection with the user; the daemon asks it by frames
//! (`canopy_as_user`). The user whose rights it has can make it hang, which costs nobody else
//! anything: the daemon gives it little time, and no lock or other thing that it could keep.

use super::protocol::{Answer, BYTES_MAX, GREETING, PATH_BYTES_MAX, PATHS_MAX, Parts};
use crate::events::absolute;
use crate::handles::as_path;
use canopy_as_user::{Channel, Service};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

/// The service that checks and answers the requests of one connection. Its first frame is for the
/// daemon: the directories, and which of them the user can list. Then it reads lines of answers, in
/// a frame each, for all but those that were denied.
pub const CHECKER: Service = Service {
    name: "requests",
    program: "canopy",
    memory_bytes_max: Some(64 << 20),
    files_max: Some(16),
    writes_files: false,
    ends_first: false,
    variables: &[],
    keeps_directory: false,
    serve: |daemon| match serve(&daemon) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    },
};

/// A directory that the user has asked for, and whether that user can list it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Checked {
    /// The user can list the directory at this path, and the one above it.
    WithRow(Vec<u8>),
    /// The user can list it alone.
    Alone(Vec<u8>),
    /// The user cannot list it, and has the answer from here.
    Denied,
}

/// Serves a connection.
fn serve(daemon: &Channel) -> io::Result<()> {
    let mut user = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // Answers that were found out here; `None` where the daemon answers.
    let (mut own, mut checked) = (Vec::new(), Vec::new());
    for path in read_paths(&mut user)? {
        let (one, answer) = match look(&path) {
            Ok(true) => (Checked::WithRow(path), None),
            Ok(false) => (Checked::Alone(path), None),
            Err(errno) => (Checked::Denied, Some(Answer::Denied(errno.raw_os_error()))),
        };
        checked.push(one);
        own.push(answer);
    }
    daemon.send(&checked)?;
    for known in own {
        let line = match known {
            Some(answer) => answer.line(),
            None => next_line(daemon, &user)?,
        };
        user.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// Reads all that the user says.
fn read_paths(user: &mut File) -> io::Result<Vec<Vec<u8>>> {
    let mut parts = Parts::paths();
    let mut paths = Vec::new();
    let (mut greeted, mut length) = (false, 0);
    let mut chunk = vec![0; 64 << 10];
    loop {
        let read = user.read(&mut chunk)?;
        length += read;
        if read == 0 || length > BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        parts.add(&chunk[..read]);
        while let Some(part) = parts.next()? {
            match greeted {
                false if part == GREETING[..GREETING.len() - 1] => greeted = true,
                true if part.is_empty() && parts.is_empty() => return Ok(paths),
                true if !part.is_empty() && paths.len() < PATHS_MAX => paths.push(part),
                _ => return Err(ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// Opens a directory to list it; returns whether the one above can be, too.
fn look(path: &[u8]) -> Result<bool, Errno> {
    if path.len() > PATH_BYTES_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let real = absolute(path).filter(|real| real == path).ok_or(Errno::INVAL)?;
    let open = |path: &[u8]| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // The later listing opens this path again, through no link, so check exactly that path.
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        openat2(CWD, as_path(path), flags, Mode::empty(), resolve).map(drop)
    };
    open(&real)?;
    Ok(as_path(&real)
        .parent()
        .is_none_or(|above| open(above.as_os_str().as_encoded_bytes()).is_ok()))
}

/// Reads the next answer of the daemon, unless the user goes away.
fn next_line(daemon: &Channel, user: &File) -> io::Result<String> {
    let mut waited = [
        PollFd::new(daemon.as_fd(), PollFlags::POLLIN),
        PollFd::new(user.as_fd(), PollFlags::POLLIN),
    ];
    poll(&mut waited, PollTimeout::NONE)?;
    if waited[1].any().unwrap_or(true) {
        // A user has nothing more to say.
        return Err(ErrorKind::ConnectionAborted.into());
    }
    daemon.receive()
}

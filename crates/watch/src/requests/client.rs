//! The side of whoever asks.

use super::protocol::{Answer, GREETING, PATHS_MAX, Parts, SOCKET};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, send, socket,
};
use rustix::fs::{Mode, OFlags};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than a daemon takes for any answer.
const PATIENCE: Duration = Duration::from_secs(600);

/// Asks the daemon of an index to have directories listed again, by absolute real paths, and calls
/// `each` with every answer, in this order. Fails with `NotFound` or `ConnectionRefused` where no
/// daemon takes requests, and with `UnexpectedEof` where it ends before it has answered them all.
pub fn ask<'a>(
    index: &Path,
    directories: &'a [PathBuf],
    each: &mut dyn FnMut(&'a Path, Answer),
) -> io::Result<()> {
    let index = open_index(index)?;
    for some in directories.chunks(PATHS_MAX) {
        let connection = UnixStream::connect(short_path(&index))?;
        connection.set_read_timeout(Some(PATIENCE))?;
        let mut said = GREETING.to_vec();
        for path in some {
            said.extend_from_slice(path.as_os_str().as_bytes());
            said.push(0);
        }
        said.push(0);
        // One that does not want to hear all of it may have said why.
        let _ = say(&connection, &said);
        let mut left = some.iter();
        read_answers(&connection, &mut left, each)?;
    }
    Ok(())
}

/// Returns whether a daemon takes requests for an index. Never waits: a daemon with a full queue of
/// connections counts as none.
pub fn is_listening(index: &Path) -> bool {
    let reached = || -> io::Result<()> {
        let index = open_index(index)?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let own = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        Ok(connect(own.as_raw_fd(), &UnixAddr::new(&short_path(&index))?)?)
    };
    reached().is_ok()
}

fn say(connection: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = send(connection.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL)?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

fn read_answers<'a>(
    mut connection: &UnixStream,
    left: &mut std::slice::Iter<'a, PathBuf>,
    each: &mut dyn FnMut(&'a Path, Answer),
) -> io::Result<()> {
    let mut lines = Parts::lines();
    let mut chunk = [0; 4096];
    let mut last = None;
    loop {
        while let Some(line) = lines.next()? {
            let answer = Answer::parse(&line).ok_or(ErrorKind::InvalidData)?;
            let Some(path) = left.next() else { return Err(ErrorKind::InvalidData.into()) };
            each(path, answer);
            last = Some(answer);
        }
        if left.len() == 0 {
            return Ok(());
        }
        match connection.read(&mut chunk) {
            Ok(read) if read > 0 => lines.add(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() != ErrorKind::ConnectionReset => return Err(error),
            // A connection that there is no room for is refused as a whole.
            _ if last == Some(Answer::Busy) => {
                left.for_each(|path| each(path, Answer::Busy));
                return Ok(());
            }
            _ => return Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Opens the directory of an index, to find the socket in it.
pub(crate) fn open_index(index: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(index, flags, Mode::empty())?)
}

/// Returns a path of the socket that is short enough for the address of one, however long that of
/// the index is.
pub(crate) fn short_path(index: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}/{SOCKET}", index.as_fd().as_raw_fd()).into()
}

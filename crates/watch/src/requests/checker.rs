//! A process that has become the user who asks, and opens what is asked for as that user.
//!
//! It has three descriptors: the connection with the user as standard output, and pipes from and to
//! the daemon as standard input and error. What it does can be made to hang by the user whose rights
//! it has, which costs nobody else anything: the daemon gives it little time, and no lock or other
//! thing that it could keep.

use super::protocol::{Answer, BYTES_MAX, GREETING, PATH_BYTES_MAX, PATHS_MAX, Parts};
use crate::events::absolute;
use crate::handles::as_path;
use canopy_credentials::{become_user, close_all_but_standard, limit};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::Resource;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// The first argument of the program that runs [`check_as_user`].
pub const ARGUMENT: &str = "check-requests";

/// What it may have in memory, in bytes, and open.
const MEMORY_BYTES_MAX: u64 = 64 << 20;
const FILES_MAX: u64 = 16;

/// What the daemon is told of a directory that was asked for, in front of its path.
pub(crate) const WITH_ROW: u8 = b'+';
pub(crate) const ALONE: u8 = b'-';
pub(crate) const DENIED: u8 = b'!';

/// What the daemon is told last.
pub(crate) const END: &[u8] = b".\0";

/// Becomes the user whom the daemon names in the first line of standard input, and serves that
/// user's connection. To be called first of all, in a process with one thread.
pub fn check_as_user() -> io::Result<()> {
    close_all_but_standard()?;
    let own = |descriptor: BorrowedFd<'_>| descriptor.try_clone_to_owned().map(File::from);
    let (daemon, mut user) = (own(io::stdin().as_fd())?, own(io::stdout().as_fd())?);
    let (uid, gids) = parse_credentials(&first_line(&daemon)?).ok_or(ErrorKind::InvalidData)?;
    limit(Resource::RLIMIT_CORE, 0)?;
    limit(Resource::RLIMIT_FSIZE, 0)?;
    limit(Resource::RLIMIT_DATA, MEMORY_BYTES_MAX)?;
    limit(Resource::RLIMIT_NOFILE, FILES_MAX)?;
    become_user(uid, &gids)?;
    // What was found out here; `None` where the daemon answers.
    let mut own = Vec::new();
    for path in read_paths(&mut user)? {
        let looked = look(&path);
        let (letter, answer) = match looked {
            Ok(true) => (WITH_ROW, None),
            Ok(false) => (ALONE, None),
            Err(errno) => (DENIED, Some(Answer::Denied(errno.raw_os_error()))),
        };
        own.push(answer);
        io::stderr().write_all(&[&[letter], &path[..], &[0]].concat())?;
    }
    io::stderr().write_all(END)?;
    let mut answers = Parts::lines();
    for known in own {
        let answer = match known {
            Some(answer) => answer,
            None => next_answer(&daemon, &user, &mut answers)?,
        };
        user.write_all(answer.line().as_bytes())?;
    }
    Ok(())
}

/// Returns the line by which the daemon names a user.
pub(crate) fn credentials_line(uid: u32, gids: &[u32]) -> String {
    let words = std::iter::once(&uid).chain(gids).map(u32::to_string);
    words.collect::<Vec<_>>().join(" ") + "\n"
}

fn parse_credentials(line: &[u8]) -> Option<(u32, Vec<u32>)> {
    let words = std::str::from_utf8(line).ok()?.split(' ').map(str::parse);
    let numbers: Vec<u32> = words.collect::<Result<_, _>>().ok()?;
    let (&uid, gids) = numbers.split_first()?;
    Some((uid, gids.to_vec()))
}

fn first_line(mut from: &File) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        if byte == *b"\n" {
            return Ok(line);
        }
        line.push(byte[0]);
    }
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
        // What is listed later is what this path leads to then, through no link.
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        openat2(CWD, as_path(path), flags, Mode::empty(), resolve).map(drop)
    };
    open(&real)?;
    Ok(as_path(&real)
        .parent()
        .is_none_or(|above| open(above.as_os_str().as_encoded_bytes()).is_ok()))
}

/// Reads what the daemon answers next, unless the user goes away.
fn next_answer(mut daemon: &File, user: &File, answers: &mut Parts) -> io::Result<Answer> {
    loop {
        if let Some(line) = answers.next()? {
            return Answer::parse(&line).ok_or(ErrorKind::InvalidData.into());
        }
        let mut waited = [
            PollFd::new(daemon.as_fd(), PollFlags::POLLIN),
            PollFd::new(user.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut waited, PollTimeout::NONE)?;
        let [told, left] = waited.map(|one| one.any().unwrap_or(true));
        if left {
            // A user has nothing more to say.
            return Err(ErrorKind::ConnectionAborted.into());
        }
        if told {
            let mut chunk = [0; 4096];
            let read = daemon.read(&mut chunk)?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            answers.add(&chunk[..read]);
        }
    }
}

//! Calls that open files, and short ways to make and read them.

use super::refusal::{Refusal, done};
use super::words::Words;
use super::{Answer, Calls, Worker};
use crate::word;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};

/// `open PATH FLAGS [MODE]` and `openat DIR PATH FLAGS [MODE]` have a descriptor as their value.
/// Made by the suite: `create PATH [MODE [DATA]]` makes a file whatever the umask, `put PATH DATA`
/// replaces its contents, `cat PATH` reads them.
pub const CALLS: Calls = &[
    ("open", |worker, words| {
        let opened = open(CWD, words)?;
        Ok(worker.keep(opened))
    }),
    ("openat", |worker, words| {
        let opened = open(worker.descriptor(words)?, words)?;
        Ok(worker.keep(opened))
    }),
    ("creat", |worker, words| {
        let (path, flags) = (words.path()?, OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC);
        let opened = rustix::fs::open(path, flags | OFlags::CLOEXEC, words.mode()?)?;
        Ok(worker.keep(opened))
    }),
    ("close", |worker, words| {
        let number = words.number()? as i32;
        let closed = worker.descriptors.remove(&number);
        closed.ok_or_else(|| Refusal::broken("the descriptor is not open"))?;
        Ok(String::new())
    }),
    ("create", create),
    ("put", put),
    ("cat", cat),
];

fn open(directory: impl AsFd, words: &mut Words) -> Result<OwnedFd, Refusal> {
    let path = words.path()?;
    let flags = OFlags::from_bits_retain(words.flags()?) | OFlags::CLOEXEC;
    let mode = Mode::from_bits_retain(words.number_or(0)? as u32);
    Ok(rustix::fs::openat(directory, path, flags, mode)?)
}

fn open_to_write(path: OsString, more: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC | more, Mode::RUSR | Mode::WUSR)
}

fn create(_: &mut Worker, words: &mut Words) -> Answer {
    let path = words.path()?;
    let mode = Mode::from_bits_retain(words.number_or(0o644)? as u32);
    let data = words.optional().map_or(Some(Vec::new()), word::decode);
    let data = data.ok_or_else(|| Refusal::broken("the contents are not text"))?;
    let file = open_to_write(path, OFlags::CREATE | OFlags::EXCL)?;
    write_all(&file, &data)?;
    done(rustix::fs::fchmod(&file, mode))
}

fn put(_: &mut Worker, words: &mut Words) -> Answer {
    let file = open_to_write(words.path()?, OFlags::CREATE | OFlags::TRUNC)?;
    write_all(&file, &words.bytes()?)?;
    Ok(String::new())
}

fn cat(_: &mut Worker, words: &mut Words) -> Answer {
    let file = rustix::fs::open(words.path()?, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut data = Vec::new();
    loop {
        let mut piece = vec![0; 64 * 1024];
        match rustix::io::read(&file, &mut piece[..])? {
            0 => return Ok(word::encode(&data)),
            length => data.extend_from_slice(&piece[..length]),
        }
    }
}

fn write_all(file: &OwnedFd, mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        let written = rustix::io::write(file, data)?;
        data = &data[written..];
    }
    Ok(())
}

//! Calls that make, remove and look up names.

use super::refusal::{Refusal, done};
use super::words::Words;
use super::{Answer, Calls, Worker};
use crate::word;
use rustix::fs::{AtFlags, CWD, FileType, RenameFlags};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// For how long [`link_many`] goes on.
const LINKING: Duration = Duration::from_secs(10);

/// `link OLD NEW`, `linkat DIR OLD DIR NEW FLAGS` and so on; `mknod PATH TYPE MODE [MAJOR MINOR]`.
/// Made by the suite: `chain TARGET NAME COUNT` makes symbolic links `NAME1`, which leads to the
/// target, `NAME2`, which leads to `NAME1`, and so on; `link-many OLD NEW COUNT` makes hard links.
pub const CALLS: Calls = &[
    ("chain", |_, words| {
        let (target, name) = (words.word()?, words.word()?);
        for number in 1..=words.number()? {
            let before = format!("{name}{}", number - 1);
            let target = if number == 1 { target } else { &before };
            rustix::fs::symlink(target, format!("{name}{number}"))?;
        }
        Ok(String::new())
    }),
    ("link", |_, words| done(rustix::fs::link(words.path()?, words.path()?))),
    ("link-many", link_many),
    ("linkat", linkat),
    ("mkdir", |_, words| done(rustix::fs::mkdir(words.path()?, words.mode()?))),
    ("mkdirat", |worker, words| {
        let directory = worker.descriptor(words)?;
        done(rustix::fs::mkdirat(directory, words.path()?, words.mode()?))
    }),
    ("mknod", |_, words| mknod(CWD, words)),
    ("mknodat", |worker, words| mknod(worker.descriptor(words)?, words)),
    ("readlink", |_, words| readlink(CWD, words)),
    ("readlinkat", |worker, words| readlink(worker.descriptor(words)?, words)),
    ("rename", |_, words| done(rustix::fs::rename(words.path()?, words.path()?))),
    ("renameat", renameat),
    ("renameat2", renameat2),
    ("rmdir", |_, words| done(rustix::fs::rmdir(words.path()?))),
    ("symlink", |_, words| done(rustix::fs::symlink(words.path()?, words.path()?))),
    ("symlinkat", |worker, words| {
        let target = words.path()?;
        done(rustix::fs::symlinkat(target, worker.descriptor(words)?, words.path()?))
    }),
    ("unlink", |_, words| done(rustix::fs::unlink(words.path()?))),
    ("unlinkat", |worker, words| {
        let (directory, path) = (worker.descriptor(words)?, words.path()?);
        let flags = AtFlags::from_bits_retain(words.flags()?);
        done(rustix::fs::unlinkat(directory, path, flags))
    }),
];

/// Stops when it takes too long, as there may be no limit. The value is the number of links.
fn link_many(_: &mut Worker, words: &mut Words) -> Answer {
    let (old, new, count) = (words.path()?, words.word()?, words.number()?);
    let started = Instant::now();
    for number in 0..count {
        if started.elapsed() > LINKING {
            return Ok(number.to_string());
        }
        rustix::fs::link(&old, format!("{new}{number}"))?;
    }
    Ok(count.to_string())
}

fn linkat(worker: &mut Worker, words: &mut Words) -> Answer {
    let (from, old) = (worker.descriptor(words)?, words.path()?);
    let (to, new) = (worker.descriptor(words)?, words.path()?);
    let flags = AtFlags::from_bits_retain(words.flags()?);
    done(rustix::fs::linkat(from, old, to, new, flags))
}

fn mknod(directory: impl AsFd, words: &mut Words) -> Answer {
    let path = words.path()?;
    let kind = match words.word()? {
        "file" => FileType::RegularFile,
        "fifo" => FileType::Fifo,
        "socket" => FileType::Socket,
        "character" => FileType::CharacterDevice,
        "block" => FileType::BlockDevice,
        "directory" => FileType::Directory,
        "symlink" => FileType::Symlink,
        // A value that is not a file type.
        "none" => FileType::Unknown,
        other => return Err(Refusal::broken(format!("{other} is not a type of a file"))),
    };
    let mode = words.mode()?;
    let device = rustix::fs::makedev(words.number_or(0)? as u32, words.number_or(0)? as u32);
    done(rustix::fs::mknodat(directory, path, kind, mode, device))
}

/// `readlink PATH [SIZE]`: at most so many bytes.
fn readlink(directory: impl AsFd, words: &mut Words) -> Answer {
    let path = words.path()?;
    let mut target = vec![0; words.number_or(4096)? as usize];
    let length = rustix::fs::readlinkat_raw(directory, path, &mut target[..])?;
    Ok(word::encode(&target[..length]))
}

fn renameat(worker: &mut Worker, words: &mut Words) -> Answer {
    let (from, old) = (worker.descriptor(words)?, words.path()?);
    let (to, new) = (worker.descriptor(words)?, words.path()?);
    done(rustix::fs::renameat(from, old, to, new))
}

/// `renameat2 OLD NEW FLAGS`.
fn renameat2(_: &mut Worker, words: &mut Words) -> Answer {
    let (old, new) = (words.path()?, words.path()?);
    let flags = RenameFlags::from_bits_retain(words.flags()?);
    done(rustix::fs::renameat_with(CWD, old, CWD, new, flags))
}

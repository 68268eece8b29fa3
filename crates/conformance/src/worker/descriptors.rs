//! Calls on descriptors that have to do with neither contents nor locks, and those that ask about
//! the file system.

use super::refusal::{Refusal, done, value};
use super::words::Words;
use super::{Answer, Calls, Worker};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rustix::fs::{IFlags, Mode, OFlags, StatVfs};

/// `chattr PATH LETTERS` sets the flags `i` (immutable) and `a` (append only), or none with `-`.
pub const CALLS: Calls = &[
    ("dup", |worker, words| {
        let copy = rustix::io::dup(worker.descriptor(words)?)?;
        Ok(worker.keep(copy))
    }),
    ("fsync", |worker, words| done(rustix::fs::fsync(worker.descriptor(words)?))),
    ("fdatasync", |worker, words| done(rustix::fs::fdatasync(worker.descriptor(words)?))),
    ("syncfs", |worker, words| done(rustix::fs::syncfs(worker.descriptor(words)?))),
    ("getfl", |worker, words| value(fcntl(worker.descriptor(words)?, FcntlArg::F_GETFL))),
    ("setfl", |worker, words| {
        let file = worker.descriptor(words)?;
        let flags = OFlag::from_bits_retain(words.signed_flags()?);
        done(fcntl(file, FcntlArg::F_SETFL(flags)))
    }),
    ("statfs", |_, words| statvfs_value(&rustix::fs::statvfs(words.path()?)?, words)),
    ("fstatfs", |worker, words| {
        statvfs_value(&rustix::fs::fstatvfs(worker.descriptor(words)?)?, words)
    }),
    ("chattr", chattr),
];

fn chattr(_: &mut Worker, words: &mut Words) -> Answer {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(words.path()?, flags, Mode::empty())?;
    let mut attributes = rustix::fs::ioctl_getflags(&file)?;
    attributes.remove(IFlags::IMMUTABLE | IFlags::APPEND);
    for letter in words.word()?.chars() {
        attributes |= match letter {
            'i' => IFlags::IMMUTABLE,
            'a' => IFlags::APPEND,
            '-' => IFlags::empty(),
            other => return Err(Refusal::broken(format!("{other} is not an attribute"))),
        };
    }
    done(rustix::fs::ioctl_setflags(&file, attributes))
}

/// Returns the fields of a file system that `words` name; `sound`: whether its numbers make sense.
fn statvfs_value(about: &StatVfs, words: &mut Words) -> Answer {
    let field = |name: &str| match name {
        "namemax" => Ok(about.f_namemax.to_string()),
        "sound" => Ok(is_sound(about).to_string()),
        other => Err(Refusal::broken(format!("{other} is not a field of a file system"))),
    };
    Ok(words.rest().into_iter().map(field).collect::<Result<Vec<_>, _>>()?.join(" "))
}

fn is_sound(about: &StatVfs) -> bool {
    about.f_bsize > 0
        && about.f_frsize > 0
        && about.f_bfree <= about.f_blocks
        && about.f_bavail <= about.f_bfree
        && about.f_ffree <= about.f_files
}

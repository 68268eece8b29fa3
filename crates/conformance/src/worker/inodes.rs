//! Calls that read and change what is known of a file besides its contents.

use super::refusal::{Refusal, done};
use super::words::Words;
use super::{Answer, Calls, Worker};
use nix::sys::stat::FchmodatFlags;
use nix::unistd::AccessFlags;
use rustix::fs::{AtFlags, CWD, Gid, Stat, Statx, StatxFlags, Timespec, Timestamps, Uid};
use rustix::fs::{FileType, UTIME_NOW, UTIME_OMIT};
use std::os::fd::AsFd;

/// The calls of the stat family take the fields that their value contains; owners are numbers or
/// `-`; times are `now`, `omit` or `SECONDS.NANOSECONDS`, that of access first.
pub const CALLS: Calls = &[
    ("stat", |_, words| field_values(rustix::fs::stat(words.path()?)?.into(), words)),
    ("lstat", |_, words| field_values(rustix::fs::lstat(words.path()?)?.into(), words)),
    ("fstat", |worker, words| {
        field_values(rustix::fs::fstat(worker.descriptor(words)?)?.into(), words)
    }),
    ("fstatat", |worker, words| {
        let (directory, path) = (worker.descriptor(words)?, words.path()?);
        let flags = AtFlags::from_bits_retain(words.flags()?);
        field_values(rustix::fs::statat(directory, path, flags)?.into(), words)
    }),
    ("statx", statx),
    ("access", |_, words| {
        let path = words.path()?;
        let kinds = AccessFlags::from_bits_retain(words.signed_flags()?);
        done(nix::unistd::access(path.as_os_str(), kinds))
    }),
    ("faccessat", faccessat),
    ("chmod", |_, words| done(rustix::fs::chmod(words.path()?, words.mode()?))),
    ("fchmod", |worker, words| done(rustix::fs::fchmod(worker.descriptor(words)?, words.mode()?))),
    ("fchmodat", fchmodat),
    ("chown", |_, words| {
        let path = words.path()?;
        done(rustix::fs::chown(path, user(words)?, group(words)?))
    }),
    ("lchown", |_, words| chown(CWD, words, AtFlags::SYMLINK_NOFOLLOW)),
    ("fchown", |worker, words| {
        done(rustix::fs::fchown(worker.descriptor(words)?, user(words)?, group(words)?))
    }),
    ("fchownat", |worker, words| {
        let directory = worker.descriptor(words)?;
        let flags = AtFlags::from_bits_retain(words.flags()?);
        chown(directory, words, flags)
    }),
    ("utimensat", |worker, words| {
        let (directory, path) = (worker.descriptor(words)?, words.path()?);
        let times = timestamps(words)?;
        let flags = AtFlags::from_bits_retain(words.flags()?);
        done(rustix::fs::utimensat(directory, path, &times, flags))
    }),
    ("utimes", |_, words| {
        let (path, times) = (words.path()?, timestamps(words)?);
        done(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()))
    }),
    ("futimens", |worker, words| {
        let file = worker.descriptor(words)?;
        done(rustix::fs::futimens(file, &timestamps(words)?))
    }),
];

/// Attributes of a file.
struct Facts {
    mode: u32,
    nlink: u64,
    uid: u32,
    gid: u32,
    rdev: (u32, u32),
    dev: (u32, u32),
    ino: u64,
    size: u64,
    blksize: u64,
    blocks: u64,
    /// The times of access, modification and change.
    times: [(i64, u32); 3],
    /// When it was made, if the file system knows.
    btime: Option<(i64, u32)>,
}

impl From<Stat> for Facts {
    fn from(stat: Stat) -> Self {
        let device = |device| (rustix::fs::major(device), rustix::fs::minor(device));
        Self {
            mode: stat.st_mode,
            nlink: stat.st_nlink,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: device(stat.st_rdev),
            dev: device(stat.st_dev),
            ino: stat.st_ino,
            size: stat.st_size as u64,
            blksize: stat.st_blksize as u64,
            blocks: stat.st_blocks as u64,
            times: [
                (stat.st_atime, stat.st_atime_nsec as u32),
                (stat.st_mtime, stat.st_mtime_nsec as u32),
                (stat.st_ctime, stat.st_ctime_nsec as u32),
            ],
            btime: None,
        }
    }
}

impl From<Statx> for Facts {
    fn from(stat: Statx) -> Self {
        let known = StatxFlags::from_bits_retain(stat.stx_mask);
        let made = (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec);
        Self {
            mode: stat.stx_mode.into(),
            nlink: stat.stx_nlink.into(),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
            dev: (stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            size: stat.stx_size,
            blksize: stat.stx_blksize.into(),
            blocks: stat.stx_blocks,
            times: [stat.stx_atime, stat.stx_mtime, stat.stx_ctime]
                .map(|time| (time.tv_sec, time.tv_nsec)),
            btime: known.contains(StatxFlags::BTIME).then_some(made),
        }
    }
}

impl Facts {
    fn field(&self, name: &str) -> Option<String> {
        let time = |(seconds, nanoseconds)| format!("{seconds}.{nanoseconds:09}");
        Some(match name {
            "type" => type_name(FileType::from_raw_mode(self.mode)).to_owned(),
            "mode" => format!("{:04o}", self.mode & 0o7777),
            "nlink" => self.nlink.to_string(),
            "uid" => self.uid.to_string(),
            "gid" => self.gid.to_string(),
            "rdev" => format!("{}:{}", self.rdev.0, self.rdev.1),
            "dev" => format!("{}:{}", self.dev.0, self.dev.1),
            "ino" => self.ino.to_string(),
            "size" => self.size.to_string(),
            "blksize" => self.blksize.to_string(),
            "blocks" => self.blocks.to_string(),
            "space" if self.blocks * 512 < self.size => "sparse".to_owned(),
            "space" => "dense".to_owned(),
            "atime" => time(self.times[0]),
            "mtime" => time(self.times[1]),
            "ctime" => time(self.times[2]),
            "btime" => self.btime.map_or_else(|| "unknown".to_owned(), time),
            _ => return None,
        })
    }
}

/// The word for a type of files.
pub fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character",
        FileType::BlockDevice => "block",
        FileType::Unknown => "unknown",
    }
}

fn field_values(facts: Facts, words: &mut Words) -> Answer {
    let field = |name| {
        facts.field(name).ok_or_else(|| Refusal::broken(format!("{name} is not a field of a file")))
    };
    let fields = words.rest().into_iter().map(field).collect::<Result<Vec<_>, _>>()?;
    Ok(fields.join(" "))
}

/// `statx DIR PATH FLAGS MASK [FIELD...]`.
fn statx(worker: &mut Worker, words: &mut Words) -> Answer {
    let (directory, path) = (worker.descriptor(words)?, words.path()?);
    let flags = AtFlags::from_bits_retain(words.flags()?);
    let mask = StatxFlags::from_bits_retain(words.flags()?);
    field_values(rustix::fs::statx(directory, path, flags, mask)?.into(), words)
}

fn faccessat(worker: &mut Worker, words: &mut Words) -> Answer {
    let (directory, path) = (worker.descriptor(words)?, words.path()?);
    let kinds = AccessFlags::from_bits_retain(words.signed_flags()?);
    let flags = nix::fcntl::AtFlags::from_bits_retain(words.signed_flags()?);
    done(nix::unistd::faccessat(directory, path.as_os_str(), kinds, flags))
}

/// By way of the C library, which knows how to change a symbolic link's mode (or to refuse it).
fn fchmodat(worker: &mut Worker, words: &mut Words) -> Answer {
    let (directory, path) = (worker.descriptor(words)?, words.path()?);
    let mode = nix::sys::stat::Mode::from_bits_retain(words.flags()?);
    let flags = match words.flags()? {
        0 => FchmodatFlags::FollowSymlink,
        _ => FchmodatFlags::NoFollowSymlink,
    };
    done(nix::sys::stat::fchmodat(directory, path.as_os_str(), mode, flags))
}

/// `fchownat DIR FLAGS PATH UID GID`.
fn chown(directory: impl AsFd, words: &mut Words, flags: AtFlags) -> Answer {
    let path = words.path()?;
    done(rustix::fs::chownat(directory, path, user(words)?, group(words)?, flags))
}

fn user(words: &mut Words) -> Result<Option<Uid>, Refusal> {
    Ok(words.owner()?.map(Uid::from_raw))
}

fn group(words: &mut Words) -> Result<Option<Gid>, Refusal> {
    Ok(words.owner()?.map(Gid::from_raw))
}

fn timestamps(words: &mut Words) -> Result<Timestamps, Refusal> {
    Ok(Timestamps { last_access: time(words.word()?)?, last_modification: time(words.word()?)? })
}

fn time(word: &str) -> Result<Timespec, Refusal> {
    let (tv_sec, tv_nsec) = match word {
        "now" => (0, UTIME_NOW),
        "omit" => (0, UTIME_OMIT),
        word => {
            let (seconds, nanoseconds) = word.split_once('.').unwrap_or((word, "0"));
            let number = |part: &str| part.parse::<i64>().ok();
            let parts = number(seconds).zip(number(nanoseconds));
            parts.ok_or_else(|| Refusal::broken(format!("{word} is not a time")))?
        }
    };
    Ok(Timespec { tv_sec, tv_nsec })
}

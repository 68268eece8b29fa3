//! The same operations on a directory of the system's.

use crate::Step;
use canopy_namespace::{RenameMode, SetXattr};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

pub(crate) struct Reference {
    root: PathBuf,
}

/// What bytes a write of a length at an offset has.
pub(crate) fn bytes(offset: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((offset as usize + at * 7) % 251) as u8 + 1).collect()
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl Reference {
    pub(crate) fn new(root: &Path) -> Self {
        fs::create_dir(root).expect("a directory");
        rustix::process::umask(Mode::empty());
        rustix::fs::chmod(root, Mode::from_raw_mode(0o755)).expect("a mode");
        Reference { root: root.into() }
    }

    pub(crate) fn apply(&self, step: &Step) -> Result<(), Errno> {
        let at = |path: &String| self.root.join(path);
        let mode = |mode: u32| Mode::from_raw_mode(mode);
        match step {
            Step::Create(path, bits) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                rustix::fs::open(at(path), flags, mode(*bits)).map(drop)
            }
            Step::Mkdir(path, bits) => rustix::fs::mkdir(at(path), mode(*bits)),
            Step::Symlink(path) => rustix::fs::symlink("nowhere/at all", at(path)),
            Step::Fifo(path) => rustix::fs::mknodat(CWD, at(path), FileType::Fifo, mode(0o600), 0),
            Step::Link(one, other) => {
                rustix::fs::linkat(CWD, at(one), CWD, at(other), AtFlags::empty())
            }
            Step::Unlink(path) => rustix::fs::unlink(at(path)),
            Step::Rmdir(path) => rustix::fs::rmdir(at(path)),
            Step::Rename(one, other, how) => {
                let flags = match how {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                rustix::fs::renameat_with(CWD, at(one), CWD, at(other), flags)
            }
            Step::Chmod(path, bits) => match is_symlink(&at(path)) {
                true => Err(Errno::OPNOTSUPP),
                false => rustix::fs::chmod(at(path), mode(*bits)),
            },
            Step::Chown(path, uid, gid) => {
                let (uid, gid) = (Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
                rustix::fs::chownat(CWD, at(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
            Step::Times(path, atime, mtime) => {
                let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: 5 };
                let times =
                    Timestamps { last_access: time(*atime), last_modification: time(*mtime) };
                rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            Step::Truncate(path, size) => {
                let file = self.open(&at(path))?;
                file.set_len(*size).map_err(errno)
            }
            Step::Write(path, offset, length) => {
                let file = self.open(&at(path))?;
                file.write_all_at(&bytes(*offset, *length), *offset).map_err(errno)
            }
            Step::SetXattr(path, name, length, how) => {
                let flags = match how {
                    SetXattr::Any => XattrFlags::empty(),
                    SetXattr::Create => XattrFlags::CREATE,
                    SetXattr::Replace => XattrFlags::REPLACE,
                };
                plain(&at(path))?;
                rustix::fs::lsetxattr(at(path), name.as_str(), &bytes(1, *length), flags)
            }
            Step::RemoveXattr(path, name) => {
                plain(&at(path))?;
                rustix::fs::lremovexattr(at(path), name.as_str())
            }
            Step::UnlinkOpen(path) => {
                let file = self.open(&at(path))?;
                rustix::fs::unlink(at(path))?;
                let nlink = file.metadata().map_err(errno)?.nlink();
                file.write_all_at(b"still there", 10).map_err(errno)?;
                let mut read = [0; 11];
                file.read_exact_at(&mut read, 10).map_err(errno)?;
                assert_eq!(&read, b"still there");
                assert_eq!(file.metadata().map_err(errno)?.nlink(), nlink);
                Ok(())
            }
        }
    }

    fn open(&self, path: &Path) -> Result<File, Errno> {
        plain(path)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Returns a line for each file, with all that must be the same.
    pub(crate) fn tree(&self) -> String {
        let mut lines = Vec::new();
        describe(&self.root, Path::new(""), &mut lines);
        lines.sort();
        lines.join("\n")
    }
}

fn is_symlink(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

/// Only regular files and directories have contents and attributes of users here.
fn plain(path: &Path) -> Result<(), Errno> {
    let kind = fs::symlink_metadata(path).map_err(errno)?.file_type();
    match kind.is_file() || kind.is_dir() {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}

fn describe(root: &Path, path: &Path, lines: &mut Vec<String>) {
    let full = root.join(path);
    let stat = fs::symlink_metadata(&full).expect("attributes");
    let mut line = format!(
        "{} {:o} {} {} {}",
        path.display(),
        stat.mode(),
        stat.uid(),
        stat.gid(),
        stat.nlink()
    );
    if stat.is_file() {
        let contents = fs::read(&full).expect("contents");
        let sum = contents.iter().fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        write!(line, " {} {sum:x}", stat.len()).expect("text");
    }
    if stat.mtime_nsec() == 5 {
        write!(line, " {}", stat.mtime()).expect("text");
    }
    if stat.is_symlink() {
        write!(line, " -> {}", fs::read_link(&full).expect("a target").display()).expect("text");
    }
    if stat.is_file() || stat.is_dir() {
        for name in ["user.one", "user.two"] {
            let mut value = vec![0; 300];
            if let Ok(length) = rustix::fs::lgetxattr(&full, name, &mut value[..]) {
                write!(line, " {name}={length}").expect("text");
            }
        }
    }
    lines.push(line);
    if stat.is_dir() {
        for entry in fs::read_dir(&full).expect("names") {
            describe(root, &path.join(entry.expect("a name").file_name()), lines);
        }
    }
}

//! The root of a shared directory, which stays open. Everything below it is named from there: if its
//! file system is unmounted, nothing is written to the directory that it was mounted on.

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

/// File systems of one machine, as statfs(2) names them: ext2 to ext4, XFS, Btrfs, tmpfs, ZFS.
const OF_ONE_MACHINE: [u32; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x2FC1_2FC1];

/// The open root of a shared directory.
pub(super) struct Root {
    path: PathBuf,
    opened: OwnedFd,
    is_of_this_machine: bool,
}

impl Root {
    /// Opens the directory at this path.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let opened = rustix::fs::open(path, DIRECTORY, Mode::empty())?;
        let is_of_this_machine = rustix::fs::fstatfs(&opened)
            .is_ok_and(|about| OF_ONE_MACHINE.contains(&(about.f_type as u32)));
        Ok(Root { path: path.to_owned(), opened, is_of_this_machine })
    }

    /// Returns whether its file system is one of this machine alone, which knows all names at once.
    pub(super) fn is_of_this_machine(&self) -> bool {
        self.is_of_this_machine
    }

    /// Returns the path that it was opened by, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the descriptor that paths below the root start from.
    pub(super) fn at(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }

    /// Makes a directory below the root, unless it is there.
    pub(super) fn make_directory(&self, below: &Path) -> rustix::io::Result<()> {
        match mkdirat(self.at(), below, Mode::RWXU) {
            Err(Errno::EXIST) => Ok(()),
            made => made,
        }
    }

    /// Makes a file of this name below the root, to write to.
    pub(super) fn create_file(&self, below: &Path) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(openat(self.at(), below, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Opens a file or a directory below the root to read it.
    pub(super) fn open_below(&self, below: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(openat(self.at(), or_root(below), flags, Mode::empty())?.into())
    }

    /// Opens a directory below the root, or the root, as it is now.
    pub(super) fn open_directory(&self, below: &Path) -> rustix::io::Result<OwnedFd> {
        match openat(self.at(), or_root(below), DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT | Errno::STALE) if !below.as_os_str().is_empty() => {
                let above = self.open_directory(below.parent().unwrap_or(Path::new("")))?;
                openat(above, below.file_name().unwrap_or_default(), DIRECTORY, Mode::empty())
            }
            opened => opened,
        }
    }

    /// Returns the state of a file below the root.
    pub(super) fn stat(&self, below: &Path) -> rustix::io::Result<rustix::fs::Stat> {
        statat(self.at(), below, AtFlags::SYMLINK_NOFOLLOW)
    }

    pub(super) fn remove_file(&self, below: &Path) -> rustix::io::Result<()> {
        unlinkat(self.at(), below, AtFlags::empty())
    }

    pub(super) fn remove_directory(&self, below: &Path) -> rustix::io::Result<()> {
        unlinkat(self.at(), below, AtFlags::REMOVEDIR)
    }

    /// Has the names in a directory below the root, or in the root, outlast a crash.
    pub(super) fn sync_directory(&self, below: &Path) -> io::Result<()> {
        self.open_below(below)?.sync_all()
    }
}

/// Returns a path that openat(2) takes, also for the root itself.
fn or_root(below: &Path) -> &Path {
    if below.as_os_str().is_empty() { Path::new(".") } else { below }
}

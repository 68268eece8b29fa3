//! Operations that need a mount of Lustre, or `lfs`.

use super::record::Fid;
use crate::error::{Error, Result};
use crate::handles::{Unresolved, as_path};
use crate::sys;
use crate::territory::join;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A Lustre file system as far as following its change logs needs it.
pub trait Lustre: Send + Sync {
    /// Opens the records of a log from one on; all that it has for `None`.
    fn records(&self, log: &str, from: Option<u64>) -> io::Result<Records>;

    /// Tells a log that a user of it does not need any more what it has up to a record.
    fn clear(&self, log: &str, user: &str, up_to: u64) -> io::Result<()>;

    /// Returns where a file is.
    fn resolve(&self, fid: Fid) -> std::result::Result<FileLocation, Unresolved>;
}

/// The path of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocation {
    /// Its absolute path, one of them if it has several names.
    pub path: Vec<u8>,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// The inode, if it is a file with several names.
    pub linked: Option<u64>,
}

/// Records that are being read.
pub struct Records {
    /// Source of the lines.
    pub lines: File,
    /// The program that writes them, if any.
    child: Option<Child>,
}

impl Records {
    /// Records that a file has.
    pub fn of_file(lines: File) -> Self {
        Records { lines, child: None }
    }

    /// Waits until all has been written. Fails if some may be missing at the end.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.child.take().map_or(Ok(()), finish)
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for a program, and fails as it did.
fn finish(mut child: Child) -> io::Result<()> {
    let mut said = String::new();
    if let Some(errors) = child.stderr.take() {
        // An unreadable message is not worth failing.
        let _ = errors.take(1 << 16).read_to_string(&mut said);
    }
    let status = child.wait()?;
    match status.success() {
        true => Ok(()),
        false => {
            let said = said.lines().last().unwrap_or_default();
            Err(io::Error::other(format!("lfs ended with {status}: {said}")))
        }
    }
}

/// A mounted Lustre file system.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    directory: OwnedFd,
    /// `.lustre/fid`, in which each file can be opened by its FID.
    fids: OwnedFd,
    is_lustre: bool,
    lfs: PathBuf,
}

impl Mount {
    /// Finds the mount that has a path: the highest directory above it with `.lustre/fid`. Logs are
    /// read and cleared by the program `lfs`.
    pub fn find(path: &Path, lfs: &Path) -> Result<Self> {
        let above = Vec::from_iter(path.ancestors());
        let has_fids = |above: &&&Path| above.join(".lustre/fid").is_dir();
        let found = above.iter().rev().find(has_fids).ok_or_else(|| {
            let none =
                io::Error::new(io::ErrorKind::NotFound, "no directory above has .lustre/fid");
            Error::io("find the Lustre mount of", path)(none)
        })?;
        let open = |path: &Path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).map_err(Error::errno("open", path))
        };
        let directory = open(found)?;
        let fids = open(&found.join(".lustre/fid"))?;
        let is_lustre = sys::is_lustre(&directory).map_err(Error::errno("look at", found))?;
        Ok(Mount { path: found.to_path_buf(), directory, fids, is_lustre, lfs: lfs.to_owned() })
    }

    /// Returns the directory where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn run(&self, words: &[&str], output: Stdio) -> io::Result<Child> {
        let mut lfs = Command::new(&self.lfs);
        lfs.args(words).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot run {}: {error}", self.lfs.display()))
        };
        // It would be looked for in the working directory.
        let has_directory = self.lfs.as_os_str().as_encoded_bytes().contains(&b'/');
        if !has_directory && std::env::var_os("PATH").is_some_and(|path| path.is_empty()) {
            return Err(named(io::Error::other("PATH is empty")));
        }
        lfs.spawn().map_err(named)
    }

    fn place(&self, fid: Fid) -> std::result::Result<FileLocation, Errno> {
        let name = fid.to_string();
        if !self.is_lustre {
            // As tests have it: a symbolic link to each file.
            let path = rustix::fs::readlinkat(&self.fids, &name, Vec::new())?.into_bytes();
            let about = rustix::fs::lstat(as_path(&path))?;
            return Ok(place(path, &about));
        }
        let about = rustix::fs::statat(&self.fids, &name, AtFlags::SYMLINK_NOFOLLOW);
        // Somebody may have a file open that has no name any more.
        if about.is_ok_and(|about| about.st_nlink == 0) {
            return Err(Errno::NOENT);
        }
        // The path of what is opened by its FID is that way to it, so the client is asked.
        let below = sys::fid_to_path(&self.directory, fid.sequence, fid.object, fid.version)?;
        let below = below.strip_prefix(b"/").unwrap_or(&below);
        let mount = self.path.as_os_str().as_bytes();
        let path = if below.is_empty() { mount.to_vec() } else { join(mount, below) };
        // A stripe of a directory has the path of that, and cannot be opened.
        let about = about.or_else(|_| rustix::fs::lstat(as_path(&path)))?;
        Ok(place(path, &about))
    }
}

fn place(path: Vec<u8>, about: &Stat) -> FileLocation {
    let is_dir = FileType::from_raw_mode(about.st_mode) == FileType::Directory;
    let linked = (!is_dir && about.st_nlink > 1).then_some(about.st_ino);
    FileLocation { path, is_dir, linked }
}

impl Lustre for Mount {
    fn records(&self, log: &str, from: Option<u64>) -> io::Result<Records> {
        let from = from.map(|index| index.to_string());
        let words = ["changelog", log].into_iter().chain(from.as_deref());
        let mut child = self.run(&Vec::from_iter(words), Stdio::piped())?;
        let lines = child.stdout.take().ok_or_else(|| io::Error::other("lfs has no output"))?;
        Ok(Records { lines: OwnedFd::from(lines).into(), child: Some(child) })
    }

    fn clear(&self, log: &str, user: &str, up_to: u64) -> io::Result<()> {
        let words = ["changelog_clear", log, user, &up_to.to_string()];
        finish(self.run(&words, Stdio::null())?)
    }

    fn resolve(&self, fid: Fid) -> std::result::Result<FileLocation, Unresolved> {
        self.place(fid).map_err(|errno| match errno {
            Errno::NOENT | Errno::STALE => Unresolved::Gone,
            errno => Unresolved::Failed(errno),
        })
    }
}

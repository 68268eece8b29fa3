//! Files that a command writes as a whole: each is written beside its place and renamed at the end,
//! so that a run that fails or is interrupted leaves what was there.
//!
//! Both names are relative to a directory that is held open: whoever moves directories or puts links
//! in their place does not move what is written.

use crate::interrupt::{block, end_by};
use anyhow::{Context, bail, ensure};
use canopy_site::is_own_or_roots;
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The extended attribute that is an ACL.
const ACL: &str = "system.posix_acl_access";

/// Errors of who may write to a file, and make none beside it or none like it.
const DENIALS: [ErrorKind; 2] = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];

/// A directory that is held open.
#[derive(Clone)]
pub struct Directory {
    held: Arc<OwnedFd>,
    /// For messages.
    path: PathBuf,
}

impl Directory {
    /// Opens the directory that a path is in, and returns the path's last name, too.
    ///
    /// # Errors
    ///
    /// If the path has no name of a file, or the directory cannot be opened.
    pub fn of(path: &Path) -> anyhow::Result<(Self, &OsStr)> {
        let create = || format!("cannot create {}", path.display());
        let name = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/"));
        let name = name.ok_or(Errno::ISDIR).with_context(create)?;
        let opened = Directory::open(path.parent().unwrap_or(path), OFlags::empty());
        Ok((opened.with_context(create)?, name))
    }

    /// Opens a directory, and makes it if it is missing.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or opened.
    pub fn make(path: &Path) -> anyhow::Result<Self> {
        let made = DirBuilder::new().recursive(true).create(path);
        let opened = made.and_then(|()| Directory::open(path, OFlags::empty()));
        opened.with_context(|| format!("cannot create {}", path.display()))
    }

    /// Opens a directory for files of the caller, and makes it if it is missing. A link to one is
    /// refused, and one that somebody else owns or everybody may change.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or opened, or others may write to it.
    pub fn make_own(path: &Path) -> anyhow::Result<Self> {
        // Behind a slash at its end, a link would be followed.
        let path: PathBuf = path.components().collect();
        let open = || -> anyhow::Result<Self> {
            DirBuilder::new().recursive(true).mode(0o755).create(&path)?;
            let opened = Directory::open(&path, OFlags::NOFOLLOW);
            let directory = opened.context("it is not a directory, or a link to one")?;
            let about = rustix::fs::fstat(&directory.held)?;
            ensure!(is_own_or_roots(about.st_uid), "it belongs to uid {}", about.st_uid);
            ensure!(about.st_mode & 0o1002 != 0o002, "everybody may change it");
            Ok(directory)
        };
        open().with_context(|| format!("cannot write to the directory {}", path.display()))
    }

    fn open(path: &Path, flags: OFlags) -> io::Result<Self> {
        let flags = flags | OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // That of a name alone is empty.
        let opened = rustix::fs::open(Path::new(".").join(path), flags, Mode::empty());
        Ok(Directory { held: Arc::new(opened?), path: path.to_owned() })
    }

    fn open_file(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<File> {
        let mode = Mode::from_raw_mode(mode);
        Ok(rustix::fs::openat(&self.held, name, flags | OFlags::CLOEXEC, mode)?.into())
    }
}

/// Treatment of a file that has the name of a new one.
#[derive(Clone, Copy, PartialEq)]
pub enum Old {
    /// A file leaves its owner, permissions and ACL to the new one. It may be replaced by those who
    /// may write to it. A file that has other names, or lies where no file can be made, is written
    /// to directly. So is an entry that is not a file (a device, a pipe, a link), if it is the
    /// caller's or root's.
    Kept,
    /// A file loses its name. If it is the caller's, it leaves its permissions and ACL to the new
    /// one; if not, the new one gets no permissions beyond the old ones. An entry that is not a
    /// file is treated as with `Kept`.
    Replaced,
    /// As with `Replaced`, but an entry that is not a file loses its name, too.
    Distrusted,
}

/// Files under way. Those that were not published are removed when it is dropped, and before a
/// signal ends the process.
pub struct NewFiles(Arc<Mutex<Vec<NewFile>>>);

struct NewFile {
    directory: Directory,
    written: OsString,
    name: OsString,
}

impl NewFiles {
    /// Begins without files. To be called before other threads are there.
    ///
    /// # Errors
    ///
    /// If signals cannot be blocked.
    pub fn new() -> anyhow::Result<Self> {
        Self::ending_with(|| {})
    }

    /// Like `new`, and a signal that ends the process calls `end` besides.
    ///
    /// # Errors
    ///
    /// If signals cannot be blocked.
    pub fn ending_with(end: impl FnOnce() + Send + 'static) -> anyhow::Result<Self> {
        let new_files = NewFiles(Arc::default());
        let files = new_files.0.clone();
        end_by(block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?, move |_| {
            let files = files.lock();
            files.iter().for_each(NewFile::remove);
            end();
            // None is made any more until the process has ended.
            std::mem::forget(files);
        })?;
        Ok(new_files)
    }

    /// Creates a file that gets its name when it is published, or opens what is to be written to
    /// directly.
    ///
    /// # Errors
    ///
    /// If the file cannot be made.
    pub fn create(&self, directory: &Directory, name: &OsStr, old: Old) -> anyhow::Result<File> {
        let create = || -> anyhow::Result<File> {
            let begin = |mode| self.begin(directory, name, mode, |_| Ok(()));
            let about = rustix::fs::statat(&directory.held, name, AtFlags::SYMLINK_NOFOLLOW);
            let Ok(about) = about else { return Ok(begin(0o666)?) };
            let (owner, mode, is_kept) = (about.st_uid, about.st_mode, old == Old::Kept);
            let is_file = FileType::from_raw_mode(mode) == FileType::RegularFile;
            let is_direct = !is_file && old != Old::Distrusted;
            // In a directory with the sticky bit, others may have put a file for this one to become theirs.
            let is_shared = rustix::fs::fstat(&directory.held)?.st_mode & 0o1000 != 0;
            if !is_own_or_roots(owner) && (is_direct || is_kept && is_shared) {
                bail!("what is there belongs to uid {owner}");
            }
            if is_direct {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
                return Ok(directory.open_file(name, flags, 0o666)?);
            }
            if !is_file || !is_kept && owner != caller() {
                return Ok(begin(if is_file { mode & 0o755 } else { 0o666 })?);
            }
            // A caller who may not write to a file of others may not replace it.
            let access = if is_kept { OFlags::WRONLY } else { OFlags::RDONLY };
            let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let there = directory.open_file(name, flags, 0)?;
            if !is_kept || there.metadata()?.nlink() == 1 {
                let take_over = |file: &File| take_over(file, &there, is_kept);
                match self.begin(directory, name, 0o600, take_over) {
                    Err(error) if is_kept && DENIALS.contains(&error.kind()) => {}
                    created => return Ok(created?),
                }
            }
            there.set_len(0)?;
            Ok(there)
        };
        create().with_context(|| format!("cannot create {}", directory.path.join(name).display()))
    }

    fn begin(
        &self,
        directory: &Directory,
        name: &OsStr,
        mode: u32,
        prepare: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<File> {
        let mut files = self.0.lock();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        for number in (files.len()..).take(100) {
            let written = OsString::from(format!(".canopy-{}-{number}", std::process::id()));
            let file = match directory.open_file(&written, flags, mode) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            let new = NewFile { directory: directory.clone(), written, name: name.to_owned() };
            prepare(&file).inspect_err(|_| new.remove())?;
            files.push(new);
            return Ok(file);
        }
        Err(Errno::EXIST.into())
    }

    /// Has the files get their names, once they are whole.
    ///
    /// # Errors
    ///
    /// If a file cannot get its name.
    pub fn publish(&self) -> anyhow::Result<()> {
        let mut files = self.0.lock();
        while let Some(file) = files.last() {
            file.rename()?;
            files.pop();
        }
        Ok(())
    }

    /// Has the file of that name get it, or removes it if it is not whole.
    ///
    /// # Errors
    ///
    /// If the file cannot get its name, or be removed.
    pub fn settle(&self, name: &OsStr, is_whole: bool) -> anyhow::Result<()> {
        let mut files = self.0.lock();
        if let Some(at) = files.iter().position(|file| file.name == name) {
            match is_whole {
                true => files[at].rename()?,
                false => files[at].remove(),
            }
            files.swap_remove(at);
        }
        Ok(())
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        self.0.lock().iter().for_each(NewFile::remove);
    }
}

impl NewFile {
    fn rename(&self) -> anyhow::Result<()> {
        let NewFile { directory: Directory { held, path }, written, name } = self;
        rustix::fs::renameat(held, written, held, name)
            .with_context(|| format!("cannot replace {}", path.join(name).display()))
    }

    fn remove(&self) {
        // Nothing more can be done about one that stays.
        let _ = rustix::fs::unlinkat(&self.directory.held, &self.written, AtFlags::empty());
    }
}

/// Gives a new file the permissions of an old one, with its ACL, and maybe its owner.
fn take_over(file: &File, old: &File, with_owner: bool) -> io::Result<()> {
    let about = old.metadata()?;
    if with_owner {
        fchown(file, Some(about.uid()), Some(about.gid()))?;
    }
    let mut acl = [0; 65_536];
    if let Ok(length) = rustix::fs::fgetxattr(old, ACL, &mut acl) {
        rustix::fs::fsetxattr(file, ACL, &acl[..length], XattrFlags::empty())?;
    } else {
        // It may have one from the directory.
        let _ = rustix::fs::fremovexattr(file, ACL);
    }
    file.set_permissions(Permissions::from_mode(about.mode() & 0o7777))
}

fn caller() -> u32 {
    nix::unistd::geteuid().as_raw()
}

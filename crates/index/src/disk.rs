//! Every operation that changes the disk, so that tests can make any of them fail.
//!
//! A file is written in blocks of [`BLOCK_BYTES`] with a CRC-32 each. The sums go into the
//! manifest, and a reader checks every block that it reads (see `block_file`).
//!
//! New files are recorded in the journal before they are made. No path is resolved through a
//! symbolic link, and no file is opened for writing that was there before. So whatever somebody put
//! into an index, nothing outside of it changes, and nothing is lost.

use crate::error::{Error, Result};
use crate::journal::{Intent, Journal};
use canopy_model::{Acl, AclEntry, AclTag, Ownership, Principal};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Size of the blocks that checksums cover.
pub(crate) const BLOCK_BYTES: usize = 64 * 1024;

/// Makes operations fail, for tests.
#[derive(Debug)]
pub struct Faults {
    left: AtomicI64,
    errno: i32,
    lasting: bool,
}

impl Faults {
    /// Lets `after` operations pass and fails the next one with `errno`; all that follow too if
    /// `lasting`.
    pub fn new(after: i64, errno: i32, lasting: bool) -> Arc<Self> {
        Arc::new(Faults { left: AtomicI64::new(after), errno, lasting })
    }

    /// Returns whether the failure has happened.
    pub fn struck(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }

    fn check(&self) -> io::Result<()> {
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        if left == 0 || (left < 0 && self.lasting) {
            return Err(io::Error::from_raw_os_error(self.errno));
        }
        Ok(())
    }
}

/// The disk as a writer sees it.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    faults: Option<Arc<Faults>>,
    journal: Option<Arc<Journal>>,
}

impl Disk {
    /// Returns a disk on which operations fail as `faults` says.
    pub fn with_faults(faults: Arc<Faults>) -> Self {
        Disk { faults: Some(faults), journal: None }
    }

    /// Returns the same disk, with a journal of what is made.
    pub(crate) fn journaled(&self, journal: Journal) -> Self {
        Disk { journal: Some(Arc::new(journal)), ..self.clone() }
    }

    /// Writes into the journal, if there is one, what is about to be done with a path.
    pub(crate) fn note(&self, intent: Intent, path: &Path) -> io::Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        self.check()?;
        journal.note(intent, path)
    }

    fn check(&self) -> io::Result<()> {
        self.faults.as_ref().map_or(Ok(()), |faults| faults.check())
    }

    /// Creates a file with exactly these permission bits. It is an error if there is anything with
    /// this name.
    pub(crate) fn create(&self, path: &Path, mode: u32) -> Result<DiskFile> {
        let open = || -> io::Result<File> {
            self.check()?;
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let (directory, name) = open_parent(path)?;
            // A file that is there already is not ours, and must not come into the journal.
            match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => self.note(Intent::Make, path)?,
                Err(errno) => return Err(errno.into()),
                Ok(_) => return Err(Errno::EXIST.into()),
            }
            let fd = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
            remove_acl(&fd, "system.posix_acl_access")?;
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
            Ok(File::from(fd))
        };
        let file = open().map_err(Error::io("create", path))?;
        Ok(DiskFile {
            disk: self.clone(),
            file,
            path: path.to_owned(),
            block: Vec::with_capacity(BLOCK_BYTES),
            sums: Vec::new(),
            bytes: 0,
        })
    }

    /// Creates a directory and those above it, as far as they are missing, with exactly these
    /// permission bits whatever the umask.
    pub(crate) fn directories(&self, path: &Path, mode: u32) -> Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            self.directories(above, mode)?;
        }
        let make = || -> io::Result<()> {
            self.check()?;
            match rustix::fs::mkdir(path, Mode::from_raw_mode(mode)) {
                Ok(()) => {}
                Err(rustix::io::Errno::EXIST) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            // Not by its name, which may be another's by now.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::open(path, flags, Mode::empty())?;
            if rustix::fs::fstat(&fd)?.st_uid == rustix::process::geteuid().as_raw() {
                rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
            }
            Ok(())
        };
        make().map_err(Error::io("create directory", path))
    }

    /// Creates a directory, closed to everybody else, if there is none, and opens it.
    pub(crate) fn private_dir(&self, path: &Path) -> Result<OwnedFd> {
        let make = || -> io::Result<OwnedFd> {
            self.check()?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let (directory, name) = open_parent(path)?;
            let open = || rustix::fs::openat(&directory, name, flags, Mode::empty());
            match open() {
                Err(Errno::NOENT) => {}
                other => return Ok(other?),
            }
            self.note(Intent::Make, path)?;
            match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o700)) {
                // Another worker's.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            let fd = open()?;
            remove_acl(&fd, "system.posix_acl_default")?;
            Ok(fd)
        };
        make().map_err(Error::io("create directory", path))
    }

    /// Gives a directory to this owner and group, with exactly these permission bits and no ACL. One
    /// that has them is left alone: readers come through it meanwhile, and a run can be killed here.
    pub(crate) fn set_mode(
        &self,
        path: &Path,
        dir: &OwnedFd,
        owner: Ownership,
        mode: u32,
    ) -> Result<()> {
        let set = || -> io::Result<()> {
            self.check()?;
            let before = Protection::of(dir)?;
            if before == (Protection { owner, mode, acl: None }) {
                return Ok(());
            }
            rustix::fs::fchmod(dir, Mode::from_raw_mode(0o700))?;
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            if let Err(errno) = rustix::fs::fchown(dir, Some(uid), Some(gid)) {
                // A user namespace may not know them: it stays as it was.
                rustix::fs::fchmod(dir, Mode::from_raw_mode(before.mode))?;
                return Err(errno.into());
            }
            remove_acl(dir, "system.posix_acl_access")?;
            Ok(rustix::fs::fchmod(dir, Mode::from_raw_mode(mode))?)
        };
        set().map_err(Error::io("set the permissions of", path))
    }

    /// Returns whether a file is for this user or group as [`DiskFile::share_with`] makes it, as far
    /// as the file system can say that.
    pub(crate) fn is_shared_with(path: &Path, reader: Principal) -> bool {
        let Ok(about) = path.symlink_metadata() else { return false };
        let mode = about.mode() & 0o7777;
        if about.uid() != rustix::process::geteuid().as_raw() {
            return false;
        }
        match reader {
            Principal::Group(gid) => (about.gid(), mode) == (gid, 0o640),
            Principal::User(uid) => {
                let mut value = [0; 4096];
                match rustix::fs::lgetxattr(path, Acl::XATTR_NAME, &mut value[..]) {
                    Ok(length) => value[..length] == acl_of(uid).encode(),
                    Err(errno) => errno == Errno::OPNOTSUPP,
                }
            }
        }
    }

    /// Returns the fault of a directory that should have this owner and group, and mode or ACL, as
    /// far as they are given; `None` if it has none. If the file system has no ACLs, the directory
    /// should be closed.
    pub(crate) fn directory_fault(
        path: &Path,
        owner: Option<Ownership>,
        mode: Option<u32>,
        acl: Option<&Acl>,
    ) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
        let dir = match opened {
            Ok(dir) => dir,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Some("it is missing".to_owned());
            }
            Err(error) => return Some(format!("it cannot be opened: {error}")),
        };
        let found = match Protection::of(&dir) {
            Ok(found) => found,
            Err(error) => return Some(format!("its attributes cannot be read: {error}")),
        };
        let mut value = [0; 8];
        let has_none = rustix::fs::fgetxattr(&dir, Acl::XATTR_NAME, &mut value[..]);
        let is_without_acls = has_none == Err(Errno::OPNOTSUPP);
        let is_right = owner.is_none_or(|owner| owner == found.owner)
            && mode.is_none_or(|mode| (mode, None) == (found.mode, found.acl.clone()))
            && acl.is_none_or(|acl| match is_without_acls {
                true => found.mode == 0o700,
                false => found.acl == Some(acl.encode()),
            });
        (!is_right).then(|| "its owner or permissions are wrong".to_owned())
    }

    /// Gives a directory to this owner and group, with exactly this access ACL. One that has them is
    /// left alone likewise. Where the file system cannot hold the ACL, returns false, and nobody but
    /// the owner may enter.
    pub(crate) fn set_acl(
        &self,
        path: &Path,
        dir: &OwnedFd,
        owner: Ownership,
        acl: &Acl,
    ) -> Result<bool> {
        let failed = || Error::io("set the ACL of", path);
        let set = || self.check().and_then(|()| set_acl(dir, acl)).map_err(failed());
        let before = Protection::of(dir).map_err(failed())?;
        let is_owned = before.owner == owner;
        // Where the ACL alone is another, nobody whom it lets in is kept out for a moment.
        if is_owned && (before.acl == Some(acl.encode()) || set()?) {
            return Ok(true);
        }
        self.set_mode(path, dir, owner, 0o700)?;
        set()
    }

    /// Makes everything durable that was written to the file system of `dir`.
    pub(crate) fn sync_all(&self, dir: &Path) -> Result<()> {
        let sync = || -> io::Result<()> {
            self.check()?;
            Ok(rustix::fs::syncfs(File::open(dir)?)?)
        };
        sync().map_err(Error::io("sync the file system of", dir))
    }

    /// Renames a file over another one in the same directory, durably.
    pub(crate) fn replace(&self, from: &Path, to: &Path) -> Result<()> {
        let replace = || -> io::Result<OwnedFd> {
            self.check()?;
            let ((above, from), (directory, to)) = (open_parent(from)?, open_parent(to)?);
            rustix::fs::renameat(above, from, &directory, to)?;
            Ok(directory)
        };
        let directory = replace().map_err(Error::io("replace", to))?;
        let sync = || -> io::Result<()> {
            self.check()?;
            // The descriptor only names the directory.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(&directory, c".", flags, Mode::empty())?;
            Ok(rustix::fs::fsync(directory)?)
        };
        sync().map_err(Error::io("sync the directory of", to))
    }

    /// Removes a regular file. Does nothing if there is none, or if it is not a regular file.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        let remove = || -> io::Result<()> {
            self.check()?;
            let (directory, name) = open_parent(path)?;
            let found = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
                rustix::fs::unlinkat(&directory, name, AtFlags::empty())?;
            }
            Ok(())
        };
        match remove() {
            Err(error) if is_errno(&error, &MISSING) => Ok(()),
            done => done.map_err(Error::io("remove", path)),
        }
    }

    /// Restricts a regular file to its owner. Does nothing if there is none, or if it is not a
    /// regular file.
    pub(crate) fn close(&self, path: &Path) -> Result<()> {
        let close = || -> io::Result<()> {
            self.check()?;
            let (directory, name) = open_parent(path)?;
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
            if file.metadata()?.is_file() {
                rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600))?;
            }
            Ok(())
        };
        match close() {
            Err(error) if is_errno(&error, &MISSING) => Ok(()),
            done => done.map_err(Error::io("set the permissions of", path)),
        }
    }

    /// Removes a directory if it is one and is empty.
    pub(crate) fn remove_empty_dir(&self, path: &Path) {
        let remove = || -> io::Result<()> {
            self.check()?;
            let (directory, name) = open_parent(path)?;
            Ok(rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?)
        };
        // It is still in use, or not ours.
        drop(remove());
    }
}

/// Ownership and permissions of a directory.
#[derive(PartialEq, Eq)]
struct Protection {
    /// The owner and the owning group.
    owner: Ownership,
    mode: u32,
    /// The access ACL as the kernel gives it.
    acl: Option<Vec<u8>>,
}

impl Protection {
    /// Reads them of an open directory. An ACL that cannot be read counts as none.
    fn of(dir: &OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(dir)?;
        let mut value = vec![0; 64 * 1024];
        let acl = rustix::fs::fgetxattr(dir, Acl::XATTR_NAME, &mut value[..]).ok();
        let acl = acl.map(|length| value[..length].to_vec());
        let owner = Ownership { uid: stat.st_uid, gid: stat.st_gid };
        Ok(Protection { owner, mode: stat.st_mode & 0o7777, acl })
    }
}

/// Where there is nothing, or no directory of ours above it.
const MISSING: [Errno; 3] = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP];

/// Opens the directory that a path is in, and returns it with the last name of the path. The path
/// is absolute; no symbolic link in it is followed.
fn open_parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "no plain absolute path");
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(invalid());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut components = parent.components();
    if components.next() != Some(Component::RootDir) {
        return Err(invalid());
    }
    let mut directory = rustix::fs::open(c"/", flags, Mode::empty())?;
    for component in components {
        let Component::Normal(name) = component else { return Err(invalid()) };
        directory = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
    }
    Ok((directory, name))
}

/// Returns the ACL of a file that a user may read, and nobody else but the owner.
fn acl_of(uid: u32) -> Acl {
    let entry = |tag, permissions| AclEntry { tag, permissions };
    Acl {
        entries: vec![
            entry(AclTag::Owner, 0o6),
            entry(AclTag::User(uid), 0o4),
            entry(AclTag::OwningGroup, 0),
            entry(AclTag::Mask, 0o4),
            entry(AclTag::Other, 0),
        ],
    }
}

/// Replaces the access ACL of a file or directory. Returns false where the file system cannot hold
/// it.
fn set_acl(fd: impl AsFd, acl: &Acl) -> io::Result<bool> {
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::fsetxattr(fd, Acl::XATTR_NAME, &acl.encode(), flags) {
        Ok(()) => Ok(true),
        // Not supported, more entries than the file system has room for, or of ids that the user
        // namespace does not know.
        Err(Errno::OPNOTSUPP | Errno::TOOBIG | Errno::RANGE | Errno::NOSPC | Errno::INVAL) => {
            Ok(false)
        }
        Err(errno) => Err(errno.into()),
    }
}

fn is_errno(error: &io::Error, errnos: &[Errno]) -> bool {
    errnos.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn remove_acl(fd: &OwnedFd, name: &str) -> io::Result<()> {
    match rustix::fs::fremovexattr(fd, name) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A file that is being written.
pub(crate) struct DiskFile {
    disk: Disk,
    file: File,
    path: PathBuf,
    block: Vec<u8>,
    sums: Vec<u32>,
    bytes: u64,
}

impl DiskFile {
    /// Lets a user, or the members of a group, read the file. Where the file system has no ACLs, no
    /// user can be let in.
    pub(crate) fn share_with(&self, reader: Principal) -> Result<()> {
        let share = || -> io::Result<()> {
            self.disk.check()?;
            match reader {
                Principal::Group(gid) => {
                    rustix::fs::fchown(&self.file, None, Some(Gid::from_raw(gid)))?;
                    Ok(rustix::fs::fchmod(&self.file, Mode::from_raw_mode(0o640))?)
                }
                Principal::User(uid) => set_acl(&self.file, &acl_of(uid)).map(drop),
            }
        };
        share().map_err(Error::io("set the permissions of", &self.path))
    }

    /// Writes what is left, optionally syncs, and returns the size in bytes and the sums of the
    /// blocks.
    pub(crate) fn finish(mut self, sync: bool) -> Result<(u64, Vec<u32>)> {
        self.write_block().map_err(Error::io("write", &self.path))?;
        if sync {
            self.disk
                .check()
                .and_then(|()| self.file.sync_all())
                .map_err(Error::io("sync", &self.path))?;
        }
        Ok((self.bytes, self.sums))
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.disk.check()?;
        self.file.write_all(&self.block)?;
        self.sums.push(crc32fast::hash(&self.block));
        self.bytes += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }
}

impl Write for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(BLOCK_BYTES - self.block.len());
        self.block.extend_from_slice(&bytes[..taken]);
        if self.block.len() == BLOCK_BYTES {
            self.write_block()?;
        }
        Ok(taken)
    }

    /// Does nothing: only the last block of a file may be short.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owner and group of a directory, its mode, and when its inode was changed last.
    fn state_of(dir: &OwnedFd) -> (Ownership, u32, (i64, i64)) {
        let stat = rustix::fs::fstat(dir).unwrap();
        let owner = Ownership { uid: stat.st_uid, gid: stat.st_gid };
        (owner, stat.st_mode & 0o7777, (stat.st_ctime, stat.st_ctime_nsec as i64))
    }

    #[test]
    fn a_directory_that_has_its_permissions_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lists");
        let disk = Disk::default();
        let dir = disk.private_dir(&path).unwrap();
        let (owner, ..) = state_of(&dir);
        let acl = acl_of(1000);
        // With an ACL, the mode has its mask in place of what the group may do.
        let set_mode = || disk.set_mode(&path, &dir, owner, 0o711).map(|()| true).unwrap();
        let set_acl = || disk.set_acl(&path, &dir, owner, &acl).unwrap();
        let steps: [(&dyn Fn() -> bool, u32); 3] =
            [(&set_mode, 0o711), (&set_acl, 0o640), (&set_mode, 0o711)];
        for (set, mode) in steps {
            if !set() {
                // The file system has no ACLs.
                assert_eq!(state_of(&dir).1, 0o700);
                continue;
            }
            let before = state_of(&dir);
            assert_eq!(before.1, mode);
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(set());
            assert_eq!(state_of(&dir), before);
        }
    }
}

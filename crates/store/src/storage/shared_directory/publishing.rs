//! Files without the name of an object yet, and giving it to them.

use super::root::Root;
use super::{Created, owner_and_mtime};
use crate::environment::system_random;
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, fstat, futimens, linkat, openat,
    unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Files of a process that has begun none for so long are removed by others. A process that still
/// runs begins its file anew.
const AGE_SECONDS: i64 = 30 * 60;

/// Where space is short, old files are looked for at most this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// The directory of all temporary files.
const ALL: &str = "temporary";

/// The files of this process that have no name of an object yet.
pub(super) struct Temporaries {
    root: Arc<Root>,
    /// Below the root, as all paths here.
    own: PathBuf,
    next: AtomicU64,
    /// When old files were looked for last.
    looked: Mutex<Option<Instant>>,
}

/// A file that is whole and synced; it goes when this does, unless it has another name by then.
pub(super) struct Temporary {
    root: Arc<Root>,
    path: PathBuf,
    file: File,
}

impl Temporaries {
    /// Keeps files below a directory of their own in `root`; makes nothing yet.
    pub(super) fn below(root: &Arc<Root>) -> Self {
        let own = Path::new(ALL).join(format!("{:016x}", system_random()));
        let (next, looked) = (AtomicU64::new(0), Mutex::default());
        Temporaries { root: root.clone(), own, next, looked }
    }

    /// Writes a file.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<Temporary> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.own.join(number.to_string());
        let file = match self.root.create_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make()?;
                self.root.create_file(&path)?
            }
            made => made?,
        };
        // From here on it goes by itself.
        let mut temporary = Temporary { root: self.root.clone(), path, file };
        rustix::fs::fchmod(&temporary.file, Mode::from_raw_mode(0o600))?;
        temporary.file.write_all(bytes)?;
        temporary.file.sync_all()?;
        Ok(temporary)
    }

    /// Makes the directory of this process, and removes what dead ones left.
    fn make(&self) -> io::Result<()> {
        for directory in [Path::new(ALL), &self.own] {
            self.root.make_directory(directory)?;
        }
        // If this fails, somebody else does it later.
        let _ = self.remove_old();
        Ok(())
    }

    /// Removes what dead processes left, where space is short.
    pub(super) fn free_space(&self) {
        let Some(mut looked) = self.looked.try_lock() else { return };
        if looked.is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL) {
            *looked = Some(Instant::now());
            // Somebody else does it if this fails, or it is done later.
            let _ = self.touch().and_then(|()| self.remove_old());
        }
    }

    /// Gives the directory of this process the time of the server's clock.
    fn touch(&self) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        Ok(futimens(&self.root.open_below(&self.own)?, &times)?)
    }

    /// Removes files of this account that are older than [`AGE_SECONDS`] by the server's clock, which
    /// has just set the time of the directory of this process.
    fn remove_old(&self) -> io::Result<()> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let all = File::from(openat(self.root.at(), ALL, flags, Mode::empty())?);
        let (owner, now) = owner_and_mtime(&self.root.open_below(&self.own)?)?;
        for entry in Dir::read_from(&all)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if u64::from_str_radix(name, 16).is_err() || self.own.ends_with(name) {
                continue;
            }
            let directory = match openat(&all, name, flags, Mode::empty()) {
                // Removed meanwhile, or not ours.
                Err(_) => continue,
                Ok(directory) => File::from(directory),
            };
            let (uid, changed) = owner_and_mtime(&directory)?;
            if uid == owner && changed < now.saturating_sub(AGE_SECONDS) {
                for file in Dir::read_from(&directory)? {
                    let file = file?;
                    let is_ours = file.file_name().to_bytes().iter().all(u8::is_ascii_digit);
                    if is_ours {
                        let _ = unlinkat(&directory, file.file_name(), AtFlags::empty());
                    }
                }
                let _ = unlinkat(&all, name, AtFlags::REMOVEDIR);
            }
        }
        Ok(())
    }
}

impl Drop for Temporaries {
    fn drop(&mut self) {
        // It is missing if nothing was ever written.
        let _ = self.root.remove_directory(&self.own);
    }
}

impl Temporary {
    /// Gives the file a name, unless there is a file of this name.
    pub(super) fn link(&self, path: &Path) -> io::Result<Created> {
        let error = match linkat(self.root.at(), &self.path, self.root.at(), path, AtFlags::empty())
        {
            Ok(()) => return Ok(Created::Now),
            Err(error) => error,
        };
        // The server may have made the name, and its reply was lost: the client then asks again and
        // gets "there is one", or gives up.
        match (self.is_at(path), error) {
            (Ok(true), _) => Ok(Created::Now),
            (Ok(false), Errno::EXIST) => Ok(Created::ThereWasOne),
            // It may have been ours, and be removed by now.
            (Err(Errno::NOENT), Errno::EXIST) if self.has_one_name()? => Ok(Created::ThereWasOne),
            // No object is missing: a process that stood still begins this file anew.
            (_, Errno::NOENT) if fstat(&self.file)?.st_nlink == 0 => {
                Err(io::Error::other("it was removed before it had a name, since it was old"))
            }
            (_, Errno::EXIST) => Err(io::Error::other("may have been created: cannot find out")),
            (_, error) => Err(error.into()),
        }
    }

    /// Returns whether the file of this name is this one. It is open, so no other has its number.
    fn is_at(&self, path: &Path) -> Result<bool, Errno> {
        let own = fstat(&self.file)?;
        let found = self.root.stat(path)?;
        Ok((own.st_dev, own.st_ino) == (found.st_dev, found.st_ino))
    }

    /// Returns the file, for its creator to add to it once it has a name.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn has_one_name(&self) -> io::Result<bool> {
        Ok(self.root.stat(&self.path)?.st_nlink == 1)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A file that cannot be removed now goes when it is old.
        let _ = self.root.remove_file(&self.path);
    }
}

/// Tries what giving names needs of a file system: the file keeps its number and counts its names,
/// directories can be synced, and an open file can be read after it was removed.
pub(super) fn check(temporaries: &Temporaries) -> io::Result<()> {
    let text = b"probe";
    let temporary = temporaries.write(text)?;
    let named = PathBuf::from(format!(".probe-{:016x}", system_random()));
    let root = &temporaries.root;
    let checked = check_names(&temporary, &named, text);
    let removed = root.remove_file(&named).map_err(io::Error::from);
    let checked = checked.and(removed).and_then(|()| root.sync_directory(Path::new("")));
    match checked? {
        () if temporary.has_one_name()? => Ok(()),
        () => Err(io::Error::other("it does not count the names of a file")),
    }
}

fn check_names(temporary: &Temporary, named: &Path, text: &[u8]) -> io::Result<()> {
    let other = |what: &str| Err(io::Error::other(what.to_owned()));
    if temporary.link(named)? != Created::Now {
        return other("it finds a name that nobody made");
    }
    if !temporary.is_at(named)? || temporary.has_one_name()? {
        return other("it does not count the names of a file, or changes its number");
    }
    // A second link(2) must fail, although the file is the same.
    let root = &temporary.root;
    match linkat(root.at(), &temporary.path, root.at(), named, AtFlags::empty()) {
        Err(Errno::EXIST) => {}
        _ => return other("link(2) replaces a name that there is"),
    }
    let mut read = Vec::new();
    root.open_below(named)?.read_to_end(&mut read)?;
    match read == text {
        true => Ok(()),
        false => other("another descriptor does not read what was written"),
    }
}

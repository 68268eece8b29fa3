//! Descriptors of directories, of which a walk has only so many open at a time.
//!
//! A directory that is far above the one being read may be closed. When it is needed again, it is
//! opened by its name in the directory above, through no symbolic link, and must still be the same
//! inode: what has taken its place is not read in its stead.

use crate::inode::{Stat, open_dir, open_to_search, stat_open};
use crate::moment::Clock;
use nix::sys::resource::{Resource, getrlimit};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Descriptors for all else than directories: files of the index, and those of one entry a thread.
const OTHERS: usize = 12;

/// Directories that a thread has open at least if it is to be of use.
const OF_A_THREAD: usize = 16;

/// State that all directories of a walk share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// How many directories are open.
    open: AtomicUsize,
    /// How many may be.
    open_max: usize,
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Shared {
            clock: Clock::new(),
            open: AtomicUsize::new(0),
            open_max: directories_max(),
        })
    }

    /// Returns whether more directories are open than should be.
    pub(crate) fn has_too_many_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > self.open_max
    }

    /// Returns whether so many are open that none should be kept open for later.
    pub(crate) fn has_many_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > self.open_max / 2
    }
}

/// Returns how many directories may be open with the open files that the system allows.
fn directories_max() -> usize {
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let half = usize::try_from(descriptors).unwrap_or(usize::MAX) / 2;
    half.saturating_sub(OTHERS).max(OF_A_THREAD / 2)
}

/// Returns how many threads can walk with the open files that the system allows.
pub fn threads_max() -> usize {
    (directories_max() / OF_A_THREAD).max(1)
}

/// The descriptor of a directory, which may be closed for a while.
#[derive(Debug)]
pub(crate) struct Handle {
    open: Mutex<Option<Arc<OwnedFd>>>,
    /// Whether it stands in the midst of the directory's entries, so that it must stay open.
    is_midway: AtomicBool,
    shared: Arc<Shared>,
}

impl Handle {
    pub(crate) fn new(fd: OwnedFd, shared: Arc<Shared>) -> Self {
        shared.open.fetch_add(1, Ordering::Relaxed);
        Handle { open: Mutex::new(Some(Arc::new(fd))), is_midway: AtomicBool::new(false), shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the descriptor if it is open.
    pub(crate) fn get(&self) -> Option<Arc<OwnedFd>> {
        self.lock().clone()
    }

    /// Takes a descriptor that was opened again.
    pub(crate) fn put(&self, fd: OwnedFd) -> Arc<OwnedFd> {
        let mut open = self.lock();
        if open.is_none() {
            self.shared.open.fetch_add(1, Ordering::Relaxed);
        }
        open.get_or_insert_with(|| Arc::new(fd)).clone()
    }

    /// Says whether the descriptor stands in the midst of the entries.
    pub(crate) fn set_midway(&self, is_midway: bool) {
        self.is_midway.store(is_midway, Ordering::Relaxed);
    }

    /// Closes the descriptor if nobody uses it. Returns whether it did.
    pub(crate) fn close(&self) -> bool {
        let mut open = self.lock();
        let is_unused = open.as_ref().is_some_and(|fd| Arc::strong_count(fd) == 1);
        let closes = is_unused && !self.is_midway.load(Ordering::Relaxed);
        if closes {
            *open = None;
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
        closes
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.lock().is_some() {
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Opens a directory again by its name in another one; one above the root of a source also if it may
/// only be searched. Fails with `STALE` if what is there is not the inode that was opened before.
pub(crate) fn reopen(
    above: &OwnedFd,
    name: &CStr,
    is_above_root: bool,
    is_same: impl Fn(&Stat) -> bool,
) -> Result<OwnedFd, Errno> {
    let fd = if is_above_root { open_to_search(above, name)? } else { open_dir(above, name)? };
    if is_same(&stat_open(&fd)?) { Ok(fd) } else { Err(Errno::STALE) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::stat_at;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// The owner of a directory above may put another one, or a link, in its place.
    #[test]
    fn nothing_else_is_opened_in_the_place_of_a_directory() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir(path("a")).unwrap();
        let above = OwnedFd::from(fs::File::open(place.path()).unwrap());
        let stat = stat_at(&above, c"a").unwrap();
        let is_same = |now: &Stat| (now.dev, now.attributes.ino) == (stat.dev, stat.attributes.ino);
        let opened = || reopen(&above, c"a", false, is_same).map(drop);
        assert_eq!(opened(), Ok(()));
        fs::rename(path("a"), path("b")).unwrap();
        assert_eq!(opened(), Err(Errno::NOENT));
        symlink("b", path("a")).unwrap();
        assert!(matches!(opened(), Err(Errno::LOOP | Errno::NOTDIR)));
        fs::remove_file(path("a")).unwrap();
        fs::create_dir(path("a")).unwrap();
        assert_eq!(opened(), Err(Errno::STALE));
    }
}

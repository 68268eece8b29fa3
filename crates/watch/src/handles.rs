//! From handles of directories to their paths.
//!
//! A handle names a directory for as long as it exists, wherever it is moved; the kernel tells its
//! present path. Paths are kept, and all are forgotten when any directory is renamed or anything is
//! mounted, so that none outlives what it was true for by more than the events that are still
//! waiting. Those tell of the rename itself, and that makes all at the new place suspect, including
//! what was taken to be at the old one.
//!
//! A handle that is stale names a directory that is gone. Nothing of it can be missing from the
//! index but that: whoever removed it changed the directory above, which had an event of its own, or
//! is gone too, and so on up to one that is there.
//!
//! To forget only the paths that a rename changes would take a tree of all directories.

use crate::recent::Recent;
use crate::suspects::Suspect;
use crate::sys::{self, FileSystemId};
use crate::territory::Territory;
use rustc_hash::FxHashMap;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A mount through which directories of a territory are seen.
#[derive(Clone, Debug)]
pub(crate) struct TerritoryMount {
    pub(crate) file_system: FileSystemId,
    /// The mount, by its number.
    pub(crate) mount: u64,
    /// A directory in it that is in the territory or above it.
    pub(crate) anchor: PathBuf,
}

/// Where a directory is seen that matters; a directory that has too long a path by the nearest one
/// above it that has not, with all below.
pub(crate) type Suspects = Arc<[Suspect]>;

/// Why a handle or a FID does not lead to paths.
#[derive(Debug)]
pub enum Unresolved {
    /// The directory is gone.
    Gone,
    /// It cannot be told what it is.
    Failed(Errno),
}

/// Levels that are gone up at once, of a directory whose path is too long to be told: few enough
/// for a path of as many `..`.
const LEVELS_AT_ONCE: usize = 1024;

/// Resolves handles, with a bounded memory of the last ones.
pub(crate) struct Handles {
    views: Vec<TerritoryMount>,
    recent: Recent<Key, Suspects>,
    /// Resolved directories whose paths are too long for the kernel to return, by view, device and
    /// inode.
    deep: FxHashMap<(usize, u64, u64), Option<Arc<Suspect>>>,
    len_max: usize,
    /// Levels by which the path of a directory that a scan reads may be too long to be returned.
    levels_max: usize,
    /// The anchors that are open at the moment, by number of the view.
    open: Vec<Option<Result<Arc<OwnedFd>, Errno>>>,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

type Key = (FileSystemId, Box<[u8]>);

impl Handles {
    /// Begins with no views. At most `len_max` handles are kept. A directory more than `levels_max`
    /// below the last one whose path the kernel returns counts as elsewhere.
    pub(crate) fn new(len_max: usize, levels_max: usize) -> Self {
        Handles {
            views: Vec::new(),
            recent: Recent::new(len_max, |places| places.iter().map(|one| one.path.len()).sum()),
            deep: FxHashMap::default(),
            len_max,
            levels_max,
            open: Vec::new(),
            hits: 0,
            misses: 0,
        }
    }

    /// Replaces the views, and forgets all paths.
    pub(crate) fn set_views(&mut self, mut views: Vec<TerritoryMount>) {
        // Through one mount, a directory has one path. Keep the topmost anchor of each mount.
        views.sort_by_key(|view| (view.file_system, view.mount, view.anchor.as_os_str().len()));
        views.dedup_by_key(|view| (view.file_system, view.mount));
        self.views = views;
        self.close();
        self.forget_all();
    }

    /// Forgets all paths: some may have changed.
    pub(crate) fn forget_all(&mut self) {
        self.recent.clear();
        self.deep.clear();
    }

    /// Forgets a directory that is gone.
    pub(crate) fn forget(&mut self, file_system: FileSystemId, handle: &[u8]) {
        self.recent.forget(&(file_system, handle.into()));
    }

    /// Closes the anchors, which keep their file systems from being unmounted.
    pub(crate) fn close(&mut self) {
        self.open.clear();
        self.open.resize(self.views.len(), None);
    }

    /// Returns where a directory is seen in the territory or on the way to it. None at all if it is
    /// elsewhere.
    pub(crate) fn places(
        &mut self,
        file_system: FileSystemId,
        handle: &[u8],
        territory: &Territory,
    ) -> Result<Suspects, Unresolved> {
        let key: Key = (file_system, handle.into());
        if let Some(places) = self.recent.get(&key) {
            self.hits += 1;
            return Ok(places);
        }
        self.misses += 1;
        let places = self.resolve(file_system, handle, territory)?;
        self.recent.insert(key, places.clone());
        Ok(places)
    }

    fn resolve(
        &mut self,
        file_system: FileSystemId,
        handle: &[u8],
        territory: &Territory,
    ) -> Result<Suspects, Unresolved> {
        let mut places: Vec<Suspect> = Vec::new();
        for number in 0..self.views.len() {
            if self.views[number].file_system != file_system {
                continue;
            }
            let anchor = match self.anchor(number) {
                Ok(anchor) => anchor,
                // Nothing of the territory is seen there any more; what took it away had an event,
                // or changed what is mounted.
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(errno) => return Err(Unresolved::Failed(errno)),
            };
            let directory = match sys::open_by_handle(&*anchor, handle) {
                Ok(directory) => directory,
                Err(Errno::STALE | Errno::NOENT) => return Err(Unresolved::Gone),
                Err(errno) => return Err(Unresolved::Failed(errno)),
            };
            let place = self.place(number, directory)?;
            // No scan reads what is too deep.
            let Some(place) = place else { continue };
            if territory.concerns(&place.path) && !places.contains(&place) {
                places.push(Arc::unwrap_or_clone(place));
            }
        }
        Ok(places.into())
    }

    /// Returns where an open directory is seen through a view; `None` for what is too deep.
    fn place(&mut self, view: usize, open: OwnedFd) -> Result<Option<Arc<Suspect>>, Unresolved> {
        let key = |about: &Stat| (view, about.st_dev, about.st_ino);
        let about = rustix::fs::fstat(&open).map_err(Unresolved::Failed)?;
        // Whatever has no name any more has a path that ends with " (deleted)", as a name may.
        if about.st_nlink == 0 {
            return Err(Unresolved::Gone);
        }
        if !self.deep.is_empty() {
            let above = open_above(&open, 1).and_then(rustix::fs::fstat);
            let above = above.map_err(Unresolved::Failed)?;
            if let Some(known) = self.deep.get(&key(&above)).cloned() {
                self.note_deep(key(&about), known.clone());
                return Ok(known);
            }
        }
        let place = match path_of(open, self.levels_max) {
            Ok(place) if !place.recursive => return Ok(Some(place.into())),
            Ok(place) => Some(Arc::new(place)),
            Err(Errno::NAMETOOLONG) => None,
            Err(errno) => return Err(Unresolved::Failed(errno)),
        };
        self.note_deep(key(&about), place.clone());
        Ok(place)
    }

    fn note_deep(&mut self, key: (usize, u64, u64), place: Option<Arc<Suspect>>) {
        if self.deep.len() >= self.len_max {
            self.deep.clear();
        }
        self.deep.insert(key, place);
    }

    /// Returns the inode of a file and how many names it has, wherever it is.
    pub(crate) fn links_of(
        &mut self,
        file_system: FileSystemId,
        handle: &[u8],
    ) -> Result<(u64, u64), Unresolved> {
        let number = self.views.iter().position(|view| view.file_system == file_system);
        let anchor = match number.ok_or(Errno::NOENT).and_then(|number| self.anchor(number)) {
            Ok(anchor) => anchor,
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(Unresolved::Gone),
            Err(errno) => return Err(Unresolved::Failed(errno)),
        };
        let about = sys::open_by_handle(&*anchor, handle).and_then(rustix::fs::fstat);
        match about {
            Ok(about) => Ok((about.st_ino, about.st_nlink)),
            Err(Errno::STALE | Errno::NOENT) => Err(Unresolved::Gone),
            Err(errno) => Err(Unresolved::Failed(errno)),
        }
    }

    fn anchor(&mut self, number: usize) -> Result<Arc<OwnedFd>, Errno> {
        let view = &self.views[number];
        let open = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let anchor = rustix::fs::open(&view.anchor, flags, Mode::empty())?;
            // Something else may be mounted there by now, of which handles mean something else.
            match sys::file_system_of(&anchor)? == view.file_system {
                true => Ok(Arc::new(anchor)),
                false => Err(Errno::NOENT),
            }
        };
        self.open[number].get_or_insert_with(open).clone()
    }
}

/// Returns the path of an open directory, or of the nearest one above it that can be told, with all
/// below. Fails with `NAMETOOLONG` if that is more than `levels_max` above.
fn path_of(directory: OwnedFd, levels_max: usize) -> Result<Suspect, Errno> {
    match link_of(&directory) {
        Err(Errno::NAMETOOLONG) => {}
        path => return Ok(Suspect { path: path?, recursive: false }),
    }
    // Level by level, whoever nests directories deeply enough would keep all others waiting.
    let mut below = directory;
    let at_once = levels_max.min(LEVELS_AT_ONCE);
    for _ in 0..levels_max.div_ceil(LEVELS_AT_ONCE) {
        let above = open_above(&below, at_once)?;
        let mut path = match link_of(&above) {
            Err(Errno::NAMETOOLONG) => {
                below = above;
                continue;
            }
            path => path?,
        };
        // `too_few` levels above, the path is too long; `enough` levels above, it is not.
        let (mut too_few, mut enough) = (0, at_once);
        while enough - too_few > 1 {
            let levels = usize::midpoint(too_few, enough);
            match link_of(&open_above(&below, levels)?) {
                Err(Errno::NAMETOOLONG) => too_few = levels,
                nearer => (path, enough) = (nearer?, levels),
            }
        }
        return Ok(Suspect { path, recursive: true });
    }
    Err(Errno::NAMETOOLONG)
}

/// Opens the directory so many levels above another one.
fn open_above(directory: &OwnedFd, levels: usize) -> Result<OwnedFd, Errno> {
    let up = "../".repeat(levels);
    rustix::fs::openat(directory, up, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn link_of(open: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let link = format!("/proc/self/fd/{}", open.as_raw_fd());
    Ok(rustix::fs::readlink(link, Vec::new())?.into_bytes())
}

/// Returns a path of bytes as one of the system.
pub(crate) fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

//! Open handles of a mount: listings of directories by handle, and how files are open.

use canopy_fuse::results::Hits;
use canopy_namespace::{Execute, FileId, Listing};
use fuser::{BackingId, FileHandle};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The handle of a file that the kernel reads and writes itself; that of others is 0.
pub(crate) const PASSED_THROUGH: FileHandle = FileHandle(1);

/// Directories that are open, by handle.
#[derive(Default)]
pub(crate) struct Directories {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Directory>>,
}

/// A directory that is open.
#[derive(Clone)]
pub(crate) enum Directory {
    /// A listing, for the user who has opened it.
    Listing(Arc<dyn Execute>, Arc<Mutex<Listing>>),
    /// A query, with its results at the time it was opened.
    Query(Arc<Hits>),
}

impl Directories {
    pub(crate) fn open(&self, directory: Directory) -> FileHandle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(handle, directory);
        FileHandle(handle)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Option<Directory> {
        self.open.lock().get(&handle.0).cloned()
    }

    pub(crate) fn close(&self, handle: FileHandle) {
        // Dropped outside the lock, since that can take long.
        let closed = self.open.lock().remove(&handle.0);
        drop(closed);
    }
}

/// How files are open: the kernel wants either all openings of one passed through, by one backing
/// id, or none.
#[derive(Default)]
pub(crate) struct Modes(Mutex<HashMap<FileId, Mode>>);

#[derive(Default)]
struct Mode {
    backing: Option<Arc<BackingId>>,
    count: u64,
}

impl Modes {
    /// Counts an opening. If it can be passed through, returns its backing id, which `make` makes
    /// for the first one.
    pub(crate) fn open(
        &self,
        id: FileId,
        make: impl FnOnce() -> Option<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let mut all = self.0.lock();
        let mode = all.entry(id).or_default();
        if mode.count == 0 {
            mode.backing = make().map(Arc::new);
        }
        mode.count += 1;
        mode.backing.clone()
    }

    /// Takes an opening back.
    pub(crate) fn close(&self, id: FileId) {
        let mut all = self.0.lock();
        let Some(mode) = all.get_mut(&id) else { return };
        mode.count -= 1;
        if mode.count == 0 {
            all.remove(&id);
        }
    }
}

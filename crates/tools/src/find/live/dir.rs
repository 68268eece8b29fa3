//! Directories of a live search: each knows the one above it, from whose descriptor it is opened.

use super::{Live, Tree};
use crate::find::path::push_component;
use canopy_model::{Attributes, Device};
use canopy_scan::look_at_open;
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

/// Attributes and device.
pub(super) type Stat = (Attributes, Device);

/// A directory that is to be read, or in which something waits.
pub(super) struct Dir {
    /// The directory above; a start has none.
    pub(super) above: Option<Arc<Dir>>,
    /// Its name there.
    pub(super) name: CString,
    pub(super) depth: u32,
    /// Whether a symbolic link is on its path, where all are followed.
    pub(super) linked: bool,
    /// Its attributes when it was found, if they are needed behind its contents.
    pub(super) stat: Option<Stat>,
    /// With `-depth`: it itself, and directories in it that are not done.
    pub(super) left: AtomicUsize,
    opened: Mutex<Option<Arc<OwnedFd>>>,
    /// Device and inode, where loops are looked for or the directory was closed for a while.
    id: OnceLock<(Device, u64)>,
}

impl Dir {
    pub(super) fn new(
        above: Option<Arc<Dir>>,
        name: CString,
        depth: u32,
        linked: bool,
        stat: Option<Stat>,
    ) -> Arc<Self> {
        Arc::new(Dir {
            above,
            name,
            depth,
            linked,
            stat,
            left: AtomicUsize::new(1),
            opened: Mutex::default(),
            id: OnceLock::new(),
        })
    }

    /// Opens the directory to be read. Returns `None` if it is on another file system than the
    /// search stays on.
    pub(super) fn open(
        &self,
        live: &Live<'_>,
        tree: &Tree<'_>,
    ) -> Result<Option<Arc<OwnedFd>>, Errno> {
        let globals = &live.find.globals;
        let opened = Arc::new(self.open_again(live)?);
        if globals.one_file_system || globals.follow_all || self.depth >= live.open_depth {
            let (attributes, dev) = look_at_open(&*opened)?;
            let _ = self.id.set((dev, attributes.ino));
            if globals.one_file_system && tree.dev.get().is_some_and(|start| *start != dev) {
                return Ok(None);
            }
        }
        if self.depth < live.open_depth {
            *self.opened.lock() = Some(opened.clone());
        }
        Ok(Some(opened))
    }

    fn open_again(&self, live: &Live<'_>) -> Result<OwnedFd, Errno> {
        let follows = live.find.globals.follows(self.depth);
        match &self.above {
            None => open_dir(CWD, &self.name, follows),
            Some(above) => open_dir(&*above.descriptor(live)?, &self.name, follows),
        }
    }

    /// Returns the descriptor of a directory that has been read. Where it was closed, it and those
    /// above it are opened again; that the directory found is still the same is checked.
    pub(super) fn descriptor(&self, live: &Live<'_>) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(opened) = self.opened() {
            return Ok(opened);
        }
        let mut closed = vec![self];
        let mut above = self.above.as_deref();
        let mut base = None;
        while let Some(dir) = above {
            base = dir.opened();
            if base.is_some() {
                break;
            }
            closed.push(dir);
            above = dir.above.as_deref();
        }
        for dir in closed.into_iter().rev() {
            let start: BorrowedFd<'_> = base.as_ref().map_or(CWD, |base| base.as_fd());
            let opened = open_dir(start, &dir.name, live.find.globals.follows(dir.depth))?;
            let (attributes, dev) = look_at_open(&opened)?;
            if dir.id.get().is_some_and(|id| *id != (dev, attributes.ino)) {
                return Err(Errno::NOENT);
            }
            base = Some(Arc::new(opened));
        }
        base.ok_or(Errno::NOENT)
    }

    fn opened(&self) -> Option<Arc<OwnedFd>> {
        self.opened.lock().clone()
    }

    /// Closes the directory: nothing in it waits.
    pub(super) fn close(&self) {
        *self.opened.lock() = None;
    }

    /// Returns this directory or the one above it that is `id`, device and inode.
    pub(super) fn same_above(&self, id: (Device, u64)) -> Option<&Dir> {
        let mut dirs = std::iter::successors(Some(self), |dir| dir.above.as_deref());
        dirs.find(|dir| dir.id.get() == Some(&id))
    }

    /// Writes its path to the end of `path`, as it is shown.
    pub(super) fn append_path(&self, tree: &Tree<'_>, path: &mut Vec<u8>) {
        let mut names: Vec<&CStr> = Vec::new();
        let mut dir = self;
        while let Some(above) = &dir.above {
            names.push(&dir.name);
            dir = above;
        }
        path.extend_from_slice(tree.given);
        for name in names.into_iter().rev() {
            push_component(path, name.to_bytes());
        }
    }
}

/// Directories above one another are dropped one by one: there may be more of them than a stack has
/// room for.
impl Drop for Dir {
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut dir) = above.and_then(Arc::into_inner) {
            above = dir.above.take();
        }
    }
}

/// Opens a directory for reading.
pub(super) fn open_dir(parent: impl AsFd, name: &CStr, follow: bool) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let links = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    rustix::fs::openat(parent, name, flags | links, Mode::empty())
}

//! Trees as snapshots have them, below directories called `[@NAME]`.
//!
//! The kernel checks the permissions of then, and asks again for every name, so that those of now
//! are checked here for whoever asks: what has been hidden since stays hidden.

use crate::node::{Node, SLOTS_MAX, Shown, SnapshotFile};
use canopy_model::{Credentials, Wanted};
use canopy_namespace::inode::file_type;
use canopy_namespace::{Entry, Error, FileId, Inode, Listing, Namespace, Past, PastFile, Present};
use fuser::FileHandle;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;

/// Handles from here on are of files of snapshots.
const FIRST_HANDLE: u64 = 1 << 32;

pub(crate) const SETUID_SETGID: u32 = 0o6000;

type Answer<T> = Result<T, Error>;

/// The snapshots that were asked for.
pub(crate) struct Pasts {
    namespace: Arc<Namespace>,
    /// None of snapshots that were deleted.
    slots: Mutex<Vec<Option<Past>>>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    files: HashMap<u64, Arc<PastFile>>,
}

impl Pasts {
    pub(crate) fn new(namespace: Arc<Namespace>) -> Self {
        Pasts { namespace, slots: Mutex::default(), open: Mutex::default() }
    }

    /// Returns a directory as a snapshot has it, for somebody who could get there then.
    pub(crate) fn enter(&self, base: FileId, name: &[u8], who: &Credentials) -> Answer<Shown> {
        let past = self.namespace.past(name)?;
        let inode = past.inode(base)?;
        if !past.lets_in(base, who)? || !Present::new(&self.namespace, who).reaches(base)? {
            return Err(Errno::ACCESS.into());
        }
        let mut slots = self.slots.lock();
        let is_known = |one: &Option<Past>| one.as_ref().map(Past::number) == Some(past.number());
        let known = slots.iter().position(is_known);
        let slot = known.unwrap_or(slots.len());
        if slot >= SLOTS_MAX {
            return Err(Errno::NFILE.into());
        }
        if known.is_none() {
            slots.push(Some(past));
        }
        shown(slot, inode)
    }

    /// Lets snapshots go that were deleted: they keep files open.
    pub(crate) fn forget_deleted(&self) {
        for slot in &mut *self.slots.lock() {
            slot.take_if(|past| !self.namespace.has_snapshot(past.number()));
        }
    }

    /// Returns the snapshot of a file. `ESTALE` if it was deleted.
    pub(crate) fn of(&self, file: SnapshotFile) -> Answer<Past> {
        let slots = self.slots.lock();
        let past = slots.get(file.slot).and_then(Option::as_ref);
        let past = past.filter(|past| self.namespace.has_snapshot(past.number()));
        Ok(past.cloned().ok_or(Errno::STALE)?)
    }

    /// Returns what a name of a directory stands for.
    pub(crate) fn lookup(
        &self,
        parent: SnapshotFile,
        name: &[u8],
        who: &Credentials,
    ) -> Answer<Shown> {
        let past = self.of(parent)?;
        self.check(parent.id, Wanted::SEARCH, who)?;
        shown(parent.slot, past.lookup(parent.id, name)?)
    }

    /// Returns an error if the present permissions hide from a user what is in a file or directory.
    fn check(&self, id: FileId, wanted: Wanted, who: &Credentials) -> Answer<()> {
        match Present::new(&self.namespace, who).lets(id, wanted)? {
            true => Ok(()),
            false => Err(Errno::ACCESS.into()),
        }
    }

    /// Returns a file with its attributes then.
    pub(crate) fn shown(&self, file: SnapshotFile) -> Answer<Shown> {
        shown(file.slot, self.of(file)?.inode(file.id)?)
    }

    /// Returns the directory above one.
    pub(crate) fn parent(&self, file: SnapshotFile) -> Answer<SnapshotFile> {
        SnapshotFile::new(file.slot, self.of(file)?.view().parent(file.id)?)
    }

    /// Begins to list a directory.
    pub(crate) fn open_directory(
        &self,
        directory: SnapshotFile,
        who: &Credentials,
    ) -> Answer<Listing> {
        self.of(directory)?;
        self.check(directory.id, Wanted::READ, who)?;
        Ok(Listing::new(directory.id))
    }

    /// Passes entries of a directory to `add`, with their cookies and names, until it returns false.
    pub(crate) fn list(
        &self,
        directory: SnapshotFile,
        listing: &mut Listing,
        after: u64,
        mut add: impl FnMut(u64, &[u8], &Shown) -> bool,
    ) -> Answer<()> {
        let past = self.of(directory)?;
        let add = |entry: Entry<'_>| match shown(directory.slot, entry.inode.clone()) {
            Ok(shown) => add(entry.cookie, entry.name, &shown),
            Err(_) => true,
        };
        past.list(listing, after, add)
    }

    /// Returns the value of an extended attribute.
    pub(crate) fn xattr(
        &self,
        file: SnapshotFile,
        name: &[u8],
        who: &Credentials,
    ) -> Answer<Option<Vec<u8>>> {
        let past = self.of(file)?;
        if is_privilege(name) {
            return Ok(None);
        }
        if name.starts_with(b"user.") {
            self.check(file.id, Wanted::READ, who)?;
        }
        past.view().xattr(file.id, name)
    }

    /// Returns the names of extended attributes.
    pub(crate) fn xattrs(&self, file: SnapshotFile) -> Answer<Vec<Vec<u8>>> {
        let past = self.of(file)?;
        let mut names = Vec::new();
        past.view().xattrs(file.id, |name, _| names.push(name.to_vec()))?;
        names.retain(|name| !is_privilege(name));
        Ok(names)
    }

    /// Opens a file to be read.
    pub(crate) fn open(&self, file: SnapshotFile, who: &Credentials) -> Answer<FileHandle> {
        let past = self.of(file)?;
        self.check(file.id, Wanted::READ, who)?;
        let file = Arc::new(self.namespace.open_past(&past, file.id)?);
        let mut open = self.open.lock();
        open.next += 1;
        let handle = FIRST_HANDLE + open.next;
        open.files.insert(handle, file);
        Ok(FileHandle(handle))
    }

    fn opened(&self, handle: FileHandle) -> Answer<Arc<PastFile>> {
        Ok(self.open.lock().files.get(&handle.0).cloned().ok_or(Errno::BADF)?)
    }

    pub(crate) fn read(&self, handle: FileHandle, offset: u64, length: usize) -> Answer<Vec<u8>> {
        self.namespace.read_past(&*self.opened(handle)?, offset, length)
    }

    /// Returns where data or a hole begins: no holes are told of.
    pub(crate) fn seek(&self, handle: FileHandle, is_hole: bool, offset: u64) -> Answer<u64> {
        let size = self.opened(handle)?.size();
        match (offset < size, is_hole) {
            (false, _) => Err(Errno::NXIO.into()),
            (true, true) => Ok(size),
            (true, false) => Ok(offset),
        }
    }

    pub(crate) fn close(&self, handle: FileHandle) {
        self.open.lock().files.remove(&handle.0);
    }
}

/// Returns whether an attribute gives a program rights: those of then are no longer given.
fn is_privilege(name: &[u8]) -> bool {
    name == b"security.capability"
}

/// Returns a file of a snapshot with its attributes then, but without setuid and setgid, and with
/// devices for root alone.
fn shown(slot: usize, inode: Inode) -> Answer<Shown> {
    let mut mode = inode.mode;
    match inode.file_type() {
        file_type::REGULAR => mode &= !SETUID_SETGID,
        file_type::CHARACTER | file_type::BLOCK => mode &= !0o7777,
        _ => {}
    }
    let node = Node::Snapshot(SnapshotFile::new(slot, inode.id)?);
    Ok(Shown { node, inode: Inode { mode, ..inode } })
}

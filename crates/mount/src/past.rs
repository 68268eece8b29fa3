//! Trees as snapshots have them, below directories called `[@NAME]`.
//!
//! The kernel checks the permissions of then, and asks again for every name, so that those of now
//! are checked here for whoever asks: what has been hidden since stays hidden.

use crate::nodes::FIRST as FIRST_OF_QUERIES;
use canopy_model::{Credentials, Wanted};
use canopy_namespace::inode::file_type;
use canopy_namespace::{Entry, Error, FileId, Inode, Listing, Namespace, Past, PastFile, Present};
use fuser::FileHandle;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;

/// Ids from here on, and below those of queries, are of files of snapshots.
const FIRST: u64 = 1 << 62;

/// The id of a file in a snapshot has so many bits; those above say which snapshot, in the order in
/// which this mount was asked for them.
const FILE_BITS: u32 = 46;

/// So many snapshots can be looked at through one mount.
const SLOTS_MAX: usize = 1 << (62 - FILE_BITS);

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

/// Returns whether an id is that of a file of a snapshot.
pub(crate) fn is_past(id: u64) -> bool {
    (FIRST..FIRST_OF_QUERIES).contains(&id)
}

impl Pasts {
    pub(crate) fn new(namespace: Arc<Namespace>) -> Self {
        Pasts { namespace, slots: Mutex::default(), open: Mutex::default() }
    }

    /// Returns a directory as a snapshot has it, for somebody who could get there then.
    pub(crate) fn enter(&self, base: FileId, name: &[u8], who: &Credentials) -> Answer<Inode> {
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
        shown(slot as u64, inode)
    }

    /// Lets snapshots go that were deleted: they keep files open.
    pub(crate) fn forget_deleted(&self) {
        for slot in &mut *self.slots.lock() {
            slot.take_if(|past| !self.namespace.has_snapshot(past.number()));
        }
    }

    /// Returns the snapshot that a file of ours is of, its slot, and the file's own id. `STALE` if the
    /// snapshot was deleted.
    pub(crate) fn locate(&self, id: u64) -> Answer<(Past, u64, FileId)> {
        let slot = (id - FIRST) >> FILE_BITS;
        let slots = self.slots.lock();
        let past = usize::try_from(slot).ok().and_then(|slot| slots.get(slot)?.as_ref());
        let past = past.filter(|past| self.namespace.has_snapshot(past.number()));
        Ok((past.cloned().ok_or(Errno::STALE)?, slot, id & ((1 << FILE_BITS) - 1)))
    }

    /// Returns what a name of a directory stands for.
    pub(crate) fn lookup(&self, parent: u64, name: &[u8], who: &Credentials) -> Answer<Inode> {
        let (past, slot, id) = self.locate(parent)?;
        self.check(id, Wanted::SEARCH, who)?;
        shown(slot, past.lookup(id, name)?)
    }

    /// Returns an error if the present permissions hide from a user what is in a file or directory.
    fn check(&self, id: FileId, wanted: Wanted, who: &Credentials) -> Answer<()> {
        match Present::new(&self.namespace, who).lets(id, wanted)? {
            true => Ok(()),
            false => Err(Errno::ACCESS.into()),
        }
    }

    pub(crate) fn inode(&self, id: u64) -> Answer<Inode> {
        let (past, slot, id) = self.locate(id)?;
        shown(slot, past.inode(id)?)
    }

    /// Returns the id of the directory above one.
    pub(crate) fn parent(&self, id: u64) -> Answer<u64> {
        let (past, slot, id) = self.locate(id)?;
        number(slot, past.view().parent(id)?)
    }

    /// Begins to list a directory.
    pub(crate) fn open_directory(&self, id: u64, who: &Credentials) -> Answer<Listing> {
        let (_, _, id) = self.locate(id)?;
        self.check(id, Wanted::READ, who)?;
        Ok(Listing::new(id))
    }

    pub(crate) fn list(
        &self,
        id: u64,
        listing: &mut Listing,
        after: u64,
        mut tell: impl FnMut(Entry<'_>) -> bool,
    ) -> Answer<()> {
        let (past, slot, _) = self.locate(id)?;
        past.list(listing, after, |entry| match shown(slot, entry.inode.clone()) {
            Ok(inode) => tell(Entry { inode: &inode, ..entry }),
            Err(_) => true,
        })
    }

    /// Returns the value of an extended attribute.
    pub(crate) fn xattr(&self, id: u64, name: &[u8], who: &Credentials) -> Answer<Option<Vec<u8>>> {
        let (past, _, id) = self.locate(id)?;
        if is_privilege(name) {
            return Ok(None);
        }
        if name.starts_with(b"user.") {
            self.check(id, Wanted::READ, who)?;
        }
        past.view().xattr(id, name)
    }

    pub(crate) fn xattrs(&self, id: u64) -> Answer<Vec<Vec<u8>>> {
        let (past, _, id) = self.locate(id)?;
        let mut names = Vec::new();
        past.view().xattrs(id, |name, _| names.push(name.to_vec()))?;
        names.retain(|name| !is_privilege(name));
        Ok(names)
    }

    /// Opens a file to be read.
    pub(crate) fn open(&self, id: u64, who: &Credentials) -> Answer<FileHandle> {
        let (past, _, id) = self.locate(id)?;
        self.check(id, Wanted::READ, who)?;
        let file = Arc::new(self.namespace.open_past(&past, id)?);
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

fn number(slot: u64, id: FileId) -> Answer<u64> {
    match id >> FILE_BITS {
        0 => Ok(FIRST + (slot << FILE_BITS) + id),
        _ => Err(Errno::OVERFLOW.into()),
    }
}

/// Returns the attributes of a file of a snapshot: those of then, without the rights that programs
/// had, and with devices for nobody but root.
fn shown(slot: u64, inode: Inode) -> Answer<Inode> {
    let mut mode = inode.mode;
    match inode.file_type() {
        file_type::REGULAR => mode &= !SETUID_SETGID,
        file_type::CHARACTER | file_type::BLOCK => mode &= !0o7777,
        _ => {}
    }
    Ok(Inode { id: number(slot, inode.id)?, mode, ..inode })
}

//! Trees as snapshots have them, below directories called `[@NAME]`.
//!
//! The kernel checks the permissions of then, and asks again for every name, so that those of now
//! are checked here for whoever asks: what has been hidden since stays hidden.

use crate::behalf;
use crate::node::{Node, SLOTS_MAX, Shown, SnapshotFile};
use crate::packed::Blocks;
use canopy_model::{Credentials, Wanted};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Moment, PastHandle};
use canopy_namespace::{Entry, EntryName, Error, Execute, FileId, Inode, Listing, ROOT};
use fuser::FileHandle;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::Arc;

/// Handles from here on are of files of snapshots.
const FIRST_HANDLE: u64 = 1 << 32;

pub(crate) const SETUID_SETGID: u32 = 0o6000;

type Answer<T> = Result<T, Error>;

/// The snapshots that were asked for.
pub(crate) struct Pasts {
    namespace: Arc<dyn Execute>,
    /// Whether operations name the user behind them: servers check what that user may do.
    names_users: bool,
    /// Their numbers, in the order in which this mount met them.
    slots: Mutex<Vec<u64>>,
    /// The blocks of ids that this mount met.
    blocks: Blocks,
}

impl Pasts {
    pub(crate) fn new(namespace: Arc<dyn Execute>, names_users: bool) -> Self {
        Pasts { namespace, names_users, slots: Mutex::default(), blocks: Blocks::default() }
    }

    /// Returns the namespace for a user.
    pub(crate) fn by(&self, who: &Credentials) -> Arc<dyn Execute> {
        match self.names_users {
            true => behalf::of_user(&self.namespace, who),
            false => self.namespace.clone(),
        }
    }

    /// Returns the topmost directory as a snapshot has it, for the mount itself.
    pub(crate) fn enter_root(&self, name: &[u8]) -> Answer<Shown> {
        // Servers that do not trust the mount are asked for its own user.
        let root = Credentials::new(0, [0]);
        let (number, inode) = self.namespace.enter_snapshot(name, ROOT, &root)?;
        self.entered(number, inode)
    }

    /// Returns a directory as a snapshot has it, for somebody who could get there then.
    pub(crate) fn enter(&self, base: FileId, name: &[u8], who: &Credentials) -> Answer<Shown> {
        let (number, inode) = self.by(who).enter_snapshot(name, base, who)?;
        self.entered(number, inode)
    }

    fn entered(&self, number: u64, inode: Inode) -> Answer<Shown> {
        let mut slots = self.slots.lock();
        let known = slots.iter().position(|one| *one == number);
        let slot = known.unwrap_or(slots.len());
        if slot >= SLOTS_MAX {
            return Err(Errno::NFILE.into());
        }
        if known.is_none() {
            slots.push(number);
        }
        drop(slots);
        self.shown_as(slot, inode)
    }

    /// Returns the id of a file. `ESTALE` if it is of no file that this mount has shown.
    pub(crate) fn id(&self, file: SnapshotFile) -> Answer<FileId> {
        self.blocks.unpack(file.id)
    }

    /// Returns a file of the snapshot in a slot with its attributes then.
    fn shown_as(&self, slot: usize, inode: Inode) -> Answer<Shown> {
        let node = Node::Snapshot(SnapshotFile { slot, id: self.blocks.pack(inode.id)? });
        Ok(Shown { node, inode: harmless(inode) })
    }

    /// Returns the number of the snapshot of a file. `ESTALE` if it was deleted.
    fn number(&self, file: SnapshotFile) -> Answer<u64> {
        let number = self.slots.lock().get(file.slot).copied().ok_or(Errno::STALE)?;
        match self.namespace.has_snapshot(number)? {
            true => Ok(number),
            false => Err(Errno::STALE.into()),
        }
    }

    /// Returns the tree of a file. `ESTALE` if the snapshot was deleted.
    pub(crate) fn of(&self, file: SnapshotFile) -> Answer<Moment> {
        self.number(file).map(Moment::Snapshot)
    }

    /// Returns what a name of a directory stands for.
    pub(crate) fn lookup(
        &self,
        parent: SnapshotFile,
        name: &[u8],
        who: &Credentials,
    ) -> Answer<Shown> {
        let at = self.of(parent)?;
        let directory = self.id(parent)?;
        self.check(parent, Wanted::SEARCH, who)?;
        let inode = self.by(who).lookup(at, EntryName::new(directory, name))?;
        self.shown_as(parent.slot, inode)
    }

    /// Returns an error if the present permissions hide from a user what is in a file or directory.
    fn check(&self, file: SnapshotFile, wanted: Wanted, who: &Credentials) -> Answer<()> {
        let number = self.slots.lock().get(file.slot).copied().ok_or(Errno::STALE)?;
        match self.by(who).is_shown(number, self.id(file)?, wanted, who)? {
            true => Ok(()),
            false => Err(Errno::ACCESS.into()),
        }
    }

    /// Returns a file with its attributes then.
    pub(crate) fn shown(&self, file: SnapshotFile) -> Answer<Shown> {
        self.shown_as(file.slot, self.namespace.inode(self.of(file)?, self.id(file)?)?)
    }

    /// Returns the directory above one, for whom `by` is.
    pub(crate) fn parent(&self, by: &dyn Execute, file: SnapshotFile) -> Answer<SnapshotFile> {
        let parent = by.parent(self.of(file)?, self.id(file)?)?;
        Ok(SnapshotFile { slot: file.slot, id: self.blocks.pack(parent)? })
    }

    /// Begins to list a directory.
    pub(crate) fn open_directory(
        &self,
        directory: SnapshotFile,
        who: &Credentials,
    ) -> Answer<Listing> {
        self.of(directory)?;
        let id = self.id(directory)?;
        self.check(directory, Wanted::READ, who)?;
        Ok(Listing::new(id))
    }

    /// Passes entries of a directory to `add`, with their cookies and names, until it returns false;
    /// for whom `by` is.
    pub(crate) fn list(
        &self,
        by: &dyn Execute,
        directory: SnapshotFile,
        listing: &mut Listing,
        after: u64,
        mut add: impl FnMut(u64, &[u8], &Shown) -> bool,
    ) -> Answer<()> {
        let at = self.of(directory)?;
        let mut failed = None;
        let add = |entry: Entry<'_>| match self.shown_as(directory.slot, entry.inode.clone()) {
            Ok(shown) => add(entry.cookie, entry.name, &shown),
            Err(error) => {
                failed = Some(error);
                false
            }
        };
        by.list(at, listing, after, add)?;
        failed.map_or(Ok(()), Err)
    }

    /// Returns the value of an extended attribute.
    pub(crate) fn xattr(
        &self,
        file: SnapshotFile,
        name: &[u8],
        who: &Credentials,
    ) -> Answer<Option<Vec<u8>>> {
        let at = self.of(file)?;
        if is_privilege(name) {
            return Ok(None);
        }
        if name.starts_with(b"user.") {
            self.check(file, Wanted::READ, who)?;
        }
        self.by(who).xattr(at, self.id(file)?, name)
    }

    /// Returns the names of extended attributes.
    pub(crate) fn xattrs(&self, file: SnapshotFile) -> Answer<Vec<Vec<u8>>> {
        let mut names = self.namespace.xattrs(self.of(file)?, self.id(file)?)?;
        names.retain(|name| !is_privilege(name));
        Ok(names)
    }

    /// Opens a file to be read.
    pub(crate) fn open(&self, file: SnapshotFile, who: &Credentials) -> Answer<FileHandle> {
        let number = self.number(file)?;
        self.check(file, Wanted::READ, who)?;
        let PastHandle(handle) = self.by(who).open_past_file(number, self.id(file)?)?;
        Ok(FileHandle(FIRST_HANDLE + handle))
    }

    pub(crate) fn read(&self, handle: FileHandle, offset: u64, length: usize) -> Answer<Vec<u8>> {
        self.namespace.read_past_at(opened(handle)?, offset, length)
    }

    /// Returns where data or a hole begins: holes are not reported.
    pub(crate) fn seek(&self, handle: FileHandle, is_hole: bool, offset: u64) -> Answer<u64> {
        let size = self.namespace.past_bytes(opened(handle)?)?;
        match (offset < size, is_hole) {
            (false, _) => Err(Errno::NXIO.into()),
            (true, true) => Ok(size),
            (true, false) => Ok(offset),
        }
    }

    pub(crate) fn close(&self, handle: FileHandle) {
        if let Ok(handle) = opened(handle) {
            self.namespace.close_past_file(handle);
        }
    }
}

/// Returns the file of a snapshot that the kernel's handle is of.
fn opened(handle: FileHandle) -> Answer<PastHandle> {
    Ok(handle.0.checked_sub(FIRST_HANDLE).map(PastHandle).ok_or(Errno::BADF)?)
}

/// Returns whether an attribute gives a program rights: those of then are no longer given.
fn is_privilege(name: &[u8]) -> bool {
    name == b"security.capability"
}

/// Returns the attributes of a file of a snapshot, but without setuid and setgid, and with devices for
/// root alone.
fn harmless(inode: Inode) -> Inode {
    let mut mode = inode.mode;
    match inode.file_type() {
        file_type::REGULAR => mode &= !SETUID_SETGID,
        file_type::CHARACTER | file_type::BLOCK => mode &= !0o7777,
        _ => {}
    }
    Inode { mode, ..inode }
}

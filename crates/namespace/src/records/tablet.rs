//! A tablet: one table of records, the one lock of whoever changes them, and what is newer in
//! memory than the records are. It knows nothing of contents, quotas, snapshots or indexes.
//!
//! Readers take no lock. The maps here are locked for moments, and one at a time.

use crate::error::{Error, Result};
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, ROOT, Space};
use crate::records::places::Places;
use canopy_store::{Batch, Direction, Durability, Key, Table};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ids are taken from the table so many at a time.
const IDS: u64 = 1 << 16;

pub(crate) struct Tablet {
    pub(crate) table: Arc<Table>,
    /// Held by whoever changes records.
    pub(crate) writer: Mutex<Writer>,
    /// Inodes whose times and sizes are newer here than in their records. Every other change of an
    /// inode writes its record and takes it out of here.
    pub(crate) pending: RwLock<HashMap<FileId, Inode>>,
    /// Counts the inodes that were taken out of `pending`.
    pub(crate) flushes: AtomicU64,
    /// Where inodes were last seen.
    pub(crate) places: Arc<Places>,
    held: Held,
    /// Files without a name that are held.
    pub(crate) orphans: Mutex<HashSet<FileId>>,
    /// Counts the files that lost their last name.
    pub(crate) removals: AtomicU64,
}

/// State that only one thread at a time needs.
pub(crate) struct Writer {
    pub(crate) next_id: FileId,
    /// Ids below are ours.
    ids_end: FileId,
}

/// How often each file is held: by its id, in parts so that threads seldom meet.
#[derive(Default)]
struct Held([Mutex<HashMap<FileId, u64>>; 16]);

impl Held {
    fn part(&self, id: FileId) -> &Mutex<HashMap<FileId, u64>> {
        &self.0[(id.0 % 16) as usize]
    }
}

impl Tablet {
    /// Takes a table that is open.
    pub(crate) fn new(table: Arc<Table>) -> Result<Self> {
        let next_id = match table.get(keys::ids().as_ref())? {
            Some(bytes) => keys::parse_ids(&bytes).ok_or_else(|| Error::corrupt("the ids"))?,
            None => ROOT.next(),
        };
        Ok(Tablet {
            table,
            writer: Mutex::new(Writer { next_id, ids_end: next_id }),
            pending: RwLock::default(),
            flushes: AtomicU64::new(0),
            places: Arc::new(Places::new()),
            held: Held::default(),
            orphans: Mutex::default(),
            removals: AtomicU64::new(0),
        })
    }

    /// Returns the inode that a record has.
    pub(crate) fn record(&self, key: &Key) -> Result<Option<Inode>> {
        let value = self.table.get(key.as_ref())?;
        value.map(|value| Inode::decode(&value)).transpose()
    }

    /// Gives an inode the times and the size that are not in its record yet.
    pub(crate) fn overlay(&self, inode: &mut Inode) {
        if let Some(pending) = self.pending.read().get(&inode.id) {
            inode.size = pending.size;
            inode.blocks = pending.blocks;
            inode.mtime_ns = pending.mtime_ns;
            inode.ctime_ns = pending.ctime_ns;
            inode.atime_ns = pending.atime_ns;
        }
    }

    /// Remembers an inode whose times are newer than its record's. The caller has the writer's lock.
    pub(crate) fn remember(&self, inode: Inode) {
        self.pending.write().insert(inode.id, inode);
    }

    /// Forgets an inode whose record has all there is.
    pub(crate) fn forget_pending(&self, id: FileId) {
        if self.pending.read().contains_key(&id) {
            let mut pending = self.pending.write();
            pending.remove(&id);
            // With the lock: who does not find the inode sees that its record is another one.
            self.flushes.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the record that a name leads to; none if there is no such name.
    pub(crate) fn recorded(&self, key: Key) -> Result<Option<Inode>> {
        let Some(found) = self.record(&key)? else { return Ok(None) };
        if found.has(flag::LINKED) {
            // Its last name may have gone between the two.
            return self.record(&Space::Links.of(found.id, b""));
        }
        self.places.insert(found.id, key);
        Ok(Some(found))
    }

    /// Returns where the record of an inode lies, and the inode that it has.
    pub(crate) fn locate(&self, id: FileId) -> Result<(Key, Inode)> {
        if id == ROOT {
            let root = self.record(&keys::root())?;
            return Ok((keys::root(), root.ok_or_else(|| Error::corrupt("there is no root"))?));
        }
        if let Some(key) = self.places.get(id) {
            let found = self.record(&key)?.filter(|found| found.id == id);
            if let Some(found) = found.filter(|found| !found.has(flag::LINKED)) {
                return Ok((key, found));
            }
        }
        // A rename between two of the steps below hides a file that is there.
        for _ in 0..3 {
            if let Some((parent, name)) = self.names(id)?.into_iter().next() {
                let key = keys::name_in(parent, &name);
                let found = self.record(&key)?.filter(|found| found.id == id);
                if let Some(found) = found.filter(|found| !found.has(flag::LINKED)) {
                    self.places.insert(id, key.clone());
                    return Ok((key, found));
                }
            }
            for space in [Space::Links, Space::Orphans] {
                let key = space.of(id, b"");
                if let Some(found) = self.record(&key)? {
                    return Ok((key, found));
                }
            }
        }
        Err(Errno::NOENT.into())
    }

    /// Returns the names of a file, each with its directory, in the order of directories.
    pub(crate) fn names(&self, id: FileId) -> Result<Vec<(FileId, Vec<u8>)>> {
        let mut scan = self.table.scan(&Space::Names.range_of(id), Direction::Forward)?;
        let mut names = Vec::new();
        while let Some(record) = scan.next()? {
            let (parent, name) = keys::parse_name(record.key.name)
                .ok_or_else(|| Error::corrupt(format!("a name of file {id}")))?;
            names.push((parent, name.to_vec()));
        }
        Ok(names)
    }

    /// Returns the directory above a directory; the root is above itself.
    pub(crate) fn parent(&self, directory: FileId) -> Result<FileId> {
        match directory {
            ROOT => Ok(ROOT),
            _ => Ok(self.names(directory)?.first().map_or(directory, |(parent, _)| *parent)),
        }
    }

    /// Returns the path of a file below the root, without a slash at its beginning; the first one,
    /// if it has several. None if it has no name any more.
    pub(crate) fn path(&self, id: FileId) -> Result<Option<Vec<u8>>> {
        let (mut names, mut at) = (Vec::new(), id);
        while at != ROOT {
            let Some((parent, name)) = self.names(at)?.into_iter().next() else { return Ok(None) };
            names.push(name);
            at = parent;
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }

    /// Returns whether a directory is another one or lies below it.
    pub(crate) fn is_within(&self, directory: FileId, ancestor: FileId) -> Result<bool> {
        let mut at = directory;
        loop {
            match at {
                _ if at == ancestor => return Ok(true),
                ROOT => return Ok(false),
                _ => {}
            }
            let (parent, _) = self.names(at)?.into_iter().next().ok_or(Errno::NOENT)?;
            at = parent;
        }
    }

    /// Returns whether a directory has no names.
    pub(crate) fn is_empty(&self, directory: FileId) -> Result<bool> {
        let range = keys::names_in(directory);
        Ok(self.table.scan(&range, Direction::Forward)?.next()?.is_none())
    }

    pub(crate) fn xattr_of(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.table.get(Space::Xattrs.of(id, name).as_ref())?)
    }

    pub(crate) fn xattr_names(&self, id: FileId) -> Result<Vec<Vec<u8>>> {
        let mut scan = self.table.scan(&Space::Xattrs.range_of(id), Direction::Forward)?;
        let mut names = Vec::new();
        while let Some(record) = scan.next()? {
            names.push(record.key.name.to_vec());
        }
        Ok(names)
    }

    /// Returns the ids of files that have records in a space.
    pub(crate) fn ids_in(&self, space: Space) -> Result<Vec<FileId>> {
        let mut scan = self.table.scan(&space.range(), Direction::Forward)?;
        let mut ids = Vec::new();
        while let Some(record) = scan.next()? {
            ids.push(FileId(record.key.hash));
        }
        Ok(ids)
    }

    /// Holds a file that the caller knows to be there.
    pub(crate) fn hold(&self, id: FileId) {
        *self.held.part(id).lock().entry(id).or_default() += 1;
    }

    /// Returns whether anybody holds a file.
    pub(crate) fn is_held(&self, id: FileId) -> bool {
        self.held.part(id).lock().contains_key(&id)
    }

    /// Takes back what `hold` did so many times. Returns whether the file has to go: it has no name,
    /// and nobody holds it any more.
    pub(crate) fn let_go(&self, id: FileId, times: u64) -> bool {
        {
            let mut held = self.held.part(id).lock();
            let Some(count) = held.get_mut(&id) else { return false };
            *count = count.saturating_sub(times);
            if *count > 0 {
                return false;
            }
            held.remove(&id);
        }
        self.orphans.lock().contains(&id)
    }
}

impl Writer {
    /// Returns an id that no file ever had.
    pub(crate) fn new_id(&mut self, table: &Table) -> Result<FileId> {
        // Ids that were taken and given up again may lie beyond.
        if self.next_id >= self.ids_end {
            let end = FileId(self.next_id.0.saturating_add(IDS));
            let (mut batch, ids_end) = (Batch::new(), self.ids_end);
            self.put_end(&mut batch, end)?;
            if let Err(error) = table.write(&batch, Durability::Visible) {
                // A file with an id that is not recorded could lose it to another one.
                self.ids_end = ids_end;
                return Err(error.into());
            }
        }
        self.take_ids(1).map(|ids| ids.start)
    }

    /// Returns ids that no file ever had. Before anybody sees them, the table must have the end of
    /// ids.
    pub(crate) fn take_ids(&mut self, count: u64) -> Result<Range<FileId>> {
        let start = self.next_id;
        let end = FileId(start.0.saturating_add(count));
        if end > FileId::MAX {
            return Err(Errno::NOSPC.into());
        }
        self.next_id = end;
        Ok(start..end)
    }

    /// Adds to `batch`, which is to be written, that all ids taken so far are, and those below
    /// `end`.
    pub(crate) fn put_end(&mut self, batch: &mut Batch, end: FileId) -> Result<()> {
        if end > FileId::MAX {
            return Err(Errno::NOSPC.into());
        }
        self.ids_end = end.max(self.next_id).max(self.ids_end);
        Ok(batch.put(keys::ids().as_ref(), &self.ids_end.to_be_bytes())?)
    }
}

//! A tablet: one table of records, a range of names, one lock of writers, and times and sizes in
//! memory that are newer than the records. It executes operations on names and attributes
//! (`operation/tablet.rs`).
//!
//! It knows the settings of its namespace and the sums of quotas, since every change keeps indexes
//! and sums current. Contents, snapshots, queries and repairs are rooms beside it. The interface to
//! contents is `OpenFiles`.
//!
//! Readers take no lock. The maps here are locked for moments, and one at a time.

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::quota::{Accounts, Transaction};
use crate::records::inode::{Frequent, Inode};
use crate::records::keys::{self, FileId, ROOT, Space};
use crate::records::open_files::OpenFiles;
use crate::records::places::Places;
use crate::records::range::TabletRange;
use crate::records::xattrs::Labels;
use crate::settings::{Configured, Settings};
use canopy_store::{
    Batch, Direction, Durability, Environment, Options, SstableCache, Table, TableId,
};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ids are taken from the table so many at a time.
const IDS: u64 = 1 << 16;

/// Bytes of SSTables' blocks that stay in memory.
pub(crate) const CACHE_BYTES: u64 = 256 << 20;

/// Names and inodes of a namespace, all or a part of them, in one table that this process has open.
/// Calls come from any number of threads.
///
/// [`execute`](Self::execute) refuses operations on names of other tablets. The methods that it calls
/// do not look at the range.
pub struct Tablet {
    pub(crate) table: Arc<Table>,
    pub(crate) range: TabletRange,
    pub(crate) configured: RwLock<Arc<Configured>>,
    clock: Clock,
    pub(crate) files: Arc<dyn OpenFiles>,
    pub(crate) accounts: Arc<Accounts>,
    /// The known state of SELinux labels.
    pub(crate) labels: Labels,
    /// Held by whoever changes records.
    pub(crate) writer: Mutex<Writer>,
    /// Inodes whose times and sizes are newer here than in their records. Every other change of an
    /// inode writes its record and takes it out of here.
    pub(crate) pending: RwLock<HashMap<FileId, Inode>>,
    /// Counts the inodes that were taken out of `pending`.
    flushes: AtomicU64,
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

/// Returns how the engine works for a namespace.
pub(crate) fn options() -> Options {
    Options { operator: Some(Arc::new(Frequent)), ..Options::default() }
}

/// Opens a table of a namespace.
///
/// # Errors
///
/// Fails with `Store` if another process has it, and as storage does.
pub fn open_table(
    environment: &Environment,
    id: TableId,
    cache: Arc<SstableCache>,
) -> Result<Arc<Table>> {
    Ok(Arc::new(Table::open(environment, id, cache, options())?))
}

impl Tablet {
    /// Takes a table that is open, and that no other tablet has. `files` are the open files of the
    /// process. Before others use the tablet, [`remove_orphans`](Self::remove_orphans) does what a
    /// crash has left undone.
    ///
    /// # Errors
    ///
    /// Fails with `Corrupt` if it is not the table of a namespace, and as the table does.
    pub fn new(
        table: Arc<Table>,
        range: TabletRange,
        clock: Clock,
        files: Arc<dyn OpenFiles>,
    ) -> Result<Self> {
        let settings = Settings::decode(table.get(keys::settings().as_ref())?.as_deref())?;
        let next_id = match table.get(keys::ids().as_ref())? {
            Some(bytes) => keys::parse_ids(&bytes).ok_or_else(|| Error::corrupt("the ids"))?,
            None => ROOT.next(),
        };
        Ok(Tablet {
            configured: RwLock::new(Arc::new(settings.configured()?)),
            accounts: Arc::new(Accounts::open(&table)?),
            table,
            range,
            clock,
            files,
            labels: Labels::default(),
            writer: Mutex::new(Writer { next_id, ids_end: next_id }),
            pending: RwLock::default(),
            flushes: AtomicU64::new(0),
            places: Arc::new(Places::new()),
            held: Held::default(),
            orphans: Mutex::default(),
            removals: AtomicU64::new(0),
        })
    }

    /// Returns the table that has the records.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns the names that the tablet holds.
    pub fn range(&self) -> &TabletRange {
        &self.range
    }

    pub(crate) fn configured(&self) -> Arc<Configured> {
        self.configured.read().clone()
    }

    /// Returns nanoseconds since 1970, as they are written into times.
    pub fn now_ns(&self) -> i64 {
        (self.clock)()
    }

    /// Writes a change, with the sums of quotas that it leads to. `EDQUOT` if it is bound and would
    /// pass a limit. The caller has the writer's lock.
    pub(crate) fn commit(&self, mut change: Transaction) -> Result<()> {
        let updated = self.accounts.admit(&mut change, self.now_ns())?;
        match change.frees {
            true => self.table.write_freeing(&change, Durability::Visible)?,
            false => self.table.write(&change, Durability::Visible)?,
        }
        self.accounts.adopt(updated);
        Ok(())
    }

    /// Returns how often something newer in memory went into records.
    pub(crate) fn settlements(&self) -> (u64, u64) {
        (self.flushes.load(Ordering::Acquire), self.files.closings())
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
        self.files.overlay(inode);
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
    pub fn hold(&self, id: FileId) {
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

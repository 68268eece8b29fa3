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
use crate::error::Result;
use crate::memory::ProcessMemory;
use crate::quota::{Accounts, Transaction};
use crate::records::executed::Executed;
use crate::records::ids::{IdLayout, Ids};
use crate::records::inode::{Frequent, Inode};
use crate::records::keys::{self, FileId, Space};
use crate::records::open_files::OpenFiles;
use crate::records::places::Places;
use crate::records::range::TabletRange;
use crate::records::xattrs::Labels;
use crate::settings::{Configured, Settings};
use canopy_store::{Direction, Durability, Environment, Options, SstableCache, Table, TableId};
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    /// Whether blocks of ids should be reserved.
    pub(crate) id_shortage: Arc<AtomicBool>,
    /// Held by who reserves blocks of ids, before the writer's lock.
    pub(crate) reserving_ids: Mutex<()>,
    /// Inodes whose times and sizes are newer here than in their records. Every other change of an
    /// inode writes its record and takes it out of here.
    pub(crate) pending: RwLock<HashMap<FileId, Inode>>,
    /// Counts the inodes that were taken out of `pending`.
    flushes: AtomicU64,
    /// Where inodes were last seen.
    pub(crate) places: Arc<Places>,
    /// Changes of sessions that were executed.
    pub(crate) executed: Executed,
    held: Held,
    /// Whether all files count as held.
    keeps_unheld: AtomicBool,
    /// Files without a name that are held.
    pub(crate) orphans: Mutex<HashSet<FileId>>,
    /// Counts the files that lost their last name.
    pub(crate) removals: AtomicU64,
}

/// State that only one thread at a time needs.
pub(crate) struct Writer {
    pub(crate) ids: Ids,
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

/// Opens a table of a namespace as it was at a checkpoint, to be read alone.
///
/// # Errors
///
/// Fails with `Store` if the table or the checkpoint is gone, and as storage does.
pub fn open_table_at(
    environment: &Environment,
    id: TableId,
    checkpoint: u64,
    cache: Arc<SstableCache>,
) -> Result<Arc<Table>> {
    Ok(Arc::new(Table::open_at(environment, id, checkpoint, cache, options())?))
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
        Self::with_ids(table, range, clock, files, IdLayout::default())
    }

    /// Like [`new`](Self::new), for a table that [`ProcessMemory::open_table`] has opened: the tablet
    /// remembers places of inodes together with the others of the process.
    ///
    /// # Errors
    ///
    /// Fails as `new` does.
    pub fn sharing(
        memory: &ProcessMemory,
        table: Arc<Table>,
        range: TabletRange,
        clock: Clock,
        files: Arc<dyn OpenFiles>,
    ) -> Result<Self> {
        let places = memory.places().clone();
        Ok(Tablet { places, ..Self::new(table, range, clock, files)? })
    }

    /// Does the same with other blocks of ids.
    pub(crate) fn with_ids(
        table: Arc<Table>,
        range: TabletRange,
        clock: Clock,
        files: Arc<dyn OpenFiles>,
        layout: IdLayout,
    ) -> Result<Self> {
        let settings = Settings::decode(table.get(keys::settings().as_ref())?.as_deref())?;
        let ids = Ids::open(&table, layout)?;
        Ok(Tablet {
            configured: RwLock::new(Arc::new(settings.configured()?)),
            accounts: Arc::new(Accounts::open(&table)?),
            table,
            range,
            clock,
            files,
            labels: Labels::default(),
            id_shortage: ids.shortage(),
            reserving_ids: Mutex::new(()),
            writer: Mutex::new(Writer { ids }),
            pending: RwLock::default(),
            flushes: AtomicU64::new(0),
            places: Arc::new(Places::new()),
            executed: Executed::default(),
            held: Held::default(),
            keeps_unheld: AtomicBool::new(false),
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

    /// Returns the settings of the namespace, as the table has them.
    pub fn settings(&self) -> Settings {
        self.configured().settings.clone()
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
        // The table has it now, even if the log cannot take it.
        if let Some(executed) = change.executed {
            self.executed.note(executed);
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

    /// Has all files count as held, or no longer. Then [`remove_orphans`](Self::remove_orphans)
    /// removes those that nobody holds.
    pub fn keep_unheld(&self, keeps: bool) {
        self.keeps_unheld.store(keeps, Ordering::Release);
    }

    /// Returns whether anybody holds a file.
    pub(crate) fn is_held(&self, id: FileId) -> bool {
        self.keeps_unheld.load(Ordering::Acquire) || self.held.part(id).lock().contains_key(&id)
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

    /// Returns the number of files without a name that were held when they lost it.
    pub fn nameless_count(&self) -> usize {
        self.orphans.lock().len()
    }

    /// Returns those of these files that have no name and were held when they lost it, at most
    /// `count_max`.
    pub fn nameless_of(
        &self,
        files: impl Iterator<Item = FileId>,
        count_max: usize,
    ) -> Vec<FileId> {
        let orphans = self.orphans.lock();
        files.filter(|id| orphans.contains(id)).take(count_max).collect()
    }

    /// Returns files without a name that were held when they lost it, if they meet a condition: at
    /// most `count_max`.
    pub fn nameless(&self, is_one: impl Fn(&FileId) -> bool, count_max: usize) -> Vec<FileId> {
        let orphans = self.orphans.lock();
        orphans.iter().filter(|id| is_one(id)).take(count_max).copied().collect()
    }
}

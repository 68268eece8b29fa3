//! Upkeep of tables that are written: sync their logs, flush memtables, compact runs. Threads do it
//! here; a caller without threads calls the same methods.
//!
//! Some threads look after any number of tables. A thread passes over all tables, and works on
//! those that need it. At most one thread at a time does one kind of work for a table, but two
//! compact it.

use crate::budget::Share;
use crate::collect::collect;
use crate::compaction::{compact, compact_where_short};
use crate::error::Result;
use crate::table::Table;
use parking_lot::{Condvar, Mutex, RwLock};
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the log is synced if nobody asks for it: what a crash may take away.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// How often to look for memtables to flush.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Pause between two looks for segments of logs that are not needed any more.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// How often to look for runs to compact.
const COMPACT_INTERVAL: Duration = Duration::from_millis(250);

/// How often to ask storage for what other processes did: each time may be a request that costs.
/// All tables together do it at most once in the shorter interval.
const OTHERS_INTERVAL: Duration = Duration::from_secs(2);
const OTHERS_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Most compactions of a table at once. With two, one can merge large runs while the other keeps
/// the number of new small ones low. With one alone, that number grows with the table.
const COMPACTIONS: usize = 2;

/// Longest interval between retries of failed work, which back off up to it.
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Storage of many machines is asked for its space at most this often, by all tables of a process together.
const SPACE_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Where storage is nearly full, a few records are merged with all others at most this often, and for at
/// most one part of the time in `FEW_SHARE`.
const FEW_INTERVAL: Duration = Duration::from_secs(5);
const FEW_SHARE: u32 = 10;

/// How often what nobody needs is removed, and of how many tables each time.
const COLLECT_INTERVAL: Duration = Duration::from_secs(30);
const COLLECTED_TABLES: usize = 16;

/// Threads that look after many tables: so many sync logs, which mostly wait for storage. Others
/// flush and compact, as many as there are processors, within limits.
const SYNC_THREADS: usize = 4;
const BUSY_THREADS_MIN: usize = 2;
const BUSY_THREADS_MAX: usize = 8;

/// The care of threads for one table. When it is dropped, that ends, and the log is synced.
pub struct Upkeep {
    table: Arc<Table>,
    entry: Arc<Entry>,
    threads: Arc<UpkeepThreads>,
}

/// Threads that look after tables. They end once this is dropped, and every [`Upkeep`] of theirs.
pub struct UpkeepThreads {
    care: Arc<Care>,
    threads: Vec<JoinHandle<()>>,
}

/// State that the threads share.
#[derive(Default)]
struct Care {
    tables: RwLock<Vec<Arc<Entry>>>,
    is_over: Mutex<bool>,
    changed: Condvar,
}

/// A table that is looked after.
struct Entry {
    /// Nothing once nobody is to work on it any more. Is looked at with a slot locked.
    table: Mutex<Option<Arc<Table>>>,
    share: Arc<Share>,
    slots: [Mutex<Slot>; SLOTS],
    is_over: AtomicBool,
    failure: Mutex<Option<String>>,
}

/// Slots of a table: of syncs, of flushes, of collections, of removing segments, and of each
/// compaction.
const SYNCS: usize = 0;
const FLUSHES: usize = 1;
const COLLECTIONS: usize = 2;
const TRIMS: usize = 3;
const FIRST_COMPACTION: usize = 4;
const SLOTS: usize = FIRST_COMPACTION + COMPACTIONS;

/// State of one kind of work, locked by the thread that does it.
struct Slot {
    /// When it is tried again.
    due: Instant,
    /// How long to wait if it fails again.
    retry: Duration,
    /// The version that a compaction looked at last, and what it looked for.
    looked_at: (u64, Wanted),
    /// When storage was asked last: by compactions for later versions, by others for its space.
    asked: Instant,
    /// When few records may be merged with all others.
    few_due: Instant,
}

/// Runs that a compaction looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Those that the tiers of sizes name.
    Tiers,
    /// All of them, if much could be removed: storage is nearly full.
    Much,
    /// All of them, even if little could be removed.
    Few,
}

/// Does something for a table, and returns whether there is more to do. It gets the number of
/// tables.
type Work = fn(&Table, &mut Slot, usize) -> Result<bool>;

/// One kind of work.
#[derive(Clone, Copy)]
struct Kind {
    slot: usize,
    interval: Duration,
    work: Work,
}

impl Upkeep {
    /// Looks after a table in threads of its own.
    pub fn start(table: &Arc<Table>) -> Self {
        UpkeepThreads::with(1, 1, COMPACTIONS).look_after(table)
    }

    /// Returns what failed last, if anything did.
    pub fn failure(&self) -> Option<String> {
        self.entry.failure.lock().clone()
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.entry.is_over.store(true, Ordering::Release);
        self.threads.care.tables.write().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        // The thread that works on it finishes that first.
        let slots = self.entry.slots.each_ref().map(|slot| slot.lock());
        *self.entry.table.lock() = None;
        drop(slots);
        // Sync the unsynced writes, which would be lost with the process. The error is dropped: a
        // caller that must know syncs itself.
        let _ = self.table.sync();
    }
}

impl UpkeepThreads {
    /// Starts threads for any number of tables.
    pub fn start() -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let busy = processors.clamp(BUSY_THREADS_MIN, BUSY_THREADS_MAX);
        Self::with(SYNC_THREADS, busy, busy)
    }

    fn with(syncs: usize, flushes: usize, compactions: usize) -> Arc<Self> {
        let care = Arc::new(Care::default());
        let sync = Kind { slot: SYNCS, interval: SYNC_INTERVAL, work: sync };
        let flush = Kind { slot: FLUSHES, interval: LOOK_INTERVAL, work: flush };
        let collect = Kind { slot: COLLECTIONS, interval: COLLECT_INTERVAL, work: remove_garbage };
        let trim = Kind { slot: TRIMS, interval: TRIM_INTERVAL, work: trim };
        let compact = |number: usize| {
            let slot = FIRST_COMPACTION + number % COMPACTIONS;
            Kind { slot, interval: COMPACT_INTERVAL, work: compact_runs }
        };
        let kinds = std::iter::repeat_n(sync, syncs)
            .chain(std::iter::repeat_n(flush, flushes))
            .chain([collect, trim])
            .chain((0..compactions).map(compact));
        let spawn = |kind: Kind| {
            let care = care.clone();
            std::thread::spawn(move || care.work(kind))
        };
        let threads = kinds.map(spawn).collect();
        Arc::new(UpkeepThreads { care, threads })
    }

    /// Looks after a table for as long as the result lives.
    pub fn look_after(self: &Arc<Self>, table: &Arc<Table>) -> Upkeep {
        let now = Instant::now();
        let slot = |_| {
            Mutex::new(Slot {
                due: now,
                retry: Duration::ZERO,
                looked_at: (0, Wanted::Tiers),
                asked: now,
                few_due: now + FEW_INTERVAL,
            })
        };
        let entry = Arc::new(Entry {
            table: Mutex::new(Some(table.clone())),
            share: table.share().clone(),
            slots: std::array::from_fn(slot),
            is_over: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        self.care.tables.write().push(entry.clone());
        Upkeep { table: table.clone(), entry, threads: self.clone() }
    }
}

impl Drop for UpkeepThreads {
    fn drop(&mut self) {
        *self.care.is_over.lock() = true;
        self.care.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Care {
    /// Waits; returns whether to go on.
    fn wait(&self, duration: Duration) -> bool {
        let mut is_over = self.is_over.lock();
        if !*is_over {
            self.changed.wait_for(&mut is_over, duration);
        }
        !*is_over
    }

    fn work(&self, kind: Kind) {
        while self.wait(kind.interval) {
            // Work for one table may have made another one the next.
            while self.pass(kind) && kind.slot == FLUSHES && !*self.is_over.lock() {}
        }
    }

    /// Does one kind of work for all tables that need it, and returns whether any did.
    fn pass(&self, kind: Kind) -> bool {
        let mut tables = self.tables.read().clone();
        let count = tables.len();
        match kind.slot {
            FLUSHES => {
                tables.retain(|entry| entry.share.may_flush());
                tables.sort_by_cached_key(|entry| Reverse(entry.share.used()));
            }
            COLLECTIONS => {
                tables.sort_by_cached_key(|entry| entry.slots[COLLECTIONS].lock().due);
                tables.truncate(COLLECTED_TABLES);
            }
            _ => {}
        }
        let mut is_busy = false;
        for entry in tables {
            is_busy |= entry.work(kind, count);
        }
        is_busy
    }
}

impl Entry {
    /// Does one kind of work, unless another thread does or it is too early. Returns whether there
    /// was some.
    fn work(&self, kind: Kind, tables: usize) -> bool {
        let Some(mut slot) = self.slots[kind.slot].try_lock() else { return false };
        if self.is_over.load(Ordering::Acquire) || Instant::now() < slot.due {
            return false;
        }
        // It goes before the slot does: whoever stops the care has the table closed then.
        let Some(table) = self.table.lock().clone() else { return false };
        let worked = self.repeat(&table, kind, &mut slot, tables);
        let wait = match &worked {
            Ok(_) => {
                slot.retry = Duration::ZERO;
                // Threads of one kind take turns, and another one may come soon.
                kind.interval / 2
            }
            Err(error) => {
                *self.failure.lock() = Some(error.to_string());
                let most = RETRY_INTERVAL_MAX.max(kind.interval);
                slot.retry = (2 * slot.retry.max(kind.interval)).min(most);
                slot.retry
            }
        };
        let is_repeated = kind.slot == FLUSHES && worked.is_ok();
        slot.due = Instant::now() + if is_repeated { Duration::ZERO } else { wait };
        // Others may end a compaction; the writer goes on then.
        if table.has_ended() {
            self.is_over.store(true, Ordering::Release);
        }
        worked.unwrap_or(false)
    }

    /// Works until there is nothing to do. Flushes are for the largest memtable each time. Returns
    /// whether anything was done.
    fn repeat(&self, table: &Table, kind: Kind, slot: &mut Slot, tables: usize) -> Result<bool> {
        let mut is_done = false;
        while (kind.work)(table, slot, tables)? {
            is_done = true;
            if kind.slot == FLUSHES || self.is_over.load(Ordering::Acquire) {
                break;
            }
        }
        Ok(is_done)
    }
}

fn sync(table: &Table, _: &mut Slot, _: usize) -> Result<bool> {
    table.sync().map(|()| false)
}

fn flush(table: &Table, _: &mut Slot, _: usize) -> Result<bool> {
    table.flush_frozen()
}

/// Removes segments that are flushed. Where storage is nearly full, it also removes replaced runs and
/// flushes, so that compactions find what was removed. Nobody has to write to the table for that.
fn trim(table: &Table, slot: &mut Slot, tables: usize) -> Result<bool> {
    table.remove_old_segments()?;
    if slot.asked.elapsed() < SPACE_INTERVAL_MIN.saturating_mul(count_of(tables)) {
        return Ok(false);
    }
    slot.asked = Instant::now();
    table.free_space().map(|()| false)
}

fn remove_garbage(table: &Table, _: &mut Slot, _: usize) -> Result<bool> {
    let (environment, id, cache, _) = table.parts();
    let collected = collect(environment, id);
    cache.close_removed();
    collected.map(|_| false)
}

/// Makes some runs one and shows readers what became of them, and what other processes did. Looks
/// again only at other versions than the one it looked at last, and asks for those of others now
/// and then: nobody pays for a table in which nothing happens.
fn compact_runs(table: &Table, slot: &mut Slot, tables: usize) -> Result<bool> {
    let others = OTHERS_INTERVAL.max(OTHERS_INTERVAL_MIN.saturating_mul(count_of(tables)));
    let wanted = match table.is_short() {
        false => Wanted::Tiers,
        true if Instant::now() < slot.few_due => Wanted::Much,
        true => Wanted::Few,
    };
    let known = (table.manifest().version.number, wanted);
    if known == slot.looked_at && slot.asked.elapsed() < others {
        return Ok(false);
    }
    let version = table.refresh_if_changed()?;
    slot.asked = Instant::now();
    // Others may have made room for a merge meanwhile.
    if slot.looked_at == (version, wanted) && wanted == Wanted::Tiers {
        return Ok(false);
    }
    let (environment, id, cache, options) = table.parts();
    let compacted = match wanted {
        Wanted::Tiers => compact(environment, id, cache, options)?,
        _ => compact_where_short(environment, id, cache, options, wanted == Wanted::Few)?,
    };
    match compacted {
        true => table.refresh()?,
        false => slot.looked_at = (version, wanted),
    }
    if compacted && wanted == Wanted::Few {
        let took = slot.asked.elapsed();
        slot.few_due = Instant::now() + FEW_INTERVAL.max(took.saturating_mul(FEW_SHARE));
    }
    Ok(compacted)
}

fn count_of(tables: usize) -> u32 {
    u32::try_from(tables).unwrap_or(u32::MAX)
}

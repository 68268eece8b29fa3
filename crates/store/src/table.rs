//! A table that is open for writing. Locks are taken in this order: `flushing`, `log`, `write`,
//! `view`. That of `durable` is held for moments, and no other is taken meanwhile.

mod checkpoints;
mod flushing;
mod logging;
mod marks;
mod read_only;
mod reading;
mod recovery;
mod revert;

pub use marks::Mark;
pub use reading::TableSnapshot;

use self::logging::{Durable, OldSegments};
use self::marks::OpenMark;
use crate::batch::{BATCH_BYTES_MAX, Batch, Changes, Mutation};
use crate::budget::{MemtableBudget, Share};
use crate::commit::{commit, current, latest_version};
use crate::environment::Environment;
use crate::error::{Error, Fenced, Invalid, Result};
use crate::key::KeyRange;
use crate::log::LogWriter;
use crate::manifest::{LeaseKind, LogStart, Manifest, Phase, Run, State};
use crate::memtable::{Memtable, ReaderRange};
use crate::merge::MergeOperator;
use crate::names::TableId;
use crate::numbers::RunLayout;
use crate::record::Layout;
use crate::runs::SstableCache;
use crate::storage::probe_once;
use crate::view::Layers;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Rate of writes when memtables take twice the memory that they may.
const SLOWEST_BYTES_PER_SECOND: f64 = 1e6;

/// Waits of writers: shorter ones are not worth a system call, and none is longer.
const WAIT_MIN: Duration = Duration::from_micros(200);
const WAIT_MAX: Duration = Duration::from_millis(50);

/// A writer waits so many times for a budget that is used up. It goes on then: flushes may fail for
/// long, and the log decides which changes are refused.
const BUDGET_WAITS: u32 = 40;

/// How a table works.
#[derive(Clone)]
pub struct Options {
    /// A memtable of more bytes is flushed.
    pub memtable_bytes: u64,
    /// Size at which an SSTable ends.
    pub sstable_bytes: u64,
    /// From so many bytes in memtables on, writers are slowed down, the more the more there are:
    /// at twice as many, to about a megabyte a second, but by no more than 50 ms a batch. A `budget`
    /// replaces this limit.
    pub memory_bytes: u64,
    /// Budget for the memtables of several tables. Without one, the table has `memory_bytes` of its
    /// own.
    pub budget: Option<Arc<MemtableBudget>>,
    /// A memtable is flushed once its log has more segments: on storage where each sync makes one,
    /// opening a table would take longer and longer.
    pub log_segments_max: u64,
    /// Changes of so many bytes that are not in the log yet are written to it by whoever makes the
    /// next one.
    pub log_buffer_bytes: usize,
    /// Number of similarly sized runs merged in one compaction; the result is several times larger
    /// than each.
    pub fanout: usize,
    /// How long the SSTables that a compaction replaced stay for those who read them.
    pub grace_ms: u64,
    /// How long a compaction may take before anybody may end its job.
    pub job_ms: u64,
    /// How many threads write what is recovered from a log.
    pub threads: usize,
    /// Whether opening a table skips what is damaged in a log, and notes that it is lost. Otherwise
    /// it is an error.
    pub salvages_log: bool,
    /// Operator that gives merges their meaning.
    pub operator: Option<Arc<dyn MergeOperator>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            memtable_bytes: 64 << 20,
            sstable_bytes: 64 << 20,
            memory_bytes: 256 << 20,
            budget: None,
            log_segments_max: 1000,
            log_buffer_bytes: 4 << 20,
            fanout: 4,
            grace_ms: 5 * 60_000,
            job_ms: 60 * 60_000,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            salvages_log: false,
            operator: None,
        }
    }
}

impl Options {
    /// Returns an error if a table's records were written for another merge operator.
    pub(crate) fn check_operator(&self, state: &State) -> Result<()> {
        let name = self.operator.as_ref().map_or("", |operator| operator.name());
        match name == state.merge_operator {
            true => Ok(()),
            false => {
                let expected = state.merge_operator.clone();
                Err(Invalid::MergeOperator { expected, got: name.to_owned() }.into())
            }
        }
    }
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once every reader sees it. A crash may take it away, with everything written after it.
    Visible,
    /// Once it outlasts a crash.
    Durable,
}

/// A table that this process writes.
pub struct Table {
    environment: Environment,
    id: TableId,
    options: Options,
    cache: Arc<SstableCache>,
    epoch: u64,
    flushing: Mutex<Flushing>,
    log: Mutex<LogWriter>,
    /// Segments of the own log that are not needed any more.
    old_segments: OldSegments,
    durable: Durable,
    write: Arc<Mutex<Write>>,
    view: RwLock<Arc<Layers>>,
    /// Share of the memtables and the pending changes in the budget. It is set with `write` locked.
    share: Arc<Share>,
    /// Whether changes stay in memory: nothing goes into storage.
    is_read_only: bool,
    /// Whether this is the table at a checkpoint, which nothing that others do changes.
    is_past: bool,
    /// Kept while the table is open.
    _lock: Option<Box<dyn Send + Sync>>,
}

struct Flushing {
    /// Our job: each flush has one, so that its SSTables can be collected once they are compacted
    /// away.
    job: u64,
    /// The number of the next SSTable of the job.
    next_sstable: AtomicU32,
    manifest: Arc<Manifest>,
}

struct Write {
    active: Arc<Memtable>,
    /// Memtables that get no more records, the oldest first.
    frozen: VecDeque<Frozen>,
    /// Number of frozen memtables that come from older epochs' logs.
    recovered: usize,
    /// Number of memtables that were ever frozen.
    frozen_count: u64,
    /// Marks, the oldest first.
    marks: VecDeque<OpenMark>,
    /// The number of the last change.
    sequence: u64,
    /// Changes that are not in the log yet.
    pending: Vec<PendingGroup>,
    pending_bytes: usize,
    /// How many read at which sequence number.
    readers: BTreeMap<u64, usize>,
    /// The sizes of the frozen ones together.
    frozen_bytes: u64,
    /// How long writers should have waited by now.
    owed: Duration,
    /// The table's keys.
    range: KeyRange,
    /// Whether the log has room only for changes that free space.
    is_short: bool,
    /// Why nothing can be written any more.
    ended: Option<Fenced>,
}

struct Frozen {
    memtable: Arc<Memtable>,
    /// The first segment of the log that has nothing of this memtable.
    log_segment: Option<u64>,
    /// Its records, if they were written out and only the commit is missing.
    run: Option<Run>,
}

/// Changes for one segment of the log.
#[derive(Default)]
struct PendingGroup {
    bytes: Vec<u8>,
    /// Whether the segment ends after them.
    ends_segment: bool,
    /// Whether storage may have them already: then none are added to them.
    was_tried: bool,
}

impl PendingGroup {
    /// Returns whether changes of so many bytes may be added.
    fn takes(&self, bytes: usize) -> bool {
        !self.ends_segment && !self.was_tried && self.bytes.len() + bytes <= BATCH_BYTES_MAX
    }
}

impl Write {
    fn check(&self) -> Result<()> {
        match &self.ended {
            Some(why) => Err(why.clone().into()),
            None => Ok(()),
        }
    }

    /// Returns an error if a key is not one of the table's: it would go with the next flush.
    fn check_range(&self, batch: &Batch) -> Result<()> {
        if self.range == KeyRange::all() {
            return Ok(());
        }
        for change in Changes::new(batch.bytes()).flatten() {
            let is_in = match &change {
                Mutation::Record(record) => self.range.contains(record.key),
                Mutation::DeleteRange(range) => self.range.covers(range),
            };
            if !is_in {
                return Err(Invalid::OutOfRange.into());
            }
        }
        Ok(())
    }

    /// Returns the memtables, the newest first.
    fn memtables(&self) -> Vec<Arc<Memtable>> {
        let frozen = self.frozen.iter().rev().map(|frozen| frozen.memtable.clone());
        std::iter::once(self.active.clone()).chain(frozen).collect()
    }

    /// Drops the memtables whose log the manifest does not need, since its runs have them: a flush
    /// whose outcome was not known has succeeded. Merges may not be seen twice.
    fn forget_flushed(&mut self, log: &[LogStart]) {
        let [own] = log else { return };
        let is_flushed = |frozen: &&Frozen| frozen.log_segment.is_some_and(|at| at <= own.segment);
        let count = self.frozen.iter().take_while(is_flushed).count();
        let flushed = self.frozen.drain(..count);
        self.frozen_bytes -= flushed.map(|frozen| frozen.memtable.bytes()).sum::<u64>();
        self.recovered = 0;
    }

    /// Returns how long whoever wrote so many bytes waits: nothing while memtables take less than
    /// they may, then more and more, up to as long as a slow disk would need to take the bytes.
    /// Short waits are put together.
    fn delay(&mut self, bytes: usize, budget: &MemtableBudget) -> Duration {
        let share = budget.pressure();
        if share == 0.0 {
            self.owed = Duration::ZERO;
            return Duration::ZERO;
        }
        let seconds = share * share * bytes as f64 / SLOWEST_BYTES_PER_SECOND;
        self.owed += Duration::from_secs_f64(seconds);
        if budget.is_stopped() {
            return WAIT_MAX;
        }
        if self.owed < WAIT_MIN {
            return Duration::ZERO;
        }
        // Later writes wait for the rest of what a large batch owes.
        let waits = self.owed.min(WAIT_MAX);
        self.owed -= waits;
        waits
    }

    /// Returns the range of sequence numbers at which readers read.
    fn reader_range(&self) -> ReaderRange {
        let (oldest, newest) = (self.readers.keys().next(), self.readers.keys().next_back());
        ReaderRange {
            oldest: oldest.copied().unwrap_or(ReaderRange::NONE.oldest),
            newest: newest.copied().unwrap_or(ReaderRange::NONE.newest),
        }
    }
}

/// Creates an empty table and returns its id, if storage is fit for it.
///
/// # Errors
///
/// Fails with `Invalid` if the layout contradicts itself or storage is not fit for tables, and as
/// storage does.
pub fn create(environment: &Environment, layout: Layout, options: &Options) -> Result<TableId> {
    if !layout.is_sound() {
        return Err(Invalid::Layout.into());
    }
    probe_once(environment)?;
    let id = TableId::random(environment);
    let merge_operator = options.operator.as_ref().map_or("", |operator| operator.name()).into();
    let state = State {
        phase: Phase::Live,
        layout,
        merge_operator,
        range: KeyRange::all(),
        epoch: 0,
        log: Vec::new(),
        next_job: 0,
        jobs: Vec::new(),
        runs: Vec::new(),
        parents: Vec::new(),
        next_checkpoint: 0,
        checkpoints: Vec::new(),
    };
    crate::commit::create(environment, id, state)?;
    Ok(id)
}

/// The parts of a table that is opened.
struct Opened<'a> {
    environment: &'a Environment,
    id: TableId,
    cache: Arc<SstableCache>,
    options: Options,
    /// The number of the opening for writing.
    epoch: u64,
    /// The lease of its SSTables.
    job: u64,
    lock: Option<Box<dyn Send + Sync>>,
    is_read_only: bool,
}

impl Table {
    /// Opens a table for writing. Any process that had it open for writing is fenced off. The table
    /// contains every write that was acknowledged as durable.
    ///
    /// # Errors
    ///
    /// Fails with `Fenced` if another process has the lock, and with `NotFound` if there is no such
    /// table. Fails with `Invalid` if its merges need another operator, and with `Corrupt` if its
    /// log is damaged.
    pub fn open(
        environment: &Environment,
        id: TableId,
        cache: Arc<SstableCache>,
        options: Options,
    ) -> Result<Self> {
        // Before the lock file, which would outlast a table that is gone.
        let mut known = current(environment, id)?;
        known.state.check_live(id)?;
        let lock = environment.storage.lock(&id.lock())?;
        if lock.is_some() {
            // Another process may have had it until now.
            known = current(environment, id)?;
            Self::make_room_to_open(environment, id, &known.state)?;
        }
        let (manifest, (epoch, job)) = commit(environment, id, Some(&known), |state, _| {
            state.check_live(id)?;
            options.check_operator(state)?;
            state.epoch += 1;
            // Those who compact the table died with its writer, as a rule. What they wrote takes space.
            state.jobs.retain(|job| job.kind == LeaseKind::Ingestion);
            state.log.push(LogStart { epoch: state.epoch, segment: 0 });
            Ok((state.epoch, state.open_job(LeaseKind::Writer, None)))
        })?;
        let is_read_only = false;
        let opened = Opened { environment, id, cache, options, epoch, job, lock, is_read_only };
        let table = Table::of(opened, manifest);
        table.recover()?;
        Ok(table)
    }

    /// Returns a table that has nothing of its logs yet.
    fn of(opened: Opened<'_>, manifest: Manifest) -> Self {
        let Opened { environment, id, cache, options, epoch, job, lock, is_read_only } = opened;
        let view = Layers::of(&manifest.state, &cache, options.operator.clone());
        let own = || Arc::new(MemtableBudget::of_one(options.memory_bytes));
        let share = Share::of(options.budget.clone().unwrap_or_else(own));
        let write = Write {
            active: Arc::default(),
            frozen: VecDeque::new(),
            recovered: 0,
            frozen_count: 0,
            marks: VecDeque::new(),
            sequence: 0,
            pending: Vec::new(),
            pending_bytes: 0,
            readers: BTreeMap::new(),
            frozen_bytes: 0,
            owed: Duration::ZERO,
            range: manifest.state.range.clone(),
            is_short: false,
            ended: None,
        };
        let mut log = LogWriter::new(environment.clone(), id, epoch);
        log.note_flushed(manifest.state.size_bytes(), 0);
        Table {
            environment: environment.clone(),
            id,
            options,
            cache,
            epoch,
            flushing: Mutex::new(Flushing {
                job,
                next_sstable: AtomicU32::new(0),
                manifest: Arc::new(manifest),
            }),
            log: Mutex::new(log),
            old_segments: OldSegments::default(),
            durable: Durable::default(),
            write: Arc::new(Mutex::new(write)),
            view: RwLock::new(Arc::new(view)),
            share,
            is_read_only,
            is_past: false,
            _lock: lock,
        }
    }

    /// Returns the table's id.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Returns which of the table's openings for writing this is, counted from 1.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns what the table runs on.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns the latest manifest that this process knows.
    pub fn manifest(&self) -> Arc<Manifest> {
        self.flushing.lock().manifest.clone()
    }

    /// Reserves a run of numbers for this table, as [`reserve_numbers`](crate::reserve_numbers) does.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and if the table is read alone.
    pub fn reserve_numbers(&self, layout: &RunLayout, from: u64) -> Result<Option<Range<u64>>> {
        self.check_writable()?;
        crate::numbers::reserve_numbers(&self.environment, self.id, layout, from)
    }

    /// Returns all reserved runs of numbers of the storage, in order.
    ///
    /// # Errors
    ///
    /// Fails as storage does.
    pub fn reserved_numbers(&self) -> Result<Vec<Range<u64>>> {
        crate::numbers::reserved_numbers(&*self.environment.storage, 0)
    }

    fn check_writer(&self, state: &State) -> Result<()> {
        state.check_live(self.id)?;
        match state.epoch == self.epoch {
            true => Ok(()),
            false => {
                let times = state.epoch.saturating_sub(self.epoch);
                Err(Fenced::Reopened { table: self.id, times }.into())
            }
        }
    }

    /// Makes a batch of changes, all or none of which is ever seen. If it is deferred, nothing was
    /// changed. One of more than [`BATCH_BYTES_MAX`] is refused.
    ///
    /// # Errors
    ///
    /// Fails with `Deferred` if storage takes nothing now, and with `Fenced` if another process has
    /// taken over the table: that one may have the batch or not, if it was to be durable. Fails with
    /// `Invalid` if the batch is too large, or a key lies outside of the table's range.
    pub fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.apply(batch, durability, false)
    }

    /// Does the same with a batch that frees space: where storage is full, the log has some room
    /// left for these.
    ///
    /// # Errors
    ///
    /// Fails with `Deferred` if storage takes nothing now, and with `Fenced` if another process has
    /// taken over the table. Fails with `Invalid` if the batch is too large, or a key lies outside of
    /// the table's range.
    pub fn write_freeing(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.apply(batch, durability, true)
    }

    fn apply(&self, batch: &Batch, durability: Durability, frees: bool) -> Result<()> {
        let length = batch.size_bytes();
        if length > BATCH_BYTES_MAX {
            return Err(Invalid::LargeBatch(length).into());
        }
        self.wait_for_budget();
        let (sequence, is_too_much, delay) = {
            let mut write = self.write.lock();
            if write.is_short {
                drop(write);
                self.catch_up(frees)?;
                write = self.write.lock();
            }
            write.check()?;
            write.check_range(batch)?;
            let (before, readers) = (write.sequence, write.reader_range());
            let operator = self.options.operator.as_deref();
            let sequence = write.active.insert(batch.bytes(), before, readers, operator)?;
            write.sequence = sequence;
            if self.is_read_only {
                return Ok(());
            }
            if write.pending.last().is_none_or(|last| !last.takes(length)) {
                write.pending.push(PendingGroup::default());
            }
            if let Some(last) = write.pending.last_mut() {
                last.bytes.extend_from_slice(batch.bytes());
            }
            write.pending_bytes += length;
            if write.active.bytes() >= self.options.memtable_bytes {
                self.freeze(&mut write);
            }
            let is_too_much = write.pending_bytes >= self.options.log_buffer_bytes;
            self.account(&write);
            (sequence, is_too_much, write.delay(length, self.share.budget()))
        };
        if !delay.is_zero() {
            self.environment.clock.sleep(delay);
        }
        match durability {
            // Everybody sees it already.
            Durability::Durable => self.sync_to(sequence).map_err(Error::undeferred),
            Durability::Visible if is_too_much => match self.sync_to(sequence) {
                // The next writer gets the error.
                Err(Error::Deferred { .. }) => Ok(()),
                synced => synced,
            },
            Durability::Visible => Ok(()),
        }
    }

    /// Waits while the memtables of all tables take more than they may. The table that takes most is
    /// flushed by its own writers.
    fn wait_for_budget(&self) {
        for _ in 0..BUDGET_WAITS {
            if self.is_read_only || !self.share.budget().is_used_up() {
                return;
            }
            let is_flushed = self.share.is_largest() && self.flush().is_ok();
            if !is_flushed {
                self.environment.clock.sleep(WAIT_MAX);
            }
        }
    }

    /// Notes what the table takes of the budget now.
    fn account(&self, write: &Write) {
        match self.is_read_only || write.ended.is_some() {
            true => self.share.set(0, 0),
            false => {
                let waiting = write.frozen_bytes + write.pending_bytes as u64;
                self.share.set(write.active.bytes(), waiting);
            }
        }
    }

    /// Lets the active memtable get no more records.
    fn freeze(&self, write: &mut Write) {
        if write.active.is_empty() {
            return;
        }
        let memtable = std::mem::take(&mut write.active);
        write.frozen_bytes += memtable.bytes();
        write.frozen_count += 1;
        write.frozen.push_back(Frozen { memtable, log_segment: None, run: None });
        match write.pending.last_mut() {
            Some(last) if !last.ends_segment => last.ends_segment = true,
            _ => write.pending.push(PendingGroup { ends_segment: true, ..PendingGroup::default() }),
        }
        self.account(write);
        let mut view = self.view.write();
        *view = Arc::new(Layers { memtables: write.memtables(), ..Layers::clone(&view) });
    }

    /// Shows readers the runs of a manifest and the memtables as they are now, at once: `write` is
    /// locked, so that nobody else shows others meanwhile.
    fn publish(&self, write: &mut Write, manifest: &Manifest) {
        write.range.clone_from(&manifest.state.range);
        self.account(write);
        let runs = Layers::of(&manifest.state, &self.cache, self.options.operator.clone());
        let view = Arc::new(Layers { memtables: write.memtables(), ..runs });
        // Free the view shown before only after releasing the view's lock.
        let _before = std::mem::replace(&mut *self.view.write(), view);
    }

    /// Takes over what other processes committed: their compactions, for example.
    ///
    /// # Errors
    ///
    /// Fails with `Fenced` if another process has taken over the table, with `NotFound` if it was
    /// deleted, and as storage does.
    pub fn refresh(&self) -> Result<()> {
        let mut flushing = self.flushing.lock();
        let manifest = current(&self.environment, self.id)?;
        self.check_writer(&manifest.state).inspect_err(|error| self.fail(error))?;
        let mut jobs = manifest.state.jobs.iter();
        if let Some(job) = jobs.find(|job| job.kind == LeaseKind::Writer && job.id != flushing.job)
        {
            // A flush whose outcome was not known has opened it.
            (flushing.job, flushing.next_sstable) = (job.id, AtomicU32::new(0));
        }
        flushing.manifest = Arc::new(manifest);
        let mut write = self.write.lock();
        write.forget_flushed(&flushing.manifest.state.log);
        self.publish(&mut write, &flushing.manifest);
        Ok(())
    }

    /// Takes over what other processes committed, if they did, and returns the number of the version
    /// that is known then.
    ///
    /// # Errors
    ///
    /// Fails with `Fenced` if another process has taken over the table, with `NotFound` if it was
    /// deleted, and as storage does.
    pub fn refresh_if_changed(&self) -> Result<u64> {
        let known = self.manifest().version.number;
        if latest_version(&self.environment, self.id, known)? > known {
            self.refresh()?;
        }
        Ok(self.manifest().version.number)
    }

    /// Returns whether nothing can be written any more, since another process opened the table or
    /// the log failed.
    pub fn has_ended(&self) -> bool {
        self.write.lock().ended.is_some()
    }

    /// Returns whether the log has room only for changes that free space, as far as is known.
    pub fn is_short(&self) -> bool {
        self.write.lock().is_short
    }

    /// Returns what compactions of this table need.
    pub(crate) fn parts(&self) -> (&Environment, TableId, &Arc<SstableCache>, &Options) {
        (&self.environment, self.id, &self.cache, &self.options)
    }

    /// Returns what the memtables and the pending changes take of the budget.
    pub(crate) fn share(&self) -> &Arc<Share> {
        &self.share
    }

    /// Returns how much memory the memtables take, in bytes.
    pub fn memtable_bytes(&self) -> u64 {
        let write = self.write.lock();
        let frozen = write.frozen.iter().map(|frozen| frozen.memtable.bytes());
        write.active.bytes() + frozen.sum::<u64>()
    }
}

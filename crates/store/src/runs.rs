//! SSTables that are open, and runs of them.

use crate::environment::Environment;
use crate::error::Result;
use crate::key::{KeyRange, KeyRef};
use crate::manifest::{Run, SstableId, SstableRef};
use crate::record::{Op, RecordRef};
use crate::scan::{Direction, Source};
use crate::sstable::{BlockCache, Cursor, EMPTY, FilterBlock, Sstable, SstableInfo, passes};
use foldhash::fast::RandomState;
use quick_cache::Lifecycle;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The SSTables of any tables that a process has open.
pub struct SstableCache {
    environment: Environment,
    blocks: Arc<BlockCache>,
    open: quick_cache::sync::Cache<SstableId, Arc<Sstable>, ByTail, RandomState, InUse>,
    /// Weight of the SSTables that stay open for as long as their tables have them.
    kept_bytes: AtomicU64,
}

/// Weighs open SSTables by the memory that they take.
#[derive(Clone)]
struct ByTail;

impl quick_cache::Weighter<SstableId, Arc<Sstable>> for ByTail {
    fn weight(&self, _id: &SstableId, sstable: &Arc<Sstable>) -> u64 {
        open_bytes(sstable.info())
    }
}

/// Keeps SSTables that somebody has: to forget them would free no memory.
#[derive(Clone)]
struct InUse;

impl Lifecycle<SstableId, Arc<Sstable>> for InUse {
    type RequestState = ();

    fn is_pinned(&self, _id: &SstableId, sstable: &Arc<Sstable>) -> bool {
        Arc::strong_count(sstable) > 1
    }

    fn on_evict(&self, (): &mut (), _id: SstableId, _sstable: Arc<Sstable>) {}
}

/// Returns what an open SSTable counts for. Each has a file open, too.
fn open_bytes(info: &SstableInfo) -> u64 {
    info.tail_bytes.max(64 << 10)
}

/// Blocks of files take no more than this: the system caches them too, in less memory, and more
/// blocks than the processor's caches hold make look-ups slower (measured on 20 million inodes:
/// 300,000 a second with these, 200,000 with 480 MiB).
const NEAR_BLOCKS_BYTES: u64 = 32 << 20;

/// The filters of so many runs are asked together.
const ASKED_RUNS: usize = 16;

/// Open SSTables have about so many bytes of index and filter each.
const TAIL_BYTES: usize = 1 << 20;

impl SstableCache {
    /// Returns a place for open SSTables and their blocks that takes `memory_bytes` at most, half
    /// for each.
    pub fn new(environment: &Environment, memory_bytes: u64) -> Arc<Self> {
        let half = memory_bytes / 2;
        let blocks_bytes = match environment.storage.opens_files() {
            true => half.min(NEAR_BLOCKS_BYTES),
            false => half,
        };
        let count = usize::try_from(half).unwrap_or(usize::MAX) / TAIL_BYTES;
        Arc::new(SstableCache {
            environment: environment.clone(),
            blocks: Arc::new(BlockCache::new(blocks_bytes)),
            open: quick_cache::sync::Cache::with(
                count.max(64),
                half,
                ByTail,
                RandomState::default(),
                InUse,
            ),
            kept_bytes: AtomicU64::new(0),
        })
    }

    /// Reads the blocks that look-ups of `keys` in `runs` would wait for, together. Returns their
    /// SSTables, to be kept open until then. Look-ups find out what is missing: they may not need
    /// it.
    pub(crate) fn preload(
        &self,
        runs: &[OpenRun],
        keys: &[KeyRef<'_>],
    ) -> Result<Vec<Arc<Sstable>>> {
        match self.try_preload(runs, keys) {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            preloaded => preloaded,
        }
    }

    fn try_preload(&self, runs: &[OpenRun], keys: &[KeyRef<'_>]) -> Result<Vec<Arc<Sstable>>> {
        let mut blocks = BTreeMap::new();
        for run in runs {
            for key in keys {
                let Some(at) = run.sstable_of(*key) else { continue };
                let sstable = run.open(at)?;
                if let Some(block) = sstable.awaited_block(*key) {
                    blocks.insert((run.run.sstables[at].id, block), sstable.into_owned());
                }
            }
        }
        let blocks = blocks.into_iter().map(|((_, block), sstable)| (sstable, block));
        let blocks = Vec::from_iter(blocks);
        // One alone is read when it is looked at.
        if blocks.len() > 1 {
            Sstable::preload(&*self.environment.storage, &blocks)?;
        }
        Ok(blocks.into_iter().map(|(sstable, _)| sstable).collect())
    }

    /// Returns an SSTable, open.
    fn get(&self, sstable: &SstableRef) -> Result<Arc<Sstable>> {
        let SstableId { table, name } = sstable.id;
        self.open.get_or_insert_with(&sstable.id, || {
            let storage = self.environment.storage.clone();
            let name = table.sstable(name);
            Sstable::open(storage, name, &sstable.info, self.blocks.clone()).map(Arc::new)
        })
    }

    /// Takes room for an SSTable that stays open. Others need an eighth of all.
    fn keep(self: &Arc<Self>, sstable: &Arc<Sstable>) -> Option<Kept> {
        let bytes = open_bytes(sstable.info());
        let most = self.open.capacity() - self.open.capacity() / 8;
        let kept = Kept { bytes, cache: self.clone(), sstable: sstable.clone() };
        let before = self.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= most).then_some(kept)
    }

    /// Closes SSTables that were removed from storage: while one is open, its file takes space.
    pub fn close_removed(&self) {
        self.open.retain(|_, sstable| !sstable.is_removed());
    }
}

/// An SSTable that stays open.
struct Kept {
    sstable: Arc<Sstable>,
    bytes: u64,
    cache: Arc<SstableCache>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.cache.kept_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A run, with what opens its SSTables.
#[derive(Clone)]
pub(crate) struct OpenRun {
    pub(crate) run: Run,
    cache: Arc<SstableCache>,
    /// A place for each SSTable to stay open in; none if they may be too many.
    kept: Arc<[OnceLock<Kept>]>,
}

/// Result of a look-up in a run.
pub(crate) enum FoundInRun {
    /// Nothing: older runs say more.
    Older,
    /// This record.
    Record(Op, Vec<u8>),
    /// Nothing, and nothing older counts.
    Nothing,
}

impl OpenRun {
    pub(crate) fn new(run: Run, cache: Arc<SstableCache>) -> Self {
        OpenRun { run, cache, kept: Arc::new([]) }
    }

    /// Returns runs that look-ups go through. Where the cache has room for all their SSTables, they
    /// stay open once they are, as far as other tables leave room: most look-ups ask each run, and
    /// asking the cache takes longer than asking the filter.
    pub(crate) fn all(runs: &[Run], cache: &Arc<SstableCache>) -> Vec<Self> {
        let sstables = runs.iter().flat_map(|run| &run.sstables);
        let bytes = sstables.map(|one| open_bytes(&one.info)).sum::<u64>();
        let are_kept = bytes <= cache.open.capacity();
        let runs = runs.iter().map(|run| {
            let count = if are_kept { run.sstables.len() } else { 0 };
            let kept = (0..count).map(|_| OnceLock::new()).collect();
            OpenRun { kept, ..OpenRun::new(run.clone(), cache.clone()) }
        });
        runs.collect()
    }

    /// Returns where the SSTables of this run are open.
    pub(crate) fn cache(&self) -> &SstableCache {
        &self.cache
    }

    /// Returns which SSTable would have a key.
    fn sstable_of(&self, key: KeyRef<'_>) -> Option<usize> {
        let sstables = &self.run.sstables;
        let after = sstables.partition_point(|one| one.range.start.as_ref() <= key);
        let at = after.checked_sub(1)?;
        sstables[at].range.contains(key).then_some(at)
    }

    /// Returns one of the SSTables, open.
    fn open(&self, at: usize) -> Result<Cow<'_, Arc<Sstable>>> {
        let slot = self.kept.get(at);
        if let Some(kept) = slot.and_then(OnceLock::get) {
            return Ok(Cow::Borrowed(&kept.sstable));
        }
        let sstable = self.cache.get(&self.run.sstables[at])?;
        Ok(match slot.and_then(|slot| Some((slot, self.cache.keep(&sstable)?))) {
            Some((slot, kept)) => Cow::Borrowed(&slot.get_or_init(|| kept).sstable),
            None => Cow::Owned(sstable),
        })
    }

    /// Returns those of `runs` that may say something of a key, in their order. The filters of some
    /// runs are read before any is looked at: they lie anywhere in memory, and here the processor
    /// waits for all of them at once.
    pub(crate) fn asked<'a>(
        runs: &'a [Self],
        key: KeyRef<'a>,
        fingerprint: u64,
    ) -> impl Iterator<Item = &'a Self> {
        runs.chunks(ASKED_RUNS).flat_map(move |runs| {
            let mut blocks = [None; ASKED_RUNS];
            for (block, run) in blocks.iter_mut().zip(runs) {
                *block = run.filter_block(key, fingerprint);
            }
            let is_asked = blocks.map(|block| block.is_none_or(|block| passes(block, fingerprint)));
            runs.iter().zip(is_asked).filter_map(|(run, is_asked)| is_asked.then_some(run))
        })
    }

    /// Returns the bits of a filter that show whether the run may contain a key; none if it has to
    /// be read.
    fn filter_block(&self, key: KeyRef<'_>, fingerprint: u64) -> Option<&FilterBlock> {
        let Some(at) = self.sstable_of(key) else { return Some(&EMPTY) };
        let sstable = &self.kept.get(at)?.get()?.sstable;
        let has_deletes = !sstable.range_deletes().is_empty();
        sstable.filter_block(fingerprint).filter(|_| !has_deletes)
    }

    /// Returns the record of a key, which has the `fingerprint`, and whether range deletes of this
    /// run hide older ones.
    pub(crate) fn get(&self, key: KeyRef<'_>, fingerprint: u64) -> Result<(FoundInRun, bool)> {
        let Some(at) = self.sstable_of(key) else { return Ok((FoundInRun::Older, false)) };
        let sstable = self.open(at)?;
        let hides = sstable.range_deletes().iter().any(|range| range.contains(key));
        Ok(match sstable.find(key, fingerprint)? {
            Some((op, value)) => (FoundInRun::Record(op, value), hides),
            None if hides => (FoundInRun::Nothing, true),
            None => (FoundInRun::Older, false),
        })
    }

    /// Returns the parts of a range whose older records do not count.
    pub(crate) fn range_deletes(&self, range: &KeyRange) -> Result<Vec<KeyRange>> {
        let mut all = Vec::new();
        for reference in &self.run.sstables {
            let range = reference.range.intersection(range);
            if reference.info.range_deletes == 0 || range.is_empty() {
                continue;
            }
            let sstable = self.cache.get(reference)?;
            let parts = sstable.range_deletes().iter().map(|one| one.intersection(&range));
            all.extend(parts.filter(|part| !part.is_empty()));
        }
        Ok(all)
    }

    /// Returns the run's records in a range.
    pub(crate) fn source(&self, range: &KeyRange, direction: Direction) -> Result<RunSource> {
        let sstables = self.run.sstables.iter();
        let parts = sstables.map(|one| (one.clone(), one.range.intersection(range)));
        let mut parts = Vec::from_iter(parts.filter(|(_, range)| !range.is_empty()));
        // They are taken from the end.
        if direction == Direction::Forward {
            parts.reverse();
        }
        let mut source = RunSource { cache: self.cache.clone(), parts, direction, cursor: None };
        source.open_next()?;
        Ok(source)
    }
}

/// The records of a run, one SSTable after the other.
pub(crate) struct RunSource {
    cache: Arc<SstableCache>,
    /// The SSTables that are left, with the ranges to read, the next one last.
    parts: Vec<(SstableRef, KeyRange)>,
    direction: Direction,
    cursor: Option<Cursor>,
}

impl RunSource {
    /// Goes to the first record of the next SSTable that has one.
    fn open_next(&mut self) -> Result<()> {
        self.cursor = None;
        while let Some((reference, range)) = self.parts.pop() {
            let mut cursor = self.cache.get(&reference)?.cursor(range);
            if self.direction == Direction::Backward {
                cursor.to_end();
            }
            if step(&mut cursor, self.direction)? {
                self.cursor = Some(cursor);
                break;
            }
        }
        Ok(())
    }
}

impl Source for RunSource {
    fn record(&self) -> Option<RecordRef<'_>> {
        self.cursor.as_ref()?.record()
    }

    fn advance(&mut self) -> Result<()> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        match step(cursor, self.direction)? {
            true => Ok(()),
            false => self.open_next(),
        }
    }
}

/// Goes to the next record and returns whether there is one.
fn step(cursor: &mut Cursor, direction: Direction) -> Result<bool> {
    match direction {
        Direction::Forward => cursor.advance(),
        Direction::Backward => cursor.retreat(),
    }
}

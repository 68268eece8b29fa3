//! SSTables that are open, and runs of them.

use crate::environment::Environment;
use crate::error::Result;
use crate::key::{KeyRange, KeyRef};
use crate::manifest::{Run, SstableId, SstableRef};
use crate::record::{Op, RecordRef};
use crate::scan::{Direction, Source};
use crate::sstable::{BlockCache, Cursor, Sstable};
use foldhash::fast::RandomState;
use quick_cache::sync::DefaultLifecycle;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The SSTables of any tables that a process has open.
pub struct SstableCache {
    environment: Environment,
    blocks: Arc<BlockCache>,
    open: quick_cache::sync::Cache<SstableId, Arc<Sstable>, ByTail, RandomState>,
}

/// What an open SSTable takes in memory.
#[derive(Clone)]
struct ByTail;

impl quick_cache::Weighter<SstableId, Arc<Sstable>> for ByTail {
    fn weight(&self, _id: &SstableId, sstable: &Arc<Sstable>) -> u64 {
        // Each has a file open, too.
        sstable.info().tail_bytes.max(64 << 10)
    }
}

/// Blocks of files take no more than this: the system caches them too, in less memory, and more
/// blocks than the processor's caches hold make look-ups slower (measured on 20 million inodes:
/// 300,000 a second with these, 200,000 with 480 MiB).
const NEAR_BLOCKS_BYTES: u64 = 32 << 20;

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
                DefaultLifecycle::default(),
            ),
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
                let Some(reference) = run.sstable_of(*key) else { continue };
                let sstable = self.get(reference)?;
                if let Some(block) = sstable.awaited_block(*key) {
                    blocks.insert((reference.id, block), sstable);
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

    /// Closes SSTables that were removed from storage: while one is open, its file takes space.
    pub fn close_removed(&self) {
        self.open.retain(|_, sstable| !sstable.is_removed());
    }
}

/// A run, with what opens its SSTables.
#[derive(Clone)]
pub(crate) struct OpenRun {
    pub(crate) run: Run,
    cache: Arc<SstableCache>,
}

/// What a run says of a key.
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
        OpenRun { run, cache }
    }

    /// Returns where the SSTables of this run are open.
    pub(crate) fn cache(&self) -> &SstableCache {
        &self.cache
    }

    /// Returns the SSTable that would have a key.
    fn sstable_of(&self, key: KeyRef<'_>) -> Option<&SstableRef> {
        let sstables = &self.run.sstables;
        let after = sstables.partition_point(|one| one.range.start.as_ref() <= key);
        sstables.get(after.checked_sub(1)?).filter(|one| one.range.contains(key))
    }

    /// Returns the record of a key, and whether range deletes of this run hide older ones.
    pub(crate) fn get(&self, key: KeyRef<'_>) -> Result<(FoundInRun, bool)> {
        let Some(reference) = self.sstable_of(key) else { return Ok((FoundInRun::Older, false)) };
        let sstable = self.cache.get(reference)?;
        let hides = sstable.range_deletes().iter().any(|range| range.contains(key));
        Ok(match sstable.get(key)? {
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

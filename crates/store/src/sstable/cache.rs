//! Blocks that were read lately, of all open SSTables of a process.
//!
//! The operating system caches blocks of local tables too, so only 32 MiB of decoded blocks are
//! kept for them. More would push other data out of the processor's caches and its table of pages.
//! Small tables pay for this: with 2 million records, all of whose blocks would fit, there are
//! 370,000 look-ups a second instead of 590,000. A dropped block lends its memory to the next one.
//! Where reads are requests, blocks may take half of [`SstableCache`](crate::SstableCache).

use super::block::Block;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Typical memory of a block, to guess how many there will be.
const BLOCK_BYTES_GUESS: u64 = 5 << 10;

/// Threads wait for each other less in more shards. A shard takes no block that is larger than it.
const SHARDS_MAX: u64 = 256;
const SHARD_BYTES_MIN: u64 = 2 << 20;

/// Larger memory is given back.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Blocks that look-ups have read, within a budget of memory. Share one in a process.
pub struct BlockCache {
    blocks: Cache<BlockId, Arc<Block>, Memory, RandomState, Evictions>,
    spare: Mutex<Spare>,
    /// How many SSTables were opened: each has a number of its own here.
    opened: AtomicU64,
}

/// The number of an SSTable, and that of a block in it.
type BlockId = (u64, u32);

/// Memory for the next block that is read: that of the block which the cache gave up last. To ask an
/// allocator for it takes nearly as long as the read.
#[derive(Default)]
pub(super) struct Spare {
    pub block: Option<Arc<Block>>,
    /// For the bytes that are read.
    pub bytes: Vec<u8>,
}

#[derive(Clone)]
struct Memory;

impl Weighter<BlockId, Arc<Block>> for Memory {
    fn weight(&self, _: &BlockId, block: &Arc<Block>) -> u64 {
        block.memory_bytes() as u64
    }
}

/// Keeps the last block that was given up.
#[derive(Clone)]
struct Evictions;

impl Lifecycle<BlockId, Arc<Block>> for Evictions {
    type RequestState = Option<Arc<Block>>;

    fn on_evict(&self, last: &mut Self::RequestState, _: BlockId, block: Arc<Block>) {
        *last = Some(block);
    }
}

impl BlockCache {
    /// Keeps blocks of `budget_bytes` at most.
    pub fn new(budget_bytes: u64) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((budget_bytes / BLOCK_BYTES_GUESS) as usize)
            .weight_capacity(budget_bytes)
            .shards((budget_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX) as usize)
            .build();
        let options = options.expect("all that it needs is given");
        let hasher = RandomState::default();
        let blocks = Cache::with_options(options, Memory, hasher, Evictions);
        BlockCache { blocks, spare: Mutex::default(), opened: 0.into() }
    }

    pub(super) fn number(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn get(&self, table: u64, block: usize) -> Option<Arc<Block>> {
        self.blocks.get(&(table, block as u32))
    }

    /// Returns a block for a scan, which does not count as use.
    pub(super) fn peek(&self, table: u64, block: usize) -> Option<Arc<Block>> {
        self.blocks.peek(&(table, block as u32))
    }

    /// Returns memory to read a block with, for [`BlockCache::insert`] to get back.
    pub(super) fn take_spare(&self) -> Spare {
        self.spare.try_lock().map_or_else(Spare::default, |mut spare| std::mem::take(&mut *spare))
    }

    pub(super) fn insert(&self, table: u64, block: usize, read: Arc<Block>, mut spare: Spare) {
        let place = (table, block as u32);
        self.blocks.insert_with_lifecycle(place, read, &mut spare.block);
        let block_bytes = spare.block.as_ref().map_or(0, |block| block.memory_bytes());
        if spare.bytes.capacity().max(block_bytes) <= SPARE_BYTES_MAX
            && let Some(mut last) = self.spare.try_lock()
        {
            *last = spare;
        }
    }

    /// Returns the memory that blocks take now.
    pub fn memory_bytes(&self) -> u64 {
        self.blocks.weight()
    }
}

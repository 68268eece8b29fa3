//! Blocks that were read lately, of all open SSTables of a process.

use super::block::Block;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a block takes about, to guess how many there will be.
const BLOCK_BYTES_GUESS: u64 = 12 << 10;

/// Blocks that look-ups have read, within a budget of memory. Share one in a process.
pub struct BlockCache {
    blocks: Cache<(u64, u32), Arc<Block>, Memory>,
    /// How many SSTables were opened: each has a number of its own here.
    opened: AtomicU64,
}

#[derive(Clone)]
struct Memory;

impl Weighter<(u64, u32), Arc<Block>> for Memory {
    fn weight(&self, _: &(u64, u32), block: &Arc<Block>) -> u64 {
        block.memory_bytes() as u64
    }
}

impl BlockCache {
    /// Keeps blocks of `budget_bytes` at most.
    pub fn new(budget_bytes: u64) -> Self {
        let count = (budget_bytes / BLOCK_BYTES_GUESS) as usize;
        BlockCache { blocks: Cache::with_weighter(count, budget_bytes, Memory), opened: 0.into() }
    }

    pub(super) fn number(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn get(&self, table: u64, block: usize) -> Option<Arc<Block>> {
        self.blocks.get(&(table, block as u32))
    }

    /// Returns a block for a scan: that somebody scans tells nothing of what is needed again.
    pub(super) fn peek(&self, table: u64, block: usize) -> Option<Arc<Block>> {
        self.blocks.peek(&(table, block as u32))
    }

    pub(super) fn insert(&self, table: u64, block: usize, read: Arc<Block>) {
        self.blocks.insert((table, block as u32), read);
    }

    /// Returns the memory that blocks take now.
    pub fn memory_bytes(&self) -> u64 {
        self.blocks.weight()
    }
}

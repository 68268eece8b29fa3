//! Going through the records of an SSTable in order, forward and backward.

use super::block::{Block, RECORDS_MAX};
use super::reader::Sstable;
use super::rows::Rows;
use crate::error::Result;
use crate::key::{KeyRange, KeyRef};
use crate::record::RecordRef;
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of blocks read together. Each read is twice as large as the one before up to this, so
/// that a caller who wants a few records does not wait for many.
const READ_BYTES_MAX: u64 = 256 << 10;

/// Like `READ_BYTES_MAX`, where every read is a request to a server.
const FAR_READ_BYTES_MAX: u64 = 4 << 20;

/// Rows decoded at first, then twice as many each time. A caller who wants the beginning of a
/// directory does not wait for a whole block.
const FIRST_ROWS: usize = 24;

/// Stands at a record of a range of keys, or before or after all of them. Decoded blocks do not go
/// into the block cache, so that a scan does not drive out what look-ups use.
pub struct Cursor {
    table: Arc<Sstable>,
    range: KeyRange,
    /// The blocks that may have records in the range.
    blocks: Range<usize>,
    place: CursorPosition,
    /// The block of `place`, if that is at a record.
    block: Arc<Block>,
    /// Its rows in the range.
    rows: Range<usize>,
    /// Some of these, which `decoded` has.
    decoded_rows: Range<usize>,
    decoded: Rows,
    /// How many rows are decoded next.
    next_rows: usize,
    read: Read,
    /// Whether every block is read, also one that is in the cache.
    ignores_cache: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CursorPosition {
    Before,
    At { block: usize, row: usize },
    After,
}

/// Blocks next to each other that were read together.
#[derive(Default)]
struct Read {
    blocks: Range<usize>,
    start: u64,
    bytes: Vec<u8>,
    next_bytes: u64,
}

impl Cursor {
    pub(super) fn new(table: Arc<Sstable>, range: KeyRange) -> Self {
        let index = table.index();
        let first = index.find(range.start.as_ref()).unwrap_or(0);
        let last = match &range.end {
            Some(end) => index.find(end.as_ref()).map_or(0, |last| last + 1),
            None => index.len(),
        };
        let blocks = if range.is_empty() { 0..0 } else { first..last.max(first) };
        Cursor {
            table,
            range,
            blocks,
            place: CursorPosition::Before,
            block: Arc::default(),
            rows: 0..0,
            decoded_rows: 0..0,
            decoded: Rows::default(),
            next_rows: FIRST_ROWS,
            read: Read::default(),
            ignores_cache: false,
        }
    }

    /// Makes the cursor read every block, also one that is in the cache.
    pub(super) fn ignore_cache(&mut self) {
        self.ignores_cache = true;
    }

    /// Returns the block of the record that the cursor stands at.
    pub(super) fn block(&self) -> Option<usize> {
        match self.place {
            CursorPosition::At { block, .. } => Some(block),
            _ => None,
        }
    }

    /// Returns the record that the cursor stands at.
    pub fn record(&self) -> Option<RecordRef<'_>> {
        match self.place {
            CursorPosition::At { row, .. } => self.decoded.record(&self.block, row),
            _ => None,
        }
    }

    /// Goes to the next record, the first one if the cursor stands before all, and returns whether
    /// there is one. After an error it stands before all.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if the file is damaged or missing.
    pub fn advance(&mut self) -> Result<bool> {
        let next = match self.place {
            CursorPosition::Before => self.blocks.start,
            CursorPosition::After => return Ok(false),
            CursorPosition::At { block, row } if row + 1 < self.rows.end => {
                return self.stand_at(block, row + 1, true);
            }
            CursorPosition::At { block, .. } => block + 1,
        };
        self.go_forward(next)
    }

    /// Goes to the record before, the last one if the cursor stands after all, and returns whether
    /// there is one. After an error it stands before all.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if the file is damaged or missing.
    pub fn retreat(&mut self) -> Result<bool> {
        let next = match self.place {
            CursorPosition::Before => return Ok(false),
            CursorPosition::After => self.blocks.end,
            CursorPosition::At { block, row } if row > self.rows.start => {
                return self.stand_at(block, row - 1, false);
            }
            CursorPosition::At { block, .. } => block,
        };
        for block in (self.blocks.start..next).rev() {
            self.enter(block, false)?;
            if let Some(row) = self.rows.clone().next_back() {
                return self.stand_at(block, row, false);
            }
        }
        self.place = CursorPosition::Before;
        Ok(false)
    }

    /// Goes to the first record of the range whose key is not less than `key`, and returns whether
    /// there is one.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if the file is damaged or missing.
    pub fn seek(&mut self, key: KeyRef<'_>) -> Result<bool> {
        let found = self.table.index().find(key).unwrap_or(0).max(self.blocks.start);
        if found >= self.blocks.end {
            self.place = CursorPosition::After;
            return Ok(false);
        }
        match self.place {
            CursorPosition::At { block, .. } if block == found => {}
            _ => self.enter(found, true)?,
        }
        let row = self.block.find(key).0.max(self.rows.start);
        if row < self.rows.end {
            return self.stand_at(found, row, true);
        }
        self.go_forward(found + 1)
    }

    /// Goes before all records of the range.
    pub fn to_start(&mut self) {
        self.place = CursorPosition::Before;
    }

    /// Goes after all records of the range.
    pub fn to_end(&mut self) {
        self.place = CursorPosition::After;
    }

    /// Goes to the first record of block `from` or a later one.
    fn go_forward(&mut self, from: usize) -> Result<bool> {
        for block in from..self.blocks.end {
            self.enter(block, true)?;
            if let Some(row) = self.rows.clone().next() {
                return self.stand_at(block, row, true);
            }
        }
        self.place = CursorPosition::After;
        Ok(false)
    }

    /// Goes to a row of the block that was entered last, and decodes it if that was not done, with
    /// some that come after it in the direction of the cursor. Returns that there is a record.
    #[inline]
    fn stand_at(&mut self, block: usize, row: usize, is_forward: bool) -> Result<bool> {
        if !self.decoded_rows.contains(&row) {
            self.decode(row, is_forward)?;
        }
        self.place = CursorPosition::At { block, row };
        Ok(true)
    }

    fn decode(&mut self, row: usize, is_forward: bool) -> Result<()> {
        self.place = CursorPosition::Before;
        let rows = match is_forward {
            true => row..self.rows.end.min(row + self.next_rows),
            false => self.rows.start.max((row + 1).saturating_sub(self.next_rows))..row + 1,
        };
        self.next_rows = (2 * self.next_rows).min(RECORDS_MAX);
        self.decoded_rows = 0..0;
        let decoded =
            self.decoded.decode(&self.block, rows.clone(), &self.table.properties().layout);
        decoded.map_err(|what| self.table.corrupt(what))?;
        self.decoded_rows = rows;
        Ok(())
    }

    /// Finds the rows of a block that are in the range. Blocks after it are read with it if the
    /// cursor goes forward, otherwise blocks before it.
    fn enter(&mut self, at: usize, is_forward: bool) -> Result<()> {
        (self.place, self.decoded_rows) = (CursorPosition::Before, 0..0);
        let cached = if self.ignores_cache { None } else { self.table.peek(at) };
        match cached {
            Some(block) => self.block = block,
            None => {
                let place = self.read(at, is_forward)?;
                // A block that is in the cache, too, is left alone.
                if Arc::get_mut(&mut self.block).is_none() {
                    self.block = Arc::default();
                }
                let bytes = self.read.bytes.get(place).unwrap_or_default();
                if let Some(block) = Arc::get_mut(&mut self.block) {
                    self.table.load(at, bytes, block)?;
                }
            }
        }
        let is_first = at == self.blocks.start;
        let start = if is_first { self.block.find(self.range.start.as_ref()).0 } else { 0 };
        let end = match &self.range.end {
            Some(end) if at + 1 == self.blocks.end => self.block.find(end.as_ref()).0,
            _ => self.block.len(),
        };
        self.rows = start..end.max(start);
        Ok(())
    }

    /// Reads block `at`, if it was not, and returns where it is in the bytes that were.
    fn read(&mut self, at: usize, is_forward: bool) -> Result<Range<usize>> {
        let index = self.table.index();
        if !self.read.blocks.contains(&at) {
            let wanted_bytes = self.read.next_bytes;
            let size = |blocks: &Range<usize>| {
                index.range(blocks.end - 1).end - index.range(blocks.start).start
            };
            let mut blocks = at..at + 1;
            loop {
                let more = match is_forward {
                    true => blocks.start..blocks.end + 1,
                    false => blocks.start.saturating_sub(1)..blocks.end,
                };
                let is_inside = self.blocks.start <= more.start && more.end <= self.blocks.end;
                if !is_inside || more == blocks || size(&more) > wanted_bytes {
                    break;
                }
                blocks = more;
            }
            let (start, end) = (index.range(blocks.start).start, index.range(blocks.end - 1).end);
            let most = if self.table.is_far() { FAR_READ_BYTES_MAX } else { READ_BYTES_MAX };
            let next_bytes = (2 * (end - start)).max(2 * wanted_bytes).min(most);
            self.read.blocks = 0..0;
            // One long block should not keep its memory for all that follow.
            if self.read.bytes.capacity() as u64 > 2 * next_bytes {
                self.read.bytes = Vec::new();
            }
            self.table.read_range(start..end, &mut self.read.bytes)?;
            (self.read.blocks, self.read.start, self.read.next_bytes) = (blocks, start, next_bytes);
        }
        let range = index.range(at);
        let place = |at: u64| (at - self.read.start) as usize;
        Ok(place(range.start)..place(range.end))
    }
}

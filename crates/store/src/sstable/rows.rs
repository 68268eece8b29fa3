//! Decoded records of a block, their values whole, in memory that is used again for the next block.

use super::block::Block;
use super::wire::Decoded;
use crate::key::KeyRef;
use crate::record::{Layout, Op, RecordRef};
use std::ops::Range;

/// The records of some rows of a block, but for their names, which lie in the block.
#[derive(Default)]
pub(super) struct Rows {
    first: usize,
    directories: Vec<u64>,
    hashes: Vec<u64>,
    ops: Vec<Op>,
    values: Vec<u8>,
    /// Where each value begins, and where the last one ends.
    starts: Vec<usize>,
    columns: Vec<Vec<u64>>,
}

impl Rows {
    /// Decodes `rows` of `block`, in place of what was decoded before.
    pub fn decode(&mut self, block: &Block, rows: Range<usize>, layout: &Layout) -> Decoded<()> {
        self.first = rows.start;
        block.decode_directories(rows.clone(), &mut self.directories);
        block.decode_hashes(rows.clone(), &mut self.hashes);
        block.decode_ops(rows.clone(), &mut self.ops)?;
        let width = if block.is_apart() { layout.width() } else { 0 };
        let mut end = 0;
        self.starts.clear();
        for (row, op) in rows.clone().zip(&self.ops) {
            self.starts.push(end);
            if *op != Op::Delete {
                end += width + block.tail(row).len();
            }
        }
        self.starts.push(end);
        // A delete's columns are put where the next value begins, which then overwrites them.
        self.values.resize(end + width, 0);
        if block.is_apart() {
            self.decode_columns(block, rows.clone(), layout);
        }
        self.copy_tails(block, rows, width);
        Ok(())
    }

    fn decode_columns(&mut self, block: &Block, rows: Range<usize>, layout: &Layout) {
        self.columns.resize_with(layout.columns.len(), Vec::new);
        let mut offset = 0;
        for (at, column) in layout.columns.iter().enumerate() {
            let (before, rest) = self.columns.split_at_mut(at);
            let Some(numbers) = rest.first_mut() else { return };
            let is_near = block.decode_column(at, rows.clone(), numbers);
            if let Some(near) = column.near.and_then(|near| before.get(usize::from(near)))
                && is_near
            {
                for (number, near) in numbers.iter_mut().zip(near) {
                    *number = number.wrapping_add(*near);
                }
            }
            match column.width {
                1 => scatter::<1>(numbers, &self.starts, offset, &mut self.values),
                2 => scatter::<2>(numbers, &self.starts, offset, &mut self.values),
                4 => scatter::<4>(numbers, &self.starts, offset, &mut self.values),
                _ => scatter::<8>(numbers, &self.starts, offset, &mut self.values),
            }
            offset += usize::from(column.width);
        }
    }

    fn copy_tails(&mut self, block: &Block, rows: Range<usize>, width: usize) {
        if !block.has_tails() {
            return;
        }
        for ((row, start), op) in rows.zip(&self.starts).zip(&self.ops) {
            let tail = block.tail(row);
            let start = start + width;
            if let Some(place) = self.values.get_mut(start..start + tail.len())
                && *op != Op::Delete
            {
                place.copy_from_slice(tail);
            }
        }
    }

    /// Returns the record of `row` of the block, which is one of those that were decoded.
    pub fn record<'a>(&'a self, block: &'a Block, row: usize) -> Option<RecordRef<'a>> {
        let at = row.checked_sub(self.first)?;
        let (directory, hash) = (*self.directories.get(at)?, *self.hashes.get(at)?);
        let value = self.values.get(*self.starts.get(at)?..*self.starts.get(at + 1)?)?;
        let key = KeyRef { directory, hash, name: block.name(row) };
        Some(RecordRef { key, op: *self.ops.get(at)?, value })
    }
}

/// Writes each number at its row's start and `offset`.
fn scatter<const N: usize>(numbers: &[u64], starts: &[usize], offset: usize, out: &mut [u8]) {
    for (number, start) in numbers.iter().zip(starts) {
        let place = out.get_mut(start + offset..).and_then(|rest| rest.first_chunk_mut::<N>());
        if let (Some(place), Some(bytes)) = (place, number.to_le_bytes().first_chunk()) {
            *place = *bytes;
        }
    }
}

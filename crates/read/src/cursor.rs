//! Rows of one file of a shard, taken some at a time, with as much in memory as its user can spare.

use crate::error::{Error, Result};
use crate::plan::take_first;
use arrow::array::RecordBatch;
use canopy_index::{Columns, FileKind, RowRange, Shard};
use std::collections::VecDeque;

/// Reads ranges of rows in chunks. Between chunks it holds no reader, which would keep a page of
/// every column.
pub struct Cursor<'a> {
    shard: &'a Shard,
    kind: FileKind,
    columns: Columns,
    left: VecDeque<RowRange>,
    chunk_rows: usize,
    batches: VecDeque<RecordBatch>,
    /// First row of the first batch that was not taken.
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Begins at the first of some rows, in ranges that are sorted and disjoint, none empty.
    pub fn new(
        shard: &'a Shard,
        kind: FileKind,
        columns: Columns,
        rows: Vec<RowRange>,
        chunk_rows: usize,
    ) -> Self {
        let (left, batches) = (rows.into(), VecDeque::new());
        Cursor { shard, kind, columns, left, chunk_rows, batches, at: 0 }
    }

    /// Gives the next `count` rows, as ranges of batches. It is an error if there are not so many.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the file has too few rows or cannot be read, and with the first error
    /// of `take`.
    pub fn take<E: From<Error>>(
        &mut self,
        mut count: usize,
        mut take: impl FnMut(&RecordBatch, RowRange) -> Result<(), E>,
    ) -> Result<(), E> {
        while count > 0 {
            let Some(batch) = self.batches.front() else {
                self.read()?;
                continue;
            };
            let end = batch.num_rows().min(self.at + count);
            take(batch, self.at..end)?;
            count -= end - self.at;
            self.at = end;
            if end == batch.num_rows() {
                self.batches.pop_front();
                self.at = 0;
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        if self.left.is_empty() {
            return Err(self.shard.corrupt(self.kind, "it has too few rows").into());
        }
        let chunk = take_first(&mut self.left, self.chunk_rows);
        let read = self.shard.read(self.kind, self.columns, &chunk, self.chunk_rows)?;
        self.batches = read.collect::<canopy_index::Result<_>>()?;
        self.batches.retain(|batch| batch.num_rows() > 0);
        if self.batches.is_empty() {
            return Err(self.shard.corrupt(self.kind, "rows are missing").into());
        }
        Ok(())
    }
}

//! Sparse files.

use super::*;
use canopy_index::column::{BLOCKS, MODE, SIZE};

/// Regular files that take less space than their size.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Sparse {
    count: i64,
    /// Bytes of their sizes that take no space.
    saved_bytes: i128,
    largest: Vec<ListedEntry>,
}

/// Rows of these files, collected in the pass.
pub(in crate::report) struct SparseRows {
    saved_bytes: i128,
    rows: FlaggedRows,
}

impl EntryCollector for SparseRows {
    fn new(scope: &Scope<'_>) -> Self {
        SparseRows { saved_bytes: 0, rows: FlaggedRows::new(scope.options.top) }
    }

    fn columns(&self, _: &CoveredFile<'_>) -> Result<Columns> {
        Ok(MODE | SIZE | BLOCKS)
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        let (sizes, blocks) = (SIZE.of(batch.batch)?, BLOCKS.of(batch.batch)?);
        for &at in &batch.files {
            let saved = sizes[at].saturating_sub(blocks[at].saturating_mul(512));
            if saved > 0 {
                self.saved_bytes = self.saved_bytes.saturating_add(saved.into());
                self.rows.add(saved, batch.id(at));
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.saved_bytes = self.saved_bytes.saturating_add(other.saved_bytes);
        self.rows.merge(other.rows);
    }

    fn lists(&mut self) -> Vec<&mut TopK> {
        vec![&mut self.rows.first]
    }
}

impl ReportSection for Sparse {
    const TITLE: &'static str = "Sparse files";
    const NEEDS: &'static [Need] = &[Need::Entries];
    type Entries = SparseRows;

    fn answer(facts: &mut Facts<'_>, found: SparseRows) -> Result<Option<Self>> {
        let Flagged { count, first } = found.rows.answer(facts);
        Ok(Some(Sparse { count, saved_bytes: found.saved_bytes, largest: first }))
    }

    fn blocks(&self) -> Vec<Block> {
        let known = Block::Facts(vec![
            (count(self.count), "files that take less space than their size"),
            (size(self.saved_bytes), "less"),
        ]);
        vec![known, entries_table(&self.largest).block()]
    }
}

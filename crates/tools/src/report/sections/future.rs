//! Files that were modified in the future.

use super::*;
use crate::report::entries::may_exceed;
use canopy_index::column::{MODE, MTIME};

/// Regular files that were modified after the scan began.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Future(Flagged);

/// Rows of these files, collected in the pass.
pub(in crate::report) struct FutureRows(FlaggedRows);

impl EntryCollector for FutureRows {
    fn new(scope: &Scope<'_>) -> Self {
        FutureRows(FlaggedRows::new(scope.options.top))
    }

    fn columns(&self, part: &CoveredFile<'_>) -> Result<Columns> {
        Ok((MODE | MTIME).when(may_exceed(part, MTIME, part.start.source.updated_ns)?))
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        // Not read where bounds say that none is in the future.
        let Some(mtimes) = MTIME.find(batch.batch) else { return Ok(()) };
        for &at in batch.files.iter().filter(|&&at| mtimes[at] > batch.updated_ns) {
            self.0.add(mtimes[at], batch.id(at));
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    fn lists(&mut self) -> Vec<&mut TopK> {
        vec![&mut self.0.first]
    }
}

impl ReportSection for Future {
    const TITLE: &'static str = "Modified in the future";
    const NOTE: Option<&'static str> =
        Some("Regular files whose modification time lies after the scan began.");
    const NEEDS: &'static [Need] = &[Need::Entries];
    type Entries = FutureRows;

    fn answer(facts: &mut Facts<'_>, found: FutureRows) -> Result<Option<Self>> {
        Ok(Some(Future(found.0.answer(facts))))
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks = vec![Block::Facts(vec![(count(self.0.count), "files")])];
        if !self.0.first.is_empty() {
            blocks.push(entries_table(&self.0.first).block());
        }
        blocks
    }
}

//! The largest files.

use super::super::details::ListedEntry;
use super::super::entries::{EntryBatch, EntryCollector, Scope};
use super::super::facts::Facts;
use super::super::parts::Part;
use super::super::top_k::TopK;
use super::super::view::Block;
use super::lists::entries_table;
use super::{Need, ReportSection};
use crate::error::Result;
use canopy_index::Columns;
use canopy_index::column::{MODE, SIZE};
use serde::Serialize;

/// The largest regular files.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Largest(Vec<ListedEntry>);

/// What is collected of them.
pub(in super::super) struct LargestRows(TopK);

impl EntryCollector for LargestRows {
    fn new(scope: &Scope<'_>) -> Self {
        LargestRows(TopK::new(scope.options.top))
    }

    fn columns(&self, _: &Part<'_>) -> Result<Columns> {
        Ok(MODE | SIZE)
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        let sizes = SIZE.of(batch.batch)?;
        batch.files.iter().for_each(|&at| self.0.offer(sizes[at], batch.id(at)));
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    fn lists(&mut self) -> Vec<&mut TopK> {
        vec![&mut self.0]
    }
}

impl ReportSection for Largest {
    const TITLE: &'static str = "Largest files";

    type Entries = LargestRows;

    fn needs(_: bool) -> &'static [Need] {
        &[Need::Entries]
    }

    fn answer(facts: &mut Facts<'_>, rows: LargestRows) -> Result<Option<Self>> {
        Ok(Some(Largest(facts.first_entries(rows.0))))
    }

    fn blocks(&self) -> Vec<Block> {
        vec![entries_table(&self.0).block()]
    }
}

//! Rows with where they are and what is known of their subtree.

use super::candidates::IndexRows;
use super::visit::Visit;
use crate::error::Result;
use crate::find::actions::{SortField, SortKey, Sortable};
use crate::find::path::{file_name, trim_slashes};
use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;
use canopy_index::FileKind;
use canopy_index::column::NAME;
use canopy_model::{Device, SourcePathBuf, escape};
use canopy_read::inode::{InodeColumns, one_row, text_or_empty};
use canopy_read::plan::{Placed, Unit};
use std::sync::Arc;

/// Where a row is.
#[derive(Clone)]
pub(crate) struct Location {
    /// The path as it would be printed, escaped.
    pub(crate) shown: String,
    /// The path in the source.
    pub(crate) path: SourcePathBuf,
    /// How far below the start of the user it is.
    pub(crate) depth: u32,
    /// The device of its directory.
    pub(crate) dev: Device,
}

impl Location {
    /// Looks up where rows of a visit are.
    pub(crate) fn of_rows(visit: &Visit, placed: &Placed) -> Result<Vec<Self>> {
        let names = NAME.of(&placed.batch)?;
        let mut locations = Vec::with_capacity(placed.batch.num_rows());
        for (at, listing) in placed.ordinals()?.iter().enumerate() {
            let head = placed.head(listing)?;
            let path = head.path.child(names.value(at));
            let (shown, depth) = (visit.shown(path.as_path()), visit.depth_of_entries(&head));
            locations.push(Location { shown, path, depth, dev: head.dev.unwrap_or_default() });
        }
        Ok(locations)
    }
}

/// Selected rows, all directories or all not, with all that tests and actions may ask of them.
#[derive(Clone)]
pub(crate) struct Chunk {
    pub(crate) visit: Arc<Visit>,
    pub(crate) batch: RecordBatch,
    /// Location of each row.
    pub(crate) locations: Vec<Location>,
    dirs: bool,
    via_link: bool,
}

impl Chunk {
    /// Takes rows of a unit below the start of a visit.
    pub(crate) fn below(visit: &Arc<Visit>, unit: &Unit, placed: Placed) -> Result<Self> {
        let locations = Location::of_rows(visit, &placed)?;
        let dirs = unit.kind == FileKind::Dirs;
        Ok(Chunk { visit: visit.clone(), batch: placed.batch, locations, dirs, via_link: false })
    }

    /// Takes the start of a visit itself.
    pub(crate) fn of_start(visit: &Arc<Visit>) -> Self {
        let start = &visit.start;
        let name = escape(trim_slashes(file_name(&start.given)));
        let (shown, path) = (visit.shown_start.clone(), start.path.clone());
        Chunk {
            visit: visit.clone(),
            batch: one_row(&name, &start.inode),
            locations: vec![Location { shown, path, depth: visit.depth, dev: start.inode.dev }],
            dirs: start.is_dir(),
            via_link: visit.via_link,
        }
    }

    /// Returns one row by itself.
    pub(crate) fn only(&self, at: usize) -> Self {
        Chunk {
            visit: self.visit.clone(),
            batch: self.batch.slice(at, 1),
            locations: vec![self.locations[at].clone()],
            ..*self
        }
    }

    /// Returns some of its rows, and lets the memory of the others go.
    pub(crate) fn keep(&self, rows: &[usize]) -> Self {
        let numbers: UInt64Array = rows.iter().map(|&at| at as u64).collect();
        let batch = take_record_batch(&self.batch, &numbers).expect("the batch has these rows");
        let locations = rows.iter().map(|&at| self.locations[at].clone()).collect();
        Chunk { visit: self.visit.clone(), batch, locations, ..*self }
    }

    /// Returns its rows one by one.
    pub(crate) fn each(&self) -> impl Iterator<Item = ChunkRow<'_>> {
        (0..self.len()).map(|at| ChunkRow { chunk: self, at })
    }

    /// Returns how many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// Returns the rows as tests see them.
    pub(crate) fn rows(&self) -> IndexRows<'_> {
        IndexRows {
            batch: &self.batch,
            dirs: self.dirs,
            via_link: self.via_link,
            locations: &self.locations,
            facts: &self.visit.facts,
        }
    }
}

/// One row of a chunk.
#[derive(Clone, Copy)]
pub(crate) struct ChunkRow<'c> {
    pub(crate) chunk: &'c Chunk,
    pub(crate) at: usize,
}

impl Sortable for ChunkRow<'_> {
    fn key(&self, field: &SortField) -> SortKey<'_> {
        let Chunk { batch, locations, .. } = self.chunk;
        let Location { shown, depth, .. } = &locations[self.at];
        let name = || text_or_empty(NAME.find(batch), self.at);
        field.key(shown, name, *depth, || InodeColumns::of(batch).row(self.at))
    }

    fn start(&self) -> usize {
        self.chunk.visit.number
    }

    fn shown(&self) -> &str {
        self.chunk.locations[self.at].shown.trim_end_matches('/')
    }
}

//! Rows with where they are and what is known of their subtree.

use super::candidates::IndexRows;
use super::visit::Visit;
use crate::error::Result;
use crate::find::actions::{SortField, SortKey, Sortable, attribute, match_rank};
use crate::find::path::{file_name, trim_slashes};
use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;
use canopy_index::FileKind;
use canopy_index::column::NAME;
use canopy_model::{escape, join};
use canopy_read::inode::{InodeColumns, one_row};
use canopy_read::plan::{Placed, Unit};
use std::sync::Arc;

/// Where the rows of a batch are.
#[derive(Clone, Default)]
pub(crate) struct Locations {
    /// The path of each as it would be printed, escaped.
    pub(crate) shown: Vec<String>,
    /// The path of each in the source, escaped.
    pub(crate) paths: Vec<String>,
    /// How far below the start of the user each is.
    pub(crate) depths: Vec<u32>,
    /// The device of each one's directory.
    pub(crate) devs: Vec<u64>,
}

impl Locations {
    /// Looks up where rows of a visit are.
    pub(crate) fn of(visit: &Visit, placed: &Placed) -> Result<Self> {
        let names = NAME.of(&placed.batch)?;
        let rows = placed.batch.num_rows();
        let mut locations = Locations {
            shown: Vec::with_capacity(rows),
            paths: Vec::with_capacity(rows),
            depths: Vec::with_capacity(rows),
            devs: Vec::with_capacity(rows),
        };
        for (at, &listing) in placed.ordinals()?.iter().enumerate() {
            let head = placed.head(listing)?;
            let path = join(head.path, names.value(at));
            locations.shown.push(visit.shown(&path));
            locations.paths.push(path);
            locations.depths.push(visit.depth_of_entries(&head));
            locations.devs.extend(head.dev);
        }
        Ok(locations)
    }

    fn of_start(visit: &Visit) -> Self {
        Locations {
            shown: vec![visit.shown_start.clone()],
            paths: vec![visit.start.path.clone()],
            depths: vec![visit.depth],
            devs: vec![visit.start.inode.dev],
        }
    }

    fn keep(&self, rows: &[usize]) -> Self {
        Locations {
            shown: rows.iter().map(|&at| self.shown[at].clone()).collect(),
            paths: rows.iter().map(|&at| self.paths[at].clone()).collect(),
            depths: rows.iter().map(|&at| self.depths[at]).collect(),
            devs: rows.iter().map(|&at| self.devs[at]).collect(),
        }
    }
}

/// Selected rows, all directories or all not, with all that tests and actions may ask of them.
#[derive(Clone)]
pub(crate) struct Chunk {
    pub(crate) visit: Arc<Visit>,
    pub(crate) batch: RecordBatch,
    pub(crate) locations: Locations,
    dirs: bool,
    via_link: bool,
}

impl Chunk {
    /// Takes rows of a unit below the start of a visit.
    pub(crate) fn below(visit: &Arc<Visit>, unit: &Unit, placed: Placed) -> Result<Self> {
        let locations = Locations::of(visit, &placed)?;
        let dirs = unit.kind == FileKind::Dirs;
        Ok(Chunk { visit: visit.clone(), batch: placed.batch, locations, dirs, via_link: false })
    }

    /// Takes the start of a visit itself.
    pub(crate) fn of_start(visit: &Arc<Visit>) -> Self {
        let start = &visit.start;
        let name = escape(trim_slashes(file_name(&start.given)));
        Chunk {
            visit: visit.clone(),
            batch: one_row(&name, &start.inode),
            locations: Locations::of_start(visit),
            dirs: start.is_dir(),
            via_link: visit.via_link,
        }
    }

    /// Returns one row by itself.
    pub(crate) fn only(&self, at: usize) -> Self {
        Chunk {
            visit: self.visit.clone(),
            batch: self.batch.slice(at, 1),
            locations: self.locations.keep(&[at]),
            ..*self
        }
    }

    /// Returns some of its rows, and lets the memory of the others go.
    pub(crate) fn keep(&self, rows: &[usize]) -> Self {
        let numbers: UInt64Array = rows.iter().map(|&at| at as u64).collect();
        let batch = take_record_batch(&self.batch, &numbers).expect("the batch has these rows");
        let locations = self.locations.keep(rows);
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
    fn key(&self, field: &SortField) -> Result<SortKey<'_>> {
        let Chunk { batch, locations, .. } = self.chunk;
        let at = self.at;
        Ok(match field {
            SortField::Path => SortKey::Path(&locations.shown[at]),
            SortField::Depth => SortKey::Number(i64::from(locations.depths[at])),
            SortField::Name => SortKey::Text(NAME.of(batch)?.value(at)),
            SortField::Match(word) => SortKey::Number(match_rank(NAME.of(batch)?.value(at), word)),
            SortField::Attribute(column) => {
                SortKey::Number(attribute(*column)(&InodeColumns::of(batch).row(at)))
            }
        })
    }

    fn start(&self) -> usize {
        self.chunk.visit.number
    }

    fn shown(&self) -> &str {
        self.chunk.locations.shown[self.at].trim_end_matches('/')
    }
}

//! The one pass over entries and directories, for what no stored statistics tell.
//!
//! Reads the columns that sections ask for, and keeps for each section the rows that may be shown,
//! as numbers: what they are called is read afterwards, of those that are shown. Memory: the lists;
//! 8 bytes a regular file where duplicates are asked for; 8 bytes a hard link or symbolic link; 8
//! bytes an entry of the size class that holds the median.

use super::ReportOptions;
use super::parts::{CoveredFile, RowId};
use super::sections::Collected;
use super::statistics::Statistics;
use super::top_k::TopK;
use crate::error::Result;
use arrow::array::RecordBatch;
use canopy_index::column::*;
use canopy_index::{ColumnId, Columns, FileKind};
use canopy_model::{FileType, Totals};
use canopy_read::plan::Unit;
use canopy_read::work::merged;

/// A section's collection in the pass, by one worker at first.
pub(super) trait EntryCollector: Sized + Send {
    /// Whether it looks at directories too.
    const READS_DIRS: bool = false;

    /// Begins with nothing.
    fn new(scope: &Scope<'_>) -> Self;

    /// Gives the columns that it needs of a part.
    fn columns(&self, part: &CoveredFile<'_>) -> Result<Columns>;

    /// Takes in a batch with these columns, others maybe among them.
    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()>;

    /// Takes in what another worker has collected.
    fn merge(&mut self, other: Self);

    /// Gives the lists whose rows are to be read for the answer.
    fn lists(&mut self) -> Vec<&mut TopK> {
        Vec::new()
    }
}

/// Nothing.
impl EntryCollector for () {
    fn new(_: &Scope<'_>) -> Self {}

    fn columns(&self, _: &CoveredFile<'_>) -> Result<Columns> {
        Ok(Columns::NONE)
    }

    fn add(&mut self, _: &EntryBatch<'_>) -> Result<()> {
        Ok(())
    }

    fn merge(&mut self, (): ()) {}
}

/// Context of the pass.
pub(super) struct Scope<'a> {
    pub(super) options: &'a ReportOptions,
    pub(super) statistics: &'a Statistics,
    /// Whether rows with several links are to be kept.
    pub(super) links: bool,
    /// How many entries are read by how many workers.
    pub(super) entries: usize,
    pub(super) workers: usize,
}

/// Results of the pass.
#[derive(Default)]
pub(super) struct FirstPass {
    pub(super) collected: Collected,
    /// Rows with several links.
    pub(super) links: Vec<RowId>,
    /// Directories of the owner, if there is one.
    pub(super) owned_dirs: Totals,
}

/// Reads all parts.
pub(super) fn read(
    parts: &[CoveredFile<'_>],
    options: &ReportOptions,
    statistics: &Statistics,
    links: bool,
) -> Result<FirstPass> {
    let mut units: Vec<(u32, Unit)> = Vec::new();
    for (number, part) in (0..).zip(parts) {
        units.extend(part.units(options.owner)?.into_iter().map(|unit| (number, unit)));
    }
    let workers = options.threads.clamp(1, units.len().max(1));
    let entries = units.iter().filter(|(_, unit)| unit.kind == FileKind::Entries);
    let entries = entries.map(|(_, unit)| unit.row_count()).sum();
    let scope = Scope { options, statistics, links, entries, workers };
    let start = || FirstPass { collected: Collected::new(&scope), ..FirstPass::default() };
    let work = |pass: &mut FirstPass, (number, unit): &(u32, Unit)| -> Result<()> {
        pass.read(*number, &parts[*number as usize], unit, &scope)?;
        unit.close();
        Ok(())
    };
    merged(workers, &units, start, work, FirstPass::merge)
}

impl FirstPass {
    fn read(
        &mut self,
        number: u32,
        part: &CoveredFile<'_>,
        unit: &Unit,
        scope: &Scope<'_>,
    ) -> Result<()> {
        let of_entries = part.kind == FileKind::Entries;
        let owner = scope.options.owner;
        let mut columns = self.collected.columns(part)?;
        columns.add(Columns::from(UID).when(owner.is_some()));
        columns.add((SIZE | BLOCKS).when(owner.is_some() && !of_entries));
        let links = of_entries && scope.links && may_exceed(part, NLINK, 1)?;
        columns.add(Columns::from(NLINK).when(links));
        if columns.is_empty() {
            return Ok(());
        }
        let mut rows = unit.rows.iter().cloned().flatten();
        for batch in unit.read(columns)? {
            let batch = batch?;
            let rows = rows.by_ref().take(batch.num_rows());
            let ids = rows.map(|row| RowId { part: number, row: row as u32 }).collect();
            let batch = EntryBatch::new(&batch, ids, owner, part)?;
            self.collected.add(&batch)?;
            if links {
                let nlinks = NLINK.of(batch.batch)?;
                self.links.extend(batch.ids_where(|at| nlinks[at] > 1));
            }
            if owner.is_some() && !of_entries {
                self.add_dirs(&batch)?;
            }
        }
        Ok(())
    }

    fn add_dirs(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        let (sizes, blocks) = (SIZE.of(batch.batch)?, BLOCKS.of(batch.batch)?);
        for &at in &batch.rows {
            self.owned_dirs += Totals::of_directory(sizes[at], blocks[at]);
        }
        Ok(())
    }

    fn merge(&mut self, other: FirstPass) {
        self.collected.merge(other.collected);
        self.links.extend(other.links);
        self.owned_dirs += other.owned_dirs;
    }
}

/// Returns whether a column may have a value beyond a limit.
pub(super) fn may_exceed(
    part: &CoveredFile<'_>,
    column: impl Into<ColumnId>,
    limit: i64,
) -> Result<bool> {
    let bounds = part.shard.bounds(part.kind, column)?;
    Ok(bounds.iter().any(|bounds| bounds.is_none_or(|(_, max)| max > limit)))
}

/// Rows of entries or directories.
pub(super) struct EntryBatch<'a> {
    pub(super) batch: &'a RecordBatch,
    pub(super) kind: FileKind,
    /// When the scan of their source began.
    pub(super) updated_ns: i64,
    /// The rows to look at.
    pub(super) rows: Vec<usize>,
    /// Those of them that are regular files, if modes were read.
    pub(super) files: Vec<usize>,
    ids: Vec<RowId>,
    base: usize,
}

impl<'a> EntryBatch<'a> {
    fn new(
        batch: &'a RecordBatch,
        ids: Vec<RowId>,
        owner: Option<u32>,
        part: &CoveredFile<'_>,
    ) -> Result<Self> {
        let all = 0..batch.num_rows();
        let rows: Vec<usize> = match owner {
            None => all.collect(),
            Some(owner) => {
                let uids = UID.of(batch)?;
                all.filter(|&at| uids[at] == owner).collect()
            }
        };
        let modes = MODE.find(batch).filter(|_| part.kind == FileKind::Entries);
        let files = modes.map_or(Vec::new(), |modes| {
            rows.iter()
                .copied()
                .filter(|&at| FileType::of_mode(modes[at]) == FileType::Regular)
                .collect()
        });
        let (kind, updated_ns) = (part.kind, part.start.source.updated_ns);
        Ok(EntryBatch { batch, kind, updated_ns, rows, files, ids, base: part.base })
    }

    /// Gives the id of a row.
    pub(super) fn id(&self, at: usize) -> RowId {
        self.ids[at]
    }

    /// Gives the number of a row among those of all parts.
    pub(super) fn number(&self, at: usize) -> usize {
        self.base + self.ids[at].row as usize
    }

    /// Gives the ids of those rows that pass.
    pub(super) fn ids_where(&self, passes: impl Fn(usize) -> bool) -> impl Iterator<Item = RowId> {
        self.rows.iter().filter(move |&&at| passes(at)).map(|&at| self.ids[at])
    }
}

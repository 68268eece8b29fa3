//! The tables of statistics.
//!
//! | table | a row is |
//! | --- | --- |
//! | `summaries` | a directory that can be listed, with statistics of its entries |
//! | `trees` | a directory, with statistics of all entries at and below it |
//!
//! A row of `summaries_by_user`, `summaries_by_group`, `trees_by_user` or `trees_by_group` is such
//! a directory and an owner or group of those entries. All tables have `path` (absolute), `source`
//! and `depth`, and the columns of [`STATISTICS`]. In `trees`, `entries`, `size` and `blocks` count
//! hard links once, as du does. Every other statistic, and all of the tables by owner and group,
//! count each name.

use super::places::SourceScope;
use super::provider::{Provider, ScanRequest, Scannable};
use super::queue::{self, Batches};
use super::restriction::{Restriction, RowPath};
use super::scan::Extent;
use super::seen::Seen;
use super::statistics::{STATISTICS, Statistic};
use super::summary_rows::Reader;
use super::tables::{PATH_COLUMN, external};
use arrow::datatypes::{DataType, Field, Schema};
use canopy_index::column::{GID, PART, UID};
use canopy_index::{
    ColumnId, Columns, FileKind, Index, ListingOrdinal, ListingRange, Shard, SourceId, SourceRecord,
};
use canopy_model::{Ownership, Parts, SourcePathBuf, Totals, clamped, is_below};
use canopy_read::listings::ListingHeads;
use canopy_read::plan::{self, BATCH_ROWS, ShardRange};
use canopy_read::summaries::StatisticsRequest;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Listings whose statistics are made at a time.
const LISTINGS: usize = 4096;

/// Entries that a row covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Directory,
    Subtree,
}

/// Grouping of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    All,
    User,
    Group,
}

/// A table of statistics.
#[derive(Debug)]
pub(super) struct Table {
    /// The name in SQL.
    pub(super) name: &'static str,
    scope: Scope,
    /// The attribute by which entries are grouped into rows.
    pub(super) by: By,
}

/// All tables of statistics.
pub(super) const TABLES: [&Table; 6] = [
    &Table { name: "summaries", scope: Scope::Directory, by: By::All },
    &Table { name: "summaries_by_user", scope: Scope::Directory, by: By::User },
    &Table { name: "summaries_by_group", scope: Scope::Directory, by: By::Group },
    &Table { name: "trees", scope: Scope::Subtree, by: By::All },
    &Table { name: "trees_by_user", scope: Scope::Subtree, by: By::User },
    &Table { name: "trees_by_group", scope: Scope::Subtree, by: By::Group },
];

/// A column of a table of statistics.
#[derive(Clone, Copy, Debug)]
pub(super) enum SummaryColumn {
    /// Absolute path of the directory.
    Path,
    /// Name of the source.
    Source,
    /// How many levels below the root of the source.
    Depth,
    /// The owner or group.
    Key(ColumnId),
    /// How many entries there are but directories.
    Entries,
    /// How many directories are in the directory.
    Subdirs,
    /// A sum that counts hard links once.
    Total(&'static str, fn(&Totals) -> i64),
    /// A statistic that counts each name.
    Statistic(&'static Statistic),
}

use SummaryColumn::{Depth, Entries, Key, Path, Source, Subdirs, Total};

impl By {
    /// Returns the key of a group for the entries of an owner, user and group.
    pub(super) fn key(self, owner: Ownership) -> u32 {
        match self {
            By::All => 0,
            By::User => owner.uid,
            By::Group => owner.gid,
        }
    }

    /// Returns the column of it.
    pub(super) fn column(self) -> Option<ColumnId> {
        match self {
            By::All => None,
            By::User => Some(UID.id()),
            By::Group => Some(GID.id()),
        }
    }
}

impl SummaryColumn {
    fn field(self) -> Field {
        let (name, data_type) = match self {
            Path => (PATH_COLUMN, DataType::Utf8),
            Source => ("source", DataType::Utf8),
            Depth => ("depth", DataType::UInt32),
            Key(column) => return column.field(),
            Entries => ("entries", DataType::Int64),
            Subdirs => ("subdirs", DataType::Int64),
            Total(name, _) => (name, DataType::Int64),
            SummaryColumn::Statistic(statistic) => return statistic.field(),
        };
        Field::new(name, data_type, false)
    }
}

impl Table {
    /// Returns its columns, in their order.
    fn columns(&self) -> Vec<SummaryColumn> {
        let mut columns = vec![Path, Source, Depth];
        columns.extend(self.by.column().map(Key));
        match (self.scope, self.by) {
            (Scope::Subtree, By::All) => columns.extend([
                Total("entries", |totals| totals.entries),
                // A directory does not count itself.
                Total("subdirs", |totals| totals.dirs - 1),
                Total("dir_size", |totals| clamped(totals.dir_bytes)),
            ]),
            (_, By::All) => columns.extend([Entries, Subdirs]),
            _ => columns.push(Entries),
        }
        let totals = (self.scope, self.by) == (Scope::Subtree, By::All);
        columns.extend(STATISTICS.iter().map(|statistic| match statistic.name {
            "size" if totals => Total("size", |totals| clamped(totals.bytes)),
            "blocks" if totals => Total("blocks", |totals| clamped(totals.blocks)),
            _ => SummaryColumn::Statistic(statistic),
        }));
        columns
    }

    /// Returns the statistics of entries that some columns need.
    fn wanted(&self, columns: &[SummaryColumn]) -> StatisticsRequest {
        let mut wanted = StatisticsRequest { parts: Parts::default(), columns: Columns::NONE };
        for column in columns {
            if let SummaryColumn::Statistic(statistic) = column {
                statistic.add_to(&mut wanted);
            }
        }
        wanted.columns.add(self.by.column().map_or(Columns::NONE, Columns::from));
        wanted
    }
}

/// A table of statistics over an index.
#[derive(Debug)]
pub(super) struct SummaryTable {
    table: &'static Table,
    columns: Vec<SummaryColumn>,
    threads: usize,
}

impl SummaryTable {
    /// Describes a table of an index to the engine; opens nothing.
    pub(super) fn new(index: Arc<Index>, table: &'static Table, threads: usize) -> Provider<Self> {
        let columns = table.columns();
        let fields: Vec<Field> = columns.iter().map(|column| column.field()).collect();
        let schema = Arc::new(Schema::new(fields));
        Provider { index, schema, table: SummaryTable { table, columns, threads } }
    }
}

impl Scannable for SummaryTable {
    fn scan(&self, request: ScanRequest<'_>) -> Result<Arc<dyn ExecutionPlan>> {
        let ScanRequest { seen, columns, schema, restriction, limit, .. } = request;
        if self.table.scope == Scope::Subtree && seen.index.is_one_class() {
            let name = self.table.name;
            let why =
                format!("{name} adds up what each user sees; a derived table cannot be made of it");
            return Err(DataFusionError::Plan(why));
        }
        let columns: Vec<SummaryColumn> = columns.iter().map(|&at| self.columns[at]).collect();
        let work = match self.table.scope {
            Scope::Directory => directories(&seen.index, &restriction),
            Scope::Subtree => subtrees(&seen, &restriction),
        };
        let work = work.map_err(external)?;
        let extent = extent(&seen.index, self.table, &work);
        let reader = Reader {
            by: self.table.by,
            wanted: self.table.wanted(&columns),
            columns,
            schema: schema.clone(),
            threads: self.threads,
        };
        let read = move |work| Ok(Box::new(reader.batches(work)?.into_iter()) as Batches);
        queue::scan(extent, schema, work, self.threads, limit, read)
    }
}

/// A unit of work of a thread.
pub(super) enum Work {
    /// Listings of a shard, each of which is all of its directory.
    Listings(Arc<SourceRecord>, ShardRange),
    /// A directory whose listing comes in parts, with those of each shard.
    Parts(Arc<SourceRecord>, Vec<ShardRange>),
    /// A subtree, and if all are asked for those below it, as the caller sees the index from there.
    Subtree { view: Arc<Index>, source: Arc<SourceRecord>, path: SourcePathBuf, below: bool },
}

/// Returns the listings to read.
fn directories(index: &Index, restriction: &Restriction) -> canopy_read::Result<VecDeque<Work>> {
    let mut work = VecDeque::new();
    for source in index.sources() {
        let source = Arc::new(source.clone());
        for SourceScope { path, below } in restriction.listings(&source, RowPath::Listing) {
            let mut ranges = match below {
                true => plan::below(index, source.id, path.as_path())?,
                false => plan::at(index, source.id, path.as_path())?,
            };
            for path in split_directories(&ranges)? {
                let parts = plan::at(index, source.id, path.as_path())?;
                for part in &parts {
                    let same = |range: &&mut ShardRange| Arc::ptr_eq(&range.shard, &part.shard);
                    if let Some(range) = ranges.iter_mut().find(same) {
                        range.listings = without(&range.listings, &part.listings);
                    }
                }
                work.push_back(Work::Parts(source.clone(), parts));
            }
            let pieces = ranges.iter().flat_map(|range| range.pieces(LISTINGS));
            work.extend(pieces.map(|range| Work::Listings(source.clone(), range)));
        }
    }
    Ok(work)
}

/// Returns the subtrees to add up.
fn subtrees(seen: &Seen, restriction: &Restriction) -> canopy_read::Result<VecDeque<Work>> {
    let starts = seen.subtrees(restriction)?;
    let mut work = VecDeque::new();
    for start in &starts {
        for source in start.view.sources() {
            let Some(SourceScope { path, below }) = start.place.in_source(source) else { continue };
            let is_inside = !is_below(&start.place.path, source.root.trim_matches('/'));
            if is_inside && starts.iter().any(|other| other.is_around(start, source)) {
                continue;
            }
            let (view, source) = (start.view.clone(), Arc::new(source.clone()));
            work.push_back(Work::Subtree { view, source, path, below });
        }
    }
    Ok(work)
}

/// Returns the directories whose listing comes in several parts, which may be in several shards.
fn split_directories(ranges: &[ShardRange]) -> canopy_read::Result<Vec<SourcePathBuf>> {
    let mut split = Vec::new();
    for ShardRange { shard, listings } in ranges.iter().filter(|range| range.shard.record().parts) {
        let mut later = Vec::new();
        let mut ordinals = ListingOrdinal::each(listings);
        for batch in shard.read_listings(PART, listings, BATCH_ROWS)? {
            let batch = batch?;
            let parts = PART.of(&batch)?.iter().zip(&mut ordinals);
            later.extend(parts.filter(|(part, _)| **part > 0).map(|(_, ordinal)| ordinal));
        }
        let heads = ListingHeads::read(shard, later.iter().copied())?;
        for listing in later {
            split.push(heads.expect(shard, FileKind::Listings, listing)?.path.to_buf());
        }
    }
    split.sort_by(|a, b| a.as_path().cmp(&b.as_path()));
    split.dedup();
    Ok(split)
}

/// Returns the rest of ranges without others; all are sorted and disjoint.
fn without(ranges: &[ListingRange], others: &[ListingRange]) -> Vec<ListingRange> {
    let mut left = Vec::new();
    for range in ranges {
        let mut at = range.start;
        for other in others.iter().filter(|other| range.start < other.end) {
            left.push(at..other.start.min(range.end));
            at = other.end;
        }
        left.push(at..range.end);
    }
    left.retain(|range| !range.is_empty());
    left
}

/// Returns how much of a table the work is.
fn extent(index: &Index, table: &Table, work: &VecDeque<Work>) -> Extent {
    let counts = match table.scope {
        // The shards of a subtree are found when it is added up.
        Scope::Subtree => {
            let source = |work: &Work| match work {
                Work::Subtree { source, .. } => Some(source.id),
                _ => None,
            };
            let read: HashSet<SourceId> = work.iter().filter_map(source).collect();
            ("sources", read.len(), index.sources().len())
        }
        Scope::Directory => {
            let ranges = work.iter().flat_map(|work| match work {
                Work::Listings(_, range) => std::slice::from_ref(range),
                Work::Parts(_, ranges) => ranges,
                Work::Subtree { .. } => &[],
            });
            let read: HashSet<*const Shard> =
                ranges.map(|range| Arc::as_ptr(&range.shard)).collect();
            ("shards", read.len(), index.file_counts(FileKind::Listings).0)
        }
    };
    Extent { table: table.name.to_owned(), counts: vec![counts] }
}

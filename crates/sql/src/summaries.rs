//! The tables of statistics.
//!
//! | table | a row is |
//! | --- | --- |
//! | `summaries` | a directory that can be listed, with statistics of its entries |
//! | `summaries_by_user`, `summaries_by_group` | a directory that can be listed and an owner or group of entries in it |
//! | `trees` | a directory, with statistics of all entries at and below it |
//! | `trees_by_user`, `trees_by_group` | a directory, and an owner or group of entries at or below it |
//!
//! All have `path` (absolute), `source` and `depth`, and the columns of [`STATISTICS`]. In `trees`,
//! `entries`, `size` and `blocks` count hard links once, as du does; every other statistic, and all
//! of the tables by owner and group, count each name.

use super::restriction::Restriction;
use super::scan::Extent;
use super::statistics::{STATISTICS, Statistic, wanted};
use super::tables::{external, repeated};
use super::units;
use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, UInt32Array,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use canopy_index::Columns;
use canopy_index::column::{GID, UID};
use canopy_index::{FileKind, Index, RowRange, Shard, SourceRecord};
use canopy_model::{FileType, Summary, Totals, compare_paths};
use canopy_read::columns::{numbers, strings};
use canopy_read::locate::{Start, absolute_path, look_up};
use canopy_read::summaries::{self, ByOwner, Wanted};
use canopy_read::totals::{Node, Seen, Subtree};
use canopy_read::tree_totals::tree_totals;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

/// Listings whose statistics are made at a time.
const LISTINGS: usize = 4096;

/// Rows of a batch of the answer.
const BATCH_ROWS: usize = 8192;

/// Which entries a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Directory,
    Subtree,
}

/// What entries are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    All,
    User,
    Group,
}

/// A table of statistics.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    of: Of,
    by: By,
}

pub(super) const TABLES: [&Table; 6] = [
    &Table { name: "summaries", of: Of::Directory, by: By::All },
    &Table { name: "summaries_by_user", of: Of::Directory, by: By::User },
    &Table { name: "summaries_by_group", of: Of::Directory, by: By::Group },
    &Table { name: "trees", of: Of::Subtree, by: By::All },
    &Table { name: "trees_by_user", of: Of::Subtree, by: By::User },
    &Table { name: "trees_by_group", of: Of::Subtree, by: By::Group },
];

impl By {
    fn key(self, owner: (u32, u32)) -> u32 {
        match self {
            By::All => 0,
            By::User => owner.0,
            By::Group => owner.1,
        }
    }

    /// The column of the key.
    fn column(self) -> Option<&'static str> {
        match self {
            By::All => None,
            By::User => Some("uid"),
            By::Group => Some("gid"),
        }
    }
}

impl Table {
    fn schema(&self) -> SchemaRef {
        let field = |name: &str, data_type| Field::new(name, data_type, false);
        let mut fields = vec![
            field("path", DataType::Utf8),
            field("source", DataType::Utf8),
            field("depth", DataType::UInt32),
        ];
        fields.extend(self.by.column().map(|name| field(name, DataType::UInt32)));
        fields.push(field("entries", DataType::Int64));
        if self.by == By::All {
            fields.push(field("subdirs", DataType::Int64));
        }
        if self.has_totals() {
            fields.push(field("dir_size", DataType::Int64));
        }
        fields.extend(STATISTICS.iter().map(Statistic::field));
        Arc::new(Schema::new(fields))
    }

    /// Whether totals tell what `entries`, `size` and `blocks` are.
    fn has_totals(&self) -> bool {
        (self.of, self.by) == (Of::Subtree, By::All)
    }

    /// What has to be known of entries for some columns.
    fn wanted(&self, schema: &Schema) -> Wanted {
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let mut wanted =
            wanted(names.filter(|name| !(self.has_totals() && matches!(*name, "size" | "blocks"))));
        wanted.columns.add(match self.by {
            By::All => Columns::NONE,
            By::User => UID.into(),
            By::Group => GID.into(),
        });
        wanted
    }
}

/// A table of statistics over an index.
pub(super) struct SummaryTable {
    index: Arc<Index>,
    table: &'static Table,
    schema: SchemaRef,
    threads: usize,
}

impl SummaryTable {
    pub(super) fn new(index: Arc<Index>, table: &'static Table, threads: usize) -> Self {
        SummaryTable { index, table, schema: table.schema(), threads }
    }
}

impl fmt::Debug for SummaryTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SummaryTable({})", self.table.name)
    }
}

#[async_trait]
impl TableProvider for SummaryTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        if self.table.of == Of::Subtree && self.index.is_one_class() {
            let name = self.table.name;
            let why =
                format!("{name} adds up what each user sees; a derived table cannot be made of it");
            return Err(DataFusionError::Plan(why));
        }
        let restriction = Restriction::new(filters);
        let index = restriction.view(&self.index)?;
        let work = work(&index, self.table, &restriction).map_err(external)?;
        let extent = extent(&index, self.table, &work);
        let wanted = self.table.wanted(&schema);
        let reader = Reader {
            index,
            table: self.table,
            schema: schema.clone(),
            wanted,
            threads: self.threads,
        };
        let read = move |unit| Ok(Box::new(reader.batches(unit)?.into_iter()) as units::Batches);
        units::plan(extent, schema, work, self.threads, limit, read)
    }
}

/// A piece of work.
#[derive(Clone)]
enum Unit {
    /// Listings of a shard.
    Listings(Arc<SourceRecord>, Arc<Shard>, RowRange),
    /// All listings of shards in which directories come in parts, at and below a directory.
    Parts(Arc<SourceRecord>, Vec<Arc<Shard>>, String),
    /// One subtree.
    Subtree(Arc<SourceRecord>, String),
    /// All subtrees at and below a directory.
    Subtrees(Arc<SourceRecord>, String),
}

fn work(
    index: &Index,
    table: &Table,
    restriction: &Restriction,
) -> canopy_index::Result<VecDeque<Unit>> {
    let mut units = VecDeque::new();
    for source in index.sources() {
        let Some(below) = restriction.subtree(source) else { continue };
        let exact = restriction.path_in(source);
        if restriction.path().is_some() && exact.is_none() {
            continue;
        }
        let record = Arc::new(source.clone());
        if table.of == Of::Subtree {
            units.push_back(match exact {
                Some(path) => Unit::Subtree(record, path),
                None => Unit::Subtrees(record, below),
            });
            continue;
        }
        let mut parts = Vec::new();
        for shard in index.shards_of(source.id) {
            if shard.record().parts {
                parts.push(shard.clone());
                continue;
            }
            let listings = match &exact {
                Some(path) => shard.listings_at(path)?,
                None => shard.listings_below(&below)?,
            };
            for start in listings.clone().step_by(LISTINGS) {
                let listings = start..listings.end.min(start + LISTINGS);
                units.push_back(Unit::Listings(record.clone(), shard.clone(), listings));
            }
        }
        if !parts.is_empty() {
            units.push_back(Unit::Parts(record, parts, exact.unwrap_or(below)));
        }
    }
    Ok(units)
}

/// How much of a table the units are.
fn extent(index: &Index, table: &Table, units: &VecDeque<Unit>) -> Extent {
    let all = index.sources().iter().flat_map(|source| index.shards_of(source.id)).count();
    if table.of == Of::Subtree {
        // Which shards a subtree needs is found when it is added up.
        let counts = vec![("sources", units.len(), index.sources().len())];
        return Extent { table: table.name.to_owned(), counts };
    }
    let read: HashSet<*const Shard> = units
        .iter()
        .flat_map(|unit| match unit {
            Unit::Listings(_, shard, _) => std::slice::from_ref(shard),
            Unit::Parts(_, shards, _) => shards,
            Unit::Subtree(..) | Unit::Subtrees(..) => &[],
        })
        .map(Arc::as_ptr)
        .collect();
    Extent { table: table.name.to_owned(), counts: vec![("shards", read.len(), all)] }
}

struct Reader {
    index: Arc<Index>,
    table: &'static Table,
    schema: SchemaRef,
    wanted: Wanted,
    threads: usize,
}

/// A row of the answer.
struct Row {
    /// Below the root of the source.
    path: String,
    key: u32,
    subdirs: i64,
    /// In `trees`, what counts hard links once.
    totals: Option<Totals>,
    summary: Summary,
}

impl Reader {
    fn batches(&self, unit: Unit) -> Result<Vec<Result<RecordBatch>>> {
        let (source, rows) = match unit {
            Unit::Listings(source, shard, listings) => {
                let rows = self.listings(&shard, listings)?;
                (source, rows)
            }
            Unit::Parts(source, shards, directory) => {
                let rows = self.parts(&shards, &directory)?;
                (source, rows)
            }
            Unit::Subtree(source, path) => {
                let rows = self.subtree(&source, &path)?;
                (source, rows)
            }
            Unit::Subtrees(source, path) => return self.subtrees(&source, &path),
        };
        Ok(rows.chunks(BATCH_ROWS).map(|rows| self.batch(&source, rows)).collect())
    }

    fn reads_entries(&self) -> bool {
        !self.wanted.columns.is_empty() || self.schema.index_of("entries").is_ok()
    }

    fn listings(&self, shard: &Shard, listings: RowRange) -> Result<Vec<Row>> {
        let by = self.table.by;
        let found = match self.reads_entries() {
            true => {
                summaries::of_listings(shard, listings.clone(), &self.wanted, |owner| by.key(owner))
            }
            false => Ok(Vec::new()),
        };
        let mut found = found.map_err(external)?.into_iter().peekable();
        let mut rows = Vec::with_capacity(listings.len());
        let mut ordinal = listings.start;
        let columns = ["path", "subdirs"];
        let read =
            shard.read(FileKind::Listings, &columns, std::slice::from_ref(&listings), BATCH_ROWS);
        for batch in read.map_err(external)? {
            let batch = batch.map_err(external)?;
            let (paths, subdirs) =
                (strings(&batch, "path"), numbers::<Int64Type>(&batch, "subdirs").values());
            for at in 0..batch.num_rows() {
                let row = |key, summary| Row {
                    path: paths.value(at).to_owned(),
                    key,
                    subdirs: subdirs[at],
                    totals: None,
                    summary,
                };
                let first = rows.len();
                while let Some((_, key, summary)) =
                    found.next_if(|(listing, ..)| *listing as usize == ordinal)
                {
                    rows.push(row(key, summary));
                }
                if by == By::All && rows.len() == first {
                    rows.push(row(0, Summary::default()));
                }
                ordinal += 1;
            }
        }
        if shard.rows(FileKind::Entries) <= canopy_index::schema::ROW_GROUP_ROWS {
            shard.close(FileKind::Entries);
            shard.close(FileKind::Listings);
        }
        Ok(rows)
    }

    /// The rows of a directory that comes in parts are added up.
    fn parts(&self, shards: &[Arc<Shard>], directory: &str) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for shard in shards {
            let listings = shard.listings_below(directory).map_err(external)?;
            if !listings.is_empty() {
                rows.extend(self.listings(shard, listings)?);
            }
        }
        rows.sort_by(|a, b| compare_paths(&a.path, &b.path).then(a.key.cmp(&b.key)));
        rows.dedup_by(|later, first| {
            let same = later.path == first.path && later.key == first.key;
            if same {
                first.subdirs += later.subdirs;
                first.summary.merge(&later.summary);
            }
            same
        });
        Ok(rows)
    }

    fn subtree(&self, source: &SourceRecord, path: &str) -> Result<Vec<Row>> {
        let inode = look_up(&self.index, source, path).map_err(external)?;
        let is_dir =
            |inode: &canopy_read::Inode| inode.attributes.file_type() == FileType::Directory;
        let Some(inode) = inode.filter(is_dir) else { return Ok(Vec::new()) };
        let subtree =
            Subtree { index: &self.index, source: source.id, path, threads: self.threads };
        let found = match self.wanted.columns.is_empty() && self.table.by == By::All {
            true => ByOwner::default(),
            false => summaries::of_subtree(&subtree, &self.wanted).map_err(external)?,
        };
        let mut keys: Vec<(u32, Summary)> = Vec::new();
        for (owner, summary) in found {
            let key = self.table.by.key(owner);
            match keys.iter_mut().find(|(known, _)| *known == key) {
                Some((_, sum)) => sum.merge(&summary),
                None => keys.push((key, summary)),
            }
        }
        let mut totals = None;
        if self.table.by == By::All {
            let mut sum = own_totals(&inode);
            sum += subtree.sum(&mut Seen::default()).map_err(external)?;
            totals = Some(sum);
            if keys.is_empty() {
                keys.push((0, Summary::default()));
            }
        }
        let row = |(key, summary)| Row { path: path.to_owned(), key, subdirs: 0, totals, summary };
        Ok(keys.into_iter().map(row).collect())
    }

    fn subtrees(&self, source: &SourceRecord, path: &str) -> Result<Vec<Result<RecordBatch>>> {
        let inode = look_up(&self.index, source, path).map_err(external)?;
        let Some(inode) = inode else { return Ok(Vec::new()) };
        let own = own_totals(&inode);
        let given = Vec::new();
        let start = Start {
            given,
            source: source.clone(),
            path: path.to_owned(),
            inode,
            view: self.index.clone(),
        };
        let by = self.table.by;
        let mut rows = Vec::new();
        let mut batches = Vec::new();
        let mut nodes: Vec<Node> = Vec::new();
        if by == By::All {
            let subtree =
                Subtree { index: &self.index, source: source.id, path, threads: self.threads };
            nodes = tree_totals(&subtree, own).map_err(external)?;
        }
        let mut given = vec![false; nodes.len()];
        let mut give = |path: &str, summaries: Vec<(u32, Summary)>| -> canopy_read::Result<()> {
            let node = nodes.binary_search_by(|node| compare_paths(&node.path, path)).ok();
            if by == By::All && node.is_none() {
                return Ok(());
            }
            let totals = node.map(|at| nodes[at].own);
            node.inspect(|&at| given[at] = true);
            let empty = (by == By::All && summaries.is_empty()).then(|| (0, Summary::default()));
            rows.extend(summaries.into_iter().chain(empty).map(|(key, summary)| {
                let path = path.to_owned();
                Row { path, key, subdirs: 0, totals, summary }
            }));
            if rows.len() >= BATCH_ROWS {
                batches.push(self.batch(source, &rows));
                rows.clear();
            }
            Ok(())
        };
        if by != By::All || !self.wanted.columns.is_empty() {
            let key = |owner| by.key(owner);
            summaries::of_each_subtree(&start, &self.wanted, key, &mut give).map_err(external)?;
        }
        // Directories without a listing, or all of them where totals tell all that is asked for.
        let rest = nodes.iter().zip(&given).filter(|(_, given)| !**given).map(|(node, _)| Row {
            path: node.path.clone(),
            key: 0,
            subdirs: 0,
            totals: Some(node.own),
            summary: Summary::default(),
        });
        rows.extend(rest);
        batches.extend(rows.chunks(BATCH_ROWS).map(|rows| self.batch(source, rows)));
        Ok(batches)
    }

    fn batch(&self, source: &SourceRecord, rows: &[Row]) -> Result<RecordBatch> {
        let summaries: Vec<&Summary> = rows.iter().map(|row| &row.summary).collect();
        let column =
            |field: &Arc<Field>| column(self.table, source, rows, &summaries, field.name());
        let columns = self.schema.fields().iter().map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

fn own_totals(inode: &canopy_read::Inode) -> Totals {
    let attributes = &inode.attributes;
    Totals {
        dirs: 1,
        dir_bytes: attributes.size_bytes,
        blocks: attributes.blocks,
        ..Totals::default()
    }
}

fn column(
    table: &Table,
    source: &SourceRecord,
    rows: &[Row],
    summaries: &[&Summary],
    name: &str,
) -> ArrayRef {
    let number = |value: &dyn Fn(&Row) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(value)))
    };
    let totals = table.has_totals();
    let total = |value: fn(&Totals) -> i64| number(&|row| row.totals.as_ref().map_or(0, value));
    match name {
        "path" => Arc::new(StringArray::from_iter_values(
            rows.iter().map(|row| absolute_path(source, &row.path)),
        )),
        "source" => repeated(&source.name, rows.len()),
        "depth" => {
            let depth =
                |path: &str| if path.is_empty() { 0 } else { path.split('/').count() as u32 };
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| depth(&row.path))))
        }
        "uid" | "gid" => Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.key))),
        "entries" if totals => total(|totals| totals.entries),
        "entries" => number(&|row| row.summary.entries()),
        // A directory does not count itself.
        "subdirs" if totals => total(|totals| totals.dirs - 1),
        "subdirs" => number(&|row| row.subdirs),
        "dir_size" => total(|totals| totals.dir_bytes),
        "size" if totals => total(|totals| totals.bytes),
        "blocks" if totals => total(|totals| totals.blocks),
        _ => {
            let statistic = STATISTICS.iter().find(|statistic| statistic.name == name);
            statistic.expect("the schema has no other column").array(summaries)
        }
    }
}

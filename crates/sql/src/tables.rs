//! The tables, and how their rows are read.
//!
//! | table | a row is |
//! | --- | --- |
//! | `entries` | an entry that is not a directory |
//! | `directories` | a directory; the roots of sources among them |
//! | `usage` | a directory, owner and group, with the sums of their entries |
//! | `xattrs` | the value of an extended attribute that the asking user may see |
//! | `acls` | an entry of a POSIX ACL |
//!
//! All have `path` (absolute) and `source`. The tables of statistics are in `summaries`.

use super::acls;
use super::prefilter::Prefilter;
use super::restriction::Restriction;
use super::scan::Extent;
use super::units::{self, Batches};
use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, StringBuilder,
    TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use async_trait::async_trait;
use canopy_index::column::time_type;
use canopy_index::{FileKind, Index, RowRange, Shard, SourceRecord};
use canopy_model::{Attributes, FileType, base_name, join};
use canopy_read::columns::{numbers, strings};
use canopy_read::listings::ListingHeads;
use canopy_read::locate::absolute_path;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

const BATCH_ROWS: usize = 8192;

/// Columns of a table that a file of the shards has, under the same name unless told otherwise.
pub(super) struct Table {
    pub(super) name: &'static str,
    kind: FileKind,
    /// Columns that are computed, first in the schema.
    computed: &'static [Computed],
    /// Names in SQL and in the file.
    stored: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Computed {
    Path,
    Source,
    Name,
    Depth,
    Type,
    Dev,
}

impl Computed {
    fn field(self) -> Field {
        match self {
            Computed::Path => Field::new("path", DataType::Utf8, false),
            Computed::Source => Field::new("source", DataType::Utf8, false),
            Computed::Name => Field::new("name", DataType::Utf8, false),
            Computed::Depth => Field::new("depth", DataType::UInt32, false),
            Computed::Type => Field::new("type", DataType::Utf8, false),
            Computed::Dev => Field::new("dev", DataType::UInt64, false),
        }
    }
}

macro_rules! same {
    ($($name:literal),* $(,)?) => { [$(($name, $name)),*] };
}

use Computed::{Depth, Dev, Name, Path, Source, Type};

pub(super) const TABLES: [&Table; 5] = [
    &Table {
        name: "entries",
        kind: FileKind::Entries,
        computed: &[Path, Source, Name, Depth, Type, Dev],
        stored: &same![
            "ino", "mode", "nlink", "uid", "gid", "size", "blksize", "blocks", "atime", "mtime",
            "ctime", "btime", "target", "rdev", "xattrs",
        ],
    },
    &Table {
        name: "directories",
        kind: FileKind::Dirs,
        computed: &[Path, Source, Name, Depth, Type, Dev],
        stored: &same![
            "ino", "mode", "nlink", "uid", "gid", "size", "blksize", "blocks", "atime", "mtime",
            "ctime", "btime", "xattrs",
        ],
    },
    &Table {
        name: "usage",
        kind: FileKind::Usage,
        computed: &[Path, Source],
        stored: &same!["uid", "gid", "count", "size", "blocks"],
    },
    &Table {
        name: "xattrs",
        kind: FileKind::Xattrs,
        computed: &[Path, Source, Name, Type],
        stored: &same!["key", "value", "ino", "mode", "uid", "gid", "size", "mtime"],
    },
    &Table {
        name: "acls",
        kind: FileKind::Xattrs,
        computed: &[Path, Source, Name, Type],
        stored: &[],
    },
];

/// Directories that can be listed, with their own attributes and counts of their entries, for
/// `gufi`.
pub(super) const LISTINGS: Table = Table {
    name: "listings",
    kind: FileKind::Listings,
    computed: &[Path, Source, Depth],
    stored: &same![
        "part", "ino", "mode", "nlink", "uid", "gid", "size", "blksize", "blocks", "atime",
        "mtime", "ctime", "btime", "files", "symlinks", "others", "subdirs",
    ],
};

impl Table {
    fn schema(&self) -> SchemaRef {
        let file = self.kind.schema();
        let mut fields: Vec<Field> = self.computed.iter().map(|column| column.field()).collect();
        for (name, stored) in self.stored {
            // Times that are sums of columns are no columns themselves.
            let field = file.field_with_name(stored).cloned();
            fields.push(
                field.unwrap_or_else(|_| Field::new(*stored, time_type(), false)).with_name(*name),
            );
        }
        if self.name == "acls" {
            fields.extend(acls::fields());
        }
        Arc::new(Schema::new(fields))
    }
}

/// A table of the index.
pub(super) struct IndexTable {
    index: Arc<Index>,
    table: &'static Table,
    schema: SchemaRef,
    threads: usize,
}

impl IndexTable {
    pub(super) fn new(index: Arc<Index>, table: &'static Table, threads: usize) -> Self {
        IndexTable { index, table, schema: table.schema(), threads }
    }

    /// What has to be read: rows of shards by row group, less what the predicates rule out.
    fn units(
        index: &Index,
        table: &Table,
        restriction: &Restriction,
    ) -> canopy_index::Result<VecDeque<Unit>> {
        let mut units = VecDeque::new();
        for source in index.sources() {
            let Some(subtree) = restriction.subtree(source) else { continue };
            let source = Arc::new(source.clone());
            if table.name == "directories" && index.shows_root(source.as_ref()) {
                units.push_back(Unit::Root(source.clone()));
            }
            for shard in index.shards_of(source.id) {
                Self::shard_units(table.kind, shard, &source, &subtree, restriction, &mut units)?;
            }
        }
        Ok(units)
    }

    /// How much of a table the units are.
    fn extent(index: &Index, table: &Table, units: &VecDeque<Unit>) -> Extent {
        let shards = index.sources().iter().flat_map(|source| index.shards_of(source.id));
        let groups =
            shards.map(|shard| shard.row_groups(table.kind).len()).filter(|groups| *groups > 0);
        let (all_shards, all_groups) =
            groups.fold((0, 0), |(shards, all), groups| (shards + 1, all + groups));
        let read = units.iter().filter_map(|unit| match unit {
            Unit::Rows { shard, .. } => Some(Arc::as_ptr(shard)),
            Unit::Root(_) => None,
        });
        // The units of a shard follow each other.
        let (mut shards, mut groups, mut last) = (0, 0, None);
        for shard in read {
            groups += 1;
            shards += usize::from(last.replace(shard) != Some(shard));
        }
        let counts = vec![("shards", shards, all_shards), ("row groups", groups, all_groups)];
        Extent { table: table.name.to_owned(), counts }
    }

    fn shard_units(
        kind: FileKind,
        shard: &Arc<Shard>,
        source: &Arc<SourceRecord>,
        subtree: &str,
        restriction: &Restriction,
        units: &mut VecDeque<Unit>,
    ) -> canopy_index::Result<()> {
        if shard.rows(kind) == 0 {
            return Ok(());
        }
        // The shard of a value has no listing of its entry.
        let listings = match kind {
            FileKind::Xattrs => 0..0,
            _ => shard.listings_below(subtree)?,
        };
        if listings.is_empty() && kind != FileKind::Xattrs {
            return Ok(());
        }
        let rows = match kind {
            FileKind::Listings => listings,
            FileKind::Entries => shard.rows_of(listings)?.0,
            FileKind::Dirs => shard.rows_of(listings)?.1,
            // Their rows do not start at a place that a listing tells; the engine drops those
            // outside.
            _ => 0..shard.rows(kind),
        };
        let mut groups: Vec<RowRange> = shard.row_groups(kind);
        for column in restriction.columns() {
            let Some(id) = canopy_index::ColumnId::named(column) else { continue };
            let bounds = shard.bounds(kind, id)?;
            let mut bounds = bounds.iter();
            groups.iter_mut().for_each(|group| {
                if let Some(Some(bounds)) = bounds.next()
                    && !restriction.admits(column, *bounds)
                {
                    group.end = group.start;
                }
            });
        }
        for group in groups {
            let rows = rows.start.max(group.start)..rows.end.min(group.end);
            if !rows.is_empty() {
                units.push_back(Unit::Rows { shard: shard.clone(), source: source.clone(), rows });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for IndexTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "IndexTable({})", self.table.name)
    }
}

#[async_trait]
impl TableProvider for IndexTable {
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
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        let restriction = Restriction::new(filters);
        let index = restriction.view(&self.index)?;
        let units = Self::units(&index, self.table, &restriction).map_err(external)?;
        let cheap = |column: &str| {
            let stored = self.table.stored.iter().any(|(name, _)| *name == column);
            stored || (column == "name" && self.table.kind != FileKind::Listings)
        };
        let prefilter = Prefilter::new(session, &self.schema, filters, cheap)?
            .filter(|prefilter| {
                schema.fields().iter().any(|field| prefilter.schema.index_of(field.name()).is_err())
            })
            .map(Arc::new);
        let reader = Reader { table: self.table, schema: schema.clone(), prefilter };
        let extent = Self::extent(&index, self.table, &units);
        units::plan(extent, schema, units, self.threads, limit, move |unit| reader.batches(unit))
    }
}

pub(super) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// A piece of work.
enum Unit {
    /// Rows of one file of a shard.
    Rows { shard: Arc<Shard>, source: Arc<SourceRecord>, rows: RowRange },
    /// The root of a source.
    Root(Arc<SourceRecord>),
}

#[derive(Clone)]
struct Reader {
    table: &'static Table,
    schema: SchemaRef,
    prefilter: Option<Arc<Prefilter>>,
}

impl Reader {
    fn batches(&self, unit: Unit) -> Result<Batches> {
        match unit {
            Unit::Rows { shard, source, rows } => self.rows(shard, source, rows),
            Unit::Root(source) => Ok(Box::new(std::iter::once(self.root(&source)))),
        }
    }

    fn wants(&self, column: &str) -> bool {
        self.schema.index_of(column).is_ok()
    }

    /// The columns of the file that the projection needs.
    fn file_columns(&self) -> Vec<&'static str> {
        let mut columns: Vec<&'static str> = self
            .table
            .stored
            .iter()
            .filter(|(name, _)| self.wants(name))
            .map(|(_, stored)| *stored)
            .collect();
        if self.table.name == "acls" {
            return vec!["path", "name", "key", "value", "mode"];
        }
        if self.wants("type") && !columns.contains(&"mode") {
            columns.push("mode");
        }
        if self.table.kind == FileKind::Xattrs {
            columns.extend(["path", "name"]);
            return columns;
        }
        if self.table.kind == FileKind::Listings {
            columns.extend(["path", "depth"].into_iter().filter(|name| self.wants(name)));
        } else if ["path", "depth", "dev"].into_iter().any(|name| self.wants(name)) {
            columns.push("listing");
        }
        if matches!(self.table.kind, FileKind::Entries | FileKind::Dirs)
            && (self.wants("path") || self.wants("name"))
        {
            columns.push("name");
        }
        columns
    }

    fn rows(
        &self,
        shard: Arc<Shard>,
        source: Arc<SourceRecord>,
        rows: RowRange,
    ) -> Result<Batches> {
        let selected = match &self.prefilter {
            Some(prefilter) => {
                let schema = prefilter.schema.clone();
                let first = Reader { schema, prefilter: None, ..self.clone() };
                let columns = first.file_columns();
                let read = shard
                    .read(self.table.kind, &columns, std::slice::from_ref(&rows), BATCH_ROWS)
                    .map_err(external)?;
                let batches =
                    read.map(|batch| first.batch(&shard, &source, &batch.map_err(external)?));
                prefilter.select(&rows, batches)?
            }
            None => vec![rows],
        };
        let closing = Closing { shard: shard.clone(), kind: self.table.kind };
        if selected.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let columns = self.file_columns();
        let read =
            shard.read(self.table.kind, &columns, &selected, BATCH_ROWS).map_err(external)?;
        let reader = self.clone();
        Ok(Box::new(read.map(move |batch| {
            let batch = batch.map_err(external)?;
            let shard = &closing.shard;
            match reader.table.name {
                "acls" => reader.batch(shard, &source, &acls::decoded(&batch)?),
                _ => reader.batch(shard, &source, &batch),
            }
        })))
    }

    /// Makes the columns of the answer from those of a file.
    fn batch(
        &self,
        shard: &Shard,
        source: &SourceRecord,
        batch: &RecordBatch,
    ) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let heads = match batch.column_by_name("listing") {
            Some(_) => {
                let listings = numbers::<UInt32Type>(batch, "listing").values();
                let heads = match self.schema.field_with_name("dev") {
                    Ok(_) => ListingHeads::read_with_devices(shard, listings),
                    Err(_) => ListingHeads::read(shard, listings),
                };
                Some((heads.map_err(external)?, listings))
            }
            None => None,
        };
        let head = |at: usize| {
            let (heads, listings) =
                heads.as_ref().expect("listings are read where paths are asked for");
            let bad = || {
                external(shard.corrupt(self.table.kind, "it names a listing that does not exist"))
            };
            heads.get(listings[at]).ok_or_else(bad)
        };
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            let name = field.name().as_str();
            let computed = self.table.computed.iter().find(|column| column.field().name() == name);
            columns.push(match computed {
                Some(Computed::Path) => {
                    let mut paths = StringBuilder::with_capacity(rows, rows * 64);
                    for at in 0..rows {
                        let path = match self.table.kind {
                            FileKind::Listings => strings(batch, "path").value(at).to_owned(),
                            FileKind::Usage => head(at)?.path.to_owned(),
                            FileKind::Xattrs => join(
                                strings(batch, "path").value(at),
                                strings(batch, "name").value(at),
                            ),
                            _ => join(head(at)?.path, strings(batch, "name").value(at)),
                        };
                        paths.append_value(absolute_path(source, &path));
                    }
                    Arc::new(paths.finish())
                }
                Some(Computed::Source) => repeated(&source.name, rows),
                Some(Computed::Depth) if self.table.kind != FileKind::Listings => {
                    let depths = (0..rows)
                        .map(|at| Ok(head(at)?.depth() + 1))
                        .collect::<Result<Vec<u32>>>()?;
                    Arc::new(UInt32Array::from(depths))
                }
                Some(Computed::Dev) => {
                    let devs =
                        (0..rows).map(|at| Ok(head(at)?.dev)).collect::<Result<UInt64Array>>()?;
                    Arc::new(devs)
                }
                Some(Computed::Type) => {
                    let modes = numbers::<UInt32Type>(batch, "mode").values().iter();
                    let letters = modes.map(|&mode| FileType::of_mode(mode).letter().to_string());
                    Arc::new(StringArray::from_iter_values(letters))
                }
                _ => {
                    let stored = self.table.stored.iter().find(|(sql, _)| *sql == name);
                    let stored = stored.map_or(name, |(_, stored)| *stored);
                    batch.column_by_name(stored).expect("what the projection needs is read").clone()
                }
            });
        }
        self.finish(columns, rows)
    }

    fn finish(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    /// The row of a source's root, which no listing holds.
    fn root(&self, source: &SourceRecord) -> Result<RecordBatch> {
        let columns =
            self.schema.fields().iter().map(|field| root_column(source, field.name())).collect();
        self.finish(columns, 1)
    }
}

/// Closes the files of a small shard when its rows have been read.
struct Closing {
    shard: Arc<Shard>,
    kind: FileKind,
}

impl Drop for Closing {
    fn drop(&mut self) {
        if self.shard.rows(self.kind) <= canopy_index::schema::ROW_GROUP_ROWS {
            self.shard.close(self.kind);
            self.shard.close(FileKind::Listings);
        }
    }
}

pub(super) fn repeated(text: &str, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows)))
}

fn root_column(source: &SourceRecord, name: &str) -> ArrayRef {
    let attributes: &Attributes = &source.attributes;
    let text = |text: &str| repeated(text, 1);
    match name {
        "path" => text(&absolute_path(source, "")),
        "source" => text(&source.name),
        "name" => text(base_name(&source.root)),
        "xattrs" => Arc::new(StringArray::from(vec![
            Some(source.xattrs.as_str()).filter(|names| !names.is_empty()),
        ])),
        "type" => text("d"),
        "depth" => Arc::new(UInt32Array::from(vec![0])),
        "dev" => Arc::new(UInt64Array::from(vec![source.dev])),
        "ino" => Arc::new(UInt64Array::from(vec![attributes.ino])),
        "size" => Arc::new(Int64Array::from(vec![attributes.size_bytes])),
        "blocks" => Arc::new(Int64Array::from(vec![attributes.blocks])),
        "atime" | "mtime" | "ctime" | "btime" => {
            let value = match name {
                "atime" => attributes.atime_ns,
                "mtime" => attributes.mtime_ns,
                "ctime" => attributes.ctime_ns,
                _ => attributes.btime_ns,
            };
            Arc::new(TimestampNanosecondArray::from(vec![value]).with_timezone("UTC"))
        }
        _ => {
            let value = match name {
                "mode" => attributes.mode,
                "nlink" => attributes.nlink,
                "uid" => attributes.uid,
                "gid" => attributes.gid,
                _ => attributes.blksize_bytes,
            };
            Arc::new(UInt32Array::from(vec![value]))
        }
    }
}

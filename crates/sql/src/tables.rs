//! The tables whose rows are rows of the shards' files.
//!
//! | table | a row is |
//! | --- | --- |
//! | `entries` | an entry that is not a directory |
//! | `directories` | a directory; the roots of sources among them |
//! | `usage` | a directory, owner and group, with the sums of their entries |
//! | `xattrs` | the value of an extended attribute that the asking user may see |
//! | `acls` | an entry of a POSIX ACL |
//! | `layouts` | a component of the layout of a file in Lustre |
//! | `stripes` | an object of such a file on an OST |
//! | `directory_layouts` | a striped directory in Lustre |
//! | `hsm` | the state of a file in an archive of Lustre's |
//!
//! All have `path` (absolute) and `source`. The tables of statistics are in `summaries`; `reader`
//! makes the rows.

use super::acls;
use super::decoded::{DecodedColumn, Decoder};
use super::lustre;
use super::places::SourceScope;
use super::prefilter::Prefilter;
use super::provider::{Provider, ScanRequest, Scannable};
use super::queue;
use super::reader::{Projection, Reader};
use super::restriction::{Restriction, RowPath};
use super::scan::Extent;
use super::seen::{Seen, Unlisted};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use canopy_index::column::*;
use canopy_index::{ColumnId, FileKind, Index, SourceRecord};
use canopy_read::nested::root_is_listed;
use canopy_read::plan::{self, Unit};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use std::collections::VecDeque;
use std::sync::Arc;

/// A table of rows of one file of the shards.
#[derive(Debug)]
pub(super) struct Table {
    /// The name in SQL.
    pub(super) name: &'static str,
    /// The file.
    pub(super) kind: FileKind,
    /// The columns in front.
    first: &'static [TableColumn],
    /// Decodes values of extended attributes into rows; none if rows of the file are rows of the
    /// table. Its columns follow the first ones.
    pub(super) decoder: Option<&'static Decoder>,
    /// The last columns, as the file has them.
    stored: &'static [ColumnId],
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableColumn {
    /// Absolute path of an entry or directory.
    Path,
    /// Name of the source.
    Source,
    /// How many levels below the root of the source.
    Depth,
    /// Type of an entry, as a letter.
    Type,
    /// Device that holds an entry.
    Dev,
    /// A column of the file, under its own name.
    Stored(ColumnId),
    /// A value decoded from an extended attribute.
    Decoded(&'static DecodedColumn),
}

use TableColumn::{Decoded, Depth, Dev, Path, Source, Stored, Type};

/// The name of the column of absolute paths, which all tables have.
pub(super) const PATH_COLUMN: &str = "path";

const NAME_COLUMN: TableColumn = Stored(NAME.id());

macro_rules! stored {
    ($($column:ident),*) => { &[$($column.id()),*] };
}

/// The first columns of tables of extended attributes.
const OF_XATTRS: &[TableColumn] = &[Path, Source, NAME_COLUMN, Type];

/// The first columns of tables of entries or directories.
const OF_ENTRIES: &[TableColumn] = &[Path, Source, NAME_COLUMN, Depth, Type, Dev];

/// The last columns of the tables of Lustre: attributes of the entry.
const OF_LUSTRE: &[ColumnId] = stored![INO, MODE, UID, GID, SIZE, MTIME];

#[rustfmt::skip]
pub(super) const TABLES: [&Table; 9] = [
    &Table::of_rows("entries", FileKind::Entries, OF_ENTRIES, stored![
        INO, MODE, NLINK, UID, GID, SIZE, BLKSIZE, BLOCKS, ATIME, MTIME, CTIME, BTIME, TARGET, RDEV,
        XATTRS
    ]),
    &Table::of_rows("directories", FileKind::Dirs, OF_ENTRIES, stored![
        INO, MODE, NLINK, UID, GID, SIZE, BLKSIZE, BLOCKS, ATIME, MTIME, CTIME, BTIME, XATTRS
    ]),
    &Table::of_rows("usage", FileKind::Usage, &[Path, Source], stored![
        UID, GID, COUNT, SIZE, BLOCKS
    ]),
    &Table::of_rows("xattrs", FileKind::Xattrs, OF_XATTRS, stored![
        KEY, VALUE, INO, MODE, UID, GID, SIZE, MTIME
    ]),
    &Table::of_values("acls", &acls::ACLS, &[]),
    &Table::of_values("layouts", &lustre::LAYOUTS, OF_LUSTRE),
    &Table::of_values("stripes", &lustre::STRIPES, OF_LUSTRE),
    &Table::of_values("directory_layouts", &lustre::DIRECTORY_LAYOUTS, OF_LUSTRE),
    &Table::of_values("hsm", &lustre::HSM, OF_LUSTRE),
];

/// Directories that can be listed, with their own attributes and counts of their entries, for
/// `gufi`.
#[rustfmt::skip]
pub(super) const LISTINGS: Table =
    Table::of_rows("listings", FileKind::Listings, &[Path, Source], stored![
        DEPTH, PART, INO, MODE, NLINK, UID, GID, SIZE, BLKSIZE, BLOCKS, ATIME, MTIME, CTIME, BTIME,
        FILES, SYMLINKS, OTHERS, SUBDIRS
    ]);

impl TableColumn {
    fn field(self) -> Field {
        let computed = |name, data_type| Field::new(name, data_type, false);
        match self {
            Path => computed(PATH_COLUMN, DataType::Utf8),
            Source => computed("source", DataType::Utf8),
            Depth => computed("depth", DataType::UInt32),
            Type => computed("type", DataType::Utf8),
            Dev => computed("dev", DataType::UInt64),
            // A birth that is not known is null.
            Stored(column) if column == BTIME.id() => column.field().with_nullable(true),
            Stored(column) => column.field(),
            Decoded(column) => column.field(),
        }
    }
}

impl Table {
    const fn of_rows(
        name: &'static str,
        kind: FileKind,
        first: &'static [TableColumn],
        stored: &'static [ColumnId],
    ) -> Self {
        Table { name, kind, first, decoder: None, stored }
    }

    /// Returns a table whose rows are made of values of extended attributes.
    const fn of_values(
        name: &'static str,
        decoder: &'static Decoder,
        stored: &'static [ColumnId],
    ) -> Self {
        let (kind, first) = (FileKind::Xattrs, OF_XATTRS);
        Table { name, kind, first, decoder: Some(decoder), stored }
    }

    /// Returns all its columns, in their order.
    fn columns(&self) -> Vec<TableColumn> {
        let decoded = self.decoder.into_iter().flat_map(|decoder| decoder.columns);
        let first = self.first.iter().copied().chain(decoded.map(Decoded));
        first.chain(self.stored.iter().map(|&column| Stored(column))).collect()
    }
}

/// A unit of work of a thread.
pub(super) enum Work {
    /// Rows of a file of a shard.
    Unit(Arc<SourceRecord>, Unit),
    /// The root of a source, which no listing holds.
    Root(Arc<SourceRecord>),
    /// An entry of a gate, which is in no listing that is seen.
    Unlisted(Arc<Unlisted>),
}

/// A table of the index.
#[derive(Debug)]
pub(super) struct IndexTable {
    table: &'static Table,
    columns: Vec<TableColumn>,
    threads: usize,
}

impl IndexTable {
    /// Describes a table of an index to the engine; opens nothing.
    pub(super) fn new(index: Arc<Index>, table: &'static Table, threads: usize) -> Provider<Self> {
        let columns = table.columns();
        let fields: Vec<Field> = columns.iter().map(|column| column.field()).collect();
        let schema = Arc::new(Schema::new(fields));
        Provider { index, schema, table: IndexTable { table, columns, threads } }
    }

    /// Returns its name in SQL.
    pub(super) fn name(&self) -> &'static str {
        self.table.name
    }

    /// Returns the units to read, without those that the predicates rule out. The units of a shard
    /// follow each other.
    fn plan(&self, seen: &Seen, restriction: &Restriction) -> canopy_read::Result<VecDeque<Work>> {
        let (index, kind) = (&*seen.index, self.table.kind);
        let mut work = VecDeque::new();
        for source in index.sources() {
            let source = Arc::new(source.clone());
            if kind == FileKind::Dirs
                && restriction.admits_root(&source)
                && index.shows_root(&source)
                && !root_is_listed(index, &source)?
            {
                work.push_back(Work::Root(source.clone()));
            }
            for unit in self.units(index, &source, restriction)? {
                if restriction.admits(&unit)? {
                    work.push_back(Work::Unit(source.clone(), unit));
                }
            }
        }
        let unlisted = seen.unlisted.iter().filter(|unlisted| match kind {
            FileKind::Dirs => unlisted.is_directory(),
            FileKind::Entries => !unlisted.is_directory(),
            kind => kind == FileKind::Xattrs,
        });
        work.extend(unlisted.cloned().map(Work::Unlisted));
        Ok(work)
    }

    fn units(
        &self,
        index: &Index,
        source: &SourceRecord,
        restriction: &Restriction,
    ) -> canopy_read::Result<Vec<Unit>> {
        let of = match self.table.kind {
            FileKind::Xattrs => {
                let subtree = restriction.subtree(source);
                let units = subtree.map(|path| {
                    plan::units_below(index, source.id, path.as_path(), FileKind::Xattrs)
                });
                return units.unwrap_or(Ok(Vec::new()));
            }
            FileKind::Listings | FileKind::Usage => RowPath::Listing,
            _ => RowPath::Entry,
        };
        let mut units = Vec::new();
        for SourceScope { path, below } in restriction.listings(source, of) {
            units.extend(match below {
                true => plan::units_below(index, source.id, path.as_path(), self.table.kind)?,
                false => plan::units_at(index, source.id, path.as_path(), self.table.kind)?,
            });
        }
        Ok(units)
    }

    /// Returns how much of the table the work is.
    fn extent(&self, index: &Index, work: &VecDeque<Work>) -> Extent {
        let (all_shards, all_groups) = index.file_counts(self.table.kind);
        let (mut shards, mut groups, mut last) = (0, 0, None);
        for work in work {
            let Work::Unit(_, unit) = work else { continue };
            let shard = Arc::as_ptr(&unit.shard);
            groups += 1;
            shards += usize::from(last.replace(shard) != Some(shard));
        }
        let counts = vec![("shards", shards, all_shards), ("row groups", groups, all_groups)];
        Extent { table: self.table.name.to_owned(), counts }
    }

    fn projection(&self, all: &SchemaRef, columns: &[usize]) -> Result<Projection> {
        let schema = Arc::new(all.project(columns)?);
        let columns = columns.iter().map(|&at| self.columns[at]).collect();
        Ok(Projection { table: self.table, columns, schema })
    }
}

impl Scannable for IndexTable {
    fn scan(&self, request: ScanRequest<'_>) -> Result<Arc<dyn ExecutionPlan>> {
        let ScanRequest { session, seen, all, columns, filters, restriction, limit, .. } = request;
        let work = self.plan(&seen, &restriction).map_err(external)?;
        let extent = self.extent(&seen.index, &work);
        let cheap = |at: usize| matches!(self.columns[at], Stored(_));
        let prefilter = match Prefilter::new(session, all, filters, cheap)? {
            Some(prefilter) if columns.iter().any(|at| !prefilter.columns.contains(at)) => {
                Some((self.projection(all, &prefilter.columns)?, prefilter))
            }
            _ => None,
        };
        let reader = Reader::new(self.projection(all, &columns)?, prefilter);
        queue::scan(extent, request.schema, work, self.threads, limit, move |work| {
            reader.read(work)
        })
    }
}

/// Makes a batch of so many rows, which may have no columns.
pub(super) fn batch_of(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> std::result::Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
}

/// Wraps an error of another crate for the engine.
pub(super) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

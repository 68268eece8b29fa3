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
use super::decoded::{Decode, DecodedColumn};
use super::lustre;
use super::places::Place;
use super::prefilter::Prefilter;
use super::provider::{Provider, ScanRequest, Scannable};
use super::queue;
use super::reader::{Projection, Reader};
use super::restriction::{Restriction, RowPath};
use super::scan::Extent;
use super::seen::{Seen, Unlisted};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
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
    /// The columns behind those that are made of values of extended attributes, and how.
    decoded: &'static [DecodedColumn],
    pub(super) decode: Option<Decode>,
    /// The columns behind those, as the file has them.
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
    /// What is made of the value of an extended attribute.
    Decoded(&'static DecodedColumn),
}

use TableColumn::{Decoded, Depth, Dev, Path, Source, Stored, Type};

/// The name of the column of absolute paths, which all tables have.
pub(super) const PATH_COLUMN: &str = "path";

const NAME_COLUMN: TableColumn = Stored(NAME.id());

macro_rules! stored {
    ($($column:ident),*) => { &[$($column.id()),*] };
}

/// The first columns of tables that are made of values of extended attributes.
const OF_VALUES: &[TableColumn] = &[Path, Source, NAME_COLUMN, Type];

/// The last ones of some of these: attributes of the entry.
const OF_ENTRIES: &[ColumnId] = stored![INO, MODE, UID, GID, SIZE, MTIME];

#[rustfmt::skip]
pub(super) const TABLES: [&Table; 9] = [
    &Table {
        name: "entries",
        kind: FileKind::Entries,
        first: &[Path, Source, NAME_COLUMN, Depth, Type, Dev],
        decoded: &[],
        decode: None,
        stored: stored![
            INO, MODE, NLINK, UID, GID, SIZE, BLKSIZE, BLOCKS, ATIME, MTIME, CTIME, BTIME, TARGET,
            RDEV, XATTRS
        ],
    },
    &Table {
        name: "directories",
        kind: FileKind::Dirs,
        first: &[Path, Source, NAME_COLUMN, Depth, Type, Dev],
        decoded: &[],
        decode: None,
        stored: stored![
            INO, MODE, NLINK, UID, GID, SIZE, BLKSIZE, BLOCKS, ATIME, MTIME, CTIME, BTIME, XATTRS
        ],
    },
    &Table {
        name: "usage",
        kind: FileKind::Usage,
        first: &[Path, Source],
        decoded: &[],
        decode: None,
        stored: stored![UID, GID, COUNT, SIZE, BLOCKS],
    },
    &Table {
        name: "xattrs",
        kind: FileKind::Xattrs,
        first: &[Path, Source, NAME_COLUMN, Type],
        decoded: &[],
        decode: None,
        stored: stored![KEY, VALUE, INO, MODE, UID, GID, SIZE, MTIME],
    },
    &Table {
        name: "acls",
        kind: FileKind::Xattrs,
        first: OF_VALUES,
        decoded: &acls::COLUMNS,
        decode: Some(acls::decode),
        stored: &[],
    },
    &Table {
        name: "layouts",
        kind: FileKind::Xattrs,
        first: OF_VALUES,
        decoded: &lustre::LAYOUT,
        decode: Some(lustre::layouts),
        stored: OF_ENTRIES,
    },
    &Table {
        name: "stripes",
        kind: FileKind::Xattrs,
        first: OF_VALUES,
        decoded: &lustre::STRIPE,
        decode: Some(lustre::stripes),
        stored: OF_ENTRIES,
    },
    &Table {
        name: "directory_layouts",
        kind: FileKind::Xattrs,
        first: OF_VALUES,
        decoded: &lustre::DIRECTORY,
        decode: Some(lustre::directory_layouts),
        stored: OF_ENTRIES,
    },
    &Table {
        name: "hsm",
        kind: FileKind::Xattrs,
        first: OF_VALUES,
        decoded: &lustre::HSM,
        decode: Some(lustre::hsm),
        stored: OF_ENTRIES,
    },
];

/// Directories that can be listed, with their own attributes and counts of their entries, for
/// `gufi`.
#[rustfmt::skip]
pub(super) const LISTINGS: Table = Table {
    name: "listings",
    kind: FileKind::Listings,
    first: &[Path, Source],
    decoded: &[],
    decode: None,
    stored: stored![
        DEPTH, PART, INO, MODE, NLINK, UID, GID, SIZE, BLKSIZE, BLOCKS, ATIME, MTIME, CTIME, BTIME,
        FILES, SYMLINKS, OTHERS, SUBDIRS
    ],
};

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
    /// Returns all its columns, in their order.
    fn columns(&self) -> Vec<TableColumn> {
        let (decoded, stored) = (self.decoded.iter(), self.stored.iter());
        let first = self.first.iter().copied().chain(decoded.map(Decoded));
        first.chain(stored.map(|&column| Stored(column))).collect()
    }

    /// Returns the columns that are made of values of extended attributes.
    pub(super) fn decoded_columns(&self) -> impl Iterator<Item = &'static DecodedColumn> {
        self.decoded.iter()
    }
}

/// What a thread reads at a time.
pub(super) enum Work {
    /// Rows of a file of a shard.
    Unit(Arc<SourceRecord>, Unit),
    /// The root of a source, which no listing holds.
    Root(Arc<SourceRecord>),
    /// An entry of a gate, which is in no listing that is seen.
    Unlisted(Arc<Unlisted>),
}

/// A table of the index.
pub(super) struct IndexTable {
    table: &'static Table,
    columns: Vec<TableColumn>,
    schema: SchemaRef,
    threads: usize,
}

impl IndexTable {
    /// Describes a table of an index to the engine; opens nothing.
    pub(super) fn new(index: Arc<Index>, table: &'static Table, threads: usize) -> Provider<Self> {
        let columns = table.columns();
        let fields: Vec<Field> = columns.iter().map(|column| column.field()).collect();
        let schema = Arc::new(Schema::new(fields));
        Provider { index, table: IndexTable { table, columns, schema, threads } }
    }

    /// Returns what has to be read, less what the predicates rule out. The units of a shard follow
    /// each other.
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
                let units = subtree
                    .map(|path| plan::units_below(index, source.id, &path, FileKind::Xattrs));
                return units.unwrap_or(Ok(Vec::new()));
            }
            FileKind::Listings | FileKind::Usage => RowPath::Listing,
            _ => RowPath::Entry,
        };
        let mut units = Vec::new();
        for Place { path, below } in restriction.listings(source, of) {
            units.extend(match below {
                true => plan::units_below(index, source.id, &path, self.table.kind)?,
                false => plan::units_at(index, source.id, &path, self.table.kind)?,
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

    fn projection(&self, columns: &[usize]) -> Result<Projection> {
        let schema = Arc::new(self.schema.project(columns)?);
        let columns = columns.iter().map(|&at| self.columns[at]).collect();
        Ok(Projection { table: self.table, columns, schema })
    }
}

impl Scannable for IndexTable {
    fn name(&self) -> &str {
        self.table.name
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn scan(&self, request: ScanRequest<'_>) -> Result<Arc<dyn ExecutionPlan>> {
        let ScanRequest { session, seen, columns, schema, filters, restriction, limit } = request;
        let work = self.plan(&seen, &restriction).map_err(external)?;
        let extent = self.extent(&seen.index, &work);
        let cheap = |at: usize| matches!(self.columns[at], Stored(_));
        let prefilter = match Prefilter::new(session, &self.schema, filters, cheap)? {
            Some(prefilter) if columns.iter().any(|at| !prefilter.columns.contains(at)) => {
                Some((self.projection(&prefilter.columns)?, prefilter))
            }
            _ => None,
        };
        let reader = Reader::new(self.projection(&columns)?, prefilter);
        queue::scan(extent, schema, work, self.threads, limit, move |work| reader.read(work))
    }
}

/// Wraps an error of another crate for the engine.
pub(super) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

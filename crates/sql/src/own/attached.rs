//! Attached tables: files that the asking user's process opens when a query names them, and reads
//! as the query runs.
//!
//! Contents of files are not trusted: any bytes give rows or one error.

use super::error::{FileError, TableError};
use super::{csv, parquet, sqlite};
use crate::queue::{self, Batches};
use crate::scan::Extent;
use crate::tables::batch_of;
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use canopy_index::{TableFormat, TableKind, TableRecord};
use canopy_model::escape;
use canopy_read::locate::to_path;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use rustix::fs::{FileType, Mode, OFlags};
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

/// Result of reading a file.
pub(super) type FileResult<T> = std::result::Result<T, FileError>;

/// Rows of some columns of a file, batch by batch.
pub(super) type FileRows = Box<dyn Iterator<Item = FileResult<Vec<ArrayRef>>> + Send>;

/// An opened file.
pub(super) trait Content: fmt::Debug + Send + Sync {
    /// Its columns.
    fn schema(&self) -> SchemaRef;

    /// Reads some columns, whose numbers ascend; at least one.
    fn read(&self, columns: &[usize]) -> FileResult<FileRows>;
}

/// A table whose rows are in a file.
#[derive(Clone, Debug)]
pub(super) struct AttachedTable {
    name: String,
    path: PathBuf,
    content: Arc<dyn Content>,
}

/// The format of a file that is about to be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachedFormat {
    /// Comma-separated values with a header.
    Csv,
    /// Parquet.
    Parquet,
    /// A table of an SQLite database; `None` if it has only one.
    Sqlite(Option<String>),
}

/// Returns the record of a table that is about to be attached, if its file can be read.
pub fn attach(
    name: &str,
    file: &Path,
    format: AttachedFormat,
) -> crate::error::Result<TableRecord> {
    let cannot_read = |cause| TableError::File { path: file.to_owned(), cause };
    let absolute = std::path::absolute(file).map_err(|error| cannot_read(error.into()))?;
    let format = match format {
        AttachedFormat::Csv => TableFormat::Csv,
        AttachedFormat::Parquet => TableFormat::Parquet,
        AttachedFormat::Sqlite(asked) => TableFormat::Sqlite {
            table: sqlite::choose(&absolute, asked.as_deref()).map_err(cannot_read)?,
        },
    };
    let file = escape(absolute.as_os_str().as_bytes()).into_owned();
    AttachedTable::open(name, &file, &format)?;
    Ok(TableRecord { name: name.to_owned(), kind: TableKind::Attached { file, format } })
}

impl AttachedTable {
    /// Opens the file, escaped, as the caller.
    pub(super) fn open(name: &str, file: &str, format: &TableFormat) -> Result<Self> {
        let path = to_path(file);
        let content: FileResult<Arc<dyn Content>> = guarded(|| match format {
            TableFormat::Csv => csv::open(&path).map(|content| Arc::new(content) as _),
            TableFormat::Parquet => parquet::open(&path).map(|content| Arc::new(content) as _),
            TableFormat::Sqlite { table } => {
                sqlite::open(&path, table).map(|content| Arc::new(content) as _)
            }
        });
        let content = content
            .and_then(|content| unique_names(&content.schema()).map(|()| content))
            .map_err(|cause| TableError::File { path: path.clone(), cause }.of(name))?;
        Ok(AttachedTable { name: name.to_owned(), path, content })
    }
}

fn unique_names(schema: &Schema) -> FileResult<()> {
    let mut names = HashSet::new();
    for field in schema.fields() {
        if field.name().is_empty() {
            return Err(FileError::UnnamedColumn);
        }
        if !names.insert(field.name()) {
            return Err(FileError::SameColumns(field.name().clone()));
        }
    }
    if names.is_empty() { Err(FileError::NoColumns) } else { Ok(()) }
}

/// Opens a file that must be a regular one: a pipe would wait for a writer.
pub(super) fn open_regular(path: &Path) -> FileResult<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(File::from(fd)),
        FileType::Directory => Err(FileError::Directory),
        _ => Err(FileError::NotRegular),
    }
}

thread_local! {
    /// Whether this thread decodes data that may make a decoder panic.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of `decode`, or why it failed. A panic is an error too, and is not reported
/// otherwise.
pub(super) fn guarded<T>(decode: impl FnOnce() -> FileResult<T>) -> FileResult<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                report(panic);
            }
        }));
    });
    GUARDED.set(true);
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    GUARDED.set(false);
    decoded.unwrap_or_else(|_| Err(FileError::Damaged))
}

#[async_trait]
impl TableProvider for AttachedTable {
    fn schema(&self) -> SchemaRef {
        self.content.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = self.content.schema();
        let columns = projection.cloned().unwrap_or_else(|| (0..all.fields().len()).collect());
        let schema = Arc::new(all.project(&columns)?);
        // A file is read by one thread.
        let extent = Extent { table: self.name.clone(), counts: Vec::new() };
        let (table, all) = (self.clone(), schema.clone());
        let read = move |columns: Vec<usize>| table.batches(&columns, &all);
        queue::scan(extent, schema, [columns].into(), 1, limit, read)
    }
}

impl AttachedTable {
    fn unreadable(&self, cause: FileError) -> DataFusionError {
        TableError::File { path: self.path.clone(), cause }.of(&self.name)
    }

    fn batches(&self, columns: &[usize], schema: &SchemaRef) -> Result<Batches> {
        // To count rows, one column has to be read.
        let mut wanted = if columns.is_empty() { vec![0] } else { columns.to_vec() };
        wanted.sort_unstable();
        wanted.dedup();
        let place = |column: &usize| wanted.partition_point(|other| other < column);
        let places: Vec<usize> = columns.iter().map(place).collect();
        let (table, schema) = (self.clone(), schema.clone());
        let rows =
            guarded(|| self.content.read(&wanted)).map_err(|cause| self.unreadable(cause))?;
        let mut rows = Some(rows);
        Ok(Box::new(std::iter::from_fn(move || {
            let open = rows.as_mut()?;
            let columns = guarded(|| open.next().transpose()).transpose()?;
            if columns.is_err() {
                // Data after a fault makes no sense.
                rows = None;
            }
            Some(columns.map_err(|cause| table.unreadable(cause)).and_then(|columns| {
                let chosen = places.iter().map(|&place| columns[place].clone()).collect();
                Ok(batch_of(&schema, chosen, columns[0].len())?)
            }))
        })))
    }
}

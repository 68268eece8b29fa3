//! Attached tables: files that are opened by the asking user, when a query names them, and read as
//! the query runs.
//!
//! What a file holds is not trusted: whatever is in it gives rows or one error.

use super::{Fault, csv, parquet, sqlite};
use crate::queue::{self, Batches};
use crate::scan::Extent;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use canopy_index::{TableFormat, TableKind, TableRecord};
use canopy_model::escape;
use canopy_read::locate::to_path;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
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

/// Rows of a batch.
pub(super) const BATCH_ROWS: usize = 8192;

/// What went wrong with a file, to follow "cannot read FILE: ".
pub(super) type FileResult<T> = std::result::Result<T, String>;

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
#[derive(Debug)]
pub(super) struct AttachedTable {
    name: String,
    path: PathBuf,
    content: Arc<dyn Content>,
}

/// The record of a table that is about to be attached, if its file can be read. `sqlite_table` is
/// the table of an SQLite database; if it has only one, that is taken.
pub fn attach(
    name: &str,
    file: &Path,
    format: &str,
    sqlite_table: Option<&str>,
) -> crate::error::Result<TableRecord> {
    let fault = |why: String| crate::error::Error::Sql(why);
    let shown = file.display();
    let absolute = std::path::absolute(file)
        .map_err(|error| fault(format!("cannot read {shown}: {error}")))?;
    let format = match format {
        "csv" => TableFormat::Csv,
        "parquet" => TableFormat::Parquet,
        _ => {
            let chosen = sqlite::choose(&absolute, sqlite_table);
            TableFormat::Sqlite {
                table: chosen.map_err(|why| fault(format!("cannot read {shown}: {why}")))?,
            }
        }
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
            .map_err(|why| cannot_read(name, &path, &why))?;
        Ok(AttachedTable { name: name.to_owned(), path, content })
    }
}

fn cannot_read(name: &str, path: &Path, why: &str) -> datafusion::error::DataFusionError {
    Fault::of(name, format_args!("cannot read {}: {why}", path.display()))
}

fn unique_names(schema: &Schema) -> FileResult<()> {
    let mut names = HashSet::new();
    for field in schema.fields() {
        if field.name().is_empty() {
            return Err("a column has no name".to_owned());
        }
        if !names.insert(field.name()) {
            return Err(format!("two columns are called '{}'", field.name()));
        }
    }
    if names.is_empty() { Err("it has no columns".to_owned()) } else { Ok(()) }
}

/// Opens a file that must be a regular one: a pipe would wait for whoever writes to it.
pub(super) fn open_regular(path: &Path) -> FileResult<File> {
    let text = |errno: rustix::io::Errno| std::io::Error::from(errno).to_string();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(text)?;
    let stat = rustix::fs::fstat(&fd).map_err(text)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(File::from(fd)),
        FileType::Directory => Err("it is a directory".to_owned()),
        _ => Err("it is no regular file".to_owned()),
    }
}

thread_local! {
    /// Whether this thread decodes what may make a decoder panic.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// What `decode` gives, or why it cannot, be it an error or a panic, which is not reported as one.
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
    decoded.unwrap_or_else(|_| Err("it is damaged: its lengths or offsets do not fit".to_owned()))
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
        let columns = Columns {
            name: self.name.clone(),
            path: self.path.clone(),
            content: self.content.clone(),
            columns,
            schema: schema.clone(),
        };
        // A file is read by one thread.
        let extent = Extent { table: self.name.clone(), counts: Vec::new() };
        queue::scan(extent, schema, [columns].into(), 1, limit, |columns| columns.batches())
    }
}

/// Columns of a file to be read.
struct Columns {
    name: String,
    path: PathBuf,
    content: Arc<dyn Content>,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl Columns {
    fn batches(&self) -> Result<Batches> {
        // To count rows, one column has to be read.
        let mut wanted: Vec<usize> =
            if self.columns.is_empty() { vec![0] } else { self.columns.clone() };
        wanted.sort_unstable();
        wanted.dedup();
        let places: Vec<usize> = self
            .columns
            .iter()
            .map(|column| wanted.partition_point(|other| other < column))
            .collect();
        let (name, path, schema) = (self.name.clone(), self.path.clone(), self.schema.clone());
        let rows = guarded(|| self.content.read(&wanted))
            .map_err(|why| cannot_read(&name, &path, &why))?;
        let mut rows = Some(rows);
        Ok(Box::new(std::iter::from_fn(move || {
            let open = rows.as_mut()?;
            let columns = guarded(|| open.next().transpose()).transpose()?;
            if columns.is_err() {
                // What comes after a fault makes no sense.
                rows = None;
            }
            Some(columns.map_err(|why| cannot_read(&name, &path, &why)).and_then(|columns| {
                let options = RecordBatchOptions::new()
                    .with_row_count(columns.first().map(|column| column.len()));
                let chosen = places.iter().map(|&place| columns[place].clone()).collect();
                Ok(RecordBatch::try_new_with_options(schema.clone(), chosen, &options)?)
            }))
        })))
    }
}

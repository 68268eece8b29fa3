//! Tables of SQLite databases.
//!
//! A database is opened read-only and as one that nobody changes, so that nothing is written beside
//! it. Any value may be in any column: the file is read once for what is there, as with CSV. Views
//! and virtual tables are left alone, as they run what the file says. Texts that are not UTF-8 are
//! escaped like names.

use super::attached::{Content, FileResult, FileRows, guarded, open_regular};
use super::error::FileError;
use arrow::array::{ArrayRef, BinaryBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use canopy_import::{open_foreign_sqlite, plain_sqlite_tables};
use canopy_model::escape;
use canopy_read::plan::BATCH_ROWS;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Bytes from which on a batch is full.
const BATCH_BYTES: usize = 8 << 20;

/// A table of a database.
#[derive(Debug)]
pub(super) struct Sqlite {
    path: PathBuf,
    table: String,
    schema: SchemaRef,
}

fn connect(path: &Path) -> FileResult<Connection> {
    drop(open_regular(path)?);
    open_foreign_sqlite(path).map_err(|why| FileError::Refused(why.to_string()))
}

fn tables_of(connection: &Connection) -> FileResult<Vec<String>> {
    plain_sqlite_tables(connection).map_err(|why| FileError::Refused(why.to_string()))
}

/// Returns the table to take: the one that was asked for, or the only one.
pub(super) fn choose(path: &Path, asked: Option<&str>) -> FileResult<String> {
    let tables = tables_of(&connect(path)?)?;
    match (asked, &tables[..]) {
        (Some(asked), _) if tables.iter().any(|table| table == asked) => Ok(asked.to_owned()),
        (None, [only]) => Ok(only.clone()),
        (_, []) => Err(FileError::NoTables),
        (Some(asked), _) => Err(FileError::NoTable { asked: asked.to_owned(), known: tables }),
        (None, _) => Err(FileError::SeveralTables(tables)),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Opens a table and finds the types of its columns.
pub(super) fn open(path: &Path, table: &str) -> FileResult<Sqlite> {
    let connection = connect(path)?;
    if !tables_of(&connection)?.iter().any(|known| known == table) {
        return Err(FileError::NoTable { asked: table.to_owned(), known: Vec::new() });
    }
    let query = "SELECT name, type FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid";
    let mut statement = connection.prepare(query)?;
    let columns = statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let columns: Vec<(String, String)> = columns.collect::<rusqlite::Result<_>>()?;
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let mut found = vec![ValueTypes::default(); columns.len()];
    each_row(&connection, table, &names, |row| {
        for (at, found) in found.iter_mut().enumerate() {
            found.add(row.get_ref(at)?);
        }
        Ok(true)
    })?;
    let fields = columns.iter().zip(found);
    let fields =
        fields.map(|((name, declared), found)| Field::new(name, found.data_type(declared), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(Sqlite { path: path.to_owned(), table: table.to_owned(), schema })
}

/// Calls `row` for each row until it says no.
fn each_row(
    connection: &Connection,
    table: &str,
    columns: &[&str],
    mut row: impl FnMut(&Row<'_>) -> FileResult<bool>,
) -> FileResult<()> {
    let columns: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let query = format!("SELECT {} FROM main.{}", columns.join(", "), quoted(table));
    let mut statement = connection.prepare(&query)?;
    let mut rows = statement.query(())?;
    while let Some(next) = rows.next()? {
        if !row(next)? {
            break;
        }
    }
    Ok(())
}

/// Types of the values in a column.
#[derive(Clone, Copy, Default)]
struct ValueTypes {
    integer: bool,
    real: bool,
    text: bool,
    blob: bool,
}

impl ValueTypes {
    fn add(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => {}
            ValueRef::Integer(_) => self.integer = true,
            ValueRef::Real(_) => self.real = true,
            ValueRef::Text(_) => self.text = true,
            ValueRef::Blob(_) => self.blob = true,
        }
    }

    /// Returns the type that holds all values; without values, the declared one.
    fn data_type(self, declared: &str) -> DataType {
        let declared = declared.to_uppercase();
        match self {
            ValueTypes { text: true, .. } => DataType::Utf8,
            ValueTypes { blob: true, integer: false, real: false, .. } => DataType::Binary,
            ValueTypes { blob: true, .. } => DataType::Utf8,
            ValueTypes { real: true, .. } => DataType::Float64,
            ValueTypes { integer: true, .. } => DataType::Int64,
            _ if declared.contains("INT") => DataType::Int64,
            _ if ["REAL", "FLOA", "DOUB"].iter().any(|word| declared.contains(word)) => {
                DataType::Float64
            }
            _ if declared.contains("BLOB") => DataType::Binary,
            _ => DataType::Utf8,
        }
    }
}

impl Content for Sqlite {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Reads in a thread of its own, since a statement cannot outlive the place where its
    /// connection is.
    fn read(&self, columns: &[usize]) -> FileResult<FileRows> {
        let fields: Vec<Arc<Field>> =
            columns.iter().map(|&at| self.schema.fields()[at].clone()).collect();
        let (path, table) = (self.path.clone(), self.table.clone());
        let (sender, receiver) = sync_channel(2);
        std::thread::spawn(move || {
            let end = guarded(|| send_rows(&path, &table, &fields, &sender)).map(|()| None);
            // The receiver may be gone.
            drop(sender.send(end));
        });
        let mut ended = false;
        let next = move || {
            if ended {
                return None;
            }
            // A thread that ends without a word has failed.
            let rows = receiver.recv().unwrap_or_else(|_| Err(FileError::Abandoned)).transpose();
            ended = !matches!(rows, Some(Ok(_)));
            rows
        };
        Ok(Box::new(std::iter::from_fn(next)))
    }
}

fn send_rows(
    path: &Path,
    table: &str,
    fields: &[Arc<Field>],
    sender: &SyncSender<FileResult<Option<Vec<ArrayRef>>>>,
) -> FileResult<()> {
    let connection = connect(path)?;
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    let new = || fields.iter().map(|field| Values::of(field.data_type())).collect::<Vec<_>>();
    let finish = |values: Vec<Values>| values.into_iter().map(Values::finish).collect::<Vec<_>>();
    let (mut values, mut rows, mut bytes) = (new(), 0, 0);
    each_row(&connection, table, &names, |row| {
        for (at, values) in values.iter_mut().enumerate() {
            bytes += values.push(row.get_ref(at)?)?;
        }
        rows += 1;
        if rows < BATCH_ROWS && bytes < BATCH_BYTES {
            return Ok(true);
        }
        (rows, bytes) = (0, 0);
        Ok(sender.send(Ok(Some(finish(std::mem::replace(&mut values, new()))))).is_ok())
    })?;
    if rows > 0 {
        drop(sender.send(Ok(Some(finish(values)))));
    }
    Ok(())
}

/// Values of a column in the making.
enum Values {
    Int(Int64Builder),
    Float(Float64Builder),
    Bytes(BinaryBuilder),
    Text(StringBuilder),
}

impl Values {
    fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Int64 => Values::Int(Int64Builder::new()),
            DataType::Float64 => Values::Float(Float64Builder::new()),
            DataType::Binary => Values::Bytes(BinaryBuilder::new()),
            _ => Values::Text(StringBuilder::new()),
        }
    }

    /// Adds a value and returns how many bytes it takes.
    fn push(&mut self, value: ValueRef<'_>) -> FileResult<usize> {
        match (self, value) {
            (Values::Int(values), ValueRef::Null) => values.append_null(),
            (Values::Float(values), ValueRef::Null) => values.append_null(),
            (Values::Bytes(values), ValueRef::Null) => values.append_null(),
            (Values::Text(values), ValueRef::Null) => values.append_null(),
            (Values::Int(values), ValueRef::Integer(value)) => values.append_value(value),
            (Values::Float(values), ValueRef::Integer(value)) => values.append_value(value as f64),
            (Values::Float(values), ValueRef::Real(value)) => values.append_value(value),
            (Values::Bytes(values), ValueRef::Blob(value)) => {
                values.append_value(value);
                return Ok(value.len());
            }
            (Values::Text(values), ValueRef::Integer(value)) => {
                values.append_value(value.to_string())
            }
            (Values::Text(values), ValueRef::Real(value)) => values.append_value(value.to_string()),
            (Values::Text(values), ValueRef::Text(value) | ValueRef::Blob(value)) => {
                values.append_value(escape(value));
                return Ok(value.len());
            }
            _ => return Err(FileError::Changed),
        }
        Ok(8)
    }

    fn finish(self) -> ArrayRef {
        match self {
            Values::Int(mut values) => Arc::new(values.finish()),
            Values::Float(mut values) => Arc::new(values.finish()),
            Values::Bytes(mut values) => Arc::new(values.finish()),
            Values::Text(mut values) => Arc::new(values.finish()),
        }
    }
}

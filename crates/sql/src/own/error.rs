//! Errors of tables that the administrator adds.

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use canopy_model::ErrorKind;
use datafusion::error::DataFusionError;
use parquet::errors::ParquetError;
use std::path::PathBuf;

/// Reason why a table cannot be added, made or read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The name is not one that a table may have.
    #[error(
        "'{0}' cannot be the name of a table: take lower-case letters, digits and '_', no digit in \
         front and at most 64 in all"
    )]
    BadName(String),
    /// The index has a table of this name itself.
    #[error("'{0}' is a table of the index; choose another name")]
    NameOfIndex(String),
    /// The name means something else in a query.
    #[error("'{0}' is a word of SQL; choose another name")]
    NameOfSql(String),
    /// There is no derived table of this name.
    #[error("no derived table '{0}' was added to the index")]
    NotDerived(String),
    /// The query of a derived table does something else than select.
    #[error("a derived table is made of a SELECT")]
    NotSelect,
    /// A column of a derived table has no name that can be stored.
    #[error("the column '{0}' needs a name: add AS and an identifier")]
    UnnamedColumn(String),
    /// Two columns of a derived table have one name.
    #[error("two columns are called '{0}': rename one with AS")]
    SameColumns(String),
    /// A column of a derived table holds values that cannot be stored.
    #[error(
        "the column '{column}' is of type {data_type}, which a derived table cannot hold: cast it"
    )]
    ColumnType {
        /// The column.
        column: String,
        /// The type of its values.
        data_type: String,
    },
    /// Rows of a derived table do not fit its columns.
    #[error("{0}")]
    Rows(ArrowError),
    /// The file of a table that is about to be attached cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: FileError,
    },
    /// A query cannot read a table.
    #[error("table {table}: {cause}")]
    Query {
        /// The table.
        table: String,
        /// Why.
        cause: Box<TableError>,
    },
    /// The query of a derived table reads a table that was added.
    #[error("it was added to the index; a derived table is made of the index's own tables alone")]
    Added,
    /// A derived table has no rows until it is made again.
    #[error(
        "a source was indexed since and it could not be derived again; whoever writes the index \
         runs 'canopy table refresh'"
    )]
    Stale,
}

impl TableError {
    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TableError::NotDerived(_) => ErrorKind::NotFound,
            TableError::File { cause, .. } => cause.kind(),
            TableError::Query { cause, .. } => cause.kind(),
            TableError::Stale => ErrorKind::Unavailable,
            TableError::BadName(_)
            | TableError::NameOfIndex(_)
            | TableError::NameOfSql(_)
            | TableError::NotSelect
            | TableError::UnnamedColumn(_)
            | TableError::SameColumns(_)
            | TableError::ColumnType { .. }
            | TableError::Rows(_)
            | TableError::Added => ErrorKind::Invalid,
        }
    }

    /// Returns the error of a query that reads a table.
    pub(super) fn of(self, table: &str) -> DataFusionError {
        let error = TableError::Query { table: table.to_owned(), cause: Box::new(self) };
        DataFusionError::External(Box::new(error))
    }
}

/// A fault of an attached file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is a directory.
    #[error("it is a directory")]
    Directory,
    /// It is a pipe, a device or the like.
    #[error("it is not a regular file")]
    NotRegular,
    /// A CSV file without a header.
    #[error("it is empty; its first line must name the columns")]
    Empty,
    /// It has no columns.
    #[error("it has no columns")]
    NoColumns,
    /// A column has no name.
    #[error("a column has no name")]
    UnnamedColumn,
    /// Two columns have one name.
    #[error("two columns are called '{0}'")]
    SameColumns(String),
    /// A database without tables.
    #[error("it has no tables")]
    NoTables,
    /// A database without the table that was asked for.
    #[error("it has no table '{asked}'{}", others(.known))]
    NoTable {
        /// The table that was asked for.
        asked: String,
        /// Those that there are, as far as that is of use.
        known: Vec<String>,
    },
    /// A database with several tables, where none was asked for.
    #[error("it has the tables {}; choose one with --sqlite-table", .0.join(", "))]
    SeveralTables(Vec<String>),
    /// It has other values than when it was opened.
    #[error("it changes while it is read")]
    Changed,
    /// A value is no longer of the type that was found when it was opened.
    #[error("it changes while it is read: '{text}' is not of the type {data_type}")]
    ValueChanged {
        /// The value.
        text: String,
        /// The type.
        data_type: DataType,
    },
    /// A decoder gave up on it.
    #[error("it is damaged: its lengths or offsets do not fit")]
    Damaged,
    /// The thread that read it ended early.
    #[error("reading it failed")]
    Abandoned,
    /// Its rows are not as its format has them.
    #[error(transparent)]
    Rows(#[from] ArrowError),
    /// It is not a Parquet file, or a damaged one.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// SQLite cannot read it.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// It is refused before it is read, as unsafe to read.
    #[error("{0}")]
    Refused(String),
}

impl FileError {
    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            FileError::Io(source) => ErrorKind::of_io(source),
            FileError::NoTable { .. } => ErrorKind::NotFound,
            FileError::Changed | FileError::ValueChanged { .. } => ErrorKind::Busy,
            FileError::Damaged | FileError::Rows(_) | FileError::Parquet(_) => ErrorKind::Corrupt,
            FileError::Sqlite(error) => kind_of_sqlite(error),
            FileError::Abandoned => ErrorKind::Internal,
            FileError::Directory
            | FileError::NotRegular
            | FileError::Empty
            | FileError::NoColumns
            | FileError::UnnamedColumn
            | FileError::SameColumns(_)
            | FileError::NoTables
            | FileError::SeveralTables(_)
            | FileError::Refused(_) => ErrorKind::Invalid,
        }
    }
}

/// Returns the kind of an error of SQLite.
fn kind_of_sqlite(error: &rusqlite::Error) -> ErrorKind {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ErrorKind::Busy,
        Some(ErrorCode::PermissionDenied) => ErrorKind::Denied,
        Some(ErrorCode::OutOfMemory | ErrorCode::DiskFull) => ErrorKind::Exhausted,
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => ErrorKind::Unavailable,
        _ => ErrorKind::Corrupt,
    }
}

fn others(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!(", but {}", known.join(", ")) }
}

impl From<rustix::io::Errno> for FileError {
    fn from(errno: rustix::io::Errno) -> Self {
        FileError::Io(errno.into())
    }
}

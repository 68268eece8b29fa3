//! Errors of SQL.

use crate::messages::{refusal, regular_expression};
use crate::own::TableError;
use canopy_model::ErrorKind;
use canopy_text::human_size;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A place in a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementPosition {
    /// A line and a column in characters, both from 1 on.
    At(u64, u64),
    /// Behind its end.
    End,
}

/// An error of SQL.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The index has no answer.
    #[error(transparent)]
    Read(#[from] canopy_read::Error),
    /// Answers could not be written.
    #[error("cannot write the answer")]
    Output(#[from] std::io::Error),
    /// A table that the administrator adds cannot be made or read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A statement takes more time than it may.
    #[error("the statement took more than {} s", .0.as_secs_f64())]
    Time(std::time::Duration),
    /// A statement needs more memory than it may use.
    #[error("the statement needs more memory than {}: {detail}", human_size(*.limit_bytes as i64))]
    Memory {
        /// The limit of memory.
        limit_bytes: usize,
        /// The consumer that asked for more.
        detail: String,
    },
    /// A thread of a statement has panicked.
    #[error("the statement was broken off, and its answer is not whole: {0}")]
    Broken(String),
    /// A statement names a table that is none.
    #[error("no table '{name}'")]
    NoTable {
        /// Its name.
        name: String,
        /// Where that stands in the statement, if it is known.
        place: Option<StatementPosition>,
    },
    /// A statement is wrong, or cannot be carried out.
    #[error("{said}")]
    Refused {
        /// The fault.
        said: String,
        /// Where in the statement, if it is known.
        place: Option<StatementPosition>,
    },
    /// The SQL engine refused.
    #[error("{said}")]
    Sql {
        /// The kind, by which a caller reacts to the error.
        kind: ErrorKind,
        /// The fault, in one line or several.
        said: String,
    },
}

impl Error {
    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Read(error) => error.kind(),
            Error::Output(source) => ErrorKind::of_io(source),
            Error::Table(error) => error.kind(),
            Error::Time(_) | Error::Memory { .. } => ErrorKind::Exhausted,
            Error::Broken(_) => ErrorKind::Internal,
            Error::NoTable { .. } => ErrorKind::NotFound,
            Error::Refused { .. } => ErrorKind::Invalid,
            Error::Sql { kind, .. } => *kind,
        }
    }

    /// Returns whether the reader of the answers has gone away, which is not a fault.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl From<canopy_index::Error> for Error {
    fn from(error: canopy_index::Error) -> Self {
        Error::Read(error.into())
    }
}

impl From<datafusion::error::DataFusionError> for Error {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        use datafusion::error::DataFusionError;
        let cause = match error.find_root() {
            DataFusionError::External(cause) => cause,
            DataFusionError::ResourcesExhausted(detail) => {
                // The first line names the consumer that asked for more; the others list other
                // consumers.
                let detail = detail.lines().next().unwrap_or_default().to_owned();
                return Error::Memory { limit_bytes: 0, detail };
            }
            _ => return refusal(&error),
        };
        // An error of ours, which says all by itself, with what caused it.
        let mut message = cause.to_string();
        let kind = kind_of(cause.as_ref());
        let mut next = cause.source();
        while let Some(cause) = next {
            message = format!("{message}: {cause}");
            next = cause.source();
        }
        if message.starts_with("regex parse error") {
            message = regular_expression(&message);
        }
        Error::Sql { kind, said: message }
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Error::Output(canopy_index::parquet_write_error(error))
    }
}

/// Returns the kind of an error of ours that has come through the SQL engine. Others are about the
/// statement.
fn kind_of(error: &(dyn std::error::Error + 'static)) -> ErrorKind {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<canopy_read::Error>() {
            return error.kind();
        }
        if let Some(error) = error.downcast_ref::<canopy_index::Error>() {
            return error.kind();
        }
        if let Some(error) = error.downcast_ref::<TableError>() {
            return error.kind();
        }
        if let Some(error) = error.downcast_ref() {
            return ErrorKind::of_io(error);
        }
        next = error.source();
    }
    ErrorKind::Invalid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::FileError;
    use crate::tables::external;
    use datafusion::error::DataFusionError;
    use std::io;
    use std::time::Duration;

    #[test]
    fn errors_have_kinds() {
        let name = || "a".to_owned();
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let file = |cause| TableError::File { path: "/t".into(), cause };
        let query = |cause| TableError::Query { table: name(), cause: Box::new(cause) };
        for (error, kind) in [
            (canopy_index::Error::NoIndex("/i".into()).into(), ErrorKind::NotFound),
            (Error::Output(io::ErrorKind::StorageFull.into()), ErrorKind::Exhausted),
            (Error::Time(Duration::from_secs(1)), ErrorKind::Exhausted),
            (Error::Memory { limit_bytes: 1, detail: name() }, ErrorKind::Exhausted),
            (Error::Broken(name()), ErrorKind::Internal),
            (Error::NoTable { name: name(), place: None }, ErrorKind::NotFound),
            (Error::Refused { said: name(), place: None }, ErrorKind::Invalid),
            (TableError::BadName(name()).into(), ErrorKind::Invalid),
            (TableError::NotDerived(name()).into(), ErrorKind::NotFound),
            (TableError::Stale.into(), ErrorKind::Unavailable),
            (file(FileError::Io(denied())).into(), ErrorKind::Denied),
            (file(FileError::Directory).into(), ErrorKind::Invalid),
            (file(FileError::Damaged).into(), ErrorKind::Corrupt),
            (file(FileError::Changed).into(), ErrorKind::Busy),
            (file(FileError::Abandoned).into(), ErrorKind::Internal),
            (query(TableError::Stale).into(), ErrorKind::Unavailable),
            (query(file(FileError::Changed)).into(), ErrorKind::Busy),
        ] {
            assert_eq!(error.kind(), kind, "{error}");
        }
    }

    #[test]
    fn errors_that_come_through_the_engine_keep_their_kind() {
        let damaged = || TableError::File { path: "/t".into(), cause: FileError::Damaged };
        let absent = || canopy_index::Error::NoIndex("/i".into());
        for (error, kind) in [
            (external(absent()), ErrorKind::NotFound),
            (external(canopy_read::Error::from(absent())), ErrorKind::NotFound),
            (external(damaged()), ErrorKind::Corrupt),
            (external(io::Error::from(io::ErrorKind::StorageFull)), ErrorKind::Exhausted),
            (external(std::fmt::Error), ErrorKind::Invalid),
            (external(damaged()).context("scan"), ErrorKind::Corrupt),
            (DataFusionError::ResourcesExhausted("sort".into()), ErrorKind::Exhausted),
            (DataFusionError::Plan("wrong".into()), ErrorKind::Invalid),
        ] {
            let error = Error::from(error);
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}

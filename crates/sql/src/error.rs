//! What can go wrong with SQL.

use crate::own::TableError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong with SQL.
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
    /// Who asked has had enough.
    #[error("stopped")]
    Stopped,
    /// The SQL engine refused.
    #[error("{0}")]
    Sql(String),
}

impl Error {
    /// Returns whether the reader of the answers has gone away, which is no fault.
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
        let DataFusionError::External(cause) = error.find_root() else {
            return Error::Sql(error.strip_backtrace());
        };
        // An error of ours, which says all by itself, with what caused it.
        let mut message = cause.to_string();
        let mut next = cause.source();
        while let Some(cause) = next {
            message = format!("{message}: {cause}");
            next = cause.source();
        }
        Error::Sql(message)
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Error::Output(canopy_index::parquet_write_error(error))
    }
}

//! What can go wrong with SQL.

use crate::messages::{refusal, regular_expression};
use crate::own::TableError;
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
    /// A statement takes more time than it may.
    #[error("the statement took more than {} s", .0.as_secs_f64())]
    Time(std::time::Duration),
    /// A statement needs more memory than it may use.
    #[error("the statement needs more memory than {}: {detail}", human_size(*.limit_bytes as i64))]
    Memory {
        /// What it may use.
        limit_bytes: usize,
        /// What asked for more.
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
        /// What is wrong.
        said: String,
        /// Where in the statement, if it is known.
        place: Option<StatementPosition>,
    },
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
        let cause = match error.find_root() {
            DataFusionError::External(cause) => cause,
            DataFusionError::ResourcesExhausted(detail) => {
                // What else has memory fills lines.
                let detail = detail.lines().next().unwrap_or_default().to_owned();
                return Error::Memory { limit_bytes: 0, detail };
            }
            _ => return refusal(&error),
        };
        // An error of ours, which says all by itself, with what caused it.
        let mut message = cause.to_string();
        let mut next = cause.source();
        while let Some(cause) = next {
            message = format!("{message}: {cause}");
            next = cause.source();
        }
        if message.starts_with("regex parse error") {
            message = regular_expression(&message);
        }
        Error::Sql(message)
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Error::Output(canopy_index::parquet_write_error(error))
    }
}

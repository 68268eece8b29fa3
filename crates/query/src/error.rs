//! What can go wrong with a query.

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with a query.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The index cannot be read.
    #[error(transparent)]
    Index(#[from] canopy_index::Error),
    /// No source holds this path.
    #[error("no index covers {path}; indexed are: {covered} ('canopy index {path}' adds it)")]
    NotCovered {
        /// The absolute path.
        path: String,
        /// The roots of the sources that the caller may know of.
        covered: String,
    },
    /// A source holds the path, but nothing is there that the caller may see.
    #[error("{0}: no such file or directory in the index, or not for you to see")]
    NotFound(String),
    /// The format of an export needs directories.
    #[error("{0}: not a directory, which this format begins with")]
    NotADirectory(String),
    /// A report is about directories.
    #[error("{0}: not a directory")]
    NotDirectory(String),
    /// The format of an export tells paths by their last component.
    #[error("two paths end in '{0}', which this format cannot tell apart")]
    SameName(String),
    /// The format of an export shows one tree.
    #[error("this format shows one directory; name one PATH")]
    OneDirectory,
    /// A format has a directive that makes no sense.
    #[error("'{0}': invalid directive")]
    Directive(String),
    /// Answers could not be written.
    #[error("cannot write the answer")]
    Output(#[from] std::io::Error),
    /// Who asked has had enough.
    #[error("stopped")]
    Stopped,
    /// The SQL engine refused.
    #[error("{0}")]
    Sql(String),
}

impl Error {
    /// Whether the reader of the answers has gone away, which is no fault.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl From<datafusion::error::DataFusionError> for Error {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        use datafusion::error::DataFusionError;
        let DataFusionError::External(cause) = error.find_root() else {
            return Error::Sql(error.strip_backtrace());
        };
        // An error of ours, which says all by itself, with what caused it.
        let mut told = cause.to_string();
        let mut next = cause.source();
        while let Some(cause) = next {
            told = format!("{told}: {cause}");
            next = cause.source();
        }
        Error::Sql(told)
    }
}

impl From<parquet::errors::ParquetError> for Error {
    /// For files that are written: the library hides the cause of a failed write in its own error.
    fn from(error: parquet::errors::ParquetError) -> Self {
        use parquet::errors::ParquetError;
        Error::Output(match error {
            ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
                Ok(cause) => *cause,
                Err(cause) => std::io::Error::other(cause),
            },
            other => std::io::Error::other(other),
        })
    }
}

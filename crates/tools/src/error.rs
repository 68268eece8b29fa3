//! What can go wrong with a tool.

use canopy_read::follow::Lost;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong with a tool.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The index has no answer.
    #[error(transparent)]
    Read(#[from] canopy_read::Error),
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
    /// A directory lies in itself, by a mount or a symbolic link.
    #[error("{0}: not listing already-listed directory")]
    AlreadyListed(String),
    /// What is searched cannot be read.
    #[error("cannot read the records")]
    Records(#[source] std::io::Error),
    /// A text cannot be compared with a pattern.
    #[error(transparent)]
    Text(#[from] canopy_text::Error),
    /// Answers could not be written.
    #[error("cannot write the answer")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// Returns whether a path that the user gave has no answer, which leaves the answers for other
    /// paths.
    pub fn is_of_path(&self) -> bool {
        match self {
            Error::Read(error) => error.is_of_path(),
            Error::AlreadyListed(_) => true,
            _ => false,
        }
    }

    /// Returns why a symbolic link at a path cannot be looked through.
    pub(crate) fn of_link(given: &[u8], lost: Lost) -> Self {
        lost.error(String::from_utf8_lossy(given).into_owned()).into()
    }

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

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Error::Output(canopy_index::parquet_write_error(error))
    }
}

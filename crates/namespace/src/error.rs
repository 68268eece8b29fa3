//! What goes wrong, each with the number that system calls have for it.

use rustix::io::Errno;

/// Outcomes of operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation did nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What POSIX says of such a call.
    #[error("{0}")]
    Posix(Errno),
    /// The table could not be read or written.
    #[error(transparent)]
    Store(#[from] canopy_store::Error),
    /// A file of the local directory for contents could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Records that no namespace has.
    #[error("damaged: {0}")]
    Corrupt(String),
    /// A wrong request, and what would be right.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Error::Corrupt(what.into())
    }

    /// Returns whether records are damaged, or files that have them.
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Store(error) => error.is_damage(),
            Error::Corrupt(_) => true,
            _ => false,
        }
    }

    /// Returns the number that a system call fails with.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Posix(errno) => *errno,
            Error::Io { source, .. } => {
                source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
            }
            Error::Invalid(_) => Errno::INVAL,
            Error::Store(
                canopy_store::Error::Storage { source, .. }
                | canopy_store::Error::Deferred { source, .. },
            ) => source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error),
            Error::Store(_) | Error::Corrupt(_) => Errno::IO,
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Error::Posix(errno)
    }
}

//! Errors of the engine.

mod reasons;

pub use reasons::{Contended, Fenced, Invalid, RecordFault};

use canopy_model::ErrorKind;
use rustix::io::Errno;
use std::io;

/// An error of the engine. Messages name the object that they are about.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such object: it never was, or it was collected.
    #[error("{0}: no such object")]
    NotFound(String),
    /// An object's bytes are not what they must be.
    #[error("{object}: {what}")]
    Corrupt {
        /// Name of the object.
        object: String,
        /// Description of the damage.
        what: String,
    },
    /// Storage failed. Whether a write happened is not known.
    #[error("{object}: {source}")]
    Storage {
        /// Name of the object.
        object: String,
        /// The error that storage returned.
        source: io::Error,
    },
    /// Storage takes nothing more now: it is full, or does not answer. Earlier writes are not lost:
    /// a later write or sync puts them into storage.
    #[error("{object}: {source}")]
    Deferred {
        /// Name of the object.
        object: String,
        /// The error that storage returned.
        source: io::Error,
    },
    /// Another process has opened the table for writing, or ended this process' job.
    #[error("{0}")]
    Fenced(Fenced),
    /// The caller asked for what cannot be.
    #[error("{0}")]
    Invalid(Invalid),
    /// Somebody changed the same thing first, again and again.
    #[error("{0}: others kept changing it; try again")]
    Contended(Contended),
}

/// A result of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns the error of an object whose bytes are wrong.
    pub fn corrupt(object: impl Into<String>, what: impl Into<String>) -> Self {
        Error::Corrupt { object: object.into(), what: what.into() }
    }

    /// Returns the error of an object that storage failed on; what is missing is not found.
    pub fn storage(object: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (object, source) = (object.into(), source.into());
        match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound(object),
            _ => Error::Storage { object, source },
        }
    }

    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NotFound(_) => ErrorKind::NotFound,
            Error::Corrupt { .. } => ErrorKind::Corrupt,
            Error::Storage { source, .. } | Error::Deferred { source, .. } => {
                ErrorKind::of_io(source)
            }
            Error::Fenced(fenced) => fenced.kind(),
            Error::Invalid(invalid) => invalid.kind(),
            Error::Contended(_) => ErrorKind::Busy,
        }
    }

    /// Returns what storage said as what is tried again later.
    pub(crate) fn deferred(self) -> Self {
        match self {
            Error::Storage { object, source } => Error::Deferred { object, source },
            other => other,
        }
    }

    /// Returns what is tried again later as what may have happened or not.
    pub(crate) fn undeferred(self) -> Self {
        match self {
            Error::Deferred { object, source } => Error::Storage { object, source },
            other => other,
        }
    }

    /// Returns whether storage takes nothing more now, and nothing was changed.
    pub fn is_deferred(&self) -> bool {
        matches!(self, Error::Deferred { .. })
    }

    /// Returns whether a process or storage has run out of something that it may have again later.
    pub(crate) fn is_shortage(&self) -> bool {
        let Error::Storage { source, .. } = self else { return false };
        source.raw_os_error().map(Errno::from_raw_os_error).is_some_and(|errno| {
            let short = [Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
            short.contains(&errno)
        })
    }

    /// Returns whether an object is damaged: its bytes are wrong, missing, or refused by the disk.
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Corrupt { .. } | Error::NotFound(_) => true,
            Error::Storage { source, .. } => {
                source.raw_os_error() == Some(Errno::IO.raw_os_error())
            }
            _ => false,
        }
    }

    /// Returns whether an object was missing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound(_))
    }
}

impl From<Fenced> for Error {
    fn from(fenced: Fenced) -> Self {
        Error::Fenced(fenced)
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Error::Invalid(invalid)
    }
}

impl From<Contended> for Error {
    fn from(contended: Contended) -> Self {
        Error::Contended(contended)
    }
}

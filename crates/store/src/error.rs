//! What can go wrong.

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
        /// Which object.
        object: String,
        /// What is wrong with it.
        what: String,
    },
    /// Storage failed. Whether a write happened is not known.
    #[error("{object}: {source}")]
    Storage {
        /// Which object.
        object: String,
        /// What storage says.
        source: io::Error,
    },
    /// Another process has opened the table for writing, or ended this process' job.
    #[error("{0}")]
    Fenced(String),
    /// The caller asked for what cannot be.
    #[error("{0}")]
    Invalid(String),
    /// Somebody changed the same thing first, again and again.
    #[error("{0}: others kept changing it; try again")]
    Contended(String),
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

    /// Returns whether an object was missing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound(_))
    }
}

//! What can be wrong with an input, and what is done about it: one error that ends the import or,
//! where that was asked for, a count of what was left out.

use crate::fault::Fault;
use canopy_model::ErrorKind;
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A place in an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Bytes from the beginning of the file.
    Offset(u64),
    /// A line, from 1, that begins so many bytes from the beginning of the file.
    Line(u64, u64),
    /// A row of a table, from 1.
    Row(u64),
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Position::Offset(offset) => write!(f, "byte {offset}"),
            Position::Line(line, offset) => write!(f, "line {line}, byte {offset}"),
            Position::Row(row) => write!(f, "row {row}"),
        }
    }
}

/// Why an import cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A record of the input cannot be used.
    #[error("{}: {place}: {reason}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Where the record begins.
        place: Position,
        /// What is wrong with it.
        reason: Fault,
    },
    /// A file as a whole cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Fault,
    },
    /// The input as a whole cannot be used.
    #[error("{0}")]
    Input(String),
}

/// The result of reading an input.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns what a caller should make of it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { source, .. } => ErrorKind::of_io(source),
            Error::Record { .. } | Error::File { .. } => ErrorKind::Corrupt,
            Error::Input(_) => ErrorKind::Invalid,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }

    pub(crate) fn record(path: &Path, place: Position, reason: Fault) -> Self {
        Error::Record { path: path.to_owned(), place, reason }
    }

    pub(crate) fn file(path: &Path, reason: Fault) -> Self {
        Error::File { path: path.to_owned(), reason }
    }
}

/// Why the second pass ended: the input, or the sink that takes in listings.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E: std::error::Error + 'static> {
    /// The input.
    #[error(transparent)]
    Import(#[from] Error),
    /// The sink.
    #[error(transparent)]
    Sink(E),
}

/// How many problems are kept word by word.
const KEPT: usize = 5;

/// Takes in what is wrong with single records: ends the import, or counts it where the import is
/// lenient.
#[derive(Debug, Default)]
pub struct Problems {
    lenient: bool,
    count: AtomicU64,
    first: Mutex<Vec<String>>,
}

impl Problems {
    /// Returns no problems yet.
    pub fn new(lenient: bool) -> Self {
        Problems { lenient, ..Problems::default() }
    }

    /// Returns whether the import goes on in spite of problems.
    pub fn lenient(&self) -> bool {
        self.lenient
    }

    /// Counts a problem, or gives it back as the error that ends the import.
    pub(crate) fn report(&self, error: Error) -> Result<()> {
        if !self.lenient {
            return Err(error);
        }
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if before < KEPT as u64 {
            self.first.lock().push(error.to_string());
        }
        Ok(())
    }

    /// Returns how many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the first few.
    pub fn first(&self) -> Vec<String> {
        self.first.lock().clone()
    }
}

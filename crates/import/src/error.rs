//! Errors of inputs, and the reaction to them: one error that ends the import or, in a lenient
//! import, a count of records left out.

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
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A record of the input cannot be used.
    #[error("{}: {place}: {reason}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Where the record begins.
        place: Position,
        /// The fault.
        reason: Fault,
    },
    /// A file as a whole cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: Fault,
    },
    /// The input as a whole cannot be used.
    #[error("{0}")]
    Input(String),
    /// Records cannot be used, and the import is not lenient.
    #[error("{first}{}; --lenient leaves such records out", others(*.count, *.is_complete))]
    Records {
        /// The first of them.
        first: Box<Error>,
        /// Number of such records that were found, the first included.
        count: u64,
        /// Whether all records were looked at.
        is_complete: bool,
    },
    /// The input is probably in another format.
    #[error("{error}; --format {format} expects {expected}{begins}")]
    Format {
        /// The fault of the first record.
        error: Box<Error>,
        /// The format, as the command names it.
        format: &'static str,
        /// Description of the format.
        expected: &'static str,
        /// The beginning of the file, as a part of the message; empty if it cannot be read again.
        begins: String,
    },
}

/// Formats the number of records that cannot be used, as a part of a message.
fn others(count: u64, is_complete: bool) -> String {
    let least = if is_complete { "" } else { "at least " };
    match count {
        0 | 1 => String::new(),
        _ => format!("; it is the first of {least}{count} such faults"),
    }
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
            Error::Records { first, .. } => first.kind(),
            Error::Format { .. } => ErrorKind::Invalid,
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

/// Collects and counts the faults of single records. They end an import that is not lenient, but
/// only after the pass that finds them, so that the error can say how many there are.
#[derive(Debug, Default)]
pub struct Problems {
    lenient: bool,
    count: AtomicU64,
    first: Mutex<Vec<String>>,
    /// The first fault, where it will end the import.
    ending: Mutex<Option<Error>>,
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

    /// Counts a fault; the record is left out.
    pub(crate) fn report(&self, error: Error) -> Result<()> {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if !self.lenient {
            self.ending.lock().get_or_insert(error);
        } else if before < KEPT as u64 {
            self.first.lock().push(error.to_string());
        }
        Ok(())
    }

    /// Ends an import that is not lenient where a pass has found faults. `is_complete` says whether
    /// that was the last pass.
    pub(crate) fn end_pass(&self, is_complete: bool) -> Result<()> {
        match self.ending.lock().take() {
            Some(first) => {
                Err(Error::Records { first: Box::new(first), count: self.count(), is_complete })
            }
            None => Ok(()),
        }
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

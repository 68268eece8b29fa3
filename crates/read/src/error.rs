//! Errors of reads.

use canopy_model::ErrorKind;
use std::borrow::Cow;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The index cannot be read.
    #[error(transparent)]
    Index(#[from] canopy_index::Error),
    /// No source holds this path.
    #[error("no index covers {path}{hint}; indexed are: {covered}")]
    NotCovered {
        /// The absolute path.
        path: String,
        /// A remedy, printed behind the path; empty if there is none.
        hint: String,
        /// The roots of the sources that the caller may know of.
        covered: String,
    },
    /// A path leads to nothing that is known.
    #[error("{}: {why}", shown(path))]
    Lost {
        /// The path as it was given.
        path: Vec<u8>,
        /// Why not.
        why: Lost,
    },
    /// A relative path has nothing to begin from.
    #[error("cannot tell the working directory")]
    WorkingDirectory(#[source] std::io::Error),
}

/// Why a path or a symbolic link leads to nothing that is known: in the system's words where it
/// would say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Nothing is there.
    #[error("No such file or directory")]
    Missing,
    /// It leads through what is not a directory.
    #[error("Not a directory")]
    NotDirectory,
    /// It leads through a directory that the caller may not search, or to the contents of one that
    /// the caller may not list.
    #[error("Permission denied")]
    Denied,
    /// It leads to itself, or through more links than the kernel follows for one path.
    #[error("Too many levels of symbolic links")]
    Loop,
    /// It has a name of more bytes than the kernel takes.
    #[error("File name too long")]
    LongName,
    /// The index has nothing there, or not for the caller to see.
    #[error("not in the index, or not for you to see")]
    Unseen,
    /// The index has nothing there, but the live file system has something.
    #[error("it is there now, but not in the index ('canopy update' adds what is new)")]
    Unindexed,
    /// It is a link that leads to where the index knows nothing.
    #[error("this link leads out of the index, or through what is not for you to see")]
    Outside,
}

fn shown(path: &[u8]) -> Cow<'_, str> {
    if path.is_empty() { "''".into() } else { String::from_utf8_lossy(path) }
}

impl Error {
    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Index(error) => error.kind(),
            Error::NotCovered { .. } => ErrorKind::NotFound,
            Error::Lost { why, .. } => why.kind(),
            Error::WorkingDirectory(source) => ErrorKind::of_io(source),
        }
    }

    /// Returns whether a path that the user gave has no answer, which leaves the answers for other
    /// paths.
    pub fn is_of_path(&self) -> bool {
        match self {
            Error::NotCovered { .. } | Error::Lost { .. } => true,
            Error::Index(_) | Error::WorkingDirectory(_) => false,
        }
    }
}

impl Lost {
    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(self) -> ErrorKind {
        match self {
            Lost::Missing | Lost::Unseen | Lost::Unindexed | Lost::Outside => ErrorKind::NotFound,
            Lost::Denied => ErrorKind::Denied,
            Lost::NotDirectory | Lost::Loop | Lost::LongName => ErrorKind::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_kinds() {
        let lost = |why| Error::Lost { path: b"/a".into(), why };
        let text = String::new;
        let covered = Error::NotCovered { path: text(), hint: text(), covered: text() };
        for (error, kind) in [
            (canopy_index::Error::NoIndex("/i".into()).into(), ErrorKind::NotFound),
            (canopy_index::Error::Locked("/i".into()).into(), ErrorKind::Busy),
            (canopy_index::Error::WorkerLost.into(), ErrorKind::Taken),
            (covered, ErrorKind::NotFound),
            (lost(Lost::Missing), ErrorKind::NotFound),
            (lost(Lost::Unseen), ErrorKind::NotFound),
            (lost(Lost::Unindexed), ErrorKind::NotFound),
            (lost(Lost::Outside), ErrorKind::NotFound),
            (lost(Lost::Denied), ErrorKind::Denied),
            (lost(Lost::NotDirectory), ErrorKind::Invalid),
            (lost(Lost::Loop), ErrorKind::Invalid),
            (lost(Lost::LongName), ErrorKind::Invalid),
            (Error::WorkingDirectory(std::io::ErrorKind::NotFound.into()), ErrorKind::NotFound),
        ] {
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}

//! Kinds of errors, by which a caller reacts to an error of any library.

use std::io;

/// The kind of an error, by which a caller reacts to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The requested thing does not exist.
    NotFound,
    /// The user may not do this.
    Denied,
    /// The request itself is wrong.
    Invalid,
    /// Data on disk is damaged or of another version.
    Corrupt,
    /// It may work later or with more room.
    Unavailable,
    /// A fault of Canopy.
    Internal,
}

impl ErrorKind {
    /// Returns what a caller should make of an error of the operating system.
    pub fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            _ => ErrorKind::Unavailable,
        }
    }
}

//! What a caller should make of an error, whichever library it comes from.

use std::io;

/// What a caller should make of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was asked for does not exist.
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

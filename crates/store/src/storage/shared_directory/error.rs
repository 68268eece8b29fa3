//! Why a directory is not used as one that machines share.

use crate::error::{Error, Invalid};
use canopy_model::ErrorKind;
use std::io;
use std::path::PathBuf;

/// Why a directory is not used as one that machines share. The engine's error has it as
/// [`Invalid::Setup`].
#[derive(Debug, thiserror::Error)]
pub enum SharedDirectoryError {
    /// It is shared, and was to be storage of one machine.
    #[error("{}: many machines share this directory; it cannot be storage of one machine", .0.display())]
    Shared(PathBuf),
    /// It is not shared.
    #[error("{}: not a directory that machines share", .0.display())]
    NotShared(PathBuf),
    /// It is shared already.
    #[error("{}: machines share this directory already", .0.display())]
    AlreadyShared(PathBuf),
    /// Another version of the program made it.
    #[error("{}: another version of canopy made this shared directory", .0.display())]
    Version(PathBuf),
    /// Its file system lacks what tables need.
    #[error("{}: this file system cannot hold tables that machines share: {source}", .root.display())]
    Refused {
        /// The directory.
        root: PathBuf,
        /// The operation that failed.
        source: io::Error,
    },
    /// It is not known whether this machine sees in time what others create.
    #[error(
        "{root}: machine {machine} may not write here until a probe has shown that it sees in time \
         what others create; run 'canopy store probe {root}' on it and, at the same time, on {known}",
        root = .root.display()
    )]
    Untried {
        /// The directory.
        root: PathBuf,
        /// The name of this machine.
        machine: String,
        /// Machines that may write.
        known: String,
    },
}

impl SharedDirectoryError {
    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SharedDirectoryError::Refused { .. } => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        }
    }
}

impl From<SharedDirectoryError> for Error {
    fn from(error: SharedDirectoryError) -> Self {
        Invalid::Setup { kind: error.kind(), cause: Box::new(error) }.into()
    }
}

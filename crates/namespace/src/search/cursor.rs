//! Where a search goes on that is done by parts.

use crate::records::keys::FileId;
use serde::{Deserialize, Serialize};

/// Everything up to here was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cursor {
    /// In a search through all names: this one of a directory.
    Name(FileId, Vec<u8>),
    /// In a search through all names: files whose inodes lie apart, up to this one. If there is a name,
    /// with its directory, the file's names up to that.
    Apart(FileId, Option<(FileId, Vec<u8>)>),
    /// Candidates of indexes up to this one, and likewise its names.
    Candidate(FileId, Option<(FileId, Vec<u8>)>),
}

//! Directories that an interrupted walk has not listed.

use canopy_model::SourcePathBuf;

/// The rest of an interrupted walk, for one that resumes it.
pub struct Left {
    /// Directories that the resumed walk has to list.
    pub remaining: Vec<Remaining>,
    /// Entries that were counted and that the resumed walk counts again: those of directories
    /// listed in part, and of the root, which is always listed again.
    pub entries: u64,
    /// Directories that it counts again, for these reasons.
    pub directories: u64,
}

/// A directory that an interrupted walk has not listed, or not completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Its path.
    pub path: SourcePathBuf,
    /// Part of it that remains.
    pub extent: Extent,
}

/// Part of a directory that remains to be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It and all below it, of which this walk has listed nothing.
    New,
    /// It and all below it.
    Whole,
    /// It, but what is below it only as far as that remains, too, or is not known.
    Alone,
}

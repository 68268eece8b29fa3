//! What a walk that was stopped has not listed.

/// What a walk that was stopped leaves to one that goes on.
pub struct Left {
    /// What that has to list.
    pub remaining: Vec<Remaining>,
    /// Entries that were counted and that it counts again: of directories of which parts were
    /// listed, and of the root, which is always listed again.
    pub entries: u64,
    /// Directories likewise.
    pub directories: u64,
}

/// A directory that a walk which was stopped has not listed, or not all of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Its path below the root, escaped.
    pub path: String,
    /// What of it.
    pub extent: Extent,
}

/// What of a directory remains to be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It and all below it, of which this walk has listed nothing.
    New,
    /// It and all below it.
    Whole,
    /// It, but what is below it only as far as that remains, too, or is not known.
    Alone,
}

//! Snapshots: which there are, what is kept of files for them, and the tree that each has.

mod kept;
pub(crate) mod past;
pub(crate) mod present;
pub(crate) mod restore;
pub(crate) mod snapshots;

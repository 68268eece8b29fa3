//! An entry as actions see it, whether it comes from the index or from the live file system.

use canopy_index::ColumnId;
use canopy_index::column::*;
use canopy_model::{Attributes, Device};
use rustix::fd::BorrowedFd;

/// One entry, as actions see it.
#[derive(Default)]
pub(crate) struct EntryView<'a> {
    /// The path to print; empty where no action needs it (see [`super::Action::needs_listing`]).
    pub(crate) shown: &'a [u8],
    /// Its last component.
    pub(crate) name: &'a [u8],
    /// The start path, as it was given.
    pub(crate) start: &'a [u8],
    /// The followed link through which it was found, else the start path.
    pub(crate) link: &'a [u8],
    /// How far below the start it is.
    pub(crate) depth: u32,
    /// Where it points, if it is a symbolic link.
    pub(crate) target: &'a [u8],
    /// Device that holds it.
    pub(crate) dev: Device,
    /// Those that actions ask for; others may be zero.
    pub(crate) attributes: Attributes,
    /// Facts that only some directives need.
    pub(crate) looked_up: LookedUp,
    /// Its directory, where that is open: in a live search, but for starts.
    pub(crate) directory: Option<BorrowedFd<'a>>,
}

/// Facts that `%F`, `%Y` and `%Z` print.
#[derive(Clone, Debug, Default)]
pub(crate) struct LookedUp {
    pub(crate) file_system: String,
    pub(crate) target_type: char,
    pub(crate) context: Vec<u8>,
}

/// Returns how to get the attribute that the index keeps in a column of numbers or times.
pub(crate) fn attribute(column: ColumnId) -> fn(&Attributes) -> i64 {
    const ATTRIBUTES: [(ColumnId, fn(&Attributes) -> i64); 11] = [
        (INO.id(), |attributes| attributes.ino as i64),
        (MODE.id(), |attributes| i64::from(attributes.mode)),
        (NLINK.id(), |attributes| i64::from(attributes.nlink)),
        (UID.id(), |attributes| i64::from(attributes.uid)),
        (GID.id(), |attributes| i64::from(attributes.gid)),
        (SIZE.id(), |attributes| attributes.size_bytes),
        (BLOCKS.id(), |attributes| attributes.blocks),
        (ATIME.id(), |attributes| attributes.atime_ns),
        (MTIME.id(), |attributes| attributes.mtime_ns),
        (CTIME.id(), |attributes| attributes.ctime_ns),
        (BTIME.id(), |attributes| attributes.btime_ns),
    ];
    let known = ATTRIBUTES.iter().find(|(known, _)| *known == column);
    known.map_or(|_| 0, |(_, attribute)| *attribute)
}

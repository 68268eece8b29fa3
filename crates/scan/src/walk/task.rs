//! A piece of the walk: a directory that is to be opened, or of which there is more to read.
//!
//! A task has a directory and a name, but no path. A path is built where a listing is handed over
//! or an error is reported.

use crate::directory::Directory;
use crate::entry::Names;
use crate::moment::Moment;
use crate::remaining::{Extent, Remaining};
use crate::selection::{Selected, Selection};
use canopy_model::{Rows, escape};
use std::ffi::CString;
use std::sync::Arc;

/// A unit of work.
pub(super) enum Task<'a> {
    /// Entries of a directory: those in `begun`, then from the position of its descriptor on.
    Read { directory: Arc<Directory>, begun: Begun, selected: Selected<'a> },
    /// A directory in another one.
    Open {
        above: Arc<Directory>,
        name: CString,
        selected: Selected<'a>,
        /// Selection in the directory above, if that was not listed.
        passed: Option<&'a Selection>,
    },
}

/// Progress of reading a directory.
#[derive(Default)]
pub(super) struct Begun {
    /// Parts of it that were listed, and their entries.
    pub(super) parts: u32,
    pub(super) entries: u64,
    /// Entries of the next part, and subdirectories among them. A part that threads stop in is not
    /// handed over: a listing has the same parts however often they do.
    pub(super) rows: Rows,
    pub(super) subdirs: Vec<CString>,
    /// A moment before these were read, at which all on the way was as noted.
    pub(super) since: Moment,
    /// Names behind those.
    pub(super) names: Names,
}

impl Task<'_> {
    /// Returns how many entries of what remains were listed.
    pub(super) fn listed_entries(&self) -> u64 {
        match self {
            Task::Read { begun, .. } => begun.entries,
            Task::Open { .. } => 0,
        }
    }

    /// Returns what remains to be listed before this is done.
    pub(super) fn remaining(&self) -> Vec<Remaining> {
        let (path, selected, has_parts) = match self {
            Task::Read { directory, begun, selected } => {
                (directory.path(), selected, begun.parts > 0)
            }
            Task::Open { above, name, selected, .. } => {
                (above.path_of(&escape(name.as_bytes())), selected, false)
            }
        };
        let extent = match selected {
            Selected::Whole if !has_parts => Extent::New,
            Selected::Whole | Selected::Alone => Extent::Alone,
            Selected::IfChanged => Extent::Whole,
            Selected::Part(selection) => {
                let mut remaining = Vec::new();
                selection.each_below(path.as_path(), &mut |path, whole| {
                    let extent = if whole { Extent::Whole } else { Extent::Alone };
                    remaining.push(Remaining { path: path.to_buf(), extent });
                });
                return remaining;
            }
        };
        vec![Remaining { path, extent }]
    }
}

//! Entries of a directory, with all that is shown of them.

use super::LsTime;
use crate::error::Result;
use canopy_index::Index;
use canopy_model::{Attributes, FileType, unescape};
use canopy_read::Inode;
use canopy_read::contents::Contents;
use canopy_read::locate::{Start, look_up, to_path};
use canopy_read::resolve::locate;
use canopy_scan::look_at;
use rustix::fs::CWD;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The mode of a symbolic link without permissions.
const SYMLINK_MODE: u32 = 0o120_000;

/// An entry.
pub(super) struct LsEntry {
    pub(super) name: Vec<u8>,
    pub(super) inode: Inode,
    pub(super) target: Target,
    /// Whether its attributes are known; false for the missing target of a broken link.
    pub(super) known: bool,
    /// Target of the symbolic link of its name, where links are followed.
    pub(super) followed: Option<Box<Start>>,
    /// How many columns its name takes, where entries are sorted by that.
    pub(super) width: usize,
    /// Its security context, where that is shown.
    pub(super) context: Vec<u8>,
    /// Its absolute path without symbolic links, where names are hyperlinks.
    pub(super) absolute: Vec<u8>,
}

/// Target of a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// It is not a link.
    NoLink,
    /// Something of this mode.
    Mode(u32),
    /// Nothing.
    Missing,
    /// It leads out of the index, or was not looked up.
    Unknown,
}

impl LsEntry {
    /// Makes an entry that is not a symbolic link, or one that nothing is known about.
    pub(super) fn new(name: Vec<u8>, inode: Inode) -> Self {
        LsEntry {
            name,
            inode,
            target: Target::NoLink,
            known: true,
            followed: None,
            width: 0,
            context: Vec::new(),
            absolute: Vec::new(),
        }
    }

    /// Makes an entry of an escaped name and what it is.
    pub(super) fn listed(name: &str, inode: Inode) -> Self {
        LsEntry::new(unescape(name).into_owned(), inode)
    }

    /// Forgets all but that it is a symbolic link.
    pub(super) fn forget(&mut self) {
        let attributes = Attributes { mode: SYMLINK_MODE, ..Attributes::default() };
        let (target, xattrs) = (String::new(), String::new());
        self.inode = Inode { attributes, target, dev: self.inode.dev, xattrs };
        self.target = Target::Missing;
        self.context.clear();
        self.known = false;
    }

    pub(super) fn file_type(&self) -> FileType {
        self.inode.attributes.file_type()
    }

    pub(super) fn time_ns(&self, time: LsTime) -> i64 {
        let attributes = &self.inode.attributes;
        match time {
            LsTime::Modification => attributes.mtime_ns,
            LsTime::Access => attributes.atime_ns,
            LsTime::Change => attributes.ctime_ns,
            LsTime::Birth => attributes.btime_ns,
        }
    }

    /// Returns whether it is a directory, or a symbolic link to one.
    pub(super) fn leads_to_directory(&self) -> bool {
        let mode = match self.target {
            Target::Mode(mode) => mode,
            _ => self.inode.attributes.mode,
        };
        FileType::of_mode(mode) == FileType::Directory
    }
}

/// Returns what is in a directory; `None` if the caller may not list it.
pub(super) fn children(start: &Start) -> Result<Option<Vec<LsEntry>>> {
    Ok(match Contents::of(&start.view, &start.source, start.path.as_path(), usize::MAX)? {
        Contents::Listed(all) => {
            Some(all.into_iter().map(|(name, inode)| LsEntry::listed(&name, inode)).collect())
        }
        Contents::Unlisted | Contents::TooMany => None,
    })
}

/// Returns what `..` of a directory is: from the index, above the root of a source from the live
/// file system, or else the directory itself.
pub(super) fn parent_of(index: &Index, start: &Start) -> Result<Inode> {
    if let Some(above) = start.path.as_path().parent() {
        return Ok(
            look_up(&start.view, &start.source, above)?.unwrap_or_else(|| start.inode.clone())
        );
    }
    let root = to_path(&start.source.root);
    let above = root.parent().unwrap_or(Path::new("/")).as_os_str();
    if let Ok(found) = locate(index, above) {
        return Ok(found.inode);
    }
    let live = CString::new(above.as_bytes()).ok();
    let live = live.and_then(|above| look_at(CWD, &above, false).ok());
    Ok(live.map_or_else(
        || start.inode.clone(),
        |(attributes, dev)| {
            let (target, xattrs) = (String::new(), String::new());
            Inode { attributes, target, dev, xattrs }
        },
    ))
}

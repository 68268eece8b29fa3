//! Links that an index cannot follow: out of all its sources, or into directories that the caller
//! may search but not list.
//!
//! 1. Where the source of a link still lies at its root, and the link still has its target, the
//!    kernel follows it, as the caller.
//! 2. Elsewhere, as in an import of another machine, such a link counts as one that leads nowhere.
//!    One line tells how many there were; it is not a failure.
//! 3. Directories that are reached so are not searched: no index has what is in them.

use crate::find::path::trim_slashes;
use canopy_index::SourceRecord;
use canopy_model::{Attributes, Wanted, unescape};
use canopy_read::locate::to_path;
use canopy_scan::look_at;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use rustix::fs::{Access, AtFlags, CWD, accessat, readlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::hash::BuildHasher;
use std::os::unix::ffi::OsStrExt;

/// Attributes and device of what a link leads to, or why the kernel does not follow it.
pub(crate) type Reached = Result<(Attributes, u64), Errno>;

/// The links of a search that its index cannot follow.
#[derive(Default)]
pub(crate) struct Outside {
    /// By number of a source: whether it is what lies at its root now.
    here: Mutex<FxHashMap<u32, bool>>,
    /// Hashes of links that nobody can follow.
    unknown: Mutex<FxHashSet<u64>>,
    /// Hashes of links to directories that are not searched.
    unsearched: Mutex<FxHashSet<u64>>,
}

impl Outside {
    /// Looks at what a link of a source leads to, given its absolute path and its target, escaped.
    /// Returns nothing if the live file system does not have that link.
    pub(crate) fn look(&self, source: &SourceRecord, link: &str, target: &str) -> Option<Reached> {
        let path = self.live_path(source, link, target)?;
        Some(look_at(CWD, &path, true))
    }

    /// Returns whether access(2) grants the caller the wanted bits of what a link leads to.
    pub(crate) fn may_access(
        &self,
        source: &SourceRecord,
        link: &str,
        target: &str,
        wanted: Wanted,
    ) -> Option<bool> {
        let path = self.live_path(source, link, target)?;
        let access = match wanted {
            Wanted::READ => Access::READ_OK,
            Wanted::WRITE => Access::WRITE_OK,
            _ => Access::EXEC_OK,
        };
        Some(accessat(CWD, &path, access, AtFlags::empty()).is_ok())
    }

    /// Notes a link that nobody can follow.
    pub(crate) fn note_unknown(&self, link: &[u8]) {
        self.unknown.lock().insert(FxBuildHasher.hash_one(link));
    }

    /// Notes a link to a directory that is not searched.
    pub(crate) fn note_unsearched(&self, link: &[u8]) {
        self.unsearched.lock().insert(FxBuildHasher.hash_one(link));
    }

    /// Returns what is worth knowing of the links that were met.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let links = |count: usize| match count {
            1 => "1 symbolic link leads".to_owned(),
            count => format!("{count} symbolic links lead"),
        };
        let (unknown, unsearched) = (self.unknown.lock().len(), self.unsearched.lock().len());
        let mut remarks = Vec::new();
        if unknown > 0 {
            let links = links(unknown);
            remarks.push(format!("{links} out of what is searched; such links count as broken"));
        }
        if unsearched > 0 {
            let links = links(unsearched);
            remarks.push(format!(
                "{links} to directories that are not in the index and were not searched \
                 ('canopy find --live' searches them)"
            ));
        }
        remarks
    }

    /// Returns the path of a link for system calls, if the live file system has the link.
    fn live_path(&self, source: &SourceRecord, link: &str, target: &str) -> Option<CString> {
        if !*self.here.lock().entry(source.id).or_insert_with(|| is_here(source)) {
            return None;
        }
        let path = CString::new(to_path(link).as_os_str().as_bytes()).ok()?;
        let read = readlinkat(CWD, &path, Vec::new()).ok()?;
        (read.as_bytes() == &*unescape(target)).then_some(path)
    }
}

/// Returns whether a source is what lies at its root now, as far as device and inode tell.
fn is_here(source: &SourceRecord) -> bool {
    let root = to_path(&source.root);
    let root = CString::new(trim_slashes(root.as_os_str().as_bytes()));
    let looked = |root: &CStr| look_at(CWD, root, false).ok();
    let found = root.ok().and_then(|root| looked(&root));
    found.is_some_and(|(found, dev)| (dev, found.ino) == (source.dev, source.attributes.ino))
}

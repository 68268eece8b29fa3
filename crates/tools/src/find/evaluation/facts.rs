//! Facts that tests and directives need besides the columns of a row: empty directories, values of
//! extended attributes, the caller, types of file systems, and targets of symbolic links. `preload`
//! reads them.

use super::chunk::Location;
use super::outside::{Outside, Reached};
use crate::find::messages::{link_problem, quoted, system_message};
use canopy_index::SourceRecord;
use canopy_model::{
    Acl, Credentials, Device, FileType, Grant, SourcePath, SourcePathBuf, Wanted, unescape,
    xattr_names,
};
use canopy_read::links::{Links, Resolved};
use canopy_read::locate::absolute_path;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;
use std::sync::Arc;

/// Mode bits of an entry, and the user and group that it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct ModeAndOwners {
    /// Mode, as in `st_mode`.
    pub(crate) mode: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Owning group.
    pub(crate) gid: u32,
}

/// Facts about the subtree of one start.
pub(crate) struct SubtreeFacts {
    /// Directories that are known to be empty.
    pub(crate) empty_dirs: FxHashSet<SourcePathBuf>,
    /// Paths in the source that pass tests of extended attributes that need values, by the number
    /// of the test.
    pub(crate) xattr_matches: Vec<FxHashSet<SourcePathBuf>>,
    /// Names of attributes that such tests could not understand, by path.
    pub(crate) unknown_values: FxHashMap<SourcePathBuf, String>,
    /// Values of the access ACLs that the caller may see, escaped, by path in the source.
    pub(crate) acls: FxHashMap<SourcePathBuf, String>,
    /// Security contexts likewise.
    /// The caller.
    pub(crate) contexts: FxHashMap<SourcePathBuf, String>,
    pub(crate) caller: Credentials,
    /// Types of mounted file systems.
    pub(crate) file_systems: FileSystems,
    /// The source of the start.
    pub(crate) source: SourceRecord,
    /// Where links lead.
    pub(crate) links: Arc<Links>,
    /// Where those lead that the index cannot follow.
    pub(crate) outside: Arc<Outside>,
    /// In a source without device numbers: reference files of `-samefile` that lie in it, by path.
    pub(crate) own_files: FxHashSet<Vec<u8>>,
    /// How many were followed on the way here.
    pub(crate) links_before: u32,
    /// Problems with links that were followed.
    pub(crate) link_problems: Mutex<Vec<String>>,
    /// Problems with entries, by the path as it is shown.
    pub(crate) problems: Mutex<FxHashMap<String, String>>,
}

impl SubtreeFacts {
    /// Returns whether the type of what a link leads to is one of these: that of the link where it
    /// leads nowhere.
    pub(crate) fn target_type_is(
        &self,
        location: &Location,
        target: &str,
        types: &[FileType],
    ) -> bool {
        match self.follow(location, target) {
            Resolved::Entry(reached) => types.contains(&reached.inode.attributes.file_type()),
            Resolved::Missing | Resolved::NotDirectory => types.contains(&FileType::Symlink),
            Resolved::Unknown => match self.look_outside(location, target) {
                Some(Ok((attributes, _))) => types.contains(&attributes.file_type()),
                Some(Err(Errno::NOENT | Errno::NOTDIR)) => types.contains(&FileType::Symlink),
                Some(Err(errno)) => {
                    self.add_problem(&location.shown, &system_message(&errno.into()));
                    false
                }
                None => types.contains(&FileType::Symlink),
            },
            // As to find(1), this is an error.
            other => {
                self.add_problem(&location.shown, link_problem(&other).unwrap_or_default());
                false
            }
        }
    }

    /// Returns whether access(2) would grant the wanted bits of what a link leads to.
    pub(crate) fn may_access_target(
        &self,
        location: &Location,
        target: &str,
        wanted: Wanted,
    ) -> bool {
        match self.follow(location, target) {
            Resolved::Entry(reached) => {
                let (inode, a) = (&reached.inode, &reached.inode.attributes);
                let owned = ModeAndOwners { mode: a.mode, uid: a.uid, gid: a.gid };
                self.may_access(reached.path.as_path(), &inode.xattrs, owned, wanted)
            }
            Resolved::Unknown => {
                let link = absolute_path(&self.source, location.path.as_path());
                let known = self.outside.may_access(&self.source, &link, target, wanted);
                known.unwrap_or_else(|| {
                    self.outside.note_unknown(link.as_bytes());
                    false
                })
            }
            _ => false,
        }
    }

    /// Looks at what a link leads to that the index cannot follow; notes one that nobody can.
    pub(crate) fn look_outside(&self, location: &Location, target: &str) -> Option<Reached> {
        let link = absolute_path(&self.source, location.path.as_path());
        let reached = self.outside.look(&self.source, &link, target);
        if reached.is_none() {
            self.outside.note_unknown(link.as_bytes());
        }
        reached
    }

    /// Returns whether access(2) would grant the wanted bits to the caller, as far as mode, owner,
    /// group and ACL tell. `xattrs` are the names of extended attributes of the entry at `path`.
    pub(crate) fn may_access(
        &self,
        path: SourcePath<'_>,
        xattrs: &str,
        owned: ModeAndOwners,
        wanted: Wanted,
    ) -> bool {
        let ModeAndOwners { mode, uid, gid } = owned;
        let has_acl = xattr_names::has(xattrs, Acl::XATTR_NAME);
        let acl = self.acls.get(path.as_str()).and_then(|value| Acl::decode(&unescape(value)).ok());
        let grant = match (has_acl, acl) {
            (true, None) => Grant::of_hidden_acl(mode, uid, wanted),
            (_, acl) => Grant::new(mode, uid, gid, acl.as_ref(), wanted),
        };
        grant.passes_access(&self.caller, mode, wanted)
    }

    /// Returns where the link there leads.
    pub(crate) fn follow(&self, link: &Location, target: &str) -> Resolved {
        let link = absolute_path(&self.source, link.path.as_path());
        self.links.follow_after(self.links_before, &link, target)
    }

    /// Notes what is wrong with an entry.
    pub(crate) fn add_problem(&self, shown: &str, what: &str) {
        let text = format!("{}: {what}", quoted(&unescape(shown)));
        self.problems.lock().insert(shown.to_owned(), text);
    }

    /// Notes what could not be done with a link that was followed, whatever comes of evaluating it.
    pub(crate) fn add_link_problem(&self, text: String) {
        self.link_problems.lock().push(text);
    }

    /// Forgets what was wrong with an entry that is now evaluated again: rows are selected before
    /// the outcome of commands is known, so more tests were asked than find(1) asks.
    pub(crate) fn forget_problem(&self, shown: &str) {
        let mut problems = self.problems.lock();
        if !problems.is_empty() {
            problems.remove(shown);
        }
    }

    /// Returns all that was noted, in order.
    pub(crate) fn diagnostics(&self) -> Vec<String> {
        let (links, problems) = (self.link_problems.lock(), self.problems.lock());
        let mut diagnostics: Vec<String> = links.iter().chain(problems.values()).cloned().collect();
        diagnostics.sort();
        diagnostics.dedup();
        diagnostics
    }
}

/// Types of file systems by device, as far as they are mounted here.
#[derive(Default)]
pub(crate) struct FileSystems(FxHashMap<Device, String>);

impl FileSystems {
    /// Asks the system what is mounted. Knows nothing where that fails.
    pub(crate) fn mounted() -> Self {
        let mounts = canopy_scan::mounts().unwrap_or_default().into_iter();
        FileSystems(mounts.map(|mount| (mount.dev, mount.file_system)).collect())
    }

    /// Returns whether a file system of this type is mounted.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.values().any(|known| known == name)
    }

    /// Returns the type of the file system of a device, as mount(8) calls it.
    pub(crate) fn name(&self, dev: Device) -> &str {
        self.0.get(&dev).map_or("unknown", String::as_str)
    }
}

//! What tests and directives may ask besides the columns of a row: empty directories, values of
//! extended attributes, who asks, types of file systems, and where symbolic links lead.

use super::rows::Batch;
use arrow::array::AsArray;
use arrow::datatypes::UInt32Type;
use canopy_index::SourceRecord;
use canopy_model::{Acl, Credentials, FileType, Grant, Wanted, unescape};
use canopy_read::columns::{numbers, strings, text_or_empty};
use canopy_read::links::{Links, Place};
use canopy_read::locate::absolute_path;
use canopy_text::{group_name, user_name};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Arc, Mutex};

/// What is known of the subtree of one start.
pub(crate) struct Known {
    /// Directories that are known to be empty.
    pub(crate) empty_dirs: FxHashSet<String>,
    /// Paths in the source that pass tests of extended attributes that need values, by the number
    /// of the test.
    pub(crate) hits: Vec<FxHashSet<String>>,
    /// Values of the access ACLs that the caller may see, escaped, by path in the source.
    pub(crate) acls: FxHashMap<String, String>,
    /// Security contexts likewise.
    pub(crate) contexts: FxHashMap<String, String>,
    /// Who asks.
    pub(crate) who: Credentials,
    pub(crate) file_systems: FileSystems,
    pub(crate) source: SourceRecord,
    pub(crate) links: Arc<Links>,
    /// What is to be told of links that were followed.
    pub(crate) link_problems: Mutex<Vec<String>>,
    /// What could not be answered, by the path as it is shown.
    pub(crate) problems: Mutex<FxHashMap<String, String>>,
}

impl Known {
    /// Whether the type of what a row leads to is one of these: that of the link where it leads
    /// nowhere.
    pub(crate) fn type_is(&self, rows: &Batch<'_>, at: usize, types: &[FileType]) -> bool {
        let mode = numbers::<UInt32Type>(rows.batch, "mode").value(at);
        if FileType::of_mode(mode) != FileType::Symlink {
            return types.contains(&FileType::of_mode(mode));
        }
        match self.lead(rows, at) {
            Place::There(reached) => types.contains(&reached.inode.attributes.file_type()),
            Place::Missing | Place::NotDirectory => types.contains(&FileType::Symlink),
            // As to find(1), this is an error.
            Place::Loop => {
                self.problem(&rows.shown[at], "Too many levels of symbolic links");
                false
            }
            Place::Unknown => self.unanswered(rows, at),
        }
    }

    /// Whether access(2) would grant the wanted bits to the caller, as far as mode, owner, group
    /// and ACL tell.
    pub(crate) fn may_access(&self, rows: &Batch<'_>, at: usize, wanted: Wanted) -> bool {
        let number = |name| numbers::<UInt32Type>(rows.batch, name).value(at);
        let names = text_or_empty(Some(strings(rows.batch, "xattrs")), at);
        let (mode, uid, gid) = (number("mode"), number("uid"), number("gid"));
        if FileType::of_mode(mode) != FileType::Symlink {
            return self.grants(&rows.paths[at], names, (mode, uid, gid), wanted);
        }
        match self.lead(rows, at) {
            Place::There(reached) => {
                let a = &reached.inode.attributes;
                self.grants(&reached.path, &reached.inode.xattrs, (a.mode, a.uid, a.gid), wanted)
            }
            Place::Missing | Place::NotDirectory | Place::Loop => false,
            Place::Unknown => self.unanswered(rows, at),
        }
    }

    fn grants(
        &self,
        path: &str,
        names: &str,
        (mode, uid, gid): (u32, u32, u32),
        wanted: Wanted,
    ) -> bool {
        let has_acl = super::test::split_names(names).any(|name| name == Acl::XATTR_NAME);
        let acl = self.acls.get(path).and_then(|value| Acl::decode(&unescape(value)).ok());
        let grant = match (has_acl, acl) {
            (true, None) => Grant::of_hidden_acl(mode, uid, wanted),
            (_, acl) => Grant::new(mode, uid, gid, acl.as_ref(), wanted),
        };
        grant.passes_access(&self.who, mode, wanted)
    }

    fn lead(&self, rows: &Batch<'_>, at: usize) -> Place {
        let targets = rows.batch.column_by_name("target").map(|column| column.as_string::<i32>());
        self.follow(&rows.paths[at], text_or_empty(targets, at))
    }

    /// Where the link at a path of the source leads.
    pub(crate) fn follow(&self, path: &str, target: &str) -> Place {
        self.links.follow(&absolute_path(&self.source, path), target)
    }

    fn unanswered(&self, rows: &Batch<'_>, at: usize) -> bool {
        self.problem(&rows.shown[at], UNKNOWN);
        false
    }

    /// Notes what is wrong with an entry.
    pub(crate) fn problem(&self, shown: &str, what: &str) {
        let text = format!("{}: {what}", quoted(&unescape(shown)));
        let mut problems = self.problems.lock().expect("no thread panics while it holds the lock");
        problems.insert(shown.to_owned(), text);
    }

    /// Notes what is to be told of a link that was followed, whatever comes of evaluating it.
    pub(crate) fn tell_of_link(&self, text: String) {
        self.link_problems.lock().expect("no thread panics while it holds the lock").push(text);
    }

    /// All that is to be told, in order.
    pub(crate) fn told(&self) -> Vec<String> {
        let links = self.link_problems.lock().expect("no thread panics while it holds the lock");
        let problems = self.problems.lock().expect("no thread panics while it holds the lock");
        let mut told: Vec<String> = links.iter().chain(problems.values()).cloned().collect();
        told.sort();
        told.dedup();
        told
    }

    /// Forgets what was wrong with an entry that is now evaluated again: rows are selected before
    /// the outcome of commands is known, so more tests were asked than find(1) asks.
    pub(crate) fn forget_problem(&self, shown: &str) {
        let mut problems = self.problems.lock().expect("no thread panics while it holds the lock");
        if !problems.is_empty() {
            problems.remove(shown);
        }
    }
}

/// A path as find(1) quotes it in messages.
pub(crate) fn quoted(path: &[u8]) -> String {
    format!("‘{}’", String::from_utf8_lossy(path))
}

/// What is told of a directory that is one of those above it.
pub(crate) fn file_system_loop(shown: &[u8], above: &[u8]) -> String {
    let (shown, above) = (quoted(shown), quoted(above));
    format!("File system loop detected; {shown} is part of the same file system loop as {above}.")
}

/// What is told of a link that cannot be followed.
pub(crate) const UNKNOWN: &str = "the index does not know where this link leads";

/// Types of file systems by device, as far as they are mounted here.
pub(crate) struct FileSystems(FxHashMap<u64, String>);

impl FileSystems {
    /// Knows nothing.
    pub(crate) fn none() -> Self {
        FileSystems(FxHashMap::default())
    }

    /// What the system says of its mounts. Nothing where it does not.
    pub(crate) fn mounted() -> Self {
        let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let line = |line: &str| -> Option<(u64, String)> {
            let (mount, file_system) = line.split_once(" - ")?;
            let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
            let dev = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
            Some((dev, file_system.split(' ').next()?.to_owned()))
        };
        FileSystems(text.lines().filter_map(line).collect())
    }

    /// Whether a file system of this type is mounted.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.values().any(|known| known == name)
    }

    /// The type of the file system of a device, as mount(8) calls it.
    pub(crate) fn name(&self, dev: u64) -> &str {
        self.0.get(&dev).map_or("unknown", String::as_str)
    }
}

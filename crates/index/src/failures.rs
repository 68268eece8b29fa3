//! Records of sources that could not be indexed, or only in part, or that a scan has found
//! unchanged: the document `INDEX/failures`, for root alone. It belongs to no generation, so that a
//! run that publishes nothing can write it.

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::manifest::{self, Document};
use crate::names;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A source whose last runs have failed, so that what was indexed of it before, if anything, is
/// still shown; or one that was published without some of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Absolute path of its root, escaped.
    pub root: String,
    /// When the first of these runs failed, in nanoseconds since 1970.
    pub since_ns: i64,
    /// When the last one did.
    pub last_ns: i64,
    /// Why the last one did, or what is missing, for people.
    pub reason: String,
    /// Whether the source was published without what is missing.
    pub published: bool,
}

/// A source that a scan of all of it has found as the index has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Absolute path of its root, escaped.
    pub root: String,
    /// When the last of these scans began, in nanoseconds since 1970.
    pub scanned_ns: i64,
}

/// The failures of all sources, by root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failures {
    list: Vec<Failure>,
    checked: Vec<Checked>,
}

impl Document for Failures {
    const KIND: &'static str = "failures";
}

impl Failures {
    /// Reads those of an index; none if there are none or the caller may not read them.
    pub(crate) fn read(index: &Path) -> Result<Self> {
        match manifest::read(&names::failures(index)) {
            Err(Error::Io { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                ) =>
            {
                Ok(Failures::default())
            }
            other => other,
        }
    }

    /// Replaces what an index has of them. The generations are not touched.
    pub(crate) fn write(&self, disk: &Disk, index: &Path) -> Result<()> {
        let new = index.join("failures.new");
        manifest::write(disk, &new, self, 0o600, true)?;
        disk.replace(&new, &names::failures(index))
    }

    pub(crate) fn list(self) -> Vec<Failure> {
        self.list
    }

    pub(crate) fn checked(&self) -> &[Checked] {
        &self.checked
    }

    /// Takes note that a scan has found a source as it was, and forgets what is not a source.
    pub(crate) fn check(&mut self, checked: Checked, is_source: impl Fn(&str) -> bool) {
        self.checked.retain(|known| known.root != checked.root && is_source(&known.root));
        let at = self.checked.partition_point(|known| known.root < checked.root);
        self.checked.insert(at, checked);
    }

    /// Returns the failure of a source at this time, which goes on if there is one of its kind.
    pub(crate) fn of(&self, root: &str, now_ns: i64, reason: String, published: bool) -> Failure {
        let same = |failure: &&Failure| failure.root == root && failure.published == published;
        let since_ns = self.list.iter().find(same).map_or(now_ns, |failure| failure.since_ns);
        Failure { root: root.to_owned(), since_ns, last_ns: now_ns, reason, published }
    }

    /// Adds the failure of a source, in the place of the one that is known.
    pub(crate) fn add(&mut self, failure: Failure) {
        self.remove(&failure.root);
        let at = self.list.partition_point(|known| known.root < failure.root);
        self.list.insert(at, failure);
    }

    /// Removes the failure of a source. Returns whether there was one.
    pub(crate) fn remove(&mut self, root: &str) -> bool {
        let before = self.list.len();
        self.list.retain(|failure| failure.root != root);
        self.list.len() < before
    }
}

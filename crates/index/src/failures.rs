//! What is known of sources that could not be indexed: the document `INDEX/failures`, for root
//! alone. It belongs to no generation, so that a run that publishes nothing can write it.

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::manifest::{self, Document};
use crate::names;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A source whose last runs have failed; what was indexed of it before, if anything, is still
/// shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Absolute path of its root, escaped.
    pub root: String,
    /// When the first of these runs failed, in nanoseconds since 1970.
    pub since_ns: i64,
    /// When the last one did.
    pub last_ns: i64,
    /// Why the last one did, for people.
    pub reason: String,
}

/// The failures of all sources, by root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failures {
    list: Vec<Failure>,
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

    /// Adds the failure of a source at this time.
    pub(crate) fn add(&mut self, root: &str, now_ns: i64, reason: String) {
        let since_ns = self.list.iter().find(|failure| failure.root == root);
        let since_ns = since_ns.map_or(now_ns, |failure| failure.since_ns);
        self.remove(root);
        let at = self.list.partition_point(|failure| failure.root.as_str() < root);
        let root = root.to_owned();
        self.list.insert(at, Failure { root, since_ns, last_ns: now_ns, reason });
    }

    /// Removes the failure of a source.
    pub(crate) fn remove(&mut self, root: &str) {
        self.list.retain(|failure| failure.root != root);
    }
}

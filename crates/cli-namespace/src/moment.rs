//! The tree of a namespace that this process has open, as it is or as a snapshot has it.

use anyhow::bail;
use canopy_namespace::{Entry, FileId, Inode, Listing, Namespace, Past, ROOT, Result};
use rustix::io::Errno;
use std::path::Path;

/// A tree at one moment.
pub struct Moment<'a> {
    pub namespace: &'a Namespace,
    /// What a snapshot has; none for what there is now.
    pub past: Option<Past>,
}

impl<'a> Moment<'a> {
    pub fn now(namespace: &'a Namespace) -> Self {
        Moment { namespace, past: None }
    }

    /// Returns the tree as the snapshot of this name has it, or as it is without one; `place` is
    /// for messages.
    pub fn of(
        namespace: &'a Namespace,
        place: &Path,
        snapshot: Option<&str>,
    ) -> anyhow::Result<Self> {
        let past = match snapshot.map(|name| (name, namespace.past(name.as_bytes()))) {
            None => None,
            Some((name, Err(error))) if error.errno() == Errno::NOENT => {
                bail!("{} has no snapshot {name}", place.display());
            }
            Some((_, past)) => Some(past?),
        };
        Ok(Moment { namespace, past })
    }

    pub fn root(&self) -> Result<Inode> {
        match &self.past {
            Some(past) => past.inode(ROOT),
            None => self.namespace.inode(ROOT),
        }
    }

    pub fn lookup(&self, directory: FileId, name: &[u8]) -> Result<Inode> {
        match &self.past {
            Some(past) => past.lookup(directory, name),
            None => self.namespace.lookup(directory, name),
        }
    }

    /// Tells the entries of a directory until `tell` returns that it does not take one.
    pub fn list(&self, directory: FileId, tell: impl FnMut(Entry<'_>) -> bool) -> Result<()> {
        let mut listing = Listing::new(directory);
        match &self.past {
            Some(past) => past.list(&mut listing, 0, tell),
            None => self.namespace.list(&mut listing, 0, tell),
        }
    }

    /// Returns the extended attributes of a file.
    pub fn xattrs(&self, id: FileId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        match &self.past {
            Some(past) => {
                past.view().xattrs(id, |name, value| all.push((name.to_vec(), value.to_vec())))?;
            }
            None => {
                for name in self.namespace.xattrs(id)? {
                    let value = self.namespace.xattr(id, &name)?.unwrap_or_default();
                    all.push((name, value));
                }
            }
        }
        Ok(all)
    }
}

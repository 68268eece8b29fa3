//! The tree as a snapshot has it: the records of a checkpoint, which never change.

mod file;

use crate::error::Result;
use crate::records::access::passes;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, ROOT, Space, check_name};
use crate::records::listing::{Entry, Listing};
use crate::records::view::ReadView;
use crate::search::Viewer;
use crate::search::{Found, Pace};
use crate::snapshot::present::Present;
use canopy_model::{Credentials, Wanted};
use canopy_query::Expression;
use canopy_store::{Key, KeyRange};
use rustix::io::Errno;
use std::sync::Arc;

pub use file::PastFile;

/// A tree as it was. What it has of files that there still are has their ids.
#[derive(Clone)]
pub struct Past {
    number: u64,
    view: Arc<ReadView>,
}

impl Past {
    pub(crate) fn new(number: u64, view: ReadView) -> Self {
        Past { number, view: Arc::new(view) }
    }

    /// Returns which snapshot it is: no other of the namespace ever has this number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns its records.
    pub fn view(&self) -> &ReadView {
        &self.view
    }

    /// Returns the inode of a name.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there was no such name, and as the table does.
    pub fn lookup(&self, parent: FileId, name: &[u8]) -> Result<Inode> {
        check_name(name)?;
        Ok(self.view.lookup(parent, name)?.ok_or(Errno::NOENT)?)
    }

    /// Returns an inode. `NOENT` if it had no name.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn inode(&self, id: FileId) -> Result<Inode> {
        Ok(self.view.inode(id)?.ok_or(Errno::NOENT)?)
    }

    /// Calls `tell` with the entries of a directory behind a cookie, 0 for all, until it returns
    /// that it does not take one.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn list(
        &self,
        listing: &mut Listing,
        after: u64,
        tell: impl FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        listing.go_on(after, |range| self.view.scan(range), |inode| self.view.behind(inode), tell)
    }

    /// Returns what a small file had in it.
    fn contents(&self, id: FileId) -> Result<Vec<u8>> {
        Ok(self.view.get(Space::Contents.of(id, b"").as_ref())?.unwrap_or_default())
    }

    /// Returns whether a file has its contents in an object.
    pub(crate) fn has_object(&self, id: FileId) -> Result<bool> {
        Ok(self.view.inode(id)?.is_some_and(|inode| inode.has(flag::OBJECT)))
    }

    /// Like [`Namespace::search_paced`](crate::Namespace::search_paced). Files that the present
    /// permissions of directories hide are left out.
    ///
    /// # Errors
    ///
    /// Fails as the table does, with `NOENT` if the base is gone, and with `Corrupt` if a record is
    /// damaged.
    pub fn search(
        &self,
        base: FileId,
        expression: &Expression,
        present: Present<'_>,
        pace: Pace<'_>,
        tell: impl FnMut(Found) -> bool,
    ) -> Result<()> {
        self.view.search_with(base, expression, Viewer::of_then(present), pace, tell)
    }

    /// Returns whether the permissions of then let a user get to a directory from the root.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn lets_in(&self, mut directory: FileId, who: &Credentials) -> Result<bool> {
        while directory != ROOT {
            directory = self.view.parent(directory)?;
            let inode = self.inode(directory)?;
            if !passes(&inode, who, Wanted::SEARCH, |id, name| self.view.xattr(id, name))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether the permissions of a file let a user read it, who got to it.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn lets_read(&self, inode: &Inode, who: &Credentials) -> Result<bool> {
        passes(inode, who, Wanted::READ, |id, name| self.view.xattr(id, name))
    }

    /// Returns how many files and directories there are below the root, and the lengths of files
    /// together.
    pub(crate) fn count(&self) -> Result<(u64, u64)> {
        let (mut files, mut bytes) = (0, 0);
        let start = Key { directory: ROOT.0, ..Key::default() };
        let names = KeyRange { start, ..keys::all_names() };
        for range in [names, Space::Links.range()] {
            let mut scan = self.view.scan(&range)?;
            while let Some(record) = scan.next()? {
                let inode = Inode::decode(record.value)?;
                if !inode.has(flag::LINKED) {
                    files += 1;
                    bytes += if inode.is_regular() { inode.size } else { 0 };
                }
            }
        }
        Ok((files, bytes))
    }
}

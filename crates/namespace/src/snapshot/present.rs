//! Access to a tree as it was, by the present permissions: files that were hidden since a snapshot
//! was made stay hidden in it.

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::records::access::passes;
use crate::records::circle::Circle;
use crate::records::inode::Inode;
use crate::records::keys::{FileId, ROOT};
use canopy_model::{Credentials, Wanted};
use rustix::io::Errno;
use std::collections::HashMap;

/// Files and the directories above them, as far as permissions need them: a namespace of this
/// process, or a client of servers.
pub trait FileTree {
    /// Returns an inode.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does.
    fn inode(&self, id: FileId) -> Result<Inode>;

    /// Returns the value of an extended attribute; none if the file has no such attribute.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Returns the directories with names of a file, one for each name.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    fn parents(&self, id: FileId) -> Result<Vec<FileId>>;
}

impl FileTree for Namespace {
    fn inode(&self, id: FileId) -> Result<Inode> {
        Namespace::inode(self, id)
    }

    fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.tablet.xattr_of(id, name)
    }

    fn parents(&self, id: FileId) -> Result<Vec<FileId>> {
        Ok(self.names(id)?.into_iter().map(|(parent, _)| parent).collect())
    }
}

/// A user who looks at what was, and the tree as it is.
pub struct Present<'a> {
    tree: &'a dyn FileTree,
    pub(crate) who: &'a Credentials,
    /// Directories whose contents can be reached from the root, or cannot.
    reached: HashMap<FileId, bool>,
}

impl<'a> Present<'a> {
    /// Looks at what was as a user may who is in the namespace.
    pub fn new(tree: &'a dyn FileTree, who: &'a Credentials) -> Self {
        Present { tree, who, reached: HashMap::new() }
    }

    /// Returns whether the file, if there still is one with this id, can be had so by the user: by
    /// its own permissions, and by those of all directories above it.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn lets(&mut self, id: FileId, wanted: Wanted) -> Result<bool> {
        if self.who.is_root() {
            return Ok(true);
        }
        let tree = self.tree;
        let inode = match tree.inode(id) {
            Err(error) if error.errno() == Errno::NOENT => return Ok(true),
            inode => inode?,
        };
        if !passes(&inode, self.who, wanted, |id, name| tree.xattr(id, name))? {
            return Ok(false);
        }
        if id == ROOT {
            return Ok(true);
        }
        // One of several names is enough.
        let parents = match tree.parents(id) {
            Err(error) if error.errno() == Errno::NOENT => return Ok(true),
            parents => parents?,
        };
        if parents.is_empty() {
            return Ok(true);
        }
        for parent in parents {
            if self.reaches(parent)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the user gets to what is in a directory from the root.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn reaches(&mut self, directory: FileId) -> Result<bool> {
        if self.who.is_root() {
            return Ok(true);
        }
        let tree = self.tree;
        let (mut way, mut at, mut circle) = (Vec::new(), directory, Circle::at(directory));
        let mut is_open = loop {
            if let Some(known) = self.reached.get(&at) {
                break *known;
            }
            way.push(at);
            if at == ROOT {
                break true;
            }
            // A directory that was removed just now has nothing above it.
            at = match tree.parents(at) {
                Err(error) if error.errno() == Errno::NOENT => break true,
                parents => match parents?.first() {
                    Some(parent) => *parent,
                    None => break true,
                },
            };
            if circle.is_closed_by(at) {
                return Err(Error::corrupt(format!("directory {at} lies in itself")));
            }
        };
        for id in way.into_iter().rev() {
            is_open = is_open
                && match tree.inode(id) {
                    Err(error) if error.errno() == Errno::NOENT => true,
                    inode => {
                        passes(&inode?, self.who, Wanted::SEARCH, |id, name| tree.xattr(id, name))?
                    }
                };
            self.reached.insert(id, is_open);
        }
        Ok(is_open)
    }
}

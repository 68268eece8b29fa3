//! Access to a tree as it was, by the present permissions: files that were hidden since a snapshot
//! was made stay hidden in it.

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::records::access::passes;
use crate::records::circle::Circle;
use crate::records::keys::{FileId, ROOT};
use canopy_model::{Credentials, Wanted};
use rustix::io::Errno;
use std::collections::HashMap;

/// A user who looks at what was, and the namespace as it is.
pub struct Present<'a> {
    namespace: &'a Namespace,
    pub(crate) who: &'a Credentials,
    /// Directories whose contents can be reached from the root, or cannot.
    reached: HashMap<FileId, bool>,
}

impl<'a> Present<'a> {
    /// Looks at what was as a user may who is in the namespace.
    pub fn new(namespace: &'a Namespace, who: &'a Credentials) -> Self {
        Present { namespace, who, reached: HashMap::new() }
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
        let namespace = self.namespace;
        let inode = match namespace.inode(id) {
            Err(Error::Posix(Errno::NOENT)) => return Ok(true),
            inode => inode?,
        };
        let xattr = |id, name: &[u8]| namespace.tablet.xattr_of(id, name);
        if !passes(&inode, self.who, wanted, xattr)? {
            return Ok(false);
        }
        // One of several names is enough.
        let mut names = match id {
            ROOT => return Ok(true),
            _ => namespace.names(id)?.into_iter().map(|(parent, _)| parent).peekable(),
        };
        if names.peek().is_none() {
            return Ok(true);
        }
        for parent in names {
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
        let namespace = self.namespace;
        let (mut way, mut at, mut circle) = (Vec::new(), directory, Circle::at(directory));
        let mut is_open = loop {
            if let Some(known) = self.reached.get(&at) {
                break *known;
            }
            way.push(at);
            if at == ROOT {
                break true;
            }
            at = namespace.parent(at)?;
            // A directory that was removed just now has nothing above it.
            if way.last() == Some(&at) {
                break true;
            }
            if circle.is_closed_by(at) {
                return Err(Error::corrupt(format!("directory {at} lies in itself")));
            }
        };
        for id in way.into_iter().rev() {
            let xattr = |id, name: &[u8]| namespace.tablet.xattr_of(id, name);
            is_open = is_open
                && match namespace.inode(id) {
                    Err(Error::Posix(Errno::NOENT)) => true,
                    inode => passes(&inode?, self.who, Wanted::SEARCH, xattr)?,
                };
            self.reached.insert(id, is_open);
        }
        Ok(is_open)
    }
}

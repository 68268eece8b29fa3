//! Present permissions of what was: what has been hidden since a snapshot was made stays hidden in it.

use super::keeping::posix;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::message::{Request, Response};
use canopy_model::{Credentials, Wanted, XattrAccess};
use canopy_namespace::inode::TYPE_MASK;
use canopy_namespace::operation::{Caller, Entries, Moment, Operation, Read};
use canopy_namespace::{FileId, FileTree, Inode, Present, ROOT, Reply};
use rustix::io::Errno;

/// All files, as a client sees them that is trusted.
pub(crate) struct Tree<'a>(pub(super) &'a Client);

impl Tree<'_> {
    fn read(&self, read: Read<'_>) -> Result<Reply> {
        self.0.execute_for(Caller::Trusted, &Operation::Read(Moment::Now, read))
    }

    /// Returns an inode.
    pub(super) fn inode_of(&self, id: FileId) -> Result<Inode> {
        match self.read(Read::Inode(id))? {
            Reply::Inode(inode) => Ok(inode),
            _ => Err(Error::Unfit),
        }
    }

    fn parents_of(&self, id: FileId) -> Result<Vec<FileId>> {
        match self.0.ask_for_id(Caller::Trusted, id, &Request::Parents(id))? {
            Response::Files(parents) => Ok(parents),
            _ => Err(Error::Unfit),
        }
    }

    /// Returns whether permissions let a user get to a directory from the root.
    pub(super) fn lets_in(&self, directory: FileId, who: &Credentials) -> Result<bool> {
        if directory == ROOT || who.is_root() {
            return Ok(true);
        }
        match self.parents_of(directory)?.first() {
            Some(parent) => Ok(Present::new(self, who).reaches(*parent)?),
            None => Ok(false),
        }
    }
}

impl FileTree for Tree<'_> {
    fn inode(&self, id: FileId) -> canopy_namespace::Result<Inode> {
        Ok(self.inode_of(id)?)
    }

    fn xattr(&self, id: FileId, name: &[u8]) -> canopy_namespace::Result<Option<Vec<u8>>> {
        match self.read(Read::Xattr { id, name })? {
            Reply::Bytes(value) => Ok(value),
            _ => Err(Error::Unfit.into()),
        }
    }

    fn parents(&self, id: FileId) -> canopy_namespace::Result<Vec<FileId>> {
        Ok(self.parents_of(id)?)
    }
}

/// Fails with `ACCESS` unless present permissions let a user read this. Returns whether a listing
/// shows more than types.
pub(super) fn check(tree: &Tree<'_>, who: &Credentials, request: &Request<'_>) -> Result<bool> {
    let mut present = Present::new(tree, who);
    let mut lets = |id, wanted| -> Result<bool> { Ok(present.lets(id, wanted)?) };
    let (may, is_searched) = match request {
        Request::List(page) => {
            let directory = page.directory;
            (lets(directory, Wanted::READ)?, lets(directory, Wanted::SEARCH)?)
        }
        Request::Execute(Operation::Read(_, read)) => match read {
            Read::Lookup(name) => (lets(name.directory, Wanted::SEARCH)?, true),
            Read::Parent(id) => (lets(*id, Wanted::SEARCH)?, true),
            Read::Contents(part) => (lets(part.id, Wanted::READ)?, true),
            Read::Xattr { id, name } => match XattrAccess::of(&String::from_utf8_lossy(name)) {
                XattrAccess::Read => (lets(*id, Wanted::READ)?, true),
                XattrAccess::Lookup | XattrAccess::Privilege => (true, true),
            },
            Read::Inode(_) | Read::Readlink(_) | Read::Xattrs(_) => (true, true),
            Read::List(_) => (false, false),
        },
        _ => (true, true),
    };
    if may { Ok(is_searched) } else { Err(posix(Errno::ACCESS)) }
}

/// Returns entries with types and numbers alone.
pub(super) fn without_attributes(mut entries: Entries) -> Entries {
    entries.change_inodes(|inode| {
        let Inode { mode, id, .. } = *inode;
        *inode = Inode { mode: mode & TYPE_MASK, id, ..Inode::default() };
    });
    entries
}

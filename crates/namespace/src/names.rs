//! Names and attributes, for callers in the process of the namespace. Each method is that of its
//! tablet; where a disk is full, changes are tried once more after the space of removed files was
//! given back.

use crate::error::Result;
use crate::namespace::Namespace;
use crate::records::change::{New, Privileges, RenameMode};
use crate::records::inode::Inode;
use crate::records::keys::{EntryName, FileId};
use crate::records::listing::{Entry, Listing};
use crate::records::xattrs::SetXattr;
use canopy_model::{Credentials, Ownership};

impl Namespace {
    /// Returns the inode of a name.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::lookup`](crate::Tablet::lookup) does.
    pub fn lookup(&self, parent: FileId, name: &[u8]) -> Result<Inode> {
        self.tablet.lookup(parent, name)
    }

    /// Returns an inode as it is now.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::inode`](crate::Tablet::inode) does.
    pub fn inode(&self, id: FileId) -> Result<Inode> {
        self.tablet.inode(id)
    }

    /// Returns the names of a file, each with its directory.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::names`](crate::Tablet::names) does.
    pub fn names(&self, id: FileId) -> Result<Vec<(FileId, Vec<u8>)>> {
        self.tablet.names(id)
    }

    /// Returns the directory above a directory.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::parent`](crate::Tablet::parent) does.
    pub fn parent(&self, directory: FileId) -> Result<FileId> {
        self.tablet.parent(directory)
    }

    /// Returns the path of a file below the root.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::path`](crate::Tablet::path) does.
    pub fn path(&self, id: FileId) -> Result<Option<Vec<u8>>> {
        self.tablet.path(id)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::readlink`](crate::Tablet::readlink) does.
    pub fn readlink(&self, id: FileId) -> Result<Vec<u8>> {
        self.tablet.readlink(id)
    }

    /// Looks a name up and holds the file.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::lookup_held`](crate::Tablet::lookup_held) does.
    pub fn lookup_held(&self, parent: FileId, name: &[u8]) -> Result<Inode> {
        self.tablet.lookup_held(parent, name)
    }

    /// Lets a file go that was held so many times.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::release`](crate::Tablet::release) does.
    pub fn release(&self, id: FileId, times: u64) -> Result<()> {
        self.tablet.release(id, times)
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::xattr`](crate::Tablet::xattr) does.
    pub fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.tablet.xattr(id, name)
    }

    /// Returns the names of extended attributes, sorted.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::xattrs`](crate::Tablet::xattrs) does.
    pub fn xattrs(&self, id: FileId) -> Result<Vec<Vec<u8>>> {
        self.tablet.xattrs(id)
    }

    /// Returns whether the permissions of a file let a user read it, who got to it.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::lets_read`](crate::Tablet::lets_read) does.
    pub fn lets_read(&self, inode: &Inode, who: &Credentials) -> Result<bool> {
        self.tablet.lets_read(inode, who)
    }

    /// Returns whether a user may change a file, as its owner or by writing to it.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::lets_change`](crate::Tablet::lets_change) does.
    pub fn lets_change(&self, inode: &Inode, who: &Credentials) -> Result<bool> {
        self.tablet.lets_change(inode, who)
    }

    /// Returns whether reading a file now changes its time of access.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::is_access_due`](crate::Tablet::is_access_due) does.
    pub fn is_access_due(&self, id: FileId) -> Result<bool> {
        self.tablet.is_access_due(id)
    }

    /// Notes that a file or a directory was read.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::touch_access`](crate::Tablet::touch_access) does.
    pub fn touch_access(&self, id: FileId) -> Result<()> {
        self.tablet.touch_access(id)
    }

    /// Makes a file, a directory or anything else.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::create`](crate::Tablet::create) does.
    pub fn create(&self, parent: FileId, name: &[u8], new: &New, is_held: bool) -> Result<Inode> {
        self.with_room(|| self.tablet.create(parent, name, new, is_held))
    }

    /// Makes a regular file without a name in a directory, held.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::create_nameless`](crate::Tablet::create_nameless) does.
    pub fn create_nameless(&self, parent: FileId, new: &New) -> Result<Inode> {
        self.with_room(|| self.tablet.create_nameless(parent, new))
    }

    /// Gives a file another name.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::link`](crate::Tablet::link) does.
    pub fn link(&self, id: FileId, parent: FileId, name: &[u8]) -> Result<Inode> {
        self.with_room(|| self.tablet.link(id, parent, name))
    }

    /// Takes a name of a file away.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::unlink`](crate::Tablet::unlink) does.
    pub fn unlink(&self, parent: FileId, name: &[u8]) -> Result<FileId> {
        self.tablet.unlink(parent, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::rmdir`](crate::Tablet::rmdir) does.
    pub fn rmdir(&self, parent: FileId, name: &[u8]) -> Result<FileId> {
        self.tablet.rmdir(parent, name)
    }

    /// Renames a file or a directory.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::rename`](crate::Tablet::rename) does.
    pub fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> Result<()> {
        self.with_room(|| self.tablet.rename(from, to, mode))
    }

    /// Renames a file, and leaves a whiteout of an owner and a group.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::rename_leaving_whiteout`](crate::Tablet::rename_leaving_whiteout) does.
    pub fn rename_leaving_whiteout(
        &self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
        owner: Ownership,
    ) -> Result<()> {
        self.with_room(|| self.tablet.rename_leaving_whiteout(from, to, mode, owner))
    }

    /// Gives a file an extended attribute.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::set_xattr`](crate::Tablet::set_xattr) does.
    pub fn set_xattr(
        &self,
        id: FileId,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        self.with_room(|| self.tablet.set_xattr(id, name, value, how, privileges))
    }

    /// Takes an extended attribute of a file away.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::remove_xattr`](crate::Tablet::remove_xattr) does.
    pub fn remove_xattr(&self, id: FileId, name: &[u8]) -> Result<()> {
        self.tablet.remove_xattr(id, name)
    }

    /// Makes what is known of a directory, and all changes before, outlast a crash.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::sync_inode`](crate::Tablet::sync_inode) does.
    pub fn sync_inode(&self, id: FileId) -> Result<()> {
        self.with_room(|| self.tablet.sync_inode(id))
    }

    /// Has indexes of these attributes from now on, and of no others.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::set_indexes`](crate::Tablet::set_indexes) does.
    pub fn set_indexes(&self, names: &[impl AsRef<str>]) -> Result<()> {
        self.tablet.set_indexes(names)
    }

    /// Builds the indexes that are not complete.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::build_indexes`](crate::Tablet::build_indexes) does.
    pub fn build_indexes(&self, goes_on: impl Fn() -> bool) -> Result<bool> {
        self.tablet.build_indexes(goes_on)
    }

    /// Passes the entries of a directory behind a cookie, 0 for all, to `tell`, until it returns
    /// that it does not take one.
    ///
    /// # Errors
    ///
    /// Fails as [`Tablet::list`](crate::Tablet::list) does.
    pub fn list(
        &self,
        listing: &mut Listing,
        after: u64,
        tell: impl FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        self.tablet.list(listing, after, tell)
    }

    /// Holds a file that the caller knows to be there.
    pub fn hold(&self, id: FileId) {
        self.tablet.hold(id);
    }

    /// Returns nanoseconds since 1970, as they are written into times.
    pub fn now_ns(&self) -> i64 {
        self.tablet.now_ns()
    }
}

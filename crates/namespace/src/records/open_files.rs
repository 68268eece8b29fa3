//! The contents of files, as far as records depend on them: everything that a tablet asks of the
//! process that reads and writes contents. Contents themselves do not pass through a tablet.
//!
//! A tablet calls these with its lock of records held, but for [`OpenFiles::record`] and
//! [`OpenFiles::with_recorded`], which take the lock of a file's contents before it.

use crate::error::Result;
use crate::records::change::SetAttributes;
use crate::records::inode::Inode;
use crate::records::keys::FileId;
use crate::records::tablet::Tablet;
use std::borrow::Cow;

/// Files that are open, whose contents may be newer than their records.
pub trait OpenFiles: Send + Sync {
    /// Gives an inode the size and the times that its contents have now, if they are newer.
    fn overlay(&self, inode: &mut Inode);

    /// Returns an inode with the size that its record may have: contents that are not stored yet do
    /// not count.
    fn recorded<'a>(&self, inode: &'a Inode) -> Cow<'a, Inode>;

    /// Returns the number of files that were closed for the last time so far. It grows before the
    /// contents of such a file stop being newer than its record.
    fn closings(&self) -> u64;

    /// Returns whether a file has contents that belong into its records, and are not there yet.
    fn is_dirty(&self, id: FileId) -> bool;

    /// Gives the object of a file the times that were set: after a crash, its own may count.
    ///
    /// # Errors
    ///
    /// Fails as the disk does.
    fn set_times(&self, inode: &Inode, set: &SetAttributes) -> Result<()>;

    /// Puts the contents of a small file that is open into its records.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table does.
    fn record(&self, tablet: &Tablet, id: FileId) -> Result<()>;

    /// Like `record`, and then runs `change` before anybody writes the file again.
    ///
    /// # Errors
    ///
    /// Fails as `record` and `change` do.
    fn with_recorded(
        &self,
        tablet: &Tablet,
        id: FileId,
        change: &mut dyn FnMut() -> Result<Inode>,
    ) -> Result<Inode>;

    /// Notes that a file goes whose contents are an object. The record that says so
    /// (`Space::Doomed`) is written next.
    fn doom(&self);
}

/// No open files: of a tablet whose process neither reads nor writes contents.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOpenFiles;

impl OpenFiles for NoOpenFiles {
    fn overlay(&self, _inode: &mut Inode) {}

    fn recorded<'a>(&self, inode: &'a Inode) -> Cow<'a, Inode> {
        Cow::Borrowed(inode)
    }

    fn closings(&self) -> u64 {
        0
    }

    fn is_dirty(&self, _id: FileId) -> bool {
        false
    }

    fn set_times(&self, _inode: &Inode, _set: &SetAttributes) -> Result<()> {
        Ok(())
    }

    fn record(&self, _tablet: &Tablet, _id: FileId) -> Result<()> {
        Ok(())
    }

    fn with_recorded(
        &self,
        _tablet: &Tablet,
        _id: FileId,
        change: &mut dyn FnMut() -> Result<Inode>,
    ) -> Result<Inode> {
        change()
    }

    fn doom(&self) {}
}

//! A method for each operation: it makes the operation, and takes the reply apart. A reply that
//! does not fit fails with `Corrupt`; else each method fails as the one of `Namespace` that it
//! stands for.

use super::reply::{Capacity, Reply, State, unfit};
use super::{
    Access, Administration, Change, Changer, Execute, Hold, Moment, Operation, Page, QuotasRequest,
    Read, SnapshotsRequest,
};
use crate::error::Result;
use crate::quota::{Account, Limits, Quota};
use crate::records::change::{New, RenameMode, SetAttributes};
use crate::records::inode::Inode;
use crate::records::keys::{EntryName, FileId};
use crate::records::listing::{Entry, Listing};
use crate::records::xattrs::SetXattr;
use crate::settings::Settings;
use crate::snapshot::snapshots::SnapshotInfo;
use canopy_model::{Credentials, Ownership, Wanted};
use std::borrow::Cow;

/// Executes an operation whose reply is of one kind, and returns what that has.
macro_rules! ask {
    ($execute:expr, $operation:expr, $reply:ident) => {
        match $execute.execute(&$operation)? {
            Reply::$reply(value) => Ok(value),
            _ => unfit(),
        }
    };
    ($execute:expr, $operation:expr) => {
        match $execute.execute(&$operation)? {
            Reply::Done => Ok(()),
            _ => unfit(),
        }
    };
}

/// Reads of a tree.
impl dyn Execute + '_ {
    /// Returns the inode of a name.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name.
    pub fn lookup(&self, at: Moment, name: EntryName<'_>) -> Result<Inode> {
        ask!(self, Operation::Read(at, Read::Lookup(name)), Inode)
    }

    /// Returns an inode.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file.
    pub fn inode(&self, at: Moment, id: FileId) -> Result<Inode> {
        ask!(self, Operation::Read(at, Read::Inode(id)), Inode)
    }

    /// Returns the directory above a directory; the root is above itself.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn parent(&self, at: Moment, directory: FileId) -> Result<FileId> {
        ask!(self, Operation::Read(at, Read::Parent(directory)), File)
    }

    /// Returns where a symbolic link leads.
    ///
    /// # Errors
    ///
    /// Fails with `INVAL` if the file is not a symbolic link.
    pub fn readlink(&self, at: Moment, id: FileId) -> Result<Vec<u8>> {
        let target = ask!(self, Operation::Read(at, Read::Readlink(id)), Bytes);
        target?.map_or_else(unfit, Ok)
    }

    /// Passes the entries of a directory behind a cookie, 0 for all, to `tell`, until it returns
    /// that it does not take one.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn list(
        &self,
        at: Moment,
        listing: &mut Listing,
        after: u64,
        mut tell: impl FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        self.list_entries(at, listing, after, &mut tell)
    }

    /// Like `list`, but asks for the entries by parts, each with an operation.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn list_by_parts(
        &self,
        at: Moment,
        listing: &mut Listing,
        after: u64,
        tell: impl FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let read = |page: Page<'_>| ask!(self, Operation::Read(at, Read::List(page)), Entries);
        listing.go_on_by_pages(after, read, tell)
    }

    /// Returns the value of an extended attribute; none if the file has no such attribute.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file.
    pub fn xattr(&self, at: Moment, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        ask!(self, Operation::Read(at, Read::Xattr { id, name }), Bytes)
    }

    /// Returns the names of extended attributes, sorted.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file.
    pub fn xattrs(&self, at: Moment, id: FileId) -> Result<Vec<Vec<u8>>> {
        ask!(self, Operation::Read(at, Read::Xattrs(id)), Names)
    }
}

/// Permissions, paths, and holding files.
impl dyn Execute + '_ {
    /// Returns the path of a file below the root; none if it has no name any more.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn path(&self, id: FileId) -> Result<Option<Vec<u8>>> {
        ask!(self, Operation::Access(Access::Path(id)), Bytes)
    }

    /// Returns whether reading a file now changes its time of access.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file.
    pub fn is_access_due(&self, id: FileId) -> Result<bool> {
        ask!(self, Operation::Access(Access::IsDue(id)), Truth)
    }

    /// Returns whether the permissions of a file let a user read it, who got to it.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file.
    pub fn lets_read(&self, at: Moment, id: FileId, who: &Credentials) -> Result<bool> {
        let access = Access::MayRead(at, id, Cow::Borrowed(who));
        ask!(self, Operation::Access(access), Truth)
    }

    /// Returns whether a user may change a file, as its owner or by writing to it.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file.
    pub fn lets_change(&self, id: FileId, who: &Credentials) -> Result<bool> {
        ask!(self, Operation::Access(Access::MayChange(id, Cow::Borrowed(who))), Truth)
    }

    /// Returns whether present permissions let a user read the file of the snapshot of this number.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn is_shown(
        &self,
        snapshot: u64,
        id: FileId,
        wanted: Wanted,
        who: &Credentials,
    ) -> Result<bool> {
        let access = Access::IsShown(snapshot, id, wanted, Cow::Borrowed(who));
        ask!(self, Operation::Access(access), Truth)
    }

    /// Looks a name up and holds the file.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name.
    pub fn lookup_held(&self, name: EntryName<'_>) -> Result<Inode> {
        ask!(self, Operation::Hold(Hold::Name(name)), Inode)
    }

    /// Holds a file that the caller knows to be there.
    ///
    /// # Errors
    ///
    /// Fails where servers cannot be reached; never here.
    pub fn hold(&self, id: FileId) -> Result<()> {
        ask!(self, Operation::Hold(Hold::File(id)))
    }

    /// Takes that back so many times; a file without a name goes with the last.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room.
    pub fn release(&self, id: FileId, times: u64) -> Result<()> {
        ask!(self, Operation::Hold(Hold::Release(id, times)))
    }
}

/// Changes of names and attributes.
impl dyn Execute + '_ {
    /// Makes a file, a directory or anything else, and holds it.
    ///
    /// # Errors
    ///
    /// Fails with `EXIST` if the name is taken.
    pub fn create(&self, name: EntryName<'_>, new: &New) -> Result<Inode> {
        let create = Change::Create { name, new: Cow::Borrowed(new), holds: true };
        ask!(self, Operation::Change(create), Inode)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    ///
    /// Fails with `EXIST` if the name is taken, and with `NOENT` if there is no such file.
    pub fn link(&self, id: FileId, name: EntryName<'_>) -> Result<Inode> {
        ask!(self, Operation::Change(Change::Link { id, name }), Inode)
    }

    /// Takes a name of a file away. Returns which file it was.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name, and with `ISDIR` if it is a directory's.
    pub fn unlink(&self, name: EntryName<'_>) -> Result<FileId> {
        ask!(self, Operation::Change(Change::Unlink(name)), File)
    }

    /// Removes an empty directory. Returns which it was.
    ///
    /// # Errors
    ///
    /// Fails with `NOTEMPTY` if something is in it, and with `NOTDIR` if it is not a directory.
    pub fn rmdir(&self, name: EntryName<'_>) -> Result<FileId> {
        ask!(self, Operation::Change(Change::Rmdir(name)), File)
    }

    /// Renames a file or a directory. A whiteout of an owner and a group is left if one is given.
    ///
    /// # Errors
    ///
    /// Fails as rename(2) does.
    pub fn rename(
        &self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
        whiteout: Option<Ownership>,
    ) -> Result<()> {
        ask!(self, Operation::Change(Change::Rename { from, to, mode, whiteout }))
    }

    /// Sets attributes, and the length of a file. All of them are set, or none.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file.
    pub fn set_attributes(
        &self,
        id: FileId,
        set: &SetAttributes,
        changer: Changer<'_>,
    ) -> Result<Inode> {
        let change = Change::SetAttributes { id, set: set.clone(), changer };
        ask!(self, Operation::Change(change), Inode)
    }

    /// Gives a file an extended attribute.
    ///
    /// # Errors
    ///
    /// Fails with `EXIST` or `NODATA` as `how` says.
    pub fn set_xattr(
        &self,
        id: FileId,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        changer: Changer<'_>,
    ) -> Result<()> {
        ask!(self, Operation::Change(Change::SetXattr { id, name, value, how, changer }))
    }

    /// Takes an extended attribute of a file away.
    ///
    /// # Errors
    ///
    /// Fails with `NODATA` if there is no such attribute.
    pub fn remove_xattr(&self, id: FileId, name: &[u8]) -> Result<()> {
        ask!(self, Operation::Change(Change::RemoveXattr { id, name }))
    }

    /// Notes that a file or a directory was read, if its time of access is due.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file.
    pub fn touch_access(&self, id: FileId) -> Result<()> {
        ask!(self, Operation::Change(Change::TouchAccess(id)))
    }

    /// Makes what is known of a directory, and all changes before, outlast a crash.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room.
    pub fn sync_inode(&self, id: FileId) -> Result<()> {
        ask!(self, Operation::Change(Change::Sync(id)))
    }
}

/// Quotas.
impl dyn Execute + '_ {
    /// Returns what all accounts use and may, in their order.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn quotas(&self) -> Result<Vec<Quota>> {
        ask!(self, Operation::Quotas(QuotasRequest::All), Quotas)
    }

    /// Returns what an account uses and may; none where nothing is counted.
    ///
    /// # Errors
    ///
    /// Fails where servers cannot be reached; never here.
    pub fn quota(&self, account: Account) -> Result<Option<Quota>> {
        let quotas: Result<Vec<_>> =
            ask!(self, Operation::Quotas(QuotasRequest::Of(account)), Quotas);
        Ok(quotas?.pop())
    }

    /// Returns what the tree that a file belongs to uses and may, if it has limits.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file.
    pub fn quota_of_tree(&self, id: FileId) -> Result<Option<Quota>> {
        let quotas: Result<Vec<_>> =
            ask!(self, Operation::Quotas(QuotasRequest::OfTree(id)), Quotas);
        Ok(quotas?.pop())
    }

    /// Sets the limits of an account.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn set_limits(&self, account: Account, limits: Limits) -> Result<()> {
        ask!(self, Operation::Quotas(QuotasRequest::Set(account, limits)))
    }

    /// Makes a directory the top of a tree with limits, and returns the tree's account.
    ///
    /// # Errors
    ///
    /// Fails with `NOTDIR` or `NOENT` if there is no such directory.
    pub fn set_tree_limits(&self, directory: FileId, limits: Limits) -> Result<Account> {
        ask!(self, Operation::Quotas(QuotasRequest::SetTree(directory, limits)), Account)
    }

    /// Makes the tree below a directory one without an account. Returns whether it was one.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such directory.
    pub fn remove_tree(&self, directory: FileId) -> Result<bool> {
        ask!(self, Operation::Quotas(QuotasRequest::RemoveTree(directory)), Truth)
    }

    /// Makes the tree of a number one without an account. Returns whether it was one.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn remove_tree_of_number(&self, number: u32) -> Result<bool> {
        ask!(self, Operation::Quotas(QuotasRequest::RemoveTreeOfNumber(number)), Truth)
    }
}

/// Snapshots.
impl dyn Execute + '_ {
    /// Returns all snapshots, the oldest first.
    ///
    /// # Errors
    ///
    /// Fails where servers cannot be reached; never here.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        ask!(self, Operation::Snapshots(SnapshotsRequest::All), Snapshots)
    }

    /// Returns all snapshots as lines of JSON, with what each takes on the disk.
    ///
    /// # Errors
    ///
    /// Fails as the disk does.
    pub fn snapshots_as_json(&self) -> Result<String> {
        ask!(self, Operation::Snapshots(SnapshotsRequest::Described), Text)
    }

    /// Returns whether there still is the snapshot of this number.
    ///
    /// # Errors
    ///
    /// Fails where servers cannot be reached; never here.
    pub fn has_snapshot(&self, number: u64) -> Result<bool> {
        ask!(self, Operation::Snapshots(SnapshotsRequest::Has(number)), Truth)
    }

    /// Returns a directory as a snapshot of this name has it, and the snapshot's number.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such snapshot or directory, and with `ACCESS` if the user
    /// could not get there then, or cannot now.
    pub fn enter_snapshot(
        &self,
        name: &[u8],
        directory: FileId,
        who: &Credentials,
    ) -> Result<(u64, Inode)> {
        let enter = SnapshotsRequest::Enter(name, directory, Cow::Borrowed(who));
        match self.execute(&Operation::Snapshots(enter))? {
            Reply::Entered(number, inode) => Ok((number, inode)),
            _ => unfit(),
        }
    }

    /// Makes a snapshot of this name.
    ///
    /// # Errors
    ///
    /// Fails with `EXIST` if there is one, and with `Invalid` if the name cannot be one.
    pub fn create_snapshot(&self, name: &str) -> Result<SnapshotInfo> {
        let made: Result<Vec<_>> =
            ask!(self, Operation::Snapshots(SnapshotsRequest::Create(name)), Snapshots);
        made?.pop().map_or_else(unfit, Ok)
    }

    /// Deletes a snapshot, and the contents that only it needs.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is none.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        ask!(self, Operation::Snapshots(SnapshotsRequest::Delete(name)))
    }
}

/// The namespace as a whole.
impl dyn Execute + '_ {
    /// Returns the state that may change at any moment, and that costs nothing to know.
    ///
    /// # Errors
    ///
    /// Fails where servers cannot be reached; never here.
    pub fn state(&self) -> Result<State> {
        ask!(self, Operation::Administration(Administration::State), State)
    }

    /// Returns nanoseconds since 1970, as they are written into times.
    ///
    /// # Errors
    ///
    /// Fails where servers cannot be reached; never here.
    pub fn now_ns(&self) -> Result<i64> {
        ask!(self, Operation::Administration(Administration::Time), Time)
    }

    /// Returns how much space there is.
    ///
    /// # Errors
    ///
    /// Fails if statvfs(3) does.
    pub fn capacity(&self) -> Result<Capacity> {
        ask!(self, Operation::Administration(Administration::Capacity), Capacity)
    }

    /// Returns what the namespace works by.
    ///
    /// # Errors
    ///
    /// Fails where servers cannot be reached; never here.
    pub fn settings(&self) -> Result<Settings> {
        ask!(self, Operation::Administration(Administration::Settings), Settings)
    }

    /// Has indexes of these attributes from now on, and of no others.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if there is no such attribute.
    pub fn set_indexes(&self, names: Vec<&str>) -> Result<()> {
        ask!(self, Operation::Administration(Administration::SetIndexes(names)))
    }

    /// Writes all that is in memory into the table's files.
    ///
    /// # Errors
    ///
    /// Fails with `ROFS` if that would change the disk, which may not be changed.
    pub fn flush(&self) -> Result<()> {
        ask!(self, Operation::Administration(Administration::Flush))
    }

    /// Returns what is wrong with the records of now, or of a snapshot: a line for each fault.
    ///
    /// # Errors
    ///
    /// Fails with `STALE` if there is no such snapshot.
    pub fn check(&self, snapshot: Option<&[u8]>, reads_contents: bool) -> Result<Vec<String>> {
        let check = Administration::Check { snapshot, reads_contents };
        ask!(self, Operation::Administration(check), Lines)
    }

    /// Mends what is wrong with the records. Returns a line for each thing that was done, and for
    /// each fault that is left.
    ///
    /// # Errors
    ///
    /// Fails where records cannot be read or written at all.
    pub fn repair(&self, reads_contents: bool) -> Result<(Vec<String>, Vec<String>)> {
        let repair = Administration::Repair { reads_contents };
        match self.execute(&Operation::Administration(repair))? {
            Reply::Repaired { done, left } => Ok((done, left)),
            _ => unfit(),
        }
    }
}

//! Operations: everything that is asked of a namespace, as data.
//!
//! An [`Operation`] is at once what a mount asks for, the message between servers, the logged
//! intent of a change, and a step of the simulator. [`Execute`] is who answers: a namespace of this
//! process, or a client of servers. [`Operation::target`] returns where an operation belongs.
//!
//! | kind | changes | asks |
//! | --- | --- | --- |
//! | [`Read`] | nothing | one tree, of now or of a snapshot |
//! | [`Access`] | nothing | permissions and paths of now |
//! | [`Hold`] | what stays without a name | a file |
//! | [`Change`] | names and attributes | a name or a file |
//! | [`QuotasRequest`], [`SnapshotsRequest`] | limits, snapshots | accounts, snapshots |
//! | [`Administration`] | indexes, damaged records | the namespace as a whole |
//! | [`Query`] | nothing | all files below a directory |
//!
//! Decisions:
//!
//! - Names and values are borrowed: to ask costs no allocation, and a message is executed from the
//!   bytes that arrived. Whoever has to keep an operation keeps these bytes.
//! - Contents of files are not operations ([`FileContents`]): they stay off the way of metadata. A
//!   client of servers reads and changes by operations what records have of them: small contents,
//!   and which objects have the chunks of larger ones. The chunks themselves it sends to storage.
//! - Neither are locks of programs ([`FileLocks`]): where all programs are on one machine, its kernel
//!   keeps them.
//! - Groups of who changes a file are data, and are given only where they matter ([`Changer`]).
//! - An operation does not say who asks: the [`Caller`] beside it does, whom the receiver knows from
//!   the connection. Owners and changers that a user's operation claims are checked against that.

mod ask;
mod contents;
mod execute;
mod locks;
pub mod program;
mod query;
mod reply;
mod rights;
mod stored;
mod tablet;

pub(crate) use contents::PastFiles;
pub use contents::{FileContents, LocalFile, PastHandle};
pub use execute::Execute;
pub use locks::{
    FileLock, FileLocks, LockKind, LockMode, LockOutcome, LockOwner, LockRange, LossReport,
};
pub use query::{FOUND_MAX, Plan, Query};
pub use reply::{Capacity, Entries, Reply, State};
pub use stored::{
    CHUNKS_MAX, ChunkChange, ContentsPart, Piece, PutChunks, StoredContents, WriteSmall, Writer,
};

use crate::contents::chunks::{ChunkId, ObjectId};
use crate::quota::{Account, Limits};
use crate::records::change::{New, RenameMode, SetAttributes};
use crate::records::keys::{EntryName, FileId};
use crate::records::listing::hash_after;
pub use crate::records::permissions::Caller;
use crate::records::xattrs::SetXattr;
use canopy_model::{Credentials, Ownership, Wanted};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// The tree that is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Moment {
    /// The namespace as it is.
    #[default]
    Now,
    /// The tree of the snapshot of this number. Every such read fails with `STALE` once it is
    /// deleted.
    Snapshot(u64),
}

/// Something that is asked of a namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operation<'a> {
    /// Reads a tree.
    Read(Moment, #[serde(borrow)] Read<'a>),
    /// Asks about permissions and paths of now.
    Access(Access<'a>),
    /// Holds files, and lets them go.
    Hold(#[serde(borrow)] Hold<'a>),
    /// Changes names or attributes.
    Change(#[serde(borrow)] Change<'a>),
    /// Asks for quotas, and changes them.
    Quotas(QuotasRequest),
    /// Asks for snapshots, and changes which there are.
    Snapshots(#[serde(borrow)] SnapshotsRequest<'a>),
    /// Concerns the namespace as a whole.
    Administration(#[serde(borrow)] Administration<'a>),
    /// Returns the files that a query finds, in no order, and no more of them than this. A user gets
    /// no more than [`FOUND_MAX`] at once.
    Search(Query<'a>, u64),
    /// Returns how a query is answered, and the number of candidates if that is asked.
    Explain(Query<'a>, bool),
}

/// A read of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Read<'a> {
    /// Returns the inode of a name. `NOENT` if there is no such name.
    Lookup(#[serde(borrow)] EntryName<'a>),
    /// Returns an inode. `NOENT` if there is no such file.
    Inode(FileId),
    /// Returns the directory above a directory; the root is above itself.
    Parent(FileId),
    /// Returns where a symbolic link leads.
    Readlink(FileId),
    /// Returns entries of a directory.
    List(Page<'a>),
    /// Returns the value of an extended attribute, if there is one.
    Xattr {
        /// The file.
        id: FileId,
        /// The attribute's name.
        name: &'a [u8],
    },
    /// Returns the names of extended attributes, sorted.
    Xattrs(FileId),
    /// Returns what records have of a file's contents.
    Contents(ContentsPart),
}

/// A part of the entries of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<'a> {
    /// The directory.
    pub directory: FileId,
    /// The cookie of the entry before; 0 for all.
    pub after: u64,
    /// The name of that entry, if it is known: without it, some of very many names that were made
    /// to have one hash come again.
    pub name: Option<&'a [u8]>,
    /// No more entries than this.
    pub count_max: u32,
}

/// A question about permissions and paths of now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Access<'a> {
    /// Returns the path of a file below the root; none if it has no name any more.
    Path(FileId),
    /// Returns whether reading a file now changes its time of access.
    IsDue(FileId),
    /// Returns whether the permissions of a file of a tree let a user read it, who got to it.
    MayRead(Moment, FileId, Cow<'a, Credentials>),
    /// Returns whether a user may change a file, as its owner or by writing to it.
    MayChange(FileId, Cow<'a, Credentials>),
    /// Returns whether present permissions, of a file and of all directories above it, let a user
    /// read the file of the snapshot of this number.
    IsShown(u64, FileId, Wanted, Cow<'a, Credentials>),
    /// Fails with `ACCESS` unless the caller may open a file so. Whoever opens files for users asks
    /// this first, and remembers what each was opened for: contents are not operations.
    Open(FileId, Wanted),
    /// Returns whether records need an object of a chunk: one names it, or has named it and a note
    /// is left that it may go.
    NeedsObject(ChunkId, ObjectId),
}

/// Holding files, so that they stay, nameless if need be, until they are released.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Hold<'a> {
    /// Looks a name up, and holds the file.
    Name(#[serde(borrow)] EntryName<'a>),
    /// Holds a file that the caller knows to be there.
    File(FileId),
    /// Takes that back so many times; a file without a name goes with the last.
    Release(FileId, u64),
}

/// A change of names or attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change<'a> {
    /// Makes a file, a directory or anything else.
    Create {
        /// The name that it gets.
        #[serde(borrow)]
        name: EntryName<'a>,
        /// The file to be made.
        new: Cow<'a, New>,
        /// Whether it is held.
        holds: bool,
    },
    /// Makes a regular file without a name in a directory, held.
    CreateNameless {
        /// The directory.
        directory: FileId,
        /// The file to be made.
        new: Cow<'a, New>,
    },
    /// Gives a file one more name.
    Link {
        /// The file.
        id: FileId,
        /// The name.
        #[serde(borrow)]
        name: EntryName<'a>,
    },
    /// Takes a name of a file away.
    Unlink(#[serde(borrow)] EntryName<'a>),
    /// Removes an empty directory.
    Rmdir(#[serde(borrow)] EntryName<'a>),
    /// Gives what has a name another one.
    Rename {
        /// The name that it has.
        #[serde(borrow)]
        from: EntryName<'a>,
        /// The name that it gets.
        #[serde(borrow)]
        to: EntryName<'a>,
        /// The fate of a file that has this name.
        mode: RenameMode,
        /// The owner and group of a whiteout that is left, if one is.
        whiteout: Option<Ownership>,
    },
    /// Sets attributes, and the length of a file. All of them are set, or none.
    SetAttributes {
        /// The file.
        id: FileId,
        /// The attributes.
        set: SetAttributes,
        /// The user who sets it.
        changer: Changer<'a>,
    },
    /// Gives a file an extended attribute.
    SetXattr {
        /// The file.
        id: FileId,
        /// The attribute's name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Whether it may be there already.
        how: SetXattr,
        /// The user who sets it.
        changer: Changer<'a>,
    },
    /// Takes an extended attribute of a file away.
    RemoveXattr {
        /// The file.
        id: FileId,
        /// The attribute's name.
        name: &'a [u8],
    },
    /// Notes that a file or a directory was read, if its time of access is due.
    TouchAccess(FileId),
    /// Makes what is known of a directory, and all changes before, outlast a crash.
    Sync(FileId),
    /// Writes pieces into a file whose contents are a record, or that is empty.
    WriteSmall {
        /// The file.
        id: FileId,
        /// The data.
        #[serde(borrow)]
        write: WriteSmall<'a>,
        /// The user who writes.
        writer: Writer<'a>,
    },
    /// Records which objects have chunks of a file from now on: all of them, or none.
    PutChunks {
        /// The file.
        id: FileId,
        /// The chunks.
        #[serde(borrow)]
        put: PutChunks<'a>,
        /// The user who has written them.
        writer: Writer<'a>,
    },
}

/// A user who changes a file, as far as that decides what becomes of setuid and setgid bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Changer<'a> {
    /// May set these bits, so they stay; no quota binds.
    Privileged,
    /// Is in these groups. A setgid bit without the right to execute stays only in a file of one of
    /// them. They matter where a length or an ACL is set of a file with a setgid bit.
    Member(Cow<'a, [u32]>),
}

/// A request about quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotasRequest {
    /// Returns what all accounts use and may. Where nothing is counted, this reads all files.
    All,
    /// Returns what an account uses and may; none where nothing is counted.
    Of(Account),
    /// Returns what the tree that a file belongs to uses and may, if it has limits.
    OfTree(FileId),
    /// Sets the limits of an account.
    Set(Account, Limits),
    /// Makes a directory the top of a tree with limits, and returns the tree's account.
    SetTree(FileId, Limits),
    /// Makes the tree below a directory one without an account. Returns whether it was one.
    RemoveTree(FileId),
    /// Makes the tree of a number one without an account. Returns whether it was one.
    RemoveTreeOfNumber(u32),
}

/// A request about snapshots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SnapshotsRequest<'a> {
    /// Returns all, the oldest first.
    All,
    /// Returns all as lines of JSON, with what each takes on the disk.
    Described,
    /// Returns whether there still is the snapshot of this number.
    Has(u64),
    /// Returns a directory as a snapshot of this name has it, and the snapshot's number, for a user
    /// who could get there then and can now.
    Enter(&'a [u8], FileId, Cow<'a, Credentials>),
    /// Makes a snapshot of this name.
    Create(&'a str),
    /// Deletes a snapshot, and the contents that only it needs.
    Delete(&'a str),
}

/// A request that concerns the namespace as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Administration<'a> {
    /// Returns the state that may change at any moment.
    State,
    /// Returns the time that is written into files now.
    Time,
    /// Returns how much space there is.
    Capacity,
    /// Returns what the namespace works by.
    Settings,
    /// Has indexes of these attributes from now on, and of no others.
    SetIndexes(#[serde(borrow)] Vec<&'a str>),
    /// Writes all that is in memory into the table's files. `ROFS` if that would change the disk,
    /// which may not be changed.
    Flush,
    /// Returns what is wrong with the records, a line for each fault.
    Check {
        /// The snapshot to check, if it is not the namespace of now; `STALE` if there is none.
        snapshot: Option<&'a [u8]>,
        /// Whether contents that lie in storage are read.
        reads_contents: bool,
    },
    /// Mends what is wrong with the records.
    Repair {
        /// Whether contents that lie in storage are read first.
        reads_contents: bool,
    },
}

/// Where an operation belongs: which server has what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Target {
    /// The server of a name of a directory, by the hash in the name's key. For a rename, it is that
    /// of the name that goes away, which decides.
    Name {
        /// The directory.
        directory: FileId,
        /// The hash of the name.
        hash: u64,
    },
    /// The server that has the inode of a file, or the content half of a directory.
    File(FileId),
    /// No name and no file: every server can answer, or all of them together.
    Anywhere,
}

impl Operation<'_> {
    /// Returns where it belongs.
    pub fn target(&self) -> Target {
        match self {
            Operation::Read(_, read) => read.target(),
            Operation::Access(access) => access.target(),
            Operation::Hold(Hold::Name(name)) => Target::of(*name),
            Operation::Hold(Hold::File(id) | Hold::Release(id, _)) => Target::File(*id),
            Operation::Change(change) => change.target(),
            Operation::Quotas(quotas) => quotas.target(),
            Operation::Snapshots(SnapshotsRequest::Enter(_, directory, _)) => {
                Target::File(*directory)
            }
            Operation::Snapshots(_)
            | Operation::Administration(_)
            | Operation::Search(..)
            | Operation::Explain(..) => Target::Anywhere,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Name { directory, hash } => {
                write!(formatter, "a name with hash {hash:016x} in directory {directory}")
            }
            Target::File(id) => write!(formatter, "file {id}"),
            Target::Anywhere => formatter.write_str("the namespace"),
        }
    }
}

impl Target {
    fn of(name: EntryName<'_>) -> Self {
        Target::Name { directory: name.directory, hash: name.hash() }
    }
}

impl Read<'_> {
    fn target(&self) -> Target {
        match self {
            Read::Lookup(name) => Target::of(*name),
            Read::List(page) => {
                let Page { directory, after, name, .. } = *page;
                match name {
                    Some(name) => Target::of(EntryName::new(directory, name)),
                    None => Target::Name { directory, hash: hash_after(after) },
                }
            }
            Read::Inode(id)
            | Read::Parent(id)
            | Read::Readlink(id)
            | Read::Xattrs(id)
            | Read::Contents(ContentsPart { id, .. })
            | Read::Xattr { id, .. } => Target::File(*id),
        }
    }
}

impl Access<'_> {
    fn target(&self) -> Target {
        match self {
            Access::Path(id)
            | Access::IsDue(id)
            | Access::MayRead(_, id, _)
            | Access::MayChange(id, _)
            | Access::IsShown(_, id, ..)
            | Access::Open(id, _)
            | Access::NeedsObject(ChunkId { file: id, .. }, _) => Target::File(*id),
        }
    }
}

impl Change<'_> {
    /// Returns whether it may fail for want of space, and is worth another try once there is more.
    pub(crate) fn takes_space(&self) -> bool {
        match self {
            Change::Create { .. }
            | Change::CreateNameless { .. }
            | Change::Link { .. }
            | Change::Rename { .. }
            | Change::SetAttributes { .. }
            | Change::SetXattr { .. }
            | Change::WriteSmall { .. }
            | Change::PutChunks { .. }
            | Change::Sync(_) => true,
            Change::Unlink(_)
            | Change::Rmdir(_)
            | Change::RemoveXattr { .. }
            | Change::TouchAccess(_) => false,
        }
    }

    fn target(&self) -> Target {
        match self {
            Change::Create { name, .. }
            | Change::Link { name, .. }
            | Change::Unlink(name)
            | Change::Rmdir(name)
            | Change::Rename { from: name, .. } => Target::of(*name),
            Change::CreateNameless { directory: id, .. }
            | Change::SetAttributes { id, .. }
            | Change::SetXattr { id, .. }
            | Change::RemoveXattr { id, .. }
            | Change::TouchAccess(id)
            | Change::WriteSmall { id, .. }
            | Change::PutChunks { id, .. }
            | Change::Sync(id) => Target::File(*id),
        }
    }
}

impl QuotasRequest {
    fn target(&self) -> Target {
        match self {
            QuotasRequest::OfTree(id)
            | QuotasRequest::SetTree(id, _)
            | QuotasRequest::RemoveTree(id) => Target::File(*id),
            QuotasRequest::All
            | QuotasRequest::Of(_)
            | QuotasRequest::Set(..)
            | QuotasRequest::RemoveTreeOfNumber(_) => Target::Anywhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::keys;

    #[test]
    fn operations_belong_where_their_records_are() {
        let (one, other) = (EntryName::new(FileId(7), b"a"), EntryName::new(FileId(8), b"b"));
        let at = |name: EntryName<'_>| {
            let hash = keys::name_in(name.directory, name.name).hash;
            Target::Name { directory: name.directory, hash }
        };
        let mode = RenameMode::Replace;
        let rename = Change::Rename { from: one, to: other, mode, whiteout: None };
        let page = |after, name| Page { directory: FileId(7), after, name, count_max: 1 };
        for (operation, target) in [
            (Operation::Read(Moment::Now, Read::Lookup(one)), at(one)),
            (Operation::Change(rename), at(one)),
            (Operation::Change(Change::Link { id: FileId(9), name: other }), at(other)),
            (Operation::Hold(Hold::Release(FileId(9), 1)), Target::File(FileId(9))),
            (Operation::Read(Moment::Now, Read::List(page(70, Some(b"a")))), at(one)),
            (
                Operation::Read(Moment::Now, Read::List(page(0, None))),
                Target::Name { directory: FileId(7), hash: 0 },
            ),
            (Operation::Quotas(QuotasRequest::All), Target::Anywhere),
        ] {
            assert_eq!(operation.target(), target, "{operation:?}");
        }
    }
}

//! Replies: results of operations.

use super::{Plan, StoredContents};
use crate::error::{Error, Result};
use crate::quota::{Account, Quota};
use crate::records::inode::Inode;
use crate::records::keys::FileId;
use crate::records::listing::Entry;
use crate::search::Found;
use crate::settings::Settings;
use crate::snapshot::snapshots::SnapshotInfo;
use canopy_store::storage::StorageSpace;
use serde::{Deserialize, Serialize};

/// The result of an operation that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// Yes or no.
    Truth(bool),
    /// A file with its attributes.
    Inode(Inode),
    /// Id of the file.
    File(FileId),
    /// Bytes: a path, a target or a value; none if there are none.
    Bytes(Option<Vec<u8>>),
    /// Names.
    Names(Vec<Vec<u8>>),
    /// Records of a file's contents.
    Contents(StoredContents),
    /// A file whose contents were written; none if they were not, as they have changed meanwhile.
    Written(Option<Inode>),
    /// Entries of a directory.
    Entries(Entries),
    /// Nanoseconds since 1970.
    Time(i64),
    /// The state of the namespace.
    State(State),
    /// How much space there is.
    Capacity(Capacity),
    /// Settings that the namespace works by.
    Settings(Settings),
    /// Lines of text for people.
    Lines(Vec<String>),
    /// The result of a repair.
    Repaired {
        /// A line for each thing that was done.
        done: Vec<String>,
        /// A line for each fault that is left.
        left: Vec<String>,
    },
    /// A text.
    Text(String),
    /// Snapshots.
    Snapshots(Vec<SnapshotInfo>),
    /// A directory as a snapshot has it, with the snapshot's number.
    Entered(u64, Inode),
    /// Accounts with all that is known of them.
    Quotas(Vec<Quota>),
    /// An account.
    Account(Account),
    /// Files that a query finds.
    Found(Vec<Found>),
    /// How a query is answered.
    Plan(Plan),
}

/// State that may change at any moment, and that costs nothing to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Whether nothing is changed on the disk.
    pub is_read_only: bool,
    /// Whether files may get other sizes and times, as objects that a crash has left were not
    /// looked at yet.
    pub has_strays: bool,
    /// Whether no file is known to have a label of SELinux.
    pub lacks_labels: bool,
}

/// How much space there is, in the words of statvfs(3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Bytes that are best read and written at a time.
    pub block_bytes: u64,
    /// Bytes of the units below.
    pub unit_bytes: u64,
    /// All units.
    pub units: u64,
    /// Those that are free.
    pub units_free: u64,
    /// Those of them that everybody may use.
    pub units_available: u64,
    /// How many files there can be.
    pub files: u64,
    /// How many of them there are not yet.
    pub files_free: u64,
}

/// Units of the space of storage, and how many there are if storage does not know: 1 PiB.
const UNIT_BYTES: u64 = 4096;
const UNITS_MAX: u64 = 1 << 38;

impl Capacity {
    /// Returns the space of storage, which may not know how much there is.
    pub fn of(space: Option<StorageSpace>) -> Self {
        let units = |bytes: fn(&StorageSpace) -> u64| {
            space.as_ref().map_or(UNITS_MAX, |space| bytes(space) / UNIT_BYTES)
        };
        Capacity {
            block_bytes: UNIT_BYTES,
            unit_bytes: UNIT_BYTES,
            units: units(|space| space.total_bytes),
            units_free: units(|space| space.free_bytes),
            units_available: units(|space| space.available_bytes),
            files: UNITS_MAX,
            files_free: UNITS_MAX,
        }
    }
}

/// The bytes of a name, about.
const NAME_BYTES_ABOUT: usize = 24;

/// Entries of a directory, in the order of hashes. Their names lie behind each other, so that a
/// long listing takes few allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    names: Vec<u8>,
    entries: Vec<Listed>,
}

/// An entry without its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    /// Where its name ends.
    end: usize,
    cookie: u64,
    inode: Inode,
}

impl Entries {
    /// Returns no entries, with room for some.
    pub fn with_capacity(count: usize) -> Self {
        let names = Vec::with_capacity(count * NAME_BYTES_ABOUT);
        Entries { names, entries: Vec::with_capacity(count) }
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: Entry<'_>) {
        self.names.extend_from_slice(entry.name);
        let (end, cookie, inode) = (self.names.len(), entry.cookie, entry.inode.clone());
        self.entries.push(Listed { end, cookie, inode });
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Passes the inodes of all entries to `change`.
    pub fn change_inodes(&mut self, change: impl FnMut(&mut Inode)) {
        self.entries.iter_mut().map(|entry| &mut entry.inode).for_each(change);
    }

    /// Returns the entries in order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut start = 0;
        self.entries.iter().map(move |Listed { end, cookie, inode }| {
            // A message may say anything.
            let name = self.names.get(start..*end).unwrap_or_default();
            start = *end;
            Entry { name, inode, cookie: *cookie }
        })
    }
}

/// Returns the error of a reply that is to another operation.
pub(super) fn unfit<T>() -> Result<T> {
    Err(Error::corrupt("a reply does not fit what was asked"))
}

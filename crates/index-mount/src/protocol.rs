//! Requests of the process that mounts an index to those that look into it for a user, and their
//! answers.
//!
//! The answering process has the rights of the user who asked, and no others. The answer is believed for
//! that user alone.

use canopy_model::Device;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Bytes of a frame with entries of a directory, roughly.
pub(crate) const PAGE_BYTES: usize = 32 << 10;

/// The longest path that is looked up, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// The first frame that a process gets: the place that it looks into.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) index: PathBuf,
    /// The path that the root of the mount stands for.
    pub(crate) root: PathBuf,
}

/// An entry that the kernel knows: paths from the root of the mount that led to it, without a slash
/// in front, and the device and inode that it has to have, if it is known by these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct KnownEntry {
    pub(crate) paths: Vec<Vec<u8>>,
    pub(crate) inode: Option<(Device, u64)>,
}

/// The directory whose entries are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Folder {
    pub(crate) place: KnownEntry,
    /// The queries that hang below it, one below the other; their results are the entries.
    pub(crate) queries: Vec<Vec<u8>>,
}

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RequestKind {
    /// The entry with a name. Names in brackets that no entry has are queries.
    Lookup(Folder, Vec<u8>),
    /// The attributes of an entry.
    Attributes(KnownEntry),
    /// The entries of a directory from one on. The entries that a handle has listed before do not
    /// change.
    List { folder: Folder, handle: u64, first: u64 },
    /// The handle will not be used again.
    Close(u64),
    /// The names of all extended attributes, each with a NUL behind it.
    XattrNames(KnownEntry),
    /// The value of an extended attribute.
    Xattr(KnownEntry, Vec<u8>),
    /// Whether access(2) would grant these bits.
    Access(KnownEntry, u32),
}

/// Why there is no answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) errno: i32,
    /// Message for the log.
    pub(crate) log: Option<String>,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ReplyKind {
    /// An entry and its path from the root of the mount.
    Entry(Entry, Vec<u8>),
    /// The name asks for files.
    Query,
    /// Entries, each with its name, and whether there are more.
    Page(Vec<(Vec<u8>, Entry)>, bool),
    Bytes(Vec<u8>),
    Done,
}

/// The attributes of an entry, as stat(2) has them. Times are nanoseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The device, which distinguishes inodes with one number.
    pub(crate) dev: Device,
    /// 0 for directories above all sources.
    pub(crate) ino: u64,
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) blksize: u32,
    /// Units of 512 bytes.
    pub(crate) blocks: u64,
    pub(crate) atime_ns: i64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) btime_ns: i64,
    pub(crate) rdev: u32,
    /// Where a symbolic link leads.
    pub(crate) target: Vec<u8>,
    /// Whether there may be extended attributes.
    pub(crate) has_xattrs: bool,
}

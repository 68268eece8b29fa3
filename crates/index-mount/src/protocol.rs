//! What the process that mounts an index and those that look into it for a user say to each other:
//! frames of a length (u32, little endian) and as many bytes of Postcard.
//!
//! Whoever answers has the rights of the user who asked, and no others. What it says is believed
//! for that user alone, and is never longer than [`FRAME_BYTES_MAX`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::path::PathBuf;

/// A frame has so many bytes at most.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;

/// Entries of a directory are told in frames of about so many bytes.
pub(crate) const PAGE_BYTES: usize = 32 << 10;

/// The longest path that is looked up, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// The first thing that a helper is told: who it is to be, and what it is to look into.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) uid: u32,
    /// All groups, the first one first.
    pub(crate) gids: Vec<u32>,
    pub(crate) index: PathBuf,
    /// The path that the root of the mount stands for.
    pub(crate) root: PathBuf,
}

/// An entry that the kernel knows: paths from the root of the mount that led to it, without a slash
/// in front, and the device and inode that it has to have, if it is known by these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct KnownEntry {
    pub(crate) paths: Vec<Vec<u8>>,
    pub(crate) inode: Option<(u64, u64)>,
}

/// Which directory's entries are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Folder {
    pub(crate) place: KnownEntry,
    /// The queries that hang below it, one below the other; their results are the entries.
    pub(crate) queries: Vec<Vec<u8>>,
}

/// A question, with a number that the answer repeats.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) asked: RequestKind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RequestKind {
    /// The entry with a name. Names in brackets that no entry has are queries.
    Lookup(Folder, Vec<u8>),
    /// The attributes of an entry.
    Attributes(KnownEntry),
    /// The entries of a directory from one on. What a handle has listed before does not change.
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

/// What the answer to a question is, by its number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) number: u64,
    pub(crate) reply: Result<ReplyKind, Failure>,
}

/// Why there is no answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) errno: i32,
    /// What is to be told in the log.
    pub(crate) log: Option<String>,
}

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
    /// The device, which tells inodes with the same number apart.
    pub(crate) dev: u64,
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

/// Writes one frame.
pub(crate) fn send(mut to: impl Write, what: &impl Serialize) -> io::Result<()> {
    let bytes = postcard::to_extend(what, vec![0; 4]).map_err(io::Error::other)?;
    let length = bytes.len() - 4;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("an answer is too long"));
    }
    let mut bytes = bytes;
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    to.write_all(&bytes)
}

/// Reads one frame.
pub(crate) fn receive<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("a frame is too long"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded_and_whole() {
        let mut bytes = Vec::new();
        let sent = Request { number: 7, asked: RequestKind::Close(3) };
        send(&mut bytes, &sent).expect("a short frame");
        let read: Request = receive(&bytes[..]).expect("the frame");
        assert_eq!(read.number, 7);
        assert!(receive::<Request>(&bytes[..bytes.len() - 1]).is_err());
        let long = [(FRAME_BYTES_MAX as u32 + 1).to_le_bytes().to_vec(), vec![0; 9]].concat();
        assert!(receive::<Request>(&long[..]).is_err());
        let mut wrong = bytes.clone();
        wrong[5] = 0xff;
        assert!(receive::<Request>(&wrong[..]).is_err());
        assert!(send(&mut bytes, &vec![1_u8; FRAME_BYTES_MAX + 1]).is_err());
    }
}

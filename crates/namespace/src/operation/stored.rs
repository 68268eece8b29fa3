//! Contents of files in records: data of the operations by which clients of servers
//! read and change it.
//!
//! Small contents are a record. Of larger ones, a record for each chunk names the object that has
//! it. A client makes objects first, each under a name that is used once, and then has records name
//! them (`PutChunks`). It sends what it believes that records have, and nothing changes if they have
//! something else: another client came first. So no change of a client takes back one of another
//! unseen. Pieces of small contents (`WriteSmall`) need no such care: the server writes them.
//!
//! A file only gets longer by these operations. Its length is set by `Change::SetAttributes`.

use crate::contents::chunks::Stored;
use crate::records::inode::Inode;
use crate::records::keys::FileId;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The most chunks that one operation has: some 300 KB.
pub const CHUNKS_MAX: u32 = 4096;

/// A part of what records have of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentsPart {
    /// The file.
    pub id: FileId,
    /// Chunks from this number on.
    pub from: u64,
    /// No more chunks than this, and than [`CHUNKS_MAX`].
    pub count_max: u32,
}

/// Records of a file's contents, all of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredContents {
    /// The inode.
    pub inode: Inode,
    /// Contents that are a record.
    pub small: Option<Vec<u8>>,
    /// Whether the user may write them and not read: small contents and checksums are left out.
    pub is_withheld: bool,
    /// Chunks that have an object, by their numbers, in order. The others are holes.
    pub chunks: Vec<(u64, Stored)>,
    /// The number from which on there may be more chunks; none if there are no more.
    pub next: Option<u64>,
}

impl StoredContents {
    /// Returns the records of a file that was just made.
    pub fn of_new(inode: &Inode) -> Self {
        let (inode, chunks) = (inode.clone(), Vec::new());
        StoredContents { inode, small: None, is_withheld: false, chunks, next: None }
    }
}

/// Data for a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece<'a> {
    /// The place in the file.
    pub offset: u64,
    /// The data.
    #[serde(borrow)]
    pub bytes: &'a [u8],
}

/// Data for a file whose contents are a record, or that is empty. If it is not, or would not be
/// afterwards, nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteSmall<'a> {
    /// The data; of pieces that overlap, the last counts.
    #[serde(borrow)]
    pub pieces: Vec<Piece<'a>>,
    /// The file is this long at least, afterwards.
    pub size_min: u64,
}

/// A chunk that gets another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkChange {
    /// The number of the chunk.
    pub chunk: u64,
    /// The record that it has; none for a hole.
    pub before: Option<Stored>,
    /// The record that it gets; none for a hole.
    pub after: Option<Stored>,
}

/// Chunks for a file. Nothing changes if the records of the file are not as the client believes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutChunks<'a> {
    /// The session of the client. All new objects are its own.
    pub session: u64,
    /// The contents of the file that are a record, if they are. The chunks have them afterwards.
    #[serde(borrow)]
    pub small: Option<&'a [u8]>,
    /// The chunks, no more than [`CHUNKS_MAX`], in the order of their numbers.
    pub chunks: Cow<'a, [ChunkChange]>,
    /// The file is this long at least, afterwards.
    pub size_min: u64,
}

/// A user who has written data, as far as that matters when the data arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Writer<'a> {
    /// May set setuid and setgid bits, so they stay; no quota binds.
    Privileged,
    /// Nobody known: data that was written through a mapping. These bits stay, quotas bind.
    Unknown,
    /// Is in these groups. The bits go; a setgid bit without the right to execute only from a file
    /// of another group.
    Member(Cow<'a, [u32]>),
}

//! Where records lie in the table: the only statement of the layout of keys.
//!
//! ```text
//! directory               hash                    name                  value
//! 0                       0                       empty                 settings, JSON
//! 0                       0                       "ids"                 the least id not taken, u64; and
//!                                                                       the blocks of ids that the
//!                                                                       table has (`records/ids.rs`)
//! 0                       0                       "open"                nothing: nobody has closed it
//! 0                       0                       "quotas"              nothing: usage is counted
//! 0                       0                       "restoring"           the snapshot whose objects
//!                                                                       are being restored, u64
//! 0                       0                       "new"                 nothing: the table was added to
//!                                                                       others, and lacks their notes
//!                                                                       of ended sessions
//! 1 to 2^62               xxh3 of the name        the name              inode, or a pointer to
//!                                                                       one with several names
//! SPACE | 1 LINKS         file id                 empty                 inode with several names
//! SPACE | 2 ORPHANS       file id                 empty                 inode without a name
//! SPACE | 3 NAMES         file id                 directory id, name    nothing
//! SPACE | 4 XATTRS        file id                 the name              the value
//! SPACE | 5 CONTENTS      file id                 empty                 what a small file has
//! SPACE | 6 UNSETTLED     file id                 empty                 nothing: its record may be
//!                                                                       older than its object
//! SPACE | 7 DOOMED        file id                 empty                 nothing: its object has to go
//! SPACE | 8 USAGE         kind and number         empty                 what an account uses
//! SPACE | 9 LIMITS        kind and number         empty                 what an account may use
//! SPACE | 10 DIRECTORIES  directory id            empty                 the content half of a directory
//!                                                                       whose name lies elsewhere
//! SPACE | 11 PARTITIONS   directory id            partition u32         its state (`cluster`)
//! SPACE | 12 DECIDED      number of intent        epoch u64             participants (`cluster`)
//! SPACE | 13 PREPARED     number of intent        server, epoch         a part (`cluster`)
//! SPACE | 14 EXECUTED     session                 slot u8               the latest change of a session
//!                                                                       in a slot, and its reply
//! SPACE | 15 MAKING       directory id            empty                 a directory whose name may be
//!                                                                       missing: the attempt to make it
//! SPACE | 15 MAKING       directory id            "named"               nothing: its home may not know
//!                                                                       that it has its name
//! SPACE | 16 SNAPSHOTS    number                  empty                 what users are told, JSON; of
//!                                                                       servers: `cluster`, `snapshots`
//! SPACE | 17 CHUNKS       file id                 chunk u64             which object has it
//! SPACE | 18 GARBAGE      file id                 chunk u64, object     nothing: the object may go,
//!                                                                       which had the chunk
//! SPACE | 24 ENDED        session of a client     empty                 nothing: no record may get
//!                                                                       one of its objects any more
//! SPACE | 32 SHARES       kind and number         empty                 share of an account, and moves
//! SPACE | 33 LEDGERS      kind and number         server u32, or empty  an authority's (`cluster`)
//! INDEX | attribute       first 8 bytes of value  the rest, file id     nothing
//! ```
//!
//! Numbers in keys are in big endian, so that they are in order. SPACE and INDEX are bits that no
//! directory id has. The root has id 1 and the name "" in directory 0.

use canopy_store::{Key, KeyRange, KeyRef, hash_of};
use rustix::io::Errno;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::ops::Range;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The id of a file of a namespace, of 62 bits: never 0, and never used again by any table of its
/// storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FileId(pub u64);

impl FileId {
    /// The id of no file.
    pub const NONE: FileId = FileId(0);

    /// The end of ids.
    pub const MAX: FileId = FileId(1 << 62);

    /// Returns the id of a file by its block and its number there, below [`Block::IDS`].
    pub fn from_parts(block: Block, count: u32) -> Self {
        FileId(block.first_id().0 | u64::from(count))
    }

    /// Returns the block that the id lies in.
    pub fn block(self) -> Block {
        Block(self.0 >> Block::BITS)
    }

    /// Returns the number of the id within its block.
    pub fn count(self) -> u32 {
        (self.0 & (Block::IDS - 1)) as u32
    }

    /// Returns the id after this one.
    pub fn next(self) -> Self {
        FileId(self.0 + 1)
    }

    /// Returns the ids of a range in ascending order.
    pub fn each(range: Range<FileId>) -> impl Iterator<Item = FileId> {
        (range.start.0..range.end.0).map(FileId)
    }

    /// Reads an id from a key, where ids are in big endian.
    pub fn from_be_bytes(bytes: [u8; 8]) -> Self {
        FileId(u64::from_be_bytes(bytes))
    }

    /// Returns the bytes of the id in a key.
    pub fn to_be_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

/// A block of ids, which one table gives out: the upper 34 bits of its 62. The table that has reserved
/// it has made the first names of its files, and is asked first where only the id is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

impl Block {
    /// How many bits of an id count within its block.
    const BITS: u32 = 28;

    /// How many ids a block has.
    pub const IDS: u64 = 1 << Self::BITS;

    /// The end of blocks.
    pub const END: Block = Block(1 << 34);

    /// Returns the first id of the block.
    pub fn first_id(self) -> FileId {
        FileId(self.0 << Self::BITS)
    }

    /// Returns the block after this one.
    pub fn next(self) -> Self {
        Block(self.0 + 1)
    }
}

/// A message may have any number. Beyond the largest id, keys are not of names.
impl<'de> Deserialize<'de> for FileId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = FileId(u64::deserialize(deserializer)?);
        match id <= FileId::MAX {
            true => Ok(id),
            false => Err(D::Error::custom("a number that no file has")),
        }
    }
}

impl std::fmt::Display for FileId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::fmt::LowerHex for FileId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::LowerHex::fmt(&self.0, formatter)
    }
}

/// The id of the root directory.
pub const ROOT: FileId = FileId(1);

const SPACE: u64 = 1 << 63;
const INDEX: u64 = 1 << 63 | 1 << 62;

/// The first parts of keys that are not of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
#[allow(missing_docs)] // The table above says it.
pub enum Space {
    Links = SPACE | 1,
    Orphans = SPACE | 2,
    Names = SPACE | 3,
    Xattrs = SPACE | 4,
    Contents = SPACE | 5,
    Unsettled = SPACE | 6,
    Doomed = SPACE | 7,
    Usage = SPACE | 8,
    Limits = SPACE | 9,
    Directories = SPACE | 10,
    Partitions = SPACE | 11,
    Decided = SPACE | 12,
    Prepared = SPACE | 13,
    Executed = SPACE | 14,
    Making = SPACE | 15,
    Snapshots = SPACE | 16,
    Chunks = SPACE | 17,
    Garbage = SPACE | 18,
    Ended = SPACE | 24,
    Shares = SPACE | 32,
    Ledgers = SPACE | 33,
}

impl Space {
    /// Returns the key of a file in this space.
    pub fn of(self, id: FileId, name: &[u8]) -> Key {
        self.numbered(id.0, name)
    }

    /// Returns the key of a number that is not a file's in this space.
    pub fn numbered(self, number: u64, name: &[u8]) -> Key {
        Key { directory: self as u64, hash: number, name: name.to_vec() }
    }

    /// Returns the range of all keys of a file in this space.
    pub fn range_of(self, id: FileId) -> KeyRange {
        let start = Key { directory: self as u64, hash: id.0, name: Vec::new() };
        KeyRange { end: Some(Key { hash: id.0 + 1, ..start.clone() }), start }
    }

    /// Returns the range of all keys in this space.
    pub fn range(self) -> KeyRange {
        KeyRange::directory(self as u64)
    }
}

/// Returns the key of the settings.
pub fn settings() -> Key {
    Key::default()
}

/// Returns the key of the record of ids: the least that is not taken, and the table's blocks.
pub fn ids() -> Key {
    Key { name: b"ids".to_vec(), ..Key::default() }
}

/// Returns the key of the note that somebody opened the namespace and did not close it.
pub fn open() -> Key {
    Key { name: b"open".to_vec(), ..Key::default() }
}

/// Returns the key of the note that usage is counted.
pub fn quotas() -> Key {
    Key { name: b"quotas".to_vec(), ..Key::default() }
}

/// Returns the key of the note that objects of a snapshot have to be restored.
pub fn restoring() -> Key {
    Key { name: b"restoring".to_vec(), ..Key::default() }
}

/// Returns the key of the note that the table was added to others and is not ready for use.
pub fn new() -> Key {
    Key { name: b"new".to_vec(), ..Key::default() }
}

/// Reads a number.
pub fn parse_number(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.try_into().ok()?))
}

/// Returns the key of the root directory.
pub fn root() -> Key {
    Key { directory: 0, hash: 1, name: Vec::new() }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryName<'a> {
    /// The directory.
    pub directory: FileId,
    /// The name, without a slash.
    pub name: &'a [u8],
}

impl<'a> EntryName<'a> {
    /// Returns a name in a directory.
    pub fn new(directory: FileId, name: &'a [u8]) -> Self {
        EntryName { directory, name }
    }

    /// Returns the hash in the key of this name.
    pub fn hash(self) -> u64 {
        hash_of(self.name)
    }

    /// Returns the key of the record under this name.
    pub fn key(self) -> Key {
        name_in(self.directory, self.name)
    }

    /// Returns the key by which this name of a file is found by the file's id.
    pub fn found_key(self, id: FileId) -> Key {
        name_of(id, self.directory, self.name)
    }
}

/// Returns the key of a name in a directory.
pub fn name_in(directory: FileId, name: &[u8]) -> Key {
    Key::named(directory.0, name)
}

/// Returns whether a key is one of a name in a directory.
pub(crate) fn is_name(key: KeyRef<'_>) -> bool {
    is_in_directory(key.directory)
}

/// Returns whether the first part of a key is that of names in a directory.
pub(crate) fn is_in_directory(first: u64) -> bool {
    (ROOT.0..SPACE).contains(&first)
}

/// Returns the range of all names in a directory.
pub fn names_in(directory: FileId) -> KeyRange {
    KeyRange::directory(directory.0)
}

/// Returns the range of all names in directories, without the root.
pub fn names_in_directories() -> KeyRange {
    KeyRange { start: Key { directory: ROOT.0, ..Key::default() }, ..all_names() }
}

/// Returns the range of all names of the tree, the root first.
pub fn all_names() -> KeyRange {
    KeyRange { start: root(), end: Some(Key { directory: SPACE, hash: 0, name: Vec::new() }) }
}

/// Returns the key that says under which name a file is found.
pub fn name_of(id: FileId, parent: FileId, name: &[u8]) -> Key {
    let mut bytes = Vec::with_capacity(8 + name.len());
    bytes.extend_from_slice(&parent.to_be_bytes());
    bytes.extend_from_slice(name);
    Key { directory: Space::Names as u64, hash: id.0, name: bytes }
}

/// Reads what such a key says: directory and name.
pub fn parse_name(bytes: &[u8]) -> Option<(FileId, &[u8])> {
    let (parent, name) = bytes.split_first_chunk()?;
    Some((FileId::from_be_bytes(*parent), name))
}

/// Returns the key of an index entry: a value, in bytes that are in the order of values, of a file.
pub fn entry(attribute: u32, value: &[u8], id: FileId) -> Key {
    let mut first = [0; 8];
    let count = value.len().min(8);
    first[..count].copy_from_slice(&value[..count]);
    let mut name = Vec::with_capacity(value.len() - count + 8);
    name.extend_from_slice(&value[count..]);
    name.extend_from_slice(&id.to_be_bytes());
    Key { directory: INDEX | u64::from(attribute), hash: u64::from_be_bytes(first), name }
}

/// Reads which file an index entry is of.
pub fn entry_id(name: &[u8]) -> Option<FileId> {
    Some(FileId::from_be_bytes(*name.last_chunk()?))
}

/// Returns whether a key is one of an index entry.
pub fn is_entry(key: KeyRef<'_>) -> bool {
    key.directory & INDEX == INDEX
}

/// Returns of which attribute an index is, by the first part of its keys.
pub fn attribute_of(first: u64) -> u64 {
    first & !INDEX
}

/// Returns the range of all entries of an index.
pub fn index(attribute: u32) -> KeyRange {
    KeyRange::directory(INDEX | u64::from(attribute))
}

/// Returns an error for bytes that cannot be a name.
pub(crate) fn check_name(name: &[u8]) -> crate::error::Result<()> {
    match name {
        [] => Err(Errno::NOENT.into()),
        _ if name.len() > NAME_BYTES_MAX => Err(Errno::NAMETOOLONG.into()),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL.into()),
        _ => Ok(()),
    }
}

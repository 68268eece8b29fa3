//! The record of an inode: the columns of the table's layout, in this order, little endian, and
//! then the target, if it is a symbolic link.
//!
//! ```text
//! mode u32, uid u32, gid u32, nlink u32, rdev u32, flags u32, project u32,
//! size u64, blocks u64, mtime i64, ctime i64, atime i64, btime i64, id u64
//! ```
//!
//! Attributes that change often (`Frequent`) are a merge of 40 bytes on the key of the inode: size,
//! blocks, mtime, ctime, atime. So a look-up reads one record, and an update stays small.

use crate::error::{Error, Result};
use crate::records::keys::FileId;
use canopy_store::{Column, KeyRef, Layout, MergeOperator};
use serde::{Deserialize, Serialize};

/// The bits of a mode that say what kind of file it is, and their values.
pub const TYPE_MASK: u32 = 0o170_000;
#[allow(missing_docs)]
pub mod file_type {
    pub const FIFO: u32 = 0o010_000;
    pub const CHARACTER: u32 = 0o020_000;
    pub const DIRECTORY: u32 = 0o040_000;
    pub const BLOCK: u32 = 0o060_000;
    pub const REGULAR: u32 = 0o100_000;
    pub const SYMLINK: u32 = 0o120_000;
    pub const SOCKET: u32 = 0o140_000;
}

/// Other facts about an inode, as bits of `Inode::flags`.
pub mod flag {
    /// This name is one of several; the inode lies elsewhere.
    pub const LINKED: u32 = 1;
    /// There are extended attributes.
    pub const XATTRS: u32 = 2;
    /// The contents are a record of their own.
    pub const INLINE: u32 = 4;
    /// The contents are an object.
    pub const OBJECT: u32 = 8;
    /// It never had a name, and may get one.
    pub const LINKABLE: u32 = 16;
    /// It was imported without its contents, of which only the length is known. Opening it fails
    /// with ENODATA, so that nobody takes what is missing for zeros; once it is truncated to
    /// nothing, it is a file like any other.
    pub const ABSENT: u32 = 32;
    /// The record of a directory's name, which has the access half alone. Times and names are with
    /// the content half (`Space::Directories`), maybe in another table.
    pub const ACCESS_HALF: u32 = 64;
    /// The content half of a directory whose first partition another table has. It counts what is in
    /// partitions of this table alone.
    pub const FURTHER: u32 = 128;
}

/// The attributes of a file. Times are nanoseconds since 1970, blocks have 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inode {
    /// Type and permissions, as of stat(2).
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// How many names there are; of a directory 2, and one for each directory in it.
    pub nlink: u32,
    /// The device that a device file is of, as in stat(2), which keeps it in 32 bits.
    pub rdev: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Number of the project, to which a quota of directory trees counts it; 0 for none.
    pub project: u32,
    /// The length in bytes.
    pub size: u64,
    /// Space of the contents.
    pub blocks: u64,
    /// When the contents were changed.
    pub mtime_ns: i64,
    /// When the contents or an attribute were changed.
    pub ctime_ns: i64,
    /// When the contents were read.
    pub atime_ns: i64,
    /// When it was made.
    pub btime_ns: i64,
    /// Id of the file.
    pub id: FileId,
    /// Where a symbolic link leads; empty for all else.
    pub target: Vec<u8>,
}

/// Names, widths, and the column that another is near to.
const COLUMNS: [(&str, u8, Option<u8>); 14] = [
    ("mode", 4, None),
    ("uid", 4, None),
    ("gid", 4, None),
    ("nlink", 4, None),
    ("rdev", 4, None),
    ("flags", 4, None),
    ("project", 4, None),
    ("size", 8, None),
    ("blocks", 8, None),
    ("mtime_ns", 8, None),
    ("ctime_ns", 8, Some(9)),
    ("atime_ns", 8, Some(9)),
    ("btime_ns", 8, Some(9)),
    ("id", 8, None),
];

/// The bytes of an inode without its target.
pub const INODE_BYTES: usize = 7 * 4 + 7 * 8;

/// Where what changes often lies among them.
const FREQUENT: std::ops::Range<usize> = 28..68;

/// Returns the layout of a namespace's table.
pub fn layout() -> Layout {
    let columns = COLUMNS.map(|(name, width, near)| Column { name: name.into(), width, near });
    Layout { columns: columns.into() }
}

impl Inode {
    /// Returns the bits of the mode that say what kind of file it is.
    pub fn file_type(&self) -> u32 {
        self.mode & TYPE_MASK
    }

    /// Returns whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type() == file_type::DIRECTORY
    }

    /// Returns whether it is a regular file.
    pub fn is_regular(&self) -> bool {
        self.file_type() == file_type::REGULAR
    }

    /// Returns whether a bit of [`flag`] is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether a name's record leads to an inode elsewhere: of a file with several names, or
    /// the content half of a directory.
    pub fn is_pointer(&self) -> bool {
        self.has(flag::LINKED | flag::ACCESS_HALF)
    }

    /// Returns whether two inodes are the same but for what changes often.
    pub(crate) fn differs_only_often(&self, other: &Self) -> bool {
        let words = |inode: &Self| {
            [inode.mode, inode.uid, inode.gid, inode.nlink, inode.rdev, inode.flags, inode.project]
        };
        words(self) == words(other)
            && (self.btime_ns, self.id) == (other.btime_ns, other.id)
            && self.target == other.target
    }

    /// Returns what a name says of a file that has several.
    pub fn pointer(id: FileId) -> Self {
        Inode { flags: flag::LINKED, id, ..Self::default() }
    }

    /// Returns the value of a record.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(INODE_BYTES + self.target.len());
        let words =
            [self.mode, self.uid, self.gid, self.nlink, self.rdev, self.flags, self.project];
        words.iter().for_each(|word| value.extend_from_slice(&word.to_le_bytes()));
        value.extend_from_slice(&self.frequent());
        value.extend_from_slice(&self.btime_ns.to_le_bytes());
        value.extend_from_slice(&self.id.0.to_le_bytes());
        value.extend_from_slice(&self.target);
        value
    }

    /// Returns the operand of a merge that gives a record what changes often.
    pub fn frequent(&self) -> [u8; FREQUENT.end - FREQUENT.start] {
        let mut bytes = [0; FREQUENT.end - FREQUENT.start];
        let numbers = [
            self.size,
            self.blocks,
            self.mtime_ns as u64,
            self.ctime_ns as u64,
            self.atime_ns as u64,
        ];
        for (bytes, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Returns the target of a symbolic link; `INVAL` if it is not one.
    pub(crate) fn into_target(self) -> Result<Vec<u8>> {
        match self.file_type() {
            file_type::SYMLINK => Ok(self.target),
            _ => Err(rustix::io::Errno::INVAL.into()),
        }
    }

    /// Reads the value of a record.
    ///
    /// # Errors
    ///
    /// Fails with `Corrupt` if the value does not describe an inode.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let short = || Error::corrupt(format!("an inode of {} bytes", value.len()));
        let (columns, target) = value.split_at_checked(INODE_BYTES).ok_or_else(short)?;
        let (words, numbers) = columns.split_at(7 * 4);
        let mut words = words.chunks_exact(4).map(|word| {
            word.iter().rev().fold(0u32, |number, byte| number << 8 | u32::from(*byte))
        });
        let mut numbers = numbers.chunks_exact(8).map(|number| {
            number.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        });
        let (mut word, mut number) =
            (|| words.next().unwrap_or_default(), || numbers.next().unwrap_or_default());
        Ok(Inode {
            mode: word(),
            uid: word(),
            gid: word(),
            nlink: word(),
            rdev: word(),
            flags: word(),
            project: word(),
            size: number(),
            blocks: number(),
            mtime_ns: number() as i64,
            ctime_ns: number() as i64,
            atime_ns: number() as i64,
            btime_ns: number() as i64,
            id: FileId(number()),
            target: target.to_vec(),
        })
    }
}

/// Gives a record what changes often.
pub(crate) struct Frequent;

impl MergeOperator for Frequent {
    fn name(&self) -> &str {
        "frequent attributes"
    }

    fn apply(&self, _: KeyRef<'_>, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
        let mut value = value.unwrap_or_default().to_vec();
        if let Some(place) = value.get_mut(FREQUENT).filter(|place| place.len() == operand.len()) {
            place.copy_from_slice(operand);
        }
        value
    }

    fn combine(&self, _: KeyRef<'_>, _: &[u8], second: &[u8]) -> Vec<u8> {
        second.to_vec()
    }
}

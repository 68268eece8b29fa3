//! The attributes of an inode, as stat(2) returns them.

use serde::{Deserialize, Serialize};

/// The attributes of one inode, as statx(2) gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: u64,
    /// File type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Size in bytes.
    pub size_bytes: i64,
    /// Preferred I/O size in bytes.
    pub blksize_bytes: u32,
    /// Space taken, in units of 512 bytes.
    pub blocks: i64,
    /// Last access, in nanoseconds since 1970 (times outside of 1677 to 2262 are clamped).
    pub atime_ns: i64,
    /// Last change of the contents.
    pub mtime_ns: i64,
    /// Last change of the inode.
    pub ctime_ns: i64,
    /// Birth; 0 if the file system does not have it.
    pub btime_ns: i64,
    /// Device number of a device file, 0 for everything else.
    pub rdev: u64,
}

impl Attributes {
    /// Returns the user and the group that the inode belongs to.
    pub fn ownership(&self) -> Ownership {
        Ownership { uid: self.uid, gid: self.gid }
    }
}

/// The user and the group that an inode belongs to, sorted by the user first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Ownership {
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
}

impl Ownership {
    /// Ownership by root, and root's group.
    pub const ROOT: Ownership = Ownership { uid: 0, gid: 0 };
}

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    Block,
    /// A character device.
    Character,
    /// Anything else.
    Unknown,
}

impl FileType {
    /// Returns the type that a mode's upper bits name.
    pub fn of_mode(mode: u32) -> Self {
        match mode & 0o170_000 {
            0o100_000 => FileType::Regular,
            0o040_000 => FileType::Directory,
            0o120_000 => FileType::Symlink,
            0o010_000 => FileType::Fifo,
            0o140_000 => FileType::Socket,
            0o060_000 => FileType::Block,
            0o020_000 => FileType::Character,
            _ => FileType::Unknown,
        }
    }

    /// Returns the letter by which find(1) calls the type.
    pub fn letter(self) -> char {
        match self {
            FileType::Regular => 'f',
            FileType::Directory => 'd',
            FileType::Symlink => 'l',
            FileType::Fifo => 'p',
            FileType::Socket => 's',
            FileType::Block => 'b',
            FileType::Character => 'c',
            FileType::Unknown => 'U',
        }
    }
}

impl Attributes {
    /// Returns the inode's type.
    pub fn file_type(&self) -> FileType {
        FileType::of_mode(self.mode)
    }
}

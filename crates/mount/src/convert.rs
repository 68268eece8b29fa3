//! Conversions between the kernel's types and ours.

use crate::node::{Node, Shown};
use canopy_namespace::inode::file_type;
use canopy_namespace::{Error, Inode, SetTime};
use fuser::{Errno, FileAttr, FileType, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECOND_NS: i128 = 1_000_000_000;

/// Preferred size of reads and writes, in bytes.
const BLOCK_BYTES: u32 = 4096;

pub(crate) fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno().raw_os_error())
}

pub(crate) fn kind(inode: &Inode) -> FileType {
    match inode.file_type() {
        file_type::DIRECTORY => FileType::Directory,
        file_type::SYMLINK => FileType::Symlink,
        file_type::FIFO => FileType::NamedPipe,
        file_type::SOCKET => FileType::Socket,
        file_type::CHARACTER => FileType::CharDevice,
        file_type::BLOCK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// Returns the attributes of a node as the kernel takes them.
pub(crate) fn attributes(Shown { node, inode }: &Shown) -> FileAttr {
    attributes_of(*node, inode)
}

/// Returns the attributes of a node with this inode as the kernel takes them.
pub(crate) fn attributes_of(node: Node, inode: &Inode) -> FileAttr {
    FileAttr {
        ino: node.into(),
        size: inode.size,
        blocks: inode.blocks,
        atime: system_time(inode.atime_ns),
        mtime: system_time(inode.mtime_ns),
        ctime: system_time(inode.ctime_ns),
        crtime: system_time(inode.btime_ns),
        kind: kind(inode),
        perm: (inode.mode & 0o7777) as u16,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn system_time(time_ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(time_ns.unsigned_abs());
    if time_ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    let time = match time {
        TimeOrNow::Now => return SetTime::Now,
        TimeOrNow::SpecificTime(time) => time,
    };
    // A time that the records cannot keep becomes the nearest, as on other file systems of Linux.
    let nanoseconds = |distance: Duration, sign: i128| {
        let seconds = sign * i128::from(distance.as_secs());
        let time_ns = seconds * SECOND_NS + i128::from(distance.subsec_nanos());
        let nearest = if time_ns < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(time_ns).unwrap_or(nearest)
    };
    SetTime::To(match time.duration_since(UNIX_EPOCH) {
        Ok(distance) => nanoseconds(distance, 1),
        // fuser subtracts the nanoseconds of times before 1970, which the kernel adds.
        Err(error) => nanoseconds(error.duration(), -1),
    })
}

//! Giving a file that was written the attributes that it has in the namespace.

use crate::moment::Moment;
use canopy_namespace::Inode;
use canopy_namespace::inode::{file_type, flag};
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::CStr;

const SECOND_NS: i64 = 1_000_000_000;

/// Bits that let others act as the owner or the group of the file.
const PRIVILEGES: u32 = 0o6000;

/// Gives a file in a directory its owner, extended attributes, mode and times, in an order in which
/// none resets another, and reports those that it could not be given. `place` is the file, open in
/// whatever way.
pub fn give(
    tree: &Moment<'_>,
    directory: impl AsFd,
    name: &CStr,
    place: impl AsFd,
    inode: &Inode,
    mut failed: impl FnMut(String),
) -> anyhow::Result<()> {
    let is_link = inode.file_type() == file_type::SYMLINK;
    let mut mode = inode.mode & 0o7777;
    if let Err(errno) = give_owner(&directory, name, inode) {
        let (uid, gid) = (inode.uid, inode.gid);
        failed(format!("its owner {uid} and group {gid}: {}", said(errno)));
        mode &= !PRIVILEGES;
    }
    // Not by a name: what that leads to is asked for, but for a symbolic link itself.
    let path = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    // Asking takes longer than all else, and few have any.
    let has_xattrs = inode.has(flag::XATTRS);
    let xattrs = if has_xattrs { tree.xattrs(inode.id) } else { Ok(Vec::new()) };
    let xattrs = xattrs.unwrap_or_else(|error| {
        failed(format!("its extended attributes, and the access of its group: {error}"));
        // The bits of the group are what an access list may grant at most.
        mode &= !0o070;
        Vec::new()
    });
    for (xattr, value) in xattrs {
        if let Err(errno) = rustix::fs::setxattr(&*path, &*xattr, &value, XattrFlags::empty()) {
            let shown = String::from_utf8_lossy(&xattr);
            failed(format!("its attribute {shown}: {}", said(errno)));
        }
    }
    if !is_link && let Err(errno) = rustix::fs::chmod(&*path, Mode::from_raw_mode(mode)) {
        failed(format!("its mode: {}", said(errno)));
    }
    let times = Timestamps {
        last_access: timespec(inode.atime_ns),
        last_modification: timespec(inode.mtime_ns),
    };
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    if let Err(errno) = rustix::fs::utimensat(&directory, name, &times, flags) {
        failed(format!("its times: {}", said(errno)));
    }
    Ok(())
}

fn give_owner(directory: impl AsFd, name: &CStr, inode: &Inode) -> Result<(), Errno> {
    let (uid, gid) = (Some(Uid::from_raw(inode.uid)), Some(Gid::from_raw(inode.gid)));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let given = rustix::fs::chownat(&directory, name, uid, gid, flags);
    if given == Err(Errno::PERM) {
        // The group alone may be one of the caller's.
        let _ = rustix::fs::chownat(&directory, name, None, gid, flags);
    }
    given
}

/// Returns the text of an error.
pub fn said(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

fn timespec(time_ns: i64) -> Timespec {
    Timespec { tv_sec: time_ns.div_euclid(SECOND_NS), tv_nsec: time_ns.rem_euclid(SECOND_NS) }
}

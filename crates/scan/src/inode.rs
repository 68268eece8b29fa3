//! Attributes of inodes, from the kernel.

use canopy_model::{Acl, Attributes, Device};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use std::ffi::CStr;

/// Opens a directory below another without following a symbolic link and, where permitted, without
/// changing its access time.
pub(crate) fn open_dir(parent: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match rustix::fs::openat(&parent, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner and root may ask for NOATIME.
        Err(Errno::PERM) => rustix::fs::openat(&parent, name, flags, Mode::empty()),
        other => other,
    }
}

/// Opens a directory above a root so that it works even where the caller may only search it. (An
/// ACL cannot be read then; the caller has no privilege and builds an index for itself alone.)
pub(crate) fn open_to_search(parent: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    match open_dir(&parent, name) {
        Err(Errno::ACCESS) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(parent, name, flags, Mode::empty())
        }
        other => other,
    }
}

/// Opens an entry of a directory, of any type, without following a symbolic link or reading it: its
/// descriptor stands for this one inode, whatever its name leads to later.
pub(crate) fn open_inode(parent: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Result of statx(2) for an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) attributes: Attributes,
    /// Device that holds it.
    pub(crate) dev: Device,
    /// Number of its mount; `None` before Linux 5.8.
    pub(crate) mount: Option<u64>,
}

/// Looks at an entry of a directory: returns its attributes and its device; `follow` says whether
/// those of what a symbolic link leads to.
pub fn look_at(
    directory: impl AsFd,
    name: &CStr,
    follow: bool,
) -> Result<(Attributes, Device), Errno> {
    let links = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let stat = stat(directory, name, links | AtFlags::NO_AUTOMOUNT)?;
    Ok((stat.attributes, stat.dev))
}

/// Returns the attributes of an open inode and its device.
pub fn look_at_open(inode: impl AsFd) -> Result<(Attributes, Device), Errno> {
    let stat = stat_open(inode)?;
    Ok((stat.attributes, stat.dev))
}

/// Looks at an entry of a directory, without following a symbolic link.
pub(crate) fn stat_at(directory: impl AsFd, name: &CStr) -> Result<Stat, Errno> {
    stat(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// Looks at an open inode.
pub(crate) fn stat_open(inode: impl AsFd) -> Result<Stat, Errno> {
    stat(inode, c"", AtFlags::EMPTY_PATH)
}

/// Reads the access ACL of an inode that is open for reading; `None` if it has none.
pub(crate) fn access_acl(directory: impl AsFd) -> Result<Option<Acl>, Errno> {
    let mut small = [0; 512];
    let decode = |bytes: &[u8]| Acl::decode(bytes).map(Some).map_err(|_| Errno::INVAL);
    match rustix::fs::fgetxattr(&directory, Acl::XATTR_NAME, &mut small) {
        Ok(length) => decode(&small[..length]),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(Errno::RANGE) => {
            let mut large = vec![0; 64 * 1024];
            let length = rustix::fs::fgetxattr(&directory, Acl::XATTR_NAME, &mut large[..])?;
            decode(&large[..length])
        }
        Err(errno) => Err(errno),
    }
}

fn stat(directory: impl AsFd, name: &CStr, flags: AtFlags) -> Result<Stat, Errno> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    let stat = rustix::fs::statx(directory, name, flags, mask)?;
    let has = |field: StatxFlags| stat.stx_mask & field.bits() != 0;
    let device = |major: u32, minor: u32| rustix::fs::makedev(major, minor);
    let attributes = Attributes {
        ino: stat.stx_ino,
        mode: u32::from(stat.stx_mode),
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size_bytes: i64::try_from(stat.stx_size).unwrap_or(i64::MAX),
        blksize_bytes: stat.stx_blksize,
        blocks: i64::try_from(stat.stx_blocks).unwrap_or(i64::MAX),
        atime_ns: nanoseconds(&stat.stx_atime),
        mtime_ns: nanoseconds(&stat.stx_mtime),
        ctime_ns: nanoseconds(&stat.stx_ctime),
        btime_ns: if has(StatxFlags::BTIME) { nanoseconds(&stat.stx_btime) } else { 0 },
        rdev: device(stat.stx_rdev_major, stat.stx_rdev_minor),
    };
    Ok(Stat {
        attributes,
        dev: Device(device(stat.stx_dev_major, stat.stx_dev_minor)),
        mount: has(StatxFlags::MNT_ID).then_some(stat.stx_mnt_id),
    })
}

/// The first and last second that times are kept of, in 1700 and 2240: whoever sets others must not
/// make computing with times overflow, whose limits are in 1677 and 2262.
const SECONDS: std::ops::RangeInclusive<i64> = -8_520_336_000..=8_520_336_000;

/// Returns a time in nanoseconds since 1970.
pub(crate) fn nanoseconds(time: &StatxTimestamp) -> i64 {
    let seconds = time.tv_sec.clamp(*SECONDS.start(), *SECONDS.end());
    seconds * 1_000_000_000 + i64::from(time.tv_nsec)
}

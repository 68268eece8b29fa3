//! What the kernel tells of an inode.

use canopy_model::{Access, Acl, Approach, Attributes, ClassTable, Permissions};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, StatxTimestamp};
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

/// Looks at an entry of a directory: returns its attributes and its device; `follow` says whether
/// those of what a symbolic link leads to.
pub fn look_at(
    directory: impl AsFd,
    name: &CStr,
    follow: bool,
) -> Result<(Attributes, u64), Errno> {
    let links = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let flags = links | AtFlags::NO_AUTOMOUNT;
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(attributes(&rustix::fs::statx(directory, name, flags, mask)?))
}

/// Returns the attributes of an open directory and its device.
pub fn look_at_open(directory: impl AsFd) -> Result<(Attributes, u64), Errno> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(attributes(&rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, mask)?))
}

/// Returns who may see the listing of an open directory that may be looked up by `approach`. Where
/// its ACL cannot be read, only root is let in.
pub(crate) fn access(
    classes: &ClassTable,
    approach: &Approach,
    directory: impl AsFd,
    attributes: &Attributes,
) -> Access {
    let acl = access_acl(directory).transpose();
    let acl = acl.as_ref().map(Result::as_ref);
    classes.access(approach, Permissions::of_inode(attributes, acl))
}

fn access_acl(directory: impl AsFd) -> Result<Option<Acl>, Errno> {
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

fn attributes(stat: &Statx) -> (Attributes, u64) {
    let device = |major: u32, minor: u32| rustix::fs::makedev(major, minor);
    let has_btime = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
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
        btime_ns: if has_btime { nanoseconds(&stat.stx_btime) } else { 0 },
        rdev: device(stat.stx_rdev_major, stat.stx_rdev_minor),
    };
    (attributes, device(stat.stx_dev_major, stat.stx_dev_minor))
}

fn nanoseconds(time: &StatxTimestamp) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.tv_nsec))
}

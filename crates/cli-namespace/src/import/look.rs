//! Attributes of an imported file, as the kernel returns them.

use canopy_namespace::{FileId, Inode};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use std::ffi::CStr;

/// The longest list of names, and the longest value, that Linux has.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// The mount and the device that a file lies on.
pub type Mount = (Option<u64>, u64);

/// Looks at an entry of a directory, without following a symbolic link.
pub fn look_at(directory: impl AsFd, name: &CStr) -> Result<Statx, Errno> {
    look(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// Looks at an open file.
pub fn look_at_open(file: impl AsFd) -> Result<Statx, Errno> {
    look(file, c"", AtFlags::EMPTY_PATH)
}

fn look(directory: impl AsFd, name: &CStr, flags: AtFlags) -> Result<Statx, Errno> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    rustix::fs::statx(directory, name, flags, mask)
}

/// Opens a directory in another one, without changing its time of access where that is allowed.
pub fn open_directory(directory: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    open(directory, name, OFlags::DIRECTORY)
}

/// Opens a regular file for reading that is open as a place, without changing its time of access
/// where that is allowed.
pub fn open_again(place: &OwnedFd) -> Result<OwnedFd, Errno> {
    let path = path_of(place.as_fd());
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::open(&*path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::open(&*path, flags, Mode::empty()),
        opened => opened,
    }
}

fn open(directory: impl AsFd, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat(&directory, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner and root may ask for that.
        Err(Errno::PERM) => rustix::fs::openat(&directory, name, flags, Mode::empty()),
        opened => opened,
    }
}

/// Opens a file of any type, without following a symbolic link or reading it.
pub fn open_place(directory: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Returns where a file lies.
pub fn mount_of(stat: &Statx) -> Mount {
    let mount = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
    (mount.then_some(stat.stx_mnt_id), device_of(stat))
}

/// Returns the device that a file lies on.
pub fn device_of(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

/// Returns the inode of a file with one name and neither contents nor extended attributes.
pub fn inode_of(stat: &Statx, id: FileId, project: u32) -> Inode {
    let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    let [mtime_ns, ctime_ns] = [&stat.stx_mtime, &stat.stx_ctime].map(nanoseconds);
    let mut inode = Inode {
        mode: stat.stx_mode.into(),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: 1,
        // In 32 bits, as the kernel has them.
        rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor) as u32,
        project,
        mtime_ns,
        ctime_ns,
        atime_ns: nanoseconds(&stat.stx_atime),
        // It was there by then.
        btime_ns: mtime_ns.min(ctime_ns),
        id,
        ..Inode::default()
    };
    if has_birth {
        inode.btime_ns = nanoseconds(&stat.stx_btime);
    }
    if inode.is_regular() {
        (inode.size, inode.blocks) = (stat.stx_size, stat.stx_blocks);
    }
    inode
}

/// Returns whether a namespace can keep all times of a file: those of 1677 to 2262.
pub fn keeps_times(stat: &Statx) -> bool {
    let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    let times = [&stat.stx_mtime, &stat.stx_ctime, &stat.stx_atime];
    let birth = has_birth.then_some(&stat.stx_btime);
    times.into_iter().chain(birth).all(|time| i64::try_from(exact(time)).is_ok())
}

/// Returns a time in nanoseconds since 1970, or the nearest one that can be expressed so.
fn nanoseconds(time: &StatxTimestamp) -> i64 {
    canopy_model::clamped(exact(time))
}

fn exact(time: &StatxTimestamp) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// Reads extended attributes in one thread, which has a working directory of its own if it may:
/// then it asks by bare names whether a file has any, which is by far the fastest.
#[derive(Default)]
pub struct Xattrs {
    has_own_directory: Option<bool>,
    prefix: Vec<u8>,
    names: Vec<u8>,
    value: Vec<u8>,
}

/// The path of an open file.
fn path_of(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

impl Xattrs {
    /// Goes to a directory.
    pub fn enter(&mut self, directory: &OwnedFd) -> Result<(), Errno> {
        let unshare = || nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).is_ok();
        if *self.has_own_directory.get_or_insert_with(unshare) {
            return rustix::process::fchdir(directory);
        }
        self.prefix = path_of(directory.as_fd()).into_bytes();
        self.prefix.push(b'/');
        Ok(())
    }

    /// Returns whether a file in that directory has any.
    pub fn any(&mut self, name: &CStr) -> Result<bool, Errno> {
        let length = match self.has_own_directory {
            Some(true) => rustix::fs::llistxattr_query(name),
            _ => rustix::fs::llistxattr_query([&self.prefix, name.to_bytes()].concat()),
        };
        match length {
            Ok(length) => Ok(length > 0),
            Err(Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Reads the attributes of an open file that a namespace keeps: names, and values or why they
    /// cannot be read.
    pub fn read(
        &mut self,
        file: impl AsFd,
        mut tell: impl FnMut(&[u8], Result<&[u8], Errno>),
    ) -> Result<(), Errno> {
        let path = path_of(file.as_fd());
        self.names.resize(XATTR_BYTES_MAX, 0);
        self.value.resize(XATTR_BYTES_MAX, 0);
        // The file that the path leads to, not where that leads if it is a symbolic link.
        let length = match rustix::fs::listxattr(&*path, &mut self.names[..]) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => 0,
            Err(errno) => return Err(errno),
        };
        for name in self.names[..length].split(|byte| *byte == 0).filter(|name| is_kept(name)) {
            match rustix::fs::getxattr(&*path, name, &mut self.value[..]) {
                Ok(length) => tell(name, Ok(&self.value[..length])),
                // It has gone meanwhile.
                Err(Errno::NODATA) => {}
                Err(errno) => tell(name, Err(errno)),
            }
        }
        Ok(())
    }
}

/// Returns whether an attribute is one of those that a namespace has, rather than a fact about the
/// file system of the source.
fn is_kept(name: &[u8]) -> bool {
    let starts = [&b"user."[..], b"trusted.", b"security.", b"system.posix_acl_"];
    starts.iter().any(|start| name.starts_with(start))
}

//! The system calls that no crate of ours has: fanotify(7), file handles, options of sockets.
//!
//! Each function is one system call. All that is unsafe here is that the kernel reads and writes
//! what a pointer leads to, which lives as long as the call.

#![allow(unsafe_code)]

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::CStr;
use std::time::Duration;

/// Most bytes of a handle behind its two numbers (`MAX_HANDLE_SZ`).
const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle` with the room that the kernel may ask for.
#[repr(C)]
struct FileHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; HANDLE_BYTES_MAX],
}

fn result(returned: i64) -> Result<i32, Errno> {
    if returned < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(errno));
    }
    Ok(returned as i32)
}

/// fanotify_init(2): a group of events, which are told with handles and without descriptors.
pub(crate) fn fanotify_init(flags: u32) -> Result<OwnedFd, Errno> {
    let descriptors = (libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC) as u32;
    // SAFETY: the call takes numbers alone, and what it returns is a new descriptor of ours.
    unsafe {
        let fd = result(libc::fanotify_init(flags, descriptors).into())?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// fanotify_mark(2): adds or removes what a group is told of, at a path.
pub(crate) fn fanotify_mark(
    group: impl AsFd,
    flags: u32,
    mask: u64,
    path: &CStr,
) -> Result<(), Errno> {
    let group = group.as_fd().as_raw_fd();
    // SAFETY: the path ends with a NUL and lives until the call returns.
    let marked = unsafe { libc::fanotify_mark(group, flags, mask, libc::AT_FDCWD, path.as_ptr()) };
    result(marked.into()).map(drop)
}

/// How often an inode is asked for again that is said to find no memory.
const ATTEMPTS_MAX: usize = 50;

/// open_by_handle_at(2): opens what a handle names, for its path alone (`O_PATH`). `handle` has a
/// `struct file_handle` as the kernel told it. Fails with `STALE` if that is gone.
pub(crate) fn open_by_handle(mount: impl AsFd, handle: &[u8]) -> Result<OwnedFd, Errno> {
    let (numbers, rest) = handle.split_first_chunk::<8>().ok_or(Errno::INVAL)?;
    let [a, b, c, d, e, f, g, h] = *numbers;
    let mut structure = FileHandle {
        handle_bytes: u32::from_ne_bytes([a, b, c, d]),
        handle_type: i32::from_ne_bytes([e, f, g, h]),
        f_handle: [0; HANDLE_BYTES_MAX],
    };
    // The kernel reads as many bytes as the number says.
    if rest.len() > HANDLE_BYTES_MAX || structure.handle_bytes as usize != rest.len() {
        return Err(Errno::INVAL);
    }
    structure.f_handle[..rest.len()].copy_from_slice(rest);
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let mut attempts = 0;
    loop {
        // SAFETY: the structure has room for as many bytes as it says and lives until the call
        // returns.
        let opened = result(unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_fd().as_raw_fd(),
                &raw const structure,
                flags,
            )
        });
        match opened {
            // SAFETY: it is a new descriptor of ours.
            Ok(fd) => return Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            // So the kernel says, too, while another inode is being made of the same number: then
            // this one is gone, as it says a moment later.
            Err(Errno::NOMEM) if attempts < ATTEMPTS_MAX => {
                attempts += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Identifies a file system among those that are mounted, as statfs(2) and events do.
pub(crate) type FileSystemId = [i32; 2];

/// fstatfs(2): which file system holds an open file.
pub(crate) fn file_system_of(file: impl AsFd) -> Result<FileSystemId, Errno> {
    let about = nix::sys::statfs::fstatfs(file);
    let about = about.map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
    // SAFETY: the type is a structure of C with just these two numbers, which it does not show.
    Ok(unsafe { std::mem::transmute::<libc::fsid_t, FileSystemId>(about.filesystem_id()) })
}

/// name_to_handle_at(2): the handle of an open directory, in the form that [`open_by_handle`] takes.
pub(crate) fn handle_of(directory: impl AsFd) -> Result<Vec<u8>, Errno> {
    let mut structure = FileHandle {
        handle_bytes: HANDLE_BYTES_MAX as u32,
        handle_type: 0,
        f_handle: [0; HANDLE_BYTES_MAX],
    };
    let mut mount = 0_i32;
    // SAFETY: the structure has the room that it says, and all pointers lead to what lives until the
    // call returns; the name is empty, as the flag asks.
    let named = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory.as_fd().as_raw_fd(),
            c"".as_ptr(),
            &raw mut structure,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    result(named)?;
    let FileHandle { handle_bytes, handle_type, f_handle } = structure;
    let bytes = f_handle.get(..handle_bytes as usize).ok_or(Errno::INVAL)?;
    Ok([&handle_bytes.to_ne_bytes()[..], &handle_type.to_ne_bytes(), bytes].concat())
}

/// `SO_PASSRIGHTS`, which the C library does not name yet.
const SO_PASSRIGHTS: i32 = 83;

/// setsockopt(2) of `SO_PASSRIGHTS`: has the kernel refuse descriptors that others would send
/// through connections of a socket that listens. Fails before Linux 6.16.
pub(crate) fn refuse_descriptors(listener: impl AsFd) -> Result<(), Errno> {
    let off = 0_i32;
    // SAFETY: the number lives until the call returns, and is as long as the call is told.
    let set = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    result(set.into()).map(drop)
}

/// getsockopt(2) of `SO_PEERGROUPS`: the supplementary groups of who has connected.
pub(crate) fn groups_of_peer(socket: impl AsFd) -> Result<Vec<u32>, Errno> {
    // As many as a process may have.
    let mut groups = vec![0_u32; 65_536];
    let mut bytes = size_of_val(&groups[..]) as libc::socklen_t;
    // SAFETY: there is room for as many bytes as the call is told, and both live until it returns.
    let got = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    result(got.into())?;
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}

/// `struct getinfo_fid2path` of Lustre with room for a path.
#[repr(C)]
struct FidToPath {
    sequence: u64,
    object: u32,
    version: u32,
    record: u64,
    link: u32,
    path_bytes: u32,
    path: [u8; libc::PATH_MAX as usize],
}

/// `OBD_IOC_FID2PATH`: `_IOWR('f', 150, long)`.
const FID_TO_PATH: u64 = 3 << 30 | 8 << 16 | (b'f' as u64) << 8 | 150;

/// The type of file system that Lustre's clients mount (`LL_SUPER_MAGIC`).
const LUSTRE_MAGIC: i64 = 0x0BD0_0BD0;

/// fstatfs(2): whether an open file is in a Lustre file system.
pub(crate) fn is_lustre(file: impl AsFd) -> Result<bool, Errno> {
    let about = nix::sys::statfs::fstatfs(file);
    let about = about.map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
    Ok(about.filesystem_type().0 as i64 == LUSTRE_MAGIC)
}

/// Asks the client of a Lustre file system where the file with a FID (sequence, object, version) is:
/// the path below an open directory, by its first name if it has several.
pub(crate) fn fid_to_path(
    directory: impl AsFd,
    sequence: u64,
    object: u32,
    version: u32,
) -> Result<Vec<u8>, Errno> {
    let mut structure = FidToPath {
        sequence,
        object,
        version,
        record: u64::MAX,
        link: 0,
        path_bytes: libc::PATH_MAX as u32,
        path: [0; libc::PATH_MAX as usize],
    };
    let directory = directory.as_fd().as_raw_fd();
    // SAFETY: the structure has room for a path as long as it says, and lives until the call returns.
    let found = unsafe { libc::ioctl(directory, FID_TO_PATH as _, &raw mut structure) };
    result(found.into())?;
    let path = CStr::from_bytes_until_nul(&structure.path).map_err(|_| Errno::NAMETOOLONG)?;
    Ok(path.to_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_handle_leads_back_to_its_directory_until_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let child = dir.path().join("child");
        std::fs::create_dir(&child).unwrap();
        let mount = File::open(dir.path()).unwrap();
        let handle = handle_of(File::open(&child).unwrap()).unwrap();
        let found = open_by_handle(&mount, &handle).unwrap();
        let place = std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).unwrap();
        assert_eq!(place, child);
        drop(found);
        std::fs::remove_dir(&child).unwrap();
        assert_eq!(open_by_handle(&mount, &handle).unwrap_err(), Errno::STALE);
        assert_eq!(open_by_handle(&mount, &handle[..handle.len() - 1]).unwrap_err(), Errno::INVAL);
        assert_eq!(open_by_handle(&mount, &[1, 2]).unwrap_err(), Errno::INVAL);
    }
}

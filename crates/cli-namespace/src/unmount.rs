//! `canopy ns unmount`, `canopy unmount`.

use crate::{place, servers, viewed};
use anyhow::{Context, anyhow, bail};
use canopy::Outcome;
use canopy_fuse::mounted::unmount_as_user;
use canopy_scan::Mount;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::poll::{PollFd, PollFlags, poll};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How long to wait for the end of a process that has let its files go, in milliseconds.
const END_MS: u16 = 10_000;

pub fn run(directory: &Path) -> anyhow::Result<Outcome> {
    let shown = directory.display();
    let full = full_path(directory).with_context(|| format!("cannot find {shown}"))?;
    let Some(mounted) = mounted_on(&full)? else {
        bail!("{shown}: no namespace and no index is mounted there");
    };
    let namespace = PathBuf::from(OsString::from_vec(mounted.source.clone()));
    let is_ours = mounted.file_system == canopy_mount::TYPE;
    let is_served = is_ours && servers::is_served(&namespace).unwrap_or(false);
    let was_answered = viewed::is_answered(&mounted);
    let process = was_answered.then(|| process_of(&full)).flatten();
    if is_served {
        send_written(&full)?;
    }
    let unmounted = match umount2(&full, MntFlags::UMOUNT_NOFOLLOW) {
        // The helper that mounted it for a user also unmounts it.
        Err(Errno::EPERM) => unmount_as_user(&full),
        unmounted => unmounted.map_err(std::io::Error::from),
    };
    unmounted.map_err(|error| not_unmounted(directory, error))?;
    // A killed process waits for nobody, and another process may have the namespace by now.
    // One of several servers has sent everything.
    if is_ours && was_answered && !is_served {
        wait(&namespace).with_context(|| {
            format!("{shown} is unmounted, but it is not known whether everything is on the disk")
        })?;
    }
    if let Some(process) = process {
        wait_for_end(&process)?;
    }
    Ok(Outcome::Complete)
}

/// Returns the error of a mount that stays, with advice if programs use it.
fn not_unmounted(directory: &Path, error: std::io::Error) -> anyhow::Error {
    let (shown, text) = (directory.display(), error.to_string());
    // The program of users passes on the kernel's words alone.
    let is_busy = error.kind() == std::io::ErrorKind::ResourceBusy
        || text.contains("Device or resource busy");
    match is_busy {
        true => anyhow!(
            "cannot unmount {shown}: it is busy: programs have files or directories there open ('fuser -vm {shown}' \
             shows them): end them, or take the mount away from them with 'umount -l {shown}'"
        ),
        false => anyhow::Error::from(error).context(format!("cannot unmount {shown}")),
    }
}

/// Returns the full path of a directory, without a look at a mount on it: its servers may not answer.
fn full_path(directory: &Path) -> std::io::Result<PathBuf> {
    let absolute = std::path::absolute(directory)?;
    if let (Some(above), Some(name)) = (absolute.parent(), absolute.file_name()) {
        let full = above.canonicalize()?.join(name);
        if mounted_on(&full).is_ok_and(|mounted| mounted.is_some()) {
            return Ok(full);
        }
    }
    directory.canonicalize()
}

/// Has the mount of a namespace on several servers send what it could not send before. That can take
/// as long as servers may take to come back.
fn send_written(directory: &Path) -> anyhow::Result<()> {
    match place::ask(directory, canopy_mount::SEND) {
        // Nobody answers, or another user has mounted it: it has to be unmounted all the same.
        Err(error) if place::is_killed(error) => Ok(()),
        Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) | Ok(_) => Ok(()),
        Err(error) => Err(error).with_context(|| {
            let shown = directory.display();
            format!(
                "{shown} stays mounted: what was written cannot be sent to the servers. Try again once \
                 they run, or lose it with 'umount -l {shown}'"
            )
        }),
    }
}

/// Returns the process that answers for a mount, if it runs this program and the caller may look
/// into it.
fn process_of(directory: &Path) -> Option<OwnedFd> {
    let id = place::ask(directory, canopy_fuse::attributes::PROCESS).ok()??.parse().ok()?;
    let id = Pid::from_raw(id)?;
    let process = pidfd_open(id, PidfdFlags::empty()).ok()?;
    // A mount could name any process, and waiting for it would take for ever.
    let program = |of: &str| std::fs::metadata(format!("/proc/{of}/exe"));
    let (own, other) = (program("self").ok()?, program(&id.to_string()).ok()?);
    ((own.dev(), own.ino()) == (other.dev(), other.ino())).then_some(process)
}

/// Waits until a process has ended: until then, the disk that its files lie on is busy. It goes on
/// where the mount is seen elsewhere, too (a bind mount, another mount namespace).
fn wait_for_end(process: &OwnedFd) -> anyhow::Result<()> {
    loop {
        match poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], END_MS) {
            Err(Errno::EINTR) => {}
            ended => return ended.map(drop).context("cannot wait for the process that mounted it"),
        }
    }
}

/// Returns our mount on a directory, given its full path.
pub fn mounted_on(directory: &Path) -> anyhow::Result<Option<Mount>> {
    let mounts = canopy_scan::mounts().context("cannot find out what is mounted")?;
    // The last of several on one directory is what is seen.
    let here = |mount: &Mount| mount.point == directory.as_os_str().as_bytes();
    let is_ours = |mount: &Mount| {
        [canopy_mount::TYPE, canopy_index_mount::TYPE].contains(&mount.file_system.as_str())
    };
    Ok(mounts.into_iter().rfind(here).filter(is_ours))
}

/// Waits until the process that had a namespace mounted has written everything and let it go.
fn wait(namespace: &Path) -> anyhow::Result<()> {
    if place::lacks_locks(namespace)? {
        let lock = place::open_lock(&place::local_of(namespace)?)?;
        return Ok(rustix::fs::flock(&lock, FlockOperation::LockShared)?);
    }
    let namespace = match place::bucket_of(namespace) {
        Some((Some(directory), _)) => directory,
        _ => namespace,
    };
    let storage = place::environment(namespace)?.storage;
    let table = canopy_namespace::table_of(storage.as_ref())?;
    let lock = namespace.join(table.to_string()).join("lock");
    let file = File::open(&lock).with_context(|| format!("cannot open {}", lock.display()))?;
    rustix::fs::flock(&file, FlockOperation::LockShared)?;
    Ok(())
}

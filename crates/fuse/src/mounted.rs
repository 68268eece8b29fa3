//! Mounting, answering and unmounting, which all our file systems share.

use fuser::{Config, Filesystem, MountOption, Notifier, Session, SessionACL, SessionUnmounter};
use nix::mount::{MntFlags, MsFlags, umount2};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The device by which the kernel asks.
const DEVICE: &str = "/dev/fuse";

/// Programs that mount and unmount for users, in the order in which fuser looks for them.
const PROGRAMS: [&str; 6] = [
    "fusermount3",
    "fusermount",
    "/sbin/fusermount3",
    "/sbin/fusermount",
    "/bin/fusermount3",
    "/bin/fusermount",
];

/// Properties of a file system that the kernel needs.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The type, `fuse.` and more.
    pub kind: &'a str,
    /// Its name in the output of `mount` and `df`.
    pub name: &'a Path,
    /// Whether every user may use it; otherwise only who mounts it.
    pub is_for_all: bool,
    /// Whether nothing can be changed.
    pub is_read_only: bool,
    /// Whether the kernel checks modes and ACLs, and not the file system itself.
    pub checks_permissions: bool,
    /// Whether no file stands for a device, and none gives rights to who runs it.
    pub is_inert: bool,
    /// How many threads answer.
    pub threads: usize,
}

/// A file system that is mounted.
pub struct Mounted<F: Filesystem> {
    session: Session<F>,
    directory: PathBuf,
    is_by_us: bool,
}

/// Unmounts a file system.
pub struct Unmounter {
    directory: PathBuf,
    /// Unmounts it if a set-user-ID program has mounted it.
    session: Option<SessionUnmounter>,
}

impl<F: Filesystem> Mounted<F> {
    /// Mounts it on a directory. The kernel's questions are answered by [`run`](Self::run).
    pub fn new(filesystem: F, directory: &Path, terms: &Terms<'_>) -> io::Result<Self> {
        let acl = if terms.is_for_all { SessionACL::All } else { SessionACL::Owner };
        let mut config = Config::default();
        config.acl = acl;
        config.n_threads = Some(terms.threads.max(1));
        config.clone_fd = true;
        let directory = directory.canonicalize()?;
        if rustix::process::geteuid().is_root() {
            let device = mount(&directory, terms)?;
            let session = Session::from_fd(filesystem, device, acl, config);
            let session = session.inspect_err(|_| {
                let _ = umount2(&directory, MntFlags::MNT_DETACH);
            });
            return Ok(Mounted { session: session?, directory, is_by_us: true });
        }
        config.mount_options = vec![
            MountOption::FSName(escaped(&terms.name.display().to_string())),
            MountOption::Subtype(terms.kind.trim_start_matches("fuse.").to_owned()),
            if terms.is_read_only { MountOption::RO } else { MountOption::RW },
        ];
        if terms.is_inert {
            config.mount_options.extend([MountOption::NoSuid, MountOption::NoDev]);
        }
        if terms.checks_permissions {
            config.mount_options.push(MountOption::DefaultPermissions);
        }
        check_search_path()?;
        let session = Session::new(filesystem, &directory, &config)?;
        Ok(Mounted { session, directory, is_by_us: false })
    }

    /// Returns a handle that unmounts it from another thread, so that `run` ends.
    pub fn unmounter(&mut self) -> Unmounter {
        let session = (!self.is_by_us).then(|| self.session.unmount_callable());
        Unmounter { directory: self.directory.clone(), session }
    }

    /// Returns what has the kernel forget what it knows.
    pub fn notifier(&self) -> Notifier {
        self.session.notifier()
    }

    /// Answers the kernel until the directory is unmounted.
    pub fn run(self) -> io::Result<()> {
        self.session.run()
    }
}

impl Unmounter {
    /// Unmounts it, if nobody uses it.
    pub fn unmount(&mut self) -> io::Result<()> {
        match &mut self.session {
            Some(session) => session.unmount(),
            None => Ok(umount2(&self.directory, MntFlags::empty())?),
        }
    }
}

/// Returns the value of an option as fusermount takes it: an unescaped comma would end it.
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for letter in value.chars() {
        if matches!(letter, ',' | '\\') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// Unmounts a directory by the set-user-ID program that mounted it for a user.
///
/// # Errors
///
/// Fails with the program's message, with `NotFound` if there is none, and as `check_search_path` does.
pub fn unmount_as_user(directory: &Path) -> io::Result<()> {
    check_search_path()?;
    for program in PROGRAMS {
        let ran = match Command::new(program).arg("-u").arg("--").arg(directory).output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            ran => ran?,
        };
        return match ran.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(String::from_utf8_lossy(&ran.stderr).trim().to_owned())),
        };
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "only root may, where neither fusermount3 nor fusermount is installed",
    ))
}

/// Fails where `PATH` names a directory that depends on the working directory: `fusermount3` would
/// be run from there, and it may belong to somebody else.
pub fn check_search_path() -> io::Result<()> {
    let is_relative = |path: OsString| std::env::split_paths(&path).any(|one| one.is_relative());
    match std::env::var_os("PATH").is_some_and(is_relative) {
        true => Err(io::Error::other(
            "PATH has an empty or relative directory, and fusermount3 is looked for there: use \
             absolute ones",
        )),
        false => Ok(()),
    }
}

/// Mounts a file system that is answered through the returned device, as root may. fuser would give
/// it the type `fuse`, which identifies nothing.
fn mount(directory: &Path, terms: &Terms<'_>) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open(DEVICE);
    let device = device.map_err(|error| {
        let advice = "load the kernel module 'fuse', or give the container this device";
        io::Error::new(error.kind(), format!("{DEVICE}: {error}; {advice}"))
    })?;
    let mut data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    if terms.checks_permissions {
        data.push_str(",default_permissions");
    }
    if terms.is_for_all {
        data.push_str(",allow_other");
    }
    let mut flags = MsFlags::empty();
    flags.set(MsFlags::MS_RDONLY, terms.is_read_only);
    flags.set(MsFlags::MS_NOSUID, terms.is_inert);
    flags.set(MsFlags::MS_NODEV, terms.is_inert);
    nix::mount::mount(Some(terms.name), directory, Some(terms.kind), flags, Some(data.as_str()))?;
    Ok(device.into())
}

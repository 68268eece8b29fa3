//! Namespaces as file systems of the kernel, by FUSE. A thin adapter: what operations mean is in
//! `canopy-namespace`, and the kernel checks permissions (`default_permissions`).

mod control;
mod convert;
mod filesystem;
mod handles;
mod pool;
mod queries;

pub use control::{CHECK, INDEXES};

use canopy_namespace::Namespace;
use filesystem::Filesystem;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use nix::mount::{MntFlags, MsFlags, umount2};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a namespace is mounted.
#[derive(Clone)]
pub struct Options {
    /// Whether every user may use it, as permissions say; otherwise only who mounted it.
    pub is_for_all: bool,
    /// Whether nothing can be changed.
    pub is_read_only: bool,
    /// How many threads answer the kernel.
    pub threads: usize,
    /// What `mount` and `df` call it.
    pub name: String,
    /// Whether the kernel reads and writes large files without asking, where it can.
    pub passes_through: bool,
    /// Is told why a query was refused.
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The type that mounts have, as `findmnt -t` and /etc/fstab name it.
pub const TYPE: &str = "fuse.canopy";

/// A namespace that is mounted.
pub struct Mount {
    session: Session<Filesystem>,
    directory: PathBuf,
    is_by_us: bool,
}

/// Unmounts a namespace.
pub struct Unmounter {
    directory: PathBuf,
    /// What unmounts it where a set-user-ID program has mounted it.
    session: Option<SessionUnmounter>,
}

impl Mount {
    /// Mounts a namespace on a directory. The kernel's questions are answered by [`run`](Self::run).
    pub fn new(namespace: Arc<Namespace>, directory: &Path, options: &Options) -> io::Result<Self> {
        let acl = if options.is_for_all { SessionACL::All } else { SessionACL::Owner };
        let mut config = Config::default();
        config.acl = acl;
        config.n_threads = Some(options.threads.max(1));
        config.clone_fd = true;
        let directory = directory.canonicalize()?;
        let filesystem = Filesystem::new(namespace, options);
        if rustix::process::geteuid().is_root() {
            let device = mount(&directory, options)?;
            let session = Session::from_fd(filesystem, device, acl, config);
            let session = session.inspect_err(|_| {
                let _ = umount2(&directory, MntFlags::MNT_DETACH);
            });
            return Ok(Mount { session: session?, directory, is_by_us: true });
        }
        config.mount_options = vec![
            MountOption::FSName(options.name.clone()),
            MountOption::Subtype("canopy".into()),
            MountOption::DefaultPermissions,
            if options.is_read_only { MountOption::RO } else { MountOption::RW },
        ];
        let session = Session::new(filesystem, &directory, &config)?;
        Ok(Mount { session, directory, is_by_us: false })
    }

    /// Returns what unmounts it from another thread, so that `run` ends.
    pub fn unmounter(&mut self) -> Unmounter {
        let session = (!self.is_by_us).then(|| self.session.unmount_callable());
        Unmounter { directory: self.directory.clone(), session }
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

/// Mounts what is answered through the device that is returned, as root may. fuser would give it
/// the type `fuse`, which tells nobody what it is.
fn mount(directory: &Path, options: &Options) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions",
        device.as_raw_fd()
    );
    if options.is_for_all {
        data.push_str(",allow_other");
    }
    let flags = if options.is_read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() };
    nix::mount::mount(
        Some(options.name.as_str()),
        directory,
        Some(TYPE),
        flags,
        Some(data.as_str()),
    )?;
    Ok(device.into())
}

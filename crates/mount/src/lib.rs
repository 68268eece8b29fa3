//! Namespaces as file systems of the kernel, by FUSE. A thin adapter: what operations mean is in
//! `canopy-namespace`, and the kernel checks permissions (`default_permissions`).

mod convert;
mod filesystem;
mod handles;

use canopy_namespace::Namespace;
use filesystem::Filesystem;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a namespace is mounted.
#[derive(Clone, Debug)]
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
}

/// A namespace that is mounted.
pub struct Mount {
    session: Session<Filesystem>,
}

impl Mount {
    /// Mounts a namespace on a directory. The kernel's questions are answered by [`run`](Self::run).
    pub fn new(namespace: Arc<Namespace>, directory: &Path, options: &Options) -> io::Result<Self> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(options.name.clone()),
            MountOption::Subtype("canopy".into()),
            MountOption::DefaultPermissions,
            if options.is_read_only { MountOption::RO } else { MountOption::RW },
        ];
        if options.is_for_all && rustix::process::geteuid().is_root() {
            config.mount_options.extend([MountOption::Suid, MountOption::Dev]);
        }
        config.acl = if options.is_for_all { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(options.threads.max(1));
        config.clone_fd = true;
        let filesystem = Filesystem::new(namespace, options.passes_through);
        Ok(Mount { session: Session::new(filesystem, directory, &config)? })
    }

    /// Returns what unmounts it from another thread, so that `run` ends.
    pub fn unmounter(&mut self) -> SessionUnmounter {
        self.session.unmount_callable()
    }

    /// Answers the kernel until the directory is unmounted.
    pub fn run(self) -> io::Result<()> {
        self.session.run()
    }
}

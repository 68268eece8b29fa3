//! An index as a read-only file system of the kernel, by FUSE: the indexed sources at their paths
//! with their attributes, without contents, and query directories.
//!
//! Every user sees exactly what the index shows that user, and the kernel enforces it. The process
//! that mounts the index answers nobody by what it may read itself: for each set of credentials it
//! asks a process that has these and no other rights for good (`views`, `canopy_as_user::Pool`),
//! and passes the answer on. The kernel remembers nothing of what it was told for one user, and
//! what it knows by an id is looked up by its path for whoever asks (`nodes`).
//!
//! | to change | read |
//! | --- | --- |
//! | the process that answers for a user | `views`, `service`, `protocol`; `canopy_as_user` |
//! | the part of the index that a user sees | `view`, `listing`, `xattrs` |
//! | queries | `search` |
//! | ids that the kernel knows | `nodes` |
//!
//! There is a process for each set of credentials, and not threads that change user. Data that is
//! open, read or cached for one user is never in the memory of a process that answers another. A
//! crash or a limit hits one user. A user who mounts alone is answered in a thread, through an
//! equal socket.
//!
//! Not its job: deciding who may see what. The kernel does when a process opens files of the index.

mod filesystem;
mod handles;
mod listing;
mod nodes;
mod protocol;
mod recent;
mod search;
mod service;
mod view;
mod views;
mod xattrs;

pub use canopy_fuse::mounted::Unmounter;
pub use service::VIEW;
pub use view::Opener;

use canopy_as_user::Accounts;
use canopy_fuse::mounted::{Mounted, Terms};
use canopy_model::{Credentials, escape};
use filesystem::Filesystem;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use views::Views;

/// The type that mounts have, as `findmnt -t` and /etc/fstab name it.
pub const TYPE: &str = "fuse.canopy-index";

/// How long the kernel may cache replies if nobody but the owner asks.
const TTL: Duration = Duration::from_secs(1);

/// Users whose view is shown.
pub enum Viewers {
    /// Everybody's own, of the index in this directory. Takes root.
    Everybody(PathBuf),
    /// The view of the user who mounts the index, to that user alone.
    Owner(Opener),
}

/// How an index is mounted.
pub struct Options {
    /// Users whose view is shown.
    pub viewers: Viewers,
    /// The path that is the root of the mount: `/`, or the root of a source.
    pub root: PathBuf,
    /// Its name in the output of `mount` and `df`.
    pub name: PathBuf,
    /// How many threads answer the kernel.
    pub threads: usize,
}

/// An index that is mounted.
pub struct Mount(Mounted<Filesystem>);

impl Mount {
    /// Mounts an index on a directory. The kernel's questions are answered by [`run`](Self::run).
    pub fn new(directory: &Path, options: Options) -> io::Result<Self> {
        let is_for_all = matches!(options.viewers, Viewers::Everybody(_));
        let accounts = Accounts::system();
        let (views, owner, ttl) = match options.viewers {
            Viewers::Everybody(index) => {
                let (root, accounts) = (options.root, accounts.clone());
                let views = Views::of_everybody(index, root, accounts)?;
                (views, None, Duration::ZERO)
            }
            Viewers::Owner(opener) => {
                let root = escape(options.root.as_os_str().as_bytes()).into_owned();
                let uid = rustix::process::geteuid().as_raw();
                let views = Views::of_owner(opener, root);
                (views, Some(Credentials::new(uid, [])), TTL)
            }
        };
        let terms = Terms {
            kind: TYPE,
            name: &options.name,
            is_for_all,
            is_read_only: true,
            checks_permissions: false,
            is_inert: true,
            threads: options.threads,
        };
        let filesystem = Filesystem::new(views, accounts, owner, ttl);
        Mounted::new(filesystem, directory, &terms).map(Mount)
    }

    /// Returns a handle that unmounts it from another thread, so that `run` ends.
    pub fn unmounter(&mut self) -> Unmounter {
        self.0.unmounter()
    }

    /// Answers the kernel until the directory is unmounted.
    pub fn run(self) -> io::Result<()> {
        self.0.run()
    }
}

//! Namespaces as file systems of the kernel, by FUSE. A thin adapter: `canopy-namespace` defines
//! the operations, whoever is behind `dyn Execute` executes them, and the kernel checks permissions
//! (`default_permissions`). Servers that do not trust this machine check them, too.
//!
//! | to change | read |
//! | --- | --- |
//! | a request of the kernel | `filesystem.rs`, one function each |
//! | its effect | `filesystem/`: `names.rs`, `contents.rs`, `directories.rs`, `attributes.rs` |
//! | how long the kernel may cache replies | `ttl`; files that were just made: `created`; directories that others rename: `shown_names` |
//! | users whom servers check | `behalf` |
//! | the meaning of inode numbers | `node` |
//! | query directories | `queries`, `duplicates`; results: `canopy_fuse`; refused queries: `refusals` |
//! | turns of queries between accounts | `pool` |
//! | memory of results | `kept` |
//! | snapshots | `past` |
//! | quotas | `quotas` |
//! | requests of root to a mount | `control` |
//! | locks of programs, where servers keep them | `locks`, `filesystem/locks.rs` |

mod behalf;
mod caller;
mod control;
mod convert;
mod created;
mod duplicates;
mod explain;
mod filesystem;
mod handles;
mod kept;
mod locks;
mod node;
mod nodes;
mod packed;
mod past;
mod pool;
mod queries;
mod quotas;
mod refusals;
mod shown_names;
mod ttl;

pub use control::{CHECK, CHECK_DATA, FLUSH, INDEXES, LEFT, REPAIR, REPAIR_DATA, SEND, SNAPSHOTS};
pub use quotas::{QUOTA, QuotaReport, Wanted};
pub use ttl::CacheTimes;

use canopy_fuse::mounted::{Mounted, Terms, Unmounter};
use canopy_namespace::Execute;
use filesystem::Filesystem;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a namespace is mounted.
#[derive(Clone)]
pub struct Options {
    /// Whether every user may use it, as permissions say; otherwise only who mounted it.
    pub is_for_all: bool,
    /// Whether nothing can be changed.
    pub is_read_only: bool,
    /// The snapshot that is shown instead of what there is now, if any.
    pub snapshot: Option<String>,
    /// How many threads answer the kernel.
    pub threads: usize,
    /// Its name in the output of `mount` and `df`.
    pub name: PathBuf,
    /// Whether the kernel reads and writes large files without asking, where it can.
    pub passes_through: bool,
    /// How long the kernel may believe names and attributes, if others change the namespace, too:
    /// clients of the same servers. None if all changes come through this mount.
    pub cache_times: Option<CacheTimes>,
    /// Whether operations name the user behind them, for servers that check what that user may do.
    pub names_users: bool,
}

/// The type that mounts have, as `findmnt -t` and /etc/fstab name it.
pub const TYPE: &str = "fuse.canopy";

/// A namespace that is mounted.
pub struct Mount(Mounted<Filesystem>);

impl Mount {
    /// Mounts a namespace on a directory: one of this process, or what a client of servers reaches.
    /// The kernel's questions are answered by [`run`](Self::run).
    /// `NotFound` if there is no such snapshot as is to be shown.
    pub fn new(
        namespace: Arc<dyn Execute>,
        directory: &Path,
        options: &Options,
    ) -> io::Result<Self> {
        let terms = Terms {
            kind: TYPE,
            name: &options.name,
            is_for_all: options.is_for_all,
            is_read_only: options.is_read_only,
            checks_permissions: true,
            is_inert: false,
            threads: options.threads,
        };
        let filesystem = Filesystem::new(namespace, options);
        let filesystem = filesystem
            .map_err(|error| io::Error::from_raw_os_error(error.errno().raw_os_error()))?;
        let (locks, names) = (filesystem.locks(), filesystem.shown_names());
        if let (Some(locks), Some(servers)) = (&locks, filesystem.servers_of_locks()) {
            locks.forget_lost(servers)?;
        }
        let mounted = Mounted::new(filesystem, directory, &terms)?;
        if let Some(locks) = locks {
            locks.set_notifier(mounted.notifier());
        }
        if let Some(names) = names {
            names.set_notifier(mounted.notifier());
        }
        Ok(Mount(mounted))
    }

    /// Returns what unmounts it from another thread, so that `run` ends.
    pub fn unmounter(&mut self) -> Unmounter {
        self.0.unmounter()
    }

    /// Answers the kernel until the directory is unmounted.
    pub fn run(self) -> io::Result<()> {
        self.0.run()
    }
}

//! Reading a namespace without changing anything, also while it is mounted.

use crate::place;
use anyhow::{Context, bail};
use canopy_mount::{FLUSH, TYPE};
use canopy_namespace::{View, table_of};
use canopy_scan::Mount;
use canopy_store::{Environment, TableId};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is read of a mounted namespace is kept so long if the process dies before it lets it go.
const CHECKPOINT_MS: u64 = 6 * 60 * 60 * 1000;

/// The records of a namespace at one moment.
pub struct Viewed {
    /// The records.
    pub view: View,
    /// Where it is mounted, if it is.
    pub mount: Option<Mount>,
    _kept: Kept,
}

/// A checkpoint, which stays as long as the records are read.
struct Kept {
    environment: Environment,
    table: TableId,
    id: u64,
}

impl Viewed {
    /// Opens a namespace, or the one that is mounted on a directory. Of one that is mounted, all
    /// changes that were done by now are read; later ones are not. Nobody is kept from using it.
    pub fn open(place: &Path) -> anyhow::Result<Self> {
        let mount = mounted(place)?;
        let namespace = match &mount {
            Some(mount) => PathBuf::from(OsStr::from_bytes(&mount.source)),
            None => place::found(place)?,
        };
        let failed = || format!("cannot read {}", namespace.display());
        let environment = place::environment(&namespace)?;
        let table = table_of(environment.storage.as_ref())?;
        match &mount {
            Some(mount) => flush_mounted(&namespace, mount)?,
            None if canopy_store::is_flushed(&environment, table).with_context(failed)? => {}
            None => {
                // Once, so that whoever reads next need not.
                let namespace = place::open(place)?;
                namespace.close()?;
                namespace.table().flush()?;
            }
        }
        let (id, _) = canopy_store::checkpoint(&environment, table, Some(CHECKPOINT_MS))
            .with_context(failed)?;
        // Whatever happens from here on, it is let go.
        let kept = Kept { environment: environment.clone(), table, id };
        let view = View::of_table(&environment, Some(id)).with_context(failed)?;
        Ok(Viewed { view, mount, _kept: kept })
    }
}

/// Has the process that has mounted a namespace write all that is only in its memory.
fn flush_mounted(namespace: &Path, mount: &Mount) -> anyhow::Result<()> {
    let directory = Path::new(OsStr::from_bytes(&mount.point));
    match place::control(directory, FLUSH)? {
        Some(_) => Ok(()),
        None => bail!(
            "{} is mounted on {}, beside which only root can read it: unmount it first, or use the \
             mount (canopy find --live)",
            namespace.display(),
            directory.display()
        ),
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // If this fails, it goes by itself later.
        let _ = canopy_store::release(&self.environment, self.table, self.id);
    }
}

/// Returns the mount of a namespace, or the one on a directory that is a namespace's. Others than
/// root and the owner of a namespace can only say that it is theirs to mount, which is not believed;
/// and a mount that nobody answers for any more counts only where it is.
pub fn mounted(place: &Path) -> anyhow::Result<Option<Mount>> {
    let Ok(real) = place.canonicalize() else { return Ok(None) };
    let path = real.as_os_str().as_bytes();
    let mounts = canopy_scan::mounts().context("cannot find out what is mounted")?;
    // Not where a directory of one is seen elsewhere.
    let is_ours = |mount: &Mount| mount.file_system == TYPE && mount.root == b"/";
    // The last one on a directory is the one that is seen there.
    let mut mounts = mounts.into_iter().rev().filter(is_ours).filter(is_by_owner);
    Ok(mounts.find(|mount| mount.point == path || mount.source == path && is_answered(mount)))
}

/// Returns whether there is still a process that answers for a mount.
pub fn is_answered(mount: &Mount) -> bool {
    // Attributes could be those that the kernel remembers.
    rustix::fs::statfs(OsStr::from_bytes(&mount.point)).err() != Some(Errno::NOTCONN)
}

/// Returns whether root has mounted a namespace, or its owner.
fn is_by_owner(mount: &Mount) -> bool {
    let by = mount.option("user_id").and_then(|uid| uid.parse::<u32>().ok());
    let owner = rustix::fs::lstat(OsStr::from_bytes(&mount.source)).map(|stat| stat.st_uid);
    by == Some(0) || by.is_some() && by == owner.ok()
}

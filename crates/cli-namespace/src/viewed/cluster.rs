//! What is only in the memory or the logs of the servers of a namespace goes to the files of their
//! tables, for those who read beside them. Nobody takes a table over from a process that lives.

use crate::place;
use crate::servers::{Access, Served};
use anyhow::{Context, bail};
use canopy_cluster::membership::is_stopped;
use canopy_cluster::{cluster_tables, settle_stopped};
use canopy_mount::FLUSH;
use canopy_namespace::operation::{Administration, Caller, Operation};
use canopy_namespace::system_clock;
use canopy_scan::Mount;
use canopy_store::Environment;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name of storage that a command does without.
const NO_STORAGE: &str = "none";

/// Returns the place of the storage of servers, as they know it, if it can be opened here.
pub(super) fn place_of(servers: &Path) -> anyhow::Result<PathBuf> {
    let access = Access { storage: Some(NO_STORAGE.into()), ..Access::default() };
    let served = Served::open(servers, &access)?;
    let place = PathBuf::from(served.connection.place());
    let opened = place::environment(&place).and_then(|environment| {
        served.connection.check_storage(environment.storage.as_ref())?;
        Ok(place.clone())
    });
    served.end()?;
    opened.with_context(|| {
        format!(
            "cannot open {}, the storage of {}, whose records are to be read: use the mount, as with \
             'canopy find --live', du(1) and cp(1)",
            place.display(),
            servers.display()
        )
    })
}

/// Has all servers write everything to the files of their tables. If no process runs them, this one
/// does.
pub(super) fn flush(
    namespace: &Path,
    environment: &Environment,
    mount: Option<&Mount>,
) -> anyhow::Result<()> {
    if !is_stopped(environment)? {
        match flush_servers(namespace, mount) {
            Err(_) if is_stopped(environment)? => {}
            flushed => return flushed,
        }
    }
    Ok(settle_stopped(environment, &system_clock())?)
}

/// Like `flush`, but opens no table. If no process runs the servers, the files have to contain
/// everything.
pub(super) fn flush_running(
    namespace: &Path,
    environment: &Environment,
    mount: Option<&Mount>,
) -> anyhow::Result<()> {
    if !is_stopped(environment)? {
        return flush_servers(namespace, mount);
    }
    for table in cluster_tables(environment.storage.as_ref())? {
        if !canopy_store::is_flushed(environment, table)? {
            let shown = namespace.display();
            bail!(
                "no process runs the servers of {shown}; what was written last is read once they run: \
                 canopy cluster start {shown} --listen ADDRESS"
            );
        }
    }
    Ok(())
}

fn flush_servers(namespace: &Path, mount: Option<&Mount>) -> anyhow::Result<()> {
    if let Some(mount) = mount {
        // What programs have written there, and was not sent. A mount that cannot be asked, such as
        // one that is read-only, has nothing to send.
        let _ = place::ask(Path::new(OsStr::from_bytes(&mount.point)), FLUSH);
    }
    let served = Served::open(namespace, &Access::default())?;
    let flush = Operation::Administration(Administration::Flush);
    served.connection.client().execute_for(Caller::Trusted, &flush)?;
    Ok(served.end()?)
}

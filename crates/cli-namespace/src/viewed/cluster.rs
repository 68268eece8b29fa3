//! Checkpoints of the tables of servers, for those who read beside them. They contain what was only in
//! the memory or the logs of the servers. Nobody takes a table over from a process that lives.

use crate::place;
use crate::servers::{Access, Served};
use anyhow::{Context, bail};
use canopy_cluster::membership::is_stopped;
use canopy_cluster::{checkpoint_all, cluster_tables, release_all, settle_stopped};
use canopy_mount::FLUSH;
use canopy_namespace::operation::{Administration, Caller, Operation};
use canopy_namespace::system_clock;
use canopy_scan::Mount;
use canopy_store::{Environment, TableId};
use canopy_text::shell_word;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time in which servers have to make checkpoints, and the pause between two tries.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(200);

/// Returns the place of the storage of servers, as they know it, if it can be opened here.
pub(super) fn place_of(servers: &Path, certificate: Option<&Path>) -> anyhow::Result<PathBuf> {
    let certificate = certificate.map(Path::to_owned);
    let access = Access { certificate, ..Access::without_contents() };
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

/// Checkpoints of all tables of servers, which stay until they are released.
pub(super) struct Checkpoints {
    /// Each table with its checkpoint, in the order of servers.
    pub(super) tables: Vec<(TableId, u64)>,
    /// The servers that have made them at one moment; none if no process ran them.
    pub(super) served: Option<Served>,
}

/// Makes checkpoints of all tables: at one moment, if processes run the servers. If none does, this
/// process does first what was left undone.
pub(super) fn checkpoints(
    namespace: &Path,
    environment: &Environment,
    mount: Option<&Mount>,
    kept: Duration,
) -> anyhow::Result<Checkpoints> {
    if !is_stopped(environment)? {
        match cut(namespace, environment, mount, kept) {
            Err(_) if is_stopped(environment)? => {}
            made => return made,
        }
    }
    settle_stopped(environment, &system_clock())?;
    let kept_ms = u64::try_from(kept.as_millis())?;
    Ok(Checkpoints { tables: checkpoint_all(environment, kept_ms)?, served: None })
}

fn cut(
    namespace: &Path,
    environment: &Environment,
    mount: Option<&Mount>,
    kept: Duration,
) -> anyhow::Result<Checkpoints> {
    flush_mounted(mount);
    let served = Served::open(namespace, &Access::default())?;
    let begin = Instant::now();
    let made = loop {
        match served.connection.client().make_cut(kept) {
            Ok(made) => break made,
            // A server may just move to another process.
            Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    let tables = cluster_tables(environment.storage.as_ref())?;
    let tables = tables.into_iter().zip(made.tables.checkpoints).collect();
    Ok(Checkpoints { tables, served: Some(served) })
}

/// Returns the number of a cut of these checkpoints: that of the first one.
fn number(checkpoints: &[(TableId, u64)]) -> Option<u64> {
    checkpoints.first().map(|(_, checkpoint)| *checkpoint)
}

/// Lets checkpoints go. Those that stay go by themselves later.
pub(super) fn release(
    served: Option<&Served>,
    environment: &Environment,
    checkpoints: &[(TableId, u64)],
) {
    if let (Some(served), Some(number)) = (served, number(checkpoints))
        && served.connection.client().release_cut(number).is_ok()
    {
        return;
    }
    release_all(environment, checkpoints);
}

/// Lets checkpoints go that another process has made.
pub(super) fn release_known(
    namespace: &Path,
    environment: &Environment,
    checkpoints: &[(TableId, u64)],
) {
    let is_running = is_stopped(environment).is_ok_and(|is_stopped| !is_stopped);
    let served = is_running.then(|| Served::open(namespace, &Access::default()).ok()).flatten();
    release(served.as_ref(), environment, checkpoints);
    if let Some(served) = served {
        let _ = served.end();
    }
}

/// Keeps checkpoints for longer.
pub(super) fn renew(
    namespace: &Path,
    environment: &Environment,
    checkpoints: &[(TableId, u64)],
    kept: Duration,
) -> anyhow::Result<()> {
    if let Some(number) = number(checkpoints)
        && !is_stopped(environment)?
    {
        let served = Served::open(namespace, &Access::default())?;
        served.connection.client().renew_cut(number, kept)?;
        return Ok(served.end()?);
    }
    for (table, checkpoint) in checkpoints {
        canopy_store::renew(environment, *table, *checkpoint, u64::try_from(kept.as_millis())?)?;
    }
    Ok(())
}

/// Has all servers write everything to the files of their tables. If no process runs them, the files
/// have to contain everything.
pub(super) fn flush_running(
    namespace: &Path,
    environment: &Environment,
    mount: Option<&Mount>,
) -> anyhow::Result<()> {
    if !is_stopped(environment)? {
        flush_mounted(mount);
        let served = Served::open(namespace, &Access::default())?;
        let flush = Operation::Administration(Administration::Flush);
        served.connection.client().execute_for(Caller::Trusted, &flush)?;
        return Ok(served.end()?);
    }
    for table in cluster_tables(environment.storage.as_ref())? {
        if !canopy_store::is_flushed(environment, table)? {
            let (shown, word) = (namespace.display(), shell_word(namespace));
            bail!(
                "no process runs the servers of {shown}; what was written last is read once they run: \
                 canopy cluster start {word} --listen ADDRESS"
            );
        }
    }
    Ok(())
}

/// Has a mount of this machine send what programs have written there. A mount that cannot be asked,
/// such as one that is read-only, has nothing to send.
fn flush_mounted(mount: Option<&Mount>) {
    if let Some(mount) = mount {
        let _ = place::ask(Path::new(OsStr::from_bytes(&mount.point)), FLUSH);
    }
}

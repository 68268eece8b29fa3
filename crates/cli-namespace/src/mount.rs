//! `canopy ns mount`: in the foreground, or by a process of its own that leaves the terminal.

use crate::daemon::{self, Warnings};
use crate::{mount_options, mount_servers, place, servers, viewed};
use anyhow::{Context, bail};
use canopy::Outcome;
use canopy::commands::ns::Mount as Arguments;
use canopy_model::ErrorKind;
use canopy_mount::{Mount, Options};
use canopy_namespace::{Namespace, Upkeep};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The file of the namespace with later messages of the process that mounted it.
pub const LOG: &str = "mount.log";

/// How often to look for failed work.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// For so long contents are sent again that storage did not take when the namespace is unmounted.
const SYNC_PATIENCE: Duration = Duration::from_secs(60);

/// For so long a mount waits for the process of the last one.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    if servers::is_served(&arguments.namespace)? {
        return mount_servers::run(arguments);
    }
    if arguments.certificate.is_some() || arguments.storage.is_some() {
        bail!("--certificate and --storage are for namespaces on several servers");
    }
    mount_options::check(&arguments.options, &[])?;
    let namespace = place::found(&arguments.namespace)?;
    daemon::threads(arguments.threads, 1)?;
    daemon::check_place(&arguments.directory, &[namespace])?;
    match arguments.foreground || arguments.detached {
        true => daemon::reporting(arguments.detached, || serve(arguments)),
        false => daemon::detach(&place::local_of(&arguments.namespace)?.join(LOG)),
    }
}

/// Writes everything. Where contents lie in storage that does not answer, tries again for some time.
fn sync(namespace: &Namespace) -> canopy_namespace::Result<()> {
    let begun = Instant::now();
    loop {
        let synced = namespace.sync();
        let is_local = namespace.settings().chunk_bytes == 0;
        // Another process has the table now, and keeps it.
        let is_lost = synced.as_ref().is_err_and(|error| error.kind() == ErrorKind::Taken);
        if synced.is_ok() || is_local || is_lost || begun.elapsed() >= SYNC_PATIENCE {
            return synced;
        }
        std::thread::sleep(WATCH_INTERVAL);
    }
}

/// Returns the cache of contents in a bucket.
fn cache(arguments: &Arguments) -> anyhow::Result<place::Cache> {
    let directory = arguments.cache.as_ref().map(std::path::absolute).transpose()?;
    Ok(place::Cache { directory, bytes: arguments.cache_size })
}

/// Opens a namespace. Waits for the process of the last mount, which closes the namespace after the
/// kernel has unmounted it.
fn open(namespace: &Path, cache: &place::Cache, is_read_only: bool) -> anyhow::Result<Namespace> {
    let begun = Instant::now();
    loop {
        let opened = place::open_with(namespace, cache, is_read_only);
        let is_closing = |error: &anyhow::Error| {
            error.downcast_ref().is_some_and(|in_use: &place::InUse| in_use.is_locked)
                && matches!(viewed::mounted(namespace), Ok(None))
        };
        match opened {
            Err(error) if begun.elapsed() < CLOSING_PATIENCE && is_closing(&error) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened,
        }
    }
}

/// Mounts, and answers the kernel until it is unmounted.
fn serve(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let signals = daemon::begin(arguments.detached, "")?;
    let is_read_only = arguments.read_only
        || arguments.snapshot.is_some()
        || mount_options::is_read_only(&arguments.options);
    let cache = cache(arguments)?;
    let namespace = Arc::new(open(&arguments.namespace, &cache, is_read_only)?);
    if let Some(name) = &arguments.snapshot
        && !namespace.snapshots().iter().any(|one| one.name == *name)
    {
        namespace.close()?;
        bail!("{} has no snapshot {name}", arguments.namespace.display());
    }
    let upkeep = Arc::new(Upkeep::start(&namespace));
    let warnings = {
        let upkeep = upkeep.clone();
        Warnings::start(WATCH_INTERVAL, move || upkeep.failure())
    };
    let name = place::full_name(&arguments.namespace)?;
    let is_root = nix::unistd::geteuid().is_root();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let options = Options {
        is_for_all: is_root && !arguments.private,
        is_read_only,
        snapshot: arguments.snapshot.clone(),
        threads: daemon::threads(arguments.threads, threads)?,
        name,
        passes_through: is_root && !arguments.no_passthrough,
        cache_times: None,
        names_users: false,
    };
    let directory = arguments.directory.display();
    let mount = Mount::new(namespace.clone(), &arguments.directory, &options)
        .with_context(|| format!("cannot mount on {directory}"))?;
    let ran = daemon::answer(mount, arguments, signals);
    let synced = sync(&namespace);
    drop(warnings);
    drop(upkeep);
    ran?;
    synced.with_context(|| format!("what was last written through {directory} may be lost"))?;
    Ok(Outcome::Complete)
}

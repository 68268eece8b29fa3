//! `canopy ns mount` of a namespace on several servers, in the foreground or by a process of its own.
//!
//! The process is a client: it does no upkeep, and several machines mount the namespace at once. If
//! servers trust it, the kernel of this machine checks permissions. Otherwise each operation names the
//! user behind it, and the servers check, too.

use crate::daemon::{self, Warnings};
use crate::servers::{self, Access, Served};
use crate::{mount, mount_options};
use anyhow::{Context, bail, ensure};
use canopy::Outcome;
use canopy::commands::ns::Mount as Arguments;
use canopy_cluster::contents::Memory;
use canopy_cluster::{Speaker, Wait};
use canopy_model::Credentials;
use canopy_mount::{CacheTimes, Mount, Options};
use canopy_namespace::{Execute, ROOT};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time for which the kernel caches names and attributes of directories by default.
const DIRECTORIES: Duration = Duration::from_secs(1);

/// Threads that answer the kernel at least: each may wait for a server that has died.
const THREADS: usize = 16;

/// Longest time of `-o cache=SECONDS`.
const CACHE_MAX: Duration = Duration::from_secs(3600);

/// Time between two looks at the certificate, which may have been renewed.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Options of mount(8), and those beside them.
struct Wanted {
    access: Access,
    cache_times: CacheTimes,
    is_read_only: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let name = servers::full_name(&arguments.namespace)?;
    // Wrong options are reported before a process is started.
    wanted(arguments)?;
    daemon::threads(arguments.threads, 1)?;
    let place = servers::addresses(&name)?.is_none().then_some(name);
    daemon::check_place(&arguments.directory, &Vec::from_iter(place))?;
    match arguments.foreground || arguments.detached {
        true => daemon::reporting(arguments.detached, || serve(arguments)),
        false => daemon::detach(&servers::local_of(&arguments.namespace)?.join(mount::LOG)),
    }
}

/// Reads the options.
fn wanted(arguments: &Arguments) -> anyhow::Result<Wanted> {
    ensure!(
        arguments.cache.is_none(),
        "--cache: contents of a namespace on several servers are cached in memory (--cache-size)"
    );
    mount_options::check(&arguments.options, &["certificate", "storage", "cache"])?;
    let option = |name| mount_options::value(&arguments.options, name);
    let path =
        |given: &Option<PathBuf>, name| given.clone().or_else(|| option(name).map(PathBuf::from));
    let cached = option("cache").map(|seconds| match seconds.parse::<f64>() {
        Ok(seconds) if (0.0..=CACHE_MAX.as_secs_f64()).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => bail!("-o cache={seconds}: give seconds, from 0 to {}", CACHE_MAX.as_secs()),
    });
    let cache_times = match cached.transpose()? {
        Some(time) => CacheTimes { files: time, directories: time },
        None => CacheTimes { files: Duration::ZERO, directories: DIRECTORIES },
    };
    let mut memory = Memory::default();
    if let Some(bytes) = arguments.cache_size {
        memory.cache_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    // The process leaves this directory, and reads the file again.
    let certificate = path(&arguments.certificate, "certificate").map(std::path::absolute);
    Ok(Wanted {
        access: Access {
            certificate: certificate.transpose()?,
            storage: path(&arguments.storage, "storage"),
            has_storage_option: true,
            memory,
        },
        cache_times,
        is_read_only: arguments.read_only
            || arguments.snapshot.is_some()
            || mount_options::is_read_only(&arguments.options),
    })
}

/// Mounts, and answers the kernel until it is unmounted.
fn serve(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let signals = daemon::begin(arguments.detached, "")?;
    let wanted = wanted(arguments)?;
    let is_awaited = arguments.detached;
    let observer = Arc::new(move |wait: &Wait| match is_awaited {
        true => daemon::report_wait(wait),
        false => canopy::message(wait),
    });
    let served = Served::open_observed(&arguments.namespace, &wanted.access, observer)?;
    if let Speaker::User(uid) = served.connection.speaker()
        && uid != nix::unistd::geteuid().as_raw()
    {
        bail!("the certificate is for uid {uid} alone: run this as that user");
    }
    // The kernel would ask the mount for the chunks that the mount needs to answer.
    daemon::check_place(&arguments.directory, &Vec::from_iter(served.directory.clone()))?;
    // Nobody reads what a mount prints.
    served.connection.remote().observe(Arc::new(|wait| tracing::warn!("{wait}")));
    served.connection.client().cache_directories(wanted.cache_times.directories);
    let served = Arc::new(served);
    // Certificates are renewed on disk.
    let warnings = {
        let served = served.clone();
        let refresh = move || served.connection.security().refresh().err();
        Warnings::start(LOOK_EVERY, move || refresh().map(|one| format!("the certificate: {one}")))
    };
    let ran = mount_and_run(arguments, &wanted, &served, signals);
    drop(warnings);
    let directory = arguments.directory.display();
    let ended = served.end();
    ran?;
    ended.with_context(|| format!("what was last written through {directory} is lost"))?;
    Ok(Outcome::Complete)
}

fn mount_and_run(
    arguments: &Arguments,
    wanted: &Wanted,
    served: &Served,
    signals: nix::sys::signal::SigSet,
) -> anyhow::Result<()> {
    let is_root = nix::unistd::geteuid().is_root();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let options = Options {
        // Servers would refuse requests of others than the user of the certificate.
        is_for_all: is_root
            && !arguments.private
            && !matches!(served.connection.speaker(), Speaker::User(_)),
        is_read_only: wanted.is_read_only,
        snapshot: arguments.snapshot.clone(),
        threads: daemon::threads(arguments.threads, THREADS.max(threads))?,
        name: served.name.clone(),
        passes_through: false,
        cache_times: Some(wanted.cache_times),
        names_users: !served.is_trusted(),
    };
    if let Some(name) = &arguments.snapshot
        && !has_snapshot(served, name)?
    {
        bail!("{} has no snapshot {name}", arguments.namespace.display());
    }
    let directory = arguments.directory.display();
    let mounted = Mount::new(served.namespace.clone(), &arguments.directory, &options)
        .with_context(|| format!("cannot mount on {directory}"))?;
    daemon::answer(mounted, arguments, signals)
}

/// Returns whether there is a snapshot of this name. Only root may list them.
fn has_snapshot(served: &Served, name: &str) -> anyhow::Result<bool> {
    let (namespace, root): (&dyn Execute, _) = (&*served.namespace, Credentials::new(0, [0]));
    match namespace.enter_snapshot(name.as_bytes(), ROOT, &root) {
        Err(error) if error.errno() == Errno::NOENT => Ok(false),
        Err(error) => Err(error).context("cannot find the snapshot"),
        Ok(_) => Ok(true),
    }
}

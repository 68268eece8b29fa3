//! `canopy mount`: an index as a read-only file system, in the foreground or by a process of its
//! own.

use crate::{daemon, mount_options};
use anyhow::{Context, bail};
use canopy::commands::mount::Arguments;
use canopy::{Invocation, Outcome};
use canopy_index::{Index, Moment};
use canopy_index_mount::{Mount, Options, Viewers};
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Where root's log is.
const LOG: &str = "/var/log/canopy-mount.log";

pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    mount_options::check(&arguments.options, &[])?;
    let indexes: Vec<Index> = invocation.open_indexes(arguments.at)?.iter().cloned().collect();
    let root = root_of(&indexes, arguments.source.as_deref())?;
    let paths = indexes.iter().map(|index| index.path().canonicalize());
    let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().context("cannot find the index")?;
    daemon::threads(arguments.threads.and_then(NonZeroUsize::new), 1)?;
    daemon::check_place(&arguments.directory, &paths)?;
    // The mount keeps this generation, whatever the time means later.
    let at = indexes.iter().map(|index| Moment::Generation(index.generation()));
    let at: Option<Vec<Moment>> = arguments.at.map(|_| at.collect());
    // It stays until then, whatever the index keeps.
    let held: Vec<File> = match at {
        Some(_) => indexes.iter().map(Index::hold).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    // Parts that only root may read are of no use to other users.
    drop(indexes);
    match arguments.foreground || arguments.detached {
        true => daemon::reporting(arguments.detached, || {
            serve(&arguments, paths, at.map(|at| (at, held)), root)
        }),
        false => daemon::detach(&log(&arguments)?),
    }
}

/// Returns the path that the root of the mount stands for.
fn root_of(indexes: &[Index], source: Option<&str>) -> anyhow::Result<PathBuf> {
    let Some(name) = source else { return Ok(PathBuf::from("/")) };
    let mut sources = indexes.iter().rev().flat_map(Index::sources);
    let found = sources.find(|source| source.name == name || source.root == name);
    let Some(found) = found else {
        let all = indexes.iter().flat_map(Index::sources).map(|source| source.name.as_str());
        bail!("there is no source '{name}'; there are: {}", Vec::from_iter(all).join(", "));
    };
    let root = canopy_model::unescape(&found.root).into_owned();
    Ok(std::ffi::OsString::from_vec(root).into())
}

/// Returns the file for later messages.
fn log(arguments: &Arguments) -> anyhow::Result<PathBuf> {
    if let Some(log) = &arguments.log {
        return Ok(log.clone());
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(LOG.into());
    }
    let variable = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    let state = state.context("neither XDG_STATE_HOME nor HOME is set; name a file with --log")?;
    let directory = state.join("canopy");
    let made = fs::create_dir_all(&directory);
    made.with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory.join("mount.log"))
}

/// Mounts indexes, or each one as it was at a moment, of a generation that is held, and answers the
/// kernel until they are unmounted.
fn serve(
    arguments: &Arguments,
    paths: Vec<PathBuf>,
    past: Option<(Vec<Moment>, Vec<File>)>,
    root: PathBuf,
) -> anyhow::Result<Outcome> {
    let directory = arguments.directory.display().to_string();
    let signals = daemon::begin(arguments.detached, &directory)?;
    let name = paths.first().cloned().unwrap_or_default();
    let is_for_all = nix::unistd::geteuid().is_root() && !arguments.private;
    let (at, _held) = past.unzip();
    let viewers = match (at, is_for_all, paths.first()) {
        // The access that others have to the past is unknown.
        (Some(at), _, _) => Viewers::Owner(Arc::new(move || {
            paths.iter().zip(&at).map(|(path, at)| Index::open_at(path, Some(*at))).collect()
        })),
        (None, true, Some(index)) => Viewers::Everybody(index.clone()),
        _ => Viewers::Owner(Arc::new(move || paths.iter().map(|path| Index::open(path)).collect())),
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let threads = daemon::threads(arguments.threads.and_then(NonZeroUsize::new), threads)?;
    let options = Options { viewers, root, name, threads };
    let mut mount = Mount::new(&arguments.directory, options)
        .with_context(|| format!("cannot mount on {directory}"))?;
    if nix::unistd::geteuid().is_root() {
        let options = [&arguments.options[..], &["nosuid", "nodev"].map(str::to_owned)].concat();
        daemon::restrict(&arguments.directory, &options)?;
    }
    daemon::unmount_on_signal(signals, mount.unmounter());
    if arguments.detached {
        daemon::report_ready();
    }
    mount.run().with_context(|| format!("the mount on {directory} failed"))?;
    Ok(Outcome::Complete)
}

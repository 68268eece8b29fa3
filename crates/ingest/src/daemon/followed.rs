//! Trees and namespaces that a daemon follows, and the sources of change events for them.

use crate::Context;
use anyhow::Context as _;
use canopy_site::{Settings, check_links, namespace_of, pruned_paths};
use canopy_watch::lustre::{ChangeLogs, Log, Mount, Options as LogOptions};
use canopy_watch::{EventFeed, Fanotify, Inotify, Intake, Territory, Unfollowed, status};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

/// A source of change events.
pub(super) enum ChangeSource {
    Fanotify(Fanotify),
    Inotify(Inotify),
    Feed(EventFeed),
    Lustre(ChangeLogs),
}

impl ChangeSource {
    pub(super) fn name(&self) -> &'static str {
        match self {
            ChangeSource::Fanotify(_) => "fanotify",
            ChangeSource::Inotify(_) => "inotify",
            ChangeSource::Feed(_) => "events",
            ChangeSource::Lustre(_) => "Lustre change logs",
        }
    }
}

/// A followed namespace, which is polled for changes.
pub(super) struct Namespace {
    /// Its path, with `ns:` in front.
    pub(super) path: PathBuf,
    /// Time of the next poll.
    pub(super) due: Instant,
    /// Polls that have failed since the last success.
    pub(super) failures: u32,
    /// Error of the last failure.
    pub(super) error: Option<String>,
    /// Start of the last poll whose changes the index has.
    pub(super) followed: Option<SystemTime>,
}

/// Change events that are not missed from now on.
#[derive(Default)]
pub(super) struct Listening {
    /// Where they come from; `None` if there is nothing to listen to.
    pub(super) source: Option<ChangeSource>,
    /// Directories that they do not report.
    pub(super) unfollowed: Vec<Unfollowed>,
    /// Whether they continue where those of the previous daemon ended.
    pub(super) goes_on: bool,
}

impl Listening {
    pub(super) fn to(source: ChangeSource, goes_on: bool) -> Self {
        Listening { source: Some(source), unfollowed: Vec::new(), goes_on }
    }
}

/// Begins to listen to change logs, if there are any, or else to the kernel. Without trees, there is
/// nothing to listen to: namespaces are asked.
pub(super) fn listen(
    lustre: &LustreLogs,
    intake: &Intake,
    has_trees: bool,
) -> anyhow::Result<Listening> {
    if !lustre.logs.is_empty() {
        let (logs, goes_on) = change_logs(lustre, intake)?;
        return Ok(Listening::to(logs, goes_on));
    }
    if !has_trees {
        return Ok(Listening::default());
    }
    let (kernel, unfollowed) = kernel(intake)?;
    Ok(Listening { source: Some(kernel), unfollowed, goes_on: false })
}

/// Subscribes to events of the kernel, by the method that the process may use.
pub(super) fn kernel(intake: &Intake) -> anyhow::Result<(ChangeSource, Vec<Unfollowed>)> {
    if let Some((group, unfollowed)) = Fanotify::begin(intake)? {
        return Ok((ChangeSource::Fanotify(group), unfollowed));
    }
    Ok((ChangeSource::Inotify(Inotify::begin(intake)?), Vec::new()))
}

/// How a Lustre file system is followed.
pub(super) struct LustreLogs {
    /// Its change logs, or none if the kernel's events are used.
    pub(super) logs: Vec<Log>,
    /// The program lfs(1), which reads and clears them.
    pub(super) lfs: PathBuf,
}

/// Begins to read the change logs of the Lustre file system that has all that is followed.
pub(super) fn change_logs(
    LustreLogs { logs, lfs }: &LustreLogs,
    intake: &Intake,
) -> anyhow::Result<(ChangeSource, bool)> {
    let find = |root: &Vec<u8>| Mount::find(Path::new(OsStr::from_bytes(root)), lfs);
    let mounts: Vec<Mount> =
        intake.territory().roots().iter().map(find).collect::<Result<_, _>>()?;
    let other = mounts.iter().find(|mount| mount.path() != mounts[0].path());
    if let Some(other) = other {
        let (one, other) = (mounts[0].path().display(), other.path().display());
        anyhow::bail!("{one} and {other} have logs of their own: follow each by itself");
    }
    let mount = mounts.into_iter().next().context("nothing is to be followed")?;
    let (logs, goes_on) = ChangeLogs::begin(Box::new(mount), logs, LogOptions::default(), intake)?;
    Ok((ChangeSource::Lustre(logs), goes_on))
}

/// Warns of the limits of inotify, which needs a watch for each directory.
pub(super) fn warn_of_watch_limits(cx: &Context<'_>, watches: &Inotify) {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    let limit = limit.as_deref().map_or("a limited number of", str::trim);
    cx.warn(format_args!(
        "following by inotify, which watches each directory by itself ({} now; each user may watch \
         {limit}, fs.inotify.max_user_watches) and does not tell of other names of a file; fanotify \
         follows whole file systems, with CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH, which root has \
         outside of containers",
        watches.directories()
    ));
}

/// Returns the real paths of the trees to follow, the namespaces, and configured trees that cannot
/// be opened: one that is not mounted keeps no other from being followed.
pub(super) fn followed(
    settings: &Settings,
    paths: &[PathBuf],
) -> anyhow::Result<(Vec<PathBuf>, Vec<Namespace>, Vec<Unfollowed>)> {
    let mut paths = paths.to_vec();
    let are_configured = paths.is_empty();
    if are_configured {
        let sources = settings.sources.iter().flatten();
        paths = sources.map(|source| source.path.clone()).collect();
    }
    anyhow::ensure!(!paths.is_empty(), "no PATH is given, and no sources are configured");
    let (trees, mut namespaces): (Vec<_>, Vec<_>) =
        paths.into_iter().partition(|path| namespace_of(path).is_none());
    let real = |path: PathBuf| {
        check_links(&path)?;
        let real =
            path.canonicalize().with_context(|| format!("cannot open {}", path.display()))?;
        anyhow::ensure!(real.is_dir(), "{} is not a directory", real.display());
        Ok(real)
    };
    let (mut roots, mut missing, count) = (Vec::new(), Vec::new(), trees.len());
    for path in trees {
        let point = path.as_os_str().as_bytes().to_vec();
        match real(path) {
            Ok(root) => roots.push(root),
            Err(error) if are_configured && missing.len() + 1 < count + namespaces.len() => {
                missing.push(Unfollowed { point, why: format!("{error:#}") });
            }
            Err(error) => return Err(error),
        }
    }
    for place in namespaces.iter().filter_map(|path| namespace_of(path)) {
        // A bucket is checked when it is asked.
        if !place.to_string_lossy().contains("s3://") {
            place.metadata().with_context(|| format!("cannot open {}", place.display()))?;
        }
    }
    namespaces.sort_unstable();
    namespaces.dedup();
    let due = Instant::now();
    let namespace = |path| Namespace { path, due, failures: 0, error: None, followed: None };
    Ok((roots, namespaces.into_iter().map(namespace).collect(), missing))
}

pub(super) fn territory(
    settings: &Settings,
    roots: &[PathBuf],
    location: &Path,
    prometheus: Option<&Path>,
) -> anyhow::Result<Territory> {
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let mut left_out = vec![bytes(location)];
    // A named source is followed, whatever is configured.
    let is_root = |path: &PathBuf| roots.iter().any(|root| root.starts_with(path));
    let pruned = pruned_paths(settings)?.into_iter().filter(|path| !is_root(path));
    left_out.extend(pruned.map(|path| bytes(&path)));
    let mut territory = Territory::new(roots.iter().map(|root| bytes(root)).collect(), left_out);
    if let Some(path) = prometheus {
        for file in status::metrics_files(&std::path::absolute(path)?) {
            let directory = file.parent().and_then(|parent| parent.canonicalize().ok());
            let place = directory.zip(file.file_name()).map(|(parent, name)| parent.join(name));
            territory.leave_out_file(bytes(&place.unwrap_or(file)));
        }
    }
    Ok(territory)
}

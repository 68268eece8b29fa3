//! Where indexes are: the one that a command writes, and those that it reads.
//!
//! What `--index`, the environment or the user's own configuration names is written and read, alone.
//! Else root writes and reads the site's index, which the site's configuration may name; users
//! write their own, which only they read, and read both.

use crate::config::settings;
use crate::outcome::{Outcome, message, warn_of_denied_list, warn_of_other_index};
use anyhow::Context;
use canopy_index::{Index, Moment, safety};
use canopy_read::locate::absolute_path;
use canopy_read::resolve::locate_all;
use canopy_tools::diff::relative;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The site's index where no configuration names one.
const SITE: &str = "/var/lib/canopy/index";

/// Returns the directory of the index that a command writes, which need not exist.
pub fn to_write(index: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(index) = index.or_else(|| settings().index.clone()) {
        return Ok(index);
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(site());
    }
    own().context("neither XDG_DATA_HOME nor HOME is set; name an index with --index")
}

/// Returns the directory of the index that a command looks at alone: the one that the caller writes,
/// if there is one, else the site's.
pub fn to_check(index: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let is_named = index.is_some() || settings().index.is_some();
    if is_named || nix::unistd::geteuid().is_root() {
        return to_write(index);
    }
    let is_there = |index: &PathBuf| index.symlink_metadata().is_ok();
    Ok(own().filter(is_there).unwrap_or_else(site))
}

/// Who brings an index up to date.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Updater {
    /// The caller writes it.
    Caller(PathBuf),
    /// It is another user's, whose daemon can be asked.
    Daemon(PathBuf),
}

/// Returns which index is brought up to date where the caller names a directory, by its real path,
/// and by whom: a user's own index, if that has a source around it, goes before the site's.
pub fn to_update(index: Option<&Path>, directory: &Path) -> anyhow::Result<Updater> {
    let caller = nix::unistd::geteuid();
    let named = index.map(Path::to_owned).or_else(|| settings().index.clone());
    if caller.is_root() {
        return Ok(Updater::Caller(to_write(named)?));
    }
    let is_there = |index: &PathBuf| canopy_index::is_there(index).unwrap_or(false);
    let of_others = |index: &PathBuf| {
        is_there(index) && index.metadata().is_ok_and(|about| about.uid() != caller.as_raw())
    };
    if let Some(index) = named {
        let is_others = of_others(&index);
        return Ok(if is_others { Updater::Daemon(index) } else { Updater::Caller(index) });
    }
    let site = Some(site()).filter(of_others);
    if let Some(own) = own().filter(is_there)
        && (site.is_none() || has_source_around(&own, directory)?)
    {
        return Ok(Updater::Caller(own));
    }
    site.map_or_else(|| Ok(Updater::Caller(to_write(None)?)), |site| Ok(Updater::Daemon(site)))
}

fn has_source_around(index: &Path, directory: &Path) -> anyhow::Result<bool> {
    let index = Index::open(index)?;
    let mut roots = index.sources().iter().map(|source| canopy_read::to_path(&source.root));
    Ok(roots.any(|root| directory.starts_with(root)))
}

/// Opens the indexes that a command reads, which are one or two: of users, their own behind the
/// site's, as far as there are any. With a moment, that alone which the user writes, as it was then.
pub fn open(index: Option<PathBuf>, at: Option<Moment>) -> anyhow::Result<Opened> {
    let only = |place: PathBuf| {
        let first = Index::open_at(&place, at)?;
        warn_of_denied_list(&first);
        Ok(Opened { first, own: None })
    };
    if let Some(index) = index.or_else(|| settings().index.clone()) {
        return only(index);
    }
    if nix::unistd::geteuid().is_root() {
        return only(site());
    }
    // A home that cannot be looked at is another's, as after sudo. A site's index that cannot be is
    // opened, so that the error says why.
    let own = own().map(|own| (canopy_index::is_there(&own).unwrap_or(false), own));
    let site = site();
    let has_site = canopy_index::is_there(&site).unwrap_or(true);
    match own {
        // The past is for those who write an index, and each has its own generations.
        Some((true, own)) if at.is_some() => only(own),
        Some((true, own)) if has_site => match (only(site), only(own)) {
            (Ok(site), Ok(own)) => Ok(Opened { own: Some(own.first), ..site }),
            (Ok(alone), Err(error)) | (Err(error), Ok(alone)) => {
                warn_of_other_index(error, &alone.first);
                Ok(alone)
            }
            (Err(error), Err(_)) => Err(error),
        },
        // Where there is neither, what is missing is one's own.
        Some((exists, own)) if exists || !has_site => only(own),
        _ => only(site),
    }
}

/// The indexes that a command reads.
pub struct Opened {
    /// The only one, or the site's.
    first: Index,
    /// The user's own beside the site's.
    own: Option<Index>,
}

impl Opened {
    /// Returns the indexes, what is the user's own last.
    pub fn iter(&self) -> impl Iterator<Item = &Index> {
        std::iter::once(&self.first).chain(&self.own)
    }

    /// Returns the one whose past the caller may read, if anybody's: the own one, if there are two.
    pub fn written(self) -> Index {
        self.own.unwrap_or(self.first)
    }

    /// Returns the site's index, where the user has another one, if it has anything at or below a
    /// path, or above it, that the other has not: of its past, this user is told nothing.
    pub fn past_denied(&self, path: &OsStr) -> Option<&Index> {
        let starts = |index: &Index| -> Vec<String> {
            let starts = locate_all(index, path).unwrap_or_default();
            starts.iter().map(|start| absolute_path(&start.source, &start.path)).collect()
        };
        let own = starts(self.own.as_ref()?);
        let has = |start: &str| own.iter().any(|own| relative(start, own).is_some());
        starts(&self.first).iter().any(|start| !has(start)).then_some(&self.first)
    }

    /// Says so, if it is so; returns whether what is told of the past is all that there is.
    pub fn warn_of_past(&self, path: &OsStr) -> Outcome {
        let Some(site) = self.past_denied(path) else { return Outcome::Complete };
        message(format_args!(
            "{}: only what your own index has of it is told; the past of the index at {} is only \
             for those who write it",
            Path::new(path).display(),
            site.path().display()
        ));
        Outcome::Partial
    }

    /// Returns them as one.
    pub fn joined(self) -> Index {
        match self.own {
            Some(own) => self.first.joined(own),
            None => self.first,
        }
    }
}

/// Returns whether this is where a user's own index is unless another place is named.
pub fn is_own_by_default(location: &Path) -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    !is_root && settings().index.is_none() && own().is_some_and(|own| own == location)
}

/// Returns whether there is a site's index.
pub fn has_site() -> bool {
    canopy_index::is_there(&site()).unwrap_or(false)
}

fn site() -> PathBuf {
    settings().site_index.clone().unwrap_or_else(|| SITE.into())
}

/// Returns where a user's own index is; `None` where there is no home, as in services.
fn own() -> Option<PathBuf> {
    let variable = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    Some(data?.join("canopy/index"))
}

/// Returns whether this is the caller or root, so that what belongs to it is as the caller wants it.
pub fn is_own_or_roots(owner: u32) -> bool {
    [0, nix::unistd::geteuid().as_raw()].contains(&owner)
}

/// Fails if a symbolic link on a path is neither root's nor the caller's.
pub fn check_links(path: &Path) -> anyhow::Result<()> {
    Ok(safety::check_links(path, nix::unistd::geteuid().as_raw())?)
}

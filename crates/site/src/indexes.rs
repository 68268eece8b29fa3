//! Where indexes are: the one that a command writes, and those that it reads.
//!
//! - An index named by `--index`, the environment or the user's own configuration is written and read
//!   alone.
//! - Otherwise root writes and reads the site's index, which the site's configuration may name.
//! - Users write their own index, which only they read, and read both.

use crate::Site;
use anyhow::Context;
use canopy_index::{Index, Moment, safety};
use canopy_model::unescape;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The site's index where no configuration names one.
const SITE: &str = "/var/lib/canopy/index";

/// The process that updates an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Updater {
    /// The caller writes it.
    Caller(PathBuf),
    /// It belongs to another user, whose daemon can be asked.
    Daemon(PathBuf),
}

/// The indexes that a command reads.
pub struct Opened {
    /// The only one, or the site's.
    pub first: Index,
    /// The user's own beside the site's.
    pub own: Option<Index>,
    /// Why one of two could not be opened: the other one answers.
    pub failed: Option<anyhow::Error>,
}

impl Opened {
    fn only(first: Index) -> Self {
        Opened { first, own: None, failed: None }
    }

    /// Returns the indexes, the user's own one last.
    pub fn iter(&self) -> impl Iterator<Item = &Index> {
        std::iter::once(&self.first).chain(&self.own)
    }

    /// Returns the one whose past the caller may read, if anybody's: the own one, if there are two.
    pub fn written(self) -> Index {
        self.own.unwrap_or(self.first)
    }

    /// Returns them as one.
    pub fn joined(self) -> Index {
        match self.own {
            Some(own) => self.first.joined(own),
            None => self.first,
        }
    }
}

impl Site {
    /// Returns the index that the caller or the configuration of the user names.
    fn named_index(&self) -> Option<PathBuf> {
        self.named.clone().or_else(|| self.settings.index.clone())
    }

    /// Returns the directory of the index that a command writes, which need not exist.
    ///
    /// # Errors
    ///
    /// If none is named and the user has no home.
    pub fn index_to_write(&self) -> anyhow::Result<PathBuf> {
        if let Some(index) = self.named_index() {
            return Ok(index);
        }
        if nix::unistd::geteuid().is_root() {
            return Ok(self.site_index());
        }
        own().context("neither XDG_DATA_HOME nor HOME is set; name an index with --index")
    }

    /// Returns the directory of the index that a command looks at alone: the one that the caller
    /// writes, if there is one, else the site's.
    ///
    /// # Errors
    ///
    /// Those of [`Site::index_to_write`].
    pub fn index_to_check(&self) -> anyhow::Result<PathBuf> {
        if self.named_index().is_some() || nix::unistd::geteuid().is_root() {
            return self.index_to_write();
        }
        let is_there = |index: &PathBuf| index.symlink_metadata().is_ok();
        Ok(own().filter(is_there).unwrap_or_else(|| self.site_index()))
    }

    /// Returns which index is brought up to date where the caller names a directory, by its real
    /// path, and by whom: a user's own index, if that has a source around it, goes before the site's.
    ///
    /// # Errors
    ///
    /// If the user's own index cannot be opened, and those of [`Site::index_to_write`].
    pub fn index_to_update(&self, directory: &Path) -> anyhow::Result<Updater> {
        let caller = nix::unistd::geteuid();
        if caller.is_root() {
            return Ok(Updater::Caller(self.index_to_write()?));
        }
        let is_there = |index: &PathBuf| canopy_index::is_there(index).unwrap_or(false);
        let of_others = |index: &PathBuf| {
            is_there(index) && index.metadata().is_ok_and(|about| about.uid() != caller.as_raw())
        };
        if let Some(index) = self.named_index() {
            let is_others = of_others(&index);
            return Ok(if is_others { Updater::Daemon(index) } else { Updater::Caller(index) });
        }
        let site = Some(self.site_index()).filter(of_others);
        if let Some(own) = own().filter(is_there)
            && (site.is_none() || has_source_around(&own, directory)?)
        {
            return Ok(Updater::Caller(own));
        }
        match site {
            Some(site) => Ok(Updater::Daemon(site)),
            None => Ok(Updater::Caller(self.index_to_write()?)),
        }
    }

    /// Opens the indexes that a command reads, which are one or two: of users, their own behind the
    /// site's, as far as there are any. With a moment, that alone which the user writes, as it was
    /// then.
    ///
    /// # Errors
    ///
    /// If none can be opened.
    pub fn open_indexes(&self, at: Option<Moment>) -> anyhow::Result<Opened> {
        let only = |place: PathBuf| Ok(Opened::only(Index::open_at(&place, at)?));
        if let Some(index) = self.named_index() {
            return only(index);
        }
        if nix::unistd::geteuid().is_root() {
            return only(self.site_index());
        }
        // A home that cannot be looked at is another's, as after sudo. A site's index that cannot be
        // is opened, so that the error says why.
        let own = own().map(|own| (canopy_index::is_there(&own).unwrap_or(false), own));
        let site = self.site_index();
        let has_site = canopy_index::is_there(&site).unwrap_or(true);
        match own {
            // The past is for those who write an index, and each has its own generations.
            Some((true, own)) if at.is_some() => only(own),
            Some((true, own)) if has_site => match (only(site), only(own)) {
                (Ok(site), Ok(own)) => Ok(Opened { own: Some(own.first), ..site }),
                (Ok(alone), Err(error)) | (Err(error), Ok(alone)) => {
                    Ok(Opened { failed: Some(error), ..alone })
                }
                (Err(error), Err(_)) => Err(error),
            },
            // Where there is neither, what is missing is one's own.
            Some((exists, own)) if exists || !has_site => only(own),
            _ => only(site),
        }
    }

    /// Returns whether this is where a user's own index is unless another place is named.
    pub fn is_own_by_default(&self, location: &Path) -> bool {
        let is_root = nix::unistd::geteuid().is_root();
        !is_root && self.settings.index.is_none() && own().is_some_and(|own| own == location)
    }

    /// Returns whether there is a site's index.
    pub fn has_site_index(&self) -> bool {
        canopy_index::is_there(&self.site_index()).unwrap_or(false)
    }

    fn site_index(&self) -> PathBuf {
        self.settings.site_index.clone().unwrap_or_else(|| SITE.into())
    }
}

fn has_source_around(index: &Path, directory: &Path) -> anyhow::Result<bool> {
    let index = Index::open(index)?;
    let is_around = |root: &str| directory.starts_with(OsStr::from_bytes(&unescape(root)));
    Ok(index.sources().iter().any(|source| is_around(&source.root)))
}

/// Returns the place of a user's own index; `None` without a home, as in services.
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

/// Checks symbolic links on a path.
///
/// # Errors
///
/// If one of them is neither root's nor the caller's.
pub fn check_links(path: &Path) -> anyhow::Result<()> {
    Ok(safety::check_links(path, nix::unistd::geteuid().as_raw())?)
}

//! Rebuilds the files that opening an index for writing depends on, if they are damaged: `CURRENT`
//! and `lock`.
//!
//! `CURRENT.copy` is written after `CURRENT`, each time. So it may be one generation behind, after a
//! crash between the two. The generation that is made current is the newest one of which all files
//! are there; the copy says when it was published, which older ones are kept, and what is leaving.
//! Where there is no copy, times of files say when, and older generations are kept that are there
//! and that nothing is about to remove.
//!
//! Nothing is removed here. `CURRENT` and `lock` are replaced by a rename.

use super::cleaning::Tree;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::journal::{self, Intent};
use crate::manifest::{self, AllManifests, Catalog, Current};
use crate::marker::{self, Marker};
use crate::names::{self, Key, Names};
use crate::retention::{KeptGeneration, Leaving, Retention};
use canopy_model::Generation;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Writes a copy of `CURRENT`, in case that it is damaged later.
pub(super) fn copy_current(disk: &Disk, index: &Path, current: &Current) -> Result<()> {
    let new = index.join("CURRENT.copy.new");
    // A loss of power may have left this file.
    disk.remove(&new)?;
    manifest::write(disk, &new, current, 0o600, false)?;
    disk.replace(&new, &names::current_copy(index))
}

/// The contents of `CURRENT`, read or rebuilt.
pub(super) struct FoundCurrent {
    pub(super) current: Current,
    /// The fault of the file, if it is damaged or missing.
    pub(super) damage: Option<Error>,
    /// Whether it is not known which older generations are to be kept.
    pub(super) guesses_retention: bool,
}

/// Reads `CURRENT`, or reconstructs its contents; `None` if nothing was ever committed.
pub(super) fn find_current(index: &Path) -> Result<Option<FoundCurrent>> {
    let damage = match manifest::read::<Current>(&names::current(index)) {
        Ok(current) => {
            return Ok(Some(FoundCurrent { current, damage: None, guesses_retention: false }));
        }
        Err(error) if error.damaged_file().is_some() => error,
        Err(error) => return Err(error),
    };
    let copy: Option<Current> = manifest::read(&names::current_copy(index)).ok();
    let there = generations(index)?;
    let is_whole = |generation: &&Generation| is_whole(index, **generation);
    let has_catalog = |generation: &&Generation| {
        manifest::read::<Catalog>(&names::catalog(index, **generation)).is_ok()
    };
    let found = there.iter().rev().find(is_whole).copied();
    let found = found.or(copy.as_ref().map(|copy| copy.generation));
    let Some(generation) = found.or_else(|| there.iter().rev().find(has_catalog).copied()) else {
        let is_missing = matches!(damage, Error::Io { .. });
        return if is_missing && there.is_empty() { Ok(None) } else { Err(damage) };
    };
    let guesses_retention = copy.is_none();
    let current = current_of(index, generation, &there, copy)?;
    Ok(Some(FoundCurrent { current, damage: Some(damage), guesses_retention }))
}

/// Replaces `CURRENT` where it is damaged or missing; returns then whether it is not known which
/// older generations are to be kept.
pub(super) fn restore_current(index: &Path, mode: u32) -> Result<Option<bool>> {
    let Some(FoundCurrent { current, damage: Some(_), guesses_retention }) = find_current(index)?
    else {
        return Ok(None);
    };
    let (disk, new) = (Disk::default(), index.join("CURRENT.new"));
    disk.remove(&new)?;
    manifest::write(&disk, &new, &current, mode, true)?;
    disk.replace(&new, &names::current(index))?;
    Ok(Some(guesses_retention))
}

/// Returns whether there is an index at a path of which something was published, though its file
/// `CURRENT` may be missing.
///
/// # Errors
/// If the path cannot be looked at.
pub fn is_there(index: &Path) -> std::io::Result<bool> {
    Ok(names::current(index).try_exists()? || was_published(index))
}

/// Returns whether a generation was published in a directory, whatever has become of `CURRENT`:
/// there is a copy of that, or a catalog that no writer was still making.
pub(crate) fn was_published(index: &Path) -> bool {
    if names::current_copy(index).symlink_metadata().is_ok() {
        return true;
    }
    let (Ok(there), Ok(left)) = (generations(index), journal::read(index)) else { return false };
    there.into_iter().rev().map(|generation| names::catalog(index, generation)).any(|catalog| {
        let is_made = |(intent, made): &(Intent, PathBuf)| {
            *intent == Intent::Make && index.join(made) == catalog
        };
        !left.intents.iter().any(is_made) && manifest::read::<Catalog>(&catalog).is_ok()
    })
}

/// Returns the error of an index whose file `lock` is damaged or missing, where something else
/// proves that it is one; the given error where nothing does.
pub(super) fn lock_error(index: &Path, error: Error) -> Error {
    let is_of_lock = match &error {
        Error::NotAnIndex(_) => true,
        Error::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    };
    let pointers = [names::current(index), names::current_copy(index)];
    let is_index = || pointers.iter().any(|path| manifest::read::<Current>(path).is_ok());
    if !is_of_lock || !is_index() {
        return error;
    }
    let lock = names::lock(index);
    let detail = match lock.symlink_metadata() {
        Ok(_) => "it does not contain the key",
        Err(_) => "it is missing",
    };
    Error::corrupt(&lock, detail)
}

/// Returns the numbers of generations of which there is a document, in ascending order.
fn generations(index: &Path) -> Result<BTreeSet<Generation>> {
    numbers(index, |name| {
        let end = name.strip_prefix("manifests-").or_else(|| name.strip_prefix("catalog-"))?;
        end.strip_suffix(".bin")?.parse().ok()
    })
}

fn numbers(
    index: &Path,
    number: impl Fn(&str) -> Option<Generation>,
) -> Result<BTreeSet<Generation>> {
    let entries = match std::fs::read_dir(index) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.map_err(Error::io("list", index))?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| number(&name)).collect())
}

/// Returns whether all files of a generation are there, for its writer and for all others.
fn is_whole(index: &Path, generation: Generation) -> bool {
    let catalog: Result<Catalog> = manifest::read(&names::catalog(index, generation));
    let Ok(catalog) = catalog else { return false };
    let names = Names::new(index, catalog.key);
    let Ok(tree) = Tree::read(&names, generation) else { return false };
    tree.all_files(&names).is_ok_and(|files| {
        files.iter().all(|file| file.symlink_metadata().is_ok_and(|about| about.is_file()))
    })
}

/// Returns the contents of `CURRENT` for the case that this generation is current.
fn current_of(
    index: &Path,
    generation: Generation,
    there: &BTreeSet<Generation>,
    copy: Option<Current>,
) -> Result<Current> {
    let leaving = numbers(index, |name| name.strip_prefix("leaving-")?.parse().ok())?;
    let leaving: Vec<Generation> =
        leaving.into_iter().rev().filter(|it| *it <= generation).collect();
    let mut removed = BTreeSet::new();
    for number in &leaving {
        let intents = journal::read_at(&names::leaving(index, *number))?.intents;
        let goes = intents.into_iter().filter(|(intent, _)| *intent == Intent::Remove);
        removed.extend(goes.map(|(_, path)| index.join(path)));
    }
    let known: Vec<KeptGeneration> = match &copy {
        Some(copy) => copy.all(),
        None => there.iter().rev().map(|it| of_times(index, *it)).collect(),
    };
    let is_kept = |older: &Generation| {
        let manifests = names::all_manifests(index, *older);
        *older < generation && manifests.symlink_metadata().is_ok() && !removed.contains(&manifests)
    };
    let kept: Vec<_> = known.iter().filter(|it| is_kept(&it.generation)).copied().collect();
    let own = known.iter().find(|known| known.generation == generation);
    let retention = match copy.as_ref().map(|copy| &copy.retention) {
        Some(retention) => retention.clone(),
        None if kept.is_empty() => Retention::default(),
        // Time to say what was meant before any of them goes.
        None => Retention::of_last(kept.len() as u64 + 100),
    };
    let listed = copy.map(|copy| copy.leaving).unwrap_or_default();
    let is_listed = |it: &Generation| listed.iter().find(|known| known.generation == *it).copied();
    let leaving = leaving.iter().map(|it| is_listed(it).unwrap_or_else(|| of_list(index, *it)));
    Ok(Current {
        generation,
        published_ns: own.map_or_else(|| of_times(index, generation), |own| *own).published_ns,
        kept,
        leaving: leaving.collect(),
        retention,
    })
}

/// Returns the time of a publication, from the times of its files.
fn of_times(index: &Path, generation: Generation) -> KeptGeneration {
    let files = [names::all_manifests(index, generation), names::catalog(index, generation)];
    let published_ns = files.iter().map(|file| written_ns(file)).max().unwrap_or(0);
    KeptGeneration { generation, published_ns }
}

/// Describes a list of leaving files.
fn of_list(index: &Path, generation: Generation) -> Leaving {
    let path = names::leaving(index, generation);
    // Their size is not known: they go with the next publication but for the first seconds.
    Leaving { generation, published_ns: written_ns(&path), bytes: 1 << 40 }
}

fn written_ns(path: &Path) -> i64 {
    path.symlink_metadata().map_or(0, |about| about.mtime() * 1_000_000_000 + about.mtime_nsec())
}

/// Locks an index. Rewrites its file `lock` if that is damaged, missing or of another index:
/// digests of listings are then made with another secret, and each listing is written again once.
///
/// Fails if nothing in the directory proves that it is an index.
pub(super) fn claim(index: &Path) -> Result<(File, Marker)> {
    let key = known_key(index);
    match marker::claim(index) {
        Ok(claimed) if key.is_none_or(|key| key == claimed.1.key) => return Ok(claimed),
        // The lock goes with what was claimed.
        Ok(_) | Err(Error::NotAnIndex(_)) => {}
        Err(error) => return Err(error),
    }
    marker::replace(index, key.ok_or_else(|| Error::NotAnIndex(index.to_owned()))?)
}

/// Returns the key of an index as its newest document has it.
fn known_key(index: &Path) -> Option<Key> {
    let there = generations(index).ok()?;
    there.into_iter().rev().find_map(|generation| {
        let all: Result<AllManifests> = manifest::read(&names::all_manifests(index, generation));
        let catalog = || manifest::read::<Catalog>(&names::catalog(index, generation));
        all.map(|all| all.key).or_else(|_| catalog().map(|catalog| catalog.key)).ok()
    })
}

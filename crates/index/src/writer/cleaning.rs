//! What may be removed: what the journal names, as far as no generation that counts refers to it.
//!
//! The journal of a run has all that the run makes and, before its generation is committed, all
//! that is obsolete then. So one rule holds for a run that succeeds, one that fails, and one that
//! is killed anywhere and whose journal the next writer finds.

use super::Writer;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::journal;
use crate::manifest::{self, AllManifests, ClassManifest, Current};
use crate::names::{self, Names};
use crate::schema::FileKind;
use crate::shard_record::ShardRecord;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

impl Writer {
    /// Writes into the journal what no generation refers to any more when the one that is being
    /// written is committed and, besides it, `kept` stays.
    pub(super) fn note_obsolete(&self, kept: Option<u64>) -> Result<()> {
        let Some(current) = &self.current else { return Ok(()) };
        let mut obsolete = HashSet::new();
        for generation in [Some(current.generation), current.previous].into_iter().flatten() {
            obsolete.extend(referenced(&self.names, generation)?);
        }
        for generation in [Some(self.generation), kept].into_iter().flatten() {
            for path in referenced(&self.names, generation)? {
                obsolete.remove(&path);
            }
        }
        for path in obsolete {
            self.options.disk.note(&path).map_err(Error::io("note the removal of", &path))?;
        }
        Ok(())
    }
}

impl Drop for Writer {
    /// Removes what nothing refers to any more: if the generation was not committed, what was made
    /// for it. What cannot be removed now is removed by the next writer.
    fn drop(&mut self) {
        if let Ok(left) = journal::read(&self.path) {
            drop(remove(&self.options.disk, &self.names, &left.paths));
        }
    }
}

/// Reads what is committed in an index, if anything is.
pub(super) fn current(index: &Path) -> Result<Option<Current>> {
    match manifest::read::<Current>(&names::current(index)) {
        Ok(current) => Ok(Some(current)),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes those of the paths below the index that no generation refers to, directories that are
/// empty then, and the journal. A path that leads through a symbolic link is left alone, and so is
/// what is neither a file nor a directory.
pub(super) fn remove(disk: &Disk, names: &Names, paths: &[PathBuf]) -> Result<()> {
    let index = names.index();
    if names::journal(index).symlink_metadata().is_err() {
        return Ok(());
    }
    let mut kept = HashSet::new();
    if let Some(current) = current(index)? {
        for generation in [Some(current.generation), current.previous].into_iter().flatten() {
            kept.extend(referenced(names, generation)?);
        }
    }
    let mut directories = BTreeSet::new();
    for below in paths {
        let path = index.join(below);
        if !kept.contains(&path) {
            disk.remove(&path)?;
            directories.extend(below.ancestors().map(Path::to_owned));
        }
    }
    remove_empty(disk, index, directories);
    disk.remove(&names::journal(index))
}

/// Removes all files of a generation that another one does not refer to. Its manifest goes last, so
/// that the next writer can go on where this one ends.
pub(super) fn give_up(disk: &Disk, names: &Names, generation: u64, kept: u64) -> Result<()> {
    let mut files = referenced(names, generation)?;
    for path in referenced(names, kept)? {
        files.remove(&path);
    }
    let last = names::all_manifests(names.index(), generation);
    files.remove(&last);
    let mut directories = BTreeSet::new();
    for path in &files {
        disk.remove(path)?;
        let below = path.strip_prefix(names.index()).unwrap_or(Path::new(""));
        directories.extend(below.ancestors().map(Path::to_owned));
    }
    remove_empty(disk, names.index(), directories);
    disk.remove(&last)
}

/// Removes those of the directories below the index that are empty, the deepest first.
fn remove_empty(disk: &Disk, index: &Path, directories: BTreeSet<PathBuf>) {
    let mut directories: Vec<PathBuf> = directories.into_iter().collect();
    directories.retain(|directory| !directory.as_os_str().is_empty());
    directories.sort_by_key(|directory| Reverse(directory.components().count()));
    directories.iter().for_each(|directory| disk.remove_empty_dir(&index.join(directory)));
}

/// Returns the paths of all files of a generation; none if it has been given up.
fn referenced(names: &Names, generation: u64) -> Result<HashSet<PathBuf>> {
    let index = names.index();
    let all_path = names::all_manifests(index, generation);
    let all: AllManifests = match manifest::read(&all_path) {
        Ok(all) => all,
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(HashSet::new());
        }
        Err(error) => return Err(error),
    };
    let mut files = HashSet::new();
    files.insert(names::catalog(index, generation));
    files.insert(all_path.clone());
    let lists = all.lists.get().map_err(|error| Error::corrupt(&all_path, error))?;
    files.extend(lists.iter().map(|list| names.list(list.principal, list.generation)));
    for ClassManifest { class, manifest, gated } in &all.classes {
        let directory = names.class(class.place);
        files.insert(names::manifest(&directory, class.manifest));
        let mut add = |directory: &Path, shard: &ShardRecord| {
            let kinds = FileKind::ALL.into_iter().filter(|&kind| shard.file(kind).is_some());
            files.extend(kinds.map(|kind| directory.join(shard.file_name(kind))));
        };
        manifest.shards.iter().for_each(|shard| add(&directory, shard));
        let in_gated = directory.join(names::GATED);
        let gated = gated.get().map_err(|error| Error::corrupt(&all_path, error))?;
        gated.iter().for_each(|shard| add(&in_gated, shard));
        let sealed = manifest.sealed.iter();
        files.extend(sealed.map(|file| directory.join(names::sealed_file(&file.id))));
        files.extend(manifest.tables.iter().map(|file| directory.join(file.file_name())));
    }
    Ok(files)
}

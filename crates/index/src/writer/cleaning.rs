//! What may be removed: what the journal names, as far as no generation that stays refers to it.
//!
//! The journal of a run has all that the run makes and, before its generation is committed, what
//! leaves with that: files to remove, and those of which older generations are kept, which are for
//! their owner alone from then on. So one rule holds for a run that succeeds, one that fails, and
//! one that is killed anywhere and whose journal the next writer finds.
//!
//! A file that has left the index never comes back, so the generations that refer to it follow each
//! other. One that is dropped has a file in common with any that stay only if it has with the next
//! newer or the next older of those: only these are read.

use super::{Writer, now_ns};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::journal::{self, Intent, Leftover};
use crate::manifest::{self, AllManifests, ClassManifest, Current};
use crate::names::{self, Names};
use crate::retention::KeptGeneration;
use crate::schema::FileKind;
use crate::shard_record::ShardRecord;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The files of a generation, and which of them are needed to read it as the writer can: all but
/// what tells others what they may read and keeps it for those who know its path.
type Files = HashMap<PathBuf, bool>;

impl Writer {
    /// Returns what `CURRENT` will say when the generation that is being written is committed now.
    pub(super) fn next_current(&self) -> Current {
        let (generation, published_ns) = (self.generation, now_ns());
        let mut all = vec![KeptGeneration { generation, published_ns }];
        all.extend(self.current.iter().flat_map(Current::all));
        let mut kept = self.keep.kept(&all);
        kept.remove(0);
        let previous = all.get(1).filter(|_| self.options.keep_previous);
        if let Some(previous) = previous.filter(|&previous| kept.first() != Some(previous)) {
            kept.insert(0, *previous);
        }
        Current { generation, published_ns, kept, keep: self.keep.clone() }
    }

    /// Writes into the journal what leaves when `next` is committed: what no generation refers to
    /// any more, and what is for the writer alone from then on.
    ///
    /// The current generation and the one before, which readers may have open, have all of their
    /// files; others only those that the writer needs.
    pub(super) fn note_leaving(&self, next: &Current) -> Result<()> {
        let Some(current) = &self.current else { return Ok(()) };
        let mut files = LastFiles { names: &self.names, last: Vec::new() };
        let previous = next.kept.first().map(|kept| kept.generation);
        let was_open = [Some(current.generation), current.kept.first().map(|kept| kept.generation)];
        for KeptGeneration { generation, .. } in current.all() {
            let stays = next.kept.iter().any(|kept| kept.generation == generation);
            let leaves_readers = was_open.contains(&Some(generation));
            if previous == Some(generation) || (stays && !leaves_readers) {
                continue;
            }
            let newer = next.all().into_iter().rfind(|kept| kept.generation > generation);
            let newer = newer.map_or(next.generation, |kept| kept.generation);
            let newer_is_open = newer == next.generation || previous == Some(newer);
            // Itself, if it stays.
            let older = next.kept.iter().find(|kept| kept.generation <= generation);
            let own = files.of(generation)?;
            let newer = files.of(newer)?;
            let older = older.map(|kept| files.of(kept.generation)).transpose()?;
            for (path, is_past) in &*own {
                let in_newer = newer.get(path).is_some_and(|&is_past| is_past || newer_is_open);
                if in_newer || !(leaves_readers || *is_past) {
                    continue;
                }
                let in_older = older.as_ref().is_some_and(|older| older.get(path) == Some(&true));
                let intent = match in_older {
                    true if leaves_readers => Intent::Close,
                    true => continue,
                    false => Intent::Remove,
                };
                self.note(intent, path)?;
            }
        }
        Ok(())
    }

    fn note(&self, intent: Intent, path: &Path) -> Result<()> {
        self.options.disk.note(intent, path).map_err(Error::io("note the removal of", path))
    }
}

/// The files of generations; keeps those of the last ones that were asked for.
struct LastFiles<'a> {
    names: &'a Names,
    last: Vec<(u64, Rc<Files>)>,
}

impl LastFiles<'_> {
    /// Returns the files of a generation.
    fn of(&mut self, generation: u64) -> Result<Rc<Files>> {
        if let Some((_, files)) = self.last.iter().find(|(known, _)| *known == generation) {
            return Ok(files.clone());
        }
        let files = Rc::new(files_of(self.names, generation)?);
        self.last.insert(0, (generation, files.clone()));
        // One that leaves, and its neighbours.
        self.last.truncate(3);
        Ok(files)
    }
}

impl Drop for Writer {
    /// Removes what nothing refers to any more: if the generation was not committed, what was made
    /// for it. What cannot be removed now is removed by the next writer.
    fn drop(&mut self) {
        if let Ok(left) = journal::read(&self.path) {
            drop(clean(&self.options.disk, &self.names, &left));
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

/// Does what a journal says is to be done once its generation is committed, or removes what was made
/// for it if it is not; then directories that are empty, and the journal. A path that leads through a
/// symbolic link is left alone, and so is what is neither a file nor a directory.
pub(super) fn clean(disk: &Disk, names: &Names, left: &Leftover) -> Result<()> {
    let index = names.index();
    if names::journal(index).symlink_metadata().is_err() {
        return Ok(());
    }
    let current = current(index)?.map(|current| current.generation);
    let in_use = match current {
        Some(current) => files_of(names, current)?,
        None => Files::new(),
    };
    let mut directories = BTreeSet::new();
    for (intent, below) in &left.intents {
        let path = index.join(below);
        match intent {
            _ if in_use.contains_key(&path) => {}
            Intent::Remove | Intent::Close if current != Some(left.generation) => {}
            Intent::Close => disk.close(&path)?,
            Intent::Make | Intent::Remove => {
                disk.remove(&path)?;
                directories.extend(below.ancestors().map(Path::to_owned));
            }
        }
    }
    remove_empty(disk, index, directories);
    disk.remove(&names::journal(index))
}

/// Removes all files of older generations that the current one does not refer to. The manifest of
/// each goes last, so that the next writer can go on where this one ends.
pub(super) fn give_up(disk: &Disk, names: &Names, current: &Current) -> Result<()> {
    let in_use = files_of(names, current.generation)?;
    let mut directories = BTreeSet::new();
    for KeptGeneration { generation, .. } in &current.kept {
        let last = names::all_manifests(names.index(), *generation);
        let mut files = files_of(names, *generation)?;
        files.retain(|path, _| *path != last && !in_use.contains_key(path));
        for path in files.keys() {
            disk.remove(path)?;
            let below = path.strip_prefix(names.index()).unwrap_or(Path::new(""));
            directories.extend(below.ancestors().map(Path::to_owned));
        }
        disk.remove(&last)?;
    }
    remove_empty(disk, names.index(), directories);
    Ok(())
}

/// Removes those of the directories below the index that are empty, the deepest first.
fn remove_empty(disk: &Disk, index: &Path, directories: BTreeSet<PathBuf>) {
    let mut directories: Vec<PathBuf> = directories.into_iter().collect();
    directories.retain(|directory| !directory.as_os_str().is_empty());
    directories.sort_by_key(|directory| Reverse(directory.components().count()));
    directories.iter().for_each(|directory| disk.remove_empty_dir(&index.join(directory)));
}

/// Returns the files of a generation; none if it has been given up.
fn files_of(names: &Names, generation: u64) -> Result<Files> {
    let index = names.index();
    let all_path = names::all_manifests(index, generation);
    let all: AllManifests = match manifest::read(&all_path) {
        Ok(all) => all,
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Files::new());
        }
        Err(error) => return Err(error),
    };
    let mut files = Files::new();
    files.insert(names::catalog(index, generation), false);
    files.insert(all_path.clone(), true);
    let lists = all.lists.get().map_err(|error| Error::corrupt(&all_path, error))?;
    files.extend(lists.iter().map(|list| (names.list(list.principal, list.generation), false)));
    for ClassManifest { class, manifest, gated } in &all.classes {
        let directory = names.class(class.place);
        files.insert(names::manifest(&directory, class.manifest), false);
        let mut add = |directory: &Path, shard: &ShardRecord, is_past| {
            let kinds = FileKind::ALL.into_iter().filter(|&kind| shard.file(kind).is_some());
            files.extend(kinds.map(|kind| (directory.join(shard.file_name(kind)), is_past)));
        };
        manifest.shards.iter().for_each(|shard| add(&directory, shard, true));
        let in_gated = directory.join(names::GATED);
        let gated = gated.get().map_err(|error| Error::corrupt(&all_path, error))?;
        gated.iter().for_each(|shard| add(&in_gated, shard, false));
        let sealed = manifest.sealed.iter();
        files.extend(sealed.map(|file| (directory.join(names::sealed_file(&file.id)), false)));
        let tables = manifest.tables.iter();
        files.extend(tables.map(|file| (directory.join(file.file_name()), true)));
    }
    Ok(files)
}

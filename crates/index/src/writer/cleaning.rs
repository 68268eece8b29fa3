//! What may be removed: what the journal names, as far as the current generation does not refer to
//! it.
//!
//! The journal of a run has all that the run makes and, before its generation is committed, what
//! goes with that. So one rule holds for a run that succeeds, one that fails, and one that is killed
//! anywhere and whose journal the next writer finds.
//!
//! What a generation needs no more is named in `leaving-GENERATION` first and goes with a later
//! publication, so that whoever has opened an older generation can read it to its end. Files of
//! older generations that are kept become those of their owner alone then.
//!
//! A file that has left the index never comes back, so the generations that refer to it follow each
//! other. One that is dropped has a file in common with any that stay only if it has with the next
//! newer or the next older of those: only these are read. One whose manifests are damaged or missing
//! needs nothing any more, and is passed over.

use super::{Writer, now_ns};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::journal::{self, Intent, Leftover};
use crate::manifest::{self, AllManifests, ClassManifest, Current, Manifest};
use crate::names::{self, Names};
use crate::retention::{KeptGeneration, Leaving};
use crate::schema::FileKind;
use crate::shard_record::ShardRecord;
use crate::unfinished;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The files of a generation, each with whether it is needed to read the generation as the writer
/// can: all are but those that tell others what they may read, or keep it for those who know its
/// path.
pub(super) type Files = HashMap<PathBuf, bool>;

const MEBIBYTE: u64 = 1 << 20;

impl Writer {
    /// Returns what `CURRENT` says when the generation that is being written, with these files, is
    /// committed now. Takes note of what goes then, and of what goes later.
    pub(super) fn leave(&self, files: &Files) -> Result<Current> {
        let (generation, published_ns) = (self.generation, now_ns());
        let mut all = vec![KeptGeneration { generation, published_ns }];
        all.extend(self.current.iter().flat_map(Current::all));
        let mut kept = self.retention.kept(&all);
        kept.remove(0);
        let retention = self.retention.clone();
        let mut next = Current { generation, published_ns, kept, leaving: Vec::new(), retention };
        let intents = self.leaving(&next, files)?;
        let disk = &self.options.disk;
        let mut waiting = Vec::new();
        match self.options.keep_replaced {
            true if !intents.is_empty() => {
                let bytes = intents.keys().filter_map(|path| path.symlink_metadata().ok());
                let bytes: u64 = bytes.map(|metadata| metadata.len()).sum();
                let path = names::leaving(&self.path, generation);
                let mut file = disk.create(&path, 0o600)?;
                let text = journal::encode(&self.path, generation, &intents);
                file.write_all(&text).map_err(Error::io("write", &path))?;
                file.finish(false)?;
                // Everybody may read it, and should not learn how much others have changed.
                let bytes = bytes & !(MEBIBYTE - 1);
                waiting.push(Leaving { generation, published_ns, bytes });
            }
            true => {}
            false => self.note(&intents)?,
        }
        waiting.extend(self.current.iter().flat_map(|current| &current.leaving).copied());
        next.leaving = waiting;
        Ok(next)
    }

    /// Returns what is to be done with files that no generation needs any more, or only an older one
    /// that is kept, once `next` is committed, the files of which are `files`.
    fn leaving(&self, next: &Current, files: &Files) -> Result<BTreeMap<PathBuf, Intent>> {
        let mut leaving = BTreeMap::new();
        let Some(current) = &self.current else { return Ok(leaving) };
        let mut known = LastFiles { names: &self.names, last: Vec::new() };
        let older = |generation| {
            next.kept.iter().map(|kept| kept.generation).filter(move |&kept| kept < generation)
        };
        let stays = |generation| next.kept.iter().any(|kept| kept.generation == generation);
        let is_kept = stays(current.generation);
        let before = match is_kept {
            true => Rc::default(),
            false => known.of_first(older(current.generation))?.unwrap_or_default(),
        };
        for (path, &is_past) in &self.current_files {
            if files.contains_key(path) {
                continue;
            }
            let needed = is_past && (is_kept || before.get(path) == Some(&true));
            leaving.insert(path.clone(), if needed { Intent::Close } else { Intent::Remove });
        }
        drop(before);
        for &KeptGeneration { generation, .. } in &current.kept {
            if stays(generation) {
                continue;
            }
            let Some(in_own) = known.of(generation)? else {
                // What else it had is not known.
                leaving.insert(names::catalog(&self.path, generation), Intent::Remove);
                leaving.insert(names::all_manifests(&self.path, generation), Intent::Remove);
                continue;
            };
            let newer = next.kept.iter().rev().map(|kept| kept.generation);
            let in_newer = known.of_first(newer.filter(|&kept| kept > generation))?;
            let before = known.of_first(older(generation))?.unwrap_or_default();
            for (path, _) in in_own.iter().filter(|(_, is_past)| **is_past) {
                let stays = match &in_newer {
                    Some(in_newer) => in_newer.get(path) == Some(&true),
                    None => files.contains_key(path),
                };
                if !stays && before.get(path) != Some(&true) {
                    leaving.insert(path.clone(), Intent::Remove);
                }
            }
        }
        Ok(leaving)
    }

    fn note(&self, intents: &BTreeMap<PathBuf, Intent>) -> Result<()> {
        let disk = &self.options.disk;
        intents.iter().try_for_each(|(path, &intent)| {
            disk.note(intent, path).map_err(Error::io("note the removal of", path))
        })
    }
}

/// The files of generations, `None` of those that cannot be read any more; keeps those of the last
/// ones that were asked for.
struct LastFiles<'a> {
    names: &'a Names,
    last: Vec<(u64, Option<Rc<Files>>)>,
}

impl LastFiles<'_> {
    /// Returns the files of the first generation that can be read.
    fn of_first(&mut self, generations: impl Iterator<Item = u64>) -> Result<Option<Rc<Files>>> {
        for generation in generations {
            if let Some(files) = self.of(generation)? {
                return Ok(Some(files));
            }
        }
        Ok(None)
    }

    fn of(&mut self, generation: u64) -> Result<Option<Rc<Files>>> {
        if let Some((_, files)) = self.last.iter().find(|(known, _)| *known == generation) {
            return Ok(files.clone());
        }
        let files = match files_of(self.names, generation) {
            Ok(files) => Some(Rc::new(files)),
            Err(Error::Corrupt { .. }) => None,
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        self.last.insert(0, (generation, files.clone()));
        // One that is dropped, and its neighbours.
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
        if let Ok(current) = current(&self.path)
            && unfinished::is_there(&self.path)
            && unfinished::files(&self.path, current.map_or(0, |it| it.generation)).is_none()
        {
            drop(forget_unfinished(&self.options.disk, &self.names));
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
    let current = current(index)?;
    let mut in_use = Files::new();
    if let Some(current) = &current {
        in_use = files_of(names, current.generation)?;
        let lists = current.leaving.iter();
        in_use.extend(lists.map(|left| (names::leaving(index, left.generation), false)));
    }
    let committed = current.as_ref().map_or(0, |current| current.generation);
    let unfinished = unfinished::files(index, committed).into_iter().flatten();
    in_use.extend(unfinished.map(|below| (index.join(below), false)));
    let is_committed = current.is_some_and(|current| current.generation == left.generation);
    let mut directories = BTreeSet::new();
    for (intent, below) in &left.intents {
        if is_committed || *intent == Intent::Make {
            perform(disk, index, (*intent, below), &in_use, &mut directories)?;
        }
    }
    remove_empty(disk, index, directories);
    disk.remove(&names::journal(index))
}

/// Removes what there is of a scan that has not come to its end, but for what is current.
pub(super) fn forget_unfinished(disk: &Disk, names: &Names) -> Result<()> {
    let index = names.index();
    let in_use = match current(index)? {
        Some(current) => files_of(names, current.generation)?,
        None => Files::new(),
    };
    // First, so that it never names what is gone.
    disk.remove(&names::unfinished(index))?;
    let list = names::unfinished_files(index);
    let mut directories = BTreeSet::new();
    for (intent, below) in journal::read_at(&list)?.intents {
        perform(disk, index, (intent, &below), &in_use, &mut directories)?;
    }
    remove_empty(disk, index, directories);
    disk.remove(&list)
}

/// Does what waited for readers of older generations to end: what the lists of the oldest
/// publications name, of which so many are left.
pub(super) fn let_go(
    disk: &Disk,
    names: &Names,
    current: &mut Current,
    staying: usize,
) -> Result<()> {
    let index = names.index();
    let due = current.leaving.split_off(staying.min(current.leaving.len()));
    if due.is_empty() {
        return Ok(());
    }
    let in_use = files_of(names, current.generation)?;
    let mut directories = BTreeSet::new();
    for Leaving { generation, .. } in due.iter().rev() {
        let path = names::leaving(index, *generation);
        for (intent, below) in journal::read_at(&path)?.intents {
            perform(disk, index, (intent, &below), &in_use, &mut directories)?;
        }
        // Last, so that the next writer can go on where this one ends.
        disk.remove(&path)?;
    }
    remove_empty(disk, index, directories);
    Ok(())
}

/// Removes or closes a file below an index, unless it is in use.
fn perform(
    disk: &Disk,
    index: &Path,
    (intent, below): (Intent, &Path),
    in_use: &Files,
    directories: &mut BTreeSet<PathBuf>,
) -> Result<()> {
    let path = index.join(below);
    if in_use.contains_key(&path) {
        return Ok(());
    }
    if intent == Intent::Close {
        return disk.close(&path);
    }
    disk.remove(&path)?;
    directories.extend(below.ancestors().map(Path::to_owned));
    Ok(())
}

/// Removes those of the directories below the index that are empty, the deepest first.
fn remove_empty(disk: &Disk, index: &Path, directories: BTreeSet<PathBuf>) {
    let mut directories: Vec<PathBuf> = directories.into_iter().collect();
    directories.retain(|directory| !directory.as_os_str().is_empty());
    directories.sort_by_key(|directory| Reverse(directory.components().count()));
    directories.iter().for_each(|directory| disk.remove_empty_dir(&index.join(directory)));
}

/// Returns the files of a generation.
fn files_of(names: &Names, generation: u64) -> Result<Files> {
    let path = names::all_manifests(names.index(), generation);
    files_in(names, generation, &manifest::read(&path)?)
}

/// Returns the files of a generation with these manifests.
pub(super) fn files_in(names: &Names, generation: u64, all: &AllManifests) -> Result<Files> {
    let index = names.index();
    let all_path = names::all_manifests(index, generation);
    let corrupt = |error| Error::corrupt(&all_path, error);
    let mut files = Files::new();
    files.insert(names::catalog(index, generation), false);
    files.insert(all_path.clone(), true);
    let lists = all.lists.get().map_err(corrupt)?;
    files.extend(lists.iter().map(|list| (names.list(list.principal, list.generation), false)));
    for ClassManifest { class, manifest, gated } in &all.classes {
        let directory = names.class(class.place);
        files.insert(names::manifest(&directory, class.manifest), false);
        let gated = gated.get().map_err(corrupt)?;
        let all = data_files(&directory, manifest, gated);
        files.extend(all.into_iter().map(|(path, _, is_past)| (path, is_past)));
    }
    Ok(files)
}

/// Returns the files that a class has besides its manifest, each with its size in bytes and whether
/// it is needed to read the generation as the writer can.
pub(super) fn data_files(
    directory: &Path,
    manifest: &Manifest,
    gated: &[ShardRecord],
) -> Vec<(PathBuf, u64, bool)> {
    let mut files = Vec::new();
    let mut add = |directory: &Path, shard: &ShardRecord, is_past| {
        let kinds = FileKind::ALL.into_iter().filter_map(|kind| Some((kind, shard.file(kind)?)));
        files.extend(
            kinds.map(|(kind, file)| (directory.join(shard.file_name(kind)), file.bytes, is_past)),
        );
    };
    manifest.shards.iter().for_each(|shard| add(directory, shard, true));
    let in_gated = directory.join(names::GATED);
    gated.iter().for_each(|shard| add(&in_gated, shard, false));
    let sealed = manifest.sealed.iter();
    files.extend(
        sealed.map(|file| (directory.join(names::sealed_file(&file.id)), file.bytes, false)),
    );
    let tables = manifest.tables.iter();
    files.extend(tables.map(|file| (directory.join(file.file_name()), file.file.bytes, true)));
    files
}

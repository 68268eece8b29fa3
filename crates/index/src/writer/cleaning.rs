//! Removal of files: those that the journal names, as far as the current generation does not refer
//! to them.
//!
//! The journal of a run names all files that the run makes and, before its generation is committed,
//! the files that go with that. So one rule holds for a run that succeeds, one that fails, and one
//! that is killed anywhere and whose journal the next writer finds.
//!
//! Files that a generation no longer needs are named in `leaving-GENERATION` first and go with a
//! later publication. So a process that has opened an older generation can read it to its end.
//! Files of older generations that are kept are then restricted to their owner.
//!
//! A file that has left the index never comes back, so the generations that refer to it follow each
//! other. A dropped generation shares a file with any that stay only if it shares it with the next
//! newer or the next older of those: only these are read. A generation whose manifests are damaged
//! or missing needs nothing any more, and is passed over.
//!
//! Generations are compared as trees: classes with equal manifests, and shared pages, are not read.

use super::pages::ReadPages;
use super::{Writer, now_ns};
use crate::bundles::{self, BundleId, BundleRecord};
use crate::class_lists::ListRecord;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::journal::{self, Intent, Leftover};
use crate::manifest::{self, AllManifests, ClassManifest, Current, Manifest, ShardSet};
use crate::names::{self, ClassPlace, Names};
use crate::pages::{PageId, PageRecord};
use crate::retention::{KeptGeneration, Leaving};
use crate::schema::FileKind;
use crate::shard::ClassDir;
use crate::shard_record::ShardRecord;
use crate::unfinished;
use crate::workers;
use canopy_model::Generation;
use rustc_hash::FxHashMap;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Files of a generation, each with whether the writer needs it to read the generation. The writer
/// needs all, except files that show others what they may read, or keep it for those who know its
/// path.
pub(super) type Files = HashMap<PathBuf, bool>;

/// Files that a generation consists of.
#[derive(Default)]
pub(super) struct Tree {
    generation: Generation,
    bundles: Vec<BundleId>,
    lists: Vec<ListRecord>,
    classes: FxHashMap<ClassPlace, ClassFiles>,
}

/// Files that the manifest of a class names.
struct ClassFiles {
    /// The generation of the manifest.
    manifest: Generation,
    /// Pages of shards.
    pages: Vec<Arc<PageRecord>>,
    /// Pages of shards that only sealed records name.
    gated: Vec<Arc<PageRecord>>,
    /// Names of other files, each with whether it is needed to read the generation as the writer
    /// can.
    others: Vec<(String, bool)>,
}

const MEBIBYTE: u64 = 1 << 20;

impl Writer {
    /// Returns what `CURRENT` says when the generation that is being written, which consists of this,
    /// is committed now. Takes note of what goes then, and of what goes later.
    pub(super) fn leave(&self, tree: &Tree) -> Result<Current> {
        let (generation, published_ns) = (self.generation, now_ns());
        let mut all = vec![KeptGeneration { generation, published_ns }];
        let there = self.current.iter().flat_map(Current::all);
        all.extend(there.filter(|known| !self.lost.contains(&known.generation)));
        let kept = self.retention.kept(&all);
        let stays =
            |known: &KeptGeneration| kept.contains(known) || is_held(&self.path, known.generation);
        let kept = all[1..].iter().filter(|known| stays(known)).copied().collect();
        let retention = self.retention.clone();
        let mut next = Current { generation, published_ns, kept, leaving: Vec::new(), retention };
        let intents = self.leaving(&next, tree)?;
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
    /// that is kept, once `next` is committed, which consists of `tree`.
    fn leaving(&self, next: &Current, tree: &Tree) -> Result<BTreeMap<PathBuf, Intent>> {
        let mut leaving = BTreeMap::new();
        let Some(current) = &self.current else { return Ok(leaving) };
        let (names, pages) = (&self.names, &self.read_pages);
        let mut known = LastTrees { names, last: Vec::new() };
        let older = |generation| {
            next.kept.iter().map(|kept| kept.generation).filter(move |&kept| kept < generation)
        };
        let stays = |generation| next.kept.iter().any(|kept| kept.generation == generation);
        let is_kept = stays(current.generation);
        let gone = self.current_tree.without(Some(tree), names, pages)?;
        let before = match is_kept {
            true => None,
            false => known.of_first(older(current.generation))?,
        };
        let not_before = match &before {
            Some(before) => Some(self.current_tree.without(Some(before), names, pages)?),
            None => None,
        };
        for (path, is_past) in gone {
            let is_before = not_before.as_ref().is_some_and(|gone| !gone.contains_key(&path));
            let needed = is_past && (is_kept || is_before);
            leaving.insert(path, if needed { Intent::Close } else { Intent::Remove });
        }
        for &KeptGeneration { generation, .. } in &current.kept {
            if stays(generation) {
                continue;
            }
            let newer = next.kept.iter().rev().map(|kept| kept.generation);
            let newer = known.of_first(newer.filter(|&kept| kept > generation))?;
            let before = known.of_first(older(generation))?;
            let own = known.of(generation)?;
            let gone = own.as_ref().map(|own| -> Result<Files> {
                let mut gone = own.without(Some(newer.as_deref().unwrap_or(tree)), names, pages)?;
                if let Some(before) = &before {
                    let not_before = own.without(Some(before), names, pages)?;
                    gone.retain(|path, _| not_before.contains_key(path));
                }
                Ok(gone)
            });
            match gone.transpose() {
                Ok(Some(gone)) => {
                    let past = gone.into_iter().filter(|(_, is_past)| *is_past);
                    leaving.extend(past.map(|(path, _)| (path, Intent::Remove)));
                }
                Err(error) if error.damaged_file().is_none() => return Err(error),
                // Its other files are not known.
                Ok(None) | Err(_) => {
                    leaving.insert(names::catalog(&self.path, generation), Intent::Remove);
                    leaving.insert(names::all_manifests(&self.path, generation), Intent::Remove);
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

/// Returns whether somebody has a generation stay ([`crate::Index::hold`]).
fn is_held(index: &Path, generation: Generation) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(names::all_manifests(index, generation), flags, Mode::empty());
    file.is_ok_and(|file| {
        rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
    })
}

/// Cache of the trees of generations used last; `None` for generations that cannot be read any
/// more.
struct LastTrees<'a> {
    names: &'a Names,
    last: Vec<(Generation, Option<Rc<Tree>>)>,
}

impl LastTrees<'_> {
    /// Returns the first generation that can be read.
    fn of_first(
        &mut self,
        generations: impl Iterator<Item = Generation>,
    ) -> Result<Option<Rc<Tree>>> {
        for generation in generations {
            if let Some(tree) = self.of(generation)? {
                return Ok(Some(tree));
            }
        }
        Ok(None)
    }

    fn of(&mut self, generation: Generation) -> Result<Option<Rc<Tree>>> {
        if let Some((_, tree)) = self.last.iter().find(|(known, _)| *known == generation) {
            return Ok(tree.clone());
        }
        let tree = match Tree::read(self.names, generation) {
            Ok(tree) => Some(Rc::new(tree)),
            Err(error) if error.damaged_file().is_some() => None,
            Err(error) => return Err(error),
        };
        self.last.insert(0, (generation, tree.clone()));
        // One that is dropped, and its neighbours.
        self.last.truncate(3);
        Ok(tree)
    }
}

impl Drop for Writer {
    /// Removes unreferenced files: if the generation was not committed, those made for it. Files
    /// that cannot be removed now are removed by the next writer.
    fn drop(&mut self) {
        // A worker's files are for the publisher. A publisher that was replaced leaves its files to
        // the next one, which has its own journal.
        if self.is_workers || self.publisher.as_ref().is_some_and(|path| !path.exists()) {
            return;
        }
        if let Ok(left) = journal::read(&self.path) {
            drop(clean(&self.options.disk, &self.names, &left, &self.current_tree));
        }
        if let Ok(current) = current(&self.path)
            && unfinished::is_there(&self.path)
            && unfinished::files(&self.path, current.map_or(Generation::NONE, |it| it.generation))
                .is_none()
        {
            drop(forget_unfinished(&self.options.disk, &self.names, &self.current_tree));
        }
        if self.publisher.is_some() && self.is_over() {
            drop(forget_workers(&self.options.disk, &self.names, &self.current_tree));
        }
    }
}

impl Writer {
    /// Returns whether what workers shared is over, since something was published.
    fn is_over(&self) -> bool {
        let current = current(&self.path)
            .ok()
            .flatten()
            .map_or(Generation::NONE, |current| current.generation);
        workers::state(&self.path, current) == Some(false)
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
/// for it if it is not; then directories that are empty, and the journal. `known` is a generation,
/// which need not be the current one, as in all of these functions. A path that leads through a
/// symbolic link is left alone, and so is what is neither a file nor a directory.
pub(super) fn clean(disk: &Disk, names: &Names, left: &Leftover, known: &Tree) -> Result<()> {
    let index = names.index();
    if names::journal(index).symlink_metadata().is_err() {
        return Ok(());
    }
    let current = current(index)?;
    let mut in_use = Files::new();
    if let Some(current) = &current {
        let is_made = |intent: &Intent| *intent == Intent::Make;
        let made = left.intents.iter().filter(|(intent, _)| is_made(intent));
        let since = made.filter_map(|(_, path)| names::generation_of(path)).min();
        in_use = files_among(names, current.generation, known, &left.intents, since)?;
        let lists = current.leaving.iter();
        in_use.extend(lists.map(|left| (names::leaving(index, left.generation), false)));
    }
    let committed = current.as_ref().map_or(Generation::NONE, |current| current.generation);
    let unfinished = unfinished::files(index, committed).into_iter().flatten();
    in_use.extend(unfinished.map(|below| (index.join(below), false)));
    let is_committed = current.is_some_and(|current| current.generation == left.generation);
    let mut directories = BTreeSet::new();
    for (intent, below) in &left.intents {
        if is_committed || *intent == Intent::Make {
            perform(disk, index, *intent, below, &in_use, &mut directories)?;
        }
    }
    remove_empty(disk, index, directories);
    disk.remove(&names::journal(index))
}

/// Removes what there is of a scan that has not come to its end, but for what is current.
pub(super) fn forget_unfinished(disk: &Disk, names: &Names, known: &Tree) -> Result<()> {
    let index = names.index();
    let list = names::unfinished_files(index);
    let intents = journal::read_at(&list)?.intents;
    // First, so that it never names what is gone.
    disk.remove(&names::unfinished(index))?;
    remove_unused(disk, names, &intents, known)?;
    disk.remove(&list)
}

/// Removes what there is of a scan that workers share, but for what is current. Those who still live
/// find their directories gone.
pub(super) fn forget_workers(disk: &Disk, names: &Names, known: &Tree) -> Result<()> {
    let index = names.index();
    let intents = workers::take_away(index)?;
    remove_unused(disk, names, &intents, known)?;
    workers::remove(disk, index)
}

/// Removes what was made and is not current.
#[inline(never)]
fn remove_unused(
    disk: &Disk,
    names: &Names,
    intents: &[(Intent, PathBuf)],
    known: &Tree,
) -> Result<()> {
    let index = names.index();
    let in_use = match current(index)? {
        Some(current) => {
            let since = intents.iter().filter_map(|(_, path)| names::generation_of(path)).min();
            files_among(names, current.generation, known, intents, since)?
        }
        None => Files::new(),
    };
    let mut directories = BTreeSet::new();
    for (intent, below) in intents {
        perform(disk, index, *intent, below, &in_use, &mut directories)?;
    }
    remove_empty(disk, index, directories);
    Ok(())
}

/// Does what waited for readers of older generations to end: what the lists of the oldest
/// publications name, of which so many are left.
pub(super) fn let_go(
    disk: &Disk,
    names: &Names,
    current: &mut Current,
    known: &Tree,
    staying: usize,
) -> Result<()> {
    let index = names.index();
    let due = current.leaving.split_off(staying.min(current.leaving.len()));
    if due.is_empty() {
        return Ok(());
    }
    for Leaving { generation, .. } in due.iter().rev() {
        let path = names::leaving(index, *generation);
        let intents = journal::read_at(&path)?.intents;
        // Shards that have left never come back.
        let in_use = files_among(names, current.generation, known, &intents, None)?;
        let mut directories = BTreeSet::new();
        for (intent, below) in &intents {
            perform(disk, index, *intent, below, &in_use, &mut directories)?;
        }
        remove_empty(disk, index, directories);
        // Last, so that the next writer can go on where this one ends.
        disk.remove(&path)?;
    }
    Ok(())
}

/// Removes or closes a file below an index, unless it is in use.
fn perform(
    disk: &Disk,
    index: &Path,
    intent: Intent,
    below: &Path,
    in_use: &Files,
    directories: &mut BTreeSet<PathBuf>,
) -> Result<()> {
    let path = index.join(below);
    let directory = path.parent();
    if in_use.contains_key(&path) || directory.is_some_and(|it| in_use.contains_key(it)) {
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

/// Returns the files of a generation in the directories that some intents are for; of shards only
/// those of pages of a generation from `since` on, if any: a page has no shard of a later generation
/// than its own. Where such a page is damaged or missing, its directory stands for all that is in it.
fn files_among(
    names: &Names,
    generation: Generation,
    known: &Tree,
    intents: &[(Intent, PathBuf)],
    since: Option<Generation>,
) -> Result<Files> {
    let read;
    let tree = match known.generation == generation {
        true => known,
        false => {
            read = Tree::read(names, generation)?;
            &read
        }
    };
    let directories: HashSet<&Path> =
        intents.iter().flat_map(|(_, path)| path.ancestors().skip(1)).collect();
    let asked = FileFilter {
        class: &|directory| {
            directory.strip_prefix(names.index()).is_ok_and(|below| directories.contains(below))
        },
        page: &|page| since.is_some_and(|since| page.id.generation >= since),
    };
    let (mut files, lost) = tree.files(None, names, &ReadPages::default(), &asked)?;
    // Whatever is there may be in use.
    files.extend(lost.into_iter().map(|directory| (directory, false)));
    Ok(files)
}

/// Selects files of a generation.
struct FileFilter<'a> {
    /// Those in these directories of classes.
    class: &'a dyn Fn(&Path) -> bool,
    /// Shards of these pages.
    page: &'a dyn Fn(&PageRecord) -> bool,
}

impl Tree {
    /// Describes a generation with these lists of classes and manifests.
    pub(super) fn of(
        generation: Generation,
        lists: &[ListRecord],
        classes: &[ClassManifest],
    ) -> Self {
        let files = |ClassManifest { class, manifest, gated, .. }: &ClassManifest| {
            let sealed = manifest.sealed.iter().map(|file| (names::sealed_file(&file.id), false));
            let tables = manifest.tables.iter().map(|file| (file.file_name(), true));
            let files = ClassFiles {
                manifest: class.manifest,
                pages: manifest.shards.pages.clone(),
                gated: gated.pages.clone(),
                others: sealed.chain(tables).collect(),
            };
            (class.place, files)
        };
        Tree {
            generation,
            bundles: Vec::new(),
            lists: lists.to_vec(),
            classes: classes.iter().map(files).collect(),
        }
    }

    /// Reads the one of a generation.
    pub(super) fn read(names: &Names, generation: Generation) -> Result<Self> {
        let path = names::all_manifests(names.index(), generation);
        let all: AllManifests = manifest::read(&path)?;
        let lists = all.lists.get().map_err(|error| Error::corrupt(&path, error))?;
        let (_, classes) = bundles::read_all(names.index(), &all.bundles)?;
        Ok(Tree::of(generation, lists, &classes).with_bundles(&all.bundles))
    }

    /// Adds the bundles that the manifests are in.
    pub(super) fn with_bundles(mut self, bundles: &[BundleRecord]) -> Self {
        self.bundles = bundles.iter().map(|bundle| bundle.id).collect();
        self
    }

    /// Returns the files of a generation that another one does not have, as far as known. Shards of
    /// damaged or missing pages are left out; if the other one has such a page, so are shards of
    /// that class.
    fn without(&self, other: Option<&Tree>, names: &Names, pages: &ReadPages) -> Result<Files> {
        let all = FileFilter { class: &|_| true, page: &|_| true };
        self.files(other, names, pages, &all).map(|(files, _)| files)
    }

    /// Returns all files of the generation; fails if a page is damaged or missing.
    pub(super) fn all_files(&self, names: &Names) -> Result<Vec<PathBuf>> {
        let all = FileFilter { class: &|_| true, page: &|_| true };
        let (files, lost) = self.files(None, names, &ReadPages::default(), &all)?;
        match lost.first() {
            Some(lost) => Err(Error::corrupt(lost, "it has a page that is damaged or missing")),
            None => Ok(files.into_keys().collect()),
        }
    }

    /// As [`Tree::without`], but only what is asked for. Returns also the directories with pages
    /// that are damaged or missing.
    fn files(
        &self,
        other: Option<&Tree>,
        names: &Names,
        pages: &ReadPages,
        asked: &FileFilter<'_>,
    ) -> Result<(Files, Vec<PathBuf>)> {
        let index = names.index();
        let (mut files, mut lost) = (Files::new(), Vec::new());
        if other.is_none_or(|other| other.generation != self.generation) {
            files.insert(names::catalog(index, self.generation), false);
            files.insert(names::all_manifests(index, self.generation), true);
        }
        let known: HashSet<_> = other.iter().flat_map(|other| &other.bundles).collect();
        let bundles = self.bundles.iter().filter(|bundle| !known.contains(bundle));
        files.extend(bundles.map(|bundle| (bundle.path(index), true)));
        let known: HashSet<_> = other.iter().flat_map(|other| &other.lists).collect();
        let lists = self.lists.iter().filter(|list| !known.contains(list));
        files.extend(lists.map(|list| (names.list(list.principal, list.generation), false)));
        for (&place, class) in &self.classes {
            let other = other.and_then(|other| other.classes.get(&place));
            if other.is_some_and(|other| other.manifest == class.manifest) {
                continue;
            }
            let directory = names.class(place);
            if !(asked.class)(&directory) {
                continue;
            }
            files.insert(names::manifest(&directory, class.manifest), false);
            let others = class.others.iter();
            let is_new = |file| other.is_none_or(|other| !other.others.contains(file));
            let others = others.filter(|file| is_new(file));
            files.extend(others.map(|(name, is_past)| (directory.join(name), *is_past)));
            let gated = directory.join(names::GATED);
            for (directory, own, other, is_past) in [
                (directory, &class.pages, other.map(|other| &other.pages), true),
                (gated, &class.gated, other.map(|other| &other.gated), false),
            ] {
                let at = directory.clone();
                let place = Arc::new(ClassDir::new(|| at));
                let other = other.map_or(&[][..], Vec::as_slice);
                let alone = |pages: &[Arc<PageRecord>], others: &[Arc<PageRecord>]| {
                    let others: HashSet<PageId> = others.iter().map(|page| page.id).collect();
                    let alone = pages.iter().filter(|page| !others.contains(&page.id));
                    alone.cloned().collect::<Vec<_>>()
                };
                let mut read = |page: &PageRecord| match pages.of(&place, page) {
                    Ok(shards) => Ok(Some(shards)),
                    Err(error) if error.damaged_file().is_some() => {
                        lost.push(directory.clone());
                        Ok(None)
                    }
                    Err(error) => Err(error),
                };
                let mut stay = Some(HashSet::new());
                for page in alone(other, own) {
                    let shards = read(&page)?;
                    stay = stay.zip(shards).map(|(mut stay, shards)| {
                        stay.extend(shards.iter().map(|shard| shard.record().id.clone()));
                        stay
                    });
                }
                for page in alone(own, other) {
                    files.insert(directory.join(page.id.file_name()), is_past);
                    let Some(stay) = stay.as_ref().filter(|_| (asked.page)(&page)) else {
                        continue;
                    };
                    for shard in read(&page)?.iter().flat_map(|shards| shards.iter()) {
                        if !stay.contains(&shard.record().id) {
                            let own = shard_files(&directory, shard.record());
                            files.extend(own.map(|(path, _)| (path, is_past)));
                        }
                    }
                }
            }
        }
        Ok((files, lost))
    }
}

/// Returns whether a file of a shard or of sealed records that is needed now is one of the current
/// generation, given its number: whatever has been written since is of a later one.
pub(super) fn is_of_current(path: &Path, current: Generation) -> bool {
    names::generation_of(path).is_some_and(|generation| generation <= current)
}

/// Returns the files that a class has besides its manifest, its pages and the shards in these, and
/// rows of derived tables, each with its size in bytes.
pub(super) fn data_files(
    directory: &Path,
    manifest: &Manifest,
    gated: &ShardSet,
) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    let in_gated = directory.join(names::GATED);
    for (directory, set) in [(directory, &manifest.shards), (&in_gated, gated)] {
        files.extend(set.loose.iter().flat_map(|shard| shard_files(directory, shard)));
    }
    let sealed = manifest.sealed.iter();
    files.extend(sealed.map(|file| (directory.join(names::sealed_file(&file.id)), file.bytes)));
    files
}

/// Returns the files of a shard, each with its size in bytes.
pub(super) fn shard_files(
    directory: &Path,
    shard: &ShardRecord,
) -> impl Iterator<Item = (PathBuf, u64)> {
    FileKind::ALL
        .into_iter()
        .filter_map(|kind| Some((directory.join(shard.file_name(kind)), shard.file(kind)?.bytes)))
}

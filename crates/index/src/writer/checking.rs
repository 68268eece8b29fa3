//! Reading all of an index, to find damage: every document, every block of every file that a
//! generation refers to, and all permissions.
//!
//! 1. `CURRENT`, the file `lock` and the records of sources that failed.
//! 2. The root's document and the bundles of the current generation. Damaged ones are rebuilt in
//!    memory (`rebuild`), so that the rest can be checked.
//! 3. The documents for readers, compared with these, and the permissions of all.
//! 4. The pages, shards, sealed files and rows of derived tables of each class.
//! 5. These parts of older generations that are kept, as far as the current one does not share
//!    them.
//!
//! A user who does not write the index checks what the kernel shows to that user.
//!
//! Nothing is changed, and no lock is taken.

use super::cleaning::shard_files;
use super::loaded::Loaded;
use super::rebuild::{GenerationDocuments, LostDocument};
use super::renewing::{ForReaders, NotRight, READABLE, has_mode, knows_all_ids};
use super::salvage::{self, FoundCurrent};
use super::{Held, WriterOptions};
use crate::class_dirs::{ClassDirs, grants_of};
use crate::class_lists;
use crate::disk::Disk;
use crate::error::{Error, Result, contents};
use crate::failures::Failures;
use crate::manifest::{self, Catalog, Current, Manifest, ShardSet, SourceRecord};
use crate::marker;
use crate::names::{self, Key, Names};
use crate::own_tables::TableRecord;
use crate::pages::{self, Extent, PageRecord};
use crate::plain_file;
use crate::reader::caller;
use crate::safety;
use crate::schema::FileKind;
use crate::sealed::Sealed;
use crate::shard::{ClassDir, Shard};
use crate::source_id::SourceId;
use crate::unfinished;
use canopy_model::{Generation, Ownership, join_absolute, parallel};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use rustix::fs::FlockOperation;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most directories that are named for a damaged file.
const DIRECTORIES_MAX: usize = 1000;

/// A file or directory of an index that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its path.
    pub file: PathBuf,
    /// Its contents, for people.
    pub contents: String,
    /// The fault, for people.
    pub detail: String,
    /// The remedy.
    pub remedy: Remedy,
    /// Sources of which it has data, by root, each with directories at and below which these are, as
    /// absolute paths; all escaped.
    pub affected: BTreeMap<String, Vec<String>>,
}

/// The remedy for damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// The rest of the index suffices to rewrite it.
    Rewrite,
    /// The directory is to be made safe from other users; only its owner can decide how.
    Protect,
    /// The sources whose data it contains must be scanned again, or imported.
    Scan,
    /// Derived tables must be computed again.
    Compute,
    /// Nothing brings it back: only this older generation has it.
    Lost(Generation),
    /// All sources are to be indexed again, in a new index.
    Anew,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The current generation.
    pub generation: Generation,
    /// The older generations that were checked, too.
    pub kept: Vec<Generation>,
    /// Files that were read, and their bytes.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Whether all of the index was checked, not only the part that the caller sees.
    pub is_whole: bool,
    /// Damaged files.
    pub damages: Vec<Damage>,
    /// Roots of sources that were not scanned but imported, say, so that they cannot be again; escaped.
    pub unscanned: BTreeSet<String>,
    /// Whether there are derived tables.
    pub has_derived_tables: bool,
}

/// Checks an index.
#[derive(Default)]
pub struct Checker {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Checker {
    /// Returns how many files were read so far, and how many bytes.
    pub fn progress(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Reads all of the index at a path that the caller may read, on as many threads as given, and
    /// says what is damaged. Blocks.
    ///
    /// # Errors
    /// If there is no index, it has another format, or the system denies what the caller should be
    /// able to read.
    pub fn check(&self, path: &Path, threads: usize) -> Result<CheckReport> {
        let mut report = self.check_once(path, threads)?;
        for _ in 0..3 {
            let now = manifest::read::<Current>(&names::current(path));
            let is_as_before = now.map_or(true, |now| now.generation == report.generation);
            if is_as_before || report.damages.is_empty() {
                return Ok(report);
            }
            // Files go a while after a newer generation was published.
            report = self.check_once(path, threads)?;
        }
        report.damages.retain(|damage| damage.file.symlink_metadata().is_ok());
        Ok(report)
    }

    fn check_once(&self, path: &Path, threads: usize) -> Result<CheckReport> {
        self.files.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        let mut check = Check::new(self, path, threads);
        let found = match salvage::find_current(path) {
            Ok(Some(found)) => found,
            Ok(None) => {
                let path = path.to_owned();
                return Err(match unfinished::first_scan(&path) {
                    Some(state) => Error::NotComplete { path, state },
                    None => Error::NoIndex(path),
                });
            }
            Err(error) if error.damaged_file().is_some() => {
                check.add(&error, Remedy::Anew, BTreeMap::new());
                return Ok(check.report(Generation::NONE, Vec::new(), false));
            }
            Err(error) => return Err(error),
        };
        let FoundCurrent { current, damage, .. } = found;
        check.count(&names::current(path));
        if let Some(error) = damage {
            check.add(&error, Remedy::Rewrite, BTreeMap::new());
        }
        let all = names::all_manifests(path, current.generation);
        // As long as it is open, what the writer needs of this generation stays.
        let held = plain_file::open(&all).ok();
        if let Some((held, _)) = &held {
            let _ = rustix::fs::flock(held, FlockOperation::NonBlockingLockShared);
        }
        match is_denied(&all) {
            true => {
                check.what_is_seen(current.generation)?;
                Ok(check.report(current.generation, Vec::new(), false))
            }
            false => {
                check.is_writers = true;
                check.is_safe();
                check.all(&current)?;
                let kept = current.kept.iter().map(|kept| kept.generation).collect();
                Ok(check.report(current.generation, kept, true))
            }
        }
    }
}

/// Returns whether an index belongs to the caller.
fn is_own(index: &Path) -> bool {
    index.metadata().is_ok_and(|about| about.uid() == rustix::process::geteuid().as_raw())
}

/// Returns whether the kernel denies a file to the caller.
fn is_denied(path: &Path) -> bool {
    match plain_file::open(path) {
        Err(Error::Io { source, .. }) => source.kind() == io::ErrorKind::PermissionDenied,
        _ => false,
    }
}

/// A class whose contents are checked.
struct ClassContents<'a> {
    directory: PathBuf,
    manifest: &'a Manifest,
    /// Shards behind gates; none of an older generation.
    gated: &'a ShardSet,
}

/// One check.
struct Check<'a> {
    checker: &'a Checker,
    index: &'a Path,
    threads: usize,
    checks_modes: bool,
    /// Whether the caller writes the index.
    is_writers: bool,
    /// Roots of sources, by number, escaped.
    roots: BTreeMap<SourceId, String>,
    /// Pages, shards and other files that were checked.
    seen: Mutex<FxHashSet<PathBuf>>,
    damages: Mutex<Vec<Damage>>,
    /// The older generation that is checked; `None` for the current one.
    past: Option<Generation>,
    /// Roots of sources that were not scanned, so that they cannot be again.
    unscanned: BTreeSet<String>,
    has_derived_tables: bool,
}

impl<'a> Check<'a> {
    fn new(checker: &'a Checker, index: &'a Path, threads: usize) -> Self {
        Check {
            checker,
            index,
            threads,
            // Root may read another user's index, in which other permissions are right.
            checks_modes: knows_all_ids() && is_own(index),
            is_writers: false,
            roots: BTreeMap::new(),
            seen: Mutex::default(),
            damages: Mutex::default(),
            past: None,
            unscanned: BTreeSet::new(),
            has_derived_tables: false,
        }
    }

    fn report(self, generation: Generation, kept: Vec<Generation>, is_whole: bool) -> CheckReport {
        let (files, bytes) = self.checker.progress();
        let mut damages = self.damages.into_inner();
        damages.sort_by(|a, b| (a.remedy, &a.file).cmp(&(b.remedy, &b.file)));
        damages.dedup_by(|a, b| a.file == b.file);
        let (unscanned, has_derived_tables) = (self.unscanned, self.has_derived_tables);
        CheckReport {
            generation,
            kept,
            files,
            bytes,
            is_whole,
            damages,
            unscanned,
            has_derived_tables,
        }
    }

    /// Counts a file that is read.
    fn count(&self, path: &Path) {
        self.checker.files.fetch_add(1, Ordering::Relaxed);
        let bytes = path.symlink_metadata().map_or(0, |about| about.len());
        self.checker.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn add(&self, error: &Error, remedy: Remedy, affected: BTreeMap<String, Vec<String>>) {
        let path = error.damaged_file().unwrap_or(self.index);
        self.add_file(path, error.damage(), remedy, affected);
    }

    fn add_file(
        &self,
        path: &Path,
        detail: String,
        remedy: Remedy,
        affected: BTreeMap<String, Vec<String>>,
    ) {
        let (file, contents) = (path.to_owned(), contents(path));
        let remedy = self.past.map_or(remedy, Remedy::Lost);
        self.damages.lock().push(Damage { file, contents, detail, remedy, affected });
    }

    /// Adds an error if it reports damage; returns it otherwise.
    fn check(
        &self,
        done: Result<()>,
        remedy: Remedy,
        affected: impl FnOnce() -> BTreeMap<String, Vec<String>>,
    ) -> Result<()> {
        match done {
            Err(error) if error.damaged_file().is_some() => {
                self.add(&error, remedy, affected());
                Ok(())
            }
            done => done,
        }
    }

    /// Checks that nobody else can write to the directory, or put another one in its place: writers
    /// refuse it then.
    fn is_safe(&self) {
        if !is_own(self.index) {
            return;
        }
        let uid = rustix::process::geteuid().as_raw();
        let Err(Error::Unsafe { path, why }) = safety::check(self.index, uid) else { return };
        let is_index = self.index.canonicalize().is_ok_and(|index| index == path);
        let contents = if is_index { "all of the index" } else { "on the way to the index" };
        self.damages.lock().push(Damage {
            file: path,
            contents: contents.to_owned(),
            detail: why,
            remedy: Remedy::Protect,
            affected: BTreeMap::new(),
        });
    }

    /// Checks all that the writer knows.
    fn all(&mut self, current: &Current) -> Result<()> {
        let generation = current.generation;
        let mut lost = Vec::new();
        let found = GenerationDocuments::read_or_rebuild(self.index, generation, &mut lost);
        self.count(&names::all_manifests(self.index, generation));
        match found {
            Ok(found) => {
                self.take_note(&found);
                self.add_lost(&lost, &found);
                self.own_documents(Some(found.state.key))?;
                self.readers_documents(&found, current)?;
                self.contents_of(&found)?;
            }
            Err(error) if error.damaged_file().is_some() => {
                self.own_documents(None)?;
                self.add_unreadable(error, lost, current);
            }
            Err(error) => return Err(error),
        }
        for kept in &current.kept {
            self.past = Some(kept.generation);
            self.count(&names::all_manifests(self.index, kept.generation));
            match GenerationDocuments::read(self.index, kept.generation) {
                Ok(found) => {
                    self.take_note(&found);
                    self.contents_of(&found)?;
                }
                Err(error) => {
                    let all = self.all_sources();
                    self.check(Err(error), Remedy::Lost(kept.generation), || all)?;
                }
            }
        }
        self.past = None;
        Ok(())
    }

    /// Takes note of the sources and tables of a generation.
    fn take_note(&mut self, found: &GenerationDocuments) {
        for source in found.manifests.iter().flat_map(|it| &it.manifest.sources) {
            self.roots.insert(source.id, source.root.clone());
            if self.past.is_none() && !found.state.scans.contains_key(&source.id) {
                self.unscanned.insert(source.root.clone());
            }
        }
        self.has_derived_tables |= found.state.tables.iter().any(TableRecord::is_derived);
        found.bundles.iter().for_each(|it| self.count(&it.record.id.path(self.index)));
    }

    /// Adds documents that the writer goes by, and that were made again.
    fn add_lost(&self, lost: &[LostDocument], found: &GenerationDocuments) {
        let to_scan = found.to_scan.iter().filter_map(|id| self.roots.get(id));
        let to_scan: BTreeMap<_, _> = to_scan.map(|root| (root.clone(), Vec::new())).collect();
        for LostDocument { error, record } in lost {
            let affected = match record {
                Some(record) => self.affected(&record.extents),
                None => self.all_sources(),
            };
            match to_scan.is_empty() {
                true => self.add(error, Remedy::Rewrite, affected),
                false => self.add(error, Remedy::Scan, to_scan.clone()),
            }
        }
    }

    /// Adds documents that the writer goes by and that cannot be made again.
    fn add_unreadable(&mut self, error: Error, lost: Vec<LostDocument>, current: &Current) {
        let read = |generation| GenerationDocuments::read(self.index, generation).ok();
        let older = current.kept.iter().find_map(|kept| read(kept.generation));
        let remedy = if older.is_some() { Remedy::Scan } else { Remedy::Anew };
        older.iter().for_each(|older| self.take_note(older));
        let lost = lost.into_iter().map(|lost| lost.error).chain([error]);
        lost.for_each(|error| self.add(&error, remedy, self.all_sources()));
    }

    fn all_sources(&self) -> BTreeMap<String, Vec<String>> {
        self.roots.values().map(|root| (root.clone(), Vec::new())).collect()
    }

    /// Checks the other files that the writer reads.
    fn own_documents(&self, key: Option<Key>) -> Result<()> {
        let path = names::lock(self.index);
        self.count(&path);
        let marker = marker::read(self.index).and_then(|marker| match key {
            Some(key) if key != marker.key => Err(Error::corrupt(&path, "it is of another index")),
            _ => Ok(()),
        });
        self.check(marker, Remedy::Rewrite, BTreeMap::new)?;
        let copy = names::current_copy(self.index);
        if copy.symlink_metadata().is_ok() {
            self.count(&copy);
            let read = manifest::read::<Current>(&copy).map(drop);
            self.check(read, Remedy::Rewrite, BTreeMap::new)?;
        }
        self.check(Failures::read(self.index).map(drop), Remedy::Rewrite, BTreeMap::new)
    }

    /// Checks the documents that readers use, and the permissions of directories.
    fn readers_documents(&self, found: &GenerationDocuments, current: &Current) -> Result<()> {
        if !self.checks_modes {
            return Ok(());
        }
        let path = names::all_manifests(self.index, current.generation);
        let corrupt = |error| Error::corrupt(&path, error);
        let GenerationDocuments { state, manifests, .. } = found;
        let grants = state.grants.get().map_err(corrupt)?;
        let lists = state.lists.get().map_err(corrupt)?;
        let (next, options) = (state.next_grant, WriterOptions::default());
        let Loaded { table, classes, places, .. } =
            Loaded::new(&path, manifests.clone(), grants, next, None, &options)?;
        let is_private = !rustix::process::geteuid().is_root();
        let names = Names::new(self.index, state.key);
        let dirs = ClassDirs::new(Disk::default(), names.clone(), is_private, [0; 32], places);
        for (&class, Held { gated, .. }) in &classes {
            for (path, what) in dirs.faults(&table, class, !gated.is_empty()) {
                let is_for = grants_of(&table, class).len();
                let whom = if is_for == 0 { "everybody" } else { "some users" };
                let detail = format!("{what}: it is for {whom}");
                self.add_file(&path, detail, Remedy::Rewrite, BTreeMap::new());
            }
        }
        let path = names.lists();
        if !lists.is_empty()
            && let Some(what) =
                Disk::directory_fault(&path, Some(Ownership::ROOT), Some(0o711), None)
        {
            self.add_file(&path, what, Remedy::Rewrite, BTreeMap::new());
        }
        // A rebuilt state lacks tables whose queries are lost, though the readers' catalog has
        // them.
        let known: Option<Catalog> = match found.lost_tables.is_empty() {
            true => None,
            false => manifest::read(&names::catalog(self.index, current.generation)).ok(),
        };
        let tables = known.as_ref().map_or(&state.tables, |catalog| &catalog.tables);
        let readers = ForReaders {
            names: &names,
            generation: current.generation,
            public_mode: if is_private { 0o600 } else { 0o644 },
            table: &table,
            dirs: &dirs,
            classes: &classes,
            lists,
            tables,
        };
        readers.each_wrong(|wrong, path| {
            let detail = match path.symlink_metadata() {
                Err(_) => "it is missing",
                Ok(_) => "it is damaged, or has the wrong readers",
            };
            let affected = match wrong {
                NotRight::Manifest(class) => classes
                    .get(&class)
                    .map(|held| {
                        self.affected(held.manifest.shards.pages.iter().map(|it| &it.extent))
                    })
                    .unwrap_or_default(),
                _ => BTreeMap::new(),
            };
            self.add_file(&path, detail.to_owned(), Remedy::Rewrite, affected);
        })?;
        lists.iter().for_each(|list| self.count(&names.list(list.principal, list.generation)));
        self.count(&names::catalog(self.index, current.generation));
        for (&class, held) in &classes {
            self.count(&names::manifest(&dirs.directory(&table, class), held.written));
        }
        Ok(())
    }

    /// Checks the contents of the classes of a generation.
    fn contents_of(&self, found: &GenerationDocuments) -> Result<()> {
        let names = Names::new(self.index, found.state.key);
        let classes = found.manifests.iter();
        let none = ShardSet::default();
        let classes = classes.map(|it| {
            // Older generations do not keep these.
            let gated = if self.past.is_none() { &it.gated } else { &none };
            let (directory, manifest) = (names.class(it.class.place), &it.manifest);
            ClassContents { directory, manifest, gated }
        });
        self.classes(classes.collect())
    }

    fn classes(&self, classes: Vec<ClassContents<'_>>) -> Result<()> {
        let mut threads = vec![(); self.threads.max(1)];
        let mut tasks = Vec::new();
        for ClassContents { directory, manifest, gated } in &classes {
            let in_gated = directory.join(names::GATED);
            for (directory, set) in [(directory.clone(), &manifest.shards), (in_gated, *gated)] {
                let pages = set.pages.iter().cloned();
                tasks.extend(pages.map(|page| (directory.clone(), page)));
            }
        }
        parallel(&mut threads, tasks, |(), (directory, page)| self.page(&directory, &page))?;
        for ClassContents { directory, manifest, .. } in &classes {
            if self.past.is_none() {
                self.sealed(directory, manifest)?;
            }
            for rows in &manifest.tables {
                let path = directory.join(rows.file_name());
                if self.is_new(&path) {
                    self.check(rows.check(directory), Remedy::Compute, BTreeMap::new)?;
                }
            }
        }
        Ok(())
    }

    fn sealed(&self, directory: &Path, manifest: &Manifest) -> Result<()> {
        for file in &manifest.sealed {
            let path = directory.join(names::sealed_file(&file.id));
            if !self.is_new(&path) {
                continue;
            }
            let sealed = Sealed::new(file.clone(), directory.to_owned());
            let checked = self.is_readable(&path).and_then(|()| sealed.check());
            let checked = checked.and_then(|()| sealed.records().map(drop));
            self.check(checked, Remedy::Scan, || {
                let root = self.roots.get(&file.source);
                root.map(|root| (root.clone(), Vec::new())).into_iter().collect()
            })?;
        }
        Ok(())
    }

    /// Checks a page, and the shards in it.
    fn page(&self, directory: &Path, page: &Arc<PageRecord>) -> Result<()> {
        let path = directory.join(page.id.file_name());
        if !self.is_new(&path) {
            return Ok(());
        }
        let at = directory.to_owned();
        let place = Arc::new(ClassDir::new(|| at));
        if page.id.secret.is_none() {
            let readable = self.is_readable(&path);
            self.check(readable, Remedy::Scan, || self.affected([&page.extent]))?;
        }
        match pages::read(&place, page) {
            Ok(shards) => shards.iter().try_for_each(|shard| self.shard(directory, shard)),
            Err(error) => self.check(Err(error), Remedy::Scan, || self.affected([&page.extent])),
        }
    }

    fn shard(&self, directory: &Path, shard: &Shard) -> Result<()> {
        let record = shard.record();
        for (path, _) in shard_files(directory, record) {
            let Some(kind) = FileKind::ALL.into_iter().find(|&kind| shard.path(kind) == path)
            else {
                continue;
            };
            if !self.is_new(&path) {
                continue;
            }
            let checked = self.is_readable(&path).and_then(|()| shard.check(kind));
            self.check(checked, Remedy::Scan, || {
                let covers = shard.covers().unwrap_or_default();
                let directories = covers.iter().map(|cover| cover.prefix.as_str());
                self.affected_directories(record.source, directories)
            })?;
        }
        Ok(())
    }

    /// Returns whether a file was not checked before.
    fn is_new(&self, path: &Path) -> bool {
        let is_new = self.seen.lock().insert(path.to_owned());
        if is_new {
            self.count(path);
        }
        is_new
    }

    /// Fails if a file of the current generation is closed to those whom it is for.
    fn is_readable(&self, path: &Path) -> Result<()> {
        if self.past.is_some() || !self.checks_modes {
            return Ok(());
        }
        let about = path.symlink_metadata().map_err(Error::io("look at", path))?;
        match self.is_writers && !has_mode(&about, READABLE) {
            true => Err(Error::corrupt(path, "some of its readers may not read it")),
            false => Ok(()),
        }
    }

    /// Returns the sources of which there is something, with the directories.
    fn affected<'e>(
        &self,
        extents: impl IntoIterator<Item = &'e Extent>,
    ) -> BTreeMap<String, Vec<String>> {
        let mut affected: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for extent in extents {
            let directories = extent.ranges.common_directory().into_iter();
            for (root, more) in self.affected_directories(extent.source, directories) {
                affected.entry(root).or_default().extend(more);
            }
        }
        affected
    }

    fn affected_directories<'d>(
        &self,
        source: SourceId,
        directories: impl Iterator<Item = &'d str>,
    ) -> BTreeMap<String, Vec<String>> {
        let Some(root) = self.roots.get(&source) else { return BTreeMap::new() };
        let path = |below: &str| match below {
            "" => root.clone(),
            below => join_absolute(root, below),
        };
        let mut directories: Vec<String> = directories.take(DIRECTORIES_MAX).map(path).collect();
        directories.sort_unstable();
        directories.dedup();
        BTreeMap::from([(root.clone(), directories)])
    }

    /// Checks the part that a user sees who does not write the index.
    fn what_is_seen(&mut self, generation: Generation) -> Result<()> {
        let path = names::catalog(self.index, generation);
        self.count(&path);
        let catalog: Catalog = match manifest::read(&path) {
            Ok(catalog) => catalog,
            Err(error) => return self.check(Err(error), Remedy::Rewrite, BTreeMap::new),
        };
        let names = Names::new(self.index, catalog.key);
        let classes = match class_lists::classes_for(&names, &catalog, &caller(&path)?) {
            Ok((classes, _)) => classes,
            Err(error) => return self.check(Err(error), Remedy::Rewrite, BTreeMap::new),
        };
        let mut seen = Vec::new();
        for class in classes {
            let directory = names.class(class.place);
            let path = names::manifest(&directory, class.manifest);
            match manifest::read::<Manifest>(&path) {
                Ok(manifest) => {
                    self.count(&path);
                    let sources = manifest.sources.iter();
                    self.roots.extend(sources.map(|it: &SourceRecord| (it.id, it.root.clone())));
                    seen.push((directory, manifest));
                }
                // Another one's class.
                Err(Error::Io { source, .. })
                    if source.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => self.check(Err(error), Remedy::Rewrite, BTreeMap::new)?,
            }
        }
        let none = ShardSet::default();
        let classes = seen.iter().map(|(directory, manifest)| {
            let directory = directory.clone();
            ClassContents { directory, manifest, gated: &none }
        });
        self.classes(classes.collect())
    }
}

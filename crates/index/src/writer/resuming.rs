//! Noting what was scanned so far, so that a scan that is interrupted goes on later.
//!
//! 1. While no thread scans, [`Writer::note_unfinished`] writes what is in memory as shards. Where
//!    the run goes on, small builders stay in memory and their shards are copies, which the next
//!    ones replace, so that a class does not get a small shard a minute.
//! 2. It computes what the manifests would be if the scan were over, as publishing does, but for
//!    what remains: nothing at and below a directory that remains is replaced.
//! 3. [`Writer::resume`] takes these manifests as what the index holds, and
//!    [`Writer::resume_source`] lists what remains again as an update does (`refresh`).
//!
//! Threads stop between two entries. The part of a listing in which a thread stops waits with its
//! directory. So a listing has equal parts and digests, however often progress is recorded.

use super::cleaning::{data_files, is_of_current};
use super::loaded::Loaded;
use super::refresh::{Seen, names_in};
use super::sources::Contents;
use super::{Gathered, Held, ShardWriter, Writer, Written, cleaning, gathered};
use crate::class_dirs::{ClassDirs, grants_of};
use crate::class_lists;
use crate::error::{Error, Result};
use crate::journal::{self, Intent};
use crate::manifest::{Manifest, ShardSet};
use crate::names::{self, ClassPlace};
use crate::own_tables::TableKind;
use crate::source_id::SourceId;
use crate::unfinished::{
    self, Found, RemainingDirectory, RemainingExtent, Unfinished, UnfinishedRecord,
};
use canopy_model::{Generation, SourcePath, SourcePathBuf};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

/// Rows from which on what a thread has of a class becomes a shard for good.
const SHARD_ROWS_MIN: usize = 16 * 1024;

impl Writer {
    /// Returns the scan that was interrupted, if one can go on.
    pub fn unfinished(&self) -> Option<&Unfinished> {
        match &self.interrupted {
            Found::Record(record) => Some(&record.about),
            Found::Nothing | Found::Useless(_) => None,
        }
    }

    /// Returns why a scan that was interrupted cannot go on, if there was one.
    pub fn unfinished_is_useless(&self) -> Option<&str> {
        match &self.interrupted {
            Found::Useless(reason) => Some(reason),
            Found::Nothing | Found::Record(_) => None,
        }
    }

    /// Gives up a scan that was interrupted, and removes what there is of it.
    pub fn give_up_unfinished(&mut self) -> Result<()> {
        self.interrupted = Found::Nothing;
        match unfinished::is_there(&self.path) {
            true => {
                let (disk, tree) = (&self.options.disk, &self.current_tree);
                cleaning::forget_unfinished(disk, &self.names, tree)
            }
            false => Ok(()),
        }
    }

    /// Resumes the interrupted scan: the index holds its listings so far. [`Writer::resume_source`]
    /// must finish a source that was not scanned to its end before anything is published. If files
    /// are missing, the scan is given up, and the reason returned.
    pub fn resume(&mut self) -> Result<std::result::Result<Unfinished, String>> {
        let Found::Record(record) = std::mem::replace(&mut self.interrupted, Found::Nothing) else {
            return Ok(Err("there is none".to_owned()));
        };
        match self.load(*record) {
            Ok(about) => Ok(Ok(about)),
            Err(error) => {
                self.give_up_unfinished()?;
                Ok(Err(error.to_string()))
            }
        }
    }

    fn load(&mut self, record: UnfinishedRecord) -> Result<Unfinished> {
        let path = names::unfinished(&self.path);
        let corrupt = |error: postcard::Error| Error::corrupt(&path, error);
        let committed = record.base;
        let UnfinishedRecord { about, incomplete, beyond_limits, changed, state, classes, .. } =
            record;
        for class in &classes {
            let directory = self.names.class(class.class.place);
            for (path, bytes) in data_files(&directory, &class.manifest, &class.gated) {
                let found = path.symlink_metadata();
                let is_there = found.is_ok_and(|found| found.is_file() && found.len() == bytes);
                if !is_there && !is_of_current(&path, committed) {
                    return Err(Error::corrupt(&path, "it is missing, or has another length"));
                }
            }
        }
        let grants = state.grants.get().map_err(corrupt)?;
        let Loaded { table, classes, order, places, next_source } =
            Loaded::new(&path, classes, grants, state.next_grant, self.limits, &self.options)?;
        // The noted state does not name classes that are gone.
        let noted: HashMap<ClassPlace, Generation> =
            order.iter().map(|class| (places[class], classes[class].written)).collect();
        for (&class, held) in &self.classes {
            let place = self.dirs.place(&self.table, class);
            if noted.get(&place) != Some(&held.written) {
                self.relisted.extend(class_lists::listed_for(&grants_of(&self.table, class)));
            }
        }
        let disk = self.options.disk.clone();
        self.dirs = ClassDirs::new(disk, self.names.clone(), self.unprivileged, self.salt, places);
        self.changed = changed.iter().map(|&class| order[class as usize]).collect();
        self.has_changed = !self.changed.is_empty()
            || classes.len() != self.classes.len()
            || state.tables != self.tables;
        self.has_noted.store(true, Relaxed);
        (self.table, self.classes, self.next_source) = (table, classes, next_source);
        (self.scans, self.tables, self.queries) = (state.scans, state.tables, state.queries);
        self.incomplete = incomplete;
        *self.beyond_limits.lock() = beyond_limits;
        for root in &about.done {
            self.failures.remove(root);
        }
        Ok(about)
    }

    /// Notes how far the run has come, so that the next one can go on even if this one is killed;
    /// `begun` is the number of the source that is being scanned, with its shard writers, whose
    /// threads must not be at work. With `ends`, nothing more is written after this. Returns false,
    /// and notes nothing, where the source cannot be gone on with: a tree inside of another one.
    /// After an error what was noted before counts, and unless it `ends`, the run can go on.
    pub fn note_unfinished(
        &self,
        begun: Option<SourceId>,
        writers: &mut Vec<ShardWriter<'_>>,
        about: Unfinished,
        ends: bool,
    ) -> Result<bool> {
        let source = begun.and_then(|number| self.begun.get(&number));
        if source.is_some_and(|begun| begun.above.is_some()) {
            return Ok(false);
        }
        // The document that is replaced names those that it has until it is.
        let committed =
            self.current.as_ref().map_or(Generation::NONE, |current| current.generation);
        let listed = || {
            let files = unfinished::files(&self.path, committed).into_iter().flatten();
            let files = files.map(|path| self.path.join(path));
            files.filter(|path| path.symlink_metadata().is_ok()).collect::<Vec<_>>()
        };
        let (before, noted_ns) = (listed(), about.noted_ns);
        let noted = self.write_note(begun, writers, about, ends, &before);
        let needless = match &noted {
            Ok(files) => before.into_iter().filter(|path| !files.contains_key(path)).collect(),
            // It may be there all the same, if not for good.
            Err(_) => match unfinished::about(&self.path, committed) {
                Some(about) if about.noted_ns == noted_ns => self.needless_files(&listed()),
                _ => self.needless_files(&before),
            },
        };
        for path in needless {
            if names::generation_of(&path).is_some_and(|generation| generation > committed) {
                // Files that cannot be removed now go with the rest.
                drop(self.options.disk.remove(&path));
            }
        }
        if ends {
            self.shards.lock().clear();
        }
        noted.map(|_| true)
    }

    /// Returns what this run has made and neither it nor any of these files needs.
    fn needless_files(&self, needed: &[PathBuf]) -> Vec<PathBuf> {
        let (own, needed) = (self.own_files(), needed.iter().collect::<HashSet<_>>());
        let intents = journal::read(&self.path).unwrap_or_default().intents;
        let made = intents.into_iter().filter(|(intent, _)| *intent == Intent::Make);
        let made = made.map(|(_, path)| self.path.join(path));
        let is_needless = |path: &PathBuf| {
            names::is_of_generation(path, self.generation)
                && !own.contains_key(path)
                && !needed.contains(path)
        };
        made.filter(is_needless).collect()
    }

    /// Notes how far the run has come; `before` are the files of what was noted before. Returns the
    /// files of what is noted, and of the run so far.
    fn write_note(
        &self,
        begun: Option<SourceId>,
        writers: &mut Vec<ShardWriter<'_>>,
        about: Unfinished,
        ends: bool,
        before: &[PathBuf],
    ) -> Result<BTreeMap<PathBuf, Intent>> {
        if !ends {
            writers.iter_mut().try_for_each(|writer| writer.write_larger_than(SHARD_ROWS_MIN))?;
        }
        let in_memory = match ends {
            true => gathered(std::mem::take(writers)),
            false => copied(writers),
        };
        let record = self.record_unfinished(begun, in_memory, about)?;
        let mut needed = self.own_files();
        for class in &record.classes {
            self.add_files(&class.manifest, class.class.place, &class.gated, &mut needed);
        }
        let mut files = needed.clone();
        files.extend(before.iter().map(|path| (path.clone(), Intent::Make)));
        self.has_noted.store(true, Relaxed);
        unfinished::write(&self.options.disk, &self.path, &record, &files)?;
        Ok(needed)
    }

    /// Returns the files that this run is made of so far and that the current generation does not
    /// have: they are needed until it is over.
    fn own_files(&self) -> BTreeMap<PathBuf, Intent> {
        let mut files = BTreeMap::new();
        for (&class, held) in &self.classes {
            let place = self.dirs.place(&self.table, class);
            self.add_files(&held.manifest, place, &held.gated, &mut files);
        }
        for (class, written) in self.shards.lock().iter() {
            let place = self.dirs.place(&self.table, *class);
            let mut own = Manifest::default();
            match written.clone() {
                Written::Shard(shard) => {
                    own.shards.loose.push(*shard);
                    self.add_files(&own, place, &ShardSet::default(), &mut files);
                }
                Written::Sealed { file, gated: loose, .. } => {
                    own.sealed.push(file);
                    let gated = ShardSet { loose, ..ShardSet::default() };
                    self.add_files(&own, place, &gated, &mut files);
                }
            }
        }
        files
    }

    /// Notes that all sources that were begun were scanned to their end, before they are published;
    /// nothing more is written after this.
    pub fn note_sources(&mut self, about: Unfinished) -> Result<bool> {
        self.settle();
        self.note_unfinished(None, &mut Vec::new(), about, true)
    }

    /// Adds the files of a class that the current generation does not have.
    fn add_files(
        &self,
        manifest: &Manifest,
        place: ClassPlace,
        gated: &ShardSet,
        files: &mut BTreeMap<PathBuf, Intent>,
    ) {
        let committed =
            self.current.as_ref().map_or(Generation::NONE, |current| current.generation);
        let all = data_files(&self.names.class(place), manifest, gated);
        let new = all.into_iter().map(|(path, _)| path);
        let new = new.filter(|path| !is_of_current(path, committed));
        files.extend(new.map(|path| (path, Intent::Make)));
    }

    /// Returns a record of the unfinished scan: the contents that would be published if it ended
    /// now. Leaves its files as they are, so that the scan can go on.
    fn record_unfinished(
        &self,
        begun: Option<SourceId>,
        in_memory: Gathered,
        mut about: Unfinished,
    ) -> Result<UnfinishedRecord> {
        let Gathered { mut left, sealed, mut seen } = in_memory;
        let (mut classes, mut scans) = (self.classes.clone(), self.scans.clone());
        let mut changed = self.changed.clone();
        let mut contents = Contents {
            classes: &mut classes,
            scans: &mut scans,
            changed: &mut changed,
            read_pages: &self.read_pages,
        };
        if let (Some(number), Some(source)) = (begun, &mut about.source)
            && let Some(begun) = self.begun.get(&number)
        {
            let own = self.shards.lock().len();
            let write = || -> Result<()> {
                if let Some(refresh) = &begun.refresh {
                    seen.append(refresh.seen_unread());
                }
                self.settle_remaining(number, &mut source.remaining, &seen)?;
                if let Some(replaced) = self.replaced(begun, seen, &source.remaining)? {
                    self.cut(number, &replaced, &mut left)?;
                    self.cut_sealed(number, &replaced)?;
                }
                self.write_builders(number, left, sealed, self.options.threads.max(1))
            };
            let is_written = write();
            // The scan goes on without the copies, whatever becomes of them.
            let written = self.shards.lock().clone();
            self.shards.lock().truncate(own);
            let cuts = std::mem::take(&mut *begun.cuts.lock());
            is_written?;
            let listed = begun.listed.lock().clone();
            contents.remove_rows_of(|source| listed.contains(&source.id));
            contents.take_out(cuts);
            let owner = begun.owner(number);
            if begun.refresh.is_none() {
                contents.remove_rows_of(|source| source.root == begun.new.root);
                contents.insert_source(self.places_of(&begun.new), number, &begun.new);
            }
            for (class, mut written) in written {
                written.set_source(owner);
                contents.take_in(class, written);
            }
        }
        contents.drop_empty();
        let mut tables = self.tables.clone();
        // They would be of what is not whole.
        for (&class, Held { manifest, .. }) in &mut classes {
            if !manifest.tables.is_empty() {
                manifest.tables.clear();
                changed.insert(class);
            }
        }
        for table in &mut tables {
            if let TableKind::Derived { fresh, .. } = &mut table.kind {
                *fresh = false;
            }
        }
        let (mut state, manifests) = self.all_manifests(&classes, &scans, Vec::new())?;
        state.tables = tables;
        let places = (0..).zip(classes.keys()).filter(|(_, class)| changed.contains(*class));
        Ok(UnfinishedRecord {
            base: self.current.as_ref().map_or(Generation::NONE, |current| current.generation),
            generation: self.generation,
            changed: places.map(|(place, _)| place).collect(),
            about,
            incomplete: self.incomplete.clone(),
            beyond_limits: self.beyond_limits.lock().clone(),
            state,
            classes: manifests,
        })
    }

    /// Completes what a walk says remains by what this writer knows of it.
    fn settle_remaining(
        &self,
        number: SourceId,
        remaining: &mut Vec<RemainingDirectory>,
        seen: &Seen,
    ) -> Result<()> {
        let refresh = self.refresh(number);
        let is_new = |path: SourcePath<'_>| refresh.is_none_or(|refresh| refresh.is_new(path));
        // The record of the root itself is written at the end.
        if remaining.iter().all(|directory| !directory.path.as_path().is_root()) {
            remaining.push(RemainingDirectory::new(SourcePathBuf::root(), RemainingExtent::Alone));
        }
        let alone = names_in(&seen.alone);
        for directory in remaining.iter_mut() {
            match (directory.extent, refresh) {
                (RemainingExtent::New, _) if !is_new(directory.path.as_path()) => {
                    directory.extent = RemainingExtent::Whole;
                }
                (RemainingExtent::Alone, Some(refresh)) => {
                    let path = &directory.path;
                    directory.known = match alone.contains_key(path) {
                        // The new listing replaces the one that contained these names.
                        true => self.names_gone(refresh, path.as_path(), &HashSet::new())?,
                        false => refresh.dirs_known.get(path).cloned().unwrap_or_default(),
                    };
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns what shard writers have, and leaves it there.
fn copied(writers: &[ShardWriter<'_>]) -> Gathered {
    let Gathered { mut left, mut sealed, mut seen } = Gathered::default();
    for writer in writers {
        seen.append(writer.seen.clone());
        for (&bin, builder) in &writer.builders {
            left.entry(bin).or_default().push(builder.clone());
        }
        for (&class, builder) in &writer.sealed {
            sealed.entry(class).or_default().push(builder.clone());
        }
    }
    Gathered { left, sealed, seen }
}

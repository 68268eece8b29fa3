//! The sources of an index: beginning one, abandoning it, taking it into the manifests.
//!
//! No path is in the index twice. A tree inside a source that has listed its root becomes a subtree
//! of that source, in the place of what was there (`cut`), as parts of a source do that are listed
//! again (`refresh`); a source whose root the listings of another
//! one have shown is absorbed by that. So what was scanned last is what is shown, and only a tree
//! that the source above it has left out is a source of its own.

use super::cut::Cut;
use super::pages::ReadPages;
use super::refresh::Refresh;
use super::{Held, NewSource, ShardWriter, Writer, Written};
use crate::builder::{Value, shown_names};
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::hidden::{HiddenSource, KnownSource, SealedSource};
use crate::manifest::{Manifest, ScanRecord, SourceRecord};
use crate::names;
use crate::schema::FileKind;
use crate::shard_record::ShardRecord;
use crate::source_id::SourceId;
use crate::unfinished;
use canopy_model::{
    AbsolutePath, Approach, ClassId, Generation, Listing, SourcePath, SourcePathBuf, escape,
};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A source that was begun and is not in the manifests.
pub(super) struct Begun {
    pub(super) new: NewSource,
    /// The source that it becomes a subtree of.
    pub(super) above: Option<Above>,
    /// Sources with roots below, by path in the source that the listings go to.
    inner: HashMap<SourcePathBuf, SourceId>,
    /// Those of them whose roots were listed.
    pub(super) listed: Mutex<HashSet<SourceId>>,
    /// The source that this is, if parts of it are listed again.
    pub(super) refresh: Option<Refresh>,
    /// Fates of shards with replaced rows.
    pub(super) cuts: Mutex<Vec<Cut>>,
    /// Entries that were handed over, and those of them that stay as they were.
    pub(super) entries: AtomicU64,
    pub(super) kept_entries: AtomicU64,
    /// Whether it has come to its end, and every listing was as before.
    pub(super) is_as_before: AtomicBool,
}

/// A place inside of a source.
pub(super) struct Above {
    pub(super) id: SourceId,
    pub(super) root: String,
    /// Path in it, which is not its root.
    pub(super) path: SourcePathBuf,
}

impl Begun {
    /// Returns the number of the source that the rows belong to.
    pub(super) fn owner(&self, own: SourceId) -> SourceId {
        let refreshed = self.refresh.as_ref().map_or(own, |refresh| refresh.source);
        self.above.as_ref().map_or(refreshed, |above| above.id)
    }

    /// Returns the absolute path that paths of the rows are below.
    pub(super) fn root(&self) -> &str {
        self.above.as_ref().map_or(&self.new.root, |above| &above.root)
    }

    /// Calls `push` with a listing as it is called in the source that it goes to.
    pub(super) fn place<T>(
        &self,
        listing: &Listing<'_>,
        push: impl FnOnce(&Listing<'_>) -> T,
    ) -> T {
        let shown = |path: SourcePath<'_>| {
            if let Some(&inner) = self.inner.get(path.as_str()) {
                self.listed.lock().insert(inner);
            }
        };
        let Some(Above { path: prefix, .. }) = &self.above else {
            shown(listing.path);
            return push(listing);
        };
        let joined = match listing.path.is_root() {
            true => Cow::Borrowed(prefix),
            false => Cow::Owned(prefix.as_path().child(listing.path.as_str())),
        };
        let path = joined.as_path();
        shown(path);
        let depth = listing.depth + prefix.as_str().split('/').count() as u32;
        push(&Listing { path, depth, ..*listing })
    }
}

/// The classes that know of a source.
pub(super) struct SourcePlaces<'a> {
    /// The class that it is recorded in.
    pub(super) listers: ClassId,
    /// The class that it is sealed in, if in any, and the passage that it is sealed with.
    pub(super) knowers: Option<(ClassId, &'a Arc<str>)>,
}

impl Writer {
    /// Begins a source, and returns its number. It keeps its name if none is given. When it has come to its end, it takes the place of
    /// the source with the same root; until then, nothing changes. One source at a time.
    pub fn add_source(&mut self, new: NewSource) -> Result<SourceId> {
        self.settle();
        let known = || self.classes.values().flat_map(|held| &held.manifest.sources);
        let above = match known().any(|source| source.root == new.root) {
            true => None,
            false => self.source_above(&new.root)?,
        };
        let mut new = new;
        if new.name.is_none() {
            new.name = known().find(|known| known.root == new.root).map(|known| known.name.clone());
        }
        match (&new.name, &above) {
            (Some(_), Some(above)) => {
                let (root, above) = (new.root.clone(), above.root.clone());
                return Err(Error::InSource { root, above });
            }
            (None, Some(_)) => {}
            _ => {
                let (name, root) = (new.name.as_ref().unwrap_or(&new.root), &new.root);
                Self::check_form(name, root)?;
                // Sources below are most likely absorbed, and their names with them.
                self.check_name_among(name, |known| {
                    known.root != *root && path_below(root, &known.root).is_none()
                })?;
            }
        }
        let (root, is_whole) = (new.root.clone(), above.is_none());
        let begun = self.begin_source(new, above, None)?;
        if is_whole {
            self.release_classes(begun, &root);
        }
        Ok(begun)
    }

    /// Charges the classes that hold nothing but what a source replaces to nobody, until it asks for
    /// them.
    fn release_classes(&self, begun: SourceId, root: &str) {
        let inner = self.begun.get(&begun).map(|begun| &begun.inner);
        let is_replaced = |source: &SourceRecord| {
            source.root == root
                || inner.is_some_and(|inner| inner.values().any(|id| *id == source.id))
        };
        let sources = self.classes.values().flat_map(|held| &held.manifest.sources);
        let replaced: HashSet<SourceId> =
            sources.filter(|source| is_replaced(source)).map(|source| source.id).collect();
        let goes = |held: &Held| {
            let shards = [&held.manifest.shards, &held.gated];
            let pages =
                shards.iter().flat_map(|set| set.pages.iter().map(|page| page.extent.source));
            let loose = shards.iter().flat_map(|set| set.loose.iter().map(|shard| shard.source));
            let sealed = held.manifest.sealed.iter().map(|file| file.source);
            let hidden = held.hidden.iter().map(|hidden| hidden.source);
            pages.chain(loose).chain(sealed).chain(hidden).all(|source| replaced.contains(&source))
        };
        let classes = self.classes.iter().filter(|(_, held)| goes(held));
        self.table.release(&classes.map(|(&class, _)| class).collect());
    }

    /// Begins a source, a tree inside of one, or the parts of one that are listed again.
    pub(super) fn begin_source(
        &mut self,
        new: NewSource,
        above: Option<Above>,
        refresh: Option<Refresh>,
    ) -> Result<SourceId> {
        let known = || self.classes.values().flat_map(|held| &held.manifest.sources);
        let top = above.as_ref().map_or(&new.root, |above| &above.root);
        let is_inner = |source: &&SourceRecord| path_below(&new.root, &source.root).is_some();
        let inner = known().filter(is_inner);
        let inner = inner.filter_map(|source| Some((path_below(top, &source.root)?, source.id)));
        let renames = new.name.as_ref().is_some_and(|name| {
            known().any(|source| source.root == new.root && source.name != *name)
        });
        let begun = Begun {
            inner: inner.collect(),
            above,
            listed: Mutex::default(),
            refresh,
            cuts: Mutex::default(),
            entries: AtomicU64::new(0),
            kept_entries: AtomicU64::new(0),
            is_as_before: AtomicBool::new(false),
            new,
        };
        match begun.refresh.is_some() && !renames {
            true => self.derived_is_stale = true,
            false => self.clear_derived(),
        }
        let id = self.next_source;
        self.next_source = id.next();
        self.begun.insert(id, begun);
        Ok(id)
    }

    /// Adds the values of the extended attributes of a source's root. Those of a subtree are with the
    /// listing that it is in.
    pub(super) fn add_root(&self, begun: &Begun, writer: &mut ShardWriter<'_>) {
        if begun.above.is_some() || !Self::has_new_root(begun) {
            return;
        }
        let new = &begun.new;
        let passage = &new.approach.passage;
        for (key, value) in &new.xattrs {
            let Some((value, audience)) = value else { continue };
            let value = Value {
                path: "".into(),
                name: String::new(),
                key: key.clone(),
                value: escape(value).into_owned(),
                attributes: new.attributes,
            };
            writer.add_for(*audience, passage, |builder| builder.push_value(value.clone()));
        }
    }

    fn check_name(&self, name: &str, root: &str) -> Result<()> {
        Self::check_form(name, root)?;
        self.check_name_among(name, |known| known.root != root)
    }

    fn check_form(name: &str, root: &str) -> Result<()> {
        match name != root && name.starts_with('/') {
            true => Err(Error::NameIsPath(name.to_owned())),
            false => Ok(()),
        }
    }

    /// Fails if a name is that of one of these sources.
    fn check_name_among(&self, name: &str, is_other: impl Fn(&SourceRecord) -> bool) -> Result<()> {
        let mut known = self.classes.values().flat_map(|held| &held.manifest.sources);
        match known.find(|it| it.name == name && is_other(it)) {
            Some(other) => {
                Err(Error::NameTaken { name: name.to_owned(), root: other.root.clone() })
            }
            None => Ok(()),
        }
    }

    /// Fails if a source that has come to its end has the name of one in it that stays, since its
    /// root was not listed.
    pub(super) fn check_absorbed(&self, begun: &Begun) -> Result<()> {
        let Some(name) = &begun.new.name else { return Ok(()) };
        let listed = begun.listed.lock();
        let stays =
            |id: SourceId| begun.inner.values().any(|&it| it == id) && !listed.contains(&id);
        self.check_name_among(name, |known| known.root != begun.new.root && stays(known.id))
    }

    /// Returns the deepest source around a directory, if it has listed that.
    fn source_above(&self, root: &str) -> Result<Option<Above>> {
        let known = self.classes.values().flat_map(|held| &held.manifest.sources);
        let above = known.filter_map(|source| Some((source, path_below(&source.root, root)?)));
        let Some((source, path)) = above.max_by_key(|(source, _)| source.root.len()) else {
            return Ok(None);
        };
        let above = Above { id: source.id, root: source.root.clone(), path };
        for shard in self.shards_at(above.id, above.path.as_path())? {
            if !shard.listings_at(above.path.as_path())?.is_empty() {
                return Ok(Some(above));
            }
        }
        Ok(None)
    }

    /// Takes note that a source that was begun went by something else than its record says, or has
    /// listings that lack something.
    pub fn note_partial(&mut self, begun: SourceId) {
        let begun = self.begun.get_mut(&begun);
        if let Some(scan) = begun.and_then(|begun| begun.new.scan.as_mut()) {
            scan.configured = None;
        }
    }

    /// Gives a source up that did not come to its end: what is in the index of it stays.
    pub fn abandon(&mut self, source: SourceId) {
        self.begun.remove(&source);
        self.unfinished.lock().remove(&source);
        let committed =
            self.current.as_ref().map_or(Generation::NONE, |current| current.generation);
        let noted: HashSet<_> = unfinished::files(&self.path, committed)
            .into_iter()
            .flatten()
            .map(|path| self.path.join(path))
            .collect();
        let remove = |path: &Path| {
            // A file that cannot be removed now is in the journal, and goes later.
            if !noted.contains(path) {
                drop(self.options.disk.remove(path));
            }
        };
        let mut written = self.shards.lock();
        for (class, written) in written.extract_if(.., |(_, written)| written.source() == source) {
            let directory = self.dirs.directory(&self.table, class);
            let remove_shard = |directory: &Path, shard: &ShardRecord| {
                for kind in FileKind::ALL.into_iter().filter(|&kind| shard.file(kind).is_some()) {
                    remove(&directory.join(shard.file_name(kind)));
                }
            };
            match written {
                Written::Shard(shard) => remove_shard(&directory, &shard),
                Written::Sealed { file, gated, .. } => {
                    remove(&directory.join(names::sealed_file(&file.id)));
                    let directory = directory.join(names::GATED);
                    gated.iter().for_each(|shard| remove_shard(&directory, shard));
                }
            }
        }
    }

    /// Takes the sources that have come to their end into the manifests, in the place of what was
    /// there; returns the source that shards belong to, by the number under which they were
    /// written.
    pub(super) fn accept_sources(&mut self) -> HashMap<SourceId, SourceId> {
        let unfinished = std::mem::take(&mut *self.unfinished.lock());
        unfinished.into_iter().for_each(|id| self.abandon(id));
        let mut owners = HashMap::new();
        for (id, begun) in std::mem::take(&mut self.begun) {
            owners.insert(id, begun.owner(id));
            self.has_changed |= !begun.is_as_before.load(Ordering::Relaxed);
            self.published.entries += begun.entries.load(Ordering::Relaxed);
            self.published.kept += begun.kept_entries.load(Ordering::Relaxed);
            let has_new_root = Self::has_new_root(&begun);
            let listed = begun.listed.into_inner();
            let absorbed = self.remove_rows_of(|source| listed.contains(&source.id));
            self.published.absorbed.extend(absorbed);
            if begun.refresh.as_ref().is_none_or(Refresh::is_all) {
                self.failures.remove(&begun.new.root);
            }
            self.take_out(begun.cuts.into_inner());
            match (begun.above, begun.refresh) {
                (Some(above), _) => {
                    self.note_update(above.id, begun.new.scanned_ns);
                    if let Some(scan) = self.scans.get_mut(&above.id) {
                        scan.configured = None;
                    }
                    self.published.subtrees.push((begun.new.root, above.root));
                }
                (None, Some(refresh)) => {
                    let mut new = begun.new;
                    let updated_ns = new.scanned_ns;
                    self.scans.extend(new.scan.clone().map(|scan| (refresh.source, scan)));
                    if has_new_root {
                        let old = self.remove_source_record(refresh.source);
                        if let Some(old) = old.filter(|_| !refresh.is_whole(SourcePath::ROOT)) {
                            new.scanned_ns = refresh.scanned_ns.unwrap_or(old.scanned_ns);
                        }
                        self.insert_source(refresh.source, &new);
                    }
                    self.note_update(refresh.source, updated_ns);
                }
                (None, None) => {
                    self.remove_rows_of(|source| source.root == begun.new.root);
                    self.insert_source(id, &begun.new);
                }
            }
        }
        owners
    }

    /// Takes note of when a part of a source was scanned.
    fn note_update(&mut self, id: SourceId, updated_ns: i64) {
        for (&class, Held { manifest, .. }) in &mut self.classes {
            for source in manifest.sources.iter_mut().filter(|source| source.id == id) {
                source.updated_ns = updated_ns;
                self.changed.insert(class);
            }
        }
    }

    /// Takes the record of a source out of the manifests, but nothing else.
    fn remove_source_record(&mut self, id: SourceId) -> Option<SourceRecord> {
        let mut record = None;
        for (&class, Held { manifest, hidden, .. }) in &mut self.classes {
            if hidden.extract_if(.., |hidden| hidden.source == id).count() > 0 {
                self.changed.insert(class);
            }
            for removed in manifest.sources.extract_if(.., |source| source.id == id) {
                record = Some(removed);
                self.changed.insert(class);
            }
        }
        record
    }

    fn insert_source(&mut self, id: SourceId, new: &NewSource) {
        let places = self.places_of(new);
        self.contents().insert_source(places, id, new);
    }

    /// Returns the classes that a source is recorded and sealed in.
    pub(super) fn places_of<'a>(&self, new: &'a NewSource) -> SourcePlaces<'a> {
        let Approach { audience, passage } = &new.approach;
        let layout = new.layout();
        let listers = self.only_class(layout).unwrap_or(audience.listers);
        SourcePlaces { listers, knowers: self.knowers(*audience, passage, layout) }
    }

    /// Seals sources again whose records have changed, or stand in classes that have.
    pub(super) fn seal_sources(&mut self) -> Result<()> {
        let recorded = self.classes.iter().flat_map(|(&class, held)| {
            held.manifest.sources.iter().map(move |record| (record.id, (class, record.clone())))
        });
        let recorded: HashMap<SourceId, (ClassId, SourceRecord)> = recorded.collect();
        let is_stale = |class: &ClassId, held: &Held| {
            let mut sources = held.hidden.iter().filter_map(|hidden| recorded.get(&hidden.source));
            self.changed.contains(class) || sources.any(|(class, _)| self.changed.contains(class))
        };
        let has_any = |held: &Held| !(held.hidden.is_empty() && held.manifest.hidden.is_empty());
        let stale =
            self.classes.iter().filter(|(class, held)| has_any(held) && is_stale(class, held));
        for class in stale.map(|(&class, _)| class).collect::<Vec<_>>() {
            let path = names::all_manifests(&self.path, self.generation);
            let mut sealed = Vec::new();
            for HiddenSource { source, passage } in &self.classes[&class].hidden {
                let Some((listers, record)) = recorded.get(source) else { continue };
                let listers = self.names.class_hash(self.dirs.place(&self.table, *listers));
                let salt = self.salt_of(self.next_shard.fetch_add(1, Ordering::Relaxed));
                let known = KnownSource { listers, record: record.clone() };
                let passage = AbsolutePath::new(passage);
                sealed.push(SealedSource::new(&self.names, &path, passage, salt, &known)?);
            }
            self.classes.entry(class).or_default().manifest.hidden = sealed;
            self.changed.insert(class);
        }
        Ok(())
    }

    /// Returns whether older generations stay, and with them what is taken out of the index.
    pub fn keeps_generations(&self) -> bool {
        !self.retention.is_none()
    }

    /// Takes a source out of the index, by its name or root; returns its root, or none if there is
    /// no such source.
    pub fn remove_source(&mut self, name: &str) -> Option<String> {
        self.settle();
        let root = self.root_of(name)?;
        self.failures.remove(&root);
        self.remove_rows_of(|source| source.root == root);
        self.has_changed = true;
        self.clear_derived();
        Some(root)
    }

    /// Gives a source another name; returns its root, or none if there is no such source.
    pub fn rename_source(&mut self, name: &str, new: &str) -> Result<Option<String>> {
        self.settle();
        let Some(root) = self.root_of(name) else { return Ok(None) };
        self.check_name(new, &root)?;
        for (&class, Held { manifest, .. }) in &mut self.classes {
            for source in manifest.sources.iter_mut().filter(|source| source.root == root) {
                source.name = new.to_owned();
                self.changed.insert(class);
            }
        }
        self.has_changed = true;
        self.clear_derived();
        Ok(Some(root))
    }

    /// Returns the root of the source with a name, else of the one with this root.
    fn root_of(&self, name: &str) -> Option<String> {
        let known = || self.classes.values().flat_map(|held| &held.manifest.sources);
        let named = known().find(|source| source.name == name);
        let found = named.or_else(|| known().find(|source| source.root == name));
        found.map(|source| source.root.clone())
    }

    /// Takes all that is in the manifests of some sources out of them; returns their roots.
    fn remove_rows_of(&mut self, is_removed: impl Fn(&SourceRecord) -> bool) -> Vec<String> {
        self.contents().remove_rows_of(is_removed)
    }

    /// Takes shards, and rows of them, out of the manifests.
    pub(super) fn take_out(&mut self, cuts: Vec<Cut>) {
        self.contents().take_out(cuts);
    }

    /// Returns what the manifests say.
    pub(super) fn contents(&mut self) -> Contents<'_> {
        Contents {
            classes: &mut self.classes,
            scans: &mut self.scans,
            changed: &mut self.changed,
            read_pages: &self.read_pages,
        }
    }

    /// Records why a source could not be indexed. `root` is absolute and escaped. The record is
    /// written when the generation is published, or by [`Writer::save_failures`].
    pub fn record_failure(&mut self, root: &str, reason: String) {
        self.failures.add(self.failures.of(root, super::now_ns(), reason, false));
    }

    /// Records what is missing in a source that is about to be published.
    pub fn record_incomplete(&mut self, root: &str, reason: String) {
        self.incomplete.push(self.failures.of(root, super::now_ns(), reason, true));
    }

    /// Counts a listing if it is for its owner and root alone.
    pub(super) fn note_limits(&self, listing: &Listing<'_>) {
        if listing.access.beyond_limits && listing.part == 0 {
            *self.beyond_limits.lock().entry(listing.directory.uid).or_default() += 1;
        }
    }

    /// Returns how many directories are for their owner and root alone so far, by owner.
    pub fn beyond_limits(&self) -> BTreeMap<u32, u64> {
        self.beyond_limits.lock().clone()
    }

    /// Forgets what was recorded by [`Writer::record_failure`]. Returns whether anything was.
    pub fn forget_failure(&mut self, root: &str) -> bool {
        self.failures.remove(root)
    }

    /// Ends without a new generation. Abandons what was begun; saves the recorded failures if the
    /// index has a generation.
    pub fn save_failures(self) -> Result<()> {
        if self.current.is_none() { Ok(()) } else { self.write_failures() }
    }

    pub(super) fn write_failures(&self) -> Result<()> {
        match Failures::read(&self.path) {
            Ok(known) if known == self.failures => return Ok(()),
            Err(error) if error.damaged_file().is_none() => return Err(error),
            _ => {}
        }
        self.failures.write(&self.options.disk, &self.path)
    }
}

/// The manifests, as they change.
pub(super) struct Contents<'w> {
    pub(super) classes: &'w mut BTreeMap<ClassId, Held>,
    pub(super) scans: &'w mut BTreeMap<SourceId, ScanRecord>,
    /// Classes with changes.
    pub(super) changed: &'w mut HashSet<ClassId>,
    /// The pages that were read: all with shards that lose rows.
    pub(super) read_pages: &'w ReadPages,
}

impl Contents<'_> {
    /// Adds what was written for a class.
    pub(super) fn take_in(&mut self, class: ClassId, written: Written) {
        self.changed.insert(class);
        let Held { manifest, gated: known, .. } = self.classes.entry(class).or_default();
        match written {
            Written::Shard(shard) => manifest.shards.loose.push(*shard),
            Written::Sealed { file, gated, .. } => {
                manifest.sealed.push(file);
                known.loose.extend(gated);
            }
        }
    }

    /// Takes classes out that hold nothing.
    pub(super) fn drop_empty(&mut self) {
        self.classes.retain(|_, Held { manifest, hidden, .. }| {
            !(manifest.shards.is_empty()
                && manifest.sources.is_empty()
                && manifest.sealed.is_empty()
                && hidden.is_empty())
        });
    }

    /// Takes shards, and rows of them, out of the manifests.
    pub(super) fn take_out(&mut self, cuts: Vec<Cut>) {
        // New record of each cut shard; `None` if the shard goes.
        let mut by_class: BTreeMap<ClassId, HashMap<String, Option<ShardRecord>>> = BTreeMap::new();
        for cut in cuts {
            let (class, id, record) = match cut {
                Cut::Gone(class, id) => (class, id, None),
                Cut::Dead(class, record) => (class, record.id.clone(), Some(*record)),
                Cut::Sealed(class, record) => {
                    let Held { manifest, .. } = self.classes.entry(class).or_default();
                    let mut known = manifest.sealed.iter_mut();
                    if let Some(known) = known.find(|known| known.id == record.id) {
                        *known = *record;
                    }
                    self.changed.insert(class);
                    continue;
                }
            };
            by_class.entry(class).or_default().insert(id, record);
        }
        for (class, mut cuts) in by_class {
            let Held { manifest, gated, .. } = self.classes.entry(class).or_default();
            for set in [&mut manifest.shards, gated] {
                self.read_pages.loosen(set, cuts.keys());
                let stays = |shard: ShardRecord| match cuts.remove(&shard.id) {
                    Some(record) => record,
                    None => Some(shard),
                };
                set.loose = std::mem::take(&mut set.loose).into_iter().filter_map(stays).collect();
            }
            manifest.sealed.retain(|file| !cuts.contains_key(&file.id));
            self.changed.insert(class);
        }
    }

    /// Adds a source to the classes that [`Writer::places_of`] returns, with how it was scanned, if it
    /// was.
    pub(super) fn insert_source(
        &mut self,
        places: SourcePlaces<'_>,
        id: SourceId,
        new: &NewSource,
    ) {
        let SourcePlaces { listers: class, knowers } = places;
        self.changed.insert(class);
        self.scans.remove(&id);
        self.scans.extend(new.scan.clone().map(|scan| (id, scan)));
        self.classes.entry(class).or_default().manifest.sources.push(new.record(id));
        if let Some((knowers, passage)) = knowers {
            self.changed.insert(knowers);
            let hidden = HiddenSource { source: id, passage: passage.to_string() };
            self.classes.entry(knowers).or_default().hidden.push(hidden);
        }
    }

    /// Takes all that is in the manifests of some sources out of them; returns their roots.
    pub(super) fn remove_rows_of(
        &mut self,
        is_removed: impl Fn(&SourceRecord) -> bool,
    ) -> Vec<String> {
        let sources = self.classes.values().flat_map(|held| &held.manifest.sources);
        let removed: BTreeMap<SourceId, String> = sources
            .filter(|source| is_removed(source))
            .map(|source| (source.id, source.root.clone()))
            .collect();
        self.scans.retain(|id, _| !removed.contains_key(id));
        for (&class, Held { manifest, gated, hidden, .. }) in &mut *self.classes {
            let count = |manifest: &Manifest| (manifest.sources.len(), manifest.sealed.len());
            let before = (count(manifest), hidden.len());
            let stays = |source: SourceId| !removed.contains_key(&source);
            hidden.retain(|hidden| stays(hidden.source));
            manifest.sources.retain(|source| stays(source.id));
            manifest.sealed.retain(|file| stays(file.source));
            let is_cut = manifest.shards.retain_sources(stays) | gated.retain_sources(stays);
            if is_cut || before != (count(manifest), hidden.len()) {
                self.changed.insert(class);
            }
        }
        removed.into_values().collect()
    }
}

/// Returns the path of something below a root; none for the root itself and what is elsewhere.
fn path_below(root: &str, path: &str) -> Option<SourcePathBuf> {
    let below = SourcePath::below(AbsolutePath::new(path), AbsolutePath::new(root))?;
    (!below.is_root()).then(|| below.to_buf())
}

impl NewSource {
    pub(super) fn record(&self, id: SourceId) -> SourceRecord {
        SourceRecord {
            id,
            name: self.name.clone().unwrap_or_else(|| self.root.clone()),
            xattrs: shown_names(self.xattrs.iter().map(|(key, _)| key.as_str())),
            root: self.root.clone(),
            dev: self.dev,
            scanned_ns: self.scanned_ns,
            updated_ns: self.scanned_ns,
            attributes: self.attributes,
        }
    }
}

impl Written {
    /// Makes it one of another source.
    pub(super) fn set_source(&mut self, source: SourceId) {
        match self {
            Written::Shard(shard) => shard.source = source,
            // Made as of the source that it belongs to.
            Written::Sealed { .. } => {}
        }
    }

    /// Returns the number under which it was written.
    pub(super) fn source(&self) -> SourceId {
        match self {
            Written::Shard(shard) => shard.source,
            Written::Sealed { begun, .. } => *begun,
        }
    }
}

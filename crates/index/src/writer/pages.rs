//! The pages that a writer reads, since something in them changes, and those that it makes.

use super::replaced::Replaced;
use super::{Held, Writer};
use crate::error::Result;
use crate::manifest::ShardSet;
use crate::names;
use crate::pages::{self, PageId, PageRecord};
use crate::shard::{ClassDir, Shard};
use crate::shard_record::ShardRecord;
use crate::source_id::SourceId;
use canopy_model::{ClassId, SourcePath};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Mode of a page that whoever may enter its directory may read.
const READABLE: u32 = 0o644;

/// Mode of a page for the writer alone: it names what only those find who know a path.
const PRIVATE: u32 = 0o600;

/// The shards of pages that were read, which page each is in, and what was opened of them.
#[derive(Default)]
pub(super) struct ReadPages(Mutex<State>);

#[derive(Default)]
struct State {
    shards: HashMap<PageId, Arc<Vec<Arc<Shard>>>>,
    pages: HashMap<String, PageId>,
    /// Shards whose files were needed, by id.
    opened: HashMap<String, Arc<Shard>>,
}

impl ReadPages {
    /// Returns the shards of a page.
    pub(super) fn of(
        &self,
        place: &Arc<ClassDir>,
        record: &PageRecord,
    ) -> Result<Arc<Vec<Arc<Shard>>>> {
        if let Some(shards) = self.0.lock().shards.get(&record.id) {
            return Ok(shards.clone());
        }
        let shards = Arc::new(pages::read(place, record)?);
        self.keep(record.id, shards.clone());
        Ok(shards)
    }

    fn keep(&self, id: PageId, shards: Arc<Vec<Arc<Shard>>>) {
        let mut state = self.0.lock();
        let own = shards.iter().map(|shard| (shard.record().id.clone(), id));
        state.pages.extend(own);
        state.shards.insert(id, shards);
    }

    /// Returns what was opened of a shard before, or that from now on.
    fn opened(&self, shard: &Arc<Shard>) -> Arc<Shard> {
        let mut state = self.0.lock();
        let known = state.opened.entry(shard.record().id.clone()).or_insert_with(|| shard.clone());
        // Other rows of it may count by now.
        if known.record() != shard.record() {
            known.clone_from(shard);
        }
        known.clone()
    }

    /// Takes shards out of their pages, if these were read.
    pub(super) fn loosen<'a>(&self, set: &mut ShardSet, ids: impl Iterator<Item = &'a String>) {
        let state = self.0.lock();
        for page in ids.filter_map(|id| state.pages.get(id)) {
            if let Some(at) = set.pages.iter().position(|known| known.id == *page)
                && let Some(shards) = state.shards.get(page)
            {
                set.pages.swap_remove(at);
                set.loose.extend(shards.iter().map(|shard| shard.record().clone()));
            }
        }
    }
}

impl Writer {
    /// Returns the shards of a source that are in the manifests, but for those of pages that are not
    /// wanted.
    pub(super) fn shards_where(
        &self,
        source: SourceId,
        is_wanted: impl Fn(ClassId, &PageRecord) -> bool,
    ) -> Result<Vec<(ClassId, Shard)>> {
        let mut found = Vec::new();
        self.each_page(source, is_wanted, |class, place, shards| {
            let records = shards.iter().map(|shard| shard.record().clone());
            found.extend(records.map(|record| (class, Shard::new(record, place.clone()))));
        })?;
        Ok(found)
    }

    /// Returns all shards of a source that have the listing of a directory, and perhaps others. Their
    /// files stay open.
    pub(super) fn shards_at(
        &self,
        source: SourceId,
        directory: SourcePath<'_>,
    ) -> Result<Vec<Arc<Shard>>> {
        let mut found = Vec::new();
        let is_wanted = |_, page: &PageRecord| page.extent.may_have_at(directory);
        self.each_page(source, is_wanted, |_, _, shards| {
            let near = shards
                .iter()
                .filter(|shard| directory.is_below(SourcePath::escaped(&shard.record().prefix)));
            found.extend(near.map(|shard| self.read_pages.opened(shard)));
        })?;
        Ok(found)
    }

    fn each_page(
        &self,
        source: SourceId,
        is_wanted: impl Fn(ClassId, &PageRecord) -> bool,
        mut each: impl FnMut(ClassId, &Arc<ClassDir>, &[Arc<Shard>]),
    ) -> Result<()> {
        for (&class, Held { manifest, .. }) in &self.classes {
            let shards = &manifest.shards;
            let is_wanted =
                |page: &&Arc<PageRecord>| page.extent.source == source && is_wanted(class, page);
            let mut pages = shards.pages.iter().filter(is_wanted).peekable();
            let mut loose = shards.loose.iter().filter(|shard| shard.source == source).peekable();
            if pages.peek().is_none() && loose.peek().is_none() {
                continue;
            }
            let place = self.class_dir(class);
            for page in pages {
                each(class, &place, &self.read_pages.of(&place, page)?);
            }
            let open = |shard: &ShardRecord| Arc::new(Shard::new(shard.clone(), place.clone()));
            each(class, &place, &loose.map(open).collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Reads the pages of shards of a source in a class that only sealed records name.
    pub(super) fn read_gated(&self, class: ClassId, replaced: &Replaced) -> Result<()> {
        let Some(Held { gated, .. }) = self.classes.get(&class) else { return Ok(()) };
        let place = self.class_dir(class);
        let place = Arc::new(ClassDir::new(move || place.directory.join(names::GATED)));
        let own = gated.pages.iter().filter(|page| page.extent.source == replaced.source);
        for page in own.filter(|page| replaced.may_be_in(page)) {
            self.read_pages.of(&place, page)?;
        }
        Ok(())
    }

    fn new_page_id(&self, is_secret: bool) -> PageId {
        let number = self.next_shard.fetch_add(1, Ordering::Relaxed);
        let secret = is_secret.then(|| self.salt_of(number));
        PageId { generation: self.generation, number, secret }
    }

    fn class_dir(&self, class: ClassId) -> Arc<ClassDir> {
        let directory = self.dirs.directory(&self.table, class);
        Arc::new(ClassDir::new(|| directory))
    }

    /// Puts the loose shards of a class into pages, those that only sealed records name into their
    /// own. Not durable before a sync.
    pub(super) fn make_pages(
        &self,
        class: ClassId,
        shards: &mut ShardSet,
        gated: &mut ShardSet,
    ) -> Result<()> {
        if !shards.loose.is_empty() {
            let directory = self.dirs.ensure(&self.table, class)?;
            self.make_pages_in(&directory, shards, READABLE)?;
        }
        if !gated.loose.is_empty() {
            let directory = self.dirs.ensure_gated(&self.table, class)?;
            self.make_pages_in(&directory, gated, PRIVATE)?;
        }
        Ok(())
    }

    fn make_pages_in(&self, directory: &Path, set: &mut ShardSet, mode: u32) -> Result<()> {
        let at = directory.to_owned();
        let place = Arc::new(ClassDir::new(|| at));
        let mut by_source: BTreeMap<SourceId, Vec<Arc<Shard>>> = BTreeMap::new();
        for shard in std::mem::take(&mut set.loose) {
            let shards = by_source.entry(shard.source).or_default();
            shards.push(Arc::new(Shard::new(shard, place.clone())));
        }
        let max = self.options.page_shards_max.max(1);
        for (source, mut shards) in by_source {
            if let Some(page) = page_with_room(set, source, shards.len(), max).cloned() {
                shards.extend_from_slice(&self.read_pages.of(&place, &page)?);
                set.pages.retain(|known| known.id != page.id);
            }
            for shards in pages::divide(shards, max)? {
                let secret = mode == PRIVATE;
                let id = self.new_page_id(secret);
                let page = pages::write(&self.options.disk, directory, id, &shards, mode)?;
                set.pages.push(Arc::new(page));
                self.read_pages.keep(id, Arc::new(shards));
            }
        }
        Ok(())
    }
}

/// Returns the page that so many shards which come to a class join, if there is one with room among
/// pages of at most `max` shards.
pub(super) fn page_with_room(
    set: &ShardSet,
    source: SourceId,
    shards: usize,
    max: usize,
) -> Option<&Arc<PageRecord>> {
    let own = set.pages.iter().filter(|page| page.extent.source == source);
    let least = own.min_by_key(|page| (page.extent.shards, page.id));
    least.filter(|page| page.extent.shards as usize + shards <= max)
}

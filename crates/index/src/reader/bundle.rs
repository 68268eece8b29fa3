//! Contents of classes in an index: pages of shards and rows of derived tables, read on demand.

use crate::bundles::{self, BundleId, BundleRecord};
use crate::error::Result;
use crate::manifest::Manifest;
use crate::names::Names;
use crate::own_tables::TableFileRecord;
use crate::pages::{self, Extent, PageRecord};
use crate::shard::{ClassDir, Shard};
use crate::shard_record::ShardRecord;
use crate::source_id::SourceId;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The contents of some classes.
pub(super) struct ReadBundle {
    /// Where they are, and what is known of them before they are read; `None` where they come from
    /// the manifests of classes.
    unread: Option<(Arc<Names>, Arc<BundleRecord>)>,
    contents: OnceLock<Contents>,
    /// Whether it is of the user's own index, which was joined to another.
    is_own: bool,
}

/// Contents of manifests of classes.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) pages: Vec<Arc<IndexPage>>,
    pub(super) tables: Vec<ClassTables>,
}

/// Shards of one class and source, unread until somebody asks for them.
pub(super) struct IndexPage {
    pub(super) record: Arc<PageRecord>,
    /// The number of the source here.
    pub(super) source: SourceId,
    place: Arc<ClassDir>,
    shards: OnceLock<Vec<Arc<Shard>>>,
}

/// Files of derived tables in one class, untouched until a query asks.
#[derive(Clone)]
pub(super) struct ClassTables {
    pub(super) place: Arc<ClassDir>,
    pub(super) files: Vec<TableFileRecord>,
}

impl ReadBundle {
    /// Makes one of what manifests of classes say.
    pub(super) fn known(contents: Contents) -> Self {
        ReadBundle { unread: None, contents: OnceLock::from(contents), is_own: false }
    }

    /// Makes one of a bundle that is read when somebody asks.
    pub(super) fn unread(names: Arc<Names>, record: BundleRecord) -> Self {
        let unread = Some((names, Arc::new(record)));
        ReadBundle { unread, contents: OnceLock::new(), is_own: false }
    }

    /// Returns the bundle as one of the user's own index, which is joined to another.
    pub(super) fn of_own_index(&self) -> Self {
        let contents = match (&self.unread, self.contents.get()) {
            (None, Some(known)) => OnceLock::from(known.of_own_index()),
            _ => OnceLock::new(),
        };
        ReadBundle { unread: self.unread.clone(), contents, is_own: true }
    }

    /// Returns whether it is of the user's own index, which was joined to another.
    pub(super) fn is_of_own_index(&self) -> bool {
        self.is_own
    }

    /// Returns the number that a source has here.
    fn number_here(&self, source: SourceId) -> SourceId {
        if self.is_own { source.in_own_index() } else { source }
    }

    /// Returns its identity among those of any generation of its index, if it is from one.
    pub(super) fn id(&self) -> Option<BundleId> {
        self.unread.as_ref().map(|(_, record)| record.id)
    }

    /// Returns what is in it.
    pub(super) fn contents(&self) -> Result<&Contents> {
        if let Some(contents) = self.contents.get() {
            return Ok(contents);
        }
        let mut read = Contents::default();
        if let Some((names, record)) = &self.unread {
            for class in bundles::read(names.index(), record)? {
                let names = names.clone();
                read.add(ClassDir::new(move || names.class(class.class.place)), class.manifest);
            }
        }
        let read = if self.is_own { read.of_own_index() } else { read };
        Ok(self.contents.get_or_init(|| read))
    }

    /// Returns what is known of its shards without reading it, or of its pages, each with the number
    /// of the source here.
    pub(super) fn extents(&self) -> impl Iterator<Item = (SourceId, &Extent)> {
        let unread = self.unread.iter().flat_map(|(_, record)| &record.extents);
        let unread = unread.map(|extent| (self.number_here(extent.source), extent));
        let known = self.contents.get().filter(|_| self.unread.is_none());
        let pages = known.into_iter().flat_map(|contents| &contents.pages);
        unread.chain(pages.map(|page| (page.source, &page.record.extent)))
    }

    /// Returns what is known of its shards of a source without reading it.
    pub(super) fn extent(&self, source: SourceId) -> Option<&Extent> {
        let (_, record) = self.unread.as_ref()?;
        record.extents.iter().find(|extent| self.number_here(extent.source) == source)
    }

    /// Returns whether it has anything of which that may be so.
    pub(super) fn may_have(&self, is_so: impl Fn(SourceId, &Extent) -> bool) -> bool {
        self.unread.is_none() || self.extents().any(|(source, extent)| is_so(source, extent))
    }

    /// Returns whether it may have rows of derived tables.
    pub(super) fn has_tables(&self) -> bool {
        self.unread.as_ref().is_none_or(|(_, record)| record.has_tables)
    }
}

impl Contents {
    /// Adds what the manifest of a class says; returns the shards that are in no page.
    pub(super) fn add(&mut self, place: ClassDir, manifest: Manifest) -> Vec<Arc<Shard>> {
        let place = Arc::new(place);
        if !manifest.tables.is_empty() {
            self.tables.push(ClassTables { place: place.clone(), files: manifest.tables });
        }
        self.pages.extend(manifest.shards.pages.into_iter().map(|record| {
            let (place, source) = (place.clone(), record.extent.source);
            Arc::new(IndexPage { record, source, place, shards: OnceLock::new() })
        }));
        let loose = manifest.shards.loose.into_iter();
        loose.map(|shard| Arc::new(Shard::new(shard, place.clone()))).collect()
    }

    fn of_own_index(&self) -> Self {
        let page = |page: &Arc<IndexPage>| {
            if page.source.is_in_own_index() {
                return page.clone();
            }
            let (record, place) = (page.record.clone(), page.place.clone());
            let source = page.source.in_own_index();
            Arc::new(IndexPage { record, source, place, shards: OnceLock::new() })
        };
        Contents { pages: self.pages.iter().map(page).collect(), tables: self.tables.clone() }
    }
}

impl IndexPage {
    /// Returns the shards in it.
    pub(super) fn shards(&self) -> Result<&[Arc<Shard>]> {
        if let Some(shards) = self.shards.get() {
            return Ok(shards);
        }
        let shards = pages::read(&self.place, &self.record)?;
        let shards = shards.into_iter().map(|shard| of_source(shard, self.source)).collect();
        Ok(self.shards.get_or_init(|| shards))
    }

    /// Returns the directory that it is in.
    pub(super) fn directory(&self) -> &Path {
        &self.place.directory
    }
}

/// Returns a shard as one of a source with this number.
pub(super) fn of_source(shard: Arc<Shard>, source: SourceId) -> Arc<Shard> {
    if shard.record().source == source {
        return shard;
    }
    let record = ShardRecord { source, ..shard.record().clone() };
    Arc::new(Shard::new(record, shard.place.clone()))
}

//! Publishing: what was written becomes a generation that readers see.
//!
//! One `syncfs` precedes the new `CURRENT`; an fsync for each of thousands of files would take much
//! longer.

use super::cleaning::Tree;
use super::salvage;
use super::{Held, Published, Writer};
use crate::bundles::{self, BundleId};
use crate::class_dirs::{ClassDirs, grants_of};
use crate::class_lists::{self, ClassLists, ListRecord, ListedClass};
use crate::error::{Error, Result};
use crate::manifest::{
    self, AllManifests, Catalog, ClassManifest, ClassRecord, GrantRecord, ScanRecord,
};
use crate::names;
use crate::packed::PackedList;
use crate::source_id::SourceId;
use canopy_model::{ClassId, ClassTable, GrantId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

impl Writer {
    /// Publishes all sources that have come to their end since the index was opened, as one
    /// generation.
    pub fn publish(mut self) -> Result<Published> {
        self.settle();
        if self.derived_is_stale {
            self.clear_derived();
        }
        for failure in std::mem::take(&mut self.incomplete) {
            self.failures.add(failure);
        }
        self.join_due_sealed()?;
        let mut published = self.published_in_all();
        published.generation = self.generation;
        let tree = self.write_manifests()?;
        // Nothing is removed before the new generation counts.
        let current = self.leave(&tree)?;
        let disk = &self.options.disk;
        disk.sync_all(&self.path)?;
        // If another worker publishes instead, it has taken this one's directory away.
        let new = self.publisher.as_ref().unwrap_or(&self.path).join("CURRENT.new");
        manifest::write(disk, &new, &current, self.public_mode(), true)?;
        disk.replace(&new, &names::current(&self.path))?;
        self.current_tree = tree;
        // The generation is committed, whatever becomes of these.
        drop(salvage::copy_current(disk, &self.path, &current));
        published.unrecorded = self.write_failures().err().map(|error| error.to_string());
        Ok(published)
    }

    /// Returns what was made, but for the generation.
    pub(super) fn published_in_all(&mut self) -> Published {
        let mut published = std::mem::take(&mut self.published);
        published.classes = self.classes.len() as u64;
        published.closed_grants = self.dirs.closed_grants();
        published.beyond_limits = std::mem::take(&mut *self.beyond_limits.lock());
        for owner in self.table.beyond_limits() {
            published.beyond_limits.entry(owner).or_default();
        }
        published.folded += self.table.folded();
        published
    }

    /// Writes all that says what is in the generation, and returns what it consists of.
    fn write_manifests(&mut self) -> Result<Tree> {
        self.seal_sources()?;
        let mut classes = std::mem::take(&mut self.classes);
        for (&class, held) in &mut classes {
            if self.changed.contains(&class) {
                held.written = self.generation;
                self.make_pages(class, &mut held.manifest.shards, &mut held.gated)?;
                let directory = self.dirs.ensure(&self.table, class)?;
                let path = names::manifest(&directory, self.generation);
                manifest::write(&self.options.disk, &path, &held.manifest, 0o644, false)?;
            }
        }
        self.classes = classes;
        let disk = &self.options.disk;
        let listed = class_lists(&self.table, &self.dirs, &self.classes);
        let grants = |class: &ClassId| grants_of(&self.table, *class);
        let changed = self.changed.iter().flat_map(|class| class_lists::listed_for(&grants(class)));
        let changed = changed.chain(self.relisted.iter().copied()).collect();
        let lists = listed.write(disk, &self.names, self.generation, &changed, &self.lists)?;
        let catalog = Catalog {
            key: self.names.key(),
            classes: listed.everybody,
            lists: lists.clone(),
            tables: self.tables.clone(),
        };
        let path = names::catalog(&self.path, self.generation);
        manifest::write(disk, &path, &catalog, self.public_mode(), false)?;
        let path = names::all_manifests(&self.path, self.generation);
        let (mut all, manifests) = self.all_manifests(&self.classes, &self.scans, lists.clone())?;
        let tree = Tree::of(self.generation, &lists, &manifests);
        let max = self.options.bundle_classes_max;
        let new_id = || BundleId {
            generation: self.generation,
            number: self.next_shard.fetch_add(1, Ordering::Relaxed),
        };
        let bundles = bundles::write(disk, &self.path, &self.bundles, manifests, max, new_id)?;
        all.bundles = bundles.into_iter().map(|bundle| bundle.record).collect();
        all.sources =
            self.classes.values().flat_map(|held| &held.manifest.sources).cloned().collect();
        manifest::write(disk, &path, &all, 0o600, false)?;
        Ok(tree.with_bundles(&all.bundles))
    }

    /// Returns what is known of a generation but for its bundles, and the manifests of all classes,
    /// given what these hold.
    pub(super) fn all_manifests(
        &self,
        classes: &BTreeMap<ClassId, Held>,
        scans: &BTreeMap<SourceId, ScanRecord>,
        lists: Vec<ListRecord>,
    ) -> Result<(AllManifests, Vec<ClassManifest>)> {
        let path = names::all_manifests(&self.path, self.generation);
        let failed = Error::encode::<postcard::Error>(&path);
        let mut manifests = Vec::with_capacity(classes.len());
        let mut used = BTreeSet::new();
        for (&class, held) in classes {
            let record = ClassRecord {
                grants: self.table.grants_of(class).iter().map(|id| id.0).collect(),
                place: self.dirs.place(&self.table, class),
                manifest: held.written,
                charged: self.table.charged_to(class),
            };
            used.extend(record.grants());
            let Held { manifest, gated, hidden, .. } = held.clone();
            manifests.push(ClassManifest { class: record, manifest, gated, hidden });
        }
        let grant = |id: GrantId| (id.0, GrantRecord::new(&self.table.grant(id)));
        let grants: Vec<_> = used.into_iter().map(grant).collect();
        let all = AllManifests {
            key: self.names.key(),
            grants: PackedList::new(grants).map_err(&failed)?,
            next_grant: self.table.next_grant(),
            limits: self.limits.map(|limits| (limits.classes as u64, limits.names as u64)),
            sources: Vec::new(),
            bundles: Vec::new(),
            lists: PackedList::new(lists).map_err(&failed)?,
            tables: self.tables.clone(),
            queries: self.queries.clone(),
            scans: scans.clone(),
        };
        Ok((all, manifests))
    }

    pub(super) fn public_mode(&self) -> u32 {
        if self.unprivileged { 0o600 } else { 0o644 }
    }
}

/// Returns the lists of classes that hold anything.
pub(super) fn class_lists(
    table: &ClassTable,
    dirs: &ClassDirs,
    classes: &BTreeMap<ClassId, Held>,
) -> ClassLists {
    let mut lists = ClassLists::default();
    for (&class, held) in classes {
        let grants = grants_of(table, class);
        let place = dirs.place(table, class);
        lists.add(ListedClass { place, manifest: held.written }, &grants);
    }
    lists
}

//! The sources of an index: beginning one, abandoning it, taking it into the manifests.

use super::{Held, NewSource, ShardWriter, Writer, Written};
use crate::builder::{Value, shown_names};
use crate::error::{Error, Result};
use crate::manifest::{Manifest, SourceRecord};
use crate::names;
use crate::schema::FileKind;
use crate::shard_record::ShardRecord;
use canopy_model::escape;
use std::path::Path;

impl Writer {
    /// Begins a source, and returns its number. When it has come to its end, it takes the place of
    /// the source with the same root; until then, nothing changes.
    pub fn add_source(&mut self, new: NewSource) -> Result<u32> {
        let name = new.name.as_ref().unwrap_or(&new.root);
        let known = self.classes.values().flat_map(|held| &held.manifest.sources);
        let known = known.map(|source| (&source.name, &source.root));
        let begun = self.begun.values();
        let begun =
            begun.map(|source| (source.name.as_ref().unwrap_or(&source.root), &source.root));
        if let Some((_, root)) =
            known.chain(begun).find(|(other, root)| *other == name && **root != new.root)
        {
            return Err(Error::NameTaken { name: name.clone(), root: root.clone() });
        }
        self.clear_derived();
        let id = self.next_source;
        self.next_source += 1;
        self.begun.insert(id, new);
        Ok(id)
    }

    /// Hands over what a source has before its first listing: what those who know its root by name
    /// learn of it, and the values of the root's extended attributes.
    pub(super) fn begin(&self, id: u32, new: &NewSource, writer: &mut ShardWriter<'_>) {
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
        let audience = new.approach.audience;
        if let Some((knowers, passage)) = self.knowers(audience, passage) {
            writer.add_sealed(knowers, |sealed| {
                sealed.set_origin(passage, audience.listers, new.record(id));
            });
        }
    }

    /// Gives a source up that did not come to its end: what is in the index of it stays.
    pub fn abandon(&mut self, source: u32) {
        self.begun.remove(&source);
        self.unfinished.lock().remove(&source);
        let mut written = self.shards.lock();
        for (class, written) in written.extract_if(.., |(_, written)| written.source() == source) {
            let directory = self.names.class(self.table.grants_of(class));
            // What cannot be removed now is in the journal.
            let remove = |directory: &Path, shard: &ShardRecord| {
                for kind in FileKind::ALL.into_iter().filter(|&kind| shard.file(kind).is_some()) {
                    drop(self.options.disk.remove(&directory.join(shard.file_name(kind))));
                }
            };
            match written {
                Written::Shard(shard) => remove(&directory, &shard),
                Written::Sealed(file, gated) => {
                    let path = directory.join(names::sealed_file(&file.id));
                    drop(self.options.disk.remove(&path));
                    let directory = directory.join(names::GATED);
                    gated.iter().for_each(|shard| remove(&directory, shard));
                }
            }
        }
    }

    /// Takes the sources that have come to their end into the manifests, in the place of those with
    /// the same roots.
    pub(super) fn accept_sources(&mut self) {
        let unfinished = std::mem::take(&mut *self.unfinished.lock());
        for id in unfinished {
            self.abandon(id);
        }
        for (id, new) in std::mem::take(&mut self.begun) {
            self.remove_rows_of(|source| source.root == new.root);
            self.failures.remove(&new.root);
            let class = self.effective(new.approach.audience.listers);
            self.changed.insert(class);
            self.classes.entry(class).or_default().manifest.sources.push(new.record(id));
        }
    }

    /// Takes the source with this root out of the index; returns whether there was one.
    pub fn remove_source(&mut self, root: &str) -> bool {
        self.failures.remove(root);
        let removed = self.remove_rows_of(|source| source.root == root);
        if removed {
            self.clear_derived();
        }
        removed
    }

    /// Takes all that is in the manifests of some sources out of them; returns whether there was
    /// anything.
    fn remove_rows_of(&mut self, is_removed: impl Fn(&SourceRecord) -> bool) -> bool {
        let sources = self.classes.values().flat_map(|held| &held.manifest.sources);
        let removed: Vec<u32> =
            sources.filter(|source| is_removed(source)).map(|source| source.id).collect();
        for (&class, Held { manifest, gated, .. }) in &mut self.classes {
            let count = |manifest: &Manifest| {
                (manifest.sources.len(), manifest.shards.len(), manifest.sealed.len())
            };
            let before = count(manifest);
            manifest.sources.retain(|source| !removed.contains(&source.id));
            manifest.shards.retain(|shard| !removed.contains(&shard.source));
            manifest.sealed.retain(|file| !removed.contains(&file.source));
            gated.retain(|shard| !removed.contains(&shard.source));
            if before != count(manifest) {
                self.changed.insert(class);
            }
        }
        !removed.is_empty()
    }

    /// Records that a source, by its root as an absolute escaped path, could not be indexed, and
    /// why. Written when the generation is published, or by [`Writer::keep`].
    pub fn failed(&mut self, root: &str, reason: String) {
        self.failures.add(root, super::now_ns(), reason);
    }

    /// Forgets what was recorded by [`Writer::failed`].
    pub fn forget_failure(&mut self, root: &str) {
        self.failures.remove(root);
    }

    /// Ends without a new generation: what was begun is abandoned, and failures are recorded if
    /// there is a generation at all.
    pub fn keep(self) -> Result<()> {
        if self.current.is_none() { Ok(()) } else { self.write_failures() }
    }

    pub(super) fn write_failures(&self) -> Result<()> {
        let path = &self.path;
        if crate::failures::Failures::read(path)? == self.failures {
            return Ok(());
        }
        self.failures.write(&self.options.disk, path)
    }
}

impl NewSource {
    fn record(&self, id: u32) -> SourceRecord {
        SourceRecord {
            id,
            name: self.name.clone().unwrap_or_else(|| self.root.clone()),
            xattrs: shown_names(self.xattrs.iter().map(|(key, _)| key.as_str())),
            root: self.root.clone(),
            dev: self.dev,
            scanned_ns: self.scanned_ns,
            attributes: self.attributes,
        }
    }
}

impl Written {
    fn source(&self) -> u32 {
        match self {
            Written::Shard(shard) => shard.source,
            Written::Sealed(file, _) => file.source,
        }
    }
}

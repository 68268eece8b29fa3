//! The sources of an index: beginning one, abandoning it, taking it into the manifests.

use super::{NewSource, Writer};
use crate::builder::{Value, shown_names};
use crate::error::{Error, Result};
use crate::manifest::SourceRecord;
use crate::schema::FileKind;
use canopy_model::escape;

impl Writer {
    /// Begins a source, and returns its number. When it has come to its end, it takes the place of
    /// the source with the same root; until then, nothing changes.
    pub fn add_source(&mut self, new: NewSource) -> Result<u32> {
        let name = new.name.as_ref().unwrap_or(&new.root);
        let known = self.classes.values().flat_map(|(_, manifest)| &manifest.sources);
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
        let mut values = self.root_values.lock();
        for (key, value) in &new.xattrs {
            let Some((value, class)) = value else { continue };
            let value = Value {
                path: "".into(),
                name: String::new(),
                key: key.clone(),
                value: escape(value).into_owned(),
                attributes: new.attributes,
            };
            values.push((id, *class, value));
        }
        drop(values);
        self.begun.insert(id, new);
        Ok(id)
    }

    /// Gives a source up that did not come to its end: what is in the index of it stays.
    pub fn abandon(&mut self, source: u32) {
        self.begun.remove(&source);
        self.unfinished.lock().remove(&source);
        self.root_values.lock().retain(|(id, ..)| *id != source);
        let mut shards = self.shards.lock();
        for (class, shard) in shards.extract_if(.., |(_, shard)| shard.source == source) {
            let directory = self.names.class(&self.table.path_of(class));
            for kind in FileKind::ALL.into_iter().filter(|&kind| shard.file(kind).is_some()) {
                // What cannot be removed now is in the journal.
                drop(self.options.disk.remove(&directory.join(shard.file_name(kind))));
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
            let class = self.effective(new.class);
            self.changed.insert(class);
            let keys = new.xattrs.iter().map(|(key, _)| key.as_str());
            let record = SourceRecord {
                id,
                name: new.name.unwrap_or_else(|| new.root.clone()),
                xattrs: shown_names(keys),
                root: new.root,
                dev: new.dev,
                scanned_ns: new.scanned_ns,
                attributes: new.attributes,
            };
            self.classes.entry(class).or_default().1.sources.push(record);
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
        let sources = self.classes.values().flat_map(|(_, manifest)| &manifest.sources);
        let removed: Vec<u32> =
            sources.filter(|source| is_removed(source)).map(|source| source.id).collect();
        for (&class, (_, manifest)) in &mut self.classes {
            let before = (manifest.sources.len(), manifest.shards.len());
            manifest.sources.retain(|source| !removed.contains(&source.id));
            manifest.shards.retain(|shard| !removed.contains(&shard.source));
            if before != (manifest.sources.len(), manifest.shards.len()) {
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

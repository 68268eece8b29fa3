//! A scan that workers share (see `workers`): writing its parts, and taking them in.
//!
//! 1. [`Writer::share`] begins, on top of the current generation, with the lock of the index.
//! 2. Workers open the index without it ([`Writer::for_worker`]). All use one generation in the
//!    names of files, one salt, so that classes are in the same places for all, and one number for
//!    the source. Each begins the source, lists a part of it and ends that ([`Writer::end_part`]).
//!    New class directories are the writer's own until then.
//! 3. One opens it with the lock ([`Writer::for_publisher`]), begins the source as workers do and
//!    takes in the parts of all ([`Writer::take_in_parts`]). From there on, it is published like
//!    any source. A part whose classes, all parts together, exceed the limits of their owners is
//!    listed anew, in the end.

use super::cleaning::data_files;
use super::opening::Role;
use super::sources::Contents;
use super::{Gathered, ShardWriter, Writer, WriterOptions, Written, gathered};
use crate::error::Result;
use crate::manifest::{ClassManifest, GrantRecord};
use crate::marker;
use crate::source_id::SourceId;
use crate::workers::{PartOutcome, PartRecord, ScanPart, SharedScan, Worker};
use canopy_model::{Generation, SourcePathBuf};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;

impl Writer {
    /// Begins a scan that workers share. Nothing else writes the index until one of them has published
    /// it, or it is given up.
    pub fn share(&self, scan: SharedScan) -> Result<()> {
        let scan = SharedScan {
            base: self.current.as_ref().map_or(Generation::NONE, |current| current.generation),
            generation: self.generation,
            salt: marker::random_key(&self.path)?,
            ..scan
        };
        scan.begin(&self.path)
    }

    /// Opens an index for listing a part.
    pub fn for_worker(worker: &Worker, options: WriterOptions) -> Result<Self> {
        worker.lists(true);
        Self::open_for(Role::Worker(worker), worker.index(), options)
    }

    /// Opens an index for publishing what all workers have listed.
    pub fn for_publisher(worker: &Worker, options: WriterOptions) -> Result<Self> {
        Self::open_for(Role::Publisher(worker), worker.index(), options)
    }

    /// Writes what is left of a part of a source that was begun, and ends it. Returns false where
    /// somebody else has ended it, or goes on with it.
    pub fn end_part(
        &self,
        worker: &Worker,
        part: &ScanPart,
        source: SourceId,
        writers: Vec<ShardWriter<'_>>,
        outcome: PartOutcome,
    ) -> Result<bool> {
        worker.lists(false);
        let threads = writers.len();
        let Gathered { left, sealed, .. } = gathered(writers);
        self.write_builders(source, left, sealed, threads)?;
        let (mut classes, mut changed) = (BTreeMap::new(), HashSet::new());
        let mut contents = Contents {
            classes: &mut classes,
            scans: &mut BTreeMap::new(),
            changed: &mut changed,
            read_pages: &self.read_pages,
        };
        for (class, written) in std::mem::take(&mut *self.shards.lock()) {
            contents.take_in(class, written);
        }
        let (state, classes) = self.all_manifests(&classes, &BTreeMap::new(), Vec::new())?;
        let listed = self.begun.get(&source).map(|begun| begun.listed.lock().clone());
        let record = PartRecord {
            outcome,
            source,
            listed: listed.into_iter().flatten().collect(),
            beyond_limits: self.beyond_limits(),
            folded: self.table.folded(),
            grants: state.grants,
            classes,
        };
        worker.next_file.store(self.next_shard.load(Relaxed), Relaxed);
        // Sync first: a finished part must outlast a crash of this machine.
        self.options.disk.sync_all(&self.path)?;
        worker.finish(part, &record)
    }

    /// Takes the parts that workers have written of a source into one that was begun. Calls `each`
    /// with the result of each part. Returns directories that have to be listed with all below them
    /// before it is over.
    pub fn take_in_parts(
        &mut self,
        begun: SourceId,
        worker: &Worker,
        mut each: impl FnMut(&PartOutcome),
    ) -> Result<Vec<SourcePathBuf>> {
        worker.each_done(|record| {
            if record.source != begun || !self.take_in_part(&record)? {
                return Ok(false);
            }
            each(&record.outcome);
            Ok(true)
        })
    }

    /// Takes in a part, unless its classes go beyond limits, or files of it are not as they were
    /// written.
    fn take_in_part(&mut self, record: &PartRecord) -> Result<bool> {
        let Ok(grants) = record.grants.get() else { return Ok(false) };
        let grants: HashMap<u32, &GrantRecord> =
            grants.iter().map(|(id, grant)| (*id, grant)).collect();
        let mut taken = Vec::new();
        for class in &record.classes {
            let ClassManifest { class: known, manifest, gated, .. } = class;
            let own: Option<Vec<_>> =
                known.grants.iter().map(|id| Some(grants.get(id)?.grant())).collect();
            let Some(id) = own.and_then(|own| self.table.adopt(own, known.charged)) else {
                return Ok(false);
            };
            let directory = self.names.class(known.place);
            let is_there = data_files(&directory, manifest, gated).iter().all(|(path, bytes)| {
                let found = path.symlink_metadata();
                found.is_ok_and(|found| found.is_file() && found.len() == *bytes)
            });
            if !is_there || self.dirs.place(&self.table, id) != known.place {
                return Ok(false);
            }
            taken.push((id, manifest, gated));
        }
        for (class, manifest, gated) in taken {
            self.dirs.ensure(&self.table, class)?;
            if !gated.loose.is_empty() {
                self.dirs.ensure_gated(&self.table, class)?;
            }
            let shards = manifest.shards.loose.iter().cloned();
            let shards = shards.map(|shard| Written::Shard(Box::new(shard)));
            let mut gated = gated.loose.clone();
            let sealed = manifest.sealed.iter().map(|file| Written::Sealed {
                begun: record.source,
                file: file.clone(),
                gated: std::mem::take(&mut gated),
            });
            self.shards.lock().extend(shards.chain(sealed).map(|written| (class, written)));
        }
        if let Some(begun) = self.begun.get(&record.source) {
            begun.listed.lock().extend(&record.listed);
            begun.entries.fetch_add(record.outcome.entries, Relaxed);
        }
        let mut beyond_limits = self.beyond_limits.lock();
        for (owner, count) in &record.beyond_limits {
            *beyond_limits.entry(*owner).or_default() += count;
        }
        self.published.folded += record.folded;
        Ok(true)
    }
}

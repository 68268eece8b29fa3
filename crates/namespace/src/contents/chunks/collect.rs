//! Removing the objects of chunks that nothing names any more. What is removed was named by records
//! of one key only, and never will be again:
//!
//! - The batch that takes an object out of a record notes that it may go (`Space::Garbage`), under
//!   the key that named it. Once that note is in an SSTable of the current manifest, every version
//!   from this one on is without the record. Versions before it are kept by checkpoints alone, and
//!   the ones that are kept are in the same manifest: if none of them has the object under this key,
//!   it goes. So it does not matter who removes it, or how late.
//! - A process that dies leaves objects that no batch named. They have its epoch; whoever opens the
//!   table has fenced it, and nothing that it writes counts from then on. An object of an earlier
//!   epoch that neither the records, nor the SSTables of the current manifest, nor a checkpoint name
//!   is never named again: records move objects to no other key.
//! - An object that was sent, and whose batch was never written, is known to who sent it.

use super::file::records;
use super::flush::{garbage_key, note_garbage};
use super::{ChunkId, ChunkStore, ObjectId, decoded, parse_key};
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::records::keys::{FileId, Space};
use crate::records::tablet::{Tablet, options};
use canopy_store::{Batch, Direction, Durability, Environment, Reader, SstableCache, Table};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Records that are changed at once while others wait.
const STEP: usize = 1024;

/// Notes are made to be in SSTables when there are so many, or one is so old.
const NOTES_MAX: usize = 256;
const WAIT: Duration = Duration::from_secs(60);

/// Known objects that have to go.
#[derive(Default)]
pub(crate) struct Collecting {
    /// Objects that were sent and that no record names.
    pub(super) unused: Vec<ObjectId>,
    /// Whether an attempt to make one failed, which may have made it, or yet make it.
    pub(crate) is_uncertain: bool,
    /// Notes since they were looked at.
    notes: usize,
    /// When to look next.
    due: Option<Instant>,
}

impl Collecting {
    /// Counts a batch with notes.
    pub(super) fn note(&mut self) {
        self.notes += 1;
        self.due.get_or_insert_with(|| Instant::now() + WAIT);
    }

    fn is_due(&self) -> bool {
        self.notes >= NOTES_MAX || self.due.is_some_and(|due| due <= Instant::now())
    }
}

impl ChunkStore {
    fn reader(&self, checkpoint: Option<u64>) -> Result<Reader> {
        let environment = &self.objects.environment;
        let (id, cache) = (self.table.id(), &self.sstables);
        Ok(Reader::open(environment, id, checkpoint, cache, &options())?)
    }

    /// Returns what SSTables have now, and what each checkpoint keeps.
    fn readers(&self) -> Result<(Reader, Vec<Reader>)> {
        let current = self.reader(None)?;
        let checkpoints = current.manifest().state.checkpoints.iter();
        let kept = checkpoints.map(|one| self.reader(Some(one.id)));
        let kept = kept.collect::<Result<_>>()?;
        Ok((current, kept))
    }

    fn remove(&self, object: ObjectId) -> Result<()> {
        self.objects.environment.storage.remove(&self.objects.name(object))?;
        self.cache().forget(object);
        Ok(())
    }

    fn remove_unused(&self) -> Result<()> {
        let mut unused = std::mem::take(&mut self.collecting.lock().unused);
        while let Some(object) = unused.last() {
            if let Err(error) = self.remove(*object) {
                self.collecting.lock().unused.append(&mut unused);
                return Err(error);
            }
            unused.pop();
        }
        Ok(())
    }
}

impl Namespace {
    /// Removes the objects of chunks that nothing needs any more, if it is time to.
    pub(crate) fn collect_if_due(&self) -> Result<()> {
        let Some(store) = self.contents.chunks() else { return Ok(()) };
        store.remove_unused()?;
        let is_due = store.collecting.lock().is_due();
        if is_due { self.collect() } else { Ok(()) }
    }

    /// Removes the objects of chunks that neither records nor checkpoints need any more, and returns
    /// when that is done. Contents that are files of a directory are not its business.
    ///
    /// # Errors
    ///
    /// Fails as storage and the table do.
    pub fn collect(&self) -> Result<()> {
        let Some(store) = self.contents.chunks() else { return Ok(()) };
        {
            let mut collecting = store.collecting.lock();
            (collecting.notes, collecting.due) = (0, Some(Instant::now() + WAIT));
        }
        self.tablet.table.flush()?;
        let (current, kept) = match store.readers() {
            // The objects that a damaged snapshot needs are not known, so none is removed. `check`
            // reports it.
            Err(error) if error.is_damage() => return Ok(()),
            readers => readers?,
        };
        let remove = |_, object| store.remove(object);
        let keeps = |chunk, object| is_kept(&kept, chunk, object);
        let (_, is_left) = collect_noted(&self.tablet.table, &current, &keeps, &remove)?;
        let mut collecting = store.collecting.lock();
        if collecting.notes == 0 && !is_left {
            collecting.due = None;
        }
        Ok(())
    }

    /// Takes all chunks from a file that is gone; their objects may go.
    pub(crate) fn drop_chunks(&self, store: &ChunkStore, id: FileId) -> Result<()> {
        drop_records(&self.tablet.table, id, || store.collecting.lock().note())
    }

    /// Removes the objects that processes which died have left, and returns how many. Takes some 32
    /// bytes of memory for each chunk that there is.
    pub(crate) fn remove_stray_chunks(&self, store: &ChunkStore) -> Result<usize> {
        let mut found = Vec::new();
        let epoch = self.tablet.table.epoch();
        for (object, _) in store.objects.list()? {
            found.extend(Some(object).filter(|object| object.epoch < epoch));
        }
        if found.is_empty() {
            return Ok(0);
        }
        let named = match self.named_objects(store) {
            // The objects that damaged records name are not known, so none is removed.
            Err(error) if error.is_damage() => return Ok(0),
            named => named?,
        };
        found.retain(|object| !named.contains(object));
        for object in &found {
            store.remove(*object)?;
        }
        Ok(found.len())
    }

    /// Returns all objects that records and notes name, those of checkpoints too.
    fn named_objects(&self, store: &ChunkStore) -> Result<HashSet<ObjectId>> {
        let mut named = HashSet::new();
        let (current, kept) = store.readers()?;
        let spaces = [Space::Chunks.range(), Space::Garbage.range()];
        for space in &spaces {
            let mut scan = self.tablet.table.scan(space, Direction::Forward)?;
            while let Some(record) = scan.next()? {
                named.extend(object_in(FileId(record.key.hash), record.key.name, record.value)?);
            }
            for reader in kept.iter().chain([&current]) {
                let mut scan = reader.scan(space, Direction::Forward)?;
                while let Some(record) = scan.next()? {
                    named.extend(object_in(
                        FileId(record.key.hash),
                        record.key.name,
                        record.value,
                    )?);
                }
            }
        }
        Ok(named)
    }
}

impl Tablet {
    /// Removes the objects of chunks that nothing needs any more, of a tablet whose files clients of
    /// servers write: `remove` removes one, if it is there. `is_needed` returns whether a checkpoint of
    /// another tablet needs one; it is called once the notes are in SSTables. Returns how many were
    /// removed.
    ///
    /// # Errors
    ///
    /// Fails as storage and the table do. What is left is removed next time.
    pub fn collect_chunks(
        &self,
        environment: &Environment,
        cache: &Arc<SstableCache>,
        is_needed: &dyn Fn(ChunkId, ObjectId) -> Result<bool>,
        remove: &dyn Fn(ChunkId, ObjectId) -> Result<()>,
    ) -> Result<u64> {
        self.drop_chunks_of_doomed()?;
        let mut notes = self.table.scan(&Space::Garbage.range(), Direction::Forward)?;
        if notes.next()?.is_none() {
            return Ok(0);
        }
        drop(notes);
        self.table.flush()?;
        let id = self.table.id();
        let reader = |checkpoint| Reader::open(environment, id, checkpoint, cache, &options());
        let read = || -> canopy_store::Result<_> {
            let current = reader(None)?;
            let checkpoints = current.manifest().state.checkpoints.iter();
            let kept = checkpoints.map(|one| reader(Some(one.id)));
            let kept = kept.collect::<canopy_store::Result<Vec<_>>>()?;
            Ok((current, kept))
        };
        let (current, kept) = match read() {
            // The objects that a damaged snapshot needs are not known, so none is removed.
            Err(error) if error.is_damage() => return Ok(0),
            readers => readers?,
        };
        let keeps = |chunk, object| Ok(is_kept(&kept, chunk, object)? || is_needed(chunk, object)?);
        collect_noted(&self.table, &current, &keeps, remove).map(|(removed, _)| removed)
    }

    /// Takes all chunks from files that are gone for good.
    fn drop_chunks_of_doomed(&self) -> Result<()> {
        let doomed = self.ids_in(Space::Doomed)?;
        if doomed.is_empty() {
            return Ok(());
        }
        self.table.sync()?;
        for id in doomed {
            drop_records(&self.table, id, || ())?;
            let mut batch = Batch::new();
            batch.delete(Space::Doomed.of(id, b"").as_ref())?;
            self.table.write_freeing(&batch, Durability::Visible)?;
        }
        Ok(())
    }

    /// Returns whether the records need an object of a chunk: one names it, or has named it, and it
    /// is removed by the note of that.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does.
    pub(crate) fn needs_object(&self, chunk: ChunkId, object: ObjectId) -> Result<bool> {
        let _writer = self.writer.lock();
        self.locate(chunk.file)?;
        let value = self.table.get(chunk.key().as_ref())?;
        let stored = value.map(|value| decoded(chunk, &value)).transpose()?;
        let note = garbage_key(chunk, object);
        Ok(stored.is_some_and(|stored| stored.object == object)
            || self.table.get(note.as_ref())?.is_some())
    }
}

/// Takes all chunks from a file, in steps. Calls `note` for each object that may go.
fn drop_records(table: &Table, id: FileId, note: impl Fn()) -> Result<()> {
    loop {
        let found = records(table, id, STEP)?;
        if found.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        for (chunk, stored) in &found {
            batch.delete(ChunkId::new(id, *chunk).key().as_ref())?;
            note_garbage(&mut batch, ChunkId::new(id, *chunk), stored)?;
            note();
        }
        table.write_freeing(&batch, Durability::Visible)?;
    }
}

/// Removes the objects that the notes of the current manifest are about, but for those that `keeps`
/// wants. Returns how many, and whether notes are left.
fn collect_noted(
    table: &Table,
    current: &Reader,
    keeps: &dyn Fn(ChunkId, ObjectId) -> Result<bool>,
    remove: &dyn Fn(ChunkId, ObjectId) -> Result<()>,
) -> Result<(u64, bool)> {
    let mut scan = current.scan(&Space::Garbage.range(), Direction::Forward)?;
    let (mut batch, mut removed, mut is_left) = (Batch::new(), 0, false);
    while let Some(record) = scan.next()? {
        let (id, name) = (FileId(record.key.hash), record.key.name);
        let (chunk, object) = parse_note(name)
            .ok_or_else(|| Error::corrupt(format!("file {id}: a note of an object")))?;
        if keeps(ChunkId::new(id, chunk), object)? {
            is_left = true;
            continue;
        }
        remove(ChunkId::new(id, chunk), object)?;
        removed += 1;
        batch.delete(Space::Garbage.of(id, name).as_ref())?;
        if batch.size_bytes() > 64 * STEP {
            table.write_freeing(&batch, Durability::Visible)?;
            batch.clear();
        }
    }
    if !batch.is_empty() {
        table.write_freeing(&batch, Durability::Visible)?;
    }
    Ok((removed, is_left))
}

/// Returns the object that a record of a chunk, or a note, names.
fn object_in(id: FileId, name: &[u8], value: &[u8]) -> Result<Option<ObjectId>> {
    match (parse_key(name), parse_note(name)) {
        (Some(chunk), _) => Ok(Some(decoded(ChunkId::new(id, chunk), value)?.object)),
        (None, Some((_, object))) => Ok(Some(object)),
        (None, None) => Ok(None),
    }
}

/// Reads which chunk and which object a note is about.
pub(crate) fn parse_note(name: &[u8]) -> Option<(u64, ObjectId)> {
    let (chunk, object) = name.split_first_chunk::<8>()?;
    let (epoch, number) = object.split_first_chunk::<8>()?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    let object = ObjectId { epoch: u64::from_be_bytes(*epoch), number };
    Some((u64::from_be_bytes(*chunk), object))
}

/// Returns whether a checkpoint has an object under its key, or may have it.
fn is_kept(kept: &[Reader], chunk: ChunkId, object: ObjectId) -> Result<bool> {
    for reader in kept {
        let value = match reader.get(chunk.key().as_ref()) {
            Err(error) if error.is_damage() => return Ok(true),
            value => value?,
        };
        if let Some(value) = value
            && decoded(chunk, &value)?.object == object
        {
            return Ok(true);
        }
    }
    Ok(false)
}

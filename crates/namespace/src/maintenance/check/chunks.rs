//! Checking that each chunk of contents has its object.

use super::{Check, Problem};
use crate::contents::FILE_BYTES_MAX;
use crate::contents::chunks::{
    ChunkId, ChunkStore, ObjectId, Stored, blocks, parse_key, parse_note,
};
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::records::keys::FileId;
use crate::records::keys::Space;
use canopy_store::Key;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The objects of chunks.
pub(crate) struct ChunkObjects {
    /// The sizes of objects that there were a moment before.
    sizes: HashMap<ObjectId, u64>,
    reads: ObjectsToRead,
}

/// Objects to read and to compare with the records.
pub(crate) enum ObjectsToRead {
    All,
    Some(HashSet<ObjectId>),
}

impl Default for ObjectsToRead {
    /// None but those that seem to be missing.
    fn default() -> Self {
        ObjectsToRead::Some(HashSet::new())
    }
}

impl Namespace {
    /// Returns the objects that there are, if contents are chunks.
    pub(crate) fn chunk_objects(&self, reads: ObjectsToRead) -> Result<Option<Arc<ChunkObjects>>> {
        let Some(store) = self.contents.chunks() else { return Ok(None) };
        let sizes = store.objects.list()?.into_iter().collect();
        Ok(Some(Arc::new(ChunkObjects { sizes, reads })))
    }
}

impl Check<'_> {
    /// Returns where chunks are, if contents are such.
    pub(crate) fn store(&self) -> Option<&ChunkStore> {
        self.namespace.contents.chunks().map(|store| &**store)
    }

    /// Counts a chunk, and looks at its object.
    pub(super) fn add_chunk(&mut self, key: &Key, value: &[u8]) {
        let id = FileId(key.hash);
        let (Some(store), Some(objects)) =
            (self.namespace.contents.chunks(), self.chunk_objects.clone())
        else {
            let what = "it has chunks, which this namespace has not";
            return self.problem(id, Problem::Disk, what);
        };
        let is_possible = |chunk: &u64| {
            let start = chunk.checked_mul(store.chunk_bytes);
            start.is_some_and(|start| start <= FILE_BYTES_MAX)
        };
        let Some(chunk) = parse_key(&key.name).filter(is_possible) else {
            let what = "the record of a chunk is none";
            return self.problem(id, Problem::Damaged(key.clone()), what);
        };
        let Some(stored) = store.decode(value) else {
            self.file(id).chunks.get_or_insert_default();
            self.bad_chunks.entry(id).or_default().insert(chunk);
            return self.fault(id, format!("the record of chunk {chunk} is none"));
        };
        let found = objects.sizes.get(&stored.object).copied();
        let is_there = found == Some(stored.object_bytes.into());
        let is_read = match &objects.reads {
            ObjectsToRead::All => true,
            ObjectsToRead::Some(objects) => objects.contains(&stored.object),
        };
        // It was made, or replaced and removed, meanwhile; or it is to be read.
        let is_proved = !stored.is_lost() && (is_read || !is_there);
        let wrong = is_proved
            .then(|| store.objects.prove(ChunkId::new(id, chunk), &stored).err())
            .flatten();
        let is_now = || {
            self.past.is_some()
                || matches!(store.recorded(ChunkId::new(id, chunk)), Ok(Some(now)) if now == stored)
        };
        if let Some(error) = wrong
            && is_now()
        {
            // An object that storage cannot read now may be sound.
            let is_bad = matches!(error, Error::Corrupt(_));
            if is_bad {
                self.bad_chunks.entry(id).or_default().insert(chunk);
            }
            let problem = if is_bad { Problem::File } else { Problem::Disk };
            self.problem(id, problem, error.to_string());
        }
        let end = chunk.saturating_mul(store.chunk_bytes).saturating_add(stored.used.into());
        let seen = self.file(id).chunks.get_or_insert_default();
        seen.0 += blocks(stored.used.into());
        seen.1 = seen.1.max(end);
    }

    /// Looks at a note that an object may go: no record may need it.
    pub(super) fn add_note(&mut self, key: &Key) {
        let id = FileId(key.hash);
        let Some((chunk, object)) = parse_note(&key.name) else {
            let what = "a note of an object is none";
            return self.problem(id, Problem::Damaged(key.clone()), what);
        };
        let record = Space::Chunks.of(id, &chunk.to_be_bytes());
        let named = self.snapshot.get(record.as_ref());
        let named = named.ok().flatten().and_then(|value| Stored::decode(&value));
        if named.is_some_and(|stored| stored.object == object) {
            let what = format!("a note says that the object of chunk {chunk} may go");
            self.problem(id, Problem::FalseNote(key.clone()), what);
        }
    }
}

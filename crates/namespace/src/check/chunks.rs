//! Checking that each chunk of contents has its object.

use super::Check;
use crate::chunks::{ObjectId, Stored, parse_key};
use crate::error::Result;
use crate::namespace::Namespace;
use canopy_store::Key;
use std::collections::HashMap;

pub(super) struct ChunkObjects {
    /// The sizes of objects that there were a moment before.
    sizes: HashMap<ObjectId, u64>,
    reads_contents: bool,
}

impl Namespace {
    /// Returns the objects that there are, if contents are chunks.
    pub(super) fn chunk_objects(&self, reads_contents: bool) -> Result<Option<ChunkObjects>> {
        let Some(store) = self.contents.chunks() else { return Ok(None) };
        let sizes = store.objects.list()?.into_iter().collect();
        Ok(Some(ChunkObjects { sizes, reads_contents }))
    }
}

impl Check<'_> {
    /// Counts a chunk, and looks at its object.
    pub(super) fn add_chunk(&mut self, key: &Key, value: &[u8]) {
        let id = key.hash;
        let (Some(store), Some(objects)) = (self.namespace.contents.chunks(), &self.chunk_objects)
        else {
            return self.fault(id, "it has chunks, which this namespace has not");
        };
        let (Some(chunk), Some(stored)) = (parse_key(&key.name), Stored::decode(value)) else {
            return self.fault(id, "the record of a chunk is none");
        };
        let found = objects.sizes.get(&stored.object).copied();
        let is_there = found == Some(stored.object_bytes.into());
        let wrong = match (is_there, objects.reads_contents) {
            (true, false) => None,
            // It was made, or replaced and removed, meanwhile; or it is to be read.
            _ => store.objects.prove((id, chunk), &stored).err(),
        };
        let is_now = || matches!(store.recorded(id, chunk), Ok(Some(now)) if now == stored);
        if let Some(error) = wrong
            && is_now()
        {
            self.fault(id, error.to_string());
        }
        let end = chunk.saturating_mul(store.chunk_bytes).saturating_add(stored.used.into());
        let seen = self.file(id).chunks.get_or_insert_default();
        seen.0 += u64::from(stored.used).div_ceil(512);
        seen.1 = seen.1.max(end);
    }
}

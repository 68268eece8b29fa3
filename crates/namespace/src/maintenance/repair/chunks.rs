//! Mending contents that are chunks. What cannot be found of a file is lost, and its record says so:
//! reading that fails, as what a disk has lost does, and all else of the file is as it was. Objects
//! that no record names any more go when all is mended, or when the namespace is opened next.

use super::Repair;
use super::files::Parts;
use crate::contents::chunks::{self, ChunkId, ChunkStore, ObjectId, Stored};
use crate::error::{Error, Result};
use crate::maintenance::check::Check;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{FileId, Space};
use canopy_store::Direction;
use std::collections::HashSet;
use std::sync::Arc;

impl Check<'_> {
    /// Returns the objects that bad chunks have.
    pub(super) fn bad_objects(&self) -> Result<HashSet<ObjectId>> {
        let mut objects = HashSet::new();
        let Some(store) = self.store() else { return Ok(objects) };
        for (id, bad) in &self.bad_chunks {
            for chunk in bad {
                let value = store.table.get(ChunkId::new(*id, *chunk).key().as_ref())?;
                let stored = value.and_then(|value| store.decode(&value));
                objects.extend(stored.map(|stored| stored.object));
            }
        }
        Ok(objects)
    }
}

impl Repair<'_> {
    fn store(&self) -> Option<Arc<ChunkStore>> {
        self.namespace.contents.chunks().cloned()
    }

    /// Returns the records of a file's chunks, as far as they can be read, in order.
    pub(super) fn chunks_of(&self, id: FileId) -> Result<Vec<(u64, Option<Stored>)>> {
        let Some(store) = self.store() else { return Ok(Vec::new()) };
        let range = Space::Chunks.range_of(id);
        let mut scan = self.namespace.tablet.table.scan(&range, Direction::Forward)?;
        let mut found = Vec::new();
        while let Some(record) = scan.next()? {
            let chunk = chunks::parse_key(record.key.name);
            found.extend(chunk.map(|chunk| (chunk, store.decode(record.value))));
        }
        Ok(found)
    }

    /// Has records say which chunks are lost, and the inode what there is.
    pub(super) fn mend_chunks(&mut self, inode: &mut Inode, parts: &Parts) -> Result<()> {
        let Some(store) = self.store() else { return Ok(()) };
        let (id, chunk_bytes) = (inode.id, store.chunk_bytes);
        let before = inode.blocks;
        // The size of a file whose inode was lost is not known.
        let end = if inode.size > 0 { inode.size } else { u64::MAX };
        inode.blocks = 0;
        let mut lost = Vec::new();
        for (chunk, found) in &parts.chunks {
            let start = chunk * chunk_bytes;
            let is_bad = parts.bad_chunks.contains(chunk);
            let stored = match found {
                Some(found) if !is_bad => *found,
                Some(found) => Stored::lost(found.used),
                None => Stored::lost(chunk_bytes.min(end.saturating_sub(start)) as u32),
            };
            if Some(stored) != *found {
                self.batch.put(ChunkId::new(id, *chunk).key().as_ref(), &stored.encode())?;
                lost.push((start, start + u64::from(stored.used)));
            }
            inode.size = inode.size.max(start + u64::from(stored.used));
            inode.blocks += chunks::blocks(stored.used.into());
            self.write_some()?;
        }
        self.report_lost_ranges(id, lost);
        if before > inode.blocks {
            self.report(id, "some of its contents are missing: they read as zeros now");
        }
        Ok(())
    }

    /// Reports the lost bytes of a file.
    fn report_lost_ranges(&mut self, id: FileId, lost: Vec<(u64, u64)>) {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (start, end) in lost {
            match ranges.last_mut().filter(|last| last.1 == start) {
                Some(last) => last.1 = end,
                None => ranges.push((start, end)),
            }
        }
        for (start, end) in ranges {
            let what = format!("bytes {start} to {end} are lost: reading them fails");
            self.report(id, format!("{what} until they are written"));
        }
    }

    /// Makes chunks that a file cannot have those of a file of its own. Their objects are copied: no
    /// object is ever named by records of two files, which is how it is known when it may go.
    pub(super) fn rescue_chunks(&mut self, of: FileId, parts: &mut Parts) -> Result<()> {
        let found = std::mem::take(&mut parts.chunks);
        let Some(store) = self.store().filter(|_| !found.is_empty()) else { return Ok(()) };
        let id = self.writer.ids.new_id(&self.namespace.tablet.table)?;
        let mut inode = self.new_file(id);
        inode.flags = flag::OBJECT;
        let mut lost = Vec::new();
        for (chunk, stored) in found {
            let used = stored.map_or(store.chunk_bytes as u32, |stored| stored.used);
            let copied = stored
                .map(|stored| copied(&store, ChunkId::new(of, chunk), &stored))
                .transpose()?;
            let copy = copied.flatten().unwrap_or(Stored::lost(used));
            self.batch.delete(ChunkId::new(of, chunk).key().as_ref())?;
            self.batch.put(ChunkId::new(id, chunk).key().as_ref(), &copy.encode())?;
            let start = chunk * store.chunk_bytes;
            inode.size = start + u64::from(used);
            inode.blocks += chunks::blocks(used.into());
            if copy.is_lost() {
                lost.push((start, inode.size));
            }
            self.write_some()?;
        }
        self.report_lost_ranges(id, lost);
        self.attach(&mut inode)
    }
}

/// Makes a copy of a chunk's object; none if it is lost.
fn copied(store: &ChunkStore, chunk: ChunkId, stored: &Stored) -> Result<Option<Stored>> {
    let bytes = match store.objects.fetch(chunk, stored) {
        Err(Error::Corrupt(_)) => return Ok(None),
        fetched => fetched?,
    };
    store.upload(bytes[..stored.used as usize].to_vec()).map(Some)
}

//! Reading what files had in them when a snapshot was made.

use super::Past;
use crate::contents::chunks::{self, ChunkId, ChunkStore};
use crate::contents::{read_object, seek};
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::records::inode::flag;
use crate::records::keys::{FileId, Space};
use bytes::Bytes;
use canopy_store::KeyRange;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;

/// The contents of a file as a snapshot has them.
pub struct PastFile {
    id: FileId,
    number: u64,
    size: u64,
    bytes: PastBytes,
}

enum PastBytes {
    Record(Vec<u8>),
    /// The object, and whether it is that of the file itself, which may change.
    Object(Mutex<(Arc<File>, bool)>),
    /// Chunks that records of then name, and the one that was read last.
    Chunks(Past, Mutex<Option<(u64, Bytes)>>),
}

impl PastFile {
    /// Returns the length of the object that has its contents; none if they are not object.
    pub(crate) fn object_bytes(&self) -> Result<Option<u64>> {
        match &self.bytes {
            PastBytes::Object(object) => {
                let length = object.lock().0.metadata().map_err(Error::io("an object"))?.len();
                Ok(Some(length))
            }
            PastBytes::Record(_) | PastBytes::Chunks(..) => Ok(None),
        }
    }

    /// Returns how many bytes it has.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Namespace {
    /// Opens a regular file of a snapshot. `STALE` if the snapshot was deleted.
    ///
    /// # Errors
    ///
    /// Fails with `ISDIR` or `NXIO` if the file is not regular, and with `NODATA` if its contents
    /// are not there. Fails as the table and the disk do.
    pub fn open_past(&self, past: &Past, id: FileId) -> Result<PastFile> {
        let inode = past.inode(id)?;
        if !inode.is_regular() {
            return Err(if inode.is_directory() { Errno::ISDIR } else { Errno::NXIO }.into());
        }
        if inode.has(flag::ABSENT) {
            return Err(Errno::NODATA.into());
        }
        let bytes = if inode.has(flag::OBJECT) && self.contents.chunks().is_some() {
            PastBytes::Chunks(past.clone(), Mutex::new(None))
        } else if inode.has(flag::OBJECT) {
            let live = self.contents.open_live(id)?;
            let kept = self.kept_of(past.number(), id)?;
            let is_live = kept.is_none();
            let object = kept.or(live).ok_or(Errno::STALE)?;
            PastBytes::Object(Mutex::new((Arc::new(object), is_live)))
        } else {
            PastBytes::Record(past.contents(id)?)
        };
        Ok(PastFile { id, number: past.number(), size: inode.size, bytes })
    }

    /// Opens what is kept of an object for a snapshot, or for a later one that has the same.
    pub(crate) fn kept_of(&self, number: u64, id: FileId) -> Result<Option<File>> {
        if !self.has_snapshot(number) {
            return Err(Errno::STALE.into());
        }
        let all = self.all_snapshots();
        let later = all.iter().map(|one| one.number).filter(|one| *one >= number);
        self.contents.open_kept(id, later)
    }

    /// Reads up to `length` bytes of a file of a snapshot from an offset on; fewer only at the end.
    ///
    /// # Errors
    ///
    /// Fails with `STALE` if the snapshot was deleted, and as storage and the disk do.
    pub fn read_past(&self, file: &PastFile, offset: u64, length: usize) -> Result<Vec<u8>> {
        let object = match &file.bytes {
            PastBytes::Record(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = bytes.get(start..).unwrap_or_default();
                return Ok(rest[..rest.len().min(length)].to_vec());
            }
            PastBytes::Chunks(past, last) => {
                return self.read_past_chunks(file, past, last, offset, length);
            }
            PastBytes::Object(object) => object,
        };
        let (mut from, is_live) = object.lock().clone();
        let bytes = read_object(&from, offset, length)?;
        if !is_live {
            return Ok(bytes);
        }
        // Before it is changed, it is kept.
        match self.kept_of(file.number, file.id)? {
            None => Ok(bytes),
            Some(kept) => {
                from = Arc::new(kept);
                *object.lock() = (from.clone(), false);
                read_object(&from, offset, length)
            }
        }
    }

    /// Returns where data begins at or behind an offset; the length if there is only a hole.
    ///
    /// # Errors
    ///
    /// Fails as the table and the disk do.
    pub fn seek_past_data(&self, file: &PastFile, offset: u64) -> Result<u64> {
        let found = match &file.bytes {
            PastBytes::Record(_) => Ok(offset),
            PastBytes::Chunks(past, _) => self.next_past_chunk(past, file.id, offset),
            PastBytes::Object(object) => {
                let (from, is_live) = object.lock().clone();
                let found = seek(&from, false, offset);
                match is_live.then(|| self.kept_of(file.number, file.id)).transpose()?.flatten() {
                    Some(kept) => seek(&kept, false, offset),
                    None => found,
                }
            }
        };
        match found {
            Err(Error::Posix(Errno::NXIO)) => Ok(file.size),
            found => Ok(found?.min(file.size)),
        }
    }

    /// Returns where the next chunk begins that a record of then names, or the offset within one.
    fn next_past_chunk(&self, past: &Past, id: FileId, offset: u64) -> Result<u64> {
        let chunk_bytes = self.contents.chunks().ok_or(Errno::IO)?.chunk_bytes;
        let start = ChunkId::new(id, offset / chunk_bytes).key();
        let mut scan = past.view().scan(&KeyRange { start, ..Space::Chunks.range_of(id) })?;
        let next = scan.next()?.map(|record| chunks::parse_key(record.key.name).ok_or(Errno::IO));
        match next.transpose()? {
            Some(chunk) => Ok(offset.max(chunk.saturating_mul(chunk_bytes))),
            None => Err(Errno::NXIO.into()),
        }
    }

    /// Reads chunks as records of then name them. Their objects stay as long as the snapshot.
    fn read_past_chunks(
        &self,
        file: &PastFile,
        past: &Past,
        last: &Mutex<Option<(u64, Bytes)>>,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>> {
        let chunks = self.contents.chunks().ok_or(Errno::IO)?;
        if !self.has_snapshot(file.number) {
            return Err(Errno::STALE.into());
        }
        let end = file.size.min(offset.saturating_add(length as u64));
        let mut read = Vec::new();
        let mut at = offset;
        while at < end {
            let chunk = at / chunks.chunk_bytes;
            let to = end.min((chunk + 1) * chunks.chunk_bytes);
            let bytes = past_chunk(chunks, past, ChunkId::new(file.id, chunk), last)?;
            let (from, until) = (at % chunks.chunk_bytes, to - chunk * chunks.chunk_bytes);
            let part = |at: u64| bytes.len().min(at as usize);
            read.extend_from_slice(&bytes[part(from)..part(until)]);
            at = to;
            // Missing parts of a chunk are zeros.
            read.resize((at - offset) as usize, 0);
        }
        Ok(read)
    }
}

/// Returns a chunk of a file as records of then name it; none if it was a hole.
fn past_chunk(
    chunks: &ChunkStore,
    past: &Past,
    chunk: ChunkId,
    last: &Mutex<Option<(u64, Bytes)>>,
) -> Result<Bytes> {
    let known = last.lock().clone();
    if let Some((_, bytes)) = known.filter(|(number, _)| *number == chunk.number) {
        return Ok(bytes);
    }
    let bytes = match past.view().get(chunk.key().as_ref())? {
        Some(value) => {
            let stored = chunks::decoded(chunk, &value)?;
            let object = chunks.objects.fetch(chunk, &stored)?;
            object.slice(..object.len().min(stored.used as usize))
        }
        None => Bytes::new(),
    };
    *last.lock() = Some((chunk.number, bytes.clone()));
    Ok(bytes)
}

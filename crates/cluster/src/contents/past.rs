//! Contents of files as snapshots have them. Records of then never change, and their objects stay as
//! long as the snapshot.

use super::files::{Files, RECORDS, segments};
use super::flush::part_of;
use super::known::Known;
use super::{ClusterNamespace, unfit};
use canopy_model::Credentials;
use canopy_namespace::inode::flag;
use canopy_namespace::operation::{
    Caller, ContentsPart, Moment, Operation, PastHandle, Read, SnapshotsRequest, StoredContents,
};
use canopy_namespace::{ChunkId, Error, FileId, Reply, Result, Stored};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;

/// Files of snapshots that are open.
#[derive(Default)]
pub(super) struct PastFiles(Mutex<OpenPast>);

#[derive(Default)]
struct OpenPast {
    next: u64,
    files: HashMap<PastHandle, Arc<PastFile>>,
}

/// A file as a snapshot has it.
struct PastFile {
    /// The user who reads it, if servers check users.
    who: Option<Credentials>,
    snapshot: u64,
    id: FileId,
    size: u64,
    /// Contents that are a record; none if they are chunks.
    small: Option<Vec<u8>>,
    known: Mutex<Known>,
}

impl PastFiles {
    fn add(&self, file: PastFile) -> PastHandle {
        let mut open = self.0.lock();
        open.next += 1;
        let handle = PastHandle(open.next);
        open.files.insert(handle, Arc::new(file));
        handle
    }

    fn get(&self, handle: PastHandle) -> Result<Arc<PastFile>> {
        Ok(self.0.lock().files.get(&handle).cloned().ok_or(Errno::BADF)?)
    }
}

impl ClusterNamespace {
    pub(super) fn open_past(
        &self,
        who: Option<&Credentials>,
        snapshot: u64,
        id: FileId,
    ) -> Result<PastHandle> {
        let stored = self.files.ask_past(who, (snapshot, id), 0)?;
        let StoredContents { inode, small, is_withheld, chunks, next } = stored;
        if is_withheld {
            return Err(Errno::ACCESS.into());
        }
        if !inode.is_regular() {
            return Err(if inode.is_directory() { Errno::ISDIR } else { Errno::NXIO }.into());
        }
        if inode.has(flag::ABSENT) {
            return Err(Errno::NODATA.into());
        }
        let is_chunked = inode.has(flag::OBJECT);
        let mut known = Known::default();
        known.add(0, &chunks, next);
        let small = (!is_chunked).then(|| small.unwrap_or_default());
        let (who, size, known) = (who.cloned(), inode.size, Mutex::new(known));
        let file = PastFile { who, snapshot, id, size, small, known };
        Ok(self.past_files.add(file))
    }

    pub(super) fn past_size(&self, handle: PastHandle) -> Result<u64> {
        Ok(self.past_files.get(handle)?.size)
    }

    pub(super) fn read_past(
        &self,
        handle: PastHandle,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>> {
        let file = self.past_files.get(handle)?;
        self.files.read_past(&file, offset, length).map_err(|error| self.as_stale(&file, error))
    }

    pub(super) fn past_data(&self, handle: PastHandle, offset: u64) -> Result<u64> {
        let file = self.past_files.get(handle)?;
        let chunk_bytes = self.files.chunk_bytes;
        if file.small.is_some() || offset >= file.size {
            return Ok(offset.min(file.size));
        }
        let from = offset / chunk_bytes;
        let next = self.files.next_past(&file, from);
        let next = next.map_err(|error| self.as_stale(&file, error))?;
        let start = next.map_or(file.size, |chunk| chunk.saturating_mul(chunk_bytes));
        Ok(offset.max(start).min(file.size))
    }

    pub(super) fn close_past(&self, handle: PastHandle) {
        self.past_files.0.lock().files.remove(&handle);
    }

    /// Returns the error of a snapshot that was deleted while it was read.
    fn as_stale(&self, file: &PastFile, error: Error) -> Error {
        let has = Operation::Snapshots(SnapshotsRequest::Has(file.snapshot));
        match self.files.execute(&has) {
            Ok(Reply::Truth(false)) => Errno::STALE.into(),
            _ => error,
        }
    }
}

impl Files {
    /// Reads what records of then have of a file, from a chunk on.
    fn ask_past(
        &self,
        who: Option<&Credentials>,
        (snapshot, id): (u64, FileId),
        from: u64,
    ) -> Result<StoredContents> {
        let part = ContentsPart { id, from, count_max: RECORDS };
        let read = Operation::Read(Moment::Snapshot(snapshot), Read::Contents(part));
        let caller = who.map_or(Caller::Trusted, Caller::User);
        match self.operations.execute_for(caller, &read)? {
            Reply::Contents(stored) if stored.inode.id == id => Ok(stored),
            _ => Err(unfit()),
        }
    }

    fn load_past(&self, file: &PastFile, from: u64) -> Result<()> {
        let stored = self.ask_past(file.who.as_ref(), (file.snapshot, file.id), from)?;
        file.known.lock().add(from, &stored.chunks, stored.next);
        Ok(())
    }

    /// Returns the record of a chunk; none for a hole.
    fn past_chunk(&self, file: &PastFile, chunk: u64) -> Result<Option<Stored>> {
        loop {
            if let Some(known) = file.known.lock().get(chunk) {
                return Ok(known);
            }
            self.load_past(file, chunk)?;
        }
    }

    /// Returns the first chunk from one on that is not a hole.
    fn next_past(&self, file: &PastFile, from: u64) -> Result<Option<u64>> {
        loop {
            let next = file.known.lock().next(from);
            match next {
                Ok(next) => return Ok(next),
                Err(unknown) => self.load_past(file, unknown)?,
            }
        }
    }

    fn read_past(&self, file: &PastFile, offset: u64, length: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(length as u64).min(file.size);
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        for (chunk, within, length) in segments(offset, end, self.chunk_bytes) {
            let at = (chunk * self.chunk_bytes + within - offset) as usize;
            let object;
            let part = match &file.small {
                Some(small) => part_of(Some(small), chunk, self.chunk_bytes),
                None => match self.past_chunk(file, chunk)? {
                    None => &[],
                    Some(stored) => {
                        object = self.fetch(ChunkId::new(file.id, chunk), &stored)?;
                        &object[..object.len().min(stored.used as usize)]
                    }
                },
            };
            let part = part.get(within as usize..).unwrap_or_default();
            let part = &part[..part.len().min(length as usize)];
            bytes[at..at + part.len()].copy_from_slice(part);
        }
        Ok(bytes)
    }
}

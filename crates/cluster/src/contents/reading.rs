//! Reading an open file, and holes in it.

use super::file::{Base, OpenFile, State};
use super::files::{Files, end_of, segments};
use super::flush::part_of;
use bytes::Bytes;
use canopy_namespace::operation::{Change, Operation};
use canopy_namespace::{ChunkId, Error, Extent, FileId, Privileges, Reply, Result, Stored};
use parking_lot::MutexGuard;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Objects may be replaced, and removed, so often while they are fetched.
const ATTEMPTS: usize = 4;

/// Holes begin and end at multiples of so many bytes.
const HOLE_BYTES: u64 = 4096;

/// A day: reading a file updates a time of access that is older (relatime).
const DAY_NS: i64 = 86_400_000_000_000;

/// Numbers of fallocate(2).
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// Bytes to be read, as far as they are in memory, and what is missing.
struct Plan {
    bytes: Vec<u8>,
    /// Objects to be fetched: the place in `bytes`, and in the object.
    missing: Vec<(usize, usize, Missing)>,
    /// Bytes that were written here, with their places: over what is fetched.
    written: Vec<(usize, Vec<u8>)>,
}

/// A part of an object.
struct Missing {
    chunk: u64,
    stored: Stored,
    length: usize,
}

impl Files {
    /// Returns the object of a chunk.
    pub(super) fn fetch(&self, chunk: ChunkId, stored: &Stored) -> Result<Bytes> {
        self.cache.get((chunk, stored.object), || self.objects.fetch(chunk, stored))
    }

    /// Reads up to `length` bytes, fewer only at the end. All of them are of one moment here.
    pub(super) fn read(&self, file: &OpenFile, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let plan = self.plan(file, offset, length)?;
            match self.complete(file.id, plan) {
                Err(error) if error.is_damage() && attempt < ATTEMPTS => file.doubt(),
                read => return read,
            }
        }
    }

    /// Returns the state of a file once the records of all chunks in a range are known.
    fn known<'a>(
        &self,
        file: &'a OpenFile,
        offset: u64,
        length: u64,
    ) -> Result<MutexGuard<'a, State>> {
        loop {
            let state = self.ready(file)?;
            let end = offset.saturating_add(length).min(state.size());
            let mut parts = segments(offset, end, self.chunk_bytes);
            let unknown = parts.find(|(chunk, ..)| state.base(*chunk) == Base::Unknown);
            let Some((unknown, ..)) = unknown else { return Ok(state) };
            drop(state);
            self.load(file, unknown)?;
        }
    }

    fn plan(&self, file: &OpenFile, offset: u64, length: usize) -> Result<Plan> {
        let state = self.known(file, offset, length as u64)?;
        let end = offset.saturating_add(length as u64).min(state.size());
        let bytes = vec![0; end.saturating_sub(offset) as usize];
        let mut plan = Plan { bytes, missing: Vec::new(), written: Vec::new() };
        for (chunk, within, length) in segments(offset, end, self.chunk_bytes) {
            let at = (chunk * self.chunk_bytes + within - offset) as usize;
            match state.base(chunk) {
                Base::Hole | Base::Unknown => {}
                Base::Withheld => return Err(Errno::ACCESS.into()),
                Base::Stored(_) if state.is_withheld => return Err(Errno::ACCESS.into()),
                Base::Small => {
                    let part = part_of(state.small.as_deref(), chunk, self.chunk_bytes);
                    let part = part.get(within as usize..).unwrap_or_default();
                    let part = &part[..part.len().min(length as usize)];
                    plan.bytes[at..at + part.len()].copy_from_slice(part);
                }
                Base::Stored(stored) => {
                    let length = u64::from(stored.used).saturating_sub(within).min(length) as usize;
                    if length > 0 {
                        let missing = Missing { chunk, stored, length };
                        plan.missing.push((at, within as usize, missing));
                    }
                }
            }
            state.written(chunk, &(within..within + length), |from, part| {
                plan.written.push((at + from, part.to_vec()));
            });
        }
        Ok(plan)
    }

    fn complete(&self, id: FileId, plan: Plan) -> Result<Vec<u8>> {
        let Plan { mut bytes, missing, written } = plan;
        for (at, within, Missing { chunk, stored, length }) in missing {
            let object = self.fetch(ChunkId::new(id, chunk), &stored)?;
            let part = object.get(within..within + length);
            let short = || Error::Corrupt(format!("file {id}, chunk {chunk}: too short"));
            bytes[at..at + length].copy_from_slice(part.ok_or_else(short)?);
        }
        for (at, part) in written {
            bytes[at..at + part.len()].copy_from_slice(&part);
        }
        Ok(bytes)
    }

    /// Returns whether reading or writing there waits for nobody.
    pub(super) fn is_here(&self, file: &OpenFile, part: Extent, writes: bool) -> Result<bool> {
        let state = file.state.lock();
        if writes {
            let waiting = self.waiting.load(Ordering::Relaxed);
            let (file_bytes, all_bytes) = (self.memory.file_bytes, self.memory.waiting_bytes);
            return Ok(state.pending.cost() <= file_bytes && waiting <= all_bytes);
        }
        let end = part.offset.saturating_add(part.length).min(state.size());
        let mut parts = segments(part.offset, end, self.chunk_bytes);
        let is_here = |(chunk, ..): (u64, u64, u64)| match state.base(chunk) {
            Base::Hole | Base::Small | Base::Withheld => true,
            Base::Stored(stored) => self.cache.has((ChunkId::new(file.id, chunk), stored.object)),
            Base::Unknown => false,
        };
        Ok(!state.is_stale && parts.all(is_here))
    }

    /// Notes that a file was read, if its time of access is older than what changed it, or than a
    /// day.
    pub(super) fn note_access(&self, file: &OpenFile) -> Result<()> {
        let now_ms = self.objects.environment.clock.now_ms();
        let now_ns = i64::try_from(now_ms).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        {
            let mut state = file.state.lock();
            let inode = &mut state.inode;
            let is_due = inode.atime_ns <= inode.mtime_ns.max(inode.ctime_ns)
                || now_ns.saturating_sub(inode.atime_ns) >= DAY_NS;
            if !is_due {
                return Ok(());
            }
            // Others who read meanwhile need not note it again.
            inode.atime_ns = now_ns.max(inode.mtime_ns.max(inode.ctime_ns).saturating_add(1));
        }
        let touch = Operation::Change(Change::TouchAccess(file.id));
        match file.users.reading(|caller| self.operations.execute_for(caller, &touch)) {
            Ok(Reply::Done) => Ok(()),
            Ok(_) => Err(super::unfit()),
            Err(error) => Err(error),
        }
    }

    /// Changes what space a part of a file takes, as fallocate(2) does. No space is set aside:
    /// storage has none to promise.
    pub(super) fn allocate(
        &self,
        file: &OpenFile,
        mode: i32,
        part: Extent,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        let end = end_of(part)?;
        if part.length == 0 {
            return Err(Errno::INVAL.into());
        }
        let zeroes = match mode & !KEEP_SIZE {
            0 => false,
            PUNCH_HOLE if mode & KEEP_SIZE != 0 => true,
            ZERO_RANGE => true,
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        let size_min = if mode & KEEP_SIZE == 0 { end } else { 0 };
        if !zeroes {
            return self.write_pending(file, privileges, size_min, |_| {});
        }
        // Chunks that are sent meanwhile are in one of the two.
        let written = |state: &State| {
            let chunks = state.layers().flat_map(|layer| layer.chunks.keys().copied());
            chunks.collect::<Vec<_>>()
        };
        let mut there = written(&file.state.lock());
        there.extend(self.chunks_with_data(file, part.offset, end)?);
        self.write_pending(file, privileges, size_min, |state| {
            let end = end.min(state.size());
            let mut chunks = written(state);
            chunks.extend(there);
            chunks.sort_unstable();
            chunks.dedup();
            for chunk in chunks {
                let start = chunk * self.chunk_bytes;
                let from = part.offset.max(start);
                let to = end.min(start + self.chunk_bytes);
                if from >= to {
                    continue;
                }
                match to - from == self.chunk_bytes {
                    true => state.pending.clear(chunk),
                    false => {
                        let zeros = vec![0; (to - from) as usize];
                        state.pending.write(chunk, from - start, &zeros);
                    }
                }
            }
        })
    }

    /// Returns the chunks in a range that have data, as far as records say.
    fn chunks_with_data(&self, file: &OpenFile, offset: u64, end: u64) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        let (mut at, last) = (offset / self.chunk_bytes, end.div_ceil(self.chunk_bytes));
        while let Some(chunk) = self.next_record(file, at)?.filter(|chunk| *chunk < last) {
            found.push(chunk);
            at = chunk + 1;
        }
        Ok(found)
    }

    /// Returns the first chunk from one on that records have data of.
    fn next_record(&self, file: &OpenFile, from: u64) -> Result<Option<u64>> {
        loop {
            let state = self.ready(file)?;
            if !state.is_chunked() {
                let length = state.small_length();
                return Ok((from < length.div_ceil(self.chunk_bytes)).then_some(from));
            }
            let unknown = match state.known.next(from) {
                Ok(found) => return Ok(found),
                Err(unknown) => unknown,
            };
            drop(state);
            self.load(file, unknown)?;
        }
    }

    /// Returns where data or a hole begins at or behind an offset, as lseek(2) does.
    pub(super) fn seek(&self, file: &OpenFile, is_hole: bool, offset: u64) -> Result<u64> {
        let mut at = offset;
        loop {
            let chunk = at / self.chunk_bytes;
            let next = if is_hole { None } else { self.next_record(file, chunk)? };
            let state = self.known(file, at, 1)?;
            let size = state.size();
            if offset >= size {
                return Err(Errno::NXIO.into());
            }
            if at >= size {
                return if is_hole { Ok(size) } else { Err(Errno::NXIO.into()) };
            }
            let start = chunk * self.chunk_bytes;
            let end = state.end_of_data(chunk, self.chunk_bytes);
            let end = start + end.next_multiple_of(HOLE_BYTES).min(self.chunk_bytes);
            match is_hole {
                true if at >= end => return Ok(at),
                true if end < start + self.chunk_bytes => return Ok(end.min(size)),
                false if at < end => return Ok(at),
                true => at = start + self.chunk_bytes,
                false => {
                    let written = state.layers().filter_map(|layer| {
                        layer.chunks.range(chunk + 1..).next().map(|(chunk, _)| *chunk)
                    });
                    // The record may be that of the chunk itself, whose data lies before.
                    let recorded = next.map(|next| next.max(chunk + 1));
                    let Some(next) = written.chain(recorded).min() else {
                        return Err(Errno::NXIO.into());
                    };
                    at = next.saturating_mul(self.chunk_bytes);
                }
            }
        }
    }
}

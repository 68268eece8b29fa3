//! An open file that is chunks: what of it differs from its records is here until it is flushed.
//!
//! Locks are taken in this order: `flushing`, `changing`, `state`. The last is held for moments and
//! nothing is awaited with it. Readers take no lock for longer: a chunk that is replaced under them
//! is found anew.

use super::cache::{Cached, Local};
use super::flush::Unrecorded;
use super::{ChunkId, ChunkStore, Stored, blocks, decoded, parse_key};
use crate::contents::FILE_BYTES_MAX;
use crate::error::{Error, Result};
use crate::quota::Reservation;
use crate::records::inode::Inode;
use crate::records::keys::{FileId, Space};
use canopy_store::{Direction, KeyRange, Table};
use parking_lot::Mutex;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Chunks that are fetched ahead of the one that is read, if a file is read from its beginning on.
const AHEAD: u64 = 4;

/// Holes begin and end at multiples of so many bytes.
const HOLE_BYTES: u64 = 4096;

/// A chunk may be replaced and its object removed so often while it is looked for.
const ATTEMPTS: usize = 4;

/// How fallocate(2) calls what it does.
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

pub(crate) struct Chunked {
    pub(super) id: FileId,
    pub(super) store: Arc<ChunkStore>,
    /// Held by whoever changes the file.
    pub(super) changing: Mutex<()>,
    /// Held by whoever puts what differs into storage and records.
    pub(super) flushing: Mutex<()>,
    pub(super) state: Mutex<State>,
    pub(super) reserved: Reserved,
    /// Objects of chunks that no record names yet; used with `flushing`.
    pub(super) unrecorded: Mutex<BTreeMap<u64, Unrecorded>>,
}

#[derive(Clone)]
pub(super) struct State {
    pub(super) size: u64,
    /// Space of the chunks, in blocks of 512 bytes.
    pub(super) blocks: u64,
    /// The size and the blocks that the record has.
    pub(super) recorded: (u64, u64),
    /// Whether the contents are in a record, or there are none: no chunk is in storage.
    pub(super) is_inline: bool,
    /// Whether anything differs from the records.
    pub(super) is_changed: bool,
    /// Chunks that are not as the records say.
    pub(super) parts: BTreeMap<u64, ChunkState>,
    /// Where the last reading ended.
    read_end: u64,
}

/// Quota that is set aside for written data.
pub(super) type Reserved = Mutex<Vec<Reservation>>;

/// Where the contents of a chunk are.
#[derive(Clone)]
pub(super) enum ChunkState {
    Hole,
    Stored(Stored),
    Local(Arc<Local>),
}

impl ChunkState {
    /// Returns how many bytes are not zeros for sure: what is behind them is.
    pub(super) fn length(&self) -> u64 {
        match self {
            ChunkState::Hole => 0,
            ChunkState::Stored(stored) => u64::from(stored.used),
            ChunkState::Local(local) => local.length(),
        }
    }
}

impl Chunked {
    /// Opens a file whose record says that it is chunks.
    pub(crate) fn open(store: &Arc<ChunkStore>, inode: &Inode) -> Self {
        Self::new(store, inode, false)
    }

    /// Has a file whose contents were in a record, or that had none, be chunks from now on.
    pub(crate) fn begin(store: &Arc<ChunkStore>, recorded: &Inode, bytes: &[u8]) -> Result<Self> {
        let chunked = Self::new(store, recorded, true);
        {
            let mut state = chunked.state.lock();
            (state.size, state.blocks) = (0, 0);
        }
        chunked.write(bytes, 0)?;
        Ok(chunked)
    }

    fn new(store: &Arc<ChunkStore>, inode: &Inode, is_inline: bool) -> Self {
        let state = State {
            size: inode.size,
            blocks: inode.blocks,
            recorded: (inode.size, inode.blocks),
            is_inline,
            is_changed: false,
            parts: BTreeMap::new(),
            read_end: 0,
        };
        Chunked {
            id: inode.id,
            store: store.clone(),
            changing: Mutex::default(),
            flushing: Mutex::default(),
            state: Mutex::new(state),
            reserved: Mutex::default(),
            unrecorded: Mutex::default(),
        }
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.state.lock().size
    }

    /// Returns whether anything is not in storage and records.
    pub(crate) fn is_changed(&self) -> bool {
        self.state.lock().is_changed
    }

    /// Gives an inode the size and what the contents take, as they are now.
    pub(crate) fn describe(&self, inode: &mut Inode) {
        let state = self.state.lock();
        (inode.size, inode.blocks) = (state.size, state.blocks);
    }

    /// Gives an inode what its record may have of these before the contents are in storage.
    pub(crate) fn describe_recorded(&self, inode: &mut Inode) {
        (inode.size, inode.blocks) = self.state.lock().recorded;
    }

    /// Keeps what is set aside for what is written until it is on record.
    pub(crate) fn reserve(&self, reserved: Option<Reservation>) {
        let mut all = self.reserved.lock();
        let left = match (reserved, all.last_mut()) {
            (Some(reserved), Some(last)) => last.join(reserved),
            (reserved, _) => reserved,
        };
        all.extend(left);
    }

    /// Returns how many bytes more the file takes when it gets data in a range.
    pub(crate) fn growth(&self, offset: u64, end: u64) -> Result<u64> {
        let mut gained = 0;
        for (chunk, within, length) in self.segments(offset, end.saturating_sub(offset)) {
            let before = self.lookup(chunk)?.length();
            gained += blocks(before.max(within + length)) - blocks(before);
        }
        Ok(gained * 512)
    }

    fn chunk_of(&self, offset: u64) -> (u64, u64) {
        (offset / self.store.chunk_bytes, offset % self.store.chunk_bytes)
    }

    /// Cuts a range into parts of chunks: chunk, offset in it, length.
    fn segments(&self, offset: u64, length: u64) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
        let (mut at, end, chunk_bytes) = (offset, offset + length, self.store.chunk_bytes);
        std::iter::from_fn(move || {
            let (chunk, within) = (at / chunk_bytes, at % chunk_bytes);
            let length = (chunk_bytes - within).min(end - at);
            at += length;
            (length > 0).then_some((chunk, within, length))
        })
    }

    fn lookup(&self, chunk: u64) -> Result<ChunkState> {
        if let Some(part) = self.state.lock().parts.get(&chunk) {
            return Ok(part.clone());
        }
        Ok(self
            .store
            .recorded(ChunkId::new(self.id, chunk))?
            .map_or(ChunkState::Hole, ChunkState::Stored))
    }

    /// Returns whether reading or writing there waits for nobody.
    pub(crate) fn is_here(&self, offset: u64, length: u64, writes: bool) -> bool {
        if writes && self.store.is_full() {
            return false;
        }
        let size = self.size();
        let length = if writes { length } else { length.min(size.saturating_sub(offset)) };
        self.segments(offset, length).all(|(chunk, within, length)| match self.lookup(chunk) {
            Ok(ChunkState::Stored(stored)) => {
                let is_whole = writes && within == 0 && length >= u64::from(stored.used);
                is_whole || self.store.cache().has(stored.object)
            }
            Ok(ChunkState::Hole | ChunkState::Local(_)) | Err(_) => true,
        })
    }

    fn cached(&self, chunk: u64, stored: &Stored) -> Result<Cached> {
        let objects = &self.store.objects;
        objects.cache.get(stored, || objects.fetch(ChunkId::new(self.id, chunk), stored))
    }

    /// Reads up to `length` bytes, fewer only at the end.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let (size, is_sequential) = {
            let mut state = self.state.lock();
            let is_sequential = offset == state.read_end;
            state.read_end = offset + length as u64;
            (state.size, is_sequential)
        };
        let length = (length as u64).min(size.saturating_sub(offset));
        if is_sequential && length > 0 {
            self.read_ahead(offset + length, size);
        }
        let mut bytes = vec![0; length as usize];
        let mut rest = &mut bytes[..];
        for (chunk, within, length) in self.segments(offset, length) {
            let (part, others) = rest.split_at_mut(length as usize);
            self.read_part(chunk, within, part)?;
            rest = others;
        }
        Ok(bytes)
    }

    fn read_part(&self, chunk: u64, within: u64, out: &mut [u8]) -> Result<()> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let part = self.lookup(chunk)?;
            let length = part.length().saturating_sub(within).min(out.len() as u64) as usize;
            let (there, zeros) = out.split_at_mut(length);
            zeros.fill(0);
            let read = match &part {
                _ if length == 0 => return Ok(()),
                ChunkState::Hole => return Ok(()),
                ChunkState::Local(local) => read_some(&local.file, there, within),
                ChunkState::Stored(stored) => {
                    let cached = self.cached(chunk, stored);
                    cached.and_then(|cached| cached.read(within, there))
                }
            };
            // Its object may have been replaced, and removed, meanwhile.
            let is_same = match (&part, self.lookup(chunk)?) {
                (ChunkState::Stored(one), ChunkState::Stored(other)) => one.object == other.object,
                (ChunkState::Stored(_), _) => false,
                _ => true,
            };
            if read.is_ok() || is_same || attempt == ATTEMPTS {
                return read;
            }
        }
    }

    fn read_ahead(&self, from: u64, size: u64) {
        let (first, _) = self.chunk_of(from);
        for chunk in first..=first + AHEAD {
            if chunk.saturating_mul(self.store.chunk_bytes) >= size {
                return;
            }
            if let Ok(ChunkState::Stored(stored)) = self.lookup(chunk) {
                self.store.prefetch(ChunkId::new(self.id, chunk), stored);
            }
        }
    }

    /// Writes bytes at an offset, or at the end if there is none.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let _changing = self.changing.lock();
        let mut rest = bytes;
        for (chunk, within, length) in self.segments(offset, bytes.len() as u64) {
            let (part, others) = rest.split_at(length as usize);
            rest = others;
            let (local, before) = self.localize(chunk, within..within + length)?;
            // If that fails, what the chunk was stays.
            local.write(part, within)?;
            let mut state = self.state.lock();
            state.parts.insert(chunk, ChunkState::Local(local.clone()));
            state.blocks = (state.blocks + blocks(local.length())).saturating_sub(before);
            state.size = state.size.max(chunk * self.store.chunk_bytes + within + length);
            state.is_changed = true;
        }
        Ok(())
    }

    /// Returns a chunk as one that can be written, with what it has but for `replaced`; the caller
    /// puts it in its place. Returns also the blocks that it took.
    fn localize(&self, chunk: u64, replaced: std::ops::Range<u64>) -> Result<(Arc<Local>, u64)> {
        let part = self.lookup(chunk)?;
        let before = blocks(part.length());
        let local = match part {
            ChunkState::Local(local) => return Ok((local, before)),
            ChunkState::Hole => self.store.cache().new_local()?,
            ChunkState::Stored(stored) => {
                let used = u64::from(stored.used);
                let local = self.store.cache().new_local()?;
                if replaced.start > 0 || replaced.end < used {
                    let copied = self.cached(chunk, &stored)?.copy(used, &local.file);
                    copied.map_err(Error::io("a chunk in the cache"))?;
                    local.truncate(used)?;
                }
                local
            }
        };
        Ok((Arc::new(local), before))
    }

    fn put_local(&self, chunk: u64, local: Arc<Local>) {
        let mut state = self.state.lock();
        state.parts.insert(chunk, ChunkState::Local(local));
        state.is_changed = true;
    }

    /// Makes the first chunk local, if it is in storage. The caller has `changing`.
    pub(super) fn make_local(&self) -> Result<()> {
        match self.lookup(0)? {
            ChunkState::Stored(_) => {
                let (local, _) = self.localize(0, 0..0)?;
                self.put_local(0, local);
                Ok(())
            }
            ChunkState::Local(_) | ChunkState::Hole => Ok(()),
        }
    }

    /// Gives the file a length; what it gains is zeros.
    pub(crate) fn truncate(&self, size: u64) -> Result<()> {
        let _changing = self.changing.lock();
        let old = self.size();
        if size < old {
            let (last, within) = self.chunk_of(size);
            self.drop_range(last + u64::from(within > 0), u64::MAX)?;
            if within > 0 {
                self.shorten(last, within)?;
            }
        }
        let mut state = self.state.lock();
        state.size = size;
        state.is_changed |= size != old;
        Ok(())
    }

    /// Makes holes of the chunks from `start` on, before `end`.
    fn drop_range(&self, start: u64, end: u64) -> Result<()> {
        let mut dropped = Vec::from_iter({
            let state = self.state.lock();
            state.parts.range(start..end).map(|(chunk, _)| *chunk).collect::<Vec<_>>()
        });
        let all = Space::Chunks.range_of(self.id);
        let range = KeyRange { start: ChunkId::new(self.id, start).key(), ..all };
        let mut scan = self.store.table.scan(&range, Direction::Forward)?;
        while let Some(record) = scan.next()? {
            match parse_key(record.key.name) {
                Some(chunk) if chunk < end => dropped.push(chunk),
                _ => break,
            }
        }
        dropped.sort_unstable();
        dropped.dedup();
        for chunk in dropped {
            let before = blocks(self.lookup(chunk)?.length());
            let mut state = self.state.lock();
            state.parts.insert(chunk, ChunkState::Hole);
            state.blocks = state.blocks.saturating_sub(before);
            state.is_changed = true;
        }
        Ok(())
    }

    /// Keeps the first bytes of a chunk.
    fn shorten(&self, chunk: u64, length: u64) -> Result<()> {
        let part = self.lookup(chunk)?;
        let before = part.length();
        if before <= length {
            return Ok(());
        }
        if let ChunkState::Local(local) = &part {
            local.truncate(length)?;
        }
        let mut state = self.state.lock();
        if let ChunkState::Stored(stored) = part {
            let stored = Stored { used: length as u32, ..stored };
            state.parts.insert(chunk, ChunkState::Stored(stored));
        }
        state.blocks = (state.blocks + blocks(length)).saturating_sub(blocks(before));
        state.is_changed = true;
        Ok(())
    }

    /// Makes a part of the file a hole.
    fn punch(&self, offset: u64, end: u64) -> Result<()> {
        let end = end.min(self.size());
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset.div_ceil(self.store.chunk_bytes), end / self.store.chunk_bytes);
        if first < last {
            self.drop_range(first, last)?;
        }
        // The parts before and behind these, which are not whole chunks.
        let chunk_bytes = self.store.chunk_bytes;
        self.punch_part(offset, end.min(first * chunk_bytes))?;
        if first <= last { self.punch_part(offset.max(last * chunk_bytes), end) } else { Ok(()) }
    }

    /// Makes a part of one chunk a hole.
    fn punch_part(&self, offset: u64, end: u64) -> Result<()> {
        if offset >= end {
            return Ok(());
        }
        let (chunk, within) = self.chunk_of(offset);
        let length = end - offset;
        let there = self.lookup(chunk)?.length();
        if within + length >= there {
            self.shorten(chunk, within)?;
        } else if within < there {
            let (local, _) = self.localize(chunk, 0..0)?;
            local.zero(within, within + length)?;
            self.put_local(chunk, local);
        }
        Ok(())
    }

    /// Changes what space a part of the file takes, as fallocate(2) does. No space is set aside:
    /// storage has none to promise.
    pub(crate) fn allocate(&self, mode: i32, offset: u64, end: u64) -> Result<()> {
        let _changing = self.changing.lock();
        match mode & !KEEP_SIZE {
            0 => {}
            PUNCH_HOLE if mode & KEEP_SIZE != 0 => self.punch(offset, end)?,
            ZERO_RANGE => self.punch(offset, end)?,
            _ => return Err(Errno::OPNOTSUPP.into()),
        }
        if mode & KEEP_SIZE == 0 {
            let mut state = self.state.lock();
            state.is_changed |= end > state.size;
            state.size = state.size.max(end);
        }
        Ok(())
    }

    /// Returns where data or a hole begins at or behind an offset, as lseek(2) does.
    pub(crate) fn seek(&self, is_hole: bool, offset: u64) -> Result<u64> {
        let size = self.size();
        if offset >= size.min(FILE_BYTES_MAX) {
            return Err(Errno::NXIO.into());
        }
        let mut at = offset;
        while at < size {
            let (chunk, within) = self.chunk_of(at);
            let start = chunk * self.store.chunk_bytes;
            let part = self.lookup(chunk)?;
            if let Some(found) = seek_in(&part, is_hole, within, self.store.chunk_bytes) {
                return Ok((start + found).min(size));
            }
            at = match (part, is_hole) {
                // A hole follows, up to the next existing chunk.
                (ChunkState::Hole, false) => match self.next_part(chunk + 1)? {
                    Some(next) => next.saturating_mul(self.store.chunk_bytes),
                    None => break,
                },
                _ => start + self.store.chunk_bytes,
            };
        }
        if is_hole { Ok(size) } else { Err(Errno::NXIO.into()) }
    }

    /// Returns the next chunk that is not known to be a hole.
    fn next_part(&self, from: u64) -> Result<Option<u64>> {
        let local = {
            let state = self.state.lock();
            let mut later = state.parts.range(from..);
            later.find(|(_, part)| !matches!(part, ChunkState::Hole)).map(|(chunk, _)| *chunk)
        };
        let range = KeyRange {
            start: ChunkId::new(self.id, from).key(),
            ..Space::Chunks.range_of(self.id)
        };
        let mut scan = self.store.table.scan(&range, Direction::Forward)?;
        let stored = match scan.next()? {
            Some(record) => parse_key(record.key.name),
            None => None,
        };
        Ok(local.into_iter().chain(stored).min())
    }

    /// Returns the records of the file's chunks, in order, from one on.
    pub(super) fn records(&self) -> Result<Vec<(u64, Stored)>> {
        records(&self.store.table, self.id, usize::MAX)
    }
}

/// Returns the first records of a file's chunks, in order.
pub(super) fn records(table: &Table, id: FileId, most: usize) -> Result<Vec<(u64, Stored)>> {
    let mut scan = table.scan(&Space::Chunks.range_of(id), Direction::Forward)?;
    let mut found = Vec::new();
    while let Some(record) = scan.next()?
        && found.len() < most
    {
        let chunk = parse_key(record.key.name);
        let chunk = chunk.ok_or_else(|| Error::corrupt(format!("file {id}: a chunk's key")))?;
        found.push((chunk, decoded(ChunkId::new(id, chunk), record.value)?));
    }
    Ok(found)
}

/// Reads from a file that may end before; what is missing is zeros.
fn read_some(file: &std::fs::File, out: &mut [u8], offset: u64) -> Result<()> {
    let mut read = 0;
    while read < out.len() {
        match file.read_at(&mut out[read..], offset + read as u64) {
            Ok(0) => {
                out[read..].fill(0);
                break;
            }
            Ok(count) => read += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("a chunk in the cache")(error)),
        }
    }
    Ok(())
}

/// Returns where data or a hole begins in a chunk of so many bytes, if it does there. Data end with
/// a block, as they do elsewhere.
fn seek_in(part: &ChunkState, is_hole: bool, within: u64, chunk_bytes: u64) -> Option<u64> {
    let length = part.length();
    let end = length.next_multiple_of(HOLE_BYTES).min(chunk_bytes);
    let found = match part {
        _ if within >= end => return is_hole.then_some(within),
        ChunkState::Local(local) if within < length => {
            let to = if is_hole { SeekFrom::Hole(within) } else { SeekFrom::Data(within) };
            match rustix::fs::seek(&local.file, to).ok()? {
                found if is_hole && found >= length => end,
                found => found,
            }
        }
        _ if is_hole => end,
        _ => within,
    };
    (found < if is_hole { chunk_bytes } else { end }).then_some(found)
}

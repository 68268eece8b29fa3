//! Putting what an open file has into storage and records: first the objects, then one batch with
//! the records of all its chunks, its size, and the notes that objects before them may go. Only
//! very many chunks take several batches.

use super::cache::Local;
use super::file::{ChunkState, Chunked, State};
use super::{ChunkId, ChunkStore, ObjectId, Stored, blocks};
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::quota::Transaction;
use crate::records::inode::flag;
use crate::records::keys::Space;
use canopy_store::{Batch, Key};
use parking_lot::Mutex;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Chunks of one file that are sent at once.
const UPLOADS: usize = 4;

/// The records of so many chunks are written in one batch: some 10 MB.
const STEP: usize = 1 << 16;

/// Notes that the object may go which had a chunk, in the batch that takes it out of the record.
pub(crate) fn note_garbage(batch: &mut Batch, chunk: ChunkId, stored: &Stored) -> Result<()> {
    if stored.is_lost() {
        return Ok(());
    }
    Ok(batch.put(garbage_key(chunk, stored.object).as_ref(), b"")?)
}

/// Returns the key of the note that an object may go which had a chunk.
pub(super) fn garbage_key(chunk: ChunkId, object: ObjectId) -> Key {
    let mut name = chunk.number.to_be_bytes().to_vec();
    name.extend_from_slice(&object.epoch.to_be_bytes());
    name.extend_from_slice(&object.number.to_be_bytes());
    Space::Garbage.of(chunk.file, &name)
}

/// A chunk that was written, at the version that is sent.
struct Sending {
    chunk: u64,
    local: Arc<Local>,
    version: u64,
    /// Bytes behind it are behind the end of the file.
    length: u64,
    /// Its object; a hole if it is zeros only.
    sent: Option<Option<Stored>>,
}

/// The object of a chunk that was sent, and that no record is known to name.
pub(super) struct Unrecorded {
    local: Weak<Local>,
    version: u64,
    length: u64,
    stored: Stored,
    /// Whether a record may name it all the same: writing that failed.
    is_doubtful: bool,
}

impl Unrecorded {
    fn is_of(&self, sending: &Sending) -> bool {
        std::ptr::eq(self.local.as_ptr(), Arc::as_ptr(&sending.local))
            && (self.version, self.length) == (sending.version, sending.length)
    }
}

impl ChunkStore {
    /// Sends chunks that were not sent yet, several at once.
    fn send(&self, sendings: &mut [Sending]) -> Result<()> {
        let next = Mutex::new(sendings.iter_mut());
        let work = || {
            loop {
                let one = next.lock().next();
                let Some(one) = one else { return Ok(()) };
                if one.sent.is_none() {
                    one.sent = Some(self.send_one(&one.local, one.length)?);
                }
            }
        };
        let count = next.lock().len();
        at_once(count, work)
    }

    /// Has objects removed that no record names, as far as that is sure.
    fn give_up(&self, objects: impl Iterator<Item = Unrecorded>) {
        let sure = objects.filter(|one| !one.is_doubtful).map(|one| one.stored.object);
        self.collecting.lock().unused.extend(sure);
    }

    /// Sends what a file has that is being imported, and returns its chunks; holes are none.
    pub(crate) fn send_file(&self, file: &File, size: u64) -> Result<Vec<(u64, Stored)>> {
        let next = Mutex::new(self.chunks_with_data(file, size)?.into_iter());
        let sent = Mutex::new(Vec::new());
        let work = || {
            loop {
                let chunk = next.lock().next();
                let Some(chunk) = chunk else { return Ok(()) };
                let start = chunk * self.chunk_bytes;
                let mut bytes = vec![0; self.chunk_bytes.min(size - start) as usize];
                file.read_exact_at(&mut bytes, start).map_err(Error::io("a file to be sent"))?;
                if bytes.iter().any(|byte| *byte != 0) {
                    let stored = self.upload(bytes)?;
                    sent.lock().push((chunk, stored));
                }
            }
        };
        let count = next.lock().len();
        at_once(count, work)?;
        Ok(sent.into_inner())
    }

    fn chunks_with_data(&self, file: &File, size: u64) -> Result<Vec<u64>> {
        let (mut chunks, mut at) = (Vec::new(), 0);
        while at < size {
            match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(data) => at = data,
                Err(Errno::NXIO) => break,
                Err(errno) => return Err(errno.into()),
            }
            let chunk = at / self.chunk_bytes;
            chunks.push(chunk);
            at = (chunk + 1) * self.chunk_bytes;
        }
        Ok(chunks)
    }

    fn send_one(&self, local: &Local, length: u64) -> Result<Option<Stored>> {
        let mut bytes = vec![0; length.min(local.length()) as usize];
        // It may be shortened just now; then its version changes.
        match local.file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
            read => read.map_err(Error::io("a chunk in the cache"))?,
        }
        match bytes.iter().all(|byte| *byte == 0) {
            true => Ok(None),
            false => self.upload(bytes).map(Some),
        }
    }
}

impl Namespace {
    /// Puts what an open file has into storage and records.
    pub(crate) fn flush_chunks(&self, chunked: &Chunked) -> Result<()> {
        let _flushing = chunked.flushing.lock();
        if !chunked.is_changed() {
            return Ok(());
        }
        match self.tablet.locate(chunked.id) {
            // It has gone meanwhile, with what it had.
            Err(Error::Posix(Errno::NOENT)) => {
                chunked.discard();
                return Ok(());
            }
            located => located?,
        };
        let reserved = std::mem::take(&mut *chunked.reserved.lock());
        let outcome = self.flush_reserved(chunked);
        if outcome.is_err() {
            chunked.reserved.lock().extend(reserved);
        }
        outcome
    }

    fn flush_reserved(&self, chunked: &Chunked) -> Result<()> {
        let (state, inline) = chunked.take(self.tablet.configured().settings.inline_bytes_max)?;
        let mut sendings = Vec::new();
        if inline.is_none() {
            sendings = chunked.sendings(&state);
            let sent = chunked.store.send(&mut sendings);
            // Also where one failed: the others do not go again.
            chunked.remember(&sendings);
            sent?;
        }
        let recorded = self.record_chunks(chunked, &state, inline.as_deref(), &sendings);
        match recorded.inspect_err(|_| chunked.doubt())? {
            true => chunked.flushed(&state, inline.is_some(), &sendings),
            false => chunked.discard(),
        }
        Ok(())
    }

    /// Writes the records of what was sent, and the size that the file had then: in one batch, or
    /// in several if there are very many. What has gone goes first, from the end on, so that a
    /// crash between two batches leaves the file as if it had been cut off, or holes had been made,
    /// step by step. False if the file has gone meanwhile, with what it had.
    fn record_chunks(
        &self,
        chunked: &Chunked,
        state: &State,
        inline: Option<&[u8]>,
        sendings: &[Sending],
    ) -> Result<bool> {
        let changes = match inline {
            Some(_) => chunked.records()?.iter().rev().map(|(chunk, _)| (*chunk, None)).collect(),
            None => changes(state, sendings),
        };
        let (earlier, last) = changes.split_at(changes.len().saturating_sub(1) / STEP * STEP);
        for step in earlier.chunks(STEP) {
            if !self.record_some_chunks(chunked, state, step, None)? {
                return Ok(false);
            }
        }
        self.record_some_chunks(chunked, state, last, Some(inline))
    }

    /// Writes the records of some chunks, each with what it has now, and if they are the `last` the
    /// contents that are so few that a record has them.
    fn record_some_chunks(
        &self,
        chunked: &Chunked,
        state: &State,
        changes: &[(u64, Option<Stored>)],
        last: Option<Option<&[u8]>>,
    ) -> Result<bool> {
        let (id, store) = (chunked.id, &chunked.store);
        let _writer = self.tablet.writer.lock();
        let (place, before) = match self.tablet.locate(id) {
            Err(Error::Posix(Errno::NOENT)) => return Ok(false),
            located => located?,
        };
        let mut inode = before.clone();
        self.tablet.overlay(&mut inode);
        let mut batch = Transaction::new();
        let mut taken = if before.has(flag::OBJECT) { before.blocks } else { 0 };
        // Where the file ends while not all is written.
        let mut end = before.size;
        for (chunk, new) in changes {
            let old = store.recorded(ChunkId::new(id, *chunk))?;
            let of = |stored: Option<Stored>| stored.map_or(0, |one| blocks(one.used.into()));
            taken = (taken + of(*new)).saturating_sub(of(old));
            let start = chunk * store.chunk_bytes;
            match new {
                Some(new) => {
                    batch.put(ChunkId::new(id, *chunk).key().as_ref(), &new.encode())?;
                    end = end.max(start + u64::from(new.used));
                }
                None if old.is_some() => batch.delete(ChunkId::new(id, *chunk).key().as_ref())?,
                None => {}
            }
            if new.is_none() && start >= state.size {
                end = end.min(start);
            }
            if let Some(old) = old
                && new.is_none_or(|new| new.object != old.object)
            {
                note_garbage(&mut batch, ChunkId::new(id, *chunk), &old)?;
            }
        }
        if last.is_none() && batch.is_empty() {
            return Ok(true);
        }
        inode.flags &= !(flag::INLINE | flag::OBJECT);
        inode.size = if last.is_some() { state.size } else { end };
        let contents = Space::Contents.of(id, b"");
        match last.flatten() {
            Some(bytes) => {
                inode.blocks = blocks(state.size);
                inode.flags |= if bytes.is_empty() { 0 } else { flag::INLINE };
            }
            None => {
                inode.blocks = taken;
                inode.flags |= flag::OBJECT;
            }
        }
        match last.flatten() {
            Some(bytes) if !bytes.is_empty() => batch.put(contents.as_ref(), bytes)?,
            _ if before.has(flag::INLINE) => batch.delete(contents.as_ref())?,
            _ => {}
        }
        self.tablet.write_inode_with_size(&mut batch, &place, Some(&before), &inode)?;
        store.collecting.lock().note();
        self.tablet.commit(batch)?;
        chunked.state.lock().recorded = (inode.size, inode.blocks);
        self.tablet.forget_pending(id);
        Ok(true)
    }

    /// Writes what open files have if too much waits to be written: first this one's, and then
    /// everybody's.
    pub(crate) fn make_room(&self, chunked: &Chunked) -> Result<()> {
        if !chunked.store.is_full() {
            return Ok(());
        }
        self.flush_chunks(chunked)?;
        if chunked.store.is_full() {
            self.flush_all_chunks()?;
        }
        Ok(())
    }

    /// Puts what all open files have into storage and records, several at once. The first failure
    /// is returned.
    pub(crate) fn flush_all_chunks(&self) -> Result<()> {
        let all = self.contents.all().into_iter();
        let changed = all.filter(|one| one.chunked().is_some_and(Chunked::is_changed));
        let next = Mutex::new(Vec::from_iter(changed).into_iter());
        let work = || {
            let mut outcome = Ok(());
            loop {
                let one = next.lock().next();
                let Some(one) = one else { return outcome };
                let flushed = one.chunked().map_or(Ok(()), |chunked| self.flush_chunks(chunked));
                match flushed {
                    Ok(()) => self.contents.forget_unused(one.id()),
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
        };
        let count = next.lock().len();
        at_once(count, work)
    }
}

/// Returns what each chunk has now that the records may have otherwise: first those that have gone,
/// the last one first, then the others in order.
fn changes(state: &State, sendings: &[Sending]) -> Vec<(u64, Option<Stored>)> {
    let sent = sendings.iter().map(|one| (one.chunk, one.sent.flatten()));
    let others = state.parts.iter().filter_map(|(chunk, part)| match part {
        ChunkState::Hole => Some((*chunk, None)),
        ChunkState::Stored(stored) => Some((*chunk, Some(*stored))),
        ChunkState::Local(_) => None,
    });
    let (mut gone, mut there) = (Vec::new(), Vec::new());
    for change in sent.chain(others) {
        if change.1.is_some() { there.push(change) } else { gone.push(change) }
    }
    gone.sort_unstable_by_key(|(chunk, _)| std::cmp::Reverse(*chunk));
    there.sort_unstable_by_key(|(chunk, _)| *chunk);
    gone.append(&mut there);
    gone
}

/// Has several threads do work of `count` parts, and returns the first failure.
fn at_once(count: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    if count <= 1 {
        return work();
    }
    std::thread::scope(|scope| {
        let threads = (0..count.min(UPLOADS)).map(|_| scope.spawn(&work));
        let mut outcome = Ok(());
        for thread in Vec::from_iter(threads) {
            let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome = outcome.and(ended);
        }
        outcome
    })
}

impl Chunked {
    /// Returns the state as it is now, and, if the contents are few enough for a record, these. All
    /// of them are local then: the objects that had them go.
    fn take(&self, inline_bytes_max: usize) -> Result<(State, Option<Vec<u8>>)> {
        let _changing = self.changing.lock();
        let size = self.size();
        if size > self.store.chunk_bytes.min(inline_bytes_max as u64) {
            return Ok((self.state.lock().clone(), None));
        }
        // One that cannot be fetched stays where it is.
        if self.make_local().is_err() {
            return Ok((self.state.lock().clone(), None));
        }
        let bytes = self.read(0, size as usize)?;
        let mut state = self.state.lock();
        for part in state.parts.values() {
            if let ChunkState::Local(local) = part {
                local.flushed.store(local.version.load(Ordering::Acquire), Ordering::Release);
            }
        }
        state.is_changed = true;
        Ok((state.clone(), Some(bytes)))
    }

    /// Returns what has to be sent: all that was written, and which of it was sent before.
    fn sendings(&self, state: &State) -> Vec<Sending> {
        let unrecorded = self.unrecorded.lock();
        let mut sendings = Vec::new();
        for (chunk, part) in &state.parts {
            if let ChunkState::Local(local) = part {
                let version = local.version.load(Ordering::Acquire);
                let (chunk, local) = (*chunk, local.clone());
                let length = state.size.saturating_sub(chunk * self.store.chunk_bytes);
                let mut sending = Sending { chunk, local, version, length, sent: None };
                let before = unrecorded.get(&chunk).filter(|one| one.is_of(&sending));
                sending.sent = before.map(|one| Some(one.stored));
                sendings.push(sending);
            }
        }
        sendings
    }

    /// Notes which objects there are now that no record names yet.
    fn remember(&self, sendings: &[Sending]) {
        let mut unrecorded = self.unrecorded.lock();
        let mut replaced = Vec::new();
        for one in sendings {
            let Some(Some(stored)) = one.sent else { continue };
            if unrecorded.get(&one.chunk).is_some_and(|known| known.stored == stored) {
                continue;
            }
            let (local, version, length) = (Arc::downgrade(&one.local), one.version, one.length);
            let sent = Unrecorded { local, version, length, stored, is_doubtful: false };
            replaced.extend(unrecorded.insert(one.chunk, sent));
        }
        self.store.give_up(replaced.into_iter());
    }

    /// Notes that records may name what was sent, and may not.
    fn doubt(&self) {
        self.store.collecting.lock().is_uncertain = true;
        self.unrecorded.lock().values_mut().for_each(|one| one.is_doubtful = true);
    }

    /// Notes that what the file had is in storage and records. What was changed meanwhile stays.
    fn flushed(&self, sent: &State, is_inline: bool, sendings: &[Sending]) {
        let unrecorded = std::mem::take(&mut *self.unrecorded.lock());
        let named = BTreeMap::from_iter(sendings.iter().map(|one| (one.chunk, one.sent.flatten())));
        let is_named = |chunk, stored| named.get(&chunk) == Some(&Some(stored));
        let others = unrecorded.into_iter().filter(|(chunk, one)| !is_named(*chunk, one.stored));
        self.store.give_up(others.map(|(_, one)| one));
        let _changing = self.changing.lock();
        let mut state = self.state.lock();
        let mut is_changed = state.size != sent.size;
        let mut parts = std::mem::take(&mut state.parts);
        parts.retain(|chunk, part| {
            let is_same = match (&*part, sent.parts.get(chunk)) {
                (ChunkState::Local(local), Some(ChunkState::Local(before))) => {
                    Arc::ptr_eq(before, local)
                }
                (ChunkState::Stored(stored), Some(ChunkState::Stored(before))) => before == stored,
                (ChunkState::Hole, Some(ChunkState::Hole)) => true,
                _ => false,
            };
            let ChunkState::Local(local) = part else {
                is_changed |= !is_same;
                return !is_same;
            };
            let version = local.version.load(Ordering::Acquire);
            let sending = sendings.iter().find(|one| one.chunk == *chunk);
            match sending.filter(|one| is_same && one.version == version) {
                Some(one) => {
                    if let Some(Some(stored)) = one.sent {
                        self.store.cache().adopt(local, stored.object);
                    }
                    false
                }
                // It stays: if a record has the contents, there is no object to find it in.
                None => {
                    let flushed = local.flushed.load(Ordering::Acquire);
                    is_changed |= !(is_inline && is_same && flushed == version);
                    true
                }
            }
        });
        state.parts = parts;
        if !is_changed {
            // Chunks that were found to be zeros take nothing.
            state.blocks = state.recorded.1;
        }
        state.is_inline = is_inline;
        state.is_changed = is_changed;
    }

    /// Forgets what was changed of a file that is gone.
    fn discard(&self) {
        let unrecorded = std::mem::take(&mut *self.unrecorded.lock());
        self.store.give_up(unrecorded.into_values());
        let _changing = self.changing.lock();
        let mut state = self.state.lock();
        state.parts.clear();
        state.is_changed = false;
    }
}

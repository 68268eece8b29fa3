//! Putting what an open file has into storage and records: first the objects, then one batch with
//! the records of all its chunks, its size, and the notes that objects before them may go.

use super::cache::Local;
use super::file::{Chunked, Part, State};
use super::{ChunkStore, Stored, blocks, key};
use crate::error::{Error, Result};
use crate::inode::flag;
use crate::keys::{FileId, Space};
use crate::namespace::Namespace;
use crate::quota::Change;
use parking_lot::Mutex;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// So many chunks of one file are sent at once.
const UPLOADS: usize = 4;

/// Returns the key of the note that an object may go which had a chunk.
pub(crate) fn garbage_key((id, chunk): (FileId, u64), stored: &Stored) -> canopy_store::Key {
    let mut name = chunk.to_be_bytes().to_vec();
    name.extend_from_slice(&stored.object.epoch.to_be_bytes());
    name.extend_from_slice(&stored.object.number.to_be_bytes());
    Space::Garbage.of(id, &name)
}

/// A chunk that was written, at the version that is sent.
struct Sending {
    chunk: u64,
    local: Arc<Local>,
    version: u64,
    /// What is behind it is behind the end of the file.
    length: u64,
    /// What it became; a hole if it is zeros only.
    sent: Option<Option<Stored>>,
}

impl ChunkStore {
    /// Sends chunks, several at once. What was sent of those of which one failed goes again.
    fn send(&self, sendings: &mut [Sending]) -> Result<()> {
        let next = Mutex::new(sendings.iter_mut());
        let work = || {
            loop {
                let one = next.lock().next();
                let Some(one) = one else { return Ok(()) };
                one.sent = Some(self.send_one(&one.local, one.length)?);
            }
        };
        let count = next.lock().len();
        let outcome = at_once(count, work);
        if outcome.is_err() {
            let sent = sendings.iter().filter_map(|one| one.sent.flatten());
            self.collecting.lock().unused.extend(sent.map(|stored| stored.object));
        }
        outcome
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
        match self.locate(chunked.id) {
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
        let (state, inline) = chunked.take(self.configured().settings.inline_bytes_max)?;
        let mut sendings = Vec::new();
        if inline.is_none() {
            sendings = chunked.sendings(&state);
            chunked.store.send(&mut sendings)?;
        }
        self.record_chunks(chunked, &state, inline.as_deref(), &sendings)?;
        chunked.flushed(&state, inline.is_some(), &sendings);
        Ok(())
    }

    /// Writes the records of what was sent, and the size that the file had then.
    fn record_chunks(
        &self,
        chunked: &Chunked,
        state: &State,
        inline: Option<&[u8]>,
        sendings: &[Sending],
    ) -> Result<()> {
        let (id, store) = (chunked.id, &chunked.store);
        let _writer = self.writer.lock();
        let (place, before) = self.locate(id)?;
        let mut inode = before.clone();
        self.overlay(&mut inode);
        let mut batch = Change::new();
        let mut put = |chunk, old: Option<Stored>, new: Option<Stored>| -> Result<()> {
            match new {
                Some(new) => batch.put(key(id, chunk).as_ref(), &new.encode())?,
                None if old.is_some() => batch.delete(key(id, chunk).as_ref())?,
                None => {}
            }
            match old {
                Some(old) if new.is_none_or(|new| new.object != old.object) => {
                    Ok(batch.put(garbage_key((id, chunk), &old).as_ref(), b"")?)
                }
                _ => Ok(()),
            }
        };
        inode.flags &= !(flag::INLINE | flag::OBJECT);
        inode.size = state.size;
        inode.blocks = before.blocks;
        if let Some(bytes) = inline {
            for (chunk, old) in chunked.records()? {
                put(chunk, Some(old), None)?;
            }
            inode.blocks = blocks(state.size);
            inode.flags |= if bytes.is_empty() { 0 } else { flag::INLINE };
        } else {
            let sent = sendings.iter().map(|one| (one.chunk, one.sent.flatten()));
            let others = state.parts.iter().filter_map(|(chunk, part)| match part {
                Part::Hole => Some((*chunk, None)),
                Part::Stored(stored) => Some((*chunk, Some(*stored))),
                Part::Local(_) => None,
            });
            let mut taken = if before.has(flag::OBJECT) { before.blocks } else { 0 };
            for (chunk, new) in sent.chain(others) {
                let old = store.recorded(id, chunk)?;
                let of = |stored: Option<Stored>| stored.map_or(0, |one| blocks(one.used.into()));
                taken = (taken + of(new)).saturating_sub(of(old));
                put(chunk, old, new)?;
            }
            inode.blocks = taken;
            inode.flags |= flag::OBJECT;
        }
        let contents = Space::Contents.of(id, b"");
        match inline {
            Some(bytes) if !bytes.is_empty() => batch.put(contents.as_ref(), bytes)?,
            _ if before.has(flag::INLINE) => batch.delete(contents.as_ref())?,
            _ => {}
        }
        self.put_as_is(&mut batch, &place, Some(&before), &inode)?;
        store.collecting.lock().note();
        self.commit(batch)?;
        chunked.state.lock().recorded = (inode.size, inode.blocks);
        self.forget_pending(id);
        Ok(())
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
        self.make_local()?;
        let bytes = self.read(0, size as usize)?;
        let mut state = self.state.lock();
        for part in state.parts.values() {
            if let Part::Local(local) = part {
                local.flushed.store(local.version.load(Ordering::Acquire), Ordering::Release);
            }
        }
        state.is_changed = true;
        Ok((state.clone(), Some(bytes)))
    }

    /// Returns what has to be sent: all that was written.
    fn sendings(&self, state: &State) -> Vec<Sending> {
        let mut sendings = Vec::new();
        for (chunk, part) in &state.parts {
            if let Part::Local(local) = part {
                let version = local.version.load(Ordering::Acquire);
                let (chunk, local) = (*chunk, local.clone());
                let length = state.size.saturating_sub(chunk * self.store.chunk_bytes);
                sendings.push(Sending { chunk, local, version, length, sent: None });
            }
        }
        sendings
    }

    /// Notes that what the file had is in storage and records. What was changed meanwhile stays.
    fn flushed(&self, sent: &State, is_inline: bool, sendings: &[Sending]) {
        let _changing = self.changing.lock();
        let mut state = self.state.lock();
        let mut is_changed = state.size != sent.size;
        let mut parts = std::mem::take(&mut state.parts);
        parts.retain(|chunk, part| {
            let is_same = match (&*part, sent.parts.get(chunk)) {
                (Part::Local(local), Some(Part::Local(before))) => Arc::ptr_eq(before, local),
                (Part::Stored(stored), Some(Part::Stored(before))) => before == stored,
                (Part::Hole, Some(Part::Hole)) => true,
                _ => false,
            };
            let Part::Local(local) = part else {
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
        state.is_inline = is_inline;
        state.is_changed = is_changed;
    }

    /// Forgets what was changed of a file that is gone.
    fn discard(&self) {
        let _changing = self.changing.lock();
        let mut state = self.state.lock();
        state.parts.clear();
        state.is_changed = false;
    }
}

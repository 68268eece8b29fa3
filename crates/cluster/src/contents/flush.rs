//! Sending what was written into a file: first the objects, then one operation that has the records
//! name all of them, with the size. Only very many chunks take several operations.
//!
//! The records may have changed since they were read: another client has written. Then nothing is
//! changed, the records are read anew, and what was written here is put over what they have now. So
//! two clients that write different bytes of one chunk both succeed.

use super::file::{Base, OpenFile};
use super::files::Files;
use super::known::Known;
use super::objects::Session;
use super::pending::{Dirty, Pending, Writers};
use bytes::Bytes;
use canopy_namespace::inode::flag;
use canopy_namespace::operation::{
    CHUNKS_MAX, Change, ChunkChange, Operation, Piece, PutChunks, WriteSmall, Writer, program,
};
use canopy_namespace::{ChunkId, Error, FileId, Inode, Reply, Result, Stored};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Chunks of one file that are made at once.
const UPLOADS: usize = 4;

/// Others may come first so often.
const ATTEMPTS: usize = 64;

/// Objects may be replaced so often while they are fetched.
const FETCH_ATTEMPTS: usize = 4;

/// Time after which servers have removed objects that no record needs, if storage is full; the longest
/// wait for that, and the pauses meanwhile.
const FREEING_MS: u64 = 12_000;
const SPACE_WAIT_MS: u64 = 4000;
const SPACE_PAUSE: Duration = Duration::from_millis(50);

/// Records of a file when it is sent.
struct View {
    version: u64,
    inode: Inode,
    small: Option<Vec<u8>>,
    /// Whether nobody here may read the contents.
    is_withheld: bool,
    /// Whether the contents stay a record.
    is_small: bool,
    /// Records of the chunks that are sent.
    bases: BTreeMap<u64, Base>,
}

/// An object that was made for a chunk.
struct Made {
    /// Record of the chunk before.
    base: Base,
    /// The object; none for a hole.
    stored: Option<Stored>,
    /// Whether a record names it, or may.
    is_named: bool,
}

type MadeChunks = BTreeMap<u64, Made>;

impl Files {
    /// Sends what was written into a file so far.
    pub(super) fn flush(&self, file: &OpenFile) -> Result<()> {
        let _flushing = file.flushing.lock();
        self.flush_held(file)
    }

    /// Sends what was written, for a program that has to learn of changes that were dropped: each one
    /// does while the locks are lost, and then the first one that asks.
    pub(super) fn flush_reporting(&self, file: &OpenFile) -> Result<()> {
        let flushed = self.flush(file).and_then(|()| self.operations.check_locks(file.id));
        match std::mem::take(&mut file.state.lock().has_lost) {
            true => Err(Errno::IO.into()),
            false => flushed,
        }
    }

    /// Sends what was written, for a caller that has `flushing`. If programs have lost locks on the
    /// file, others may have written since: then it is dropped.
    pub(super) fn flush_held(&self, file: &OpenFile) -> Result<()> {
        if file.is_clean() {
            return Ok(());
        }
        let sent = self.operations.check_locks(file.id).and_then(|()| self.send_pending(file));
        if sent.is_err() && self.has_lost_locks(file.id) {
            let mut state = file.state.lock();
            let lost = std::mem::take(&mut state.pending);
            self.waiting.fetch_sub(lost.cost(), Ordering::Relaxed);
            state.has_lost = true;
            drop(state);
            file.doubt();
            return Err(Errno::IO.into());
        }
        sent
    }

    fn has_lost_locks(&self, id: FileId) -> bool {
        let checked = self.operations.check_locks(id);
        checked.is_err_and(|error| matches!(error, Error::Posix(Errno::IO)))
    }

    fn send_pending(&self, file: &OpenFile) -> Result<()> {
        // A partial send cannot be undone, so no signal interrupts it.
        let _work = program::work_for_nobody();
        let work = {
            let mut state = file.state.lock();
            if state.pending.is_empty() {
                return Ok(());
            }
            let work = Arc::new(std::mem::take(&mut state.pending));
            state.sending = Some(work.clone());
            work
        };
        let (sent, cost) = (self.send(file, &work, false), work.cost());
        let mut state = file.state.lock();
        state.sending = None;
        if sent.is_ok() {
            self.waiting.fetch_sub(cost, Ordering::Relaxed);
            return Ok(());
        }
        let later = std::mem::take(&mut state.pending);
        let before = cost + later.cost();
        let outcome = match sent {
            // It has gone meanwhile, with what it had.
            Err(Error::Posix(Errno::NOENT)) => Ok(()),
            failed => {
                state.pending = later.over(Arc::unwrap_or_clone(work));
                failed
            }
        };
        self.waiting.fetch_add(state.pending.cost(), Ordering::Relaxed);
        self.waiting.fetch_sub(before, Ordering::Relaxed);
        outcome
    }

    /// Has small contents be chunks from now on. Nobody writes by that: setuid and setgid bits stay.
    /// The caller has `flushing`.
    pub(super) fn make_chunks(&self, file: &OpenFile) -> Result<()> {
        self.send(file, &Pending::default(), true)
    }

    /// Sends changes of a file, until its records have them. They become chunks at least if `forces`.
    fn send(&self, file: &OpenFile, work: &Pending, forces: bool) -> Result<()> {
        let mut made = MadeChunks::new();
        let sent = self.try_to_send(file, work, forces, &mut made);
        // An error of POSIX is the server's, which has changed nothing.
        let is_certain = matches!(&sent, Ok(()) | Err(Error::Posix(_)));
        self.discard_all(file, &mut made, is_certain);
        sent
    }

    /// Removes the objects that were made and that no record names, if that `is_certain`.
    fn discard_all(&self, file: &OpenFile, made: &mut MadeChunks, is_certain: bool) {
        let left = std::mem::take(made).into_iter().filter(|(_, made)| !made.is_named);
        for (chunk, stored) in left.filter_map(|(chunk, made)| Some((chunk, made.stored?))) {
            self.discard(ChunkId::new(file.id, chunk), stored, is_certain);
        }
    }

    fn try_to_send(
        &self,
        file: &OpenFile,
        work: &Pending,
        forces: bool,
        made: &mut MadeChunks,
    ) -> Result<()> {
        let mut fetches = 0;
        for _ in 0..ATTEMPTS {
            let view = self.view(file, work, forces)?;
            if view.is_small {
                if self.send_small(file, work, &view)? {
                    return Ok(());
                }
                file.doubt();
                continue;
            }
            let session = self.session()?;
            match self.make_objects(file, work, &view, &session, made) {
                // The object may have been replaced, and removed, since the record was read.
                Err(error) if error.is_damage() && fetches < FETCH_ATTEMPTS => {
                    fetches += 1;
                    file.doubt();
                    continue;
                }
                done => done?,
            }
            match self.put(file, work, &view, &session, made) {
                Ok(Some(inode)) => {
                    if view.bases.values().any(|base| matches!(base, Base::Stored(_))) {
                        self.note_freeing();
                    }
                    learn_chunks(file, &view, inode, made);
                    return Ok(());
                }
                Ok(None) => file.doubt(),
                Err(Error::Posix(Errno::STALE)) => {
                    self.forget_session(&session);
                    self.discard_all(file, made, true);
                    file.doubt();
                }
                Err(error) => return Err(error),
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Reads what the records have of the chunks that are sent.
    fn view(&self, file: &OpenFile, work: &Pending, forces: bool) -> Result<View> {
        loop {
            let state = self.ready(file)?;
            let size = state.inode.size.max(work.size_min);
            let is_small = !forces && !state.is_chunked() && size <= self.small_max;
            let mut view = View {
                version: state.version,
                inode: state.inode.clone(),
                small: state.small.clone(),
                is_withheld: state.is_withheld,
                is_small,
                bases: BTreeMap::new(),
            };
            if is_small {
                return Ok(view);
            }
            let small = if state.is_chunked() { 0 } else { state.small_length() };
            let chunks = work.chunks.keys().copied().chain(0..small.div_ceil(self.chunk_bytes));
            view.bases = chunks.map(|chunk| (chunk, state.recorded(chunk))).collect();
            let unknown = view.bases.iter().find(|(_, base)| **base == Base::Unknown);
            let Some((unknown, _)) = unknown else { return Ok(view) };
            drop(state);
            self.load(file, *unknown)?;
        }
    }

    /// Writes into a file whose contents are a record. Returns false if they are not, or would not
    /// be.
    fn send_small(&self, file: &OpenFile, work: &Pending, view: &View) -> Result<bool> {
        let size = view.inode.size.max(work.size_min);
        let zeros = vec![0; size as usize];
        let mut pieces = Vec::new();
        for (chunk, dirty) in &work.chunks {
            let start = chunk * self.chunk_bytes;
            if dirty.is_cleared && start < size {
                let bytes = &zeros[..(size - start).min(self.chunk_bytes) as usize];
                pieces.push(Piece { offset: start, bytes });
            }
            let parts = dirty.extents.parts();
            pieces.extend(parts.map(|(at, bytes)| Piece { offset: start + at, bytes }));
        }
        let mut small = view.small.clone().unwrap_or_default();
        if !view.is_withheld {
            small.resize(size as usize, 0);
            for Piece { offset, bytes } in &pieces {
                small[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        let write = WriteSmall { pieces, size_min: work.size_min };
        let writer = work.writer.map_or(Writer::Unknown, Writers::named);
        let change = Change::WriteSmall { id: file.id, write, writer };
        let Some(inode) = self.change(file, change)? else { return Ok(false) };
        let mut state = file.state.lock();
        state.is_stale |= state.version != view.version || inode.size != size;
        state.set_inode(inode, (!small.is_empty()).then_some(small));
        Ok(true)
    }

    /// Makes the objects of all chunks that have none that is right, several at once.
    fn make_objects(
        &self,
        file: &OpenFile,
        work: &Pending,
        view: &View,
        session: &Session,
        made: &mut MadeChunks,
    ) -> Result<()> {
        let mut missing = Vec::new();
        for (chunk, base) in &view.bases {
            if let Some(before) = made.get_mut(chunk) {
                before.is_named |= before.stored.is_some_and(|one| *base == Base::Stored(one));
                let is_right = *base == before.base && *base != Base::Small;
                if before.is_named || is_right {
                    continue;
                }
                let left = made.remove(chunk).and_then(|made| made.stored);
                if let Some(stored) = left {
                    self.discard(ChunkId::new(file.id, *chunk), stored, true);
                }
            }
            missing.push((*chunk, *base));
        }
        let (next, done) = (Mutex::new(missing.into_iter()), Mutex::new(made));
        let count = next.lock().len();
        at_once(count, || {
            loop {
                let one = next.lock().next();
                let Some((chunk, base)) = one else { return Ok(()) };
                let id = ChunkId::new(file.id, chunk);
                let bytes = self.compose(id, base, view, work.chunks.get(&chunk))?;
                let stored = match bytes.iter().any(|byte| *byte != 0) {
                    true => Some(self.make_object(session, id, bytes.into())?),
                    false => None,
                };
                done.lock().insert(chunk, Made { base, stored, is_named: false });
            }
        })
    }

    fn make_object(&self, session: &Session, chunk: ChunkId, bytes: Bytes) -> Result<Stored> {
        let since_ms = self.objects.environment.clock.now_ms();
        let stored = loop {
            match session.upload(chunk, bytes.clone()) {
                Err(error) if error.errno() == Errno::NOSPC && self.awaits_space(since_ms) => {}
                stored => break stored?,
            }
        };
        self.cache.put((chunk, stored.object), bytes);
        Ok(stored)
    }

    /// Notes that servers will free space soon: what this client has replaced or removed.
    pub(super) fn note_freeing(&self) {
        self.freeing_ms.store(self.objects.environment.clock.now_ms(), Ordering::Relaxed);
    }

    /// Waits a moment for space that servers are about to free. Returns false if they are not, or if
    /// that has taken too long.
    fn awaits_space(&self, since_ms: u64) -> bool {
        let clock = &*self.objects.environment.clock;
        let now_ms = clock.now_ms();
        let freeing_ms = self.freeing_ms.load(Ordering::Relaxed);
        let is_freed = now_ms.saturating_sub(freeing_ms) >= FREEING_MS;
        if is_freed || now_ms.saturating_sub(since_ms) >= SPACE_WAIT_MS {
            // There is nothing to wait for any more.
            self.freeing_ms.store(0, Ordering::Relaxed);
            return false;
        }
        clock.sleep(SPACE_PAUSE);
        true
    }

    /// Returns the bytes of a chunk: what was written over what it has.
    fn compose(
        &self,
        chunk: ChunkId,
        base: Base,
        view: &View,
        dirty: Option<&Dirty>,
    ) -> Result<Vec<u8>> {
        let is_cleared = dirty.is_some_and(|dirty| dirty.is_cleared);
        let covers = |end: u64| dirty.is_some_and(|dirty| dirty.extents.cover(end));
        let fetched;
        let below: &[u8] = match base {
            _ if is_cleared => &[],
            Base::Hole | Base::Unknown => &[],
            Base::Withheld => return Err(Errno::ACCESS.into()),
            Base::Small => part_of(view.small.as_deref(), chunk.number, self.chunk_bytes),
            Base::Stored(stored) if covers(stored.used.into()) => &[],
            // Only this client knows the checksums of chunks that it has made.
            Base::Stored(stored) if view.is_withheld && stored.checksum == 0 => {
                return Err(Errno::ACCESS.into());
            }
            Base::Stored(stored) => {
                fetched = self.fetch(chunk, &stored)?;
                fetched.get(..stored.used as usize).unwrap_or_default()
            }
        };
        let end = dirty.map_or(0, |dirty| dirty.extents.end());
        let mut bytes = vec![0; below.len().max(end as usize)];
        bytes[..below.len()].copy_from_slice(below);
        for (at, part) in dirty.into_iter().flat_map(|dirty| dirty.extents.parts()) {
            bytes[at as usize..][..part.len()].copy_from_slice(part);
        }
        Ok(bytes)
    }

    /// Has the records name what was made. None if they are not as the view has them.
    fn put(
        &self,
        file: &OpenFile,
        work: &Pending,
        view: &View,
        session: &Session,
        made: &mut MadeChunks,
    ) -> Result<Option<Inode>> {
        let changed = |(chunk, made): (&u64, &Made)| {
            let before = match view.bases.get(chunk)? {
                Base::Stored(stored) => Some(*stored),
                _ => None,
            };
            let (chunk, after) = (*chunk, made.stored);
            (before != after).then_some(ChunkChange { chunk, before, after })
        };
        let changes = Vec::from_iter(made.iter().filter_map(changed));
        let count = changes.len().div_ceil(CHUNKS_MAX as usize).max(1);
        let mut inode = None;
        for step in 0..count {
            let (from, to) = (step * CHUNKS_MAX as usize, (step + 1) * CHUNKS_MAX as usize);
            let some = &changes[from..to.min(changes.len())];
            let put = PutChunks {
                session: session.id,
                small: view.small.as_deref().filter(|_| step == 0),
                chunks: Cow::Borrowed(some),
                // The last step has the size.
                size_min: if step + 1 == count { work.size_min } else { 0 },
            };
            let writer = work.writer.map_or(Writer::Unknown, Writers::named);
            let change = Change::PutChunks { id: file.id, put, writer };
            inode = self.change(file, change)?;
            if inode.is_none() {
                return Ok(None);
            }
            for one in some {
                made.entry(one.chunk).and_modify(|made| made.is_named = true);
            }
        }
        Ok(inode)
    }

    /// Makes a change of contents. None if the contents are not as they were believed to be.
    fn change(&self, file: &OpenFile, change: Change<'_>) -> Result<Option<Inode>> {
        let change = Operation::Change(change);
        match file.users.writing(|caller| self.operations.execute_for(caller, &change))? {
            Reply::Written(inode) => Ok(inode),
            _ => Err(super::unfit()),
        }
    }
}

/// Takes on that records have what was sent.
fn learn_chunks(file: &OpenFile, view: &View, inode: Inode, made: &MadeChunks) {
    let mut state = file.state.lock();
    // Somebody may have read newer records meanwhile.
    state.is_stale |= state.version != view.version;
    if !view.inode.has(flag::OBJECT) {
        // No chunk had a record.
        state.known = Known::default();
        state.known.add(0, &[], None);
    }
    for chunk in view.bases.keys() {
        if let Some(made) = made.get(chunk) {
            state.known.set(*chunk, made.stored);
        }
    }
    state.set_inode(inode, None);
}

/// Returns the part of small contents that a chunk has.
pub(super) fn part_of(small: Option<&[u8]>, chunk: u64, chunk_bytes: u64) -> &[u8] {
    let small = small.unwrap_or_default();
    let start = usize::try_from(chunk.saturating_mul(chunk_bytes)).unwrap_or(usize::MAX);
    let rest = small.get(start..).unwrap_or_default();
    &rest[..rest.len().min(chunk_bytes as usize)]
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

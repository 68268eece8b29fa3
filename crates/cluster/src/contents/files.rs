//! The open files of a client: opening and closing them, reading records, writing in memory, and setting
//! lengths.

use super::cache::Cache;
use super::file::{Base, LocalMoment, OpenFile, State};
use super::objects::{Objects, Session};
use super::pending::Writers;
use super::{Memory, Operations, unfit};
use canopy_model::{Credentials, Retry, Wanted};
use canopy_namespace::operation::{Caller, ContentsPart, Moment, Operation, Read, StoredContents};
use canopy_namespace::{
    ChunkId, Error, Extent, FILE_BYTES_MAX, FileId, Inode, Privileges, Reply, Result,
    SetAttributes, Stored,
};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Chunks whose records are read at once.
pub(super) const RECORDS: u32 = 1024;

/// Another client may change a small file so often before its length is set.
const LENGTH_ATTEMPTS: usize = 16;

/// Open files, and the way to records and storage.
pub(super) struct Files {
    pub(super) operations: Arc<dyn Operations>,
    pub(super) objects: Arc<Objects>,
    pub(super) cache: Cache,
    /// The session; none before an object has to be made.
    pub(super) session: Mutex<Option<Arc<Session>>>,
    pub(super) chunk_bytes: u64,
    /// Contents of this size at most are records.
    pub(super) small_max: u64,
    pub(super) memory: Memory,
    /// Memory of what was written and not sent.
    pub(super) waiting: AtomicUsize,
    /// The last time at which this client had space freed, in milliseconds since 1970.
    pub(super) freeing_ms: AtomicU64,
    pub(super) open: Mutex<HashMap<FileId, Entry>>,
}

pub(super) struct Entry {
    pub(super) file: Arc<OpenFile>,
    /// How often it is open. It stays without being open if what was written could not be sent.
    pub(super) count: u64,
}

impl Files {
    pub(super) fn execute(&self, operation: &Operation<'_>) -> Result<Reply> {
        self.operations.execute_for(Caller::Trusted, operation)
    }

    pub(super) fn session(&self) -> Result<Arc<Session>> {
        let mut session = self.session.lock();
        if let Some(session) = &*session {
            return Ok(session.clone());
        }
        let begun = Arc::new(Session::begin(&self.objects, self.operations.session())?);
        *session = Some(begun.clone());
        Ok(begun)
    }

    /// Forgets a session that was ended by others.
    pub(super) fn forget_session(&self, ended: &Arc<Session>) {
        let mut session = self.session.lock();
        if session.as_ref().is_some_and(|session| Arc::ptr_eq(session, ended)) {
            *session = None;
        }
    }

    /// Removes an object that no record names, if that `is_certain`.
    pub(super) fn discard(&self, chunk: ChunkId, stored: Stored, is_certain: bool) {
        let is_removed = is_certain && self.objects.remove(chunk, stored.object).is_ok();
        let session = self.session.lock().clone();
        if let Some(session) = session.filter(|_| !is_removed) {
            session.doubt();
        }
    }

    pub(super) fn find(&self, id: FileId) -> Option<Arc<OpenFile>> {
        self.open.lock().get(&id).map(|entry| entry.file.clone())
    }

    pub(super) fn opened(&self, id: FileId) -> Result<Arc<OpenFile>> {
        let open = self.open.lock();
        let entry = open.get(&id).filter(|entry| entry.count > 0);
        Ok(entry.ok_or(Errno::BADF)?.file.clone())
    }

    /// Reads what records have of a file, from a chunk on.
    pub(super) fn ask(&self, caller: Caller<'_>, id: FileId, from: u64) -> Result<StoredContents> {
        let part = ContentsPart { id, from, count_max: RECORDS };
        let read = Operation::Read(Moment::Now, Read::Contents(part));
        match self.operations.execute_for(caller, &read)? {
            Reply::Contents(stored) if stored.inode.id == id => Ok(stored),
            _ => Err(unfit()),
        }
    }

    /// Reads the records of an open file from a chunk on, unless they were read meanwhile.
    pub(super) fn load(&self, file: &OpenFile, from: u64) -> Result<()> {
        let _loading = file.loading.lock();
        loop {
            let version = {
                let state = file.state.lock();
                if !state.is_stale && (!state.is_chunked() || state.known.get(from).is_some()) {
                    return Ok(());
                }
                state.version
            };
            let stored = file.users.reading(|caller| self.ask(caller, file.id, from))?;
            let mut state = file.state.lock();
            if state.version == version {
                state.learn(from, stored);
                return Ok(());
            }
        }
    }

    /// Returns the state of a file, which is not stale.
    pub(super) fn ready<'a>(&self, file: &'a OpenFile) -> Result<MutexGuard<'a, State>> {
        loop {
            let state = file.state.lock();
            if !state.is_stale {
                return Ok(state);
            }
            drop(state);
            self.load(file, 0)?;
        }
    }

    pub(super) fn open_file(&self, user: Option<(&Credentials, Wanted)>, id: FileId) -> Result<()> {
        if let Some(entry) = self.open.lock().get_mut(&id) {
            entry.count += 1;
            if let Some((who, wanted)) = user {
                entry.file.users.add(who, wanted);
            }
            // This user may be allowed to read where the others were not.
            entry.file.doubt();
        } else {
            let caller = user.map_or(Caller::Trusted, |(who, _)| Caller::User(who));
            return self.add(user, OpenFile::new(self.ask(caller, id, 0)?));
        }
        // A file that is opened is what its records have then.
        let loaded = self.opened(id).and_then(|file| self.ready(&file).map(drop));
        loaded.inspect_err(|_| self.forget(id))
    }

    pub(super) fn add(&self, user: Option<(&Credentials, Wanted)>, file: OpenFile) -> Result<()> {
        let mut open = self.open.lock();
        let entry = open.entry(file.id).or_insert_with(|| Entry { file: Arc::new(file), count: 0 });
        entry.count += 1;
        if let Some((who, wanted)) = user {
            entry.file.users.add(who, wanted);
        }
        Ok(())
    }

    /// Takes back that a file was opened.
    pub(super) fn forget(&self, id: FileId) {
        let mut open = self.open.lock();
        if let Some(entry) = open.get_mut(&id) {
            entry.count = entry.count.saturating_sub(1);
            if entry.count == 0 && entry.file.is_clean() {
                open.remove(&id);
            }
        }
    }

    /// Closes a file once, and sends what was written. If that fails for now, it is tried again; if
    /// it fails for good, it is lost once the file is not open any more.
    pub(super) fn close_file(&self, id: FileId) -> Result<()> {
        let file = self.opened(id)?;
        let _flushing = file.flushing.lock();
        let flushed = self.flush_held(&file);
        self.give_up(&file, &flushed, 1);
        self.forget(id);
        flushed
    }

    /// Drops what was written into a file if it can never be sent, and the file is open no more often
    /// than this. The caller has `flushing`.
    pub(super) fn give_up(&self, file: &OpenFile, flushed: &Result<()>, count_max: u64) {
        if flushed.as_ref().is_err_and(|error| error.kind().retry() == Retry::Nowhere) {
            let open = self.open.lock();
            if open.get(&file.id).is_some_and(|entry| entry.count <= count_max) {
                let lost = std::mem::take(&mut file.state.lock().pending);
                self.waiting.fetch_sub(lost.cost(), Ordering::Relaxed);
            }
        }
    }

    /// Sends what was written into all files at least so long ago, and forgets those that are not
    /// open any more. The first failure is returned.
    pub(super) fn flush_where(&self, age_ms: u64) -> Result<()> {
        let all = Vec::from_iter(self.open.lock().values().map(|entry| entry.file.clone()));
        let now_ms = self.objects.environment.clock.now_ms();
        let mut outcome = Ok(());
        for file in all {
            let is_due = {
                let state = file.state.lock();
                let waited_ms = now_ms.saturating_sub(state.pending.since_ms);
                !state.pending.is_empty()
                    && (waited_ms >= age_ms || now_ms < state.pending.since_ms)
            };
            if is_due {
                let _flushing = file.flushing.lock();
                let flushed = self.flush_held(&file);
                self.give_up(&file, &flushed, 0);
                outcome = outcome.and(flushed);
                let mut open = self.open.lock();
                if open.get(&file.id).is_some_and(|entry| entry.count == 0) && file.is_clean() {
                    open.remove(&file.id);
                }
            }
        }
        outcome
    }

    /// Makes a change in memory, and first room for it.
    pub(super) fn write_pending(
        &self,
        file: &OpenFile,
        privileges: Privileges<'_>,
        size_min: u64,
        change: impl FnOnce(&mut State),
    ) -> Result<()> {
        self.make_room(file)?;
        let now_ms = self.objects.environment.clock.now_ms();
        let mut state = file.state.lock();
        let writer = Writers::new(privileges, state.inode.gid);
        let before = state.pending.cost();
        change(&mut state);
        state.pending.note(writer, size_min, now_ms);
        let after = state.pending.cost();
        self.waiting.fetch_add(after, Ordering::Relaxed);
        self.waiting.fetch_sub(before, Ordering::Relaxed);
        Ok(())
    }

    /// Sends what was written if too much waits: into this file, or into all.
    pub(super) fn make_room(&self, file: &OpenFile) -> Result<()> {
        let waiting = || self.waiting.load(Ordering::Relaxed) > self.memory.waiting_bytes;
        let is_full = file.state.lock().pending.cost() > self.memory.file_bytes;
        if is_full || waiting() {
            self.flush(file)?;
        }
        // Files of others that cannot be sent must not keep this one from being written.
        if waiting() {
            let _ = self.flush_where(0);
        }
        match self.waiting.load(Ordering::Relaxed) > self.memory.waiting_bytes.saturating_mul(2) {
            true => Err(Errno::NOSPC.into()),
            false => Ok(()),
        }
    }

    pub(super) fn write_bytes(
        &self,
        id: FileId,
        offset: u64,
        bytes: &[u8],
        privileges: Privileges<'_>,
    ) -> Result<usize> {
        let file = self.opened(id)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let end = end_of(Extent::new(offset, bytes.len() as u64))?;
        self.check_withheld(&file, offset, end)?;
        self.write_pending(&file, privileges, end, |state| {
            let mut rest = bytes;
            for (chunk, within, length) in segments(offset, end, self.chunk_bytes) {
                let (part, others) = rest.split_at(length as usize);
                state.pending.write(chunk, within, part);
                rest = others;
            }
        })?;
        Ok(bytes.len())
    }

    /// Returns an error if bytes that nobody here may read stay before those that are written: in a
    /// record that gets too large, or in the chunk. Many programs do not look at what `close` returns.
    pub(super) fn check_withheld(&self, file: &OpenFile, offset: u64, end: u64) -> Result<()> {
        if !file.state.lock().is_withheld {
            return Ok(());
        }
        let state = self.ready(file)?;
        let (chunk, within) = (offset / self.chunk_bytes, offset % self.chunk_bytes);
        let needs_read = match state.base(chunk) {
            _ if !state.is_withheld => false,
            Base::Withheld => state.size().max(end) > self.small_max,
            Base::Stored(stored) if within > 0 && stored.checksum == 0 => {
                let dirty = state.pending.chunks.get(&chunk);
                !dirty.is_some_and(|dirty| dirty.extents.cover(within))
            }
            _ => false,
        };
        if needs_read { Err(Errno::ACCESS.into()) } else { Ok(()) }
    }

    /// Sets attributes of a file, after what was written before was sent.
    pub(super) fn set_attributes(
        &self,
        caller: Caller<'_>,
        operation: &Operation<'_>,
        id: FileId,
        set: &SetAttributes,
    ) -> Result<Reply> {
        let Some(file) = self.find(id) else {
            return match self.operations.execute_for(caller, operation) {
                Err(Error::Posix(Errno::AGAIN)) if set.size.is_some() => {
                    let file = OpenFile::new(self.ask(caller, id, 0)?);
                    if let Caller::User(who) = caller {
                        file.users.add(who, Wanted::READ_WRITE);
                    }
                    self.set_length(caller, operation, &file)
                }
                done => done,
            };
        };
        let _flushing = file.flushing.lock();
        self.flush_held(&file)?;
        let done = self.set_length(caller, operation, &file);
        // Also after an error: nobody knows whether it was done.
        file.doubt();
        done
    }

    /// Executes an operation that sets attributes, maybe the length of a small file that gets too
    /// large for a record. The caller has `flushing`.
    pub(super) fn set_length(
        &self,
        caller: Caller<'_>,
        operation: &Operation<'_>,
        file: &OpenFile,
    ) -> Result<Reply> {
        for _ in 0..LENGTH_ATTEMPTS {
            match self.operations.execute_for(caller, operation) {
                Err(Error::Posix(Errno::AGAIN)) => {
                    file.doubt();
                    self.make_chunks(file)?;
                }
                done => return done,
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Gives the inodes in a reply, which was `asked` for at a moment, what was written here. Contents
    /// are read anew if a reply shows that they have changed: bytes are never older than a size that
    /// programs know.
    pub(super) fn describe(&self, reply: &mut Reply, asked: LocalMoment) {
        if self.open.lock().is_empty() {
            return;
        }
        let describe = |inode: &mut Inode| {
            if let Some(file) = self.find(inode.id) {
                let mut state = file.state.lock();
                state.note_shown(inode, asked);
                state.describe(inode);
            }
        };
        match reply {
            Reply::Inode(inode) => describe(inode),
            Reply::Entries(entries) => entries.change_inodes(describe),
            _ => {}
        }
    }
}

/// Cuts a part of a file into those of its chunks: chunk, offset in it, length.
pub(super) fn segments(
    offset: u64,
    end: u64,
    chunk_bytes: u64,
) -> impl Iterator<Item = (u64, u64, u64)> {
    let mut at = offset;
    std::iter::from_fn(move || {
        let (chunk, within) = (at / chunk_bytes, at % chunk_bytes);
        let length = (chunk_bytes - within).min(end.saturating_sub(at));
        at += length;
        (length > 0).then_some((chunk, within, length))
    })
}

/// Returns where a part of a file ends.
pub(super) fn end_of(part: Extent) -> Result<u64> {
    let end = part.offset.checked_add(part.length).filter(|end| *end <= FILE_BYTES_MAX);
    Ok(end.ok_or(Errno::FBIG)?)
}

//! Contents of files, for clients of servers. Records of contents lie with the servers and are read
//! and changed by operations (`canopy_namespace::operation`, `stored.rs`). Chunks of larger files are
//! objects in the storage of the namespace, which the client reads and makes itself.
//!
//! | to change | read |
//! | --- | --- |
//! | names of objects; sessions of clients | `objects` |
//! | an open file; what was written into it | `file`, `pending`, `extents`; `known` (records) |
//! | reading; holes | `reading` |
//! | sending what was written | `flush` |
//! | objects that nothing needs any more | `collect` |
//! | a client without storage | `none` |
//! | users whom servers check | `users` |
//! | chunks in memory | `cache` |
//! | contents as snapshots have them | `past` |
//! | locks of programs | `locks` |
//!
//! Visibility of changes between clients (close-to-open, as with NFS):
//!
//! - What was written is sent when the file is closed or synced, when its length or attributes are
//!   set, when much waits, and after some seconds. Until then only this client sees it. All of it
//!   is sent in one operation, with the size. Only very many chunks take several operations.
//! - A file that is opened is read anew, and so is one whose attributes show a change. A client that
//!   has it open may read older bytes until then, but never some that the file did not have, nor after
//!   its own writes less than these.
//! - Writes of several clients to one file, even to one chunk, never take each other back, unless
//!   they concern the same bytes. Of these, what is sent last counts.
//! - A client that dies loses what it did not send. It leaves objects that no record names.
//!
//! Locks are taken in this order: `flushing` and `loading` of a file, the list of open files, the
//! state of a file.

mod cache;
mod collect;
mod extents;
mod file;
mod flush;
mod known;
mod locks;
mod none;
pub(crate) mod objects;
mod past;
mod pending;
mod reading;
mod users;

use crate::held::IsOpen;
use crate::message::SessionId;
use cache::Cache;
use canopy_model::{Credentials, Retry, Wanted};
use canopy_namespace::operation::{
    Caller, Change, ContentsPart, Moment, Operation, Query, Read, SnapshotsRequest,
};
use canopy_namespace::operation::{FileLocks, LocalFile, PastHandle, StoredContents};
use canopy_namespace::{
    ChunkId, Error, Extent, FILE_BYTES_MAX, FileContents, FileId, Found, Inode, Pace, Privileges,
    Reply, Result, SetAttributes, Settings, Stored,
};
use canopy_store::Environment;
use canopy_store::storage::StorageSpace;
pub use collect::{Collected, collect_session, session_objects, sessions};
pub(crate) use collect::{adopt_ended, collect_garbage};
use file::{Base, LocalMoment, OpenFile};
pub use none::UnknownStorage;
pub(crate) use objects::reopen_sessions;
use objects::{Objects, Session};
use parking_lot::{Mutex, MutexGuard};
use past::PastFiles;
use pending::Writers;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Chunks whose records are read at once.
const RECORDS: u32 = 1024;

/// Written bytes are sent after this time.
const FLUSH_AFTER_MS: u64 = 5000;

/// How often files are looked for that have waited so long.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Another client may change a small file so often before its length is set.
const LENGTH_ATTEMPTS: usize = 16;

/// Executes operations on names and files: a client, without the contents.
pub trait Operations: Send + Sync {
    /// Executes an operation of a caller.
    ///
    /// # Errors
    ///
    /// Fails as the operation does.
    fn execute_for(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply>;

    /// Passes the files that a query finds to `tell`, in no order, until it returns false. Calls `pace`
    /// with the memory that the query takes.
    ///
    /// # Errors
    ///
    /// Fails as the servers do.
    fn search(
        &self,
        query: &Query<'_>,
        pace: Pace<'_>,
        tell: &mut dyn FnMut(Found) -> bool,
    ) -> Result<()> {
        pace(0);
        match self.execute_for(Caller::Trusted, &Operation::Search(query.clone(), u64::MAX))? {
            Reply::Found(found) => {
                let _ = found.into_iter().all(tell);
                Ok(())
            }
            _ => Err(unfit()),
        }
    }

    /// Returns the session at servers; `SERVER` if there is none.
    fn session(&self) -> SessionId {
        SessionId::SERVER
    }

    /// Returns who keeps locks of programs, if it is not the kernel.
    fn locks(&self) -> Option<&dyn FileLocks> {
        None
    }

    /// Returns an error if programs have lost locks on a file and have not given them back.
    ///
    /// # Errors
    ///
    /// Fails with `IO`.
    fn check_locks(&self, _id: FileId) -> Result<()> {
        Ok(())
    }

    /// Sets how the client knows that a file is in use. It lets others go once they have no name.
    fn use_while_open(&self, _is_open: IsOpen) {}

    /// Returns how long a directory that was just looked up may be cached; none if that is for the
    /// caller to know.
    fn cached_for(&self, _directory: &Inode) -> Option<Duration> {
        None
    }
}

/// How much memory contents take.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes of chunks that were read or made.
    pub cache_bytes: usize,
    /// Bytes that were written into one file and not sent.
    pub file_bytes: usize,
    /// Bytes that were written into all files and not sent.
    pub waiting_bytes: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Memory { cache_bytes: 128 << 20, file_bytes: 64 << 20, waiting_bytes: 256 << 20 }
    }
}

/// A namespace that has servers, as one client sees it: operations are the servers', contents of
/// files go to storage. Calls come from any number of threads.
pub struct ClusterNamespace {
    files: Arc<Files>,
    past_files: PastFiles,
    /// Ends the thread that sends what has waited long enough.
    ended: Option<Sender<()>>,
    flusher: Option<JoinHandle<()>>,
}

/// Open files, and the way to records and storage.
struct Files {
    operations: Arc<dyn Operations>,
    objects: Arc<Objects>,
    cache: Cache,
    /// The session; none before an object has to be made.
    session: Mutex<Option<Arc<Session>>>,
    chunk_bytes: u64,
    /// Contents of this size at most are records.
    small_max: u64,
    memory: Memory,
    /// Memory of what was written and not sent.
    waiting: AtomicUsize,
    /// The last time at which this client had space freed, in milliseconds since 1970.
    freeing_ms: AtomicU64,
    open: Mutex<HashMap<FileId, Entry>>,
}

struct Entry {
    file: Arc<OpenFile>,
    /// How often it is open. It stays without being open if what was written could not be sent.
    count: u64,
}

impl ClusterNamespace {
    /// Reads and writes chunks in the storage of an environment. `settings` are those of the
    /// namespace, whose records `operations` reaches.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if the namespace has no chunks, and with `Io` if there is no thread.
    pub fn new(
        operations: Arc<dyn Operations>,
        environment: &Environment,
        settings: &Settings,
        memory: Memory,
    ) -> Result<Self> {
        if settings.chunk_bytes == 0 {
            let what = "contents of the namespace are files of one machine; servers need chunks";
            return Err(Error::Invalid(what.into()));
        }
        let files = Arc::new(Files {
            operations,
            objects: Arc::new(Objects::new(environment.clone())),
            cache: Cache::new(memory.cache_bytes),
            session: Mutex::default(),
            chunk_bytes: settings.chunk_bytes,
            small_max: settings.inline_bytes_max as u64,
            memory,
            waiting: AtomicUsize::new(0),
            freeing_ms: AtomicU64::new(0),
            open: Mutex::default(),
        });
        let opened = Arc::downgrade(&files);
        let is_open = move |id| opened.upgrade().is_some_and(|files| files.find(id).is_some());
        files.operations.use_while_open(Box::new(is_open));
        let (ended, end) = channel();
        let flushed = files.clone();
        let flusher = std::thread::Builder::new().name("contents".into()).spawn(move || {
            while end.recv_timeout(FLUSH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // Closing or syncing the file returns the error.
                let _ = flushed.flush_where(FLUSH_AFTER_MS);
            }
        });
        let flusher = flusher.map_err(|source| Error::Io { what: "a thread".into(), source })?;
        Ok(ClusterNamespace {
            files,
            past_files: PastFiles::default(),
            ended: Some(ended),
            flusher: Some(flusher),
        })
    }

    /// Executes an operation, with what was written here: first it is sent if the operation depends
    /// on it, and inodes in replies have it.
    ///
    /// # Errors
    ///
    /// Fails as the operation does, and as sending does.
    pub(crate) fn execute_written(
        &self,
        caller: Caller<'_>,
        operation: &Operation<'_>,
    ) -> Result<Reply> {
        let (files, asked) = (&*self.files, LocalMoment::next());
        let mut reply = match operation {
            Operation::Change(Change::SetAttributes { id, set, .. }) => {
                files.set_attributes(caller, operation, *id, set)?
            }
            // A capability goes with what is written later.
            Operation::Change(Change::Sync(id) | Change::SetXattr { id, .. }) => {
                files.find(*id).map_or(Ok(()), |file| files.flush(&file))?;
                files.operations.execute_for(caller, operation)?
            }
            // The snapshot contains this client's own writes.
            Operation::Snapshots(SnapshotsRequest::Create(_)) => {
                files.flush_where(0)?;
                files.operations.execute_for(caller, operation)?
            }
            _ => files.operations.execute_for(caller, operation)?,
        };
        if let Operation::Change(change) = operation
            && frees_space(change)
        {
            files.note_freeing();
        }
        if !matches!(operation, Operation::Read(Moment::Snapshot(_), _)) {
            files.describe(&mut reply, asked);
        }
        Ok(reply)
    }

    /// Passes the files that a query finds to `tell`. Files have the sizes and times that servers know.
    pub(crate) fn search(
        &self,
        query: &Query<'_>,
        pace: Pace<'_>,
        tell: &mut dyn FnMut(Found) -> bool,
    ) -> Result<()> {
        self.files.operations.search(query, pace, tell)
    }

    /// Returns how long a directory that was just looked up may be cached.
    pub(crate) fn directory_cached_for(&self, directory: &Inode) -> Option<Duration> {
        self.files.operations.cached_for(directory)
    }

    /// Returns nanoseconds since 1970.
    pub(crate) fn now_ns(&self) -> i64 {
        let now_ms = self.files.objects.environment.clock.now_ms();
        i64::try_from(now_ms).unwrap_or(i64::MAX).saturating_mul(1_000_000)
    }

    /// Returns the space of storage, if that knows it now.
    pub(crate) fn space(&self) -> Option<StorageSpace> {
        self.files.objects.storage().space().ok().flatten()
    }

    /// Sends all that was written.
    ///
    /// # Errors
    ///
    /// Returns the first failure. What could not be sent stays.
    pub fn flush(&self) -> Result<()> {
        self.files.flush_where(0)
    }

    /// Sends all that was written, and ends the session. To be called last.
    ///
    /// # Errors
    ///
    /// Fails as storage and servers do.
    pub fn end(&self) -> Result<()> {
        self.flush()?;
        match self.files.session.lock().take() {
            Some(session) => session.end(),
            None => Ok(()),
        }
    }
}

impl Drop for ClusterNamespace {
    /// Ends the thread. What was not sent is lost.
    fn drop(&mut self) {
        self.ended = None;
        if let Some(flusher) = self.flusher.take() {
            // A thread that panicked has said so.
            let _ = flusher.join();
        }
    }
}

impl Files {
    fn execute(&self, operation: &Operation<'_>) -> Result<Reply> {
        self.operations.execute_for(Caller::Trusted, operation)
    }

    fn session(&self) -> Result<Arc<Session>> {
        let mut session = self.session.lock();
        if let Some(session) = &*session {
            return Ok(session.clone());
        }
        let begun = Arc::new(Session::begin(&self.objects, self.operations.session())?);
        *session = Some(begun.clone());
        Ok(begun)
    }

    /// Forgets a session that was ended by others.
    fn forget_session(&self, ended: &Arc<Session>) {
        let mut session = self.session.lock();
        if session.as_ref().is_some_and(|session| Arc::ptr_eq(session, ended)) {
            *session = None;
        }
    }

    /// Removes an object that no record names, if that `is_certain`.
    fn discard(&self, chunk: ChunkId, stored: Stored, is_certain: bool) {
        let is_removed = is_certain && self.objects.remove(chunk, stored.object).is_ok();
        let session = self.session.lock().clone();
        if let Some(session) = session.filter(|_| !is_removed) {
            session.doubt();
        }
    }

    fn find(&self, id: FileId) -> Option<Arc<OpenFile>> {
        self.open.lock().get(&id).map(|entry| entry.file.clone())
    }

    fn opened(&self, id: FileId) -> Result<Arc<OpenFile>> {
        let open = self.open.lock();
        let entry = open.get(&id).filter(|entry| entry.count > 0);
        Ok(entry.ok_or(Errno::BADF)?.file.clone())
    }

    /// Reads what records have of a file, from a chunk on.
    fn ask(&self, caller: Caller<'_>, id: FileId, from: u64) -> Result<StoredContents> {
        let part = ContentsPart { id, from, count_max: RECORDS };
        let read = Operation::Read(Moment::Now, Read::Contents(part));
        match self.operations.execute_for(caller, &read)? {
            Reply::Contents(stored) if stored.inode.id == id => Ok(stored),
            _ => Err(unfit()),
        }
    }

    /// Reads the records of an open file from a chunk on, unless they were read meanwhile.
    fn load(&self, file: &OpenFile, from: u64) -> Result<()> {
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
    fn ready<'a>(&self, file: &'a OpenFile) -> Result<MutexGuard<'a, file::State>> {
        loop {
            let state = file.state.lock();
            if !state.is_stale {
                return Ok(state);
            }
            drop(state);
            self.load(file, 0)?;
        }
    }

    fn open_file(&self, user: Option<(&Credentials, Wanted)>, id: FileId) -> Result<()> {
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

    fn add(&self, user: Option<(&Credentials, Wanted)>, file: OpenFile) -> Result<()> {
        let mut open = self.open.lock();
        let entry = open.entry(file.id).or_insert_with(|| Entry { file: Arc::new(file), count: 0 });
        entry.count += 1;
        if let Some((who, wanted)) = user {
            entry.file.users.add(who, wanted);
        }
        Ok(())
    }

    /// Takes back that a file was opened.
    fn forget(&self, id: FileId) {
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
    fn close_file(&self, id: FileId) -> Result<()> {
        let file = self.opened(id)?;
        let _flushing = file.flushing.lock();
        let flushed = self.flush_held(&file);
        self.give_up(&file, &flushed, 1);
        self.forget(id);
        flushed
    }

    /// Drops what was written into a file if it can never be sent, and the file is open no more often
    /// than this. The caller has `flushing`.
    fn give_up(&self, file: &OpenFile, flushed: &Result<()>, count_max: u64) {
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
    fn flush_where(&self, age_ms: u64) -> Result<()> {
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
    fn write_pending(
        &self,
        file: &OpenFile,
        privileges: Privileges<'_>,
        size_min: u64,
        change: impl FnOnce(&mut file::State),
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
    fn make_room(&self, file: &OpenFile) -> Result<()> {
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

    fn write_bytes(
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
    fn check_withheld(&self, file: &OpenFile, offset: u64, end: u64) -> Result<()> {
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
    fn set_attributes(
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
    fn set_length(
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

    /// Gives the inodes in a reply, which was `asked` for at a moment, what was written here. Contents are read anew if a reply shows that
    /// they have changed: bytes are never older than a size that programs know.
    fn describe(&self, reply: &mut Reply, asked: LocalMoment) {
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

/// Returns whether a change may take objects of files away.
fn frees_space(change: &Change<'_>) -> bool {
    match change {
        Change::Unlink(_) | Change::Rename { .. } => true,
        Change::SetAttributes { set, .. } => set.size.is_some(),
        _ => false,
    }
}

/// Cuts a part of a file into those of its chunks: chunk, offset in it, length.
fn segments(offset: u64, end: u64, chunk_bytes: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let mut at = offset;
    std::iter::from_fn(move || {
        let (chunk, within) = (at / chunk_bytes, at % chunk_bytes);
        let length = (chunk_bytes - within).min(end.saturating_sub(at));
        at += length;
        (length > 0).then_some((chunk, within, length))
    })
}

/// Returns where a part of a file ends.
fn end_of(part: Extent) -> Result<u64> {
    let end = part.offset.checked_add(part.length).filter(|end| *end <= FILE_BYTES_MAX);
    Ok(end.ok_or(Errno::FBIG)?)
}

/// Returns the error of a reply that does not fit what was asked.
fn unfit() -> Error {
    crate::error::Error::Unfit.into()
}

impl FileContents for ClusterNamespace {
    fn open(&self, id: FileId) -> Result<()> {
        self.files.open_file(None, id)
    }

    fn open_for(&self, who: &Credentials, wanted: Wanted, id: FileId) -> Result<()> {
        self.files.open_file(Some((who, wanted)), id)
    }

    fn open_new(&self, inode: &Inode) -> Result<()> {
        self.files.add(None, OpenFile::new(StoredContents::of_new(inode)))
    }

    fn open_new_for(&self, who: &Credentials, inode: &Inode) -> Result<()> {
        let file = OpenFile::new(StoredContents::of_new(inode));
        self.files.add(Some((who, Wanted::READ_WRITE)), file)
    }

    fn close(&self, id: FileId) -> Result<()> {
        self.files.close_file(id)
    }

    fn is_here(&self, id: FileId, part: Extent, writes: bool) -> Result<bool> {
        self.files.is_here(&*self.files.opened(id)?, part, writes)
    }

    fn read_at(
        &self,
        id: FileId,
        offset: u64,
        length: usize,
        notes_access: bool,
    ) -> Result<Vec<u8>> {
        self.files.operations.check_locks(id)?;
        let file = self.files.opened(id)?;
        let bytes = self.files.read(&file, offset, length)?;
        if notes_access {
            // Bytes that were read are not withheld for a time.
            let _ = self.files.note_access(&file);
        }
        Ok(bytes)
    }

    fn write_at(
        &self,
        id: FileId,
        offset: u64,
        bytes: &[u8],
        privileges: Privileges<'_>,
    ) -> Result<usize> {
        self.files.operations.check_locks(id)?;
        self.files.write_bytes(id, offset, bytes, privileges)
    }

    /// Asks the server for the size unless something written waits to be sent.
    fn append_offset(&self, id: FileId) -> Result<Option<u64>> {
        let file = self.files.opened(id)?;
        if file.is_clean() {
            file.doubt();
            let last = file.state.lock().size() / self.files.chunk_bytes;
            match self.files.load(&file, last) {
                // The user may write the file and not read it.
                Err(error) if error.errno() == Errno::ACCESS => return Ok(None),
                loaded => loaded?,
            }
        }
        let size = file.state.lock().size();
        Ok(Some(size))
    }

    fn allocate_at(
        &self,
        id: FileId,
        mode: i32,
        part: Extent,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        self.files.allocate(&*self.files.opened(id)?, mode, part, privileges)
    }

    fn seek_from(&self, id: FileId, is_hole: bool, offset: u64) -> Result<u64> {
        self.files.seek(&*self.files.opened(id)?, is_hole, offset)
    }

    fn publish(&self, id: FileId) -> Result<()> {
        self.files.flush_reporting(&*self.files.opened(id)?)
    }

    fn sync_contents(&self, id: FileId) -> Result<()> {
        self.files.flush_reporting(&*self.files.opened(id)?)?;
        match self.files.execute(&Operation::Change(Change::Sync(id)))? {
            Reply::Done => Ok(()),
            _ => Err(unfit()),
        }
    }

    fn local_file(&self, _id: FileId) -> Option<LocalFile> {
        None
    }

    /// Fails always: there is no local file to lend.
    fn lend_for_writing(&self, _id: FileId) -> Result<()> {
        Err(Errno::OPNOTSUPP.into())
    }

    /// Returns 0: chunks never change, so none is copied for snapshots.
    fn bytes_to_copy(&self, _id: FileId) -> Result<u64> {
        Ok(0)
    }

    fn copy_before_change(&self, _id: FileId) -> Result<()> {
        Ok(())
    }

    fn open_past_file(&self, snapshot: u64, id: FileId) -> Result<PastHandle> {
        self.open_past(None, snapshot, id)
    }

    fn open_past_file_for(
        &self,
        who: &Credentials,
        snapshot: u64,
        id: FileId,
    ) -> Result<PastHandle> {
        self.open_past(Some(who), snapshot, id)
    }

    fn past_bytes(&self, handle: PastHandle) -> Result<u64> {
        self.past_size(handle)
    }

    fn read_past_at(&self, handle: PastHandle, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.read_past(handle, offset, length)
    }

    fn past_data_from(&self, handle: PastHandle, offset: u64) -> Result<u64> {
        self.past_data(handle, offset)
    }

    fn close_past_file(&self, handle: PastHandle) {
        self.close_past(handle);
    }
}

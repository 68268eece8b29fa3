//! Contents of files, for clients of servers. Records of contents lie with the servers and are read
//! and changed by operations (`canopy_namespace::operation`, `stored.rs`). Chunks of larger files are
//! objects in the storage of the namespace, which the client reads and makes itself.
//!
//! | to change | read |
//! | --- | --- |
//! | names of objects; sessions of clients | `objects` |
//! | the open files of a client | `files` |
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
mod files;
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
use canopy_model::{Credentials, Wanted};
use canopy_namespace::operation::{
    Caller, Change, FileLocks, LocalFile, Moment, Operation, PastHandle, Query, SnapshotsRequest,
    StoredContents,
};
use canopy_namespace::{
    Error, Extent, FileContents, FileId, Found, Inode, Pace, Privileges, Reply, Result, Settings,
};
use canopy_store::Environment;
use canopy_store::storage::StorageSpace;
pub use collect::{Collected, collect_session, session_objects, sessions};
pub(crate) use collect::{adopt_ended, collect_garbage};
use file::{LocalMoment, OpenFile};
use files::Files;
pub use none::UnknownStorage;
use objects::Objects;
pub(crate) use objects::reopen_sessions;
use parking_lot::Mutex;
use past::PastFiles;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Written bytes are sent after this time.
const FLUSH_AFTER_MS: u64 = 5000;

/// How often files are looked for that have waited so long.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

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

/// Returns whether a change may take objects of files away.
fn frees_space(change: &Change<'_>) -> bool {
    match change {
        Change::Unlink(_) | Change::Rename { .. } => true,
        Change::SetAttributes { set, .. } => set.size.is_some(),
        _ => false,
    }
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

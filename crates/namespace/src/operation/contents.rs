//! Contents of files, for whoever executes operations: beside the operations, since data does not
//! go the way of metadata.

use crate::contents::{Extent, Opened};
use crate::error::Result;
use crate::namespace::Namespace;
use crate::records::change::Privileges;
use crate::records::inode::Inode;
use crate::records::keys::FileId;
use crate::snapshot::past::PastFile;
use canopy_model::{Credentials, Wanted};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

/// Reads and writes what files have in them. A file of now is held and opened first, and a file of
/// a snapshot is opened to get a handle.
pub trait FileContents: Send + Sync {
    /// Opens a regular file.
    ///
    /// # Errors
    ///
    /// Fails as [`Namespace::open_file`] does.
    fn open(&self, id: FileId) -> Result<()>;

    /// Opens a regular file that was just made, and that nobody else knows.
    ///
    /// # Errors
    ///
    /// Fails as [`Namespace::open_new_file`] does.
    fn open_new(&self, inode: &Inode) -> Result<()>;

    /// Like `open`, for a user who may open it so. Only a client of servers that check users has to
    /// know the user: it names one of those who have a file open when it reads and sends contents.
    ///
    /// # Errors
    ///
    /// Fails as `open` does.
    fn open_for(&self, _who: &Credentials, _wanted: Wanted, id: FileId) -> Result<()> {
        self.open(id)
    }

    /// Like `open_new`, for the user who has made the file.
    ///
    /// # Errors
    ///
    /// Fails as `open_new` does.
    fn open_new_for(&self, _who: &Credentials, inode: &Inode) -> Result<()> {
        self.open_new(inode)
    }

    /// Closes a file that is open.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if it is not open, and as [`Namespace::close_file`] does.
    fn close(&self, id: FileId) -> Result<()>;

    /// Returns whether reading there, or writing, waits for no storage.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if the file is not open.
    fn is_here(&self, id: FileId, part: Extent, writes: bool) -> Result<bool>;

    /// Reads up to `length` bytes from an offset on; fewer only at the end. Its time of access
    /// changes if `notes_access` and it is due.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if the file is not open, and as [`Namespace::read`] does.
    fn read_at(
        &self,
        id: FileId,
        offset: u64,
        length: usize,
        notes_access: bool,
    ) -> Result<Vec<u8>>;

    /// Writes bytes at an offset. Returns how many: fewer only where a disk became full.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if the file is not open, and as [`Namespace::write`] does.
    fn write_at(
        &self,
        id: FileId,
        offset: u64,
        bytes: &[u8],
        privileges: Privileges<'_>,
    ) -> Result<usize>;

    /// Returns where a program appends to an open file, if others change files, too: at the end that
    /// they have made. None if the kernel knows it.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if the file is not open, and if a server cannot be asked.
    fn append_offset(&self, _id: FileId) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Changes what space a part of a file takes, as fallocate(2) does.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if the file is not open, and as [`Namespace::allocate`] does.
    fn allocate_at(
        &self,
        id: FileId,
        mode: i32,
        part: Extent,
        privileges: Privileges<'_>,
    ) -> Result<()>;

    /// Returns where data or a hole begins at or behind an offset, as lseek(2) does.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if the file is not open, and as [`Namespace::seek`] does.
    fn seek_from(&self, id: FileId, is_hole: bool, offset: u64) -> Result<u64>;

    /// Lets everybody see what was written into an open file so far, on other machines too. What
    /// outlasts a crash is another matter.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if the file is not open. A client of servers fails as these and storage do.
    fn publish(&self, id: FileId) -> Result<()>;

    /// Makes what an open file has, and all changes before, outlast a crash.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if the file is not open, and as [`Namespace::sync_file`] does.
    fn sync_contents(&self, id: FileId) -> Result<()>;

    /// Returns the file of this machine that has the contents of an open file, for the kernel to
    /// read and write it unasked. None if there is no such file, or its bytes are limited, which
    /// nobody would see. Servers elsewhere have none.
    fn local_file(&self, id: FileId) -> Option<LocalFile>;

    /// Notes on record that the kernel may write the local file of an open file from now on.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if the file is not open, and as [`Namespace::note_written`] does.
    fn lend_for_writing(&self, id: FileId) -> Result<()>;

    /// Returns how many bytes have to be copied for snapshots before a file can be changed.
    ///
    /// # Errors
    ///
    /// Fails as [`Namespace::bytes_to_keep`] does.
    fn bytes_to_copy(&self, id: FileId) -> Result<u64>;

    /// Copies them, so that what changes the file next does not wait for that.
    ///
    /// # Errors
    ///
    /// Fails as [`Namespace::keep_before_change`] does.
    fn copy_before_change(&self, id: FileId) -> Result<()>;

    /// Opens a regular file of a snapshot, and returns a handle.
    ///
    /// # Errors
    ///
    /// Fails with `STALE` if the snapshot was deleted, and as [`Namespace::open_past`] does.
    fn open_past_file(&self, snapshot: u64, id: FileId) -> Result<PastHandle>;

    /// Like `open_past_file`, for a user who may read it, as for `open_for`.
    ///
    /// # Errors
    ///
    /// Fails as `open_past_file` does.
    fn open_past_file_for(
        &self,
        _who: &Credentials,
        snapshot: u64,
        id: FileId,
    ) -> Result<PastHandle> {
        self.open_past_file(snapshot, id)
    }

    /// Returns how many bytes such a file has.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if there is no such handle.
    fn past_bytes(&self, handle: PastHandle) -> Result<u64>;

    /// Reads up to `length` bytes of such a file from an offset on; fewer only at the end.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if there is no such handle, and as [`Namespace::read_past`] does.
    fn read_past_at(&self, handle: PastHandle, offset: u64, length: usize) -> Result<Vec<u8>>;

    /// Returns where data of such a file begins at or behind an offset; the length if there is only
    /// a hole.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if there is no such handle, and as [`Namespace::seek_past_data`] does.
    fn past_data_from(&self, handle: PastHandle, offset: u64) -> Result<u64>;

    /// Closes such a file.
    fn close_past_file(&self, handle: PastHandle);
}

/// A file of a snapshot that is open. No other one ever gets the same handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PastHandle(pub u64);

/// A file of this machine that has the contents of an open file.
pub struct LocalFile(Arc<Opened>);

impl LocalFile {
    /// Returns the file.
    pub fn file(&self) -> Option<&File> {
        self.0.file()
    }
}

/// The files of snapshots that are open.
#[derive(Default)]
pub(crate) struct PastFiles(Mutex<OpenPast>);

#[derive(Default)]
struct OpenPast {
    next: u64,
    files: HashMap<PastHandle, Arc<PastFile>>,
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

    fn remove(&self, handle: PastHandle) {
        self.0.lock().files.remove(&handle);
    }
}

impl FileContents for Namespace {
    fn open(&self, id: FileId) -> Result<()> {
        self.open_file(id).map(drop)
    }

    fn open_new(&self, inode: &Inode) -> Result<()> {
        self.open_new_file(inode).map(drop)
    }

    fn close(&self, id: FileId) -> Result<()> {
        self.close_file(&self.opened(id)?)
    }

    fn is_here(&self, id: FileId, part: Extent, writes: bool) -> Result<bool> {
        Ok(self.opened(id)?.is_here(part.offset, part.length, writes))
    }

    fn read_at(
        &self,
        id: FileId,
        offset: u64,
        length: usize,
        notes_access: bool,
    ) -> Result<Vec<u8>> {
        self.read(&*self.opened(id)?, offset, length, notes_access)
    }

    fn write_at(
        &self,
        id: FileId,
        offset: u64,
        bytes: &[u8],
        privileges: Privileges<'_>,
    ) -> Result<usize> {
        self.write(&*self.opened(id)?, Some(offset), bytes, privileges)
    }

    fn allocate_at(
        &self,
        id: FileId,
        mode: i32,
        part: Extent,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        self.allocate(&*self.opened(id)?, mode, part, privileges)
    }

    fn seek_from(&self, id: FileId, is_hole: bool, offset: u64) -> Result<u64> {
        self.seek(&*self.opened(id)?, is_hole, offset)
    }

    fn publish(&self, id: FileId) -> Result<()> {
        self.opened(id).map(drop)
    }

    fn sync_contents(&self, id: FileId) -> Result<()> {
        self.sync_file(&self.opened(id)?)
    }

    fn local_file(&self, id: FileId) -> Option<LocalFile> {
        let opened = self.opened(id).ok().filter(|opened| opened.file().is_some())?;
        let is_limited = self.is_limited(id).unwrap_or(true);
        (!is_limited).then_some(LocalFile(opened))
    }

    fn lend_for_writing(&self, id: FileId) -> Result<()> {
        self.note_written(&*self.opened(id)?)
    }

    fn bytes_to_copy(&self, id: FileId) -> Result<u64> {
        self.bytes_to_keep(id)
    }

    fn copy_before_change(&self, id: FileId) -> Result<()> {
        self.keep_before_change(id)
    }

    fn open_past_file(&self, snapshot: u64, id: FileId) -> Result<PastHandle> {
        Ok(self.past_files.add(self.open_past(&self.numbered(snapshot)?, id)?))
    }

    fn past_bytes(&self, handle: PastHandle) -> Result<u64> {
        Ok(self.past_files.get(handle)?.size())
    }

    fn read_past_at(&self, handle: PastHandle, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.read_past(&*self.past_files.get(handle)?, offset, length)
    }

    fn past_data_from(&self, handle: PastHandle, offset: u64) -> Result<u64> {
        self.seek_past_data(&*self.past_files.get(handle)?, offset)
    }

    fn close_past_file(&self, handle: PastHandle) {
        self.past_files.remove(handle);
    }
}

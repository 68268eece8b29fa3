//! Contents of regular files. Up to a few kilobytes are a record. Larger contents are a file in a
//! directory of this machine, by the file's id, or chunks in storage (`chunks`).
//!
//! While such an object is open, its own size and times count; when it is not, those of the record.
//! A record that says so (`Space::Unsettled`) is there as long as the two may differ.
//!
//! Where it can, the kernel reads and writes these files itself (FUSE pass-through).

pub(crate) mod chunks;
mod files;
pub(crate) mod object;
mod records;

use crate::contents::chunks::{ChunkStore, Chunked};
use crate::contents::object::Object;
use crate::error::{Error, Result};
use crate::records::inode::Inode;
use crate::records::keys::FileId;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{FallocateFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const SECOND_NS: i64 = 1_000_000_000;

/// Files are this long at most, in bytes: what offsets can say.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// So much of what lies in storage is kept in the directory, in bytes.
const CACHE_BYTES: u64 = 4 << 30;

/// Descriptors that are left for other things than objects.
const DESCRIPTORS_RESERVED: u64 = 256;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it has; it may end behind the largest file.
    pub length: u64,
}

impl Extent {
    /// Returns a part of `length` bytes from an offset on.
    pub fn new(offset: u64, length: u64) -> Self {
        Extent { offset, length }
    }
}

/// The objects of a namespace, and the files that are open.
pub struct Contents {
    directory: PathBuf,
    cache_bytes: u64,
    /// Whether objects may be changed.
    is_writable: bool,
    /// Set if contents are chunks in storage; the directory is a cache of them then.
    chunks: OnceLock<Arc<ChunkStore>>,
    opened: Mutex<HashMap<FileId, Entry>>,
    /// How many objects are open, and how many may be.
    objects: AtomicU64,
    objects_max: u64,
    /// Files whose records say that their objects may differ from them.
    unsettled: Mutex<HashSet<FileId>>,
    /// Counts the files that were closed for the last time.
    closed: AtomicU64,
    /// Whether objects were doomed since it was last looked whether there is little space.
    pub(crate) has_doomed: AtomicBool,
    /// Shared while objects are changed; one alone changes which snapshots there are.
    pub(crate) changing: RwLock<()>,
    /// Shared while what snapshots keep is looked for, by names.
    pub(crate) kept_names: RwLock<()>,
}

struct Entry {
    opened: Arc<Opened>,
    /// How often it is open. It stays without being open if its contents could not be written.
    count: u64,
    /// How often it was opened since it is here.
    opens: u64,
}

/// A regular file that is open, however often.
pub struct Opened {
    pub(crate) id: FileId,
    /// The contents, unless there is an object.
    pub(crate) inline: RwLock<Inline>,
    /// Set once, under the lock of `inline`.
    pub(crate) object: OnceLock<Object>,
    /// The newest of the snapshots, none of which needs the object as it is any more. Locked while
    /// it is copied.
    pub(crate) kept: Mutex<Option<u64>>,
    /// Whether the kernel may be writing the object itself.
    pub(crate) is_kernels: AtomicBool,
}

#[derive(Clone, Default)]
pub(crate) struct Inline {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_dirty: bool,
}

impl Opened {
    pub(crate) fn new(id: FileId) -> Self {
        Opened {
            id,
            inline: RwLock::default(),
            object: OnceLock::new(),
            kept: Mutex::new(None),
            is_kernels: AtomicBool::new(false),
        }
    }

    /// Returns which file it is.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Returns what has the contents, if they are not in a record.
    pub(crate) fn object(&self) -> Option<&Object> {
        self.object.get()
    }

    /// Returns the file of this machine that has the contents, if one does.
    pub fn file(&self) -> Option<&File> {
        match self.object.get()? {
            Object::File(file) => Some(file),
            Object::Chunks(_) => None,
        }
    }

    /// Returns the chunks that have the contents, if they do.
    pub(crate) fn chunked(&self) -> Option<&Chunked> {
        match self.object.get()? {
            Object::File(_) => None,
            Object::Chunks(chunked) => Some(chunked),
        }
    }

    /// Returns whether reading there, or writing, waits for no storage.
    pub fn is_here(&self, offset: u64, length: u64, writes: bool) -> bool {
        self.chunked().is_none_or(|chunked| chunked.is_here(offset, length, writes))
    }
}

impl Contents {
    /// Keeps objects below a directory, which is made for its owner alone if it is missing. If
    /// contents are chunks in storage, these are cached there.
    ///
    /// # Errors
    ///
    /// Fails with `Io` if the directory cannot be made.
    pub fn new(directory: &Path) -> Result<Self> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(Error::io(directory.display().to_string()))?;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.unwrap_or(u64::MAX);
        Ok(Contents {
            directory: directory.into(),
            cache_bytes: CACHE_BYTES,
            is_writable: true,
            chunks: OnceLock::new(),
            opened: Mutex::default(),
            objects: AtomicU64::new(0),
            objects_max: limit.saturating_sub(DESCRIPTORS_RESERVED).max(limit / 2),
            unsettled: Mutex::default(),
            closed: AtomicU64::new(0),
            has_doomed: AtomicBool::new(false),
            changing: RwLock::new(()),
            kept_names: RwLock::new(()),
        })
    }

    /// Returns the same with a cache of another size, in bytes. What was written and is not in
    /// storage takes half of it at most, or a chunk of each file that is written.
    pub fn with_cache_bytes(self, cache_bytes: u64) -> Self {
        Contents { cache_bytes, ..self }
    }

    /// Returns these contents with objects that may be changed, or not.
    pub(crate) fn with_access(self, is_writable: bool) -> Self {
        Contents { is_writable, ..self }
    }

    /// Returns how many bytes of chunks are cached at most.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache_bytes
    }

    /// Keeps contents as chunks from now on.
    pub(crate) fn use_chunks(&self, chunks: ChunkStore) {
        let _ = self.chunks.set(Arc::new(chunks));
    }

    /// Returns the chunks, if contents are such.
    pub(crate) fn chunks(&self) -> Option<&Arc<ChunkStore>> {
        self.chunks.get()
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn path(&self, id: FileId) -> PathBuf {
        self.directory.join(format!("{:02x}/{id:016x}", id.0 % 256))
    }

    /// Makes the object of a file, in place of what a crash may have left of its name.
    pub(crate) fn create_object(&self, id: FileId) -> Result<File> {
        self.check_descriptors()?;
        let path = self.path(id);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let opened = match options.open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let parent = path.parent().unwrap_or(&self.directory);
                let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
                made.and_then(|()| options.open(&path))
            }
            opened => opened,
        };
        opened.map_err(Error::io(path.display().to_string()))
    }

    /// Returns an error if the log could soon not be written for want of descriptors.
    fn check_descriptors(&self) -> Result<()> {
        match self.objects.load(Ordering::Relaxed) < self.objects_max {
            true => Ok(()),
            false => Err(Errno::NFILE.into()),
        }
    }

    pub(crate) fn open_object(&self, id: FileId) -> Result<File> {
        self.check_descriptors()?;
        let path = self.path(id);
        let opened = File::options().read(true).write(self.is_writable).open(&path);
        opened.map_err(Error::io(path.display().to_string()))
    }

    /// Makes the name of an object outlast a crash.
    pub(crate) fn sync_name(&self, id: FileId) -> Result<()> {
        let path = self.path(id);
        let parents = [path.parent().unwrap_or(&self.directory), &self.directory];
        for parent in parents {
            let synced = File::open(parent).and_then(|parent| parent.sync_all());
            synced.map_err(Error::io(parent.display().to_string()))?;
        }
        Ok(())
    }

    /// Returns the file if it is open, once more if `again`.
    pub(crate) fn find(&self, id: FileId, again: bool) -> Option<Arc<Opened>> {
        let mut opened = self.opened.lock();
        let entry = opened.get_mut(&id)?;
        entry.count += u64::from(again);
        entry.opens += u64::from(again);
        Some(entry.opened.clone())
    }

    /// Opens a file that `opened` describes, unless somebody was first.
    pub(crate) fn insert(&self, opened: Opened) -> Arc<Opened> {
        let mut all = self.opened.lock();
        let entry = all.entry(opened.id).or_insert_with(|| {
            if opened.file().is_some() {
                self.objects.fetch_add(1, Ordering::Relaxed);
            }
            Entry { opened: Arc::new(opened), count: 0, opens: 0 }
        });
        entry.count += 1;
        entry.opens += 1;
        entry.opened.clone()
    }

    /// Gives an open file an object.
    pub(crate) fn set_object(&self, opened: &Opened, object: Object) {
        if opened.object.set(object).is_ok() && opened.file().is_some() {
            self.objects.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how often a file was opened, if it is open once now.
    pub(crate) fn is_last(&self, id: FileId) -> Option<u64> {
        let all = self.opened.lock();
        all.get(&id).filter(|entry| entry.count == 1).map(|entry| entry.opens)
    }

    /// Closes a file once. The last time that takes what it has to be in its records, which
    /// `flushed` says of a moment at which it had been opened so often; returns whether it is
    /// closed.
    pub(crate) fn close(&self, id: FileId, flushed: Option<u64>) -> bool {
        let mut all = self.opened.lock();
        let Some(entry) = all.get_mut(&id) else { return true };
        if entry.count > 1 {
            entry.count -= 1;
            return true;
        }
        if flushed != Some(entry.opens) || !is_clean(&entry.opened) {
            return false;
        }
        self.forget(&mut all, id);
        true
    }

    /// Closes a file for the last time although it could not be written: whoever flushes tries again.
    pub(crate) fn close_unwritten(&self, id: FileId) {
        if let Some(entry) = self.opened.lock().get_mut(&id) {
            entry.count = entry.count.saturating_sub(1);
        }
    }

    /// Forgets a file that is not open and was written after all.
    pub(crate) fn forget_unused(&self, id: FileId) {
        let mut all = self.opened.lock();
        if all.get(&id).is_some_and(|entry| entry.count == 0 && is_clean(&entry.opened)) {
            self.forget(&mut all, id);
        }
    }

    fn forget(&self, all: &mut HashMap<FileId, Entry>, id: FileId) {
        if let Some(entry) = all.remove(&id)
            && entry.opened.file().is_some()
        {
            self.objects.fetch_sub(1, Ordering::Relaxed);
        }
        // With the lock: who does not find the file sees that it was closed.
        self.closed.fetch_add(1, Ordering::Release);
    }

    /// Notes that the object of a file may differ from its record; returns whether that is new.
    pub(crate) fn unsettle(&self, id: FileId) -> bool {
        self.unsettled.lock().insert(id)
    }

    /// Forgets, and returns, the files whose objects may differ from their records and that are not
    /// open. Who opens and writes one from now on notes it anew.
    pub(crate) fn take_unsettled(&self) -> Vec<FileId> {
        let opened = self.opened.lock();
        let mut unsettled = self.unsettled.lock();
        unsettled.extract_if(|id| !opened.contains_key(id)).collect()
    }

    /// Returns which of these files nobody has opened since, and notes the others again. The caller
    /// has the writer's lock.
    pub(crate) fn settled(&self, ids: Vec<FileId>) -> Vec<FileId> {
        let opened = self.opened.lock();
        let mut unsettled = self.unsettled.lock();
        let is_settled = |id: &FileId| !opened.contains_key(id) && !unsettled.contains(id);
        let (settled, others) = ids.into_iter().partition::<Vec<_>, _>(is_settled);
        unsettled.extend(others);
        settled
    }

    /// Notes again that the objects of files may differ from their records.
    pub(crate) fn unsettle_again(&self, ids: &[FileId]) {
        self.unsettled.lock().extend(ids);
    }

    /// Forgets that the object of a file may differ from its record.
    pub(crate) fn forget_unsettled(&self, id: FileId) {
        self.unsettled.lock().remove(&id);
    }

    /// Makes everything that was written into objects, and their names, outlast a crash.
    pub(crate) fn sync_all(&self) -> Result<()> {
        if self.chunks().is_some() {
            return Ok(());
        }
        let shown = || self.directory.display().to_string();
        let directory = File::open(&self.directory).map_err(Error::io(shown()))?;
        Ok(rustix::fs::syncfs(&directory)?)
    }

    /// Returns the ids of all objects that there are.
    pub(crate) fn objects(&self) -> Result<Vec<FileId>> {
        let failed = || Error::io(self.directory.display().to_string());
        let mut ids = Vec::new();
        for part in fs::read_dir(&self.directory).map_err(failed())? {
            let part = part.map_err(failed())?.path();
            for object in fs::read_dir(&part).map_err(failed())? {
                let name = object.map_err(failed())?.file_name();
                ids.extend(
                    name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok().map(FileId)),
                );
            }
        }
        Ok(ids)
    }

    /// Returns the size of the object of a file that is not open; none if there is no object.
    pub(crate) fn object_size(&self, id: FileId) -> Option<u64> {
        fs::metadata(self.path(id)).ok().map(|metadata| metadata.len())
    }

    /// Returns the files that are open.
    pub(crate) fn all(&self) -> Vec<Arc<Opened>> {
        self.opened.lock().values().map(|entry| entry.opened.clone()).collect()
    }

    /// Removes an object, if it is there.
    pub(crate) fn remove_object(&self, id: FileId) -> Result<()> {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(path.display().to_string())(error))
            }
            _ => Ok(()),
        }
    }

    /// Gives the object of a file to another one.
    pub(crate) fn move_object(&self, from: FileId, to: FileId) -> Result<()> {
        // That makes the directory, and keeps nothing that is there.
        drop(self.create_object(to)?);
        let path = self.path(from);
        let moved = fs::rename(&path, self.path(to));
        moved.map_err(Error::io(path.display().to_string()))?;
        self.sync_name(to)
    }

    /// Returns how much space the directory has, as statvfs(3) says.
    ///
    /// # Errors
    ///
    /// Fails with `Io` or a number of the system if statvfs(3) does.
    pub fn space(&self) -> Result<rustix::fs::StatVfs> {
        Ok(rustix::fs::statvfs(&self.directory)?)
    }
}

/// Returns whether a file has nothing that is not in its records. Whoever uses it just now may be
/// about to change that.
fn is_clean(opened: &Opened) -> bool {
    opened.inline.try_read().is_some_and(|inline| !inline.is_dirty)
        && opened.chunked().is_none_or(|chunked| !chunked.is_changed())
}

/// Gives an inode the size and the times of its object.
pub(crate) fn describe(object: &File, inode: &mut Inode) {
    let Ok(metadata) = object.metadata() else { return };
    let mtime_ns = metadata.mtime().saturating_mul(SECOND_NS).saturating_add(metadata.mtime_nsec());
    if metadata.len() != inode.size || mtime_ns != inode.mtime_ns {
        inode.ctime_ns = inode.ctime_ns.max(mtime_ns);
    }
    inode.size = metadata.len();
    inode.blocks = metadata.blocks();
    inode.mtime_ns = mtime_ns;
    inode.atime_ns =
        metadata.atime().saturating_mul(SECOND_NS).saturating_add(metadata.atime_nsec());
}

/// Gives an object the times of its inode, unless it has them.
pub(crate) fn adopt_times(object: &File, inode: &Inode) -> Result<()> {
    let mut described = inode.clone();
    describe(object, &mut described);
    if (described.mtime_ns, described.atime_ns) == (inode.mtime_ns, inode.atime_ns) {
        return Ok(());
    }
    let times = Timestamps {
        last_access: timespec(inode.atime_ns),
        last_modification: timespec(inode.mtime_ns),
    };
    Ok(rustix::fs::futimens(object, &times)?)
}

fn timespec(time_ns: i64) -> Timespec {
    Timespec { tv_sec: time_ns.div_euclid(SECOND_NS), tv_nsec: time_ns.rem_euclid(SECOND_NS) }
}

/// Reads up to `length` bytes, fewer only at the end.
pub(crate) fn read_object(object: &File, offset: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut read = 0;
    while read < length {
        match object.read_at(&mut bytes[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("an object")(error)),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// Writes bytes, and returns how many; an error only if it is none.
pub(crate) fn write_object(object: &File, bytes: &[u8], offset: u64) -> Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match object.write_at(&bytes[written..], offset + written as u64) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) if written > 0 => break,
            Err(error) => return Err(Error::io("an object")(error)),
        }
    }
    match written {
        0 if !bytes.is_empty() => Err(Errno::IO.into()),
        _ => Ok(written),
    }
}

/// Changes what space an object takes, as fallocate(2) does.
pub(crate) fn allocate(object: &File, mode: i32, offset: u64, length: u64) -> Result<()> {
    let mode = FallocateFlags::from_bits(mode as u32).ok_or(Errno::OPNOTSUPP)?;
    Ok(rustix::fs::fallocate(object, mode, offset, length)?)
}

/// Returns where data or a hole begins, as lseek(2) does.
pub(crate) fn seek(object: &File, is_hole: bool, offset: u64) -> Result<u64> {
    let to = if is_hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
    Ok(rustix::fs::seek(object, to)?)
}

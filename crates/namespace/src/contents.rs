//! What regular files have in them. Up to a few kilobytes are a record; more is a file of its own in
//! a directory of this machine, by the file's id.
//!
//! While such an object is open, its own size and times count; when it is not, those of the record.
//! A record that says so (`Space::Opened`) is there as long as the two may differ.

use crate::change::{SetAttributes, SetTime};
use crate::error::{Error, Result};
use crate::inode::{Inode, flag};
use crate::keys::FileId;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{FallocateFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

const SECOND_NS: i64 = 1_000_000_000;

/// Files are this long at most, in bytes: what offsets can say.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// The objects of a namespace, and the files that are open.
pub struct Contents {
    directory: PathBuf,
    opened: Mutex<HashMap<FileId, Entry>>,
    /// Objects that are to be removed once it outlasts a crash that their files are gone.
    doomed: Mutex<Vec<FileId>>,
}

struct Entry {
    opened: Arc<Opened>,
    count: u64,
}

/// A regular file that is open, however often.
pub struct Opened {
    pub(crate) id: FileId,
    /// What it has, unless there is an object.
    pub(crate) inline: RwLock<Inline>,
    /// Set once, under the lock of `inline`.
    pub(crate) object: OnceLock<File>,
}

#[derive(Default)]
pub(crate) struct Inline {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_dirty: bool,
    /// Whether a record says that the object may differ from the record.
    pub(crate) is_marked: bool,
}

impl Opened {
    /// Returns which file it is.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Returns the file that has the contents, if they are not in a record.
    pub fn object(&self) -> Option<&File> {
        self.object.get()
    }
}

impl Contents {
    /// Keeps objects below a directory, which is made for its owner alone if it is missing.
    pub fn new(directory: &Path) -> Result<Self> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(Error::io(directory.display().to_string()))?;
        Ok(Contents {
            directory: directory.into(),
            opened: Mutex::default(),
            doomed: Mutex::default(),
        })
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, id: FileId) -> PathBuf {
        self.directory.join(format!("{:02x}/{id:016x}", id % 256))
    }

    /// Makes the object of a file, in place of what a crash may have left of its name.
    pub(crate) fn create_object(&self, id: FileId) -> Result<File> {
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

    pub(crate) fn open_object(&self, id: FileId) -> Result<File> {
        let path = self.path(id);
        let opened = File::options().read(true).write(true).open(&path);
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
        Some(entry.opened.clone())
    }

    /// Opens a file that `opened` describes, unless somebody was first.
    pub(crate) fn insert(&self, opened: Opened) -> Arc<Opened> {
        let mut all = self.opened.lock();
        let entry =
            all.entry(opened.id).or_insert_with(|| Entry { opened: Arc::new(opened), count: 0 });
        entry.count += 1;
        entry.opened.clone()
    }

    /// Returns whether this is the last time that the file is open.
    pub(crate) fn is_last(&self, id: FileId) -> bool {
        self.opened.lock().get(&id).is_some_and(|entry| entry.count == 1)
    }

    /// Closes a file once, unless this is the last time and `is_clean` says no.
    pub(crate) fn remove(&self, id: FileId, is_clean: impl FnOnce() -> bool) -> bool {
        let mut all = self.opened.lock();
        let Some(entry) = all.get_mut(&id) else { return true };
        if entry.count > 1 {
            entry.count -= 1;
            return true;
        }
        if is_clean() {
            all.remove(&id);
            return true;
        }
        false
    }

    /// Returns the files that are open.
    pub(crate) fn all(&self) -> Vec<Arc<Opened>> {
        self.opened.lock().values().map(|entry| entry.opened.clone()).collect()
    }

    /// Gives an inode what its object says, if that is open.
    pub(crate) fn overlay(&self, inode: &mut Inode) {
        if !inode.has(flag::OBJECT) {
            return;
        }
        let Some(opened) = self.find(inode.id, false) else { return };
        if let Some(object) = opened.object() {
            describe(object, inode);
        }
    }

    /// Gives the object of a file times that were set, if it is open.
    pub(crate) fn set_times(&self, inode: &Inode, set: &SetAttributes) -> Result<()> {
        if !inode.has(flag::OBJECT) || (set.atime.is_none() && set.mtime.is_none()) {
            return Ok(());
        }
        let Some(opened) = self.find(inode.id, false) else { return Ok(()) };
        let Some(object) = opened.object() else { return Ok(()) };
        let time = |set: Option<SetTime>, time_ns| match set {
            Some(_) => timespec(time_ns),
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        let times = Timestamps {
            last_access: time(set.atime, inode.atime_ns),
            last_modification: time(set.mtime, inode.mtime_ns),
        };
        Ok(rustix::fs::futimens(object, &times)?)
    }

    /// Has an object removed as soon as a crash cannot bring its file back.
    pub(crate) fn doom(&self, id: FileId) {
        self.doomed.lock().push(id);
    }

    pub(crate) fn take_doomed(&self) -> Vec<FileId> {
        std::mem::take(&mut self.doomed.lock())
    }

    /// Returns whether there is an object of that file.
    pub(crate) fn has_object(&self, id: FileId) -> bool {
        self.path(id).exists()
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

    /// Returns how much space there is: what statvfs(3) says of the directory.
    pub fn space(&self) -> Result<rustix::fs::StatVfs> {
        Ok(rustix::fs::statvfs(&self.directory)?)
    }
}

/// Gives an inode the size and the times of its object.
pub(crate) fn describe(object: &File, inode: &mut Inode) {
    let Ok(metadata) = object.metadata() else { return };
    let mtime_ns = metadata.mtime() * SECOND_NS + metadata.mtime_nsec();
    if metadata.len() != inode.size || mtime_ns != inode.mtime_ns {
        inode.ctime_ns = inode.ctime_ns.max(mtime_ns);
    }
    inode.size = metadata.len();
    inode.blocks = metadata.blocks();
    inode.mtime_ns = mtime_ns;
    inode.atime_ns = metadata.atime() * SECOND_NS + metadata.atime_nsec();
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

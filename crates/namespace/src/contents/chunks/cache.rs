//! Chunks on the local disk. What is in storage is a file by the name of its object, and may go at
//! any time, the least recently used first; it outlasts the process, and is proved by its checksum
//! before its first use in the next one. What is not in storage yet is a file of `Local`, which
//! nothing takes away before it is sent, and which the next process removes: a crash loses it.
//!
//! The directories are ours alone, and found once: who may change what lies above them can neither
//! put others in their place nor have links in them followed.
//!
//! ```text
//! <table>/lock             held by the process that uses the cache
//! <table>/stored/<object>  the bytes of an object
//! <table>/local/<number>   a chunk that was written
//! ```

use super::{ObjectId, Stored};
use crate::error::{Error, Result};
use bytes::Bytes;
use canopy_store::hash_of;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most chunks that wait to be sent: each has a descriptor.
const LOCAL_MAX: u64 = 512;

pub(crate) struct Cache {
    stored: Arc<Directory>,
    local_files: Arc<Directory>,
    bytes_max: u64,
    state: Mutex<State>,
    fetched: Condvar,
    local: Arc<Counts>,
    next_local: AtomicU64,
    _lock: File,
}

/// A directory that only we can change.
struct Directory {
    path: PathBuf,
    file: File,
}

impl Directory {
    /// Opens a directory below another one, made for its owner alone if it is missing. An error if it
    /// is somebody else's, or others may write it.
    fn open(parent: impl AsFd, path: PathBuf) -> Result<Self> {
        let name = path.file_name().unwrap_or_default();
        let made = match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
            Err(Errno::EXIST) => Ok(()),
            made => made,
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = made.and_then(|()| rustix::fs::openat(&parent, name, flags, Mode::empty()));
        let file = opened.map(File::from).map_err(|errno| failed(&path)(errno.into()))?;
        let metadata = file.metadata().map_err(failed(&path))?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(Error::Invalid(format!(
                "{}: a cache has to belong to who uses it, and nobody else may write it",
                path.display()
            )));
        }
        Ok(Directory { path, file })
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // Other files that were put here neither lead elsewhere nor block.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.file, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.file, name, AtFlags::empty())?)
    }

    fn rename(&self, name: &str, to: &Self, new_name: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.file, name, &to.file, new_name)?)
    }

    /// Removes what is here but for files that `keeps` takes, by their names.
    fn clean(&self, mut keeps: impl FnMut(&str, rustix::fs::Stat) -> bool) -> io::Result<()> {
        for entry in Dir::read_from(&self.file)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let stat = rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
            let known = name.to_str().ok().filter(|_| is_file);
            if !known.is_some_and(|name| keeps(name, stat)) {
                rustix::fs::unlinkat(&self.file, name, AtFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// Chunks that wait to be sent.
#[derive(Default)]
struct Counts {
    bytes: AtomicU64,
    files: AtomicU64,
}

#[derive(Default)]
struct State {
    entries: HashMap<ObjectId, Entry>,
    /// By when they were used last.
    uses: BTreeMap<u64, ObjectId>,
    next_use: u64,
    bytes: u64,
    /// Chunks that somebody fetches now.
    fetching: HashSet<ObjectId>,
}

struct Entry {
    bytes: u64,
    used: u64,
    is_proved: bool,
}

/// A chunk whose bytes are here.
pub(crate) enum Cached {
    File(File),
    Memory(Bytes),
}

impl Cached {
    /// Puts bytes from an offset on into `out`, all of it.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self {
            Cached::File(file) => {
                file.read_exact_at(out, offset).map_err(Error::io("a cached chunk"))
            }
            Cached::Memory(bytes) => {
                let start = offset as usize;
                let found = bytes.get(start..start + out.len());
                out.copy_from_slice(found.ok_or_else(|| Error::corrupt("a chunk is too short"))?);
                Ok(())
            }
        }
    }

    /// Writes its first bytes into an empty file.
    pub(crate) fn copy(&self, bytes: u64, target: &File) -> io::Result<()> {
        match self {
            Cached::Memory(all) => target.write_all_at(&all[..bytes as usize], 0),
            Cached::File(file) => {
                let (mut from, mut to) = (0, 0);
                while to < bytes {
                    let left = (bytes - to) as usize;
                    let copied = rustix::fs::copy_file_range(
                        file,
                        Some(&mut from),
                        target,
                        Some(&mut to),
                        left,
                    );
                    if matches!(copied, Ok(0) | Err(_)) {
                        let mut rest = vec![0; (bytes - to) as usize];
                        file.read_exact_at(&mut rest, to)?;
                        return target.write_all_at(&rest, to);
                    }
                }
                Ok(())
            }
        }
    }
}

/// A chunk that was written and is not an object. The file goes with it, unless it was adopted.
pub(crate) struct Local {
    pub(crate) file: File,
    directory: Arc<Directory>,
    name: String,
    length: AtomicU64,
    /// Counts changes.
    pub(crate) version: AtomicU64,
    /// The version that the records have the bytes of.
    pub(crate) flushed: AtomicU64,
    is_adopted: AtomicBool,
    counts: Arc<Counts>,
}

impl Local {
    /// Returns how many bytes it has.
    pub(crate) fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    fn set_length(&self, length: u64) {
        let before = self.length.swap(length, Ordering::Relaxed);
        self.counts.bytes.fetch_add(length, Ordering::Relaxed);
        self.counts.bytes.fetch_sub(before, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let (length, end) = (self.length(), offset + bytes.len() as u64);
        // Before the bytes: who sends it meanwhile has to send it again.
        self.version.fetch_add(1, Ordering::Relaxed);
        let written = self.file.write_all_at(bytes, offset);
        let written = written.inspect_err(|_| {
            // Data that was written before the failure must not appear when the chunk gets longer.
            let _ = self.file.set_len(length);
        });
        written.map_err(Error::io("a chunk in the cache"))?;
        self.set_length(length.max(end));
        Ok(())
    }

    pub(crate) fn truncate(&self, length: u64) -> Result<()> {
        self.file.set_len(length).map_err(Error::io("a chunk in the cache"))?;
        self.set_length(length);
        Ok(())
    }

    /// Makes a part zeros, without changing the length.
    pub(crate) fn zero(&self, offset: u64, end: u64) -> Result<()> {
        let end = end.min(self.length());
        if offset >= end {
            return Ok(());
        }
        self.set_length(self.length());
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, end - offset) {
            Ok(()) => Ok(()),
            Err(_) => self.write(&vec![0; (end - offset) as usize], offset),
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.counts.bytes.fetch_sub(self.length(), Ordering::Relaxed);
        self.counts.files.fetch_sub(1, Ordering::Relaxed);
        if !self.is_adopted.load(Ordering::Relaxed) {
            // Files that stay are removed when the cache is opened again.
            let _ = self.directory.remove(&self.name);
        }
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error {
    Error::io(path.display().to_string())
}

impl Cache {
    /// Opens the cache of a directory, which is made for its owner alone if it is missing.
    pub(super) fn open(directory: &Path, bytes_max: u64) -> Result<Self> {
        let above = directory.parent().unwrap_or(Path::new("."));
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(CWD, above, flags, Mode::empty());
        let parent = parent.map_err(|errno| failed(above)(errno.into()))?;
        let own = Directory::open(&parent, directory.into())?;
        let below = |name| Directory::open(&own.file, directory.join(name)).map(Arc::new);
        let (stored, local_files) = (below("stored")?, below("local")?);
        let lock = own.open_file("lock", OFlags::CREATE | OFlags::WRONLY);
        let lock = lock.map_err(failed(&directory.join("lock")))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::CacheInUse(directory.into()));
        }
        local_files.clean(|_, _| false).map_err(failed(&local_files.path))?;
        let mut found = Vec::new();
        let cleaned = stored.clean(|name, stat| {
            let object = ObjectId::parse(name);
            // Other files were to become objects.
            found.extend(object.map(|one| (stat.st_mtime, stat.st_mtime_nsec, one, stat.st_size)));
            object.is_some()
        });
        cleaned.map_err(failed(&stored.path))?;
        found.sort_unstable();
        let mut state = State::default();
        for (_, _, object, bytes) in found {
            state.insert(object, bytes as u64, false);
        }
        let cache = Cache {
            stored,
            local_files,
            bytes_max,
            state: Mutex::new(state),
            fetched: Condvar::new(),
            local: Arc::default(),
            next_local: AtomicU64::new(0),
            _lock: lock,
        };
        cache.evict();
        Ok(cache)
    }

    /// Returns whether as much waits to be sent as may.
    pub(super) fn is_full(&self) -> bool {
        let (bytes, files) = (&self.local.bytes, &self.local.files);
        bytes.load(Ordering::Relaxed) >= self.bytes_max / 2
            || files.load(Ordering::Relaxed) >= LOCAL_MAX
    }

    pub(crate) fn has(&self, object: ObjectId) -> bool {
        self.state.lock().entries.contains_key(&object)
    }

    /// Makes an empty chunk that can be written.
    pub(crate) fn new_local(&self) -> Result<Local> {
        let number = self.next_local.fetch_add(1, Ordering::Relaxed);
        let (directory, name) = (self.local_files.clone(), number.to_string());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let file = directory.open_file(&name, flags);
        let file = file.map_err(failed(&directory.path.join(&name)))?;
        self.local.files.fetch_add(1, Ordering::Relaxed);
        let zero = || AtomicU64::new(0);
        let (is_adopted, counts) = (AtomicBool::new(false), self.local.clone());
        let local = Local {
            file,
            directory,
            name,
            length: zero(),
            version: zero(),
            flushed: zero(),
            is_adopted,
            counts,
        };
        self.evict();
        Ok(local)
    }

    /// Makes an empty file without a name, for what is not cached.
    pub(crate) fn new_nameless(&self) -> Result<File> {
        let local = self.new_local()?;
        local.file.try_clone().map_err(failed(&self.local_files.path))
    }

    /// Takes a chunk that was sent as the cached one of its object.
    pub(crate) fn adopt(&self, local: &Local, object: ObjectId) {
        if local.is_adopted.swap(true, Ordering::Relaxed) {
            return;
        }
        if local.directory.rename(&local.name, &self.stored, &object.file_name()).is_ok() {
            self.state.lock().insert(object, local.length(), true);
            self.evict();
        }
    }

    /// Returns a chunk's bytes, which `fetch` gets if they are not here.
    pub(crate) fn get(
        &self,
        stored: &Stored,
        fetch: impl FnOnce() -> Result<Bytes>,
    ) -> Result<Cached> {
        let object = stored.object;
        loop {
            let mut state = self.state.lock();
            if let Some(is_proved) = state.touch(object) {
                drop(state);
                match self.open_proved(stored, is_proved) {
                    Some(file) => return Ok(Cached::File(file)),
                    None => self.forget(object),
                }
                continue;
            }
            if state.fetching.insert(object) {
                break;
            }
            self.fetched.wait(&mut state);
        }
        let fetched = fetch();
        let bytes = fetched.as_ref().ok();
        // A cache that cannot be written makes everything slower, and nothing wrong.
        let is_written = bytes.is_some_and(|bytes| self.write(object, bytes).is_ok());
        {
            let mut state = self.state.lock();
            state.fetching.remove(&object);
            if is_written {
                state.insert(object, u64::from(stored.object_bytes), true);
            }
        }
        self.fetched.notify_all();
        self.evict();
        fetched.map(Cached::Memory)
    }

    fn open_proved(&self, stored: &Stored, is_proved: bool) -> Option<File> {
        let file = self.stored.open_file(&stored.object.file_name(), OFlags::RDONLY).ok()?;
        if is_proved {
            return Some(file);
        }
        let mut bytes = vec![0; stored.object_bytes as usize];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let is_whole = file.metadata().ok()?.len() == bytes.len() as u64;
        if !is_whole || hash_of(&bytes) != stored.checksum {
            return None;
        }
        if let Some(entry) = self.state.lock().entries.get_mut(&stored.object) {
            entry.is_proved = true;
        }
        Some(file)
    }

    fn write(&self, object: ObjectId, bytes: &[u8]) -> io::Result<()> {
        let name = object.file_name();
        let part = format!("{name}.part");
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY;
        let file = self.stored.open_file(&part, flags);
        let written = file.and_then(|file| file.write_all_at(bytes, 0));
        written.and_then(|()| self.stored.rename(&part, &self.stored, &name)).inspect_err(|_| {
            let _ = self.stored.remove(&part);
        })
    }

    /// Forgets an object that was removed, or is not here after all.
    pub(crate) fn forget(&self, object: ObjectId) {
        self.state.lock().remove(object);
        let _ = self.stored.remove(&object.file_name());
    }

    fn evict(&self) {
        loop {
            let local = self.local.bytes.load(Ordering::Relaxed);
            let oldest = {
                let mut state = self.state.lock();
                if state.bytes.saturating_add(local) <= self.bytes_max {
                    return;
                }
                let oldest = state.uses.first_key_value().map(|(_, object)| *object);
                let Some(oldest) = oldest else { return };
                state.remove(oldest);
                oldest
            };
            let _ = self.stored.remove(&oldest.file_name());
        }
    }
}

impl State {
    fn insert(&mut self, object: ObjectId, bytes: u64, is_proved: bool) {
        self.remove(object);
        let used = self.next_use;
        self.next_use += 1;
        self.bytes += bytes;
        self.uses.insert(used, object);
        self.entries.insert(object, Entry { bytes, used, is_proved });
    }

    fn remove(&mut self, object: ObjectId) {
        if let Some(entry) = self.entries.remove(&object) {
            self.uses.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }

    /// Notes that an object is used, if it is here; returns whether it was proved.
    fn touch(&mut self, object: ObjectId) -> Option<bool> {
        let entry = self.entries.get_mut(&object)?;
        self.uses.remove(&entry.used);
        entry.used = self.next_use;
        self.uses.insert(entry.used, object);
        self.next_use += 1;
        Some(entry.is_proved)
    }
}

//! Objects as files below a directory of one machine, synced before they count.

use super::shared_directory::refuse_shared;
use super::{Append, Created, Listed, ReadAt, Storage};
use crate::error::{Error, Fenced, Result};
use bytes::Bytes;
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, fadvise, fallocate, linkat,
};
use rustix::io::{Errno, retry_on_intr};
use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A large file is written to the disk in parts of so many bytes while it grows: one sync of all of
/// it would have those of a log wait.
const WRITEBACK_BYTES: usize = 1 << 20;

/// File systems give space in blocks of at most so many bytes, as a rule.
const BLOCK_BYTES: u64 = 4096;

/// Room for a file that grows is made in parts of at least so many bytes.
const RESERVE_BYTES: u64 = 1 << 20;

/// Objects as files below a directory. A file has no name until it is whole and synced
/// (`O_TMPFILE`), so that a crash leaves nothing to clean up.
pub struct LocalStorage {
    root: PathBuf,
}

impl LocalStorage {
    /// Keeps objects below `root`, which is made if it is missing, for its owner alone: objects have
    /// what users may not see of each other.
    ///
    /// # Errors
    ///
    /// Fails with `Storage` if the directory cannot be made, and with `Invalid` if many machines share
    /// it.
    pub fn new(root: &Path) -> Result<Self> {
        refuse_shared(root)?;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(root);
        made.map_err(|error| Error::storage(root.display().to_string(), error))?;
        Ok(LocalStorage { root: root.into() })
    }

    /// Finds objects below `root`, and makes nothing: an error if that is not a directory.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if there is nothing, with `Storage` if it is not a directory, and with
    /// `Invalid` if many machines share it.
    pub fn existing(root: &Path) -> Result<Self> {
        let failed = |error| Error::storage(root.display().to_string(), error);
        let is_directory = fs::metadata(root).map_err(failed)?.is_dir();
        refuse_shared(root)?;
        match is_directory {
            true => Ok(LocalStorage { root: root.into() }),
            false => Err(failed(Errno::NOTDIR.into())),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Makes the directory of `path` and syncs every directory that has something new.
    fn make_parent(&self, path: &Path) -> io::Result<()> {
        let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) else { return Ok(()) };
        self.make_parent(parent)?;
        match fs::create_dir(parent) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => sync_parent(parent),
        }
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<Created> {
        self.make_parent(path)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(parent, flags, Mode::from_raw_mode(0o644))?);
        for (at, part) in bytes.chunks(WRITEBACK_BYTES).enumerate() {
            file.write_all(part)?;
            // The system begins to write this part now; it keeps what is not written yet.
            let (offset, length) =
                ((at * WRITEBACK_BYTES) as u64, NonZeroU64::new(part.len() as u64));
            fadvise(&file, offset, length, Advice::DontNeed)?;
        }
        file.sync_all()?;
        let _changing = lock_directory(parent, FlockOperation::LockShared)?;
        let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
        let created = match linkat(CWD, nameless, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Err(Errno::EXIST) => Created::ThereWasOne,
            linked => linked.map(|()| Created::Now)?,
        };
        // Also where there was one: whoever created it may not have synced the directory yet.
        sync_parent(path)?;
        Ok(created)
    }
}

/// Locks a directory against changes while it is listed (exclusively), or against listing while it
/// is changed (shared): reading a directory that changes would give files of several moments.
fn lock_directory(directory: &Path, how: FlockOperation) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(directory, flags, Mode::empty())?);
    rustix::fs::flock(&file, how)?;
    Ok(file)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

impl Storage for LocalStorage {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let failed = |error| Error::storage(name, error);
        let file = File::open(self.path(name)).map_err(failed)?;
        let size_bytes = file.metadata().map_err(failed)?.len();
        let mut bytes = Vec::new();
        read_range(&file, name, size_bytes, range, &mut bytes)?;
        Ok(bytes.into())
    }

    fn opens_files(&self) -> bool {
        true
    }

    fn open(&self, name: &str) -> Result<Option<Box<dyn ReadAt>>> {
        let failed = |error| Error::storage(name, error);
        let file = File::open(self.path(name)).map_err(failed)?;
        let size_bytes = file.metadata().map_err(failed)?.len();
        Ok(Some(Box::new(LocalFile { name: name.into(), file, size_bytes })))
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        Ok(fs::read(self.path(name)).map_err(|error| Error::storage(name, error))?.into())
    }

    fn size(&self, name: &str) -> Result<u64> {
        let metadata =
            fs::metadata(self.path(name)).map_err(|error| Error::storage(name, error))?;
        match metadata.is_file() {
            true => Ok(metadata.len()),
            false => Err(Error::corrupt(name, "is not a file")),
        }
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.write_new(&self.path(name), &bytes).map_err(|error| Error::storage(name, error))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        let directory = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut found = Vec::new();
        list_below(&self.path(directory), directory, &mut found)
            .map_err(|error| Error::storage(prefix, error))?;
        found.retain(|one| one.name.starts_with(prefix) && one.name.as_str() > after);
        found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn roots(&self) -> Result<Vec<String>> {
        let failed = |error| Error::storage(self.root.display().to_string(), error);
        let mut roots = Vec::new();
        for file in fs::read_dir(&self.root).map_err(failed)? {
            let file = file.map_err(failed)?;
            let is_directory = file.file_type().map_err(failed)?.is_dir();
            roots.extend(file.file_name().into_string().ok().filter(|_| is_directory));
        }
        roots.sort_unstable();
        Ok(roots)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        let parent = path.parent().unwrap_or(Path::new("/"));
        let removed = lock_directory(parent, FlockOperation::LockShared)
            .and_then(|_changing| fs::remove_file(&path));
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::storage(name, error))
            }
            _ => Ok(()),
        }
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        let path = self.path(name);
        let failed = |error| Error::storage(name, error);
        self.make_parent(&path).map_err(failed)?;
        // Before there is a file: it could not be made again.
        let parent = File::open(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        let file = File::create_new(&path).map_err(failed)?;
        if let Err(error) = parent.sync_all() {
            let _ = fs::remove_file(&path);
            return Err(failed(error));
        }
        Ok(Some(Box::new(LocalAppend { name: name.into(), file, length: 0, reserved: 0 })))
    }

    fn sync(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced.and_then(|()| sync_parent(&path)).map_err(|error| Error::storage(name, error))
    }

    fn trim(&self, name: &str) -> Result<()> {
        let trimmed = File::options().write(true).open(self.path(name)).and_then(|file| {
            let metadata = file.metadata()?;
            // Setting the length that a file has frees the blocks behind its end.
            let is_larger = metadata.blocks() * 512 > metadata.len().next_multiple_of(BLOCK_BYTES);
            if is_larger { file.set_len(metadata.len()) } else { Ok(()) }
        });
        trimmed.map_err(|error| Error::storage(name, error))
    }

    fn check_room(&self, bytes: u64) -> Result<()> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let made = rustix::fs::open(&self.root, flags, Mode::from_raw_mode(0o600))
            .and_then(|file| retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes)));
        match made {
            // File systems that cannot.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            Err(error) => Err(Error::storage(self.root.display().to_string(), error)),
        }
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        let path = self.path(name);
        let failed = |error: io::Error| Error::storage(name, error);
        self.make_parent(&path).map_err(failed)?;
        let file = match File::options().create(true).truncate(false).write(true).open(&path) {
            // A lock that is there can be taken on a file system that is read-only, too.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => File::open(&path),
            opened => opened,
        };
        let file = file.map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(Errno::WOULDBLOCK) => Err(Fenced::Locked(path).into()),
            Err(error) => Err(failed(error.into())),
        }
    }
}

/// Adds every file below `directory`, whose objects' names begin with `name`.
fn list_below(directory: &Path, name: &str, found: &mut Vec<Listed>) -> io::Result<()> {
    let _listing = match lock_directory(directory, FlockOperation::LockExclusive) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        locked => locked?,
    };
    let files = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        files => files?,
    };
    for file in files {
        let file = file?;
        let own = file.file_name();
        let Some(own) = own.to_str() else { continue };
        let name = if name.is_empty() { own.to_string() } else { format!("{name}/{own}") };
        match file.metadata() {
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            metadata => match metadata? {
                metadata if metadata.is_dir() => list_below(&file.path(), &name, found)?,
                metadata => found.push(Listed { name, size_bytes: metadata.len() }),
            },
        }
    }
    Ok(())
}

/// Reads a range of the file of object `name`, which has `size_bytes`, into `out`.
fn read_range(
    file: &File,
    name: &str,
    size_bytes: u64,
    range: Range<u64>,
    out: &mut Vec<u8>,
) -> Result<()> {
    if range.start > range.end || range.end > size_bytes {
        return Err(Error::corrupt(name, format!("has {size_bytes} bytes, not {}", range.end)));
    }
    out.resize((range.end - range.start) as usize, 0);
    file.read_exact_at(out, range.start).map_err(|error| Error::storage(name, error))
}

struct LocalFile {
    name: String,
    file: File,
    /// Objects that are opened do not grow.
    size_bytes: u64,
}

impl ReadAt for LocalFile {
    fn read_at(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        read_range(&self.file, &self.name, self.size_bytes, range, out)
    }

    fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }
}

struct LocalAppend {
    name: String,
    file: File,
    /// How many bytes it has, and how many it has room for.
    length: u64,
    reserved: u64,
}

impl Append for LocalAppend {
    fn reserve(&mut self, bytes: u64) -> Result<()> {
        let wanted = self.length.saturating_add(bytes);
        if wanted <= self.reserved {
            return Ok(());
        }
        let more = wanted - self.reserved;
        let make_room = |more| {
            let made = || fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.reserved, more);
            retry_on_intr(made).map(|()| more)
        };
        // A little more costs as much.
        match make_room(more.max(RESERVE_BYTES)).or_else(|_| make_room(more)) {
            Ok(made) => self.reserved += made,
            // File systems that cannot.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.reserved = u64::MAX,
            Err(error) => return Err(Error::storage(&*self.name, error)),
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| Error::storage(&*self.name, error))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::storage(&*self.name, error))
    }
}

impl Drop for LocalAppend {
    /// Gives back the room that it did not need.
    fn drop(&mut self) {
        if self.reserved > self.length && self.reserved < u64::MAX {
            let _ = self.file.set_len(self.length);
        }
    }
}

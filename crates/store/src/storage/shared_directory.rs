//! Objects as files below a directory that many machines share: Lustre, GPFS, CephFS, NFS 4.
//!
//! It works like a bucket. A file gets the name of its object by link(2), once it is whole and
//! synced, so one of several machines succeeds. There are no locks. A segment of a log gets its name with room
//! for changes, which its writer adds (`log/shared.rs`). Nothing is
//! asked of listings but that they contain what is there all the time (`commit::landmarks`).
//!
//! ```text
//! shared                        a line that names the kind of the directory and its version
//! objects/NAME                  the objects
//! temporary/PROCESS/NUMBER      files of a process that have no name yet
//! machines/ID                   a machine that may write here (`machines.rs`)
//! ```
//!
//! Clients of a file system remember names that are missing. So a name that is missing, and a listing,
//! only count after the directory was opened, which has such clients ask the server (on NFS,
//! "close-to-open"). On a file system of one machine, such as ext4, a missing name counts at once. A file system that promises less is refused by `canopy store probe`.

mod error;
mod growing;
mod machines;
mod publishing;
mod root;

pub use error::SharedDirectoryError;
pub use machines::{Machine, Notes};

use self::growing::GrowingFile;
use self::publishing::{Temporaries, Temporary};
use self::root::Root;
use super::{Append, Created, Growing, Listed, ReadAt, Reserve, Storage, StorageSpace, probe};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::names::segment_of;
use bytes::Bytes;
use canopy_model::ErrorKind;
use parking_lot::Mutex;
use rustix::fs::{
    Advice, AtFlags, FileType, Mode, OFlags, fadvise, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The file that makes a directory one that machines share, and its text.
const MARKER: &str = "shared";
const MARKER_TEXT: &[u8] = b"CANOPY SHARED DIRECTORY 1\n";

const OBJECTS: &str = "objects";

/// The reserve of a file system, for changes that free space and for flushes: a sixteenth of it, at
/// most 256 MiB.
const RESERVE_BYTES: u64 = 256 << 20;
const RESERVE_DIVISOR: u64 = 16;

/// Objects as files below a directory that many machines share.
pub struct SharedDirectory {
    root: Arc<Root>,
    temporaries: Temporaries,
    notes: Notes,
    /// Directories below the root whose names outlast a crash, as this process has seen to.
    synced: Mutex<HashSet<PathBuf>>,
    /// Set once it is known that this machine may write here.
    may_write: OnceLock<()>,
}

impl SharedDirectory {
    /// Opens a directory that was made by [`make`](Self::make). Reads need nothing else; the first
    /// change fails if this machine may not write here (see [`Notes`]).
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if there is no such directory, and with `Invalid` if it is not one that
    /// machines share.
    pub fn open(root: &Path) -> Result<Self> {
        let failed = |error| Error::storage(root.display().to_string(), error);
        let root = root.canonicalize().map_err(failed)?;
        match Self::root_of(&root)? {
            Some(root) => {
                let opened = Self::at(&root)?;
                // It may have been unmounted since.
                match opened.has_marker().map_err(failed)? {
                    true => Ok(opened),
                    false => Err(SharedDirectoryError::NotShared(root).into()),
                }
            }
            None => Err(SharedDirectoryError::NotShared(root).into()),
        }
    }

    /// Makes an empty directory one that machines share, if its file system is fit for that as far as
    /// one machine can find out. This machine may write there from then on.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if the file system is not fit or the directory is shared already, and as
    /// the file system does.
    pub fn make(root: &Path) -> Result<Self> {
        let failed = |error| Error::storage(root.display().to_string(), error);
        let root = root.canonicalize().map_err(failed)?;
        if Self::root_of(&root)?.is_some() {
            return Err(SharedDirectoryError::AlreadyShared(root).into());
        }
        let storage = Arc::new(Self::at(&root)?);
        storage.may_write.get_or_init(|| ());
        let unfit = |error: Error| match error {
            // Another time, or for another user, it may be fit.
            Error::Storage { source, .. } if ErrorKind::of_io(&source) == ErrorKind::Exhausted => {
                failed(source)
            }
            Error::Storage { source, .. } => {
                SharedDirectoryError::Refused { root: root.clone(), source }.into()
            }
            error => error,
        };
        publishing::check(&storage.temporaries).map_err(failed).map_err(unfit)?;
        probe(&Environment::system(storage.clone())).map_err(unfit)?;
        let marker = Path::new(MARKER);
        // Others may make it at the same time. A machine is noted only if it was the one that did.
        match storage.publish(marker, MARKER_TEXT).map_err(failed)? {
            Created::Now => {}
            Created::ThereWasOne => {
                return Err(SharedDirectoryError::AlreadyShared(root).into());
            }
        }
        storage.notes.add(&Machine::own(), None).inspect_err(|_| {
            let _ = storage.root.remove_file(marker);
        })?;
        drop(storage);
        Self::open(&root)
    }

    /// Returns the root of the shared directory that `directory`, a full path, is or has its objects
    /// in; nothing if it is another directory.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if another version of the program made it, and as the file system does.
    pub fn root_of(directory: &Path) -> Result<Option<PathBuf>> {
        let above = directory.file_name().filter(|name| *name == OBJECTS);
        let above = above.and_then(|_| directory.parent());
        for root in [Some(directory), above].into_iter().flatten() {
            let marker = root.join(MARKER);
            // Others may have put anything there, such as a pipe.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let file = File::options().read(true).custom_flags(flags).open(&marker);
            match file.and_then(marker_text) {
                Ok(text) if text == MARKER_TEXT => return Ok(Some(root.to_owned())),
                Ok(text) if text.starts_with(b"CANOPY SHARED") => {
                    return Err(SharedDirectoryError::Version(root.to_owned()).into());
                }
                // A file of that name that is not ours, or a directory.
                Ok(_) => {}
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::NOENT | Errno::NOTDIR | Errno::ISDIR) => {}
                    _ => return Err(Error::storage(marker.display().to_string(), error)),
                },
            }
        }
        Ok(None)
    }

    /// Returns the root of the shared directory of `owner` that `directory`, a full path, lies in at
    /// any depth; nothing if it lies in none. What others put above it does not count.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if another version of the program made it, and as the file system does.
    pub fn around(directory: &Path, owner: u32) -> Result<Option<PathBuf>> {
        let is_owned = |root: &&Path| {
            let about = root.join(MARKER).symlink_metadata();
            about.is_ok_and(|about| about.is_file() && about.uid() == owner)
        };
        for root in directory.ancestors().skip(1).filter(is_owned) {
            if let Some(root) = Self::root_of(root)? {
                return Ok(Some(root));
            }
        }
        Ok(None)
    }

    /// Opens a directory of the caller's to find out what its file system does with it, whoever may write
    /// there and whatever it contains. Nothing of it is kept.
    ///
    /// # Errors
    ///
    /// Fails as the file system does.
    pub fn to_try(root: &Path) -> Result<Self> {
        let tried = Self::at(root)?;
        tried.may_write.get_or_init(|| ());
        Ok(tried)
    }

    fn at(root: &Path) -> Result<Self> {
        let failed = |error| Error::storage(root.display().to_string(), error);
        let root = Arc::new(Root::open(root).map_err(failed)?);
        Ok(SharedDirectory {
            temporaries: Temporaries::below(&root),
            notes: Notes::below(&root),
            root,
            synced: Mutex::default(),
            may_write: OnceLock::new(),
        })
    }

    fn has_marker(&self) -> io::Result<bool> {
        match self.root.open_below(Path::new(MARKER)).and_then(marker_text) {
            Err(error) if is_absent(&error) => Ok(false),
            text => Ok(text? == MARKER_TEXT),
        }
    }

    /// Returns the directory's full path.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns the notes about the machines that may write here.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Returns an error if the file system is known to have too little space.
    fn check_space(&self, is_enough: impl Fn(&StorageSpace) -> bool) -> Result<()> {
        match self.space()? {
            Some(space) if !is_enough(&space) => {
                self.temporaries.free_space();
                Err(Error::storage(self.root().display().to_string(), Errno::NOSPC))
            }
            _ => Ok(()),
        }
    }

    fn check_writer(&self) -> Result<()> {
        if self.may_write.get().is_none() {
            self.notes.check(&Machine::own())?;
            let _ = self.may_write.set(());
        }
        Ok(())
    }

    /// Makes a file of this name below the root with these bytes, whole or not at all.
    fn publish(&self, path: &Path, bytes: &[u8]) -> io::Result<Created> {
        let temporary = self.temporaries.write(bytes)?;
        self.name(&temporary, path)
    }

    /// Gives a file that is whole and synced its name, unless there is a file of this name.
    fn name(&self, temporary: &Temporary, path: &Path) -> io::Result<Created> {
        let parent = path.parent().unwrap_or(Path::new(""));
        self.make_directory(parent)?;
        let created = match temporary.link(path) {
            // Somebody removed the directory by hand.
            Err(error) if is_absent(&error) => {
                self.synced.lock().clear();
                self.make_directory(parent)?;
                temporary.link(path)?
            }
            linked => linked?,
        };
        // Also where there was one: another machine may not have synced the directory yet.
        self.root.sync_directory(parent)?;
        Ok(created)
    }

    /// Makes a directory below the root, and those above it, and has their names outlast a crash.
    fn make_directory(&self, directory: &Path) -> io::Result<()> {
        if directory.as_os_str().is_empty() || self.synced.lock().contains(directory) {
            return Ok(());
        }
        let above = directory.parent().unwrap_or(Path::new(""));
        self.make_directory(above)?;
        self.root.make_directory(directory)?;
        self.root.sync_directory(above)?;
        self.synced.lock().insert(directory.to_owned());
        Ok(())
    }

    /// Has `look` find a name. If it is missing, opens the directory and looks again there, unless no
    /// other machine can have made it.
    fn look<T>(
        &self,
        path: &Path,
        look: impl Fn(BorrowedFd<'_>, &Path) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        match look(self.root.at(), path) {
            Err(Errno::NOENT | Errno::STALE) if !self.root.is_of_this_machine() => {
                let parent = path.parent().unwrap_or(Path::new(""));
                let parent = self.root.open_directory(parent)?;
                let name = path.file_name().map_or(path, Path::new);
                look(parent.as_fd(), name)
            }
            found => found,
        }
    }

    fn open_file(&self, name: &str) -> Result<SharedFile> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = self.look(&path(name), |at, path| openat(at, path, flags, Mode::empty()));
        let file = File::from(opened.map_err(|error| failed(name, error))?);
        let size_bytes = file.metadata().map_err(|error| failed(name, error))?.len();
        Ok(SharedFile { name: name.into(), file, size_bytes })
    }

    /// Adds every file below `directory`, whose objects' names begin with `name`.
    fn list_below(&self, directory: &Path, name: &str, found: &mut Vec<Listed>) -> io::Result<()> {
        let opened = match self.root.open_directory(directory) {
            Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR) => return Ok(()),
            opened => opened?,
        };
        for entry in rustix::fs::Dir::read_from(&opened)? {
            let entry = entry?;
            let Ok(own) = entry.file_name().to_str() else { continue };
            if own.starts_with('.') {
                continue;
            }
            let name = if name.is_empty() { own.to_owned() } else { format!("{name}/{own}") };
            match statat(&opened, own, AtFlags::SYMLINK_NOFOLLOW) {
                // Removed meanwhile.
                Err(Errno::NOENT | Errno::STALE) => {}
                about => match about? {
                    about if is_of(&about, FileType::Directory) => {
                        self.list_below(&directory.join(own), &name, found)?;
                    }
                    about if is_of(&about, FileType::RegularFile) => {
                        found.push(Listed { name, size_bytes: about.st_size as u64 });
                    }
                    _ => {}
                },
            }
        }
        Ok(())
    }
}

/// Returns the path of an object below the root.
fn path(name: &str) -> PathBuf {
    Path::new(OBJECTS).join(name)
}

/// Reads a marker, or the beginning of another file.
fn marker_text(file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MARKER_TEXT.len() as u64 + 1).read_to_end(&mut text)?;
    Ok(text)
}

fn is_of(about: &rustix::fs::Stat, file_type: FileType) -> bool {
    FileType::from_raw_mode(about.st_mode) == file_type
}

fn is_absent(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::STALE))
}

/// Returns the error of an object. A file that another machine removed is stale here.
fn failed(name: &str, error: impl Into<io::Error>) -> Error {
    let error = error.into();
    match is_absent(&error) {
        true => Error::NotFound(name.into()),
        false => Error::storage(name, error),
    }
}

impl Storage for SharedDirectory {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let mut bytes = Vec::new();
        self.open_file(name)?.read_at(range, &mut bytes)?;
        Ok(bytes.into())
    }

    fn opens_files(&self) -> bool {
        true
    }

    fn has_ordered_listings(&self) -> bool {
        false
    }

    fn open(&self, name: &str) -> Result<Option<Box<dyn ReadAt>>> {
        Ok(Some(Box::new(self.open_file(name)?)))
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        let file = self.open_file(name)?;
        if segment_of(name).is_some() {
            // It may have grown on another machine since this one read it.
            let _ = fadvise(&file.file, 0, None, Advice::DontNeed);
        }
        let mut bytes = Vec::new();
        file.read_at(0..file.size_bytes, &mut bytes)?;
        Ok(bytes.into())
    }

    fn size(&self, name: &str) -> Result<u64> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let about = self.look(&path(name), |at, path| statat(at, path, flags));
        let about = about.map_err(|error| failed(name, error))?;
        match is_of(&about, FileType::RegularFile) {
            true => Ok(about.st_size as u64),
            false => Err(Error::corrupt(name, "is not a file")),
        }
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.check_writer()?;
        let created = self.publish(&path(name), &bytes);
        // A directory that is missing is not an object that is.
        created.map_err(|source| Error::Storage { object: name.into(), source })
    }

    fn create_rivals(&self, name: &str, contents: &[Bytes]) -> Vec<Result<Created>> {
        let start = std::sync::Barrier::new(contents.len());
        std::thread::scope(|scope| {
            let rivals = contents.iter().map(|bytes| {
                scope.spawn(|| {
                    start.wait();
                    self.create(name, bytes.clone())
                })
            });
            let rivals = Vec::from_iter(rivals);
            let lost = |_| Err(Error::storage(name, io::Error::other("a thread panicked")));
            rivals.into_iter().map(|rival| rival.join().unwrap_or_else(lost)).collect()
        })
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        let directory = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut found = Vec::new();
        self.list_below(&path(directory), directory, &mut found)
            .map_err(|error| Error::storage(prefix, error))?;
        found.retain(|one| one.name.starts_with(prefix) && one.name.as_str() > after);
        found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn roots(&self) -> Result<Vec<String>> {
        let failed =
            |error: Errno| Error::storage(self.root().join(OBJECTS).display().to_string(), error);
        let opened = match self.root.open_directory(Path::new(OBJECTS)) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.map_err(failed)?,
        };
        let mut roots = Vec::new();
        for entry in rustix::fs::Dir::read_from(&opened).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let about = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW);
            if !name.starts_with('.') && about.is_ok_and(|one| is_of(&one, FileType::Directory)) {
                roots.push(name.to_owned());
            }
        }
        roots.sort_unstable();
        Ok(roots)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.check_writer()?;
        let removed = self.look(&path(name), |at, path| unlinkat(at, path, AtFlags::empty()));
        match removed {
            Err(Errno::NOENT | Errno::STALE) | Ok(()) => Ok(()),
            Err(error) => Err(failed(name, error)),
        }
    }

    fn append_to(&self, _name: &str) -> Result<Option<Box<dyn Append>>> {
        Ok(None)
    }

    fn has_growing(&self) -> bool {
        true
    }

    fn create_growing(&self, name: &str, head: &[u8], room: u64) -> Result<Growing> {
        self.check_writer()?;
        let create = || {
            let mut bytes = head.to_vec();
            bytes.resize(room as usize, 0);
            let temporary = self.temporaries.write(&bytes)?;
            let file = temporary.file()?;
            Ok(match self.name(&temporary, &path(name))? {
                Created::Now => {
                    Growing::New(Box::new(GrowingFile::new(name, file, head.len() as u64)))
                }
                Created::ThereWasOne => Growing::ThereWasOne,
            })
        };
        create().map_err(|source| Error::Storage { object: name.into(), source })
    }

    fn check_room(&self, bytes: u64) -> Result<()> {
        self.check_space(|space| space.free_bytes >= bytes)
    }

    fn space(&self) -> Result<Option<StorageSpace>> {
        let failed = |error: Errno| Error::storage(self.root().display().to_string(), error);
        let about = rustix::fs::fstatvfs(self.root.at()).map_err(failed)?;
        let bytes_of = |blocks: u64| blocks.saturating_mul(about.f_frsize);
        // Blocks that only root may use do not count.
        let of_root = about.f_bfree.saturating_sub(about.f_bavail);
        let total_bytes = bytes_of(about.f_blocks.saturating_sub(of_root));
        let free_bytes = bytes_of(about.f_bavail);
        let available_bytes = free_bytes.saturating_sub(reserve_of(total_bytes));
        // Some file systems do not know.
        let is_known = total_bytes != 0;
        Ok(is_known.then_some(StorageSpace { total_bytes, free_bytes, available_bytes }))
    }

    fn check_reserve(&self, _name: &str, bytes: u64, kept: Reserve) -> Result<()> {
        self.check_space(|space| {
            space.free_bytes >= bytes.saturating_add(kept.of(reserve_of(space.total_bytes)))
        })
    }

    fn lock(&self, _name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}

struct SharedFile {
    name: String,
    file: File,
    size_bytes: u64,
}

impl ReadAt for SharedFile {
    fn read_at(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        if range.start > range.end || range.end > self.size_bytes {
            let (has, wanted) = (self.size_bytes, range.end);
            return Err(Error::corrupt(&*self.name, format!("has {has} bytes, not {wanted}")));
        }
        out.resize((range.end - range.start) as usize, 0);
        self.file.read_exact_at(out, range.start).map_err(|error| failed(&self.name, error))
    }

    fn is_removed(&self) -> bool {
        match fstat(&self.file) {
            Ok(about) => about.st_nlink == 0,
            Err(error) => error == Errno::STALE,
        }
    }
}

/// Returns an error if a directory, which is to be storage of one machine, is one that machines
/// share.
pub(super) fn refuse_shared(directory: &Path) -> Result<()> {
    let full = match fs::canonicalize(directory) {
        // Whoever needs it says so.
        Err(_) => return Ok(()),
        Ok(full) => full,
    };
    match SharedDirectory::root_of(&full)? {
        Some(root) => Err(SharedDirectoryError::Shared(root).into()),
        None => Ok(()),
    }
}

/// Returns the bytes that are kept of a file system of this size.
fn reserve_of(total_bytes: u64) -> u64 {
    (total_bytes / RESERVE_DIVISOR).min(RESERVE_BYTES)
}

/// Returns the owner of a directory and when it last changed, by the server's clock.
fn owner_and_mtime(file: &File) -> io::Result<(u32, i64)> {
    let about = file.metadata()?;
    Ok((about.uid(), about.mtime()))
}

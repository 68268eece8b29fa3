//! Storage of objects: names with bytes that never change. This module states all that the engine
//! asks of storage; `docs/engine.md` builds on it.
//!
//! The engine needs create-if-absent and nothing else: no compare-and-swap, no clocks, no lock
//! service. Every state of a table is decided by a name that can be created only once.
//! `tests/protocol` explores a model of the rules that make removal safe; the first draft lost data
//! in ten ways.
//!
//! Local files and memory are implemented here and not with `object_store`, which does not sync its
//! files and has asynchronous calls. So a table on local storage needs no runtime.

mod local;
mod memory;
mod probe;
mod shared_directory;
mod split;

pub use local::LocalStorage;
pub use memory::MemoryStorage;
pub use probe::{probe, probe_once};
pub use shared_directory::{Machine, Notes, SharedDirectory, SharedDirectoryError};
pub use split::SplitStorage;

use crate::error::{Error, Result};
use bytes::Bytes;
use std::ops::Range;

/// Outcome of creating an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It was created, with these bytes.
    Now,
    /// There was an object of this name, which is as it was.
    ThereWasOne,
}

/// Outcome of creating an object that grows.
pub enum Growing {
    /// It was created. Its creator adds to it.
    New(Box<dyn Append>),
    /// There was an object of this name, which is as it was.
    ThereWasOne,
}

/// The space of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageSpace {
    /// All bytes.
    pub total_bytes: u64,
    /// Those that are free.
    pub free_bytes: u64,
    /// Those of them that are not kept in reserve.
    pub available_bytes: u64,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its whole name.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// Objects by name. Names are paths of ASCII letters, digits, `-`, `_` and `.`, parted by `/`. Any
/// call may block for long. Every later call of any process sees the effects of an earlier one.
pub trait Storage: Send + Sync {
    /// Returns the address of the server that stores the objects; nothing if they are files. A note in
    /// storage that it passed the probe counts there alone.
    fn server(&self) -> String {
        String::new()
    }

    /// Returns the bytes of a range, all of them.
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes>;

    /// Returns the bytes of ranges of objects, in their order; reads them at once where each takes
    /// long.
    fn read_ranges(&self, wanted: &[(&str, Range<u64>)]) -> Result<Vec<Bytes>> {
        wanted.iter().map(|(name, range)| self.read_range(name, range.clone())).collect()
    }

    /// Opens an object that will be read often, if that makes its reads cheaper here. If the object
    /// is removed later, reads of the open one succeed or report it as missing.
    fn open(&self, _name: &str) -> Result<Option<Box<dyn ReadAt>>> {
        Ok(None)
    }

    /// Returns whether objects that are opened are files of this machine, whose bytes the system
    /// caches.
    fn opens_files(&self) -> bool {
        false
    }

    /// Returns the bytes of a whole object.
    fn read(&self, name: &str) -> Result<Bytes>;

    /// Returns the size of an object in bytes.
    fn size(&self, name: &str) -> Result<u64> {
        let listed = self.list(name, "")?;
        let found = listed.into_iter().find(|one| one.name == name);
        found.map(|one| one.size_bytes).ok_or_else(|| Error::NotFound(name.into()))
    }

    /// Creates an object, whole or not at all, if there is none of this name; of several that try,
    /// one succeeds. It outlasts a crash once this returns. After an error it may be there, or even
    /// appear later.
    fn create(&self, name: &str, bytes: Bytes) -> Result<Created>;

    /// Tries to create one object with each of `contents` at once, for `probe` to find out what a
    /// server makes of that. Returns nothing where the operating system lets one succeed.
    fn create_rivals(&self, _name: &str, _contents: &[Bytes]) -> Vec<Result<Created>> {
        Vec::new()
    }

    /// Returns the objects whose names begin with `prefix` and come after `after`, by name, as they
    /// were at one moment; or, without [ordered listings](Self::has_ordered_listings), all that were
    /// there the whole time, and maybe others.
    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>>;

    /// Returns what the names of objects begin with, up to their first `/`, each once and in order;
    /// not as it was at one moment. Tables are found so.
    fn roots(&self) -> Result<Vec<String>> {
        let listed = self.list("", "")?;
        let roots = listed.iter().filter_map(|one| one.name.split_once('/'));
        let mut roots = Vec::from_iter(roots.map(|(root, _)| root.to_string()));
        roots.dedup();
        Ok(roots)
    }

    /// Returns whether a listing is of one moment, or looks at names in their order. Otherwise it may
    /// miss both an object that is removed meanwhile and a later one that is created meanwhile: then
    /// the engine asks for names instead.
    fn has_ordered_listings(&self) -> bool {
        true
    }

    /// Removes an object, if it is there. After an error it may yet be removed later.
    fn remove(&self, name: &str) -> Result<()>;

    /// Opens a new file that is appended to, if that is what this storage is good at; otherwise
    /// every group of a log becomes an object of its own.
    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>>;

    /// Returns whether [`create_growing`](Self::create_growing) creates objects.
    fn has_growing(&self) -> bool {
        false
    }

    /// Creates an object of `head`, followed by zeros up to `room` bytes, unless there is one of this
    /// name. Its creator puts more in place of the zeros, while other machines read it. Every later
    /// call of any process sees the bytes that were synced. Those that were not may appear at any
    /// later time, in parts, even when the creator is gone. After an error of this call, the object
    /// may be there, or even appear later.
    fn create_growing(&self, name: &str, _head: &[u8], _room: u64) -> Result<Growing> {
        let source = std::io::ErrorKind::Unsupported.into();
        Err(Error::Storage { object: name.into(), source })
    }

    /// Makes a file that was appended to by a process that is gone outlast a crash, as it is now.
    fn sync(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Gives back the room that a process that is gone made in a file and did not use. The caller
    /// holds the lock of the table.
    fn trim(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Returns an error if storage has no room for so many bytes more, where it can find out.
    fn check_room(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Returns how much space there is for contents, if storage knows that.
    fn space(&self) -> Result<Option<StorageSpace>> {
        Ok(None)
    }

    /// Returns an error if an object `name` of this length would leave less than a part of the reserve
    /// of storage.
    fn check_reserve(&self, _name: &str, _bytes: u64, _kept: Reserve) -> Result<()> {
        Ok(())
    }

    /// Takes the lock `name` for as long as the result lives, if it is one machine's storage. An
    /// error means that another process has it.
    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>>;
}

/// Parts of the reserve of storage: space that is kept for those without whom nothing is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// All of it is kept by changes that free nothing.
    Whole,
    /// Half of it is kept by merges.
    Half,
    /// A quarter of it is kept by logs of changes that free space, for flushes.
    Quarter,
    /// An eighth of it is kept by flushes, for writers that begin.
    Eighth,
}

impl Reserve {
    /// Returns so much of a reserve of `bytes`.
    pub fn of(self, bytes: u64) -> u64 {
        match self {
            Reserve::Whole => bytes,
            Reserve::Half => bytes / 2,
            Reserve::Quarter => bytes / 4,
            Reserve::Eighth => bytes / 8,
        }
    }
}

/// An open object.
pub trait ReadAt: Send + Sync {
    /// Puts the bytes of a range, all of them, into `out`, in place of what is there. After an error
    /// there may be anything.
    fn read_at(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()>;

    /// Returns whether the object is known to be removed.
    fn is_removed(&self) -> bool {
        false
    }
}

/// A file that is appended to.
pub trait Append: Send {
    /// Makes room for so many bytes more than it has, where storage can: what is appended there does
    /// not fail because storage is full. After an error the file has what it had.
    fn reserve(&mut self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Adds bytes. A crash may leave any part of what was not synced.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes what was added outlast a crash.
    fn sync(&mut self) -> Result<()>;
}

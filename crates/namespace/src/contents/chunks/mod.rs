//! Contents as objects of the storage that the records lie in. A file is chunks of one size, each
//! an object that never changes; a record says which object has which chunk (`Stored`), and is
//! written with the file's size in one batch, after the object. Holes have neither.
//!
//! An object is named by the epoch of its maker and a number, so no name is ever used twice:
//! `<table>/chunk/<epoch>-<number>`. `collect.rs` decides which objects are removed, and when.
//!
//! Reads and writes go through files of a local directory: `cache.rs`.
//!
//! So a crash leaves the old or the new contents, and a checkpoint of the table also keeps contents.
//! Stores that overwrite objects can be used. A small change sends a whole chunk.

mod cache;
mod collect;
mod file;
mod flush;
mod gate;

pub(crate) use collect::{Collecting, parse_note};
pub(crate) use file::Chunked;
pub(crate) use flush::note_garbage;

use crate::error::{Error, Result};
use crate::records::keys::{FileId, Space};
use bytes::Bytes;
use cache::Cache;
use canopy_store::storage::{Created, Reserve, StorageSpace};
use canopy_store::{Environment, Key, SstableCache, Table, hash_of};
pub use gate::{Entered, Gate};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Chunks have so many bytes at least, and at most: each is in memory as a whole when it is sent.
pub const CHUNK_BYTES: std::ops::RangeInclusive<u64> = 4096..=64 << 20;

/// Chunks that are sent or fetched at once.
const TRANSFERS: usize = 8;

/// Threads that fetch what is likely to be read next, and how much waits for them at most.
const AHEAD_THREADS: usize = 4;
const AHEAD_WAITING: usize = 16;

/// Identity of an object: its maker, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// The epoch of the table of the process that made it, or the session of the client of servers
    /// that did.
    pub epoch: u64,
    /// Counts the objects of the maker.
    pub number: u64,
}

impl ObjectId {
    /// Returns the last part of the object's name.
    fn file_name(self) -> String {
        format!("{:020}-{:020}", self.epoch, self.number)
    }

    fn parse(name: &str) -> Option<Self> {
        let (epoch, number) = name.rsplit('/').next()?.split_once('-')?;
        let id = ObjectId { epoch: epoch.parse().ok()?, number: number.parse().ok()? };
        (name.ends_with(&id.file_name())).then_some(id)
    }
}

/// The record of a chunk: epoch u64, number u64, object's bytes u32, bytes in use u32, xxh3 of the
/// object's bytes u64, in big endian. Unused bytes, to the end of the chunk, are zeros.
///
/// A chunk whose object a repair did not find has the epoch 0, which no process has: the bytes in use
/// are lost. Reading them fails, until they are written anew, all of them, or cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The object.
    pub object: ObjectId,
    /// Length of the object.
    pub object_bytes: u32,
    /// How many of its bytes are in use, from its beginning on.
    pub used: u32,
    /// The xxh3 of the object's bytes.
    pub checksum: u64,
}

impl Stored {
    /// Returns what the record of a chunk says that is lost.
    pub(crate) fn lost(used: u32) -> Self {
        let object = ObjectId { epoch: 0, number: 0 };
        Stored { object, object_bytes: used, used, checksum: 0 }
    }

    /// Returns a copy without the checksum.
    pub(crate) fn without_checksum(self) -> Self {
        Stored { checksum: 0, ..self }
    }

    /// Returns whether the object is lost, as a repair has found.
    pub fn is_lost(&self) -> bool {
        self.object.epoch == 0
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(32);
        value.extend_from_slice(&self.object.epoch.to_be_bytes());
        value.extend_from_slice(&self.object.number.to_be_bytes());
        value.extend_from_slice(&self.object_bytes.to_be_bytes());
        value.extend_from_slice(&self.used.to_be_bytes());
        value.extend_from_slice(&self.checksum.to_be_bytes());
        value
    }

    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let value: &[u8; 32] = value.try_into().ok()?;
        let long =
            |at: usize| value[at..at + 8].iter().fold(0, |sum, one| sum << 8 | u64::from(*one));
        let (object_bytes, used) = ((long(16) >> 32) as u32, long(16) as u32);
        let object = ObjectId { epoch: long(0), number: long(8) };
        let stored = Stored { object, object_bytes, used, checksum: long(24) };
        (used <= object_bytes).then_some(stored)
    }
}

/// A chunk of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkId {
    /// The file.
    pub file: FileId,
    /// Chunks of a file are numbered from 0 on.
    pub number: u64,
}

impl ChunkId {
    /// Returns a chunk of a file.
    pub fn new(file: FileId, number: u64) -> Self {
        ChunkId { file, number }
    }

    /// Returns the key of the record of the chunk.
    pub(crate) fn key(self) -> Key {
        Space::Chunks.of(self.file, &self.number.to_be_bytes())
    }
}

/// Reads which chunk a record is of.
pub(crate) fn parse_key(name: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(name.try_into().ok()?))
}

/// Returns how many blocks of 512 bytes the bytes of a chunk take.
pub(crate) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(512)
}

/// Objects, and what is cached of them.
pub(crate) struct Objects {
    pub(crate) environment: Environment,
    /// Prefix of the names of all objects.
    pub(crate) prefix: String,
    pub(crate) cache: Cache,
    transfers: Gate,
}

impl Objects {
    pub(crate) fn name(&self, object: ObjectId) -> String {
        format!("{}{}", self.prefix, object.file_name())
    }

    /// Returns all objects of chunks, by name, with their sizes.
    pub(crate) fn list(&self) -> Result<Vec<(ObjectId, u64)>> {
        let listed = self.environment.storage.list(&self.prefix, "")?;
        let parse = |name: &str| ObjectId::parse(name);
        let objects = listed.iter().filter_map(|one| Some((parse(&one.name)?, one.size_bytes)));
        Ok(objects.collect())
    }

    /// Returns an error unless a chunk's object is there and what the record says.
    pub(crate) fn prove(&self, chunk: ChunkId, stored: &Stored) -> Result<()> {
        self.fetch(chunk, stored).map(drop)
    }

    /// Reads a chunk's object, and proves that it is what the record says.
    pub(crate) fn fetch(&self, chunk: ChunkId, stored: &Stored) -> Result<Bytes> {
        let ChunkId { file, number } = chunk;
        if stored.is_lost() {
            let what = format!("file {file}, chunk {number}: lost, as a repair has found");
            return Err(Error::corrupt(what));
        }
        let _one = self.transfers.enter();
        let name = self.name(stored.object);
        let what =
            |what: &str| Error::corrupt(format!("file {file}, chunk {number}: {name}: {what}"));
        let bytes = match self.environment.storage.read(&name) {
            Err(error) if error.is_not_found() => return Err(what("the object is missing")),
            read => read?,
        };
        match bytes.len() == stored.object_bytes as usize && hash_of(&bytes) == stored.checksum {
            true => Ok(bytes),
            false => Err(what("the object is damaged")),
        }
    }
}

/// The chunks of a namespace's files.
pub(crate) struct ChunkStore {
    pub(crate) objects: Arc<Objects>,
    pub(crate) table: Arc<Table>,
    pub(crate) sstables: Arc<SstableCache>,
    /// Chunks have so many bytes.
    pub(crate) chunk_bytes: u64,
    next: AtomicU64,
    /// None once the threads are to end.
    ahead: Option<SyncSender<(ChunkId, Stored)>>,
    threads: Vec<JoinHandle<()>>,
    pub(crate) collecting: Mutex<Collecting>,
}

impl ChunkStore {
    /// Caches chunks below a directory, in up to `cache_bytes`.
    pub(crate) fn new(
        environment: &Environment,
        table: Arc<Table>,
        sstables: Arc<SstableCache>,
        directory: &Path,
        cache_bytes: u64,
        chunk_bytes: u64,
    ) -> Result<Self> {
        if !CHUNK_BYTES.contains(&chunk_bytes) {
            return Err(Error::corrupt(format!("the settings: chunks of {chunk_bytes} bytes")));
        }
        let cache = Cache::open(&directory.join(table.id().to_string()), cache_bytes)?;
        let objects = Arc::new(Objects {
            environment: environment.clone(),
            prefix: format!("{}/chunk/", table.id()),
            cache,
            transfers: Gate::new(TRANSFERS),
        });
        let (ahead, wanted) = sync_channel(AHEAD_WAITING);
        let wanted = Arc::new(Mutex::new(wanted));
        let threads = (0..AHEAD_THREADS).map(|_| {
            let (objects, wanted) = (objects.clone(), wanted.clone());
            std::thread::spawn(move || fetch_ahead(&objects, &wanted))
        });
        let (next, collecting) = (AtomicU64::new(0), Mutex::default());
        Ok(ChunkStore {
            threads: threads.collect(),
            objects,
            table,
            sstables,
            chunk_bytes,
            next,
            ahead: Some(ahead),
            collecting,
        })
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.objects.cache
    }

    /// Reads the record of a chunk; none if it is not what one can be here.
    pub(crate) fn decode(&self, value: &[u8]) -> Option<Stored> {
        Stored::decode(value).filter(|stored| u64::from(stored.used) <= self.chunk_bytes)
    }

    /// Returns what the records say of a chunk.
    pub(crate) fn recorded(&self, chunk: ChunkId) -> Result<Option<Stored>> {
        let value = self.table.get(chunk.key().as_ref())?;
        value.map(|value| decoded(chunk, &value)).transpose()
    }

    /// Returns the space of storage, if that knows it now.
    pub(crate) fn space(&self) -> Option<StorageSpace> {
        self.objects.environment.storage.space().ok().flatten()
    }

    /// Makes an object of bytes.
    pub(crate) fn upload(&self, bytes: Vec<u8>) -> Result<Stored> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let object = ObjectId { epoch: self.table.epoch(), number };
        let (length, checksum) = (bytes.len() as u32, hash_of(&bytes));
        let _one = self.objects.transfers.enter();
        let name = self.objects.name(object);
        let storage = &self.objects.environment.storage;
        storage.check_reserve(&name, length.into(), Reserve::Whole)?;
        let created = storage.create(&name, bytes.into());
        match created {
            Ok(Created::Now) => {}
            // An attempt that failed may have made it, or yet make it.
            Err(error) => {
                let mut collecting = self.collecting.lock();
                collecting.unused.push(object);
                collecting.is_uncertain = true;
                return Err(error.into());
            }
            Ok(Created::ThereWasOne) => {
                return Err(Error::corrupt(format!("{name}: another process made this object")));
            }
        }
        Ok(Stored { object, object_bytes: length, used: length, checksum })
    }

    /// Fetches a chunk soon, if there is time.
    fn prefetch(&self, chunk: ChunkId, stored: Stored) {
        if let Some(ahead) = &self.ahead
            && !self.cache().has(stored.object)
        {
            // Chunks beyond the limit are fetched when they are needed.
            let _ = ahead.try_send((chunk, stored));
        }
    }

    /// Returns whether so much waits to be sent that whoever writes more has to send some.
    pub(crate) fn is_full(&self) -> bool {
        self.cache().is_full()
    }
}

impl Drop for ChunkStore {
    /// Lets the cache go before anybody opens it again.
    fn drop(&mut self) {
        self.ahead = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

pub(crate) fn decoded(chunk: ChunkId, value: &[u8]) -> Result<Stored> {
    Stored::decode(value).ok_or_else(|| {
        let ChunkId { file, number } = chunk;
        Error::corrupt(format!("file {file}: the record of chunk {number}"))
    })
}

fn fetch_ahead(objects: &Objects, wanted: &Mutex<Receiver<(ChunkId, Stored)>>) {
    loop {
        let next = wanted.lock().recv();
        let Ok((chunk, stored)) = next else { return };
        // A later reader gets the error.
        let _ = objects.cache.get(&stored, || objects.fetch(chunk, &stored));
    }
}

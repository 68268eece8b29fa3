//! What all processes store: objects, and on the storage of one machine files that grow and locks.
//! It does what `storage` asks, at once and without failing; `world.rs` makes it fail.

use bytes::Bytes;
use canopy_store::storage::{Append, Created, Growing, Listed, Storage};
use canopy_store::{Error, Fenced, Result};
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// A power cut keeps or zeroes so many bytes at once. The head of a segment and of its first group
/// are less.
const BLOCK: usize = 64;

/// Kind of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// A directory of one machine, with files that grow.
    OneMachine,
    Bucket,
    /// A directory of many machines, whose listings are not of one moment.
    SharedDirectory,
}

/// The storage as one process has it.
#[derive(Clone)]
pub struct Disk {
    shared: Arc<Mutex<Shared>>,
    kind: DiskKind,
    process: u64,
}

#[derive(Default)]
struct Shared {
    objects: BTreeMap<String, Object>,
    next_file: u64,
    /// Which process has which lock.
    locks: BTreeMap<String, u64>,
}

struct Object {
    bytes: Bytes,
    /// So many of them outlast a power cut.
    synced: usize,
    /// Tells files apart that had one name.
    file: u64,
}

impl Disk {
    pub fn new(kind: DiskKind) -> Self {
        Disk { shared: Arc::default(), kind, process: 0 }
    }

    pub fn grows(&self) -> bool {
        self.kind == DiskKind::OneMachine
    }

    /// Puts bytes in place of what an object has there, unless it was removed.
    pub fn put(&self, name: &str, file: u64, at: usize, bytes: &[u8]) {
        if let Some(object) = self.shared().file(name, file) {
            let mut whole = object.bytes.to_vec();
            whole[at..at + bytes.len()].copy_from_slice(bytes);
            object.bytes = whole.into();
        }
    }

    /// Returns which file has this name.
    pub fn file_of(&self, name: &str) -> Option<u64> {
        self.shared().objects.get(name).map(|object| object.file)
    }

    /// Returns the same storage for another process.
    pub fn for_process(&self, process: u64) -> Self {
        Disk { process, ..self.clone() }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
    }

    /// The process dies: the kernel lets its locks go. What it appended stays.
    pub fn end_process(&self) {
        self.shared().locks.retain(|_, holder| *holder != self.process);
    }

    /// The machine loses its power: of what was not synced, some blocks are there, some are zeros,
    /// and the end is missing.
    pub fn cut_power(&self, random: &mut StdRng) {
        let mut shared = self.shared();
        shared.locks.clear();
        for object in shared.objects.values_mut().filter(|of| of.synced < of.bytes.len()) {
            let kept = match random.random_range(0..3) {
                0 => object.synced,
                1 => random.random_range(object.synced..=object.bytes.len()),
                _ => object.bytes.len(),
            };
            let mut bytes = object.bytes[..kept].to_vec();
            let zeroed = [0, 20, 60][random.random_range(0..3)];
            for start in (0..kept).step_by(BLOCK) {
                if random.random_range(0..100) < zeroed {
                    let range = start.max(object.synced)..(start + BLOCK).min(kept);
                    bytes.get_mut(range).into_iter().for_each(|block| block.fill(0));
                }
            }
            (object.bytes, object.synced) = (bytes.into(), kept);
        }
    }
}

impl Shared {
    fn insert(&mut self, name: &str, bytes: Bytes) -> Option<u64> {
        if self.objects.contains_key(name) {
            return None;
        }
        self.next_file += 1;
        let object = Object { synced: bytes.len(), bytes, file: self.next_file };
        self.objects.insert(name.into(), object);
        Some(self.next_file)
    }

    /// Returns a file unless it was removed.
    fn file(&mut self, name: &str, file: u64) -> Option<&mut Object> {
        self.objects.get_mut(name).filter(|object| object.file == file)
    }
}

impl Storage for Disk {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.read(name)?;
        let range = range.start as usize..range.end as usize;
        match range.start <= range.end && range.end <= bytes.len() {
            true => Ok(bytes.slice(range)),
            false => Err(Error::corrupt(name, "shorter than it must be")),
        }
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        let shared = self.shared();
        let object = shared.objects.get(name).ok_or_else(|| Error::NotFound(name.into()))?;
        Ok(object.bytes.clone())
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        let file = self.shared().insert(name, bytes);
        Ok(if file.is_some() { Created::Now } else { Created::ThereWasOne })
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        let shared = self.shared();
        let from = shared.objects.range(prefix.max(after).to_string()..);
        let below = from.take_while(|(name, _)| name.starts_with(prefix));
        let after = below.filter(|(name, _)| name.as_str() > after);
        Ok(after
            .map(|(name, object)| Listed {
                name: name.clone(),
                size_bytes: object.bytes.len() as u64,
            })
            .collect())
    }

    fn has_ordered_listings(&self) -> bool {
        self.kind != DiskKind::SharedDirectory
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.shared().objects.remove(name);
        Ok(())
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        if !self.grows() {
            return Ok(None);
        }
        let file = self.shared().insert(name, Bytes::new());
        let file = file.ok_or_else(|| Error::storage(name, io::ErrorKind::AlreadyExists))?;
        Ok(Some(Box::new(Grown { disk: self.clone(), name: name.into(), file })))
    }

    fn has_growing(&self) -> bool {
        self.kind == DiskKind::SharedDirectory
    }

    fn create_growing(&self, name: &str, head: &[u8], room: u64) -> Result<Growing> {
        let mut bytes = head.to_vec();
        bytes.resize(room as usize, 0);
        Ok(match self.shared().insert(name, bytes.into()) {
            Some(file) => {
                let (disk, name, at) = (self.clone(), name.to_owned(), head.len());
                Growing::New(Box::new(Roomy { disk, name, file, at, unsynced: Vec::new() }))
            }
            None => Growing::ThereWasOne,
        })
    }

    fn sync(&self, name: &str) -> Result<()> {
        let mut shared = self.shared();
        let object = shared.objects.get_mut(name).ok_or_else(|| Error::NotFound(name.into()))?;
        object.synced = object.bytes.len();
        Ok(())
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        if !self.grows() {
            return Ok(None);
        }
        let mut shared = self.shared();
        if shared.locks.contains_key(name) {
            return Err(Fenced::Locked(name.into()).into());
        }
        shared.locks.insert(name.into(), self.process);
        Ok(Some(Box::new(Lock { disk: self.clone(), name: name.into() })))
    }
}

/// An object that grows while others read it.
pub struct Roomy {
    disk: Disk,
    name: String,
    file: u64,
    at: usize,
    /// Bytes that only the writer's machine has.
    unsynced: Vec<u8>,
}

impl Append for Roomy {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.unsynced.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.disk.put(&self.name, self.file, self.at, &self.unsynced);
        self.at += self.unsynced.len();
        self.unsynced.clear();
        Ok(())
    }
}

struct Grown {
    disk: Disk,
    name: String,
    file: u64,
}

impl Append for Grown {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(object) = self.disk.shared().file(&self.name, self.file) {
            object.bytes = [&object.bytes, bytes].concat().into();
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if let Some(object) = self.disk.shared().file(&self.name, self.file) {
            object.synced = object.bytes.len();
        }
        Ok(())
    }
}

struct Lock {
    disk: Disk,
    name: String,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut shared = self.disk.shared();
        if shared.locks.get(&self.name) == Some(&self.disk.process) {
            shared.locks.remove(&self.name);
        }
    }
}

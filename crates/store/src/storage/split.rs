//! SSTables and chunks of contents in one storage, everything else in another.

use super::{Append, Created, Growing, Listed, ReadAt, Reserve, Storage, StorageSpace};
use crate::error::Result;
use crate::names::is_used_once;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// SSTables, and chunks of contents, in one storage; manifests, logs and locks in another. For stores
/// that overwrite objects (Garage does): names of the former are never used twice, so they are safe
/// there, while what must be created once, a few kilobytes, lies in a directory that all processes
/// see.
pub struct SplitStorage {
    rest: Arc<dyn Storage>,
    sstables: Arc<dyn Storage>,
}

impl SplitStorage {
    /// Keeps SSTables in `sstables`, everything else in `rest`.
    pub fn new(rest: Arc<dyn Storage>, sstables: Arc<dyn Storage>) -> Self {
        SplitStorage { rest, sstables }
    }

    fn of(&self, name: &str) -> &dyn Storage {
        if is_used_once(name) { &*self.sstables } else { &*self.rest }
    }
}

impl Storage for SplitStorage {
    fn server(&self) -> String {
        format!("{}{}", self.rest.server(), self.sstables.server())
    }

    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.of(name).read_range(name, range)
    }

    fn read_ranges(&self, wanted: &[(&str, Range<u64>)]) -> Result<Vec<Bytes>> {
        match wanted.iter().all(|(name, _)| is_used_once(name)) {
            true => self.sstables.read_ranges(wanted),
            false => {
                wanted.iter().map(|(name, range)| self.read_range(name, range.clone())).collect()
            }
        }
    }

    fn opens_files(&self) -> bool {
        self.sstables.opens_files()
    }

    fn open(&self, name: &str) -> Result<Option<Box<dyn ReadAt>>> {
        self.of(name).open(name)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.of(name).read(name)
    }

    fn size(&self, name: &str) -> Result<u64> {
        self.of(name).size(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.of(name).create(name, bytes)
    }

    fn create_rivals(&self, name: &str, contents: &[Bytes]) -> Vec<Result<Created>> {
        self.of(name).create_rivals(name, contents)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        if is_used_once(prefix) {
            return self.sstables.list(prefix, after);
        }
        let mut listed = self.rest.list(prefix, after)?;
        // A prefix of one kind of object has its last part; what is above has all kinds.
        if prefix.split('/').count() <= 2 {
            listed.extend(self.sstables.list(prefix, after)?);
            listed.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        }
        Ok(listed)
    }

    fn roots(&self) -> Result<Vec<String>> {
        let mut roots = [self.rest.roots()?, self.sstables.roots()?].concat();
        roots.sort();
        roots.dedup();
        Ok(roots)
    }

    fn has_ordered_listings(&self) -> bool {
        self.rest.has_ordered_listings() && self.sstables.has_ordered_listings()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.of(name).remove(name)
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        self.of(name).append_to(name)
    }

    fn has_growing(&self) -> bool {
        self.rest.has_growing()
    }

    fn create_growing(&self, name: &str, head: &[u8], room: u64) -> Result<Growing> {
        self.of(name).create_growing(name, head, room)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.of(name).sync(name)
    }

    fn trim(&self, name: &str) -> Result<()> {
        self.of(name).trim(name)
    }

    fn check_room(&self, bytes: u64) -> Result<()> {
        self.rest.check_room(bytes)
    }

    fn space(&self) -> Result<Option<StorageSpace>> {
        self.sstables.space()
    }

    fn check_reserve(&self, name: &str, bytes: u64, kept: Reserve) -> Result<()> {
        self.of(name).check_reserve(name, bytes, kept)
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.of(name).lock(name)
    }
}

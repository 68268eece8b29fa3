//! Indexes that come later: they are built while the namespace is in use.
//!
//! From the moment that an index is wanted, every change is written to it. Whoever builds it goes
//! through all records meanwhile and adds what they say, a few at a time, so that nobody waits for
//! long. Searches believe it when that has come to the end.

use crate::error::Result;
use crate::records::inode::{Inode, flag};
use crate::records::keys::FileId;
use crate::records::keys::{self, Space};
use crate::records::range::TabletRange;
use crate::records::tablet::Tablet;
use canopy_store::{Batch, Direction, Durability, Key, KeyRange};
use std::sync::Arc;

/// Records that are looked at while others wait.
const STEP: usize = 256;

impl Tablet {
    /// Has indexes of these attributes from now on, by their names in queries, and of no others. New
    /// ones serve once [`build_indexes`](Self::build_indexes) is through.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if there is no such attribute, and as the table does.
    pub fn set_indexes(&self, names: &[impl AsRef<str>]) -> Result<()> {
        let _writer = self.writer.lock();
        let before = self.configured();
        let mut settings = before.settings.clone().with_indexes(names)?;
        let had = before.settings.index_names();
        let added = settings.index_names().into_iter().filter(|name| !had.contains(name));
        let added = Vec::from_iter(added.map(str::to_owned));
        settings.building.extend(added);
        let kept = Vec::from_iter(settings.index_names().into_iter().map(str::to_owned));
        settings.building.retain(|name| kept.contains(name));
        let mut batch = Batch::new();
        batch.put(keys::settings().as_ref(), &settings.encode()?)?;
        let after = Arc::new(settings.configured()?);
        let numbers = after.indexes.numbers();
        for gone in before.indexes.numbers() {
            if !numbers.contains(&gone) {
                batch.delete_range(&keys::index(gone))?;
            }
        }
        self.table.write(&batch, Durability::Visible)?;
        *self.configured.write() = after;
        Ok(self.table.sync_visible()?)
    }

    /// Builds the indexes that are not complete, until all are or `goes_on` says no. Returns whether
    /// all are complete.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn build_indexes(&self, goes_on: impl Fn() -> bool) -> Result<bool> {
        let wanted = self.configured();
        if wanted.settings.building.is_empty() {
            return Ok(true);
        }
        let names = KeyRange { start: Key { directory: 1, ..Key::default() }, ..keys::all_names() };
        // Names of files may lie in other tables than all else that is theirs.
        let apart: &[Space] = match self.range {
            TabletRange::All => &[],
            TabletRange::Part(_) => &[Space::Links, Space::Directories],
        };
        let apart = apart.iter().chain(&[Space::Xattrs]).map(|space| space.range());
        for range in [names].into_iter().chain(apart) {
            let mut next = Some(range.start.clone());
            while let Some(start) = next {
                if !goes_on() {
                    return Ok(false);
                }
                let rest = KeyRange { start, end: range.end.clone() };
                next = self.build_step(&rest)?;
            }
        }
        let _writer = self.writer.lock();
        // A change of the settings may have removed an index and added it again.
        if !Arc::ptr_eq(&wanted, &self.configured()) {
            return Ok(false);
        }
        let mut settings = wanted.settings.clone();
        settings.building.clear();
        let mut batch = Batch::new();
        batch.put(keys::settings().as_ref(), &settings.encode()?)?;
        let after = settings.configured()?;
        self.table.write(&batch, Durability::Visible)?;
        *self.configured.write() = Arc::new(after);
        self.table.sync_visible()?;
        Ok(true)
    }

    /// Adds what the first records of a range say; returns where to go on.
    fn build_step(&self, range: &KeyRange) -> Result<Option<Key>> {
        let _writer = self.writer.lock();
        let configured = self.configured();
        let mut scan = self.table.scan(range, Direction::Forward)?;
        let mut batch = Batch::new();
        let mut last = None;
        for _ in 0..STEP {
            let Some(record) = scan.next()? else { break };
            let key = record.key;
            if key.directory == Space::Xattrs as u64 {
                let entry =
                    configured.building.xattr_entry(key.name, record.value, FileId(key.hash));
                entry.map_or(Ok(()), |entry| batch.put(entry.as_ref(), b""))?;
            } else if !keys::is_name(key) {
                let inode = Inode::decode(record.value)?;
                for (_, name) in self.names(inode.id)? {
                    self.build_name(&mut batch, &name, inode.clone())?;
                }
            } else {
                self.build_name(&mut batch, key.name, Inode::decode(record.value)?)?;
            }
            last = Some(key.to_key());
        }
        if !batch.is_empty() {
            self.table.write(&batch, Durability::Visible)?;
        }
        Ok(last.map(Key::successor))
    }

    fn build_name(&self, batch: &mut Batch, name: &[u8], mut inode: Inode) -> Result<()> {
        if inode.has(flag::LINKED) {
            let linked = self.record(&Space::Links.of(inode.id, b""))?;
            let Some(linked) = linked else { return Ok(()) };
            inode = linked;
        }
        // A directory in several parts is found where its first partition is.
        if inode.has(flag::ACCESS_HALF | flag::FURTHER) {
            return Ok(());
        }
        for entry in self.configured().building.entries(&inode, name) {
            batch.put(entry.as_ref(), b"")?;
        }
        Ok(())
    }
}

//! Repairs in the records of one tablet among several, whose faults a check of all of them has found
//! (`facts`). Each repair looks at the records again, with the lock of writers, and does nothing
//! where it is not needed any more.

use crate::contents::chunks::{ChunkId, ObjectId, Stored, parse_note};
use crate::error::Result;
use crate::quota::Transaction;
use crate::records::change::is_indexed;
use crate::records::indexing::is_of_names;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, EntryName, FileId, ROOT, Space};
use crate::records::tablet::Tablet;
use canopy_store::{Batch, Direction, Durability, Key, KeyRange};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Records that are written in one batch.
const STEP: usize = 1024;

/// A repair of one fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mend {
    /// The index of names gets an entry of a file, or loses one.
    Found {
        /// The file.
        id: FileId,
        /// The directory.
        directory: FileId,
        /// The name.
        name: Vec<u8>,
        /// Whether it gets it.
        is_there: bool,
    },
    /// A file has this number of links.
    Links(FileId, u32),
    /// The content half counts the directories among the names that the tablet holds.
    Subdirectories(FileId),
    /// A name that leads to no file goes.
    DropName {
        /// The file, which does not exist.
        id: FileId,
        /// The directory.
        directory: FileId,
        /// The name.
        name: Vec<u8>,
    },
    /// Notes go that say that needed objects of a file may go.
    Notes(FileId),
    /// The object of a chunk is lost: reading it fails from now on.
    LostChunk(ChunkId, ObjectId),
    /// All indexes are made anew.
    Indexes,
    /// Usage is counted again.
    Usage,
    /// Copies go of names in a directory that the tablet does not hold, with these hashes.
    Copies(FileId, Vec<u64>),
}

impl Tablet {
    /// Makes a repair, for good. Returns whether it was needed.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn mend(&self, mend: &Mend) -> Result<bool> {
        if matches!(mend, Mend::Indexes) {
            return self.remake_indexes().map(|()| true);
        }
        let _writer = self.writer.lock();
        if matches!(mend, Mend::Usage) {
            return self.count_again().map(|()| true);
        }
        let mut batch = Transaction::new();
        match mend {
            Mend::Found { id, directory, name, is_there } => {
                let key = EntryName::new(*directory, name).found_key(*id);
                match is_there {
                    true => batch.put(key.as_ref(), b"")?,
                    false => batch.delete(key.as_ref())?,
                }
            }
            Mend::Links(id, links) => self.set_links(&mut batch, *id, *links)?,
            Mend::Subdirectories(id) => self.recount(&mut batch, *id)?,
            Mend::DropName { id, directory, name } => {
                let name = EntryName::new(*directory, name);
                let found = self.record(&name.key())?.filter(|found| found.id == *id);
                if let Some(found) = found.filter(Inode::is_pointer) {
                    self.forget_entry(&mut batch, name, &found)?;
                    batch.delete(name.found_key(*id).as_ref())?;
                }
            }
            Mend::Notes(id) => self.drop_notes(&mut batch, *id)?,
            Mend::LostChunk(chunk, object) => {
                let value = self.table.get(chunk.key().as_ref())?;
                let stored = value.and_then(|value| Stored::decode(&value));
                if let Some(stored) = stored.filter(|stored| stored.object == *object) {
                    batch.put(chunk.key().as_ref(), &Stored::lost(stored.used).encode())?;
                }
            }
            Mend::Copies(directory, hashes) => self.drop_copies(&mut batch, *directory, hashes)?,
            Mend::Indexes | Mend::Usage => {}
        }
        if batch.is_empty() {
            return Ok(false);
        }
        self.table.write(&batch, Durability::Visible)?;
        if let Mend::Links(id, _) | Mend::Subdirectories(id) | Mend::DropName { id, .. } = mend {
            self.forget_pending(*id);
        }
        self.table.sync_visible()?;
        Ok(true)
    }

    fn set_links(&self, batch: &mut Transaction, id: FileId, links: u32) -> Result<()> {
        let (place, before) = self.locate(id)?;
        if before.nlink == links {
            return Ok(());
        }
        let mut inode = before.clone();
        self.overlay(&mut inode);
        inode.nlink = links;
        self.write_inode_uncounted(batch, &place, Some(&before), &inode)
    }

    fn recount(&self, batch: &mut Transaction, id: FileId) -> Result<()> {
        let place = match id {
            ROOT => keys::root(),
            _ => Space::Directories.of(id, b""),
        };
        let Some(before) = self.record(&place)? else { return Ok(()) };
        let mut inode = before.clone();
        self.overlay(&mut inode);
        inode.nlink = 2;
        for range in self.range.names_in(id) {
            let mut scan = self.table.scan(&range, Direction::Forward)?;
            while let Some(record) = scan.next()? {
                inode.nlink += u32::from(Inode::decode(record.value)?.is_directory());
            }
        }
        match inode.nlink == before.nlink {
            true => Ok(()),
            false => self.write_inode_uncounted(batch, &place, Some(&before), &inode),
        }
    }

    fn drop_notes(&self, batch: &mut Transaction, id: FileId) -> Result<()> {
        let mut scan = self.table.scan(&Space::Garbage.range_of(id), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let Some((chunk, object)) = parse_note(record.key.name) else { continue };
            let named = self.table.get(ChunkId::new(id, chunk).key().as_ref())?;
            let named = named.and_then(|value| Stored::decode(&value));
            if named.is_some_and(|stored| stored.object == object) {
                batch.delete(record.key)?;
            }
        }
        Ok(())
    }

    fn drop_copies(
        &self,
        batch: &mut Transaction,
        directory: FileId,
        hashes: &[u64],
    ) -> Result<()> {
        for hash in hashes {
            if self.range.has_name(directory, *hash) {
                continue;
            }
            for entry in self.entries_to_move(directory, &(*hash..=*hash), None, STEP)? {
                let name = EntryName::new(directory, &entry.name);
                let recorded = self.record(&name.key())?.unwrap_or_default();
                match self.is_held_otherwise(recorded.id, name)? {
                    true => batch.delete(name.key().as_ref())?,
                    false => self.forget_entry(batch, name, &recorded)?,
                }
            }
        }
        Ok(())
    }

    /// Returns whether the tablet has a file by another name than this one.
    fn is_held_otherwise(&self, id: FileId, but: EntryName<'_>) -> Result<bool> {
        for (directory, name) in self.names(id)? {
            let name = EntryName::new(directory, &name);
            if name != but && self.range.has_name(directory, name.hash()) {
                let found = self.record(&name.key())?;
                if found.is_some_and(|found| found.id == id) {
                    return Ok(true);
                }
            }
        }
        Ok(self.record(&Space::Links.of(id, b""))?.is_some())
    }

    /// Makes all indexes anew. No record changes meanwhile; whoever searches may miss files until this
    /// returns.
    fn remake_indexes(&self) -> Result<()> {
        let _writer = self.writer.lock();
        let configured = self.configured();
        let mut batch = Batch::new();
        for number in configured.indexes.numbers() {
            batch.delete_range(&keys::index(number))?;
        }
        self.table.write(&batch, Durability::Visible)?;
        batch.clear();
        let mut scan = self.table.scan(&KeyRange::all(), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let key = record.key.to_key();
            for entry in self.entries_beside(&key, record.value)? {
                batch.put(entry.as_ref(), b"")?;
            }
            if batch.size_bytes() > 64 * STEP {
                self.table.write(&batch, Durability::Visible)?;
                batch.clear();
            }
        }
        Ok(self.table.write(&batch, Durability::Durable)?)
    }

    /// Returns the index entries that follow from a record.
    fn entries_beside(&self, key: &Key, value: &[u8]) -> Result<Vec<Key>> {
        let configured = self.configured();
        let indexes = &configured.indexes;
        let space = |space: Space| key.directory == space as u64;
        if space(Space::Xattrs) {
            return Ok(Vec::from_iter(indexes.xattr_entry(&key.name, value, FileId(key.hash))));
        }
        let is_name = keys::is_name(key.as_ref());
        if !is_name && !space(Space::Links) && !space(Space::Directories) {
            return Ok(Vec::new());
        }
        // A record that is damaged has none: `check` reports it.
        let Ok(inode) = Inode::decode(value) else { return Ok(Vec::new()) };
        if inode.has(flag::LINKED | flag::ACCESS_HALF | flag::FURTHER) || !is_indexed(key) {
            return Ok(Vec::new());
        }
        let mut entries = HashSet::new();
        let mut names = if is_name { vec![key.name.clone()] } else { Vec::new() };
        if !is_name {
            self.each_name(inode.id, |_, name| {
                names.push(name.to_vec());
                true
            })?;
        }
        for attribute in &indexes.attributes {
            let entry =
                |name: &[u8]| Some(attribute.entry(&attribute.value(&inode, name)?, inode.id));
            match is_of_names(*attribute) {
                true => entries.extend(names.iter().filter_map(|name| entry(name))),
                false => entries.extend(entry(b"")),
            }
        }
        Ok(entries.into_iter().collect())
    }
}

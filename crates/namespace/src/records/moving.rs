//! Entries that move from one tablet to another with their names, and directories in two halves.
//!
//! A partition of a directory is one range of hashes. The giver sends its entries, with everything
//! that belongs to their files. The receiver records them while the names are in no range that it
//! holds, so nobody sees them; likewise those that remain with the giver. Records of partitions
//! ([`PartitionRecord`]) are in the same batch as the entries that they concern, and their contents
//! are the caller's: `cluster` decides when a range is held.
//!
//! The caller lets no change of these names and files run meanwhile.

use crate::error::{Error, Result};
use crate::quota::Transaction;
use crate::records::change::New;
use crate::records::inode::{Inode, file_type, flag};
use crate::records::keys::{self, EntryName, FileId, Space};
use crate::records::range::names_with;
use crate::records::tablet::Tablet;
use canopy_store::{Direction, Durability, Key};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// An entry of a directory with everything that is of its file in the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode, or a pointer to one that has several names and stays where it is.
    pub inode: Inode,
    /// Extended attributes: name and value.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Contents that are a record.
    pub contents: Option<Vec<u8>>,
    /// Chunks: the rest of the key, and the value.
    pub chunks: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A record about a partition of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRecord {
    /// The directory.
    pub directory: FileId,
    /// The number of the partition.
    pub partition: u32,
    /// The record; none if it goes.
    pub value: Option<Vec<u8>>,
}

/// Entries that move in one batch have not many more bytes.
const BYTES_MAX: usize = 16 << 20;

/// Spaces with records of a file that go where its name goes.
const SPACES: [Space; 3] = [Space::Xattrs, Space::Contents, Space::Chunks];

impl MovedEntry {
    /// Returns the number of bytes that are of variable length.
    fn bytes(&self) -> usize {
        let pairs = self.xattrs.iter().chain(&self.chunks);
        let pairs: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        pairs + self.name.len() + self.contents.as_ref().map_or(0, Vec::len)
    }
}

impl Tablet {
    /// Returns the partition records of all directories.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a key is damaged.
    pub fn partition_records(&self) -> Result<Vec<PartitionRecord>> {
        let mut scan = self.table.scan(&Space::Partitions.range(), Direction::Forward)?;
        let mut records = Vec::new();
        while let Some(record) = scan.next()? {
            let number = <[u8; 4]>::try_from(record.key.name);
            let number = number.map_err(|_| Error::corrupt("the key of a partition"))?;
            records.push(PartitionRecord {
                directory: FileId(record.key.hash),
                partition: u32::from_be_bytes(number),
                value: Some(record.value.to_vec()),
            });
        }
        Ok(records)
    }

    /// Records the state of partitions for good, which leaves the held ranges as they are.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn put_partition_records(&self, records: &[PartitionRecord]) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::new();
        put_records(&mut batch, records)?;
        Ok(self.table.write(&batch, Durability::Durable)?)
    }

    /// Records the state of partitions for good. From then on the tablet holds the names of a
    /// directory with hashes of these ranges, and no others.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn set_partitions(
        &self,
        records: &[PartitionRecord],
        directory: FileId,
        held: Vec<RangeInclusive<u64>>,
    ) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::new();
        put_records(&mut batch, records)?;
        self.count_directories(&mut batch, directory, &held)?;
        self.table.write(&batch, Durability::Durable)?;
        self.forget_pending(directory);
        self.range.set(directory, held);
        Ok(())
    }

    /// Has the tablet hold names with hashes of these ranges, as it did before it was opened.
    pub fn restore_range(&self, directory: FileId, held: Vec<RangeInclusive<u64>>) {
        self.range.set(directory, held);
    }

    /// Adds to `batch` that the content half counts the directories among the names that are held.
    fn count_directories(
        &self,
        batch: &mut Transaction,
        directory: FileId,
        held: &[RangeInclusive<u64>],
    ) -> Result<()> {
        let (place, before) = self.locate(directory)?;
        let mut inode = before.clone();
        self.overlay(&mut inode);
        inode.nlink = 2;
        for hashes in held {
            let mut scan = self.table.scan(&names_with(directory, hashes), Direction::Forward)?;
            while let Some(record) = scan.next()? {
                inode.nlink += u32::from(Inode::decode(record.value)?.is_directory());
            }
        }
        self.write_inode_uncounted(batch, &place, Some(&before), &inode)
    }

    /// Returns entries of a directory with hashes of a range, behind a name or from the first one: no
    /// more of them than this, and none once they have 16 MiB.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if contents of a file lie on this machine, and as the table does.
    pub fn entries_to_move(
        &self,
        directory: FileId,
        hashes: &RangeInclusive<u64>,
        after: Option<&[u8]>,
        count_max: usize,
    ) -> Result<Vec<MovedEntry>> {
        let mut range = names_with(directory, hashes);
        if let Some(after) = after {
            range.start = keys::name_in(directory, after).successor();
        }
        let mut scan = self.table.scan(&range, Direction::Forward)?;
        let mut entries = Vec::new();
        let mut bytes = 0;
        while entries.len() < count_max
            && bytes < BYTES_MAX
            && let Some(record) = scan.next()?
        {
            let (name, inode) = (record.key.name.to_vec(), Inode::decode(record.value)?);
            let entry = self.moved_entry(name, inode)?;
            bytes += entry.bytes();
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Returns an entry by its name and record. A pointer moves alone: all else of its file stays.
    pub(crate) fn moved_entry(&self, name: Vec<u8>, mut inode: Inode) -> Result<MovedEntry> {
        let mut entry = MovedEntry {
            name,
            inode: Inode::default(),
            xattrs: Vec::new(),
            contents: None,
            chunks: Vec::new(),
        };
        if inode.is_pointer() {
            entry.inode = inode;
            return Ok(entry);
        }
        if inode.has(flag::OBJECT) && self.configured().settings.chunk_bytes == 0 {
            return Err(Error::Invalid("contents of a file lie on one machine".into()));
        }
        self.overlay(&mut inode);
        for space in SPACES {
            let mut scan = self.table.scan(&space.range_of(inode.id), Direction::Forward)?;
            while let Some(record) = scan.next()? {
                let (rest, value) = (record.key.name.to_vec(), record.value.to_vec());
                match space {
                    Space::Xattrs => entry.xattrs.push((rest, value)),
                    Space::Chunks => entry.chunks.push((rest, value)),
                    _ => entry.contents = Some(value),
                }
            }
        }
        entry.inode = inode;
        Ok(entry)
    }

    /// Records entries of a directory that arrive, for good. Entries that arrive again are as before.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn take_entries(&self, directory: FileId, entries: &[MovedEntry]) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::new();
        for entry in entries {
            self.add_entry(&mut batch, EntryName::new(directory, &entry.name), entry)?;
        }
        Ok(self.table.write(&batch, Durability::Durable)?)
    }

    /// Adds an entry to `batch` under a name, with everything that is of its file.
    pub(crate) fn add_entry(
        &self,
        batch: &mut Transaction,
        name: EntryName<'_>,
        entry: &MovedEntry,
    ) -> Result<()> {
        let inode = &entry.inode;
        if inode.has(flag::LINKED) {
            // The file's home knows its names.
            return Ok(batch.put(name.key().as_ref(), &inode.encode())?);
        }
        batch.put(name.found_key(inode.id).as_ref(), b"")?;
        self.write_inode_uncounted(batch, &name.key(), None, inode)?;
        self.index_name(batch, inode, None, Some(name.name), false)?;
        self.add_rest(batch, entry)
    }

    /// Adds to `batch` what a file has beside its inode and its names.
    pub(crate) fn add_rest(&self, batch: &mut Transaction, entry: &MovedEntry) -> Result<()> {
        let id = entry.inode.id;
        for (xattr, value) in &entry.xattrs {
            self.note_label(xattr);
            batch.put(Space::Xattrs.of(id, xattr).as_ref(), value)?;
            self.index_xattr(batch, id, xattr, None, Some(value))?;
        }
        if let Some(contents) = &entry.contents {
            batch.put(Space::Contents.of(id, b"").as_ref(), contents)?;
        }
        for (rest, value) in &entry.chunks {
            batch.put(Space::Chunks.of(id, rest).as_ref(), value)?;
        }
        Ok(())
    }

    /// Adds to `batch` that an entry goes, whose record is `recorded`, with everything that is of its
    /// file. Objects stay: the file is elsewhere.
    pub(crate) fn forget_entry(
        &self,
        batch: &mut Transaction,
        name: EntryName<'_>,
        recorded: &Inode,
    ) -> Result<()> {
        batch.delete(name.key().as_ref())?;
        if recorded.has(flag::LINKED) {
            return Ok(());
        }
        let id = recorded.id;
        batch.delete(name.found_key(id).as_ref())?;
        self.index_inode(batch, Some(recorded), None)?;
        self.index_name(batch, recorded, Some(name), None, false)?;
        if recorded.is_pointer() {
            return Ok(());
        }
        for space in SPACES {
            let mut scan = self.table.scan(&space.range_of(id), Direction::Forward)?;
            while let Some(record) = scan.next()? {
                batch.delete(record.key)?;
                if space == Space::Xattrs {
                    let (xattr, value) = (record.key.name, record.value);
                    self.index_xattr(batch, id, xattr, Some(value), None)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of entries of a directory with hashes of a range, visible or not.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn count_entries(&self, directory: FileId, hashes: &RangeInclusive<u64>) -> Result<u64> {
        let mut scan = self.table.scan(&names_with(directory, hashes), Direction::Forward)?;
        let mut count = 0;
        while scan.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Removes entries of a directory with hashes of a range, which is not held, and no more of them
    /// than this. Files stay where they went, with their objects. Returns whether none is left.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn remove_copies(
        &self,
        directory: FileId,
        hashes: &RangeInclusive<u64>,
        count_max: usize,
    ) -> Result<bool> {
        let _writer = self.writer.lock();
        let copies = self.entries_to_move(directory, hashes, None, count_max)?;
        if copies.is_empty() {
            return Ok(true);
        }
        let mut batch = Transaction::freeing();
        for copy in &copies {
            let name = EntryName::new(directory, &copy.name);
            let recorded = self.record(&name.key())?.unwrap_or_default();
            self.forget_entry(&mut batch, name, &recorded)?;
        }
        self.table.write_freeing(&batch, Durability::Visible)?;
        // The times of a directory wait with its content half, which stays.
        for copy in copies.iter().filter(|copy| !copy.inode.has(flag::ACCESS_HALF)) {
            self.forget_pending(copy.inode.id);
        }
        Ok(false)
    }

    /// Makes the content half of a directory, whose name another tablet may hold, and returns it. It
    /// is invisible until there is a name. `parent` is the directory that it will be in.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` if there is no room, and as the table does.
    pub fn create_content_half(&self, parent: &Inode, new: &New) -> Result<Inode> {
        if new.mode & crate::inode::TYPE_MASK != file_type::DIRECTORY {
            return Err(Errno::NOTDIR.into());
        }
        self.reserve_ids()?;
        let mut writer = self.writer.lock();
        let (inode, _) = self.new_inode(parent, new, &mut writer)?;
        let mut batch = Transaction::new();
        self.write_inode_uncounted(&mut batch, &content_half(inode.id), None, &inode)?;
        // Before the name, which is in another log.
        self.table.write(&batch, Durability::Durable)?;
        Ok(inode)
    }

    /// Removes the content half of a directory that got no name.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn remove_content_half(&self, id: FileId) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::freeing();
        batch.delete(content_half(id).as_ref())?;
        Ok(self.table.write_freeing(&batch, Durability::Visible)?)
    }

    /// Returns whether the first partition of a directory is here, unless the directory was split:
    /// whether its content half is, with its name or apart.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn has_first_partition(&self, directory: FileId) -> Result<bool> {
        match self.locate(directory) {
            Err(Error::Posix(Errno::NOENT)) => Ok(false),
            located => located.map(|(_, inode)| {
                inode.is_directory() && !inode.has(flag::ACCESS_HALF | flag::FURTHER)
            }),
        }
    }

    /// Returns under which name the record of a file lies: the directory and the hash. None if it is
    /// not one of a name.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn name_of(&self, id: FileId) -> Result<Option<(FileId, u64)>> {
        match self.locate(id) {
            Err(Error::Posix(Errno::NOENT)) => Ok(None),
            located => {
                let (key, _) = located?;
                Ok(keys::is_name(&key).then_some((FileId(key.directory), key.hash)))
            }
        }
    }

    /// Records the content half of a directory that a further partition of it comes with. If there is
    /// one, it stays.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn put_content_half(&self, inode: &Inode) -> Result<()> {
        let _writer = self.writer.lock();
        let place = content_half(inode.id);
        if self.record(&place)?.is_some() {
            return Ok(());
        }
        let flags = inode.flags & !flag::ACCESS_HALF | flag::FURTHER;
        let half = Inode { nlink: 2, flags, ..inode.clone() };
        let mut batch = Transaction::new();
        self.write_inode_uncounted(&mut batch, &place, None, &half)?;
        Ok(self.table.write(&batch, Durability::Durable)?)
    }

    /// Gives a directory its name, in a directory of which the tablet holds this name. Its content
    /// half is that of `inode`, and lies apart.
    ///
    /// # Errors
    ///
    /// Fails as [`create`](Self::create) does.
    pub fn create_access_half(&self, name: EntryName<'_>, inode: &Inode) -> Result<()> {
        keys::check_name(name.name)?;
        let _writer = self.writer.lock();
        self.limit_pending()?;
        let mut parent = self.directory(name.directory)?;
        let is_dots = matches!(name.name, b"." | b"..");
        if is_dots || self.table.get(name.key().as_ref())?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let half = Inode { flags: inode.flags | flag::ACCESS_HALF, ..inode.clone() };
        let mut batch = Transaction::new();
        self.add_new(&mut batch, name, &half, Vec::new())?;
        let now_ns = self.now_ns();
        (parent.mtime_ns, parent.ctime_ns) = (now_ns, now_ns);
        parent.nlink = parent.nlink.checked_add(1).ok_or(Errno::MLINK)?;
        self.rewrite_inode(&mut batch, &parent)?;
        self.commit(batch)?;
        self.remember(parent);
        self.places.insert(inode.id, name.key());
        Ok(())
    }
}

fn content_half(id: FileId) -> Key {
    Space::Directories.of(id, b"")
}

fn put_records(batch: &mut Transaction, records: &[PartitionRecord]) -> Result<()> {
    for record in records {
        let key = Space::Partitions.of(record.directory, &record.partition.to_be_bytes());
        match &record.value {
            Some(value) => batch.put(key.as_ref(), value)?,
            None => batch.delete(key.as_ref())?,
        }
    }
    Ok(())
}

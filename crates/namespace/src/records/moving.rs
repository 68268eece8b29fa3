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
use crate::records::acl;
use crate::records::change::New;
use crate::records::executed::Outcome;
use crate::records::inode::{Inode, file_type, flag};
use crate::records::keys::{self, EntryName, FileId, ROOT, Space};
use crate::records::making;
use crate::records::permissions::Caller;
use crate::records::range::names_with;
use crate::records::tablet::Tablet;
use canopy_store::{Direction, Durability, Key, RecordRef};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
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

/// Ranges of hashes of a directory that a tablet gets or loses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedRanges {
    /// Those that it did not hold.
    pub arrived: Vec<RangeInclusive<u64>>,
    /// Those that it holds no more.
    pub left: Vec<RangeInclusive<u64>>,
}

/// The attributes of a directory that decide who may use it, as all its partitions have them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryHalf {
    /// The inode, as one tablet has it.
    pub inode: Inode,
    /// ACLs: name and value of the extended attribute.
    pub acls: Vec<(Vec<u8>, Vec<u8>)>,
    /// Counts the changes. Newer attributes replace older ones.
    pub version: u64,
    /// The version in which times were set. Otherwise each tablet has its own, and the newest count.
    pub times: u64,
}

/// State of the attributes of a directory in one tablet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfState {
    /// The version of the attributes.
    pub version: u64,
    /// Whether other tablets may have older ones.
    pub is_pending: bool,
    /// The version in which times were set.
    pub times: u64,
}

/// A directory that is to be made, and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewDirectory {
    /// The directory that it will be in.
    pub parent: FileId,
    /// The name.
    pub name: Vec<u8>,
    /// Its attributes. It has no id so far.
    pub half: DirectoryHalf,
}

/// Entries that move in one batch have not many more bytes.
const BYTES_MAX: usize = 512 << 10;

/// Bytes of the largest entry that one message can have. A file has as many with a million chunks.
pub(crate) const ENTRY_BYTES_MAX: usize = 60 << 20;

/// The number of a record that is not a partition's, but has a [`HalfState`].
pub const HALF_STATE: u32 = u32::MAX;

/// The number of a record that is not a partition's, but has the servers of a directory's partitions.
pub const PLACEMENT: u32 = u32::MAX - 1;

/// The number of a record that is not a partition's, but has the partitions that are not split.
pub const WHOLE: u32 = u32::MAX - 2;

/// Returns the spaces with records of a file that go where its name goes. Most files have none, and a
/// scan of each space would cost several times as much as the name. Reading and removing a file
/// rely on its flags, too; the halves of a directory may differ in theirs.
fn spaces_of(inode: &Inode) -> impl Iterator<Item = Space> {
    let of_flags = [
        (flag::XATTRS, Space::Xattrs),
        (flag::INLINE, Space::Contents),
        (flag::OBJECT, Space::Chunks),
    ];
    let (flags, has_all) = (inode.flags, inode.is_directory());
    let has = move |(flag, space)| (has_all || flags & flag != 0).then_some(space);
    of_flags.into_iter().filter_map(has)
}

impl MovedEntry {
    /// Returns the entry of a name of a file with several.
    pub fn pointer(name: Vec<u8>, id: FileId) -> Self {
        let inode = Inode::pointer(id);
        MovedEntry { name, inode, xattrs: Vec::new(), contents: None, chunks: Vec::new() }
    }

    /// Returns the number of bytes that are of variable length.
    pub(crate) fn bytes(&self) -> usize {
        let pairs = self.xattrs.iter().chain(&self.chunks);
        let pairs: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        pairs + self.name.len() + self.contents.as_ref().map_or(0, Vec::len)
    }

    /// Returns the entry in parts of at most `bytes_max` bytes, unless a single value has more. Once
    /// [all are recorded](Tablet::take_entries), in any order, they are the entry.
    pub fn into_parts(mut self, bytes_max: usize) -> Vec<MovedEntry> {
        if self.bytes() <= bytes_max {
            return vec![self];
        }
        let (xattrs, chunks) = (std::mem::take(&mut self.xattrs), std::mem::take(&mut self.chunks));
        let empty =
            MovedEntry { name: self.name.clone(), inode: self.inode.clone(), ..Self::nothing() };
        let (mut parts, mut part) = (Vec::new(), self);
        let mut bytes = part.bytes();
        let xattrs = xattrs.into_iter().map(|pair| (true, pair));
        let chunks = chunks.into_iter().map(|pair| (false, pair));
        for (is_xattr, pair) in xattrs.chain(chunks) {
            let more = pair.0.len() + pair.1.len();
            if bytes + more > bytes_max && bytes > empty.bytes() {
                parts.push(std::mem::replace(&mut part, empty.clone()));
                bytes = empty.bytes();
            }
            bytes += more;
            if is_xattr { &mut part.xattrs } else { &mut part.chunks }.push(pair);
        }
        parts.push(part);
        parts
    }

    fn nothing() -> Self {
        MovedEntry {
            name: Vec::new(),
            inode: Inode::default(),
            xattrs: Vec::new(),
            contents: None,
            chunks: Vec::new(),
        }
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
            records.push(partition_record(record)?);
        }
        Ok(records)
    }

    /// Records the state of partitions, which leaves the held ranges as they are. Everybody sees it.
    /// [`Table::sync_visible`](canopy_store::Table::sync_visible) makes it outlast a crash, once the
    /// caller has noted it.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn put_partition_records(&self, records: &[PartitionRecord]) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::new();
        put_records(&mut batch, records)?;
        Ok(self.table.write(&batch, Durability::Visible)?)
    }

    /// Records the state of partitions like that, and new held ranges. The tablet then holds the names
    /// of a directory with hashes of these ranges, and no others. `moved` are the ranges that it did not
    /// hold before, and those that it holds no more: usage of their files moves along.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn set_partitions(
        &self,
        records: &[PartitionRecord],
        directory: FileId,
        held: Vec<RangeInclusive<u64>>,
        moved: &MovedRanges,
    ) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::new();
        put_records(&mut batch, records)?;
        self.count_directories(&mut batch, directory, &held)?;
        self.count_moved(&mut batch, directory, moved)?;
        self.commit(batch)?;
        self.forget_pending(directory);
        self.range.set(directory, held);
        Ok(())
    }

    /// Adds to `batch` the usage of files that arrive or leave with their names.
    fn count_moved(
        &self,
        batch: &mut Transaction,
        directory: FileId,
        moved: &MovedRanges,
    ) -> Result<()> {
        let counts = self.accounts.counts();
        for (ranges, arrives) in [(&moved.arrived, true), (&moved.left, false)] {
            for hashes in ranges {
                let names = names_with(directory, hashes);
                let mut scan = self.table.scan(&names, Direction::Forward)?;
                while let Some(record) = scan.next()? {
                    let inode = Inode::decode(record.value)?;
                    match arrives {
                        true => batch.arrives(&inode, counts),
                        false => batch.leaves(&inode, counts),
                    }
                }
            }
        }
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
    /// more of them than this, and none once they have 512 KiB.
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
        let mut entry = MovedEntry { name, ..MovedEntry::nothing() };
        // Such an entry leads to an inode that lies elsewhere.
        if inode.is_pointer() {
            entry.inode = inode;
            return Ok(entry);
        }
        if inode.has(flag::OBJECT) && self.configured().settings.chunk_bytes == 0 {
            return Err(Error::Invalid("contents of a file lie on one machine".into()));
        }
        self.overlay(&mut inode);
        for space in spaces_of(&inode) {
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

    /// Returns whether the file of an entry that arrives with a partition came here by another way:
    /// it has another name here, or none. A directory counts if another name of it is known.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn has_otherwise(&self, directory: FileId, entry: &MovedEntry) -> Result<bool> {
        let id = entry.inode.id;
        if entry.inode.has(flag::LINKED) {
            return Ok(false);
        }
        let mut has_other = false;
        self.each_name(id, |parent, name| {
            has_other = (parent, name) != (directory, entry.name.as_slice());
            !has_other
        })?;
        if has_other || entry.inode.is_pointer() {
            return Ok(has_other);
        }
        for space in [Space::Links, Space::Orphans] {
            if self.record(&space.of(id, b""))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
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
        self.index_inode(batch, Some(recorded), None)?;
        self.index_name(batch, recorded, Some(name), None, false)?;
        if recorded.has(flag::ACCESS_HALF) {
            // The home of a directory knows its name, too.
            let half = self.record(&content_half(id))?;
            if half.is_none_or(|half| half.has(flag::FURTHER)) {
                batch.delete(name.found_key(id).as_ref())?;
            }
            return Ok(());
        }
        batch.delete(name.found_key(id).as_ref())?;
        for space in spaces_of(recorded) {
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

    /// Returns the number of names of all directories that the tablet holds. Reads all names.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn count_names(&self) -> Result<u64> {
        let mut scan = self.table.scan(&keys::names_in_directories(), Direction::Forward)?;
        let (mut count, mut last) = (0, (FileId::NONE, false));
        while let Some(record) = scan.next()? {
            let directory = FileId(record.key.directory);
            if last.0 != directory {
                last = (directory, self.range.is_split(directory));
            }
            let is_held = !last.1 || self.range.has_name(directory, record.key.hash);
            count += u64::from(is_held);
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
        for copy in copies.iter().filter(|copy| !copy.inode.is_pointer()) {
            self.forget_pending(copy.inode.id);
        }
        Ok(false)
    }

    /// Returns a directory as a caller may make it under a name that the tablet holds, for the
    /// tablet that will have its content half.
    ///
    /// # Errors
    ///
    /// Fails as [`create`](Self::create) does.
    pub fn plan_directory(
        &self,
        caller: Caller<'_>,
        name: EntryName<'_>,
        new: &New,
    ) -> Result<NewDirectory> {
        if new.mode & crate::inode::TYPE_MASK != file_type::DIRECTORY {
            return Err(Errno::NOTDIR.into());
        }
        let _writer = self.writer.lock();
        let new = match caller.user() {
            Some(who) => self.check(who).create(name, new)?,
            None => Cow::Borrowed(new),
        };
        keys::check_name(name.name)?;
        let parent = self.directory(name.directory)?;
        if matches!(name.name, b"." | b"..") || self.table.get(name.key().as_ref())?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let (inode, acls) = self.unnumbered(&parent, &new)?;
        Ok(NewDirectory {
            parent: name.directory,
            name: name.name.to_vec(),
            half: DirectoryHalf { inode, acls, version: 0, times: 0 },
        })
    }

    /// Makes the content half of a directory, whose name another tablet may hold, and returns its
    /// inode. It is invisible until there is a name, which is in another log: so the caller makes the
    /// half outlast a crash before. The attempt is recorded beside it, until
    /// [`finish_making`](Self::finish_making).
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table does.
    pub fn create_content_half(&self, new: &NewDirectory, attempt: &[u8]) -> Result<Inode> {
        if !new.half.inode.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.reserve_ids()?;
        let mut writer = self.writer.lock();
        let mut inode = new.half.inode.clone();
        inode.id = writer.ids.new_id(&self.table)?;
        let mut batch = Transaction::new();
        put_acls(&mut batch, inode.id, &new.half.acls)?;
        let name = EntryName::new(new.parent, &new.name);
        batch.put(name.found_key(inode.id).as_ref(), b"")?;
        batch.is_bound = inode.uid != 0;
        self.write_inode(&mut batch, &content_half(inode.id), None, &inode)?;
        self.index_name(&mut batch, &inode, None, Some(name.name), false)?;
        making::put_half(&mut batch, inode.id, attempt)?;
        self.commit(batch)?;
        Ok(inode)
    }

    /// Removes the content half of a directory that got no name. The caller has the writer's lock.
    pub(super) fn remove_content_half(&self, id: FileId) -> Result<()> {
        let mut batch = Transaction::freeing();
        let place = content_half(id);
        let half = self.record(&place)?;
        for (parent, name) in self.names(id)? {
            let name = EntryName::new(parent, &name);
            batch.delete(name.found_key(id).as_ref())?;
            if let Some(half) = &half {
                self.index_name(&mut batch, half, Some(name), None, false)?;
            }
        }
        for name in self.xattr_names(id)? {
            batch.delete(Space::Xattrs.of(id, &name).as_ref())?;
        }
        match &half {
            Some(half) => self.remove_record(&mut batch, &place, half)?,
            None => batch.delete(place.as_ref())?,
        }
        making::drop_half(&mut batch, id)?;
        self.commit(batch)?;
        self.forget_pending(id);
        Ok(())
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
                Ok(keys::is_name(key.as_ref()).then_some((FileId(key.directory), key.hash)))
            }
        }
    }

    /// Returns the attributes of a directory that decide who may use it, as they are here.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if nothing of the directory is here, and as the table does.
    pub fn directory_half(&self, id: FileId) -> Result<DirectoryHalf> {
        let _writer = self.writer.lock();
        let inode = self.inode_now(id)?;
        let mut acls = Vec::new();
        for acl in [acl::ACCESS, acl::DEFAULT] {
            if let Some(value) = self.xattr_of(id, acl.as_bytes())? {
                acls.push((acl.as_bytes().to_vec(), value));
            }
        }
        let HalfState { version, times, .. } = self.half_state(id)?;
        Ok(DirectoryHalf { inode, acls, version, times })
    }

    /// Returns the state of the attributes of a directory that several tablets have.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if the record is damaged.
    pub fn half_state(&self, id: FileId) -> Result<HalfState> {
        let value = self.table.get(half_state_key(id).as_ref())?;
        let decode = |value: Vec<u8>| {
            postcard::from_bytes(&value).map_err(|_| Error::corrupt("the state of a directory"))
        };
        value.map_or(Ok(HalfState::default()), decode)
    }

    /// Records the state of the attributes of a directory for good.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn put_half_state(&self, id: FileId, state: HalfState) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::new();
        put_half_state(&mut batch, id, state)?;
        Ok(self.table.write(&batch, Durability::Durable)?)
    }

    /// Records, for good, the attributes of a directory of which the tablet has further partitions,
    /// or gets one. Newer attributes stay.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn put_content_half(&self, half: &DirectoryHalf) -> Result<()> {
        let _writer = self.writer.lock();
        let id = half.inode.id;
        let place = content_half(id);
        let before = self.record(&place)?;
        let state = self.half_state(id)?;
        // The home has the newest ones. Attributes of version 0 never changed, but a table that was
        // added has no root's.
        let is_home = before.as_ref().is_some_and(|before| !before.has(flag::FURTHER));
        let is_newer =
            state.version > half.version || state.version == half.version && state.version > 0;
        if is_home || before.is_some() && is_newer {
            return Ok(());
        }
        let flags = half.inode.flags & !flag::ACCESS_HALF | flag::FURTHER;
        let mut inode = Inode { nlink: 2, flags, ..half.inode.clone() };
        if let Some(before) = &before {
            let mut newest = before.clone();
            self.overlay(&mut newest);
            if half.times > state.times {
                (newest.mtime_ns, newest.atime_ns) = (inode.mtime_ns, inode.atime_ns);
            }
            inode = Inode {
                nlink: before.nlink,
                mtime_ns: newest.mtime_ns,
                ctime_ns: newest.ctime_ns,
                atime_ns: newest.atime_ns,
                ..inode
            };
        }
        let mut batch = Transaction::new();
        for acl in [acl::ACCESS, acl::DEFAULT] {
            batch.delete(Space::Xattrs.of(id, acl.as_bytes()).as_ref())?;
        }
        put_acls(&mut batch, id, &half.acls)?;
        let DirectoryHalf { version, times, .. } = *half;
        put_half_state(&mut batch, id, HalfState { version, is_pending: false, times })?;
        self.write_inode_uncounted(&mut batch, &place, before.as_ref(), &inode)?;
        self.table.write(&batch, Durability::Visible)?;
        self.forget_pending(id);
        Ok(self.table.sync_visible()?)
    }

    /// Gives a directory its name, in a directory of which the tablet holds this name. Its content
    /// half is that of `inode`, and lies apart.
    ///
    /// # Errors
    ///
    /// Fails as [`create`](Self::create) does, and with `AGAIN` if the parent was counted to another
    /// tree since the directory was planned.
    pub fn create_access_half(
        &self,
        caller: Caller<'_>,
        name: EntryName<'_>,
        inode: &Inode,
    ) -> Result<()> {
        let _writer = self.writer.lock();
        if let Some(who) = caller.user() {
            self.check(who).add_name(name)?;
        }
        keys::check_name(name.name)?;
        self.limit_pending()?;
        let mut parent = self.directory(name.directory)?;
        let is_dots = matches!(name.name, b"." | b"..");
        if is_dots || self.table.get(name.key().as_ref())?.is_some() {
            return Err(Errno::EXIST.into());
        }
        if parent.project != inode.project {
            return Err(Errno::AGAIN.into());
        }
        let half = Inode { flags: inode.flags | flag::ACCESS_HALF, ..inode.clone() };
        let mut batch = Transaction::new();
        self.add_new(&mut batch, name, &half, Vec::new())?;
        let now_ns = self.now_ns();
        (parent.mtime_ns, parent.ctime_ns) = (now_ns, now_ns);
        parent.nlink = parent.nlink.checked_add(1).ok_or(Errno::MLINK)?;
        self.rewrite_inode(&mut batch, &parent)?;
        making::put_named(&mut batch, inode.id)?;
        self.put_outcome(&mut batch, Outcome::Inode(inode))?;
        self.commit(batch)?;
        self.remember(parent);
        self.places.insert(inode.id, name.key());
        Ok(())
    }
}

/// Reads a record about a partition.
pub(crate) fn partition_record(record: RecordRef<'_>) -> Result<PartitionRecord> {
    let number = <[u8; 4]>::try_from(record.key.name);
    let number = number.map_err(|_| Error::corrupt("the key of a partition"))?;
    Ok(PartitionRecord {
        directory: FileId(record.key.hash),
        partition: u32::from_be_bytes(number),
        value: Some(record.value.to_vec()),
    })
}

pub(crate) fn content_half(id: FileId) -> Key {
    match id {
        ROOT => keys::root(),
        _ => Space::Directories.of(id, b""),
    }
}

/// The place of the state of a directory's attributes: a partition of this number cannot be.
fn half_state_key(id: FileId) -> Key {
    Space::Partitions.of(id, &HALF_STATE.to_be_bytes())
}

fn put_half_state(batch: &mut Transaction, id: FileId, state: HalfState) -> Result<()> {
    // A few numbers cannot fail to be encoded into memory.
    let value = postcard::to_extend(&state, Vec::new()).unwrap_or_default();
    Ok(batch.put(half_state_key(id).as_ref(), &value)?)
}

fn put_acls(batch: &mut Transaction, id: FileId, acls: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    for (acl, value) in acls {
        batch.put(Space::Xattrs.of(id, acl).as_ref(), value)?;
    }
    Ok(())
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

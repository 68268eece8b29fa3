//! The records of a namespace that several tables share, each read at a checkpoint of its own, as if
//! they were one table's.
//!
//! A key belongs to one table, whose record alone counts: copies of entries that moved lie elsewhere.
//!
//! | key | table |
//! | --- | --- |
//! | a name of a directory | the one that holds the part of the directory with the name's hash |
//! | inode of a file with several names | its home: the table whose block has the id |
//! | names, extended attributes, contents of a file | that of its only name; else its home |
//! | names and extended attributes of a directory | its home |
//! | index entries | all tables: whoever looks an entry up finds out whether it counts |
//! | settings and other records of the whole namespace | the first |
//!
//! The record of a directory's name has the inode of the whole directory here: the content half at
//! its home, with the counts and times of its parts in other tables.

use crate::error::{Error, Result};
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, Block, FileId, ROOT, Space};
use crate::records::moving::{PartitionRecord, content_half, partition_record};
use crate::records::range::names_with;
use crate::records::view::ReadView;
use canopy_store::storage::Storage;
use canopy_store::{Direction, Key, KeyRange, KeyRef, Op, Reader, RecordRef, Scan, TableId};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::vec;

/// Files of which it is remembered that they lie elsewhere than at home.
const SEEN_MAX: usize = 1 << 20;

/// Parts of directories that were split: the ranges of hashes in ascending order, each with the number
/// of the table that holds it.
pub type SplitParts = HashMap<FileId, Vec<(RangeInclusive<u64>, usize)>>;

/// The tables of one namespace.
pub(crate) struct Joined {
    storage: Arc<dyn Storage>,
    tables: Vec<(TableId, Box<Reader>)>,
    parts: SplitParts,
    homes: RwLock<HashMap<Block, usize>>,
    /// Where files were last seen that do not lie at home. They are looked for there first.
    seen: Mutex<HashMap<FileId, usize>>,
}

impl Joined {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        tables: Vec<(TableId, Box<Reader>)>,
        parts: SplitParts,
    ) -> Self {
        Joined { storage, tables, parts, homes: RwLock::default(), seen: Mutex::default() }
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &Reader> {
        self.tables.iter().map(|(_, reader)| &**reader)
    }

    pub(crate) fn readers(&self) -> impl Iterator<Item = &(TableId, Box<Reader>)> {
        self.tables.iter()
    }

    pub(crate) fn split_directories(&self) -> Vec<FileId> {
        self.parts.keys().copied().collect()
    }

    fn table(&self, number: usize) -> Result<&Reader> {
        let table = self.tables.get(number).map(|(_, reader)| &**reader);
        table.ok_or_else(|| Error::corrupt("the number of a table"))
    }

    /// Returns the table whose block has an id.
    fn home(&self, id: FileId) -> Result<usize> {
        if id == ROOT {
            return Ok(0);
        }
        let block = id.block();
        if let Some(home) = self.homes.read().get(&block) {
            return Ok(*home);
        }
        let table = crate::table_of_block(&*self.storage, block)?;
        let number = table.and_then(|id| self.tables.iter().position(|(of, _)| *of == id));
        let number = number.ok_or_else(|| Error::corrupt(format!("no table has file {id}")))?;
        self.homes.write().insert(block, number);
        Ok(number)
    }

    /// Returns the table that holds a name.
    fn table_of_name(&self, directory: FileId, hash: u64) -> Result<usize> {
        match self.parts.get(&directory) {
            None => self.home(directory),
            Some(parts) => {
                let at = parts.partition_point(|(hashes, _)| *hashes.end() < hash);
                let held = parts.get(at).filter(|(hashes, _)| hashes.contains(&hash));
                let missing = || Error::corrupt(format!("a part of directory {directory}"));
                held.map(|(_, table)| *table).ok_or_else(missing)
            }
        }
    }

    /// Returns the table that has all but the name of a file.
    fn table_of_file(&self, id: FileId) -> Result<usize> {
        let home = self.home(id)?;
        if id == ROOT {
            return Ok(home);
        }
        for space in [Space::Directories, Space::Links] {
            if self.table(home)?.get(space.of(id, b"").as_ref())?.is_some() {
                return Ok(home);
            }
        }
        let seen = self.seen.lock().get(&id).copied();
        let first = seen.into_iter().chain([home]);
        for table in first.chain(0..self.tables.len()) {
            let mut names =
                self.table(table)?.scan(&Space::Names.range_of(id), Direction::Forward)?;
            while let Some(record) = names.next()? {
                let Some((directory, name)) = keys::parse_name(record.key.name) else { continue };
                let key = keys::name_in(directory, name);
                // It may be a copy of an entry that has moved.
                if self.table_of_name(directory, key.hash)? == table
                    && let Some(found) = self.table(table)?.get(key.as_ref())?
                    && Inode::decode(&found)?.id == id
                {
                    self.see(id, table)?;
                    return Ok(table);
                }
            }
        }
        Ok(home)
    }

    /// Remembers where a file was seen.
    fn see(&self, id: FileId, table: usize) -> Result<()> {
        if self.home(id)? != table {
            let mut seen = self.seen.lock();
            if seen.len() >= SEEN_MAX {
                seen.clear();
            }
            seen.insert(id, table);
        }
        Ok(())
    }

    /// Returns the inode of a directory by what its parts say together; none if its home does not have
    /// it.
    fn whole(&self, id: FileId) -> Result<Option<Inode>> {
        let place = content_half(id);
        let part = |table: usize| -> Result<Option<Inode>> {
            let value = self.table(table)?.get(place.as_ref())?;
            value.map(|value| Inode::decode(&value)).transpose()
        };
        let home = self.home(id)?;
        let Some(mut whole) = part(home)? else { return Ok(None) };
        let mut asked = vec![home];
        for (_, table) in self.parts.get(&id).into_iter().flatten() {
            if asked.contains(table) {
                continue;
            }
            asked.push(*table);
            let Some(part) = part(*table)? else { continue };
            whole.nlink = whole.nlink.saturating_add(part.nlink.saturating_sub(2));
            whole.mtime_ns = whole.mtime_ns.max(part.mtime_ns);
            whole.ctime_ns = whole.ctime_ns.max(part.ctime_ns);
            whole.atime_ns = whole.atime_ns.max(part.atime_ns);
        }
        whole.flags &= !(flag::ACCESS_HALF | flag::FURTHER);
        Ok(Some(whole))
    }

    pub(crate) fn get(&self, key: KeyRef<'_>) -> Result<Option<Vec<u8>>> {
        let id = FileId(key.hash);
        let table = match key.directory {
            0 if key == keys::root().as_ref() => {
                return Ok(self.whole(ROOT)?.map(|root| root.encode()));
            }
            directory if keys::is_name(key) => {
                let table = self.table_of_name(FileId(directory), key.hash)?;
                let Some(value) = self.table(table)?.get(key)? else { return Ok(None) };
                return Ok(match half_of(&value)? {
                    None => Some(value),
                    Some(id) => self.whole(id)?.map(|whole| whole.encode()),
                });
            }
            space if space == Space::Links as u64 => self.home(id)?,
            space if is_of_file(space) => self.table_of_file(id)?,
            _ => 0,
        };
        Ok(self.table(table)?.get(key)?)
    }

    pub(crate) fn scan(&self, range: &KeyRange) -> Result<JoinedScan<'_>> {
        let (first, hash) = (range.start.directory, range.start.hash);
        let is_within = |whole: KeyRange| whole.covers(range);
        let all = || (0..self.tables.len()).map(|table| (table, range.clone())).collect();
        let parts: Vec<(usize, KeyRange)> = match first {
            0 => vec![(0, range.clone())],
            _ if keys::is_name(range.start.as_ref()) => {
                let directory = FileId(first);
                match is_within(keys::names_in(directory)) {
                    true => self.parts_of(directory, range)?,
                    false => all(),
                }
            }
            space if is_of_file(space) && is_within(file_range(space, hash)) => {
                vec![(self.table_of_file(FileId(hash))?, range.clone())]
            }
            space if space == Space::Snapshots as u64 => vec![(0, range.clone())],
            _ => all(),
        };
        Ok(JoinedScan { joined: self, parts: parts.into_iter(), scan: None, whole: None })
    }

    /// Returns a range of names of one directory by the tables that hold them, in the order of hashes.
    fn parts_of(&self, directory: FileId, range: &KeyRange) -> Result<Vec<(usize, KeyRange)>> {
        let Some(parts) = self.parts.get(&directory) else {
            return Ok(vec![(self.home(directory)?, range.clone())]);
        };
        let parts = parts
            .iter()
            .map(|(hashes, table)| (*table, names_with(directory, hashes).intersection(range)));
        Ok(parts.filter(|(_, range)| !range.is_empty()).collect())
    }

    /// Calls `each` with keys whose values may differ from those of older checkpoints of the same
    /// tables, as [`Reader::differences`] does for each table. Returns false if that cannot be known.
    pub(crate) fn differences(
        &self,
        before: &Joined,
        range: &KeyRange,
        mut each: impl FnMut(KeyRef<'_>, Option<&[u8]>) -> bool,
    ) -> Result<bool> {
        let ids = |joined: &Joined| Vec::from_iter(joined.tables.iter().map(|(id, _)| *id));
        if ids(self) != ids(before) {
            return Ok(false);
        }
        let mut goes_on = true;
        for (now, before) in self.tables().zip(before.tables()) {
            let is_known = now.differences(before, range, |key, value| {
                goes_on = goes_on && each(key, value);
                goes_on
            })?;
            if !is_known || !goes_on {
                return Ok(is_known);
            }
        }
        Ok(true)
    }
}

/// Returns the range of the records of a file in a space.
fn file_range(space: u64, hash: u64) -> KeyRange {
    let start = Key { directory: space, hash, name: Vec::new() };
    KeyRange { end: Some(Key { hash: hash.saturating_add(1), ..start.clone() }), start }
}

/// Returns whether the records of a space lie where all but the name of their file lies.
fn is_of_file(space: u64) -> bool {
    let spaces = [Space::Names, Space::Xattrs, Space::Contents, Space::Chunks];
    spaces.iter().any(|of| *of as u64 == space)
}

/// Returns the directory whose content half lies apart from this record.
fn half_of(value: &[u8]) -> Result<Option<FileId>> {
    let inode = Inode::decode(value)?;
    Ok(inode.has(flag::ACCESS_HALF).then_some(inode.id))
}

/// Records of several tables, in the order of keys within each part.
pub(crate) struct JoinedScan<'a> {
    joined: &'a Joined,
    parts: vec::IntoIter<(usize, KeyRange)>,
    /// The part that is read, and its table.
    scan: Option<(usize, Scan)>,
    /// The inode of a directory that lies apart from its name.
    whole: Option<Vec<u8>>,
}

impl JoinedScan<'_> {
    /// Goes to the next record and returns it; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<RecordRef<'_>>> {
        while self.advance()? {}
        let Some(record) = self.scan.as_ref().and_then(|(_, scan)| scan.record()) else {
            return Ok(None);
        };
        let value = self.whole.as_deref().unwrap_or(record.value);
        Ok(Some(RecordRef { value, op: Op::Put, ..record }))
    }

    /// Goes to the next record. Returns whether it does not count.
    fn advance(&mut self) -> Result<bool> {
        self.whole = None;
        let Some((table, scan)) = &mut self.scan else {
            let Some((table, range)) = self.parts.next() else { return Ok(false) };
            let scan = self.joined.table(table)?.scan(&range, Direction::Forward)?;
            self.scan = Some((table, scan));
            return Ok(true);
        };
        let Some(record) = scan.next()? else {
            self.scan = None;
            return Ok(true);
        };
        let joined = self.joined;
        if keys::is_name(record.key) {
            let directory = FileId(record.key.directory);
            if joined.table_of_name(directory, record.key.hash)? != *table {
                return Ok(true);
            }
            let inode = Inode::decode(record.value)?;
            if inode.has(flag::ACCESS_HALF) {
                self.whole = joined.whole(inode.id)?.map(|whole| whole.encode());
                return Ok(self.whole.is_none());
            }
            if inode.has(flag::XATTRS) {
                joined.see(inode.id, *table)?;
            }
        } else if keys::is_entry(record.key)
            && let Some(id) = keys::entry_id(record.key.name)
        {
            joined.see(id, *table)?;
        }
        Ok(false)
    }
}

impl ReadView {
    /// Returns the records of a namespace that several tables share, in the order of servers, each at
    /// a checkpoint. `interpret` returns which parts of split directories each table holds, by the
    /// records of partitions in each.
    ///
    /// # Errors
    ///
    /// Fails with `Store` if a table or a checkpoint is gone or cannot be read, and as `interpret`
    /// does.
    pub fn of_tables<E: From<Error>>(
        environment: &canopy_store::Environment,
        tables: &[(TableId, u64)],
        interpret: impl FnOnce(&[Vec<PartitionRecord>]) -> std::result::Result<SplitParts, E>,
    ) -> std::result::Result<Self, E> {
        let readers = Self::readers(environment, tables)?;
        let mut records = Vec::new();
        for (_, reader) in &readers {
            records.push(partition_records(reader)?);
        }
        let parts = interpret(&records)?;
        let joined = Joined::new(environment.storage.clone(), readers, parts);
        Ok(ReadView::of_joined(joined)?)
    }
}

/// Returns the partition records in a table.
fn partition_records(reader: &Reader) -> Result<Vec<PartitionRecord>> {
    let mut scan = reader.scan(&Space::Partitions.range(), Direction::Forward)?;
    let mut records = Vec::new();
    while let Some(record) = scan.next()? {
        records.push(partition_record(record)?);
    }
    Ok(records)
}

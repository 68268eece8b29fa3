//! The records of a namespace as they were at one moment, for those who read and change nothing:
//! of a namespace that this process has open, or of checkpoints of its table or tables (`joined`).
//!
//! A namespace that another process has open is read at a checkpoint, once its memory is in files
//! (`canopy ns find`, `canopy index ns:`). No lock is taken, so a long search stops nobody.

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::records::attributes::Indexes;
use crate::records::inode::{Inode, flag};
use crate::records::joined::{Joined, JoinedScan};
use crate::records::keys::{self, FileId, ROOT, Space};
use crate::records::places::Places;
use crate::records::tablet::{CACHE_BYTES, Tablet, options};
use crate::settings::{Configured, Settings, table_of};
use canopy_store::{
    Direction, Environment, Key, KeyRange, KeyRef, Reader, RecordRef, Scan, SstableCache, TableId,
    TableSnapshot,
};
use std::sync::Arc;

/// A record of a name takes about so many bytes in an SSTable, with its index entries.
const RECORD_BYTES: u64 = 60;

/// The records of a namespace at one moment. Can be shared between threads.
pub struct ReadView {
    records: Records,
    /// Settings of the namespace at that moment.
    pub(crate) configured: Arc<Configured>,
    /// About how many names there are.
    pub(crate) names_estimate: u64,
    /// Where inodes were last seen, maybe not at this moment.
    places: Option<Arc<Places>>,
}

/// The records that are read.
enum Records {
    Table(TableSnapshot),
    Checkpoint(Box<Reader>),
    Tables(Box<Joined>),
}

/// Records of a range, in the order of keys; those of several tables in that order within each part.
pub(crate) enum ViewScan<'a> {
    One(Scan),
    Joined(JoinedScan<'a>),
}

impl ViewScan<'_> {
    /// Goes to the next record and returns it; none at the end.
    #[allow(clippy::should_implement_trait)] // The record borrows from the scan.
    pub(crate) fn next(&mut self) -> Result<Option<RecordRef<'_>>> {
        match self {
            ViewScan::One(scan) => Ok(scan.next()?),
            ViewScan::Joined(scan) => scan.next(),
        }
    }
}

impl Namespace {
    /// Returns the records as they are now. What waits in memory is written to them first.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn view(&self) -> Result<ReadView> {
        self.flush_pending()?;
        let bytes = self.tablet.names_estimate() * RECORD_BYTES;
        let view = ReadView::new(Records::Table(self.table().snapshot()), bytes)?;
        Ok(ReadView { places: Some(self.tablet.places.clone()), ..view })
    }

    /// Returns the records as they were at a checkpoint, until that is released.
    pub(crate) fn view_of(&self, checkpoint: u64) -> Result<ReadView> {
        let (snapshot, bytes) = self.table().at_checkpoint(checkpoint)?;
        match ReadView::new(Records::Table(snapshot.clone()), bytes) {
            // Those of now do, if those of then cannot be read: all else may be.
            Err(error) if error.is_damage() => {
                let (records, configured) = (Records::Table(snapshot), self.tablet.configured());
                let names_estimate = bytes / RECORD_BYTES;
                Ok(ReadView { records, configured, names_estimate, places: None })
            }
            view => view,
        }
    }
}

impl Tablet {
    /// Returns about how many names the table has.
    pub(crate) fn names_estimate(&self) -> u64 {
        let manifest = self.table.manifest();
        let runs: u64 = manifest.state.runs.iter().map(|run| run.size_bytes()).sum();
        (runs + self.table.memtable_bytes() / 4) / RECORD_BYTES
    }
}

impl ReadView {
    /// Returns what the table of the namespace in a storage has in SSTables, at a checkpoint or
    /// else now. Somebody else may have the namespace open.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if there is no namespace, and with `Store` if the table or the
    /// checkpoint is gone or cannot be read.
    pub fn of_table(environment: &Environment, checkpoint: Option<u64>) -> Result<Self> {
        let table = table_of(environment.storage.as_ref())?;
        let cache = SstableCache::new(environment, CACHE_BYTES);
        let reader = Reader::open(environment, table, checkpoint, &cache, &options())?;
        let bytes = reader.manifest().state.runs.iter().map(|run| run.size_bytes()).sum();
        ReadView::new(Records::Checkpoint(Box::new(reader)), bytes)
    }

    /// Returns the tables of a namespace, each with its records at a checkpoint.
    pub(super) fn readers(
        environment: &Environment,
        tables: &[(TableId, u64)],
    ) -> Result<Vec<(TableId, Box<Reader>)>> {
        let cache = SstableCache::new(environment, CACHE_BYTES);
        let open = |(table, checkpoint): &(TableId, u64)| {
            let checkpoint = Some(*checkpoint);
            let reader = Reader::open(environment, *table, checkpoint, &cache, &options())?;
            Ok((*table, Box::new(reader)))
        };
        tables.iter().map(open).collect()
    }

    /// Returns the records of several tables. An index serves if all tables have it.
    pub(super) fn of_joined(joined: Joined) -> Result<Self> {
        let runs = joined.tables().flat_map(|reader| &reader.manifest().state.runs);
        let bytes = runs.map(|run| run.size_bytes()).sum();
        let settings = joined.tables().map(|reader| {
            let settings = Settings::decode(reader.get(keys::settings().as_ref())?.as_deref())?;
            settings.configured()
        });
        let settings = settings.collect::<Result<Vec<_>>>()?;
        let mut view = ReadView::new(Records::Tables(Box::new(joined)), bytes)?;
        if settings.iter().any(|one| one.ready != view.configured.ready) {
            let ready = Indexes::default();
            view.configured = Arc::new(Configured { ready, ..(*view.configured).clone() });
        }
        Ok(view)
    }

    fn new(records: Records, bytes: u64) -> Result<Self> {
        let names_estimate = bytes / RECORD_BYTES;
        let mut view =
            ReadView { records, configured: Arc::default(), names_estimate, places: None };
        let settings = view.get(keys::settings().as_ref())?;
        let settings = Settings::decode(settings.as_deref())?;
        view.configured = Arc::new(settings.configured()?);
        Ok(view)
    }

    pub(crate) fn get(&self, key: KeyRef<'_>) -> Result<Option<Vec<u8>>> {
        Ok(match &self.records {
            Records::Table(snapshot) => snapshot.get(key)?,
            Records::Checkpoint(reader) => reader.get(key)?,
            Records::Tables(joined) => joined.get(key)?,
        })
    }

    pub(crate) fn scan(&self, range: &KeyRange) -> Result<ViewScan<'_>> {
        Ok(match &self.records {
            Records::Table(snapshot) => ViewScan::One(snapshot.scan(range, Direction::Forward)?),
            Records::Checkpoint(reader) => ViewScan::One(reader.scan(range, Direction::Forward)?),
            Records::Tables(joined) => ViewScan::Joined(joined.scan(range)?),
        })
    }

    /// Calls `each` with the keys of a range whose values may differ, and with the value if it is
    /// known, until it returns false. Returns false if the differences cannot be known.
    pub(crate) fn differences(
        &self,
        before: &ReadView,
        range: &KeyRange,
        each: impl FnMut(KeyRef<'_>, Option<&[u8]>) -> bool,
    ) -> Result<bool> {
        match (&before.records, &self.records) {
            (Records::Checkpoint(before), Records::Checkpoint(now)) => {
                Ok(now.differences(before, range, each)?)
            }
            (Records::Tables(before), Records::Tables(now)) => now.differences(before, range, each),
            _ => Ok(false),
        }
    }

    /// Returns whether SSTables have now what they had at this checkpoint, for sure.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` if a manifest is damaged.
    pub fn is_current(&self, environment: &Environment) -> Result<bool> {
        let is_same = |table: TableId, before: &Reader| -> Result<bool> {
            let now = canopy_store::inspect(environment, table)?;
            Ok(now.state.runs == before.manifest().state.runs)
        };
        match &self.records {
            Records::Table(_) => Ok(false),
            Records::Checkpoint(reader) => is_same(table_of(environment.storage.as_ref())?, reader),
            Records::Tables(joined) => {
                for (table, reader) in joined.readers() {
                    if !is_same(*table, reader)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Returns directories with parts in several tables.
    pub(crate) fn split_directories(&self) -> Vec<FileId> {
        match &self.records {
            Records::Tables(joined) => joined.split_directories(),
            Records::Table(_) | Records::Checkpoint(_) => Vec::new(),
        }
    }

    /// Returns what the namespace works by.
    pub fn settings(&self) -> &Settings {
        &self.configured.settings
    }

    /// Returns the root directory.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn root(&self) -> Result<Inode> {
        let root = self.get(keys::root().as_ref())?;
        Inode::decode(&root.ok_or_else(|| Error::corrupt("there is no root"))?)
    }

    /// Returns what a name of a directory stands for; none if there is no such name.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn lookup(&self, directory: FileId, name: &[u8]) -> Result<Option<Inode>> {
        match self.get(keys::name_in(directory, name).as_ref())? {
            Some(value) => self.behind(Inode::decode(&value)?),
            None => Ok(None),
        }
    }

    /// Returns an inode by its id; none if there is none that has a name.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn inode(&self, id: FileId) -> Result<Option<Inode>> {
        match self.first_name(id)? {
            _ if id == ROOT => self.root().map(Some),
            Some((directory, name)) => self.lookup(directory, &name),
            None => Ok(None),
        }
    }

    /// Returns the inode that the record of a name leads to.
    pub(crate) fn behind(&self, found: Inode) -> Result<Option<Inode>> {
        if !found.has(flag::LINKED) {
            return Ok(Some(found));
        }
        let linked = self.get(Space::Links.of(found.id, b"").as_ref())?;
        linked.map(|linked| Inode::decode(&linked)).transpose()
    }

    /// Calls `tell` with the names of a file, each with its directory and its record, until it
    /// returns false. Returns its last result.
    pub(crate) fn records(
        &self,
        id: FileId,
        mut tell: impl FnMut(FileId, &[u8], Inode) -> Result<bool>,
    ) -> Result<bool> {
        let record =
            |key: &Key| self.get(key.as_ref())?.map(|value| Inode::decode(&value)).transpose();
        // To find the names of a file takes several times as long as to read a record.
        let is_only = |found: &Inode| found.id == id && !found.has(flag::LINKED);
        if let Some(key) = self.places.as_ref().and_then(|places| places.get(id))
            && let Some(found) = record(&key)?.filter(is_only)
        {
            return tell(FileId(key.directory), &key.name, found);
        }
        for (directory, name) in self.names(id)? {
            let key = keys::name_in(directory, &name);
            // A copy of an entry that has moved may leave a name of another file.
            let Some(found) = record(&key)?.filter(|found| found.id == id) else { continue };
            if let Some(places) = self.places.as_ref().filter(|_| is_only(&found)) {
                places.insert(id, key);
            }
            if !tell(directory, &name, found)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the names of a file, each with its directory, in the order of directories.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn names(&self, id: FileId) -> Result<Vec<(FileId, Vec<u8>)>> {
        let mut scan = self.scan(&Space::Names.range_of(id))?;
        let mut names = Vec::new();
        while let Some(record) = scan.next()? {
            names.extend(keys::parse_name(record.key.name).map(|(id, name)| (id, name.to_vec())));
        }
        Ok(names)
    }

    /// Returns the first of these names. A file may have very many.
    pub(crate) fn first_name(&self, id: FileId) -> Result<Option<(FileId, Vec<u8>)>> {
        let mut scan = self.scan(&Space::Names.range_of(id))?;
        while let Some(record) = scan.next()? {
            if let Some((parent, name)) = keys::parse_name(record.key.name) {
                return Ok(Some((parent, name.to_vec())));
            }
        }
        Ok(None)
    }

    /// Returns the directory above a directory; the root is above itself.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn parent(&self, directory: FileId) -> Result<FileId> {
        match directory {
            ROOT => Ok(ROOT),
            _ => Ok(self.first_name(directory)?.map_or(directory, |(parent, _)| parent)),
        }
    }

    /// Calls `tell` with the names of a directory and their inodes, in the order of hashes, all or
    /// those behind one of them, until it returns false.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn list(
        &self,
        directory: FileId,
        after: Option<&[u8]>,
        mut tell: impl FnMut(&[u8], Inode) -> bool,
    ) -> Result<()> {
        let mut range = keys::names_in(directory);
        if let Some(name) = after {
            range.start = keys::name_in(directory, name).successor();
        }
        let mut scan = self.scan(&range)?;
        while let Some(record) = scan.next()? {
            let Some(inode) = self.behind(Inode::decode(record.value)?)? else { continue };
            if !tell(record.key.name, inode) {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether a directory has no names.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn is_empty(&self, directory: FileId) -> Result<bool> {
        Ok(self.scan(&keys::names_in(directory))?.next()?.is_none())
    }

    /// Calls `tell` with the names and values of a file's extended attributes, sorted by name.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn xattrs(&self, id: FileId, mut tell: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let mut scan = self.scan(&Space::Xattrs.range_of(id))?;
        while let Some(record) = scan.next()? {
            tell(record.key.name, record.value);
        }
        Ok(())
    }

    /// Returns the value of a file's extended attribute, if it has one of this name.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(Space::Xattrs.of(id, name).as_ref())
    }
}

//! An open namespace: what it keeps in memory, and how it is read. Everything that changes it is in
//! `records/change.rs`, and holds `writer`.
//!
//! Locks are taken in this order: `setting`, `snapshotting`, `Contents::changing`, an open file's
//! contents, `writer`, and one at a time of the others, which are held for moments.

use crate::contents::Contents;
use crate::contents::chunks::ChunkStore;
use crate::error::{Error, Result};
use crate::operation::PastFiles;
use crate::quota::Accounts;
use crate::records::inode::{self, Frequent, Inode, flag};
use crate::records::keys::{self, FileId, ROOT, Space};
use crate::records::places::Places;
use crate::records::xattrs::Labels;
use crate::settings::{Configured, Settings, declare, table_of};
use crate::snapshot::snapshots::Snapshots;
use canopy_store::{
    Batch, Direction, Durability, Environment, Key, Options, SstableCache, Table, create,
};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// So many bytes of SSTables' blocks stay in memory.
pub(crate) const CACHE_BYTES: u64 = 256 << 20;

/// Ids are taken from the table so many at a time.
const IDS: u64 = 1 << 16;

/// Returns nanoseconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A namespace that this process has open. Calls come from any number of threads.
pub struct Namespace {
    pub(crate) table: Arc<Table>,
    pub(crate) configured: RwLock<Arc<Configured>>,
    pub(crate) clock: Clock,
    pub(crate) writer: Mutex<Writer>,
    /// Inodes whose times and sizes are newer here than in their records. Every other change of an
    /// inode writes its record and takes it out of here.
    pub(crate) pending: RwLock<HashMap<FileId, Inode>>,
    /// Counts the inodes that were taken out of `pending`.
    pub(crate) flushes: AtomicU64,
    pub(crate) contents: Contents,
    /// Where inodes were last seen.
    pub(crate) places: Arc<Places>,
    held: Held,
    /// Files without a name that are held.
    pub(crate) orphans: Mutex<HashSet<FileId>>,
    /// Whether there may be objects of files that a crash took away.
    pub(crate) has_strays: AtomicBool,
    /// Whether leftovers of a crash stay, as nothing on the disk is changed.
    pub(crate) leaves_strays: bool,
    /// The known state of SELinux labels.
    pub(crate) labels: Labels,
    /// Held by a thread that has space of removed files given back at once.
    pub(crate) reclaiming: Mutex<()>,
    /// Whether objects were doomed since it was last looked whether there is little space.
    pub(crate) has_doomed: AtomicBool,
    /// Counts the files that lost their last name.
    pub(crate) removals: AtomicU64,
    pub(crate) accounts: Arc<Accounts>,
    /// Held by who changes quotas, before the writer's lock.
    pub(crate) setting: Mutex<()>,
    /// The snapshots that there are.
    pub(crate) snapshots: RwLock<Arc<Snapshots>>,
    /// Held by who makes or deletes one.
    pub(crate) snapshotting: Mutex<()>,
    /// Files of snapshots that are open by handles.
    pub(crate) past_files: PastFiles,
}

/// What only one thread at a time needs.
pub(crate) struct Writer {
    pub(crate) next_id: FileId,
    /// Ids below are ours.
    ids_end: FileId,
}

/// How often each file is held: by its id, in parts so that threads seldom meet.
struct Held([Mutex<HashMap<FileId, u64>>; 16]);

impl Held {
    fn part(&self, id: FileId) -> &Mutex<HashMap<FileId, u64>> {
        &self.0[(id.0 % 16) as usize]
    }
}

/// Returns the system's time.
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX)
    })
}

/// Returns how the engine works for a namespace.
pub(crate) fn options() -> Options {
    Options { operator: Some(Arc::new(Frequent)), ..Options::default() }
}

/// Makes an empty namespace in a storage that has none. Its root belongs to `uid` and `gid`.
///
/// # Errors
///
/// Fails with `Invalid` if there is a namespace already, and as [`canopy_store::create`] does.
pub fn create_namespace(
    environment: &Environment,
    settings: &Settings,
    (uid, gid): (u32, u32),
    clock: &Clock,
) -> Result<()> {
    let id = create(environment, inode::layout(), &options())?;
    let cache = SstableCache::new(environment, CACHE_BYTES);
    let table = Table::open(environment, id, cache, options())?;
    let now_ns = clock();
    let mode = inode::file_type::DIRECTORY | 0o755;
    let mut root = Inode { mode, uid, gid, nlink: 2, id: ROOT, ..Inode::default() };
    (root.mtime_ns, root.ctime_ns, root.atime_ns, root.btime_ns) = (now_ns, now_ns, now_ns, now_ns);
    let mut batch = Batch::new();
    batch.put(keys::root().as_ref(), &root.encode())?;
    batch.put(keys::settings().as_ref(), &settings.encode()?)?;
    table.write(&batch, Durability::Durable)?;
    drop(table);
    declare(environment.storage.as_ref(), id)
}

impl Namespace {
    /// Opens the namespace of a storage. Contents that are too large for records lie in
    /// `contents`, a directory. What a crash left without a name is removed.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if there is no namespace or its format is another one, with `Store` if
    /// another process has it, and with `CacheInUse`. Fails as the table and the disk do.
    pub fn open(environment: &Environment, contents: Contents, clock: Clock) -> Result<Self> {
        let id = table_of(environment.storage.as_ref())?;
        let cache = SstableCache::new(environment, CACHE_BYTES);
        let table = Table::open(environment, id, cache.clone(), options())?;
        Self::of((environment, table, cache), contents, clock)
    }

    /// Opens the namespace of a storage and changes nothing on the disk, so that it needs no room
    /// there: what a crash left undone is done in memory. Nobody else may have it open. If contents
    /// lie in storage, or storage has no locks, it is opened as by [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// Fails as [`open`](Self::open) does.
    pub fn open_read_only(
        environment: &Environment,
        contents: Contents,
        clock: Clock,
    ) -> Result<Self> {
        let id = table_of(environment.storage.as_ref())?;
        let cache = SstableCache::new(environment, CACHE_BYTES);
        if let Some(table) = Table::open_read_only(environment, id, cache.clone(), options())? {
            let settings = table.get(keys::settings().as_ref())?;
            if Settings::decode(settings.as_deref())?.chunk_bytes == 0 {
                return Self::of((environment, table, cache), contents, clock);
            }
        }
        Self::open(environment, contents, clock)
    }

    fn of(
        (environment, table, cache): (&Environment, Table, Arc<SstableCache>),
        contents: Contents,
        clock: Clock,
    ) -> Result<Self> {
        let contents = contents.with_access(!table.is_read_only());
        let table = Arc::new(table);
        let found = table.get(keys::settings().as_ref())?;
        let settings = Settings::decode(found.as_deref())?;
        let next_id = match table.get(keys::ids().as_ref())? {
            Some(bytes) => keys::parse_ids(&bytes).ok_or_else(|| Error::corrupt("the ids"))?,
            None => ROOT.next(),
        };
        let accounts = Arc::new(Accounts::open(&table)?);
        if settings.chunk_bytes > 0 {
            let engine = (table.clone(), cache);
            let place = (contents.directory(), contents.cache_bytes());
            let chunks = ChunkStore::new(environment, engine, place, settings.chunk_bytes)?;
            contents.use_chunks(chunks);
        }
        let was_open = table.get(keys::open().as_ref())?.is_some();
        let mut batch = Batch::new();
        batch.put(keys::open().as_ref(), b"")?;
        table.write(&batch, Durability::Durable)?;
        let namespace = Namespace {
            configured: RwLock::new(Arc::new(settings.configured()?)),
            clock,
            writer: Mutex::new(Writer { next_id, ids_end: next_id }),
            pending: RwLock::default(),
            flushes: AtomicU64::new(0),
            contents,
            places: Arc::new(Places::new()),
            held: Held(Default::default()),
            orphans: Mutex::default(),
            has_strays: AtomicBool::new(was_open),
            leaves_strays: was_open && table.is_read_only(),
            table,
            labels: Labels::default(),
            reclaiming: Mutex::new(()),
            has_doomed: AtomicBool::new(false),
            removals: AtomicU64::new(0),
            accounts,
            setting: Mutex::default(),
            snapshots: RwLock::default(),
            snapshotting: Mutex::new(()),
            past_files: PastFiles::default(),
        };
        namespace.open_snapshots()?;
        namespace.finish_restoring()?;
        namespace.recover()?;
        Ok(namespace)
    }

    /// Returns the table that has the records.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns what the namespace works by.
    pub fn settings(&self) -> Settings {
        self.configured().settings.clone()
    }

    pub(crate) fn configured(&self) -> Arc<Configured> {
        self.configured.read().clone()
    }

    /// Returns nanoseconds since 1970, as they are written into times.
    pub fn now_ns(&self) -> i64 {
        (self.clock)()
    }

    /// Returns the inode that a record has.
    pub(crate) fn record(&self, key: &Key) -> Result<Option<Inode>> {
        let value = self.table.get(key.as_ref())?;
        value.map(|value| Inode::decode(&value)).transpose()
    }

    /// Gives an inode the times and the size that are not in its record yet.
    pub(crate) fn overlay(&self, inode: &mut Inode) {
        if let Some(pending) = self.pending.read().get(&inode.id) {
            inode.size = pending.size;
            inode.blocks = pending.blocks;
            inode.mtime_ns = pending.mtime_ns;
            inode.ctime_ns = pending.ctime_ns;
            inode.atime_ns = pending.atime_ns;
        }
        self.contents.overlay(inode);
    }

    /// Returns how often what was newer in memory went into records.
    pub(crate) fn settlements(&self) -> (u64, u64) {
        (self.flushes.load(Ordering::Acquire), self.contents.closed.load(Ordering::Acquire))
    }

    /// Reads a record and what is newer in memory as one: between the two, the latter may have gone
    /// into the former.
    fn reading(&self, read: impl Fn() -> Result<Inode>) -> Result<Inode> {
        for _ in 0..4 {
            let before = self.settlements();
            let found = read()?;
            if self.settlements() == before {
                return Ok(found);
            }
        }
        let _writer = self.writer.lock();
        read()
    }

    /// Returns the inode of a name.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name, with `NAMETOOLONG` or `INVAL` if no file can be
    /// called so, and as the table does.
    pub fn lookup(&self, parent: FileId, name: &[u8]) -> Result<Inode> {
        check_name(name)?;
        self.reading(|| self.lookup_now(parent, name))
    }

    fn lookup_now(&self, parent: FileId, name: &[u8]) -> Result<Inode> {
        let key = keys::name_in(parent, name);
        let Some(mut found) = self.record(&key)? else { return Err(Errno::NOENT.into()) };
        if found.has(flag::LINKED) {
            let linked = self.record(&Space::Links.of(found.id, b""))?;
            // Its last name may have gone between the two.
            found = linked.ok_or(Errno::NOENT)?;
        } else {
            self.places.insert(found.id, key);
        }
        self.overlay(&mut found);
        Ok(found)
    }

    /// Returns an inode as it is now.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does.
    pub fn inode(&self, id: FileId) -> Result<Inode> {
        self.reading(|| self.inode_now(id))
    }

    /// Does the same for who has the writer's lock.
    pub(crate) fn inode_now(&self, id: FileId) -> Result<Inode> {
        let (_, mut inode) = self.locate(id)?;
        self.overlay(&mut inode);
        Ok(inode)
    }

    /// Returns an inode, which must be a directory that has not been removed, for who has the writer's
    /// lock.
    pub(crate) fn directory(&self, id: FileId) -> Result<Inode> {
        if let Some(pending) = self.pending.read().get(&id) {
            return check_directory(pending.clone());
        }
        check_directory(self.inode_now(id)?)
    }

    /// Returns where the record of an inode lies, and the inode that it has.
    pub(crate) fn locate(&self, id: FileId) -> Result<(Key, Inode)> {
        if id == ROOT {
            let root = self.record(&keys::root())?;
            return Ok((keys::root(), root.ok_or_else(|| Error::corrupt("there is no root"))?));
        }
        if let Some(key) = self.places.get(id) {
            let found = self.record(&key)?.filter(|found| found.id == id);
            if let Some(found) = found.filter(|found| !found.has(flag::LINKED)) {
                return Ok((key, found));
            }
        }
        // A rename between two of the steps below hides a file that is there.
        for _ in 0..3 {
            if let Some((parent, name)) = self.names(id)?.into_iter().next() {
                let key = keys::name_in(parent, &name);
                let found = self.record(&key)?.filter(|found| found.id == id);
                if let Some(found) = found.filter(|found| !found.has(flag::LINKED)) {
                    self.places.insert(id, key.clone());
                    return Ok((key, found));
                }
            }
            for space in [Space::Links, Space::Orphans] {
                let key = space.of(id, b"");
                if let Some(found) = self.record(&key)? {
                    return Ok((key, found));
                }
            }
        }
        Err(Errno::NOENT.into())
    }

    /// Returns the names of a file, each with its directory, in the order of directories.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn names(&self, id: FileId) -> Result<Vec<(FileId, Vec<u8>)>> {
        let mut scan = self.table.scan(&Space::Names.range_of(id), Direction::Forward)?;
        let mut names = Vec::new();
        while let Some(record) = scan.next()? {
            let (parent, name) = keys::parse_name(record.key.name)
                .ok_or_else(|| Error::corrupt(format!("a name of file {id}")))?;
            names.push((parent, name.to_vec()));
        }
        Ok(names)
    }

    /// Returns the directory above a directory; the root is above itself.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn parent(&self, directory: FileId) -> Result<FileId> {
        match directory {
            ROOT => Ok(ROOT),
            _ => Ok(self.names(directory)?.first().map_or(directory, |(parent, _)| *parent)),
        }
    }

    /// Returns the path of a file below the root, without a slash at its beginning; the first one,
    /// if it has several. None if it has no name any more.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn path(&self, id: FileId) -> Result<Option<Vec<u8>>> {
        let (mut names, mut at) = (Vec::new(), id);
        while at != ROOT {
            let Some((parent, name)) = self.names(at)?.into_iter().next() else { return Ok(None) };
            names.push(name);
            at = parent;
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }

    /// Returns the path of a file for people, as far as names are known.
    pub(crate) fn shown_path(&self, id: FileId) -> Option<String> {
        let path = self.path(id).ok().flatten()?;
        let is_plain = |text: &&str| !text.chars().any(char::is_control);
        let text = std::str::from_utf8(&path).ok().filter(is_plain);
        Some(format!("/{}", text.map_or_else(|| path.escape_ascii().to_string(), str::to_owned)))
    }

    /// Returns a sentence about a file with its path in front, as far as names are known.
    pub(crate) fn about(&self, id: FileId, what: &str) -> String {
        self.shown_path(id).map_or_else(|| what.to_owned(), |path| format!("{path}: {what}"))
    }

    /// Returns where a symbolic link leads.
    ///
    /// # Errors
    ///
    /// Fails with `INVAL` if the file is not a symbolic link, with `NOENT` if there is none, and as
    /// the table does.
    pub fn readlink(&self, id: FileId) -> Result<Vec<u8>> {
        let inode = self.inode(id)?;
        match inode.file_type() {
            inode::file_type::SYMLINK => Ok(inode.target),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Returns whether a directory has no names.
    pub(crate) fn is_empty(&self, directory: FileId) -> Result<bool> {
        let range = keys::names_in(directory);
        Ok(self.table.scan(&range, Direction::Forward)?.next()?.is_none())
    }

    /// Looks a name up and holds the file: it stays, nameless if need be, until it is released.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name, with `NAMETOOLONG` or `INVAL` if no file can be
    /// called so, and as the table does.
    pub fn lookup_held(&self, parent: FileId, name: &[u8]) -> Result<Inode> {
        loop {
            let removals = self.removals.load(Ordering::Acquire);
            let found = self.lookup(parent, name)?;
            self.hold(found.id);
            if self.removals.load(Ordering::Acquire) == removals {
                return Ok(found);
            }
            self.release(found.id, 1)?;
        }
    }

    /// Holds a file that the caller knows to be there.
    pub fn hold(&self, id: FileId) {
        *self.held.part(id).lock().entry(id).or_default() += 1;
    }

    /// Returns whether anybody holds a file.
    pub(crate) fn is_held(&self, id: FileId) -> bool {
        self.held.part(id).lock().contains_key(&id)
    }

    /// Takes back what `hold` did so many times; a file without a name goes with the last.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn release(&self, id: FileId, times: u64) -> Result<()> {
        {
            let mut held = self.held.part(id).lock();
            let Some(count) = held.get_mut(&id) else { return Ok(()) };
            *count = count.saturating_sub(times);
            if *count > 0 {
                return Ok(());
            }
            held.remove(&id);
        }
        let is_orphan = self.orphans.lock().contains(&id);
        if is_orphan { self.remove_orphan(id) } else { Ok(()) }
    }

    /// Makes everything outlast a crash, does what an earlier crash has left undone, notes that
    /// nothing was, and has SSTables take it all, so that others read it without opening the
    /// namespace. To be called last. After an error, nothing is lost: the log has it.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn close(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.sync()?;
        let swept = self.remove_strays();
        let chunks = self.contents.chunks();
        let is_uncertain = chunks.is_some_and(|chunks| chunks.collecting.lock().is_uncertain);
        if !is_uncertain && !self.has_strays() {
            let mut batch = Batch::new();
            batch.delete(keys::open().as_ref())?;
            self.table.write(&batch, Durability::Durable)?;
        }
        self.table.flush()?;
        swept
    }

    /// Returns whether nothing is changed on the disk.
    pub fn is_read_only(&self) -> bool {
        self.table.is_read_only()
    }

    /// Returns whether a crash has left objects that were not looked at yet, from which files may get
    /// other sizes and times than they have now.
    pub fn has_strays(&self) -> bool {
        self.has_strays.load(Ordering::Acquire)
    }

    /// Makes what happened so far outlast a crash.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn sync(&self) -> Result<()> {
        let flushed = self.flush_pending();
        self.table.sync()?;
        self.settle()?;
        self.collect_if_due()?;
        flushed
    }
}

impl Writer {
    /// Returns an id that no file ever had.
    pub(crate) fn new_id(&mut self, table: &Table) -> Result<FileId> {
        // What was taken and given up again may lie beyond.
        if self.next_id >= self.ids_end {
            let end = FileId(self.next_id.0.saturating_add(IDS));
            let (mut batch, ids_end) = (Batch::new(), self.ids_end);
            self.put_end(&mut batch, end)?;
            if let Err(error) = table.write(&batch, Durability::Visible) {
                // A file with an id that is not recorded could lose it to another one.
                self.ids_end = ids_end;
                return Err(error.into());
            }
        }
        self.take_ids(1).map(|ids| ids.start)
    }

    /// Returns ids that no file ever had. Before anybody sees them, the table must have been told
    /// where ids end.
    pub(crate) fn take_ids(&mut self, count: u64) -> Result<Range<FileId>> {
        let start = self.next_id;
        let end = FileId(start.0.saturating_add(count));
        if end > FileId::MAX {
            return Err(Errno::NOSPC.into());
        }
        self.next_id = end;
        Ok(start..end)
    }

    /// Adds to `batch`, which is to be written, that all ids taken so far are, and those below
    /// `end`.
    pub(crate) fn put_end(&mut self, batch: &mut Batch, end: FileId) -> Result<()> {
        if end > FileId::MAX {
            return Err(Errno::NOSPC.into());
        }
        self.ids_end = end.max(self.next_id).max(self.ids_end);
        Ok(batch.put(keys::ids().as_ref(), &self.ids_end.to_be_bytes())?)
    }
}

fn check_directory(inode: Inode) -> Result<Inode> {
    match (inode.is_directory(), inode.nlink) {
        (false, _) => Err(Errno::NOTDIR.into()),
        (true, 0) => Err(Errno::NOENT.into()),
        (true, _) => Ok(inode),
    }
}

/// Returns an error for what is no name.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] => Err(Errno::NOENT.into()),
        _ if name.len() > NAME_BYTES_MAX => Err(Errno::NAMETOOLONG.into()),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL.into()),
        _ => Ok(()),
    }
}

//! An open namespace: a tablet with its records, contents of files, quotas and snapshots. Everything
//! that changes names and attributes is in `records/change.rs`, and holds the tablet's `writer`.
//!
//! Locks are taken in this order: `setting`, `snapshotting`, `Contents::changing`, an open file's
//! contents, `writer`, and one at a time of the others, which are held for moments.

use crate::contents::Contents;
use crate::contents::chunks::ChunkStore;
use crate::error::Result;
use crate::operation::PastFiles;
use crate::quota::Accounts;
use crate::records::inode::{self, Frequent, Inode};
use crate::records::keys::{self, FileId, ROOT};
use crate::records::tablet::Tablet;
use crate::records::xattrs::Labels;
use crate::settings::{Configured, Settings, declare, table_of};
use crate::snapshot::snapshots::Snapshots;
use canopy_store::{Batch, Durability, Environment, Options, SstableCache, Table, create};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// So many bytes of SSTables' blocks stay in memory.
pub(crate) const CACHE_BYTES: u64 = 256 << 20;

/// Returns nanoseconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A namespace that this process has open. Calls come from any number of threads.
pub struct Namespace {
    pub(crate) tablet: Tablet,
    pub(crate) configured: RwLock<Arc<Configured>>,
    pub(crate) clock: Clock,
    pub(crate) contents: Contents,
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
        let tablet = Tablet::new(table.clone())?;
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
            contents,
            has_strays: AtomicBool::new(was_open),
            leaves_strays: was_open && table.is_read_only(),
            tablet,
            labels: Labels::default(),
            reclaiming: Mutex::new(()),
            has_doomed: AtomicBool::new(false),
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
        &self.tablet.table
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

    /// Gives an inode the times and the size that are not in its record yet.
    pub(crate) fn overlay(&self, inode: &mut Inode) {
        self.tablet.overlay(inode);
        self.contents.overlay(inode);
    }

    /// Returns how often what was newer in memory went into records.
    pub(crate) fn settlements(&self) -> (u64, u64) {
        (self.tablet.flushes.load(Ordering::Acquire), self.contents.closed.load(Ordering::Acquire))
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
        let _writer = self.tablet.writer.lock();
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
        let found = self.tablet.recorded(keys::name_in(parent, name))?;
        let mut found = found.ok_or(Errno::NOENT)?;
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
        let (_, mut inode) = self.tablet.locate(id)?;
        self.overlay(&mut inode);
        Ok(inode)
    }

    /// Returns an inode, which must be a directory that has not been removed, for who has the writer's
    /// lock.
    pub(crate) fn directory(&self, id: FileId) -> Result<Inode> {
        if let Some(pending) = self.tablet.pending.read().get(&id) {
            return check_directory(pending.clone());
        }
        check_directory(self.inode_now(id)?)
    }

    /// Returns the names of a file, each with its directory, in the order of directories.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn names(&self, id: FileId) -> Result<Vec<(FileId, Vec<u8>)>> {
        self.tablet.names(id)
    }

    /// Returns the directory above a directory; the root is above itself.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn parent(&self, directory: FileId) -> Result<FileId> {
        self.tablet.parent(directory)
    }

    /// Returns the path of a file below the root, without a slash at its beginning; the first one,
    /// if it has several. None if it has no name any more.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn path(&self, id: FileId) -> Result<Option<Vec<u8>>> {
        self.tablet.path(id)
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

    /// Looks a name up and holds the file: it stays, nameless if need be, until it is released.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name, with `NAMETOOLONG` or `INVAL` if no file can be
    /// called so, and as the table does.
    pub fn lookup_held(&self, parent: FileId, name: &[u8]) -> Result<Inode> {
        loop {
            let removals = self.tablet.removals.load(Ordering::Acquire);
            let found = self.lookup(parent, name)?;
            self.hold(found.id);
            if self.tablet.removals.load(Ordering::Acquire) == removals {
                return Ok(found);
            }
            self.release(found.id, 1)?;
        }
    }

    /// Holds a file that the caller knows to be there.
    pub fn hold(&self, id: FileId) {
        self.tablet.hold(id);
    }

    /// Takes back what `hold` did so many times; a file without a name goes with the last.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn release(&self, id: FileId, times: u64) -> Result<()> {
        if self.tablet.let_go(id, times) { self.remove_orphan(id) } else { Ok(()) }
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
            self.tablet.table.write(&batch, Durability::Durable)?;
        }
        self.tablet.table.flush()?;
        swept
    }

    /// Returns whether nothing is changed on the disk.
    pub fn is_read_only(&self) -> bool {
        self.tablet.table.is_read_only()
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
        self.tablet.table.sync()?;
        self.settle()?;
        self.collect_if_due()?;
        flushed
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

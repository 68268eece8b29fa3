//! An open namespace: a tablet that holds all names, and the rooms beside it for contents of files,
//! quotas and snapshots. Each change of names and attributes holds the tablet's `writer`.
//!
//! Locks are taken in this order: `setting`, `snapshotting`, `Contents::changing`, an open file's
//! contents, `reserving_ids`, `writer`, and one at a time of the others, which are held for moments.

pub use crate::clock::{Clock, system_clock};

use crate::contents::Contents;
use crate::contents::chunks::ChunkStore;
use crate::error::Result;
use crate::operation::PastFiles;
use crate::records::inode::{self, Inode, flag};
use crate::records::keys::{self, FileId, ROOT};
use crate::records::range::TabletRange;
use crate::records::tablet::{CACHE_BYTES, Tablet, options};
use crate::settings::{Settings, declare, table_of};
use crate::snapshot::snapshots::Snapshots;
use canopy_model::Ownership;
use canopy_store::{Batch, Durability, Environment, SstableCache, Table, TableId, create};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A namespace that this process has open. Calls come from any number of threads.
pub struct Namespace {
    pub(crate) tablet: Tablet,
    pub(crate) contents: Arc<Contents>,
    /// Whether there may be objects of files that a crash took away.
    pub(crate) has_strays: AtomicBool,
    /// Whether leftovers of a crash stay, as nothing on the disk is changed.
    pub(crate) leaves_strays: bool,
    /// Held by a thread that has space of removed files given back at once.
    pub(crate) reclaiming: Mutex<()>,
    /// How often the space of removed files was given back.
    pub(crate) reclaims: AtomicU64,
    /// Held by who changes quotas, before the writer's lock.
    pub(crate) setting: Mutex<()>,
    /// The snapshots that there are.
    pub(crate) snapshots: RwLock<Arc<Snapshots>>,
    /// Held by who makes or deletes one.
    pub(crate) snapshotting: Mutex<()>,
    /// Files of snapshots that are open by handles.
    pub(crate) past_files: PastFiles,
}

/// Makes an empty namespace in a storage that has none. Its root belongs to `owner`.
///
/// # Errors
///
/// Fails with `Invalid` if there is a namespace already, and as [`canopy_store::create`] does.
pub fn create_namespace(
    environment: &Environment,
    settings: &Settings,
    owner: Ownership,
    clock: &Clock,
) -> Result<()> {
    let id = create_table(environment, settings, owner, clock, true)?;
    declare(environment.storage.as_ref(), id)
}

/// Makes a table with an empty root that belongs to `owner`. It is the namespace of its storage only
/// once it is declared so. If several tables make up a namespace, the first one has the root's first
/// partition.
///
/// # Errors
///
/// Fails as [`canopy_store::create`] does.
pub fn create_table(
    environment: &Environment,
    settings: &Settings,
    owner: Ownership,
    clock: &Clock,
    is_first: bool,
) -> Result<TableId> {
    make_table(environment, settings, owner, clock, (!is_first).then_some(flag::FURTHER), false)
}

/// Makes a table that joins others of a namespace later. It has a note that it is new
/// ([`Tablet::is_new`]).
///
/// # Errors
///
/// Fails as [`canopy_store::create`] does.
pub fn create_added_table(
    environment: &Environment,
    settings: &Settings,
    owner: Ownership,
    clock: &Clock,
) -> Result<TableId> {
    make_table(environment, settings, owner, clock, Some(flag::FURTHER), true)
}

fn make_table(
    environment: &Environment,
    settings: &Settings,
    owner: Ownership,
    clock: &Clock,
    flags: Option<u32>,
    is_new: bool,
) -> Result<TableId> {
    let id = create(environment, inode::layout(), &options())?;
    let cache = SstableCache::new(environment, CACHE_BYTES);
    let table = Table::open(environment, id, cache, options())?;
    let mut batch = Batch::new();
    put_first_records(&mut batch, settings, owner, clock(), flags.unwrap_or_default())?;
    if is_new {
        batch.put(keys::new().as_ref(), b"")?;
    }
    table.write(&batch, Durability::Durable)?;
    Ok(id)
}

/// Adds to `batch` the records of an empty table: the root, and settings.
pub(crate) fn put_first_records(
    batch: &mut Batch,
    settings: &Settings,
    owner: Ownership,
    now_ns: i64,
    flags: u32,
) -> Result<()> {
    let mode = inode::file_type::DIRECTORY | 0o755;
    let Ownership { uid, gid } = owner;
    let mut root = Inode { mode, uid, gid, nlink: 2, id: ROOT, flags, ..Inode::default() };
    (root.mtime_ns, root.ctime_ns, root.atime_ns, root.btime_ns) = (now_ns, now_ns, now_ns, now_ns);
    batch.put(keys::root().as_ref(), &root.encode())?;
    Ok(batch.put(keys::settings().as_ref(), &settings.encode()?)?)
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
        Self::of(environment, table, cache, contents, clock)
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
                return Self::of(environment, table, cache, contents, clock);
            }
        }
        Self::open(environment, contents, clock)
    }

    fn of(
        environment: &Environment,
        table: Table,
        cache: Arc<SstableCache>,
        contents: Contents,
        clock: Clock,
    ) -> Result<Self> {
        let contents = Arc::new(contents.with_access(!table.is_read_only()));
        let table = Arc::new(table);
        let tablet = Tablet::new(table.clone(), TabletRange::All, clock, contents.clone())?;
        let chunk_bytes = tablet.configured().settings.chunk_bytes;
        if chunk_bytes > 0 {
            let chunks = ChunkStore::new(
                environment,
                table.clone(),
                cache,
                contents.directory(),
                contents.cache_bytes(),
                chunk_bytes,
            )?;
            contents.use_chunks(chunks);
        }
        let was_open = table.get(keys::open().as_ref())?.is_some();
        let mut batch = Batch::new();
        batch.put(keys::open().as_ref(), b"")?;
        table.write(&batch, Durability::Durable)?;
        let namespace = Namespace {
            contents,
            has_strays: AtomicBool::new(was_open),
            leaves_strays: was_open && table.is_read_only(),
            tablet,
            reclaiming: Mutex::new(()),
            reclaims: AtomicU64::new(0),
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
        self.tablet.settings()
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

//! A namespace whose contents are chunks in memory, in storage that fails when a test says so.

use bytes::Bytes;
use canopy_namespace::inode::file_type;
use canopy_namespace::{
    Contents, FileId, Namespace, New, Opened, Ownership, Privileges, ROOT, Settings,
    create_namespace, system_clock,
};
use canopy_store::storage::{Append, Created, Listed, MemoryStorage, Storage};
use canopy_store::{Environment, Error, Result};
use parking_lot::{Mutex, RwLock};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

pub const CHUNK: usize = 4096;

/// Storage in memory that may make chunks and say that it did not.
#[derive(Default)]
pub struct Failing {
    inner: MemoryStorage,
    pub fails: AtomicBool,
    /// Fails for the chunks that have this byte first, and makes none.
    pub refuses: Mutex<Option<u8>>,
    /// How many chunks were made.
    pub made: Mutex<Vec<String>>,
    /// Whoever makes chunks waits while a test writes this.
    pub held: RwLock<()>,
}

impl Storage for Failing {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.inner.read_range(name, range)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.inner.read(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        if !name.contains("/chunk/") {
            return self.inner.create(name, bytes);
        }
        let _held = self.held.read();
        let failed = || Error::storage(name, std::io::Error::other("no answer"));
        if self.refuses.lock().is_some_and(|byte| bytes.first() == Some(&byte)) {
            return Err(failed());
        }
        let created = self.inner.create(name, bytes)?;
        self.made.lock().push(name.into());
        if self.fails.load(Ordering::Relaxed) { Err(failed()) } else { Ok(created) }
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.inner.list(prefix, after)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn append_to(&self, _: &str) -> Result<Option<Box<dyn Append>>> {
        Ok(None)
    }

    fn lock(&self, _: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}

pub struct Fixture {
    pub storage: Arc<Failing>,
    pub environment: Environment,
    pub cache: TempDir,
    pub namespace: Option<Namespace>,
}

impl Fixture {
    pub fn new() -> Self {
        let storage = Arc::new(Failing::default());
        let environment = Environment::system(storage.clone());
        let settings = Settings { chunk_bytes: CHUNK as u64, ..Settings::default() };
        create_namespace(&environment, &settings, Ownership::ROOT, &system_clock())
            .expect("a namespace");
        let cache = tempfile::tempdir().expect("a directory");
        let mut place = Fixture { storage, environment, cache, namespace: None };
        place.open_anew();
        place
    }

    /// The same storage without the objects for which `is_lost` holds, opened as after a crash.
    pub fn without(&self, is_lost: impl Fn(&str) -> bool) -> Self {
        let storage = Arc::new(Failing::default());
        for object in self.storage.list("", "").expect("objects") {
            if !is_lost(&object.name) {
                let bytes = self.storage.read(&object.name).expect("bytes");
                storage.inner.create(&object.name, bytes).expect("an object");
            }
        }
        let environment = Environment::system(storage.clone());
        let cache = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let mut place = Fixture { storage, environment, cache, namespace: None };
        place.namespace = Some(place.opened().expect("a namespace"));
        place
    }

    /// Opens the namespace with a cache in memory: for very many chunks.
    pub fn open_in_memory(&mut self) {
        self.namespace = None;
        self.cache = tempfile::tempdir_in("/dev/shm").expect("a directory");
        self.namespace = Some(self.opened().expect("a namespace"));
    }

    /// The segments of the log.
    pub fn segments(&self) -> Vec<String> {
        let prefix = format!("{}/log/", self.namespace().table().id());
        let listed = self.storage.list(&prefix, "").expect("objects");
        listed.into_iter().map(|one| one.name).collect()
    }

    /// Opens the namespace as if the process before had died, and its cache were lost.
    pub fn open_anew(&mut self) {
        self.namespace = None;
        self.cache = tempfile::tempdir().expect("a directory");
        self.namespace = Some(self.opened().expect("a namespace"));
    }

    /// Opens the namespace, which is not open, with the cache that it had.
    pub fn opened(&self) -> canopy_namespace::Result<Namespace> {
        let contents = Contents::new(self.cache.path()).expect("contents");
        Namespace::open(&self.environment, contents, system_clock())
    }

    /// The cache of this namespace.
    pub fn cached(&self) -> std::path::PathBuf {
        let mut found = Path::new(self.cache.path()).read_dir().expect("a directory");
        found.next().expect("a cache").expect("a cache").path()
    }

    pub fn namespace(&self) -> &Namespace {
        self.namespace.as_ref().expect("a namespace")
    }

    pub fn create(&self, name: &str) -> Arc<Opened> {
        let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
        let made = self.namespace().create(ROOT, name.as_bytes(), &new, false);
        self.open(made.expect("a file").id)
    }

    pub fn open(&self, id: FileId) -> Arc<Opened> {
        self.namespace().open_file(id).expect("a file")
    }

    pub fn write(&self, opened: &Opened, offset: usize, byte: u8, count: usize) {
        let (bytes, offset) = (vec![byte; count], Some(offset as u64));
        self.namespace().write(opened, offset, &bytes, Privileges::Keep).expect("a write");
    }

    pub fn sync(&self, opened: &Arc<Opened>) {
        self.namespace().sync_file(opened).expect("a sync");
    }

    pub fn collect(&self) {
        self.namespace().sync().expect("a sync");
        self.namespace().collect().expect("a collection");
    }

    /// The objects of chunks that there are.
    pub fn objects(&self) -> Vec<String> {
        let prefix = format!("{}/chunk/", self.namespace().table().id());
        let listed = self.storage.list(&prefix, "").expect("objects");
        listed.into_iter().map(|one| one.name).collect()
    }

    pub fn faults(&self) -> Vec<String> {
        let faults = self.namespace().check_contents(|_| {}).expect("a check");
        faults.into_iter().map(|fault| fault.what).collect()
    }
}

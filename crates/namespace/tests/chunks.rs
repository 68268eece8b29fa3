//! Contents as chunks in storage: which objects there are and when they go, storage that fails, and
//! objects that are damaged.

use bytes::Bytes;
use canopy_namespace::inode::file_type;
use canopy_namespace::{
    Contents, FileId, Namespace, New, Opened, Privileges, ROOT, Settings, create_namespace,
    system_clock,
};
use canopy_store::storage::{Append, Created, Listed, MemoryStorage, Storage};
use canopy_store::{Environment, Error, Result, checkpoint, release};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const CHUNK: usize = 4096;

/// Storage in memory that may make chunks and say that it did not.
#[derive(Default)]
struct Failing {
    inner: MemoryStorage,
    fails: AtomicBool,
}

impl Storage for Failing {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.inner.read_range(name, range)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.inner.read(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        let created = self.inner.create(name, bytes)?;
        match name.contains("/chunk/") && self.fails.load(Ordering::Relaxed) {
            true => Err(Error::storage(name, std::io::Error::other("no answer"))),
            false => Ok(created),
        }
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

struct Place {
    storage: Arc<Failing>,
    environment: Environment,
    cache: TempDir,
    namespace: Option<Namespace>,
}

impl Place {
    fn new() -> Self {
        let storage = Arc::new(Failing::default());
        let environment = Environment::system(storage.clone());
        let settings = Settings { chunk_bytes: CHUNK as u64, ..Settings::default() };
        create_namespace(&environment, &settings, (0, 0), &system_clock()).expect("a namespace");
        let cache = tempfile::tempdir().expect("a directory");
        let mut place = Place { storage, environment, cache, namespace: None };
        place.open_anew();
        place
    }

    /// Opens the namespace as if the process before had died, and its cache were lost.
    fn open_anew(&mut self) {
        self.namespace = None;
        self.cache = tempfile::tempdir().expect("a directory");
        let contents = Contents::new(self.cache.path()).expect("contents");
        let opened = Namespace::open(&self.environment, contents, system_clock());
        self.namespace = Some(opened.expect("a namespace"));
    }

    fn namespace(&self) -> &Namespace {
        self.namespace.as_ref().expect("a namespace")
    }

    fn create(&self, name: &str) -> Arc<Opened> {
        let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
        let made = self.namespace().create(ROOT, name.as_bytes(), &new, false);
        self.open(made.expect("a file").id)
    }

    fn open(&self, id: FileId) -> Arc<Opened> {
        self.namespace().open_file(id).expect("a file")
    }

    fn write(&self, opened: &Opened, offset: usize, byte: u8, count: usize) {
        let (bytes, offset) = (vec![byte; count], Some(offset as u64));
        self.namespace().write(opened, offset, &bytes, Privileges::Keep).expect("a write");
    }

    fn sync(&self, opened: &Arc<Opened>) {
        self.namespace().sync_file(opened).expect("a sync");
    }

    fn collect(&self) {
        self.namespace().sync().expect("a sync");
        self.namespace().collect().expect("a collection");
    }

    /// The objects of chunks that there are.
    fn objects(&self) -> Vec<String> {
        let prefix = format!("{}/chunk/", self.namespace().table().id());
        let listed = self.storage.list(&prefix, "").expect("objects");
        listed.into_iter().map(|one| one.name).collect()
    }

    fn faults(&self) -> Vec<String> {
        let faults = self.namespace().check_contents(|_| {}).expect("a check");
        faults.into_iter().map(|fault| fault.what).collect()
    }
}

#[test]
fn objects_go_when_nothing_names_them() {
    let mut place = Place::new();
    let file = place.create("file");
    // Three chunks and a hole between them.
    place.write(&file, 0, 1, 2 * CHUNK);
    place.write(&file, 9 * CHUNK, 1, 10);
    place.sync(&file);
    let first = place.objects();
    assert_eq!(first.len(), 3);
    place.write(&file, 5, 2, 1);
    place.sync(&file);
    assert_eq!(place.objects().len(), 4);
    place.collect();
    let second = place.objects();
    assert_eq!(second.len(), 3);
    // A checkpoint keeps what it has, and nothing more.
    let table = place.namespace().table().id();
    let (kept, _) = checkpoint(&place.environment, table, None).expect("a checkpoint");
    place.write(&file, 6, 3, 1);
    place.sync(&file);
    place.write(&file, 6, 4, 1);
    place.sync(&file);
    place.collect();
    assert_eq!(place.objects().len(), 4);
    assert!(second.iter().all(|one| place.objects().contains(one)));
    let id = file.id();
    place.namespace().close_file(&file).expect("closed");
    place.namespace().unlink(ROOT, b"file").expect("a name gone");
    place.collect();
    place.collect();
    assert_eq!(place.objects(), second);
    release(&place.environment, table, kept).expect("a checkpoint gone");
    place.collect();
    assert_eq!(place.objects(), Vec::<String>::new());
    assert!(place.namespace().open_file(id).is_err());
    // What a process left that died between sending and telling, and what none has sent.
    let prefix = format!("{table}/chunk/");
    let stray = format!("{prefix}{:020}-{:020}", 1, 77);
    let foreign = format!("{prefix}mine");
    for name in [&stray, &foreign] {
        place.storage.create(name, Bytes::from_static(b"x")).expect("an object");
    }
    place.open_anew();
    assert_eq!(place.faults(), Vec::<String>::new());
    assert_eq!(place.objects(), [foreign]);
}

#[test]
fn what_storage_does_not_take_stays_and_is_sent_again() {
    let mut place = Place::new();
    let file = place.create("file");
    place.write(&file, 0, 1, 3 * CHUNK);
    place.sync(&file);
    place.storage.fails.store(true, Ordering::Relaxed);
    place.write(&file, 100, 2, 3 * CHUNK);
    for _ in 0..2 {
        let error = place.namespace().sync_file(&file).expect_err("a failure");
        assert_eq!(error.errno(), Errno::IO);
        assert!(error.to_string().contains("/chunk/"), "{error}");
    }
    let read = |opened: &Opened| place.namespace().read(opened, 0, 9 * CHUNK, false);
    let expected = [vec![1; 100], vec![2; 3 * CHUNK]].concat();
    assert_eq!(read(&file).expect("bytes"), expected);
    // Closing waits for nobody, and loses nothing; names and attributes go on.
    let id = file.id();
    place.namespace().close_file(&file).expect("closed");
    drop(file);
    place
        .namespace()
        .rename((ROOT, b"file"), (ROOT, b"other"), canopy_namespace::RenameMode::Replace)
        .expect("a rename");
    assert_eq!(place.namespace().inode(id).expect("an inode").size, expected.len() as u64);
    place.namespace().table().sync().expect("a log");
    place.storage.fails.store(false, Ordering::Relaxed);
    place.collect();
    // What failed was made: it is removed, since no record names it.
    assert_eq!(place.objects().len(), 4);
    place.open_anew();
    let file = place.open(id);
    let found = place.namespace().read(&file, 0, 9 * CHUNK, false).expect("bytes");
    assert_eq!(found, expected);
    assert_eq!(place.faults(), Vec::<String>::new());
}

#[test]
fn a_crash_before_contents_are_sent_leaves_the_size_that_they_had() {
    let mut place = Place::new();
    let file = place.create("file");
    place.write(&file, 0, 1, 2 * CHUNK);
    place.sync(&file);
    place.write(&file, 10, 2, 5 * CHUNK);
    let id = file.id();
    // Each writes the record.
    let set = canopy_namespace::SetAttributes { mode: Some(0o600), ..Default::default() };
    place.namespace().set_attributes(id, &set, Privileges::Keep).expect("a mode");
    place.namespace().link(id, ROOT, b"second").expect("a name");
    place.namespace().sync_inode(id).expect("a sync");
    assert_eq!(place.namespace().inode(id).expect("an inode").size, 5 * CHUNK as u64 + 10);
    drop(file);
    place.open_anew();
    let inode = place.namespace().inode(id).expect("an inode");
    assert_eq!((inode.size, inode.mode & 0o777, inode.nlink), (2 * CHUNK as u64, 0o600, 2));
    let file = place.open(id);
    let found = place.namespace().read(&file, 0, 9 * CHUNK, false).expect("bytes");
    assert_eq!(found, vec![1; 2 * CHUNK]);
    assert_eq!(place.faults(), Vec::<String>::new());
}

#[test]
fn objects_that_are_damaged_or_missing_are_told_by_name() {
    for is_missing in [true, false] {
        let mut place = Place::new();
        let file = place.create("file");
        place.write(&file, 0, 1, 3 * CHUNK);
        place.sync(&file);
        let id = file.id();
        drop(file);
        place.open_anew();
        let name = place.objects().swap_remove(1);
        let mut bytes = place.storage.read(&name).expect("bytes").to_vec();
        place.storage.remove(&name).expect("removed");
        if !is_missing {
            bytes[17] ^= 4;
            place.storage.create(&name, bytes.into()).expect("an object");
        }
        let what = if is_missing { "is missing" } else { "is damaged" };
        let file = place.open(id);
        let error = place.namespace().read(&file, 0, 9 * CHUNK, false).expect_err("a failure");
        assert_eq!(error.errno(), Errno::IO);
        let said = error.to_string();
        assert!(said.contains(&format!("file {id}, chunk ")) && said.contains(&name), "{said}");
        assert!(said.contains(what), "{said}");
        let found = place.faults();
        assert!(
            found.len() == 1 && found[0].contains(&name) && found[0].contains(what),
            "{found:?}"
        );
    }
}

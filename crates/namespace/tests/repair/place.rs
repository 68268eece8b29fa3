//! A namespace that can be damaged.

use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::keys::{self, Space};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{
    Contents, FileId, Inode, Listing, Namespace, New, Ownership, Privileges, ROOT, SetXattr,
    Settings, create_namespace, system_clock,
};
use canopy_store::storage::LocalStorage;
use canopy_store::{Batch, Direction, Durability, Environment, Key};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A namespace that can be damaged.
pub struct Fixture {
    pub namespace: Namespace,
    pub path: PathBuf,
}

pub fn open(path: &Path) -> Namespace {
    let storage = LocalStorage::new(path).unwrap();
    let environment = Environment::system(std::sync::Arc::new(storage));
    let contents = Contents::new(&path.join("contents")).unwrap();
    Namespace::open(&environment, contents, system_clock()).unwrap()
}

impl Fixture {
    /// A tree with everything that there can be.
    pub fn new(directory: &TempDir) -> Self {
        Self::with(directory, 0)
    }

    /// The same with contents that are chunks of so many bytes, or files if that is 0.
    pub fn with(directory: &TempDir, chunk_bytes: u64) -> Self {
        let path = directory.path().join("namespace");
        let storage = LocalStorage::new(&path).unwrap();
        let environment = Environment::system(std::sync::Arc::new(storage));
        let indexes = ["size", "uid", "mtime", "ext", "name", "user.one"];
        let settings = Settings { chunk_bytes, ..Settings::default() };
        let settings = settings.with_indexes(&indexes).unwrap();
        create_namespace(&environment, &settings, Ownership::ROOT, &system_clock()).unwrap();
        drop(environment);
        let place = Fixture { namespace: open(&path), path };
        let top = place.make(ROOT, "top", file_type::DIRECTORY | 0o750);
        let sub = place.make(top, "sub", file_type::DIRECTORY | 0o755);
        let deep = place.make(sub, "deep", file_type::DIRECTORY | 0o755);
        place.make(ROOT, "empty", file_type::DIRECTORY | 0o755);
        for (parent, name, bytes) in [
            (top, "small.txt", 100),
            (top, "large.dat", 50_000),
            (sub, "linked", 200),
            (deep, "large linked", 9000),
            (deep, "bottom", 10),
            (deep, "nothing", 0),
        ] {
            let id = place.make(parent, name, file_type::REGULAR | 0o640);
            place.write(id, name, bytes);
        }
        let linked = place.id("top/sub/linked");
        place.namespace.link(linked, ROOT, b"another name").unwrap();
        let linked = place.id("top/sub/deep/large linked");
        place.namespace.link(linked, top, b"its other name").unwrap();
        let with = |path, name: &str| {
            let how = SetXattr::Any;
            let id = place.id(path);
            place.namespace.set_xattr(id, name.as_bytes(), b"1", how, Privileges::Keep).unwrap();
        };
        with("top/small.txt", "user.one");
        with("top/sub/deep", "user.two");
        let limits = Limits { inodes_hard: 1000, ..Limits::default() };
        place.namespace.set_limits(Account::User(0), limits).unwrap();
        place.namespace.set_tree_limits(sub, limits).unwrap();
        place.namespace.sync().unwrap();
        place
    }

    pub fn make(&self, parent: FileId, name: &str, mode: u32) -> FileId {
        let new = New { mode, ..New::default() };
        self.namespace.create(parent, name.as_bytes(), &new, false).unwrap().id
    }

    pub fn write(&self, id: FileId, name: &str, bytes: usize) {
        let bytes = name.as_bytes().repeat(bytes / name.len() + 1)[..bytes].to_vec();
        let opened = self.namespace.open_file(id).unwrap();
        self.namespace.write(&opened, Some(0), &bytes, Privileges::Keep).unwrap();
        self.namespace.close_file(&opened).unwrap();
    }

    pub fn inode(&self, path: &str) -> Inode {
        let mut inode = self.namespace.inode(ROOT).unwrap();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            inode = self.namespace.lookup(inode.id, name.as_bytes()).unwrap();
        }
        inode
    }

    pub fn id(&self, path: &str) -> FileId {
        self.inode(path).id
    }

    pub fn key(&self, path: &str) -> Key {
        match path.rsplit_once('/') {
            Some((above, name)) => Key::named(self.id(above).0, name.as_bytes()),
            None => Key::named(ROOT.0, path.as_bytes()),
        }
    }

    pub fn put(&self, key: &Key, value: &[u8]) {
        let mut batch = Batch::new();
        batch.put(key.as_ref(), value).unwrap();
        self.namespace.table().write(&batch, Durability::Durable).unwrap();
    }

    pub fn delete(&self, key: &Key) {
        let mut batch = Batch::new();
        batch.delete(key.as_ref()).unwrap();
        self.namespace.table().write(&batch, Durability::Durable).unwrap();
    }

    pub fn get(&self, key: &Key) -> Option<Inode> {
        let value = self.namespace.table().get(key.as_ref()).unwrap();
        value.map(|value| Inode::decode(&value).unwrap())
    }

    /// Changes the inode that lies at a path, or beside it.
    pub fn change(&self, path: &str, change: impl FnOnce(&mut Inode)) {
        let key = if path.is_empty() { keys::root() } else { self.key(path) };
        let found = self.get(&key).unwrap();
        let key = if found.has(flag::LINKED) { Space::Links.of(found.id, b"") } else { key };
        let mut inode = self.get(&key).unwrap();
        change(&mut inode);
        self.put(&key, &inode.encode());
    }

    pub fn object(&self, id: FileId) -> PathBuf {
        self.path.join(format!("contents/{:02x}/{id:016x}", id.0 % 256))
    }

    pub fn is_chunked(&self) -> bool {
        self.namespace.settings().chunk_bytes > 0
    }

    /// The records of a file's chunks.
    pub fn chunks(&self, id: FileId) -> Vec<(Key, Vec<u8>)> {
        let range = Space::Chunks.range_of(id);
        let mut scan = self.namespace.table().scan(&range, Direction::Forward).unwrap();
        let mut found = Vec::new();
        while let Some(record) = scan.next().unwrap() {
            found.push((record.key.to_key(), record.value.to_vec()));
        }
        found
    }

    /// The object that the record of a chunk names.
    pub fn chunk_object(&self, record: &[u8]) -> PathBuf {
        let number = |at: usize| u64::from_be_bytes(record[at..at + 8].try_into().unwrap());
        let name = format!("{:020}-{:020}", number(0), number(8));
        self.path.join(format!("{}/chunk/{name}", self.namespace.table().id()))
    }

    /// How many objects of chunks there are.
    pub fn count_objects(&self) -> usize {
        let directory = self.path.join(format!("{}/chunk", self.namespace.table().id()));
        fs::read_dir(directory).map_or(0, Iterator::count)
    }

    /// Takes away what a large file has in it.
    pub fn lose_contents(&self, id: FileId) {
        if !self.is_chunked() {
            return fs::remove_file(self.object(id)).unwrap();
        }
        for (_, record) in self.chunks(id) {
            fs::remove_file(self.chunk_object(&record)).unwrap();
        }
    }

    /// Puts contents where those of a large file are, though it has none or is none.
    pub fn plant(&self, id: FileId, text: &str) {
        if !self.is_chunked() {
            let object = self.object(id);
            fs::create_dir_all(object.parent().unwrap()).unwrap();
            return fs::write(object, text).unwrap();
        }
        // Those of a file that was made for it, and that has none then.
        let made = self.make(ROOT, "planted", file_type::REGULAR | 0o600);
        let opened = self.namespace.open_file(made).unwrap();
        self.namespace.write(&opened, Some(8191), b"", Privileges::Keep).unwrap();
        self.namespace.truncate(made, 8192, Privileges::Keep).unwrap();
        self.namespace.write(&opened, Some(0), text.as_bytes(), Privileges::Keep).unwrap();
        self.namespace.sync_file(&opened).unwrap();
        self.namespace.close_file(&opened).unwrap();
        for (key, record) in self.chunks(made) {
            self.delete(&key);
            self.put(&Key { hash: id.0, ..key }, &record);
        }
        self.change("planted", |inode| {
            (inode.size, inode.blocks) = (0, 0);
            inode.flags &= !flag::OBJECT;
        });
        self.namespace.unlink(ROOT, b"planted").unwrap();
    }

    /// What files have in them, by that, with how many there are.
    pub fn contents(&self) -> BTreeMap<Vec<u8>, usize> {
        let mut found = BTreeMap::new();
        let mut seen = std::collections::HashSet::new();
        let mut left = vec![ROOT];
        while let Some(directory) = left.pop() {
            let mut inodes = Vec::new();
            let tell = |entry: canopy_namespace::Entry<'_>| {
                inodes.push(entry.inode.clone());
                true
            };
            self.namespace.list(&mut Listing::new(directory), 0, tell).unwrap();
            for inode in inodes {
                if inode.is_directory() {
                    left.push(inode.id);
                } else if seen.insert(inode.id) && !inode.has(flag::ABSENT) {
                    let opened = self.namespace.open_file(inode.id).unwrap();
                    let read = self.namespace.read(&opened, 0, 1 << 20, false);
                    self.namespace.close_file(&opened).unwrap();
                    // What is lost cannot be read.
                    read.into_iter().for_each(|bytes| *found.entry(bytes).or_default() += 1);
                }
            }
        }
        found.remove(&b""[..]);
        found
    }

    pub fn faults(&self) -> Vec<String> {
        let faults = self.namespace.check(|_| {}).unwrap();
        faults.into_iter().map(|fault| format!("{}: {}", fault.id, fault.what)).collect()
    }
}

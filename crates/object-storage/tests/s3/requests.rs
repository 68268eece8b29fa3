//! How many requests, and bytes, each operation takes.

use crate::place::{key, layout, options};
use bytes::Bytes;
use canopy_store::storage::{Append, Created, Listed, Storage};
use canopy_store::{
    Base, Batch, Direction, Durability, Environment, KeyRange, Options, Reader, Result,
    SstableCache, Table, clone, collect, compact_all, create,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Storage that counts. Each call here is one request, but for listings of more than 1,000.
struct Counted {
    storage: Arc<dyn Storage>,
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    sent_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

impl Counted {
    fn new(storage: Arc<dyn Storage>) -> Self {
        let [puts, gets, lists, deletes, sent_bytes, read_bytes] = Default::default();
        Counted { storage, puts, gets, lists, deletes, sent_bytes, read_bytes }
    }

    fn got(&self, read: Result<Bytes>) -> Result<Bytes> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let length = read.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.read_bytes.fetch_add(length, Ordering::Relaxed);
        read
    }

    /// Returns puts, gets, lists, deletes, bytes sent and bytes read since the last call.
    fn take(&self) -> [u64; 6] {
        let counters = [
            &self.puts,
            &self.gets,
            &self.lists,
            &self.deletes,
            &self.sent_bytes,
            &self.read_bytes,
        ];
        counters.map(|counter| counter.swap(0, Ordering::Relaxed))
    }
}

impl Storage for Counted {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.got(self.storage.read_range(name, range))
    }

    fn read_ranges(&self, wanted: &[(&str, Range<u64>)]) -> Result<Vec<Bytes>> {
        let read = self.storage.read_ranges(wanted)?;
        Ok(read.into_iter().map(|bytes| self.got(Ok(bytes)).unwrap()).collect())
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.got(self.storage.read(name))
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.storage.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.storage.list(prefix, after)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.deletes.fetch_add(1, Ordering::Relaxed);
        self.storage.remove(name)
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        self.storage.append_to(name)
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.storage.lock(name)
    }
}

/// `docs/engine.md` has these figures; the test prints them anew.
#[expect(clippy::too_many_lines, reason = "one course of steps")]
pub fn operations_take_few_requests(storage: Arc<dyn Storage>) {
    let counted = Arc::new(Counted::new(storage));
    let environment = Environment::system(counted.clone());
    let options = Options { sstable_bytes: 16 << 20, memtable_bytes: 64 << 20, ..options() };
    let mut rows = Vec::new();
    let mut note = |what: &'static str| {
        let taken = counted.take();
        rows.push((what, taken));
        taken
    };
    let id = create(&environment, layout(), &options).unwrap();
    note("create the first table");
    create(&environment, layout(), &options).unwrap();
    let [puts, gets, lists, deletes, ..] = note("create another table");
    assert_eq!([puts, gets, lists, deletes], [1, 1, 1, 0], "the store is not probed again");
    let cache = SstableCache::new(&environment, 64 << 20);
    let table = Table::open(&environment, id, cache, options.clone()).unwrap();
    note("open it for writing");
    let mut batch = Batch::new();
    for at in 0..50_000 {
        batch.put(key(at % 50, at).as_ref(), &at.to_le_bytes()).unwrap();
    }
    table.write(&batch, Durability::Durable).unwrap();
    let [puts, ..] = note("write 50,000 records, durable");
    assert_eq!(puts, 1);
    table.flush().unwrap();
    note("flush them");
    for round in 1..4u64 {
        let mut batch = Batch::new();
        for at in 0..1000 {
            batch.put(key(at % 50, at).as_ref(), &round.to_le_bytes()).unwrap();
        }
        table.write(&batch, Durability::Visible).unwrap();
        table.flush().unwrap();
    }
    counted.take();
    // Nothing is in any cache from here on.
    let cold = || {
        let cache = SstableCache::new(&environment, 64 << 20);
        Reader::open(&environment, id, None, &cache, &options).unwrap()
    };
    let reader = cold();
    note("open it for reading");
    assert!(reader.get(key(41, 1041).as_ref()).unwrap().is_some());
    let first = note("look up a key, cold, 4 runs");
    assert!(reader.get(key(7, 30_007).as_ref()).unwrap().is_some());
    let [_, gets, ..] = note("look up another, tails known");
    assert!(gets <= 1);
    assert!(reader.get(key(7, 60_007).as_ref()).unwrap().is_none());
    note("look up an absent key");
    compact_all(&environment, id, &SstableCache::new(&environment, 64 << 20), &options).unwrap();
    note("merge the 4 runs");
    let reader = cold();
    counted.take();
    assert!(reader.get(key(41, 1041).as_ref()).unwrap().is_some());
    let [puts, gets, lists, deletes, ..] = note("look up a key, cold, 1 run");
    assert!(puts + gets + lists + deletes <= 2);
    let keys = Vec::from_iter((0..1000).map(|at| key(at % 50, at * 37 % 50_000)));
    let reader = cold();
    counted.take();
    reader.get_many(&keys).unwrap();
    note("look up 1,000 keys at once, cold");
    let reader = cold();
    counted.take();
    let found = reader.scan(&KeyRange::directory(11), Direction::Forward).unwrap();
    assert_eq!(found.collect().unwrap().len(), 1000);
    note("list a directory of 1,000, cold");
    let found = cold().scan(&KeyRange::all(), Direction::Forward).unwrap().collect().unwrap();
    assert_eq!(found.len(), 50_000);
    note("scan 50,000 records, opening included");
    clone(&environment, &[Base { table: id, checkpoint: None }], &KeyRange::all()).unwrap();
    note("clone the table");
    collect(&environment, id).unwrap();
    note("collect");
    eprintln!("operation | PUT | GET | LIST | DELETE | bytes sent | bytes read");
    for (what, taken) in rows {
        eprintln!("{what} | {}", taken.map(|one| one.to_string()).join(" | "));
    }
    assert!(first[1] <= 5, "a tail each, and a block");
}

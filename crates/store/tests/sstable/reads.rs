//! How often storage is read, and what happens if that fails.

use super::{file, layout, open, scan};
use bytes::Bytes;
use canopy_store::sstable::{BlockCache, Sstable, SstableInfo};
use canopy_store::storage::{Append, Created, Listed, LocalStorage, MemoryStorage, Storage};
use canopy_store::{Error, Key, KeyRange, Op, Record, Result};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts reads, and fails one.
#[derive(Default)]
struct Counted {
    memory: MemoryStorage,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    /// Which read fails, from 1 on.
    failing: AtomicU64,
}

impl Storage for Counted {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.read_bytes.fetch_add(range.end - range.start, Relaxed);
        if self.reads.fetch_add(1, Relaxed) + 1 == self.failing.load(Relaxed) {
            return Err(Error::storage(name, io::Error::other("injected")));
        }
        self.memory.read_range(name, range)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.memory.read(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.memory.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.memory.list(prefix, after)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.memory.remove(name)
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        self.memory.append_to(name)
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.memory.lock(name)
    }
}

fn records(count: u64) -> Vec<Record> {
    let record = |at: u64| {
        let mut value = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec();
        value.extend(at.to_le_bytes());
        Record { key: Key::named(at / 100, &at.to_le_bytes()), op: Op::Put, value }
    };
    let mut records: Vec<Record> = (0..count).map(record).collect();
    records.sort_by(|one, other| one.key.cmp(&other.key));
    records
}

fn counted(
    count: u64,
    cache_bytes: u64,
) -> (Arc<Counted>, Vec<Record>, SstableInfo, Arc<BlockCache>) {
    let records = records(count);
    let (bytes, info) = file(&layout(&[(8, None), (8, None)]), 8 << 10, &records, &[]);
    let storage = Arc::new(Counted::default());
    storage.create("sst/1-1", bytes.into()).unwrap();
    (storage, records, info, Arc::new(BlockCache::new(cache_bytes)))
}

#[test]
fn a_cold_look_up_is_two_reads() {
    let (storage, records, info, cache) = counted(10_000, 1 << 20);
    let table = Sstable::open(storage.clone(), "sst/1-1".into(), &info, cache).unwrap();
    assert_eq!(storage.reads.load(Relaxed), 1);
    let record = &records[5000];
    let found = Some((Op::Put, record.value.clone()));
    assert_eq!(table.get(record.key.as_ref()).unwrap(), found);
    assert_eq!(storage.reads.load(Relaxed), 2);
    assert_eq!(table.get(record.key.as_ref()).unwrap(), found);
    assert_eq!(storage.reads.load(Relaxed), 2, "the block is in the cache");
    let absent = (0..10_000u32).map(|at| Key::named(7, &at.to_le_bytes()));
    for key in absent.filter(|key| !table.may_have(key.as_ref())) {
        assert_eq!(table.get(key.as_ref()).unwrap(), None);
    }
    assert_eq!(storage.reads.load(Relaxed), 2, "what the filter does not pass reads no block");
}

#[test]
fn a_scan_reads_many_blocks_at_a_time_and_few_if_it_is_short() {
    let (storage, records, info, cache) = counted(300_000, 1 << 20);
    let name = "sst/1-1".to_string();
    let table = Sstable::open(storage.clone(), name, &info, cache.clone()).map(Arc::new).unwrap();
    let before = storage.reads.load(Relaxed);
    assert_eq!(scan(&table, KeyRange::all()).unwrap(), records);
    let reads = storage.reads.load(Relaxed) - before;
    let data_bytes = info.size_bytes - info.tail_bytes;
    assert!(reads < 10 + data_bytes / (240 << 10), "{reads} reads of {data_bytes} bytes");
    assert_eq!(cache.memory_bytes(), 0, "a scan does not fill the cache");
    let before = storage.read_bytes.load(Relaxed);
    assert_eq!(scan(&table, KeyRange::directory(1000)).unwrap().len(), 100);
    let read_bytes = storage.read_bytes.load(Relaxed) - before;
    assert!(read_bytes < 16 << 10, "{read_bytes} bytes are read for 100 records");
}

#[test]
fn a_read_that_fails_is_an_error_and_may_be_tried_again() {
    let (storage, records, info, cache) = counted(20_000, 0);
    let name = || "sst/1-1".to_string();
    for failing in 1.. {
        storage.reads.store(0, Relaxed);
        storage.failing.store(failing, Relaxed);
        let Ok(table) = Sstable::open(storage.clone(), name(), &info, cache.clone()) else {
            assert_eq!(failing, 1);
            continue;
        };
        let table = Arc::new(table);
        let mut cursor = table.cursor(KeyRange::all());
        let mut count = 0;
        let failed = loop {
            match cursor.advance() {
                Ok(true) => count += 1,
                Ok(false) => break false,
                Err(_) => break true,
            }
        };
        if !failed {
            assert_eq!(count, records.len());
            break;
        }
        assert!(cursor.record().is_none());
        let next = &records[count];
        assert!(cursor.seek(next.key.as_ref()).unwrap());
        assert_eq!(cursor.record(), Some(next.as_ref()));
    }
}

#[test]
fn local_files_are_read_like_others() {
    let records = records(3_000);
    let (bytes, info) = file(&layout(&[(8, None)]), 1000, &records, &[]);
    let directory = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::new(directory.path()).unwrap());
    storage.create("t/sst/1-1", bytes.clone().into()).unwrap();
    let read = SstableInfo::read(&*storage, "t/sst/1-1", info.size_bytes).unwrap();
    assert_eq!(read, info);
    let cache = Arc::new(BlockCache::new(1 << 16));
    let table = Sstable::open(storage.clone(), "t/sst/1-1".into(), &info, cache.clone());
    let table = Arc::new(table.unwrap());
    // A collector may remove it while it is read.
    storage.remove("t/sst/1-1").unwrap();
    table.verify().unwrap();
    assert_eq!(scan(&table, KeyRange::all()).unwrap(), records);
    let missing = Sstable::open(storage, "t/sst/1-1".into(), &info, cache);
    assert!(missing.err().unwrap().is_not_found());
    assert!(open(bytes, &info, 0).is_ok());
}

#[test]
fn threads_share_a_table_and_a_cache() {
    let (storage, records, info, cache) = counted(20_000, 1 << 17);
    let table = Sstable::open(storage, "sst/1-1".into(), &info, cache.clone()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (table, records) = (&table, &records);
            scope.spawn(move || {
                for record in records.iter().skip(thread).step_by(37) {
                    let found = table.get(record.key.as_ref()).unwrap();
                    assert_eq!(found, Some((record.op, record.value.clone())));
                }
            });
        }
    });
    assert!(cache.memory_bytes() > 0 && cache.memory_bytes() <= 1 << 17);
}

/// A file of records of one layout, with tails or without, and what was written to it.
fn written(
    storage: &Arc<dyn Storage>,
    cache: &Arc<BlockCache>,
    number: usize,
) -> (Arc<Sstable>, Vec<Record>) {
    let layouts = [vec![], vec![(8, None), (8, Some(0))], vec![(4, None), (2, None), (1, None)]];
    let layout = layout(&layouts[number % layouts.len()]);
    let record = |at: u64| {
        let random = (at + number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut value = random.to_le_bytes().repeat(2);
        value.resize(layout.width() + (random % 40) as usize * (number % 2), at as u8);
        Record { key: Key::named(at / 100, format!("{random}").as_bytes()), op: Op::Put, value }
    };
    let mut records = Vec::from_iter((0..2000).map(record));
    records.sort_by(|one, other| one.key.cmp(&other.key));
    let (bytes, info) = file(&layout, [1 << 10, 8 << 10][number % 2], &records, &[]);
    let name = format!("sst/1-{number}");
    storage.create(&name, bytes.into()).unwrap();
    let table = Sstable::open(storage.clone(), name, &info, cache.clone()).unwrap();
    (Arc::new(table), records)
}

#[test]
fn a_block_in_the_memory_of_another_one_is_as_if_read_alone() {
    let directory = tempfile::tempdir().unwrap();
    let local: Arc<dyn Storage> = Arc::new(LocalStorage::new(directory.path()).unwrap());
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
    for storage in [local, memory] {
        // Some blocks stay, most are read again, in what others left.
        let cache = Arc::new(BlockCache::new(100 << 10));
        let tables = Vec::from_iter((0..6).map(|number| written(&storage, &cache, number)));
        let look_up = |seed: usize| {
            for at in 0..20_000 {
                let (table, records) = &tables[(at * 7 + seed) % tables.len()];
                let record = &records[(at * 7919 + seed * 31) % records.len()];
                let found = table.get(record.key.as_ref()).unwrap();
                assert_eq!(found, Some((Op::Put, record.value.clone())));
            }
        };
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let look_up = &look_up;
                scope.spawn(move || look_up(seed));
            }
        });
        assert!((1..=100 << 10).contains(&cache.memory_bytes()));
        for (table, records) in &tables {
            assert_eq!(&scan(table, KeyRange::all()).unwrap(), records);
        }
    }
}

//! Tables on real storage: what each operation does, and what wrong use is told.

mod budget;
mod cases;
mod durability;
mod marks;
mod objects;
mod place;
mod read_only;
mod salvage;
mod unknown;

use canopy_store::storage::{Append, Created, Listed, LocalStorage, MemoryStorage, Storage};
use canopy_store::{
    BATCH_BYTES_MAX, Batch, Clock, Direction, Durability, Error, Ingestion, Key, KeyRange, Op,
    Options, RecordRef, Table, Upkeep, collect, compact, compact_all, create,
};
use place::{Fixture, contents, key, layout, number, options, put};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

macro_rules! in_memory {
    ($($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                cases::$case(&Fixture::new(Arc::new(MemoryStorage::default())));
            }
        )*
    };
}
cases::each_case!(in_memory);

fn local(path: &Path) -> Fixture {
    Fixture::new(Arc::new(LocalStorage::new(path).unwrap()))
}

fn add(table: &Table, key: &Key, value: u64) {
    let mut batch = Batch::new();
    batch.merge(key.as_ref(), &value.to_le_bytes()).unwrap();
    table.write(&batch, Durability::Visible).unwrap();
}

#[test]
fn many_runs_say_what_the_newest_of_them_says() {
    let place = Fixture::new(Arc::new(MemoryStorage::default()));
    let table = place.open(place.create());
    let mut expected = BTreeMap::new();
    for round in 0..50 {
        let mut batch = Batch::new();
        if round == 30 {
            batch.delete_range(&KeyRange::directory(1)).unwrap();
            expected.retain(|key: &Key, _| key.directory != 1);
        }
        for key in [key(1, 0), key(1, round), key(2, round)] {
            batch.put(key.as_ref(), &round.to_le_bytes()).unwrap();
            expected.insert(key, round);
        }
        if round % 7 == 6 {
            batch.delete(key(2, round - 3).as_ref()).unwrap();
            expected.remove(&key(2, round - 3));
        }
        table.write(&batch, Durability::Visible).unwrap();
        table.flush().unwrap();
    }
    assert_eq!(table.manifest().state.runs.len(), 50);
    for at in 0..60 {
        for key in [key(1, at), key(2, at)] {
            let found = table.get(key.as_ref()).unwrap();
            let wanted = expected.get(&key).map(|round| round.to_le_bytes().to_vec());
            assert_eq!(found, wanted, "{key:?}");
        }
    }
}

#[test]
fn synced_records_are_there_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let id = place.create();
    for round in 1..4 {
        let table = place.open(id);
        for at in 0..100 {
            add(&table, &key(1, at), 1);
        }
        let mut batch = Batch::new();
        batch.delete_range(&KeyRange::directory(round)).unwrap();
        batch.put(key(round + 1, 0).as_ref(), &7u64.to_le_bytes()).unwrap();
        table.write(&batch, Durability::Durable).unwrap();
        // Nothing is flushed: the next one reads the logs of all.
        drop(table);
    }
    let table = place.open(id);
    let mut expected = BTreeMap::from_iter((0..100).map(|at| (key(1, at), 2)));
    expected.insert(key(4, 0), 7);
    assert_eq!(contents(&table), expected);
    table.flush().unwrap();
    assert_eq!(contents(&table), expected);
    drop(table);
    assert_eq!(place.read(id), expected);
    assert_eq!(contents(&place.open(id)), expected);
}

#[test]
fn records_that_a_power_cut_tore_are_not_there() {
    // The blocks of a file are written in any order: what was not synced may be there without its
    // beginning.
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let id = place.create();
    let expected = BTreeMap::from([(key(1, 1), 1)]);
    let segment = |epoch: u64, number: u64| {
        directory.path().join(format!("{id}/log/{epoch:020}/{number:020}"))
    };
    let table = place.open(id);
    put(&table, &key(1, 1), 1);
    table.sync().unwrap();
    drop(table);
    let torn = [vec![0; 8], vec![7; 5000]].concat();
    let synced = std::fs::read(segment(1, 0)).unwrap();
    std::fs::write(segment(1, 0), [synced, torn].concat()).unwrap();
    let table = place.open(id);
    assert_eq!(contents(&table), expected);
    drop(table);
    // Of a segment of which nothing was synced, the head may be missing.
    std::fs::create_dir_all(segment(2, 0).parent().unwrap()).unwrap();
    std::fs::write(segment(2, 0), [vec![0; 512], vec![7; 5000]].concat()).unwrap();
    assert_eq!(contents(&place.open(id)), expected);
    assert_eq!(contents(&place.open(id)), expected);
}

#[test]
fn the_log_has_no_group_that_could_not_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let id = place.create();
    let never = Options {
        memtable_bytes: u64::MAX,
        memory_bytes: 1 << 30,
        log_buffer_bytes: usize::MAX,
        ..options()
    };
    let table = Table::open(&place.environment, id, place.cache.clone(), never.clone()).unwrap();
    // Five of 15 MiB each: what waits together is more than one batch may be.
    let value = vec![7; 15 << 20];
    for at in 0..5 {
        let mut batch = Batch::new();
        batch.put(key(1, at).as_ref(), &value).unwrap();
        table.write(&batch, Durability::Visible).unwrap();
    }
    let mut batch = Batch::new();
    while batch.size_bytes() <= BATCH_BYTES_MAX {
        batch.put(key(2, 0).as_ref(), &value).unwrap();
    }
    let error = table.write(&batch, Durability::Durable).unwrap_err();
    assert!(error.to_string().contains("a batch of "), "{error}");
    table.sync().unwrap();
    drop(table);
    let mut largest = Vec::new();
    for object in place.environment.storage.list(&format!("{id}/log/"), "").unwrap() {
        let mut groups = BTreeMap::new();
        let each = |group, change: canopy_store::Mutation<'_>| {
            let canopy_store::Mutation::Record(record) = change else { panic!("a range") };
            *groups.entry(group).or_insert(0) += record.value.len();
            Ok::<(), Error>(())
        };
        canopy_store::read_segment(&*place.environment.storage, &object.name, None, each).unwrap();
        largest.extend(groups.into_values());
    }
    assert_eq!(largest, [4 * value.len(), value.len()]);
    let table = Table::open(&place.environment, id, place.cache.clone(), never).unwrap();
    assert!((0..5).all(|at| table.get(key(1, at).as_ref()).unwrap().is_some()));
    assert_eq!(table.get(key(2, 0).as_ref()).unwrap(), None);
}

#[test]
fn a_table_of_one_machine_has_one_writer() {
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let id = place.create();
    let table = place.open(id);
    let error = place.try_open(id).err().unwrap();
    assert!(matches!(&error, Error::Fenced(_)), "{error}");
    assert!(error.to_string().contains("another process writes this table"), "{error}");
    drop(table);
    place.open(id);
}

#[test]
fn files_that_were_removed_are_closed() {
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let id = place.create();
    let table = place.open(id);
    for at in 0..4 {
        put(&table, &key(1, at), at);
        table.flush().unwrap();
    }
    assert_eq!(contents(&table).len(), 4);
    let open_sstables = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap();
        let names = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
        let below = directory.path().join(id.to_string()).join("sst");
        names.filter(|name| name.starts_with(&below)).count()
    };
    assert_eq!(open_sstables(), 4);
    let no_grace = Options { grace_ms: 0, ..options() };
    assert!(compact_all(&place.environment, id, &place.cache, &no_grace).unwrap());
    table.refresh().unwrap();
    place.cache.close_removed();
    assert_eq!(open_sstables(), 4, "they are not removed yet");
    let scan = table.scan(&KeyRange::all(), Direction::Forward).unwrap();
    assert_eq!(collect(&place.environment, id).unwrap().sstables, 4);
    place.cache.close_removed();
    assert_eq!(open_sstables(), 1, "removed files would take space");
    assert_eq!((scan.collect().unwrap().len(), contents(&table).len()), (4, 4));
}

/// A clock that goes when it is told to.
#[derive(Default)]
struct Stopped(AtomicU64);

impl Clock for Stopped {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn sleep(&self, _: Duration) {}
}

#[test]
fn an_ingestion_that_goes_on_is_not_ended_by_others() {
    let clock = Arc::new(Stopped::default());
    let mut place = Fixture::new(Arc::new(MemoryStorage::default()));
    place.environment.clock = clock.clone();
    let (environment, id) = (&place.environment, place.create());
    let options = Options { memtable_bytes: 4 << 10, job_ms: 60_000, ..options() };
    let mut ingestion = Ingestion::begin(environment, id, &options).unwrap();
    let record = |at: u64, add: &mut dyn FnMut(RecordRef<'_>)| {
        let (key, value) = (key(1, at), at.to_le_bytes());
        add(RecordRef { key: key.as_ref(), op: Op::Put, value: &value });
    };
    for at in 0..1000 {
        record(at, &mut |record| ingestion.add(record).unwrap());
        if at % 200 == 199 {
            clock.0.fetch_add(40_000, Ordering::Relaxed);
            collect(environment, id).unwrap();
        }
    }
    ingestion.commit().unwrap();
    assert_eq!(place.read(id).len(), 1000);

    let mut idle = Ingestion::begin(environment, id, &options).unwrap();
    record(1000, &mut |record| idle.add(record).unwrap());
    clock.0.fetch_add(60_001, Ordering::Relaxed);
    collect(environment, id).unwrap();
    let error = idle.commit().unwrap_err();
    assert!(error.to_string().contains("the ingestion took too long"), "{error}");
}

#[test]
fn a_flipped_bit_of_a_log_is_found() {
    let storage = Arc::new(MemoryStorage::default());
    let place = Fixture::new(storage.clone());
    let id = place.create();
    let table = place.open(id);
    put(&table, &key(1, 1), 1);
    table.sync().unwrap();
    drop(table);
    let segment = storage.list(&format!("{id}/log/"), "").unwrap().remove(0).name;
    let whole = storage.read(&segment).unwrap();
    assert!(whole.len() > 24 + 8 + 16, "a head, the head of a group, and a batch");
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        storage.remove(&segment).unwrap();
        storage.create(&segment, bytes.into()).unwrap();
        // A reader takes any nonce: only the writer of a segment compares it.
        let is_nonce = (16..24).contains(&(bit / 8));
        match place.try_open(id) {
            Ok(table) => {
                assert!(is_nonce, "bit {bit} was not found");
                assert_eq!(contents(&table), BTreeMap::from([(key(1, 1), 1)]), "bit {bit}");
            }
            Err(error) => {
                assert!(!is_nonce && matches!(error, Error::Corrupt { .. }), "bit {bit}: {error}");
            }
        }
    }
}

#[test]
fn threads_see_whole_batches_while_a_table_is_kept_up() {
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let id = place.create();
    let small = Options { memtable_bytes: 60_000, memory_bytes: 200_000, grace_ms: 0, ..options() };
    let table = Table::open(&place.environment, id, place.cache.clone(), small).unwrap();
    let table = Arc::new(table);
    let upkeep = Upkeep::start(&table);
    let is_over = AtomicBool::new(false);
    let (writers, keys, rounds) = (3, 40, 120);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut before = BTreeMap::new();
                while !is_over.load(Ordering::Relaxed) {
                    // Each batch adds one to all keys of its writer, and nothing is ever less.
                    for (writer, found) in by_directory(&table) {
                        let is_whole = found.len() as u64 == keys && found[1..] == found[..39];
                        assert!(is_whole, "{writer}: {found:?}");
                        let before = before.insert(writer, found[0]).unwrap_or(0);
                        assert!(before <= found[0], "{writer}: {} after {before}", found[0]);
                    }
                    let alone =
                        table.get(key(0, 7).as_ref()).unwrap().map_or(0, |one| number(&one));
                    let before = before.get(&0).copied().unwrap_or(0);
                    assert!(before <= alone, "{alone} after {before}");
                }
            });
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                compact(&place.environment, id, &place.cache, &options()).ok();
                std::thread::yield_now();
            }
        });
        let writing = Vec::from_iter((0..writers).map(|writer| {
            let table = &table;
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut batch = Batch::new();
                    for at in 0..keys {
                        batch.merge(key(writer, at).as_ref(), &1u64.to_le_bytes()).unwrap();
                    }
                    let durability =
                        if round % 40 == 0 { Durability::Durable } else { Durability::Visible };
                    table.write(&batch, durability).unwrap();
                }
            })
        }));
        writing.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(upkeep.failure(), None);
    drop(upkeep);
    table.sync().unwrap();
    drop(table);
    let table = place.open(id);
    let expected = BTreeMap::from_iter(
        (0..writers).flat_map(|writer| (0..keys).map(move |at| (key(writer, at), rounds))),
    );
    assert_eq!(contents(&table), expected);
}

fn by_directory(table: &Table) -> BTreeMap<u64, Vec<u64>> {
    let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (key, value) in contents(table) {
        found.entry(key.directory).or_default().push(value);
    }
    found
}

/// Storage that overwrites.
struct Overwriting(MemoryStorage);

impl Storage for Overwriting {
    fn read_range(
        &self,
        name: &str,
        range: std::ops::Range<u64>,
    ) -> canopy_store::Result<bytes::Bytes> {
        self.0.read_range(name, range)
    }

    fn read(&self, name: &str) -> canopy_store::Result<bytes::Bytes> {
        self.0.read(name)
    }

    fn create(&self, name: &str, bytes: bytes::Bytes) -> canopy_store::Result<Created> {
        self.0.remove(name)?;
        self.0.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: &str) -> canopy_store::Result<Vec<Listed>> {
        self.0.list(prefix, after)
    }

    fn remove(&self, name: &str) -> canopy_store::Result<()> {
        self.0.remove(name)
    }

    fn append_to(&self, name: &str) -> canopy_store::Result<Option<Box<dyn Append>>> {
        self.0.append_to(name)
    }

    fn lock(&self, name: &str) -> canopy_store::Result<Option<Box<dyn Send + Sync>>> {
        self.0.lock(name)
    }
}

#[test]
fn storage_that_overwrites_is_refused() {
    let place = Fixture::new(Arc::new(Overwriting(MemoryStorage::default())));
    let error = create(&place.environment, layout(), &options()).unwrap_err();
    assert!(error.to_string().contains("overwrites objects"), "{error}");
}

//! Tables on real storage: what each operation does, and what wrong use is told.

mod hostile;
mod unknown;

use canopy_store::storage::{Append, Created, Listed, LocalStorage, MemoryStorage, Storage};
use canopy_store::{
    Base, Batch, Column, Direction, Durability, Environment, Error, Ingestion, Key, KeyRange,
    KeyRef, Layout, MergeOperator, Op, Options, Reader, RecordRef, Table, TableId, Tables, Upkeep,
    checkpoint, clone, collect, compact, compact_all, create, delete, inspect, release, restrict,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Adds numbers.
struct Add;

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

impl MergeOperator for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn apply(&self, _key: KeyRef<'_>, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
        (value.map_or(0, number) + number(operand)).to_le_bytes().into()
    }

    fn combine(&self, key: KeyRef<'_>, first: &[u8], second: &[u8]) -> Vec<u8> {
        self.apply(key, Some(first), second)
    }
}

fn options() -> Options {
    Options {
        memtable_bytes: 1 << 20,
        sstable_bytes: 64 << 10,
        operator: Some(Arc::new(Add)),
        ..Options::default()
    }
}

fn layout() -> Layout {
    Layout { columns: vec![Column { name: "count".into(), width: 8, near: None }] }
}

struct Place {
    environment: Environment,
    tables: Arc<Tables>,
}

impl Place {
    fn new(storage: Arc<dyn Storage>) -> Self {
        let environment = Environment::system(storage);
        let tables = Tables::new(&environment, 8 << 20);
        Place { environment, tables }
    }

    fn local(path: &Path) -> Self {
        Place::new(Arc::new(LocalStorage::new(path).unwrap()))
    }

    fn create(&self) -> TableId {
        create(&self.environment, layout(), &options()).unwrap()
    }

    fn open(&self, id: TableId) -> Table {
        self.try_open(id).unwrap()
    }

    fn try_open(&self, id: TableId) -> canopy_store::Result<Table> {
        Table::open(&self.environment, id, self.tables.clone(), options())
    }

    fn read(&self, id: TableId) -> BTreeMap<Key, u64> {
        let reader = Reader::open(&self.environment, id, None, &self.tables, &options()).unwrap();
        map(reader.scan(&KeyRange::all(), Direction::Forward).unwrap().collect().unwrap())
    }
}

fn map(records: Vec<(Key, Vec<u8>)>) -> BTreeMap<Key, u64> {
    records.into_iter().map(|(key, value)| (key, number(&value))).collect()
}

fn key(directory: u64, at: u64) -> Key {
    Key::named(directory, format!("file-{at}").as_bytes())
}

fn put(table: &Table, key: &Key, value: u64) {
    let mut batch = Batch::new();
    batch.put(key.as_ref(), &value.to_le_bytes()).unwrap();
    table.write(&batch, Durability::Visible).unwrap();
}

fn add(table: &Table, key: &Key, value: u64) {
    let mut batch = Batch::new();
    batch.merge(key.as_ref(), &value.to_le_bytes()).unwrap();
    table.write(&batch, Durability::Visible).unwrap();
}

fn contents(table: &Table) -> BTreeMap<Key, u64> {
    map(table.scan(&KeyRange::all(), Direction::Forward).unwrap().collect().unwrap())
}

#[test]
fn what_was_synced_is_there_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::local(directory.path());
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
fn what_a_power_cut_tore_is_not_there() {
    // The blocks of a file are written in any order: what was not synced may be there without its
    // beginning.
    let directory = tempfile::tempdir().unwrap();
    let place = Place::local(directory.path());
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
fn a_table_of_one_machine_has_one_writer() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::local(directory.path());
    let id = place.create();
    let table = place.open(id);
    let error = place.try_open(id).err().unwrap();
    assert!(matches!(&error, Error::Fenced(_)), "{error}");
    assert!(error.to_string().contains("another process writes this table"), "{error}");
    drop(table);
    place.open(id);
}

#[test]
fn a_newer_writer_ends_an_older_one() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let old = place.open(id);
    put(&old, &key(1, 1), 1);
    old.sync().unwrap();
    let new = place.open(id);
    put(&old, &key(1, 2), 2);
    assert!(matches!(old.sync(), Err(Error::Fenced(_))));
    let mut batch = Batch::new();
    batch.delete(key(1, 1).as_ref()).unwrap();
    let refused = old.write(&batch, Durability::Visible);
    assert!(matches!(refused, Err(Error::Fenced(_))));
    assert_eq!(contents(&new), BTreeMap::from([(key(1, 1), 1)]));
}

#[test]
fn wrong_use_is_told() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let none = Options { operator: None, ..options() };
    let error = Table::open(&place.environment, id, place.tables.clone(), none).err().unwrap();
    assert_eq!(error.to_string(), "the table's merges are by \"add\", not by \"\"");
    let mut batch = Batch::new();
    let long = Key { name: vec![b'a'; 70_000], ..Key::default() };
    assert!(batch.put(long.as_ref(), b"").is_err());
    let absent = TableId::random(&place.environment);
    assert!(place.try_open(absent).err().unwrap().is_not_found());
    delete(&place.environment, id).unwrap();
    assert!(place.try_open(id).err().unwrap().is_not_found());
    assert!(checkpoint(&place.environment, id, None).err().unwrap().is_not_found());
}

#[test]
fn files_from_elsewhere_are_the_newest() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let table = place.open(id);
    for at in 0..1000 {
        put(&table, &key(at % 3, at), 1);
    }
    table.flush().unwrap();
    let mut ingestion =
        Ingestion::begin(&place.environment, id, &Options { memtable_bytes: 9000, ..options() })
            .unwrap();
    for round in 0..3u64 {
        for at in (0..1000).rev().step_by(2) {
            let (key, value) = (key(at % 3, at), round.to_le_bytes());
            let op = if at % 4 == 1 { Op::Merge } else { Op::Put };
            ingestion.add(RecordRef { key: key.as_ref(), op, value: &value }).unwrap();
        }
    }
    table.refresh().unwrap();
    assert_eq!(contents(&table).values().sum::<u64>(), 1000);
    ingestion.commit().unwrap();
    table.refresh().unwrap();
    let expected = |at: u64| match at % 4 {
        1 => 1 + 3,
        3 => 2,
        _ => 1,
    };
    let expected = BTreeMap::from_iter((0..1000).map(|at| (key(at % 3, at), expected(at))));
    assert_eq!(contents(&table), expected);
    compact_all(&place.environment, id, &place.tables, &options()).unwrap();
    table.refresh().unwrap();
    assert_eq!(inspect(&place.environment, id).unwrap().state.runs.len(), 1);
    assert_eq!(contents(&table), expected);
}

#[test]
fn a_range_is_handed_over_without_copying() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let table = place.open(id);
    for at in 0..3000 {
        put(&table, &key(1, at), at);
    }
    table.flush().unwrap();
    let whole = contents(&table);
    let middle = Key { directory: 1, hash: 1 << 63, name: Vec::new() };
    let lower = KeyRange { start: Key::default(), end: Some(middle.clone()) };
    let upper = KeyRange { start: middle, end: None };
    let base = Base { table: id, checkpoint: None };
    let new = clone(&place.environment, &[base], &upper).unwrap();
    restrict(&place.environment, id, &lower).unwrap();
    table.refresh().unwrap();
    let (kept, given) = (contents(&table), place.read(new));
    assert!(kept.len() > 1000 && given.len() > 1000);
    let mut both = kept.clone();
    both.extend(given.clone());
    assert_eq!(both, whole);
    assert!(kept.keys().all(|key| lower.contains(key.as_ref())));

    // Each goes its own way, and the first may even go.
    let other = place.open(new);
    put(&other, given.keys().next().unwrap(), 77);
    other.flush().unwrap();
    compact_all(&place.environment, id, &place.tables, &options()).unwrap();
    drop(table);
    delete(&place.environment, id).unwrap();
    collect(&place.environment, id).unwrap();
    let mut expected = given;
    *expected.values_mut().next().unwrap() = 77;
    assert_eq!(contents(&other), expected);
    compact_all(&place.environment, new, &place.tables, &options()).unwrap();
    other.refresh().unwrap();
    assert_eq!(contents(&other), expected);
}

#[test]
fn of_several_tables_the_first_counts() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let bases = Vec::from_iter((0..3u64).map(|base| {
        let id = place.create();
        let table = place.open(id);
        for at in 0..(base + 1) * 100 {
            put(&table, &key(1, at), base);
        }
        if base == 0 {
            let mut batch = Batch::new();
            batch.delete(key(1, 250).as_ref()).unwrap();
            table.write(&batch, Durability::Visible).unwrap();
        }
        table.flush().unwrap();
        Base { table: id, checkpoint: None }
    }));
    let merged = clone(&place.environment, &bases, &KeyRange::all()).unwrap();
    let expected =
        BTreeMap::from_iter((0..300).filter(|at| *at != 250).map(|at| (key(1, at), at / 100)));
    assert_eq!(place.read(merged), expected);
    let tables = &place.tables;
    compact_all(&place.environment, merged, tables, &options()).unwrap();
    bases.iter().for_each(|base| delete(&place.environment, base.table).unwrap());
    for _ in 0..2 {
        for base in &bases {
            collect(&place.environment, base.table).unwrap();
        }
    }
    assert_eq!(place.read(merged), expected);
}

#[test]
fn what_was_synced_before_is_flushed() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let table = place.open(id);
    let mut batch = Batch::new();
    batch.put(key(1, 1).as_ref(), &1u64.to_le_bytes()).unwrap();
    table.write(&batch, Durability::Durable).unwrap();
    table.flush().unwrap();
    assert_eq!(place.read(id), BTreeMap::from([(key(1, 1), 1)]));
    assert_eq!(table.memtable_bytes(), 0);
}

#[test]
fn files_from_elsewhere_go_into_clones() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let base = place.create();
    let ingest = |id, key: &Key, value: u64| {
        let mut ingestion = Ingestion::begin(&place.environment, id, &options()).unwrap();
        let (key, value) = (key.as_ref(), value.to_le_bytes());
        ingestion.add(RecordRef { key, op: Op::Put, value: &value }).unwrap();
        ingestion.commit().unwrap();
    };
    for at in 0..3 {
        ingest(base, &key(1, at), at);
    }
    let whole = KeyRange::all();
    let clone = clone(&place.environment, &[Base { table: base, checkpoint: None }], &whole);
    let clone = clone.unwrap();
    let mut expected = BTreeMap::from_iter((0..3).map(|at| (key(1, at), at)));
    // Its jobs have the numbers that the base's had.
    for at in 3..6 {
        ingest(clone, &key(1, at), at);
        expected.insert(key(1, at), at);
        assert_eq!(place.read(clone), expected);
    }
}

#[test]
fn of_records_of_one_key_without_bytes_the_last_counts() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let table = place.open(id);
    let keys = Vec::from_iter((0..200).map(|hash| Key { directory: 1, hash, name: Vec::new() }));
    for round in 0..3u64 {
        for key in &keys {
            let mut batch = Batch::new();
            batch.delete(key.as_ref()).unwrap();
            batch.put(key.as_ref(), &round.to_le_bytes()).unwrap();
            batch.delete(key.as_ref()).unwrap();
            batch.put(key.as_ref(), &(round + 1).to_le_bytes()).unwrap();
            table.write(&batch, Durability::Visible).unwrap();
        }
    }
    table.sync().unwrap();
    let expected = BTreeMap::from_iter(keys.into_iter().map(|key| (key, 3)));
    assert_eq!(contents(&place.open(id)), expected);
}

#[test]
fn keys_of_other_tables_are_refused() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    restrict(&place.environment, id, &KeyRange::directory(5)).unwrap();
    let table = place.open(id);
    put(&table, &key(5, 1), 1);
    let mut batch = Batch::new();
    batch.put(key(5, 2).as_ref(), &2u64.to_le_bytes()).unwrap();
    batch.put(key(6, 1).as_ref(), &2u64.to_le_bytes()).unwrap();
    let error = table.write(&batch, Durability::Visible).unwrap_err();
    assert_eq!(error.to_string(), "a key that is not in the table's range");
    assert_eq!(contents(&table), BTreeMap::from([(key(5, 1), 1)]));
}

#[test]
fn one_file_in_several_runs_is_merged_rightly() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let table = place.open(id);
    (0..400).for_each(|at| put(&table, &key(1, at), at));
    table.flush().unwrap();
    let whole = place.read(id);
    let middle = Key { directory: 1, hash: 1 << 63, name: Vec::new() };
    let halves = [
        KeyRange { start: Key::default(), end: Some(middle.clone()) },
        KeyRange { start: middle, end: None },
    ];
    let base = Base { table: id, checkpoint: None };
    let halves = halves.map(|half| clone(&place.environment, &[base], &half).unwrap());
    let bases = halves.map(|table| Base { table, checkpoint: None });
    let both = clone(&place.environment, &bases, &KeyRange::all()).unwrap();
    assert_eq!(place.read(both), whole);
    assert!(compact_all(&place.environment, both, &place.tables, &options()).unwrap());
    assert_eq!(inspect(&place.environment, both).unwrap().state.runs.len(), 1);
    assert_eq!(place.read(both), whole);
}

#[test]
fn a_long_log_with_ranges_is_few_runs() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let table = place.open(id);
    for at in 0..300 {
        put(&table, &key(at, 1), at);
        let mut batch = Batch::new();
        batch.delete_range(&KeyRange::directory(at.wrapping_sub(5))).unwrap();
        table.write(&batch, Durability::Durable).unwrap();
    }
    let table = place.open(id);
    let expected = BTreeMap::from_iter((295..300).map(|at| (key(at, 1), at)));
    assert_eq!(contents(&table), expected);
    table.flush().unwrap();
    assert_eq!(contents(&table), expected);
    assert!(table.manifest().state.runs.len() < 3, "{}", table.manifest().state.runs.len());
}

#[test]
fn a_checkpoint_stays_as_it_was() {
    let place = Place::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let table = place.open(id);
    put(&table, &key(1, 1), 1);
    table.flush().unwrap();
    let (checkpoint, _) = checkpoint(&place.environment, id, None).unwrap();
    put(&table, &key(1, 1), 2);
    table.flush().unwrap();
    let no_grace = Options { grace_ms: 0, ..options() };
    compact_all(&place.environment, id, &place.tables, &no_grace).unwrap();
    collect(&place.environment, id).unwrap();
    let value = |checkpoint| {
        let reader = Reader::open(&place.environment, id, checkpoint, &place.tables, &options())?;
        Ok::<_, Error>(number(&reader.get(key(1, 1).as_ref())?.unwrap()))
    };
    assert_eq!(value(Some(checkpoint)).unwrap(), 1);
    assert_eq!(value(None).unwrap(), 2);
    release(&place.environment, id, checkpoint).unwrap();
    // Although the writer that made it goes on.
    assert!(collect(&place.environment, id).unwrap().sstables > 0);
    drop(table);
    let error = value(Some(checkpoint)).unwrap_err();
    assert!(error.to_string().contains("its time was over"), "{error}");
}

#[test]
fn a_flipped_bit_of_a_log_is_found() {
    let storage = Arc::new(MemoryStorage::default());
    let place = Place::new(storage.clone());
    let id = place.create();
    let table = place.open(id);
    put(&table, &key(1, 1), 1);
    table.sync().unwrap();
    drop(table);
    let segment = storage.list(&format!("{id}/log/"), "").unwrap().remove(0).name;
    let whole = storage.read(&segment).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        storage.remove(&segment).unwrap();
        storage.create(&segment, bytes.into()).unwrap();
        // The nonce only has to be one's own.
        let is_nonce = (16..24).contains(&(bit / 8));
        let opened = place.try_open(id);
        assert!(is_nonce == opened.is_ok(), "bit {bit}: {:?}", opened.err());
        if is_nonce {
            return;
        }
    }
}

#[test]
fn threads_see_whole_batches_while_a_table_is_kept_up() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::local(directory.path());
    let id = place.create();
    let small = Options { memtable_bytes: 60_000, memory_bytes: 200_000, grace_ms: 0, ..options() };
    let table = Table::open(&place.environment, id, place.tables.clone(), small).unwrap();
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
                compact(&place.environment, id, &place.tables, &options()).ok();
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
    let place = Place::new(Arc::new(Overwriting(MemoryStorage::default())));
    let error = create(&place.environment, layout(), &options()).unwrap_err();
    assert!(error.to_string().contains("overwrites objects"), "{error}");
}

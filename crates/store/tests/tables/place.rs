//! A place for tables, and what tests write to them and read from them.

use canopy_store::storage::Storage;
use canopy_store::{
    Batch, Column, Direction, Durability, Environment, Key, KeyRange, KeyRef, Layout,
    MergeOperator, Options, Reader, SstableCache, Table, TableId, create,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Adds numbers.
pub struct Add;

pub fn number(bytes: &[u8]) -> u64 {
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

pub fn options() -> Options {
    Options {
        memtable_bytes: 1 << 20,
        sstable_bytes: 64 << 10,
        operator: Some(Arc::new(Add)),
        ..Options::default()
    }
}

pub fn layout() -> Layout {
    Layout { columns: vec![Column { name: "count".into(), width: 8, near: None }] }
}

pub struct Fixture {
    pub environment: Environment,
    pub cache: Arc<SstableCache>,
}

impl Fixture {
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        let environment = Environment::system(storage);
        let cache = SstableCache::new(&environment, 8 << 20);
        Fixture { environment, cache }
    }

    pub fn create(&self) -> TableId {
        create(&self.environment, layout(), &options()).unwrap()
    }

    pub fn open(&self, id: TableId) -> Table {
        self.try_open(id).unwrap()
    }

    pub fn try_open(&self, id: TableId) -> canopy_store::Result<Table> {
        Table::open(&self.environment, id, self.cache.clone(), options())
    }

    pub fn read(&self, id: TableId) -> BTreeMap<Key, u64> {
        let reader = Reader::open(&self.environment, id, None, &self.cache, &options()).unwrap();
        map(reader.scan(&KeyRange::all(), Direction::Forward).unwrap().collect().unwrap())
    }
}

pub fn map(records: Vec<(Key, Vec<u8>)>) -> BTreeMap<Key, u64> {
    records.into_iter().map(|(key, value)| (key, number(&value))).collect()
}

pub fn key(directory: u64, at: u64) -> Key {
    Key::named(directory, format!("file-{at}").as_bytes())
}

pub fn put(table: &Table, key: &Key, value: u64) {
    let mut batch = Batch::new();
    batch.put(key.as_ref(), &value.to_le_bytes()).unwrap();
    table.write(&batch, Durability::Visible).unwrap();
}

pub fn contents(table: &Table) -> BTreeMap<Key, u64> {
    map(table.scan(&KeyRange::all(), Direction::Forward).unwrap().collect().unwrap())
}

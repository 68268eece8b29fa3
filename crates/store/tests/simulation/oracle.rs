//! What must be in a table: a map for every moment of its history.
//!
//! Each batch writes the number of the writer and of the batch into a record, so that a table tells
//! which batches it has.

use canopy_store::{Batch, Direction, Key, KeyRange, KeyRef, MergeOperator, Result, Scan, TableId};
use std::collections::BTreeMap;
use std::sync::Mutex;

pub type Map = BTreeMap<Key, Vec<u8>>;

/// One change, as the oracle makes it.
#[derive(Clone, Debug)]
pub enum Step {
    Put(Key, Vec<u8>),
    Merge(Key, Vec<u8>),
    Delete(Key),
    DeleteRange(KeyRange),
}

/// What one writer did, or what a clone began with.
#[derive(Default)]
struct Generation {
    base: Map,
    batches: Vec<Vec<Step>>,
    /// Batches up to this number were acknowledged as durable.
    durable: usize,
    /// How many of them the writer after this one found.
    found: Option<usize>,
}

/// All tables' histories.
#[derive(Default)]
pub struct Oracle {
    generations: Mutex<Vec<Generation>>,
    tables: Mutex<BTreeMap<TableId, Table>>,
}

#[derive(Clone, Debug)]
pub struct Table {
    /// Its latest writer's generation, or what it began with.
    pub latest: usize,
    /// That writer's epoch.
    pub epoch: u64,
    pub is_deleted: bool,
}

/// The record that tells which batches a table has.
pub fn marker() -> Key {
    Key { directory: u64::MAX, hash: 0, name: b"marker".to_vec() }
}

/// Appends operands to values, so that any other order is seen.
pub struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn apply(&self, _key: KeyRef<'_>, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
        [value.unwrap_or_default(), operand].concat()
    }

    fn combine(&self, _key: KeyRef<'_>, first: &[u8], second: &[u8]) -> Vec<u8> {
        [first, second].concat()
    }
}

fn apply(map: &mut Map, step: &Step) {
    match step {
        Step::Put(key, value) => drop(map.insert(key.clone(), value.clone())),
        Step::Merge(key, operand) => map.entry(key.clone()).or_default().extend(operand),
        Step::Delete(key) => drop(map.remove(key)),
        Step::DeleteRange(range) => map.retain(|key, _| !range.contains(key.as_ref())),
    }
}

pub fn batch_of(steps: &[Step]) -> Batch {
    let mut batch = Batch::new();
    for step in steps {
        match step {
            Step::Put(key, value) => batch.put(key.as_ref(), value).unwrap(),
            Step::Merge(key, operand) => batch.merge(key.as_ref(), operand).unwrap(),
            Step::Delete(key) => batch.delete(key.as_ref()).unwrap(),
            Step::DeleteRange(range) => batch.delete_range(range).unwrap(),
        }
    }
    batch
}

fn marker_value(generation: usize, batches: usize) -> Vec<u8> {
    [(generation as u64).to_le_bytes(), (batches as u64).to_le_bytes()].concat()
}

impl Generation {
    /// What a table has after so many batches.
    fn at(&self, own: usize, batches: usize) -> Map {
        let mut map = self.base.clone();
        self.batches[..batches].iter().flatten().for_each(|step| apply(&mut map, step));
        if batches > 0 {
            map.insert(marker(), marker_value(own, batches));
        }
        map
    }
}

/// Returns all of a scan.
pub fn read_all(mut scan: Scan) -> Result<Map> {
    let mut map = Map::new();
    let mut last: Option<Key> = None;
    while let Some(record) = scan.next()? {
        let key = record.key.to_key();
        if let Some(last) = &last {
            assert_ne!(*last, key, "a scan has a key twice");
        }
        map.insert(key.clone(), record.value.to_vec());
        last = Some(key);
    }
    Ok(map)
}

impl Oracle {
    pub fn add_table(&self, table: TableId, base: Map) {
        let mut generations = self.generations.lock().unwrap();
        generations.push(Generation { base, ..Generation::default() });
        let latest = generations.len() - 1;
        self.tables.lock().unwrap().insert(table, Table { latest, epoch: 0, is_deleted: false });
    }

    pub fn tables(&self) -> Vec<(TableId, Table)> {
        self.tables.lock().unwrap().iter().map(|(id, table)| (*id, table.clone())).collect()
    }

    pub fn mark_deleted(&self, table: TableId) {
        if let Some(table) = self.tables.lock().unwrap().get_mut(&table) {
            table.is_deleted = true;
        }
    }

    pub fn is_deleted(&self, table: TableId) -> bool {
        self.tables.lock().unwrap().get(&table).is_none_or(|table| table.is_deleted)
    }

    /// Checks that a map is what some table had at some moment.
    pub fn check_some_moment(&self, map: &Map, range: &KeyRange, what: &str) {
        let generations = self.generations.lock().unwrap();
        let expected = match map.get(&marker()) {
            Some(value) => {
                let number = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().unwrap());
                let (own, batches) = (number(0) as usize, number(8) as usize);
                generations[own].at(own, batches)
            }
            None => Map::new(),
        };
        check_equal(map, &within(expected, range), what);
    }

    /// Checks what the new writer of a table found, and begins its generation. If another opened
    /// the table since, nothing that it writes may be acknowledged.
    pub fn opened(&self, table: TableId, epoch: u64, found: &Map) -> usize {
        let mut tables = self.tables.lock().unwrap();
        let mut generations = self.generations.lock().unwrap();
        let Table { latest: before, epoch: epoch_before, .. } = tables[&table];
        if epoch < epoch_before {
            generations.push(Generation {
                base: found.clone(),
                found: Some(0),
                ..Generation::default()
            });
            return generations.len() - 1;
        }
        let value = found.get(&marker()).cloned();
        let number = |at: usize| {
            value
                .as_ref()
                .map(|value| u64::from_le_bytes(value[at..at + 8].try_into().unwrap()) as usize)
        };
        let batches = match number(0) {
            Some(own) if own == before => number(8).unwrap(),
            // Nothing of the writer before, if what is there is what that one began with.
            _ => 0,
        };
        let of = &mut generations[before];
        assert!(batches <= of.batches.len(), "batches that nobody wrote");
        assert!(
            batches >= of.durable,
            "table {table}: {} batches were acknowledged as durable, {batches} are there",
            of.durable
        );
        check_equal(found, &of.at(before, batches), "what a new writer found");
        of.found = Some(batches);
        generations.push(Generation { base: found.clone(), ..Generation::default() });
        let own = generations.len() - 1;
        if let Some(table) = tables.get_mut(&table) {
            table.latest = own;
            table.epoch = epoch;
        }
        own
    }

    /// Adds a batch that is about to be written and returns it with its marker.
    pub fn begin_batch(&self, own: usize, mut steps: Vec<Step>) -> Batch {
        let mut generations = self.generations.lock().unwrap();
        let of = &mut generations[own];
        of.batches.push(steps.clone());
        steps.push(Step::Put(marker(), marker_value(own, of.batches.len())));
        batch_of(&steps)
    }

    /// Everything that the writer wrote was acknowledged as durable.
    pub fn acknowledged(&self, own: usize) {
        let mut generations = self.generations.lock().unwrap();
        let of = &mut generations[own];
        of.durable = of.batches.len();
        if let Some(found) = of.found {
            assert!(
                of.durable <= found,
                "a writer's batch {} was acknowledged after another had opened the table with {found}",
                of.durable
            );
        }
    }

    /// Returns what a writer's table has.
    pub fn own(&self, own: usize) -> Map {
        let generations = self.generations.lock().unwrap();
        generations[own].at(own, generations[own].batches.len())
    }
}

pub fn within(map: Map, range: &KeyRange) -> Map {
    map.into_iter().filter(|(key, _)| range.contains(key.as_ref())).collect()
}

pub fn check_equal(found: &Map, expected: &Map, what: &str) {
    if found != expected {
        let keys = std::collections::BTreeSet::from_iter(found.keys().chain(expected.keys()));
        for key in keys {
            if found.get(key) != expected.get(key) {
                let (found, expected) = (found.get(key), expected.get(key));
                panic!("{what}: {key:?} is {found:?}, not {expected:?}");
            }
        }
    }
}

/// Reads forward, and backward, which must be the same.
pub fn both_ways(scan: impl Fn(Direction) -> Result<Scan>) -> Result<Map> {
    let forward = read_all(scan(Direction::Forward)?)?;
    let backward = read_all(scan(Direction::Backward)?)?;
    check_equal(&backward, &forward, "backward");
    Ok(forward)
}

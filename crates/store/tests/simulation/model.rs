//! What the engine does, as simply as can be: maps, and steps that change them.
//!
//! Every table has a few records that are its **history**: each batch and each ingestion appends
//! its own number to all of them by a merge. So whoever reads a table, or a range with one of these
//! records, is told what has happened to it, and in which order.

use canopy_store::{Batch, Direction, Key, KeyRange, KeyRef, MergeOperator, Result, Scan};
use std::collections::{BTreeMap, BTreeSet};

pub type Map = BTreeMap<Key, Vec<u8>>;

/// Directories that keys are in; few, so that they meet.
pub const DIRECTORIES: u64 = 3;

/// One change.
#[derive(Clone, Debug)]
pub enum Step {
    Put(Key, Vec<u8>),
    Merge(Key, Vec<u8>),
    Delete(Key),
    DeleteRange(KeyRange),
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

/// Returns the keys of the records that are the history: one in the middle of each directory.
pub fn histories() -> impl Iterator<Item = Key> {
    let name = b"history".to_vec();
    (0..DIRECTORIES).map(move |directory| Key { directory, hash: 1 << 63, name: name.clone() })
}

/// Returns those within a range.
pub fn histories_in(range: &KeyRange) -> Vec<Key> {
    histories().filter(|key| range.contains(key.as_ref())).collect()
}

/// Returns the parts of a range between the records that are the history.
pub fn beside_histories(range: &KeyRange) -> Vec<KeyRange> {
    let mut start = Key::default();
    let mut parts = Vec::new();
    for key in histories() {
        parts.push(KeyRange { start, end: Some(key.clone()) });
        start = key.successor();
    }
    parts.push(KeyRange { start, end: None });
    let parts = parts.iter().map(|part| part.intersection(range));
    parts.filter(|part| !part.is_empty()).collect()
}

/// Returns the least range that has all keys of a step.
pub fn range_of(step: &Step) -> KeyRange {
    match step {
        Step::Put(key, _) | Step::Merge(key, _) | Step::Delete(key) => {
            KeyRange { start: key.clone(), end: Some(key.clone().successor()) }
        }
        Step::DeleteRange(range) => range.clone(),
    }
}

pub fn apply(map: &mut Map, step: &Step) {
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

pub fn within(map: Map, range: &KeyRange) -> Map {
    map.into_iter().filter(|(key, _)| range.contains(key.as_ref())).collect()
}

pub fn check_equal(found: &Map, expected: &Map, what: &str) {
    check_between(found, expected, &KeyRange::all(), what);
}

/// Checks that what was found is what was expected, but for keys outside of `surely`, which may be
/// missing.
pub fn check_between(found: &Map, expected: &Map, surely: &KeyRange, what: &str) {
    if found == expected {
        return;
    }
    for key in BTreeSet::from_iter(found.keys().chain(expected.keys())) {
        let (found, expected) = (found.get(key), expected.get(key));
        let may_miss = found.is_none() && !surely.contains(key.as_ref());
        assert!(found == expected || may_miss, "{what}: {key:?} is {found:?}, not {expected:?}");
    }
}

/// Returns the records of several tables, the first of which counts most, as one table may have
/// them. A removed key of a table may let those below be seen, or not: what says that it was
/// removed goes when that table is compacted. `removed` are the keys that this may be true of.
pub struct Layer {
    pub map: Map,
    pub range: KeyRange,
    pub removed: Vec<KeyRange>,
}

pub fn check_layers(found: &Map, layers: &[Layer], range: &KeyRange) {
    let keys = layers.iter().flat_map(|layer| layer.map.keys()).chain(found.keys());
    for key in BTreeSet::from_iter(keys) {
        let mut possible: Vec<Option<Vec<u8>>> = vec![None];
        for layer in layers.iter().rev().filter(|of| of.range.contains(key.as_ref())) {
            match layer.map.get(key) {
                Some(value) => {
                    let below = possible.into_iter().flatten();
                    // What has only operands in this table changes the value below.
                    possible = below.map(|below| Some([&below, &**value].concat())).collect();
                    possible.push(Some(value.clone()));
                }
                None if layer.removed.iter().any(|range| range.contains(key.as_ref())) => {
                    possible.push(None);
                }
                None => {}
            }
        }
        let is_in = range.contains(key.as_ref());
        let value = found.get(key).cloned();
        let is_right = if is_in { possible.contains(&value) } else { value.is_none() };
        assert!(is_right, "tables made one: {key:?} is {value:?}, not one of {possible:?}");
    }
}

/// Returns up to `count` records of a scan.
pub fn read_some(mut scan: Scan, count: usize, direction: Direction) -> Result<Map> {
    let mut map = Map::new();
    let mut last: Option<Key> = None;
    while map.len() < count {
        let Some(record) = scan.next()? else { break };
        let key = record.key.to_key();
        if let Some(last) = &last {
            let is_next = if direction == Direction::Forward { *last < key } else { *last > key };
            assert!(is_next, "a scan has {key:?} after {last:?}");
        }
        map.insert(key.clone(), record.value.to_vec());
        last = Some(key);
    }
    Ok(map)
}

/// Reads forward, and backward, which must be the same.
pub fn both_ways(scan: impl Fn(Direction) -> Result<Scan>) -> Result<Map> {
    let [forward, backward] = [Direction::Forward, Direction::Backward]
        .map(|direction| read_some(scan(direction)?, usize::MAX, direction));
    let (forward, backward) = (forward?, backward?);
    check_equal(&backward, &forward, "backward");
    Ok(forward)
}

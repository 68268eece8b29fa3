//! The memtable: records that are in no SSTable yet, in memory and in order. Every version of a key
//! that somebody may still read is kept, by the sequence number of its batch.

use crate::batch::{Changes, Mutation};
use crate::error::{Error, Result};
use crate::key::{Key, KeyRange, KeyRef};
use crate::merge::{MergeOperator, Resolution};
use crate::record::{Op, Record};
use crate::scan::{Direction, MemtableSource, Source};
use crate::sorted::{Sorted, SortedSource, Unsorted};
use crate::sstable::{Filter, fingerprint};
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of a version besides its bytes: nodes of the map, allocations.
const VERSION_BYTES: u64 = 120;

/// Numbers of keys that the filter is sized for: it is replaced by the next larger one once there
/// are more. The last one is for as many as a namespace's memtable has, half a megabyte. Idle
/// tables have the first one, which takes less than their records.
const FILTERED_KEYS: [usize; 3] = [1 << 10, 32 << 10, 400_000];

/// Records in memory.
#[derive(Default)]
pub(crate) struct Memtable {
    map: RwLock<Map>,
    bytes: AtomicU64,
    /// Replayed records of a log, in place of the map. Nothing is added to them, and every reader
    /// sees all of them.
    sorted: Option<Arc<Sorted>>,
}

#[derive(Default)]
struct Map {
    /// The versions of each key, the newest last.
    keys: BTreeMap<OwnedKey, Versions>,
    /// Ranges that were taken away, each with its sequence number, the newest last.
    range_deletes: Vec<(KeyRange, u64)>,
    /// Filter of the keys. Most look-ups are of absent keys, and would wait for memory at every
    /// node of the map.
    filter: Filter,
    /// Number of keys that the filter is sized for.
    filtered_keys: usize,
}

/// Range of the sequence numbers at which readers read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderRange {
    pub(crate) oldest: u64,
    pub(crate) newest: u64,
}

impl ReaderRange {
    /// There are no readers.
    pub(crate) const NONE: Self = ReaderRange { oldest: u64::MAX, newest: 0 };
}

/// Nearly every key has one version.
enum Versions {
    One(Version),
    Many(Vec<Version>),
}

struct Version {
    sequence: u64,
    op: Op,
    value: Box<[u8]>,
}

/// Base below the operands of merges that a key has here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Below<'a> {
    /// The value in older records, if any.
    Older,
    /// This value.
    Value(&'a [u8]),
    /// Nothing: the key was taken away.
    Nothing,
}

/// Result of a look-up in a memtable, below the operands of merges.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing: older records say more.
    Older,
    /// The key has this value.
    Value(Vec<u8>),
    /// The key has none.
    Nothing,
}

impl Found {
    fn of(below: Below<'_>) -> Self {
        match below {
            Below::Older => Found::Older,
            Below::Value(value) => Found::Value(value.to_vec()),
            Below::Nothing => Found::Nothing,
        }
    }
}

/// Names of keys that are this long, in bytes, lie in the nodes of the map: nearly all do, and then
/// neither comparing nor removing a key goes anywhere else.
const NAME_INLINE: usize = 31;

/// A key of the map.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct OwnedKey {
    directory: u64,
    hash: u64,
    name: SmallVec<[u8; NAME_INLINE]>,
}

impl From<KeyRef<'_>> for OwnedKey {
    fn from(key: KeyRef<'_>) -> Self {
        let KeyRef { directory, hash, name } = key;
        OwnedKey { directory, hash, name: SmallVec::from_slice(name) }
    }
}

/// Keys, owned or not, as the map's methods take them.
trait AsKeyRef {
    fn key_ref(&self) -> KeyRef<'_>;
}

impl AsKeyRef for Key {
    fn key_ref(&self) -> KeyRef<'_> {
        self.as_ref()
    }
}

impl AsKeyRef for OwnedKey {
    fn key_ref(&self) -> KeyRef<'_> {
        KeyRef { directory: self.directory, hash: self.hash, name: &self.name }
    }
}

impl AsKeyRef for KeyRef<'_> {
    fn key_ref(&self) -> KeyRef<'_> {
        *self
    }
}

impl<'a> Borrow<dyn AsKeyRef + 'a> for OwnedKey {
    fn borrow(&self) -> &(dyn AsKeyRef + 'a) {
        self
    }
}

impl PartialEq for dyn AsKeyRef + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.key_ref() == other.key_ref()
    }
}

impl Eq for dyn AsKeyRef + '_ {}

impl PartialOrd for dyn AsKeyRef + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn AsKeyRef + '_ {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key_ref().cmp(&other.key_ref())
    }
}

impl Versions {
    fn as_slice(&self) -> &[Version] {
        match self {
            Versions::One(version) => std::slice::from_ref(version),
            Versions::Many(versions) => versions,
        }
    }

    /// Adds the newest version. Those before it stay if a reader of `readers` may need them, or if
    /// the new one changes them and could not be combined with them.
    fn push(&mut self, version: Version, readers: ReaderRange) {
        let replaces = version.op != Op::Merge;
        if let (Versions::One(before), true) =
            (&mut *self, replaces && readers.oldest >= version.sequence)
        {
            *before = version;
            return;
        }
        let mut versions = match std::mem::replace(self, Versions::Many(Vec::new())) {
            Versions::One(before) => vec![before],
            Versions::Many(before) => before,
        };
        if replaces && readers.oldest >= version.sequence {
            versions.clear();
        } else if replaces {
            // Keep the versions that the oldest reader sees, down to a value that hides older ones.
            let seen = versions.iter().rposition(|before| before.sequence <= readers.oldest);
            let seen = seen.map_or(&versions[..0], |at| &versions[..=at]);
            let first = seen.iter().rposition(|before| before.op != Op::Merge).unwrap_or(0);
            versions.drain(..first);
        }
        versions.push(version);
        *self = Versions::Many(versions);
    }

    /// Combines a merge with the newest version, if that has a number greater than `needed`. Returns
    /// the merge otherwise.
    fn combine(
        &mut self,
        key: KeyRef<'_>,
        merge: Version,
        needed: u64,
        operator: &dyn MergeOperator,
    ) -> Option<Version> {
        let newest = match self {
            Versions::One(version) => Some(version),
            Versions::Many(versions) => versions.last_mut(),
        };
        let Some(newest) = newest.filter(|newest| newest.sequence > needed) else {
            return Some(merge);
        };
        let value = match newest.op {
            Op::Merge => operator.combine(key, &newest.value, &merge.value),
            Op::Put => operator.apply(key, Some(&newest.value), &merge.value),
            Op::Delete => operator.apply(key, None, &merge.value),
        };
        let op = if newest.op == Op::Merge { Op::Merge } else { Op::Put };
        *newest = Version { sequence: merge.sequence, op, value: value.into() };
        None
    }
}

/// Returns the sequence number of the last removal of a range with a key; 0 if there is none.
fn last_range_delete(range_deletes: &[(KeyRange, u64)], key: KeyRef<'_>) -> u64 {
    let of_key = range_deletes.iter().rev().find(|(range, _)| range.contains(key));
    of_key.map_or(0, |(_, sequence)| *sequence)
}

impl Map {
    /// Replaces a filter that has become too small.
    fn enlarge_filter(&mut self) {
        let larger = FILTERED_KEYS.into_iter().find(|keys| *keys > self.filtered_keys);
        let Some(larger) = larger else { return };
        self.filtered_keys = larger;
        self.filter = Filter::for_keys(larger);
        self.keys.keys().for_each(|key| self.filter.add(fingerprint(key.key_ref())));
    }

    /// Returns the sequence number of the newest removal of a range with `key` that a reader at
    /// `sequence` sees; 0 if there is none.
    fn range_delete_of(&self, key: KeyRef<'_>, sequence: u64) -> u64 {
        let seen = self.range_deletes.iter().rev().filter(|(_, of)| *of <= sequence);
        let mut with_key = seen.filter(|(range, _)| range.contains(key));
        with_key.next().map_or(0, |(_, of)| *of)
    }

    /// Returns the operands of merges that a reader at `sequence` sees, the newest first, and what
    /// lies below them; nothing if the reader sees no version.
    fn look<'a>(
        &self,
        key: KeyRef<'_>,
        versions: &'a [Version],
        sequence: u64,
    ) -> Option<(Vec<&'a [u8]>, Below<'a>)> {
        let deleted = self.range_delete_of(key, sequence);
        let seen = versions.iter().rev().skip_while(|version| version.sequence > sequence);
        let mut operands = Vec::new();
        for version in seen.take_while(|version| version.sequence > deleted) {
            match version.op {
                Op::Put => return Some((operands, Below::Value(&version.value))),
                Op::Delete => return Some((operands, Below::Nothing)),
                Op::Merge => operands.push(&*version.value),
            }
        }
        match deleted > 0 {
            _ if operands.is_empty() => None,
            true => Some((operands, Below::Nothing)),
            false => Some((operands, Below::Older)),
        }
    }
}

impl Memtable {
    /// Returns what the records take in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns a memtable of records that a log had.
    pub(crate) fn of_log(records: Unsorted, operator: Option<&dyn MergeOperator>) -> Self {
        let sorted = Sorted::new(records).combined(operator);
        let bytes = sorted.memory_bytes().into();
        Memtable { sorted: Some(Arc::new(sorted)), bytes, ..Memtable::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let map = self.map.read();
        self.sorted.as_ref().is_none_or(|sorted| sorted.len() == 0)
            && map.keys.is_empty()
            && map.range_deletes.is_empty()
    }

    /// Adds a batch in the encoding of the log, which may be damaged. Its changes get the sequence
    /// numbers after `sequence`; returns the last one. Versions that no reader needs may go.
    /// A merge is combined with the version before it if no reader needs that one, so a key that
    /// changes often stays quick to read.
    pub(crate) fn insert(
        &self,
        batch: &[u8],
        mut sequence: u64,
        readers: ReaderRange,
        operator: Option<&dyn MergeOperator>,
    ) -> Result<u64> {
        let map = &mut *self.map.write();
        let mut bytes = 0;
        for change in Changes::new(batch) {
            sequence += 1;
            match change.ok_or_else(|| Error::corrupt("log", "not a batch of changes"))? {
                Mutation::Record(record) => {
                    let value = Box::from(record.value);
                    let version = Version { sequence, op: record.op, value };
                    bytes += record.key.name.len() as u64 + record.value.len() as u64;
                    bytes += VERSION_BYTES;
                    if map.keys.len() >= map.filtered_keys {
                        map.enlarge_filter();
                    }
                    map.filter.add(fingerprint(record.key));
                    // Nearly every key is new, so it is looked for once.
                    match map.keys.entry(record.key.into()) {
                        Entry::Occupied(mut known) => {
                            let versions = known.get_mut();
                            let left = match (version.op, operator) {
                                (Op::Merge, Some(operator)) => {
                                    let deleted = last_range_delete(&map.range_deletes, record.key);
                                    let needed = readers.newest.max(deleted);
                                    versions.combine(record.key, version, needed, operator)
                                }
                                _ => Some(version),
                            };
                            left.into_iter().for_each(|version| versions.push(version, readers));
                        }
                        Entry::Vacant(new) => {
                            new.insert(Versions::One(version));
                        }
                    }
                }
                Mutation::DeleteRange(range) => {
                    bytes += VERSION_BYTES;
                    map.range_deletes.push((range, sequence));
                }
            }
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(sequence)
    }

    /// Adds what a reader at `sequence` finds of a key, which has the fingerprint, to `resolution`.
    /// Returns what lies below.
    pub(crate) fn get(
        &self,
        key: KeyRef<'_>,
        fingerprint: u64,
        sequence: u64,
        resolution: &mut Resolution<'_>,
    ) -> Found {
        if let Some(sorted) = &self.sorted {
            let at = sorted.find(key);
            let is_there = at < sorted.len() && sorted.record(at).key == key;
            let group = if is_there { sorted.group_from(at) } else { at..at };
            return Found::of(sorted.resolve(group, resolution));
        }
        let map = self.map.read();
        let found = match map.filter.may_have(fingerprint) {
            true => map.keys.get(&key as &dyn AsKeyRef),
            false => None,
        };
        let versions = found.map_or(&[][..], Versions::as_slice);
        match map.look(key, versions, sequence) {
            Some((operands, below)) => {
                operands.into_iter().for_each(|operand| resolution.older(key, operand));
                Found::of(below)
            }
            None if map.range_delete_of(key, sequence) > 0 => Found::Nothing,
            None => Found::Older,
        }
    }

    /// Returns all records, as the newest reader sees them.
    pub(crate) fn source(
        self: &Arc<Self>,
        operator: Option<Arc<dyn MergeOperator>>,
    ) -> Box<dyn Source> {
        match &self.sorted {
            Some(sorted) => Box::new(SortedSource::new(sorted.clone(), operator)),
            None => {
                let (memtable, all) = (self.clone(), KeyRange::all());
                let forward = Direction::Forward;
                Box::new(MemtableSource::new(memtable, all, u64::MAX, forward, operator))
            }
        }
    }

    /// Returns the ranges whose older records are gone for a reader at `sequence`.
    pub(crate) fn range_deletes(&self, sequence: u64) -> Vec<KeyRange> {
        let map = self.map.read();
        let seen = map.range_deletes.iter().filter(|(_, of)| *of <= sequence);
        seen.map(|(range, _)| range.clone()).collect()
    }

    /// Adds the records of up to `count` keys of a range to `records`, in order or backward, as a
    /// reader at `sequence` sees them: one record a key.
    pub(crate) fn records(
        &self,
        range: (Bound<&Key>, Bound<&Key>),
        sequence: u64,
        is_backward: bool,
        count: usize,
        operator: Option<&dyn MergeOperator>,
        records: &mut Vec<Record>,
    ) {
        if is_empty(range) {
            return;
        }
        if let Some(sorted) = &self.sorted {
            return records_of(sorted, range, is_backward, count, operator, records);
        }
        let map = self.map.read();
        let mut found = map.keys.range::<dyn AsKeyRef, _>((as_bound(range.0), as_bound(range.1)));
        while records.len() < count {
            let next = if is_backward { found.next_back() } else { found.next() };
            let Some((key, versions)) = next else { break };
            let key = key.key_ref();
            let seen = map.look(key, versions.as_slice(), sequence);
            let Some((operands, below)) = seen else { continue };
            let mut resolution = Resolution::new(operator);
            operands.into_iter().for_each(|operand| resolution.older(key, operand));
            records.push(resolution.into_record(key, below));
        }
    }
}

/// Returns records replayed from a log, as [`Memtable::records`] does those of the map.
fn records_of(
    sorted: &Sorted,
    range: (Bound<&Key>, Bound<&Key>),
    is_backward: bool,
    count: usize,
    operator: Option<&dyn MergeOperator>,
    records: &mut Vec<Record>,
) {
    let first_from = |key: &Key| sorted.find(key.as_ref());
    let first_after = |key: &Key| {
        let at = first_from(key);
        let is_there = at < sorted.len() && sorted.record(at).key == key.as_ref();
        if is_there { sorted.group_from(at).end } else { at }
    };
    let mut start = match range.0 {
        Bound::Included(key) => first_from(key),
        Bound::Excluded(key) => first_after(key),
        Bound::Unbounded => 0,
    };
    let mut end = match range.1 {
        Bound::Included(key) => first_after(key),
        Bound::Excluded(key) => first_from(key),
        Bound::Unbounded => sorted.len(),
    };
    while start < end && records.len() < count {
        let group = if is_backward { sorted.group_before(end) } else { sorted.group_from(start) };
        match is_backward {
            true => end = group.start,
            false => start = group.end,
        }
        let key = sorted.record(group.start).key;
        let mut resolution = Resolution::new(operator);
        let below = sorted.resolve(group, &mut resolution);
        records.push(resolution.into_record(key, below));
    }
}

fn as_bound(bound: Bound<&Key>) -> Bound<&dyn AsKeyRef> {
    bound.map(|key| key as &dyn AsKeyRef)
}

fn is_empty(range: (Bound<&Key>, Bound<&Key>)) -> bool {
    match range {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end))
        | (Bound::Excluded(start), Bound::Included(end)) => start >= end,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;

    #[test]
    fn filters_that_grow_lose_no_key() {
        let (memtable, mut sequence) = (Memtable::default(), 0);
        let look = |at: usize| {
            let key = Key::named(1, &at.to_le_bytes());
            let mut resolution = Resolution::new(None);
            let found = memtable.get(key.as_ref(), fingerprint(key.as_ref()), 9, &mut resolution);
            found != Found::Older
        };
        let look_now = |at: usize| {
            let key = Key::named(1, &at.to_le_bytes());
            let mut resolution = Resolution::new(None);
            let (key, all) = (key.as_ref(), u64::MAX);
            memtable.get(key, fingerprint(key), all, &mut resolution) != Found::Older
        };
        for at in 0..FILTERED_KEYS[1] + 10 {
            let mut batch = Batch::new();
            batch.put(Key::named(1, &at.to_le_bytes()).as_ref(), b"v").unwrap();
            sequence = memtable.insert(batch.bytes(), sequence, ReaderRange::NONE, None).unwrap();
            let is_near = |keys: &usize| at.abs_diff(*keys) < 3;
            if FILTERED_KEYS.iter().any(is_near) {
                assert!((0..=at).all(look_now), "after {at}");
            }
            assert!(!look_now(at + 1));
        }
        assert!((0..9).all(look) && !look(9), "older readers see what was there");
    }

    /// Adds operands to a value, with a comma.
    struct Append;

    impl MergeOperator for Append {
        fn name(&self) -> &str {
            "append"
        }

        fn apply(&self, _: KeyRef<'_>, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
            [value.unwrap_or(b"-"), b",", operand].concat()
        }

        fn combine(&self, _: KeyRef<'_>, first: &[u8], second: &[u8]) -> Vec<u8> {
            [first, b",", second].concat()
        }
    }

    /// Makes a change of one key, and returns the number of its versions.
    fn change(memtable: &Memtable, sequence: u64, readers: ReaderRange, op: Op) -> usize {
        let (key, name) = (Key::named(1, b"key"), sequence.to_string());
        let mut batch = Batch::new();
        match op {
            Op::Put => batch.put(key.as_ref(), name.as_bytes()).unwrap(),
            Op::Merge => batch.merge(key.as_ref(), name.as_bytes()).unwrap(),
            Op::Delete => batch.delete(key.as_ref()).unwrap(),
        };
        memtable.insert(batch.bytes(), sequence - 1, readers, Some(&Append)).unwrap();
        memtable.map.read().keys[&OwnedKey::from(key.as_ref())].as_slice().len()
    }

    /// Returns the value at a sequence number; none if it depends on older records.
    fn seen(memtable: &Memtable, sequence: u64) -> Option<String> {
        let key = Key::named(1, b"key");
        let (key, mut resolution) = (key.as_ref(), Resolution::new(Some(&Append)));
        let below = match memtable.get(key, fingerprint(key), sequence, &mut resolution) {
            Found::Older => return None,
            Found::Value(value) => Some(value),
            Found::Nothing => None,
        };
        resolution.finish(key, below).map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn merges_are_combined_if_no_reader_needs_them() {
        let memtable = Memtable::default();
        for sequence in 1..=1000 {
            assert_eq!(change(&memtable, sequence, ReaderRange::NONE, Op::Merge), 1);
        }
        // The value below these operands is not in the memtable.
        assert_eq!(seen(&memtable, u64::MAX), None);
        assert_eq!(change(&memtable, 1001, ReaderRange::NONE, Op::Put), 1);
        assert_eq!(change(&memtable, 1002, ReaderRange::NONE, Op::Merge), 1);
        assert_eq!(seen(&memtable, u64::MAX).unwrap(), "1001,1002");
        assert_eq!(change(&memtable, 1003, ReaderRange::NONE, Op::Delete), 1);
        assert_eq!(seen(&memtable, u64::MAX), None);
        assert_eq!(change(&memtable, 1004, ReaderRange::NONE, Op::Merge), 1);
        assert_eq!(seen(&memtable, u64::MAX).unwrap(), "-,1004");
    }

    #[test]
    fn merges_that_readers_need_are_kept() {
        let memtable = Memtable::default();
        change(&memtable, 1, ReaderRange::NONE, Op::Put);
        change(&memtable, 2, ReaderRange::NONE, Op::Merge);
        // One reader sees 2, and another 4.
        let readers = ReaderRange { oldest: 2, newest: 2 };
        assert_eq!(change(&memtable, 3, readers, Op::Merge), 2);
        assert_eq!(change(&memtable, 4, readers, Op::Merge), 2);
        let readers = ReaderRange { oldest: 2, newest: 4 };
        for sequence in 5..100 {
            assert_eq!(change(&memtable, sequence, readers, Op::Merge), 3);
        }
        assert_eq!(seen(&memtable, 2).unwrap(), "1,2");
        assert_eq!(seen(&memtable, 4).unwrap(), "1,2,3,4");
        let all = Vec::from_iter((1..100).map(|sequence| sequence.to_string())).join(",");
        assert_eq!(seen(&memtable, u64::MAX).unwrap(), all);
    }

    #[test]
    fn a_merge_after_a_range_delete_ignores_older_versions() {
        let memtable = Memtable::default();
        change(&memtable, 1, ReaderRange::NONE, Op::Put);
        let mut batch = Batch::new();
        batch.delete_range(&KeyRange::all()).unwrap();
        memtable.insert(batch.bytes(), 1, ReaderRange::NONE, Some(&Append)).unwrap();
        change(&memtable, 3, ReaderRange::NONE, Op::Merge);
        change(&memtable, 4, ReaderRange::NONE, Op::Merge);
        assert_eq!(seen(&memtable, u64::MAX).unwrap(), "-,3,4");
    }

    #[test]
    fn a_replayed_log_has_one_record_of_each_key() {
        let mut records = Unsorted::default();
        let mut batch = Batch::new();
        for number in 0..100u32 {
            let key = Key::named(1, &[(number % 7) as u8]);
            match number / 7 {
                0 => batch.put(key.as_ref(), b"first").unwrap(),
                _ => batch.merge(key.as_ref(), &number.to_le_bytes()).unwrap(),
            };
        }
        for change in Changes::new(batch.bytes()) {
            let Some(Mutation::Record(record)) = change else { panic!("not a record") };
            records.push(record);
        }
        let memtable = Memtable::of_log(records, Some(&Append));
        assert_eq!(memtable.sorted.as_ref().unwrap().len(), 7);
        for name in 0..7 {
            let key = Key::named(1, &[name]);
            let (key, mut resolution) = (key.as_ref(), Resolution::new(Some(&Append)));
            let found = memtable.get(key, fingerprint(key), u64::MAX, &mut resolution);
            let Found::Value(value) = found else { panic!("{found:?}") };
            let operands = (7..100u32).filter(|number| number % 7 == u32::from(name));
            let operands = operands.flat_map(|number| [&b","[..], &number.to_le_bytes()].concat());
            assert_eq!(value, [&b"first"[..], &Vec::from_iter(operands)].concat());
        }
    }
}

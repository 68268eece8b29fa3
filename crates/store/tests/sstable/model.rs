//! Random tables against sorted vectors.

use super::{file, layout, open, scan};
use canopy_store::sstable::{Builder, BuilderOptions, Sstable};
use canopy_store::{Key, KeyRange, Layout, NAME_MAX, Op, Record, VALUE_MAX};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        select(vec![0, 1, 2, 127, 255, 256, 1 << 31, 1 << 63, u64::MAX - 1, u64::MAX]),
        0..10u64,
        any::<u64>(),
    ]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        "IMG_2024[0-9]{0,4}\\.jpg".prop_map(String::into_bytes),
        vec(0..2u8, 0..6),
        vec(any::<u8>(), 0..40),
        (0..3u8).prop_map(|byte| vec![byte; 300]),
    ]
}

/// Keys of few directories, few hashes, few names, so that they meet; or of many.
fn key() -> impl Strategy<Value = Key> {
    let directory = prop_oneof![4 => 0..4u64, 1 => number()];
    (directory, any::<bool>(), number(), name()).prop_map(|(directory, is_named, hash, name)| {
        match is_named {
            true => Key::named(directory, &name),
            false => Key { directory, hash, name },
        }
    })
}

fn layouts() -> impl Strategy<Value = Layout> {
    let columns = [
        &[][..],
        &[(8, None)],
        &[(4, None), (8, None), (8, Some(1)), (8, Some(2)), (1, None), (2, None), (2, Some(5))],
        &[(1, None), (1, Some(0)), (4, None), (4, Some(2)), (8, None), (8, Some(4))],
    ];
    select(columns.to_vec()).prop_map(layout)
}

/// Values that are as long as the layout's columns, or longer, or anything, by `shape`.
fn value(layout: &Layout, shape: u8, numbers: &[u64], tail: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    for (column, number) in layout.columns.iter().zip(numbers) {
        value.extend_from_slice(&number.to_le_bytes()[..column.width.into()]);
    }
    if shape > 0 {
        value.extend_from_slice(tail);
    }
    if shape > 8 {
        value.truncate(tail.len());
    }
    value
}

#[derive(Debug, Clone)]
struct Case {
    layout: Layout,
    records: Vec<Record>,
    range_deletes: Vec<KeyRange>,
    block_bytes: usize,
    cache_bytes: u64,
}

type Parts = (u8, u8, Vec<u64>, Vec<u8>);

fn case() -> impl Strategy<Value = Case> {
    // What any record of a table may be: only of whole columns, or also of shorter ones.
    (layouts(), prop_oneof![Just(8u8), Just(1), Just(12)]).prop_flat_map(|(layout, shapes)| {
        let tail = prop_oneof![3 => vec(any::<u8>(), 0..20), 1 => vec(any::<u8>(), 200)];
        let numbers = prop_oneof![vec(number(), 7), Just(vec![3_000_000_000; 7])];
        let parts = (0..10u8, 0..shapes, numbers, tail);
        let range = (key(), key()).prop_map(|(start, end)| KeyRange { start, end: Some(end) });
        let range_deletes = vec(range, 0..4);
        let block_bytes = select(vec![1, 100, 1000, 16 << 10]);
        let rest = (range_deletes, block_bytes, select(vec![0, 1 << 16]));
        (Just(layout), btree_map(key(), parts, 0..300), rest).prop_map(case_of)
    })
}

fn case_of(
    (layout, parts, (range_deletes, block_bytes, cache_bytes)): (
        Layout,
        std::collections::BTreeMap<Key, Parts>,
        (Vec<KeyRange>, usize, u64),
    ),
) -> Case {
    let record = |(key, (op, shape, numbers, tail)): (Key, Parts)| {
        let (op, value) = match op {
            0 => (Op::Delete, Vec::new()),
            1 => (Op::Merge, value(&layout, shape, &numbers, &tail)),
            _ => (Op::Put, value(&layout, shape, &numbers, &tail)),
        };
        Record { key, op, value }
    };
    let records = parts.into_iter().map(record).collect();
    Case { layout, records, range_deletes, block_bytes, cache_bytes }
}

fn check(case: &Case, keys: &[Key], moves: &[(u8, usize)]) {
    let Case { layout, records, range_deletes, block_bytes, cache_bytes } = case;
    let (bytes, info) = file(layout, *block_bytes, records, range_deletes);
    let table = open(bytes, &info, *cache_bytes).unwrap();
    table.verify().unwrap();
    assert_eq!(info.records, records.len() as u64);
    let mut ranges: Vec<_> = range_deletes.iter().filter(|range| !range.is_empty()).collect();
    ranges.sort_by_key(|range| &range.start);
    assert!(
        table.range_deletes().iter().map(|range| &range.start).eq(ranges.iter().map(|r| &r.start))
    );
    assert!(ranges.iter().all(|range| info.span.covers(range)));
    assert!(records.iter().all(|record| info.span.contains(record.key.as_ref())));
    assert_eq!(info.span.is_empty(), records.is_empty() && ranges.is_empty());
    for record in records {
        let found = table.get(record.key.as_ref()).unwrap();
        assert_eq!(found, Some((record.op, record.value.clone())));
    }
    for key in keys {
        let there = records.iter().find(|record| record.key == *key);
        let there = there.map(|record| (record.op, record.value.clone()));
        assert_eq!(table.get(key.as_ref()).unwrap(), there);
    }
    assert_eq!(scan(&table, KeyRange::all()).unwrap(), *records);
    for (start, end) in keys.iter().zip(keys.iter().skip(1)) {
        let range = KeyRange { start: start.clone(), end: Some(end.clone()) };
        walk(&table, records, range, keys, moves);
    }
    walk(&table, records, KeyRange::all(), keys, moves);
    for directory in 0..4 {
        walk(&table, records, KeyRange::directory(directory), keys, moves);
    }
}

/// Moves a cursor over `range` in ways that `moves` say, and an index into a vector.
fn walk(
    table: &Arc<Sstable>,
    records: &[Record],
    range: KeyRange,
    keys: &[Key],
    moves: &[(u8, usize)],
) {
    let inside = |record: &&Record| range.contains(record.key.as_ref());
    let expected: Vec<&Record> = records.iter().filter(inside).collect();
    assert_eq!(scan(table, range.clone()).unwrap().iter().collect::<Vec<_>>(), expected);
    let mut cursor = table.cursor(range.clone());
    // One more than the place of the record; 0 is before all.
    let mut at = 0;
    for (kind, number) in moves {
        let is_there = match kind {
            0..=3 => {
                at = (at + 1).min(expected.len() + 1);
                cursor.advance().unwrap()
            }
            4..=7 => {
                at = at.saturating_sub(1);
                cursor.retreat().unwrap()
            }
            8 => {
                at = expected.len() + 1;
                cursor.to_end();
                false
            }
            9 => {
                at = 0;
                cursor.to_start();
                false
            }
            _ => {
                let known = records.get(number % records.len().max(1)).map(|record| &record.key);
                let Some(key) = known.filter(|_| *kind < 12).or(keys.get(number % keys.len()))
                else {
                    continue;
                };
                at = 1 + expected.partition_point(|record| record.key < *key);
                cursor.seek(key.as_ref()).unwrap()
            }
        };
        let record = at.checked_sub(1).and_then(|at| expected.get(at));
        assert_eq!(cursor.record().map(|record| record.to_record()).as_ref(), record.copied());
        assert_eq!(is_there, record.is_some() && !matches!(kind, 8 | 9));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_tables_are_what_was_written(
        case in case(),
        mut keys in vec(key(), 1..8),
        moves in vec((0..14u8, any::<usize>()), 0..60),
    ) {
        keys.sort();
        check(&case, &keys, &moves);
    }
}

#[test]
fn an_empty_table_has_nothing() {
    let (bytes, info) = file(&Layout::default(), 100, &[], &[]);
    let table = open(bytes, &info, 0).unwrap();
    table.verify().unwrap();
    assert_eq!(table.blocks(), 0);
    assert_eq!(table.get(Key::named(1, b"x").as_ref()).unwrap(), None);
    assert_eq!(scan(&table, KeyRange::all()).unwrap(), []);
}

#[test]
fn the_longest_names_and_values_fit() {
    let key = |fill| Key::named(1, &vec![fill; NAME_MAX]);
    let random: Vec<u8> =
        (0..VALUE_MAX as u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    let mut records: Vec<Record> = [(1, vec![7; VALUE_MAX]), (2, random), (3, vec![1; 20])]
        .map(|(fill, value)| Record { key: key(fill), op: Op::Put, value })
        .into();
    records.sort_by(|one, other| one.key.cmp(&other.key));
    let (bytes, info) = file(&layout(&[(8, None), (4, None)]), 1 << 20, &records, &[]);
    let table = open(bytes, &info, 1 << 20).unwrap();
    table.verify().unwrap();
    assert_eq!(scan(&table, KeyRange::all()).unwrap(), records);
    for record in records {
        assert_eq!(table.get(record.key.as_ref()).unwrap(), Some((record.op, record.value)));
    }
}

#[test]
fn impossible_records_are_refused_and_not_added() {
    let mut builder = Builder::new(&Layout::default(), BuilderOptions::default());
    let put = |key: Key, value: Vec<u8>| Record { key, op: Op::Put, value };
    let good = put(Key::named(5, b"a"), vec![1]);
    builder.add(good.as_ref()).unwrap();
    let wrong = [
        good.clone(),
        put(Key::named(4, b"a"), Vec::new()),
        put(Key::named(6, &vec![0; NAME_MAX + 1]), Vec::new()),
        put(Key::named(6, b"a"), vec![0; VALUE_MAX + 1]),
        Record { key: Key::named(6, b"a"), op: Op::Delete, value: vec![0] },
    ];
    for record in wrong {
        assert!(builder.add(record.as_ref()).is_err());
    }
    let (bytes, info) = builder.finish().unwrap();
    assert_eq!(scan(&open(bytes.into(), &info, 0).unwrap(), KeyRange::all()).unwrap(), [good]);
}

#[test]
fn absent_keys_read_no_block() {
    let records: Vec<Record> = (0..2000u64)
        .map(|directory| Record { key: Key::named(directory, b"a"), op: Op::Put, value: vec![1] })
        .collect();
    let (bytes, info) = file(&Layout::default(), 1000, &records, &[]);
    let table = open(bytes, &info, 0).unwrap();
    let absent = |at: &u64| table.may_have(Key::named(*at, b"b").as_ref());
    let passed = (0..100_000).filter(absent).count();
    assert!(passed < 1500, "{passed} of 100000 absent keys pass the filter");
}

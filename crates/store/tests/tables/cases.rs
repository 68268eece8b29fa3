//! What each operation does, whatever storage lies below.

use crate::place::{Fixture, contents, key, number, options, put};
use canopy_store::{
    Base, Batch, Direction, Durability, Error, Ingestion, IngestionPart, Key, KeyRange, KeyRef,
    MergeOperator, Op, Options, Reader, RecordRef, Table, TableId, checkpoint, clone, collect,
    compact, compact_all, compact_part, delete, inspect, release, restrict,
};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub fn a_newer_writer_ends_an_older_one(place: &Fixture) {
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

pub fn wrong_use_is_told(place: &Fixture) {
    let id = place.create();
    let none = Options { operator: None, ..options() };
    let error = Table::open(&place.environment, id, place.cache.clone(), none).err().unwrap();
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

pub fn files_from_elsewhere_are_the_newest(place: &Fixture) {
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
    compact_all(&place.environment, id, &place.cache, &options()).unwrap();
    table.refresh().unwrap();
    assert_eq!(inspect(&place.environment, id).unwrap().state.runs.len(), 1);
    assert_eq!(contents(&table), expected);
}

pub fn threads_fill_parts_of_an_ingestion(place: &Fixture) {
    let id = place.create();
    let table = place.open(id);
    let mut ingestion = table.ingestion(9000).unwrap();
    let fill = |mut part: IngestionPart, own: u64| {
        for at in (0..1000).rev() {
            let mut batch = Batch::new();
            batch.put(key(own, at).as_ref(), &at.to_le_bytes()).unwrap();
            part.add_batch(&batch).unwrap();
        }
        let mut batch = Batch::new();
        batch.delete_range(&KeyRange::directory(own)).unwrap();
        part.add_batch(&batch).unwrap_err();
        part
    };
    let parts = std::thread::scope(|scope| {
        let parts = [1, 2].map(|own| (own, ingestion.part()));
        let threads = parts.map(|(own, part)| scope.spawn(move || fill(part, own)));
        threads.map(|thread| thread.join().unwrap())
    });
    for part in parts {
        ingestion.join(part).unwrap();
    }
    let mut last = Batch::new();
    last.delete(key(1, 7).as_ref()).unwrap();
    ingestion.add_batch(&last).unwrap();
    assert!(contents(&table).is_empty());
    ingestion.commit().unwrap();
    table.refresh().unwrap();
    let all = (1..3).flat_map(|own| (0..1000).map(move |at| (key(own, at), at)));
    let expected = BTreeMap::from_iter(all.filter(|(one, _)| *one != key(1, 7)));
    assert_eq!(contents(&table), expected);
}

pub fn a_range_is_handed_over_without_copying(place: &Fixture) {
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
    compact_all(&place.environment, id, &place.cache, &options()).unwrap();
    drop(table);
    delete(&place.environment, id).unwrap();
    collect(&place.environment, id).unwrap();
    let mut expected = given;
    *expected.values_mut().next().unwrap() = 77;
    assert_eq!(contents(&other), expected);
    compact_all(&place.environment, new, &place.cache, &options()).unwrap();
    other.refresh().unwrap();
    assert_eq!(contents(&other), expected);
}

pub fn of_several_tables_the_first_counts(place: &Fixture) {
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
    let cache = &place.cache;
    compact_all(&place.environment, merged, cache, &options()).unwrap();
    bases.iter().for_each(|base| delete(&place.environment, base.table).unwrap());
    for _ in 0..2 {
        for base in &bases {
            collect(&place.environment, base.table).unwrap();
        }
    }
    assert_eq!(place.read(merged), expected);
}

pub fn what_was_synced_before_is_flushed(place: &Fixture) {
    let id = place.create();
    let table = place.open(id);
    let mut batch = Batch::new();
    batch.put(key(1, 1).as_ref(), &1u64.to_le_bytes()).unwrap();
    table.write(&batch, Durability::Durable).unwrap();
    table.flush().unwrap();
    assert_eq!(place.read(id), BTreeMap::from([(key(1, 1), 1)]));
    assert_eq!(table.memtable_bytes(), 0);
}

pub fn files_from_elsewhere_go_into_clones(place: &Fixture) {
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

pub fn of_records_of_one_key_without_bytes_the_last_counts(place: &Fixture) {
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

pub fn keys_of_other_tables_are_refused(place: &Fixture) {
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

pub fn one_file_in_several_runs_is_merged_rightly(place: &Fixture) {
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
    assert!(compact_all(&place.environment, both, &place.cache, &options()).unwrap());
    assert_eq!(inspect(&place.environment, both).unwrap().state.runs.len(), 1);
    assert_eq!(place.read(both), whole);
}

pub fn a_long_log_with_ranges_is_few_runs(place: &Fixture) {
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

pub fn a_checkpoint_stays_as_it_was(place: &Fixture) {
    let id = place.create();
    let table = place.open(id);
    put(&table, &key(1, 1), 1);
    table.flush().unwrap();
    let (checkpoint, _) = checkpoint(&place.environment, id, None).unwrap();
    put(&table, &key(1, 1), 2);
    table.flush().unwrap();
    let no_grace = Options { grace_ms: 0, ..options() };
    compact_all(&place.environment, id, &place.cache, &no_grace).unwrap();
    collect(&place.environment, id).unwrap();
    let value = |checkpoint| {
        let reader = Reader::open(&place.environment, id, checkpoint, &place.cache, &options())?;
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

/// Where little room is left, all runs become one though no room is there for all of them at once.
pub fn runs_become_one_by_parts(place: &Fixture) {
    let id = place.create();
    let options = Options { sstable_bytes: 1 << 10, grace_ms: 0, ..options() };
    let table = Table::open(&place.environment, id, place.cache.clone(), options.clone()).unwrap();
    let sizes = || {
        let runs = inspect(&place.environment, id).unwrap().state.runs;
        Vec::from_iter(runs.iter().map(|run| (run.sstables.len(), run.size_bytes())))
    };
    let part = |bytes_max| {
        compact_part(&place.environment, id, &place.cache, &options, bytes_max).unwrap()
    };
    let mut random = 3u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    (0..2000).for_each(|at| put(&table, &key(at % 7, at), at));
    table.flush().unwrap();
    let all = sizes()[0];
    assert!(all.0 > 8, "{all:?}");
    let change = |next: &mut dyn FnMut(u64) -> u64, changes: u64| {
        for _ in 0..changes {
            let mut batch = Batch::new();
            let at = next(2000);
            let key = key(at % 7, at);
            match next(8) {
                0 => batch.put(key.as_ref(), &at.to_le_bytes()).unwrap(),
                1 => batch.merge(key.as_ref(), &1u64.to_le_bytes()).unwrap(),
                2 if next(100) == 0 => batch.delete_range(&KeyRange::directory(next(7))).unwrap(),
                _ => batch.delete(key.as_ref()).unwrap(),
            }
            table.write(&batch, Durability::Visible).unwrap();
        }
        table.flush().unwrap();
    };
    change(&mut next, 1000);
    change(&mut next, 500);
    assert!(!part(100), "no SSTable is so small");
    let (mut parts, mut sstables) = (0, 0);
    let wanted = contents(&table);
    while sizes().len() > 1 {
        assert!(part(all.1 / 4));
        parts += 1;
        assert!(parts < 40, "{:?}", sizes());
        table.refresh().unwrap();
        assert_eq!(contents(&table), wanted);
        assert_eq!(place.read(id), wanted);
        assert!(wanted.iter().all(|(key, value)| {
            table.get(key.as_ref()).unwrap().is_some_and(|found| number(&found) == *value)
        }));
        sstables += collect(&place.environment, id).unwrap().sstables;
    }
    assert!(parts >= 3 && sstables as usize >= all.0, "{parts} {sstables}");
    assert!(!part(u64::MAX));

    // Runs that come meanwhile delay nothing.
    (0..8).for_each(|_| change(&mut next, 200));
    let oldest_of_new = inspect(&place.environment, id).unwrap().state.runs[7].sstables[0].id;
    let is_there = || {
        let runs = inspect(&place.environment, id).unwrap().state.runs;
        runs.iter().flat_map(|run| &run.sstables).any(|one| one.id == oldest_of_new)
    };
    let mut parts = 0;
    while is_there() {
        assert!(part(all.1 / 4));
        parts += 1;
        assert!(parts < 20, "{:?}", sizes());
        change(&mut next, 50);
        table.refresh().unwrap();
        assert_eq!(contents(&table), place.read(id));
    }
}

/// Adds numbers as others do, but dies meanwhile.
struct Dying;

impl MergeOperator for Dying {
    fn name(&self) -> &str {
        "add"
    }

    fn apply(&self, _: KeyRef<'_>, _: Option<&[u8]>, _: &[u8]) -> Vec<u8> {
        panic!("a test")
    }

    fn combine(&self, _: KeyRef<'_>, _: &[u8], _: &[u8]) -> Vec<u8> {
        panic!("a test")
    }
}

/// A merge whose process was killed once kept its SSTables, and others from merging, for an hour.
pub fn a_killed_merge_ends_once_the_table_is_opened(place: &Fixture) {
    let id = place.create();
    let table = place.open(id);
    for _ in 0..2 {
        (0..500).for_each(|at| put(&table, &key(1, at), at));
        put(&table, &key(2, 0), 1);
        table.flush().unwrap();
    }
    let mut batch = Batch::new();
    batch.merge(key(2, 0).as_ref(), &1u64.to_le_bytes()).unwrap();
    table.write(&batch, Durability::Visible).unwrap();
    table.flush().unwrap();
    let wanted = contents(&table);
    let ingestion = Ingestion::begin(&place.environment, id, &options()).unwrap();
    let dying = Options { sstable_bytes: 1 << 10, operator: Some(Arc::new(Dying)), ..options() };
    let killed = catch_unwind(AssertUnwindSafe(|| {
        let _ = compact_all(&place.environment, id, &place.cache, &dying);
    }));
    assert!(killed.is_err());
    collect(&place.environment, id).unwrap();
    let merge = || compact_all(&place.environment, id, &place.cache, &options()).unwrap();
    assert!(!merge(), "the job is open");
    drop(table);
    let table = place.open(id);
    assert!(collect(&place.environment, id).unwrap().sstables > 3);
    assert!(merge());
    table.refresh().unwrap();
    assert_eq!(contents(&table), wanted);
    // Files from elsewhere are still expected.
    ingestion.commit().unwrap();
}

/// Checkpoints show what differs between them.
pub fn what_differs_is_told(place: &Fixture) {
    let id = place.create();
    let table = place.open(id);
    let open = |checkpoint| {
        Reader::open(&place.environment, id, Some(checkpoint), &place.cache, &options()).unwrap()
    };
    let all = |reader: &Reader| {
        let scan = reader.scan(&KeyRange::all(), Direction::Forward).unwrap();
        BTreeMap::from_iter(scan.collect().unwrap())
    };
    let mut random = 7u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let (mut before, _) = checkpoint(&place.environment, id, None).unwrap();
    for round in 0..40 {
        for _ in 0..next(4) {
            for _ in 0..=next(20) {
                let (key, value) = (key(1, next(200)), next(3).to_le_bytes());
                let mut batch = Batch::new();
                match next(4) {
                    0 => batch.delete(key.as_ref()).unwrap(),
                    1 => batch.merge(key.as_ref(), &value).unwrap(),
                    _ => batch.put(key.as_ref(), &value).unwrap(),
                }
                table.write(&batch, Durability::Visible).unwrap();
            }
            table.flush().unwrap();
            let (environment, cache) = (&place.environment, &place.cache);
            let _ = match next(5) {
                0 => compact(environment, id, cache, &options()).unwrap(),
                1 => compact_part(environment, id, cache, &options(), 8 << next(8)).unwrap(),
                _ => false,
            };
            table.refresh().unwrap();
        }
        let (now, _) = checkpoint(&place.environment, id, None).unwrap();
        let (older, newer) = (open(before), open(now));
        let mut told = BTreeSet::new();
        let each = |key: KeyRef<'_>, _: Option<&[u8]>| {
            told.insert(key.to_key());
            true
        };
        assert!(newer.differences(&older, &KeyRange::all(), each).unwrap());
        let (was, is) = (all(&older), all(&newer));
        for key in was.keys().chain(is.keys()) {
            assert!(told.contains(key) || was.get(key) == is.get(key), "round {round}: {key:?}");
        }
        release(&place.environment, id, before).unwrap();
        before = now;
    }
    // A compaction of all changes nothing.
    compact_all(&place.environment, id, &place.cache, &options()).unwrap();
    table.refresh().unwrap();
    let (now, _) = checkpoint(&place.environment, id, None).unwrap();
    let each = |key: KeyRef<'_>, _: Option<&[u8]>| panic!("{:?}", key.to_key());
    assert!(open(now).differences(&open(before), &KeyRange::all(), each).unwrap());
    // What is removed as a range is not told by its keys.
    let mut batch = Batch::new();
    batch.delete_range(&KeyRange::directory(1)).unwrap();
    table.write(&batch, Durability::Visible).unwrap();
    table.flush().unwrap();
    let (last, _) = checkpoint(&place.environment, id, None).unwrap();
    assert!(!open(last).differences(&open(now), &KeyRange::all(), |_, _| true).unwrap());
    let other = KeyRange::directory(2);
    assert!(open(last).differences(&open(now), &other, |_, _| true).unwrap());
}

/// Calls a macro with the names of all cases.
macro_rules! each_case {
    ($call:ident) => {
        $call! {
            a_newer_writer_ends_an_older_one
            wrong_use_is_told
            files_from_elsewhere_are_the_newest
            threads_fill_parts_of_an_ingestion
            a_range_is_handed_over_without_copying
            of_several_tables_the_first_counts
            what_was_synced_before_is_flushed
            files_from_elsewhere_go_into_clones
            of_records_of_one_key_without_bytes_the_last_counts
            keys_of_other_tables_are_refused
            one_file_in_several_runs_is_merged_rightly
            a_long_log_with_ranges_is_few_runs
            a_checkpoint_stays_as_it_was
            runs_become_one_by_parts
            a_killed_merge_ends_once_the_table_is_opened
            what_differs_is_told
        }
    };
}
pub(crate) use each_case;

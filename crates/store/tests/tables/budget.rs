//! Many tables of a process: one budget for their memtables, one set of threads, one cache.

use super::{Fixture, contents, key, local, options, put};
use canopy_store::storage::MemoryStorage;
use canopy_store::{
    Batch, Durability, Error, Key, MemtableBudget, Options, SstableCache, Table, TableId, Upkeep,
    UpkeepThreads,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn in_memory() -> Fixture {
    Fixture::new(Arc::new(MemoryStorage::default()))
}

fn open(place: &Fixture, id: TableId, budget: &Arc<MemtableBudget>) -> Arc<Table> {
    let options = Options { budget: Some(budget.clone()), ..options() };
    Arc::new(Table::open(&place.environment, id, place.cache.clone(), options).unwrap())
}

/// Writes a value of so many bytes.
fn write(table: &Table, at: u64, bytes: usize) {
    let mut batch = Batch::new();
    batch.put(key(1, at).as_ref(), &vec![7; bytes]).unwrap();
    table.write(&batch, Durability::Visible).unwrap();
}

fn runs(table: &Table) -> usize {
    table.manifest().state.runs.len()
}

#[test]
fn the_largest_memtable_of_all_is_flushed_first() {
    let place = in_memory();
    let budget = MemtableBudget::new(1 << 20);
    let tables = [200, 150, 80].map(|kilobytes| {
        let table = open(&place, place.create(), &budget);
        (0..kilobytes).for_each(|at| write(&table, at, 1000));
        // Changes that the log does not have yet count, too.
        table.sync().unwrap();
        table
    });
    // All together take less than half of the budget.
    assert!(tables.iter().all(|table| !table.flush_frozen().unwrap()));
    (80..200).for_each(|at| write(&tables[2], at, 1000));
    tables[2].sync().unwrap();
    let used = budget.used_bytes();
    assert!(used > 512 << 10, "{used}");
    write(&tables[0], 200, 1000);
    assert!(!tables[1].flush_frozen().unwrap(), "it is not the largest");
    assert!(!tables[2].flush_frozen().unwrap(), "it is not the largest");
    assert!(tables[0].flush_frozen().unwrap());
    assert!(tables.iter().all(|table| !table.flush_frozen().unwrap()));
    assert_eq!([0, 1, 2].map(|at| runs(&tables[at])), [1, 0, 0]);
    assert!(budget.used_bytes() < used - 200_000);
    drop(tables);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn what_a_table_takes_is_given_back_when_it_ends() {
    let place = in_memory();
    let (budget, id) = (MemtableBudget::new(1 << 20), place.create());
    let table = open(&place, id, &budget);
    write(&table, 1, 100_000);
    assert!(budget.used_bytes() > 100_000);
    table.sync().unwrap();
    let next = open(&place, id, &budget);
    let both = budget.used_bytes();
    // The first one finds out when it writes its log.
    let mut batch = Batch::new();
    batch.put(key(1, 2).as_ref(), &[7; 8]).unwrap();
    let error = table.write(&batch, Durability::Durable).unwrap_err();
    assert!(matches!(error, Error::Fenced(_)), "{error}");
    assert!(budget.used_bytes() <= both - 100_000, "what nobody can flush counts");
    next.flush().unwrap();
    assert_eq!(budget.used_bytes(), 0);
    assert!(next.get(key(1, 1).as_ref()).unwrap().is_some());
}

#[test]
fn a_table_recovers_within_the_budget() {
    let place = in_memory();
    let id = place.create();
    let large = Options { memtable_bytes: 1 << 30, log_buffer_bytes: 10_000, ..options() };
    let table = Table::open(&place.environment, id, place.cache.clone(), large).unwrap();
    (0..400).for_each(|at| write(&table, at, 1000));
    table.sync().unwrap();
    drop(table);
    let budget = MemtableBudget::new(100_000);
    let table = open(&place, id, &budget);
    assert!(budget.used_bytes() < 75_000, "{}", budget.used_bytes());
    assert!((0..400).all(|at| table.get(key(1, at).as_ref()).unwrap().is_some()));
}

#[test]
fn memtables_of_many_tables_stay_within_their_budget() {
    const BYTES: u64 = 1 << 20;
    let place = in_memory();
    let (budget, threads) = (MemtableBudget::new(BYTES), UpkeepThreads::start());
    let ids = Vec::from_iter((0..24).map(|_| place.create()));
    let tables = Vec::from_iter(ids.iter().map(|id| open(&place, *id, &budget)));
    let care = Vec::from_iter(tables.iter().map(|table| threads.look_after(table)));
    let writers = 4;
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (tables, budget) = (&tables, &budget);
            scope.spawn(move || {
                for round in 0..4000 {
                    // Some tables get more than others.
                    let at = (round * round + writer) as usize % tables.len();
                    write(&tables[at], round * writers + writer, 1000);
                    let used = budget.used_bytes();
                    assert!(used < BYTES + BYTES / 8, "{used}");
                }
            });
        }
    });
    assert!(tables.iter().any(|table| runs(table) > 0));
    assert!(care.iter().all(|care| care.failure().is_none()));
    drop((care, threads));
    let mut found = 0;
    let hold = |table: &Arc<Table>, at| table.get(key(1, at).as_ref()).unwrap().is_some();
    for at in 0..4000 * writers {
        let (round, writer) = (at / writers, at % writers);
        let table = &tables[(round * round + writer) as usize % tables.len()];
        found += u64::from(hold(table, at));
    }
    assert_eq!(found, 4000 * writers);
}

/// Returns how many SSTables below a directory this process has open.
fn open_sstables(directory: &Path) -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    let is_sstable = |name: &Path| name.components().any(|part| part.as_os_str() == "sst");
    names.filter(|name| name.starts_with(directory) && is_sstable(name)).count()
}

#[test]
fn many_tables_do_not_keep_all_of_their_files_open() {
    let directory = tempfile::tempdir().unwrap();
    let mut place = local(directory.path());
    // Room for 64 SSTables, as each counts for 64 KiB at least.
    place.cache = SstableCache::new(&place.environment, 8 << 20);
    let tables = Vec::from_iter((0..40).map(|_| {
        let table = place.open(place.create());
        for at in 0..4 {
            put(&table, &key(1, at), at);
            table.flush().unwrap();
        }
        table
    }));
    for round in 0..3 {
        for table in &tables {
            assert!((0..4).all(|at| table.get(key(1, at).as_ref()).unwrap().is_some()));
            assert_eq!(contents(table).len(), 4);
        }
        let open = open_sstables(directory.path());
        assert!((30..=80).contains(&open), "round {round}: {open}");
    }
    drop(tables);
    let other = place.open(place.create());
    put(&other, &key(1, 1), 1);
    other.flush().unwrap();
    assert_eq!(contents(&other).len(), 1);
}

#[test]
fn a_table_is_free_for_others_once_its_care_ends() {
    let directory = tempfile::tempdir().unwrap();
    let place = local(directory.path());
    let threads = UpkeepThreads::start();
    let others = Vec::from_iter((0..10).map(|_| Arc::new(place.open(place.create()))));
    let care = Vec::from_iter(others.iter().map(|table| threads.look_after(table)));
    let id = place.create();
    for round in 0..60 {
        let table = Arc::new(place.open(id));
        let own = threads.look_after(&table);
        put(&table, &key(1, round), round);
        others.iter().for_each(|table| put(table, &key(1, round), round));
        std::thread::sleep(std::time::Duration::from_millis(round % 5 * 10));
        drop(own);
        drop(table);
        // Now nobody has its lock, and nothing was lost.
        assert_eq!(contents(&place.open(id)).len() as u64, round + 1);
    }
    drop(threads);
    drop(care);
    for table in others {
        let id = table.id();
        drop(table);
        assert_eq!(contents(&place.open(id)).len(), 60);
    }
}

/// Waits until the log of a table has all.
fn wait_for_log(table: &Table, begin: std::time::Instant) {
    while table.durable_position() < table.position() {
        assert!(begin.elapsed().as_secs() < 60, "nobody looks after it");
        std::thread::yield_now();
    }
}

#[test]
fn a_table_that_has_ended_stops_no_other() {
    let place = in_memory();
    let threads = UpkeepThreads::start();
    let tables = Vec::from_iter((0..6).map(|_| Arc::new(place.open(place.create()))));
    let care = Vec::from_iter(tables.iter().map(|table| threads.look_after(table)));
    let _taken = place.open(tables[2].id());
    let begin = std::time::Instant::now();
    for round in 0..5 {
        for (at, table) in tables.iter().enumerate().filter(|(at, _)| *at != 2) {
            put(table, &key(1, round), at as u64);
        }
        let mut batch = Batch::new();
        batch.put(key(1, round).as_ref(), &[7; 8]).unwrap();
        let _ = tables[2].write(&batch, Durability::Visible);
        let live = tables.iter().enumerate().filter(|(at, _)| *at != 2);
        live.for_each(|(_, table)| wait_for_log(table, begin));
    }
    while care[2].failure().is_none() {
        assert!(begin.elapsed().as_secs() < 60, "nobody noticed");
        std::thread::yield_now();
    }
    let failed = Vec::from_iter(care.iter().map(|care: &Upkeep| care.failure().is_some()));
    assert_eq!(failed, [false, false, true, false, false, false]);
}

#[test]
fn threads_flush_and_compact_whatever_table_needs_it() {
    let place = in_memory();
    let threads = UpkeepThreads::start();
    let small = Options { memtable_bytes: 8000, grace_ms: 0, ..options() };
    let (mut tables, mut care) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let id = place.create();
        let table = Table::open(&place.environment, id, place.cache.clone(), small.clone());
        tables.push(Arc::new(table.unwrap()));
        care.push(threads.look_after(tables.last().unwrap()));
    }
    let is_over = AtomicBool::new(false);
    let begin = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in 0..20_000 {
                put(&tables[at as usize % 7], &key(1, at), at);
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
    assert!(is_over.into_inner());
    let is_compacted = |table: &Arc<Table>| {
        let state = &table.manifest().state;
        (1..8).contains(&state.runs.len()) && state.next_job > 5
    };
    while !tables[..7].iter().all(is_compacted) {
        assert!(begin.elapsed().as_secs() < 60, "runs stay");
        std::thread::yield_now();
    }
    assert_eq!(runs(&tables[7]), 0, "nothing was written to it");
    assert!(care.iter().all(|care| care.failure().is_none()));
    for (number, table) in tables[..7].iter().enumerate() {
        let expected = (0..20_000).filter(|at| at % 7 == number as u64);
        let expected: BTreeMap<Key, u64> = expected.map(|at| (key(1, at), at)).collect();
        assert_eq!(contents(table), expected);
    }
}

#[test]
fn many_small_durable_changes_leave_few_objects() {
    const CHANGES: u64 = 1000;
    let place = in_memory();
    let id = place.create();
    let options = Options { log_segments_max: 50, ..options() };
    let open = || {
        let table = Table::open(&place.environment, id, place.cache.clone(), options.clone());
        Arc::new(table.unwrap())
    };
    let threads = UpkeepThreads::start();
    let segments = || place.environment.storage.list(&format!("{id}/log/"), "").unwrap().len();
    for round in 0..2 {
        let table = open();
        let upkeep = threads.look_after(&table);
        for at in 0..CHANGES {
            write(&table, round * CHANGES + at, 10);
            table.sync().unwrap();
        }
        let is_bounded = || segments() <= 60 && !table.manifest().state.runs.is_empty();
        while !is_bounded() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // The process is killed with what only its log has.
        write(&table, 10 * CHANGES + round, 10);
        table.sync().unwrap();
        std::mem::forget((table, upkeep));
    }
    let found = open().scan(&canopy_store::KeyRange::all(), canopy_store::Direction::Forward);
    let found = found.unwrap().collect().unwrap();
    assert_eq!(found.len() as u64, 2 * CHANGES + 2, "of all changes");
}

//! Numbers that a storage gives out once: the rules as a model, and the code on storage that fails,
//! lists late, or is used by several at once.

#[path = "../protocol/explore.rs"]
mod explore;
mod faulty;
mod model;

use canopy_store::storage::{LocalStorage, MemoryStorage, Storage};
use canopy_store::{
    Base, Environment, KeyRange, Layout, Options, RunLayout, SstableCache, Table, TableId, clone,
    collect, create, delete, owner_of_numbers, reserve_numbers, reserved_numbers,
};
use faulty::{Faults, FaultyStorage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use std::sync::Arc;

const LAYOUT: RunLayout = RunLayout { numbers: 10..50, run: 4 };

fn environment() -> Environment {
    Environment::system(Arc::new(MemoryStorage::default()))
}

fn reserve(environment: &Environment, table: u128, from: u64) -> Option<Range<u64>> {
    reserve_numbers(environment, TableId(table), &LAYOUT, from).expect("storage that answers")
}

#[test]
fn runs_are_given_out_from_the_first_until_none_is_left() {
    let environment = environment();
    for run in 0..10 {
        let first = 10 + run * 4;
        assert_eq!(reserve(&environment, run.into(), 0), Some(first..first + 4));
    }
    assert_eq!(reserve(&environment, 11, 0), None);
    let storage = &*environment.storage;
    assert_eq!(reserved_numbers(storage, 0).expect("a listing").len(), 10);
    assert_eq!(reserved_numbers(storage, 41).expect("a listing"), [42..46, 46..50]);
    assert_eq!(owner_of_numbers(storage, &(14..18)).expect("an owner"), Some(TableId(1)));
    assert_eq!(owner_of_numbers(storage, &(15..19)).expect("nobody"), None);
}

#[test]
fn numbers_are_not_below_what_was_asked_for() {
    let environment = environment();
    assert_eq!(reserve(&environment, 1, 19), Some(22..26));
    assert_eq!(reserve(&environment, 2, 22), Some(26..30));
    assert_eq!(reserve(&environment, 3, 0), Some(10..14));
    assert_eq!(reserve(&environment, 4, 46), Some(46..50));
    assert_eq!(reserve(&environment, 5, 46), None);
    assert_eq!(reserve(&environment, 6, u64::MAX), None);
    assert_eq!(reserve(&environment, 6, 47), None);
}

#[test]
fn other_objects_and_other_layouts_do_no_harm() {
    let environment = environment();
    for name in ["ids/hello", "ids/00000000010-3", "ids/00000000014-4.x", "idsx/00000000010-4"] {
        let created = environment.storage.create(name, b"?"[..].into());
        created.expect("an object");
    }
    let above = RunLayout { numbers: 50..60, run: 2 };
    let other = reserve_numbers(&environment, TableId(1), &above, 0).expect("storage");
    assert_eq!((other, reserve(&environment, 1, 0)), (Some(50..52), Some(10..14)));
    let damaged = environment.storage.create("ids/00000000014-4", b"7"[..].into());
    damaged.expect("an object");
    assert_eq!(reserve(&environment, 1, 0), Some(18..22));
    let error = owner_of_numbers(&*environment.storage, &(14..18)).expect_err("no owner");
    assert!(error.is_damage(), "{error}");
}

/// Several threads reserve all there is; each run gets to one of them.
fn race(storage: &Arc<dyn Storage>) {
    let (threads, layout) = (4, RunLayout { numbers: 0..200, run: 2 });
    let taken = std::thread::scope(|scope| {
        let reserving = (0..threads).map(|table| {
            let (environment, layout) = (Environment::system(storage.clone()), layout.clone());
            scope.spawn(move || {
                let reserve = || reserve_numbers(&environment, TableId(table), &layout, 0);
                let runs = std::iter::from_fn(|| reserve().expect("storage that answers"));
                Vec::from_iter(runs)
            })
        });
        let reserving = Vec::from_iter(reserving);
        Vec::from_iter(reserving.into_iter().map(|one| one.join().expect("runs")))
    });
    let mut all = Vec::from_iter(taken.into_iter().flatten().map(|run| run.start));
    all.sort_unstable();
    assert_eq!(all, Vec::from_iter((0..100).map(|run| run * 2)));
}

#[test]
fn threads_get_different_numbers() {
    race(&(Arc::new(MemoryStorage::default()) as Arc<dyn Storage>));
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    race(&(Arc::new(LocalStorage::new(directory.path()).expect("a storage")) as Arc<dyn Storage>));
}

#[test]
fn faults_of_storage_waste_numbers_at_most() {
    for seed in 0..if std::env::var_os("CANOPY_LONG").is_some() { 20_000 } else { 300 } {
        let mut random = StdRng::seed_from_u64(seed);
        let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
        let faulty = Arc::new(FaultyStorage::new(disk.clone(), seed));
        let environment = Environment {
            clock: Arc::new(faulty::NoWaiting),
            ..{ Environment::system(faulty.clone()) }
        };
        let (mut held, mut least) = (Vec::<(u128, Range<u64>)>::new(), [0; 3]);
        for _ in 0..30 {
            faulty.set(Faults {
                of_creates: random.random_range(0..100),
                of_reads: random.random_range(0..60),
                late_listings: random.random(),
            });
            let table = random.random_range(0..3);
            let from = least[table];
            if let Ok(Some(run)) =
                reserve_numbers(&environment, TableId(table as u128), &LAYOUT, from)
            {
                assert!(run.start >= from, "seed {seed}: {run:?} from {from}");
                let is_apart =
                    |other: &Range<u64>| run.end <= other.start || other.end <= run.start;
                assert!(held.iter().all(|(_, other)| is_apart(other)), "seed {seed}: {run:?}");
                least[table] = run.end;
                held.push((table as u128, run));
            }
            // Some creations that failed happen now.
            faulty.happen();
            for (table, run) in &held {
                let owner = owner_of_numbers(&*disk, run).expect("a sound object");
                assert_eq!(owner, Some(TableId(*table)), "seed {seed}: {run:?}");
            }
        }
    }
}

#[test]
fn reserved_numbers_outlast_their_table_and_its_garbage() {
    let environment = environment();
    let id = create(&environment, Layout::default(), &Options::default()).expect("a table");
    let cache = SstableCache::new(&environment, 1 << 20);
    let open = |id| Table::open(&environment, id, cache.clone(), Options::default());
    let table = open(id).expect("a table");
    assert_eq!(table.reserve_numbers(&LAYOUT, 0).expect("numbers"), Some(10..14));
    drop(table);
    let base = Base { table: id, checkpoint: None };
    let copy = clone(&environment, &[base], &KeyRange::all()).expect("a clone");
    delete(&environment, id).expect("a deletion");
    for table in [id, copy] {
        collect(&environment, table).expect("a collection");
    }
    let table = open(copy).expect("the clone");
    assert_eq!(table.reserve_numbers(&LAYOUT, 0).expect("numbers"), Some(14..18));
    assert_eq!(table.reserved_numbers().expect("a listing"), [10..14, 14..18]);
    let owner = owner_of_numbers(&*environment.storage, &(10..14)).expect("an owner");
    assert_eq!(owner, Some(id));
}

#[test]
fn a_table_that_is_read_alone_reserves_nothing() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let storage = Arc::new(LocalStorage::new(directory.path()).expect("a storage"));
    let environment = Environment::system(storage);
    let id = create(&environment, Layout::default(), &Options::default()).expect("a table");
    let cache = SstableCache::new(&environment, 1 << 20);
    let table = Table::open_read_only(&environment, id, cache, Options::default());
    let table = table.expect("a table").expect("locks");
    assert!(table.reserve_numbers(&LAYOUT, 0).is_err());
    assert_eq!(table.reserved_numbers().expect("a listing"), []);
}

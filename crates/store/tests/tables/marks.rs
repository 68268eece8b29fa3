//! Marks: checkpoints of a moment whose records are written later.

use super::*;
use canopy_store::{Mark, TableId, inspect, release};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Returns what a table had at a checkpoint.
fn at(place: &Fixture, id: TableId, checkpoint: u64) -> BTreeMap<Key, u64> {
    let (cache, environment) = (place.cache.clone(), &place.environment);
    let table = Table::open_at(environment, id, checkpoint, cache, options()).unwrap();
    contents(&table)
}

#[test]
fn a_mark_keeps_the_moment_and_nothing_later() {
    let place = Fixture::new(Arc::new(MemoryStorage::default()));
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let id = place.create();
        let mut table = place.open(id);
        let mut marks: Vec<(Mark, BTreeMap<Key, u64>)> = Vec::new();
        let mut kept = Vec::new();
        let mut now = BTreeMap::new();
        for _ in 0..200 {
            match random.random_range(0..20) {
                0 => table.flush().unwrap(),
                1 => _ = table.flush_frozen().unwrap(),
                2 => _ = compact(&place.environment, id, &place.cache, &options()).unwrap(),
                3 => marks.push((table.mark(60_000).unwrap(), now.clone())),
                4 if !marks.is_empty() => {
                    let (mark, then) = marks.remove(random.random_range(0..marks.len()));
                    kept.push((table.flush_mark(&mark).unwrap(), then));
                }
                5 => marks.truncate(1),
                6 if random.random_range(0..4) == 0 => {
                    // A mark does not outlast its process, and a checkpoint does.
                    kept.extend(marks.drain(..).filter_map(|(mark, then)| {
                        mark.checkpoint().map(|checkpoint| (checkpoint, then))
                    }));
                    table.sync().unwrap();
                    drop(table);
                    table = place.open(id);
                }
                _ => {
                    let (key, value) = (key(1, random.random_range(0..20)), random.random());
                    put(&table, &key, value);
                    now.insert(key, value);
                }
            }
        }
        for (checkpoint, then) in &kept {
            assert_eq!(at(&place, id, *checkpoint), *then, "seed {seed}");
        }
        assert_eq!(contents(&table), now);
        assert!(!kept.is_empty(), "seed {seed}");
    }
}

#[test]
fn a_mark_writes_nothing_and_is_forgotten_when_it_is_dropped() {
    let place = Fixture::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let table = place.open(id);
    put(&table, &key(1, 1), 1);
    let version = inspect(&place.environment, id).unwrap().version;
    let mark = table.mark(60_000).unwrap();
    assert_eq!(
        (inspect(&place.environment, id).unwrap().version, mark.checkpoint()),
        (version, None)
    );
    drop(mark);
    put(&table, &key(1, 2), 2);
    table.flush().unwrap();
    assert_eq!(table.checkpoints().unwrap(), []);
}

#[test]
fn a_table_at_a_checkpoint_is_not_the_table_of_now() {
    let place = Fixture::new(Arc::new(MemoryStorage::default()));
    let id = place.create();
    let table = place.open(id);
    put(&table, &key(1, 1), 1);
    let mark = table.mark(60_000).unwrap();
    put(&table, &key(1, 1), 2);
    let checkpoint = table.flush_mark(&mark).unwrap();
    let past =
        Table::open_at(&place.environment, id, checkpoint, place.cache.clone(), options()).unwrap();
    assert_eq!(contents(&past)[&key(1, 1)], 1);
    assert!(past.flush().is_err() && past.mark(1).is_err());
    // Its writer goes on, and a later one opens the table.
    put(&table, &key(1, 1), 3);
    table.flush().unwrap();
    drop(table);
    let table = place.open(id);
    assert_eq!((contents(&past)[&key(1, 1)], contents(&table)[&key(1, 1)]), (1, 3));
    release(&place.environment, id, checkpoint).unwrap();
    let gone = Table::open_at(&place.environment, id, checkpoint, place.cache.clone(), options());
    assert!(matches!(gone.map(drop), Err(Error::NotFound(_))));
}

//! Changes outlast a crash once the log has them: threads share its syncs.

use super::{Fixture, contents, key, put};
use bytes::Bytes;
use canopy_store::storage::{Append, Created, Listed, MemoryStorage, Storage};
use canopy_store::{Batch, Durability, Error, Result, Table};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Storage in memory that counts calls, and holds or fails those that create parts of logs.
#[derive(Default)]
struct Watched {
    storage: MemoryStorage,
    calls: Mutex<Vec<String>>,
    /// Parts of logs are created once this is false.
    is_held: AtomicBool,
    /// One in so many parts fails, before or after it is created; 0 for none.
    failing: AtomicU64,
    created: AtomicU64,
}

impl Watched {
    fn note(&self, what: &str, name: &str) {
        self.calls.lock().unwrap().push(format!("{what} {name}"));
    }

    fn calls(&self, begin: &str) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.starts_with(begin)).count()
    }

    /// Returns how many calls there were, and forgets them.
    fn take(&self) -> usize {
        std::mem::take(&mut *self.calls.lock().unwrap()).len()
    }
}

impl Storage for Watched {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.note("read", name);
        self.storage.read_range(name, range)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.note("read", name);
        self.storage.read(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.note("create", name);
        let failed = || Err(Error::storage(name, io::Error::other("storage failed")));
        if !name.contains("/log/") {
            return self.storage.create(name, bytes);
        }
        while self.is_held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let failing = self.failing.load(Ordering::Relaxed);
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        match number.checked_rem(failing) {
            Some(0) => failed(),
            Some(1) => self.storage.create(name, bytes).and_then(|_| failed()),
            _ => self.storage.create(name, bytes),
        }
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.note("list", prefix);
        self.storage.list(prefix, after)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.note("remove", name);
        self.storage.remove(name)
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        self.storage.append_to(name)
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.note("lock", name);
        self.storage.lock(name)
    }
}

fn watched() -> (Arc<Watched>, Fixture) {
    let storage = Arc::new(Watched::default());
    (storage.clone(), Fixture::new(storage))
}

fn put_durable(table: &Table, at: u64) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(key(1, at).as_ref(), &at.to_le_bytes()).unwrap();
    table.write(&batch, Durability::Durable)
}

#[test]
fn threads_that_wait_for_durability_share_one_sync() {
    const THREADS: u64 = 64;
    let (storage, place) = watched();
    let table = place.open(place.create());
    let before = storage.calls("create ");
    storage.is_held.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        scope.spawn(|| put_durable(&table, 0).unwrap());
        while storage.calls("create ") == before {
            std::thread::yield_now();
        }
        // The log is being written; what comes now waits for the next part of it.
        for at in 1..THREADS {
            let table = &table;
            scope.spawn(move || put_durable(table, at).unwrap());
        }
        while table.position() < THREADS {
            std::thread::yield_now();
        }
        assert_eq!(table.durable_position(), 0);
        storage.is_held.store(false, Ordering::Release);
    });
    assert_eq!(storage.calls("create ") - before, 2, "one alone, and one for all others");
    assert_eq!(table.durable_position(), THREADS);
    let id = table.id();
    drop(table);
    assert_eq!(contents(&place.open(id)).len() as u64, THREADS);
}

#[test]
fn one_sync_makes_many_changes_durable() {
    let (storage, place) = watched();
    let table = place.open(place.create());
    (0..100).for_each(|at| put(&table, &key(1, at), at));
    let (position, parts) = (table.position(), storage.calls("create "));
    assert_eq!((table.durable_position(), position), (0, 100));
    put(&table, &key(1, 100), 100);
    table.sync_to(position).unwrap();
    assert_eq!(storage.calls("create ") - parts, 1);
    assert_eq!(table.durable_position(), 101, "what came later went along");
    storage.take();
    table.sync_to(position).unwrap();
    table.sync().unwrap();
    assert_eq!(storage.take(), 0, "nothing was left to do");
    // A position that was not reached yet is as far as it goes.
    table.sync_to(u64::MAX).unwrap();
    let id = table.id();
    drop(table);
    assert_eq!(contents(&place.open(id)).len(), 101);
}

#[test]
fn acknowledged_changes_are_there_however_syncs_fail() {
    for seed in 0..8 {
        let (storage, place) = watched();
        let id = place.create();
        let table = place.open(id);
        storage.failing.store(2 + seed % 5, Ordering::Relaxed);
        let acknowledged = Mutex::new(BTreeSet::new());
        std::thread::scope(|scope| {
            for thread in 0..12 {
                let (table, acknowledged) = (&table, &acknowledged);
                scope.spawn(move || {
                    for round in 0..15 {
                        let at = thread * 100 + round;
                        match put_durable(table, at) {
                            Ok(()) => assert!(acknowledged.lock().unwrap().insert(at)),
                            Err(Error::Storage { .. } | Error::Deferred { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        storage.failing.store(0, Ordering::Relaxed);
        drop(table);
        let found = contents(&place.open(id));
        let acknowledged = acknowledged.into_inner().unwrap();
        assert!(!acknowledged.is_empty());
        let lost = acknowledged.iter().filter(|at| !found.contains_key(&key(1, **at)));
        assert_eq!(lost.count(), 0, "seed {seed}");
    }
}

#[test]
fn a_log_that_ends_wakes_all_that_wait() {
    let (storage, place) = watched();
    let id = place.create();
    let table = place.open(id);
    put_durable(&table, 0).unwrap();
    storage.is_held.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        let writers = (1..20).map(|at| {
            let table = &table;
            scope.spawn(move || put_durable(table, at))
        });
        let writers = Vec::from_iter(writers);
        while table.position() < 20 {
            std::thread::yield_now();
        }
        let opener = scope.spawn(|| place.open(id));
        // Its fence is created beside the part of the log that waits.
        while storage.calls(&format!("create {id}/log/")) < 3 {
            std::thread::yield_now();
        }
        storage.is_held.store(false, Ordering::Release);
        let next = opener.join().unwrap();
        let outcomes = writers.into_iter().map(|writer| writer.join().unwrap());
        let outcomes = Vec::from_iter(outcomes);
        let found = contents(&next);
        for (at, outcome) in (1..).zip(&outcomes) {
            match outcome {
                Ok(()) => assert!(found.contains_key(&key(1, at)), "{at} is lost"),
                Err(error) => assert!(matches!(error, Error::Fenced(_)), "{error}"),
            }
        }
    });
    let error = put_durable(&table, 30).unwrap_err();
    assert!(matches!(error, Error::Fenced(_)), "{error}");
}

#[test]
fn storage_is_probed_once_for_all_tables() {
    let (storage, place) = watched();
    place.create();
    let first = storage.calls("create probe/");
    assert!(first > 1, "it was probed");
    storage.take();
    let ids = [(); 5].map(|()| place.create());
    assert_eq!(storage.calls("create probe/"), 0);
    assert_eq!(storage.take(), 5 * 3, "a look at the note, a manifest, and a listing of it");
    let open = ids.map(|id| place.open(id));
    assert_eq!((storage.calls("create probe/"), storage.calls("read probe/")), (0, 0));
    let calls = storage.take();
    assert!(calls <= 5 * 10, "{calls}");
    drop(open);
}

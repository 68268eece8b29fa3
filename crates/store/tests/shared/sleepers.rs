//! Writers that sleep at any call of storage while others open their table, and their logs, which grow
//! in few files.

use crate::place::{Fixture, contents, key, put};
use crate::{made, opened};
use bytes::Bytes;
use canopy_store::storage::{Append, Created, Growing, Listed, SharedDirectory, Storage};
use canopy_store::{Batch, Durability, Error, Result, Table, TableId, collect};
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Storage of a process that sleeps at one of its calls that change or look for something.
struct Sleepy(Arc<Shared>);

struct Shared {
    inner: SharedDirectory,
    state: Mutex<State>,
}

/// A message of a process.
#[derive(PartialEq, Eq)]
enum Report {
    Sleeps,
    Ended,
}

struct State {
    /// Calls until it sleeps; none if it does not.
    left: Option<u64>,
    sleeps: Sender<Report>,
    wakes: Receiver<()>,
}

impl Shared {
    fn call(&self) {
        let mut state = self.state.lock().unwrap();
        let Some(left) = &mut state.left else { return };
        match left.checked_sub(1) {
            Some(less) => *left = less,
            None => {
                state.left = None;
                state.sleeps.send(Report::Sleeps).unwrap();
                state.wakes.recv().unwrap();
            }
        }
    }
}

impl Storage for Sleepy {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.0.inner.read_range(name, range)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.0.call();
        self.0.inner.read(name)
    }

    fn size(&self, name: &str) -> Result<u64> {
        self.0.call();
        self.0.inner.size(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.0.call();
        self.0.inner.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.0.inner.list(prefix, after)
    }

    fn has_ordered_listings(&self) -> bool {
        false
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.call();
        self.0.inner.remove(name)
    }

    fn append_to(&self, _: &str) -> Result<Option<Box<dyn Append>>> {
        Ok(None)
    }

    fn has_growing(&self) -> bool {
        true
    }

    fn create_growing(&self, name: &str, head: &[u8], room: u64) -> Result<Growing> {
        self.0.call();
        Ok(match self.0.inner.create_growing(name, head, room)? {
            Growing::New(file) => Growing::New(Box::new(SleepyFile(self.0.clone(), file))),
            Growing::ThereWasOne => Growing::ThereWasOne,
        })
    }

    fn lock(&self, _: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}

struct SleepyFile(Arc<Shared>, Box<dyn Append>);

impl Append for SleepyFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.call();
        self.1.append(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.0.call();
        self.1.sync()
    }
}

/// A process that runs in a thread of its own.
struct Process<T> {
    running: JoinHandle<T>,
    reports: Receiver<Report>,
    wake: Sender<()>,
}

impl<T: Send + 'static> Process<T> {
    /// Runs a process that sleeps once it has made so many calls.
    fn run(directory: &Path, calls: u64, run: impl FnOnce(&Fixture) -> T + Send + 'static) -> Self {
        let (sleeps, reports) = channel();
        let (wake, wakes) = channel();
        let state = Mutex::new(State { left: Some(calls), sleeps: sleeps.clone(), wakes });
        let inner = SharedDirectory::open(directory).unwrap();
        let place = Fixture::new(Arc::new(Sleepy(Arc::new(Shared { inner, state }))));
        let running = std::thread::spawn(move || {
            let outcome = run(&place);
            let _ = sleeps.send(Report::Ended);
            outcome
        });
        Process { running, reports, wake }
    }

    /// Waits until it sleeps. Returns whether it has ended instead.
    fn has_ended(&self) -> bool {
        self.reports.recv().unwrap() == Report::Ended
    }

    /// Wakes it, and returns its outcome.
    fn end(self) -> T {
        let _ = self.wake.send(());
        self.running.join().unwrap()
    }
}

/// Writes changes until one is refused, and returns those that were acknowledged. Some fill a segment.
fn write(place: &Fixture, id: TableId) -> BTreeSet<u64> {
    let mut acknowledged = BTreeSet::new();
    let Ok(table) = place.try_open(id) else { return acknowledged };
    for at in 0..8 {
        let mut batch = Batch::new();
        batch.put(key(1, at).as_ref(), &at.to_le_bytes()).unwrap();
        if at % 3 == 2 {
            for more in 0..1000 {
                batch.put(key(2 + at, more).as_ref(), &[0; 8]).unwrap();
            }
        }
        match table.write(&batch, Durability::Durable) {
            Ok(()) => assert!(acknowledged.insert(at)),
            Err(Error::Fenced(_)) => break,
            Err(error) => panic!("{error}"),
        }
        if at == 4 && table.flush().is_err() {
            break;
        }
    }
    // As if the process was killed.
    std::mem::forget(table);
    acknowledged
}

fn own(table: &Table) -> BTreeSet<u64> {
    let all = contents(table);
    (0..100).filter(|at| all.contains_key(&key(1, *at))).collect()
}

#[test]
fn a_writer_that_sleeps_loses_nothing_that_it_acknowledged() {
    let mut calls = 0;
    loop {
        let directory = tempfile::tempdir().unwrap();
        let place = made(directory.path());
        let id = place.create();
        let writing = Process::run(directory.path(), calls, move |place| write(place, id));
        if writing.has_ended() {
            assert_eq!(writing.end().len(), 8);
            break;
        }
        let first = place.open(id);
        let found = own(&first);
        let acknowledged = writing.end();
        // An opening that slept may have taken the table over.
        let taken = first.write(&one(50), Durability::Durable).is_err();
        let last = opened(directory.path());
        collect(&last.environment, id).unwrap();
        let last = own(&last.open(id));
        assert!(acknowledged.is_subset(&last), "{calls}: {acknowledged:?}, {last:?}");
        if !taken {
            let mut expected = found;
            expected.insert(50);
            assert_eq!(last, expected, "{calls}: all openers find the same");
        }
        calls += 1;
    }
    assert!(calls > 30, "{calls}");
}

fn one(at: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(key(1, at).as_ref(), &at.to_le_bytes()).unwrap();
    batch
}

#[test]
fn an_opener_that_sleeps_ends_a_log_as_others_do() {
    let mut calls = 0;
    loop {
        let directory = tempfile::tempdir().unwrap();
        let place = made(directory.path());
        let id = place.create();
        let writer = place.open(id);
        for at in 0..5 {
            writer.write(&one(at), Durability::Durable).unwrap();
        }
        let opening = Process::run(directory.path(), calls, move |place| {
            let table = place.try_open(id);
            let found = table.as_ref().map(own).ok();
            std::mem::forget(table);
            found
        });
        let is_over = opening.has_ended();
        let mut acknowledged = BTreeSet::from_iter(0..5);
        if writer.write(&one(5), Durability::Durable).is_ok() {
            acknowledged.insert(5);
        }
        let found = own(&place.open(id));
        assert!(acknowledged.is_subset(&found), "{calls}: {acknowledged:?}, {found:?}");
        let by_sleeper = opening.end();
        assert!(by_sleeper.is_none_or(|of_it| of_it.is_subset(&found)), "{calls}");
        assert_eq!(own(&opened(directory.path()).open(id)), found, "{calls}");
        if is_over {
            break;
        }
        calls += 1;
    }
    assert!(calls > 5, "{calls}");
}

#[test]
fn many_durable_changes_take_few_files() {
    let directory = tempfile::tempdir().unwrap();
    let place = made(directory.path());
    let id = place.create();
    let table = place.open(id);
    for at in 0..3000 {
        put(&table, &key(1, at), at);
        table.sync().unwrap();
    }
    let logs = directory.path().join("objects").join(id.to_string()).join("log");
    let count = || {
        let epochs = fs::read_dir(&logs).unwrap();
        epochs.map(|epoch| fs::read_dir(epoch.unwrap().path()).unwrap().count()).sum::<usize>()
    };
    assert!((1..8).contains(&count()), "{}", count());
    std::mem::forget(table);
    let table = opened(directory.path()).open(id);
    assert_eq!(contents(&table).len(), 3000);
    table.flush().unwrap();
    collect(&place.environment, id).unwrap();
    assert_eq!(count(), 1, "a fence stays");
}

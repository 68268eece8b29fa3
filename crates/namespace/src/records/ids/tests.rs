//! Ids of tables that are cloned, die, fail, or run out of blocks.

use super::*;
use crate::namespace::{create_namespace, system_clock};
use crate::records::change::New;
use crate::records::inode::file_type;
use crate::records::open_files::NoOpenFiles;
use crate::records::range::TabletRange;
use crate::records::tablet::open_table;
use crate::settings::{Settings, table_of};
use bytes::Bytes;
use canopy_model::Ownership;
use canopy_store::storage::{Append, Created, Listed, MemoryStorage, Storage};
use canopy_store::{
    Base, Environment, KeyRange, SstableCache, TableId, clone, collect, compact_all, delete,
    reserved_numbers,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicI64;

/// Calls to storage that succeed before a process dies; more than there are if it lives.
const LIVES: i64 = i64::MAX;

/// Storage that a process loses after some calls. The last one may happen all the same.
struct DyingStorage {
    inner: Arc<dyn Storage>,
    calls_left: AtomicI64,
    last_one_happens: bool,
    /// Whether only blocks cannot be reserved.
    fails_ids_alone: bool,
}

impl DyingStorage {
    fn new(inner: &Arc<dyn Storage>, calls: i64, last_one_happens: bool) -> Self {
        let (inner, calls_left) = (inner.clone(), AtomicI64::new(calls));
        DyingStorage { inner, calls_left, last_one_happens, fails_ids_alone: false }
    }

    fn call<T>(
        &self,
        name: &str,
        act: impl FnOnce() -> canopy_store::Result<T>,
    ) -> canopy_store::Result<T> {
        if self.fails_ids_alone && !name.starts_with("ids/") {
            return act();
        }
        let left = self.calls_left.fetch_sub(1, Ordering::SeqCst);
        if left > 0 {
            return act();
        }
        if left == 0 && self.last_one_happens {
            act()?;
        }
        Err(canopy_store::Error::storage(name, std::io::Error::other("dead")))
    }
}

impl Storage for DyingStorage {
    fn read_range(&self, name: &str, range: Range<u64>) -> canopy_store::Result<Bytes> {
        self.call(name, || self.inner.read_range(name, range))
    }

    fn read(&self, name: &str) -> canopy_store::Result<Bytes> {
        self.call(name, || self.inner.read(name))
    }

    fn create(&self, name: &str, bytes: Bytes) -> canopy_store::Result<Created> {
        self.call(name, || self.inner.create(name, bytes))
    }

    fn list(&self, prefix: &str, after: &str) -> canopy_store::Result<Vec<Listed>> {
        self.call(prefix, || self.inner.list(prefix, after))
    }

    fn remove(&self, name: &str) -> canopy_store::Result<()> {
        self.call(name, || self.inner.remove(name))
    }

    fn append_to(&self, name: &str) -> canopy_store::Result<Option<Box<dyn Append>>> {
        self.inner.append_to(name)
    }

    fn lock(&self, name: &str) -> canopy_store::Result<Option<Box<dyn Send + Sync>>> {
        self.inner.lock(name)
    }
}

/// A clock that waits for nothing.
struct NoWaiting;

impl canopy_store::Clock for NoWaiting {
    fn now_ms(&self) -> u64 {
        0
    }

    fn sleep(&self, _: std::time::Duration) {}
}

fn environment(storage: Arc<dyn Storage>) -> Environment {
    Environment { clock: Arc::new(NoWaiting), ..Environment::system(storage) }
}

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::default())
}

/// Makes a namespace and returns its table.
fn namespace(environment: &Environment) -> TableId {
    let settings = Settings::default().with_indexes(&[""; 0]).unwrap();
    create_namespace(environment, &settings, Ownership::ROOT, &system_clock()).unwrap();
    table_of(&*environment.storage).unwrap()
}

fn open(environment: &Environment, table: TableId, layout: &IdLayout) -> Result<Tablet> {
    let table = open_table(environment, table, SstableCache::new(environment, 1 << 20))?;
    let (files, range) = (Arc::new(NoOpenFiles), TabletRange::All);
    Tablet::with_ids(table, range, system_clock(), files, layout.clone())
}

fn copy(environment: &Environment, table: TableId) -> TableId {
    clone(environment, &[Base { table, checkpoint: None }], &KeyRange::all()).unwrap()
}

/// Makes a file and returns its id.
fn file(tablet: &Tablet, name: &str) -> Result<FileId> {
    let new = New { mode: file_type::REGULAR | 0o600, ..New::default() };
    tablet.create(ROOT, name.as_bytes(), &new, false).map(|inode| inode.id)
}

/// Blocks of 3 ids: 2 for the first table, 2 at a time for others, 10 in all.
fn few() -> IdLayout {
    IdLayout {
        first: RunLayout { numbers: 0..2, run: 2 },
        others: RunLayout { numbers: 2..10, run: 2 },
        per_block: 3,
    }
}

/// Many blocks of few ids.
fn many() -> IdLayout {
    let others = RunLayout { numbers: 2..1 << 30, run: 2 };
    IdLayout { others, per_block: 5, ..few() }
}

fn id(block: u64, count: u32) -> FileId {
    FileId::from_parts(Block(block), count)
}

fn put_ids(environment: &Environment, table: TableId, record: &[u8]) {
    let cache = SstableCache::new(environment, 1 << 20);
    let table = open_table(environment, table, cache).unwrap();
    let mut batch = Batch::new();
    batch.put(keys::ids().as_ref(), record).unwrap();
    table.write(&batch, Durability::Durable).unwrap();
    table.flush().unwrap();
}

#[test]
fn ids_have_a_block_and_a_number_there() {
    for (block, count) in [(0, 1), (0, (1 << 28) - 1), (1, 0), (65_536, 7), ((1 << 34) - 1, 3)] {
        let id = FileId::from_parts(Block(block), count);
        assert_eq!((id.block(), id.count()), (Block(block), count));
        assert!(id < FileId::MAX);
    }
    assert_eq!((ROOT.block(), ROOT.count()), (Block(0), 1));
    assert_eq!(Block::END.first_id(), FileId::MAX);
    assert_eq!(FileId(Block::END.first_id().0 - 1).block().next(), Block::END);
}

#[test]
fn blocks_and_runs_are_used_up_one_after_another() {
    let environment = environment(memory());
    let table = namespace(&environment);
    let tablet = open(&environment, table, &few()).unwrap();
    let later = (1..10).flat_map(|block| (0..3).map(move |count| id(block, count)));
    for (number, expected) in std::iter::once(id(0, 2)).chain(later).enumerate() {
        assert_eq!(file(&tablet, &number.to_string()).unwrap(), expected);
    }
    let error = file(&tablet, "one too many").expect_err("no block is left");
    assert_eq!(error.errno(), Errno::NOSPC);
    assert_eq!(reserved_numbers(&*environment.storage, 0).unwrap().len(), 5);
}

#[test]
fn whoever_opens_a_table_goes_on_behind_the_ids_on_record() {
    let environment = environment(memory());
    let table = namespace(&environment);
    let expected = std::iter::once(id(0, 2)).chain((1..10).map(|block| id(block, 0)));
    for (number, expected) in expected.enumerate() {
        let tablet = open(&environment, table, &few()).unwrap();
        assert_eq!(file(&tablet, &number.to_string()).unwrap(), expected);
        tablet.table.sync().unwrap();
    }
    let tablet = open(&environment, table, &few()).unwrap();
    assert_eq!(file(&tablet, "last").expect_err("no block").errno(), Errno::NOSPC);
}

#[test]
fn ids_of_a_tree_that_is_added_at_once_are_in_one_block() {
    let environment = environment(memory());
    let table = namespace(&environment);
    let tablet = open(&environment, table, &few()).unwrap();
    let mut writer = tablet.writer.lock();
    let mut take = |count| writer.ids.take(&tablet.table, count);
    assert_eq!(take(1).unwrap(), id(0, 2)..id(0, 3));
    assert_eq!(take(2).unwrap(), id(1, 0)..id(1, 2));
    assert_eq!(take(2).unwrap(), id(2, 0)..id(2, 2));
    assert_eq!(take(3).unwrap(), id(3, 0)..id(3, 3));
    assert_eq!(take(4).expect_err("more than a block").errno(), Errno::INVAL);
}

#[test]
fn clones_of_clones_have_ids_of_their_own() {
    let environment = environment(memory());
    let first = namespace(&environment);
    let layout = IdLayout::default();
    let tablet = open(&environment, first, &layout).unwrap();
    assert_eq!(file(&tablet, "a").unwrap(), FileId(2));
    tablet.table.flush().unwrap();
    let second = copy(&environment, first);
    let other = open(&environment, second, &layout).unwrap();
    assert_eq!(file(&other, "b").unwrap(), id(65_536, 0));
    assert_eq!(file(&tablet, "b").unwrap(), FileId(3));
    other.table.flush().unwrap();
    let third = copy(&environment, second);
    // One that was never opened lies between.
    let fourth = copy(&environment, copy(&environment, third));
    for (table, block) in [(third, 65_552), (fourth, 65_568)] {
        let tablet = open(&environment, table, &layout).unwrap();
        assert_eq!(file(&tablet, "c").unwrap(), id(block, 0));
        assert_eq!(tablet.lookup(ROOT, b"b").unwrap().id, id(65_536, 0));
    }
    assert_eq!(file(&other, "c").unwrap(), id(65_536, 1));
    let owner = owner_of_numbers(&*environment.storage, &(65_552..65_568)).unwrap();
    assert_eq!(owner, Some(third));
}

#[test]
fn older_namespaces_go_on_where_they_ended() {
    let environment = environment(memory());
    let table = namespace(&environment);
    put_ids(&environment, table, &1000_u64.to_be_bytes());
    assert!(reserved_numbers(&*environment.storage, 0).unwrap().is_empty());
    let early = copy(&environment, table);
    let layout = IdLayout::default();
    // Even if its clone makes files first.
    let other = open(&environment, early, &layout).unwrap();
    assert_eq!(file(&other, "a").unwrap(), id(65_536, 0));
    let owner = owner_of_numbers(&*environment.storage, &(0..65_536)).unwrap();
    assert_eq!(owner, Some(table));
    let tablet = open(&environment, table, &layout).unwrap();
    assert_eq!(file(&tablet, "a").unwrap(), FileId(1000));
    drop(tablet);
    // A program that knows no blocks refuses what it finds now.
    let opened = open(&environment, table, &layout).unwrap();
    let record = opened.table.get(keys::ids().as_ref()).unwrap().unwrap();
    assert!(keys::parse_number(&record).is_none());
}

#[test]
fn one_of_several_older_tables_goes_on_in_the_first_blocks() {
    let environment = environment(memory());
    let ids = [(); 2].map(|()| {
        environment.storage.remove("namespace").unwrap();
        namespace(&environment)
    });
    for table in ids {
        put_ids(&environment, table, &77_u64.to_be_bytes());
    }
    let made = ids.map(|table| {
        let tablet = open(&environment, table, &IdLayout::default()).unwrap();
        file(&tablet, "a").unwrap()
    });
    assert_eq!(made, [id(65_536, 0), FileId(77)], "the namespace is the second one");
}

#[test]
fn a_process_that_dies_with_its_first_file_wastes_no_blocks() {
    for is_older in [false, true] {
        let environment = environment(memory());
        let table = namespace(&environment);
        if is_older {
            put_ids(&environment, table, &2_u64.to_be_bytes());
        }
        let layout = IdLayout::default();
        let reserved = reserve_numbers(&environment, table, &layout.first, 0).unwrap();
        assert!(reserved.is_some());
        let tablet = open(&environment, table, &layout).unwrap();
        assert_eq!(file(&tablet, "a").unwrap(), FileId(2));
        // Where the record is lost, files show that blocks were used.
        tablet.table.sync().unwrap();
        drop(tablet);
        let cache = SstableCache::new(&environment, 1 << 20);
        let mut batch = Batch::new();
        batch.delete(keys::ids().as_ref()).unwrap();
        let raw = open_table(&environment, table, cache).unwrap();
        raw.write(&batch, Durability::Durable).unwrap();
        drop(raw);
        let tablet = open(&environment, table, &layout).unwrap();
        assert_eq!(file(&tablet, "b").unwrap(), id(65_536, 0));
    }
}

#[test]
fn files_are_made_though_the_object_of_the_first_blocks_is_damaged() {
    for damaged in [Vec::new(), b"garbage".to_vec(), vec![b'7'; 4096]] {
        let environment = environment(memory());
        let table = namespace(&environment);
        let first = IdLayout::default().first.numbers;
        let name = format!("ids/{:011}-{}", first.start, first.end - first.start);
        environment.storage.create(&name, damaged.into()).unwrap();
        let tablet = open(&environment, table, &IdLayout::default()).unwrap();
        assert!(file(&tablet, "a").unwrap().block().0 >= first.end);
    }
}

#[test]
fn tables_beside_the_namespace_leave_it_the_first_blocks() {
    let environment = environment(memory());
    let beside = namespace(&environment);
    environment.storage.remove("namespace").unwrap();
    let table = namespace(&environment);
    put_ids(&environment, table, &500_u64.to_be_bytes());
    let layout = IdLayout::default();
    let made = [beside, table]
        .map(|table| file(&open(&environment, table, &layout).unwrap(), "a").unwrap());
    assert_eq!(made, [id(65_536, 0), FileId(500)]);
}

#[test]
fn ids_behind_the_first_blocks_still_claim_these() {
    for end in [id(65_536, 0), id(70_000, 5), FileId(FileId::MAX.0 - (17 << 28))] {
        let environment = environment(memory());
        let table = namespace(&environment);
        put_ids(&environment, table, &end.to_be_bytes());
        let tablet = open(&environment, table, &IdLayout::default()).unwrap();
        let made = file(&tablet, "a").unwrap();
        assert!(made >= end, "{made} from {end} on");
        let reserved = reserved_numbers(&*environment.storage, 0).unwrap();
        assert_eq!((reserved.len(), &reserved[0]), (2, &(0..65_536)));
    }
    for end in [FileId::MAX, FileId(u64::MAX)] {
        let environment = environment(memory());
        let table = namespace(&environment);
        put_ids(&environment, table, &end.to_be_bytes());
        let tablet = open(&environment, table, &IdLayout::default()).unwrap();
        assert_eq!(file(&tablet, "a").expect_err("no ids").errno(), Errno::NOSPC);
    }
}

#[test]
fn blocks_are_claimed_with_their_run() {
    let environment = environment(memory());
    let table = namespace(&environment);
    let tablet = open(&environment, table, &IdLayout::default()).unwrap();
    let claim = |block| tablet.writer.lock().ids.claim(&tablet.table, Block(block)).unwrap();
    let last = Block::END.0 - 1;
    for block in [70_005, last, 3] {
        assert!(claim(block) && !claim(block), "block {block}");
    }
    let reserved = reserved_numbers(&*environment.storage, 0).unwrap();
    assert_eq!(reserved, [0..65_536, 70_000..70_016, last - 15..last + 1]);
}

#[test]
fn records_that_contradict_themselves_are_damaged() {
    let sound = IdsRecord { end: id(7, 3), owner: Some(5), blocks: Block(6)..Block(9) };
    assert_eq!(IdsRecord::decode(Some(&sound.encode())).unwrap(), Some(sound.clone()));
    let older = IdsRecord { owner: None, blocks: Block(0)..Block(0), ..sound.clone() };
    assert_eq!(IdsRecord::decode(Some(&older.encode())).unwrap(), Some(older));
    assert_eq!(IdsRecord::decode(None).unwrap(), None);
    for damaged in [
        IdsRecord { blocks: Block(9)..Block(6), ..sound.clone() },
        IdsRecord { blocks: Block(7)..Block(7), ..sound.clone() },
        IdsRecord { blocks: Block(8)..Block(9), ..sound.clone() },
        IdsRecord { blocks: Block(0)..Block(7), ..sound.clone() },
        IdsRecord { blocks: Block(0)..Block(Block::END.0 + 1), ..sound.clone() },
        IdsRecord { blocks: Block(u64::MAX - 1)..Block(u64::MAX), ..sound.clone() },
    ] {
        assert!(IdsRecord::decode(Some(&damaged.encode())).is_err(), "{damaged:?}");
    }
    let bytes = sound.encode();
    for length in (0..bytes.len()).filter(|length| *length != 8) {
        assert!(IdsRecord::decode(Some(&bytes[..length])).is_err(), "{length} bytes");
    }
    assert!(IdsRecord::decode(Some(&[&bytes[..], b"x"].concat())).is_err());
}

#[test]
fn threads_that_run_out_of_blocks_together_get_different_ids() {
    let environment = environment(memory());
    let table = namespace(&environment);
    let tablet = open(&environment, table, &many()).unwrap();
    let made = std::thread::scope(|scope| {
        let threads = Vec::from_iter((0..4).map(|thread| {
            let tablet = &tablet;
            scope.spawn(move || {
                Vec::from_iter((0..300).map(|at| file(tablet, &format!("{thread}-{at}")).unwrap()))
            })
        }));
        Vec::from_iter(threads.into_iter().flat_map(|one| one.join().unwrap()))
    });
    assert_eq!(BTreeSet::from_iter(&made).len(), 1200);
    let reserved = reserved_numbers(&*environment.storage, 0).unwrap();
    let is_reserved = |id: &FileId| reserved.iter().any(|run| run.contains(&id.block().0));
    assert!(made.iter().all(is_reserved));
    // Few are wasted: each block that was reserved is used up, but for the last ones.
    assert!(reserved.len() < 1200 / 10 + 4, "{} runs", reserved.len());
}

#[test]
fn storage_that_fails_is_not_needed_while_ids_are_left() {
    let disk = memory();
    let table = namespace(&environment(disk.clone()));
    let mut storage = DyingStorage::new(&disk, LIVES, false);
    storage.fails_ids_alone = true;
    let storage = Arc::new(storage);
    let layout = IdLayout { per_block: 100, ..few() };
    let tablet = open(&environment(storage.clone()), table, &layout).unwrap();
    storage.calls_left.store(0, Ordering::SeqCst);
    assert!(file(&tablet, "none yet").is_err(), "there are no blocks");
    storage.calls_left.store(LIVES, Ordering::SeqCst);
    assert_eq!(file(&tablet, "first").unwrap(), FileId(2));
    storage.calls_left.store(0, Ordering::SeqCst);
    let made = (0..1000).take_while(|at| file(&tablet, &at.to_string()).is_ok()).count();
    assert_eq!(made, 97 + 100);
    // It was tried now and then, not for each file; a call that fails is tried again below.
    let tries = -storage.calls_left.load(Ordering::SeqCst);
    assert!(tries < 100, "{tries} calls");
    storage.calls_left.store(LIVES, Ordering::SeqCst);
    assert_eq!(file(&tablet, "after").unwrap(), id(2, 0));
}

/// Fate of an id.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// Its process lives, and has not synced.
    Pending,
    Durable,
    /// Its process died before it synced. Its table may give it out again.
    Lost,
}

/// The ids that tables of one storage gave out.
struct History {
    disk: Arc<dyn Storage>,
    given: BTreeMap<FileId, (TableId, Fate)>,
}

impl History {
    fn note(&mut self, table: TableId, id: FileId, seed: u64) {
        if let Some((by, fate)) = self.given.insert(id, (table, Fate::Pending)) {
            assert!(by == table && fate == Fate::Lost, "seed {seed}: {id} of {by} is {table}'s");
        }
    }

    fn change(&mut self, table: TableId, from: Fate, to: Fate) {
        let own = self.given.values_mut().filter(|(by, fate)| *by == table && *fate == from);
        own.for_each(|(_, fate)| *fate = to);
    }

    /// Notes what is left of a table whose process died.
    fn reopen(&mut self, table: TableId, tablet: &Tablet) {
        self.change(table, Fate::Pending, Fate::Lost);
        for id in tablet.ids_in(Space::Names).unwrap_or_default() {
            if let Some((_, fate)) = self.given.get_mut(&id) {
                *fate = Fate::Durable;
            }
        }
    }
}

/// Has a process work with a table until it dies, after so many calls to storage.
fn live(history: &mut History, table: TableId, random: &mut StdRng, seed: u64) {
    let calls = if random.random() { LIVES } else { random.random_range(0..60) };
    let storage = Arc::new(DyingStorage::new(&history.disk, calls, random.random()));
    let environment = environment(storage);
    let Ok(tablet) = open(&environment, table, &many()) else { return };
    history.reopen(table, &tablet);
    for _ in 0..random.random_range(1..40) {
        let name = format!("{}", random.random::<u64>());
        match random.random_range(0..12) {
            0 => {
                // A process that dies between the two leaves blocks that nobody uses.
                let _ = tablet.table.reserve_numbers(&many().others, 0);
            }
            1 if tablet.table.sync().is_ok() => history.change(table, Fate::Pending, Fate::Durable),
            2 if tablet.table.flush().is_ok() => {
                history.change(table, Fate::Pending, Fate::Durable)
            }
            3 => {
                let mut writer = tablet.writer.lock();
                let taken = writer.ids.take(&tablet.table, 3);
                let mut batch = Batch::new();
                let is_put = writer.ids.put_end(&mut batch, FileId::NONE).is_ok();
                let is_written = is_put && tablet.table.write(&batch, Durability::Visible).is_ok();
                for id in taken.ok().filter(|_| is_written).into_iter().flat_map(FileId::each) {
                    history.note(table, id, seed);
                }
            }
            4 => {
                let end = tablet.writer.lock().ids.end();
                let mut writer = tablet.writer.lock();
                let _ = writer.ids.skip_to(&tablet.table, FileId(end.0 + 7));
            }
            _ => {
                if let Ok(id) = file(&tablet, &name) {
                    history.note(table, id, seed);
                    assert_eq!(tablet.lookup(ROOT, name.as_bytes()).unwrap().id, id);
                }
            }
        }
    }
}

#[test]
fn no_two_files_get_one_id_whoever_dies_or_is_cloned() {
    let seeds = if std::env::var_os("CANOPY_LONG").is_some() { 3000 } else { 60 };
    for seed in 0..seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = memory();
        let environment = environment(disk.clone());
        let mut tables = vec![namespace(&environment)];
        if random.random() {
            put_ids(&environment, tables[0], &random.random_range(2..9_u64).to_be_bytes());
        }
        let mut history = History { disk, given: BTreeMap::new() };
        for _ in 0..15 {
            let at = random.random_range(0..tables.len());
            let table = tables[at];
            match random.random_range(0..8) {
                0 => tables.push(copy(&environment, table)),
                1 => drop(collect(&environment, table).unwrap()),
                2 => {
                    let cache = SstableCache::new(&environment, 1 << 20);
                    let options = crate::records::tablet::options();
                    compact_all(&environment, table, &cache, &options).unwrap();
                }
                3 if tables.len() > 2 => delete(&environment, tables.swap_remove(at)).unwrap(),
                _ => live(&mut history, table, &mut random, seed),
            }
        }
        check_reserved(&history, seed);
    }
}

/// Every id that was given out lies in blocks that its table has reserved.
fn check_reserved(history: &History, seed: u64) {
    let storage = &*history.disk;
    let reserved = reserved_numbers(storage, 0).unwrap();
    for (id, (table, _)) in &history.given {
        let run = reserved.iter().find(|run| run.contains(&id.block().0));
        let run = run.unwrap_or_else(|| panic!("seed {seed}: {id} is not reserved"));
        assert_eq!(owner_of_numbers(storage, run).unwrap(), Some(*table), "seed {seed}: {id}");
    }
}

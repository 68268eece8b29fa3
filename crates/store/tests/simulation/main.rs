//! The engine in a deterministic simulation: processes that write, compact, collect, read, clone
//! and delete tables of one storage, interleaved at every call of storage, while calls fail, happen
//! later or kill their process, and clocks jump. `CANOPY_SEEDS=100000` runs so many seeds instead
//! of a few thousand, `CANOPY_SEED=46` runs one.

mod actors;
mod oracle;
mod world;

use actors::Site;
use canopy_store::{
    Column, Environment, KeyRange, Layout, Options, Table, TableId, Tables, collect, create, delete,
};
use oracle::both_ways;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use world::{Faults, Process, Quiet, World, run};

/// Seeds of all tests together.
const SEEDS: u64 = 4000;

/// Tests that share the seeds.
const TESTS: u64 = 4;

fn seeds(test: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    match number("CANOPY_SEED") {
        Some(seed) => Vec::from_iter((seed % TESTS == test).then_some(seed)),
        None => {
            let all = 0..number("CANOPY_SEEDS").unwrap_or(SEEDS);
            all.filter(|seed| seed % TESTS == test).collect()
        }
    }
}

fn layout() -> Layout {
    let column = |name: &str, width| Column { name: name.into(), width, near: None };
    Layout { columns: vec![column("letter", 1), column("letters", 4)] }
}

/// Runs one seed and returns how many calls of storage it made.
fn simulate(seed: u64) -> u64 {
    let faults = match seed / TESTS % 4 {
        0 => Faults::default(),
        1 => Faults { crash: 40, ..Faults::default() },
        2 => Faults { crash: 20, failed: 100, done: 100, delayed: 100, jump: 20 },
        _ => Faults { crash: 60, failed: 20, done: 20, delayed: 300, jump: 200 },
    };
    let world = World::new(seed, faults);
    let memtable_bytes = [600, 2_000, 20_000][(seed / 16 % 3) as usize];
    let site = Site::new(memtable_bytes);
    let quiet = Quiet::environment(&world);
    let first = create(&quiet, layout(), &site.options).unwrap();
    site.oracle.add_table(first, oracle::Map::new());

    let (site, mut started) = (&site, 0);
    let processes = 14;
    let mut kinds = Kinds(seed);
    run(
        &world,
        || {
            started += 1;
            let kind = kinds.next();
            (started <= processes).then(|| -> Box<dyn FnOnce(Arc<Process>) + Send> {
                Box::new(move |process| kind(site, &process))
            })
        },
        2 + (seed % 4) as usize,
    );
    settle(&world, site, &quiet);
    world.calls()
}

type Kind = fn(&Site, &Arc<Process>);

/// A sequence of actors of its own for each seed.
struct Kinds(u64);

impl Kinds {
    fn next(&mut self) -> Kind {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        match (self.0 >> 33) % 16 {
            0..7 => actors::writer,
            7..10 => actors::compactor,
            10..12 => actors::collector,
            12 | 13 => actors::reader,
            14 => actors::cloner,
            _ => actors::deleter,
        }
    }
}

/// When all is over, every table is as it must be, and nothing is left that nobody needs.
fn settle(world: &World, site: &Site, quiet: &Environment) {
    world.calm();
    let tables = Tables::new(quiet, 1 << 20);
    for (id, known) in site.oracle.tables() {
        if known.is_deleted {
            // Whoever deleted it may have died before.
            delete(quiet, id).unwrap();
            continue;
        }
        let table = Table::open(quiet, id, tables.clone(), site.options.clone()).unwrap();
        let found = both_ways(|direction| table.scan(&KeyRange::all(), direction)).unwrap();
        site.oracle.opened(id, table.epoch(), &found);
        table.flush().unwrap();
        let flushed = both_ways(|direction| table.scan(&KeyRange::all(), direction)).unwrap();
        oracle::check_equal(&flushed, &found, "after a flush");
    }
    // What the last seconds of a clone of a clone held is only seen to be free one after the other.
    for _ in 0..6 {
        for id in table_ids(quiet) {
            collect(quiet, id).unwrap();
        }
        world.pass_time(1_000_000_000);
    }
    check_nothing_is_left(quiet);
    for (id, known) in site.oracle.tables() {
        if !known.is_deleted {
            let options = Options { ..site.options.clone() };
            let table = Table::open(quiet, id, tables.clone(), options).unwrap();
            let found = both_ways(|direction| table.scan(&KeyRange::all(), direction)).unwrap();
            site.oracle.opened(id, table.epoch(), &found);
        }
    }
}

fn table_ids(quiet: &Environment) -> BTreeSet<TableId> {
    let listed = quiet.storage.list("", "").unwrap();
    listed.iter().filter_map(|one| TableId::parse(one.name.split('/').next()?)).collect()
}

/// Every object is one that some table, or checkpoint, refers to.
fn check_nothing_is_left(quiet: &Environment) {
    use canopy_store::manifest::Phase;
    let mut needed = BTreeSet::new();
    for id in table_ids(quiet) {
        let manifest = canopy_store::inspect(quiet, id).unwrap();
        needed.insert(format!("{id}/manifest/{:020}", manifest.version.number));
        let mut states = vec![manifest.clone()];
        for checkpoint in &manifest.state.checkpoints {
            needed.insert(format!("{id}/manifest/{:020}", checkpoint.version.number));
            states.push(canopy_store::inspect_version(quiet, id, checkpoint.version).unwrap());
        }
        for state in states.iter().filter(|of| of.state.phase == Phase::Live) {
            needed.extend(state.state.sstables().map(|sstable| {
                let (table, name) = (sstable.id.table, sstable.id.name);
                format!("{table}/sst/{:020}-{:010}", name.job, name.number)
            }));
        }
        for epoch in 1..=manifest.state.epoch {
            let start = manifest.state.log.iter().find(|start| start.epoch == epoch);
            let listed = quiet.storage.list(&format!("{id}/log/{epoch:020}/"), "").unwrap();
            // The fence.
            let last = listed.last().map(|one| one.name.clone());
            needed.extend(last.filter(|_| manifest.state.phase != Phase::Deleted));
            if let Some(start) = start.filter(|_| manifest.state.phase != Phase::Deleted) {
                let first = format!("{id}/log/{epoch:020}/{:020}", start.segment);
                needed.extend(listed.into_iter().map(|one| one.name).filter(|one| *one >= first));
            }
        }
    }
    let there = quiet.storage.list("", "").unwrap();
    let there = BTreeSet::from_iter(there.into_iter().map(|one| one.name));
    let left = Vec::from_iter(there.difference(&needed));
    assert!(left.is_empty(), "nobody needs {left:?}");
    let missing = Vec::from_iter(needed.difference(&there));
    assert!(missing.is_empty(), "somebody needs {missing:?}");
}

fn simulate_all(test: u64) {
    let mut calls = 0;
    let all = seeds(test);
    for seed in &all {
        match catch_unwind(AssertUnwindSafe(|| simulate(*seed))) {
            Ok(more) => calls += more,
            Err(panic) => {
                println!("CANOPY_SEED={seed} runs this again");
                resume_unwind(panic);
            }
        }
    }
    println!("{} seeds, {calls} calls of storage", all.len());
}

#[test]
fn tables_are_what_their_history_says_1() {
    simulate_all(0);
}

#[test]
fn tables_are_what_their_history_says_2() {
    simulate_all(1);
}

#[test]
fn tables_are_what_their_history_says_3() {
    simulate_all(2);
}

#[test]
fn tables_are_what_their_history_says_4() {
    simulate_all(3);
}

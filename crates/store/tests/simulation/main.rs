//! The engine in a deterministic simulation: processes write, ingest, compact, collect, read, clone,
//! divide, merge and delete tables of one storage. They are interleaved at every call of storage.
//! Calls fail, happen later or kill their process, clocks jump, and one machine loses its power.
//! `CANOPY_SEEDS=100000` runs so many seeds instead of 2,000, or of 8,000 with `CANOPY_LONG=1`.
//! `CANOPY_SEED=46` runs one.
//!
//! `actors` is what processes do, `model` what the engine is compared with, `oracle` what it must
//! have, `world`, `process` and `disk` are what it runs in, `settle` is the end.

mod actors;
mod disk;
#[path = "../../../cli/tests/common/length.rs"]
mod length;
mod model;
mod oracle;
mod process;
mod reads;
mod settle;
mod world;

use actors::Site;
use canopy_store::{Column, KeyRange, Layout, create};
use disk::DiskKind;
use length::rounds;
use process::Process;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use world::{Faults, World, run};

/// Seeds of all tests together, in a short run and in a long one.
const SEEDS: [u64; 2] = [2500, 10_000];

/// Tests that share the seeds.
const TESTS: u64 = 5;

/// The one whose storage is of one machine, with files that grow.
const ONE_MACHINE: u64 = 3;

/// The one whose storage is a directory of many machines.
const SHARED_DIRECTORY: u64 = 4;

fn seeds(test: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    match number("CANOPY_SEED") {
        Some(seed) => Vec::from_iter((seed % TESTS == test).then_some(seed)),
        None => {
            let all = 0..number("CANOPY_SEEDS").unwrap_or(rounds(SEEDS[0], SEEDS[1]));
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
        1 => Faults { crash: 40, power: 20, ..Faults::default() },
        2 => Faults { crash: 20, failed: 100, done: 100, delayed: 100, power: 5, jump: 20 },
        _ => Faults { crash: 60, failed: 20, done: 20, delayed: 300, power: 40, jump: 200 },
    };
    let kind = match seed % TESTS {
        ONE_MACHINE => DiskKind::OneMachine,
        SHARED_DIRECTORY => DiskKind::SharedDirectory,
        _ => DiskKind::Bucket,
    };
    let world = World::new(seed, faults, kind);
    let memtable_bytes = [1_200, 4_000, 30_000][(seed / 16 % 3) as usize];
    let site = Site::new(memtable_bytes);
    let first = create(&world.quiet(), layout(), &site.options).unwrap();
    site.oracle.add_table(first, model::Map::new(), KeyRange::all(), Vec::new());

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
        2 + (seed / 64 % 4) as usize,
    );
    settle::settle(&world, site);
    world.calls()
}

type Kind = fn(&Site, &Arc<Process>);

/// A sequence of actors of its own for each seed.
struct Kinds(u64);

impl Kinds {
    fn next(&mut self) -> Kind {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        match (self.0 >> 33) % 32 {
            0..12 => actors::writer,
            12..16 => actors::compactor,
            16..20 => actors::collector,
            20..23 => actors::reader,
            23..26 => actors::ingester,
            26..28 => actors::cloner,
            28 => actors::merger,
            29 | 30 => actors::divider,
            _ => actors::deleter,
        }
    }
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
fn tables_of_one_machine_are_what_their_history_says() {
    simulate_all(ONE_MACHINE);
}

#[test]
fn tables_of_many_machines_are_what_their_history_says() {
    simulate_all(SHARED_DIRECTORY);
}

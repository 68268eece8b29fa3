//! The random operations of the model test of a namespace (`namespace/tests/model`), on a cluster of
//! 1, 2, 3 and 7 tables: every reply is that of a directory of the system's, and so are the trees.
//! Directories split all the time. Now and then all servers die: nothing that was answered is lost.

#[path = "../../../namespace/tests/model/executor.rs"]
mod executor;
#[path = "../../../cli/tests/common/length.rs"]
mod length;
mod place;
#[path = "../../../namespace/tests/model/reference.rs"]
mod reference;
#[path = "../../../namespace/tests/model/step.rs"]
mod step;
mod threads;

use length::rounds;
use place::Place;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reference::Reference;
use std::fmt::Write;
use step::{comparable, step};

const STEPS: usize = 300;

/// Returns the seeds to run, of which `CANOPY_SEEDS` may ask for more.
fn seeds() -> u64 {
    let seeds = std::env::var("CANOPY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    seeds.unwrap_or(rounds(6, 100))
}

fn run(servers: u32, seed: u64) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let mut random = StdRng::seed_from_u64(seed);
    let place = Place::new(servers);
    let mut client = place.client();
    let reference = Reference::new(&directory.path().join("reference"));
    let mut log = String::new();
    for at in 0..STEPS {
        let step = step(&mut random, &client);
        let expected = comparable(reference.apply(&step));
        let got = comparable(client.apply(&step));
        writeln!(log, "{step:?}: {expected:?}").expect("text");
        let context = || format!("{servers} tables, seed {seed}, step {at}\n{log}");
        assert_eq!(got, expected, "{}", context());
        if random.random_ratio(1, 40) {
            assert_eq!(client.tree(), reference.tree(), "{}", context());
        }
        if random.random_ratio(1, 40) {
            // One that knows nothing.
            client = place.client();
        }
        if random.random_ratio(1, 60) {
            place.restart();
            assert_eq!(client.tree(), reference.tree(), "restarted: {}", context());
        }
        if random.random_ratio(1, 60) {
            place.collect();
        }
    }
    place.settle();
    assert_eq!(place.client().tree(), reference.tree(), "{servers} tables, seed {seed}");
    place.restart();
    assert_eq!(place.client().tree(), reference.tree(), "{servers} tables, seed {seed}, restarted");
    assert_eq!(servers > 1, place.has_split(), "{servers} tables, seed {seed}: partitions");
}

#[test]
fn one_table_does_what_a_file_system_does() {
    (0..seeds()).for_each(|seed| run(1, seed));
}

#[test]
fn two_tables_do_what_a_file_system_does() {
    (0..seeds()).for_each(|seed| run(2, seed));
}

#[test]
fn three_tables_do_what_a_file_system_does() {
    (0..seeds()).for_each(|seed| run(3, seed));
}

#[test]
fn seven_tables_do_what_a_file_system_does() {
    (0..seeds()).for_each(|seed| run(7, seed));
}

//! Random operations on a namespace and on a directory of the system's: every reply must be the
//! same, and so must the trees. Operations and replies are the messages that they are between
//! servers. Now and then the namespace's process "dies": what is found then is a tree that there
//! was, no older than what was synced last.

mod executor;
#[path = "../../../cli/tests/common/length.rs"]
mod length;
mod place;
mod reference;
mod step;
mod tablets;
mod threads;

use canopy_namespace::{Ownership, Settings, create_namespace, system_clock};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use length::rounds;
use place::{Fixture, crash};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reference::Reference;
use std::path::PathBuf;
use std::sync::Arc;
use step::{comparable, step};

/// Makes a namespace; with which indexes, the seed decides.
fn new_place(place: PathBuf, seed: u64, chunk_bytes: u64) -> Fixture {
    let environment = Environment::system(Arc::new(LocalStorage::new(&place).expect("a storage")));
    let indexes: &[&str] = match seed % 3 {
        0 => &[],
        1 => &["size", "mtime", "ext"],
        _ => &[
            "size", "blocks", "uid", "gid", "links", "type", "mtime", "ctime", "atime", "btime",
            "ext", "name", "user.one",
        ],
    };
    let settings = Settings { chunk_bytes, ..Settings::default() };
    let settings = settings.with_indexes(indexes).expect("settings");
    create_namespace(&environment, &settings, Ownership::ROOT, &system_clock())
        .expect("a namespace");
    drop(environment);
    Fixture::open(place)
}

fn run(seed: u64, steps: usize, chunk_bytes: u64) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let mut random = StdRng::seed_from_u64(seed);
    let place = new_place(directory.path().join("0"), seed, chunk_bytes);
    let reference = Reference::new(&directory.path().join("reference"));
    // The trees since the last sync, the oldest first.
    let mut trees = vec![reference.tree()];
    let mut log = Vec::new();
    for at in 0..steps {
        let step = step(&mut random, &place);
        let expected = comparable(reference.apply(&step));
        let got = comparable(place.apply(&step));
        log.push(format!("{step:?}: {expected:?}"));
        let context = || format!("seed {seed}, step {at}\n{}", log.join("\n"));
        assert_eq!(got, expected, "{}", context());
        trees.push(reference.tree());
        if random.random_ratio(1, 40) {
            assert_eq!(place.tree(), reference.tree(), "{}", context());
            place.check();
            place.check_search();
        }
        if random.random_ratio(1, 8) {
            place.sync_log();
        }
        if random.random_ratio(1, 100) {
            place.change_indexes(&mut random);
        }
        if random.random_ratio(1, 60) {
            place.change_quotas(&mut random);
        }
        place.build_some(random.random_range(0..3));
        if random.random_ratio(1, 60) {
            place.sync();
            trees.drain(..trees.len() - 1);
            if random.random_ratio(1, 2) {
                place.collect();
            }
        }
        if random.random_ratio(1, 50) {
            let copy = crash(&place, &directory.path().join(format!("{}", at + 1)));
            let found = copy.tree();
            copy.check();
            let is_one = trees.iter().any(|tree| copy.resembles(tree, &found));
            assert!(is_one, "a tree that never was:\n{found}\n{}", context());
        }
    }
    place.sync();
    let again = place.reopen();
    assert_eq!(again.tree(), reference.tree(), "seed {seed}, opened again");
    again.check();
}

#[test]
fn a_namespace_does_what_a_file_system_does() {
    let seeds = std::env::var("CANOPY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(rounds(24, 200)) {
        run(seed, 400, 0);
    }
}

/// Contents are chunks of 4 KiB, of which two are cached.
#[test]
fn a_namespace_with_chunks_agrees_with_the_model() {
    let seeds = std::env::var("CANOPY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(rounds(24, 200)) {
        run(seed, 400, 4096);
    }
}

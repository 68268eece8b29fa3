//! Random operations on a namespace and on a directory of the system's: every outcome must be the
//! same, and so must the trees. Now and then the namespace's process "dies": what is found then is a
//! tree that there was, no older than what was synced last.

mod place;
mod reference;
mod threads;

use canopy_namespace::{
    Contents, Namespace, New, RenameMode, SetAttributes, SetTime, SetXattr, Settings,
    create_namespace, system_clock,
};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use place::{Fixture, crash};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use reference::Reference;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One operation, by paths below the root.
#[derive(Clone, Debug)]
enum Step {
    Create(String, u32),
    Mkdir(String, u32),
    Symlink(String),
    Fifo(String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameMode),
    Chmod(String, u32),
    Chown(String, u32, u32),
    Times(String, i64, i64),
    Truncate(String, u64),
    Write(String, u64, usize),
    SetXattr(String, String, usize, SetXattr),
    RemoveXattr(String, String),
    /// Opens a file, and unlinks it while it is open; then reads and closes it.
    UnlinkOpen(String),
}

fn path(random: &mut StdRng) -> String {
    let depth = random.random_range(1..4);
    let names = ["a", "b", "c", "dir", "e", "long name with spaces", "f.txt"];
    let names = Vec::from_iter((0..depth).map(|_| *names.choose(random).expect("a name")));
    names.join("/")
}

fn step(random: &mut StdRng) -> Step {
    let one = path(random);
    let modes = [0o644, 0o600, 0o755, 0o4755, 0o2750, 0o1777, 0];
    let mode = *modes.choose(random).expect("a mode");
    let xattr = format!("user.{}", ["one", "two"].choose(random).expect("a name"));
    match random.random_range(0..34) {
        0..5 => Step::Create(one, mode),
        5..10 => Step::Mkdir(one, mode),
        10 => Step::Symlink(one),
        11 => Step::Fifo(one),
        12..14 => Step::Link(one, path(random)),
        14..17 => Step::Unlink(one),
        17 => Step::Rmdir(one),
        18..22 => {
            let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
            Step::Rename(one, path(random), *modes.choose(random).expect("a mode"))
        }
        22 => Step::Chmod(one, mode),
        23 => Step::Chown(one, random.random_range(0..3), random.random_range(0..3)),
        24 => Step::Times(one, random.random_range(-5..2_000_000_000), 1_700_000_000),
        25 => Step::Truncate(one, random.random_range(0..9000)),
        26..30 => {
            let offset = random.random_range(0..6000);
            Step::Write(one, offset, random.random_range(1..5000))
        }
        30..32 => {
            let hows = [SetXattr::Any, SetXattr::Create, SetXattr::Replace];
            let how = *hows.choose(random).expect("a way");
            Step::SetXattr(one, xattr, random.random_range(0..200), how)
        }
        32 => Step::RemoveXattr(one, xattr),
        _ => Step::UnlinkOpen(one),
    }
}

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
    create_namespace(&environment, &settings, (0, 0), &system_clock()).expect("a namespace");
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
        let step = step(&mut random);
        let expected = reference.apply(&step);
        let got = place.apply(&step);
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
    for seed in 0..seeds.unwrap_or(40) {
        run(seed, 400, 0);
    }
}

/// Contents are chunks of 4 KiB, of which two are cached.
#[test]
fn so_does_one_whose_contents_are_chunks() {
    let seeds = std::env::var("CANOPY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(40) {
        run(seed, 400, 4096);
    }
}

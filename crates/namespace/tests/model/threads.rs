//! Several threads, each with a directory of its own in one namespace and a reference of its own,
//! while others check, search, sync, and change indexes and quotas. What is on the disk at any moment
//! is a tree that each thread had, no older than what it synced last.

use crate::new_place;
use crate::place::{Fixture, crash};
use crate::reference::Reference;
use crate::step::{comparable, step};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

const THREADS: usize = 4;
const ROUNDS: usize = 3;
const STEPS: usize = 60;

/// A thread's directory, and what it has done.
struct Worker {
    name: String,
    place: Fixture,
    reference: Reference,
    random: StdRng,
    /// The trees since what was synced last, the oldest first.
    trees: Vec<String>,
    log: Vec<String>,
}

impl Worker {
    fn new(place: &Fixture, directory: &Path, number: usize, seed: u64) -> Self {
        let name = format!("thread{number}");
        let reference = Reference::new(&directory.join(&name));
        Worker {
            place: place.at(&name),
            trees: vec![reference.tree()],
            reference,
            random: StdRng::seed_from_u64(seed << 8 | number as u64),
            name,
            log: Vec::new(),
        }
    }

    fn work(&mut self) {
        for _ in 0..STEPS {
            let step = step(&mut self.random, &self.place);
            let expected = comparable(self.reference.apply(&step));
            self.log.push(format!("{step:?}: {expected:?}"));
            let got = comparable(self.place.apply(&step));
            assert_eq!(got, expected, "{}", self.context());
            self.trees.push(self.reference.tree());
            if self.random.random_ratio(1, 30) {
                self.place.sync();
                self.trees.drain(..self.trees.len() - 1);
            }
        }
    }

    fn context(&self) -> String {
        format!("{}\n{}", self.name, self.log.join("\n"))
    }

    /// Fails unless a copy has a tree that there was.
    fn check_copy(&self, copy: &Fixture) {
        let copy = copy.at(&self.name);
        let found = copy.tree();
        let is_one = self.trees.iter().any(|tree| copy.resembles(tree, &found));
        assert!(is_one, "a tree that never was:\n{found}\n{}", self.context());
    }
}

/// Does what an administrator does until all workers are done.
fn administer(place: &Fixture, left: &AtomicUsize, mut random: StdRng) {
    while left.load(Ordering::Acquire) > 0 {
        match random.random_range(0..6) {
            0 => place.check(),
            1 => place.change_indexes(&mut random),
            2 => place.change_quotas(&mut random),
            3 => place.search_all(),
            _ => place.build_some(random.random_range(0..4)),
        }
    }
}

fn run(seed: u64) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let mut random = StdRng::seed_from_u64(seed);
    let place = new_place(directory.path().join("0"), seed, 0);
    let workers = 0..THREADS;
    let mut workers =
        Vec::from_iter(workers.map(|number| Worker::new(&place, directory.path(), number, seed)));
    place.sync();
    for round in 0..ROUNDS {
        let left = AtomicUsize::new(THREADS);
        std::thread::scope(|scope| {
            for worker in &mut workers {
                let left = &left;
                scope.spawn(move || {
                    let _done = Done(left);
                    worker.work();
                });
            }
            let administrator = StdRng::seed_from_u64(random.random());
            scope.spawn(|| administer(&place, &left, administrator));
            scope.spawn(|| {
                while left.load(Ordering::Acquire) > 0 {
                    place.sync_log();
                    std::thread::yield_now();
                }
            });
        });
        // The log was written last while they worked.
        let copy = crash(&place, &directory.path().join(format!("{}", round + 1)));
        copy.check();
        workers.iter().for_each(|worker| worker.check_copy(&copy));
        for worker in &workers {
            assert_eq!(worker.place.tree(), worker.reference.tree(), "{}", worker.context());
        }
        place.check();
        place.check_search();
    }
}

/// Counts a worker that has ended, however.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[test]
fn threads_do_not_disturb_each_other() {
    let seeds = std::env::var("CANOPY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(10) {
        println!("seed {seed}");
        run(seed);
    }
}

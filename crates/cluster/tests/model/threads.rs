//! Several threads, each with a client and a directory of its own, and a reference of its own.
//! Directories split meanwhile, and objects of chunks are collected.

use crate::place::Place;
use crate::reference::Reference;
use crate::step::{comparable, step};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

const THREADS: usize = 4;
const STEPS: usize = 80;

fn work(place: &Place, directory: &Path, number: usize, seed: u64) {
    let name = format!("thread{number}");
    let reference = Reference::new(&directory.join(&name));
    let client = place.client_at(&name);
    let mut random = StdRng::seed_from_u64(seed << 8 | number as u64);
    let mut log = Vec::new();
    for _ in 0..STEPS {
        let step = step(&mut random, &client);
        let expected = comparable(reference.apply(&step));
        log.push(format!("{step:?}: {expected:?}"));
        let got = comparable(client.apply(&step));
        assert_eq!(got, expected, "seed {seed}, {name}\n{}", log.join("\n"));
        if random.random_ratio(1, 20) {
            assert_eq!(client.tree(), reference.tree(), "seed {seed}, {name}\n{}", log.join("\n"));
        }
    }
    assert_eq!(client.tree(), reference.tree(), "seed {seed}, {name}\n{}", log.join("\n"));
}

#[test]
fn threads_find_what_they_were_answered() {
    for servers in [1, 2, 3, 7] {
        let seed = u64::from(servers);
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let place = Place::new(servers);
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (place, ended, directory) = (&place, &ended, directory.path());
                scope.spawn(move || {
                    // Also after a panic: the others end then.
                    let _ended = Ended(ended);
                    work(place, directory, number, seed);
                });
            }
            while ended.load(Ordering::Relaxed) < THREADS {
                place.collect();
                std::thread::yield_now();
            }
        });
        place.settle();
    }
}

struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

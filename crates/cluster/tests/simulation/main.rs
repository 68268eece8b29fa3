//! Servers and clients in a deterministic simulation: processes share a storage and a network. Messages
//! get lost, come twice, late and in any order. Processes and clients pause, processes die, are cut
//! off and replaced at any message. Storage fails; clocks differ; servers are added. Meanwhile clients
//! create, rename, link, unlink, list, hold files and set attributes, and directories split and move.
//!
//! `CANOPY_SEEDS=100000` runs seeds from 0 on, from `CANOPY_FIRST_SEED` on if that is set.
//! `CANOPY_SEED=46` runs one and prints what happens.
//!
//! `scheduler` runs one thread at a time, `disk` is the storage, `world` has processes and network,
//! `chaos` makes faults, `user` is a client, `model` knows what it may see, `settle` and `check` are
//! the end. Tests of processes in network namespaces have the same clients.
//!
//! Membership is simulated by its rules. Storage is one of whole objects, as clusters need: a segment
//! of a log is there or not, or comes later.

mod chaos;
mod check;
mod disk;
#[path = "../../../cli/tests/common/length.rs"]
mod length;
mod model;
mod scheduler;
mod settle;
mod user;
mod world;

use canopy_cluster::{Client, SessionId};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::Caller;
use canopy_namespace::{FileId, ROOT, Reply};
use chaos::{Chaos, Level};
use length::rounds;
use model::{Model, ModelDirectory};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use scheduler::{HostId, Scheduler};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use user::{Machine, Outcome, User};
use world::{Paced, World};

/// Seeds of all tests together, in a short run and in a long one.
const SEEDS: [u64; 2] = [120, 2000];

/// Tests that share the seeds.
const TESTS: u64 = 2;

/// Failures after which a test ends.
const FAILURES_MAX: usize = 10;

/// Clients of a run, and the steps of each.
const CLIENTS: u64 = 3;
const STEPS: u64 = 30;

/// Simulated time for all steps.
const PATIENCE: Duration = Duration::from_secs(3 * 3600);

/// Numbers of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    switches: u64,
    messages: u64,
    kills: u64,
}

fn simulate(seed: u64, traces: bool) -> Result<Counts, String> {
    let scheduler = Scheduler::new(seed, traces);
    let servers = [1, 2, 3, 5][(seed / 2 % 4) as usize];
    let world = World::new(&scheduler, servers, !seed.is_multiple_of(3));
    let level = Level::of(seed);
    let kills = Arc::new(AtomicUsize::new(0));
    let (counted, run) = (kills.clone(), Run { world: world.clone(), seed, model: Arc::default() });
    scheduler.spawn(None, move || direct(&run, level, &counted));
    let switches = scheduler.run()?;
    let kills = kills.load(Ordering::Relaxed) as u64;
    Ok(Counts { switches, messages: world.message_count(), kills })
}

/// The machine of a client in the simulation.
struct Simulated(Arc<Scheduler>);

impl Machine for Simulated {
    fn rest(&self, time: Duration) {
        self.0.sleep(time);
    }

    fn trace(&self, text: &dyn Fn() -> String) {
        self.0.trace(text);
    }

    fn keeps_holds(&self) -> bool {
        true
    }
}

/// A run: the world, and what clients were answered.
struct Run {
    world: Arc<World>,
    seed: u64,
    model: Arc<Mutex<Model>>,
}

impl Run {
    /// Returns a client on a machine of its own.
    fn user(&self, number: u64, shared: &[FileId]) -> (HostId, Arc<Client>, User) {
        let host = self.world.add_host();
        let scheduler = self.world.scheduler.clone();
        let (line, pace) = (self.world.line(host), Paced { scheduler: scheduler.clone() });
        let client = Client::new(line.clone(), SessionId(number));
        let client = Arc::new(client.with_pace(Arc::new(pace)));
        let random = StdRng::seed_from_u64(self.seed << 10 | number);
        let (machine, model) = (Arc::new(Simulated(scheduler)), self.model.clone());
        let user = User::new(machine, line, client.clone(), model, (number, random), shared);
        (host, client, user)
    }

    /// Makes the directories that all clients know.
    fn make_shared(&self, by: &User) -> Vec<FileId> {
        let names = (0..3).map(|number| format!("shared{number}"));
        let made = names.map(|name| {
            let outcome = by.create(&(ROOT, name), file_type::DIRECTORY | 0o755);
            let Outcome::Done(Reply::Inode(inode)) = outcome else { panic!("{}", outcome.said()) };
            self.model.lock().directories.insert(inode.id, ModelDirectory::new());
            inode.id
        });
        made.collect()
    }

    /// Starts a client, which counts itself out at its end.
    fn start_client(&self, number: u64, shared: &[FileId], left: &Arc<AtomicUsize>) -> HostId {
        let (host, client, mut user) = self.user(number, shared);
        let (left, world) = (left.clone(), self.world.clone());
        let scheduler = &self.world.scheduler;
        scheduler.spawn(Some(host), move || {
            (0..STEPS).for_each(|_| user.step());
            left.fetch_sub(1, Ordering::Relaxed);
        });
        scheduler.spawn(Some(host), move || {
            while !world.has_ended() {
                world.scheduler.sleep(Duration::from_secs(1));
                client.renew(Caller::Trusted);
            }
        });
        host
    }
}

/// Has everything happen, and checks it.
fn direct(run: &Run, level: Level, kills: &AtomicUsize) {
    let world = &run.world;
    world.create();
    for _ in 0..3 {
        world.start_process();
    }
    let (_, _, checker) = run.user(1000, &[]);
    let shared = run.make_shared(&checker);
    let left = Arc::new(AtomicUsize::new(CLIENTS as usize));
    let start = |number| run.start_client(number, &shared, &left);
    let clients = Vec::from_iter((1..=CLIENTS).map(start));
    let chaos = Chaos::new(world, level, clients);
    let end_us = world.scheduler.now_us() + PATIENCE.as_micros() as u64;
    while left.load(Ordering::Relaxed) > 0 {
        assert!(world.scheduler.now_us() < end_us, "clients are stuck");
        chaos.act();
    }
    kills.store(chaos.kills(), Ordering::Relaxed);
    settle::heal(world);
    if world.living().is_empty() {
        world.start_process();
    }
    settle::rest(world);
    let tree = check::check(&checker, &run.model);
    world.living().into_iter().for_each(|host| world.kill(host));
    world.start_process();
    settle::rest(world);
    let again = check::check(&checker, &run.model);
    for (directory, names) in &tree {
        for (name, inode) in names {
            let after = again.get(directory).and_then(|names| names.get(name));
            assert_eq!(after, Some(inode), "{name} in {directory:?} after the death of all");
        }
    }
    assert_eq!(tree.len(), again.len());
    world.is_over.store(true, Ordering::Relaxed);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn simulate_all(test: u64) {
    if let Some(seed) = number("CANOPY_SEED") {
        if seed % TESTS == test {
            println!("{:?}", simulate(seed, true).unwrap());
        }
        return;
    }
    let first = number("CANOPY_FIRST_SEED").unwrap_or(0);
    let seeds = number("CANOPY_SEEDS").unwrap_or(rounds(SEEDS[0], SEEDS[1]));
    let mut all = Counts::default();
    let (mut count, mut failures) = (0, Vec::new());
    for seed in (first..first + seeds).filter(|seed| seed % TESTS == test) {
        count += 1;
        match simulate(seed, false) {
            Ok(Counts { switches, messages, kills }) => {
                all.switches += switches;
                all.messages += messages;
                all.kills += kills;
            }
            Err(failure) => failures.push(format!("CANOPY_SEED={seed}: {failure}")),
        }
        if failures.len() >= FAILURES_MAX {
            break;
        }
    }
    println!("{count} seeds: {all:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn clients_find_what_they_were_answered_1() {
    simulate_all(0);
}

#[test]
fn clients_find_what_they_were_answered_2() {
    simulate_all(1);
}

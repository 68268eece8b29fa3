//! The world that the engine runs in: actors that are processes of their own, of which one runs at
//! a time, up to its next call of storage; a storage that fails in every way that `docs/engine.md`
//! permits; clocks that jump. A seed decides all of it.

use crate::disk::{Disk, DiskKind};
use crate::process::Process;
use bytes::Bytes;
use canopy_store::storage::Storage;
use canopy_store::{Clock, Environment, Random};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often what goes wrong, of 10,000 calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The process dies.
    pub crash: u32,
    /// The call fails and did nothing.
    pub failed: u32,
    /// The call fails and was done.
    pub done: u32,
    /// The call fails and is done later.
    pub delayed: u32,
    /// The machine loses its power: all processes die, and what was not synced is torn.
    pub power: u32,
    /// A clock jumps.
    pub jump: u32,
}

/// A call that is done later.
pub enum Delayed {
    Create(String, Bytes),
    /// Bytes at a place of a file, which the machine of the writer stores late.
    Put(String, u64, usize, Bytes),
    Remove(String),
}

/// What all processes share.
pub struct World {
    pub disk: Disk,
    pub shared: Mutex<Shared>,
}

pub struct Shared {
    pub random: StdRng,
    pub faults: Faults,
    pub delayed: Vec<Delayed>,
    pub now_ms: u64,
    pub calls: u64,
    /// How often the power was cut.
    pub boots: u64,
    processes: u64,
}

/// A message of an actor to the scheduler.
pub enum ActorReport {
    /// It is about to call storage.
    Calls,
    /// It ended; with what it panicked, if it did.
    Ended(std::thread::Result<()>),
}

impl World {
    /// Makes a world with storage of this kind.
    pub fn new(seed: u64, faults: Faults, kind: DiskKind) -> Arc<Self> {
        let shared = Shared {
            random: StdRng::seed_from_u64(seed),
            faults,
            delayed: Vec::new(),
            now_ms: 1_000_000_000_000,
            calls: 0,
            boots: 0,
            processes: 0,
        };
        Arc::new(World { disk: Disk::new(kind), shared: Mutex::new(shared) })
    }

    pub fn calls(&self) -> u64 {
        self.shared.lock().unwrap().calls
    }

    /// Ends all faults, the last of which is a power cut; does what was delayed, and lets every
    /// deadline pass.
    pub fn calm(&self) {
        let mut shared = self.shared.lock().unwrap();
        shared.faults = Faults::default();
        shared.now_ms += 1_000_000_000;
        self.disk.cut_power(&mut shared.random);
        for delayed in std::mem::take(&mut shared.delayed) {
            self.perform(delayed);
        }
    }

    pub fn pass_time(&self, ms: u64) {
        self.shared.lock().unwrap().now_ms += ms;
    }

    fn perform(&self, delayed: Delayed) {
        match delayed {
            Delayed::Create(name, bytes) => drop(self.disk.create(&name, bytes)),
            Delayed::Put(name, file, at, bytes) => self.disk.put(&name, file, at, &bytes),
            Delayed::Remove(name) => drop(self.disk.remove(&name)),
        }
    }

    /// Does some of what was delayed.
    pub fn perform_some(&self, shared: &mut Shared) {
        if !shared.delayed.is_empty() && shared.random.random_ratio(1, 8) {
            let at = shared.random.random_range(0..shared.delayed.len());
            let delayed = shared.delayed.swap_remove(at);
            self.perform(delayed);
        }
    }

    /// Returns an environment to which nothing happens, and that lets nobody else run.
    pub fn quiet(self: &Arc<Self>) -> Environment {
        let quiet = || Arc::new(Quiet(self.clone()));
        Environment { storage: Arc::new(self.disk.clone()), clock: quiet(), random: quiet() }
    }
}

/// Runs actors until all have ended, so many at once. `next` returns the next one to start, if
/// there is any.
pub fn run<'a>(
    world: &Arc<World>,
    mut next: impl FnMut() -> Option<Box<dyn FnOnce(Arc<Process>) + Send + 'a>>,
    at_once: usize,
) {
    std::thread::scope(|scope| {
        let mut running: Vec<(Sender<()>, Receiver<ActorReport>)> = Vec::new();
        loop {
            while running.len() < at_once {
                let Some(actor) = next() else { break };
                let (said, hears) = channel();
                let (go, waits) = channel();
                let process = {
                    let mut shared = world.shared.lock().unwrap();
                    shared.processes += 1;
                    let random = StdRng::seed_from_u64(shared.random.random());
                    let disk = world.disk.for_process(shared.processes);
                    Process::new(world.clone(), disk, random, shared.boots, said.clone(), waits)
                };
                scope.spawn(move || {
                    if !process.waits_for_go() {
                        return;
                    }
                    let ended = catch_unwind(AssertUnwindSafe(|| actor(process)));
                    // Nobody listens if another actor's panic ended the simulation.
                    let _ = said.send(ActorReport::Ended(ended));
                });
                running.push((go, hears));
            }
            if running.is_empty() {
                return;
            }
            let at = world.shared.lock().unwrap().random.random_range(0..running.len());
            let (go, hears) = &running[at];
            go.send(()).unwrap();
            match hears.recv().unwrap() {
                ActorReport::Calls => {}
                ActorReport::Ended(ended) => {
                    running.swap_remove(at);
                    if let Err(panic) = ended {
                        // The others wait for ever: their storage is gone with this.
                        drop(running);
                        resume_unwind(panic);
                    }
                }
            }
        }
    });
}

struct Quiet(Arc<World>);

impl Clock for Quiet {
    fn now_ms(&self) -> u64 {
        self.0.shared.lock().unwrap().now_ms
    }

    fn sleep(&self, duration: Duration) {
        self.0.pass_time(duration.as_millis() as u64);
    }
}

impl Random for Quiet {
    fn next_u64(&self) -> u64 {
        self.0.shared.lock().unwrap().random.random()
    }
}

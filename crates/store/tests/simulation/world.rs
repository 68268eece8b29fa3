//! The world that the engine runs in: actors that are processes of their own, of which one runs at
//! a time, up to its next call of storage; a storage that fails in every way that `docs/engine.md`
//! permits; clocks that jump. A seed decides all of it.

use bytes::Bytes;
use canopy_store::storage::{Append, Created, Listed, MemoryStorage, Storage};
use canopy_store::{Clock, Environment, Error, Random, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::io;
use std::ops::Range;
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
    /// A clock jumps.
    pub jump: u32,
}

/// A call that is done later.
enum Delayed {
    Create(String, Bytes),
    Remove(String),
}

/// What all processes share.
pub struct World {
    pub storage: MemoryStorage,
    shared: Mutex<Shared>,
}

struct Shared {
    random: StdRng,
    faults: Faults,
    delayed: Vec<Delayed>,
    now_ms: u64,
    calls: u64,
}

/// What an actor tells the scheduler.
enum Said {
    /// It is about to call storage.
    Calls,
    /// It ended; with what it panicked, if it did.
    Ended(std::thread::Result<()>),
}

/// One process as the engine sees it: its storage, clock and randomness.
pub struct Process {
    world: Arc<World>,
    said: Sender<Said>,
    go: Mutex<Receiver<()>>,
    state: Mutex<ProcessState>,
}

struct ProcessState {
    is_dead: bool,
    random: StdRng,
    clock_off_ms: i64,
}

impl World {
    pub fn new(seed: u64, faults: Faults) -> Arc<Self> {
        let random = StdRng::seed_from_u64(seed);
        let shared =
            Shared { random, faults, delayed: Vec::new(), now_ms: 1_000_000_000_000, calls: 0 };
        Arc::new(World { storage: MemoryStorage::default(), shared: Mutex::new(shared) })
    }

    pub fn calls(&self) -> u64 {
        self.shared.lock().unwrap().calls
    }

    /// Ends all faults, does what was delayed, and lets every deadline pass.
    pub fn calm(&self) {
        let mut shared = self.shared.lock().unwrap();
        shared.faults = Faults::default();
        shared.now_ms += 1_000_000_000;
        for delayed in std::mem::take(&mut shared.delayed) {
            self.perform(delayed);
        }
    }

    pub fn pass_time(&self, ms: u64) {
        self.shared.lock().unwrap().now_ms += ms;
    }

    fn perform(&self, delayed: Delayed) {
        match delayed {
            Delayed::Create(name, bytes) => drop(self.storage.create(&name, bytes)),
            Delayed::Remove(name) => drop(self.storage.remove(&name)),
        }
    }

    /// Does some of what was delayed.
    fn perform_some(&self, shared: &mut Shared) {
        if !shared.delayed.is_empty() && shared.random.random_ratio(1, 8) {
            let at = shared.random.random_range(0..shared.delayed.len());
            let delayed = shared.delayed.swap_remove(at);
            self.perform(delayed);
        }
    }
}

/// Runs actors until all have ended. `actors` gets a process for each; it may be asked for more
/// while others run: `next` returns the next one to start, if any.
pub fn run<'a>(
    world: &Arc<World>,
    mut next: impl FnMut() -> Option<Box<dyn FnOnce(Arc<Process>) + Send + 'a>>,
    at_once: usize,
) {
    std::thread::scope(|scope| {
        let mut running: Vec<(Sender<()>, Receiver<Said>)> = Vec::new();
        loop {
            while running.len() < at_once {
                let Some(actor) = next() else { break };
                let (said, hears) = channel();
                let (go, waits) = channel();
                let seed = world.shared.lock().unwrap().random.random();
                let state = ProcessState {
                    is_dead: false,
                    random: StdRng::seed_from_u64(seed),
                    clock_off_ms: 0,
                };
                let process = Arc::new(Process {
                    world: world.clone(),
                    said: said.clone(),
                    go: Mutex::new(waits),
                    state: Mutex::new(state),
                });
                scope.spawn(move || {
                    if process.go.lock().unwrap().recv().is_err() {
                        return;
                    }
                    let ended = catch_unwind(AssertUnwindSafe(|| actor(process)));
                    // Nobody listens if another actor's panic ended the simulation.
                    let _ = said.send(Said::Ended(ended));
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
                Said::Calls => {}
                Said::Ended(ended) => {
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

impl Process {
    pub fn environment(self: &Arc<Self>) -> Environment {
        Environment { storage: self.clone(), clock: self.clone(), random: self.clone() }
    }

    pub fn is_dead(&self) -> bool {
        self.state.lock().unwrap().is_dead
    }

    /// A random number of this process' own decisions.
    pub fn below(&self, end: u64) -> u64 {
        self.state.lock().unwrap().random.random_range(0..end)
    }

    fn dead(name: &str) -> Error {
        Error::storage(name, io::Error::other("the process has died"))
    }

    /// Lets others run, and decides what becomes of the call.
    fn call<T>(
        &self,
        name: &str,
        perform: impl FnOnce(&MemoryStorage) -> Result<T>,
        delayed: Option<Delayed>,
    ) -> Result<T> {
        if self.is_dead() {
            return Err(Self::dead(name));
        }
        let heard = self.said.send(Said::Calls).is_ok();
        if !heard || self.go.lock().unwrap().recv().is_err() {
            // The simulation has failed elsewhere.
            self.state.lock().unwrap().is_dead = true;
            return Err(Self::dead(name));
        }
        let mut shared = self.world.shared.lock().unwrap();
        shared.calls += 1;
        shared.now_ms += 1;
        self.world.perform_some(&mut shared);
        let faults = shared.faults;
        if shared.random.random_ratio(faults.jump.max(1), 10_000) && faults.jump > 0 {
            let jump = shared.random.random_range(-2_000_000..2_000_000);
            self.state.lock().unwrap().clock_off_ms = jump;
        }
        let chance = shared.random.random_range(0..10_000);
        let kinds = [faults.crash, faults.failed, faults.done, faults.delayed];
        let mut up_to = 0;
        let kind = kinds.iter().position(|of| {
            up_to += of;
            chance < up_to
        });
        let is_done = shared.random.random_bool(0.5);
        let error = || Error::storage(name, io::Error::other("storage failed"));
        match (kind, delayed) {
            (None, _) => perform(&self.world.storage),
            (Some(0), delayed) => {
                // A process that dies in the middle of a call does not know what became of it.
                self.state.lock().unwrap().is_dead = true;
                match delayed {
                    Some(delayed) if is_done => shared.delayed.push(delayed),
                    _ => drop(perform(&self.world.storage)),
                }
                Err(Self::dead(name))
            }
            (Some(3), Some(delayed)) => {
                shared.delayed.push(delayed);
                Err(error())
            }
            (Some(2), _) => {
                drop(perform(&self.world.storage));
                Err(error())
            }
            (Some(_), _) => Err(error()),
        }
    }
}

impl Storage for Process {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.call(name, |storage| storage.read_range(name, range), None)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.call(name, |storage| storage.read(name), None)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        let delayed = Delayed::Create(name.into(), bytes.clone());
        self.call(name, |storage| storage.create(name, bytes), Some(delayed))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.call(prefix, |storage| storage.list(prefix, after), None)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let delayed = Delayed::Remove(name.into());
        self.call(name, |storage| storage.remove(name), Some(delayed))
    }

    fn append_to(&self, _name: &str) -> Result<Option<Box<dyn Append>>> {
        Ok(None)
    }

    fn lock(&self, _name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}

impl Clock for Process {
    fn now_ms(&self) -> u64 {
        let off_ms = self.state.lock().unwrap().clock_off_ms;
        self.world.shared.lock().unwrap().now_ms.saturating_add_signed(off_ms)
    }

    fn sleep(&self, duration: Duration) {
        self.world.pass_time(duration.as_millis() as u64);
    }
}

impl Random for Process {
    fn next_u64(&self) -> u64 {
        self.state.lock().unwrap().random.random()
    }
}

/// A process to which nothing happens, and that lets nobody else run.
pub struct Quiet(Arc<World>);

impl Quiet {
    pub fn environment(world: &Arc<World>) -> Environment {
        let quiet = || Arc::new(Quiet(world.clone()));
        Environment { storage: quiet(), clock: quiet(), random: quiet() }
    }
}

impl Storage for Quiet {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.0.storage.read_range(name, range)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.0.storage.read(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.0.storage.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.0.storage.list(prefix, after)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.storage.remove(name)
    }

    fn append_to(&self, _name: &str) -> Result<Option<Box<dyn Append>>> {
        Ok(None)
    }

    fn lock(&self, _name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}

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

//! Threads of which one runs at a time, up to its next message, wait or pause. A seed decides the
//! order. Time passes only here.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// A machine: a process of the cluster, or a client.
pub type HostId = usize;

/// Simulated time after which a run counts as stuck.
const END_US: u64 = 4 * 3600 * 1_000_000;

/// Switches after which a run counts as stuck.
const SWITCHES_MAX: u64 = 3_000_000;

/// Payload of the panic that ends a thread of a host that was killed.
struct Killed;

/// Payload of the panic that ends all threads once one has failed.
struct Aborted;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that wait for a job, of all simulations.
static IDLE: Mutex<Vec<Sender<Job>>> = Mutex::new(Vec::new());

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

pub struct Scheduler {
    shared: Mutex<Shared>,
    /// The thread that runs; 0 at the end.
    current: AtomicU64,
    main: Thread,
}

struct Shared {
    random: StdRng,
    now_us: u64,
    actors: BTreeMap<u64, Actor>,
    next: u64,
    paused: BTreeSet<HostId>,
    dead: BTreeSet<HostId>,
    failure: Option<String>,
    switches: u64,
    /// Whether the order is logged.
    traces: bool,
}

struct Actor {
    thread: Arc<OnceLock<Thread>>,
    /// The moment from which on it may run.
    wake_us: u64,
    /// Hosts whose code it executes: a message that waits for nobody is executed by the thread that
    /// sends it.
    hosts: Vec<HostId>,
}

impl Scheduler {
    pub fn new(seed: u64, traces: bool) -> Arc<Self> {
        let shared = Shared {
            random: StdRng::seed_from_u64(seed),
            now_us: 1_000_000,
            actors: BTreeMap::new(),
            next: 1,
            paused: BTreeSet::new(),
            dead: BTreeSet::new(),
            failure: None,
            switches: 0,
            traces,
        };
        let (shared, current) = (Mutex::new(shared), AtomicU64::new(0));
        Arc::new(Scheduler { shared, current, main: thread::current() })
    }

    /// Runs all threads until none is left. Returns the number of switches, or the first failure.
    pub fn run(&self) -> Result<u64, String> {
        let first = self.shared.lock().pick();
        self.hand_to(first);
        while self.current.load(Ordering::Acquire) != 0 {
            thread::park();
        }
        let shared = self.shared.lock();
        match &shared.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(shared.switches),
        }
    }

    /// Starts a thread of a host, or of none.
    pub fn spawn(self: &Arc<Self>, host: Option<HostId>, run: impl FnOnce() + Send + 'static) {
        let thread = Arc::new(OnceLock::new());
        let id = {
            let mut shared = self.shared.lock();
            let (id, wake_us) = (shared.next, shared.now_us);
            shared.next += 1;
            let hosts = host.into_iter().collect();
            shared.actors.insert(id, Actor { thread: thread.clone(), wake_us, hosts });
            id
        };
        let scheduler = self.clone();
        start(Box::new(move || {
            let _ = thread.set(thread::current());
            fence(Ordering::SeqCst);
            CURRENT.set(id);
            scheduler.wait_for_turn(id);
            let ended = catch_unwind(AssertUnwindSafe(|| {
                scheduler.check();
                run();
            }));
            scheduler.end(id, ended);
        }));
    }

    fn end(&self, id: u64, ended: thread::Result<()>) {
        let next = {
            let mut shared = self.shared.lock();
            if let Err(panic) = ended
                && !panic.is::<Killed>()
                && !panic.is::<Aborted>()
            {
                let said = said(&*panic);
                shared.failure.get_or_insert(said);
            }
            shared.actors.remove(&id);
            shared.pick()
        };
        self.hand_to(next);
    }

    fn hand_to(&self, next: Option<(u64, Arc<OnceLock<Thread>>)>) {
        match next {
            Some((id, thread)) => {
                self.current.store(id, Ordering::Release);
                // One that has not begun looks before it waits. The fence here and that of the
                // thread have one of the two see what the other has stored.
                fence(Ordering::SeqCst);
                if let Some(thread) = thread.get() {
                    thread.unpark();
                }
            }
            None => {
                self.current.store(0, Ordering::Release);
                self.main.unpark();
            }
        }
    }

    fn wait_for_turn(&self, id: u64) {
        while self.current.load(Ordering::Acquire) != id {
            thread::park();
        }
    }

    /// Ends the thread if its host is dead, or another thread has failed.
    pub fn check(&self) {
        let shared = self.shared.lock();
        if shared.failure.is_some() {
            drop(shared);
            resume_unwind(Box::new(Aborted));
        }
        let actor = &shared.actors[&CURRENT.get()];
        if actor.hosts.last().is_some_and(|host| shared.dead.contains(host)) {
            drop(shared);
            resume_unwind(Box::new(Killed));
        }
    }

    /// Lets others run, and goes on at a moment or later.
    fn wait_until(&self, wake: impl FnOnce(&mut Shared) -> u64) {
        // A thread that unwinds does not wait.
        if thread::panicking() {
            return;
        }
        let id = CURRENT.get();
        let next = {
            let mut shared = self.shared.lock();
            let wake_us = wake(&mut shared);
            shared.actors.get_mut(&id).expect("this thread").wake_us = wake_us;
            shared.pick()
        };
        if next.as_ref().is_none_or(|(next, _)| *next != id) {
            self.hand_to(next);
            self.wait_for_turn(id);
        }
        self.check();
    }

    /// Lets others run.
    pub fn yield_now(&self) {
        self.wait_until(|shared| shared.now_us);
    }

    /// Waits for a time.
    pub fn sleep(&self, time: Duration) {
        let us = time.as_micros() as u64;
        self.wait_until(|shared| shared.now_us + us);
    }

    /// Waits for a random time.
    pub fn sleep_between(&self, least: Duration, most: Duration) {
        let (least, most) = (least.as_micros() as u64, most.as_micros() as u64);
        self.wait_until(|shared| shared.now_us + shared.random.random_range(least..=most));
    }

    /// Waits until something holds, or a time is over. Returns whether it holds. Whoever has it hold
    /// calls [`wake`](Self::wake).
    pub fn wait_for(&self, time: Duration, holds: impl Fn() -> bool) -> bool {
        let end_us = self.now_us() + time.as_micros() as u64;
        while !holds() {
            if self.now_us() >= end_us {
                return false;
            }
            self.wait_until(|_| end_us);
        }
        true
    }

    /// Returns this thread.
    pub fn me(&self) -> u64 {
        CURRENT.get()
    }

    /// Has a thread run that waits, if it has not ended.
    pub fn wake(&self, actor: u64) {
        let mut shared = self.shared.lock();
        let now_us = shared.now_us;
        if let Some(actor) = shared.actors.get_mut(&actor) {
            actor.wake_us = now_us;
        }
    }

    /// Has a thread that waits run after a random time at most this long, if it would wait longer.
    pub fn wake_within(&self, actor: u64, most: Duration) {
        let mut shared = self.shared.lock();
        let us = shared.random.random_range(0..=most.as_micros() as u64);
        let wake_us = shared.now_us + us;
        if let Some(actor) = shared.actors.get_mut(&actor) {
            actor.wake_us = actor.wake_us.min(wake_us);
        }
    }

    /// Executes something as another host. None if that host dies meanwhile.
    pub fn as_host<T>(&self, host: HostId, run: impl FnOnce() -> T) -> Option<T> {
        let me = CURRENT.get();
        let change = |change: &dyn Fn(&mut Vec<HostId>)| {
            change(&mut self.shared.lock().actors.get_mut(&me).expect("this thread").hosts);
        };
        change(&|hosts| hosts.push(host));
        let done = catch_unwind(AssertUnwindSafe(run));
        change(&|hosts| _ = hosts.pop());
        match done {
            Ok(done) => Some(done),
            Err(panic) if panic.is::<Killed>() => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    pub fn now_us(&self) -> u64 {
        self.shared.lock().now_us
    }

    /// Returns a random number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.shared.lock().random.random_range(0..end)
    }

    /// Returns true this often in 10,000 times.
    pub fn chance(&self, of_10_000: u64) -> bool {
        of_10_000 > 0 && self.below(10_000) < of_10_000
    }

    pub fn bits(&self) -> u64 {
        self.shared.lock().random.random()
    }

    pub fn pause(&self, host: HostId, is_paused: bool) {
        let mut shared = self.shared.lock();
        match is_paused {
            true => shared.paused.insert(host),
            false => shared.paused.remove(&host),
        };
    }

    pub fn is_paused(&self, host: HostId) -> bool {
        self.shared.lock().paused.contains(&host)
    }

    /// Kills a host: its threads end at once.
    pub fn kill(&self, host: HostId) {
        let mut shared = self.shared.lock();
        shared.paused.remove(&host);
        shared.dead.insert(host);
        let now_us = shared.now_us;
        let of_host = |actor: &&mut Actor| actor.hosts.last() == Some(&host);
        shared.actors.values_mut().filter(of_host).for_each(|actor| actor.wake_us = now_us);
    }

    pub fn is_dead(&self, host: HostId) -> bool {
        self.shared.lock().dead.contains(&host)
    }

    /// Prints a line if somebody wants to see what happens.
    pub fn trace(&self, text: impl FnOnce() -> String) {
        let shared = self.shared.lock();
        if shared.traces {
            println!("{:>12} {:>4}: {}", shared.now_us, CURRENT.get(), text());
        }
    }
}

impl Shared {
    /// Chooses the thread that runs next; none if all have ended.
    fn pick(&mut self) -> Option<(u64, Arc<OnceLock<Thread>>)> {
        self.switches += 1;
        self.now_us += self.random.random_range(1..40);
        let is_over = self.switches > SWITCHES_MAX || self.now_us > END_US;
        if is_over && self.failure.is_none() {
            self.failure = Some(format!("the run does not end: {} us", self.now_us));
        }
        if self.failure.is_some() {
            // Each ends at its next step.
            let (id, actor) = self.actors.iter().next()?;
            return Some((*id, actor.thread.clone()));
        }
        let is_paused =
            |actor: &Actor| actor.hosts.last().is_some_and(|host| self.paused.contains(host));
        let awake = self.actors.iter().filter(|(_, actor)| !is_paused(actor));
        let earliest = awake.clone().map(|(_, actor)| actor.wake_us).min();
        let Some(earliest) = earliest else {
            if !self.actors.is_empty() {
                self.failure = Some("all hosts are paused".into());
                return self.pick();
            }
            return None;
        };
        let now_us = self.now_us.max(earliest);
        let ready = Vec::from_iter(awake.filter(|(_, actor)| actor.wake_us <= now_us));
        let (id, actor) = ready[self.random.random_range(0..ready.len())];
        let chosen = (*id, actor.thread.clone());
        self.now_us = now_us;
        Some(chosen)
    }
}

/// Runs a job on a thread that is idle, or on a new one.
fn start(job: Job) {
    let job = match IDLE.lock().pop() {
        Some(thread) => match thread.send(job) {
            Ok(()) => return,
            Err(unsent) => unsent.0,
        },
        None => job,
    };
    let (sender, receiver) = channel::<Job>();
    thread::spawn(move || {
        job();
        loop {
            IDLE.lock().push(sender.clone());
            match receiver.recv() {
                Ok(job) => job(),
                Err(_) => return,
            }
        }
    });
}

fn said(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(said), _) => said.clone(),
        (_, Some(said)) => (*said).to_owned(),
        _ => "a panic".into(),
    }
}

//! Threads that execute requests. Peers are served in turns, and each has a share of the threads at
//! most. So one with many or slow requests costs others little.

use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::thread;

/// Work to be done for a client.
type Job = Box<dyn FnOnce() + Send>;

/// Threads, and the jobs that wait for one. More threads are started, up to a limit, while all are
/// busy: a job may wait for other servers.
pub(crate) struct Workers<K> {
    shared: Arc<Shared<K>>,
    name: &'static str,
    threads_max: usize,
}

struct Shared<K> {
    queue: Mutex<Queue<K>>,
    changed: Condvar,
}

struct Queue<K> {
    clients: HashMap<K, Client>,
    /// Clients with jobs that may run, and their shares of the threads, in the order of their turns.
    turns: VecDeque<(K, usize)>,
    /// Number of all jobs that wait.
    waiting: usize,
    threads: usize,
    idle: usize,
    is_ended: bool,
}

/// Jobs of one client.
#[derive(Default)]
struct Client {
    waiting: VecDeque<Job>,
    running: usize,
    has_turn: bool,
}

impl<K: Clone + Eq + Hash + Send + 'static> Workers<K> {
    pub(crate) fn new(name: &'static str, threads_max: usize) -> Self {
        let queue = Queue {
            clients: HashMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            threads: 0,
            idle: 0,
            is_ended: false,
        };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
        Workers { shared, name, threads_max }
    }

    /// Adds a job of a client that uses at most `share` threads at once. It is dropped if no thread can
    /// be started.
    pub(crate) fn add(&self, client: K, share: usize, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue.lock();
        let shared = self.shared.clone();
        queue.clients.entry(client.clone()).or_default().waiting.push_back(Box::new(job));
        queue.waiting += 1;
        queue.give_turn(client, share);
        self.shared.changed.notify_one();
        // A thread that was woken for another job counts as idle until it runs.
        if queue.idle >= queue.waiting || queue.threads >= self.threads_max {
            return;
        }
        let started = thread::Builder::new().name(self.name.into()).spawn(move || shared.run());
        queue.threads += usize::from(started.is_ok());
        if queue.threads == 0 {
            queue.clients.clear();
            queue.turns.clear();
            queue.waiting = 0;
        }
    }
}

impl<K: Clone + Eq + Hash> Shared<K> {
    fn run(&self) {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_ended {
                return;
            }
            let Some((client, share, job)) = queue.next() else {
                queue.idle += 1;
                self.changed.wait(&mut queue);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            job();
            queue = self.queue.lock();
            queue.ended(client, share);
        }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Gives a client a turn, if it has a job that may run.
    fn give_turn(&mut self, client: K, share: usize) {
        let Some(of) = self.clients.get_mut(&client) else { return };
        if !of.has_turn && !of.waiting.is_empty() && of.running < share {
            of.has_turn = true;
            self.turns.push_back((client, share));
        }
    }

    /// Takes the next job of the client whose turn it is.
    fn next(&mut self) -> Option<(K, usize, Job)> {
        let (client, share) = self.turns.pop_front()?;
        let of = self.clients.get_mut(&client)?;
        of.has_turn = false;
        let job = of.waiting.pop_front()?;
        of.running += 1;
        self.waiting -= 1;
        self.give_turn(client.clone(), share);
        Some((client, share, job))
    }

    /// Notes that a job of a client has ended.
    fn ended(&mut self, client: K, share: usize) {
        let Some(of) = self.clients.get_mut(&client) else { return };
        of.running = of.running.saturating_sub(1);
        match of.running == 0 && of.waiting.is_empty() {
            true => _ = self.clients.remove(&client),
            false => self.give_turn(client, share),
        }
    }
}

impl<K> Drop for Workers<K> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_ended = true;
        queue.clients.clear();
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(10);

    #[derive(Default)]
    struct Gate {
        is_open: Mutex<bool>,
        changed: Condvar,
    }

    impl Gate {
        fn pass(&self) {
            let mut is_open = self.is_open.lock();
            self.changed.wait_while(&mut is_open, |is_open| !*is_open);
        }

        fn open(&self) {
            *self.is_open.lock() = true;
            self.changed.notify_all();
        }
    }

    /// Adds jobs that report their start, and wait until the gate is open.
    fn add_slow(workers: &Workers<u32>, gate: &Arc<Gate>, jobs: usize) -> Receiver<()> {
        let (starts, started) = channel();
        for _ in 0..jobs {
            let (starts, gate) = (starts.clone(), gate.clone());
            workers.add(1, 2, move || {
                starts.send(()).unwrap();
                gate.pass();
            });
        }
        started
    }

    #[test]
    fn a_client_with_slow_jobs_leaves_threads_to_others() {
        let workers = Workers::new("test", 4);
        let gate = Arc::<Gate>::default();
        let started = add_slow(&workers, &gate, 100);
        for _ in 0..2 {
            started.recv_timeout(LIMIT).unwrap();
        }
        for _ in 0..50 {
            let (done, is_done) = channel();
            workers.add(2, 2, move || done.send(()).unwrap());
            is_done.recv_timeout(LIMIT).unwrap();
        }
        assert!(started.try_recv().is_err(), "more than its share of the threads");
        gate.open();
        for _ in 0..98 {
            started.recv_timeout(LIMIT).unwrap();
        }
        add_slow(&workers, &gate, 1).recv_timeout(LIMIT).unwrap();
    }
}

//! Threads that execute what clients ask. Clients are served in turns, so that one with many requests
//! costs others little.

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
    jobs: HashMap<K, VecDeque<Job>>,
    /// Clients with jobs, in the order of their turns.
    turns: VecDeque<K>,
    /// Number of all jobs that wait.
    waiting: usize,
    threads: usize,
    idle: usize,
    is_ended: bool,
}

impl<K: Clone + Eq + Hash + Send + 'static> Workers<K> {
    pub(crate) fn new(name: &'static str, threads_max: usize) -> Self {
        let queue = Queue {
            jobs: HashMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            threads: 0,
            idle: 0,
            is_ended: false,
        };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
        Workers { shared, name, threads_max }
    }

    /// Adds a job of a client. It is dropped if no thread can be started.
    pub(crate) fn add(&self, client: K, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue.lock();
        let jobs = queue.jobs.entry(client.clone()).or_default();
        jobs.push_back(Box::new(job));
        if jobs.len() == 1 {
            queue.turns.push_back(client);
        }
        queue.waiting += 1;
        // A thread that was woken for another job counts as idle until it runs.
        if queue.idle >= queue.waiting {
            self.shared.changed.notify_one();
            return;
        }
        if queue.threads >= self.threads_max {
            return;
        }
        let shared = self.shared.clone();
        let started = thread::Builder::new().name(self.name.into()).spawn(move || shared.run());
        queue.threads += usize::from(started.is_ok());
        if queue.threads == 0 {
            queue.jobs.clear();
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
            let Some(job) = queue.next() else {
                queue.idle += 1;
                self.changed.wait(&mut queue);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            job();
            queue = self.queue.lock();
        }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Takes the next job of the client whose turn it is.
    fn next(&mut self) -> Option<Job> {
        let client = self.turns.pop_front()?;
        let jobs = self.jobs.get_mut(&client)?;
        let job = jobs.pop_front();
        self.waiting -= usize::from(job.is_some());
        match jobs.is_empty() {
            true => _ = self.jobs.remove(&client),
            false => self.turns.push_back(client),
        }
        job
    }
}

impl<K> Drop for Workers<K> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_ended = true;
        queue.jobs.clear();
        self.shared.changed.notify_all();
    }
}

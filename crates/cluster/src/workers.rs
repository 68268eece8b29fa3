//! Threads that execute requests, each by itself: a request may wait for other servers. Clients take
//! turns (`turns`).

use crate::turns::{Taken, Turns};
use parking_lot::{Condvar, Mutex};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    turns: Turns<K, Job>,
    threads: usize,
    idle: usize,
    is_ended: bool,
}

impl<K: Clone + Eq + Hash + Send + 'static> Workers<K> {
    pub(crate) fn new(name: &'static str, threads_max: usize) -> Self {
        let queue = Queue { turns: Turns::default(), threads: 0, idle: 0, is_ended: false };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
        Workers { shared, name, threads_max }
    }

    /// Adds a job of a client that uses at most `share` threads at once. It is dropped if no thread can
    /// be started.
    pub(crate) fn add(&self, client: K, share: usize, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue.lock();
        let shared = self.shared.clone();
        queue.turns.add(client, share, Box::new(job));
        self.shared.changed.notify_one();
        // A thread that was woken for another job counts as idle until it runs.
        if queue.idle >= queue.turns.waiting() || queue.threads >= self.threads_max {
            return;
        }
        let started = thread::Builder::new().name(self.name.into()).spawn(move || shared.run());
        queue.threads += usize::from(started.is_ok());
        if queue.threads == 0 {
            queue.turns.clear();
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
            let Some(Taken { client, share, job }) = queue.turns.next() else {
                queue.idle += 1;
                self.changed.wait(&mut queue);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            // A job that panics has reported that. Its thread and its share are needed further on.
            let _ = catch_unwind(AssertUnwindSafe(job));
            queue = self.queue.lock();
            queue.turns.ended(client, share);
        }
    }
}

impl<K> Drop for Workers<K> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_ended = true;
        queue.turns = Turns::default();
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

    /// One request once took a thread of the process and a share of its client for good.
    #[test]
    fn jobs_that_panic_cost_no_thread_and_no_share() {
        let workers = Workers::new("test", 2);
        (0..20).for_each(|_| workers.add(1, 1, || panic!("a test")));
        let (done, is_done) = channel();
        workers.add(1, 1, move || done.send(()).unwrap());
        is_done.recv_timeout(LIMIT).unwrap();
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

//! Threads that execute brief requests: those that wait for nobody. A thread takes what has arrived
//! from all clients, in turns (`turns`), and executes it together. So many small requests share a write of
//! the log, and need few changes of threads.
//!
//! As few threads as possible run: while one is at work, it takes what arrives next. One that is at work
//! for longer than a moment, such as for a block that is read from storage, counts no more, and another one goes on. So
//! slow storage delays others for a moment at most.

use crate::turns::{Taken, Turns};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time for which a thread keeps others from executing.
pub(crate) const MOMENT: Duration = Duration::from_millis(1);

/// Calls of several clients that a thread takes at once.
const CALLS: usize = 64;

/// A job: calls that arrived together.
pub(crate) trait Calls: Send + 'static {
    /// Returns the number of calls.
    fn count(&self) -> usize;
}

/// Executes jobs that were taken together. It may return some that it has not executed, or parts of
/// them.
type Execute<K, J> =
    Box<dyn Fn(Vec<Taken<K, J>>, &Turn<'_, K, J>) -> Vec<Taken<K, J>> + Send + Sync>;

/// Threads that execute, and the jobs that wait for one.
pub(crate) struct Executors<K, J> {
    shared: Arc<Shared<K, J>>,
    name: &'static str,
    threads_max: usize,
}

struct Shared<K, J> {
    queue: Mutex<Queue<K, J>>,
    changed: Condvar,
    execute: Execute<K, J>,
}

struct Queue<K, J> {
    turns: Turns<K, J>,
    /// Threads that execute at once, if each is quick.
    at_once: usize,
    /// Beginnings of those who execute, by their numbers; none of those that are slow.
    executing: Vec<(u64, Instant)>,
    next_number: u64,
    threads: usize,
    idle: usize,
    /// Whether a thread looks after those that execute, and goes on if they are slow.
    is_watched: bool,
    is_ended: bool,
}

/// The turn of a thread that executes.
pub(crate) struct Turn<'a, K, J> {
    shared: &'a Shared<K, J>,
    number: u64,
    began: Instant,
}

impl<K: Clone + Eq + Hash + Send + 'static, J: Calls> Executors<K, J> {
    /// Returns threads that execute by this function.
    pub(crate) fn new(
        name: &'static str,
        threads_max: usize,
        execute: impl Fn(Vec<Taken<K, J>>, &Turn<'_, K, J>) -> Vec<Taken<K, J>> + Send + Sync + 'static,
    ) -> Self {
        let queue = Queue {
            turns: Turns::default(),
            at_once: 1,
            executing: Vec::new(),
            next_number: 0,
            threads: 0,
            idle: 0,
            is_watched: false,
            is_ended: false,
        };
        let (queue, changed) = (Mutex::new(queue), Condvar::new());
        let shared = Arc::new(Shared { queue, changed, execute: Box::new(execute) });
        Executors { shared, name, threads_max }
    }

    /// Has so many threads execute at once.
    pub(crate) fn set_at_once(&self, at_once: usize) {
        self.shared.queue.lock().at_once = at_once.max(1);
    }

    /// Adds a job of a client that uses at most `share` threads at once. It is dropped if no thread can
    /// be started.
    pub(crate) fn add(&self, client: K, share: usize, job: J) {
        let mut queue = self.shared.queue.lock();
        queue.turns.add(client, share, job);
        // Those who execute take it next, unless they are slow.
        if queue.executing.len() >= queue.at_once && queue.is_watched {
            return;
        }
        self.shared.changed.notify_one();
        // A thread that was woken for another job counts as idle until it runs.
        if queue.idle >= queue.turns.waiting() || queue.threads >= self.threads_max {
            return;
        }
        let shared = self.shared.clone();
        let started = thread::Builder::new().name(self.name.into()).spawn(move || shared.run());
        queue.threads += usize::from(started.is_ok());
        if queue.threads == 0 {
            queue.turns.clear();
        }
    }
}

impl<K: Clone + Eq + Hash, J: Calls> Shared<K, J> {
    fn run(&self) {
        let mut queue = self.queue.lock();
        while !queue.is_ended {
            if !queue.turns.has_next() {
                self.wait(&mut queue, None);
                continue;
            }
            let now = Instant::now();
            queue.executing.retain(|(_, began)| now.saturating_duration_since(*began) < MOMENT);
            if queue.executing.len() < queue.at_once {
                queue = self.execute_some(queue, now);
                continue;
            }
            let is_watched = std::mem::replace(&mut queue.is_watched, true);
            self.wait(&mut queue, (!is_watched).then_some(MOMENT));
            queue.is_watched &= is_watched;
        }
    }

    fn wait(&self, queue: &mut MutexGuard<'_, Queue<K, J>>, limit: Option<Duration>) {
        queue.idle += 1;
        match limit {
            Some(limit) => _ = self.changed.wait_for(queue, limit),
            None => self.changed.wait(queue),
        }
        queue.idle -= 1;
    }

    /// Executes what has arrived, up to some number of calls.
    fn execute_some<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue<K, J>>,
        now: Instant,
    ) -> MutexGuard<'a, Queue<K, J>> {
        let (mut taken, mut calls) = (Vec::new(), 0);
        while calls < CALLS
            && let Some(next) = queue.turns.next()
        {
            calls += next.job.count();
            taken.push(next);
        }
        // Another thread goes on with the rest if this one is slow.
        if queue.turns.has_next() && !queue.is_watched {
            self.changed.notify_one();
        }
        let clients = Vec::from_iter(taken.iter().map(|one| (one.client.clone(), one.share)));
        let number = queue.next_number;
        queue.next_number += 1;
        queue.executing.push((number, now));
        drop(queue);
        let turn = Turn { shared: self, number, began: now };
        // A panic was reported. The thread and the shares of the clients are needed further on.
        let left = catch_unwind(AssertUnwindSafe(|| (self.execute)(taken, &turn)));
        let left = left.unwrap_or_default();
        drop(turn);
        let mut queue = self.queue.lock();
        left.into_iter().for_each(|one| queue.turns.add(one.client, one.share, one.job));
        clients.into_iter().for_each(|(client, share)| queue.turns.ended(client, share));
        queue
    }
}

impl<K: Clone + Eq + Hash, J> Turn<'_, K, J> {
    /// Returns whether this turn takes longer than others should wait.
    pub(crate) fn is_over(&self) -> bool {
        self.began.elapsed() >= MOMENT
    }

    /// Ends the turn: others execute while this thread waits for something.
    pub(crate) fn end(&self) {
        let mut queue = self.shared.queue.lock();
        self.remove(&mut queue);
        if queue.turns.has_next() && queue.idle > 0 {
            self.shared.changed.notify_one();
        }
    }
}

impl<K, J> Turn<'_, K, J> {
    fn remove(&self, queue: &mut Queue<K, J>) {
        queue.executing.retain(|(number, _)| *number != self.number);
    }
}

impl<K, J> Drop for Turn<'_, K, J> {
    fn drop(&mut self) {
        self.remove(&mut self.shared.queue.lock());
    }
}

impl<K, J> Drop for Executors<K, J> {
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
    use std::sync::mpsc::{Receiver, Sender, channel};

    const LIMIT: Duration = Duration::from_secs(10);

    /// A number, and whether its execution takes long.
    struct Job(u32, bool);

    impl Calls for Job {
        fn count(&self) -> usize {
            1
        }
    }

    /// Executors that report the numbers of jobs that they took together. One that takes long waits for
    /// the gate.
    fn reporting() -> (Executors<u32, Job>, Receiver<Vec<u32>>, Sender<()>) {
        let (reports, reported) = channel();
        let (open, gate) = channel();
        let gate = Mutex::new(gate);
        let executors = Executors::new(
            "test",
            8,
            move |taken: Vec<Taken<u32, Job>>, _: &Turn<'_, u32, Job>| {
                reports.send(Vec::from_iter(taken.iter().map(|one| one.job.0))).unwrap();
                if taken.iter().any(|one| one.job.1) {
                    gate.lock().recv_timeout(LIMIT).unwrap();
                }
                Vec::new()
            },
        );
        (executors, reported, open)
    }

    #[test]
    fn jobs_that_wait_are_taken_together_in_turns() {
        let (executors, reported, open) = reporting();
        // Nobody takes it for slow, as no thread looks.
        executors.shared.queue.lock().is_watched = true;
        executors.add(0, 2, Job(0, true));
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), [0]);
        for number in 1..=3 {
            executors.add(1, 2, Job(number, false));
        }
        executors.add(2, 2, Job(4, false));
        assert!(reported.try_recv().is_err());
        open.send(()).unwrap();
        // A client has two threads at most.
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), [1, 4, 2]);
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), [3]);
    }

    #[test]
    fn a_slow_thread_keeps_nobody_from_executing() {
        let (executors, reported, open) = reporting();
        for slow in 0..3 {
            executors.add(slow, 2, Job(slow, true));
            assert_eq!(reported.recv_timeout(LIMIT).unwrap(), [slow]);
        }
        executors.add(7, 2, Job(7, false));
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), [7]);
        (0..3).for_each(|_| open.send(()).unwrap());
    }

    #[test]
    fn jobs_that_panic_cost_no_thread_and_no_share() {
        let (reports, reported) = channel();
        let execute = move |taken: Vec<Taken<u32, Job>>, _: &Turn<'_, u32, Job>| {
            let last = taken.last().unwrap().job.0;
            assert!(last == 20, "a test");
            reports.send(last).unwrap();
            Vec::new()
        };
        let executors = Executors::new("test", 2, execute);
        (0..=20).for_each(|number| executors.add(1, 1, Job(number, false)));
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), 20);
    }

    #[test]
    fn jobs_that_are_left_are_executed_later() {
        let (reports, reported) = channel();
        let execute = move |mut taken: Vec<Taken<u32, Job>>, _: &Turn<'_, u32, Job>| {
            let rest = taken.split_off(1);
            reports.send(taken[0].job.0).unwrap();
            rest
        };
        let executors = Executors::new("test", 8, execute);
        for number in 0..100 {
            executors.add(number % 7, 2, Job(number, false));
        }
        let mut all = Vec::from_iter((0..100).map(|_| reported.recv_timeout(LIMIT).unwrap()));
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..100));
    }
}

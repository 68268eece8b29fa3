//! Threads that send what the walk has found. A job that fails ends the import; no other begins then.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::thread::Scope;

/// Jobs of several threads.
pub struct Pool<J> {
    state: Mutex<State<J>>,
    /// A job may be added, or all are done.
    moved_on: Condvar,
    /// A job was added, or none comes any more.
    added: Condvar,
    waiting_max: usize,
}

struct State<J> {
    waiting: VecDeque<J>,
    running: usize,
    is_closed: bool,
    failure: Option<anyhow::Error>,
}

/// Closes a pool when it is dropped, so that its threads end.
pub struct Open<'p, J>(&'p Pool<J>);

impl<J: Send> Pool<J> {
    /// Returns a pool in which no more jobs than this wait.
    pub fn new(waiting_max: usize) -> Self {
        let waiting = VecDeque::new();
        let state = State { waiting, running: 0, is_closed: false, failure: None };
        let (state, moved_on, added) = (Mutex::new(state), Condvar::new(), Condvar::new());
        Pool { state, moved_on, added, waiting_max }
    }

    /// Starts threads, which end after the result was dropped.
    pub fn start<'p, 's>(
        &'p self,
        scope: &'s Scope<'s, 'p>,
        count: usize,
        work: impl Fn(J) -> anyhow::Result<()> + Send + Copy + 's,
    ) -> Open<'p, J> {
        for _ in 0..count {
            scope.spawn(move || {
                while let Some(job) = self.next() {
                    let done = work(job);
                    let mut state = self.state.lock();
                    state.running -= 1;
                    if let Err(error) = done {
                        state.failure.get_or_insert(error);
                        state.waiting.clear();
                    }
                    self.moved_on.notify_all();
                }
            });
        }
        Open(self)
    }

    fn next(&self) -> Option<J> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                state.running += 1;
                self.moved_on.notify_all();
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            self.added.wait(&mut state);
        }
    }

    /// Adds a job, once there is room. Fails with the error of an earlier one.
    pub fn add(&self, job: J) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        while state.failure.is_none() && state.waiting.len() >= self.waiting_max {
            self.moved_on.wait(&mut state);
        }
        if let Some(error) = state.failure.take() {
            return Err(error);
        }
        state.waiting.push_back(job);
        self.added.notify_one();
        Ok(())
    }

    /// Waits until all jobs are done. Fails with the error of one.
    pub fn finish(&self) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        while state.running > 0 || !state.waiting.is_empty() {
            self.moved_on.wait(&mut state);
        }
        state.failure.take().map_or(Ok(()), Err)
    }
}

impl<J> Drop for Open<'_, J> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        self.0.added.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn jobs_are_done_once_and_a_failure_is_returned() {
        let (pool, sum) = (Pool::new(3), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let sum = &sum;
            let work = move |job: u64| {
                anyhow::ensure!(job != 500, "it fails");
                sum.fetch_add(job, Ordering::Relaxed);
                Ok(())
            };
            let _open = pool.start(scope, 4, work);
            (0..500).for_each(|job| pool.add(job).expect("it goes on"));
            pool.finish().expect("all are done");
            assert_eq!(sum.load(Ordering::Relaxed), 499 * 500 / 2);
            pool.add(500).expect("it is added");
            let failed = (0..10_000).find_map(|_| pool.add(1).err());
            let failed = failed.or_else(|| pool.finish().err()).expect("a failure");
            assert_eq!(failed.to_string(), "it fails");
        });
    }
}

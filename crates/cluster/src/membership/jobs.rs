//! Starts and stops of servers, which take long: a few threads that end when nothing is left to do.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Jobs that run at a time.
const THREADS_MAX: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

/// A queue of jobs. Those of one server do not overlap, because each is pushed after the one before
/// has reported its end.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
}

impl Jobs {
    /// Runs a job after all others.
    pub(super) fn push_back(&self, job: impl FnOnce() + Send + 'static) {
        self.push(|jobs| jobs.push_back(Box::new(job)));
    }

    /// Runs a job before all that wait.
    pub(super) fn push_front(&self, job: impl FnOnce() + Send + 'static) {
        self.push(|jobs| jobs.push_front(Box::new(job)));
    }

    fn push(&self, push: impl FnOnce(&mut VecDeque<Job>)) {
        let mut queue = self.0.lock();
        push(&mut queue.jobs);
        if queue.threads < THREADS_MAX {
            queue.threads += 1;
            let jobs = self.clone();
            std::thread::spawn(move || jobs.run());
        }
    }

    fn run(&self) {
        loop {
            let mut queue = self.0.lock();
            let Some(job) = queue.jobs.pop_front() else {
                queue.threads -= 1;
                return;
            };
            drop(queue);
            job();
        }
    }
}

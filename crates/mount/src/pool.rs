//! Threads for what may take long: queries, and checks that root asks for. Each user has one at
//! most, and a few that wait, so that nobody's questions keep others from theirs.

use parking_lot::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// So many run at once.
const THREADS: usize = 3;

/// So many of one user wait at most.
const WAITING_MAX: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<(u32, Work)>,
    /// The users of whom one is being done.
    busy: HashSet<u32>,
    stops: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The threads; they end once this is dropped and they have done what they do.
pub(crate) struct Pool(Arc<Shared>);

impl Pool {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared::default());
        for _ in 0..THREADS {
            let shared = shared.clone();
            std::thread::spawn(move || shared.serve());
        }
        Pool(shared)
    }

    /// Has something done for a user. If too much of that user waits, it is dropped.
    pub(crate) fn run(&self, uid: u32, work: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        if state.waiting.iter().filter(|(of, _)| *of == uid).count() < WAITING_MAX {
            state.waiting.push_back((uid, Box::new(work)));
            self.0.changed.notify_one();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.state.lock().stops = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            let next = state.waiting.iter().position(|(uid, _)| !state.busy.contains(uid));
            match next.and_then(|at| state.waiting.remove(at)) {
                Some((uid, work)) => {
                    state.busy.insert(uid);
                    drop(state);
                    // A request that is dropped is answered with an error.
                    let _ = catch_unwind(AssertUnwindSafe(work));
                    state = self.state.lock();
                    state.busy.remove(&uid);
                    self.changed.notify_all();
                }
                None if state.stops => return,
                None => self.changed.wait(&mut state),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn one_user_does_not_keep_others_waiting() {
        let pool = Pool::new();
        let (release, released) = channel::<()>();
        let released = Mutex::new(released);
        let released = Arc::new(released);
        for _ in 0..10 {
            let released = released.clone();
            pool.run(1, move || assert!(released.lock().recv().is_err()));
        }
        let (done, told) = channel();
        pool.run(2, move || done.send(()).expect("somebody waits"));
        told.recv_timeout(PATIENCE).expect("another user's turn");
        drop(release);
    }

    #[test]
    fn what_panics_or_is_too_much_is_dropped() {
        let pool = Pool::new();
        let (done, told) = channel();
        for _ in 0..THREADS + 1 {
            pool.run(1, || panic!("on purpose"));
        }
        let (release, released) = channel::<()>();
        pool.run(1, move || assert!(released.recv().is_err()));
        for _ in 0..2 * WAITING_MAX {
            let done = done.clone();
            pool.run(1, move || done.send(()).expect("somebody waits"));
        }
        drop((release, done));
        let count = std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok()).count();
        assert!((1..=WAITING_MAX).contains(&count), "{count}");
    }
}

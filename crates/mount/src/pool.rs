//! Threads for what may take long: queries, checks that root asks for, contents that are fetched.
//! Each user has a few at most, so that nobody's questions keep others from theirs.

use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How much is done at once.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// So much of all users.
    pub(crate) threads: usize,
    /// So much of one user.
    pub(crate) of_user: usize,
    /// So much of one user waits at most.
    pub(crate) waiting: usize,
}

/// For queries: a user has one.
pub(crate) const QUERIES: Limits = Limits { threads: 3, of_user: 1, waiting: 64 };

/// For contents: what waits are processes that read and write, and the kernel's reading ahead.
pub(crate) const CONTENTS: Limits = Limits { threads: 16, of_user: 8, waiting: usize::MAX };

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<(u32, Work)>,
    /// The users of whom something is being done, and how much.
    busy: HashMap<u32, usize>,
    stops: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    limits: Limits,
}

/// The threads; they end once this is dropped and they have done what they do.
pub(crate) struct Pool(Arc<Shared>);

impl Pool {
    pub(crate) fn new(limits: Limits) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { state, changed, limits });
        for _ in 0..limits.threads {
            let shared = shared.clone();
            std::thread::spawn(move || shared.serve());
        }
        Pool(shared)
    }

    /// Has something done for a user. If too much of that user waits, it is dropped.
    pub(crate) fn run(&self, uid: u32, work: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        if state.waiting.iter().filter(|(of, _)| *of == uid).count() < self.0.limits.waiting {
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
            let of_user = |uid: &u32| state.busy.get(uid).copied().unwrap_or_default();
            let next = state.waiting.iter().position(|(uid, _)| of_user(uid) < self.limits.of_user);
            match next.and_then(|at| state.waiting.remove(at)) {
                Some((uid, work)) => {
                    *state.busy.entry(uid).or_default() += 1;
                    drop(state);
                    // A request that is dropped is answered with an error.
                    let _ = catch_unwind(AssertUnwindSafe(work));
                    state = self.state.lock();
                    if let Some(count) = state.busy.get_mut(&uid) {
                        *count -= 1;
                    }
                    state.busy.retain(|_, count| *count > 0);
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
        let pool = Pool::new(QUERIES);
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
        let pool = Pool::new(QUERIES);
        let (done, told) = channel();
        for _ in 0..QUERIES.threads + 1 {
            pool.run(1, || panic!("on purpose"));
        }
        let (release, released) = channel::<()>();
        pool.run(1, move || assert!(released.recv().is_err()));
        for _ in 0..2 * QUERIES.waiting {
            let done = done.clone();
            pool.run(1, move || done.send(()).expect("somebody waits"));
        }
        drop((release, done));
        let count = std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok()).count();
        assert!((1..=QUERIES.waiting).contains(&count), "{count}");
    }
}

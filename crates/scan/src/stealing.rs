//! Pieces of work that make more pieces, shared by threads.
//!
//! 1. Each thread has a stack and takes the piece on top: depth first, so that what a thread does
//!    lies close together and few pieces wait.
//! 2. A thread without work steals the bottom of another's stack: the largest piece that is left.
//! 3. It is over when no piece waits or is being worked on, or when somebody stops it. Then what
//!    waits is given back, so that it can go on.

use crossbeam_deque::{Steal, Stealer, Worker};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

struct Pool<T> {
    stealers: Vec<Stealer<T>>,
    /// Pieces that wait or are being worked on.
    waiting: AtomicUsize,
    stopped: AtomicBool,
}

/// The stack of one thread.
pub struct Stack<'a, T> {
    pool: &'a Pool<T>,
    own: Worker<T>,
    /// Whether a piece that was taken here is being worked on.
    working: Cell<bool>,
}

/// Runs `work` on one new thread a state, and gives what each returns, and the pieces that are left
/// on the stack of each after a stop. `pieces` are those that lie there at first, the top last.
/// `work` takes pieces until there are none. Blocks. The calling thread does nothing else: work may
/// give its thread another working directory.
pub fn share<T: Send, S: Send, R: Send>(
    pieces: Vec<Vec<T>>,
    states: Vec<S>,
    work: impl Fn(S, &Stack<'_, T>) -> R + Sync,
) -> (Vec<R>, Vec<Vec<T>>) {
    let stacks: Vec<Worker<T>> = states.iter().map(|_| Worker::new_lifo()).collect();
    let pool = Pool {
        stealers: stacks.iter().map(Worker::stealer).collect(),
        waiting: AtomicUsize::new(pieces.iter().map(Vec::len).sum()),
        stopped: AtomicBool::new(false),
    };
    for (stack, pieces) in stacks.iter().zip(pieces) {
        pieces.into_iter().for_each(|piece| stack.push(piece));
    }
    let run = |(state, own)| work(state, &Stack { pool: &pool, own, working: Cell::new(false) });
    let done = std::thread::scope(|scope| {
        let pairs = states.into_iter().zip(stacks);
        let threads: Vec<_> = pairs.map(|pair| scope.spawn(|| run(pair))).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    });
    (done, pool.stealers.iter().map(left).collect())
}

/// Returns the pieces on a stack that nobody works on any more, the top last.
fn left<T>(stack: &Stealer<T>) -> Vec<T> {
    let next = || loop {
        match stack.steal() {
            Steal::Success(piece) => return Some(piece),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    };
    std::iter::from_fn(next).collect()
}

impl<T> Stack<'_, T> {
    /// Takes the next piece; the one taken before is done. Waits for others to make some, and
    /// calls `idle` first, which may put some. `None` when all is done or stopped.
    pub fn take(&self, mut idle: impl FnMut()) -> Option<T> {
        if self.working.take() {
            self.pool.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        let mut idle_rounds = 0;
        while !self.pool.stopped.load(Ordering::Relaxed) {
            if let Some(piece) = self.own.pop().or_else(|| self.steal()) {
                self.working.set(true);
                return Some(piece);
            }
            idle_rounds += 1;
            if idle_rounds == 1 {
                idle();
                continue;
            }
            if self.pool.waiting.load(Ordering::Acquire) == 0 {
                break;
            }
            match idle_rounds {
                ..64 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        None
    }

    /// Adds a piece.
    pub fn put(&self, piece: T) {
        self.pool.waiting.fetch_add(1, Ordering::AcqRel);
        self.own.push(piece);
    }

    /// Has no thread take any further piece.
    pub fn stop(&self) {
        self.pool.stopped.store(true, Ordering::Relaxed);
    }

    fn steal(&self) -> Option<T> {
        for stealer in &self.pool.stealers {
            loop {
                match stealer.steal() {
                    Steal::Success(piece) => return Some(piece),
                    Steal::Empty => break,
                    Steal::Retry => {}
                }
            }
        }
        None
    }
}

/// A thread that panics stops the others, which would otherwise wait for it.
impl<T> Drop for Stack<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_piece_is_taken_once_whatever_the_threads() {
        for threads in [1, 2, 7] {
            let taken = AtomicU64::new(0);
            share(vec![vec![10_u32]], vec![(); threads], |(), stack| {
                while let Some(piece) = stack.take(|| ()) {
                    taken.fetch_add(1, Ordering::Relaxed);
                    (0..piece.min(2)).for_each(|_| stack.put(piece - 1));
                }
            });
            // A tree of two branches and ten levels, and one leaf more below each of the last.
            assert_eq!(taken.into_inner(), 2_u64.pow(10) - 1 + 2_u64.pow(9));
        }
    }

    #[test]
    fn late_work_is_taken() {
        for threads in [1, 3] {
            let taken = AtomicU64::new(0);
            share(vec![vec![0_u32]], vec![(); threads], |(), stack| {
                let put = Cell::new(false);
                while let Some(piece) = stack.take(|| {
                    if !put.replace(true) {
                        stack.put(1)
                    }
                }) {
                    taken.fetch_add(u64::from(piece), Ordering::Relaxed);
                }
            });
            assert_eq!(taken.into_inner(), threads as u64);
        }
    }

    #[test]
    fn stopping_ends_it() {
        let (taken, left) = share(vec![vec![()]], vec![(); 3], |(), stack| {
            let mut taken = 0;
            while let Some(()) = stack.take(|| ()) {
                taken += 1;
                stack.put(());
                if taken == 100 {
                    stack.stop();
                }
            }
            taken
        });
        assert!(taken.contains(&100));
        assert_eq!(left.iter().map(Vec::len).sum::<usize>(), 1);
    }
}

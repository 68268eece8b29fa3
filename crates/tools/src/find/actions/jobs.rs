//! `-j`: how many commands run at once.

use super::exec::ended;
use parking_lot::{Condvar, Mutex};
use std::process::Child;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Number of commands that may run at once, of all threads and actions together.
#[derive(Clone)]
pub(crate) struct Jobs {
    pub(crate) count: usize,
    free: Arc<(Mutex<usize>, Condvar)>,
}

/// One of them may.
pub(crate) struct Permit(Jobs);

/// A command that was started, which a thread waits for.
pub(crate) struct Running(JoinHandle<Result<bool, String>>);

impl Jobs {
    /// Allows so many.
    pub(crate) fn new(count: usize) -> Self {
        Jobs { count, free: Arc::new((Mutex::new(count), Condvar::new())) }
    }

    /// Waits until a command may run.
    pub(crate) fn permit(&self) -> Permit {
        let (free, freed) = &*self.free;
        let mut free = free.lock();
        freed.wait_while(&mut free, |free| *free == 0);
        *free -= 1;
        Permit(self.clone())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let (free, freed) = &*self.0.free;
        *free.lock() += 1;
        freed.notify_one();
    }
}

impl Running {
    /// Has a thread wait for a command, which gives the permit back.
    pub(crate) fn new(program: &[u8], child: Child, permit: Permit) -> Self {
        let program = program.to_vec();
        Running(std::thread::spawn(move || {
            let outcome = ended(&program, child);
            drop(permit);
            outcome
        }))
    }

    /// Waits for its end. Returns whether it ended well.
    pub(crate) fn ended(self) -> Result<bool, String> {
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

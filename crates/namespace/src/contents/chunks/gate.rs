//! Lets so many through at once.

use parking_lot::{Condvar, Mutex};

pub(super) struct Gate {
    free: Mutex<usize>,
    freed: Condvar,
}

/// Somebody who is through the gate.
pub(super) struct Entered<'a>(&'a Gate);

impl Gate {
    pub(super) fn new(count: usize) -> Self {
        Gate { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits until there is room.
    pub(super) fn enter(&self) -> Entered<'_> {
        let mut free = self.free.lock();
        while *free == 0 {
            self.freed.wait(&mut free);
        }
        *free -= 1;
        Entered(self)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

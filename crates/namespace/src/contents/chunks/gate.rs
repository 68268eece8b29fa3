//! Lets so many through at once.

use parking_lot::{Condvar, Mutex};

/// A gate that lets a number of threads through at once.
pub struct Gate {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A thread that is through the gate. The next one may enter once this is dropped.
pub struct Entered<'a>(&'a Gate);

impl Gate {
    /// Returns a gate for `count` threads at once.
    pub fn new(count: usize) -> Self {
        Gate { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits until there is room.
    pub fn enter(&self) -> Entered<'_> {
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

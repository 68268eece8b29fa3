//! Progress of a verb, by which a runner finds out that it hangs in a file system.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time of the last progress of a verb. Threads share it.
#[derive(Debug)]
pub struct Pulse {
    last: Mutex<Instant>,
    /// Whether no source is read any more.
    is_over: AtomicBool,
}

impl Default for Pulse {
    /// Counts the start as progress.
    fn default() -> Self {
        Pulse { last: Mutex::new(Instant::now()), is_over: AtomicBool::new(false) }
    }
}

impl Pulse {
    /// Notes progress.
    pub fn beat(&self) {
        *self.last.lock() = Instant::now();
    }

    /// Notes that all sources have been read. The verb then takes as long as it needs.
    pub fn finish_reading(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns whether a source is still read, and the last progress is longer ago than `patience`.
    pub fn is_silent(&self, patience: Duration) -> bool {
        !self.is_over.load(Ordering::Relaxed) && self.last.lock().elapsed() > patience
    }
}

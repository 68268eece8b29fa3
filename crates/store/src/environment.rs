//! Storage, clocks and randomness, which the engine takes from outside. Nothing else in this crate
//! asks the operating system for any of them, so that a simulation decides all.

use crate::storage::Storage;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of day, and waiting.
pub trait Clock: Send + Sync {
    /// Returns milliseconds since 1970. It may jump either way.
    fn now_ms(&self) -> u64;

    /// Waits about so long.
    fn sleep(&self, duration: Duration);
}

/// A source of numbers that nobody else gets.
pub trait Random: Send + Sync {
    /// Returns 64 random bits.
    fn next_u64(&self) -> u64;
}

/// Storage, clock and randomness that a table runs on.
#[derive(Clone)]
pub struct Environment {
    /// Storage of the table's objects.
    pub storage: Arc<dyn Storage>,
    /// Source of the time of day.
    pub clock: Arc<dyn Clock>,
    /// Source of ids and nonces.
    pub random: Arc<dyn Random>,
}

impl Environment {
    /// Returns storage with the clock and the randomness of the operating system.
    pub fn system(storage: Arc<dyn Storage>) -> Self {
        Environment { storage, clock: Arc::new(SystemClock), random: Arc::new(SystemRandom) }
    }
}

struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

struct SystemRandom;

/// Returns 64 random bits for the name of a file that only storage of the system makes.
pub(crate) fn system_random() -> u64 {
    SystemRandom.next_u64()
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        u64::from_le_bytes(bytes)
    }
}

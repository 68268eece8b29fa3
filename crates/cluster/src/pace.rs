//! Time and waiting of servers and clients. The system's are the default; a simulation decides both,
//! and does the work beside requests itself, so that one thread at a time runs.

use crate::sessions::{SteadyClock, steady_clock};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Time, and waiting until something may have changed.
pub trait Pace: Send + Sync {
    /// Returns the time since some moment, which never goes back.
    fn now(&self) -> Duration;

    /// Lets others run for a time. It may return earlier.
    fn pause(&self, longest: Duration);

    /// Returns whether threads may be started, which a simulation would not know.
    fn has_threads(&self) -> bool {
        true
    }
}

/// Time and waiting of the system.
struct SystemPace(SteadyClock);

/// Returns the time and the waiting of the system.
pub(crate) fn system_pace() -> Arc<dyn Pace> {
    Arc::new(SystemPace(steady_clock()))
}

impl Pace for SystemPace {
    fn now(&self) -> Duration {
        (self.0)()
    }

    fn pause(&self, longest: Duration) {
        thread::sleep(longest);
    }
}

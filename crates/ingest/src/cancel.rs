//! Cancellation: a flag that a caller sets and the work looks at.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Asks one run to end, or several that end together. Clones share the request, which stays: a later
/// run needs a new one.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_requested: AtomicBool,
    is_finishing: AtomicBool,
    /// Locked by waiting threads until they wait, and by a request before it wakes them.
    waiting: Mutex<()>,
    requested: Condvar,
}

impl Cancel {
    /// Asks the run to end.
    pub fn request(&self) {
        self.0.is_requested.store(true, Ordering::SeqCst);
        drop(self.0.waiting.lock());
        self.0.requested.notify_all();
    }

    /// Waits for the request, at most for a time. Returns whether the run is to end.
    pub fn wait(&self, time: Duration) -> bool {
        let mut waiting = self.0.waiting.lock();
        self.0.requested.wait_while_for(&mut waiting, |()| !self.is_requested(), time);
        self.is_requested()
    }

    /// Returns whether the run is to end.
    pub fn is_requested(&self) -> bool {
        self.0.is_requested.load(Ordering::Relaxed)
    }

    /// Notes that the run is completing a step that must not be cut short: it publishes, or saves its
    /// progress.
    pub(crate) fn finish(&self) {
        self.0.is_finishing.store(true, Ordering::SeqCst);
    }

    /// Returns whether the run is completing such a step. A caller that would kill the process waits
    /// for it.
    pub fn is_finishing(&self) -> bool {
        self.0.is_finishing.load(Ordering::SeqCst)
    }
}

/// A run was cancelled and has published nothing. Data that it wrote is removed, or its progress is
/// saved: then [`Interrupted::continued`] says what is left and what continues it.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; nothing was published{}", semicolon(continued))]
pub struct Interrupted {
    /// How the run can be continued.
    pub continued: Option<String>,
}

fn semicolon(continued: &Option<String>) -> String {
    continued.as_ref().map_or_else(String::new, |continued| format!("; {continued}"))
}

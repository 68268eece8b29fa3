//! Cancellation: a flag that a caller sets and the work looks at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks a run to end. Clones share the request.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_requested: AtomicBool,
    ends_by_itself: AtomicBool,
}

impl Cancel {
    /// Asks the run to end.
    pub fn request(&self) {
        self.0.is_requested.store(true, Ordering::SeqCst);
    }

    /// Returns whether the run is to end.
    pub fn is_requested(&self) -> bool {
        self.0.is_requested.load(Ordering::Relaxed)
    }

    /// Notes that the run is completing a step that must not be cut short: it publishes, or saves its
    /// progress.
    pub(crate) fn end_by_itself(&self) {
        self.0.ends_by_itself.store(true, Ordering::SeqCst);
    }

    /// Returns whether the run is completing such a step. A caller that would kill the process waits
    /// for it.
    pub fn ends_by_itself(&self) -> bool {
        self.0.ends_by_itself.load(Ordering::SeqCst)
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

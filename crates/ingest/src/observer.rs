//! Reports of a run while it works.

use std::fmt::Display;
use std::time::Duration;

/// Receives the reports of a run. All methods may be called by any thread of the run.
pub trait Observer: Sync {
    /// Takes in a message about something that is wrong or missing.
    fn warn(&self, text: &dyn Display);

    /// Takes in a message that is worth knowing and no error. A quiet caller drops it.
    fn note(&self, text: &dyn Display);

    /// Returns whether somebody sees the progress: otherwise, nothing is computed for it.
    fn shows_progress(&self) -> bool {
        false
    }

    /// Carries out `work`, once, and meanwhile shows its progress.
    fn observe(&self, _progress: &dyn Progress, work: &mut dyn FnMut()) {
        work();
    }
}

/// The progress of some work.
pub trait Progress: Sync {
    /// Returns a line for people. `elapsed` is the time since the work began.
    fn line(&self, elapsed: Duration) -> String;

    /// Returns a number that changes as long as the work goes on.
    fn done(&self) -> u64 {
        0
    }
}

impl<F: Fn(Duration) -> String + Sync> Progress for F {
    fn line(&self, elapsed: Duration) -> String {
        self(elapsed)
    }
}

/// Drops all reports.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Observer for Silent {
    fn warn(&self, _: &dyn Display) {}

    fn note(&self, _: &dyn Display) {}
}

/// Carries out `work` while an observer shows its progress, and returns its result. Panics if the
/// observer does not carry it out.
pub fn with_progress<T>(
    observer: &dyn Observer,
    progress: &dyn Progress,
    work: impl FnOnce() -> T,
) -> T {
    let (mut work, mut result) = (Some(work), None);
    observer.observe(progress, &mut || {
        result = work.take().map(|work| work());
    });
    // An observer that does not carry the work out is a bug of the observer.
    result.expect("the observer has carried the work out")
}

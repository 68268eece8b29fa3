//! Tries of a client's request, with growing pauses between them.

use crate::error::Error;
use crate::pace::Pace;
use canopy_partition::ServerId;
use std::time::Duration;

/// Pauses between two tries: the first one, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Tries of a request.
pub(crate) struct Tries<'a> {
    pace: &'a dyn Pace,
    patience: Duration,
    /// The moment of the first failure.
    since: Option<Duration>,
    pause: Duration,
}

impl<'a> Tries<'a> {
    /// Returns tries that last for as long as `patience` from the first failure on.
    pub(crate) fn new(pace: &'a dyn Pace, patience: Duration) -> Self {
        Tries { pace, patience, since: None, pause: PAUSE_MIN }
    }

    /// Waits until the next try. Returns false if the time is over.
    pub(crate) fn wait(&mut self) -> bool {
        let now = self.pace.now();
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) >= self.patience {
            return false;
        }
        self.pace.pause(self.pause);
        self.pause = PAUSE_MAX.min(self.pause * 2);
        true
    }

    /// Returns whether a try has failed.
    pub(crate) fn has_waited(&self) -> bool {
        self.since.is_some()
    }
}

/// Returns the error of a server that did not get to know whether it holds a name or a file.
pub(crate) fn undecided(server: ServerId) -> Error {
    let why = "it does not know yet if the name is there: another server does not answer";
    Error::Unreachable { server, why: why.into() }
}

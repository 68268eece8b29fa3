//! Numbers of partitions and entries of a server, for `canopy cluster status`.
//!
//! Entries are counted by reading all names, which takes seconds for tens of millions. So a thread
//! counts beside requests, and a count is given out again until 20 times as long has passed as
//! counting took: at most a twentieth of a core is spent, however often it is asked for.

use crate::error::Result;
use crate::server::Server;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A count is used again for as many times as counting took.
const RATIO: u32 = 20;

/// Time for which somebody who asks waits for the first count.
const WAIT: Duration = Duration::from_secs(1);

/// Numbers of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Partitions of directories that were split.
    pub partitions: u64,
    /// Entries of all directories.
    pub entries: u64,
}

/// The last count of a server.
#[derive(Default)]
pub(crate) struct Tallies {
    state: Mutex<State>,
    counted: Condvar,
}

#[derive(Default)]
struct State {
    last: Option<Counted>,
    is_counting: bool,
}

#[derive(Clone, Copy)]
struct Counted {
    tally: Tally,
    at: Instant,
    took: Duration,
}

impl Server {
    /// Returns the numbers of this server; none if the first count takes longer than a second.
    pub(crate) fn tally(self: &Arc<Self>) -> Result<Option<Tally>> {
        let mut state = self.tallies.state.lock();
        let is_old = state.last.is_none_or(|last| last.at.elapsed() > last.took * RATIO);
        if is_old && !state.is_counting {
            let server = self.clone();
            let counting = thread::Builder::new().name("cluster-tally".into());
            let counting = counting.spawn(move || server.count_all_entries());
            let io = |source| canopy_namespace::Error::Io { what: "start a thread".into(), source };
            counting.map_err(io)?;
            state.is_counting = true;
        }
        if state.is_counting {
            self.tallies.counted.wait_for(&mut state, WAIT);
        }
        Ok(state.last.map(|last| last.tally))
    }

    fn count_all_entries(&self) {
        let began = Instant::now();
        let entries = self.tablet.count_names();
        let mut state = self.tallies.state.lock();
        // The next request counts again.
        if let Ok(entries) = entries {
            let tally = Tally { partitions: self.partition_count(), entries };
            state.last = Some(Counted { tally, at: Instant::now(), took: began.elapsed() });
        }
        state.is_counting = false;
        self.tallies.counted.notify_all();
    }
}

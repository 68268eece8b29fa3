//! Rules by which a process changes the cluster map, and starts and stops servers. Pure: what has
//! happened comes in, the next map comes out. `exploration` explores them with storage, crashes and
//! sleepers, and leaves out each.
//!
//! | rule | without it |
//! | --- | --- |
//! | Only the newest map counts, whatever a creation returned. | two processes act on different maps of one version |
//! | The next map follows from the newest one. | a process undoes changes of others |
//! | A process decides once after each look. | it creates versions again that were removed |
//! | A process that is in the map removes those whose leases it saw end. | servers of dead processes run nowhere |
//! | A process replaces one that has ended and had its address. | after the last process died, nobody can join |
//! | A process that is missing in the map stops its servers and joins again. | a process that was slow never serves again |
//! | A server that the map gives to another process is stopped. | the other one waits for it |
//! | A server waits for its former process to stop it, but not longer than a lease. | a planned move fences a server that runs |
//! | A server that was fenced starts again, after another look. | it runs nowhere; two processes fence each other for ever |
//!
//! Two more rules concern time. A process whose own lease may have ended removes nobody, so one that is
//! cut off does not take over. A process that is not in the map removes only the one at its address.
//!
//! Leases of living processes have one length, which the map records: observers measure by their own, and
//! would remove a living process with a longer one again and again. All of them have certificates, or none:
//! otherwise they cannot reach each other. A process with other terms than one in the map does not join
//! before that one's lease ended, by the longer of both. It ends with an error once it sees that one renew.

use super::map::{Applied, Assignment, ClusterMap, ProcessId, ProcessState, Terms};
use std::collections::BTreeSet;

/// A process' knowledge when it considers a change of the map.
pub(super) struct Situation<'a> {
    /// Newest map.
    pub(super) map: &'a ClusterMap,
    /// The process.
    pub(super) me: ProcessId,
    /// Address of the process.
    pub(super) address: &'a str,
    /// Terms of the process.
    pub(super) terms: Terms,
    /// Number of logical servers that the process knows of.
    pub(super) servers: usize,
    /// Processes whose leases it saw end.
    pub(super) ended: &'a BTreeSet<ProcessId>,
    /// Versions that the others have carried out.
    pub(super) applied: &'a Applied,
    /// Whether its own lease is valid by its own clock.
    pub(super) is_fresh: bool,
    /// Whether it has been in the map for long enough to get servers.
    pub(super) is_settled: bool,
    /// Intended end of its service.
    pub(super) departure: Departure,
    /// Whether it runs any server, or is about to.
    pub(super) runs: bool,
}

/// Intended end of a process' service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Departure {
    /// It stays.
    No,
    /// It gives its servers away.
    Drain,
    /// It gives its servers away, then leaves the map.
    Leave,
}

impl Situation<'_> {
    /// Returns the map that the process creates next, if any.
    pub(super) fn proposal(&self) -> Option<ClusterMap> {
        if !self.is_fresh {
            return None;
        }
        match self.map.processes.get(&self.me) {
            None => self.entry(),
            Some(own) => self.removal().or_else(|| self.own_change(own.state)),
        }
    }

    /// Returns the map with this process.
    fn entry(&self) -> Option<ClusterMap> {
        if self.departure == Departure::Leave || self.runs {
            return None;
        }
        match self.map.at_address(self.address, self.me) {
            None => Some(self.map.joined(self.me, self.address, self.terms, self.servers)),
            Some(other) if self.ended.contains(&other) => {
                Some(self.map.replaced(other, self.me, self.terms))
            }
            Some(_) => None,
        }
    }

    /// Returns the map without the processes that have ended.
    fn removal(&self) -> Option<ClusterMap> {
        let is_known = |one: &ProcessId| *one != self.me && self.map.processes.contains_key(one);
        let ended = BTreeSet::from_iter(self.ended.iter().copied().filter(is_known));
        (!ended.is_empty()).then(|| self.map.without(&ended, self.applied))
    }

    fn own_change(&self, state: ProcessState) -> Option<ClusterMap> {
        let me = BTreeSet::from([self.me]);
        match (self.departure, state) {
            (Departure::Leave, ProcessState::Draining) => {
                (!self.runs).then(|| self.map.without(&me, self.applied))
            }
            (
                Departure::Drain | Departure::Leave,
                ProcessState::Joining | ProcessState::Serving,
            ) => Some(self.map.draining(&me, self.applied)),
            (_, ProcessState::Joining) => self.is_settled.then(|| self.map.promoted(self.applied)),
            _ if self.map.servers.len() < self.servers || self.map.is_unbalanced() => {
                Some(self.map.with_servers(self.servers, self.applied))
            }
            _ => None,
        }
    }
}

/// Returns whether all processes that ran a server before have stopped it, as far as one can know.
pub(super) fn is_released(
    map: &ClusterMap,
    server: &Assignment,
    applied: &Applied,
    has_ended: impl Fn(ProcessId) -> bool,
) -> bool {
    let has_stopped = |one: &ProcessId| {
        let carried_out = applied.get(one).is_some_and(|version| *version >= server.since);
        carried_out || !map.processes.contains_key(one) || has_ended(*one)
    };
    server.before.iter().all(has_stopped)
}

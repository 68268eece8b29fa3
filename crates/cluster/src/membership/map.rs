//! The cluster map: which processes there are, and which of them should run each logical server.
//!
//! A map is an immutable version. Each method here returns the version that follows, with the
//! servers spread evenly by few moves. Nothing here does I/O or reads a clock.

use super::assignment::assign;
use canopy_partition::ServerId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Most processes of a cluster.
pub const PROCESSES_MAX: usize = 4096;

/// Most logical servers of a cluster.
pub const SERVERS_MAX: usize = 4096;

/// Most bytes of a process' address.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// A process, from its joining until it is missing in a map. It is random, and never used again: a
/// process that was removed from the map joins with another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcessId(pub u64);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Phase of a process in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProcessState {
    /// It renews its lease, and has no servers yet.
    Joining,
    /// It gets its share of the servers.
    Serving,
    /// It gets no servers any more.
    Draining,
}

/// A process in a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MapProcess {
    /// Address by which clients and other processes reach it.
    pub address: String,
    /// Its phase.
    pub state: ProcessState,
    /// Length of its lease in milliseconds. Living processes have one length.
    pub lease_ms: u64,
    /// Whether it has a certificate, by which others know it. All living processes have one, or none.
    pub has_certificate: bool,
}

/// Properties in which all living processes of a cluster agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Length of the lease.
    pub(crate) lease: Duration,
    /// Whether they have certificates.
    pub(crate) has_certificate: bool,
}

impl From<Duration> for Terms {
    /// Returns the terms of processes without certificates.
    fn from(lease: Duration) -> Self {
        Terms { lease, has_certificate: false }
    }
}

impl MapProcess {
    /// Returns the length of its lease.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    fn agrees(&self, terms: Terms) -> bool {
        (self.lease_ms, self.has_certificate) == (milliseconds(terms.lease), terms.has_certificate)
    }
}

/// The process of one logical server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// The process that should run the server.
    pub process: Option<ProcessId>,
    /// Version of the map that gave the server to this process.
    pub since: u64,
    /// Processes that ran it before, and may not have stopped it yet.
    pub before: Vec<ProcessId>,
}

/// One version of the cluster map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterMap {
    /// Number of this version, counted from 1. The map without processes that precedes it is 0.
    pub version: u64,
    /// All processes.
    pub processes: BTreeMap<ProcessId, MapProcess>,
    /// Assignments of the logical servers, by their numbers.
    pub servers: Vec<Assignment>,
}

/// Newest version of the map that each process has carried out.
pub(crate) type Applied = BTreeMap<ProcessId, u64>;

/// Returns the length of a lease as maps have it.
fn milliseconds(lease: Duration) -> u64 {
    u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)
}

impl ClusterMap {
    /// Returns the process that should run a server.
    pub fn process_of(&self, server: ServerId) -> Option<ProcessId> {
        self.servers.get(server.0 as usize)?.process
    }

    /// Returns the servers that a process should run, in order.
    pub fn servers_of(&self, process: ProcessId) -> impl Iterator<Item = ServerId> {
        let numbered = (0..).map(ServerId).zip(&self.servers);
        numbered.filter(move |(_, one)| one.process == Some(process)).map(|(server, _)| server)
    }

    /// Returns whether a process is in the map, in this phase.
    pub fn is(&self, process: ProcessId, state: ProcessState) -> bool {
        self.processes.get(&process).is_some_and(|one| one.state == state)
    }

    /// Returns a process other than `but` that has this address.
    pub(crate) fn at_address(&self, address: &str, but: ProcessId) -> Option<ProcessId> {
        let at = |(id, one): &(&ProcessId, &MapProcess)| **id != but && one.address == address;
        self.processes.iter().find(at).map(|(id, _)| *id)
    }

    /// Returns a process with other terms, of those chosen.
    pub(crate) fn with_other_terms(
        &self,
        terms: Terms,
        is_chosen: impl Fn(ProcessId, &MapProcess) -> bool,
    ) -> Option<ProcessId> {
        let is_other =
            |(id, one): &(&ProcessId, &MapProcess)| !one.agrees(terms) && is_chosen(**id, one);
        self.processes.iter().find(is_other).map(|(id, _)| *id)
    }

    /// Returns the next version, with one more process that is joining, and at least so many servers.
    pub(crate) fn joined(
        &self,
        process: ProcessId,
        address: &str,
        terms: impl Into<Terms>,
        servers: usize,
    ) -> Self {
        let mut next = self.next();
        let Terms { lease, has_certificate } = terms.into();
        let (address, state) = (address.to_owned(), ProcessState::Joining);
        let one = MapProcess { address, state, lease_ms: milliseconds(lease), has_certificate };
        next.processes.insert(process, one);
        next.servers.resize(servers.max(self.servers.len()), Assignment::default());
        next
    }

    /// Returns the next version, in which `process` takes the place of another one, which has ended.
    /// No other server moves.
    pub(crate) fn replaced(
        &self,
        ended: ProcessId,
        process: ProcessId,
        terms: impl Into<Terms>,
    ) -> Self {
        let mut next = self.next();
        let Some(mut place) = next.processes.remove(&ended) else { return next };
        let Terms { lease, has_certificate } = terms.into();
        (place.lease_ms, place.has_certificate) = (milliseconds(lease), has_certificate);
        // The drain was that of the process before.
        if place.state == ProcessState::Draining {
            place.state = ProcessState::Joining;
        }
        next.processes.insert(process, place);
        let owners = next.servers.iter().map(|one| match one.process {
            Some(owner) if owner == ended => Some(process),
            owner => owner,
        });
        let owners = owners.collect();
        next.move_to(owners, &Applied::new());
        next
    }

    /// Returns the next version, in which all processes that were joining serve.
    pub(crate) fn promoted(&self, applied: &Applied) -> Self {
        let mut next = self.next();
        for process in next.processes.values_mut() {
            if process.state == ProcessState::Joining {
                process.state = ProcessState::Serving;
            }
        }
        next.balanced(applied)
    }

    /// Returns the next version without some processes.
    pub(crate) fn without(&self, ended: &BTreeSet<ProcessId>, applied: &Applied) -> Self {
        let mut next = self.next();
        next.processes.retain(|process, _| !ended.contains(process));
        next.balanced(applied)
    }

    /// Returns the next version, in which some processes have no servers.
    pub(crate) fn draining(&self, drained: &BTreeSet<ProcessId>, applied: &Applied) -> Self {
        let mut next = self.next();
        for (_, process) in next.processes.iter_mut().filter(|(id, _)| drained.contains(id)) {
            process.state = ProcessState::Draining;
        }
        next.balanced(applied)
    }

    /// Returns the next version with at least so many servers, spread over the serving processes.
    pub(crate) fn with_servers(&self, servers: usize, applied: &Applied) -> Self {
        let mut next = self.next();
        next.servers.resize(servers.max(self.servers.len()), Assignment::default());
        next.balanced(applied)
    }

    /// Returns whether the servers are not spread as they should be.
    pub(crate) fn is_unbalanced(&self) -> bool {
        let owners = Vec::from_iter(self.servers.iter().map(|one| one.process));
        assign(&owners, &self.serving()) != owners
    }

    /// Returns the processes that get servers.
    pub(crate) fn serving(&self) -> BTreeSet<ProcessId> {
        let serving = self.processes.iter().filter(|(_, one)| one.state == ProcessState::Serving);
        serving.map(|(id, _)| *id).collect()
    }

    fn next(&self) -> Self {
        ClusterMap { version: self.version + 1, ..self.clone() }
    }

    fn balanced(mut self, applied: &Applied) -> Self {
        let owners = Vec::from_iter(self.servers.iter().map(|one| one.process));
        self.move_to(assign(&owners, &self.serving()), applied);
        self
    }

    /// Gives each server to its owner. A process that had it before is remembered until it has ended
    /// or has carried out a version that took the server away.
    fn move_to(&mut self, owners: Vec<Option<ProcessId>>, applied: &Applied) {
        for (server, owner) in self.servers.iter_mut().zip(owners) {
            if server.process != owner {
                let since = server.since;
                let has_stopped = |one: &ProcessId| applied.get(one).is_some_and(|v| *v >= since);
                server.before.retain(|one| !has_stopped(one) && Some(*one) != owner);
                server.before.extend(server.process);
                (server.process, server.since) = (owner, self.version);
            }
            server.before.retain(|one| self.processes.contains_key(one));
        }
    }
}

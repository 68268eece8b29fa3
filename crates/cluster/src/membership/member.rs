//! The state of one process' membership, and its next actions. No I/O, no clock: moments come from
//! outside, as times since any fixed moment by a clock that never goes back.

use super::leases::{KEPT, Observations, Renewal, Timing};
use super::map::{ClusterMap, MapProcess, ProcessId, ProcessState, Terms};
use super::rules::{Departure, Situation, is_released};
use canopy_partition::ServerId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A process that was removed wrongly so often waits longest before it joins again.
const REJOINS_MAX: u32 = 6;

/// A process that was in the map for so many leases is reliable again.
const RELIABLE_LEASES: u32 = 20;

/// The longest pause between two attempts to start a server.
const START_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Something that a process does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Create this version of the map.
    Commit(ClusterMap),
    /// Start a server; report by [`Member::started`].
    Start(ServerId),
    /// Stop a server; report by [`Member::stopped`].
    Stop(ServerId),
    /// Remove these renewals from storage.
    Remove(Vec<Renewal>),
}

/// The end of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has left, as it was asked to.
    Left,
    /// A living process has its address.
    AddressTaken(ProcessId),
    /// A living process has other terms.
    OtherTerms(ProcessId),
}

/// Findings of one look at storage.
pub(super) struct Look {
    /// Moments when it began and ended.
    pub(super) time: (Duration, Duration),
    /// The newest map, if it is newer than the known one.
    pub(super) map: Option<ClusterMap>,
    /// All renewals.
    pub(super) renewals: Vec<Renewal>,
    /// An id that no process has yet.
    pub(super) fresh: ProcessId,
}

/// State of a server in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// The last pause between attempts.
    Starting {
        pause: Duration,
    },
    Running,
    /// It was fenced, or failed.
    Lost,
    Stopping,
    Failed {
        retry: Duration,
        pause: Duration,
    },
}

/// State of a process' membership.
pub(super) struct Member {
    terms: Terms,
    timing: Timing,
    address: String,
    servers: usize,
    me: ProcessId,
    map: Arc<ClusterMap>,
    observations: Observations,
    /// Moments of the last look that succeeded.
    looked: Option<(Duration, Duration)>,
    is_new_look: bool,
    next_look: Duration,
    /// Moment since which this process is in the map.
    inside: Option<Duration>,
    rejoins: u32,
    rejoin: Duration,
    lease: OwnLease,
    runs: BTreeMap<ServerId, Run>,
    /// Version that gave a server to this process, and when that was seen.
    gained: BTreeMap<ServerId, (u64, Duration)>,
    /// Beginning of the last look at a map that gave a server to this process.
    confirmed: BTreeMap<ServerId, Duration>,
    /// Moments when servers stop that the map gives to others.
    moved: BTreeMap<ServerId, Duration>,
    /// Moments when servers were lost.
    lost: BTreeMap<ServerId, Duration>,
    departure: Departure,
    end: Option<End>,
    /// Renewals in storage that can go.
    garbage: Vec<Renewal>,
}

/// A process' own lease.
#[derive(Default)]
struct OwnLease {
    number: u64,
    /// Moment when the last renewal that succeeded began.
    renewed: Option<Duration>,
    next: Duration,
    /// Newest version of the map that is carried out.
    carried_out: u64,
    /// The version that the last renewal reported as carried out.
    reported: u64,
    /// The version that a renewal was hurried for.
    reporting: u64,
}

impl Member {
    /// Returns a process that wants to join, at a moment.
    pub(super) fn new(
        me: ProcessId,
        address: &str,
        servers: usize,
        terms: impl Into<Terms>,
        now: Duration,
    ) -> Self {
        let terms = terms.into();
        Member {
            terms,
            timing: Timing { lease: terms.lease },
            address: address.to_owned(),
            servers,
            me,
            map: Arc::default(),
            observations: Observations::default(),
            looked: None,
            is_new_look: false,
            next_look: now,
            inside: None,
            rejoins: 0,
            rejoin: now,
            lease: OwnLease { next: now, ..OwnLease::default() },
            runs: BTreeMap::new(),
            gained: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            moved: BTreeMap::new(),
            lost: BTreeMap::new(),
            departure: Departure::No,
            end: None,
            garbage: Vec::new(),
        }
    }

    pub(super) fn me(&self) -> ProcessId {
        self.me
    }

    pub(super) fn map(&self) -> &Arc<ClusterMap> {
        &self.map
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// Returns the moment when the newest renewal of a process was found here, or was made.
    pub(super) fn found(&self, process: ProcessId) -> Option<Duration> {
        match process == self.me {
            true => self.lease.renewed,
            false => self.observations.found(process),
        }
    }

    /// Returns the newest version of the map that a process is known to have carried out.
    pub(super) fn carried_out(&self, process: ProcessId) -> u64 {
        match process == self.me {
            true => self.lease.carried_out,
            false => self.observations.applied().get(&process).copied().unwrap_or(0),
        }
    }

    /// Returns whether this process is in the newest map that it knows.
    pub(super) fn is_inside(&self) -> bool {
        self.map.processes.contains_key(&self.me)
    }

    /// Returns whether every server that the map gives to this process runs, and no other one.
    pub(super) fn is_carried_out(&self) -> bool {
        let running = self.runs.iter().filter(|(_, run)| **run == Run::Running);
        running.map(|(server, _)| *server).eq(self.map.servers_of(self.me))
            && self.runs.values().all(|run| *run == Run::Running)
    }

    /// Returns whether no server runs here, or is starting or stopping.
    pub(super) fn is_idle(&self) -> bool {
        self.runs.values().all(|run| matches!(run, Run::Failed { .. }))
    }

    /// Returns whether this process' lease is valid by its own clock, and its map was the newest one
    /// within the length of a lease. When it is not, others may run its servers.
    pub(super) fn is_fresh(&self, now: Duration) -> bool {
        let is_recent = |at: Duration| now < at + self.timing.lease;
        self.lease.renewed.is_some_and(is_recent)
            && self.looked.is_some_and(|(began, _)| is_recent(began))
    }

    /// Returns whether this process may answer for a server: it runs here, and no other process runs it,
    /// if clocks run at about one speed. Another process that the map gives the server to waits for
    /// longer than a lease after that map, or until this one has stopped it.
    pub(super) fn may_answer(&self, server: ServerId, now: Duration) -> bool {
        let is_recent = |at: &Duration| now < *at + self.timing.lease;
        self.runs.get(&server) == Some(&Run::Running)
            && self.lease.renewed.as_ref().is_some_and(is_recent)
            && self.confirmed.get(&server).is_some_and(is_recent)
    }

    /// Has this process give its servers away, and leave the map if it is to.
    pub(super) fn depart(&mut self, departure: Departure, now: Duration) {
        self.departure = self.departure.max(departure);
        self.next_look = now;
    }

    /// Has the next look take place now if this version is new.
    pub(super) fn heard_of(&mut self, version: u64, now: Duration) {
        if version > self.map.version {
            self.next_look = now;
        }
    }

    /// Returns the moment of the next renewal; nothing if there is none. A process that cannot look at
    /// the map for long lets its lease end, so that others take over.
    pub(super) fn next_renewal(&self, now: Duration) -> Option<Duration> {
        let looks = self.looked.is_none_or(|(_, ended)| now < ended + self.timing.lease * 3);
        (self.end.is_none() && looks).then_some(self.lease.next)
    }

    /// Begins a renewal.
    pub(super) fn renew(&mut self, now: Duration) -> Renewal {
        self.lease.number += 1;
        self.lease.next = now + self.timing.renew_every();
        let applied = self.lease.carried_out;
        Renewal { process: self.me, number: self.lease.number, applied }
    }

    /// Notes the outcome of a renewal that began at a moment.
    pub(super) fn renewed_by(&mut self, renewal: Renewal, began: Duration, is_done: bool) {
        if renewal.process != self.me {
            return;
        }
        match is_done {
            true => {
                self.lease.renewed = self.lease.renewed.max(Some(began));
                self.lease.reported = self.lease.reported.max(renewal.applied);
            }
            // The next attempt has a number of its own: this one may yet appear.
            false => {
                self.lease.next = self.lease.next.min(began + self.timing.lease / 10);
            }
        }
    }

    /// Returns the moment of the next look at storage.
    pub(super) fn next_look(&self) -> Duration {
        self.next_look
    }

    /// Returns the moment of the next look or stop.
    pub(super) fn next_action(&self) -> Duration {
        let running = |server: &ServerId| self.runs.get(server) == Some(&Run::Running);
        let stops = self.moved.iter().filter(|(server, _)| running(server)).map(|(_, at)| *at);
        stops.fold(self.next_look, Duration::min)
    }

    /// Notes that a look failed.
    pub(super) fn look_failed(&mut self, now: Duration) {
        self.next_look = now + self.timing.look_every();
    }

    /// Notes what a look found.
    pub(super) fn look(&mut self, look: Look) {
        let (began, ended) = look.time;
        (self.looked, self.is_new_look) = (Some(look.time), true);
        if let Some(map) = look.map.filter(|map| map.version > self.map.version) {
            self.map = Arc::new(map);
            self.note_map(ended, look.fresh);
        }
        self.confirmed.extend(self.map.servers_of(self.me).map(|server| (server, began)));
        let expected = self.map.processes.keys().copied();
        self.observations.look(self.timing, look.time, &look.renewals, expected);
        self.next_look = match self.is_waiting() {
            true => ended + self.timing.look_often(),
            false => began + self.timing.look_every(),
        };
        self.garbage = self.garbage_of(&look.renewals);
        self.consider_end();
    }

    /// Takes note of a map that is new here.
    fn note_map(&mut self, now: Duration, fresh: ProcessId) {
        match self.map.processes.get(&self.me) {
            Some(own) => {
                self.inside.get_or_insert(now);
                // A drain that others asked for holds, whatever happens until this process ends.
                if own.state == ProcessState::Draining {
                    self.departure = self.departure.max(Departure::Drain);
                }
            }
            None => self.note_missing(now, fresh),
        }
        let (map, me) = (self.map.clone(), self.me);
        let gained = map.servers_of(me).map(|server| {
            let since = map.servers[server.0 as usize].since;
            let known = self.gained.get(&server).filter(|(version, _)| *version == since);
            (server, known.copied().unwrap_or((since, now)))
        });
        self.gained = gained.collect();
        self.note_moved(now);
    }

    /// Notes when servers stop that this process runs for others. They stop at once if nobody waits for
    /// them: after a take-over, or if no process gets them.
    fn note_moved(&mut self, now: Duration) {
        let (map, is_inside) = (self.map.clone(), self.is_inside());
        let moved = |server: &&ServerId| map.process_of(**server) != Some(self.me);
        let moved = self.runs.keys().filter(moved).map(|server| {
            let stop = match is_inside && map.process_of(*server).is_some() {
                true => now + self.timing.stop_after(),
                false => now,
            };
            (*server, self.moved.get(server).copied().unwrap_or(stop).min(stop))
        });
        self.moved = moved.collect();
    }

    /// Takes another id if this process was in the map and is not any more.
    fn note_missing(&mut self, now: Duration, fresh: ProcessId) {
        let Some(inside) = self.inside.take() else { return };
        if self.departure == Departure::Leave {
            return;
        }
        if now >= inside + self.timing.lease * RELIABLE_LEASES {
            self.rejoins = 0;
        }
        self.rejoin = now + self.timing.lease * (1 << self.rejoins);
        self.rejoins = (self.rejoins + 1).min(REJOINS_MAX);
        tracing::warn!("{} was removed from the cluster map; joins again as {fresh}", self.me);
        self.me = fresh;
        self.lease = OwnLease { next: now, ..OwnLease::default() };
        self.observations.clear();
    }

    /// Ends the membership if it has come to its end.
    fn consider_end(&mut self) {
        if self.is_inside() || self.end.is_some() {
            return;
        }
        let other = self.map.at_address(&self.address, self.me);
        // Two renewals were made since this process looks on: the other one lives.
        let lives = |one: &ProcessId| self.observations.of(*one).is_some_and(|one| one.news >= 2);
        let with_other_terms = self.map.with_other_terms(self.terms, |one, _| lives(&one));
        if let Some(other) = other.filter(lives) {
            self.end = Some(End::AddressTaken(other));
        } else if let Some(other) = with_other_terms {
            self.end = Some(End::OtherTerms(other));
        } else if self.departure == Departure::Leave && self.is_idle() {
            self.end = Some(End::Left);
        }
    }

    /// Returns the renewals in storage that nobody needs: older ones of this process; and those of
    /// processes that ended long ago, which the first process of the map removes.
    fn garbage_of(&self, renewals: &[Renewal]) -> Vec<Renewal> {
        let is_first = self.map.processes.keys().next() == Some(&self.me);
        let strays = self.observations.strays(self.timing).filter(|_| is_first);
        let strays =
            BTreeSet::from_iter(strays.filter(|process| !self.map.processes.contains_key(process)));
        let is_old = |one: &&Renewal| {
            one.process == self.me && one.number + KEPT <= self.lease.number
                || strays.contains(&one.process)
        };
        renewals.iter().filter(is_old).copied().collect()
    }

    /// Returns the next actions.
    pub(super) fn decide(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        self.stop_servers(now, &mut actions);
        self.start_servers(now, &mut actions);
        self.note_carried_out(now);
        self.consider_end();
        if std::mem::take(&mut self.is_new_look) && self.end.is_none() {
            actions.extend(self.proposal(now).map(Action::Commit));
        }
        if !self.garbage.is_empty() {
            actions.push(Action::Remove(std::mem::take(&mut self.garbage)));
        }
        actions
    }

    fn stop_servers(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let (map, me, has_ended) = (&self.map, self.me, self.end.is_some());
        let is_own = |server: &ServerId| !has_ended && map.process_of(*server) == Some(me);
        self.runs.retain(|server, run| !matches!(run, Run::Failed { .. }) || is_own(server));
        for (server, run) in &mut self.runs {
            let is_due = has_ended || self.moved.get(server).is_none_or(|at| now >= *at);
            if *run == Run::Lost || *run == Run::Running && !is_own(server) && is_due {
                *run = Run::Stopping;
                self.confirmed.remove(server);
                actions.push(Action::Stop(*server));
            }
        }
    }

    fn start_servers(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let Some((began, _)) = self.looked.filter(|_| self.is_fresh(now) && self.end.is_none())
        else {
            return;
        };
        let is_startable = |server: &ServerId| match self.runs.get(server) {
            None => self.lost.get(server).is_none_or(|lost| began > *lost),
            Some(Run::Failed { retry, .. }) => now >= *retry,
            Some(_) => false,
        };
        let servers = self.map.servers_of(self.me);
        let servers = servers.filter(|one| is_startable(one) && self.is_released(*one, now));
        for server in Vec::from_iter(servers) {
            let pause = match self.runs.get(&server) {
                Some(Run::Failed { pause, .. }) => *pause,
                _ => Duration::ZERO,
            };
            self.lost.remove(&server);
            self.runs.insert(server, Run::Starting { pause });
            actions.push(Action::Start(server));
        }
    }

    /// Returns whether no other process runs a server, or has had time enough to stop it.
    fn is_released(&self, server: ServerId, now: Duration) -> bool {
        let Some(given) = self.map.servers.get(server.0 as usize) else { return false };
        let gained = self.gained.get(&server).map(|(_, at)| *at);
        let has_ended = |process| self.observations.has_ended(self.timing, process);
        gained.is_some_and(|at| now >= at + self.timing.ended_after())
            || is_released(&self.map, given, &self.observations.applied(), has_ended)
    }

    /// Returns whether another process has yet to stop a server that the map gives to this one.
    fn is_waiting(&self) -> bool {
        self.map.servers_of(self.me).any(|server| !self.runs.contains_key(&server))
    }

    /// Notes which version is carried out, and has a renewal report it at once if others wait for it.
    fn note_carried_out(&mut self, now: Duration) {
        let map = &self.map;
        if !self.runs.keys().all(|server| map.process_of(*server) == Some(self.me)) {
            return;
        }
        self.lease.carried_out = map.version;
        let is_awaited = map
            .servers
            .iter()
            .any(|server| server.since > self.lease.reported && server.before.contains(&self.me));
        if is_awaited && self.lease.reporting < map.version {
            self.lease.reporting = map.version;
            self.lease.next = now;
        }
    }

    /// Returns whether a process of the map may live that has other terms.
    fn awaits_other_terms(&self) -> bool {
        let own = self.timing.lease;
        let may_live = |process, one: &MapProcess| {
            let timing = Timing { lease: own.max(one.lease()) };
            !self.observations.has_ended(timing, process)
        };
        self.map.with_other_terms(self.terms, may_live).is_some()
    }

    fn proposal(&self, now: Duration) -> Option<ClusterMap> {
        if !self.is_inside() && (now < self.rejoin || self.awaits_other_terms()) {
            return None;
        }
        let processes = self.map.processes.keys().copied();
        let ended = processes.filter(|one| self.observations.has_ended(self.timing, *one));
        let situation = Situation {
            map: &self.map,
            me: self.me,
            address: &self.address,
            terms: self.terms,
            servers: self.servers,
            ended: &ended.collect(),
            applied: &self.observations.applied(),
            is_fresh: self.is_fresh(now),
            is_settled: self.inside.is_some_and(|at| now >= at + self.timing.look_every()),
            departure: self.departure,
            runs: !self.is_idle(),
        };
        situation.proposal()
    }

    /// Notes that this process tried to create a version of the map.
    pub(super) fn committed(&mut self, is_known: bool, now: Duration) {
        if is_known {
            self.next_look = now;
        }
    }

    /// Notes that a server has started, or failed to.
    pub(super) fn started(&mut self, server: ServerId, is_done: bool, now: Duration) {
        let Some(Run::Starting { pause }) = self.runs.get(&server).copied() else { return };
        let run = match is_done {
            true => Run::Running,
            false => {
                let pause = (pause * 2).clamp(self.timing.look_every(), START_PAUSE_MAX);
                Run::Failed { retry: now + pause, pause }
            }
        };
        self.runs.insert(server, run);
    }

    /// Notes that a server has stopped.
    pub(super) fn stopped(&mut self, server: ServerId, now: Duration) {
        if self.runs.get(&server) == Some(&Run::Stopping) {
            self.runs.remove(&server);
            if self.departure != Departure::No {
                self.next_look = now;
            }
        }
    }

    /// Notes that a running server was fenced or has failed: it is stopped, and starts again if the map
    /// still gives it to this process.
    pub(super) fn lost(&mut self, server: ServerId, now: Duration) {
        if let Some(run) = self.runs.get_mut(&server).filter(|run| **run == Run::Running) {
            *run = Run::Lost;
            self.lost.insert(server, now);
            self.next_look = now;
        }
    }
}

#[cfg(test)]
mod tests;

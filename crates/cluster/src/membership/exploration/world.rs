//! A storage with maps and tables, processes that use it, and their steps.

use super::super::map::{Applied, ClusterMap, ProcessId, ProcessState};
use super::super::rules::{Departure, Situation, is_released};
use canopy_store::landmarks::is_landmark;
use std::collections::BTreeSet;

/// A rule, which can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A table that another process has opened takes no writes (the engine's).
    Fence,
    /// A map counts only if no newer one is found after it was read.
    ConfirmAfterRead,
    /// After a creation, the newest map is read, whatever the creation returned.
    OnlyNewestCounts,
    /// A version is created after the one that it follows from.
    FollowsTheKnown,
    /// A process decides once on a change, and looks again before it decides on another one.
    LookBetween,
    /// The newest map is never removed.
    KeepNewest,
    /// Processes that have ended are removed from the map.
    RemoveEnded,
    /// A process that is missing in the map joins again.
    JoinAgain,
    /// Processes that are joining get servers.
    Promote,
    /// A server that the map gives to others is stopped.
    StopOthers,
    /// A server waits until the process that ran it before has stopped it.
    WaitForRelease,
    /// A server that was fenced starts again.
    RestartFenced,
    /// It does so only after another look.
    LookBeforeRestart,
    /// A process that was replaced at its address is removed.
    ReplaceAtAddress,
}

/// A process.
#[derive(Clone, Debug, Hash)]
pub struct Process {
    pub is_alive: bool,
    pub me: ProcessId,
    pub address: &'static str,
    /// Whether it has seen itself in a map.
    pub was_in: bool,
    pub known: ClusterMap,
    /// Version that it reads, and what it read.
    pub reading: Option<(u64, Option<ClusterMap>)>,
    /// Map that it is about to create.
    pub pending: Option<ClusterMap>,
    /// Epochs of the servers that it runs.
    pub runs: Vec<Option<u8>>,
    /// Whether it has looked since it was fenced.
    pub has_looked: bool,
    /// Whether it has looked since it decided on a change of the map.
    pub is_new_look: bool,
    pub departure: Departure,
}

/// Things that may yet go wrong.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub struct Budget {
    /// Leases of living processes that an observer takes for ended.
    pub wrong: u8,
    pub deaths: u8,
    /// Creations that fail, and take effect later or never.
    pub failures: u8,
    pub departures: u8,
    /// Starts of servers that are still running elsewhere, after a wait.
    pub impatient: u8,
    /// Changes of the map as long as things go wrong.
    pub changes: u8,
}

#[derive(Clone, Debug, Hash)]
pub struct World {
    /// Maps by their versions, from 1; nothing where one was removed.
    pub maps: Vec<Option<ClusterMap>>,
    /// The first map of each version.
    pub first: Vec<ClusterMap>,
    pub late: Vec<ClusterMap>,
    pub epochs: Vec<u8>,
    pub processes: Vec<Process>,
    pub budget: Budget,
    pub next_id: u64,
    /// Whether looks at the map are three steps, and maps are removed.
    pub reads_in_steps: bool,
    /// Whether nothing can go wrong: then no server is fenced while it runs.
    pub is_gentle: bool,
    /// Once nothing goes wrong any more: changes of the map and starts of servers since.
    pub calm: Option<(u8, u8)>,
}

/// Without a fault, so few changes of the map and so few starts lead to rest.
const CHANGES_MAX: u8 = 8;
const STARTS_MAX: u8 = 24;

pub const TWICE: &str = "two processes write to one server";
pub const TWO_MAPS: &str = "a process acts on a map that is not the first of its version";
pub const LOST_UPDATE: &str = "a map does not follow from the one before";
pub const FENCED: &str = "a planned move fences a server that runs";
pub const RESTLESS: &str = "living processes do not run each server once";
pub const FLAPS: &str = "processes that are left alone do not come to rest";

impl World {
    fn newest(&self) -> u64 {
        self.maps.iter().rposition(Option::is_some).map_or(0, |at| at as u64 + 1)
    }

    fn map(&self, version: u64) -> Option<&ClusterMap> {
        self.maps.get(version.checked_sub(1)? as usize)?.as_ref()
    }

    /// Creates a map, if there is none of its version.
    fn create(&mut self, map: &ClusterMap) {
        let at = map.version as usize - 1;
        if self.maps.len() <= at {
            self.maps.resize(at + 1, None);
        }
        if self.maps[at].is_none() {
            self.maps[at] = Some(map.clone());
            if self.first.len() == at {
                self.first.push(map.clone());
            }
            if let Some((changes, _)) = &mut self.calm {
                *changes += 1;
            }
        }
    }

    /// Adds every world that one step leads to.
    pub fn step(&self, without: Option<Rule>, next: &mut Vec<World>) {
        let has = |rule| without != Some(rule);
        for at in (0..self.processes.len()).filter(|at| self.processes[*at].is_alive) {
            self.look(at, has(Rule::ConfirmAfterRead), next);
            self.propose(at, &has, next);
            self.create_pending(at, &has, next);
            self.carry_out(at, &has, next);
            self.notice(at, &has, next);
            self.fail(at, next);
        }
        for at in 0..self.late.len() {
            let mut world = self.clone();
            let map = world.late.remove(at);
            world.create(&map);
            next.push(world);
        }
        self.remove_old(has(Rule::KeepNewest), next);
        if self.calm.is_none() {
            next.push(World { calm: Some((0, 0)), budget: Budget::default(), ..self.clone() });
        }
    }

    fn with(&self, at: usize, change: impl FnOnce(&mut Process)) -> World {
        let mut world = self.clone();
        change(&mut world.processes[at]);
        world
    }

    /// Steps of reading the newest map.
    fn look(&self, at: usize, confirms: bool, next: &mut Vec<World>) {
        let process = &self.processes[at];
        let newest = self.newest();
        match &process.reading {
            None if newest > process.known.version && self.reads_in_steps => {
                next.push(self.with(at, |process| process.reading = Some((newest, None))));
            }
            None if newest > process.known.version => {
                let map = self.map(newest).cloned();
                next.push(self.with(at, |process| process.learn(map)));
            }
            None if !process.has_looked || !process.is_new_look => {
                next.push(self.with(at, |process| {
                    (process.has_looked, process.is_new_look) = (true, true);
                }));
            }
            None => {}
            Some((version, None)) => {
                let (version, map) = (*version, self.map(*version).cloned());
                next.push(self.with(at, |process| {
                    process.reading = map.map(|map| (version, Some(map)));
                }));
            }
            Some((version, Some(map))) => {
                let is_newest = newest == *version || !confirms;
                let map = is_newest.then(|| map.clone());
                next.push(self.with(at, |process| {
                    process.reading = None;
                    process.learn(map);
                }));
            }
        }
    }

    /// A process that is missing takes another id, or decides on a change of the map.
    fn propose(&self, at: usize, has: &impl Fn(Rule) -> bool, next: &mut Vec<World>) {
        let process = &self.processes[at];
        let may_decide = process.is_new_look || !has(Rule::LookBetween);
        if process.pending.is_some() || process.reading.is_some() || !may_decide {
            return;
        }
        let is_missing = process.was_in && !process.known.processes.contains_key(&process.me);
        if is_missing {
            let runs = process.runs.iter().any(Option::is_some);
            if !runs && has(Rule::JoinAgain) && process.departure != Departure::Leave {
                let mut world = self.clone();
                world.next_id += 1;
                let id = ProcessId(world.next_id);
                (world.processes[at].me, world.processes[at].was_in) = (id, false);
                next.push(world);
            }
            return;
        }
        let lives = |id: &ProcessId| self.lives(*id);
        let others = process.known.processes.keys().filter(|id| **id != process.me);
        let (living, dead): (Vec<_>, Vec<_>) = others.copied().partition(lives);
        let mut views = vec![(BTreeSet::from_iter(dead), 0)];
        if self.budget.wrong > 0 {
            views.extend(living.into_iter().map(|id| (BTreeSet::from([id]), 1)));
        }
        for (ended, wrong) in views {
            let is_calm = self.calm.is_some();
            let proposal = process
                .proposal(&ended, &self.applied(), has)
                .filter(|_| is_calm || self.budget.changes > 0);
            if let Some(map) = proposal {
                let mut world = self.with(at, |process| {
                    (process.pending, process.is_new_look) = (Some(map), false);
                });
                world.budget.wrong -= wrong;
                world.budget.changes = world.budget.changes.saturating_sub(1);
                next.push(world);
            }
        }
    }

    /// A process creates the map that it decided on.
    fn create_pending(&self, at: usize, has: &impl Fn(Rule) -> bool, next: &mut Vec<World>) {
        let Some(mut map) = self.processes[at].pending.clone() else { return };
        if !has(Rule::FollowsTheKnown) {
            map.version = self.newest() + 1;
        }
        let created = self.with(at, |process| {
            process.pending = None;
            if !has(Rule::OnlyNewestCounts) {
                process.learn(Some(map.clone()));
            }
        });
        if self.budget.failures > 0 {
            let mut failed = created.clone();
            failed.budget.failures -= 1;
            failed.late.push(map.clone());
            next.push(failed);
        }
        let mut done = created;
        done.create(&map);
        next.push(done);
    }

    /// A process stops what the map gives to others, or starts what it gives to it.
    fn carry_out(&self, at: usize, has: &impl Fn(Rule) -> bool, next: &mut Vec<World>) {
        let process = &self.processes[at];
        let given = |server: usize| {
            process.known.servers.get(server).and_then(|one| one.process) == Some(process.me)
        };
        let servers = 0..self.epochs.len();
        let mut world = self.clone();
        let stops = servers.clone().filter(|one| process.runs[*one].is_some() && !given(*one));
        for server in stops.filter(|_| has(Rule::StopOthers)) {
            world.processes[at].runs[server] = None;
        }
        let may_start = process.has_looked || !has(Rule::LookBeforeRestart);
        let gained = servers.filter(|one| process.runs[*one].is_none() && given(*one) && may_start);
        let applied = self.applied();
        let mut is_early = false;
        for server in gained {
            let given = &process.known.servers[server];
            let is_released = is_released(&process.known, given, &applied, |id| !self.lives(id));
            if has(Rule::WaitForRelease) && !is_released {
                match world.budget.impatient {
                    0 => continue,
                    _ => is_early = true,
                }
            }
            world.epochs[server] += 1;
            world.processes[at].runs[server] = Some(world.epochs[server]);
            if let Some((_, starts)) = &mut world.calm {
                *starts += 1;
            }
        }
        world.budget.impatient -= u8::from(is_early);
        if world.processes[at].runs != process.runs {
            next.push(world);
        }
    }

    fn lives(&self, id: ProcessId) -> bool {
        self.processes.iter().any(|one| one.is_alive && one.me == id)
    }

    /// Returns the versions that living processes have carried out, as their renewals say at once.
    fn applied(&self) -> Applied {
        let has_stopped = |one: &&Process| {
            let given = |server: usize| {
                one.known.servers.get(server).and_then(|given| given.process) == Some(one.me)
            };
            (0..one.runs.len()).all(|server| one.runs[server].is_none() || given(server))
        };
        let carried_out = self.processes.iter().filter(|one| one.is_alive).filter(has_stopped);
        carried_out.map(|one| (one.me, one.known.version)).collect()
    }

    /// A process notices that servers of it were fenced.
    fn notice(&self, at: usize, has: &impl Fn(Rule) -> bool, next: &mut Vec<World>) {
        let runs = &self.processes[at].runs;
        let is_fenced =
            |server: &usize| runs[*server].is_some_and(|own| own < self.epochs[*server]);
        let fenced = Vec::from_iter((0..runs.len()).filter(is_fenced));
        if !fenced.is_empty() && has(Rule::RestartFenced) {
            next.push(self.with(at, |process| {
                fenced.iter().for_each(|server| process.runs[*server] = None);
                process.has_looked = false;
            }));
        }
    }

    /// A process dies, or is asked to leave.
    fn fail(&self, at: usize, next: &mut Vec<World>) {
        if self.budget.deaths > 0 {
            let mut world = self.with(at, |process| {
                let (me, address) = (process.me, process.address);
                *process = Process::new(me, address, self.epochs.len());
                process.is_alive = false;
            });
            world.budget.deaths -= 1;
            next.push(world);
        }
        if self.budget.departures > 0 && self.processes[at].departure == Departure::No {
            let mut world = self.with(at, |process| process.departure = Departure::Leave);
            world.budget.departures -= 1;
            next.push(world);
        }
    }

    /// Somebody who knows the newest map removes those that nobody needs.
    fn remove_old(&self, keeps_newest: bool, next: &mut Vec<World>) {
        if !self.reads_in_steps {
            return;
        }
        let newest = self.newest();
        let mut world = self.clone();
        for (version, map) in (1..).zip(&mut world.maps) {
            let is_old = version < newest && !is_landmark(version, newest);
            if is_old || version == newest && !keeps_newest {
                *map = None;
            }
        }
        if world.maps != self.maps {
            next.push(world);
        }
    }

    /// Returns the property that does not hold.
    pub fn wrong(&self, without: Option<Rule>) -> Option<&'static str> {
        let fences = without != Some(Rule::Fence);
        let writes = |process: &&Process, server: usize| match process.runs[server] {
            Some(epoch) => process.is_alive && (!fences || epoch == self.epochs[server]),
            None => false,
        };
        let twice = |server| self.processes.iter().filter(|one| writes(one, server)).count() > 1;
        let is_fenced = |one: &Process| {
            one.runs
                .iter()
                .zip(&self.epochs)
                .any(|(own, epoch)| own.is_some_and(|own| own < *epoch))
        };
        let is_first = |map: &ClusterMap| {
            map.version == 0 || self.first.get(map.version as usize - 1) == Some(map)
        };
        let follows = |pair: &[ClusterMap]| {
            pair[1].version == pair[0].version + 1 && {
                let same = pair[1].servers.iter().zip(&pair[0].servers);
                // A server moved in this version, or is as it was.
                same.into_iter()
                    .all(|(new, old)| new.since == pair[1].version || new.since == old.since)
            }
        };
        match () {
            () if (0..self.epochs.len()).any(twice) => Some(TWICE),
            () if self.is_gentle && self.processes.iter().any(is_fenced) => Some(FENCED),
            () if !self.processes.iter().all(|one| is_first(&one.known)) => Some(TWO_MAPS),
            () if !self.first.windows(2).all(follows) => Some(LOST_UPDATE),
            () if self
                .calm
                .is_some_and(|(changes, starts)| changes > CHANGES_MAX || starts > STARTS_MAX) =>
            {
                Some(FLAPS)
            }
            () => None,
        }
    }

    /// Returns whether each server runs once, as the newest map says, and nobody runs anything else.
    pub fn is_at_rest(&self) -> bool {
        let Some(map) = self.map(self.newest()) else { return false };
        let serves = |one: &&Process| one.is_alive && one.departure == Departure::No;
        let is_known = |one: &Process| match one.departure {
            Departure::Leave => !map.processes.contains_key(&one.me),
            _ => map.is(one.me, ProcessState::Serving),
        };
        let runs_rightly = |one: &Process, server: usize| match one.runs[server] {
            Some(epoch) => {
                epoch == self.epochs[server] && map.servers[server].process == Some(one.me)
            }
            None => map.servers.get(server).is_none_or(|given| given.process != Some(one.me)),
        };
        let lives = |id: &ProcessId| self.lives(*id);
        let servers = 0..self.epochs.len();
        let living = || self.processes.iter().filter(|one| one.is_alive);
        living().all(|one| is_known(one) && servers.clone().all(|server| runs_rightly(one, server)))
            && (!self.processes.iter().any(|one| serves(&one))
                || map.processes.keys().all(lives)
                    && servers.clone().all(|server| map.servers[server].process.is_some()))
    }
}

impl Process {
    pub fn new(me: ProcessId, address: &'static str, servers: usize) -> Self {
        Process {
            is_alive: true,
            me,
            address,
            was_in: false,
            known: ClusterMap::default(),
            reading: None,
            pending: None,
            runs: vec![None; servers],
            has_looked: true,
            is_new_look: true,
            departure: Departure::No,
        }
    }

    fn learn(&mut self, map: Option<ClusterMap>) {
        let Some(map) = map.filter(|map| map.version > self.known.version) else { return };
        self.was_in |= map.processes.contains_key(&self.me);
        (self.known, self.has_looked, self.is_new_look) = (map, true, true);
    }

    fn proposal(
        &self,
        ended: &BTreeSet<ProcessId>,
        applied: &Applied,
        has: &impl Fn(Rule) -> bool,
    ) -> Option<ClusterMap> {
        let is_inside = self.known.processes.contains_key(&self.me);
        let none = BTreeSet::new();
        let takes_out = match is_inside {
            true => has(Rule::RemoveEnded),
            false => has(Rule::ReplaceAtAddress),
        };
        let situation = Situation {
            map: &self.known,
            me: self.me,
            address: self.address,
            terms: super::LEASE.into(),
            servers: self.runs.len(),
            ended: if takes_out { ended } else { &none },
            applied,
            is_fresh: true,
            is_settled: has(Rule::Promote),
            departure: self.departure,
            runs: self.runs.iter().any(Option::is_some),
        };
        situation.proposal()
    }
}

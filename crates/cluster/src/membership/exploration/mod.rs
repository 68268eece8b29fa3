//! Explores the rules of membership exhaustively, for up to three processes and three servers. The
//! decisions are those of `rules`. Anybody may take the next step, so a crash and a sleep of any length
//! are in it everywhere. There is no clock: an observer may take any lease for ended. A creation may
//! fail, and happen later or never.
//!
//! In every state, at most one process writes to a server, and nobody acts on a map that is not the
//! first one of its version. If nothing goes wrong, no server is fenced while it runs. At any moment things may stop going wrong: from then on, however the
//! processes take turns, they come to rest with each server running once.

#[path = "../../../../store/tests/protocol/explore.rs"]
mod explore;
mod world;

use super::map::{Applied, ClusterMap, ProcessId};
use explore::{Model, explore};
use std::time::Duration;
use world::*;

struct Membership {
    without: Option<Rule>,
}

impl Model for Membership {
    type State = World;

    fn step(&self, world: &World, next: &mut Vec<World>) {
        if world.wrong(self.without).is_none() {
            world.step(self.without, next);
        }
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        let is_stuck = || {
            let mut next = Vec::new();
            // A late creation may never happen.
            World { late: Vec::new(), ..world.clone() }.step(self.without, &mut next);
            world.calm.is_some() && next.is_empty() && !world.is_at_rest()
        };
        world.wrong(self.without).or_else(|| is_stuck().then_some(RESTLESS))
    }
}

fn explored(first: World, without: Option<Rule>) -> Option<&'static str> {
    let explored = explore(&Membership { without }, first);
    println!("{} states", explored.states);
    let (property, trace) = explored.broken?;
    println!("not so: {property}");
    trace.iter().for_each(|world| println!("{world:?}"));
    Some(property)
}

/// Length of all leases.
const LEASE: Duration = Duration::from_secs(1);

const ADDRESSES: [&str; 3] = ["one", "two", "three"];

/// The first processes are in the map and run the servers; the others have yet to join.
fn world(inside: u64, outside: u64, servers: usize, budget: Budget) -> World {
    let mut map = ClusterMap::default();
    for id in 1..=inside {
        map = map.joined(ProcessId(id), ADDRESSES[id as usize - 1], LEASE, servers);
    }
    let mut maps = Vec::new();
    if inside > 0 {
        // The history is that of one version.
        map.version = 0;
        map = map.promoted(&Applied::new());
        maps.push(map.clone());
    }
    let process = |id: u64| {
        let mut process = Process::new(ProcessId(id), ADDRESSES[id as usize - 1], servers);
        if id <= inside {
            (process.was_in, process.known) = (true, map.clone());
            let runs = map.servers.iter().map(|one| (one.process == Some(process.me)).then_some(1));
            process.runs = runs.collect();
        }
        process
    };
    World {
        first: maps.clone(),
        maps: maps.into_iter().map(Some).collect(),
        late: Vec::new(),
        epochs: vec![1; servers],
        processes: (1..=inside + outside).map(process).collect(),
        budget,
        next_id: 9,
        reads_in_steps: false,
        is_gentle: budget.wrong + budget.deaths + budget.failures + budget.impatient == 0,
        calm: None,
    }
}

fn in_steps(world: World) -> World {
    World { reads_in_steps: true, ..world }
}

/// The last of the processes died, and another one starts at its address.
fn restarted(inside: u64) -> World {
    let mut world = world(inside, 1, 2, Budget { changes: 3, ..Budget::default() });
    let (died, address) = (inside as usize - 1, ADDRESSES[inside as usize - 1]);
    let process = Process::new(ProcessId(inside), address, 2);
    world.processes[died] = Process { is_alive: false, ..process };
    world.processes[inside as usize].address = address;
    world.is_gentle = false;
    world
}

/// Version 3 is removed, and then created again by a process that slept: the second process is
/// joining, is taken for dead, and the first one leaves.
fn recreated() -> World {
    let budget = Budget { changes: 3, wrong: 1, failures: 1, departures: 1, ..Budget::default() };
    let mut world = in_steps(world(1, 1, 1, budget));
    let map = world.first[0].joined(ProcessId(2), ADDRESSES[1], LEASE, 1);
    world.processes[1].was_in = true;
    world.processes.iter_mut().for_each(|process| process.known = map.clone());
    world.first.push(map.clone());
    world.maps.push(Some(map));
    world
}

/// Version 3 was removed, and the second process knows version 2.
fn behind() -> World {
    let mut world = recreated();
    world.budget = Budget::default();
    for _ in 3..=4 {
        let next = world.processes[0].known.promoted(&Applied::new());
        world.processes[0].known = next.clone();
        world.first.push(next.clone());
        world.maps.push(Some(next));
    }
    world.maps[2] = None;
    world
}

/// With all rules, every property holds in every state.
fn holds(first: World) {
    assert_eq!(explored(first, None), None);
}

/// Without the rule, the property does not hold.
fn breaks(first: World, without: Rule, property: &str) {
    assert_eq!(explored(first, Some(without)), Some(property), "{without:?}");
}

#[test]
fn processes_join_and_leave() {
    holds(world(0, 2, 2, Budget { changes: 5, ..Budget::default() }));
    holds(world(2, 0, 2, Budget { changes: 3, departures: 1, ..Budget::default() }));
    holds(world(2, 1, 3, Budget { changes: 2, ..Budget::default() }));
    holds(world(2, 0, 2, Budget { changes: 3, departures: 1, impatient: 1, ..Budget::default() }));
}

#[test]
fn processes_die_or_are_taken_for_dead() {
    holds(world(2, 0, 2, Budget { changes: 3, wrong: 1, deaths: 1, ..Budget::default() }));
    holds(world(2, 0, 2, Budget { changes: 3, wrong: 2, ..Budget::default() }));
    holds(world(1, 1, 2, Budget { changes: 3, wrong: 1, ..Budget::default() }));
    holds(restarted(1));
    holds(restarted(2));
}

#[test]
fn creations_fail_and_happen_later() {
    holds(world(2, 0, 2, Budget { changes: 3, wrong: 1, failures: 1, ..Budget::default() }));
}

#[test]
fn maps_are_read_in_steps_while_old_ones_are_removed() {
    holds(behind());
    holds(in_steps(world(1, 1, 1, Budget { changes: 4, failures: 1, ..Budget::default() })));
}

#[test]
fn each_rule_is_needed() {
    let wrong = || world(2, 0, 2, Budget { changes: 3, wrong: 1, ..Budget::default() });
    breaks(wrong(), Rule::Fence, TWICE);
    breaks(wrong(), Rule::JoinAgain, RESTLESS);
    breaks(wrong(), Rule::FollowsTheKnown, LOST_UPDATE);
    let moving = || world(1, 1, 2, Budget { changes: 3, ..Budget::default() });
    breaks(moving(), Rule::StopOthers, RESTLESS);
    breaks(moving(), Rule::WaitForRelease, FENCED);
    // The second process gets a server, sleeps, is taken for dead, starts the server, and dies.
    let sleeping =
        || world(1, 1, 2, Budget { changes: 3, wrong: 1, deaths: 1, ..Budget::default() });
    breaks(sleeping(), Rule::RestartFenced, RESTLESS);
    breaks(sleeping(), Rule::LookBeforeRestart, FLAPS);
    let dying = || world(2, 0, 2, Budget { changes: 2, deaths: 1, ..Budget::default() });
    breaks(dying(), Rule::RemoveEnded, RESTLESS);
    breaks(restarted(1), Rule::ReplaceAtAddress, RESTLESS);
    let joining = || world(0, 2, 1, Budget { changes: 3, failures: 1, ..Budget::default() });
    breaks(joining(), Rule::Promote, RESTLESS);
    breaks(joining(), Rule::OnlyNewestCounts, TWO_MAPS);
    let late = || in_steps(world(1, 1, 1, Budget { changes: 5, failures: 1, ..Budget::default() }));
    breaks(late(), Rule::KeepNewest, TWO_MAPS);
    breaks(behind(), Rule::LookBetween, FLAPS);
    breaks(recreated(), Rule::ConfirmAfterRead, TWO_MAPS);
}

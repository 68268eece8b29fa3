//! The rules by which numbers are reserved, explored exhaustively for few actors. Every step is one
//! call to storage, in any order with those of others. Nobody need take a further step. A `create`
//! may fail and have happened, happen later, or never. A listing misses whatever it likes. Each rule
//! is also left out, to see that two get one number.

use crate::explore::{Model, explore};
use std::collections::BTreeMap;

/// The numbers that there are.
const NUMBERS: u8 = 6;

/// A rule of `canopy_store::reserve_numbers`, or of what storage must do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// All runs have one length, and lie at multiples of it.
    FixedPlaces,
    /// Storage creates an object only if there is none of its name.
    CreateOnce,
    /// A process that does not know the outcome of a creation reads the object.
    ReadAfterFailure,
    /// An object that is there was created by this attempt only if its bytes say so.
    CompareBytes,
    /// Attempts differ, although they are of one table.
    NoncePerAttempt,
    /// Nothing is ever removed.
    NoRemoval,
}

const RULES: [Rule; 6] = [
    Rule::FixedPlaces,
    Rule::CreateOnce,
    Rule::ReadAfterFailure,
    Rule::CompareBytes,
    Rule::NoncePerAttempt,
    Rule::NoRemoval,
];

/// First number and length.
type Run = (u8, u8);

#[derive(Clone, Hash)]
enum Phase {
    Idle,
    /// About to create the object of a run. These were listed.
    Creating {
        run: Run,
        listed: Vec<Run>,
        tries: u8,
    },
    /// About to read the object of a run whose creation failed.
    Reading {
        run: Run,
        listed: Vec<Run>,
        tries: u8,
    },
}

#[derive(Clone, Hash)]
struct Actor {
    table: u8,
    /// Numbers are sought from here on.
    from: u8,
    /// The length of runs, where it is free.
    length: u8,
    attempts: u8,
    phase: Phase,
    held: Vec<Run>,
}

#[derive(Clone, Hash)]
struct World {
    objects: BTreeMap<Run, u8>,
    /// Creations that failed, and may happen yet.
    late: Vec<(Run, u8)>,
    faults: u8,
    actors: Vec<Actor>,
}

struct Reservations {
    left_out: Option<Rule>,
}

impl Reservations {
    fn has(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }

    fn next_run(&self, actor: &Actor, from: u8, listed: &[Run]) -> Option<Run> {
        let run = match self.has(Rule::FixedPlaces) {
            true => {
                let places = (0..NUMBERS / 2).map(|place| (place * 2, 2));
                places.into_iter().find(|run| run.0 >= from && !listed.contains(run))?
            }
            // Behind the last one that is known.
            false => {
                let end = listed.iter().map(|run| run.0 + run.1).max().unwrap_or(0);
                (end.max(from), actor.length)
            }
        };
        (run.0 + run.1 <= NUMBERS).then_some(run)
    }

    fn begin(&self, world: &World, at: usize, next: &mut Vec<World>) {
        if world.actors[at].attempts == 2 {
            return;
        }
        let all = Vec::from_iter(world.objects.keys().copied());
        // Any of them may be missing in what is listed.
        for chosen in 0..1u32 << all.len() {
            let is_listed = |(bit, run): (usize, &Run)| (chosen >> bit & 1 == 1).then_some(*run);
            let listed = Vec::from_iter(all.iter().enumerate().filter_map(is_listed));
            let mut world = world.clone();
            let actor = &mut world.actors[at];
            actor.attempts += 1;
            if let Some(run) = self.next_run(actor, actor.from, &listed) {
                actor.phase = Phase::Creating { run, listed, tries: 0 };
                next.push(world);
            }
        }
    }

    fn nonce(&self, world: &World, at: usize) -> u8 {
        let actor = &world.actors[at];
        match self.has(Rule::NoncePerAttempt) {
            true => at as u8 * 10 + actor.attempts,
            false => actor.table,
        }
    }

    fn hold(mut world: World, at: usize, run: Run, next: &mut Vec<World>) {
        let actor = &mut world.actors[at];
        actor.held.push(run);
        actor.phase = Phase::Idle;
        next.push(world);
    }

    fn go_on(&self, mut world: World, at: usize, run: Run, listed: &[Run], next: &mut Vec<World>) {
        let mut listed = listed.to_vec();
        listed.push(run);
        let actor = &mut world.actors[at];
        let from = if self.has(Rule::FixedPlaces) { run.0 + run.1 } else { actor.from };
        actor.phase = match self.next_run(actor, from, &listed) {
            Some(run) => Phase::Creating { run, listed, tries: 0 },
            None => Phase::Idle,
        };
        next.push(world);
    }

    fn create(
        &self,
        world: &World,
        at: usize,
        run: Run,
        listed: &[Run],
        tries: u8,
        next: &mut Vec<World>,
    ) {
        let nonce = self.nonce(world, at);
        let is_there = world.objects.contains_key(&run) && self.has(Rule::CreateOnce);
        let reading = Phase::Reading { run, listed: listed.to_vec(), tries: tries + 1 };
        let mut after = world.clone();
        match is_there {
            false => {
                after.objects.insert(run, nonce);
                Self::hold(after, at, run, next);
            }
            true if tries == 0 => self.go_on(after, at, run, listed, next),
            true if !self.has(Rule::CompareBytes) => Self::hold(after, at, run, next),
            true => {
                after.actors[at].phase = reading.clone();
                next.push(after);
            }
        }
        if world.faults == 0 {
            return;
        }
        let mut failed = world.clone();
        failed.faults -= 1;
        failed.actors[at].phase = reading;
        let mut outcomes = vec![failed.clone()];
        if !is_there {
            let mut happened = failed.clone();
            happened.objects.insert(run, nonce);
            outcomes.push(happened);
        }
        failed.late.push((run, nonce));
        outcomes.push(failed);
        for outcome in outcomes {
            match self.has(Rule::ReadAfterFailure) {
                true => next.push(outcome),
                false => Self::hold(outcome, at, run, next),
            }
        }
    }

    fn read(
        &self,
        world: &World,
        at: usize,
        run: Run,
        listed: &[Run],
        tries: u8,
        next: &mut Vec<World>,
    ) {
        match world.objects.get(&run) {
            Some(found) if *found == self.nonce(world, at) => {
                Self::hold(world.clone(), at, run, next);
            }
            Some(_) if !self.has(Rule::CompareBytes) => Self::hold(world.clone(), at, run, next),
            Some(_) => self.go_on(world.clone(), at, run, listed, next),
            None => {
                let mut again = world.clone();
                // It gives up in the end.
                again.actors[at].phase = match tries {
                    2 => Phase::Idle,
                    _ => Phase::Creating { run, listed: listed.to_vec(), tries },
                };
                next.push(again);
            }
        }
    }
}

impl Model for Reservations {
    type State = World;

    fn step(&self, world: &World, next: &mut Vec<World>) {
        for at in 0..world.actors.len() {
            match &world.actors[at].phase {
                Phase::Idle => self.begin(world, at, next),
                Phase::Creating { run, listed, tries } => {
                    self.create(world, at, *run, listed, *tries, next);
                }
                Phase::Reading { run, listed, tries } => {
                    self.read(world, at, *run, listed, *tries, next);
                }
            }
        }
        for at in 0..world.late.len() {
            let mut world = world.clone();
            let (run, nonce) = world.late.remove(at);
            if !self.has(Rule::CreateOnce) || !world.objects.contains_key(&run) {
                world.objects.insert(run, nonce);
            }
            next.push(world);
        }
        if !self.has(Rule::NoRemoval) {
            for run in world.objects.keys() {
                let mut world = world.clone();
                world.objects.remove(run);
                next.push(world);
            }
        }
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        let held = Vec::from_iter(world.actors.iter().flat_map(|actor| &actor.held));
        for (at, one) in held.iter().enumerate() {
            for other in &held[at + 1..] {
                if one.0 < other.0 + other.1 && other.0 < one.0 + one.1 {
                    return Some("a number is given out once");
                }
            }
        }
        let below = |actor: &Actor| actor.held.iter().any(|run| run.0 < actor.from);
        world.actors.iter().any(below).then_some("nobody gets numbers below what was asked for")
    }
}

fn actor(table: u8, from: u8, length: u8) -> Actor {
    Actor { table, from, length, attempts: 0, phase: Phase::Idle, held: Vec::new() }
}

fn world(actors: Vec<Actor>, faults: u8) -> World {
    World { objects: BTreeMap::new(), late: Vec::new(), faults, actors }
}

/// Two processes of one table and one of another, then two that begin at different numbers.
fn setups() -> [World; 2] {
    [
        world(vec![actor(1, 0, 1), actor(1, 0, 2), actor(2, 0, 2)], 1),
        world(vec![actor(1, 0, 1), actor(2, 2, 2)], 3),
    ]
}

#[test]
fn nobody_gets_a_number_of_another() {
    for first in setups() {
        let explored = explore(&Reservations { left_out: None }, first);
        assert!(explored.states > 1000, "{} states", explored.states);
        assert!(explored.broken.is_none(), "{:?}", explored.broken.map(|(property, _)| property));
    }
}

#[test]
fn every_rule_is_needed() {
    for rule in RULES {
        let found = setups()
            .into_iter()
            .any(|first| explore(&Reservations { left_out: Some(rule) }, first).broken.is_some());
        assert!(found, "nothing breaks without {rule:?}");
    }
}

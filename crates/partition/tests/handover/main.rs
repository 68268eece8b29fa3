//! Explores the hand-over of partitions exhaustively, for two servers and four names. The decisions
//! are those of `canopy_partition::Holdings`. Anybody may take the next step, so a crash and a sleep
//! of any length are in it everywhere; messages arrive never, late, in any order and again.
//!
//! In every state, each acknowledged name is on exactly one server, and no name that was removed
//! comes back. From every state, two new processes come to rest. Each rule is also left out, to see
//! that a property breaks.

#[path = "../../../store/tests/protocol/explore.rs"]
mod explore;
mod rules;
mod world;

use canopy_partition::{Attempt, Holding, Holdings, PartitionId};
use explore::{Model, explore};
use rules::{Rule, Rules};
use std::cell::RefCell;
use std::collections::HashSet;
use world::{Budget, CAME_BACK, HELD_NOWHERE, LOST, RESTLESS, Table, World};

struct HandOver {
    rules: Rules,
    /// Tables that are known to come to rest.
    settled: RefCell<HashSet<[Table; 2]>>,
}

impl Model for HandOver {
    type State = World;

    fn step(&self, world: &World, next: &mut Vec<World>) {
        world.step(self.rules, next);
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        let is_restless = || {
            let is_new = self.settled.borrow_mut().insert(world.tables.clone());
            is_new && !world.settles(self.rules)
        };
        world.wrong().or_else(|| is_restless().then_some(RESTLESS))
    }
}

fn partition(number: u32) -> PartitionId {
    PartitionId::new(number).unwrap()
}

fn explored(first: World, without: Option<Rule>) -> Option<&'static str> {
    let model = HandOver { rules: Rules { without }, settled: RefCell::default() };
    let explored = explore(&model, first);
    println!("{} states", explored.states);
    let (property, trace) = explored.broken?;
    println!("not so: {property}");
    trace.iter().for_each(|world| println!("{world:?}"));
    Some(property)
}

/// Partition 0 has all names but the last one, and gives partition 1 away.
fn split(opens: [u8; 2], attempts: u8, changes: u8) -> World {
    let tables = [Table { holdings: Holdings::new_directory(), names: 0b0111 }, Table::default()];
    let budget = Budget { opens, attempts, changes, changing: 0b1100 };
    World::new(tables, vec![(partition(1), 0)], budget)
}

/// Partition 1 was given to the second server, which gives its upper half, partition 3, back. The
/// first server has not removed its copies yet.
fn back(opens: [u8; 2], attempts: u8, changes: u8) -> World {
    let given = Attempt { epoch: 1, number: 1 };
    let of_giver = [
        (partition(0), Holding::Held { depth: 1 }),
        (partition(1), Holding::Given { attempt: given, is_confirmed: true, is_removed: false }),
    ];
    let of_receiver = [(partition(1), Holding::Held { depth: 1 })];
    let tables = [
        Table { holdings: of_giver.into_iter().collect(), names: 0b1110 },
        Table { holdings: of_receiver.into_iter().collect(), names: 0b1100 },
    ];
    let budget = Budget { opens, attempts, changes, changing: 0b1000 };
    World::new(tables, vec![(partition(3), 1)], budget)
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
fn names_are_on_one_server() {
    holds(split([0, 0], 2, 2));
    holds(back([0, 0], 2, 2));
}

#[test]
fn names_are_on_one_server_while_owners_are_replaced() {
    holds(split([1, 1], 1, 1));
    holds(split([1, 0], 2, 1));
    holds(split([0, 1], 2, 1));
    holds(back([1, 1], 1, 1));
    if std::env::var_os("CANOPY_LONG").is_some() {
        holds(split([1, 0], 2, 2));
        holds(split([0, 1], 2, 2));
        holds(split([1, 1], 2, 1));
        holds(split([2, 0], 2, 1));
        holds(back([1, 1], 2, 1));
    }
}

#[test]
fn each_rule_is_needed() {
    let once = || split([0, 0], 1, 1);
    breaks(once(), Rule::ChangesWait, CAME_BACK);
    breaks(once(), Rule::GiveWhatIsComplete, HELD_NOWHERE);
    breaks(once(), Rule::CountEntries, LOST);
    breaks(once(), Rule::HeldIsNotOffered, HELD_NOWHERE);
    breaks(once(), Rule::OfferIsInvisible, CAME_BACK);
    breaks(once(), Rule::PendingOfferStays, HELD_NOWHERE);
    breaks(once(), Rule::GivenUntilConfirmed, HELD_NOWHERE);
    breaks(once(), Rule::RepeatWhatIsGiven, RESTLESS);
    breaks(once(), Rule::Ask, RESTLESS);
    let twice = || split([0, 0], 2, 2);
    breaks(twice(), Rule::EntriesOfTheAttempt, CAME_BACK);
    breaks(twice(), Rule::OldEntriesGoFirst, CAME_BACK);
    breaks(twice(), Rule::NewerAttemptStays, HELD_NOWHERE);
    breaks(back([0, 0], 1, 1), Rule::CopiesGoFirst, RESTLESS);
    let replaced = || split([1, 1], 1, 1);
    breaks(replaced(), Rule::ReplacedOwnersDoNotKnow, HELD_NOWHERE);
    breaks(replaced(), Rule::AttemptsHaveEpochs, HELD_NOWHERE);
    breaks(replaced(), Rule::FenceOldOwners, CAME_BACK);
}

//! Explores changes of several servers exhaustively, for two and three servers with a name or a count
//! each. The decisions are those of `canopy_partition::{Decisions, Preparations, Locks}`. Anybody may
//! take the next step, so a crash and a sleep of any length are in it everywhere; messages arrive
//! never, late, in any order and again.
//!
//! In every state, each server shows what all changes up to now lead to, by the decisions. From every
//! state, new processes come to rest; and so do those that run, if nobody dies. Each rule is also left
//! out, to see that a property breaks.

#[path = "../../../store/tests/protocol/explore.rs"]
mod explore;
mod rules;
mod world;

use explore::{Model, explore};
use rules::{Rule, Rules};
use std::cell::RefCell;
use std::collections::HashSet;
use world::{Budget, HALF, Kind, RESTLESS, STUCK, Table, World};

struct Intents {
    rules: Rules,
    /// Tables that are known to come to rest, with what they then have to show.
    settled: RefCell<HashSet<(Vec<Table>, Vec<u8>)>>,
}

impl Model for Intents {
    type State = World;

    fn step(&self, world: &World, next: &mut Vec<World>) {
        world.step(self.rules, next);
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        let at_rest = || {
            let is_new =
                self.settled.borrow_mut().insert((world.tables.clone(), world.expected.clone()));
            if is_new { world.wrong_at_rest(self.rules) } else { None }
        };
        let stuck = || (!world.proceeds(self.rules)).then_some(STUCK);
        world.wrong(self.rules).or_else(at_rest).or_else(stuck)
    }
}

fn explored(first: World, without: Option<Rule>) -> Option<&'static str> {
    let model = Intents { rules: Rules { without }, settled: RefCell::default() };
    let explored = explore(&model, first);
    println!("{} states", explored.states);
    let (property, trace) = explored.broken?;
    println!("not so: {property}");
    trace.iter().for_each(|world| println!("{world:?}"));
    Some(property)
}

/// One rename from the first server to the second, while clients create and remove either name.
fn rename(opens: &[u8], tries: u8, preparations: u8, changes: u8) -> World {
    let budget = Budget { opens: opens.to_vec(), tries, preparations, changes };
    World::new(&[1, 0], &[Kind::Rename { from: 0, to: 1, counts: None }], budget)
}

/// Two renames at once, each onto the name that the other one takes away.
fn opposite(opens: &[u8], tries: u8, changes: u8) -> World {
    let (there, back) = (rename_of(0, 1), rename_of(1, 0));
    let budget = Budget { opens: opens.to_vec(), tries, preparations: tries, changes };
    World::new(&[1, 2], &[there, back], budget)
}

fn rename_of(from: usize, to: usize) -> Kind {
    Kind::Rename { from, to, counts: None }
}

/// A rename with a third server, which counts it.
fn counted(opens: &[u8], tries: u8, preparations: u8, changes: u8) -> World {
    let budget = Budget { opens: opens.to_vec(), tries, preparations, changes };
    World::new(&[1, 0, 0], &[Kind::Rename { from: 0, to: 1, counts: Some(2) }], budget)
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
fn changes_are_whole() {
    holds(rename(&[0, 0], 2, 2, 2));
    holds(opposite(&[0, 0], 2, 0));
    holds(counted(&[0, 0, 0], 1, 1, 1));
}

#[test]
fn changes_are_whole_while_owners_are_replaced() {
    holds(rename(&[1, 1], 1, 2, 1));
    holds(rename(&[1, 0], 2, 2, 1));
    holds(rename(&[0, 1], 2, 2, 1));
    holds(opposite(&[1, 0], 2, 0));
    holds(counted(&[0, 0, 1], 1, 1, 1));
}

#[test]
fn more_changes_are_whole_while_owners_are_replaced() {
    if std::env::var_os("CANOPY_LONG").is_some() {
        holds(rename(&[1, 1], 2, 2, 2));
        holds(opposite(&[0, 0], 3, 1));
        holds(counted(&[1, 0, 1], 1, 1, 1));
    }
}

#[test]
fn opposite_changes_are_whole_while_both_owners_are_replaced() {
    if std::env::var_os("CANOPY_LONG").is_some() {
        holds(opposite(&[1, 1], 2, 0));
    }
}

#[test]
fn each_rule_is_needed() {
    let once = || rename(&[0, 0], 1, 1, 1);
    breaks(once(), Rule::DeciderLocks, HALF);
    breaks(once(), Rule::ParticipantLocks, HALF);
    breaks(once(), Rule::CommitWhatIsPrepared, HALF);
    breaks(once(), Rule::PreparedIsInvisible, HALF);
    breaks(once(), Rule::ReadersAsk, HALF);
    breaks(once(), Rule::RunningIsPending, HALF);
    breaks(once(), Rule::PendingStays, HALF);
    breaks(once(), Rule::KnownUntilConfirmed, HALF);
    breaks(once(), Rule::Repeat, RESTLESS);
    breaks(once(), Rule::Ask, RESTLESS);
    breaks(rename(&[0, 0], 1, 2, 1), Rule::FreshPreparations, HALF);
    let replaced = || rename(&[1, 1], 2, 2, 1);
    breaks(replaced(), Rule::ReplacedOwnersDoNotKnow, HALF);
    breaks(replaced(), Rule::ReplacedOwnersDoNotConfirm, HALF);
    breaks(replaced(), Rule::IntentsHaveEpochs, HALF);
    breaks(replaced(), Rule::FenceOldOwners, HALF);
    breaks(opposite(&[0, 0], 2, 0), Rule::YoungerGivesUp, STUCK);
}

//! Explores shares of a limit exhaustively, for two and three servers. The decisions are those of
//! `canopy_partition::{Share, Ledger}`. Anybody may take the next step, so a crash and a sleep of
//! any length are in it everywhere; messages arrive never, late, in any order and again.
//!
//! In every state, there are no more files than the limit. From every state, an authority that
//! collects from all servers can grant exactly what is left. Each rule is also left out, to see
//! that a property breaks.

#[path = "../../../store/tests/protocol/explore.rs"]
mod explore;
mod rules;
mod world;

use explore::{Model, explore};
use rules::{Rule, Rules};
use world::{Budget, LOST, PASSED, World};

struct Shares {
    rules: Rules,
}

impl Model for Shares {
    type State = World;

    fn step(&self, world: &World, next: &mut Vec<World>) {
        world.step(self.rules, next);
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        world.wrong(self.rules).or_else(|| world.wrong_at_rest(self.rules))
    }
}

fn explored(
    limit: i64,
    used: &[i64],
    budget: Budget,
    without: Option<Rule>,
) -> Option<&'static str> {
    let rules = Rules { without };
    let explored = explore(&Shares { rules }, World::new(limit, used, budget, rules));
    println!("{} states", explored.states);
    let (property, trace) = explored.broken?;
    println!("not so: {property}");
    trace.iter().for_each(|world| println!("{world:?}"));
    Some(property)
}

const ONCE: Budget =
    Budget { opens: [0, 0], collections: 1, grants: 2, creates: 2, removals: 1, moves: 0 };

/// With all rules, every property holds in every state.
fn holds(limit: i64, used: &[i64], budget: Budget) {
    assert_eq!(explored(limit, used, budget, None), None);
}

/// Without the rule, the property does not hold.
fn breaks(limit: i64, used: &[i64], budget: Budget, without: Rule, property: &str) {
    assert_eq!(explored(limit, used, budget, Some(without)), Some(property), "{without:?}");
}

#[test]
fn the_limit_is_not_passed() {
    holds(2, &[0, 0], Budget { collections: 2, ..ONCE });
    holds(2, &[1, 0], Budget { moves: 1, ..ONCE });
    holds(1, &[0, 0, 0], Budget { grants: 1, ..ONCE });
}

#[test]
fn the_limit_is_not_passed_while_owners_are_replaced() {
    holds(1, &[0, 0], Budget { opens: [1, 1], ..ONCE });
    holds(2, &[1, 0], Budget { opens: [0, 1], moves: 1, removals: 0, ..ONCE });
    holds(2, &[1, 0], Budget { opens: [1, 0], moves: 1, removals: 0, ..ONCE });
    holds(2, &[1, 0], Budget { opens: [1, 1], collections: 2, moves: 1, removals: 0, ..ONCE });
    if std::env::var_os("CANOPY_LONG").is_some() {
        holds(2, &[0, 0], Budget { opens: [1, 1], collections: 2, ..ONCE });
        holds(2, &[1, 0], Budget { opens: [1, 1], moves: 1, ..ONCE });
        holds(2, &[1, 0], Budget { opens: [0, 2], collections: 2, moves: 1, ..ONCE });
        holds(2, &[0, 0, 0], Budget { opens: [1, 1], ..ONCE });
    }
}

#[test]
fn each_rule_is_needed() {
    let none = [0, 0];
    let few = Budget { creates: 2, removals: 0, ..ONCE };
    let replaced = Budget { opens: [0, 1], ..few };
    breaks(1, &none, replaced, Rule::RecordBeforeGrant, PASSED);
    breaks(1, &none, few, Rule::LowerBeforeReply, PASSED);
    breaks(1, &none, few, Rule::RoundsGrow, PASSED);
    let twice = Budget { collections: 2, ..few };
    breaks(1, &none, twice, Rule::LastReplyCounts, PASSED);
    let replaced_twice = Budget { opens: [0, 1], collections: 2, ..few };
    breaks(1, &none, replaced_twice, Rule::RoundsHaveEpochs, LOST);
    breaks(1, &none, few, Rule::RepliesAreTrue, LOST);
    let moves = Budget { moves: 1, ..few };
    breaks(1, &[1, 0], moves, Rule::MovesAreNoted, PASSED);
    let stale = Budget { opens: [1, 0], ..few };
    breaks(1, &none, stale, Rule::FenceOldOwners, PASSED);
}

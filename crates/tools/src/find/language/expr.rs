//! The expression of a find: tests and actions joined by operators.

use super::test::Test;
use crate::error::Result;
use crate::find::actions::Action;
use canopy_index::Columns;
use canopy_query::{AttributeTest, Outcomes};
use std::sync::Arc;

/// An expression. Actions and pruning are true where they are reached.
#[derive(Clone, Debug)]
pub enum Expr {
    /// Both; the second one only where the first is true.
    And(Box<Expr>, Box<Expr>),
    /// Either; the second one only where the first is false.
    Or(Box<Expr>, Box<Expr>),
    /// Both, whatever the first one is; as true as the second.
    Comma(Box<Expr>, Box<Expr>),
    /// Not.
    Not(Box<Expr>),
    /// A test.
    Test(Arc<Test>),
    /// An action, by its place in [`super::Find::actions`].
    Action(usize),
    /// Do not descend.
    Prune,
}

impl Expr {
    pub(crate) fn and(self, other: Expr) -> Expr {
        Expr::And(Box::new(self), Box::new(other))
    }

    pub(crate) fn comma(self, other: Expr) -> Expr {
        Expr::Comma(Box::new(self), Box::new(other))
    }

    pub(crate) fn or(self, other: Expr) -> Expr {
        Expr::Or(Box::new(self), Box::new(other))
    }

    /// Returns an expression that is this for every row.
    pub(crate) fn always(outcome: bool) -> Expr {
        Expr::Test(Arc::new(Test::Always(outcome)))
    }

    fn operands(&self) -> [Option<&Expr>; 2] {
        match self {
            Expr::And(first, second) | Expr::Or(first, second) | Expr::Comma(first, second) => {
                [Some(first), Some(second)]
            }
            Expr::Not(inner) => [Some(inner), None],
            Expr::Test(_) | Expr::Action(_) | Expr::Prune => [None, None],
        }
    }

    fn operands_mut(&mut self) -> [Option<&mut Expr>; 2] {
        match self {
            Expr::And(first, second) | Expr::Or(first, second) | Expr::Comma(first, second) => {
                [Some(first), Some(second)]
            }
            Expr::Not(inner) => [Some(inner), None],
            Expr::Test(_) | Expr::Action(_) | Expr::Prune => [None, None],
        }
    }

    /// Returns whether `holds` is true of this expression or of any in it.
    fn any(&self, holds: &dyn Fn(&Expr) -> bool) -> bool {
        holds(self) || self.operands().into_iter().flatten().any(|operand| operand.any(holds))
    }

    /// Returns whether it has an action. One that is [simplified](Expr::simplify) has one if any
    /// may be reached.
    pub(crate) fn acts(&self) -> bool {
        self.any(&|expr| matches!(expr, Expr::Action(_)))
    }

    /// Returns whether it prunes.
    pub(crate) fn prunes(&self) -> bool {
        self.any(&|expr| matches!(expr, Expr::Prune))
    }

    /// Returns whether it is the same for all rows.
    pub(crate) fn is_constant(&self) -> bool {
        !self.any(&|expr| matches!(expr, Expr::Test(test) if !matches!(**test, Test::Always(_))))
    }

    /// Returns the columns that its tests read of rows that are all directories or all not.
    pub(crate) fn columns(&self, dirs: bool) -> Columns {
        let mut columns = Columns::NONE;
        self.each_test(&mut |test| columns.add(test.columns(dirs)));
        columns
    }

    /// Calls `visit` with every test.
    pub(crate) fn each_test<'a>(&'a self, visit: &mut dyn FnMut(&'a Test)) {
        if let Expr::Test(test) = self {
            visit(test);
        }
        self.operands().into_iter().flatten().for_each(|operand| operand.each_test(visit));
    }

    /// Returns whether what is pruned depends on the outcome of an action.
    pub(crate) fn prunes_by_outcome(&self, actions: &[Action]) -> bool {
        self.any(&|expr| match expr {
            Expr::And(first, second) | Expr::Or(first, second) => {
                first.waits(actions) && second.prunes()
            }
            _ => false,
        })
    }

    /// Returns whether its truth depends on the outcome of an action.
    fn waits(&self, actions: &[Action]) -> bool {
        match self {
            Expr::And(first, second) | Expr::Or(first, second) => {
                first.waits(actions) || second.waits(actions)
            }
            Expr::Comma(_, second) => second.waits(actions),
            Expr::Not(inner) => inner.waits(actions),
            Expr::Action(action) => actions[*action].decides(),
            Expr::Test(_) | Expr::Prune => false,
        }
    }

    /// Returns what is left of the expression where `outcomes` says of each test which outcomes it
    /// may have.
    pub(crate) fn simplify(&self, outcomes: &dyn Fn(&Test) -> Result<Outcomes>) -> Result<Expr> {
        Ok(match self {
            Expr::And(first, second) => match first.simplify(outcomes)? {
                Expr::Test(test) if test.is(true) => second.simplify(outcomes)?,
                Expr::Test(test) if test.is(false) => Expr::Test(test),
                first => first.and(second.simplify(outcomes)?),
            },
            Expr::Or(first, second) => match first.simplify(outcomes)? {
                Expr::Test(test) if test.is(false) => second.simplify(outcomes)?,
                Expr::Test(test) if test.is(true) => Expr::Test(test),
                first => first.or(second.simplify(outcomes)?),
            },
            Expr::Comma(first, second) => {
                first.simplify(outcomes)?.comma(second.simplify(outcomes)?)
            }
            Expr::Not(inner) => match inner.simplify(outcomes)? {
                Expr::Test(test) if test.is(true) => Expr::always(false),
                Expr::Test(test) if test.is(false) => Expr::always(true),
                inner => Expr::Not(Box::new(inner)),
            },
            Expr::Test(test) => match outcomes(test)? {
                Outcomes { may_pass: true, may_fail: false } => Expr::always(true),
                Outcomes { may_pass: false, .. } => Expr::always(false),
                Outcomes { may_pass: true, may_fail: true } => self.clone(),
            },
            Expr::Action(_) | Expr::Prune => self.clone(),
        })
    }

    /// Makes pruning do nothing, as it does where directories come after what is in them.
    pub(crate) fn ignore_pruning(&mut self) {
        if let Expr::Prune = self {
            *self = Expr::always(true);
        }
        self.operands_mut().into_iter().flatten().for_each(Expr::ignore_pruning);
    }

    /// Has actions carried out only on entries that pass a test: it is asked right before them.
    pub(crate) fn act_only_where(&mut self, test: &Arc<Test>) {
        match self {
            Expr::Action(_) => *self = Expr::Test(test.clone()).and(self.clone()),
            _ => {
                let operands = self.operands_mut().into_iter().flatten();
                operands.for_each(|operand| operand.act_only_where(test));
            }
        }
    }

    /// Puts what costs least first where tests stand beside each other, as find(1) does: names,
    /// then types, then everything else.
    pub(crate) fn put_cheapest_first(&mut self) {
        self.operands_mut().into_iter().flatten().for_each(Expr::put_cheapest_first);
        self.sink_last();
    }

    /// Moves the last of a row of tests to its place; those before it are in order. Nothing moves
    /// past an action.
    fn sink_last(&mut self) {
        let Expr::And(first, second) = self else { return };
        let before = match &mut **first {
            Expr::And(_, last) => last,
            _ => first,
        };
        if before.is_pure() && second.is_pure() && second.cost() < before.cost() {
            std::mem::swap(before, second);
            if let Expr::And(..) = **first {
                first.sink_last();
            }
        }
    }

    /// Returns what evaluating it costs, in no particular unit.
    fn cost(&self) -> u32 {
        match self {
            Expr::Test(test) if test.reads_names_only() => 0,
            Expr::Test(test) if matches!(**test, Test::Condition(AttributeTest::Type(_))) => 1,
            Expr::Not(inner) => inner.cost(),
            _ => 2,
        }
    }

    /// Returns whether it has neither actions nor `-prune`.
    fn is_pure(&self) -> bool {
        !self.acts() && !self.prunes()
    }
}

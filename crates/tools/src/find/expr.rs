//! The expression of a find: tests and actions joined by operators, and its evaluation over a batch
//! of rows.

use super::action::Action;
use super::rows::{One, Rows};
use super::test::Test;
use arrow::buffer::BooleanBuffer;
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

/// Where each action, and pruning, was reached.
#[derive(Debug)]
pub(crate) struct Reached {
    /// By action: the rows in which it is to be carried out.
    pub(crate) actions: Vec<BooleanBuffer>,
    /// The rows below which nothing is to be looked at.
    pub(crate) pruned: BooleanBuffer,
}

impl Reached {
    /// The rows in which anything was reached.
    pub(crate) fn any(&self) -> BooleanBuffer {
        self.actions.iter().fold(self.pruned.clone(), |any, rows| &any | rows)
    }
}

/// What carrying an expression out comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// An action, by its place in [`super::Find::actions`].
    Act(usize),
    /// `-prune`
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

    /// Evaluates the expression over rows, each operator on all rows that reach it at once.
    pub(crate) fn evaluate(&self, rows: &impl Rows, actions: &[Action]) -> Reached {
        let none = BooleanBuffer::new_unset(rows.len());
        let mut reached = Reached { actions: vec![none.clone(); actions.len()], pruned: none };
        let all = BooleanBuffer::new_set(rows.len());
        match actions.iter().any(Action::decides) {
            true => drop(self.eval_maybe(rows, all, actions, &mut reached)),
            false => drop(self.eval(rows, all, &mut reached)),
        }
        reached
    }

    /// As [`Expr::eval`] where the outcome of some actions is only known when they have been
    /// carried out: the rows in which the expression may be true, and those in which it may be
    /// false.
    fn eval_maybe(
        &self,
        rows: &impl Rows,
        among: BooleanBuffer,
        actions: &[Action],
        reached: &mut Reached,
    ) -> (BooleanBuffer, BooleanBuffer) {
        match self {
            Expr::And(first, second) => {
                let (passed, failed) = first.eval_maybe(rows, among, actions, reached);
                let (both, not_second) = second.eval_maybe(rows, passed, actions, reached);
                (both, &failed | &not_second)
            }
            Expr::Or(first, second) => {
                let (passed, failed) = first.eval_maybe(rows, among, actions, reached);
                let (second, neither) = second.eval_maybe(rows, failed, actions, reached);
                (&passed | &second, neither)
            }
            Expr::Comma(first, second) => {
                first.eval_maybe(rows, among.clone(), actions, reached);
                second.eval_maybe(rows, among, actions, reached)
            }
            Expr::Not(inner) => {
                let (passed, failed) = inner.eval_maybe(rows, among, actions, reached);
                (failed, passed)
            }
            Expr::Action(action) if actions[*action].decides() => {
                self.eval(rows, among.clone(), reached);
                (among.clone(), among)
            }
            Expr::Test(_) | Expr::Action(_) | Expr::Prune => {
                let passed = self.eval(rows, among.clone(), reached);
                let failed = &among & &!&passed;
                (passed, failed)
            }
        }
    }

    /// Evaluates the expression on one row, carrying actions out as they are reached: `act` gets
    /// each step and says whether it is true, or `None` to end it all.
    pub(crate) fn carry_out<R: Rows, E, F>(
        &self,
        rows: &R,
        at: usize,
        act: &mut F,
    ) -> Result<Option<bool>, E>
    where
        F: FnMut(Step) -> Result<Option<bool>, E>,
    {
        Ok(match self {
            Expr::And(first, second) => match first.carry_out(rows, at, act)? {
                Some(true) => second.carry_out(rows, at, act)?,
                other => other,
            },
            Expr::Or(first, second) => match first.carry_out(rows, at, act)? {
                Some(false) => second.carry_out(rows, at, act)?,
                other => other,
            },
            Expr::Comma(first, second) => match first.carry_out(rows, at, act)? {
                Some(_) => second.carry_out(rows, at, act)?,
                None => None,
            },
            Expr::Not(inner) => inner.carry_out(rows, at, act)?.map(|passed| !passed),
            Expr::Test(test) => Some(test.check(rows, One(at))),
            Expr::Action(action) => act(Step::Act(*action))?,
            Expr::Prune => act(Step::Prune)?,
        })
    }

    /// Whether what is pruned hangs on the outcome of an action.
    pub(crate) fn prunes_by_outcome(&self, actions: &[Action]) -> bool {
        let here = match self {
            Expr::And(first, second) | Expr::Or(first, second) => {
                first.waits(actions) && second.prunes()
            }
            _ => false,
        };
        here || match self {
            Expr::And(first, second) | Expr::Or(first, second) | Expr::Comma(first, second) => {
                first.prunes_by_outcome(actions) || second.prunes_by_outcome(actions)
            }
            Expr::Not(inner) => inner.prunes_by_outcome(actions),
            _ => false,
        }
    }

    /// Whether its truth hangs on the outcome of an action.
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

    /// The rows of `among` in which the expression is true.
    fn eval(&self, rows: &impl Rows, among: BooleanBuffer, reached: &mut Reached) -> BooleanBuffer {
        match self {
            Expr::And(first, second) => {
                let passed = first.eval(rows, among, reached);
                if passed.count_set_bits() == 0 {
                    return passed;
                }
                second.eval(rows, passed, reached)
            }
            Expr::Or(first, second) => {
                let passed = first.eval(rows, among.clone(), reached);
                let rest = &among & &!&passed;
                &passed | &second.eval(rows, rest, reached)
            }
            Expr::Comma(first, second) => {
                first.eval(rows, among.clone(), reached);
                second.eval(rows, among, reached)
            }
            Expr::Not(inner) => {
                let passed = inner.eval(rows, among.clone(), reached);
                &among & &!&passed
            }
            Expr::Test(test) => test.evaluate(rows, &among),
            Expr::Action(action) => {
                let place = &mut reached.actions[*action];
                *place = &*place | &among;
                among
            }
            Expr::Prune => {
                reached.pruned = &reached.pruned | &among;
                among
            }
        }
    }

    /// What is left of the expression for rows of which `may_be` says of each test whether it may
    /// pass, and whether it may fail.
    pub(crate) fn told(&self, may_be: &dyn Fn(&Test) -> (bool, bool)) -> Expr {
        match self {
            Expr::And(first, second) => match first.told(may_be) {
                Expr::Test(test) if test.is(true) => second.told(may_be),
                Expr::Test(test) if test.is(false) => Expr::Test(test),
                first => first.and(second.told(may_be)),
            },
            Expr::Or(first, second) => match first.told(may_be) {
                Expr::Test(test) if test.is(false) => second.told(may_be),
                Expr::Test(test) if test.is(true) => Expr::Test(test),
                first => first.or(second.told(may_be)),
            },
            Expr::Comma(first, second) => first.told(may_be).comma(second.told(may_be)),
            Expr::Not(inner) => match inner.told(may_be) {
                Expr::Test(test) if test.is(true) => Expr::always(false),
                Expr::Test(test) if test.is(false) => Expr::always(true),
                inner => Expr::Not(Box::new(inner)),
            },
            Expr::Test(test) => match may_be(test) {
                (true, false) => Expr::always(true),
                (false, _) => Expr::always(false),
                (true, true) => self.clone(),
            },
            Expr::Action(_) | Expr::Prune => self.clone(),
        }
    }

    pub(crate) fn always(outcome: bool) -> Expr {
        Expr::Test(Arc::new(Test::Always(outcome)))
    }

    /// Whether it has an action. Of what is [told](Expr::told), whether any may be reached.
    pub(crate) fn acts(&self) -> bool {
        match self {
            Expr::And(first, second) | Expr::Or(first, second) | Expr::Comma(first, second) => {
                first.acts() || second.acts()
            }
            Expr::Not(inner) => inner.acts(),
            Expr::Action(_) => true,
            Expr::Test(_) | Expr::Prune => false,
        }
    }

    /// Whether it says the same of all rows.
    pub(crate) fn is_constant(&self) -> bool {
        let mut constant = true;
        self.each_test(&mut |test| constant &= matches!(test, Test::Always(_)));
        constant
    }

    /// Calls `visit` with every test.
    pub(crate) fn each_test<'a>(&'a self, visit: &mut dyn FnMut(&'a Test)) {
        match self {
            Expr::And(first, second) | Expr::Or(first, second) | Expr::Comma(first, second) => {
                first.each_test(visit);
                second.each_test(visit);
            }
            Expr::Not(inner) => inner.each_test(visit),
            Expr::Test(test) => visit(test),
            Expr::Action(_) | Expr::Prune => {}
        }
    }

    /// Makes pruning do nothing, as it does where directories come after what is in them.
    pub(crate) fn forget_pruning(&mut self) {
        match self {
            Expr::And(first, second) | Expr::Or(first, second) | Expr::Comma(first, second) => {
                first.forget_pruning();
                second.forget_pruning();
            }
            Expr::Not(inner) => inner.forget_pruning(),
            Expr::Prune => *self = Expr::always(true),
            Expr::Test(_) | Expr::Action(_) => {}
        }
    }

    /// Puts what costs least first where tests stand beside each other, as find(1) does: names,
    /// then types, then all else.
    pub(crate) fn cheapest_first(&mut self) {
        match self {
            Expr::And(first, second) => {
                first.cheapest_first();
                second.cheapest_first();
                self.sink_last();
            }
            Expr::Or(first, second) | Expr::Comma(first, second) => {
                first.cheapest_first();
                second.cheapest_first();
            }
            Expr::Not(inner) => inner.cheapest_first(),
            Expr::Test(_) | Expr::Action(_) | Expr::Prune => {}
        }
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

    /// What evaluating it costs, in no certain unit.
    fn cost(&self) -> u32 {
        match self {
            Expr::Test(test) if test.reads_names_only() => 0,
            Expr::Test(test) if matches!(**test, Test::Type(_)) => 1,
            Expr::Not(inner) => inner.cost(),
            _ => 2,
        }
    }

    /// Whether it has neither actions nor `-prune`.
    fn is_pure(&self) -> bool {
        match self {
            Expr::And(first, second) | Expr::Or(first, second) | Expr::Comma(first, second) => {
                first.is_pure() && second.is_pure()
            }
            Expr::Not(inner) => inner.is_pure(),
            Expr::Test(_) => true,
            Expr::Action(_) | Expr::Prune => false,
        }
    }

    /// Whether it prunes.
    pub(crate) fn prunes(&self) -> bool {
        match self {
            Expr::And(first, second) | Expr::Or(first, second) | Expr::Comma(first, second) => {
                first.prunes() || second.prunes()
            }
            Expr::Not(inner) => inner.prunes(),
            Expr::Prune => true,
            Expr::Test(_) | Expr::Action(_) => false,
        }
    }
}

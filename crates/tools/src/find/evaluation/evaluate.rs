//! The expression, evaluated over many rows at once, or over one with its actions.

use super::candidates::{Candidates, One};
use crate::error::Result;
use crate::find::actions::Action;
use crate::find::language::Expr;
use arrow::buffer::BooleanBuffer;

/// Where each action, and pruning, was reached.
#[derive(Debug)]
pub(crate) struct Reached {
    /// By action: the rows in which it is to be carried out.
    pub(crate) actions: Vec<BooleanBuffer>,
    /// The rows below which nothing is to be looked at.
    pub(crate) pruned: BooleanBuffer,
}

impl Reached {
    /// Returns the rows in which anything was reached.
    pub(crate) fn any(&self) -> BooleanBuffer {
        self.actions.iter().fold(self.pruned.clone(), |any, rows| &any | rows)
    }
}

/// Result of evaluating an expression.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// An action, by its place in `Find::actions`.
    Act(usize),
    /// `-prune`
    Prune,
}

impl Expr {
    /// Evaluates the expression over rows, each operator on all rows that reach it at once.
    pub(crate) fn evaluate(&self, rows: &impl Candidates, actions: &[Action]) -> Result<Reached> {
        let none = BooleanBuffer::new_unset(rows.len());
        let mut reached = Reached { actions: vec![none.clone(); actions.len()], pruned: none };
        let all = BooleanBuffer::new_set(rows.len());
        match actions.iter().any(Action::decides) {
            true => drop(self.eval_maybe(rows, all, actions, &mut reached)?),
            false => drop(self.eval(rows, all, &mut reached)?),
        }
        Ok(reached)
    }

    /// Does as [`Expr::eval`] where the outcome of some actions is only known when they have been
    /// carried out. Returns the rows in which the expression may be true, and those in which it may
    /// be false.
    fn eval_maybe(
        &self,
        rows: &impl Candidates,
        among: BooleanBuffer,
        actions: &[Action],
        reached: &mut Reached,
    ) -> Result<(BooleanBuffer, BooleanBuffer)> {
        Ok(match self {
            Expr::And(first, second) => {
                let (passed, failed) = first.eval_maybe(rows, among, actions, reached)?;
                let (both, not_second) = second.eval_maybe(rows, passed, actions, reached)?;
                (both, &failed | &not_second)
            }
            Expr::Or(first, second) => {
                let (passed, failed) = first.eval_maybe(rows, among, actions, reached)?;
                let (second, neither) = second.eval_maybe(rows, failed, actions, reached)?;
                (&passed | &second, neither)
            }
            Expr::Comma(first, second) => {
                first.eval_maybe(rows, among.clone(), actions, reached)?;
                second.eval_maybe(rows, among, actions, reached)?
            }
            Expr::Not(inner) => {
                let (passed, failed) = inner.eval_maybe(rows, among, actions, reached)?;
                (failed, passed)
            }
            Expr::Action(action) if actions[*action].decides() => {
                self.eval(rows, among.clone(), reached)?;
                (among.clone(), among)
            }
            Expr::Test(_) | Expr::Action(_) | Expr::Prune => {
                let passed = self.eval(rows, among.clone(), reached)?;
                let failed = &among & &!&passed;
                (passed, failed)
            }
        })
    }

    /// Evaluates the expression on one row, carrying actions out as they are reached: `act` gets
    /// each step and says whether it is true, or `None` to end the search.
    pub(crate) fn carry_out<R: Candidates, F>(
        &self,
        rows: &R,
        at: usize,
        act: &mut F,
    ) -> Result<Option<bool>>
    where
        F: FnMut(Step) -> Result<Option<bool>>,
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
            Expr::Test(test) => Some(test.check(rows, One(at))?),
            Expr::Action(action) => act(Step::Act(*action))?,
            Expr::Prune => act(Step::Prune)?,
        })
    }

    /// Returns the rows of `among` in which the expression is true.
    fn eval(
        &self,
        rows: &impl Candidates,
        among: BooleanBuffer,
        reached: &mut Reached,
    ) -> Result<BooleanBuffer> {
        Ok(match self {
            Expr::And(first, second) => {
                let passed = first.eval(rows, among, reached)?;
                if passed.count_set_bits() == 0 {
                    return Ok(passed);
                }
                second.eval(rows, passed, reached)?
            }
            Expr::Or(first, second) => {
                let passed = first.eval(rows, among.clone(), reached)?;
                let rest = &among & &!&passed;
                &passed | &second.eval(rows, rest, reached)?
            }
            Expr::Comma(first, second) => {
                first.eval(rows, among.clone(), reached)?;
                second.eval(rows, among, reached)?
            }
            Expr::Not(inner) => {
                let passed = inner.eval(rows, among.clone(), reached)?;
                &among & &!&passed
            }
            Expr::Test(test) => test.evaluate(rows, &among)?,
            Expr::Action(action) => {
                let place = &mut reached.actions[*action];
                *place = &*place | &among;
                among
            }
            Expr::Prune => {
                reached.pruned = &reached.pruned | &among;
                among
            }
        })
    }
}

//! The expression of a find: tests and actions joined by operators, and its evaluation over a batch of rows.

use super::action::Action;
use super::test::{Rows, Test};
use arrow::buffer::BooleanBuffer;

/// An expression. Actions and pruning are true where they are reached.
#[derive(Debug)]
pub enum Expr {
    /// Both; the second one only where the first is true.
    And(Box<Expr>, Box<Expr>),
    /// Either; the second one only where the first is false.
    Or(Box<Expr>, Box<Expr>),
    /// Not.
    Not(Box<Expr>),
    /// A test.
    Test(Test),
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

impl Expr {
    pub(crate) fn and(self, other: Expr) -> Expr {
        Expr::And(Box::new(self), Box::new(other))
    }

    pub(crate) fn or(self, other: Expr) -> Expr {
        Expr::Or(Box::new(self), Box::new(other))
    }

    /// Evaluates the expression over rows, each operator on all rows that reach it at once.
    pub(crate) fn evaluate(&self, rows: &Rows<'_>, actions: &[Action]) -> Reached {
        let none = BooleanBuffer::new_unset(rows.len());
        let mut reached = Reached { actions: vec![none.clone(); actions.len()], pruned: none };
        self.eval(rows, BooleanBuffer::new_set(rows.len()), &mut reached);
        reached
    }

    /// The rows of `among` in which the expression is true.
    fn eval(&self, rows: &Rows<'_>, among: BooleanBuffer, reached: &mut Reached) -> BooleanBuffer {
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

    /// Whether the expression may be true, and whether it may be false, somewhere among rows whose columns lie
    /// within bounds.
    pub(crate) fn may_be(&self, bounds: &dyn Fn(&str) -> Option<(i64, i64)>) -> (bool, bool) {
        match self {
            Expr::And(first, second) => {
                let (a, b) = (first.may_be(bounds), second.may_be(bounds));
                (a.0 && b.0, a.1 || b.1)
            }
            Expr::Or(first, second) => {
                let (a, b) = (first.may_be(bounds), second.may_be(bounds));
                (a.0 || b.0, a.1 && b.1)
            }
            Expr::Not(inner) => {
                let (may, may_not) = inner.may_be(bounds);
                (may_not, may)
            }
            Expr::Test(test) => test.may_be(bounds),
            Expr::Action(_) | Expr::Prune => (true, false),
        }
    }

    /// Whether any action may be reached among rows whose columns lie within bounds.
    pub(crate) fn may_act(&self, bounds: &dyn Fn(&str) -> Option<(i64, i64)>) -> bool {
        match self {
            Expr::And(first, second) => {
                first.may_act(bounds) || (first.may_be(bounds).0 && second.may_act(bounds))
            }
            Expr::Or(first, second) => {
                first.may_act(bounds) || (first.may_be(bounds).1 && second.may_act(bounds))
            }
            Expr::Not(inner) => inner.may_act(bounds),
            Expr::Action(_) => true,
            Expr::Test(_) | Expr::Prune => false,
        }
    }

    /// Calls `visit` with every test.
    pub(crate) fn each_test<'a>(&'a self, visit: &mut dyn FnMut(&'a Test)) {
        match self {
            Expr::And(first, second) | Expr::Or(first, second) => {
                first.each_test(visit);
                second.each_test(visit);
            }
            Expr::Not(inner) => inner.each_test(visit),
            Expr::Test(test) => visit(test),
            Expr::Action(_) | Expr::Prune => {}
        }
    }

    /// Whether it has an action.
    pub(crate) fn acts(&self) -> bool {
        self.may_act(&|_| None)
    }

    /// Whether it prunes.
    pub(crate) fn prunes(&self) -> bool {
        match self {
            Expr::And(first, second) | Expr::Or(first, second) => first.prunes() || second.prunes(),
            Expr::Not(inner) => inner.prunes(),
            Expr::Prune => true,
            Expr::Test(_) | Expr::Action(_) => false,
        }
    }
}

//! Outcomes that a condition may still have when only a part of an entry is known, or only bounds
//! of many entries.

use crate::expression::Expression;
use crate::test::{Field, Span, Test};

/// Possible outcomes of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcomes {
    /// Whether it may pass.
    pub may_pass: bool,
    /// Whether it may fail.
    pub may_fail: bool,
}

impl Outcomes {
    /// Nothing is known.
    pub const EITHER: Outcomes = Outcomes { may_pass: true, may_fail: true };

    /// Returns the one outcome that is certain.
    pub fn certain(passes: bool) -> Self {
        Outcomes { may_pass: passes, may_fail: !passes }
    }

    /// Returns the outcomes of the test that a field is in a span, for entries whose values lie
    /// between two bounds, both included.
    pub fn of_span(field: Field, asked: Span, bounds: Span) -> Self {
        let both = asked.intersection(bounds);
        let unknown = field.may_be_unknown() && bounds.contains(0);
        let all_unknown = unknown && bounds.least == bounds.most;
        Outcomes { may_pass: !both.is_empty() && !all_unknown, may_fail: both != bounds || unknown }
    }

    fn and(self, other: Self) -> Self {
        Outcomes {
            may_pass: self.may_pass && other.may_pass,
            may_fail: self.may_fail || other.may_fail,
        }
    }

    fn negated(self) -> Self {
        Outcomes { may_pass: self.may_fail, may_fail: self.may_pass }
    }
}

impl Expression {
    /// Returns the outcomes that remain, where `of` returns those of each test. Tests behind one
    /// that decides are not looked at.
    ///
    /// # Errors
    ///
    /// Fails with the first error of `of`.
    pub fn outcomes<E>(
        &self,
        of: &mut impl FnMut(&Test) -> Result<Outcomes, E>,
    ) -> Result<Outcomes, E> {
        match self {
            Expression::And(parts) => {
                let mut all = Outcomes::certain(true);
                for part in parts.iter() {
                    all = all.and(part.outcomes(of)?);
                    if !all.may_pass {
                        break;
                    }
                }
                Ok(all)
            }
            Expression::Or(parts) => {
                let mut none = Outcomes::certain(true);
                for part in parts.iter() {
                    none = none.and(part.outcomes(of)?.negated());
                    if !none.may_pass {
                        break;
                    }
                }
                Ok(none.negated())
            }
            Expression::Not(test) => Ok(of(test)?.negated()),
            Expression::Test(test) => of(test),
        }
    }
}

//! Normal forms: expressions are joined so that they are in normal form if their parts are.
//!
//! Spans of one field become one in an And, kinds of files in both And and Or. What is true of all
//! files, or of none, disappears or is all that remains. Nothing is negated but permissions,
//! patterns, extended attributes and times that may be unknown: all other tests have an opposite.

use crate::expression::Expression;
use crate::test::{AttributeTest, Field, Span, Test, Types};

impl From<AttributeTest> for Expression {
    fn from(test: AttributeTest) -> Self {
        match test {
            AttributeTest::Span(field, span) => Self::span(field, span),
            AttributeTest::Type(types) => Self::types(types),
            AttributeTest::Permissions(..) => Expression::Test(Test::Attribute(test)),
        }
    }
}

impl Expression {
    /// Returns an expression that is true of all files, or of none.
    pub fn always(passes: bool) -> Self {
        Expression::Test(Test::Always(passes))
    }

    /// Returns the test that a field is in a span.
    pub fn span(field: Field, span: Span) -> Self {
        let (span, domain) = (span.intersection(field.domain()), field.domain());
        if span.is_empty() || (span == domain && !field.may_be_unknown()) {
            return Self::always(!span.is_empty());
        }
        Expression::Test(Test::Attribute(AttributeTest::Span(field, span)))
    }

    /// Returns the test that a file is of one of some kinds.
    pub fn types(types: Types) -> Self {
        if types == Types::default() || types == Types::ALL {
            return Self::always(types == Types::ALL);
        }
        Expression::Test(Test::Attribute(AttributeTest::Type(types)))
    }

    /// Returns what is true if all of these are.
    pub fn all(parts: impl IntoIterator<Item = Expression>) -> Self {
        Self::join(parts, true)
    }

    /// Returns what is true if one of these is.
    pub fn any(parts: impl IntoIterator<Item = Expression>) -> Self {
        Self::join(parts, false)
    }

    /// Returns what is true if this is not.
    pub fn negated(self) -> Self {
        match self {
            Expression::And(parts) => Self::any(parts.into_iter().map(Self::negated)),
            Expression::Or(parts) => Self::all(parts.into_iter().map(Self::negated)),
            Expression::Not(test) => Expression::Test(test),
            Expression::Test(Test::Always(passes)) => Self::always(!passes),
            Expression::Test(Test::Attribute(AttributeTest::Type(types))) => {
                Self::types(types.complement())
            }
            Expression::Test(Test::Attribute(AttributeTest::Span(field, Span { least, most })))
                if !field.may_be_unknown() =>
            {
                let domain = field.domain();
                Self::any([
                    Self::span(field, Span { most: least - 1, ..domain }),
                    Self::span(field, Span { least: most + 1, ..domain }),
                ])
            }
            Expression::Test(test) => Expression::Not(test),
        }
    }

    /// Joins parts in normal form by And, if `all`, or by Or.
    fn join(parts: impl IntoIterator<Item = Expression>, all: bool) -> Self {
        let mut parts = parts.into_iter();
        // Operands of one part are in normal form already.
        let mut joined = parts.next().map(|first| first.operands(all)).unwrap_or_default();
        for part in parts.flat_map(|part| part.operands(all)) {
            add(&mut joined, part, all);
        }
        // One constant leaves the decision to the other conditions, and the other one decides
        // alone.
        joined.retain(|part| *part != Self::always(all));
        if joined.contains(&Self::always(!all)) {
            return Self::always(!all);
        }
        joined.sort_by_key(Self::cost);
        match joined.len() {
            0 => Self::always(all),
            1 => joined.remove(0),
            _ if all => Expression::And(joined),
            _ => Expression::Or(joined),
        }
    }

    /// Returns the parts of an And, or of an Or.
    fn operands(self, all: bool) -> Vec<Expression> {
        match self {
            Expression::And(parts) if all => parts,
            Expression::Or(parts) if !all => parts,
            other => vec![other],
        }
    }

    /// Returns the most that one of the tests takes.
    fn cost(&self) -> u8 {
        match self {
            Expression::And(parts) | Expression::Or(parts) => {
                parts.iter().map(Self::cost).max().unwrap_or_default()
            }
            Expression::Not(test) | Expression::Test(test) => test.cost(),
        }
    }
}

/// Adds a part to others that are joined with it: to one of them, if that says both.
fn add(joined: &mut Vec<Expression>, part: Expression, all: bool) {
    let both = |known: &Expression| match (known, &part) {
        (Expression::Test(Test::Attribute(a)), Expression::Test(Test::Attribute(b))) => {
            joined_test(*a, *b, all)
        }
        (known, part) if known == part => Some(known.clone()),
        _ => None,
    };
    for known in joined.iter_mut() {
        if let Some(both) = both(known) {
            *known = both;
            return;
        }
    }
    joined.push(part);
}

/// Returns one test for two that are joined, if there is one.
fn joined_test(a: AttributeTest, b: AttributeTest, all: bool) -> Option<Expression> {
    match (a, b) {
        (AttributeTest::Type(a), AttributeTest::Type(b)) => {
            Some(Expression::types(if all { a.intersection(b) } else { a.union(b) }))
        }
        (AttributeTest::Span(f, a), AttributeTest::Span(g, b)) if all && f == g => {
            Some(Expression::span(f, a.intersection(b)))
        }
        _ => (a == b).then(|| a.into()),
    }
}

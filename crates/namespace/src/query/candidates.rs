//! Which ranges of indexes have all files that an expression is true of.
//!
//! A test of an indexed attribute is one range, or several. Of an And, what one part asks for is
//! enough, whichever is chosen; of an Or, it takes what each part asks for. Nothing is said of a
//! test that only fails, and of attributes without an index. So what comes out has all files that
//! the expression is true of, and others: each is to be tested ([`Expression::matches`]).

use super::expression::Expression;
use super::pattern::Pattern;
use super::test::{Field, Order, Span, Test, TextField, Types, XattrTest};
use crate::attributes::{Attribute, Indexes, Value};
use crate::keys::FileId;
use canopy_store::KeyRange;
use std::ops::RangeInclusive;

/// One place that has files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The entries of an index in a range of keys.
    Index(Attribute, KeyRange),
    /// The files with these ids, without any index.
    Files(RangeInclusive<FileId>),
}

/// Places that together have all files that an expression is true of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidates {
    /// All are in this one.
    Source(Source),
    /// All are in any one of these, of which there are at least two.
    Either(Vec<Candidates>),
    /// Each is in at least one of these: in none, if there are none.
    Union(Vec<Candidates>),
}

impl Candidates {
    /// Returns the sources to read that cost least together, with what they cost, and asks `cost`
    /// for each source once. Files may be in several of them.
    pub fn cheapest(&self, cost: &mut dyn FnMut(&Source) -> u64) -> (u64, Vec<&Source>) {
        match self {
            Candidates::Source(source) => (cost(source), vec![source]),
            Candidates::Either(choices) => {
                let choices = choices.iter().map(|choice| choice.cheapest(cost));
                choices.min_by_key(|(cost, _)| *cost).unwrap_or_default()
            }
            Candidates::Union(parts) => {
                let parts = parts.iter().map(|part| part.cheapest(cost));
                parts.fold((0, Vec::new()), |(sum, mut sources), (cost, more)| {
                    sources.extend(more);
                    (sum.saturating_add(cost), sources)
                })
            }
        }
    }

    fn of(attribute: Attribute, range: KeyRange) -> Self {
        Candidates::Source(Source::Index(attribute, range))
    }
}

impl Expression {
    /// Returns where all files are that this is true of; `None` if the indexes do not tell, so
    /// that all files have to be tested. An empty union means that there is no such file.
    pub fn candidates(&self, indexes: &Indexes) -> Option<Candidates> {
        match self {
            Expression::And(parts) => {
                let mut choices: Vec<Candidates> =
                    parts.iter().filter_map(|part| part.candidates(indexes)).collect();
                match choices.len() {
                    0 | 1 => choices.pop(),
                    _ => Some(Candidates::Either(choices)),
                }
            }
            Expression::Or(parts) => {
                let parts: Option<Vec<_>> =
                    parts.iter().map(|part| part.candidates(indexes)).collect();
                parts.map(Candidates::Union)
            }
            Expression::Not(_) => None,
            Expression::Test(test) => test.candidates(indexes),
        }
    }
}

impl Test {
    fn candidates(&self, indexes: &Indexes) -> Option<Candidates> {
        let indexed = |attribute| indexes.has(attribute).then_some(attribute);
        match self {
            Test::Always(passes) => (!passes).then(|| Candidates::Union(Vec::new())),
            Test::Span(Field::Inode, span) => {
                let (least, most) = (span.least.try_into().ok()?, span.most.try_into().ok()?);
                Some(Candidates::Source(Source::Files(least..=most)))
            }
            Test::Span(field, span) => {
                let attribute = indexed(field.attribute()?)?;
                Some(Candidates::of(attribute, span_range(attribute, *field, *span)?))
            }
            Test::Type(types) => Some(type_ranges(indexed(Attribute::Type)?, *types)),
            Test::Permissions(..) => None,
            Test::Text(field, pattern) => {
                let attribute = match field {
                    TextField::Name => indexed(Attribute::Name)?,
                    TextField::Extension => indexed(Attribute::Extension)?,
                    TextField::Path | TextField::Target => return None,
                };
                let range = pattern_range(attribute, pattern);
                // All files have a name, so that this would be no choice.
                (*field == TextField::Extension || range != attribute.all())
                    .then(|| Candidates::of(attribute, range))
            }
            Test::Xattr(name, test) => {
                let attribute = indexes.xattr(name)?;
                Some(Candidates::of(attribute, xattr_range(attribute, test)))
            }
        }
    }
}

fn span_range(attribute: Attribute, field: Field, span: Span) -> Option<KeyRange> {
    let value = |value: i128| match field.is_time() {
        true => value.try_into().ok().map(Value::time),
        false => value.try_into().ok().map(Value::number),
    };
    Some(attribute.range(&value(span.least)?, &value(span.most)?))
}

/// Returns ranges of kinds, those beside each other as one.
fn type_ranges(attribute: Attribute, types: Types) -> Candidates {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for value in types.values() {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == value => *last = value,
            _ => runs.push((value, value)),
        }
    }
    let range = |(first, last)| attribute.range(&Value::number(first), &Value::number(last));
    let mut ranges: Vec<Candidates> =
        runs.into_iter().map(|run| Candidates::of(attribute, range(run))).collect();
    match ranges.pop() {
        Some(only) if ranges.is_empty() => only,
        last => {
            ranges.extend(last);
            Candidates::Union(ranges)
        }
    }
}

fn pattern_range(attribute: Attribute, pattern: &Pattern) -> KeyRange {
    match pattern.only() {
        Some(text) => attribute.range(&Value::text(text), &Value::text(text)),
        None => attribute.texts_with(pattern.beginning()),
    }
}

fn xattr_range(attribute: Attribute, test: &XattrTest) -> KeyRange {
    match test {
        // Numbers are not in the order of their texts.
        XattrTest::Exists | XattrTest::Number(..) => attribute.all(),
        XattrTest::Value(pattern) => pattern_range(attribute, pattern),
        XattrTest::Bytes(Order::Less | Order::LessEqual, bytes) => attribute.texts_to(bytes),
        XattrTest::Bytes(Order::Greater | Order::GreaterEqual, bytes) => {
            attribute.texts_from(bytes)
        }
    }
}

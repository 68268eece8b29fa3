//! Ranges of indexes that contain all files that match an expression.
//!
//! A test of an indexed attribute is one range, or several. For an And, the ranges of one part are
//! enough, whichever is chosen; an Or needs those of each part. Tests that only fail, and
//! attributes without an index, give no ranges. So the ranges contain all matching files, and
//! others: each is to be tested ([`Expression::matches`]).

use crate::records::attributes::{Attribute, Indexes, Value};
use crate::records::keys::FileId;
use canopy_query::{
    AttributeTest, Expression, Field, Order, Pattern, Span, Test, TextField, Types, XattrTest,
};
use canopy_store::KeyRange;
use std::ops::RangeInclusive;

/// At most this many candidates are looked at without reading more indexes.
const FEW: usize = 16;

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
    /// Returns the ids of all files that are candidates, sorted: of an Either, those that are in
    /// every choice that `read` knows. `None` if that takes a source that `read` does not give: one
    /// that has too many. `read` gives the ids of a source in any order.
    ///
    /// # Errors
    ///
    /// Fails with the first error of `read`.
    pub fn files<E>(
        &self,
        read: &mut impl FnMut(&Source) -> Result<Option<Vec<FileId>>, E>,
    ) -> Result<Option<Vec<FileId>>, E> {
        Ok(match self {
            Candidates::Source(source) => read(source)?.map(|mut ids| {
                ids.sort_unstable();
                ids.dedup();
                ids
            }),
            Candidates::Either(choices) => {
                let mut all: Option<Vec<FileId>> = None;
                for choice in choices {
                    if all.as_ref().is_some_and(|all| all.len() <= FEW) {
                        break;
                    }
                    let Some(ids) = choice.files(read)? else { continue };
                    all = Some(match all {
                        None => ids,
                        Some(mut all) => {
                            all.retain(|id| ids.binary_search(id).is_ok());
                            all
                        }
                    });
                }
                all
            }
            Candidates::Union(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    let Some(ids) = part.files(read)? else { return Ok(None) };
                    all.extend(ids);
                }
                all.sort_unstable();
                all.dedup();
                Some(all)
            }
        })
    }

    /// Returns where all files are that an expression is true of; `None` if the indexes do not
    /// contain them, so that all files have to be tested. An empty union means that there is no
    /// such file.
    pub fn of(expression: &Expression, indexes: &Indexes) -> Option<Self> {
        match expression {
            Expression::And(parts) => {
                let mut choices: Vec<Candidates> =
                    parts.iter().filter_map(|part| Self::of(part, indexes)).collect();
                match choices.len() {
                    0 | 1 => choices.pop(),
                    _ => Some(Candidates::Either(choices)),
                }
            }
            Expression::Or(parts) => {
                let parts: Option<Vec<_>> =
                    parts.iter().map(|part| Self::of(part, indexes)).collect();
                parts.map(Candidates::Union)
            }
            Expression::Not(Test::Attribute(AttributeTest::Span(field, span)))
                if field.may_be_unknown() =>
            {
                Self::outside(*field, *span, indexes)
            }
            Expression::Not(_) => None,
            Expression::Test(test) => Self::of_test(test, indexes),
        }
    }

    /// Returns where the files are whose value is not in a span, or is 0, which is not known.
    fn outside(field: Field, span: Span, indexes: &Indexes) -> Option<Self> {
        let domain = field.domain();
        let spans = [
            Span { most: span.least - 1, ..domain },
            Span { least: span.most + 1, ..domain },
            Span { least: 0, most: 0 },
        ];
        let spans = spans.into_iter().filter(|span| !span.is_empty());
        let test = |span| Test::Attribute(AttributeTest::Span(field, span));
        let parts: Option<Vec<_>> = spans.map(|span| Self::of_test(&test(span), indexes)).collect();
        parts.map(Candidates::Union)
    }

    fn of_test(test: &Test, indexes: &Indexes) -> Option<Self> {
        let indexed = |attribute| indexes.has(attribute).then_some(attribute);
        match test {
            Test::Always(passes) => (!passes).then(|| Candidates::Union(Vec::new())),
            Test::Attribute(AttributeTest::Span(Field::Inode, span)) => {
                let (least, most) = (span.least.try_into().ok()?, span.most.try_into().ok()?);
                Some(Candidates::Source(Source::Files(FileId(least)..=FileId(most))))
            }
            Test::Attribute(AttributeTest::Span(field, span)) => {
                let attribute = indexed(attribute_of(*field)?)?;
                Some(Self::of_range(attribute, span_range(attribute, *field, *span)?))
            }
            Test::Attribute(AttributeTest::Type(types)) => {
                Some(type_ranges(indexed(Attribute::Type)?, *types))
            }
            Test::Attribute(AttributeTest::Permissions(..)) => None,
            Test::Text(field, pattern) => {
                let attribute = match field {
                    TextField::Name => indexed(Attribute::Name)?,
                    TextField::Extension => indexed(Attribute::Extension)?,
                    TextField::Path | TextField::Target => return None,
                };
                let range = pattern_range(attribute, pattern);
                // All files have a name, so that this would be no choice.
                (*field == TextField::Extension || range != attribute.all())
                    .then(|| Self::of_range(attribute, range))
            }
            Test::Xattr(name, test) => {
                let attribute = indexes.xattr(name)?;
                Some(Self::of_range(attribute, xattr_range(attribute, test)))
            }
        }
    }

    fn of_range(attribute: Attribute, range: KeyRange) -> Self {
        Candidates::Source(Source::Index(attribute, range))
    }
}

/// Returns the attribute that an index of a field is of. `None` for inode numbers, which need no
/// index, and whole modes, which queries do not compare.
fn attribute_of(field: Field) -> Option<Attribute> {
    Some(match field {
        Field::Size => Attribute::Size,
        Field::Blocks => Attribute::Blocks,
        Field::Uid => Attribute::Uid,
        Field::Gid => Attribute::Gid,
        Field::Links => Attribute::Links,
        Field::Project => Attribute::Project,
        Field::Inode | Field::Mode => return None,
        Field::Mtime => Attribute::Mtime,
        Field::Ctime => Attribute::Ctime,
        Field::Atime => Attribute::Atime,
        Field::Btime => Attribute::Btime,
    })
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
        runs.into_iter().map(|run| Candidates::of_range(attribute, range(run))).collect();
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

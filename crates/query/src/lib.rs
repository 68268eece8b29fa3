//! Conditions of entries: one syntax tree ([`Expression`]) for all that search.
//!
//! | front end | yields it in |
//! | --- | --- |
//! | queries in brackets, `/mnt/[size>1M and name~*.h5]` (Loris, section III-B) | [`parse`] |
//! | find(1): conditions of one entry; all that a search needs to reach an action | `tools::find` |
//! | predicates of SQL | `sql::restriction` |
//!
//! | back end | judges it in |
//! | --- | --- |
//! | one entry in memory | [`Expression::matches`], by [`Candidate`] |
//! | columns of an index, bounds of row groups | `read::conditions`, by [`Expression::outcomes`] |
//! | indexes of attributes of a namespace | `namespace::Candidates` |
//!
//! `docs/queries.md` describes the language in brackets. An expression shows itself as a query in
//! brackets that has one meaning at any time.
//!
//! Invariants:
//!
//! - Expressions are in normal form ([`Expression::all`], [`Expression::any`],
//!   [`Expression::negated`]).
//! - A birth that is not known (0) passes no test of `btime`. Such a test therefore has no opposite
//!   that is a span.
//!
//! Not its job: finding files. Nothing here reads an index, a table, a clock or the system's users.

mod comparison;
mod cursor;
mod display;
mod expression;
mod moments;
mod normal;
mod outcomes;
mod parser;
mod pattern;
mod test;
mod values;

pub use display::shown;
pub use expression::{Candidate, Expression, Needs};
pub use outcomes::Outcomes;
pub use parser::Counts;
pub use pattern::{Kind, Pattern};
pub use test::{
    AttributeTest, Decimal, Field, Order, PermissionMatch, Span, Test, TextField, Types, XattrTest,
    extension,
};

use jiff::tz::TimeZone;

/// Longer components are refused. The kernel's are shorter; this is for what other programs ask,
/// and for queries as they show themselves.
pub const QUERY_BYTES_MAX: usize = 4096;

/// A component of a path that is in brackets.
#[derive(Clone, Debug, PartialEq)]
pub enum Component {
    /// `[TEST ...]`: the files that pass.
    Search(Expression),
    /// `[@NAME]`: the tree as a snapshot has it.
    Snapshot(Vec<u8>),
    /// `[recent]` or `[recent TIME]`: files, those first that were changed last.
    Recent {
        /// Only what was changed then or later, in nanoseconds since 1970.
        since_ns: Option<i64>,
    },
    /// `[duplicates]`: files whose contents are those of another one.
    Duplicates,
}

/// Facts on which the meaning of a query depends.
pub struct Context<'a> {
    /// The present, in nanoseconds since 1970.
    pub now_ns: i64,
    /// The zone of dates that name none.
    pub zone: TimeZone,
    /// Returns the id of a user by name.
    pub user: &'a dyn Fn(&str) -> Option<u32>,
    /// Returns the id of a group by name.
    pub group: &'a dyn Fn(&str) -> Option<u32>,
}

/// An error in a query, and a correction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// The reason, for the user.
    pub message: String,
    /// The byte of the component at which it was found.
    pub at: usize,
}

/// Returns the zone of this machine.
pub fn system_zone() -> TimeZone {
    TimeZone::system()
}

/// Reads a component of a path. `None` if it is in no brackets and thus no query.
///
/// # Errors
///
/// Fails if a query in brackets is wrong, with what would be right.
pub fn parse(component: &[u8], context: &Context<'_>) -> Result<Option<Component>, QueryError> {
    parse_nested(component, context, &mut Counts::default())
}

/// Like `parse`, for a query that is nested in others. `counts` are those of the others, and then
/// those of all.
///
/// # Errors
///
/// Fails as `parse` does, and if nested queries have too many tests or regular expressions.
pub fn parse_nested(
    component: &[u8],
    context: &Context<'_>,
    counts: &mut Counts,
) -> Result<Option<Component>, QueryError> {
    let inner = component.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let Some(inner) = inner else { return Ok(None) };
    if component.len() > QUERY_BYTES_MAX {
        let message = format!("a query has at most {QUERY_BYTES_MAX} bytes");
        return Err(QueryError { message, at: QUERY_BYTES_MAX });
    }
    // Places count from the bracket.
    let parsed = parse_inner(inner, context, counts).map(Some);
    parsed.map_err(|error| QueryError { at: error.at + 1, ..error })
}

/// Reads the text between the brackets of a component, however long it is, like `parse_nested`.
///
/// # Errors
///
/// Fails as `parse_nested` does.
pub fn parse_inner(
    inner: &[u8],
    context: &Context<'_>,
    counts: &mut Counts,
) -> Result<Component, QueryError> {
    let (component, all) = parser::Parser::new(inner, context, *counts).counted()?;
    *counts = all;
    Ok(component)
}

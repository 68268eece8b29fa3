//! Queries of namespaces: ranges of indexes for them, and random queries, which mean the same to
//! everything that reads them.

mod agreement;
mod candidates;
mod random;

use canopy_query::{Component, Context, QueryError, parse};
use jiff::tz::TimeZone;

/// 2023-11-14T22:13:20Z.
const NOW_NS: i64 = 1_700_000_000_000_000_000;

fn component(text: &[u8]) -> Result<Option<Component>, QueryError> {
    let user = |name: &str| (name == "ada").then_some(1000);
    let group = |name: &str| (name == "staff").then_some(50);
    parse(text, &Context { now_ns: NOW_NS, zone: TimeZone::UTC, user: &user, group: &group })
}

/// Reads a query that is one.
fn read(text: &str) -> Component {
    let read = component(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    read.unwrap_or_else(|| panic!("{text} is not a query"))
}

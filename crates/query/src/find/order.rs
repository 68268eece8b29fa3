//! `--sort`, `--reverse` and `-depth`: the order in which entries are acted on.

use super::chunk::Chunk;
use super::primary::Globals;
use crate::columns::{numbers, strings};
use arrow::datatypes::{Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use canopy_model::{compare_paths, is_below};
use std::cmp::Ordering;

/// What to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Path,
    Depth,
    /// A stored column.
    Column(&'static str),
}

/// A value to sort by.
enum Key<'a> {
    Text(&'a str),
    Number(i64),
}

impl Field {
    /// The field that `--sort` names.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        const COLUMNS: [&str; 11] =
            ["name", "size", "blocks", "mtime", "atime", "ctime", "btime", "uid", "gid", "nlink", "ino"];
        match name {
            "path" => Ok(Field::Path),
            "depth" => Ok(Field::Depth),
            "links" => Ok(Field::Column("nlink")),
            _ => {
                COLUMNS.iter().find(|column| **column == name).map(|column| Field::Column(column)).ok_or_else(
                    || format!("--sort needs one of path, depth, {}, not '{name}'", COLUMNS.join(", ")),
                )
            }
        }
    }

    /// The column that it reads.
    pub(super) fn column(self) -> Option<&'static str> {
        match self {
            Field::Column(name) => Some(name),
            Field::Path | Field::Depth => None,
        }
    }

    fn key<'a>(self, chunk: &'a Chunk<'_>, at: usize) -> Key<'a> {
        let batch = &chunk.batch;
        match self {
            Field::Path => Key::Text(&chunk.shown[at]),
            Field::Depth => Key::Number(i64::from(chunk.depths[at])),
            Field::Column("name") => Key::Text(strings(batch, "name").value(at)),
            Field::Column(name @ ("size" | "blocks")) => {
                Key::Number(numbers::<Int64Type>(batch, name).value(at))
            }
            Field::Column(name @ ("uid" | "gid" | "nlink")) => {
                Key::Number(i64::from(numbers::<UInt32Type>(batch, name).value(at)))
            }
            Field::Column("ino") => Key::Number(numbers::<UInt64Type>(batch, "ino").value(at) as i64),
            Field::Column(time) => Key::Number(numbers::<TimestampNanosecondType>(batch, time).value(at)),
        }
    }
}

/// The rows of all chunks in the order that is asked for, each by chunk and row. Rows that compare equal are in path order.
pub(super) fn in_order(chunks: &[Chunk<'_>], globals: &Globals) -> Vec<(usize, usize)> {
    let rows = chunks.iter().enumerate();
    let mut rows: Vec<(usize, usize)> =
        rows.flat_map(|(chunk, rows)| (0..rows.paths.len()).map(move |row| (chunk, row))).collect();
    let compare = |a: (usize, usize), b: (usize, usize)| match globals.sort {
        Some(field) => {
            let keys = (field.key(&chunks[a.0], a.1), field.key(&chunks[b.0], b.1));
            let order = match keys {
                (Key::Number(a), Key::Number(b)) => a.cmp(&b),
                (Key::Text(a), Key::Text(b)) if field == Field::Path => compare_paths(a, b),
                (Key::Text(a), Key::Text(b)) => a.cmp(b),
                _ => Ordering::Equal,
            };
            order.then_with(|| compare_paths(&chunks[a.0].shown[a.1], &chunks[b.0].shown[b.1]))
        }
        None => {
            let (of_a, of_b) = (&chunks[a.0], &chunks[b.0]);
            let starts = of_a.visit.number.cmp(&of_b.visit.number);
            starts.then_with(|| contents_first(&of_a.paths[a.1], &of_b.paths[b.1]))
        }
    };
    rows.sort_unstable_by(|&a, &b| compare(a, b));
    if globals.reverse {
        rows.reverse();
    }
    rows
}

/// Path order, but directories behind what is in them.
fn contents_first(a: &str, b: &str) -> Ordering {
    match a == b {
        true => Ordering::Equal,
        false if is_below(a, b) => Ordering::Less,
        false if is_below(b, a) => Ordering::Greater,
        false => compare_paths(a, b),
    }
}

//! `--sort`, `--reverse` and `-depth`: the order in which entries are acted on.

use super::chunk::ChunkRow;
use super::primary::Globals;
use arrow::datatypes::{Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use canopy_model::{compare_paths, is_below};
use canopy_read::columns::{numbers, strings};
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
pub(super) enum Key<'a> {
    Text(&'a str),
    Number(i64),
}

impl Field {
    /// The field that `--sort` names.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        const COLUMNS: [&str; 11] = [
            "name", "size", "blocks", "mtime", "atime", "ctime", "btime", "uid", "gid", "nlink",
            "ino",
        ];
        match name {
            "path" => Ok(Field::Path),
            "depth" => Ok(Field::Depth),
            "links" => Ok(Field::Column("nlink")),
            _ => COLUMNS
                .iter()
                .find(|column| **column == name)
                .map(|column| Field::Column(column))
                .ok_or_else(|| {
                    format!("--sort needs one of path, depth, {}, not '{name}'", COLUMNS.join(", "))
                }),
        }
    }

    /// The column that it reads.
    pub(super) fn column(self) -> Option<&'static str> {
        match self {
            Field::Column(name) => Some(name),
            Field::Path | Field::Depth => None,
        }
    }
}

/// What can be put in order.
pub(super) trait Row {
    /// What it is sorted by.
    fn key(&self, field: Field) -> Key<'_>;
    /// The number of its start.
    fn start(&self) -> usize;
    /// Its path as it is printed, escaped, without slashes at its end.
    fn shown(&self) -> &str;
}

impl Row for ChunkRow<'_> {
    fn key(&self, field: Field) -> Key<'_> {
        let (chunk, at) = (self.chunk, self.at);
        let batch = &chunk.batch;
        match field {
            Field::Path => Key::Text(&chunk.shown[at]),
            Field::Depth => Key::Number(i64::from(chunk.depths[at])),
            Field::Column("name") => Key::Text(strings(batch, "name").value(at)),
            Field::Column(name @ ("size" | "blocks")) => {
                Key::Number(numbers::<Int64Type>(batch, name).value(at))
            }
            Field::Column(name @ ("uid" | "gid" | "nlink")) => {
                Key::Number(i64::from(numbers::<UInt32Type>(batch, name).value(at)))
            }
            Field::Column("ino") => {
                Key::Number(numbers::<UInt64Type>(batch, "ino").value(at) as i64)
            }
            Field::Column(time) => {
                Key::Number(numbers::<TimestampNanosecondType>(batch, time).value(at))
            }
        }
    }

    fn start(&self) -> usize {
        self.chunk.visit.number
    }

    fn shown(&self) -> &str {
        self.chunk.shown[self.at].trim_end_matches('/')
    }
}

/// The numbers of the rows in the order that is asked for. Rows that compare equal are in path
/// order.
pub(super) fn in_order<R: Row>(rows: &[R], globals: &Globals) -> Vec<usize> {
    let compare = |a: &R, b: &R| match globals.sort {
        Some(field) => {
            let order = match (a.key(field), b.key(field)) {
                (Key::Number(a), Key::Number(b)) => a.cmp(&b),
                (Key::Text(a), Key::Text(b)) if field == Field::Path => compare_paths(a, b),
                (Key::Text(a), Key::Text(b)) => a.cmp(b),
                _ => Ordering::Equal,
            };
            order.then_with(|| compare_paths(a.shown(), b.shown()))
        }
        None => a.start().cmp(&b.start()).then_with(|| contents_first(a.shown(), b.shown())),
    };
    let mut numbers: Vec<usize> = (0..rows.len()).collect();
    numbers.sort_unstable_by(|&a, &b| compare(&rows[a], &rows[b]));
    if globals.reverse {
        numbers.reverse();
    }
    numbers
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

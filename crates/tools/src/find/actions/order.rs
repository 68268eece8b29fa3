//! `--sort`, `--reverse` and `-depth`: the order in which entries are acted on.

use super::entry::attribute;
use crate::find::language::Globals;
use canopy_index::column::*;
use canopy_index::{ColumnId, Columns};
use canopy_model::{Attributes, compare_paths, is_below};
use std::cmp::Ordering;
use std::sync::Arc;

/// The field to sort by.
#[derive(Clone, Debug)]
pub(crate) enum SortField {
    /// The path, in path order.
    Path,
    /// The distance from the start.
    Depth,
    /// The last component of the path.
    Name,
    /// How well the name matches a word, in lower case: the best first.
    Match(Arc<str>),
    /// An attribute that a column keeps.
    Attribute(ColumnId),
}

/// A value to sort by; those of one field are all of one kind.
pub(crate) enum SortKey<'a> {
    /// A path, escaped, in path order.
    Path(&'a str),
    /// A text, by its bytes.
    Text(&'a str),
    /// A number.
    Number(i64),
}

impl SortKey<'_> {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (SortKey::Path(a), SortKey::Path(b)) => compare_paths(a, b),
            (SortKey::Text(a), SortKey::Text(b)) => a.cmp(b),
            (SortKey::Number(a), SortKey::Number(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

impl SortField {
    /// Returns the field that `--sort` names.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        const COLUMNS: [ColumnId; 10] = [
            SIZE.id(),
            BLOCKS.id(),
            MTIME.id(),
            ATIME.id(),
            CTIME.id(),
            BTIME.id(),
            UID.id(),
            GID.id(),
            NLINK.id(),
            INO.id(),
        ];
        match name {
            "path" => Ok(SortField::Path),
            "depth" => Ok(SortField::Depth),
            "name" => Ok(SortField::Name),
            _ if name.starts_with("match=") => {
                let word = name.trim_start_matches("match=").to_lowercase();
                Ok(SortField::Match(word.into()))
            }
            "links" => Ok(SortField::Attribute(NLINK.id())),
            _ => {
                let column = COLUMNS.into_iter().find(|column| column.name() == name);
                column.map(SortField::Attribute).ok_or_else(|| {
                    let names = COLUMNS.map(ColumnId::name).join(", ");
                    format!(
                        "--sort needs one of path, depth, name, match=WORD, {names}, not '{name}'"
                    )
                })
            }
        }
    }

    /// Returns what an entry is sorted by; only what the field asks for need be known.
    pub(crate) fn key<'a>(
        &self,
        path: &'a str,
        name: impl FnOnce() -> &'a str,
        depth: u32,
        attributes: impl FnOnce() -> Attributes,
    ) -> SortKey<'a> {
        match self {
            SortField::Path => SortKey::Path(path),
            SortField::Depth => SortKey::Number(i64::from(depth)),
            SortField::Name => SortKey::Text(name()),
            SortField::Match(word) => SortKey::Number(match_rank(name(), word)),
            SortField::Attribute(column) => SortKey::Number(attribute(*column)(&attributes())),
        }
    }

    /// Returns the column that it reads.
    pub(crate) fn columns(&self) -> Columns {
        match self {
            SortField::Path | SortField::Depth => Columns::NONE,
            SortField::Name | SortField::Match(_) => NAME.into(),
            SortField::Attribute(column) => (*column).into(),
        }
    }
}

/// Returns the place of a name among those that match a word, in lower case: the word itself, the
/// word with an extension, what begins with it, what has it behind a mark, then what has it anywhere
/// and what has it not; the shorter name first.
fn match_rank(name: &str, word: &str) -> i64 {
    const APART: [&str; 5] = ["-", "_", ".", " ", "+"];
    let folded = name.to_lowercase();
    let rank = match folded.find(word) {
        Some(0) => match &folded[word.len()..] {
            "" => 0,
            rest if rest.starts_with('.') => 1,
            _ => 2,
        },
        Some(_) if APART.iter().any(|mark| folded.contains(&format!("{mark}{word}"))) => 3,
        Some(_) => 4,
        None => 5,
    };
    (rank << 32) + name.len() as i64
}

/// Entries that can be sorted.
pub(crate) trait Sortable {
    /// Returns what it is sorted by.
    fn key(&self, field: &SortField) -> SortKey<'_>;
    /// Returns the number of its start.
    fn start(&self) -> usize;
    /// Returns its path as it is printed, escaped, without slashes at its end.
    fn shown(&self) -> &str;
}

/// Returns the numbers of the rows in the order that is asked for. Rows that compare equal are in
/// path order.
pub(crate) fn in_order<R: Sortable>(rows: &[R], globals: &Globals) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..rows.len()).collect();
    let keys = Keys::of(rows, globals);
    numbers.sort_unstable_by(|&a, &b| keys.compare(a, b));
    numbers
}

/// Returns the numbers of the first `count` rows, at least 1, in the order that is asked for: the
/// last of them at the end, the others in no certain order. There are more rows.
pub(super) fn first<R: Sortable>(rows: &[R], count: usize, globals: &Globals) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..rows.len()).collect();
    let keys = Keys::of(rows, globals);
    numbers.select_nth_unstable_by(count - 1, |&a, &b| keys.compare(a, b));
    numbers.truncate(count);
    numbers
}

/// Returns whether a row comes before another one in the order that is asked for.
pub(super) fn precedes<R: Sortable>(row: &R, other: &R, globals: &Globals) -> bool {
    let keys = [row, other].map(|row| globals.sort.as_ref().map(|field| row.key(field)));
    let row = Keyed { row, key: keys[0].as_ref() };
    let other = Keyed { row: other, key: keys[1].as_ref() };
    compare(row, other, globals).is_lt()
}

/// Returns whether rows with a key may come before a row with another one.
pub(crate) fn may_precede(key: &SortKey<'_>, other: &SortKey<'_>, globals: &Globals) -> bool {
    match globals.reverse {
        true => key.compare(other).is_ge(),
        false => key.compare(other).is_le(),
    }
}

/// Rows with what they are sorted by.
struct Keys<'r, R> {
    rows: &'r [R],
    /// None with `-depth` and `--reverse` alone.
    keys: Option<Vec<SortKey<'r>>>,
    globals: &'r Globals,
}

impl<'r, R: Sortable> Keys<'r, R> {
    fn of(rows: &'r [R], globals: &'r Globals) -> Self {
        let keys =
            globals.sort.as_ref().map(|field| rows.iter().map(|row| row.key(field)).collect());
        Keys { rows, keys, globals }
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let keyed =
            |at| Keyed { row: &self.rows[at], key: self.keys.as_ref().map(|keys| &keys[at]) };
        compare(keyed(a), keyed(b), self.globals)
    }
}

/// A row with the key that it is sorted by, if there is one.
struct Keyed<'r, R> {
    row: &'r R,
    key: Option<&'r SortKey<'r>>,
}

/// Compares two rows with their keys by the order that is asked for.
fn compare<R: Sortable>(a: Keyed<'_, R>, b: Keyed<'_, R>, globals: &Globals) -> Ordering {
    let (key_of_a, key_of_b) = (a.key, b.key);
    let (a, b) = (a.row, b.row);
    let order = match (key_of_a, key_of_b) {
        (Some(key), Some(other)) => {
            key.compare(other).then_with(|| compare_paths(a.shown(), b.shown()))
        }
        _ => a.start().cmp(&b.start()).then_with(|| contents_first(a.shown(), b.shown())),
    };
    if globals.reverse { order.reverse() } else { order }
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

#[cfg(test)]
mod tests {
    use super::match_rank;

    #[test]
    fn better_matches_come_first() {
        let names = ["run", "Run.h5", "runs", "a-run", "a_run.txt", "overrun", "nothing"];
        let ranks: Vec<i64> = names.iter().map(|name| match_rank(name, "run")).collect();
        assert!(ranks.is_sorted(), "{ranks:?}");
        assert_eq!(match_rank("RUN", "run"), match_rank("run", "run"));
    }
}

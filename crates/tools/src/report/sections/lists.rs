//! Lists of entries: what several sections show.

use super::*;
use crate::report::format::name_or_id;
use canopy_text::mode_string;

/// Some entries of so many.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::report) struct Flagged {
    pub(super) count: i64,
    pub(super) first: Vec<ListedEntry>,
}

/// Collection of their rows.
#[derive(Default)]
pub(in crate::report) struct FlaggedRows {
    pub(super) count: i64,
    pub(super) first: TopK,
}

impl FlaggedRows {
    /// Begins with none.
    pub(in crate::report) fn new(top: usize) -> Self {
        FlaggedRows { count: 0, first: TopK::new(top) }
    }

    /// Counts a row and offers it; the largest keys come first.
    pub(in crate::report) fn add(&mut self, key: i64, id: RowId) {
        self.count += 1;
        self.first.offer(key, id);
    }

    /// Takes in the rows of another worker.
    pub(in crate::report) fn merge(&mut self, other: FlaggedRows) {
        self.count += other.count;
        self.first.merge(other.first);
    }

    /// Gives the first of them as they are shown.
    pub(super) fn answer(self, facts: &Facts<'_>) -> Flagged {
        Flagged { count: self.count, first: facts.first_entries(self.first) }
    }
}

/// Shows entries with their sizes and when they were modified.
pub(super) fn entries_table(entries: &[ListedEntry]) -> Table {
    let columns =
        [("size", true), ("on disk", true), ("modified", false), ("user", false), ("path", false)];
    table(&columns, entries, |entry| {
        vec![
            size(entry.bytes),
            size(entry.disk_bytes),
            date(entry.mtime_ns),
            user(entry),
            name(&entry.path),
        ]
    })
}

/// Shows counts of lists, and the lists with modes.
pub(super) fn flagged_blocks(lists: &[(&'static str, &Flagged)]) -> Vec<Block> {
    let counted = |(what, flagged): &(&'static str, &Flagged)| (count(flagged.count), *what);
    let mut blocks = vec![Block::Facts(lists.iter().map(counted).collect())];
    let columns = [("mode", false), ("user", false), ("path", false)];
    for (what, flagged) in lists.iter().filter(|(_, flagged)| !flagged.first.is_empty()) {
        let title = match flagged.first.len() {
            shown if flagged.count > shown as i64 => format!("{what} (the first {shown})"),
            _ => (*what).to_owned(),
        };
        let table = table(&columns, &flagged.first, |entry| {
            vec![mode(entry.mode), user(entry), name(&entry.path)]
        });
        blocks.push(table.titled(title).block());
    }
    blocks
}

fn mode(mode: u32) -> Cell {
    Cell { shown: mode_string(mode), exact: Some(format!("{:04o}", mode & 0o7777)) }
}

/// Names the owner of an entry.
pub(super) fn user(entry: &ListedEntry) -> Cell {
    name_or_id(entry.uid, entry.user.as_deref()).into()
}

//! Files by time: modified or used last, or not for longest.

use super::super::details::ListedEntry;
use super::super::entries::{EntryBatch, EntryCollector, Scope};
use super::super::facts::Facts;
use super::super::format::{date, visible};
use super::super::parts::Part;
use super::super::top_k::{TopK, least_first};
use super::super::view::{Block, Table, table};
use super::lists::{entries_table, user};
use super::{Need, ReportSection};
use crate::error::Result;
use canopy_index::Columns;
use canopy_index::column::{ATIME, Column, MODE, MTIME, Time};
use canopy_text::human_size;
use serde::Serialize;

/// What is collected of regular files by a column of times; `LAST` if the latest come first.
pub(in super::super) struct RowsByTime<const ACCESSED: bool, const LAST: bool>(TopK);

impl<const ACCESSED: bool, const LAST: bool> RowsByTime<ACCESSED, LAST> {
    const COLUMN: Column<Time> = if ACCESSED { ATIME } else { MTIME };
}

impl<const ACCESSED: bool, const LAST: bool> EntryCollector for RowsByTime<ACCESSED, LAST> {
    fn new(scope: &Scope<'_>) -> Self {
        RowsByTime(TopK::new(scope.options.top))
    }

    fn columns(&self, _: &Part<'_>) -> Result<Columns> {
        Ok(MODE | Self::COLUMN)
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        let times = Self::COLUMN.of(batch.batch)?;
        for &at in &batch.files {
            let key = if LAST { times[at] } else { least_first(times[at]) };
            self.0.offer(key, batch.id(at));
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    fn lists(&mut self) -> Vec<&mut TopK> {
        vec![&mut self.0]
    }
}

const AS_KEPT: Option<&str> = Some("By time of last access, as far as the file system keeps it.");

macro_rules! by_time {
    ($($(#[$doc:meta])* $Section:ident, $title:literal, $note:expr, $rows:ty, $table:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Serialize)]
        pub(in super::super) struct $Section(Vec<ListedEntry>);

        impl ReportSection for $Section {
            const TITLE: &'static str = $title;
            const NOTE: Option<&'static str> = $note;

            type Entries = $rows;

            fn needs(_: bool) -> &'static [Need] {
                &[Need::Entries]
            }

            fn answer(facts: &mut Facts<'_>, rows: $rows) -> Result<Option<Self>> {
                Ok(Some($Section(facts.first_entries(rows.0))))
            }

            fn blocks(&self) -> Vec<Block> {
                vec![$table(&self.0).block()]
            }
        }
    )*};
}

by_time! {
    /// The regular files that were modified last.
    Newest, "Modified last", None, RowsByTime<false, true>, entries_table;
    /// Those that were not for longest.
    Oldest, "Not modified for longest", None, RowsByTime<false, false>, entries_table;
    /// The regular files that were used last.
    Used, "Used last", AS_KEPT, RowsByTime<true, true>, accessed_table;
    /// Those that were not for longest.
    Unused, "Not used for longest", AS_KEPT, RowsByTime<true, false>, accessed_table;
}

fn accessed_table(entries: &[ListedEntry]) -> Table {
    let columns = [("size", true), ("accessed", false), ("user", false), ("path", false)];
    table(&columns, entries, |entry| {
        vec![human_size(entry.bytes), date(entry.atime_ns), user(entry), visible(&entry.path)]
    })
}

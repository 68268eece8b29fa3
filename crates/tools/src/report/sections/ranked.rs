//! Files by size or time: the largest, and those modified or used last, or not for longest.

use super::*;
use crate::report::top_k::least_first;
use arrow::array::RecordBatch;
use canopy_index::column::{ATIME, MODE, MTIME, SIZE};
use std::marker::PhantomData;

/// A list of regular files by the values of a column.
pub(in crate::report) trait Ranked: Send {
    /// Whether the smallest values come first.
    const LEAST_FIRST: bool = false;

    /// Gives the column.
    fn column() -> Columns;

    /// Gives its values.
    fn values(batch: &RecordBatch) -> Result<&[i64]>;
}

/// Rows of one ranking, collected in the pass.
pub(in crate::report) struct RankedRows<R>(TopK, PhantomData<R>);

impl<R: Ranked> EntryCollector for RankedRows<R> {
    fn new(scope: &Scope<'_>) -> Self {
        RankedRows(TopK::new(scope.options.top), PhantomData)
    }

    fn columns(&self, _: &CoveredFile<'_>) -> Result<Columns> {
        Ok(R::column() | MODE)
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        let values = R::values(batch.batch)?;
        for &at in &batch.files {
            let key = if R::LEAST_FIRST { least_first(values[at]) } else { values[at] };
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

macro_rules! ranked {
    ($(
        $(#[$doc:meta])*
        $Section:ident, $title:literal, $note:expr, $column:expr, $least_first:literal, $table:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Serialize)]
        pub(in crate::report) struct $Section(Vec<ListedEntry>);

        impl Ranked for $Section {
            const LEAST_FIRST: bool = $least_first;

            fn column() -> Columns {
                $column.into()
            }

            fn values(batch: &RecordBatch) -> Result<&[i64]> {
                Ok($column.of(batch)?)
            }
        }

        impl ReportSection for $Section {
            const TITLE: &'static str = $title;
            const NOTE: Option<&'static str> = $note;
            const NEEDS: &'static [Need] = &[Need::Entries];
            type Entries = RankedRows<$Section>;

            fn answer(facts: &mut Facts<'_>, rows: RankedRows<$Section>) -> Result<Option<Self>> {
                Ok(Some($Section(facts.first_entries(rows.0))))
            }

            fn blocks(&self) -> Vec<Block> {
                vec![$table(&self.0).block()]
            }
        }
    )*};
}

ranked! {
    /// The largest regular files.
    Largest, "Largest files", None, SIZE, false, entries_table;
    /// The regular files that were modified last.
    Newest, "Modified last", None, MTIME, false, entries_table;
    /// Those that were not for longest.
    Oldest, "Not modified for longest", None, MTIME, true, entries_table;
    /// The regular files that were used last.
    Used, "Used last", AS_KEPT, ATIME, false, accessed_table;
    /// Those that were not for longest.
    Unused, "Not used for longest", AS_KEPT, ATIME, true, accessed_table;
}

fn accessed_table(entries: &[ListedEntry]) -> Table {
    let columns = [("size", true), ("accessed", false), ("user", false), ("path", false)];
    table(&columns, entries, |entry| {
        vec![size(entry.bytes), date(entry.atime_ns), user(entry), name(&entry.path)]
    })
}

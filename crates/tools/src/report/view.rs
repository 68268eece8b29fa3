//! A report as titles, facts, tables and bars: what text and the page show alike.

use super::Report;

/// A section to show.
pub(super) struct View {
    /// The word for it.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// What it counts, where that needs to be said.
    pub(super) note: Option<&'static str>,
    pub(super) blocks: Vec<Block>,
}

/// A part of a section.
pub(super) enum Block {
    /// Values with their names.
    Facts(Vec<(String, &'static str)>),
    /// Rows under a heading.
    Table(Table),
}

/// Rows under a heading.
#[derive(Default)]
pub(super) struct Table {
    pub(super) title: Option<String>,
    /// Titles, and whether a column is of numbers. The last one is of names.
    pub(super) columns: Vec<(&'static str, bool)>,
    pub(super) rows: Vec<Vec<String>>,
    /// For each row, what part of the whole it is; empty if there are no bars.
    pub(super) shares: Vec<f64>,
}

/// Shows the sections of a report, in order.
pub(super) fn views(report: &Report) -> Vec<View> {
    let mut views: Vec<View> = report.answers.views().collect();
    // Where no rows were asked for, an empty table would say that there are none.
    let unasked = |block: &Block| matches!(block, Block::Table(table) if table.rows.is_empty());
    if report.top == 0 {
        views.iter_mut().for_each(|view| view.blocks.retain(|block| !unasked(block)));
    }
    views
}

/// Makes a table of some things, without title and bars.
pub(super) fn table<T>(
    columns: &[(&'static str, bool)],
    things: &[T],
    cells: impl Fn(&T) -> Vec<String>,
) -> Table {
    let rows = things.iter().map(cells).collect();
    Table { columns: columns.to_vec(), rows, ..Table::default() }
}

impl Table {
    /// Gives it a title.
    pub(super) fn titled(self, title: impl Into<String>) -> Self {
        Table { title: Some(title.into()), ..self }
    }

    /// Gives its rows bars for what part of the whole they are.
    pub(super) fn with_shares(self, parts: impl Iterator<Item = i64>, whole: i64) -> Self {
        let share = |part: i64| match whole {
            ..=0 => 0.0,
            _ => (part as f64 / whole as f64).clamp(0.0, 1.0),
        };
        Table { shares: parts.map(share).collect(), ..self }
    }

    /// Makes it a block.
    pub(super) fn block(self) -> Block {
        Block::Table(self)
    }
}

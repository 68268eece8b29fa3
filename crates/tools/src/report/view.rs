//! A report as titles, facts, tables and bars: what text, the page and CSV show alike.

use super::format::{grouped, rfc3339, short_date};
use super::{Covered, Problem, Report};
use canopy_text::safe::{one_line, report_name};
use canopy_text::{clock, human_size};
use std::borrow::Cow;

/// A section to show.
pub(super) struct SectionView {
    /// The word for it.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Explanation of its counts, where needed.
    pub(super) note: Option<&'static str>,
    pub(super) blocks: Vec<Block>,
}

/// A part of a section.
pub(super) enum Block {
    /// Values with their names.
    Facts(Vec<(Cell, &'static str)>),
    /// Rows under a heading.
    Table(Table),
}

/// Rows under a heading.
#[derive(Clone, Default)]
pub(super) struct Table {
    pub(super) title: Option<String>,
    /// Titles, and whether a column is of numbers. The last one is of names.
    pub(super) columns: Vec<(Cow<'static, str>, bool)>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// For each row, what part of the whole it is; empty if there are no bars.
    pub(super) shares: Vec<f64>,
    /// Whether the last row is the sum of what the others leave out.
    pub(super) rest: bool,
}

/// A value to show.
#[derive(Clone)]
pub(super) struct Cell {
    /// As people read it; names that stand below each other are lines.
    pub(super) shown: String,
    /// As programs do, where that differs: bytes, a count, a time in UTC.
    pub(super) exact: Option<String>,
}

impl Cell {
    /// Gives what programs read.
    pub(super) fn value(&self) -> &str {
        self.exact.as_ref().unwrap_or(&self.shown)
    }
}

impl From<String> for Cell {
    fn from(shown: String) -> Self {
        Cell { shown, exact: None }
    }
}

impl From<&str> for Cell {
    fn from(shown: &str) -> Self {
        shown.to_owned().into()
    }
}

/// A number of bytes.
pub(super) fn size(bytes: impl Into<i128>) -> Cell {
    let bytes = bytes.into();
    Cell { shown: human_size(bytes), exact: Some(bytes.to_string()) }
}

/// A number of things.
pub(super) fn count(number: impl Into<i128>) -> Cell {
    let number = number.into();
    Cell { shown: grouped(number), exact: Some(number.to_string()) }
}

/// The date of a time.
pub(super) fn date(time_ns: i64) -> Cell {
    Cell { shown: short_date(time_ns), exact: Some(rfc3339(time_ns)) }
}

/// A name or path.
pub(super) fn name(escaped: &str) -> Cell {
    report_name(escaped).into()
}

/// Says of which directories a report is, and how old what is known of them is.
pub(super) fn coverage(report: &Report) -> Vec<String> {
    let time = |ns: i64| clock::full_time(ns).split('.').next().unwrap_or("").to_owned();
    let ago = |ns| ago(report, ns);
    let one = |covered: &Covered| {
        let Covered { path, scanned_ns, updated_ns } = covered;
        let updated = match updated_ns > scanned_ns {
            true => format!(", updated {}", ago(*updated_ns)),
            false => String::new(),
        };
        let (path, scanned) = (report_name(path), time(*scanned_ns));
        format!("{path}, scanned {scanned} ({}){updated}", ago(*scanned_ns))
    };
    report.paths.iter().map(one).collect()
}

/// Says what went wrong when the sources of a report were scanned.
pub(super) fn problems(report: &Report) -> Vec<String> {
    let ago = |ns| ago(report, ns);
    let one = |problem: &Problem| {
        let what = if problem.published { "is incomplete" } else { "could not be scanned" };
        let (since, last) = (ago(problem.since_ns), ago(problem.last_ns));
        let (root, reason) = (report_name(&problem.root), one_line(&problem.reason));
        format!("{root} {what} since {since}, last tried {last}: {reason}")
    };
    report.problems.iter().map(one).collect()
}

fn ago(report: &Report, time_ns: i64) -> String {
    format!("{} ago", clock::age(report.reported_ns - time_ns))
}

/// Shows the sections of a report, in order.
pub(super) fn views(report: &Report) -> Vec<SectionView> {
    let mut views: Vec<SectionView> = report.answers.views().collect();
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
    cells: impl Fn(&T) -> Vec<Cell>,
) -> Table {
    let columns = columns.iter().map(|(title, right)| (Cow::Borrowed(*title), *right)).collect();
    Table { columns, rows: things.iter().map(cells).collect(), ..Table::default() }
}

impl Table {
    /// Gives it a title.
    pub(super) fn titled(self, title: impl Into<String>) -> Self {
        Table { title: Some(title.into()), ..self }
    }

    /// Gives its rows bars for what part of the whole they are.
    pub(super) fn with_shares<T: Into<i128>>(
        self,
        parts: impl Iterator<Item = T>,
        whole: impl Into<i128>,
    ) -> Self {
        let whole = whole.into();
        let share = |part: T| match whole {
            ..=0 => 0.0,
            _ => (part.into() as f64 / whole as f64).clamp(0.0, 1.0),
        };
        Table { shares: parts.map(share).collect(), ..self }
    }

    /// Makes it a block.
    pub(super) fn block(self) -> Block {
        Block::Table(self)
    }
}

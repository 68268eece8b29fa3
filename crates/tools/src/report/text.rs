//! A report as text for people.

use super::Report;
use super::format::owner_name;
use super::view::{Block, Cell, SectionView, Table, coverage, problems, views};
use crate::error::Result;
use canopy_text::bar;
use std::io::Write;

/// Characters of the longest bar.
const BAR_WIDTH: usize = 24;

/// How to write text.
#[derive(Clone, Copy, Debug)]
pub struct TextOptions {
    /// Whether bars are of `#` instead of blocks.
    pub ascii: bool,
    /// Whether to say what the report is about, before the sections.
    pub heading: bool,
}

/// Writes a report as text. Control characters and bytes that are not UTF-8 are written as escapes.
pub fn write_text(report: &Report, options: TextOptions, output: &mut dyn Write) -> Result<()> {
    if options.heading {
        heading(report, output)?;
    }
    for (number, view) in views(report).iter().enumerate() {
        if options.heading || number > 0 {
            writeln!(output)?;
        }
        section(view, options, output)?;
    }
    output.flush()?;
    Ok(())
}

fn heading(report: &Report, output: &mut dyn Write) -> Result<()> {
    for covered in coverage(report) {
        writeln!(output, "Report of {covered}")?;
    }
    if report.paths.is_empty() {
        writeln!(output, "Report of nothing: the index shows you no source")?;
    }
    if let Some(owner) = &report.owner {
        writeln!(output, "Only what belongs to user {}", owner_name(owner))?;
    }
    let asked_by = owner_name(&report.asked_by);
    writeln!(output, "As {asked_by} sees it, in generation {} of the index", report.generation)?;
    for problem in problems(report) {
        writeln!(output, "Problem: {problem}")?;
    }
    Ok(())
}

fn section(view: &SectionView, options: TextOptions, output: &mut dyn Write) -> Result<()> {
    let title = view.title.to_uppercase();
    writeln!(output, "{title}")?;
    if let Some(note) = view.note {
        writeln!(output, "  {note}")?;
    }
    for block in &view.blocks {
        match block {
            Block::Facts(facts) => {
                let width =
                    facts.iter().map(|(value, _)| value.shown.chars().count()).max().unwrap_or(0);
                for (Cell { shown, .. }, name) in facts {
                    writeln!(output, "  {shown:>width$}  {name}")?;
                }
            }
            Block::Table(table) => write_table(table, options, output)?,
        }
    }
    Ok(())
}

fn write_table(table: &Table, options: TextOptions, output: &mut dyn Write) -> Result<()> {
    if let Some(title) = &table.title {
        writeln!(output, "  {title}")?;
    }
    if table.rows.is_empty() {
        writeln!(output, "  none")?;
        return Ok(());
    }
    let last = table.columns.len() - 1;
    let width = |column: usize| {
        let lines = |row: &Vec<Cell>| row[column].shown.lines().map(|l| l.chars().count()).max();
        let cells = table.rows.iter().map(lines);
        cells.flatten().max().unwrap_or(0).max(table.columns[column].0.chars().count())
    };
    let widths: Vec<usize> = (0..=last).map(width).collect();
    let mut line = String::from(" ");
    for (at, (title, right)) in table.columns.iter().enumerate() {
        line += &aligned(title, widths[at], *right, at == last && table.shares.is_empty());
    }
    writeln!(output, "{}", line.trim_end())?;
    for (number, row) in table.rows.iter().enumerate() {
        let mut line = String::from(" ");
        for (at, (_, right)) in table.columns.iter().enumerate().take(last) {
            line += &aligned(&row[at].shown, widths[at], *right, false);
        }
        let indent = line.chars().count();
        let mut names = row[last].shown.lines();
        let bar = table.shares.get(number).map(|share| bar(*share, BAR_WIDTH, options.ascii));
        line += &aligned(names.next().unwrap_or(""), widths[last], false, bar.is_none());
        if let Some(bar) = bar {
            line += " ";
            line += &bar;
        }
        writeln!(output, "{}", line.trim_end())?;
        for name in names {
            writeln!(output, "{:indent$} {name}", "")?;
        }
    }
    Ok(())
}

/// A cell with a space before it.
fn aligned(text: &str, width: usize, right: bool, last: bool) -> String {
    match (last, right) {
        (true, _) => format!(" {text}"),
        (false, true) => format!(" {text:>width$}"),
        (false, false) => format!(" {text:<width$}"),
    }
}

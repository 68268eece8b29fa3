//! A section of a report as CSV, quoted as RFC 4180 has it; the first line names the columns.
//!
//! Several tables of a section become one, whose first column names the table of each row. Numbers
//! are exact, sizes in bytes, times as RFC 3339 has them. Values that a spreadsheet would take for
//! a formula have an apostrophe before them.

use super::view::{Block, Cell, SectionView, Table, views};
use super::{Report, Section};
use crate::error::Result;
use canopy_text::safe::{CELL_SEPARATORS, spreadsheet_cell};
use std::borrow::Cow;
use std::io::Write;

/// Writes a section of a report; no more than the names of columns if it is not in the report.
pub fn write_csv(report: &Report, section: Section, output: &mut dyn Write) -> Result<()> {
    if let Some(view) = views(report).iter().find(|view| view.name == section.name()) {
        write_view(view, output)?;
    }
    output.flush()?;
    Ok(())
}

fn write_view(view: &SectionView, output: &mut dyn Write) -> Result<()> {
    let tables: Vec<Cow<'_, Table>> = view.blocks.iter().map(as_table).collect();
    let several = tables.len() > 1;
    let mut columns: Vec<String> = several.then(|| "table".to_owned()).into_iter().collect();
    for title in tables.iter().flat_map(|table| titles(table)) {
        if !columns.contains(&title) {
            columns.push(title);
        }
    }
    write_row(columns.iter().map(String::as_str), output)?;
    for table in &tables {
        let own = titles(table);
        let places: Vec<Option<usize>> =
            columns.iter().map(|column| own.iter().position(|title| title == column)).collect();
        for row in &table.rows {
            let of_column = |(at, place): (usize, &Option<usize>)| match place {
                Some(place) => row[*place].value(),
                None if several && at == 0 => table.title.as_deref().unwrap_or(""),
                None => "",
            };
            write_row(places.iter().enumerate().map(of_column), output)?;
        }
    }
    Ok(())
}

/// Gives a block as a table.
fn as_table(block: &Block) -> Cow<'_, Table> {
    match block {
        Block::Table(table) => Cow::Borrowed(table),
        Block::Facts(facts) => {
            let columns = vec![("what".into(), false), ("value".into(), true)];
            let row = |(value, name): &(Cell, &str)| vec![Cell::from(*name), value.clone()];
            let rows = facts.iter().map(row).collect();
            Cow::Owned(Table { columns, rows, ..Table::default() })
        }
    }
}

/// The names of the columns of a table.
fn titles(table: &Table) -> Vec<String> {
    let word = |title: &str| match title {
        "" => "what".to_owned(),
        title => title.replace(' ', "_"),
    };
    table.columns.iter().map(|(title, _)| word(title)).collect()
}

fn write_row<'a>(cells: impl Iterator<Item = &'a str>, output: &mut dyn Write) -> Result<()> {
    let cells: Vec<String> = cells.map(quoted).collect();
    writeln!(output, "{}", cells.join(","))?;
    Ok(())
}

/// A value as CSV has it, which no spreadsheet computes, whatever it takes for a separator.
fn quoted(cell: &str) -> String {
    let text = spreadsheet_cell(cell);
    match text.contains(['"', ',']) || text.contains(CELL_SEPARATORS) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_no_formulas_and_end_no_field() {
        for (cell, shown) in [
            ("plain", "plain"),
            ("-17", "-17"),
            ("+3.5", "+3.5"),
            ("a,b", "\"a,b\""),
            ("a\nb", "\"a\nb\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=1+1", "'=1+1"),
            ("-rw-r--r--", "'-rw-r--r--"),
            ("@SUM(1,2)", "\"'@SUM(1,2)\""),
            ("a;b", "\"a;b\""),
            ("a\tb", "\"a\tb\""),
            ("a;=1+1;-b", "\"a;'=1+1;'-b\""),
            ("a\n@b", "\"a\n'@b\""),
            ("\u{ff1d}1", "'\u{ff1d}1"),
            ("\u{ff0b}1", "'\u{ff0b}1"),
            ("\u{ff0d}1", "'\u{ff0d}1"),
            ("\u{ff20}a", "'\u{ff20}a"),
        ] {
            assert_eq!(quoted(cell), shown);
        }
    }
}

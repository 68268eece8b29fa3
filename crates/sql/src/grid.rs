//! Answers as a table for people, printed as they come.
//!
//! Columns are as wide as the first rows need; a later text that is wider is printed whole and
//! shifts the rest of its line.

use crate::error::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use canopy_text::safe;
use std::fmt::Write as _;
use std::io::Write;
use unicode_width::UnicodeWidthStr;

/// Rows that decide how wide columns are.
const FIRST_ROWS: usize = 1000;
/// Bytes of text after which fewer rows decide.
const FIRST_BYTES: usize = 1 << 20;
/// The widest that a column is made, so that one long text does not fill all others' lines with
/// blanks.
const WIDEST: usize = 500;

/// How texts are shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Whether control characters are shown escaped.
    pub(super) escaped: bool,
    /// Whether lines of a text are lines of the table.
    pub(super) lines: bool,
}

/// A table that is being printed.
pub(super) struct Grid<'a> {
    schema: SchemaRef,
    style: Style,
    /// The first rows, until widths are known.
    first: Vec<Vec<String>>,
    first_bytes: usize,
    widths: Option<Vec<usize>>,
    output: &'a mut (dyn Write + Send),
}

impl<'a> Grid<'a> {
    pub(super) fn new(schema: SchemaRef, style: Style, output: &'a mut (dyn Write + Send)) -> Self {
        Grid { schema, style, first: Vec::new(), first_bytes: 0, widths: None, output }
    }

    /// Takes rows, and prints them once there have been enough to know the widths.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let options = FormatOptions::default();
        let columns =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let columns = columns
            .collect::<std::result::Result<Vec<_>, ArrowError>>()
            .map_err(super::output::arrow_error)?;
        for at in 0..batch.num_rows() {
            let row =
                columns.iter().map(|column| self.shown(column.value(at).to_string())).collect();
            self.row(row)?;
        }
        Ok(())
    }

    /// Prints what is left and the last line.
    pub(super) fn finish(mut self) -> Result<()> {
        self.settle()?;
        self.rule()?;
        Ok(self.output.flush()?)
    }

    fn shown(&self, text: String) -> String {
        match self.style.escaped {
            true => safe::table_cell(&text, self.style.lines).into_owned(),
            false => text,
        }
    }

    fn row(&mut self, row: Vec<String>) -> Result<()> {
        if self.widths.is_some() {
            return self.print(&row);
        }
        self.first_bytes += row.iter().map(String::len).sum::<usize>();
        self.first.push(row);
        if self.first.len() >= FIRST_ROWS || self.first_bytes >= FIRST_BYTES {
            self.settle()?;
        }
        Ok(())
    }

    /// Sets the widths, if that has not been done, and prints the header and the first rows.
    fn settle(&mut self) -> Result<()> {
        if self.widths.is_some() {
            return Ok(());
        }
        let header: Vec<String> =
            self.schema.fields().iter().map(|field| self.shown(field.name().clone())).collect();
        let rows = std::mem::take(&mut self.first);
        let mut widths = vec![0; header.len()];
        for row in std::iter::once(&header).chain(&rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                let widest = lines(cell, self.style).map(UnicodeWidthStr::width).max().unwrap_or(0);
                *width = widest.min(WIDEST).max(*width);
            }
        }
        self.widths = Some(widths);
        self.rule()?;
        self.print(&header)?;
        self.rule()?;
        rows.iter().try_for_each(|row| self.print(row))
    }

    fn rule(&mut self) -> Result<()> {
        let widths = self.widths.iter().flatten();
        let rule = widths.fold("+".to_owned(), |line, width| line + &"-".repeat(width + 2) + "+");
        Ok(writeln!(self.output, "{rule}")?)
    }

    fn print(&mut self, row: &[String]) -> Result<()> {
        let mut columns: Vec<_> = row.iter().map(|cell| lines(cell, self.style)).collect();
        let mut line = String::new();
        loop {
            let texts: Vec<Option<&str>> = columns.iter_mut().map(Iterator::next).collect();
            if !line.is_empty() && texts.iter().all(Option::is_none) {
                return Ok(());
            }
            line.clear();
            line.push('|');
            for (text, width) in texts.iter().zip(self.widths.iter().flatten()) {
                let text = text.unwrap_or_default();
                let missing = width.saturating_sub(text.width());
                write!(line, " {text}{:missing$} |", "").expect("a text takes everything");
            }
            writeln!(self.output, "{line}")?;
        }
    }
}

/// The lines of a text; one if lines do not count.
fn lines(text: &str, style: Style) -> impl Iterator<Item = &str> {
    let end = if style.lines { '\n' } else { '\0' };
    text.split(end).take(if style.lines { usize::MAX } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::util::pretty::pretty_format_batches;
    use std::sync::Arc;

    fn batch(texts: Vec<Option<&str>>) -> RecordBatch {
        let numbers: ArrayRef = Arc::new((0..texts.len() as i64).collect::<Int64Array>());
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap()
    }

    fn printed(batches: &[RecordBatch], style: Style) -> String {
        let mut output = Vec::new();
        let mut grid = Grid::new(batches[0].schema(), style, &mut output);
        batches.iter().for_each(|batch| grid.write(batch).unwrap());
        grid.finish().unwrap();
        String::from_utf8(output).unwrap()
    }

    const PLAIN: Style = Style { escaped: false, lines: true };
    const TERMINAL: Style = Style { escaped: true, lines: false };

    /// Arrow's own table is the oracle for answers that fit.
    #[test]
    fn short_answers_look_like_those_of_arrow() {
        for texts in [
            vec![],
            vec![Some("a"), None, Some("日本"), Some("two\nlines"), Some("ü")],
            vec![Some("x"); 900],
        ] {
            let batch = batch(texts);
            let expected = pretty_format_batches(std::slice::from_ref(&batch)).unwrap().to_string();
            assert_eq!(printed(&[batch], PLAIN).trim_end(), expected);
        }
    }

    #[test]
    fn later_rows_are_whole_though_wider() {
        let wide = "w".repeat(50);
        let mut texts = vec![Some("short"); FIRST_ROWS];
        texts.push(Some(&wide));
        let shown = printed(&[batch(texts)], PLAIN);
        assert!(shown.contains("| 999    | short |\n"), "{shown}");
        assert!(shown.ends_with(&format!("| 1000   | {wide} |\n+--------+-------+\n")), "{shown}");
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let name = "a\u{1b}[31m\nb\r\u{9b}1m\u{202e}c\u{7f}";
        let shown = printed(&[batch(vec![Some(name)])], TERMINAL);
        assert!(shown.contains(r"| a\x1b[31m\nb\r\x9b1m\u{202e}c\x7f |"), "{shown}");
        assert_eq!(shown.lines().count(), 5, "{shown}");
    }

    #[test]
    fn long_texts_widen_no_other_line() {
        let long = "x".repeat(100_000);
        let shown = printed(&[batch(vec![Some(&long), Some("short")])], PLAIN);
        assert!(shown.contains(&long));
        assert!(shown.len() < 105_000, "{}", shown.len());
    }
}

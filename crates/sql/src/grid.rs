//! Answers as a table for people, printed as they come.
//!
//! Columns are as wide as the first rows need; a later text that is wider is printed whole and
//! shifts the rest of its line. Where lines have a limit, columns are narrowed to it and texts cut.

use crate::error::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use canopy_text::locale::is_utf8;
use canopy_text::safe;
use std::fmt::Write as _;
use std::io::Write;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Rows that decide how wide columns are.
const FIRST_ROWS: usize = 1000;
/// Bytes of text after which fewer rows decide.
const FIRST_BYTES: usize = 1 << 20;
/// The widest that a column is made, so that one long text does not fill all others' lines with
/// blanks.
const WIDEST: usize = 500;
/// The narrowest that a column is made to fit into a line.
const NARROWEST: usize = 5;
/// Width that a readable column needs at most. If a line has no room for that many characters a
/// column, only the first columns are shown.
const READABLE: usize = 12;
/// Most characters that each column then gets before one more is shown.
const COMFORTABLE: usize = 24;

/// How tables for people look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStyle {
    /// How rows and columns are divided.
    pub form: TableForm,
    /// Text that represents NULL.
    pub null: String,
    /// Columns of a line, as of a terminal: texts are cut to fit. No limit if there is none.
    pub width: Option<usize>,
    /// Rows that are shown at most; how many there are is said below.
    pub rows_max: Option<u64>,
}

impl Default for TableStyle {
    fn default() -> Self {
        let null = "NULL".to_owned();
        TableStyle { form: TableForm::Ascii, null, width: None, rows_max: None }
    }
}

/// How rows and columns of a table are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableForm {
    /// By `+`, `-` and `|`.
    #[default]
    Ascii,
    /// By lines that terminals draw.
    Box,
    /// As Markdown has it.
    Markdown,
    /// A line for each value, with the name of its column; an empty one between rows.
    Lines,
}

/// How texts are shown.
#[derive(Clone, Debug)]
pub(super) struct Style {
    /// Whether control characters are shown escaped.
    pub(super) escaped: bool,
    /// Whether lines of a text are lines of the table.
    pub(super) lines: bool,
    pub(super) table: TableStyle,
}

impl Style {
    /// Returns the mark for text that is cut: a terminal that does not know UTF-8 would take some
    /// of the dots for a control character.
    fn mark(&self) -> &'static str {
        if self.escaped && !is_utf8() { "~" } else { "…" }
    }

    fn shown(&self, text: String) -> String {
        let text = match self.escaped {
            true => safe::table_cell(&text, self.lines).into_owned(),
            false => text,
        };
        match self.table.form {
            TableForm::Markdown => text.replace('|', "\\|").replace('\n', "<br>"),
            _ => text,
        }
    }
}

/// A table that is being printed.
pub(super) struct Grid<'a> {
    /// Titles of the columns, and whether they have numbers.
    columns: Vec<(String, bool)>,
    style: Style,
    /// The first rows, until widths are known.
    first: Vec<Vec<String>>,
    first_bytes: usize,
    widths: Option<Vec<usize>>,
    /// How many columns there are behind those that are shown; a mark stands for them.
    hidden: usize,
    /// Rows that have come.
    rows: u64,
    output: &'a mut (dyn Write + Send),
}

impl<'a> Grid<'a> {
    pub(super) fn new(
        schema: &SchemaRef,
        style: Style,
        output: &'a mut (dyn Write + Send),
    ) -> Self {
        let column =
            |field: &FieldRef| (style.shown(field.name().clone()), field.data_type().is_numeric());
        let columns = schema.fields().iter().map(column).collect();
        let (first, first_bytes, widths, hidden, rows) = (Vec::new(), 0, None, 0, 0);
        Grid { columns, style, first, first_bytes, widths, hidden, rows, output }
    }

    /// Takes rows, and prints them once there have been enough to know the widths.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let null = self.style.table.null.clone();
        let options = FormatOptions::default().with_null(&null);
        let columns =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let columns = columns
            .collect::<std::result::Result<Vec<_>, ArrowError>>()
            .map_err(super::output::arrow_error)?;
        for at in 0..batch.num_rows() {
            self.rows += 1;
            if self.style.table.rows_max.is_some_and(|most| self.rows > most) {
                continue;
            }
            let row = columns
                .iter()
                .map(|column| self.style.shown(column.value(at).to_string()))
                .collect();
            self.row(row)?;
        }
        Ok(())
    }

    /// Prints the remaining rows and the last line.
    pub(super) fn finish(mut self) -> Result<()> {
        self.settle()?;
        self.rule(Rule::Bottom)?;
        let most = self.style.table.rows_max.filter(|most| *most < self.rows);
        let is_open = matches!(self.style.table.form, TableForm::Markdown | TableForm::Lines);
        if is_open && (most.is_some() || self.hidden > 0) {
            // Else it would be one more row.
            writeln!(self.output)?;
        }
        if self.hidden > 0 {
            // One of them is the mark.
            let shown = self.columns.len() - 1;
            writeln!(
                self.output,
                "({shown} of {} columns shown; '--format line' or '.mode line' shows all)",
                shown + self.hidden
            )?;
        }
        if let Some(most) = most {
            let plural = if self.rows == 1 { "" } else { "s" };
            writeln!(self.output, "({most} of {} row{plural} shown)", self.rows)?;
        }
        Ok(self.output.flush()?)
    }

    fn row(&mut self, row: Vec<String>) -> Result<()> {
        if self.style.table.form == TableForm::Lines {
            return self.print_lines(&row);
        }
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

    /// Prints a row as lines of titles and values.
    fn print_lines(&mut self, row: &[String]) -> Result<()> {
        let width = self.columns.iter().map(|(title, _)| title.width()).max().unwrap_or(0);
        if self.widths.replace(Vec::new()).is_some() {
            writeln!(self.output)?;
        }
        for ((title, _), value) in self.columns.iter().zip(row) {
            let missing = width - title.width();
            writeln!(self.output, "{:missing$}{title} = {value}", "")?;
        }
        Ok(())
    }

    /// Sets the widths, if that has not been done, and prints the header and the first rows.
    fn settle(&mut self) -> Result<()> {
        if self.widths.is_some() || self.style.table.form == TableForm::Lines {
            return Ok(());
        }
        let header: Vec<String> = self.columns.iter().map(|(title, _)| title.clone()).collect();
        let rows = std::mem::take(&mut self.first);
        let mut widths = vec![0; header.len()];
        for row in std::iter::once(&header).chain(&rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                let widest =
                    lines(cell, &self.style).map(UnicodeWidthStr::width).max().unwrap_or(0);
                *width = widest.min(WIDEST).max(*width);
            }
        }
        if let Some(most) = self.style.table.width {
            let shown = fitting(&widths, most);
            if shown < widths.len() {
                self.hidden = widths.len() - shown;
                widths.truncate(shown);
                widths.push(1);
                self.columns.truncate(shown);
                self.columns.push((self.style.mark().to_owned(), false));
            }
            narrow(&mut widths, most.saturating_sub(3 * self.columns.len() + 1));
        }
        self.widths = Some(widths);
        self.rule(Rule::Top)?;
        self.print(&header)?;
        self.rule(Rule::BelowTitles)?;
        rows.iter().try_for_each(|row| self.print(row))
    }

    fn rule(&mut self, rule: Rule) -> Result<()> {
        let [left, line, middle, right] = match (self.style.table.form, rule) {
            (TableForm::Lines, _) | (TableForm::Markdown, Rule::Top | Rule::Bottom) => {
                return Ok(());
            }
            (TableForm::Markdown, Rule::BelowTitles) => ["|", "-", "|", "|"],
            (TableForm::Ascii, _) => ["+", "-", "+", "+"],
            (TableForm::Box, Rule::Top) => ["┌", "─", "┬", "┐"],
            (TableForm::Box, Rule::BelowTitles) => ["├", "─", "┼", "┤"],
            (TableForm::Box, Rule::Bottom) => ["└", "─", "┴", "┘"],
        };
        let is_markdown = self.style.table.form == TableForm::Markdown;
        let column = |(width, (_, is_number)): (&usize, &(String, bool))| {
            // So Markdown tells that numbers stand to the right.
            let end = if is_markdown && *is_number { ":" } else { line };
            line.repeat(width + 1) + end
        };
        let widths = self.widths.iter().flatten();
        let columns: Vec<String> = widths.zip(&self.columns).map(column).collect();
        // Without columns too, as arrow's own tables.
        let columns = columns.join(middle);
        let right = if self.columns.is_empty() { "" } else { right };
        Ok(writeln!(self.output, "{left}{columns}{right}")?)
    }

    fn print(&mut self, row: &[String]) -> Result<()> {
        let bar = if self.style.table.form == TableForm::Box { '│' } else { '|' };
        let mark = self.style.mark().to_owned();
        let shown = row.len() - self.hidden;
        let cells = row[..shown].iter().chain((self.hidden > 0).then_some(&mark));
        let mut columns: Vec<_> = cells.map(|cell| lines(cell, &self.style)).collect();
        let mut line = String::new();
        loop {
            let texts: Vec<Option<&str>> = columns.iter_mut().map(Iterator::next).collect();
            if !line.is_empty() && texts.iter().all(Option::is_none) {
                return Ok(());
            }
            line.clear();
            line.push(bar);
            let widths = self.widths.iter().flatten();
            for ((text, width), (_, is_number)) in texts.iter().zip(widths).zip(&self.columns) {
                let mut text = text.unwrap_or_default().to_owned();
                if self.style.table.width.is_some() {
                    cut(&mut text, *width, self.style.mark());
                }
                let missing = width.saturating_sub(text.width());
                let written = match is_number {
                    true => write!(line, " {:missing$}{text} {bar}", ""),
                    false => write!(line, " {text}{:missing$} {bar}", ""),
                };
                written.expect("a text takes everything");
            }
            writeln!(self.output, "{line}")?;
        }
    }
}

/// Where a line of a table divides it.
#[derive(Clone, Copy)]
enum Rule {
    Top,
    BelowTitles,
    Bottom,
}

/// Narrows the widest columns until all fit into so many columns of a terminal, or are narrow.
fn narrow(widths: &mut [usize], room: usize) {
    let mut above = widths.iter().sum::<usize>().saturating_sub(room);
    while above > 0 {
        let Some(widest) = widths.iter().copied().max().filter(|widest| *widest > NARROWEST) else {
            return;
        };
        let next = widths.iter().copied().filter(|width| *width < widest).max();
        let next = next.unwrap_or(0).max(NARROWEST);
        let count = widths.iter().filter(|width| **width == widest).count();
        // All of the widest become as the next ones, or as narrow as is needed.
        let less = (widest - next).min(above.div_ceil(count));
        for width in widths.iter_mut().filter(|width| **width == widest) {
            let less = less.min(above);
            *width -= less;
            above -= less;
        }
    }
}

/// Returns how many columns of these widths a line shows: all that can be read there, and one at
/// least.
fn fitting(widths: &[usize], line: usize) -> usize {
    let needed: usize = widths.iter().map(|width| READABLE.min(*width) + 3).sum();
    if needed < line {
        return widths.len();
    }
    // The mark and the end of the line.
    let mut left = line.saturating_sub(5);
    let fits = widths.iter().take_while(|width| {
        let needed = COMFORTABLE.min(**width) + 3;
        let fits = needed <= left;
        left = left.saturating_sub(needed);
        fits
    });
    fits.count().max(1).min(widths.len())
}

/// Cuts a text to a number of columns of a terminal, which its last character shows.
fn cut(text: &mut String, width: usize, mark: &str) {
    if text.width() <= width {
        return;
    }
    let mut used = 0;
    let end = text.char_indices().find(|(_, letter)| {
        used += letter.width().unwrap_or(0);
        used >= width
    });
    if let Some((end, _)) = end {
        text.truncate(end);
        text.push_str(mark);
    }
}

/// The lines of a text; one if lines do not count.
fn lines<'a>(text: &'a str, style: &Style) -> impl Iterator<Item = &'a str> + use<'a> {
    let end = if style.lines { '\n' } else { '\0' };
    text.split(end).take(if style.lines { usize::MAX } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::util::pretty::pretty_format_batches_with_options;
    use std::sync::Arc;

    fn batch(texts: Vec<Option<&str>>) -> RecordBatch {
        let numbers: ArrayRef = Arc::new((0..texts.len() as i64).collect::<Int64Array>());
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap()
    }

    fn printed(batches: &[RecordBatch], style: Style) -> String {
        let mut output = Vec::new();
        let mut grid = Grid::new(&batches[0].schema(), style, &mut output);
        batches.iter().for_each(|batch| grid.write(batch).unwrap());
        grid.finish().unwrap();
        String::from_utf8(output).unwrap()
    }

    fn plain() -> Style {
        Style { escaped: false, lines: true, table: TableStyle::default() }
    }

    fn terminal() -> Style {
        Style { escaped: true, lines: false, table: TableStyle::default() }
    }

    fn of_form(form: TableForm) -> Style {
        Style { table: TableStyle { form, ..TableStyle::default() }, ..plain() }
    }

    /// Arrow's own table is the oracle for answers that fit, but for the side of numbers.
    #[test]
    fn short_answers_look_like_those_of_arrow() {
        for texts in [
            vec![],
            vec![Some("a"), None, Some("日本"), Some("two\nlines"), Some("ü")],
            vec![Some("x"); 900],
        ] {
            let batch = batch(texts);
            let options = FormatOptions::default().with_null("NULL");
            let one = std::slice::from_ref(&batch);
            let expected = pretty_format_batches_with_options(one, &options).unwrap().to_string();
            let printed = printed(one, plain());
            assert_eq!(words(&printed), words(&expected));
            let widths = |text: &str| Vec::from_iter(text.lines().map(UnicodeWidthStr::width));
            assert_eq!(widths(&printed), widths(&expected));
        }
    }

    fn words(text: &str) -> Vec<Vec<&str>> {
        text.lines().map(|line| line.split_whitespace().collect()).collect()
    }

    #[test]
    fn tables_have_forms() {
        let batch = || batch(vec![Some("a|b"), None]);
        assert_eq!(
            printed(&[batch()], of_form(TableForm::Box)),
            "┌────────┬──────┐\n│ number │ text │\n├────────┼──────┤\n│      0 │ a|b  │\n\
             │      1 │ NULL │\n└────────┴──────┘\n"
        );
        assert_eq!(
            printed(&[batch()], of_form(TableForm::Markdown)),
            "| number | text |\n|-------:|------|\n|      0 | a\\|b |\n|      1 | NULL |\n"
        );
        assert_eq!(
            printed(&[batch()], of_form(TableForm::Lines)),
            "number = 0\n  text = a|b\n\nnumber = 1\n  text = NULL\n"
        );
    }

    #[test]
    fn lines_are_cut_to_their_limit_and_rows_counted() {
        let long = "x".repeat(90);
        let (texts, table) =
            (vec![Some(&*long), Some("日本日本日本日本日本日本"), None], terminal());
        let limited = |width, rows_max| {
            let style = TableStyle { width: Some(width), rows_max, ..TableStyle::default() };
            printed(&[batch(texts.clone())], Style { table: style, ..table.clone() })
        };
        let shown = limited(30, None);
        assert!(shown.lines().all(|line| line.width() == 30), "{shown}");
        assert!(shown.contains("xxx… |") && shown.contains("日本… "), "{shown}");
        assert!(limited(2, None).contains("…"));
        assert!(limited(200, None).contains(&long));
        let shown = limited(80, Some(1));
        assert_eq!(shown.lines().count(), 6, "{shown}");
        assert!(shown.ends_with("(1 of 3 rows shown)\n"), "{shown}");
        assert!(limited(80, Some(0)).ends_with("(0 of 3 rows shown)\n"));
        assert!(!limited(80, Some(3)).contains("shown"));
    }

    #[test]
    fn columns_without_room_are_left_out_and_counted() {
        let value: ArrayRef = Arc::new(StringArray::from(vec!["/home/alice/projects/canopy/a"]));
        let names: Vec<String> = (0..21).map(|number| format!("column{number}")).collect();
        let columns = names.iter().map(|name| (name.as_str(), value.clone()));
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let style = TableStyle { width: Some(80), ..TableStyle::default() };
        let shown = printed(&[batch], Style { table: style, ..terminal() });
        let (table, note) = shown.trim_end().rsplit_once('\n').unwrap();
        assert!(table.lines().all(|line| line.width() <= 80), "{shown}");
        assert_eq!(table.lines().count(), 5, "{shown}");
        assert!(table.contains("| /home/alice/projects/canopy"), "{shown}");
        assert!(table.contains("| …"), "{shown}");
        assert!(note.starts_with("(2 of 21 columns shown; '--format line'"), "{shown}");
        assert_eq!(fitting(&[6, 90], 30), 2);
        assert_eq!(fitting(&[90, 90], 2), 1);
        assert_eq!(fitting(&[], 80), 0);
    }

    #[test]
    fn later_rows_are_whole_though_wider() {
        let wide = "w".repeat(50);
        let mut texts = vec![Some("short"); FIRST_ROWS];
        texts.push(Some(&wide));
        let shown = printed(&[batch(texts)], plain());
        assert!(shown.contains("|    999 | short |\n"), "{shown}");
        assert!(shown.ends_with(&format!("|   1000 | {wide} |\n+--------+-------+\n")), "{shown}");
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let name = "a\u{1b}[31m\nb\r\u{9b}1m\u{202e}c\u{7f}";
        let shown = printed(&[batch(vec![Some(name)])], terminal());
        assert!(shown.contains(r"| a\x1b[31m\nb\r\x9b1m\u{202e}c\x7f |"), "{shown}");
        assert_eq!(shown.lines().count(), 5, "{shown}");
    }

    #[test]
    fn long_texts_widen_no_other_line() {
        let long = "x".repeat(100_000);
        let shown = printed(&[batch(vec![Some(&long), Some("short")])], plain());
        assert!(shown.contains(&long));
        assert!(shown.len() < 105_000, "{}", shown.len());
    }
}

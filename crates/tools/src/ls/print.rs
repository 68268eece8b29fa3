//! The lines of `ls`.

use super::columns::{indent, widths};
use super::dired::{self, Positions};
use super::entry::LsEntry;
use super::{Indicator, Layout, LsOptions, hyperlink};
use crate::error::Result;
use canopy_model::FileType;
use canopy_text::Quoting;
use std::borrow::Cow;
use std::io::Write;

pub(super) struct Printer<'a> {
    pub(super) options: &'a LsOptions,
    pub(super) names: Quoting,
    headings: Quoting,
    output: &'a mut dyn Write,
    /// Prefix of hyperlinks.
    scheme: Vec<u8>,
    /// Where names are, if that is told.
    positions: Option<Positions>,
    /// Whether any directory was headed, or any object printed.
    begun: bool,
    /// Whether any colour was used.
    colored: bool,
}

/// Text for an attribute that cannot be looked at.
pub(super) const UNKNOWN: &str = "?";

/// Cells of an entry, before it is known how wide columns are.
pub(super) struct Row<'a> {
    pub(super) entry: &'a LsEntry,
    name: Cow<'a, [u8]>,
    /// Whether the name has quotes, in styles where not all have.
    quoted: bool,
    inode: String,
    blocks: String,
    pub(super) context: Cow<'a, str>,
}

/// Rows of a listing and what they share.
pub(super) struct Table<'a> {
    pub(super) rows: Vec<Row<'a>>,
    inode_width: usize,
    block_width: usize,
    pub(super) context_width: usize,
    /// Whether names without quotes have a space where the others have one.
    pub(super) align: bool,
}

impl<'a> Printer<'a> {
    pub(super) fn new(options: &'a LsOptions, output: &'a mut dyn Write) -> Self {
        let (names, headings) = options.quotings();
        let dired = options.dired && options.layout == Layout::Long && !options.hyperlink;
        Printer {
            options,
            names,
            headings,
            output,
            scheme: if options.hyperlink { hyperlink::scheme() } else { Vec::new() },
            positions: dired.then(Positions::default),
            begun: false,
            colored: false,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(positions) = &mut self.positions {
            positions.printed(bytes.len());
        }
        Ok(self.output.write_all(bytes)?)
    }

    /// Prints the heading of a directory, and a blank line before all but the first.
    pub(super) fn heading(&mut self, path: &[u8], absolute: &[u8]) -> Result<()> {
        let mut line = Vec::new();
        if std::mem::replace(&mut self.begun, true) {
            line.push(b'\n');
        }
        let quoted = self.headings.quote(path).into_owned();
        self.indent(&mut line);
        if let Some(positions) = &mut self.positions {
            positions.heading(line.len(), quoted.len());
        }
        self.linked(&quoted, absolute, false, &mut line);
        line.extend_from_slice(b":\n");
        self.put(&line)
    }

    /// Begins a line for Emacs.
    pub(super) fn indent(&self, line: &mut Vec<u8>) {
        if self.positions.is_some() {
            line.extend_from_slice(dired::INDENT);
        }
    }

    /// Writes a name, which is a hyperlink if it has an absolute path; quotes that others are
    /// aligned with stand outside.
    fn linked(&self, name: &[u8], absolute: &[u8], quotes: bool, line: &mut Vec<u8>) {
        if absolute.is_empty() {
            line.extend_from_slice(name);
            return;
        }
        let (before, name, after) = match name {
            [before, name @ .., after] if quotes => (Some(*before), name, Some(*after)),
            name => (None, name, None),
        };
        line.extend(before);
        hyperlink::begin(&self.scheme, absolute, line);
        line.extend_from_slice(name);
        line.extend_from_slice(hyperlink::END);
        line.extend(after);
    }

    /// Prints an object of JSON, in a list of all.
    pub(super) fn json(&mut self, object: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let first = !std::mem::replace(&mut self.begun, true);
        let mut text = if first { b"[\n".to_vec() } else { b",\n".to_vec() };
        object(&mut text);
        self.put(&text)
    }

    /// Prints what stands between entries that are arguments and directories.
    pub(super) fn blank(&mut self) -> Result<()> {
        self.put(b"\n")
    }

    /// Prints the space that the entries of a directory take, where it is asked for.
    pub(super) fn total(&mut self, entries: &[LsEntry]) -> Result<()> {
        if self.options.layout == Layout::Long || self.options.blocks {
            let blocks = entries.iter().map(|entry| i128::from(entry.inode.attributes.blocks));
            let blocks: i128 = blocks.sum();
            let mut line = Vec::new();
            self.indent(&mut line);
            line.extend_from_slice(b"total ");
            line.extend(self.options.block_form.show(blocks.saturating_mul(512)).into_bytes());
            line.push(self.options.end());
            self.put(&line)?;
        }
        Ok(())
    }

    /// Prints what is left to print.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.options.json {
            self.output.write_all(if self.begun { b"\n]\n" } else { b"[]\n" })?;
        }
        if let Some(colors) =
            self.options.colors.as_ref().filter(|colors| self.colored && colors.restores_at_end())
        {
            let mut end = Vec::new();
            colors.restore(&mut end);
            self.output.write_all(&end)?;
        }
        if let Some(positions) = &self.positions {
            positions.print(self.names.style.name(), self.output)?;
        }
        Ok(self.output.flush()?)
    }

    /// Prints entries in their order. Columns are as wide as for these and those beside them, which
    /// are not printed.
    pub(super) fn print<'e>(
        &mut self,
        entries: &'e [LsEntry],
        beside: impl Iterator<Item = &'e LsEntry>,
    ) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let beside: Vec<&LsEntry> = beside.collect();
        let table = self.table(entries, &beside);
        let mut lines = Vec::new();
        match self.options.layout {
            Layout::Long => self.long(&table, &beside, &mut lines),
            Layout::Lines => {
                for row in &table.rows {
                    self.cell(&table, row, 0, &mut lines);
                    lines.push(self.options.end());
                }
            }
            Layout::Columns if self.options.width > 0 => self.columns(&table, true, &mut lines),
            Layout::Across if self.options.width > 0 => self.columns(&table, false, &mut lines),
            Layout::Commas => self.one_after_the_other(&table, b",", &mut lines),
            Layout::Columns | Layout::Across => self.one_after_the_other(&table, b" ", &mut lines),
        }
        self.put(&lines)
    }

    fn table<'e>(&self, entries: &'e [LsEntry], beside: &[&'e LsEntry]) -> Table<'e> {
        let options = self.options;
        let names = &self.names;
        let variable = names.style.is_variable();
        let row = |entry: &'e LsEntry| Row {
            entry,
            quoted: variable && names.needs_quotes(&entry.name),
            name: match names.quote(&entry.name) {
                Cow::Owned(name) => Cow::Owned(name),
                Cow::Borrowed(_) => Cow::Borrowed(entry.name.as_slice()),
            },
            inode: match (options.inode, entry.known) {
                (true, true) => entry.inode.attributes.ino.to_string(),
                (true, false) => UNKNOWN.to_owned(),
                (false, _) => String::new(),
            },
            blocks: match (options.blocks, entry.known) {
                (true, true) => {
                    options.block_form.show(entry.inode.attributes.blocks.saturating_mul(512))
                }
                (true, false) => UNKNOWN.to_owned(),
                (false, _) => String::new(),
            },
            context: match entry.context.as_slice() {
                b"" => UNKNOWN.into(),
                context => String::from_utf8_lossy(context),
            },
        };
        let rows: Vec<Row<'_>> = entries.iter().map(row).collect();
        let others: Vec<Row<'_>> = beside.iter().map(|&entry| row(entry)).collect();
        let all = || rows.iter().chain(&others);
        let widest = |text: fn(&Row<'_>) -> usize| all().map(text).max().unwrap_or(0);
        let align = options.aligns() && all().any(|row| row.quoted);
        Table {
            inode_width: widest(|row| row.inode.len()),
            block_width: widest(|row| row.blocks.len()),
            context_width: widest(|row| row.context.len()),
            align,
            rows,
        }
    }

    /// Returns how many columns an entry takes in lines of names.
    fn width(&self, table: &Table<'_>, row: &Row<'_>) -> usize {
        let commas = self.options.layout == Layout::Commas;
        let number = |shown: bool, text: &str, width: usize| match (shown, commas) {
            (false, _) => 0,
            (true, true) => 1 + text.len(),
            (true, false) => 1 + width,
        };
        number(self.options.inode, &row.inode, table.inode_width)
            + number(self.options.blocks, &row.blocks, table.block_width)
            + number(self.options.context, &row.context, table.context_width)
            + usize::from(table.align && !row.quoted)
            + self.names.width(&row.name)
            + usize::from(self.indicator(row.entry.inode.attributes.mode).is_some())
    }

    /// Prints an entry in lines of names, the name from a column on.
    fn cell(&mut self, table: &Table<'_>, row: &Row<'_>, column: usize, line: &mut Vec<u8>) {
        self.normal(line);
        self.numbers(table, row, line);
        self.name(table, row, column, line);
        line.extend(self.indicator(row.entry.inode.attributes.mode));
    }

    /// Notes that what the line has behind a place gives colours.
    fn color_since(&mut self, before: usize, line: &[u8]) {
        if let Some(positions) = &mut self.positions {
            positions.color(line.len() - before);
        }
    }

    pub(super) fn normal(&mut self, line: &mut Vec<u8>) {
        if let Some(colors) = &self.options.colors
            && let Some(code) = colors.normal()
        {
            let before = line.len();
            if !std::mem::replace(&mut self.colored, true) {
                colors.end(line);
            }
            colors.begin(code, line);
            self.color_since(before, line);
        }
    }

    /// Prints the inode number and the space of an entry, and the context, which long lines have
    /// further behind.
    pub(super) fn numbers(&self, table: &Table<'_>, row: &Row<'_>, line: &mut Vec<u8>) {
        let commas = self.options.layout == Layout::Commas;
        let mut number = |shown: bool, text: &str, width: usize| {
            if shown {
                let padding = if commas { 0 } else { width - text.len() };
                line.extend(std::iter::repeat_n(b' ', padding));
                line.extend_from_slice(text.as_bytes());
                line.push(b' ');
            }
        };
        number(self.options.inode, &row.inode, table.inode_width);
        number(self.options.blocks, &row.blocks, table.block_width);
        if self.options.layout != Layout::Long {
            number(self.options.context, &row.context, table.context_width);
        }
    }

    /// Prints a name. Returns how many bytes that took, without colours.
    pub(super) fn name(
        &mut self,
        table: &Table<'_>,
        row: &Row<'_>,
        column: usize,
        line: &mut Vec<u8>,
    ) -> usize {
        let pad = table.align && !row.quoted;
        if pad {
            line.push(b' ');
        }
        let code = self.options.colors.as_ref().and_then(|colors| colors.of_entry(row.entry));
        let at = self.begin_color(code, line);
        if let Some(positions) = &mut self.positions {
            positions.name(at, row.name.len());
        }
        self.linked(&row.name, &row.entry.absolute, table.align && row.quoted, line);
        let length = row.name.len() + usize::from(pad);
        self.end_color(code, column, length, line);
        length
    }

    /// Prints what a symbolic link leads to, as a name of its own.
    pub(super) fn leads_to(
        &mut self,
        row: &Row<'_>,
        name: &[u8],
        quotes: bool,
        code: Option<&[u8]>,
        column: usize,
        line: &mut Vec<u8>,
    ) {
        self.begin_color(code, line);
        self.linked(name, &row.entry.absolute, quotes, line);
        self.end_color(code, column, name.len(), line);
    }

    /// Writes a colour. Returns where the text begins that has it.
    fn begin_color(&mut self, code: Option<&[u8]>, line: &mut Vec<u8>) -> usize {
        let before = line.len();
        if let (Some(colors), Some(code)) = (self.options.colors.as_ref(), code) {
            if !std::mem::replace(&mut self.colored, true) {
                colors.end(line);
            }
            if colors.normal().is_some() {
                colors.restore(line);
            }
            colors.begin(code, line);
        }
        self.color_since(before, line);
        line.len()
    }

    /// Ends a colour behind text of a length from a column on.
    fn end_color(&mut self, code: Option<&[u8]>, column: usize, length: usize, line: &mut Vec<u8>) {
        let before = line.len();
        if let Some(colors) = self.options.colors.as_ref()
            && (code.is_some() || colors.normal().is_some())
        {
            colors.end(line);
            let width = self.options.width;
            if width > 0 && column / width != (column + length).saturating_sub(1) / width {
                colors.clear(line);
            }
        }
        self.color_since(before, line);
    }

    /// Returns the character behind the name of an entry of a mode.
    pub(super) fn indicator(&self, mode: u32) -> Option<u8> {
        let indicator = self.options.indicator;
        let character = match FileType::of_mode(mode) {
            FileType::Directory => b'/',
            _ if indicator == Indicator::Slash => return None,
            FileType::Regular if indicator == Indicator::Classify && mode & 0o111 != 0 => b'*',
            FileType::Symlink => b'@',
            FileType::Fifo => b'|',
            FileType::Socket => b'=',
            _ => return None,
        };
        (indicator != Indicator::None).then_some(character)
    }

    fn columns(&mut self, table: &Table<'_>, down: bool, lines: &mut Vec<u8>) {
        let lengths: Vec<usize> = table.rows.iter().map(|row| self.width(table, row)).collect();
        let widths = widths(&lengths, self.options.width, down);
        let tab = if self.options.colors.is_some() { 0 } else { self.options.tab };
        let count = table.rows.len();
        let rows = count.div_ceil(widths.len());
        for first in 0..rows {
            let (from, step) = if down { (first, rows) } else { (first * widths.len(), 1) };
            let numbers: Vec<usize> = (from..count).step_by(step).take(widths.len()).collect();
            let mut position = 0;
            for (column, &number) in numbers.iter().enumerate() {
                self.cell(table, &table.rows[number], position, lines);
                if column + 1 < numbers.len() {
                    let next = position + widths[column];
                    indent(position + lengths[number], next, tab, lines);
                    position = next;
                }
            }
            lines.push(self.options.end());
        }
    }

    fn one_after_the_other(&mut self, table: &Table<'_>, separator: &[u8], lines: &mut Vec<u8>) {
        let line = self.options.width;
        let mut position = 0;
        for (number, row) in table.rows.iter().enumerate() {
            let length = if line > 0 { self.width(table, row) } else { 0 };
            if number > 0 {
                lines.extend_from_slice(separator);
                if line == 0 || position + length + 2 < line {
                    position += 2;
                    lines.push(b' ');
                } else {
                    position = 0;
                    lines.push(self.options.end());
                }
            }
            self.cell(table, row, position, lines);
            position += length;
        }
        lines.push(self.options.end());
    }
}

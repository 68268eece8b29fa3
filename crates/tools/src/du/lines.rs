//! The lines of du: printed as they come, or kept until all are known where they are to be sorted.

use super::{DuOptions, Measure, Order, tree};
use crate::error::Result;
use crate::json::text_beside;
use canopy_model::escape;
use canopy_text::clock::full_time;
use canopy_text::safe::terminal_name;
use serde::Serialize;
use std::cmp::Ordering;
use std::io::Write;

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Bytes or a count.
    pub(super) size: i128,
    /// The latest time, where it is asked for.
    pub(super) time_ns: Option<i64>,
    /// Part of the path that the line is for: a user, a group and so on.
    pub(super) key: Option<String>,
    pub(super) path: Vec<u8>,
}

impl Line {
    /// Compares two lines for an order.
    pub(super) fn compare(&self, other: &Line, order: Order) -> Ordering {
        let sizes = match order {
            Order::Size => other.size.cmp(&self.size),
            Order::Name => Ordering::Equal,
        };
        sizes.then_with(|| (&self.path, &self.key).cmp(&(&other.path, &other.key)))
    }
}

/// A line as JSON.
#[derive(Serialize)]
struct JsonLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<i128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes: Option<i128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    /// Escaped; the grand total has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    total: bool,
    /// The number as text, if floating point rounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_text: Option<String>,
}

pub(super) struct Lines<'a> {
    options: &'a DuOptions,
    output: &'a mut dyn Write,
    kept: Vec<Line>,
    /// Whether any line was printed.
    any: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(options: &'a DuOptions, output: &'a mut dyn Write) -> Self {
        Lines { options, output, kept: Vec::new(), any: false }
    }

    /// Takes a line, unless the threshold leaves it out.
    pub(super) fn put(&mut self, line: Line) -> Result<()> {
        let threshold = i128::from(self.options.threshold);
        let wanted = match threshold {
            0 => true,
            ..0 => line.size <= -threshold,
            _ => line.size >= threshold,
        };
        if !wanted {
            return Ok(());
        }
        if self.options.tree.is_some() {
            self.kept.push(line);
            return Ok(());
        }
        if self.options.order.is_none() {
            return self.print(&line, false);
        }
        self.kept.push(line);
        // Only the first few lines are needed, so drop the others now and then.
        if let Some(top) = self.options.top
            && self.kept.len() > 2 * top + 4096
        {
            self.sort();
        }
        Ok(())
    }

    fn sort(&mut self) {
        if let Some(order) = self.options.order {
            self.kept.sort_by(|a, b| a.compare(b, order));
        }
        self.kept.truncate(self.options.top.unwrap_or(usize::MAX));
    }

    /// Prints what was kept.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.options.tree.is_some() {
            return tree::print(std::mem::take(&mut self.kept), self.options, self.output);
        }
        self.sort();
        for line in std::mem::take(&mut self.kept) {
            self.print(&line, false)?;
        }
        Ok(())
    }

    /// Prints the grand total.
    pub(super) fn total(&mut self, line: Line) -> Result<()> {
        self.print(&line, true)
    }

    /// Ends the answer.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.options.json {
            self.output.write_all(if self.any { b"\n]\n" } else { b"[]\n" })?;
        }
        Ok(self.output.flush()?)
    }

    fn print(&mut self, line: &Line, total: bool) -> Result<()> {
        let first = !std::mem::replace(&mut self.any, true);
        if self.options.json {
            self.output.write_all(if first { b"[\n" } else { b",\n" })?;
            return self.print_json(line, total);
        }
        self.output.write_all(self.options.shown_form().show(line.size).as_bytes())?;
        if let (Some(time_ns), Some((_, style))) = (line.time_ns, &self.options.time) {
            let time_ns = if time_ns == i64::MIN { 0 } else { time_ns };
            write!(self.output, "\t{}", style.show(time_ns, i64::MAX))?;
        }
        if let Some(key) = &line.key {
            self.output.write_all(b"\t")?;
            self.output.write_all(&terminal_name(key.as_bytes(), true))?;
        }
        self.output.write_all(b"\t")?;
        let terminal = self.options.terminal && !self.options.null;
        self.output.write_all(&terminal_name(&line.path, terminal))?;
        self.output.write_all(if self.options.null { b"\0" } else { b"\n" })?;
        Ok(())
    }

    fn print_json(&mut self, line: &Line, total: bool) -> Result<()> {
        let inodes = self.options.measure == Measure::Inodes;
        let time = line.time_ns.filter(|&time| time != i64::MIN);
        let path = escape(&line.path);
        let beside = text_beside("bytes", &line.size.to_string());
        let json = JsonLine {
            bytes: (!inodes).then_some(line.size),
            inodes: inodes.then_some(line.size),
            time: time.map(full_time),
            key: line.key.as_deref(),
            path: (!total).then_some(&path),
            total,
            bytes_text: beside.filter(|_| !inodes).map(|(_, text)| text),
        };
        serde_json::to_writer(&mut self.output, &json).map_err(std::io::Error::from)?;
        Ok(())
    }
}

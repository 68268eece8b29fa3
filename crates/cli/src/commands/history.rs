//! `canopy history`

use super::past::warn_of_past;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, message};
use crate::terminal::stdout_for_json;
use canopy_index::{Index, KeptGeneration, Moment};
use canopy_model::{ErrorKind, Generation, Totals};
use canopy_read::resolve::locate_all;
use canopy_read::totals::VisibleTree;
use canopy_text::locale::is_utf8;
use canopy_text::{bar, clock, human_size};
use canopy_tools::json::exact_lines;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::io::Write;

/// Print how a directory grew: entries and space of each generation that is kept
///
/// Space is that of 'du', each inode counted once. Only the owner of the index sees its past.
///
/// Example: canopy history /proj
#[derive(clap::Args)]
pub struct Arguments {
    /// Threads that read [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw bars with '#' [default: unless the locale is UTF-8]
    #[arg(long)]
    ascii: bool,
    /// The directory, or a file
    path: OsString,
}

/// State of a path in a generation.
struct Row {
    generation: KeptGeneration,
    /// `None` where the path is not there.
    totals: Option<Totals>,
}

const BAR_COLUMNS: usize = 30;

/// Returns the line of a generation.
fn line(row: &Row, bar: &str) -> String {
    let KeptGeneration { generation, published_ns } = row.generation;
    let time = clock::full_time(published_ns);
    let (entries, shown) = match row.totals {
        Some(totals) => {
            ((totals.entries + totals.dirs).to_string(), human_size(totals.disk_bytes()))
        }
        None => ("-".to_owned(), "-".to_owned()),
    };
    format!("{generation:>10}  {time:<19.19}  {entries:>12}  {shown:>7}  {bar}")
}

/// Carries the command out.
///
/// # Errors
///
/// If no index answers, or output cannot be written.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let opened = invocation.open_indexes(None)?;
    let mut outcome = warn_of_past(&opened, &arguments.path);
    let last = opened.written();
    let place = last.path().to_owned();
    let current =
        KeptGeneration { generation: last.generation(), published_ns: last.published_ns() };
    let all = last.kept().iter().rev().copied().chain([current]);
    let threads = invocation.threads(arguments.threads);
    let mut rows = Vec::new();
    let mut error = None;
    for generation in all {
        let opened = match generation == current {
            true => Index::open_at(&place, None),
            false => Index::open_at(&place, Some(Moment::Generation(generation.generation))),
        };
        let opened = match opened {
            // It was dropped meanwhile.
            Err(canopy_index::Error::NotKept { .. }) => continue,
            // Damaged, or taken away.
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => {
                message(error);
                outcome = Outcome::Partial;
                continue;
            }
            opened => opened?,
        };
        let totals = totals(&opened, &arguments.path, threads);
        match totals {
            Ok(totals) => rows.push(Row { generation, totals: Some(totals) }),
            Err(fault) if fault.is_of_path() => {
                error = Some(fault);
                rows.push(Row { generation, totals: None });
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    if let Some(error) = error
        && rows.iter().all(|row| row.totals.is_none())
    {
        return Err(error.into());
    }
    if arguments.json {
        let rows: Vec<JsonRow> = rows.iter().map(JsonRow::of).collect();
        let mut output = stdout_for_json();
        let document = serde_json::to_string_pretty(&rows).map_err(std::io::Error::from)?;
        writeln!(output, "{}", exact_lines(&document))?;
        output.flush()?;
        return Ok(outcome);
    }
    let ascii = arguments.ascii || !is_utf8();
    let space = |row: &Row| row.totals.map_or(0, |totals| totals.blocks.max(0));
    let most = rows.iter().map(space).max().unwrap_or_default().max(1);
    let mut output = stdout_for_json();
    writeln!(
        output,
        "{:>10}  {:<19}  {:>12}  {:>7}",
        "generation", "published", "entries", "space"
    )?;
    for row in &rows {
        let bar = bar(space(row) as f64 / most as f64, BAR_COLUMNS, ascii);
        writeln!(output, "{}", line(row, &bar).trim_end())?;
    }
    output.flush()?;
    Ok(outcome)
}

/// A line of `--json`.
#[derive(Serialize)]
struct JsonRow {
    bytes: Option<i128>,
    disk_bytes: Option<i128>,
    entries: Option<i64>,
    generation: Generation,
    published_ns: i64,
}

impl JsonRow {
    fn of(row: &Row) -> Self {
        let KeptGeneration { generation, published_ns } = row.generation;
        JsonRow {
            bytes: row.totals.map(|totals| totals.bytes),
            disk_bytes: row.totals.map(|totals| totals.disk_bytes()),
            entries: row.totals.map(|totals| totals.entries + totals.dirs),
            generation,
            published_ns,
        }
    }
}

/// Adds up everything at and below a path.
fn totals(index: &Index, path: &OsStr, threads: usize) -> Result<Totals, canopy_read::Error> {
    let mut sum = Totals::default();
    for start in locate_all(index, path)? {
        let own = &start.inode.attributes;
        sum += match start.is_dir() {
            true => Totals::of_directory(own.size_bytes, own.blocks),
            false => Totals::of_entry(own.size_bytes, own.blocks),
        };
        if start.is_dir() {
            sum += VisibleTree::of(&start, threads).sum_alone()?;
        }
    }
    Ok(sum)
}

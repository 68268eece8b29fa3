//! `canopy check`

mod lines;

use crate::companion::Companion;
use crate::engine::Engine;
use crate::invocation::Invocation;
use crate::limits::{memory_size, rate};
use crate::outcome::{Outcome, answered, said, say};
use crate::terminal::stdout_for_json;
use canopy_index::{CheckReport, Checker, Remedy};
use canopy_ingest::repair::{RepairOptions, Repaired, repair};
use canopy_ingest::with_progress;
use canopy_site::check_links;
use canopy_text::safe::message_line;
use canopy_text::{counted, human_size};
use canopy_tools::json::exact;
use lines::{damage_lines, json_of, remedies};
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

/// Check every file of the index for damage, and repair it
///
/// Reads every block of every file, including those of older generations, and compares owners and
/// permissions with the expected ones. Prints each damaged file with its contents and the
/// directories that they describe. Changes nothing; others may read and write the index meanwhile.
/// Users who do not write the index check the part that they may read. Exit code 0: sound; 1:
/// damaged; 2: the index cannot be checked.
///
/// --repair rewrites files that can be derived from the rest, and scans sources with lost data
/// again with the options of their last scan. Other sources stay as they are. The repair is one new
/// generation; until it is published, queries use the old one. Sources that were imported must be
/// imported again.
///
/// Example: canopy check --repair
#[derive(clap::Args)]
pub struct Arguments {
    /// Repair damaged files, and check again
    #[arg(long)]
    pub repair: bool,
    /// Threads that read and scan [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// With --repair, scan at most N entries per second, to spare a busy server
    #[arg(long, value_name = "N", value_parser = rate, requires = "repair")]
    max_rate: Option<NonZeroU32>,
    /// With --repair, memory for building the index, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_size)]
    memory: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the command out.
///
/// # Errors
///
/// If the index cannot be read or repaired, or output cannot be written.
pub fn run(
    invocation: &Invocation,
    arguments: Arguments,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    let location = match arguments.repair {
        true => invocation.site.index_to_write()?,
        false => invocation.site.index_to_check()?,
    };
    let threads = invocation.scan_threads(arguments.threads);
    let report = check(invocation, &location, threads)?;
    if !arguments.repair {
        answered(print(&location, &report, arguments.json))?;
        return Ok(outcome_of(&report));
    }
    anyhow::ensure!(
        report.is_whole || report.damages.iter().any(|it| it.remedy == Remedy::Anew),
        "only who writes the index at {} can repair it; 'canopy check' checks the part that you \
         can read",
        location.display()
    );
    if report.damages.is_empty() {
        answered(print(&location, &report, arguments.json))?;
        return Ok(Outcome::Complete);
    }
    if engine.is_none() && report.has_derived_tables {
        return Companion::Sql.run();
    }
    if !arguments.json {
        answered(print_lines(&damage_lines(&location, &report)))?;
    }
    invocation.watch_signals()?;
    check_links(&location)?;
    if report.damages.iter().any(|it| it.remedy == Remedy::Anew) {
        let advice = remedies(&report).join("; ");
        anyhow::bail!("the index at {} cannot be repaired: {advice}", location.display());
    }
    let (rate_max, memory_bytes) = (arguments.max_rate, arguments.memory);
    let options = RepairOptions { threads, rate_max, memory_bytes };
    let cx = invocation.ingest(engine.map(|engine| engine.derived));
    let Repaired { published, is_complete } = repair(&cx, &location, &report, &options)?;
    if !arguments.json && !published.is_unchanged {
        say(format_args!("repaired in generation {}", published.generation))?;
    }
    let after = check(invocation, &location, threads)?;
    said(print(&location, &after, arguments.json))?;
    Ok(if is_complete { outcome_of(&after) } else { Outcome::Partial })
}

fn outcome_of(report: &CheckReport) -> Outcome {
    if report.damages.is_empty() { Outcome::Complete } else { Outcome::Partial }
}

fn check(invocation: &Invocation, location: &Path, threads: usize) -> anyhow::Result<CheckReport> {
    let checker = Checker::default();
    let progress = |_: Duration| {
        let (files, bytes) = checker.progress();
        format!("{} read, {}", counted(files, "file"), human_size(bytes as i64))
    };
    Ok(with_progress(invocation, &progress, || checker.check(location, threads))?)
}

/// Prints the report, as lines or as JSON.
fn print(location: &Path, report: &CheckReport, as_json: bool) -> io::Result<()> {
    if as_json {
        let mut output = stdout_for_json();
        writeln!(output, "{:#}", exact(json_of(location, report)))?;
        return output.flush();
    }
    let mut lines = damage_lines(location, report);
    if !report.damages.is_empty() {
        lines.extend(remedies(report));
    }
    print_lines(&lines)
}

fn print_lines(lines: &[String]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    lines.iter().try_for_each(|line| writeln!(output, "{}", message_line(line)))
}

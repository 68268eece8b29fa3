//! `canopy check`

use crate::companion::Companion;
use crate::engine::Engine;
use crate::invocation::Invocation;
use crate::limits::{memory_size, rate};
use crate::outcome::{Outcome, answered, said, say, without_numbers};
use crate::terminal::stdout_for_json;
use canopy_index::{CheckReport, Checker, Damage, Remedy};
use canopy_ingest::repair::{RepairOptions, Repaired, repair};
use canopy_ingest::with_progress;
use canopy_model::{Generation, unescape};
use canopy_site::check_links;
use canopy_text::counted;
use canopy_text::human_size;
use canopy_text::safe::message_line;
use canopy_tools::json::exact;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

/// Most directories that the line of a damaged file names; `--json` names all that are known.
const NAMED_MAX: usize = 3;

/// Check every file of the index for damage, and repair it
///
/// Reads every block of every file, including those of older generations, and compares owners and
/// permissions with what they should be. Prints each damaged file with its contents and the
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

/// Returns a path for people.
fn shown(escaped: &str) -> String {
    message_line(&String::from_utf8_lossy(&unescape(escaped))).into_owned()
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

/// Returns the damage and a summary of it, without remedies.
fn damage_lines(location: &Path, report: &CheckReport) -> Vec<String> {
    let read =
        format!("{}, {} read", counted(report.files, "file"), human_size(report.bytes as i64));
    let part = if report.is_whole { "" } else { ", as far as you may read it" };
    let generations = match report.kept.len() {
        0 => format!("generation {}", report.generation),
        kept => format!("generation {} and {}", report.generation, counted(kept, "older one")),
    };
    let mut lines: Vec<String> = report.damages.iter().map(line_of).collect();
    match report.damages.len() {
        0 => lines.push(format!("{} is sound{part}: {generations}, {read}", location.display())),
        count => {
            let are = if count == 1 { "is" } else { "are" };
            let files = counted(count, "file");
            lines.push(format!("{files} {are} damaged{part}: {generations}, {read}"));
        }
    }
    lines
}

/// Formats a damaged file with its contents and the directories that they describe.
fn line_of(damage: &Damage) -> String {
    let Damage { file, contents, detail, affected, .. } = damage;
    let detail = without_numbers(detail);
    let file = message_line(&file.to_string_lossy()).into_owned();
    let mut directories: Vec<&String> = Vec::new();
    for (root, own) in affected {
        directories.extend(if own.is_empty() { std::slice::from_ref(root) } else { own });
    }
    let named: Vec<String> = directories.iter().take(NAMED_MAX).map(|path| shown(path)).collect();
    let more = match directories.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match named.is_empty() {
        true => format!("{file} ({contents}): {detail}"),
        false => format!("{file} ({contents} of {}{more}): {detail}", named.join(", ")),
    }
}

/// Returns the remedies, a sentence for each kind of damage.
fn remedies(report: &CheckReport) -> Vec<String> {
    let with = |remedy: Remedy| report.damages.iter().filter(move |it| it.remedy == remedy);
    let list =
        |roots: &BTreeSet<&String>| Vec::from_iter(roots.iter().map(|root| shown(root))).join(", ");
    let mut told = Vec::new();
    if !report.is_whole && with(Remedy::Anew).next().is_none() {
        return vec!["whoever writes the index can repair it with 'canopy check --repair'".into()];
    }
    if with(Remedy::Anew).next().is_some() {
        let roots: BTreeSet<&String> =
            with(Remedy::Anew).flat_map(|damage| damage.affected.keys()).collect();
        let sources = if roots.is_empty() { "its sources".to_owned() } else { list(&roots) };
        return vec![format!(
            "the rest does not suffice to repair the index: remove it, and index {sources} again"
        )];
    }
    if with(Remedy::Protect).next().is_some() {
        told.push(
            "until only its owner can write to it, nothing writes the index, and no repair does; \
             others may have changed what is in it"
                .into(),
        );
    }
    if with(Remedy::Rewrite).next().is_some() {
        told.push(
            "'canopy check --repair' rewrites files that can be derived from the rest".into(),
        );
    }
    let roots: BTreeSet<&String> =
        with(Remedy::Scan).flat_map(|damage| damage.affected.keys()).collect();
    let (imported, scanned): (BTreeSet<_>, BTreeSet<_>) =
        roots.into_iter().partition(|root| report.unscanned.contains(*root));
    if !scanned.is_empty() {
        told.push(format!("'canopy check --repair' scans {} anew", list(&scanned)));
    }
    if !imported.is_empty() {
        told.push(format!("{} was not scanned: import or read it again", list(&imported)));
    }
    if with(Remedy::Compute).next().is_some() {
        told.push("'canopy check --repair' computes derived tables anew".to_owned());
    }
    let lost = |damage: &Damage| match damage.remedy {
        Remedy::Lost(generation) => Some(generation),
        _ => None,
    };
    let past: BTreeSet<Generation> = report.damages.iter().filter_map(lost).collect();
    for generation in past {
        told.push(format!(
            "nothing brings back what only generation {generation} has; other generations do not \
             need it"
        ));
    }
    if report.damages.iter().all(|damage| lost(damage).is_some()) && !report.damages.is_empty() {
        told.push(
            "'canopy compact --keep none' ends this: it gives up all older generations".to_owned(),
        );
    }
    told
}

fn json_of(location: &Path, report: &CheckReport) -> Value {
    let damage = |damage: &Damage| {
        let (remedy, generation) = match damage.remedy {
            Remedy::Rewrite => ("rewrite", None),
            Remedy::Protect => ("protect", None),
            Remedy::Scan => ("scan", None),
            Remedy::Compute => ("compute", None),
            Remedy::Lost(generation) => ("none", Some(generation)),
            Remedy::Anew => ("index again", None),
        };
        json!({
            "file": damage.file.to_string_lossy(),
            "contents": damage.contents,
            "detail": without_numbers(&damage.detail),
            "remedy": remedy,
            "generation": generation.unwrap_or(report.generation),
            "sources": damage.affected.iter().map(|(root, directories)| json!({
                "root": root, "directories": directories,
            })).collect::<Vec<_>>(),
        })
    };
    json!({
        "index": location.to_string_lossy(),
        "generation": report.generation,
        "kept": report.kept,
        "sound": report.damages.is_empty(),
        "whole": report.is_whole,
        "files": report.files,
        "bytes": report.bytes,
        "damages": report.damages.iter().map(damage).collect::<Vec<_>>(),
        "remedies": remedies(report),
    })
}

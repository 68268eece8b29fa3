//! `canopy update`

use super::index::UNCHANGED;
use super::update_request;
use crate::engine::Engine;
use crate::invocation::Invocation;
use crate::limits::{OwnerLimitOptions, memory_size, rate};
use crate::outcome::{Outcome, say, say_json, without_numbers};
use crate::parent::{read_suspects, shares_line};
use anyhow::Context;
use canopy_ingest::update::{Suspect, Suspects, UpdateOptions, Updated, update};
use canopy_ingest::{COPIED_ROWS_MAX, Faults};
use canopy_model::unescape;
use canopy_site::check_links;
use canopy_text::counted;
use serde_json::json;
use std::io::Read;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Instant;

/// List single directories again, now, as a new generation of the index
///
/// Lists each directory PATH again, and everything below entries in it that are new or have other
/// permissions. For a file, lists its directory. A PATH that is gone is removed from the index.
/// Everything else stays as it was. Sources are scanned with the options of 'canopy index'. Exit
/// codes are those of 'canopy index'.
///
/// Users who may not write the index ask the daemon that follows it ('canopy watch') for
/// directories that they can list.
///
/// Example: canopy update --recursive /data/project
#[derive(clap::Args)]
pub struct Arguments {
    /// Directories to list again
    #[arg(value_name = "PATH", required_unless_present = "suspects")]
    paths: Vec<PathBuf>,
    /// Read the directories to list from standard input, as 'canopy watch' writes them
    #[arg(long, hide = true, conflicts_with_all = ["paths", "recursive"])]
    suspects: bool,
    /// List all of a source anew where the index has damaged data of it
    #[arg(long, hide = true)]
    repair: bool,
    /// List all that is below each PATH, too
    #[arg(short, long)]
    recursive: bool,
    /// Threads that scan [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Entries to look at per second at most, so that a busy server is spared
    #[arg(long, value_name = "N", value_parser = rate)]
    max_rate: Option<NonZeroU32>,
    /// Memory for building, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_size)]
    memory: usize,
    #[command(flatten)]
    limits: OwnerLimitOptions,
    /// Most live rows of a partly replaced shard that are rewritten
    #[arg(long, value_name = "N", default_value_t = COPIED_ROWS_MAX, hide = true)]
    copied_rows: usize,
    /// List entries that vanished or could not be read in FILE
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// Carries the command out.
///
/// # Errors
///
/// If nothing could be published, a request is refused, or the run is interrupted.
pub fn run(
    invocation: &Invocation,
    arguments: Arguments,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let paths = arguments.paths.iter().map(|path| Suspect::of_path(path, arguments.recursive));
    let mut named = paths.collect::<anyhow::Result<Vec<_>>>()?;
    let mut requested = None;
    if !arguments.suspects {
        let asked = update_request::take_out(invocation, &mut named)?;
        if !asked.is_empty() {
            anyhow::ensure!(
                !arguments.recursive,
                "only who may write the index lists all that is below a directory, too; name the \
                 directories without --recursive"
            );
            let outcome = update_request::ask(asked, arguments.json)?;
            if named.is_empty() {
                if let Some(errors) = &arguments.errors {
                    // An older list is none of this run.
                    Faults::new(Some(errors), &invocation.site.index_to_write()?, None)?;
                }
                return Ok(outcome);
            }
            requested = Some(outcome);
        }
    }
    let suspects = || match arguments.suspects {
        true => suspects_of_input(),
        false => Ok(Suspects { all: named, ..Suspects::default() }),
    };
    let location = invocation.site.index_to_write()?;
    check_links(&location)?;
    let options = UpdateOptions {
        threads: invocation.scan_threads(arguments.threads),
        rate_max: arguments.max_rate,
        memory_bytes: arguments.memory,
        limits: arguments.limits.given(),
        copied_rows_max: arguments.copied_rows,
        errors: arguments.errors.as_deref(),
        repairs: arguments.repair,
    };
    let cx = invocation.ingest(engine.map(|engine| engine.derived));
    cx.check_derived_tables(&location)?;
    invocation.watch_signals()?;
    let updated = update(&cx, &location, suspects, &options)?;
    let seconds = begun.elapsed().as_secs_f64();
    match arguments.json {
        true => print_json(&updated, seconds)?,
        false => print(&updated, seconds)?,
    }
    let outcome = Outcome::of(updated.is_complete);
    Ok(requested.filter(|outcome| *outcome != Outcome::Complete).unwrap_or(outcome))
}

fn print(updated: &Updated, seconds: f64) -> anyhow::Result<()> {
    let Updated { generation, is_unchanged, entries, kept, directories, .. } = updated;
    let kept = match is_unchanged {
        true => String::new(),
        false => format!("{kept} of them as they were, "),
    };
    say(format_args!(
        "{}generation {generation}: {} in {} looked at, {kept}{seconds:.2} s",
        if *is_unchanged { UNCHANGED } else { "" },
        counted(entries, "entry"),
        counted(directories, "directory"),
    ))?;
    updated.shares.as_ref().map_or(Ok(()), |shares| say(shares_line(shares)))
}

/// Prints an object whose keys are those of 'canopy index --json'.
fn print_json(updated: &Updated, seconds: f64) -> anyhow::Result<()> {
    let failed = |(root, error): &(String, anyhow::Error)| {
        let error = without_numbers(&format!("{error:#}"));
        json!({ "path": shown(root), "error": error })
    };
    say_json(&json!({
        "generation": updated.generation,
        "unchanged": updated.is_unchanged,
        "complete": updated.is_complete,
        "entries": updated.entries,
        "kept_entries": updated.kept,
        "directories": updated.directories,
        "seconds": seconds,
        "bytes": updated.bytes,
        "shards": updated.shards,
        "unreadable": updated.unreadable,
        "vanished": updated.vanished,
        "sources": updated.sources,
        "failed": updated.failed.iter().map(failed).collect::<Vec<_>>(),
    }))
}

/// Reads directories to list again that 'canopy watch' writes.
fn suspects_of_input() -> anyhow::Result<Suspects> {
    let mut input = Vec::new();
    std::io::stdin().lock().read_to_end(&mut input).context("cannot read standard input")?;
    read_suspects(&input)
}

fn shown(root: &str) -> String {
    String::from_utf8_lossy(&unescape(root)).into_owned()
}

//! `canopy import`, carried out.

use crate::table::Tables;
use anyhow::Context as _;
use canopy::commands::import::Arguments;
use canopy::{Invocation, Outcome, message, say, say_json};
use canopy_import::{Counts, Import, Problems, Request};
use canopy_index::{NewSource, Published, Writer, WriterOptions};
use canopy_ingest::now_ns;
use canopy_ingest::{
    Context, DerivedTables, Held, Shards, count_of, end_if_cancelled, publish, warn_of,
    with_progress,
};
use canopy_site::check_links;
use canopy_text::counted;
use canopy_text::human_size;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Carries the command out.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let request = arguments.request(invocation);
    let threads = request.threads;
    let options = WriterOptions {
        memory_bytes: request.memory_bytes,
        threads,
        limits: arguments.limits.given(),
        ..WriterOptions::default()
    };
    let location = invocation.site.index_to_write()?;
    check_links(&location)?;
    let mut writer = Writer::open(&location, options)?;
    invocation.watch_signals()?;
    let counts = Counts::default();
    let progress = |_: Duration| match counts.entries.load(Ordering::Relaxed) {
        0 => "reading directories".to_owned(),
        entries => counted(entries, "entry"),
    };
    let cx = invocation.ingest(Some(&Tables));
    let add = || add_source(invocation, &mut writer, &request, (arguments.name, &counts));
    let import = with_progress(invocation, &progress, add);
    let mut writer = end_if_cancelled(&cx, writer)?;
    let import = import?;
    let are_complete = Tables.refresh(&mut writer, threads)?;
    let published = publish(&cx, writer)?;
    if import.untold_above() > 0 && nix::unistd::geteuid().is_root() {
        message(format_args!(
            "the directories above {} count as open to all; --above says what they are",
            canopy_read::to_path(import.root()).display()
        ));
    }
    let is_shown = warn(&cx, &published, import.problems());
    let is_complete = import.problems().count() == 0 && is_shown;
    let outcome = Outcome::of(is_complete && are_complete);
    let summary = Summary {
        published: &published,
        held: count_of(&location, &[import.root().to_owned()]),
        directories: counts.directories.into_inner(),
        skipped: import.problems().count(),
        seconds: begun.elapsed().as_secs_f64(),
    };
    match arguments.json {
        true => summary.print_json(import.root(), outcome)?,
        false => summary.print()?,
    }
    Ok(outcome)
}

fn add_source(
    invocation: &Invocation,
    writer: &mut Writer,
    request: &Request,
    (name, counts): (Option<String>, &Counts),
) -> anyhow::Result<Import> {
    let mut import = Import::open(request).context("nothing was published")?;
    let source = writer.add_source(NewSource {
        name,
        root: import.root().to_owned(),
        dev: import.dev(),
        scanned_ns: now_ns(),
        attributes: import.attributes(),
        approach: import.root_approach(writer.classes()),
        xattrs: import.xattrs(writer.classes()),
        scan: None,
    })?;
    let sinks = Shards::of(writer.shard_writers(source), &invocation.cancel);
    let sinks = import.run(writer.classes(), counts, sinks).context("nothing was published")?;
    writer.finish_shards(Shards::writers(sinks))?;
    Ok(import)
}

/// Warns of problems of the input, and of entries that users cannot see. Returns whether there are no
/// such entries.
fn warn(cx: &Context<'_>, published: &Published, problems: &Problems) -> bool {
    let is_shown = warn_of(cx, published);
    for problem in problems.first() {
        message(problem);
    }
    let skipped = problems.count();
    if skipped > 0 {
        message(format_args!("{} left out or for root alone", counted(skipped, "record")));
    }
    is_shown
}

/// What became of an import.
struct Summary<'a> {
    published: &'a Published,
    /// Counts of the source, as 'canopy info' prints them; `None` if it is part of another source.
    held: Option<Held>,
    directories: u64,
    /// Records that were left out or are for root alone.
    skipped: u64,
    seconds: f64,
}

impl Summary<'_> {
    fn print(&self) -> anyhow::Result<()> {
        let Summary { published, held, directories, skipped, seconds } = self;
        let (entries, directories) =
            (counted(published.entries, "entry"), counted(directories, "directory"));
        say(format_args!(
            "generation {}: {}, {seconds:.1} s ({:.0} entries/s), {} in {}, {skipped} skipped",
            published.generation,
            held.map_or_else(|| format!("{entries} in {directories}"), |held| held.shown()),
            published.entries as f64 / seconds,
            human_size(published.bytes as i64),
            counted(published.shards, "shard"),
        ))
    }

    /// Prints an object whose keys are those of 'canopy index --json'.
    fn print_json(&self, root: &str, outcome: Outcome) -> anyhow::Result<()> {
        say_json(&json!({
            "generation": self.published.generation,
            "unchanged": self.published.is_unchanged,
            "complete": outcome == Outcome::Complete,
            "entries": self.held.map_or(self.published.entries, |held| {
                u64::try_from(held.entries()).unwrap_or_default()
            }),
            "files": self.held.map(|held| held.files),
            "directories": self.held.map_or(self.directories, |held| {
                u64::try_from(held.directories).unwrap_or_default()
            }),
            "seconds": self.seconds,
            "bytes": self.published.bytes,
            "shards": self.published.shards,
            "skipped": self.skipped,
            "sources": [root],
        }))
    }
}

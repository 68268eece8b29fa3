//! `canopy import`, carried out.

use crate::table::Tables;
use anyhow::Context as _;
use canopy::commands::import::Arguments;
use canopy::{Invocation, Outcome, message, say, say_json};
use canopy_import::{Counts, FoundXattr, Import, Problems};
use canopy_index::{Published, WriterOptions};
use canopy_ingest::{Held, ListingSource, Shards, SourceRun, count_of, import};
use canopy_model::{Approach, Attributes, Audience, ClassTable, Device};
use canopy_site::check_links;
use canopy_text::{counted, human_size};
use parking_lot::Mutex;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Carries the command out.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let request = arguments.request(invocation);
    let options = WriterOptions {
        memory_bytes: request.memory_bytes,
        threads: request.threads,
        limits: arguments.limits.given(),
        ..WriterOptions::default()
    };
    let location = invocation.site.index_to_write()?;
    check_links(&location)?;
    invocation.watch_signals()?;
    let counts = Counts::default();
    let progress = |_: Duration| match counts.entries.load(Ordering::Relaxed) {
        0 => "reading directories".to_owned(),
        entries => counted(entries, "entry"),
    };
    let open = || {
        let import = Import::open(&request).context("nothing was published")?;
        let root = import.root().to_owned();
        Ok((Source { import: Mutex::new(import), counts: &counts }, root))
    };
    let cx = invocation.ingest(Some(&Tables));
    let imported = import::import(&cx, &location, options, arguments.name, &progress, open)?;
    let (published, import) = (imported.published, imported.source.import.into_inner());
    if import.untold_above() > 0 && nix::unistd::geteuid().is_root() {
        message(format_args!(
            "the directories above {} count as open to all; --above says what they are",
            canopy_read::to_path(import.root()).display()
        ));
    }
    warn(import.problems());
    let outcome = Outcome::of(imported.is_complete && import.problems().count() == 0);
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

/// An import that is listed.
struct Source<'a> {
    import: Mutex<Import>,
    counts: &'a Counts,
}

impl ListingSource for Source<'_> {
    fn about(&self) -> (Attributes, Device) {
        let import = self.import.lock();
        (import.attributes(), import.dev())
    }

    fn approach(&self, _: Approach, classes: &ClassTable) -> Approach {
        self.import.lock().root_approach(classes)
    }

    fn xattrs(&self, _: Audience, classes: &ClassTable) -> anyhow::Result<Vec<FoundXattr>> {
        Ok(self.import.lock().xattrs(classes))
    }

    fn list<'w>(
        &self,
        _: &Path,
        _: &Approach,
        run: &SourceRun<'_>,
        sinks: Vec<Shards<'w>>,
    ) -> anyhow::Result<Vec<Shards<'w>>> {
        let listed = self.import.lock().run(run.classes, self.counts, sinks);
        listed.context("nothing was published")
    }
}

/// Warns of problems of the input.
fn warn(problems: &Problems) {
    for problem in problems.first() {
        message(problem);
    }
    let skipped = problems.count();
    if skipped > 0 {
        message(format_args!("{} left out or for root alone", counted(skipped, "record")));
    }
}

/// Result of an import.
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

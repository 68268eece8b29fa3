//! `canopy import`, carried out.

use crate::table;
use anyhow::Context;
use canopy::commands::building::{Shards, end_if_asked, publish, with_progress};
use canopy::commands::import::Arguments;
use canopy::options::now_ns;
use canopy::{Outcome, interrupt, message, places, say, warn_of};
use canopy_import::{Counts, Import, Problems, Request};
use canopy_index::{NewSource, Published, Writer, WriterOptions};
use canopy_text::human_size;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Carries the command out.
pub fn run(index: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let request = arguments.request();
    let threads = request.threads;
    let options = WriterOptions {
        memory_bytes: request.memory_bytes,
        threads,
        limits: arguments.limits.given(),
        ..WriterOptions::default()
    };
    let location = places::to_write(index)?;
    places::check_links(&location)?;
    let mut writer = Writer::open(&location, options)?;
    interrupt::watch()?;
    let counts = Counts::default();
    let progress = |_| match counts.entries.load(Ordering::Relaxed) {
        0 => "reading directories".to_owned(),
        entries => format!("{entries} entries"),
    };
    let import =
        with_progress(progress, || add_source(&mut writer, &request, arguments.name, &counts));
    let mut writer = end_if_asked(writer);
    let import = import?;
    let derived = table::follow_all(&mut writer, threads)?;
    let published = publish(writer)?;
    if import.untold_above() > 0 && nix::unistd::geteuid().is_root() {
        message(format_args!(
            "the directories above {} count as open to all; --above says what they are",
            canopy_read::to_path(import.root()).display()
        ));
    }
    let shown = report(&published, &counts, import.problems(), begun)?;
    let complete = import.problems().count() == 0 && shown == Outcome::Complete;
    Ok(if complete { derived } else { Outcome::Partial })
}

fn add_source(
    writer: &mut Writer,
    request: &Request,
    name: Option<String>,
    counts: &Counts,
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
    let sinks = writer.shard_writers(source).into_iter().map(Shards).collect();
    let sinks = import.run(writer.classes(), counts, sinks).context("nothing was published")?;
    writer.finish_shards(sinks.into_iter().map(|sink| sink.0).collect())?;
    Ok(import)
}

fn report(
    published: &Published,
    counts: &Counts,
    problems: &Problems,
    begun: Instant,
) -> anyhow::Result<Outcome> {
    let shown = warn_of(published);
    for problem in problems.first() {
        message(problem);
    }
    let skipped = problems.count();
    if skipped > 0 {
        message(format_args!("{skipped} records were left out or are for root alone"));
    }
    let seconds = begun.elapsed().as_secs_f64();
    say(format_args!(
        "generation {}: {} entries in {} directories, {:.1} s ({:.0} entries/s), {} in {} shards, \
         {skipped} skipped",
        published.generation,
        published.entries,
        counts.directories.load(Ordering::Relaxed),
        seconds,
        published.entries as f64 / seconds,
        human_size(published.bytes as i64),
        published.shards,
    ))?;
    Ok(shown)
}

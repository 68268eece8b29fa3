//! `canopy index`

use super::building::{Shards, with_progress};
use super::index_faults::Faults;
use crate::config::{prune_patterns, settings};
use crate::options::{location, memory_size, now_ns, threads};
use crate::outcome::{Outcome, say, warn_of};
use crate::{Engine, companion};
use anyhow::Context;
use canopy_index::{Disk, NewSource, Writer, WriterOptions};
use canopy_scan::{Counts, Excludes, MountRules, Root, ScanError, ScanOptions, scan};
use canopy_text::human_size;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Scan trees and publish them as a new generation of the index
///
/// A tree that was indexed before is replaced; others stay. Readers see the old generation until
/// the new one is whole. Exit code 0: complete; 1: some entries vanished, could not be read, have
/// too long a path or changed hands meanwhile; 2: nothing was published.
///
/// Example: canopy index /home /data --exclude '*.snapshot' --errors errors.txt
#[derive(clap::Args)]
pub struct Arguments {
    /// Trees to scan [default: the configured sources]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Threads that scan [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Stay on the file system of each PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Leave out entries whose name, or with a '/' whose path below PATH, matches (can be
    /// repeated), besides what is configured
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Index what the configuration leaves out, too, and /proc and its like (for root alone)
    #[arg(long)]
    no_prune: bool,
    /// Leave out extended attributes and ACLs (permissions count all the same); scans faster
    #[arg(long)]
    no_xattrs: bool,
    /// Name of the source, for one PATH [default: its path]
    #[arg(long)]
    name: Option<String>,
    /// Memory for building, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_size)]
    memory: usize,
    /// List entries that vanished or could not be read in FILE
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,
}

/// Carries the command out.
pub fn run(
    index: Option<PathBuf>,
    arguments: Arguments,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    let mut arguments = arguments;
    if arguments.paths.is_empty() {
        arguments.paths = settings().sources.clone().unwrap_or_default();
        anyhow::ensure!(
            !arguments.paths.is_empty(),
            "no PATH is given, and no sources are configured"
        );
    }
    anyhow::ensure!(
        arguments.name.is_none() || arguments.paths.len() == 1,
        "--name names one source; index several paths one by one to name them"
    );
    raise_open_files();
    let begun = Instant::now();
    let threads = threads(arguments.threads);
    Excludes::new(arguments.exclude.iter().map(String::as_str)).context("--exclude")?;
    let faults = Faults::new(arguments.errors.as_deref())?;
    let options = WriterOptions { memory_bytes: arguments.memory, threads, disk: Disk::default() };
    let mut writer = Writer::open(&location(index)?, options)?;
    if companion::must_refresh(&writer, engine) {
        drop(writer);
        return companion::run();
    }
    let own = writer.path().metadata().context("cannot look at the index")?;
    let options = ScanOptions {
        one_file_system: arguments.one_file_system,
        excludes: Excludes::default(),
        skipped: vec![(own.dev(), own.ino())],
        no_xattrs: arguments.no_xattrs,
        one_reader: !nix::unistd::geteuid().is_root(),
        path_bytes_max: settings().path_max.unwrap_or(ScanOptions::default().path_bytes_max),
        part_bytes: (arguments.memory / threads / 16).clamp(1 << 20, 64 << 20),
    };
    let trusted = settings().trust_fs.clone().unwrap_or_default();
    let rules = MountRules::new(trusted, arguments.no_prune);
    let counts = Counts::default();
    with_progress(
        |elapsed| progress(&counts, elapsed),
        || -> anyhow::Result<()> {
            for path in &arguments.paths {
                let root = Root::open(path, writer.classes(), &rules)?;
                let options =
                    ScanOptions { excludes: excludes(&arguments, &root.path)?, ..options.clone() };
                add_source(
                    &mut writer,
                    root,
                    arguments.name.clone(),
                    &options,
                    &rules,
                    &counts,
                    &faults,
                )?;
            }
            Ok(())
        },
    )?;
    let derived = match engine {
        Some(engine) => (engine.refresh)(&mut writer, threads)?,
        None => Outcome::Complete,
    };
    let published = writer.publish()?;
    faults.finish(&counts, &options)?;
    if !options.one_reader {
        super::index_faults::warn_of_mounts(&rules.closed());
    }
    warn_of(&published);
    let complete = counts.faults() == 0;
    let (failed, vanished) = (counts.failed.into_inner(), counts.vanished.into_inner());
    let seconds = begun.elapsed().as_secs_f64();
    say(format_args!(
        "generation {}: {} entries in {} directories, {:.1} s ({:.0} entries/s), {} in {} shards, \
         {failed} unreadable, {vanished} vanished",
        published.generation,
        published.entries,
        counts.directories.into_inner(),
        seconds,
        published.entries as f64 / seconds,
        human_size(published.bytes as i64),
        published.shards,
    ))?;
    Ok(if complete { derived } else { Outcome::Partial })
}

fn progress(counts: &Counts, elapsed: Duration) -> String {
    let entries = counts.entries.load(Ordering::Relaxed);
    let errors = counts.faults();
    let rate = entries as f64 / elapsed.as_secs_f64().max(0.001);
    format!("{entries} entries, {rate:.0}/s, {errors} errors")
}

/// What is left out of a source, by the command line and by the configuration.
fn excludes(arguments: &Arguments, root: &Path) -> anyhow::Result<Excludes> {
    let mut patterns = arguments.exclude.clone();
    if !arguments.no_prune {
        patterns.extend(prune_patterns(settings(), root)?);
    }
    Ok(Excludes::new(patterns.iter().map(String::as_str))?)
}

fn add_source(
    writer: &mut Writer,
    mut root: Root,
    name: Option<String>,
    options: &ScanOptions,
    rules: &MountRules,
    counts: &Counts,
    faults: &Faults,
) -> anyhow::Result<()> {
    let xattrs = match options.no_xattrs {
        true => Vec::new(),
        false => root.xattrs(writer.classes()),
    };
    let source = writer.add_source(NewSource {
        name,
        root: root.escaped_path(),
        dev: root.dev,
        scanned_ns: now_ns(),
        attributes: root.attributes,
        class: root.class,
        xattrs,
    })?;
    let base = root.path.clone();
    let on_error = |error: &ScanError| faults.add(&base, error);
    let sinks = writer.shard_writers(source).into_iter().map(Shards).collect();
    let sinks = scan(root, options, writer.classes(), rules, counts, &on_error, sinks)?;
    writer.finish_shards(sinks.into_iter().map(|sink| sink.0).collect())?;
    Ok(())
}

/// A directory may wait with its descriptor open until its last subdirectory is read.
fn raise_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Without it, only very deep trees run into the limit, and say so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

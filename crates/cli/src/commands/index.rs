//! `canopy index`

use super::building::{Shards, with_progress};
use crate::config::{prune_patterns, settings};
use crate::options::{location, memory_size, now_ns, threads};
use crate::outcome::{Outcome, message, say, warn_of};
use crate::{Engine, companion};
use anyhow::Context;
use canopy_index::{Disk, NewSource, Writer, WriterOptions};
use canopy_model::escape;
use canopy_scan::{Counts, Excludes, Root, ScanError, ScanOptions, Step, scan};
use canopy_text::human_size;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Scan trees and publish them as a new generation of the index
///
/// A tree that was indexed before is replaced; others stay. One that lies in a source takes
/// the place of what the source had there, and a source in PATH becomes part of PATH's. Readers see the old generation until
/// the new one is whole. A tree that cannot be scanned stays as it was, and 'canopy info' says since
/// when. Exit code 0: complete; 1: some entries vanished or could not be read, or a tree stays as it
/// was; 2: nothing was published.
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
    /// Index what the configuration leaves out, too
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
    /// Remove what is in the index of each PATH, and the generation before, ahead of the scan:
    /// needs half of the space, but until the end there are no answers about PATH
    #[arg(long)]
    replace: bool,
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
    let errors = arguments.errors.as_deref().map(ErrorFile::create).transpose()?;
    let location = location(index)?;
    let options = WriterOptions {
        memory_bytes: arguments.memory,
        threads,
        keep_previous: !arguments.replace,
        disk: Disk::default(),
    };
    let mut writer = Writer::open(&location, options.clone())?;
    if companion::must_refresh(&writer, engine) {
        drop(writer);
        return companion::run();
    }
    if arguments.replace && give_up(&mut writer, &arguments.paths) {
        writer.publish()?;
        writer = Writer::open(&location, options.clone())?;
    }
    let own = writer.path().metadata().context("cannot look at the index")?;
    let scan_options = ScanOptions {
        one_file_system: arguments.one_file_system,
        excludes: Excludes::default(),
        skipped: vec![(own.dev(), own.ino())],
        no_xattrs: arguments.no_xattrs,
    };
    let counts = Counts::default();
    let failed = with_progress(
        |elapsed| progress(&counts, elapsed),
        || {
            let mut failed = Vec::new();
            for path in &arguments.paths {
                let added = index_tree(
                    &mut writer,
                    path,
                    &arguments,
                    &scan_options,
                    &counts,
                    errors.as_ref(),
                );
                if let Err(error) = added {
                    failed.push((path, error));
                }
            }
            failed
        },
    );
    for (path, error) in &failed {
        writer.failed(&root_of(path), format!("{error:#}"));
    }
    if failed.len() == arguments.paths.len() {
        drop(writer.keep());
        return Err(said(failed).context("nothing was published"));
    }
    let stays = !failed.is_empty();
    for (path, error) in failed {
        message(format_args!("{error:#}; {} stays as it was in the index", path.display()));
    }
    let derived = match engine {
        Some(engine) => (engine.refresh)(&mut writer, threads)?,
        None => Outcome::Complete,
    };
    let published = match writer.publish() {
        Ok(published) => published,
        Err(error) => {
            let error = anyhow::Error::from(error);
            record(&location, options, &arguments.paths, &format!("{error:#}"));
            return Err(error);
        }
    };
    if let Some(errors) = errors {
        errors.finish()?;
    }
    warn_of(&published);
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
    Ok(if failed + vanished == 0 && !stays { derived } else { Outcome::Partial })
}

/// Takes the sources at these paths out of the index, as far as they can be scanned anew; returns
/// whether there was any.
fn give_up(writer: &mut Writer, paths: &[PathBuf]) -> bool {
    let roots: Vec<Root> =
        paths.iter().filter_map(|path| Root::open(path, writer.classes()).ok()).collect();
    let removed = roots.iter().filter_map(|root| writer.remove_source(&root.escaped_path()));
    removed.count() > 0
}

/// Prints all of the errors but the last one, and returns that.
fn said(mut failed: Vec<(&PathBuf, anyhow::Error)>) -> anyhow::Error {
    let last = failed.pop();
    failed.iter().for_each(|(_, error)| message(format_args!("{error:#}")));
    last.map_or_else(|| anyhow::anyhow!("no PATH is given"), |(_, error)| error)
}

/// Records that nothing of these paths could be published, if that much can be done.
fn record(location: &Path, options: WriterOptions, paths: &[PathBuf], reason: &str) {
    let Ok(mut writer) = Writer::open(location, options) else { return };
    paths.iter().for_each(|path| writer.failed(&root_of(path), reason.to_owned()));
    drop(writer.keep());
}

/// Returns the absolute path, escaped, under which a failure of a source is recorded.
fn root_of(path: &Path) -> String {
    let real = path.canonicalize().or_else(|_| std::path::absolute(path));
    escape(real.unwrap_or_else(|_| path.to_owned()).as_os_str().as_bytes()).into_owned()
}

fn progress(counts: &Counts, elapsed: Duration) -> String {
    let entries = counts.entries.load(Ordering::Relaxed);
    let errors = counts.failed.load(Ordering::Relaxed) + counts.vanished.load(Ordering::Relaxed);
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

/// Scans a tree and adds it to what is published next. After an error, nothing of it is.
fn index_tree(
    writer: &mut Writer,
    path: &Path,
    arguments: &Arguments,
    options: &ScanOptions,
    counts: &Counts,
    errors: Option<&ErrorFile>,
) -> anyhow::Result<()> {
    let root = Root::open(path, writer.classes())?;
    let options = ScanOptions { excludes: excludes(arguments, &root.path)?, ..options.clone() };
    let source = writer.add_source(NewSource {
        name: arguments.name.clone(),
        root: root.escaped_path(),
        dev: root.dev,
        scanned_ns: now_ns(),
        attributes: root.attributes,
        class: root.class,
        xattrs: if options.no_xattrs { Vec::new() } else { root.xattrs(writer.classes()) },
    })?;
    let scanned = scan_tree(writer, source, root, &options, counts, errors);
    match scanned {
        Ok(()) => writer.forget_failure(&root_of(path)),
        Err(_) => writer.abandon(source),
    }
    scanned
}

fn scan_tree(
    writer: &Writer,
    source: u32,
    root: Root,
    options: &ScanOptions,
    counts: &Counts,
    errors: Option<&ErrorFile>,
) -> anyhow::Result<()> {
    let base = root.path.clone();
    let unlisted = Mutex::new(None);
    let on_error = |error: &ScanError| {
        if error.path.is_empty() && error.step == Step::List {
            *unlisted.lock() = Some(error.errno);
        }
        if let Some(errors) = errors {
            errors.add(&base, error);
        }
    };
    let sinks = writer.shard_writers(source).into_iter().map(Shards).collect();
    let sinks = scan(root, options, writer.classes(), counts, &on_error, sinks)?;
    if let Some(errno) = unlisted.into_inner() {
        return Err(std::io::Error::from(errno))
            .with_context(|| format!("cannot list {}", base.display()));
    }
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

/// The file that lists errors: step, reason and path, one a line, with control characters escaped.
struct ErrorFile {
    file: Mutex<BufWriter<File>>,
}

impl ErrorFile {
    fn create(path: &Path) -> anyhow::Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(ErrorFile { file: Mutex::new(BufWriter::new(file)) })
    }

    fn add(&self, base: &Path, error: &ScanError) {
        let step = match error.step {
            Step::List => "cannot list",
            Step::Look => "cannot look at",
            Step::ReadLink => "cannot read the link",
            Step::Xattrs => "cannot read the extended attributes of",
        };
        let path = base.join(std::ffi::OsStr::from_bytes(&error.path));
        let reason = std::io::Error::from(error.errno);
        let path = path.as_os_str().as_bytes().escape_ascii();
        let mut file = self.file.lock();
        // A full disk shows when the file is finished.
        drop(writeln!(file, "{step} {path}: {reason}"));
    }

    fn finish(self) -> anyhow::Result<()> {
        let mut file = self.file.into_inner();
        file.flush().context("cannot write the list of errors")
    }
}

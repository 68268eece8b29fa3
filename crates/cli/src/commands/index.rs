//! `canopy index`

use super::building::{Shards, end_if_asked, publish, with_progress};
use super::index_faults::{Faults, Shortfalls};
use crate::config::{prune_patterns, settings};
use crate::limits::{OwnerLimitOptions, memory_size, subordinate_uids};
use crate::options::{now_ns, threads};
use crate::outcome::{Outcome, message, say, warn_of};
use crate::places;
use crate::{Engine, companion, interrupt};
use anyhow::Context;
use canopy_index::{Disk, NewSource, Writer, WriterOptions};
use canopy_model::escape;
use canopy_scan::{
    Counts, Excludes, Fault, MountRules, Root, ScanError, ScanOptions, Step, scan, threads_max,
};
use canopy_text::human_size;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Scan trees and publish them as a new generation of the index
///
/// A tree that was indexed before is replaced; others stay. One that lies in a source takes the
/// place of what the source had there, and a source in PATH becomes part of PATH's. Readers see the
/// old generation until the new one is whole. A tree that cannot be scanned stays as it was, and
/// 'canopy info' says since when. Exit code 0: complete; 1: some entries vanished, could not be
/// read, have too long a path or changed hands meanwhile, or a tree stays as it was; 2: nothing was
/// published.
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
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: Option<String>,
    /// Memory for building, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_size)]
    memory: usize,
    #[command(flatten)]
    limits: OwnerLimitOptions,
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
    let mut known = HashSet::new();
    arguments.paths.retain(|path| known.insert(root_of(path)));
    raise_open_files();
    let begun = Instant::now();
    let threads = threads(arguments.threads).min(threads_max());
    Excludes::new(arguments.exclude.iter().map(String::as_str)).context("--exclude")?;
    let faults = Faults::new(arguments.errors.as_deref())?;
    let location = places::to_write(index)?;
    places::check_links(&location)?;
    let options = WriterOptions {
        memory_bytes: arguments.memory,
        threads,
        limits: arguments.limits.into(),
        holders: subordinate_uids(),
        keep_previous: !arguments.replace,
        disk: Disk::default(),
    };
    let mut writer = Writer::open(&location, options.clone())?;
    if companion::must_refresh(&writer, engine) {
        drop(writer);
        return companion::Companion::Sql.run();
    }
    interrupt::watch()?;
    let trusted = settings().trust_fs.clone().unwrap_or_default();
    let rules = MountRules::new(trusted, arguments.no_prune);
    if arguments.replace && give_up(&mut writer, &arguments.paths, &rules) {
        writer.publish()?;
        writer = Writer::open(&location, options.clone())?;
    }
    let own = writer.path().metadata().context("cannot look at the index")?;
    let run = Run {
        options: ScanOptions {
            one_file_system: arguments.one_file_system,
            excludes: Excludes::default(),
            skipped: vec![(own.dev(), own.ino())],
            no_xattrs: arguments.no_xattrs,
            one_reader: !nix::unistd::geteuid().is_root(),
            path_bytes_max: settings().path_max.unwrap_or(ScanOptions::default().path_bytes_max),
            part_bytes: (arguments.memory / threads / 16).clamp(1 << 20, 64 << 20),
        },
        arguments: &arguments,
        rules,
        counts: Counts::default(),
        faults,
    };
    let failed = with_progress(
        |elapsed| progress(&run.counts, elapsed),
        || {
            let failed = |path: &PathBuf| Some((path.clone(), run.index(&mut writer, path).err()?));
            arguments.paths.iter().filter_map(failed).collect::<Vec<_>>()
        },
    );
    let mut writer = end_if_asked(writer);
    for (path, error) in &failed {
        writer.failed(&root_of(path), format!("{error:#}"));
    }
    if failed.len() == arguments.paths.len() {
        let Run { options, counts, faults, .. } = run;
        if let Err(error) = writer.keep() {
            message(format_args!("'canopy info' will not tell of what failed: {error}"));
        }
        if let Err(error) = faults.finish(&counts, &options) {
            message(format_args!("{error:#}"));
        }
        return Err(report_all_but_last(failed).context("nothing was published"));
    }
    let stays = !failed.is_empty();
    for (path, error) in failed {
        message(format_args!("{error:#}; {} stays as it was in the index", path.display()));
    }
    let refreshed = match engine {
        Some(engine) => (engine.refresh)(&mut writer, threads),
        None => Ok(Outcome::Complete),
    };
    let published = refreshed.and_then(|derived| Ok((publish(writer)?, derived)));
    let (published, derived) = match published {
        Ok(published) => published,
        Err(error) => {
            record_failures(&location, options, &arguments.paths, &format!("{error:#}"));
            return Err(error);
        }
    };
    let Run { options, rules, counts, faults, .. } = run;
    let listed = faults.finish(&counts, &options);
    if let Err(error) = &listed {
        message(format_args!("{error:#}"));
    }
    if !options.one_reader {
        super::index_faults::warn_of_mounts(&rules.closed());
    }
    let shown = warn_of(&published);
    let complete = counts.faults() == 0 && shown == Outcome::Complete && !stays && listed.is_ok();
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

/// What the sources of one run have in common.
struct Run<'a> {
    arguments: &'a Arguments,
    options: ScanOptions,
    rules: MountRules,
    counts: Counts,
    faults: Faults,
}

impl Run<'_> {
    /// Scans a tree and adds it to what is published next. After an error, nothing of it is.
    fn index(&self, writer: &mut Writer, path: &Path) -> anyhow::Result<()> {
        places::check_links(path)?;
        let before = self.shortfalls(writer);
        let mut root = Root::open(path, writer.classes(), &self.rules)?;
        let (xattrs, failed) = match self.options.no_xattrs {
            true => (Vec::new(), None),
            false => root.xattrs(writer.classes()),
        };
        if let Some(error) = failed {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            self.faults.add(&root.path, &error);
        }
        let source = writer.add_source(NewSource {
            name: self.arguments.name.clone(),
            root: root.escaped_path(),
            dev: root.dev,
            scanned_ns: now_ns(),
            attributes: root.attributes,
            approach: root.approach.clone(),
            xattrs,
        })?;
        let scanned = self.scan(writer, source, root);
        match scanned {
            Ok(()) => {
                let missing = self.shortfalls(writer).since(&before);
                if !missing.is_empty() {
                    writer.incomplete(&root_of(path), missing.join("; "));
                }
                writer.forget_failure(&root_of(path));
            }
            Err(_) => writer.abandon(source),
        }
        scanned
    }

    /// Returns what the index does not show so far though the source would.
    fn shortfalls(&self, writer: &Writer) -> Shortfalls {
        Shortfalls::new(&self.counts, writer.beyond_limits(), self.rules.closed())
    }

    fn scan(&self, writer: &Writer, source: u32, root: Root) -> anyhow::Result<()> {
        let excludes = self.excludes(&root.path)?;
        let options = ScanOptions { excludes, ..self.options.clone() };
        let base = root.path.clone();
        let unlisted = OnceLock::new();
        let on_error = |error: &ScanError| {
            if error.path.is_empty()
                && matches!(error.fault, Fault::Failed(Step::List, _) | Fault::Moved)
            {
                unlisted.get_or_init(|| error.fault);
            }
            self.faults.add(&base, error);
        };
        let sinks = writer.shard_writers(source).into_iter().map(Shards).collect();
        let (classes, rules) = (writer.classes(), &self.rules);
        let sinks = scan(root, &options, classes, rules, &self.counts, &on_error, sinks)?;
        match unlisted.get() {
            Some(&Fault::Failed(_, errno)) => {
                return Err(std::io::Error::from(errno))
                    .with_context(|| format!("cannot list {}", base.display()));
            }
            Some(_) => anyhow::bail!("{} was moved while it was scanned", base.display()),
            None => {}
        }
        writer.finish_shards(sinks.into_iter().map(|sink| sink.0).collect())?;
        Ok(())
    }

    /// Returns what is left out of a source, by the command line and by the configuration.
    fn excludes(&self, root: &Path) -> anyhow::Result<Excludes> {
        let mut patterns = self.arguments.exclude.clone();
        if !self.arguments.no_prune {
            patterns.extend(prune_patterns(settings(), root)?);
        }
        Ok(Excludes::new(patterns.iter().map(String::as_str))?)
    }
}

/// Takes the sources at these paths out of the index, as far as they can be scanned anew; returns
/// whether there was any.
fn give_up(writer: &mut Writer, paths: &[PathBuf], rules: &MountRules) -> bool {
    let open = |path: &PathBuf| Root::open(path, writer.classes(), rules).ok();
    let roots: Vec<Root> = paths.iter().filter_map(open).collect();
    let removed = roots.iter().filter_map(|root| writer.remove_source(&root.escaped_path()));
    removed.count() > 0
}

/// Prints all of the errors but the last one, and returns that.
fn report_all_but_last(mut failed: Vec<(PathBuf, anyhow::Error)>) -> anyhow::Error {
    let last = failed.pop();
    failed.iter().for_each(|(_, error)| message(format_args!("{error:#}")));
    last.map_or_else(|| anyhow::anyhow!("no PATH is given"), |(_, error)| error)
}

/// Records that nothing of these paths could be published, if that much can be done.
fn record_failures(location: &Path, options: WriterOptions, paths: &[PathBuf], reason: &str) {
    let Ok(mut writer) = Writer::open(location, options) else { return };
    paths.iter().for_each(|path| writer.failed(&root_of(path), reason.to_owned()));
    drop(writer.keep());
}

/// Returns the absolute path, escaped, under which a failure of a source is recorded.
fn root_of(path: &Path) -> String {
    let real = path.canonicalize().or_else(|_| std::path::absolute(path));
    escape(real.unwrap_or_else(|_| path.to_owned()).as_os_str().as_bytes()).into_owned()
}

/// A directory may wait with its descriptor open until its last subdirectory is read.
fn raise_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Without it, only very deep trees run into the limit, and say so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

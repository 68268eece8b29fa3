//! `canopy index`

use super::building::{damaged_file, publish_changes};
use super::index_faults;
use super::index_namespace::NamespaceSource;
use super::index_plan::Plan;
use super::index_run::Run;
use super::index_summary::Summary;
use super::info::count_of;
use super::resuming;
use super::scanning::{COPIED_ROWS_MAX, Scans, one_reader, scan_threads};
use crate::config::{Source, namespace_of, settings};
use crate::limits::{OwnerLimitOptions, memory_size, rate};
use crate::outcome::{Outcome, be_quiet, message, note, warn_of};
use crate::places;
use crate::{Engine, companion, counted, interrupt};
use anyhow::Context;
use canopy_as_user::subordinate_uids;
use canopy_index::{Layout, Published, Retention, ScanRecord, Unfinished, Writer, WriterOptions};
use canopy_model::escape;
use canopy_scan::{Excludes, MountRules, Root};
use canopy_text::TimeStyle;
use std::collections::HashSet;
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Scan trees and publish them as a new generation of the index
///
/// A tree that was indexed before is replaced; others stay. One that lies in a source takes the
/// place of what the source had there, and a source in PATH becomes part of PATH's. Readers see the
/// old generation until the new one is whole. A tree that cannot be scanned stays as it was, and
/// 'canopy info' says since when. A run that was interrupted, even by a loss of power, goes on when
/// the same command is run again within 24 hours. What is on other machines (NFS and its like) is
/// left out unless it is named, trusted ('trust_fs') or asked for. Exit code 0: complete; 1: some entries vanished,
/// could not be read, have too long a path or changed hands meanwhile, or a tree stays as it was; 2:
/// nothing was published.
///
/// Example: canopy index /home /data --exclude '*.snapshot' --errors errors.txt
#[derive(clap::Args)]
pub struct Arguments {
    /// Trees to scan, and with ns: in front namespaces, of which the records are read [default: the
    /// configured sources]
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Threads that scan [default: one per core]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,
    /// Entries to look at per second at most, so that a busy server is spared (not of namespaces)
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(super) max_rate: Option<NonZeroU32>,
    /// Stay on the file system of each PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Leave out entries whose name, or with a '/' whose path below PATH, matches (can be
    /// repeated), besides what is configured
    #[arg(long, value_name = "GLOB")]
    pub(super) exclude: Vec<String>,
    /// Index what the configuration leaves out, too, and /proc and its like (for root alone)
    #[arg(long)]
    pub(super) no_prune: bool,
    /// Leave out extended attributes and ACLs (permissions count all the same); scans faster
    #[arg(long)]
    pub(super) no_xattrs: bool,
    /// Name of the source, for one PATH [default: its path, or with --incremental as before]
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) name: Option<String>,
    /// Where the root of a namespace counts as being, for one PATH [default: where it is mounted]
    #[arg(long, value_name = "DIR")]
    pub(super) root: Option<PathBuf>,
    /// Memory for building, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_size)]
    pub(super) memory: usize,
    #[command(flatten)]
    pub(super) limits: OwnerLimitOptions,
    /// Rows up to which what stays of a shard is written anew, where something of it is replaced
    #[arg(long, value_name = "N", default_value_t = COPIED_ROWS_MAX, hide = true)]
    pub(super) copied_rows: usize,
    /// Which older generations to keep from now on: so many, or the last one of each of so many
    /// hours, days and weeks, such as 24h,14d,8w; or none [default: as before, at first none]
    #[arg(long, value_name = "N|Nh|Nd|Nw,...|none")]
    pub(super) keep: Option<Retention>,
    /// Write only what has changed since each PATH was indexed
    #[arg(long, conflicts_with = "replace")]
    pub(super) incremental: bool,
    /// Do not read directories again whose times tell that no name in them has changed: what has
    /// changed of files in place, such as sizes and permissions, is not seen
    #[arg(long, requires = "incremental")]
    pub(super) trust_directory_times: bool,
    /// Remove what is in the index of each PATH ahead of the scan: needs half of the space, but until
    /// the end there are no answers about PATH, and those who read now may not come to their end. Not
    /// where older generations are kept, which have it still
    #[arg(long)]
    replace: bool,
    /// Scan all anew, even where an interrupted run could go on
    #[arg(long)]
    pub(super) restart: bool,
    /// Share the scan of PATH with workers on this and other machines: directories N levels below it
    /// become parts that they list
    #[arg(long, value_name = "N", conflicts_with_all = ["incremental", "replace", "worker"])]
    pub(super) level: Option<NonZeroU32>,
    /// Join those who share a scan that was begun with --level
    #[arg(long, conflicts_with_all = ["paths", "exclude", "one_file_system", "no_xattrs", "no_prune",
          "name", "keep", "incremental", "replace", "restart"])]
    pub(super) worker: bool,
    /// With --level, workers on this machine, which share its threads; with 0, the scan is only begun
    #[arg(long, value_name = "N", default_value_t = 1, requires = "level",
          value_parser = clap::value_parser!(u16).range(..=1024))]
    pub(super) workers: u16,
    /// With --worker, do not print the summary; the parent prints it
    #[arg(long, hide = true, requires = "worker")]
    pub(super) started: bool,
    /// How often a worker shows that it lives, in milliseconds: after 60 times it is taken for dead
    #[arg(long, value_name = "MS", default_value_t = 1000, hide = true)]
    pub(super) beat: u64,
    /// How to divide listings into files: by access, or for root alone by subtree and directory, as
    /// Brindexer does, for comparison [default: access, or with --incremental as before]
    #[arg(
        long,
        value_enum,
        hide = true,
        hide_possible_values = true,
        value_name = "access|leveled"
    )]
    pub(super) layout: Option<LayoutName>,
    /// With --layout leveled, the number of parts of the index
    #[arg(long, value_name = "N", default_value_t = 64, requires = "layout", hide = true,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: u32,
    /// List entries that vanished or could not be read in FILE
    #[arg(long, value_name = "FILE")]
    pub(super) errors: Option<PathBuf>,
    /// Tell what would be scanned and left out, by which configuration; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Say nothing but errors, for cron
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Print the summary, or what --dry-run tells, as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Entries after which it is noted how far the scan is, besides each minute
    #[arg(long, value_name = "N", hide = true)]
    pub(super) noted_every: Option<NonZeroU64>,
    /// Read what has changed of a namespace since it was read so last, as 'canopy watch' does
    #[arg(long, hide = true)]
    follow: bool,
}

/// Carries the command out. Without what reads namespaces, `canopy-ns` is run where there are any.
#[expect(clippy::too_many_lines, reason = "one course of steps")]
pub fn run(
    index: Option<PathBuf>,
    arguments: Arguments,
    engine: Option<&Engine>,
    namespaces: Option<&NamespaceSource>,
) -> anyhow::Result<Outcome> {
    let mut arguments = arguments;
    if arguments.quiet {
        be_quiet();
    }
    let location = places::to_write(index)?;
    let is_own = places::is_own_by_default(&location);
    places::check_links(&location)?;
    if arguments.worker {
        return share(&location, &arguments, engine);
    }
    let has_namespace = arguments.settle_paths()?;
    if namespaces.is_none() && has_namespace {
        return companion::Companion::Namespace.run();
    }
    let asked_root = arguments.root.clone();
    let root_of = |path: &Path| root_of(path, namespaces, asked_root.as_deref());
    let is_placed = |path: &Path| {
        let namespace = namespace_of(path).zip(namespaces);
        namespace.is_some_and(|(path, source)| (source.root)(path, asked_root.as_deref()).is_ok())
    };
    let mut known = HashSet::new();
    arguments.paths.retain(|path| known.insert(root_of(path)));
    let mut roots: Vec<String> = arguments.paths.iter().map(|path| root_of(path)).collect();
    let begun = Instant::now();
    let threads = scan_threads(arguments.threads);
    Excludes::new(arguments.exclude.iter().map(String::as_str)).context("--exclude")?;
    let trusted = settings().trust_fs.clone().unwrap_or_default();
    let rules = MountRules::new(trusted, arguments.no_prune);
    if arguments.dry_run {
        let plan = Plan::new(&location, (&arguments, &rules, threads), &root_of)?;
        return plan.print(arguments.json);
    }
    if arguments.level.is_some() {
        return share(&location, &arguments, engine);
    }
    let options = arguments.writer_options(threads);
    let mut writer = Writer::open(&location, options.clone())?;
    if companion::must_refresh(&writer, engine) {
        anyhow::ensure!(
            namespaces.is_none(),
            "the index has derived tables, which cannot be computed anew while a namespace is read: \
             index where the namespace is mounted"
        );
        drop(writer);
        return companion::Companion::Sql.run();
    }
    interrupt::watch()?;
    let asked = asked(&arguments, &root_of);
    let mut resumed = resume(&mut writer, &arguments, &asked, (&rules, &root_of))?;
    if resumed.is_none()
        && arguments.replace
        && give_up(&mut writer, &arguments.paths, &rules, &root_of)
    {
        writer.publish()?;
        writer = Writer::open(&location, options.clone())?;
    }
    // What goes on has manifests of its own; the next run looks at what is there then.
    if resumed.is_none() {
        plan_renewals(&mut writer)?;
    }
    let new_run = |writer: &Writer, resumed: Option<&Unfinished>| {
        Run::new(writer, (&arguments, threads), (&asked, resumed), (namespaces, &root_of))
    };
    let mut run = new_run(&writer, resumed.as_ref())?;
    let mut failed = run.scan(&mut writer, resumed.as_ref());
    if let Err(error) = &failed
        && let Some(file) = damaged_file(error)
        && !interrupt::asked()
    {
        warn_of_new_scan(format_args!("{} is damaged", file.display()));
        writer.give_up_unfinished()?;
        drop(writer);
        writer = Writer::open(&location, options.clone())?;
        plan_renewals(&mut writer)?;
        resumed = None;
        run = new_run(&writer, None)?;
        failed = run.scan(&mut writer, None);
    }
    if interrupt::asked() {
        interrupt::go_on_to_the_end();
        let goes_on = run.notes().take_sources(&mut writer, &run.scans.counts);
        drop(writer);
        let left = run.notes().left(arguments.paths.len());
        let continued = format!("{left}the same command goes on where this one ended");
        interrupt::end(goes_on.then_some(&*continued));
    }
    let failed = match failed {
        Ok(failed) => failed,
        Err(error) => {
            let source = resumed.as_ref().and_then(|resumed| resumed.source.as_ref());
            source
                .iter()
                .for_each(|source| writer.record_failure(&source.root, format!("{error:#}")));
            // It is told here, too.
            drop(writer.save_failures());
            return Err(error);
        }
    };
    note_failed(&mut writer, &failed, &root_of, &is_placed);
    if !failed.is_empty() && failed.len() == arguments.paths.len() && resumed.is_none() {
        return Err(nothing_published(writer, run.scans, failed));
    }
    warn_of_failed(&writer, &failed, &root_of);
    let published = publish_changes(writer, engine, threads);
    let (published, derived) = match published {
        Ok(published) => published,
        Err(error) => {
            let roots = arguments.paths.iter().map(|path| root_of(path)).collect();
            let is_damaged = resumed.is_some() && damaged_file(&error).is_some();
            record_failures((&location, options), roots, &format!("{error:#}"), is_damaged);
            return Err(error);
        }
    };
    roots.retain(|root| failed.iter().all(|(path, _)| root_of(path) != *root));
    let done = Done { location, is_own, published, derived, failed, resumed, roots, begun };
    done.report(run)
}

/// What a run that published something has done.
struct Done {
    /// The index.
    location: PathBuf,
    /// Whether that is where the caller's own is by default.
    is_own: bool,
    published: Published,
    /// What became of derived tables.
    derived: Outcome,
    /// Trees that could not be scanned.
    failed: Vec<(PathBuf, anyhow::Error)>,
    /// What it went on with.
    resumed: Option<Unfinished>,
    /// Roots of the trees that were published, escaped.
    roots: Vec<String>,
    begun: Instant,
}

impl Done {
    /// Warns of what is missing, and prints the summary.
    fn report(&self, run: Run<'_>) -> anyhow::Result<Outcome> {
        let Run { arguments, rules, scans: Scans { counts, faults, .. }, .. } = run;
        let listed = faults.finish(&counts);
        if let Err(error) = &listed {
            message(format_args!("{error:#}"));
        }
        index_faults::warn_of_empty_mounts(&rules.without_files());
        if !one_reader() {
            index_faults::warn_of_mounts(&rules.closed());
        }
        let is_complete = warn_of(&self.published) == Outcome::Complete
            && counts.faults() == 0
            && self.failed.is_empty()
            && listed.is_ok();
        let summary = Summary {
            published: &self.published,
            counts: &counts,
            seconds: self.begun.elapsed().as_secs_f64(),
            resumed: self.resumed.as_ref(),
            failed: &self.failed,
            held: count_of(&self.location, &self.roots),
            sources: &self.roots,
            is_complete: is_complete && self.derived == Outcome::Complete,
        };
        if arguments.json {
            summary.print_json()?;
        } else if !arguments.quiet {
            summary.print()?;
            self.report_location();
        }
        Ok(if is_complete { self.derived } else { Outcome::Partial })
    }
}

impl Done {
    /// Prints where a user's own index is, and that it answers before the site's.
    fn report_location(&self) {
        if !self.is_own || self.roots.is_empty() {
            return;
        }
        let roots: Vec<String> = self.roots.iter().map(|root| shown_root(root)).collect();
        let location = self.location.display();
        match places::has_site() {
            true => note(format_args!(
                "your own index is at {location}, for you alone; it answers about {} from now on, \
                 before the site's ('canopy source remove PATH' ends that)",
                roots.join(", ")
            )),
            false => note(format_args!("your own index is at {location}, for you alone")),
        }
    }
}

fn shown_root(root: &str) -> String {
    canopy_text::safe::one_line(&canopy_read::to_path(root).display().to_string())
}

/// Shares a scan with workers, which may have to compute derived tables: `canopy-sql` does it.
fn share(
    location: &Path,
    arguments: &Arguments,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    match engine {
        Some(engine) => (engine.share)(location, arguments, engine),
        None => companion::Companion::Sql.run(),
    }
}

/// Returns what a run asks for, in words that another one can be compared with.
fn asked(arguments: &Arguments, root_of: &dyn Fn(&Path) -> String) -> String {
    let limits = arguments.limits.given().map(|limits| [limits.classes, limits.names]);
    let paths = arguments.paths.iter();
    let is_namespace = |path: &PathBuf| namespace_of(path).is_some();
    let configured = |path: &PathBuf| {
        let source = configured_source(path)?;
        Some((&source.exclude, source.one_file_system, source.no_xattrs))
    };
    resuming::asked(serde_json::json!({
        "roots": paths.clone().map(|path| root_of(path)).collect::<Vec<_>>(),
        "namespaces": paths.clone().map(is_namespace).collect::<Vec<_>>(),
        "configured": paths.map(configured).collect::<Vec<_>>(),
        "one_file_system": arguments.one_file_system,
        "exclude": arguments.exclude,
        "no_prune": arguments.no_prune,
        "no_xattrs": arguments.no_xattrs,
        "name": arguments.name,
        "limits": limits,
        "incremental": arguments.incremental,
        "trust_directory_times": arguments.trust_directory_times,
        "replace": arguments.replace,
    }))
}

/// Goes on with the run that was interrupted, if it was the same; says what becomes of it.
fn resume(
    writer: &mut Writer,
    arguments: &Arguments,
    asked: &str,
    (rules, root_of): (&MountRules, &dyn Fn(&Path) -> String),
) -> anyhow::Result<Option<Unfinished>> {
    let why = match (writer.unfinished(), writer.unfinished_is_useless()) {
        (None, None) => return Ok(None),
        (None, Some(reason)) => reason.to_owned(),
        (Some(_), _) if arguments.restart => "--restart was given".to_owned(),
        (Some(before), _) if before.asked != asked => {
            "it was of other trees, with other options or by another version".to_owned()
        }
        (Some(before), _) => {
            let source = before.source.as_ref();
            let path = source.and_then(|source| {
                arguments.paths.iter().find(|path| root_of(path) == source.root)
            });
            let root = path.map(|path| Root::open(path, writer.classes(), rules));
            let is_same = match (source, &root) {
                (None, _) => true,
                (Some(source), Some(Ok(root))) => {
                    resuming::identity(root).is_ok_and(|identity| identity == source.identity)
                }
                (Some(_), _) => false,
            };
            match is_same.then(|| writer.resume()).transpose()? {
                Some(Ok(before)) => {
                    note(format_args!(
                        "going on with the scan of {}, which was interrupted after {}",
                        shown_time(before.begun_ns),
                        counted(before.entries, "entry")
                    ));
                    return Ok(Some(before));
                }
                Some(Err(reason)) => reason,
                None => "its source is another directory, or other file systems are mounted there"
                    .to_owned(),
            }
        }
    };
    writer.give_up_unfinished()?;
    warn_of_new_scan(why);
    Ok(None)
}

/// Plans to write damaged documents anew with the next generation, and warns of them.
fn plan_renewals(writer: &mut Writer) -> anyhow::Result<()> {
    let renewed = writer.renew_damaged()?;
    if let [first, ..] = &renewed[..] {
        let more = match renewed.len() - 1 {
            0 => String::new(),
            more => format!(" and {} likewise", counted(more as u64, "other")),
        };
        note(format_args!(
            "{} is damaged, missing or not for whom it should be{more}: it is to be written anew",
            first.display()
        ));
    }
    Ok(())
}

/// Warns that an interrupted scan cannot be resumed, and why.
fn warn_of_new_scan(why: impl std::fmt::Display) {
    note(format_args!(
        "all is scanned anew: the scan that was interrupted cannot go on, since {why}"
    ));
}

pub(super) fn shown_time(time_ns: i64) -> String {
    TimeStyle::long_iso().show(time_ns, time_ns)
}

impl Arguments {
    /// Returns whether a namespace is followed.
    pub fn follows(&self) -> bool {
        self.follow
    }

    /// Takes the configured sources where no PATH is given, and refuses options that are not for
    /// these paths. Returns whether any is a namespace.
    fn settle_paths(&mut self) -> anyhow::Result<bool> {
        if self.paths.is_empty() {
            let sources = settings().sources.iter().flatten();
            self.paths = sources.map(|source| source.path.clone()).collect();
            anyhow::ensure!(
                !self.paths.is_empty(),
                "no PATH is given, and no sources are configured ('canopy help config')"
            );
        }
        anyhow::ensure!(
            self.name.is_none() || self.paths.len() == 1,
            "--name names one source; index several paths one by one to name them"
        );
        anyhow::ensure!(
            self.root.is_none()
                || (self.paths.len() == 1 && namespace_of(&self.paths[0]).is_some()),
            "--root is for one namespace: ns:PATH"
        );
        let has_namespace = self.paths.iter().any(|path| namespace_of(path).is_some());
        anyhow::ensure!(
            !has_namespace || self.level.is_none() && self.layout.is_none(),
            "--level and --layout are for trees: a namespace is read by one process, and divided by access"
        );
        Ok(has_namespace)
    }

    /// Returns how the index is written.
    fn writer_options(&self, threads: usize) -> WriterOptions {
        WriterOptions {
            memory_bytes: self.memory,
            threads,
            limits: self.limits.given(),
            holders: subordinate_uids(),
            copied_rows_max: self.copied_rows,
            keep_replaced: !self.replace,
            retention: self.keep.clone(),
            gives_up_shared: self.restart,
            ..WriterOptions::default()
        }
    }

    /// Returns how a tree is scanned: by the options, and by what is configured of it.
    pub(super) fn record(&self, path: &Path) -> ScanRecord {
        let source = configured_source(path);
        ScanRecord {
            one_file_system: self.one_file_system || source.is_some_and(|it| it.one_file_system),
            excludes: self.exclude.clone(),
            no_prune: self.no_prune,
            no_xattrs: self.no_xattrs || source.is_some_and(|it| it.no_xattrs),
            layout: match self.layout {
                None | Some(LayoutName::Access) => Layout::Access,
                Some(LayoutName::Leveled) => {
                    let level = self.level.map_or(1, NonZeroU32::get);
                    Layout::Leveled { level, shards: self.shards }
                }
            },
            configured: None,
        }
    }

    /// Returns what a tree is to be called, if that is said anywhere.
    pub(super) fn name_of(&self, path: &Path) -> Option<String> {
        self.name.clone().or_else(|| configured_source(path)?.name.clone())
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum LayoutName {
    Access,
    Leveled,
}

/// Returns how a tree is configured, if it is a source.
fn configured_source(path: &Path) -> Option<&'static Source> {
    settings().source(&path.canonicalize().ok()?)
}

/// Takes the sources at these paths out of the index, as far as they can be scanned anew, if that
/// frees anything; returns whether there was any.
fn give_up(
    writer: &mut Writer,
    paths: &[PathBuf],
    rules: &MountRules,
    root_of: &dyn Fn(&Path) -> String,
) -> bool {
    if writer.keeps_generations() {
        note(
            "--replace frees nothing ahead of the scan, since older generations are kept; with \
             --keep none it does",
        );
        return false;
    }
    let root = |path: &PathBuf| match namespace_of(path) {
        Some(_) => Some(root_of(path)),
        None => Some(Root::open(path, writer.classes(), rules).ok()?.escaped_path()),
    };
    let roots: Vec<String> = paths.iter().filter_map(root).collect();
    let removed = roots.iter().filter_map(|root| writer.remove_source(root));
    removed.count() > 0
}

/// Notes why trees could not be scanned, for 'canopy info'.
fn note_failed(
    writer: &mut Writer,
    failed: &[(PathBuf, anyhow::Error)],
    root_of: &dyn Fn(&Path) -> String,
    is_placed: &dyn Fn(&Path) -> bool,
) {
    for (path, error) in failed {
        let root = root_of(path);
        // A path that was mistyped is not missing from the index, nor is a namespace whose place is
        // not known.
        let mut configured = settings().sources.iter().flatten();
        let is_meant = match namespace_of(path) {
            Some(_) => is_placed(path),
            None => path.is_dir() || configured.any(|source| source.path == *path),
        };
        if is_source(writer, &root) || is_meant {
            writer.record_failure(&root, format!("{error:#}"));
        } else {
            writer.forget_failure(&root);
        }
    }
}

fn is_source(writer: &Writer, root: &str) -> bool {
    writer.sources().iter().any(|(source, _)| source.root == root)
}

/// Warns of trees that could not be scanned, and prints what becomes of their old entries.
fn warn_of_failed(
    writer: &Writer,
    failed: &[(PathBuf, anyhow::Error)],
    root_of: &dyn Fn(&Path) -> String,
) {
    for (path, error) in failed {
        let root = root_of(path);
        match is_source(writer, &root) {
            true => message(format_args!("{error:#}; {root} stays as it was in the index")),
            false => message(format_args!("{error:#}; the index has nothing of it")),
        }
    }
}

/// Ends a run of which no tree could be scanned.
fn nothing_published(
    writer: Writer,
    Scans { counts, faults, .. }: Scans,
    failed: Vec<(PathBuf, anyhow::Error)>,
) -> anyhow::Error {
    if let Err(error) = writer.save_failures() {
        message(format_args!("'canopy info' will not tell of what failed: {error}"));
    }
    if let Err(error) = faults.finish(&counts) {
        message(format_args!("{error:#}"));
    }
    report_all_but_last(failed).context("nothing was published")
}

/// Prints all of the errors but the last one, and returns that.
fn report_all_but_last(mut failed: Vec<(PathBuf, anyhow::Error)>) -> anyhow::Error {
    let last = failed.pop();
    failed.iter().for_each(|(_, error)| message(format_args!("{error:#}")));
    last.map_or_else(|| anyhow::anyhow!("no PATH is given"), |(_, error)| error)
}

/// Records that nothing of these paths could be published, if that much can be done. The run went on
/// with data that `is_damaged`: another one begins anew.
fn record_failures(
    (location, options): (&Path, WriterOptions),
    roots: Vec<String>,
    reason: &str,
    is_damaged: bool,
) {
    let Ok(mut writer) = Writer::open(location, options) else { return };
    if is_damaged {
        drop(writer.give_up_unfinished());
    }
    roots.iter().for_each(|root| writer.record_failure(root, reason.to_owned()));
    drop(writer.save_failures());
}

/// Returns the absolute path, escaped, under which a failure of a source is recorded.
pub(super) fn root_of(
    path: &Path,
    namespaces: Option<&NamespaceSource>,
    asked: Option<&Path>,
) -> String {
    let root = namespaces.and_then(|source| (source.root)(namespace_of(path)?, asked).ok());
    let path = root.as_deref().unwrap_or(path);
    let real = path.canonicalize().or_else(|_| std::path::absolute(path));
    escape(real.unwrap_or_else(|_| path.to_owned()).as_os_str().as_bytes()).into_owned()
}

//! `canopy update`, and what lists directories of sources again for other commands.

use super::building::{damaged_file, end_if_asked, publish_changes, with_progress_reported};
use super::index_faults::{Faults, Shortfalls, warn_of_mounts};
use super::scanning::{COPIED_ROWS_MAX, Scans, one_reader, scan_threads};
use super::update_costs::Costs;
use super::update_request;
use crate::config::settings;
use crate::limits::{OwnerLimitOptions, memory_size, rate};
use crate::outcome::{Outcome, message, say, say_json, warn_of, without_numbers};
use crate::{Engine, companion, counted, interrupt, places};
use anyhow::Context;
use canopy_as_user::subordinate_uids;
use canopy_index::{Disk, Index, NewSource, ScanRecord, SourceRecord, Writer, WriterOptions};
use canopy_model::{Access, Attributes, Generation, Listing, escape, unescape};
use canopy_scan::{Known, MountRules, Root, Selection, Subtree};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io::Read;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// List single directories again, now, as a new generation of the index
///
/// Of each PATH, the directory itself is listed again, and what is new in it or has other
/// permissions, with all below it; of a file, the directory that it is in. A PATH that is gone goes
/// from the index. What is not listed stays as it was. Sources are scanned as 'canopy index' was
/// told to. Exit codes are those of 'canopy index'.
///
/// Who may not write the index asks the daemon that follows it ('canopy watch') for directories that
/// they can list.
///
/// Example: canopy update --recursive /data/project
#[derive(clap::Args)]
pub struct Arguments {
    /// Directories to list again
    #[arg(value_name = "PATH", required_unless_present = "suspects")]
    paths: Vec<PathBuf>,
    /// Read from standard input what is to be listed again, as 'canopy watch' writes it
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
    /// Rows up to which what stays of a shard is written anew, where something of it is replaced
    #[arg(long, value_name = "N", default_value_t = COPIED_ROWS_MAX, hide = true)]
    copied_rows: usize,
    /// List entries that vanished or could not be read in FILE
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// A directory to be listed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Its absolute path, without symbolic links; it need not be there any more.
    pub path: PathBuf,
    /// Whether all that is below it is listed, too.
    pub recursive: bool,
    /// Whether the directory above is, which has its row.
    pub with_row: bool,
    /// What a user gave for it, if that is not the same.
    pub given: Option<PathBuf>,
}

/// Inodes with several names, sorted, and a directory: wherever the index has one of them at or
/// below that, the directory that it is in is listed again.
pub type Links = Vec<(PathBuf, Vec<u64>)>;

/// Directories and inodes to list again.
#[derive(Default)]
pub struct Suspects {
    /// Directories.
    pub all: Vec<Suspect>,
    /// Inodes with several names.
    pub links: Links,
    /// Whether each directory is a request, whose cost is reported.
    pub are_requests: bool,
}

/// How many directories are listed again because of what has other names, at most.
const LINKED_MAX: usize = 100_000;

/// What is said first where nothing was published for that.
pub(super) const UNCHANGED: &str = "nothing has changed since ";

/// How directories are listed again.
pub struct UpdateOptions<'a> {
    /// Threads that scan.
    pub threads: usize,
    /// Entries that are looked at per second at most.
    pub rate_max: Option<NonZeroU32>,
    /// Memory for building, in bytes.
    pub memory_bytes: usize,
    /// What the directories of one owner may ask for.
    pub limits: Option<canopy_model::OwnerLimits>,
    /// Rows up to which what stays of a shard is written anew.
    pub copied_rows_max: usize,
    /// Where entries that vanished or could not be read are listed.
    pub errors: Option<&'a Path>,
    /// Whether all of a source is listed anew where the index has damaged data of it.
    pub repairs: bool,
}

/// What listing directories again has come to.
#[derive(Default)]
pub struct Updated {
    /// The generation that has it.
    pub generation: Generation,
    /// Whether it is the one that was there, since nothing has changed.
    pub is_unchanged: bool,
    /// Entries that were looked at.
    pub entries: u64,
    /// Those of them that were as they are in the index.
    pub kept: u64,
    /// Directories that were read.
    pub directories: u64,
    /// Bytes of what was written, and shards.
    pub bytes: u64,
    pub shards: u64,
    /// Entries that could not be read, and those that vanished.
    pub unreadable: u64,
    pub vanished: u64,
    /// Roots of the sources that were listed again, escaped.
    pub sources: Vec<String>,
    /// Those that stay as they were.
    pub failed: Vec<(String, anyhow::Error)>,
    /// Costs of the requests, if the directories are requests.
    pub costs: Option<String>,
    /// Whether all could be read, and all sources.
    pub outcome: Outcome,
}

/// Carries the command out.
pub fn run(
    index: Option<PathBuf>,
    arguments: Arguments,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let paths = arguments.paths.iter().map(|path| suspect(path, arguments.recursive));
    let mut named = paths.collect::<anyhow::Result<Vec<_>>>()?;
    let mut requested = None;
    if !arguments.suspects {
        let asked = update_request::take_out(index.as_deref(), &mut named)?;
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
                    Faults::new(Some(errors), &places::to_write(index)?, None)?;
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
    let location = places::to_write(index)?;
    places::check_links(&location)?;
    let options = UpdateOptions {
        threads: scan_threads(arguments.threads),
        rate_max: arguments.max_rate,
        memory_bytes: arguments.memory,
        limits: arguments.limits.given(),
        copied_rows_max: arguments.copied_rows,
        errors: arguments.errors.as_deref(),
        repairs: arguments.repair,
    };
    interrupt::watch()?;
    let updated = update(&location, suspects, &options, engine)?;
    let seconds = begun.elapsed().as_secs_f64();
    match arguments.json {
        true => updated.print_json(seconds)?,
        false => updated.print(seconds)?,
    }
    Ok(requested.filter(|outcome| *outcome != Outcome::Complete).unwrap_or(updated.outcome))
}

impl Updated {
    fn print(&self, seconds: f64) -> anyhow::Result<()> {
        let Updated { generation, is_unchanged, entries, kept, directories, .. } = self;
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
        self.costs.as_ref().map_or(Ok(()), say)
    }

    /// Prints an object whose keys are those of 'canopy index --json'.
    fn print_json(&self, seconds: f64) -> anyhow::Result<()> {
        let failed = |(root, error): &(String, anyhow::Error)| {
            let error = without_numbers(&format!("{error:#}"));
            json!({ "path": shown(root), "error": error })
        };
        say_json(&json!({
            "generation": self.generation,
            "unchanged": self.is_unchanged,
            "complete": self.outcome == Outcome::Complete,
            "entries": self.entries,
            "kept_entries": self.kept,
            "directories": self.directories,
            "seconds": seconds,
            "bytes": self.bytes,
            "shards": self.shards,
            "unreadable": self.unreadable,
            "vanished": self.vanished,
            "sources": self.sources,
            "failed": self.failed.iter().map(failed).collect::<Vec<_>>(),
        }))
    }
}

/// Reads what 'canopy watch' wants to have listed again.
fn suspects_of_input() -> anyhow::Result<Suspects> {
    let mut input = Vec::new();
    std::io::stdin().lock().read_to_end(&mut input).context("cannot read standard input")?;
    super::watch_apply::read_suspects(&input)
}

/// Returns what to list again for a path that a user gave.
fn suspect(path: &Path, recursive: bool) -> anyhow::Result<Suspect> {
    let absolute = std::path::absolute(path)
        .with_context(|| format!("cannot tell where {} is", path.display()))?;
    if absolute.is_dir() {
        let path = absolute.canonicalize();
        let path = path.with_context(|| format!("cannot open {}", absolute.display()))?;
        return Ok(Suspect { path, recursive, with_row: true, given: None });
    }
    // Of what is no directory or gone, the next directory above tells.
    let above = directory_above(&absolute);
    let real = above.canonicalize();
    let real = real.with_context(|| format!("cannot open {}", above.display()))?;
    Ok(Suspect { path: real, recursive: false, with_row: true, given: Some(absolute) })
}

/// Returns the next directory above an absolute path that is there.
fn directory_above(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|above| above.is_dir()).unwrap_or(Path::new("/"))
}

/// What is to be listed again of one source.
pub(super) struct Task {
    pub(super) source: SourceRecord,
    pub(super) record: ScanRecord,
    pub(super) selection: Selection,
}

impl Task {
    /// Returns whether all of the source is listed.
    fn is_all(&self) -> bool {
        let mut is_all = false;
        self.selection.each(&mut |path, whole| is_all |= path.is_empty() && whole);
        is_all
    }
}

/// Lists directories again and publishes what has changed as one generation. The index stays as it
/// was if nothing could be. `suspects` is asked only by who does the work: standard input can be
/// read once.
#[expect(clippy::too_many_lines, reason = "one course of steps")]
pub fn update(
    location: &Path,
    suspects: impl FnOnce() -> anyhow::Result<Suspects>,
    options: &UpdateOptions<'_>,
    engine: Option<&Engine>,
) -> anyhow::Result<Updated> {
    // One that is not there is not to be made; that says so.
    if !location.join("CURRENT").exists() {
        drop(Index::open(location)?);
    }
    let mut writer = Writer::open(
        location,
        WriterOptions {
            memory_bytes: options.memory_bytes,
            threads: options.threads,
            limits: options.limits,
            holders: subordinate_uids(),
            copied_rows_max: options.copied_rows_max,
            keep_replaced: true,
            retention: None,
            disk: Disk::default(),
            ..WriterOptions::default()
        },
    )?;
    if companion::must_refresh(&writer, engine) {
        drop(writer);
        return companion::Companion::Sql
            .run()
            .map(|outcome| Updated { outcome, ..Updated::default() });
    }
    let Suspects { all: mut suspects, links, are_requests } = suspects()?;
    suspects.extend(linked(&writer, &links)?);
    let faults = Faults::new(options.errors, location, None)?;
    if suspects.is_empty() {
        // Of what has other names, the index has none.
        let generation = Index::open(location)?.generation();
        return Ok(Updated { generation, is_unchanged: true, ..Updated::default() });
    }
    let mut scans =
        Scans::new(&writer, (options.memory_bytes, options.threads), options.rate_max, faults)?;
    scans.costs = are_requests.then(Arc::default);
    let tasks = tasks(&writer, &suspects, scans.costs.as_deref())?;
    let trusted = settings().trust_fs.clone().unwrap_or_default();
    let mut sources: Vec<String> = tasks.iter().map(|task| task.source.root.clone()).collect();
    let mut failed = Vec::new();
    with_progress_reported(
        |_| counted(scans.counts.progress(), "entry"),
        || scans.counts.progress(),
        || {
            for task in tasks {
                let rules = MountRules::new(trusted.clone(), task.record.no_prune);
                let root = task.source.root.clone();
                if let Some(costs) = &scans.costs {
                    costs.begin(task.source.id);
                }
                let refreshed = refresh(&mut writer, &scans, &rules, task, options.repairs);
                if !one_reader() {
                    warn_of_mounts(&rules.closed());
                }
                failed.extend(refreshed.err().map(|error| (root, error)));
            }
        },
    );
    let writer = end_if_asked(writer);
    if failed.len() == sources.len() {
        let Some((_, error)) = failed.pop() else { anyhow::bail!("there is nothing to list") };
        return Err(error.context("nothing was published"));
    }
    let stays = !failed.is_empty();
    for (root, error) in &failed {
        message(format_args!("{error:#}; {} stays as it was in the index", shown(root)));
    }
    sources.retain(|source| failed.iter().all(|(root, _)| root != source));
    let (published, derived) = publish_changes(writer, engine, options.threads)?;
    let Scans { counts, faults, costs, .. } = scans;
    let listed = faults.finish(&counts);
    if let Err(error) = &listed {
        message(format_args!("{error:#}"));
    }
    let told = warn_of(&published);
    let complete = counts.faults() == 0 && told == Outcome::Complete && !stays && listed.is_ok();
    Ok(Updated {
        generation: published.generation,
        is_unchanged: published.is_unchanged,
        entries: published.entries,
        kept: published.kept,
        directories: counts.directories.into_inner(),
        bytes: published.bytes,
        shards: published.shards,
        unreadable: counts.failed.into_inner(),
        vanished: counts.vanished.into_inner(),
        sources,
        failed,
        costs: costs.map(|costs| costs.line()),
        outcome: if complete { derived } else { Outcome::Partial },
    })
}

fn shown(root: &str) -> String {
    String::from_utf8_lossy(&unescape(root)).into_owned()
}

/// Returns the directories in which the index has inodes, or all where there are too many, or the
/// index is damaged.
fn linked(writer: &Writer, links: &Links) -> anyhow::Result<Vec<Suspect>> {
    let mut suspects = Vec::new();
    for (top, inodes) in links {
        for (source, _) in writer.sources().into_iter().filter(|(_, scan)| scan.is_some()) {
            let root = PathBuf::from(OsStr::from_bytes(&unescape(&source.root)));
            let top = if root.starts_with(top) { &root } else { top };
            let Some(below) = below(&root, top) else { continue };
            let found = match writer.directories_with(source.id, &below, inodes, LINKED_MAX) {
                Err(error) if error.damaged_file().is_some() => None,
                found => found?,
            };
            match found {
                Some(found) => suspects.extend(found.iter().map(|path| Suspect {
                    path: root.join(OsStr::from_bytes(&unescape(path))),
                    recursive: false,
                    with_row: true,
                    given: None,
                })),
                None => {
                    let path = top.clone();
                    suspects.push(Suspect { path, recursive: true, with_row: true, given: None });
                }
            }
        }
    }
    Ok(suspects)
}

/// Returns the path of something at or below a directory, escaped; none for what is elsewhere.
fn below(directory: &Path, path: &Path) -> Option<String> {
    let below = path.strip_prefix(directory).ok()?;
    Some(escape(below.as_os_str().as_bytes()).into_owned())
}

/// Fails if what is to be listed is gone with all of its source, or was imported from elsewhere. A
/// source around that one, whose root has so many bytes, is not meant.
fn fail_if_gone(
    sources: &[(SourceRecord, Option<ScanRecord>)],
    suspect: &Suspect,
    around: usize,
) -> anyhow::Result<()> {
    let Some(given) = suspect.given.as_ref().filter(|path| path.symlink_metadata().is_err()) else {
        return Ok(());
    };
    let rest = given.strip_prefix(directory_above(given)).unwrap_or(given);
    let path = suspect.path.join(rest);
    let holds = |root: &str| below(Path::new(OsStr::from_bytes(&unescape(root))), &path).is_some();
    let holding = sources.iter().filter(|(source, _)| holds(&source.root));
    match holding.max_by_key(|(source, _)| (source.root.len(), source.id)) {
        Some((source, None)) if source.root.len() > around => Err(not_scanned(source)),
        Some((source, Some(_))) if source.root.len() > around => {
            let root = shown(&source.root);
            Err(anyhow::anyhow!(
                "the source {root} is gone, or not mounted, and stays as it was in the index; \
                 'canopy source remove {root}' removes it from there"
            ))
        }
        _ => Ok(()),
    }
}

fn not_scanned(source: &SourceRecord) -> anyhow::Error {
    anyhow::anyhow!(
        "the source {} was not scanned, so it cannot be listed again: import it anew",
        shown(&source.root)
    )
}

/// Says what is to be listed again of which source.
fn tasks(
    writer: &Writer,
    suspects: &[Suspect],
    costs: Option<&Costs>,
) -> anyhow::Result<Vec<Task>> {
    let sources = writer.sources();
    let mut tasks: BTreeMap<u32, Task> = BTreeMap::new();
    for suspect in suspects {
        let holds =
            |root: &str| below(Path::new(OsStr::from_bytes(&unescape(root))), &suspect.path);
        let own =
            sources.iter().filter_map(|(source, scan)| Some((source, scan, holds(&source.root)?)));
        let own = own.max_by_key(|(source, ..)| (source.root.len(), source.id));
        fail_if_gone(&sources, suspect, own.as_ref().map_or(0, |(source, ..)| source.root.len()))?;
        let Some((source, scan, path)) = own else {
            let path = suspect.given.as_ref().unwrap_or(&suspect.path);
            anyhow::ensure!(
                path.symlink_metadata().is_ok(),
                "{} does not exist, and is in no source of the index",
                path.display()
            );
            anyhow::bail!(
                "{} is in no source of the index; 'canopy index PATH' makes it one",
                path.display()
            );
        };
        let Some(record) = scan else {
            return Err(not_scanned(source));
        };
        let task = tasks.entry(source.id).or_insert_with(|| Task {
            source: source.clone(),
            record: record.clone(),
            selection: Selection::default(),
        });
        task.selection.add(&path, suspect.recursive);
        if let Some(costs) = costs {
            costs.request(source.id, &path, suspect.with_row);
        }
        if !suspect.with_row {
            continue;
        }
        // The directory above has its row.
        if let Some((above, _)) = path.rsplit_once('/') {
            task.selection.add(above, false);
        } else if !path.is_empty() {
            task.selection.add("", false);
        }
    }
    Ok(tasks.into_values().collect())
}

/// Lists what is selected of a source again. After an error, the source stays as it was. Where the
/// index has damaged data of it, all of it is listed anew, if it was to be listed anyway or it
/// `repairs`.
fn refresh(
    writer: &mut Writer,
    scans: &Scans,
    rules: &MountRules,
    task: Task,
    repairs: bool,
) -> anyhow::Result<()> {
    let counted = scans.counts.now();
    let refreshed = refresh_part(writer, scans, rules, &task);
    match refreshed.as_ref().err().and_then(damaged_file) {
        Some(file) if (repairs || task.is_all()) && !interrupt::asked() => {
            let (file, root) = (file.display(), shown(&task.source.root));
            message(format_args!("{file} is damaged: all of {root} is scanned anew"));
        }
        _ => return refreshed,
    }
    scans.counts.set_back(counted);
    list_anew(writer, scans, rules, &task)
}

/// Lists all of a source again. After an error, the source stays as it was.
pub(super) fn list_anew(
    writer: &mut Writer,
    scans: &Scans,
    rules: &MountRules,
    task: &Task,
) -> anyhow::Result<()> {
    let (root, new) = open(writer, scans, rules, task)?;
    let before = scans.shortfalls(writer, rules);
    let now = new.scan.clone().unwrap_or_default();
    let partial = scans.counts.partial.load(Ordering::Relaxed);
    let begun = writer.add_source(new)?;
    let scanned = scans.scan(writer, begun, (root, None), rules, &now);
    if scans.counts.partial.load(Ordering::Relaxed) > partial {
        writer.note_partial(begun);
    }
    ended(writer, scans, rules, (begun, &task.source.root), (&before, scanned))
}

/// Lists what is selected of a source.
fn refresh_part(
    writer: &mut Writer,
    scans: &Scans,
    rules: &MountRules,
    task: &Task,
) -> anyhow::Result<()> {
    let Task { source, record, selection } = task;
    let before = scans.shortfalls(writer, rules);
    let (root, new) = open(writer, scans, rules, task)?;
    let now = new.scan.clone().unwrap_or_default();
    let mut selected = Vec::new();
    selection.each(&mut |path, whole| selected.push((path.to_owned(), whole)));
    let begun = writer.refresh_source(new, selected)?;
    let partial = scans.counts.partial.load(Ordering::Relaxed);
    let scanned = scan_part(writer, scans, begun, (root, selection), rules, &now);
    if scans.counts.partial.load(Ordering::Relaxed) > partial || now != *record {
        writer.note_partial(begun);
    }
    ended(writer, scans, rules, (begun, &source.root), (&before, scanned))
}

/// Opens the root of a source where it was.
fn open(
    writer: &Writer,
    scans: &Scans,
    rules: &MountRules,
    Task { source, record, .. }: &Task,
) -> anyhow::Result<(Root, NewSource)> {
    let root = PathBuf::from(OsStr::from_bytes(&unescape(&source.root)));
    places::check_links(&root)?;
    let (root, new) = scans.open(writer, &root, rules, record)?;
    anyhow::ensure!(
        new.root == source.root,
        "the source {} is elsewhere now, at {}: index that",
        shown(&source.root),
        shown(&new.root)
    );
    Ok((root, new))
}

/// Notes how the scan of a source ended.
fn ended(
    writer: &mut Writer,
    scans: &Scans,
    rules: &MountRules,
    (begun, root): (u32, &str),
    (before, scanned): (&Shortfalls, anyhow::Result<()>),
) -> anyhow::Result<()> {
    match scanned {
        Ok(()) => {
            let missing = scans.shortfalls(writer, rules).since(before);
            if !missing.is_empty() {
                writer.record_incomplete(root, missing.join("; "));
            }
        }
        Err(_) => writer.abandon(begun),
    }
    scanned
}

/// Scans what is selected of a source that was begun under this number.
pub(super) fn scan_part(
    writer: &Writer,
    scans: &Scans,
    begun: u32,
    (root, selection): (Root, &Selection),
    rules: &MountRules,
    record: &ScanRecord,
) -> anyhow::Result<()> {
    let scan = |part: Subtree<'_>| scans.scan(writer, begun, (root, Some(part)), rules, record);
    with_known(writer, (begun, scans.costs.as_deref()), selection, scan)
}

/// Has `scan` list what is selected of a source that was begun under this number, knowing what the
/// index has of it.
pub(super) fn with_known(
    writer: &Writer,
    (begun, costs): (u32, Option<&Costs>),
    selection: &Selection,
    scan: impl FnOnce(Subtree<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let known = KnownListings { writer, begun, costs, error: Mutex::new(None) };
    let scanned = scan(Subtree { selection, known: &known, others: None });
    match known.error.into_inner() {
        Some(error) => Err(error.into()),
        None => scanned,
    }
}

/// Tells a walk what the index has.
struct KnownListings<'a> {
    writer: &'a Writer,
    begun: u32,
    costs: Option<&'a Costs>,
    error: Mutex<Option<canopy_index::Error>>,
}

impl KnownListings<'_> {
    /// Returns a value, and where there is none, what stands for knowing nothing.
    fn or_unknown<T: Default>(&self, value: canopy_index::Result<T>) -> T {
        value.unwrap_or_else(|error| {
            self.error.lock().get_or_insert(error);
            T::default()
        })
    }
}

impl Known for KnownListings<'_> {
    fn subdirectories(&self, path: &str) -> HashMap<String, Attributes> {
        self.or_unknown(self.writer.known_subdirectories(self.begun, path))
    }

    fn has(&self, path: &str, dev: u64, ino: u64, access: &Access) -> bool {
        self.or_unknown(self.writer.has_listing(self.begun, path, (dev, ino), access))
    }

    fn replaces(&self, path: &str) {
        self.writer.replaces(self.begun, path);
    }

    fn has_unread(
        &self,
        listing: &Listing<'_>,
        look: &mut dyn FnMut(&str) -> Option<Attributes>,
    ) -> bool {
        self.writer.has_unread(self.begun, listing, look)
    }

    fn keeps(&self, listing: &Listing<'_>) -> u64 {
        let entries = self.writer.keeps(self.begun, listing);
        if let Some(costs) = self.costs {
            costs.listed(listing.path, entries);
        }
        entries
    }
}

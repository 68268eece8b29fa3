//! Updates: single directories are listed again, with new or changed directories below them.

pub(crate) mod costs;
mod suspects;

pub use suspects::{Links, Suspect, Suspects};

use crate::Context;
use crate::faults::{Faults, Shortfalls, warn_of_mounts};
use crate::known::scan_part;
use crate::listing::{COPIED_ROWS_MAX, MEMORY_BYTES, Scans, available_threads, one_reader};
use crate::observer::with_progress;
use crate::publishing::{end_if_cancelled, publish_changes, warn_of};
use crate::sinks::damaged_file;
use canopy_as_user::subordinate_uids;
use canopy_index::{
    Disk, Index, NewSource, ScanRecord, SelectedDirectory, SourceId, SourceRecord, Writer,
    WriterOptions,
};
use canopy_model::{Generation, SourcePathBuf, escape, unescape};
use canopy_scan::{MountRules, Root, Selection};
use canopy_site::check_links;
use canopy_watch::requests::Share;
use costs::Costs;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use suspects::directory_above;

/// Most directories that are listed again because of inodes with several names.
const LINKED_MAX: usize = 100_000;

/// How directories are listed again: by default with all cores and 256 MiB.
pub struct UpdateOptions<'a> {
    /// Threads that scan.
    pub threads: usize,
    /// Most entries that are looked at per second.
    pub rate_max: Option<NonZeroU32>,
    /// Memory for building, in bytes.
    pub memory_bytes: usize,
    /// Limits for the directories of one owner.
    pub limits: Option<canopy_model::OwnerLimits>,
    /// Rows up to which the rest of a shard is rewritten, where some of it is replaced.
    pub copied_rows_max: usize,
    /// File that lists entries that vanished or could not be read.
    pub errors: Option<&'a Path>,
    /// Whether all of a source is listed anew where the index has damaged data of it.
    pub repairs: bool,
}

impl Default for UpdateOptions<'_> {
    fn default() -> Self {
        UpdateOptions {
            threads: available_threads(),
            rate_max: None,
            memory_bytes: MEMORY_BYTES,
            limits: None,
            copied_rows_max: COPIED_ROWS_MAX,
            errors: None,
            repairs: false,
        }
    }
}

/// The result of an update.
#[derive(Default)]
pub struct Updated {
    /// The generation that contains it.
    pub generation: Generation,
    /// Whether nothing had changed, so that there is no new generation.
    pub is_unchanged: bool,
    /// Entries that were looked at.
    pub entries: u64,
    /// Entries of these that had not changed.
    pub kept: u64,
    /// Directories that were read.
    pub directories: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Shards that were written.
    pub shards: u64,
    /// Entries that could not be read.
    pub unreadable: u64,
    /// Entries that vanished.
    pub vanished: u64,
    /// Roots of the sources that were listed again, escaped.
    pub sources: Vec<String>,
    /// Sources that stay as they were, with their errors.
    pub failed: Vec<(String, anyhow::Error)>,
    /// Share of each request in the costs, in their order, if the directories are requests.
    pub shares: Option<Vec<Share>>,
    /// Whether all could be read, and all sources.
    pub is_complete: bool,
}

impl UpdateOptions<'_> {
    fn writer_options(&self) -> WriterOptions {
        WriterOptions {
            memory_bytes: self.memory_bytes,
            threads: self.threads,
            limits: self.limits,
            holders: subordinate_uids(),
            copied_rows_max: self.copied_rows_max,
            keep_replaced: true,
            retention: None,
            disk: Disk::default(),
            ..WriterOptions::default()
        }
    }
}

/// Directories of one source that are listed again.
pub(crate) struct Task {
    pub(crate) source: SourceRecord,
    pub(crate) record: ScanRecord,
    pub(crate) selection: Selection,
}

impl Task {
    /// Returns whether all of the source is listed.
    fn is_all(&self) -> bool {
        let mut is_all = false;
        self.selection.each(&mut |path, whole| is_all |= path.is_root() && whole);
        is_all
    }
}

/// Lists directories again and publishes changes as one generation. The index stays as it was if
/// nothing could be listed. Calls `suspects` only once it can write the index: standard input can be
/// read once.
///
/// # Errors
///
/// [`NeedsDerivedTables`](crate::NeedsDerivedTables), [`Interrupted`](crate::Interrupted), and errors
/// of the index and of the only source.
pub fn update(
    cx: &Context<'_>,
    location: &Path,
    suspects: impl FnOnce() -> anyhow::Result<Suspects>,
    options: &UpdateOptions<'_>,
) -> anyhow::Result<Updated> {
    // One that is not there is not to be made; that says so.
    if !location.join("CURRENT").exists() {
        drop(Index::open(location)?);
    }
    let mut writer = cx.open_writer(location, options.writer_options())?;
    let Suspects { all: mut suspects, links, are_requests } = suspects()?;
    suspects.extend(linked(&writer, &links)?);
    let faults = Faults::new(options.errors, location, None)?;
    if suspects.is_empty() {
        // The index has none of the inodes with other names.
        let generation = Index::open(location)?.generation();
        return Ok(Updated {
            generation,
            is_unchanged: true,
            is_complete: true,
            ..Updated::default()
        });
    }
    let mut scans =
        Scans::new(cx, &writer, options.memory_bytes, options.threads, options.rate_max, faults)?;
    scans.costs = are_requests.then(Arc::default);
    let tasks = tasks(&writer, &suspects, scans.costs.as_deref())?;
    let mut sources: Vec<String> = tasks.iter().map(|task| task.source.root.clone()).collect();
    let refresh = || refresh_all(&mut writer, &scans, tasks, options.repairs);
    let mut failed = with_progress(cx.observer, &scans, refresh);
    let writer = end_if_cancelled(cx, writer)?;
    if failed.len() == sources.len() {
        let Some((_, error)) = failed.pop() else { anyhow::bail!("there is nothing to list") };
        return Err(error.context("nothing was published"));
    }
    let stays = !failed.is_empty();
    for (root, error) in &failed {
        cx.warn(format_args!("{error:#}; {} stays as it was in the index", shown(root)));
    }
    sources.retain(|source| failed.iter().all(|(root, _)| root != source));
    let (published, are_complete) = publish_changes(cx, writer, options.threads)?;
    let Scans { counts, faults, costs, .. } = scans;
    let listed = faults.finish(cx, &counts);
    if let Err(error) = &listed {
        cx.warn(format_args!("{error:#}"));
    }
    let is_shown = warn_of(cx, &published);
    let is_whole = counts.faults() == 0 && is_shown && !stays && listed.is_ok();
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
        shares: costs.map(|costs| costs.shares()),
        is_complete: is_whole && are_complete,
    })
}

fn shown(root: &str) -> String {
    String::from_utf8_lossy(&unescape(root)).into_owned()
}

/// Returns the directories in which the index has these inodes, or all directories if there are too
/// many or the index is damaged.
fn linked(writer: &Writer, links: &Links) -> anyhow::Result<Vec<Suspect>> {
    let mut suspects = Vec::new();
    for (top, inodes) in links {
        for (source, _) in writer.sources().into_iter().filter(|(_, scan)| scan.is_some()) {
            let root = PathBuf::from(OsStr::from_bytes(&unescape(&source.root)));
            let top = if root.starts_with(top) { &root } else { top };
            let Some(below) = below(&root, top) else { continue };
            let found =
                match writer.directories_with(source.id, below.as_path(), inodes, LINKED_MAX) {
                    Err(error) if error.damaged_file().is_some() => None,
                    found => found?,
                };
            match found {
                Some(found) => suspects.extend(found.iter().map(|path| Suspect {
                    path: root.join(OsStr::from_bytes(&unescape(path.as_str()))),
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

/// Returns the path of something at or below a root; none for what is elsewhere.
fn below(root: &Path, path: &Path) -> Option<SourcePathBuf> {
    let below = path.strip_prefix(root).ok()?;
    Some(SourcePathBuf::escaped(escape(below.as_os_str().as_bytes()).into_owned()))
}

/// Fails if the path of a suspect is gone with its whole source, or was imported. Sources count whose
/// root is longer than `around`, the length of the root of the source around it.
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

/// Returns the directories to list again, by source.
fn tasks(
    writer: &Writer,
    suspects: &[Suspect],
    costs: Option<&Costs>,
) -> anyhow::Result<Vec<Task>> {
    let sources = writer.sources();
    let mut tasks: BTreeMap<SourceId, Task> = BTreeMap::new();
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
        let path = path.as_path();
        task.selection.add(path, suspect.recursive);
        if let Some(costs) = costs {
            costs.request(source.id, path, suspect.with_row);
        }
        if !suspect.with_row {
            continue;
        }
        // The directory above has its row.
        if let Some(above) = path.parent() {
            task.selection.add(above, false);
        }
    }
    Ok(tasks.into_values().collect())
}

/// Lists the selected parts of sources again. Returns the roots of those that failed, each with the
/// reason.
fn refresh_all(
    writer: &mut Writer,
    scans: &Scans<'_>,
    tasks: Vec<Task>,
    repairs: bool,
) -> Vec<(String, anyhow::Error)> {
    let mut failed = Vec::new();
    for task in tasks {
        let rules = scans.cx().mount_rules(task.record.no_prune);
        let root = task.source.root.clone();
        if let Some(costs) = &scans.costs {
            costs.begin(task.source.id);
        }
        let refreshed = refresh(writer, scans, &rules, task, repairs);
        if !one_reader() {
            warn_of_mounts(scans.cx(), &rules.closed());
        }
        failed.extend(refreshed.err().map(|error| (root, error)));
    }
    failed
}

/// Lists the selected part of a source again. After an error, the source stays as it was. If the index
/// has damaged data of the source, lists all of it, if all was selected or with `repairs`.
fn refresh(
    writer: &mut Writer,
    scans: &Scans<'_>,
    rules: &MountRules,
    task: Task,
    repairs: bool,
) -> anyhow::Result<()> {
    let counted = scans.counts.now();
    let refreshed = refresh_part(writer, scans, rules, &task);
    match refreshed.as_ref().err().and_then(damaged_file) {
        Some(file) if (repairs || task.is_all()) && !scans.cx().cancel.is_requested() => {
            let (file, root) = (file.display(), shown(&task.source.root));
            scans.cx().warn(format_args!("{file} is damaged: all of {root} is scanned anew"));
        }
        _ => return refreshed,
    }
    scans.counts.set_back(counted);
    list_anew(writer, scans, rules, &task)
}

/// Lists all of a source again. After an error, the source stays as it was.
pub(crate) fn list_anew(
    writer: &mut Writer,
    scans: &Scans<'_>,
    rules: &MountRules,
    task: &Task,
) -> anyhow::Result<()> {
    let (root, new) = open(writer, scans, rules, task)?;
    let before = scans.shortfalls(writer, rules);
    let now = new.scan.clone().unwrap_or_default();
    let partial = scans.counts.partial.load(Ordering::Relaxed);
    let begun = writer.add_source(new)?;
    let scanned = scans.scan(writer, begun, root, None, rules, &now);
    if scans.counts.partial.load(Ordering::Relaxed) > partial {
        writer.note_partial(begun);
    }
    ended(writer, scans, rules, begun, &task.source.root, &before, scanned)
}

/// Lists the selected part of a source.
fn refresh_part(
    writer: &mut Writer,
    scans: &Scans<'_>,
    rules: &MountRules,
    task: &Task,
) -> anyhow::Result<()> {
    let Task { source, record, selection } = task;
    let before = scans.shortfalls(writer, rules);
    let (root, new) = open(writer, scans, rules, task)?;
    let now = new.scan.clone().unwrap_or_default();
    let mut selected = Vec::new();
    selection.each(&mut |path, whole| {
        selected.push(SelectedDirectory { path: path.to_buf(), whole });
    });
    let begun = writer.refresh_source(new, selected)?;
    let partial = scans.counts.partial.load(Ordering::Relaxed);
    let scanned = scan_part(writer, scans, begun, root, selection, rules, &now);
    if scans.counts.partial.load(Ordering::Relaxed) > partial || now != *record {
        writer.note_partial(begun);
    }
    ended(writer, scans, rules, begun, &source.root, &before, scanned)
}

/// Opens the root of a source where it was.
fn open(
    writer: &Writer,
    scans: &Scans<'_>,
    rules: &MountRules,
    Task { source, record, .. }: &Task,
) -> anyhow::Result<(Root, NewSource)> {
    let root = PathBuf::from(OsStr::from_bytes(&unescape(&source.root)));
    check_links(&root)?;
    let (root, new) = scans.open(writer, &root, rules, record)?;
    anyhow::ensure!(
        new.root == source.root,
        "the source {} is elsewhere now, at {}: index that",
        shown(&source.root),
        shown(&new.root)
    );
    Ok((root, new))
}

/// Records the result of the scan of a source.
fn ended(
    writer: &mut Writer,
    scans: &Scans<'_>,
    rules: &MountRules,
    begun: SourceId,
    root: &str,
    before: &Shortfalls,
    scanned: anyhow::Result<()>,
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

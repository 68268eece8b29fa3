//! Scans: trees and namespaces become sources of an index, or replace what it had of them.

pub(crate) mod notes;
mod progress;
mod trees;

use crate::Context;
use crate::cancel::Interrupted;
use crate::faults::{warn_of_empty_mounts, warn_of_mounts};
use crate::follow::explained;
use crate::listing::{COPIED_ROWS_MAX, MEMORY_BYTES, Scans, available_threads, one_reader};
use crate::publishing::{publish_changes, warn_of};
use crate::sinks::damaged_file;
use crate::sources::Namespaces;
use canopy_as_user::subordinate_uids;
use canopy_index::{Layout, Published, Retention, ScanRecord, Unfinished, Writer, WriterOptions};
use canopy_model::{OwnerLimits, escape};
use canopy_scan::{Counts, MountRules, Root};
use canopy_site::{Settings, Source, namespace_of};
use canopy_text::{TimeStyle, counted};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use trees::Run;

/// A scan that a caller asks for. By default, it uses all cores and 256 MiB, as `canopy index` does.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// Trees, and with `ns:` in front namespaces. Each has another root.
    pub paths: Vec<PathBuf>,
    /// Threads that scan.
    pub threads: usize,
    /// Memory for building, in bytes.
    pub memory_bytes: usize,
    /// Entries that are looked at per second at most (not of namespaces).
    pub rate_max: Option<NonZeroU32>,
    /// Whether each scan stays on the file system of its root.
    pub one_file_system: bool,
    /// Patterns of entries that are left out, besides configured ones.
    pub excludes: Vec<String>,
    /// Whether entries are indexed, too, that the configuration leaves out.
    pub no_prune: bool,
    /// Whether extended attributes and ACLs are left out.
    pub no_xattrs: bool,
    /// Name of the only source.
    pub name: Option<String>,
    /// Place of the root of the only namespace.
    pub root: Option<PathBuf>,
    /// Limits for the directories of one owner.
    pub limits: Option<OwnerLimits>,
    /// Rows up to which the rest of a shard is rewritten, where some of it is replaced.
    pub copied_rows_max: usize,
    /// Older generations to keep from now on.
    pub retention: Option<Retention>,
    /// Whether only changes are written.
    pub incremental: bool,
    /// Whether directories are skipped whose times say that no name in them has changed.
    pub trusts_directory_times: bool,
    /// Whether the old entries of each source are removed before the scan.
    pub replaces: bool,
    /// Whether an interrupted scan is given up.
    pub restarts: bool,
    /// How listings are divided into files; by default by access, or with `incremental` as before.
    pub layout: Option<Layout>,
    /// File that lists entries that vanished or could not be read.
    pub errors: Option<PathBuf>,
    /// Entries after which the progress is saved, besides each minute.
    pub noted_every: Option<u64>,
}

impl Default for ScanRequest {
    fn default() -> Self {
        ScanRequest {
            paths: Vec::new(),
            threads: available_threads(),
            memory_bytes: MEMORY_BYTES,
            rate_max: None,
            one_file_system: false,
            excludes: Vec::new(),
            no_prune: false,
            no_xattrs: false,
            name: None,
            root: None,
            limits: None,
            copied_rows_max: COPIED_ROWS_MAX,
            retention: None,
            incremental: false,
            trusts_directory_times: false,
            replaces: false,
            restarts: false,
            layout: None,
            errors: None,
            noted_every: None,
        }
    }
}

/// The result of a scan that published a generation, or found everything unchanged.
pub struct Scanned {
    /// The generation.
    pub published: Published,
    /// Counts of the scan, with those before an interruption.
    pub counts: Counts,
    /// The interrupted scan that this one resumed.
    pub resumed: Option<Unfinished>,
    /// Trees that could not be scanned.
    pub failed: Vec<(PathBuf, anyhow::Error)>,
    /// Roots of the published trees, escaped.
    pub roots: Vec<String>,
    /// Whether nothing is missing, in derived tables, too.
    pub is_complete: bool,
}

/// Scans trees and namespaces and publishes them as one generation. Without `namespaces`, a
/// namespace is read as a tree that does not exist.
///
/// # Errors
///
/// [`NeedsDerivedTables`](crate::NeedsDerivedTables), [`Interrupted`], and errors of the index and of
/// the only tree.
pub fn scan(
    cx: &Context<'_>,
    location: &Path,
    request: &ScanRequest,
    namespaces: Option<&dyn Namespaces>,
) -> anyhow::Result<Scanned> {
    let settings = &cx.site.settings;
    let asked_root = request.root.as_deref();
    let root_of = |path: &Path| root_of(path, namespaces, asked_root);
    let is_placed = |path: &Path| {
        let namespace = namespace_of(path).zip(namespaces);
        namespace.is_some_and(|(path, source)| source.root_of(path, asked_root).is_ok())
    };
    let mut roots: Vec<String> = request.paths.iter().map(|path| root_of(path)).collect();
    let rules = cx.mount_rules(request.no_prune);
    let options = request.writer_options();
    let opened = cx.open_writer(location, options.clone());
    let mut writer = if namespaces.is_some() { explained(opened)? } else { opened? };
    let asked = asked(settings, request, &root_of);
    let mut resumed = resume(cx, &mut writer, request, &asked, &rules, &root_of)?;
    if resumed.is_none()
        && request.replaces
        && give_up(cx, &mut writer, &request.paths, &rules, &root_of)
    {
        writer.publish()?;
        writer = Writer::open(location, options.clone())?;
    }
    // A resumed scan has manifests of its own; the next one looks at those that are there then.
    if resumed.is_none() {
        plan_renewals(cx, &mut writer)?;
    }
    let new_run = |writer: &Writer, resumed: Option<&Unfinished>| {
        Run::new(cx, writer, request, &asked, resumed, namespaces, &root_of)
    };
    let mut run = new_run(&writer, resumed.as_ref())?;
    let mut failed = run.scan(&mut writer, resumed.as_ref());
    if let Err(error) = &failed
        && let Some(file) = damaged_file(error)
        && !cx.cancel.is_requested()
    {
        warn_of_new_scan(cx, format_args!("{} is damaged", file.display()));
        writer.give_up_unfinished()?;
        drop(writer);
        writer = Writer::open(location, options.clone())?;
        plan_renewals(cx, &mut writer)?;
        resumed = None;
        run = new_run(&writer, None)?;
        failed = run.scan(&mut writer, None);
    }
    if cx.cancel.is_requested() {
        return Err(interrupted(cx, writer, &run, request.paths.len()).into());
    }
    let failed = match failed {
        Ok(failed) => failed,
        Err(error) => return Err(record_resumed_failure(writer, resumed.as_ref(), error)),
    };
    note_failed(settings, &mut writer, &failed, &root_of, &is_placed);
    if !failed.is_empty() && failed.len() == request.paths.len() && resumed.is_none() {
        return Err(nothing_published(cx, writer, run.scans, failed));
    }
    warn_of_failed(cx, &writer, &failed, &root_of);
    let (published, are_complete) = match publish_changes(cx, writer, request.threads) {
        Ok(published) => published,
        Err(error) if error.is::<Interrupted>() => return Err(error),
        Err(error) => {
            let roots = request.paths.iter().map(|path| root_of(path)).collect();
            let is_damaged = resumed.is_some() && damaged_file(&error).is_some();
            record_failures(location, options, roots, &format!("{error:#}"), is_damaged);
            return Err(error);
        }
    };
    roots.retain(|root| failed.iter().all(|(path, _)| root_of(path) != *root));
    let (counts, is_whole) = finish(cx, run, &published);
    let is_complete = is_whole && failed.is_empty() && are_complete;
    Ok(Scanned { published, counts, resumed, failed, roots, is_complete })
}

/// Saves the progress of a run over `trees` trees that is cancelled, and returns how it continues.
fn interrupted(cx: &Context<'_>, mut writer: Writer, run: &Run<'_>, trees: usize) -> Interrupted {
    cx.cancel.finish();
    let goes_on = run.notes().take_sources(&mut writer, &run.scans.counts);
    drop(writer);
    let left = run.notes().left(trees);
    let continued = format!("{left}the same command goes on where this one ended");
    Interrupted { continued: goes_on.then_some(continued) }
}

/// Saves why a resumed scan failed, and returns the error.
fn record_resumed_failure(
    mut writer: Writer,
    resumed: Option<&Unfinished>,
    error: anyhow::Error,
) -> anyhow::Error {
    if let Some(source) = resumed.and_then(|resumed| resumed.source.as_ref()) {
        writer.record_failure(&source.root, format!("{error:#}"));
    }
    // The caller gets the error, too.
    drop(writer.save_failures());
    error
}

/// Warns of what is missing in a generation. Returns the counts of the run, and whether nothing is.
fn finish(cx: &Context<'_>, run: Run<'_>, published: &Published) -> (Counts, bool) {
    let Run { rules, scans: Scans { counts, faults, .. }, .. } = run;
    let listed = faults.finish(cx, &counts);
    if let Err(error) = &listed {
        cx.warn(format_args!("{error:#}"));
    }
    warn_of_empty_mounts(cx, &rules.without_files());
    if !one_reader() {
        warn_of_mounts(cx, &rules.closed());
    }
    let is_shown = warn_of(cx, published);
    let is_whole = is_shown && counts.faults() == 0 && listed.is_ok();
    (counts, is_whole)
}

impl ScanRequest {
    /// Returns how the index is written.
    fn writer_options(&self) -> WriterOptions {
        WriterOptions {
            memory_bytes: self.memory_bytes,
            threads: self.threads,
            limits: self.limits,
            holders: subordinate_uids(),
            copied_rows_max: self.copied_rows_max,
            keep_replaced: !self.replaces,
            retention: self.retention.clone(),
            gives_up_shared: self.restarts,
            ..WriterOptions::default()
        }
    }

    /// Returns how a tree is scanned: by the request, and by what is configured of it.
    pub fn record(&self, settings: &Settings, path: &Path) -> ScanRecord {
        let source = configured_source(settings, path);
        ScanRecord {
            one_file_system: self.one_file_system || source.is_some_and(|it| it.one_file_system),
            excludes: self.excludes.clone(),
            no_prune: self.no_prune,
            no_xattrs: self.no_xattrs || source.is_some_and(|it| it.no_xattrs),
            layout: self.layout.unwrap_or_default(),
            configured: None,
        }
    }

    /// Returns the name of a source, if the request or the configuration has one.
    pub fn name_of(&self, settings: &Settings, path: &Path) -> Option<String> {
        self.name.clone().or_else(|| configured_source(settings, path)?.name.clone())
    }
}

/// Returns how a tree is configured, if it is a source.
fn configured_source<'a>(settings: &'a Settings, path: &Path) -> Option<&'a Source> {
    settings.source(&path.canonicalize().ok()?)
}

/// Formats a request, so that another one can be compared with it.
fn asked(settings: &Settings, request: &ScanRequest, root_of: &dyn Fn(&Path) -> String) -> String {
    let limits = request.limits.map(|limits| [limits.classes, limits.names]);
    let paths = request.paths.iter();
    let is_namespace = |path: &PathBuf| namespace_of(path).is_some();
    let configured = |path: &PathBuf| {
        let source = configured_source(settings, path)?;
        Some((&source.exclude, source.one_file_system, source.no_xattrs))
    };
    notes::asked(
        settings,
        serde_json::json!({
            "roots": paths.clone().map(|path| root_of(path)).collect::<Vec<_>>(),
            "namespaces": paths.clone().map(is_namespace).collect::<Vec<_>>(),
            "configured": paths.map(configured).collect::<Vec<_>>(),
            "one_file_system": request.one_file_system,
            "exclude": request.excludes,
            "no_prune": request.no_prune,
            "no_xattrs": request.no_xattrs,
            "name": request.name,
            "limits": limits,
            "incremental": request.incremental,
            "trust_directory_times": request.trusts_directory_times,
            "replace": request.replaces,
        }),
    )
}

/// Resumes the interrupted run, if it had the same request. Reports whether it does.
fn resume(
    cx: &Context<'_>,
    writer: &mut Writer,
    request: &ScanRequest,
    asked: &str,
    rules: &MountRules,
    root_of: &dyn Fn(&Path) -> String,
) -> anyhow::Result<Option<Unfinished>> {
    let why = match (writer.unfinished(), writer.unfinished_is_useless()) {
        (None, None) => return Ok(None),
        (None, Some(reason)) => reason.to_owned(),
        (Some(_), _) if request.restarts => "--restart was given".to_owned(),
        (Some(before), _) if before.asked != asked => {
            "it was of other trees, with other options or by another version".to_owned()
        }
        (Some(before), _) => {
            let source = before.source.as_ref();
            let path = source
                .and_then(|source| request.paths.iter().find(|path| root_of(path) == source.root));
            let root = path.map(|path| Root::open(path, writer.classes(), rules));
            let is_same = match (source, &root) {
                (None, _) => true,
                (Some(source), Some(Ok(root))) => {
                    notes::identity(root).is_ok_and(|identity| identity == source.identity)
                }
                (Some(_), _) => false,
            };
            match is_same.then(|| writer.resume()).transpose()? {
                Some(Ok(before)) => {
                    cx.note(format_args!(
                        "going on with the scan of {}, which was interrupted after {}",
                        TimeStyle::long_iso().show(before.begun_ns, before.begun_ns),
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
    warn_of_new_scan(cx, why);
    Ok(None)
}

/// Plans to write damaged documents anew with the next generation, and warns of them.
fn plan_renewals(cx: &Context<'_>, writer: &mut Writer) -> anyhow::Result<()> {
    let renewed = writer.renew_damaged()?;
    if let [first, ..] = &renewed[..] {
        let more = match renewed.len() - 1 {
            0 => String::new(),
            more => format!(" and {} likewise", counted(more as u64, "other")),
        };
        cx.note(format_args!(
            "{} is damaged, missing or not for whom it should be{more}: it is to be written anew",
            first.display()
        ));
    }
    Ok(())
}

/// Warns that an interrupted scan cannot be resumed, and why.
fn warn_of_new_scan(cx: &Context<'_>, why: impl std::fmt::Display) {
    cx.note(format_args!(
        "all is scanned anew: the scan that was interrupted cannot go on, since {why}"
    ));
}

/// Takes the sources at these paths out of the index, as far as they can be scanned anew, if that
/// frees anything; returns whether there was any.
fn give_up(
    cx: &Context<'_>,
    writer: &mut Writer,
    paths: &[PathBuf],
    rules: &MountRules,
    root_of: &dyn Fn(&Path) -> String,
) -> bool {
    if writer.keeps_generations() {
        cx.note(
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
    settings: &Settings,
    writer: &mut Writer,
    failed: &[(PathBuf, anyhow::Error)],
    root_of: &dyn Fn(&Path) -> String,
    is_placed: &dyn Fn(&Path) -> bool,
) {
    for (path, error) in failed {
        let root = root_of(path);
        // A path that was mistyped is not missing from the index, nor is a namespace whose place is
        // not known.
        let mut configured = settings.sources.iter().flatten();
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
    cx: &Context<'_>,
    writer: &Writer,
    failed: &[(PathBuf, anyhow::Error)],
    root_of: &dyn Fn(&Path) -> String,
) {
    for (path, error) in failed {
        let root = root_of(path);
        match is_source(writer, &root) {
            true => cx.warn(format_args!("{error:#}; {root} stays as it was in the index")),
            false => cx.warn(format_args!("{error:#}; the index has nothing of it")),
        }
    }
}

/// Ends a run of which no tree could be scanned.
fn nothing_published(
    cx: &Context<'_>,
    writer: Writer,
    Scans { counts, faults, .. }: Scans<'_>,
    failed: Vec<(PathBuf, anyhow::Error)>,
) -> anyhow::Error {
    if let Err(error) = writer.save_failures() {
        cx.warn(format_args!("'canopy info' will not tell of what failed: {error}"));
    }
    if let Err(error) = faults.finish(cx, &counts) {
        cx.warn(format_args!("{error:#}"));
    }
    report_all_but_last(cx, failed).context("nothing was published")
}

/// Prints all of the errors but the last one, and returns that.
fn report_all_but_last(
    cx: &Context<'_>,
    mut failed: Vec<(PathBuf, anyhow::Error)>,
) -> anyhow::Error {
    let last = failed.pop();
    failed.iter().for_each(|(_, error)| cx.warn(format_args!("{error:#}")));
    last.map_or_else(|| anyhow::anyhow!("no PATH is given"), |(_, error)| error)
}

/// Records that nothing of these paths could be published, if that much can be done. The run went on
/// with data that `is_damaged`: another one begins anew.
fn record_failures(
    location: &Path,
    options: WriterOptions,
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

/// Returns the absolute path, escaped, under which a failure of a source is recorded. `asked` is the
/// place that was asked for, for the root of a namespace.
pub fn root_of(path: &Path, namespaces: Option<&dyn Namespaces>, asked: Option<&Path>) -> String {
    let root = namespaces.and_then(|source| source.root_of(namespace_of(path)?, asked).ok());
    let path = root.as_deref().unwrap_or(path);
    let real = path.canonicalize().or_else(|_| std::path::absolute(path));
    escape(real.unwrap_or_else(|_| path.to_owned()).as_os_str().as_bytes()).into_owned()
}

//! The saved progress of a scan, by which an interrupted one is resumed.

use crate::Context;
use crate::faults::Shortfalls;
use crate::listing::path_bytes_max;
use anyhow::Context as _;
use canopy_index::{
    RemainingDirectory, RemainingExtent, ShardWriter, SourceId, Unfinished, UnfinishedSource,
    Writer,
};
use canopy_scan::{Counts, Extent, Left, Remaining, Root, mounts};
use canopy_site::Settings;
use canopy_text::counted;
use parking_lot::Mutex;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shortest time between two notes.
const NOTED_EVERY: Duration = Duration::from_secs(60);

/// Pause before the next note, as a multiple of the time that one takes.
const TIMES_NOTING: u32 = 200;

/// Progress of the scan of a source that is not done.
pub(crate) struct SourceProgress<'a> {
    /// Directories that remain, and entries of them that count again.
    pub(crate) left: Left,
    /// Counts of the run.
    pub(crate) counts: &'a Counts,
    /// Parts that the index lacks so far.
    pub(crate) missing: &'a Shortfalls,
}

/// Saved progress of a run.
pub(crate) struct Notes<'a> {
    cx: Context<'a>,
    asked: String,
    begun_ns: i64,
    done: Mutex<Vec<String>>,
    /// The root of the source that the run goes on with, until that is done.
    pending: Mutex<Option<String>>,
    source: Mutex<Option<(UnfinishedSource, Shortfalls, u64)>>,
    started: Instant,
    /// Time of the next note, in milliseconds since the start.
    next_ms: AtomicU64,
    /// Entries after which progress is saved, too.
    entries_step: Option<u64>,
    next_entries: AtomicU64,
    /// Whether there is a note of the source that is being scanned.
    goes_on: AtomicBool,
    /// Whether the user was warned that notes fail.
    has_warned: AtomicBool,
    /// Directories that remain of the source that is being scanned, by the last note.
    remaining: AtomicU64,
}

impl<'a> Notes<'a> {
    /// Returns the notes of a run with this request. `after` is the interrupted run that it resumes.
    pub(crate) fn new(
        cx: &Context<'a>,
        asked: String,
        entries_step: Option<u64>,
        after: Option<&Unfinished>,
    ) -> Self {
        Notes {
            cx: *cx,
            asked,
            begun_ns: after.map_or_else(cx.clock, |after| after.begun_ns),
            done: Mutex::new(after.map(|after| after.done.clone()).unwrap_or_default()),
            pending: Mutex::new(
                after.and_then(|after| after.source.as_ref()).map(|source| source.root.clone()),
            ),
            source: Mutex::new(None),
            started: Instant::now(),
            next_ms: AtomicU64::new(NOTED_EVERY.as_millis() as u64),
            entries_step,
            next_entries: AtomicU64::new(entries_step.unwrap_or(u64::MAX)),
            goes_on: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
            remaining: AtomicU64::new(
                after
                    .and_then(|after| after.source.as_ref())
                    .map_or(0, |source| source.remaining.len() as u64),
            ),
        }
    }

    /// Formats the work left in a run over `trees` trees, as the beginning of a sentence.
    pub(crate) fn left(&self, trees: usize) -> String {
        let is_begun = self.goes_on.load(Ordering::Relaxed) || self.pending.lock().is_some();
        let others = (trees - self.done.lock().len().min(trees)).saturating_sub(is_begun.into());
        let remaining = self.remaining.load(Ordering::Relaxed);
        let mut left = Vec::new();
        if is_begun {
            left.push(format!("{} with all below", counted(remaining, "directory")));
        }
        if others > 0 {
            left.push(counted(others as u64, "PATH"));
        }
        match left.is_empty() {
            true => String::new(),
            false => format!("left: {}; ", left.join(", ")),
        }
    }

    /// Returns whether a source was scanned to its end, by its root, escaped.
    pub(crate) fn is_done(&self, root: &str) -> bool {
        self.done.lock().iter().any(|done| done == root)
    }

    /// Begins a source. `before` is what was missing until then, `partial` the number of partial
    /// listings.
    pub(crate) fn begin(&self, source: UnfinishedSource, before: Shortfalls, partial: u64) {
        *self.source.lock() = Some((source, before, partial));
    }

    /// Ends a source.
    pub(crate) fn end(&self, is_done: bool) {
        let source = self.source.lock().take();
        if is_done {
            *self.pending.lock() = None;
            self.goes_on.store(false, Ordering::Relaxed);
        }
        self.done.lock().extend(source.filter(|_| is_done).map(|(source, ..)| source.root));
    }

    /// Returns whether it is time to note how far the run is.
    pub(crate) fn are_due(&self, counts: &Counts) -> bool {
        self.started.elapsed().as_millis() as u64 >= self.next_ms.load(Ordering::Relaxed)
            || self.entries_step.is_some()
                && counts.entries.load(Ordering::Relaxed)
                    >= self.next_entries.load(Ordering::Relaxed)
    }

    /// Saves the progress of the scan of a source. If that fails, the scan goes on without, unless it
    /// `ends`.
    pub(crate) fn take(
        &self,
        writer: &Writer,
        begun: SourceId,
        writers: &mut Vec<ShardWriter<'_>>,
        so_far: SourceProgress<'_>,
        ends: bool,
    ) -> canopy_index::Result<()> {
        if ends {
            self.cx.cancel.finish();
        }
        let SourceProgress { left, counts, missing } = so_far;
        let noting = Instant::now();
        let Some((mut source, before, partial)) = self.source.lock().clone() else { return Ok(()) };
        source.missing.extend(missing.since(&before));
        source.is_partial |= counts.partial.load(Ordering::Relaxed) > partial;
        source.remaining = left.remaining.into_iter().map(directory).collect();
        self.remaining.store(source.remaining.len() as u64, Ordering::Relaxed);
        let mut about = self.about(Some(source), counts);
        about.entries = about.entries.saturating_sub(left.entries);
        about.directories = about.directories.saturating_sub(left.directories);
        let noted = writer.note_unfinished(Some(begun), writers, about, ends);
        match noted {
            Ok(noted) => self.goes_on.store(noted, Ordering::Relaxed),
            Err(error) if ends => {
                self.warn_of_loss(&error);
                return Err(error);
            }
            Err(error) if !self.has_warned.swap(true, Ordering::Relaxed) => {
                let error = anyhow::Error::from(error);
                self.cx.note(format_args!(
                    "warning: it cannot be noted how far the scan is, so that it could go on after \
                     an interruption: {error:#}; the scan goes on"
                ));
            }
            Err(_) => {}
        }
        let pause = NOTED_EVERY.max(noting.elapsed() * TIMES_NOTING);
        let next = self.started.elapsed() + pause;
        self.next_ms.store(next.as_millis() as u64, Ordering::Relaxed);
        let next = counts.entries.load(Ordering::Relaxed) + self.entries_step.unwrap_or_default();
        self.next_entries.store(next, Ordering::Relaxed);
        Ok(())
    }

    /// Saves which sources were scanned to their end, unless more was saved. Returns whether the run
    /// can be resumed.
    pub(crate) fn take_sources(&self, writer: &mut Writer, counts: &Counts) -> bool {
        // Earlier notes count as long as one of their sources remains.
        let goes_on = self.goes_on.load(Ordering::Relaxed) || self.pending.lock().is_some();
        if goes_on || self.done.lock().is_empty() {
            return goes_on;
        }
        let noted = writer.note_sources(self.about(None, counts));
        noted.inspect_err(|error| self.warn_of_loss(error)).unwrap_or(false)
    }

    fn warn_of_loss(&self, error: &canopy_index::Error) {
        self.cx.warn(format_args!("what was scanned since it was noted last is lost: {error}"));
    }

    fn about(&self, source: Option<UnfinishedSource>, counts: &Counts) -> Unfinished {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Unfinished {
            asked: self.asked.clone(),
            begun_ns: self.begun_ns,
            noted_ns: (self.cx.clock)(),
            done: self.done.lock().clone(),
            source,
            entries: count(&counts.entries),
            directories: count(&counts.directories),
            counts: others(counts).map(count).to_vec(),
        }
    }
}

fn directory(remaining: Remaining) -> RemainingDirectory {
    let extent = match remaining.extent {
        Extent::New => RemainingExtent::New,
        Extent::Whole => RemainingExtent::Whole,
        Extent::Alone => RemainingExtent::Alone,
    };
    RemainingDirectory::new(remaining.path, extent)
}

pub(crate) fn others(counts: &Counts) -> [&AtomicU64; 7] {
    let Counts { failed, vanished, narrowed, moved, long_paths, unmapped, partial, .. } = counts;
    [failed, vanished, narrowed, moved, long_paths, unmapped, partial]
}

/// Adds the counts of an interrupted scan.
pub(crate) fn add_counts(counts: &Counts, before: &Unfinished) {
    counts.entries.fetch_add(before.entries, Ordering::Relaxed);
    counts.looked_at.fetch_add(before.entries, Ordering::Relaxed);
    counts.directories.fetch_add(before.directories, Ordering::Relaxed);
    for (count, &before) in others(counts).into_iter().zip(&before.counts) {
        count.fetch_add(before, Ordering::Relaxed);
    }
}

/// Formats all that the result of a run depends on, so that two runs can be compared. `own` is the
/// request.
pub(crate) fn asked(settings: &Settings, own: serde_json::Value) -> String {
    let configured = serde_json::json!({
        "prune_names": settings.prune_names,
        "prune_paths": settings.prune_paths,
        "prune_fs": settings.prune_fs,
        "trust_fs": settings.trust_fs,
    });
    let version = env!("CARGO_PKG_VERSION");
    serde_json::json!([version, path_bytes_max(settings), configured, own]).to_string()
}

/// Formats the identity of the root of a source: its directory, and the file systems mounted there and
/// below. Mounts of users come and go, and are left out.
pub(crate) fn identity(root: &Root) -> anyhow::Result<String> {
    use std::fmt::Write;
    let mut identity = format!("{} {}", root.dev, root.attributes.ino);
    for mount in mounts().context("cannot read what is mounted")? {
        let point = Path::new(std::ffi::OsStr::from_bytes(&mount.point));
        let is_users = mount.file_system.starts_with("fuse");
        if point.starts_with(&root.path) && !is_users && mount.file_system != "autofs" {
            let source = String::from_utf8_lossy(&mount.source);
            write!(identity, "\n{} {} {source}", point.display(), mount.dev)?;
        }
    }
    Ok(identity)
}

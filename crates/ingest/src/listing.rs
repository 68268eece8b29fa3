//! Scans of one run: options, counts and errors that all verbs share.
//!
//! Trees are not a [`ListingSource`](crate::ListingSource): at a pause, their walk lends its sinks to
//! the notes that it is resumed from, with the directories that are left. Other sources would have to
//! pass that on and never use it.

use crate::Context;
use crate::faults::{Faults, Shortfalls};
use crate::observer::Progress;
use crate::scan::notes::{Notes, SourceProgress};
use crate::sinks::{Listings, Stopped, Whereabouts};
use crate::update::costs::Costs;
use anyhow::Context as _;
use canopy_index::{Configured, NewSource, ScanRecord, ShardWriter, SourceId, Writer};
use canopy_model::Device;
use canopy_scan::{
    Counts, Excludes, Fault, Left, MountRules, Pauses, RateLimit, Root, ScanContext, ScanError,
    ScanOptions, Step, Subtree, scan,
};
use canopy_site::{Settings, prune_reasons};
use canopy_text::counted;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Rows up to which what stays of a shard is written anew, where something of it is replaced: more
/// take longer than telling which are dead, fewer would be many small shards.
pub const COPIED_ROWS_MAX: usize = 4096;

/// Memory for building where a caller does not say, in bytes.
pub(crate) const MEMORY_BYTES: usize = 256 << 20;

/// Returns the number of threads where a caller does not say.
pub(crate) fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Shared state of the scans of one run.
pub(crate) struct Scans<'a> {
    cx: Context<'a>,
    skipped: (Device, u64),
    part_bytes: usize,
    rate_limit: Option<Arc<RateLimit>>,
    /// Counts so far.
    pub counts: Counts,
    /// Errors of entries.
    pub faults: Faults,
    /// Place of the scan.
    pub whereabouts: Arc<Whereabouts>,
    /// Saved progress, if the run can be resumed.
    pub notes: Option<Notes<'a>>,
    /// Charges of requests, if users asked for this scan.
    pub costs: Option<Arc<Costs>>,
}

impl<'a> Scans<'a> {
    /// Prepares scans for an index that is written with this memory and this number of threads. All
    /// threads together look at most at `rate_max` entries per second.
    ///
    /// # Errors
    ///
    /// If the directory of the index cannot be looked at.
    pub fn new(
        cx: &Context<'a>,
        writer: &Writer,
        memory_bytes: usize,
        threads: usize,
        rate_max: Option<NonZeroU32>,
        faults: Faults,
    ) -> anyhow::Result<Self> {
        let own = writer.path().metadata().context("cannot look at the index")?;
        Ok(Scans {
            cx: *cx,
            skipped: (Device(own.dev()), own.ino()),
            part_bytes: (memory_bytes / threads.max(1) / 16).clamp(1 << 20, 64 << 20),
            rate_limit: rate_max.map(|rate| Arc::new(RateLimit::new(rate))),
            counts: Counts::default(),
            faults,
            whereabouts: Arc::default(),
            notes: None,
            costs: None,
        })
    }

    /// Returns the values that the caller passed.
    pub fn cx(&self) -> &Context<'a> {
        &self.cx
    }

    /// Returns how a source is scanned. Excluded paths depend on its root.
    ///
    /// # Errors
    ///
    /// If a pattern of entries that are left out is wrong.
    pub fn options(&self, record: &ScanRecord, root: &Path) -> anyhow::Result<ScanOptions> {
        let mut patterns = record.excludes.clone();
        patterns.extend(match &record.configured {
            Some(configured) => configured.left_out.clone(),
            None => self.configured(record, root)?.left_out,
        });
        Ok(ScanOptions {
            one_file_system: record.one_file_system,
            excludes: Excludes::new(patterns.iter().map(String::as_str))?,
            skipped: vec![self.skipped],
            no_xattrs: record.no_xattrs,
            one_reader: one_reader(),
            path_bytes_max: path_bytes_max(&self.cx.site.settings),
            part_bytes: self.part_bytes,
            rate_limit: self.rate_limit.clone(),
        })
    }

    /// Opens the root of a source. Returns it and the record for the index, with the current
    /// configuration.
    ///
    /// # Errors
    ///
    /// If the root cannot be opened, or seems not to be mounted.
    pub fn open(
        &self,
        writer: &Writer,
        path: &Path,
        rules: &MountRules,
        record: &ScanRecord,
    ) -> anyhow::Result<(Root, NewSource)> {
        let mut root = Root::open(path, writer.classes(), rules)?;
        anyhow::ensure!(
            !is_unmounted(writer, &root),
            "{} is empty and on another file system than it was: it seems not to be mounted \
             ('canopy source remove' takes it out of the index)",
            path.display()
        );
        let (xattrs, failed) = match record.no_xattrs {
            true => (Vec::new(), None),
            false => root.xattrs(writer.classes()),
        };
        if let Some(error) = failed {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            self.faults.add(&root.path, &error);
        }
        let configured = Some(self.configured(record, &root.path)?);
        let new = NewSource {
            name: None,
            root: root.escaped_path(),
            dev: root.dev,
            scanned_ns: (self.cx.clock)(),
            attributes: root.attributes,
            approach: root.approach.clone(),
            xattrs,
            scan: Some(ScanRecord { configured, ..record.clone() }),
        };
        Ok((root, new))
    }

    /// Scans a source that was begun under this number, or a part of it.
    ///
    /// # Errors
    ///
    /// If the root cannot be listed, the index cannot be written, or the run is cancelled.
    pub fn scan(
        &self,
        writer: &Writer,
        begun: SourceId,
        root: Root,
        part: Option<Subtree<'_>>,
        rules: &MountRules,
        record: &ScanRecord,
    ) -> anyhow::Result<()> {
        let writers = self.walk(writer, begun, root, part, rules, record)?;
        if self.notes.is_some() {
            // A complete source is saved as a whole.
            self.cx.cancel.finish();
        }
        Ok(writer.finish_shards(writers)?)
    }

    /// Lists a source that was begun under this number, or a part of it, and returns its writers.
    ///
    /// # Errors
    ///
    /// If the root cannot be listed, the index cannot be written, or the run is cancelled.
    pub fn walk<'w>(
        &self,
        writer: &'w Writer,
        begun: SourceId,
        root: Root,
        part: Option<Subtree<'_>>,
        rules: &MountRules,
        record: &ScanRecord,
    ) -> anyhow::Result<Vec<ShardWriter<'w>>> {
        let options = self.options(record, &root.path)?;
        let base = root.path.clone();
        let unlisted = OnceLock::new();
        let on_error = |error: &ScanError| {
            if error.path.as_path().is_root()
                && matches!(error.fault, Fault::Failed(Step::List, _) | Fault::Moved)
            {
                unlisted.get_or_init(|| error.fault);
            }
            self.faults.add(&base, error);
        };
        self.whereabouts.forget();
        let sinks = Listings::of(writer.shard_writers(begun), &self.whereabouts, &self.costs);
        let classes = writer.classes();
        let is_shared = part.is_some_and(|part| part.others.is_some());
        let due = || {
            let is_due = |notes: &Notes<'_>| notes.are_due(&self.counts);
            // A shared scan ends by leaving the rest to others.
            !is_shared && self.cx.cancel.is_requested() || self.notes.as_ref().is_some_and(is_due)
        };
        let mut pause = |sinks: &mut Vec<Listings<'_>>, left: &dyn Fn() -> Left| {
            let ends = self.cx.cancel.is_requested();
            if let Some(notes) = &self.notes {
                let mut writers = sinks.drain(..).map(|sink| sink.shards).collect();
                let missing = &self.shortfalls(writer, rules);
                let so_far = SourceProgress { left: left(), counts: &self.counts, missing };
                notes.take(writer, begun, &mut writers, so_far, ends)?;
                sinks.extend(Listings::of(writers, &self.whereabouts, &self.costs));
            }
            if ends { Err(Stopped::Interrupted) } else { Ok(()) }
        };
        let pauses = Pauses { due: &due, pause: &mut pause };
        let cx = ScanContext {
            options: &options,
            classes,
            rules,
            counts: &self.counts,
            on_error: &on_error,
        };
        let sinks = scan(root, part, &cx, sinks, pauses)?;
        match unlisted.get() {
            Some(&Fault::Failed(_, errno)) => {
                return Err(std::io::Error::from(errno))
                    .with_context(|| format!("cannot list {}", base.display()));
            }
            Some(_) => anyhow::bail!("{} was moved while it was scanned", base.display()),
            None => {}
        }
        Ok(sinks.into_iter().map(|sink| sink.shards).collect())
    }

    /// Returns what is configured of scans of a source.
    fn configured(&self, record: &ScanRecord, root: &Path) -> anyhow::Result<Configured> {
        let settings = &self.cx.site.settings;
        let pruned = match record.no_prune {
            true => Default::default(),
            false => prune_reasons(settings, root)?,
        };
        for path in &pruned.unusable {
            let path = path.display();
            self.cx.warn(format_args!("warning: {path} is not UTF-8 and is not left out"));
        }
        let left_out = pruned.patterns.into_iter().map(|(pattern, _)| pattern).collect();
        Ok(Configured { left_out, trusted: settings.trust_fs.clone().unwrap_or_default() })
    }

    /// Returns entries that the index does not show so far though the source would.
    pub fn shortfalls(&self, writer: &Writer, rules: &MountRules) -> Shortfalls {
        Shortfalls::new(&self.counts, writer.beyond_limits(), rules.closed())
    }
}

impl Progress for Scans<'_> {
    fn line(&self, _: Duration) -> String {
        counted(self.counts.progress(), "entry")
    }

    fn done(&self) -> u64 {
        self.counts.progress()
    }
}

/// Lets this process open as many files as the system allows. A program that scans calls it once: a directory may wait with its descriptor
/// open until its last subdirectory is read, and files of the index until all is written.
pub fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Without it, only very deep trees run into the limit, and say so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Returns the length of the longest path below a source that is read, in bytes.
pub fn path_bytes_max(settings: &Settings) -> usize {
    settings.path_max.unwrap_or(ScanOptions::default().path_bytes_max)
}

/// Returns whether the index that this user writes is for this user alone.
pub(crate) fn one_reader() -> bool {
    !nix::unistd::geteuid().is_root()
}

/// Returns whether a source is an empty directory now, though the index has entries of it from another
/// device: its file system is most likely not mounted.
fn is_unmounted(writer: &Writer, root: &Root) -> bool {
    let escaped = root.escaped_path();
    let known = writer.sources().into_iter().find(|(source, _)| source.root == escaped);
    known.is_some_and(|(source, _)| {
        source.dev != root.dev
            && writer.has_entries(source.id)
            && std::fs::read_dir(&root.path).is_ok_and(|mut entries| entries.next().is_none())
    })
}

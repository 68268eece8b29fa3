//! A scan that several processes share, on any machines that see the source and the index.
//!
//! 1. One begins it, the others join.
//! 2. Each lists parts as long as there are any that nobody has, and ends each by itself. It leaves
//!    directories to others that are deep enough (of the whole source), or that it has not begun when
//!    others have nothing to do.
//! 3. The last one publishes all of them.

use crate::Context;
use crate::cancel::Interrupted;
use crate::faults::{Faults, Shortfalls, warn_of_mounts};
use crate::listing::{Scans, one_reader};
use crate::publishing::{publish_changes, warn_of};
use crate::scan::notes::{self, add_counts, others};
use crate::scan::{ScanRequest, Scanned};
use canopy_as_user::subordinate_uids;
use canopy_index::{
    Error, NewSource, Next, PartOutcome, ScanPart, SharedProgress, SharedScan, Unfinished, Worker,
    Writer, WriterOptions,
};
use canopy_model::{
    Access, Attributes, Device, Generation, Listing, OwnerLimits, SourcePath, SourcePathBuf,
    escape, unescape,
};
use canopy_scan::{Counts, Fault, Known, MountRules, Root, ScanError, Selection, Step, Subtree};
use canopy_site::check_links;
use canopy_text::counted;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Most parts that a worker leaves to others: of the whole source, and of a part that it lists.
const PARTS_MAX: usize = 64;
const SHARED_MAX: usize = 8;

/// Most bytes of paths of directories that a worker leaves to others; it lists the rest itself.
const LEFT_BYTES_MAX: usize = 16 << 20;

/// Waiting time for a process that writes the index: it may be about to begin this scan.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOKED_EVERY: Duration = Duration::from_millis(100);

/// Formats how many parts are left of the scan that workers share; `None` if they share none.
pub fn left(location: &Path) -> Option<String> {
    SharedProgress::of(location).map(|it| counted(it.parts_left, "part"))
}

/// Begins a scan of the only tree of a request, unless it was begun. Directories `level` levels below
/// its root become parts.
///
/// # Errors
///
/// If the index cannot be written, or workers share another scan.
pub fn begin(
    cx: &Context<'_>,
    location: &Path,
    request: &ScanRequest,
    level: u32,
) -> anyhow::Result<()> {
    let [path] = &request.paths[..] else { anyhow::bail!("--level is for one PATH") };
    check_links(path)?;
    let rules = cx.mount_rules(request.no_prune);
    let options = WriterOptions {
        gives_up_shared: request.restarts,
        ..options(request, &SharedScan::default())
    };
    let begun = Instant::now();
    let mut writer = loop {
        let known = match request.restarts {
            true => None,
            false => SharedScan::read(location).map_err(|error| unreadable(error, location))?,
        };
        if let Some(known) = known {
            let root = Root::open(path, &Default::default(), &rules)?;
            let wanted = wanted(cx, request, level, &root, path);
            let same = |scan: &SharedScan| {
                let SharedScan { root, name, record, level, limits, asked, .. } = scan;
                format!("{:?}", (root, name, record, level, limits, asked))
            };
            anyhow::ensure!(
                same(&known) == same(&wanted),
                "workers share a scan of {} that was begun otherwise; join them with --worker, or \
                 give up what they have done with --restart",
                known.root
            );
            return Ok(());
        }
        match Writer::open(location, options.clone()) {
            Err(Error::Locked(_) | Error::Shared(_))
                if begun.elapsed() < PATIENCE && !cx.cancel.is_requested() =>
            {
                std::thread::sleep(LOOKED_EVERY);
            }
            opened => break opened?,
        }
    };
    writer.give_up_unfinished()?;
    let root = Root::open(path, writer.classes(), &rules)?;
    writer.share(wanted(cx, request, level, &root, path))?;
    Ok(())
}

/// Explains an error of the files that workers share: the rest of the index is sound.
fn unreadable(error: Error, index: &Path) -> anyhow::Error {
    let is_damaged = error.damaged_file().is_some() || matches!(error, Error::Version { .. });
    match is_damaged {
        true => anyhow::anyhow!(
            "what workers share in {} is damaged, or of another version of canopy; give up what they \
             have done with 'canopy index --restart'",
            index.display()
        ),
        false => error.into(),
    }
}

/// Returns the scan that a request asks for.
fn wanted(
    cx: &Context<'_>,
    request: &ScanRequest,
    level: u32,
    root: &Root,
    path: &Path,
) -> SharedScan {
    let settings = &cx.site.settings;
    SharedScan {
        root: root.escaped_path(),
        dev: root.dev,
        name: request.name_of(settings, path),
        record: request.record(settings, path),
        level,
        limits: request.limits.map(|limits| (limits.classes as u64, limits.names as u64)),
        retention: request.retention.clone(),
        asked: asked(cx),
        begun_ns: (cx.clock)(),
        ..SharedScan::default()
    }
}

/// Returns all else that a scan depends on.
fn asked(cx: &Context<'_>) -> String {
    notes::asked(&cx.site.settings, serde_json::Value::Null)
}

fn options(request: &ScanRequest, scan: &SharedScan) -> WriterOptions {
    let limits = scan.limits.map(|(classes, names)| (classes as usize, names as usize));
    WriterOptions {
        memory_bytes: request.memory_bytes,
        threads: request.threads,
        limits: limits.map(|(classes, names)| OwnerLimits { classes, names }),
        holders: subordinate_uids(),
        copied_rows_max: request.copied_rows_max,
        retention: scan.retention.clone(),
        ..WriterOptions::default()
    }
}

/// The end of one worker's work.
pub enum Ended {
    /// This worker published the scan.
    Published(Box<Scanned>),
    /// Another worker published it as this generation.
    PublishedByOther(Generation),
    /// There is no scan to join: it is published, or was given up.
    NothingToJoin,
}

/// Works on the shared scan of an index until it is published. Only the threads, memory, rate and
/// file of errors of the request count. `beat` is the time between signs of life.
///
/// # Errors
///
/// [`Interrupted`], and errors of the index and of the tree.
pub fn work(
    cx: &Context<'_>,
    location: &Path,
    request: &ScanRequest,
    beat: Duration,
) -> anyhow::Result<Ended> {
    Sharer { cx, location, request }.work(beat)
}

/// One process that shares a scan.
struct Sharer<'a> {
    cx: &'a Context<'a>,
    location: &'a Path,
    request: &'a ScanRequest,
}

impl Sharer<'_> {
    fn work(&self, beat: Duration) -> anyhow::Result<Ended> {
        let cx = self.cx;
        let mut joined = false;
        while !cx.cancel.is_requested() {
            let joined_now = Worker::join(self.location, beat);
            let joined_now = joined_now.map_err(|error| unreadable(error, self.location))?;
            let Some(mut worker) = joined_now else {
                anyhow::ensure!(!joined, "the scan was given up");
                break;
            };
            joined = true;
            anyhow::ensure!(
                worker.scan().asked == asked(cx),
                "this canopy is another version than that which began the scan, or configured \
                 otherwise"
            );
            let ended = self.work_as(&mut worker);
            if let Ok(Some(scanned)) = ended {
                return Ok(Ended::Published(Box::new(scanned)));
            }
            if let Some(generation) = worker.published() {
                // The publisher may have died before it cleaned up.
                drop(Writer::open(self.location, WriterOptions::default()));
                return Ok(Ended::PublishedByOther(generation));
            }
            // Another worker takes over the parts of this one; there may be more to do.
            if !worker.is_lost() && !cx.cancel.is_requested() {
                ended?;
            }
        }
        if cx.cancel.is_requested() {
            cx.cancel.finish();
            let continued = match left(self.location) {
                Some(left) => format!("{left} left; 'canopy index --worker' goes on with it"),
                None => "'canopy index --worker' goes on where this one ended".to_owned(),
            };
            return Err(Interrupted { continued: Some(continued) }.into());
        }
        if canopy_index::is_there(self.location)? {
            // One of another format has no scan that could be joined.
            drop(canopy_index::Index::open(self.location)?);
        }
        Ok(Ended::NothingToJoin)
    }

    /// Works until nothing is left; returns the result of the scan if this worker published it.
    fn work_as(&self, worker: &mut Worker) -> anyhow::Result<Option<Scanned>> {
        while !self.cx.cancel.is_requested() {
            match worker.find_work()? {
                Next::Part(part) => self.list(worker, &part)?,
                Next::Publish => return self.publish(worker).map(Some),
                Next::Wait => std::thread::sleep(worker.pause()),
                Next::Over => break,
            }
        }
        Ok(None)
    }

    /// Lists a part.
    fn list(&self, worker: &Worker, part: &ScanPart) -> anyhow::Result<()> {
        let scan = worker.scan();
        let options = options(self.request, scan);
        let mut writer = Writer::for_worker(worker, options)?;
        let scans = self.scans(&writer, Faults::kept())?;
        let rules = self.cx.mount_rules(scan.record.no_prune);
        let (root, new) = open(&scans, &writer, &rules, scan)?;
        // The publisher finds faults of the root, too.
        scans.counts.set_back([0; 10]);
        scans.faults.take_kept();
        let record = new.scan.clone().unwrap_or_default();
        let begun = writer.add_source(NewSource { name: scan.name.clone(), ..new })?;
        let left = Mutex::new(Left::default());
        let others_list = |path: SourcePath<'_>, depth: u32| {
            let is_left = part.is_first() && depth == scan.level
                || worker.should_share()
                || self.cx.cancel.is_requested();
            is_left && left.lock().add(path)
        };
        let selection = selection(&part.paths);
        let listed = Subtree { selection: &selection, known: &Nothing, others: Some(&others_list) };
        let writers = scans.walk(&writer, begun, root, Some(listed), &rules, &record)?;
        let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let kept = scans.faults.take_kept();
        let none = Shortfalls::new(&Counts::default(), BTreeMap::new(), Vec::new());
        let outcome = PartOutcome {
            entries: count(&scans.counts.entries),
            directories: count(&scans.counts.directories),
            counts: others(&scans.counts).map(count).to_vec(),
            faults: kept.errors.into_iter().map(coded).collect(),
            faults_left_out: kept.left_out,
            missing: Shortfalls::new(&Counts::default(), BTreeMap::new(), rules.closed())
                .since(&none),
            left: parts(
                left.into_inner().paths,
                if part.is_first() { PARTS_MAX } else { SHARED_MAX },
            ),
        };
        writer.end_part(worker, part, begun, writers, outcome)?;
        Ok(())
    }

    /// Publishes the parts of all workers.
    fn publish(&self, worker: &Worker) -> anyhow::Result<Scanned> {
        let scan = worker.scan();
        let options = options(self.request, scan);
        let mut writer = loop {
            match Writer::for_publisher(worker, options.clone()) {
                // By one that was taken for dead, maybe.
                Err(Error::Locked(_)) if !self.cx.cancel.is_requested() => {
                    std::thread::sleep(LOOKED_EVERY);
                }
                opened => break opened?,
            }
        };
        let faults = Faults::new(self.request.errors.as_deref(), writer.path(), None)?;
        let scans = self.scans(&writer, faults)?;
        let rules = self.cx.mount_rules(scan.record.no_prune);
        let before = scans.shortfalls(&writer, &rules);
        let (root, new) = open(&scans, &writer, &rules, scan)?;
        let (base, escaped) = (root.path.clone(), new.root.clone());
        let record = new.scan.clone().unwrap_or_default();
        let new = NewSource { name: scan.name.clone(), scanned_ns: scan.begun_ns, ..new };
        let begun = writer.add_source(new)?;
        let mut missing = BTreeSet::new();
        let anew = writer.take_in_parts(begun, worker, |outcome| {
            let &PartOutcome { entries, directories, ref counts, .. } = outcome;
            let counts = counts.clone();
            let counted = Unfinished { entries, directories, counts, ..Unfinished::default() };
            add_counts(&scans.counts, &counted);
            missing.extend(outcome.missing.iter().cloned());
            for (path, code, errno) in &outcome.faults {
                let fault = decoded(*code, *errno);
                let path = SourcePathBuf::escaped(escape(path).into_owned());
                scans.faults.add(&base, &ScanError { path, fault });
            }
            scans.faults.leave_out(outcome.faults_left_out);
        })?;
        match anew.is_empty() {
            true => writer.finish_shards(writer.shard_writers(begun))?,
            false => {
                let selection = selection(&anew);
                let all = |_: SourcePath<'_>, _: u32| false;
                let part = Subtree { selection: &selection, known: &Nothing, others: Some(&all) };
                scans.scan(&writer, begun, root, Some(part), &rules, &record)?;
            }
        }
        if scans.counts.partial.load(Ordering::Relaxed) > 0 {
            writer.note_partial(begun);
        }
        missing.extend(scans.shortfalls(&writer, &rules).since(&before));
        if !missing.is_empty() {
            let missing = missing.into_iter().collect::<Vec<_>>();
            writer.record_incomplete(&escaped, missing.join("; "));
        }
        writer.forget_failure(&escaped);
        let (published, are_complete) = publish_changes(self.cx, writer, self.request.threads)?;
        let Scans { counts, faults, .. } = scans;
        let listed = faults.finish(self.cx, &counts);
        if let Err(error) = &listed {
            self.cx.warn(format_args!("{error:#}"));
        }
        if !one_reader() {
            warn_of_mounts(self.cx, &rules.closed());
        }
        let is_shown = warn_of(self.cx, &published);
        let is_complete = counts.faults() == 0 && is_shown && listed.is_ok() && are_complete;
        let roots = vec![escaped];
        Ok(Scanned { published, counts, resumed: None, failed: Vec::new(), roots, is_complete })
    }

    fn scans(&self, writer: &Writer, faults: Faults) -> anyhow::Result<Scans<'_>> {
        Scans::new(
            self.cx,
            writer,
            self.request.memory_bytes,
            self.request.threads,
            self.request.rate_max,
            faults,
        )
    }
}

/// Opens the root of the source.
fn open(
    scans: &Scans<'_>,
    writer: &Writer,
    rules: &MountRules,
    scan: &SharedScan,
) -> anyhow::Result<(Root, NewSource)> {
    let path = PathBuf::from(OsStr::from_bytes(&unescape(&scan.root)));
    check_links(&path)?;
    let (root, new) = scans.open(writer, &path, rules, &scan.record)?;
    anyhow::ensure!(
        root.dev == scan.dev,
        "{} has the device number {} here and {} where its scan was begun, so that hard links could \
         not be told",
        path.display(),
        root.dev,
        scan.dev
    );
    Ok((root, new))
}

fn selection(paths: &[SourcePathBuf]) -> Selection {
    let mut selection = Selection::default();
    paths.iter().for_each(|path| selection.add(path.as_path(), true));
    selection
}

/// Directories that are left to others.
#[derive(Default)]
struct Left {
    paths: Vec<SourcePathBuf>,
    bytes: usize,
}

impl Left {
    /// Returns whether another one is left to others, too: all that take a part read of them.
    fn add(&mut self, path: SourcePath<'_>) -> bool {
        let length = path.as_str().len();
        let has_room = self.bytes + length <= LEFT_BYTES_MAX;
        if has_room {
            self.bytes += length;
            self.paths.push(path.to_buf());
        }
        has_room
    }
}

/// Divides directories into at most `parts_max` parts, each of directories that lie close together.
fn parts(mut paths: Vec<SourcePathBuf>, parts_max: usize) -> Vec<Vec<SourcePathBuf>> {
    paths.sort_unstable_by(|a, b| a.as_path().cmp(&b.as_path()));
    let size = paths.len().div_ceil(parts_max).max(1);
    paths.chunks(size).map(<[SourcePathBuf]>::to_vec).collect()
}

/// Returns an error as a part keeps it.
fn coded(error: ScanError) -> (Vec<u8>, u8, i32) {
    let (code, errno) = match error.fault {
        Fault::Failed(step, errno) => (step as u8, errno.raw_os_error()),
        Fault::Narrowed => (4, 0),
        Fault::Moved => (5, 0),
        Fault::LongPath => (6, 0),
    };
    (unescape(error.path.as_str()).into_owned(), code, errno)
}

fn decoded(code: u8, errno: i32) -> Fault {
    let step = match code {
        0 => Step::List,
        1 => Step::Look,
        2 => Step::ReadLink,
        3 => Step::Xattrs,
        4 => return Fault::Narrowed,
        5 => return Fault::Moved,
        _ => return Fault::LongPath,
    };
    Fault::Failed(step, Errno::from_raw_os_error(errno))
}

/// Knows no listing of the source, which others list.
struct Nothing;

impl Known for Nothing {
    fn subdirectories(&self, _: SourcePath<'_>) -> HashMap<String, Attributes> {
        HashMap::new()
    }

    fn has(&self, _: SourcePath<'_>, _: Device, _: u64, _: &Access) -> bool {
        true
    }

    fn replaces(&self, _: SourcePath<'_>) {}

    fn has_unread(&self, _: &Listing<'_>, _: &mut dyn FnMut(&str) -> Option<Attributes>) -> bool {
        false
    }

    fn keeps(&self, _: &Listing<'_>) -> u64 {
        0
    }
}

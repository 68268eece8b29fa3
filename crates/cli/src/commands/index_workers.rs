//! `canopy index --level`, `--worker`: a scan that several processes share, on any machines that see
//! the source and the index.
//!
//! 1. One begins it, the others join.
//! 2. Each lists parts as long as there are any that nobody has, leaves to others what is deep
//!    enough (of the whole source) or what it has not begun when others have nothing to do, and ends
//!    each part by itself.
//! 3. The last one publishes all of them.

use super::building::publish_changes;
use super::index::Arguments;
use super::index_faults::{self, Faults, Shortfalls};
use super::index_summary::Summary;
use super::info::count_of;
use super::resuming::{self, add_counts, others};
use super::scanning::{Scans, one_reader, scan_threads};
use crate::config::settings;
use crate::options::now_ns;
use crate::outcome::{Outcome, message, note, warn_of};
use crate::{Engine, counted, interrupt, places};
use anyhow::Context;
use canopy_as_user::subordinate_uids;
use canopy_index::{
    Error, NewSource, Next, PartOutcome, ScanPart, SharedProgress, SharedScan, Unfinished, Worker,
    Writer, WriterOptions,
};
use canopy_model::{Access, Attributes, Listing, OwnerLimits, unescape};
use canopy_scan::{Counts, Fault, Known, MountRules, Root, ScanError, Selection, Step, Subtree};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How many parts a worker leaves to others of the whole source, and of what it has not begun.
const PARTS_MAX: usize = 64;
const SHARED_MAX: usize = 8;

/// Most bytes of paths of directories that a worker leaves to others; it lists the rest itself.
const LEFT_BYTES_MAX: usize = 16 << 20;

/// How long to wait for who writes the index, who may be about to begin the same.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOKED_EVERY: Duration = Duration::from_millis(100);

/// Works until the scan is published.
pub fn run(location: &Path, arguments: &Arguments, engine: &Engine) -> anyhow::Result<Outcome> {
    if let Some(parent) = arguments.errors.as_deref().and_then(Path::parent) {
        let is_there = parent.as_os_str().is_empty() || parent.is_dir();
        anyhow::ensure!(is_there, "--errors: there is no directory {}", parent.display());
    }
    let workers = usize::from(arguments.workers);
    let threads = (scan_threads(arguments.threads) / workers.max(1)).max(1);
    interrupt::watch()?;
    if arguments.level.is_some() {
        begin(location, arguments, threads)?;
    }
    if workers == 0 {
        let left = left(location).unwrap_or_else(|| "1 part".to_owned());
        note(format_args!(
            "the scan is begun, with {left} left; 'canopy index --worker' works on it, here and on \
             other machines"
        ));
        return Ok(Outcome::Complete);
    }
    let mut others = Vec::new();
    for _ in 1..workers {
        others.push(other_worker(location, arguments, threads)?);
    }
    let outcome = Sharer { location, arguments, engine, threads }.work();
    for mut other in others {
        let ended = other.wait().context("cannot wait for a worker")?;
        if outcome.is_ok() && ended.code() == Some(1) {
            return Ok(Outcome::Partial);
        }
    }
    outcome
}

/// Returns how many parts are left of the scan that workers share.
fn left(location: &Path) -> Option<String> {
    SharedProgress::of(location).map(|it| counted(it.parts_left, "part"))
}

/// Starts another worker on this machine.
fn other_worker(location: &Path, arguments: &Arguments, threads: usize) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot tell which program this is")?;
    let mut command = Command::new(program);
    command.arg("--index").arg(location).args(["index", "--worker", "--started", "--threads"]);
    command.arg(threads.to_string()).args(["--memory", &arguments.memory.to_string()]);
    command.args(["--beat", &arguments.beat.to_string()]);
    command.args(arguments.quiet.then_some("--quiet")).args(arguments.json.then_some("--json"));
    if let Some(errors) = &arguments.errors {
        command.arg("--errors").arg(errors);
    }
    command.args(arguments.max_rate.map(|rate| format!("--max-rate={rate}")));
    command.stdin(Stdio::null()).spawn().context("cannot start a worker")
}

/// Begins a scan, unless it was begun.
fn begin(location: &Path, arguments: &Arguments, threads: usize) -> anyhow::Result<()> {
    let [path] = &arguments.paths[..] else { anyhow::bail!("--level is for one PATH") };
    places::check_links(path)?;
    let rules = rules(arguments.no_prune);
    let options = WriterOptions {
        gives_up_shared: arguments.restart,
        ..options(arguments, threads, &SharedScan::default())
    };
    let begun = Instant::now();
    let mut writer = loop {
        let known = match arguments.restart {
            true => None,
            false => SharedScan::read(location).map_err(|error| unreadable(error, location))?,
        };
        if let Some(known) = known {
            let root = Root::open(path, &Default::default(), &rules)?;
            let wanted = wanted(arguments, &root, path);
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
                if begun.elapsed() < PATIENCE && !interrupt::asked() =>
            {
                std::thread::sleep(LOOKED_EVERY);
            }
            opened => break opened?,
        }
    };
    writer.give_up_unfinished()?;
    let root = Root::open(path, writer.classes(), &rules)?;
    writer.share(wanted(arguments, &root, path))?;
    Ok(())
}

/// Says what to do where what workers share cannot be read: the rest of the index is sound.
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

/// Returns what is asked for.
fn wanted(arguments: &Arguments, root: &Root, path: &Path) -> SharedScan {
    let limits = arguments.limits.given();
    SharedScan {
        root: root.escaped_path(),
        dev: root.dev,
        name: arguments.name_of(path),
        record: arguments.record(path),
        level: arguments.level.map_or(1, Into::into),
        limits: limits.map(|limits| (limits.classes as u64, limits.names as u64)),
        retention: arguments.keep.clone(),
        asked: asked(),
        begun_ns: now_ns(),
        ..SharedScan::default()
    }
}

/// Returns what else a scan depends on.
fn asked() -> String {
    resuming::asked(serde_json::Value::Null)
}

fn rules(no_prune: bool) -> MountRules {
    MountRules::new(settings().trust_fs.clone().unwrap_or_default(), no_prune)
}

fn options(arguments: &Arguments, threads: usize, scan: &SharedScan) -> WriterOptions {
    let limits = scan.limits.map(|(classes, names)| (classes as usize, names as usize));
    WriterOptions {
        memory_bytes: arguments.memory,
        threads,
        limits: limits.map(|(classes, names)| OwnerLimits { classes, names }),
        holders: subordinate_uids(),
        copied_rows_max: arguments.copied_rows,
        retention: scan.retention.clone(),
        ..WriterOptions::default()
    }
}

/// One process that shares a scan.
struct Sharer<'a> {
    location: &'a Path,
    arguments: &'a Arguments,
    engine: &'a Engine,
    threads: usize,
}

impl Sharer<'_> {
    fn work(&self) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        let mut joined = false;
        while !interrupt::asked() {
            let beat = Duration::from_millis(self.arguments.beat.max(1));
            let joined_now = Worker::join(self.location, beat);
            let joined_now = joined_now.map_err(|error| unreadable(error, self.location))?;
            let Some(mut worker) = joined_now else {
                anyhow::ensure!(!joined, "the scan was given up");
                break;
            };
            joined = true;
            anyhow::ensure!(
                worker.scan().asked == asked(),
                "this canopy is another version than that which began the scan, or configured \
                 otherwise"
            );
            let ended = self.work_as(&mut worker, begun);
            if let Ok(Some(outcome)) = ended {
                return Ok(outcome);
            }
            if let Some(generation) = worker.published() {
                // Whoever published may not have come to cleaning up.
                drop(Writer::open(self.location, WriterOptions::default()));
                self.report(format_args!("generation {generation} is published"));
                return Ok(Outcome::Complete);
            }
            // Somebody else goes on with what this one had; there may be more to do.
            if !worker.is_lost() && !interrupt::asked() {
                ended?;
            }
        }
        if interrupt::asked() {
            interrupt::go_on_to_the_end();
            let continued = match left(self.location) {
                Some(left) => format!("{left} left; 'canopy index --worker' goes on with it"),
                None => "'canopy index --worker' goes on where this one ended".to_owned(),
            };
            interrupt::end(Some(&continued));
        }
        if canopy_index::is_there(self.location)? {
            // One of another format has no scan that could be joined.
            drop(canopy_index::Index::open(self.location)?);
        }
        self.report(format_args!("there is no scan to join: it is published, or was given up"));
        Ok(Outcome::Complete)
    }

    /// Prints how the scan ended, unless a parent process started this worker and prints it.
    fn report(&self, what: std::fmt::Arguments<'_>) {
        if !self.arguments.started {
            note(what);
        }
    }

    /// Works until nothing is left; returns what became of the scan if this worker published it.
    fn work_as(&self, worker: &mut Worker, begun: Instant) -> anyhow::Result<Option<Outcome>> {
        while !interrupt::asked() {
            match worker.find_work()? {
                Next::Part(part) => self.list(worker, &part)?,
                Next::Publish => return self.publish(worker, begun).map(Some),
                Next::Wait => std::thread::sleep(worker.pause()),
                Next::Over => break,
            }
        }
        Ok(None)
    }

    /// Lists a part.
    fn list(&self, worker: &Worker, part: &ScanPart) -> anyhow::Result<()> {
        let scan = worker.scan();
        let options = options(self.arguments, self.threads, scan);
        let mut writer = Writer::for_worker(worker, options)?;
        let scans = self.scans(&writer, Faults::kept())?;
        let rules = rules(scan.record.no_prune);
        let (root, new) = open(&scans, &writer, &rules, scan)?;
        // What is wrong with the root itself, who publishes finds, too.
        scans.counts.set_back([0; 10]);
        scans.faults.take_kept();
        let record = new.scan.clone().unwrap_or_default();
        let begun = writer.add_source(NewSource { name: scan.name.clone(), ..new })?;
        let left = Mutex::new(Left::default());
        let others_list = |path: &str, depth: u32| {
            let is_left = part.is_first() && depth == scan.level
                || worker.should_share()
                || interrupt::asked();
            is_left && left.lock().add(path)
        };
        let selection = selection(&part.paths);
        let listed = Subtree { selection: &selection, known: &Nothing, others: Some(&others_list) };
        let writers = scans.walk(&writer, begun, (root, Some(listed)), &rules, &record)?;
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
        writer.end_part((worker, part), begun, writers, outcome)?;
        Ok(())
    }

    /// Publishes what all have listed.
    #[expect(clippy::too_many_lines, reason = "one course of steps")]
    fn publish(&self, worker: &Worker, started: Instant) -> anyhow::Result<Outcome> {
        let scan = worker.scan();
        let options = options(self.arguments, self.threads, scan);
        let mut writer = loop {
            match Writer::for_publisher(worker, options.clone()) {
                // By one that was taken for dead, maybe.
                Err(Error::Locked(_)) if !interrupt::asked() => {
                    std::thread::sleep(LOOKED_EVERY);
                }
                opened => break opened?,
            }
        };
        let faults = Faults::new(self.arguments.errors.as_deref(), writer.path(), None)?;
        let scans = self.scans(&writer, faults)?;
        let rules = rules(scan.record.no_prune);
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
                scans.faults.add(&base, &ScanError { path: path.clone(), fault });
            }
            scans.faults.leave_out(outcome.faults_left_out);
        })?;
        match anew.is_empty() {
            true => writer.finish_shards(writer.shard_writers(begun))?,
            false => {
                let selection = selection(&anew);
                let all = |_: &str, _: u32| false;
                let part = Subtree { selection: &selection, known: &Nothing, others: Some(&all) };
                scans.scan(&writer, begun, (root, Some(part)), &rules, &record)?;
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
        let (published, derived) = publish_changes(writer, Some(self.engine), self.threads)?;
        let Scans { counts, faults, .. } = scans;
        let listed = faults.finish(&counts);
        if let Err(error) = &listed {
            message(format_args!("{error:#}"));
        }
        if !one_reader() {
            index_faults::warn_of_mounts(&rules.closed());
        }
        let told = warn_of(&published);
        let complete = counts.faults() == 0 && told == Outcome::Complete && listed.is_ok();
        let summary = Summary {
            published: &published,
            counts: &counts,
            seconds: started.elapsed().as_secs_f64(),
            resumed: None,
            failed: &[],
            held: count_of(self.location, std::slice::from_ref(&escaped)),
            sources: &[escaped],
            is_complete: complete && derived == Outcome::Complete,
        };
        match (self.arguments.json, self.arguments.quiet) {
            (true, _) => summary.print_json()?,
            (false, false) => summary.print()?,
            (false, true) => {}
        }
        Ok(if complete { derived } else { Outcome::Partial })
    }

    fn scans(&self, writer: &Writer, faults: Faults) -> anyhow::Result<Scans> {
        let memory = (self.arguments.memory, self.threads);
        Scans::new(writer, memory, self.arguments.max_rate, faults)
    }
}

/// Opens the root of the source.
fn open(
    scans: &Scans,
    writer: &Writer,
    rules: &MountRules,
    scan: &SharedScan,
) -> anyhow::Result<(Root, NewSource)> {
    let path = PathBuf::from(OsStr::from_bytes(&unescape(&scan.root)));
    places::check_links(&path)?;
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

fn selection(paths: &[String]) -> Selection {
    let mut selection = Selection::default();
    paths.iter().for_each(|path| selection.add(path, true));
    selection
}

/// Directories that are left to others.
#[derive(Default)]
struct Left {
    paths: Vec<String>,
    bytes: usize,
}

impl Left {
    /// Returns whether another one is left to others, too: all that take a part read of them.
    fn add(&mut self, path: &str) -> bool {
        let has_room = self.bytes + path.len() <= LEFT_BYTES_MAX;
        if has_room {
            self.bytes += path.len();
            self.paths.push(path.to_owned());
        }
        has_room
    }
}

/// Returns parts of these directories, so many at most, each of some that lie close together.
fn parts(mut paths: Vec<String>, parts_max: usize) -> Vec<Vec<String>> {
    paths.sort_unstable();
    let size = paths.len().div_ceil(parts_max).max(1);
    paths.chunks(size).map(<[String]>::to_vec).collect()
}

/// Returns an error as a part keeps it.
fn coded(error: ScanError) -> (Vec<u8>, u8, i32) {
    let (code, errno) = match error.fault {
        Fault::Failed(step, errno) => (step as u8, errno.raw_os_error()),
        Fault::Narrowed => (4, 0),
        Fault::Moved => (5, 0),
        Fault::LongPath => (6, 0),
    };
    (error.path, code, errno)
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

/// Knows nothing of the rest of a source, which others list.
struct Nothing;

impl Known for Nothing {
    fn subdirectories(&self, _: &str) -> HashMap<String, Attributes> {
        HashMap::new()
    }

    fn has(&self, _: &str, _: u64, _: u64, _: &Access) -> bool {
        true
    }

    fn replaces(&self, _: &str) {}

    fn has_unread(&self, _: &Listing<'_>, _: &mut dyn FnMut(&str) -> Option<Attributes>) -> bool {
        false
    }

    fn keeps(&self, _: &Listing<'_>) -> u64 {
        0
    }
}

//! The point where all events come together, and batches of suspects go out.
//!
//! Sources of changes (the kernel, a file of events) add suspects from their own threads. One
//! thread takes them out in batches and has the index follow. A batch stays in the journal until
//! the generation that contains it is durable. Suspects that arrive meanwhile wait for the next
//! one.
//!
//! Why nothing is missed: a suspect is taken out before its directory is listed. So a change that
//! the listing did not see yet happened after that, and is reported later, as a suspect again.

use crate::error::{Error, Result};
use crate::journal::{Journal, Position, Recovered};
use crate::mounts::is_entered;
use crate::requests::{
    Answer, Cost, Counts, Failure, Queue, RequestedDirectory, Round, Share, Slip,
};
use crate::suspects::{Added, Suspect, Suspects};
use crate::territory::Territory;
use canopy_model::Generation;
use canopy_scan::{Mount, MountRules};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::BTreeSet;
use std::io::{PipeReader, PipeWriter};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Beyond so many inodes with several names, all of a root is looked at again.
const LINKS_MAX: usize = 100_000;

/// Bytes of the longest path that the kernel tells.
const TOLD_BYTES_MAX: usize = libc::PATH_MAX as usize - 1;

/// Between two rounds of requests at least so much time goes by, as many generations cost space.
const ROUNDS_EVERY: Duration = Duration::from_secs(1);

/// How batches follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    /// A change waits no longer than this until it is in the index, as far as that can be kept.
    pub interval: Duration,
}

impl Pacing {
    /// Where nothing else happens for so long, waiting would not save anything.
    fn quiet(self) -> Duration {
        (self.interval / 10).min(Duration::from_millis(250))
    }

    /// How long a source whose suspects could not be dealt with is left alone.
    fn patience(self, failures: u32) -> Duration {
        (self.interval.max(Duration::from_secs(1)) * 2_u32.saturating_pow(failures.min(10)) / 2)
            .min(Duration::from_secs(300))
    }
}

/// Settings of an intake.
pub struct Scope {
    /// The trees that are followed.
    pub territory: Territory,
    /// Rules for the mounts that a scan enters.
    pub rules: MountRules,
    /// Whether scans stay on the file system of each root.
    pub one_file_system: bool,
    /// Most suspects that are kept of each root.
    pub suspects_max: usize,
    /// Bytes of the longest path below a root that a scan reads.
    pub path_bytes_max: usize,
}

/// Numbers of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Events of any kind.
    pub events: u64,
    /// Those of directories outside of all roots.
    pub elsewhere: u64,
    /// Those of directories that are gone.
    pub gone: u64,
    /// Those of directories whose paths could not be told, which made all suspect.
    pub unresolved: u64,
    /// How often events were lost, which made all suspect.
    pub overflows: u64,
    /// Lines that could not be read, which made all suspect.
    pub bad_lines: u64,
    /// Handles whose paths were known.
    pub cache_hits: u64,
    /// Handles whose paths the kernel was asked for.
    pub cache_misses: u64,
}

impl EventCounts {
    fn add(&mut self, more: EventCounts) {
        self.events += more.events;
        self.elsewhere += more.elsewhere;
        self.gone += more.gone;
        self.unresolved += more.unresolved;
        self.overflows += more.overflows;
        self.bad_lines += more.bad_lines;
        self.cache_hits += more.cache_hits;
        self.cache_misses += more.cache_misses;
    }
}

/// The meeting place of threads; see the module.
pub struct Intake {
    scope: Scope,
    state: Mutex<State>,
    changed: Condvar,
    is_stopped: AtomicBool,
    /// Has something to read once the intake is stopped.
    stopped: PipeReader,
    stop: Mutex<Option<PipeWriter>>,
}

struct State {
    sources: Vec<Source>,
    /// Change logs of which records come.
    logs: Vec<LogRead>,
    journal: Journal,
    journal_error: Option<String>,
    unresolved: Option<String>,
    position: Option<Position>,
    heard: EventCounts,
    /// When a suspect came last.
    last_added: Instant,
    /// No batch before this.
    rests_until: Instant,
    /// How long a batch takes, of late.
    expected: Duration,
    generation: Option<Generation>,
    batches: u64,
    applied: u64,
    requests: Queue,
    /// No round of requests before this.
    requests_rest_until: Instant,
    /// Whether requests come first where changes are due, too.
    is_turn_of_requests: bool,
}

/// The next work to do.
#[derive(Debug)]
pub enum Work {
    /// A batch for each root that has suspects.
    Changes(Vec<Batch>),
    /// Requests of users.
    Requests(Round),
}

/// How far a change log was read.
struct LogRead {
    name: Vec<u8>,
    /// All records up to here have been taken in.
    taken_in: Option<u64>,
    /// The index has all records up to here, according to the journal.
    noted: Option<u64>,
}

impl LogRead {
    /// Returns the part of the name that people know.
    fn shown(&self) -> String {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }
}

/// Age of suspects that wait and have not become part of the index.
#[derive(Clone)]
struct Waiting {
    /// Arrival of the oldest.
    since: Instant,
    /// Record up to which each log had been taken in before that.
    logs: Vec<Option<u64>>,
}

/// State of one root.
struct Source {
    pending: Suspects,
    /// Age of the waiting suspects, if there are any.
    waiting: Option<Waiting>,
    /// Inodes with several names. Each directory that holds another name of theirs is suspect.
    links: BTreeSet<u64>,
    /// Suspects of the root in the batch under way.
    in_flight: Vec<Suspect>,
    links_in_flight: BTreeSet<u64>,
    waiting_in_flight: Option<Waiting>,
    failures: u32,
    not_before: Instant,
    last_error: Option<String>,
}

/// Directories of one root to be looked at again now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The root, by number.
    pub source: usize,
    /// In path order.
    pub suspects: Vec<Suspect>,
    /// Inodes that changed and may have other names here than the reported one. Wherever the index
    /// has one of these names, that directory is suspect.
    pub links: Vec<u64>,
}

/// One root as it is at the moment.
#[derive(Clone, Debug)]
pub struct SourceState {
    /// Its path.
    pub root: Vec<u8>,
    /// Suspects that wait, or are being dealt with.
    pub suspects: usize,
    /// How long the oldest of them has been waiting.
    pub lag: Option<Duration>,
    /// Why the last attempt failed, if it did.
    pub last_error: Option<String>,
}

/// The state of the intake at one moment.
#[derive(Clone, Debug)]
pub struct IntakeState {
    /// The roots.
    pub sources: Vec<SourceState>,
    /// Events since the start.
    pub heard: EventCounts,
    /// The generation that the last batch became.
    pub generation: Option<Generation>,
    /// Batches that were dealt with.
    pub batches: u64,
    /// Suspects that were dealt with.
    pub applied: u64,
    /// The reason why the journal could not be written, if that failed last.
    pub journal_error: Option<String>,
    /// The reason why a path could not be resolved, if that ever failed.
    pub unresolved: Option<String>,
    /// Requests of users.
    pub requests: Counts,
    /// Change logs, each with the record up to which the index has it.
    pub logs: Vec<(String, Option<u64>)>,
}

impl Intake {
    /// Begins with what a journal had.
    pub fn new(scope: Scope, journal: Journal, recovered: Recovered) -> Result<Self> {
        let (stopped, stop) = std::io::pipe().map_err(Error::io("make", Path::new("a pipe")))?;
        let now = Instant::now();
        let source = |root: &Vec<u8>| Source {
            pending: Suspects::new(root, scope.suspects_max),
            waiting: None,
            links: BTreeSet::new(),
            in_flight: Vec::new(),
            links_in_flight: BTreeSet::new(),
            waiting_in_flight: None,
            failures: 0,
            not_before: now,
            last_error: None,
        };
        let sources = scope.territory.roots().iter().map(source).collect();
        let mut state = State {
            sources,
            logs: Vec::new(),
            journal,
            journal_error: None,
            unresolved: None,
            position: recovered.position,
            heard: EventCounts::default(),
            last_added: now,
            rests_until: now,
            expected: Duration::ZERO,
            generation: None,
            batches: 0,
            applied: 0,
            requests: Queue::default(),
            requests_rest_until: now,
            is_turn_of_requests: false,
        };
        state.add(&scope, &recovered.suspects, now);
        let logs = recovered.logs.into_iter();
        let logs = logs.map(|(name, index)| LogRead { name, taken_in: None, noted: Some(index) });
        state.logs = logs.collect();
        let intake = Intake {
            scope,
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
            stopped,
            stop: Mutex::new(Some(stop)),
        };
        intake.take_in_links(&recovered.links);
        Ok(intake)
    }

    /// Returns what is followed.
    pub fn territory(&self) -> &Territory {
        &self.scope.territory
    }

    /// Returns which mounts are entered, and whether scans stay on one file system.
    pub fn mount_rules(&self) -> (&MountRules, bool) {
        (&self.scope.rules, self.scope.one_file_system)
    }

    /// Returns by how many levels the path of a directory that a scan reads may be longer than the
    /// kernel tells paths.
    pub(crate) fn levels_max(&self) -> usize {
        let root = self.scope.territory.roots().iter().map(Vec::len).max().unwrap_or_default();
        // Each level has a slash and a name.
        (root + 1 + self.scope.path_bytes_max).saturating_sub(TOLD_BYTES_MAX).div_ceil(2)
    }

    /// Returns how far a file of events was read.
    pub fn position(&self) -> Option<Position> {
        self.state.lock().position
    }

    /// Takes suspects in. Those outside of all roots are dropped.
    pub fn take_in(&self, suspects: &[Suspect], heard: EventCounts) {
        self.take_in_up_to(suspects, heard, None);
    }

    /// Like `take_in`, for a file of events that was read up to `position`.
    pub fn take_in_up_to(
        &self,
        suspects: &[Suspect],
        heard: EventCounts,
        position: Option<Position>,
    ) {
        let mut state = self.state.lock();
        state.heard.add(heard);
        let new = state.add(&self.scope, suspects, Instant::now());
        state.position = position.or(state.position);
        state.append(&new, &[], position);
        if !new.is_empty() {
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Makes all roots suspect as a whole.
    pub fn suspect_all(&self) {
        self.take_in(&self.scope.territory.all_suspect(), EventCounts::default());
    }

    /// Notes why the path of a directory could not be told.
    pub(crate) fn note_unresolved(&self, error: &std::io::Error) {
        self.state.lock().unresolved = Some(error.to_string());
    }

    /// Takes inodes in that changed and have several names, of which one was told, or none.
    pub fn take_in_links(&self, inodes: &[u64]) {
        if inodes.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let now = Instant::now();
        let mut all = Vec::new();
        let is_new =
            |inode: &&u64| state.sources.iter().any(|source| !source.links.contains(inode));
        let new = Vec::from_iter(inodes.iter().filter(is_new).copied());
        state.append(&[], &new, None);
        let waiting = state.waiting(now);
        for (source, root) in state.sources.iter_mut().zip(self.scope.territory.roots()) {
            source.waiting.get_or_insert_with(|| waiting.clone());
            source.links.extend(&new);
            if source.links.len() > LINKS_MAX {
                source.links.clear();
                all.push(Suspect { path: root.clone(), recursive: true });
            }
        }
        drop(state);
        self.take_in(&all, EventCounts::default());
        self.changed.notify_all();
    }

    /// Begins to follow change logs, by names that no other log has, nor one of other trees. Returns
    /// up to which record the index has each, as far as a journal has told.
    pub(crate) fn follow_logs(&self, names: Vec<Vec<u8>>) -> Vec<Option<u64>> {
        let mut state = self.state.lock();
        let known = std::mem::take(&mut state.logs);
        let noted = |name: &Vec<u8>| known.iter().find(|log| log.name == *name)?.noted;
        let logs = names.into_iter().map(|name| {
            let noted = noted(&name);
            LogRead { name, taken_in: None, noted }
        });
        state.logs = logs.collect();
        state.logs.iter().map(|log| log.noted).collect()
    }

    /// Notes that all records of a log have been taken in up to one, with what they made suspect.
    pub(crate) fn take_in_records(&self, log: usize, up_to: Option<u64>) {
        self.state.lock().logs[log].taken_in = up_to;
    }

    /// Notes that a log is another one than it was, with other numbers; all that is known of it no
    /// longer counts.
    pub(crate) fn forget_log(&self, log: usize) {
        let mut state = self.state.lock();
        for source in &mut state.sources {
            for waiting in source.waiting.iter_mut().chain(&mut source.waiting_in_flight) {
                waiting.logs.get_mut(log).map(Option::take);
            }
        }
        (state.logs[log].taken_in, state.logs[log].noted) = (None, None);
        state.rewrite();
    }

    /// Returns up to which record of a log the index has all for good, and writes that into the
    /// journal.
    pub(crate) fn note_log(&self, log: usize) -> Option<u64> {
        let mut state = self.state.lock();
        let durable = state.durable(log)?;
        if state.logs[log].noted != Some(durable) {
            state.logs[log].noted = Some(durable);
            let name = state.logs[log].name.clone();
            let written = state.journal.append_log(&name, durable);
            if written.is_err() {
                state.note(written);
            }
        }
        Some(durable)
    }

    /// Waits until something is due, for `limit` at most, and takes out all that may be dealt with
    /// now. It must be finished before the next call. Changes and requests take turns.
    pub fn next(&self, pacing: Pacing, limit: Duration) -> Option<Work> {
        let until = Instant::now() + limit;
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            if self.is_stopped() || now >= until {
                return None;
            }
            let changes = state.due(pacing);
            let requests = state.requests.due(now).map(|due| due.max(state.requests_rest_until));
            let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
            if is_due(requests) && (state.is_turn_of_requests || !is_due(changes)) {
                state.is_turn_of_requests = false;
                if let Some(round) = state.requests.take(now) {
                    return Some(Work::Requests(round));
                }
            }
            if is_due(changes) {
                state.is_turn_of_requests = true;
                return Some(Work::Changes(state.take_out(now)));
            }
            let wake = [changes, requests].into_iter().flatten().fold(until, Instant::min);
            self.changed.wait_until(&mut state, wake);
        }
    }

    /// Takes in the request of a user to list a directory again; returns where the answer will be,
    /// or the answer. `mounts` are those of this moment.
    pub(crate) fn request(
        &self,
        uid: u32,
        asked: RequestedDirectory,
        mounts: &[Mount],
    ) -> std::result::Result<Arc<Slip>, Answer> {
        let number = self.scope.territory.root_of(&asked.path).filter(|&number| {
            let root = &self.scope.territory.roots()[number];
            asked.path.len() <= root.len() + 1 + self.scope.path_bytes_max
                && is_entered(mounts, root, &asked.path, &self.scope.rules)
        });
        let mut state = self.state.lock();
        let added = match number {
            Some(number) => state.requests.add(uid, asked, number, Instant::now()),
            None => Err(Answer::Elsewhere),
        };
        state.requests.counts.refused += u64::from(added.is_err());
        drop(state);
        self.changed.notify_all();
        added
    }

    /// Notes that a request was refused ahead of all this.
    pub(crate) fn note_refusal(&self) {
        self.state.lock().requests.counts.refused += 1;
    }

    /// Notes that what a round of requests asked for is in a generation, what was listed for each of
    /// them, and how long all of it took.
    pub fn served(&self, round: Round, generation: Generation, shares: Vec<Share>, took: Duration) {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.requests.succeeded(round, generation, &Cost { shares, took }, now);
        state.requests_rest_until = now + took.max(ROUNDS_EVERY);
        state.generation = Some(generation);
    }

    /// Notes that a round of requests failed after some time.
    pub fn not_served(&self, round: Round, failure: Failure, took: Duration) {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.requests.end_failed_round(round, failure, took, now);
        state.requests_rest_until = now + took.max(ROUNDS_EVERY);
    }

    /// Notes that what nobody tells of, but was asked for, is in a generation.
    pub fn published(&self, generation: Generation) {
        let mut state = self.state.lock();
        state.generation = Some(generation);
        state.batches += 1;
    }

    /// Notes that a batch is in the index for good.
    pub fn succeeded(&self, batch: &Batch, generation: Generation) {
        self.advanced(batch, &[], generation);
    }

    /// Notes that a batch is in the index for good but for what is left of it, which waits again.
    pub fn advanced(&self, batch: &Batch, left: &[Suspect], generation: Generation) {
        let mut state = self.state.lock();
        let source = &mut state.sources[batch.source];
        source.in_flight.clear();
        source.links_in_flight.clear();
        let waiting = source.waiting_in_flight.take();
        if !left.is_empty() {
            for suspect in left {
                source.pending.add(suspect);
            }
            // The suspects that were taken out are older than those that came since.
            source.waiting = waiting.or(source.waiting.take());
        }
        source.failures = 0;
        source.last_error = None;
        state.generation = Some(generation);
        state.batches += 1;
        state.applied += batch.suspects.len().saturating_sub(left.len()) as u64;
        state.rewrite();
    }

    /// Queues the suspects of a failed batch again, to be retried after a pause.
    pub fn retry_later(&self, batch: &Batch, error: &str, pacing: Pacing) {
        let mut state = self.state.lock();
        let source = &mut state.sources[batch.source];
        source.put_back();
        source.failures += 1;
        source.not_before = Instant::now() + pacing.patience(source.failures);
        source.last_error = Some(error.to_owned());
    }

    /// Queues the suspects of a batch again that ended with the process, without counting a
    /// failure.
    pub fn put_back(&self, batch: &Batch) {
        self.state.lock().sources[batch.source].put_back();
    }

    /// Rests after all batches that were due took this long. At most half of the time goes into
    /// them, unless they take so long that waiting suspects would be old by then.
    pub fn rest(&self, took: Duration, pacing: Pacing) {
        let mut state = self.state.lock();
        state.expected = (state.expected + took) / 2;
        state.rests_until = Instant::now() + took.min(pacing.interval * 10);
    }

    /// Ends everything that waits here, and everything that only [`Intake::stopped`] signals to
    /// end.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.stop.lock().take();
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Returns whether all is to end.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Returns what poll(2) says is ready once all is to end.
    pub fn stopped(&self) -> BorrowedFd<'_> {
        self.stopped.as_fd()
    }

    /// Returns how all is at the moment; `None` if nothing can be told for a second, which means
    /// that a thread hangs.
    pub fn snapshot(&self) -> Option<IntakeState> {
        let state = self.state.try_lock_for(Duration::from_secs(1))?;
        Some(snapshot(&state, self.scope.territory.roots()))
    }
}

fn snapshot(state: &MutexGuard<'_, State>, roots: &[Vec<u8>]) -> IntakeState {
    let sources = state.sources.iter().zip(roots).map(|(source, root)| SourceState {
        root: root.clone(),
        suspects: source.len(),
        lag: source.oldest().map(|since| since.elapsed()),
        last_error: source.last_error.clone(),
    });
    IntakeState {
        sources: sources.collect(),
        heard: state.heard,
        generation: state.generation,
        batches: state.batches,
        applied: state.applied,
        journal_error: state.journal_error.clone(),
        unresolved: state.unresolved.clone(),
        requests: state.requests.counts,
        logs: state.logs.iter().map(|log| (log.shown(), log.noted)).collect(),
    }
}

impl State {
    /// Adds suspects, and returns those that were not known.
    fn add(&mut self, scope: &Scope, suspects: &[Suspect], now: Instant) -> Vec<Suspect> {
        let mut new: Vec<Suspect> = Vec::new();
        let waiting = self.waiting(now);
        for suspect in suspects {
            let Some(number) = scope.territory.root_of(&suspect.path) else { continue };
            let root = &scope.territory.roots()[number];
            // No scan reads what has a longer path.
            if suspect.path.len() > root.len() + 1 + scope.path_bytes_max {
                continue;
            }
            let source = &mut self.sources[number];
            if source.pending.add(suspect) == Added::New {
                source.waiting.get_or_insert_with(|| waiting.clone());
                new.push(suspect.clone());
            }
        }
        if !new.is_empty() {
            self.last_added = now;
        }
        new
    }

    /// Returns what is to be known of what begins to wait.
    fn waiting(&self, since: Instant) -> Waiting {
        Waiting { since, logs: self.logs.iter().map(|log| log.taken_in).collect() }
    }

    /// Returns up to which record of a log nothing waits.
    fn durable(&self, log: usize) -> Option<u64> {
        let waiting =
            self.sources.iter().flat_map(|one| one.waiting.iter().chain(&one.waiting_in_flight));
        let before = waiting.map(|waiting| waiting.logs.get(log).copied().flatten());
        // `None` is less than any.
        before.chain([self.logs[log].taken_in]).min().flatten()
    }

    /// Returns when the next batch is due; `None` if nothing waits.
    fn due(&self, pacing: Pacing) -> Option<Instant> {
        let patience = pacing.interval.saturating_sub(self.expected).max(pacing.interval / 5);
        let quiet = self.last_added + pacing.quiet();
        let due = self.sources.iter().filter_map(|source| {
            let latest = source.waiting.as_ref()?.since + patience;
            Some(quiet.min(latest).max(source.not_before))
        });
        due.min().map(|due| due.max(self.rests_until))
    }

    /// Takes out all that may be dealt with now.
    fn take_out(&mut self, now: Instant) -> Vec<Batch> {
        let mut batches = Vec::new();
        for (number, source) in self.sources.iter_mut().enumerate() {
            if source.waiting.is_none() || source.not_before > now {
                continue;
            }
            source.in_flight = source.pending.take();
            source.links_in_flight = std::mem::take(&mut source.links);
            source.waiting_in_flight = source.waiting.take();
            let suspects = source.in_flight.clone();
            let links = source.links_in_flight.iter().copied().collect();
            batches.push(Batch { source: number, suspects, links });
        }
        batches
    }

    /// Adds to the journal what is newly suspect.
    fn append(&mut self, suspects: &[Suspect], links: &[u64], position: Option<Position>) {
        let written = self.journal.append(suspects, links, position);
        // One that could not be written is not in order before it is written as a whole.
        if written.is_err() {
            self.note(written);
        }
        if self.journal.is_long() {
            self.rewrite();
        }
    }

    /// Replaces the journal by what is suspect now.
    fn rewrite(&mut self) {
        let mut all = Vec::new();
        let mut links = BTreeSet::new();
        for source in &self.sources {
            all.extend(source.in_flight.iter().cloned());
            all.extend(source.pending.iter());
            links.extend(source.links_in_flight.iter().chain(&source.links));
        }
        let links = Vec::from_iter(links);
        let logs = self.logs.iter().filter_map(|log| Some((log.name.clone(), log.noted?)));
        let logs = Vec::from_iter(logs);
        let written = self.journal.rewrite(&all, &links, self.position, &logs);
        self.note(written);
    }

    /// A journal that cannot be written stops nothing: what it lacks is known here, and after a
    /// restart more is looked at again.
    fn note(&mut self, written: Result<()>) {
        match written {
            Ok(()) => self.journal_error = None,
            Err(error) => self.journal_error = Some(with_source(&error)),
        }
    }
}

/// Returns what an error says, and why.
pub(crate) fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl Source {
    fn put_back(&mut self) {
        for suspect in std::mem::take(&mut self.in_flight) {
            self.pending.add(&suspect);
        }
        self.links.append(&mut self.links_in_flight);
        // The suspects that were taken out are older than those that came since.
        self.waiting = self.waiting_in_flight.take().or(self.waiting.take());
    }

    fn len(&self) -> usize {
        let links = self.links.len() + self.links_in_flight.len();
        self.pending.len() + self.in_flight.len() + links
    }

    fn oldest(&self) -> Option<Instant> {
        let waiting = self.waiting_in_flight.iter().chain(&self.waiting);
        waiting.map(|waiting| waiting.since).min()
    }
}

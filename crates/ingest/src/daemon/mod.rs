//! A daemon that has an index follow its sources: it hears of changes, lists the directories that
//! they concern again, and takes requests of users.
//!
//! A host passes a [`VerbRunner`], which carries out the verbs that change the index: [`InProcess`],
//! or one that starts processes (`verb` has the reasons for either). The daemon ends by the
//! [`Cancel`](crate::Cancel) of its context. One process may host several daemons, each of its own
//! index (`examples/twice.rs`).

mod apply;
mod followed;
mod in_process;
mod pulse;
mod verb;

pub use in_process::InProcess;
pub use pulse::Pulse;
pub use verb::{Verb, VerbCall, VerbResult, VerbRunner};

use crate::Context;
use crate::listing::path_bytes_max;
use apply::Applier;
use canopy_as_user::Accounts;
use canopy_index::{Writer, WriterOptions};
use canopy_model::escape;
use canopy_site::check_links;
use canopy_text::safe::one_line;
use canopy_watch::lustre::Log;
use canopy_watch::requests::{Failure, Round, Server};
use canopy_watch::status::{self, Reporter};
use canopy_watch::{
    Batch, EventCounts, EventFeed, Intake, Journal, Pacing, Scope, Suspect, Unfollowed, Work,
};
use followed::{
    ChangeSource, Listening, LustreLogs, Namespace, change_logs, followed, kernel, listen,
    territory, warn_of_watch_limits,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most suspects that are kept, of all sources together.
const SUSPECTS_MAX: usize = 100_000;

/// Time between two writes of the status.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Time between two checks whether the index needs compaction.
const COMPACTED_EVERY: Duration = Duration::from_secs(600);

/// Time between two portions of a compaction.
const PORTIONS_EVERY: Duration = Duration::from_secs(10);

/// Time limit for a round of requests of users.
const REQUESTS_TAKE: Duration = Duration::from_secs(30);

/// Longest time before a failed source of events is opened again.
const RETRIED_EVERY: Duration = Duration::from_secs(60);

/// Time without a sign of life of the updating thread after which the service manager gets no more
/// watchdog notifications.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Longest interval.
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);

/// How a daemon follows.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// Trees, and namespaces with `ns:` in front; without any, the configured sources.
    pub paths: Vec<PathBuf>,
    /// Time after which a change is in the index at the latest, where that is possible; at most a day.
    pub interval: Duration,
    /// File, FIFO or `-` that events are read from, instead of the kernel's.
    pub events: Option<PathBuf>,
    /// Change logs of Lustre that are followed.
    pub lustre: Vec<Log>,
    /// The program that reads and clears change logs.
    pub lfs: PathBuf,
    /// Whether nothing is scanned at the start.
    pub trust_index: bool,
    /// Whether the scan of a new source stays on one file system.
    pub one_file_system: bool,
    /// Entries that are looked at per second at most.
    pub rate_max: Option<NonZeroU32>,
    /// File for node_exporter.
    pub prometheus: Option<PathBuf>,
    /// Whether requests of users are refused.
    pub no_requests: bool,
}

impl DaemonOptions {
    /// Returns options for a daemon that follows these trees by the kernel's events, and takes no
    /// requests.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        DaemonOptions {
            paths,
            interval: Duration::from_secs(5),
            events: None,
            lustre: Vec::new(),
            lfs: "lfs".into(),
            trust_index: false,
            one_file_system: false,
            rate_max: None,
            prometheus: None,
            no_requests: true,
        }
    }
}

/// An event for the service manager of a daemon.
pub enum Event<'a> {
    /// The daemon follows.
    Ready,
    /// The daemon ends.
    Stopping,
    /// The daemon has written this status document.
    Status(&'a Value),
    /// The index still follows.
    Alive,
}

/// Makes an index where there is none, and returns its real path. Fails where the caller may not
/// write.
fn ensure_index(location: &Path) -> anyhow::Result<PathBuf> {
    check_links(location)?;
    match Writer::open(location, WriterOptions::default()) {
        // By a scan, of workers too, or by the last batch of a daemon that was killed.
        Ok(_) | Err(canopy_index::Error::Locked(_) | canopy_index::Error::Shared(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(location.canonicalize()?)
}

/// Stops the daemon when it goes out of scope.
struct StopOnDrop<'a>(&'a Intake);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Returns the directory of the daemon of an index. It lies in the index, so that no scan meets it.
pub fn state_directory(index: &Path) -> PathBuf {
    index.join("watch")
}

/// A daemon that has an index follow its sources.
pub struct Daemon<'a> {
    cx: Context<'a>,
    notify: &'a (dyn Fn(Event<'_>) + Sync),
    applier: Applier<'a>,
    namespaces: parking_lot::Mutex<Vec<Namespace>>,
    directory: PathBuf,
    intake: Arc<Intake>,
    /// Receives requests of users; taken out when it starts.
    server: parking_lot::Mutex<Option<Arc<Server>>>,
    pacing: Pacing,
    ear: parking_lot::Mutex<Option<ChangeSource>>,
    reporter: parking_lot::Mutex<Reporter>,
    prometheus: Option<PathBuf>,
    /// File of events, if they do not come from the kernel.
    events: Option<PathBuf>,
    /// Change logs, and the program that reads them, if events come from there.
    lustre: LustreLogs,
    /// Set when the given events have ended.
    has_input_ended: AtomicBool,
    bad_lines: AtomicU64,
    /// Rounds of requests that failed.
    failed_rounds: AtomicU64,
    /// Last sign of life of the updating thread.
    last_alive: parking_lot::Mutex<Instant>,
}

impl<'a> Daemon<'a> {
    /// Sets everything up: from here on, no change is missed. `runner` carries out verbs, and `notify`
    /// gets events for the service manager.
    ///
    /// # Errors
    ///
    /// If there is nothing to follow, the index cannot be written, or another daemon follows it.
    pub fn begin(
        cx: &Context<'a>,
        location: &Path,
        options: &DaemonOptions,
        runner: &'a dyn VerbRunner,
        notify: &'a (dyn Fn(Event<'_>) + Sync),
    ) -> anyhow::Result<Self> {
        let interval = options.interval.min(INTERVAL_MAX);
        let (roots, namespaces, missing) = followed(&cx.site.settings, &options.paths)?;
        if let Some(path) = options.prometheus.as_ref().filter(|path| path.is_dir()) {
            anyhow::bail!("--prometheus names a file; {} is a directory", path.display());
        }
        let location = ensure_index(location)?;
        let directory = state_directory(&location);
        let (journal, recovered) = Journal::open(&directory)?;
        let territory =
            territory(&cx.site.settings, &roots, &location, options.prometheus.as_deref())?;
        let suspects_max = SUSPECTS_MAX / territory.roots().len().max(1);
        let scope = Scope {
            territory,
            rules: cx.mount_rules(false),
            one_file_system: options.one_file_system,
            suspects_max,
            path_bytes_max: path_bytes_max(&cx.site.settings),
        };
        let position = recovered.position;
        let intake = Arc::new(Intake::new(scope, journal, recovered)?);
        let lustre = LustreLogs { logs: options.lustre.clone(), lfs: options.lfs.clone() };
        let Listening { source: ear, unfollowed, goes_on } = match &options.events {
            Some(path) => {
                let (feed, goes_on) = EventFeed::open(path, position)?;
                Listening::to(ChangeSource::Feed(feed), goes_on)
            }
            None => listen(&lustre, &intake, !roots.is_empty())?,
        };
        if let Some(ChangeSource::Inotify(watches)) = &ear {
            warn_of_watch_limits(cx, watches);
        }
        // Only the daemon of root takes requests.
        let takes_requests = nix::unistd::geteuid().is_root() && !options.no_requests;
        let server = match takes_requests {
            true => server(cx, &location, &intake),
            false => None,
        };
        let reporter = Reporter::new(ear.as_ref().map_or("records", ChangeSource::name));
        let daemon = Daemon {
            cx: *cx,
            notify,
            applier: Applier {
                cx: *cx,
                runner,
                index: location,
                one_file_system: options.one_file_system,
                rate_max: options.rate_max,
                turn: interval * 2,
                suspects_max,
            },
            namespaces: parking_lot::Mutex::new(namespaces),
            directory,
            intake,
            server: parking_lot::Mutex::new(server),
            pacing: Pacing { interval },
            ear: parking_lot::Mutex::new(ear),
            reporter: parking_lot::Mutex::new(reporter),
            prometheus: options.prometheus.clone(),
            events: options.events.clone(),
            lustre,
            has_input_ended: AtomicBool::new(false),
            bad_lines: AtomicU64::new(0),
            failed_rounds: AtomicU64::new(0),
            last_alive: parking_lot::Mutex::new(Instant::now()),
        };
        missing.into_iter().chain(unfollowed).for_each(|one| daemon.note_unfollowed(one));
        if !options.trust_index && !goes_on {
            daemon.intake.suspect_all();
        }
        daemon.suspect_missing_roots()?;
        Ok(daemon)
    }

    /// Has roots scanned that the index lacks.
    fn suspect_missing_roots(&self) -> anyhow::Result<()> {
        for root in self.intake.territory().roots() {
            if !self.applier.has(root)? {
                let suspect = Suspect { path: root.clone(), recursive: true };
                self.intake.take_in(&[suspect], EventCounts::default());
            }
        }
        Ok(())
    }

    /// Returns the directory of the index.
    pub fn index(&self) -> &Path {
        &self.applier.index
    }

    /// Returns the name of the method by which the daemon learns of changes.
    pub fn method(&self) -> String {
        self.reporter.lock().method().to_owned()
    }

    /// Returns the followed roots, and namespaces with `ns:` in front, each on one line.
    pub fn roots(&self) -> Vec<String> {
        let territory = self.intake.territory();
        let root = |root: &Vec<u8>| one_line(&String::from_utf8_lossy(root));
        let mut roots: Vec<String> = territory.roots().iter().map(root).collect();
        let namespaces = self.namespaces.lock();
        roots.extend(namespaces.iter().map(|one| one_line(&one.path.to_string_lossy())));
        roots
    }

    /// Follows until the context's [`Cancel`](crate::Cancel) is requested, or the events that it was
    /// given have ended. To be called once. Blocks.
    ///
    /// # Errors
    ///
    /// If its state cannot be saved, or a batch of given events failed.
    pub fn run(&self) -> anyhow::Result<()> {
        self.report()?;
        let ended = std::thread::scope(|scope| {
            // The other threads end, too, if one cannot be started or this one panics.
            let _ends = StopOnDrop(&self.intake);
            let spawn = std::thread::Builder::new().name("events".to_owned());
            spawn.spawn_scoped(scope, || self.receive_events())?;
            let spawn = std::thread::Builder::new().name("status".to_owned());
            spawn.spawn_scoped(scope, || self.keep_reporting())?;
            if let Some(server) = self.server.lock().take() {
                let spawn = std::thread::Builder::new().name("requests".to_owned());
                spawn.spawn_scoped(scope, move || {
                    if let Err(error) = server.run() {
                        self.cx.warn(format_args!("{error:#}; no more requests are taken"));
                    }
                })?;
            }
            (self.notify)(Event::Ready);
            let ended = self.apply_batches();
            (self.notify)(Event::Stopping);
            ended
        });
        self.reporter.lock().ended = true;
        self.report()?;
        ended
    }

    /// Returns whether the daemon is stopped. Each call is a sign of life of the updating thread.
    fn is_stopped(&self) -> bool {
        *self.last_alive.lock() = Instant::now();
        self.cx.cancel.is_requested() || self.intake.is_stopped()
    }

    /// Has the index follow until the daemon is stopped.
    fn apply_batches(&self) -> anyhow::Result<()> {
        let mut next_compaction = Instant::now() + COMPACTED_EVERY;
        while !self.is_stopped() {
            if Instant::now() >= next_compaction {
                next_compaction = Instant::now() + self.compact();
            }
            self.follow_namespaces();
            let work = self.intake.next(self.pacing, TOLD_EVERY);
            let has_input_ended = self.has_input_ended.load(Ordering::SeqCst);
            let batches = match work {
                Some(Work::Changes(batches)) => batches,
                Some(Work::Requests(round)) => {
                    self.serve(round);
                    continue;
                }
                None if has_input_ended && self.is_idle() => break,
                None => continue,
            };
            let begun = Instant::now();
            // A source at a time: one that fails keeps its suspects, and no other does.
            let (mut failed, mut is_over) = (None, true);
            for batch in &batches {
                match self.apply(batch) {
                    Ok(is_done) => is_over &= is_done,
                    Err(error) => failed = Some(error),
                }
            }
            // Where a limit spares the sources, all of them go on.
            if is_over {
                self.intake.rest(begun.elapsed(), self.pacing);
            }
            if has_input_ended && let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Asks namespaces for what has changed, each as often as the interval says, and has the index
    /// follow.
    fn follow_namespaces(&self) {
        let all = self.namespaces.lock().len();
        for at in 0..all {
            let path = {
                let namespaces = self.namespaces.lock();
                let due = Some(&namespaces[at]).filter(|one| one.due <= Instant::now());
                let Some(due) = due else { continue };
                due.path.clone()
            };
            let (begun, begun_at) = (Instant::now(), SystemTime::now());
            let followed = self.applier.follow(&path, &|| self.is_stopped());
            if self.is_stopped() {
                return;
            }
            if let Ok(Some(generation)) = followed {
                self.intake.published(generation);
            }
            let mut namespaces = self.namespaces.lock();
            let namespace = &mut namespaces[at];
            let error = followed.err().map(|error| format!("{error:#}"));
            if let Some(error) =
                error.as_ref().filter(|&error| namespace.error.as_ref() != Some(error))
            {
                self.cx.warn(format_args!("{}: {error}; this will be tried again", path.display()));
            }
            let interval = self.pacing.interval;
            let pause = match error {
                None => interval.max(begun.elapsed().min(interval * 10)),
                Some(_) => (interval * 2u32.pow(namespace.failures.min(10))).min(RETRIED_EVERY),
            };
            namespace.failures = if error.is_some() { namespace.failures + 1 } else { 0 };
            if error.is_none() {
                namespace.followed = Some(begun_at);
            }
            namespace.error = error;
            namespace.due = Instant::now() + pause;
        }
    }

    /// Writes a portion of the index anew if that is due; returns how long the next one has time.
    fn compact(&self) -> Duration {
        match self.applier.compact(&|| self.is_stopped()) {
            Ok(true) => PORTIONS_EVERY,
            Ok(false) => COMPACTED_EVERY,
            Err(_) if self.is_stopped() => COMPACTED_EVERY,
            Err(error) => {
                self.cx.warn(format_args!("{error:#}; the index is written anew later"));
                COMPACTED_EVERY
            }
        }
    }

    fn is_idle(&self) -> bool {
        let sources = self.intake.snapshot().map(|snapshot| snapshot.sources);
        sources.is_some_and(|sources| sources.iter().all(|source| source.suspects == 0))
    }

    /// Has the index follow a batch, or as much of it as a turn has time for; returns whether that
    /// is all.
    fn apply(&self, batch: &Batch) -> anyhow::Result<bool> {
        let root = &self.intake.territory().roots()[batch.source];
        let stop = || self.is_stopped();
        let (now, left) = self.applier.turn_of(batch);
        match self.applier.apply(root, &now, &stop) {
            Ok(generation) => {
                self.intake.advanced(batch, &left, generation);
                Ok(left.is_empty())
            }
            Err(_) if self.is_stopped() => {
                self.intake.put_back(batch);
                Ok(true)
            }
            Err(error) => {
                let text = format!("{error:#}");
                self.cx.warn(format_args!("{text}; this will be tried again"));
                self.intake.retry_later(batch, &text, self.pacing);
                Err(error)
            }
        }
    }

    /// Lists directories again that users ask for.
    fn serve(&self, round: Round) {
        let root = &self.intake.territory().roots()[round.source];
        let begun = Instant::now();
        let stop = || self.is_stopped() || begun.elapsed() > REQUESTS_TAKE;
        match self.applier.serve(root, &round, &stop) {
            Ok((generation, shares)) => {
                self.intake.served(round, generation, shares, begun.elapsed());
            }
            Err(error) => {
                let failure = match begun.elapsed() > REQUESTS_TAKE {
                    true => Failure::TooLong(REQUESTS_TAKE),
                    false => Failure::Other,
                };
                // Users can have a round fail as often as they like.
                let before = self.failed_rounds.fetch_add(1, Ordering::Relaxed);
                if before < 3 || before.is_multiple_of(1000) {
                    self.cx.warn(format_args!("requests of users: {error:#}"));
                }
                self.intake.not_served(round, failure, begun.elapsed());
            }
        }
    }

    /// Receives events until the daemon is stopped.
    fn receive_events(&self) {
        let mut patience = Duration::from_secs(1);
        let mut ear = self.ear.lock().take();
        while !self.intake.is_stopped() {
            let ended = match ear.take() {
                Some(ChangeSource::Fanotify(group)) => {
                    group.run(&self.intake, &|one| self.note_unfollowed(one))
                }
                Some(ChangeSource::Inotify(watches)) => watches.run(&self.intake),
                Some(ChangeSource::Feed(feed)) => feed
                    .run(&self.intake, &|why| self.note_bad_line(&why))
                    .map(|()| self.has_input_ended.store(true, Ordering::SeqCst)),
                Some(ChangeSource::Lustre(logs)) => {
                    let (bad_line, trouble) =
                        (|why: String| self.note_bad_line(&why), |why| self.note_trouble(why));
                    logs.run(&self.intake, &bad_line, &trouble)
                        .map(|()| self.has_input_ended.store(true, Ordering::SeqCst))
                }
                None => Ok(()),
            };
            let error = match ended {
                Err(error) => anyhow::Error::from(error),
                Ok(()) => return,
            };
            // Until events come again, changes are found by a rescan.
            let mut failed = Some(error);
            while let Some(error) = failed.take() {
                let text = format!("{error:#}");
                self.cx.warn(format_args!("{text}; all is looked at again"));
                self.reporter.lock().deaf = Some(text);
                if !self.sleep(patience) {
                    return;
                }
                patience = (patience * 2).min(RETRIED_EVERY);
                match self.reopen_events() {
                    Ok(again) => ear = Some(again),
                    Err(error) => failed = Some(error),
                }
                self.intake.suspect_all();
            }
            self.reporter.lock().deaf = None;
        }
    }

    fn reopen_events(&self) -> anyhow::Result<ChangeSource> {
        match &self.events {
            Some(path) => Ok(ChangeSource::Feed(EventFeed::open(path, self.intake.position())?.0)),
            None if !self.lustre.logs.is_empty() => Ok(change_logs(&self.lustre, &self.intake)?.0),
            None => Ok(kernel(&self.intake)?.0),
        }
    }

    /// Sleeps, unless the daemon is stopped. Returns whether it runs on.
    fn sleep(&self, duration: Duration) -> bool {
        let until = Instant::now() + duration;
        while !self.intake.is_stopped() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
        }
        !self.intake.is_stopped()
    }

    fn note_unfollowed(&self, one: Unfollowed) {
        let point = PathBuf::from(OsStr::from_bytes(&one.point));
        let text = format!("{}: {}", point.display(), one.why);
        self.cx.warn(format_args!("changes are not told of {text}; 'canopy index' sees them"));
        self.reporter.lock().unfollowed.push(text);
    }

    fn note_bad_line(&self, why: &str) {
        let before = self.bad_lines.fetch_add(1, Ordering::Relaxed);
        if before < 3 || before.is_multiple_of(1000) {
            self.cx.warn(format_args!("line of events: {why}; all is looked at again"));
        }
    }

    /// Reports why a change log cannot be read or cleared. `None` means that it can be again.
    fn note_trouble(&self, why: Option<String>) {
        if let Some(why) = &why {
            self.cx.warn(format_args!("{why}; this will be tried again"));
        }
        self.reporter.lock().deaf = why;
    }

    fn keep_reporting(&self) {
        // A failure is reported once.
        let mut said = None;
        while !self.intake.is_stopped() {
            let failed = self.report().err().map(|error| format!("{error:#}"));
            if failed != said {
                failed.iter().for_each(|text| self.cx.warn(text));
                said = failed;
            }
            if self.cx.cancel.wait(TOLD_EVERY) {
                self.intake.stop();
            }
        }
    }

    /// Writes the status for files and the service manager. If this hangs, or the updating thread
    /// shows no sign of life, the watchdog of the service manager ends the process.
    fn report(&self) -> anyhow::Result<()> {
        let Some(snapshot) = self.intake.snapshot() else { return Ok(()) };
        let mut document = self.reporter.lock().document(&snapshot);
        let namespaces = self.namespaces.lock();
        let namespaces = namespaces.iter().map(|one| {
            let path = one.path.as_os_str().as_bytes();
            let followed = one.followed.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let followed_s = followed.map(|at| at.as_millis() as f64 / 1000.0);
            json!({
                "namespace": escape(path),
                "followed_s": followed_s,
                "last_error": one.error,
            })
        });
        document["namespaces"] = namespaces.collect();
        (self.notify)(Event::Status(&document));
        if self.last_alive.lock().elapsed() < STUCK_AFTER {
            (self.notify)(Event::Alive);
        }
        status::write_document(&self.directory, &document)?;
        if let Some(path) = &self.prometheus {
            status::write_metrics(path, &document)?;
        }
        Ok(())
    }
}

/// Opens the server for requests of users; `None` where it cannot run, as on file systems without
/// sockets.
fn server(cx: &Context<'_>, index: &Path, intake: &Arc<Intake>) -> Option<Arc<Server>> {
    let server = Server::open(index, intake.clone(), Accounts::system());
    server
        .map_err(|error| {
            cx.warn(format_args!(
                "{:#}; no requests of users are taken",
                anyhow::Error::from(error)
            ))
        })
        .ok()
}

//! `canopy watch`

use super::scanning::path_bytes_max;
use super::watch_apply::Applier;
use super::watch_status;
use crate::config::{namespace_of, pruned_paths, settings};
use crate::limits::rate;
use crate::options::stdout_for_json;
use crate::outcome::{Outcome, message};
use crate::{interrupt, places};
use anyhow::Context;
use canopy_as_user::Accounts;
use canopy_index::{Writer, WriterOptions};
use canopy_model::{ErrorKind, escape};
use canopy_scan::MountRules;
use canopy_text::safe::one_line;
use canopy_tools::json::exact;
use canopy_watch::lustre::{ChangeLogs, Log, Mount, Options as LogOptions};
use canopy_watch::requests::{Failure, Round, Server};
use canopy_watch::status::{self, Reporter};
use canopy_watch::{
    Batch, EventCounts, EventFeed, Fanotify, Inotify, Intake, Journal, Pacing, Scope, Suspect,
    Territory, Unfollowed, Work,
};
use nix::sys::signal::Signal;
use sd_notify::NotifyState;
use serde_json::json;
use std::ffi::OsStr;
use std::io::Write;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many suspects are kept of all sources together.
const SUSPECTS_MAX: usize = 100_000;

/// How often the status is written.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// How often it is looked whether some of the index is to be written anew.
const COMPACTED_EVERY: Duration = Duration::from_secs(600);

/// How long to wait between two portions of that.
const PORTIONS_EVERY: Duration = Duration::from_secs(10);

/// How long directories may be listed that users ask for.
const REQUESTS_TAKE: Duration = Duration::from_secs(30);

/// How long to wait before what failed to follow changes is tried again, at most.
const RETRIED_EVERY: Duration = Duration::from_secs(60);

/// How long what brings the index up to date may not turn up before the service manager is no more
/// told that all is well.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Follow what changes in sources, and have the index follow within seconds
///
/// Runs until it is stopped, in the foreground. Root hears of changes from the kernel (fanotify);
/// what it does not tell of, other systems can (--events). At the start, and where anything was
/// missed, the sources are scanned again; docs/watch.md has it all.
///
/// Example: canopy watch /home /data --interval 5
#[derive(clap::Args)]
pub struct Arguments {
    /// Trees to follow, and with ns: in front namespaces [default: the configured sources]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A change is in the index after so many seconds at the latest, where that can be kept; sooner
    /// when little happens
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = interval)]
    interval: Duration,
    /// Read events, one a line, from FILE, a FIFO or with - from standard input, in place of asking
    /// the kernel
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Follow the change log of a Lustre metadata target, such as scratch-MDT0000:cl1, and clear it as
    /// that reader once the index has it; or FILE, a FIFO or - with what 'lfs changelog' prints
    #[arg(
        long,
        value_name = "MDT[:READER]|FILE",
        value_delimiter = ',',
        value_parser = change_log,
        conflicts_with = "events"
    )]
    lustre: Vec<Log>,
    /// The program that reads and clears change logs
    #[arg(long, value_name = "PROGRAM", default_value = "lfs", requires = "lustre")]
    lfs: PathBuf,
    /// Do not scan at the start: nothing has changed since the index was made
    #[arg(long)]
    trust_index: bool,
    /// Stay on the file system of each PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Entries to look at per second at most, so that a busy server is spared
    #[arg(long, value_name = "N", value_parser = rate)]
    max_rate: Option<NonZeroU32>,
    /// Write numbers for node_exporter's textfile collector to FILE every few seconds
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// Do not take requests of users who may not write the index ('canopy update')
    #[arg(long)]
    no_requests: bool,
    /// Say how the daemon of this index does
    #[arg(long, conflicts_with_all = ["paths", "events", "lustre", "trust_index", "prometheus"])]
    status: bool,
    /// With --status, as JSON
    #[arg(long, requires = "status")]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or("give a number of seconds between 0.1 and 86400")?;
    Ok(Duration::from_secs_f64(seconds))
}

fn change_log(text: &str) -> Result<Log, String> {
    if text == "-" || text.contains('/') {
        return Ok(Log::File(text.into()));
    }
    let (name, user) = match text.split_once(':') {
        Some((name, user)) => (name, Some(user)),
        None => (text, None),
    };
    // They become words of a command.
    let is_word = |word: &str| !word.is_empty() && !word.starts_with('-');
    if !is_word(name) || !user.is_none_or(is_word) {
        return Err("give a target, such as scratch-MDT0000 or scratch-MDT0000:cl1".to_owned());
    }
    Ok(Log::Target { name: name.to_owned(), user: user.map(str::to_owned) })
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<Outcome> {
    let location = places::to_write(index)?;
    // Which clap does not see, since paths conflict with the one that is missing.
    anyhow::ensure!(arguments.status || !arguments.json, "--json is for --status");
    if arguments.status {
        return print_status(&state_directory(&location), arguments.json);
    }
    let signals = interrupt::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    let daemon = Arc::new(Daemon::begin(&location, &arguments)?);
    daemon.report_start();
    let stopped = daemon.clone();
    let wait = move || {
        if signals.wait().is_ok() {
            stopped.intake.stop();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    daemon.run()
}

/// Returns the directory of the daemon of an index, which is in that, so that no scan meets it.
pub(super) fn state_directory(index: &Path) -> PathBuf {
    index.join("watch")
}

/// Prints the latest status document of the daemon.
fn print_status(directory: &Path, as_json: bool) -> anyhow::Result<Outcome> {
    let document = status::read_document(directory).map_err(|error| match error.kind() {
        ErrorKind::Denied => anyhow::anyhow!(
            "only who may write the index sees how its daemon does ({})",
            directory.display()
        ),
        _ => error.into(),
    })?;
    let (document, is_running) = document.context("no 'canopy watch' has run for this index")?;
    if as_json {
        let mut document = document;
        document["running"] = is_running.into();
        let mut output = stdout_for_json();
        writeln!(output, "{:#}", exact(document))?;
        output.flush()?;
    } else {
        let mut output = stdout_for_json();
        write!(output, "{}", watch_status::text(&document, is_running))?;
        output.flush()?;
    }
    Ok(if is_running { Outcome::Complete } else { Outcome::Partial })
}

/// A source of change events.
enum ChangeSource {
    Fanotify(Fanotify),
    Inotify(Inotify),
    Feed(EventFeed),
    Lustre(ChangeLogs),
}

impl ChangeSource {
    fn name(&self) -> &'static str {
        match self {
            ChangeSource::Fanotify(_) => "fanotify",
            ChangeSource::Inotify(_) => "inotify",
            ChangeSource::Feed(_) => "events",
            ChangeSource::Lustre(_) => "Lustre change logs",
        }
    }
}

/// A namespace that is followed: it is asked for what has changed, again and again.
struct Namespace {
    /// What names it, with `ns:` in front.
    path: PathBuf,
    /// When to ask next.
    due: Instant,
    /// How often asking has failed since it did not.
    failures: u32,
    /// Why it has failed last.
    error: Option<String>,
    /// When it was asked last what the index has by now.
    followed: Option<SystemTime>,
}

struct Daemon {
    applier: Applier,
    namespaces: parking_lot::Mutex<Vec<Namespace>>,
    directory: PathBuf,
    intake: Arc<Intake>,
    /// Takes requests of users in, until it is started.
    server: parking_lot::Mutex<Option<Arc<Server>>>,
    pacing: Pacing,
    ear: parking_lot::Mutex<Option<ChangeSource>>,
    reporter: parking_lot::Mutex<Reporter>,
    prometheus: Option<PathBuf>,
    /// Where events come from, if not from the kernel.
    events: Option<PathBuf>,
    /// Change logs, and the program that reads them, likewise.
    lustre: (Vec<Log>, PathBuf),
    /// Set when standard input has ended.
    is_fed: AtomicBool,
    bad_lines: AtomicU64,
    /// Rounds of requests that failed.
    failed_rounds: AtomicU64,
    /// When what brings the index up to date turned up last.
    turned_up: parking_lot::Mutex<Instant>,
}

impl Daemon {
    /// Sets everything up: from here on, no change is missed.
    #[expect(clippy::too_many_lines, reason = "one course of steps")]
    fn begin(location: &Path, arguments: &Arguments) -> anyhow::Result<Self> {
        let (roots, namespaces, missing) = followed(arguments)?;
        if let Some(path) = arguments.prometheus.as_ref().filter(|path| path.is_dir()) {
            anyhow::bail!("--prometheus names a file; {} is a directory", path.display());
        }
        places::check_links(location)?;
        // Makes an index where there is none, and fails where the caller may not write.
        match Writer::open(location, WriterOptions::default()) {
            // By a scan, of workers too, or by the last batch of a daemon that was killed.
            Ok(_) | Err(canopy_index::Error::Locked(_) | canopy_index::Error::Shared(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let location = location.canonicalize()?;
        let directory = state_directory(&location);
        let (journal, recovered) = Journal::open(&directory)?;
        let territory = territory(&roots, &location, arguments.prometheus.as_deref())?;
        let suspects_max = SUSPECTS_MAX / territory.roots().len().max(1);
        let scope = Scope {
            territory,
            rules: MountRules::new(settings().trust_fs.clone().unwrap_or_default(), false),
            one_file_system: arguments.one_file_system,
            suspects_max,
            path_bytes_max: path_bytes_max(),
        };
        let position = recovered.position;
        let intake = Arc::new(Intake::new(scope, journal, recovered)?);
        let lustre = (arguments.lustre.clone(), arguments.lfs.clone());
        let (ear, unfollowed, goes_on) = match &arguments.events {
            Some(path) => {
                let (feed, goes_on) = EventFeed::open(path, position)?;
                (Some(ChangeSource::Feed(feed)), Vec::new(), goes_on)
            }
            None if !lustre.0.is_empty() => {
                let (logs, goes_on) = change_logs(&lustre, &intake)?;
                (Some(logs), Vec::new(), goes_on)
            }
            // Namespaces are asked.
            None if roots.is_empty() => (None, Vec::new(), false),
            None => {
                let (kernel, unfollowed) = kernel(&intake)?;
                (Some(kernel), unfollowed, false)
            }
        };
        if let Some(ChangeSource::Inotify(watches)) = &ear {
            warn_of_watch_limits(watches);
        }
        // An index of another user is nobody else's business.
        let takes_requests = nix::unistd::geteuid().is_root() && !arguments.no_requests;
        let server = match takes_requests {
            true => server(&location, &intake),
            false => None,
        };
        let reporter = Reporter::new(ear.as_ref().map_or("records", ChangeSource::name));
        let daemon = Daemon {
            applier: Applier {
                index: location,
                one_file_system: arguments.one_file_system,
                rate_max: arguments.max_rate,
                turn: arguments.interval * 2,
                suspects_max,
            },
            namespaces: parking_lot::Mutex::new(namespaces),
            directory,
            intake,
            server: parking_lot::Mutex::new(server),
            pacing: Pacing { interval: arguments.interval },
            ear: parking_lot::Mutex::new(ear),
            reporter: parking_lot::Mutex::new(reporter),
            prometheus: arguments.prometheus.clone(),
            events: arguments.events.clone(),
            lustre,
            is_fed: AtomicBool::new(false),
            bad_lines: AtomicU64::new(0),
            failed_rounds: AtomicU64::new(0),
            turned_up: parking_lot::Mutex::new(Instant::now()),
        };
        missing.into_iter().chain(unfollowed).for_each(|one| daemon.note_unfollowed(one));
        if !arguments.trust_index && !goes_on {
            daemon.intake.suspect_all();
        }
        // What the index has not is to be scanned in any case.
        for root in daemon.intake.territory().roots() {
            if !daemon.applier.has(root)? {
                let suspect = Suspect { path: root.clone(), recursive: true };
                daemon.intake.take_in(&[suspect], EventCounts::default());
            }
        }
        Ok(daemon)
    }

    /// Prints the followed roots, and where the daemon's status is.
    fn report_start(&self) {
        let territory = self.intake.territory();
        let root = |root: &Vec<u8>| one_line(&String::from_utf8_lossy(root));
        let mut roots: Vec<String> = territory.roots().iter().map(root).collect();
        let namespaces = self.namespaces.lock();
        let shown = namespaces.iter().map(|one| one_line(&one.path.to_string_lossy()));
        roots.extend(shown);
        message(format_args!(
            "following {} ({}) for the index {}; 'canopy watch --status' says how it goes",
            roots.join(", "),
            self.reporter.lock().method(),
            self.applier.index.display()
        ));
    }

    fn run(&self) -> anyhow::Result<Outcome> {
        self.report()?;
        let ended = std::thread::scope(|scope| {
            let spawn = std::thread::Builder::new().name("events".to_owned());
            spawn.spawn_scoped(scope, || self.hear())?;
            let spawn = std::thread::Builder::new().name("status".to_owned());
            spawn.spawn_scoped(scope, || self.keep_reporting())?;
            if let Some(server) = self.server.lock().take() {
                let spawn = std::thread::Builder::new().name("requests".to_owned());
                spawn.spawn_scoped(scope, move || {
                    if let Err(error) = server.run() {
                        message(format_args!("{error:#}; no more requests are taken"));
                    }
                })?;
            }
            let _ = sd_notify::notify(&[NotifyState::Ready]);
            let ended = self.apply_batches();
            let _ = sd_notify::notify(&[NotifyState::Stopping]);
            self.intake.stop();
            ended
        });
        self.reporter.lock().ended = true;
        self.report()?;
        ended
    }

    /// Returns whether all is to end. Asked all the time by what brings the index up to date, which
    /// goes on as long as it asks.
    fn is_stopped(&self) -> bool {
        *self.turned_up.lock() = Instant::now();
        self.intake.is_stopped()
    }

    /// Has the index follow, until all is to end.
    fn apply_batches(&self) -> anyhow::Result<Outcome> {
        let mut next_compaction = Instant::now() + COMPACTED_EVERY;
        while !self.is_stopped() {
            if Instant::now() >= next_compaction {
                next_compaction = Instant::now() + self.compact();
            }
            self.follow_namespaces();
            let work = self.intake.next(self.pacing, TOLD_EVERY);
            let is_fed = self.is_fed.load(Ordering::SeqCst);
            let batches = match work {
                Some(Work::Changes(batches)) => batches,
                Some(Work::Requests(round)) => {
                    self.serve(round);
                    continue;
                }
                None if is_fed && self.is_idle() => break,
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
            if is_fed && let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(Outcome::Complete)
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
            if self.intake.is_stopped() {
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
                message(format_args!("{}: {error}; this will be tried again", path.display()));
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
            Err(_) if self.intake.is_stopped() => COMPACTED_EVERY,
            Err(error) => {
                message(format_args!("{error:#}; the index is written anew later"));
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
            Err(_) if self.intake.is_stopped() => {
                self.intake.put_back(batch);
                Ok(true)
            }
            Err(error) => {
                let text = format!("{error:#}");
                message(format_args!("{text}; this will be tried again"));
                self.intake.retry_later(batch, &text, self.pacing);
                Err(error)
            }
        }
    }

    /// Lists again what users ask for.
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
                    message(format_args!("requests of users: {error:#}"));
                }
                self.intake.not_served(round, failure, begun.elapsed());
            }
        }
    }

    /// Hears of changes until all is to end.
    fn hear(&self) {
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
                    .map(|()| self.is_fed.store(true, Ordering::SeqCst)),
                Some(ChangeSource::Lustre(logs)) => {
                    let (bad_line, trouble) =
                        (|why: String| self.note_bad_line(&why), |why| self.note_trouble(why));
                    logs.run(&self.intake, &bad_line, &trouble)
                        .map(|()| self.is_fed.store(true, Ordering::SeqCst))
                }
                None => Ok(()),
            };
            let error = match ended {
                Err(error) => anyhow::Error::from(error),
                Ok(()) => return,
            };
            // Until it is told of again, changes are seen by looking at everything.
            let mut failed = Some(error);
            while let Some(error) = failed.take() {
                let text = format!("{error:#}");
                message(format_args!("{text}; all is looked at again"));
                self.reporter.lock().deaf = Some(text);
                if !self.sleep(patience) {
                    return;
                }
                patience = (patience * 2).min(RETRIED_EVERY);
                match self.hear_again() {
                    Ok(again) => ear = Some(again),
                    Err(error) => failed = Some(error),
                }
                self.intake.suspect_all();
            }
            self.reporter.lock().deaf = None;
        }
    }

    fn hear_again(&self) -> anyhow::Result<ChangeSource> {
        match &self.events {
            Some(path) => Ok(ChangeSource::Feed(EventFeed::open(path, self.intake.position())?.0)),
            None if !self.lustre.0.is_empty() => Ok(change_logs(&self.lustre, &self.intake)?.0),
            None => Ok(kernel(&self.intake)?.0),
        }
    }

    /// Sleeps for so long, unless all is to end; returns whether it is not.
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
        message(format_args!("changes are not told of {text}; 'canopy index' sees them"));
        self.reporter.lock().unfollowed.push(text);
    }

    fn note_bad_line(&self, why: &str) {
        let before = self.bad_lines.fetch_add(1, Ordering::Relaxed);
        if before < 3 || before.is_multiple_of(1000) {
            message(format_args!("line of events: {why}; all is looked at again"));
        }
    }

    /// Says why a change log cannot be read or cleared, or that it can be again.
    fn note_trouble(&self, why: Option<String>) {
        if let Some(why) = &why {
            message(format_args!("{why}; this will be tried again"));
        }
        self.reporter.lock().deaf = why;
    }

    fn keep_reporting(&self) {
        // The same is not said every second.
        let mut said = None;
        while !self.intake.is_stopped() {
            let failed = self.report().err().map(|error| format!("{error:#}"));
            if failed != said {
                failed.iter().for_each(message);
                said = failed;
            }
            std::thread::sleep(TOLD_EVERY);
        }
    }

    /// Tells files and the service manager how it goes. Where this hangs, or what brings the index
    /// up to date does not turn up, the service manager's watchdog ends the process.
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
        let line = watch_status::line(&document);
        let _ = sd_notify::notify(&[NotifyState::Status(&line)]);
        if self.turned_up.lock().elapsed() < STUCK_AFTER {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
        status::write_document(&self.directory, &document)?;
        if let Some(path) = &self.prometheus {
            status::write_metrics(path, &document)?;
        }
        Ok(())
    }
}

/// Returns what takes requests of users in; `None` where it cannot, as on file systems without
/// sockets.
fn server(index: &Path, intake: &Arc<Intake>) -> Option<Arc<Server>> {
    let server = Server::open(index, intake.clone(), Accounts::system());
    server
        .map_err(|error| {
            message(format_args!(
                "{:#}; no requests of users are taken",
                anyhow::Error::from(error)
            ))
        })
        .ok()
}

/// Begins to have the kernel tell of changes, by what the process may use.
fn kernel(intake: &Intake) -> anyhow::Result<(ChangeSource, Vec<Unfollowed>)> {
    if let Some((group, unfollowed)) = Fanotify::begin(intake)? {
        return Ok((ChangeSource::Fanotify(group), unfollowed));
    }
    Ok((ChangeSource::Inotify(Inotify::begin(intake)?), Vec::new()))
}

/// Begins to read the change logs of the Lustre file system that has all that is followed.
fn change_logs(
    (logs, lfs): &(Vec<Log>, PathBuf),
    intake: &Intake,
) -> anyhow::Result<(ChangeSource, bool)> {
    let find = |root: &Vec<u8>| Mount::find(Path::new(OsStr::from_bytes(root)), lfs);
    let mounts: Vec<Mount> =
        intake.territory().roots().iter().map(find).collect::<Result<_, _>>()?;
    let other = mounts.iter().find(|mount| mount.path() != mounts[0].path());
    if let Some(other) = other {
        let (one, other) = (mounts[0].path().display(), other.path().display());
        anyhow::bail!("{one} and {other} have logs of their own: follow each by itself");
    }
    let mount = mounts.into_iter().next().context("nothing is to be followed")?;
    let (logs, goes_on) = ChangeLogs::begin(Box::new(mount), logs, LogOptions::default(), intake)?;
    Ok((ChangeSource::Lustre(logs), goes_on))
}

/// Warns of the limits of inotify, which needs a watch for each directory.
fn warn_of_watch_limits(watches: &Inotify) {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    let limit = limit.as_deref().map_or("a limited number of", str::trim);
    message(format_args!(
        "following by inotify, which watches each directory by itself ({} now; each user may watch \
         {limit}, fs.inotify.max_user_watches) and does not tell of other names of a file; fanotify \
         follows whole file systems, with CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH, which root has \
         outside of containers",
        watches.directories()
    ));
}

/// Returns the real paths of the trees to follow, the namespaces, and configured trees that cannot
/// be opened: one that is not mounted keeps no other from being followed.
fn followed(
    arguments: &Arguments,
) -> anyhow::Result<(Vec<PathBuf>, Vec<Namespace>, Vec<Unfollowed>)> {
    let mut paths = arguments.paths.clone();
    let are_configured = paths.is_empty();
    if are_configured {
        let sources = settings().sources.iter().flatten();
        paths = sources.map(|source| source.path.clone()).collect();
    }
    anyhow::ensure!(!paths.is_empty(), "no PATH is given, and no sources are configured");
    let (trees, mut namespaces): (Vec<_>, Vec<_>) =
        paths.into_iter().partition(|path| namespace_of(path).is_none());
    let real = |path: PathBuf| {
        places::check_links(&path)?;
        let real =
            path.canonicalize().with_context(|| format!("cannot open {}", path.display()))?;
        anyhow::ensure!(real.is_dir(), "{} is no directory", real.display());
        Ok(real)
    };
    let (mut roots, mut missing, count) = (Vec::new(), Vec::new(), trees.len());
    for path in trees {
        let point = path.as_os_str().as_bytes().to_vec();
        match real(path) {
            Ok(root) => roots.push(root),
            Err(error) if are_configured && missing.len() + 1 < count + namespaces.len() => {
                missing.push(Unfollowed { point, why: format!("{error:#}") });
            }
            Err(error) => return Err(error),
        }
    }
    for place in namespaces.iter().filter_map(|path| namespace_of(path)) {
        // Of one in a bucket, asking it tells.
        if !place.to_string_lossy().contains("s3://") {
            place.metadata().with_context(|| format!("cannot open {}", place.display()))?;
        }
    }
    namespaces.sort_unstable();
    namespaces.dedup();
    let due = Instant::now();
    let namespace = |path| Namespace { path, due, failures: 0, error: None, followed: None };
    Ok((roots, namespaces.into_iter().map(namespace).collect(), missing))
}

fn territory(
    roots: &[PathBuf],
    location: &Path,
    prometheus: Option<&Path>,
) -> anyhow::Result<Territory> {
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let mut left_out = vec![bytes(location)];
    // What is named as a source is followed, whatever is configured.
    let is_root = |path: &PathBuf| roots.iter().any(|root| root.starts_with(path));
    let pruned = pruned_paths(settings())?.into_iter().filter(|path| !is_root(path));
    left_out.extend(pruned.map(|path| bytes(&path)));
    let mut territory = Territory::new(roots.iter().map(|root| bytes(root)).collect(), left_out);
    if let Some(path) = prometheus {
        for file in status::metrics_files(&std::path::absolute(path)?) {
            let directory = file.parent().and_then(|parent| parent.canonicalize().ok());
            let place = directory.zip(file.file_name()).map(|(parent, name)| parent.join(name));
            territory.leave_out_file(bytes(&place.unwrap_or(file)));
        }
    }
    Ok(territory)
}

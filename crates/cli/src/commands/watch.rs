//! `canopy watch`

use super::watch_status;
use crate::events::{EventObserver, print_events};
use crate::interrupt;
use crate::invocation::Invocation;
use crate::limits::rate;
use crate::outcome::Outcome;
use crate::terminal::stdout_for_json;
use crate::verb_processes::Processes;
use anyhow::Context;
use canopy_ingest::daemon::{Daemon, DaemonOptions, Event, state_directory};
use canopy_model::ErrorKind;
use canopy_tools::json::exact;
use canopy_watch::lustre::Log;
use canopy_watch::status;
use nix::sys::signal::Signal;
use sd_notify::NotifyState;
use std::io::Write;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Follow changes in sources, and update the index within seconds
///
/// Runs in the foreground until it is stopped. As root, it receives changes from the kernel
/// (fanotify); other systems can send the rest (--events). It scans the sources again at the start,
/// and wherever it missed changes. docs/watch.md has the details.
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
    /// Follow the change log of a Lustre metadata target, such as scratch-MDT0000:cl1, and clear it
    /// as that reader once the index has it; or read the output of 'lfs changelog' from FILE, a
    /// FIFO or -
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
    /// Print the state of this index's daemon
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
///
/// # Errors
///
/// If the daemon cannot begin or ends by an error, or there is no status to print.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let location = invocation.site.index_to_write()?;
    // clap does not notice this, since paths conflict with the missing option.
    anyhow::ensure!(arguments.status || !arguments.json, "--json is for --status");
    if arguments.status {
        return print_status(&state_directory(&location), arguments.json);
    }
    let signals = interrupt::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    print_events(String::new());
    let cx = canopy_ingest::Context { observer: &EventObserver, ..invocation.ingest(None) };
    let daemon = Daemon::begin(&cx, &location, &arguments.daemon(), &Processes, &notify)?;
    tracing::info!(
        "following {} ({}) for the index {}; 'canopy watch --status' says how it goes",
        daemon.roots().join(", "),
        daemon.method(),
        daemon.index().display()
    );
    let cancel = invocation.cancel.clone();
    let wait = move || {
        if signals.wait().is_ok() {
            cancel.request();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    daemon.run()?;
    Ok(Outcome::Complete)
}

impl Arguments {
    fn daemon(self) -> DaemonOptions {
        DaemonOptions {
            paths: self.paths,
            interval: self.interval,
            events: self.events,
            lustre: self.lustre,
            lfs: self.lfs,
            trust_index: self.trust_index,
            one_file_system: self.one_file_system,
            rate_max: self.max_rate,
            prometheus: self.prometheus,
            no_requests: self.no_requests,
        }
    }
}

/// Reports an event to the service manager.
fn notify(event: Event<'_>) {
    let line;
    let state = match event {
        Event::Ready => NotifyState::Ready,
        Event::Stopping => NotifyState::Stopping,
        Event::Alive => NotifyState::Watchdog,
        Event::Status(document) => {
            line = watch_status::line(document);
            NotifyState::Status(&line)
        }
    };
    let _ = sd_notify::notify(&[state]);
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

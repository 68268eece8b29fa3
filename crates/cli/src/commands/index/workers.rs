//! `canopy index --level`, `--worker`: starts the workers of a scan that several processes share.

use super::arguments::Arguments;
use crate::engine::Engine;
use crate::invocation::Invocation;
use crate::outcome::Outcome;
use anyhow::Context;
use canopy_ingest::Interrupted;
use canopy_ingest::scan::ScanRequest;
use canopy_ingest::share::{Ended, begin, left, work};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Works until the scan is published.
///
/// # Errors
///
/// If the scan cannot be begun or published, or no worker started.
pub fn run(
    invocation: &Invocation,
    location: &Path,
    arguments: &Arguments,
    engine: &Engine,
) -> anyhow::Result<Outcome> {
    if let Some(parent) = arguments.errors.as_deref().and_then(Path::parent) {
        let is_there = parent.as_os_str().is_empty() || parent.is_dir();
        anyhow::ensure!(is_there, "--errors: there is no directory {}", parent.display());
    }
    let workers = usize::from(arguments.workers);
    let request = arguments.request(invocation);
    let threads = (request.threads / workers.max(1)).max(1);
    let request = ScanRequest { threads, ..request };
    invocation.watch_signals()?;
    let cx = invocation.ingest(Some(engine.derived));
    if let Some(level) = arguments.level {
        begin(&cx, location, &request, level.get())?;
    }
    if workers == 0 {
        let left = left(location).unwrap_or_else(|| "1 part".to_owned());
        invocation.note(format_args!(
            "the scan is begun, with {left} left; 'canopy index --worker' works on it, here and on \
             other machines"
        ));
        return Ok(Outcome::Complete);
    }
    let mut others = Vec::new();
    for _ in 1..workers {
        others.push(other_worker(location, arguments, threads)?);
    }
    let begun = Instant::now();
    let beat = Duration::from_millis(arguments.beat.max(1));
    let ended = work(&cx, location, &request, beat)
        .and_then(|ended| report(invocation, arguments, location, ended, begun));
    if ended.as_ref().is_err_and(|error| error.is::<Interrupted>()) {
        // The others were interrupted, too, or go on.
        return ended;
    }
    for mut other in others {
        let other = other.wait().context("cannot wait for a worker")?;
        if ended.is_ok() && other.code() == Some(1) {
            return Ok(Outcome::Partial);
        }
    }
    ended
}

/// Prints how the scan ended, unless a parent process started this worker and prints it.
fn report(
    invocation: &Invocation,
    arguments: &Arguments,
    location: &Path,
    ended: Ended,
    begun: Instant,
) -> anyhow::Result<Outcome> {
    let note = |text: String| {
        if !arguments.started {
            invocation.note(text);
        }
    };
    match ended {
        Ended::Published(scanned) => {
            arguments.report(&scanned, location, begun)?;
            return Ok(Outcome::of(scanned.is_complete));
        }
        Ended::PublishedByOther(generation) => {
            note(format!("generation {generation} is published"))
        }
        Ended::NothingToJoin => {
            note("there is no scan to join: it is published, or was given up".to_owned());
        }
    }
    Ok(Outcome::Complete)
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

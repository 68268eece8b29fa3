//! Processes that carry out the verbs of `canopy watch`, one for each: this program itself, or the
//! companion that it becomes for derived tables and namespaces.
//!
//! Its memory goes with the process, and a failure ends the verb and not the daemon. A process that
//! hangs in a file system is killed, or left to the kernel if it cannot be.

use crate::parent::{FINISHED, PROGRESS, REPORTS_PROGRESS, read_shares, write_suspects};
use anyhow::Context as _;
use canopy_ingest::Context;
use canopy_ingest::daemon::{Pulse, Verb, VerbCall, VerbResult, VerbRunner};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The program of this process.
const PROGRAM: &str = "/proc/self/exe";

/// Time between two checks whether a process has ended.
const LOOKED_EVERY: Duration = Duration::from_millis(5);

/// Waiting times for a process.
struct Patience {
    /// Without progress in a source.
    reads: Duration,
    /// After the signal to end: it may be publishing.
    ends: Duration,
    /// After it was killed.
    is_killed: Duration,
}

const PATIENCE: Patience = Patience {
    reads: Duration::from_secs(600),
    ends: Duration::from_secs(60),
    is_killed: Duration::from_secs(10),
};

/// Runs a process for each verb.
pub struct Processes;

impl VerbRunner for Processes {
    fn run(&self, _: &Context<'_>, call: &VerbCall<'_>) -> anyhow::Result<VerbResult> {
        let mut command = Command::new(PROGRAM);
        command.arg("--index").arg(call.index);
        let input = add_words(&mut command, call);
        let printed = output(command, &input, call.stop)?;
        // "generation 7: 23 entries in ...", or "nothing has changed since generation 7: ...".
        let is_new = printed.starts_with("generation ");
        let has_it = is_new || !matches!(call.verb, Verb::Follow(_));
        let number = printed.split([' ', ':']).find_map(|word| word.parse().ok());
        Ok(VerbResult { generation: number.filter(|_| has_it), shares: read_shares(&printed) })
    }
}

/// Adds the words of a command that carries out a verb. Returns its standard input.
fn add_words(command: &mut Command, VerbCall { verb, rate_max, .. }: &VerbCall<'_>) -> Vec<u8> {
    let name = match verb {
        Verb::Scan { .. } | Verb::Follow(_) => "index",
        Verb::Update { .. } => "update",
        Verb::Compact => "compact",
    };
    command.arg(name);
    if !matches!(verb, Verb::Compact) {
        command.env(REPORTS_PROGRESS, "1");
    }
    if let Verb::Scan { .. } | Verb::Update { .. } = verb
        && let Some(rate_max) = rate_max
    {
        command.arg("--max-rate").arg(rate_max.to_string());
    }
    match verb {
        Verb::Scan { tree, one_file_system } => {
            command.args(one_file_system.then_some("--one-file-system")).arg("--").arg(tree);
        }
        Verb::Update { suspects, repairs } => {
            command.arg("--suspects").args(repairs.then_some("--repair"));
            return write_suspects(suspects);
        }
        Verb::Follow(namespace) => {
            command.arg("--follow").arg("--").arg(namespace);
        }
        Verb::Compact => {
            command.args(["--due", "--once"]);
        }
    }
    Vec::new()
}

/// Runs a command with some input to its end, and returns what it printed. Fails if it did not do its
/// work; entries that vanished or could not be read are not a failure.
fn output(mut command: Command, input: &[u8], stop: &dyn Fn() -> bool) -> anyhow::Result<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().context("cannot run canopy")?;
    let (status, told, errors) = talk(child, input, &PATIENCE, stop)?;
    match status.code() {
        Some(0 | 1) => Ok(String::from_utf8_lossy(&told).into_owned()),
        _ => {
            let errors = String::from_utf8_lossy(&errors).into_owned();
            let last = errors.lines().last().unwrap_or("canopy: the scan was ended");
            anyhow::bail!("{}", last.strip_prefix("canopy: ").unwrap_or(last))
        }
    }
}

/// Reads the output of a process, and removes its progress marks.
fn read_marked(mut stream: impl Read, pulse: &Pulse) -> Vec<u8> {
    let (mut printed, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        pulse.beat();
        for &byte in &chunk[..length] {
            match byte {
                PROGRESS => {}
                FINISHED => pulse.finish_reading(),
                byte => printed.push(byte),
            }
        }
    }
    printed
}

/// Writes the input of a process, waits for it or ends it. Returns its status, output and messages.
/// Calls `stop` all the time.
fn talk(
    mut child: Child,
    input: &[u8],
    patience: &Patience,
    stop: &dyn Fn() -> bool,
) -> anyhow::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let pid = Pid::from_raw(child.id().try_into()?);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (input, pulse) = (input.to_vec(), Arc::new(Pulse::default()));
    let heard = pulse.clone();
    // They may have to be left behind with the process.
    std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    let printed = std::thread::spawn(move || stdout.map(|stdout| read_marked(stdout, &heard)));
    let errors = std::thread::spawn(move || read_all(stderr));
    let (mut told_at, mut killed_at, mut is_silent) = (None, None, false);
    let has_passed = |since: Option<Instant>, time| since.is_some_and(|at| at.elapsed() > time);
    loop {
        let is_stopped = stop();
        if let Some(status) = child.try_wait()? {
            anyhow::ensure!(!is_silent, "nothing could be read for a long time: {HANGS}");
            let printed = printed.join().unwrap_or_default().unwrap_or_default();
            return Ok((status, printed, errors.join().unwrap_or_default()));
        }
        is_silent |= pulse.is_silent(patience.reads);
        if told_at.is_none() && (is_stopped || is_silent) {
            kill(pid, Signal::SIGTERM)?;
            told_at = Some(Instant::now());
        }
        if killed_at.is_none() && has_passed(told_at, patience.ends) {
            kill(pid, Signal::SIGKILL)?;
            killed_at = Some(Instant::now());
        }
        if has_passed(killed_at, patience.is_killed) {
            std::thread::spawn(move || child.wait());
            anyhow::bail!("process {pid} cannot be ended: {HANGS}");
        }
        std::thread::sleep(LOOKED_EVERY);
    }
}

/// Reason why a process makes no progress.
const HANGS: &str = "a file system in the source does not answer";

fn read_all(stream: Option<impl Read>) -> Vec<u8> {
    let mut all = Vec::new();
    // Output before an error may explain it.
    let _ = stream.map(|mut stream| stream.read_to_end(&mut all));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_of(script: &str, patience: &Patience, stop: &dyn Fn() -> bool) -> String {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        match talk(command.spawn().unwrap(), b"input", patience, stop) {
            Ok((status, printed, errors)) => {
                let text = |bytes| String::from_utf8(bytes).unwrap();
                format!("{:?} {} {}", status.code(), text(printed), text(errors))
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn hanging_processes_are_ended() {
        let never = Duration::from_secs(3600);
        let soon = Duration::from_millis(50);
        let patient = Patience { reads: never, ends: never, is_killed: never };
        let goes_on = "printf '\\006'; cat; printf '\\004 out'; echo error >&2; exit 3";
        assert_eq!(said_of(goes_on, &patient, &|| false), "Some(3) input out error\n");
        assert!(said_of("exec sleep 3600", &patient, &|| true).starts_with("None"));
        let impatient = Patience { reads: soon, ends: soon, ..patient };
        let hangs = "trap '' TERM; while :; do sleep 1; done";
        assert!(said_of(hangs, &impatient, &|| false).contains(HANGS));
    }
}

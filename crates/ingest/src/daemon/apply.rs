//! Has the index follow a batch of suspects, in a process of its own: its memory goes with it, and a
//! failure ends the batch and not the daemon. A process that hangs in a file system is killed, or left
//! to the kernel if it cannot be.

use super::{FINISHED, PROGRESS, REPORTS_PROGRESS};
use crate::update::{line, lines, read_costs};
use anyhow::Context as _;
use canopy_index::Index;
use canopy_model::Generation;
use canopy_model::unescape;
use canopy_read::locate::subdirectories;
use canopy_read::resolve::locate;
use canopy_read::totals::VisibleTree;
use canopy_watch::requests::{Round, Share};
use canopy_watch::{Batch, is_at_or_below};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Approximate number of entries of a directory that is listed alone.
const DIRECTORY_ENTRIES: i64 = 50;

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

/// Brings an index up to date.
pub(super) struct Applier {
    /// The index.
    pub index: PathBuf,
    /// The program `canopy`.
    pub program: PathBuf,
    /// Whether a source that is not in the index yet stays on one file system.
    pub one_file_system: bool,
    /// Entries that are looked at per second at most.
    pub rate_max: Option<NonZeroU32>,
    /// Turn of a source under that limit, before others have theirs.
    pub turn: Duration,
    /// Most suspects of a source that wait.
    pub suspects_max: usize,
}

impl Applier {
    /// Divides a batch into the part for this turn of its source, by the entries of the index there,
    /// and the rest, both in any order: a slow scan of one source does not delay others.
    pub fn turn_of(&self, batch: &Batch) -> (Batch, Vec<canopy_watch::Suspect>) {
        let all = || (batch.clone(), Vec::new());
        let Some(rate) = self.rate_max else { return all() };
        let Ok(index) = Index::open(&self.index) else { return all() };
        let entries_max = (f64::from(rate.get()) * self.turn.as_secs_f64()) as i64;
        let mut now = Batch { suspects: Vec::new(), ..batch.clone() };
        let mut left = Vec::from_iter(batch.suspects.iter().rev().cloned());
        let mut entries = 0;
        while let Some(suspect) = left.pop() {
            let Known { entries: more, subdirectories } = Known::of(&index, &suspect);
            // If they were too many, they would become one again.
            let has_room = left.len() + subdirectories.len() < self.suspects_max / 4;
            if more > entries_max && has_room && !subdirectories.is_empty() {
                left.extend(subdirectories);
                left.push(canopy_watch::Suspect { recursive: false, ..suspect });
                continue;
            }
            if entries + more > entries_max && !now.suspects.is_empty() {
                left.push(suspect);
                break;
            }
            entries += more;
            now.suspects.push(suspect);
        }
        left.reverse();
        (now, left)
    }

    /// Updates the index for a batch, and returns the generation that contains it. Ends early, with an
    /// error, once `stop` returns true.
    pub fn apply(
        &self,
        root: &[u8],
        batch: &Batch,
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<Generation> {
        if self.has(root)? {
            let mut command = self.scanning("update");
            command.args(["--suspects", "--repair"]);
            self.run(command, &lines(root, batch), stop)?;
        } else {
            let mut command = self.scanning("index");
            if self.one_file_system {
                command.arg("--one-file-system");
            }
            command.arg("--").arg(OsStr::from_bytes(root));
            self.run(command, &[], stop)?;
        }
        Ok(Index::open(&self.index)?.generation())
    }

    /// Reads the changes of a namespace, given with `ns:` in front, and returns the generation that
    /// contains them, if there were any. Ends early, with an error, once `stop` returns true.
    pub fn follow(
        &self,
        namespace: &Path,
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<Option<Generation>> {
        let mut command = self.canopy("index");
        command.env(REPORTS_PROGRESS, "1");
        command.arg("--follow").arg("--").arg(namespace);
        let told = self.run(command, &[], stop)?;
        // "generation 7: 23 entries in ...", or "nothing has changed since generation 7".
        let new = told.strip_prefix("generation ").and_then(|rest| rest.split(':').next());
        Ok(new.and_then(|number| number.parse().ok()))
    }

    /// Lists directories again that users asked for. Returns a generation that contains them, and the
    /// share of each user. Without changes, there is no new generation.
    pub fn serve(
        &self,
        root: &[u8],
        round: &Round,
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<(Generation, Vec<Share>)> {
        anyhow::ensure!(self.has(root)?, "the source is not in the index yet");
        let mut lines = Vec::new();
        line(b'c', b"/", &mut lines);
        for asked in round.asked() {
            line(if asked.with_row { b'd' } else { b'o' }, &asked.path, &mut lines);
        }
        let mut command = self.scanning("update");
        command.arg("--suspects");
        let told = self.run(command, &lines, stop)?;
        // "generation 7: 23 entries in ..."
        let generation = told.split([' ', ':']).find_map(|word| word.parse().ok());
        let shares = read_costs(&told);
        let shares = shares.filter(|shares| shares.len() == round.asked().count());
        generation.zip(shares).with_context(|| format!("'canopy update' has said: {told}"))
    }

    /// Compacts a portion of the index, if that is due; returns whether it was. Ends early, with an
    /// error, once `stop` returns true.
    pub fn compact(&self, stop: &dyn Fn() -> bool) -> anyhow::Result<bool> {
        let generation = || anyhow::Ok(Index::open(&self.index)?.generation());
        let before = generation()?;
        let mut command = self.canopy("compact");
        command.args(["--due", "--once"]);
        self.run(command, &[], stop)?;
        Ok(generation()? > before)
    }

    /// Returns whether a directory is a source of the index, or lies in one.
    pub fn has(&self, root: &[u8]) -> anyhow::Result<bool> {
        if !canopy_index::is_there(&self.index)? {
            return Ok(false);
        }
        let index = Index::open(&self.index)?;
        let holds = |source: &str| is_at_or_below(root, &unescape(source));
        Ok(index.sources().iter().any(|source| holds(&source.root)))
    }

    fn canopy(&self, command: &str) -> Command {
        let mut canopy = Command::new(&self.program);
        canopy.arg("--index").arg(&self.index).arg(command);
        canopy
    }

    /// Returns a command that scans.
    fn scanning(&self, command: &str) -> Command {
        let mut canopy = self.canopy(command);
        canopy.env(REPORTS_PROGRESS, "1");
        if let Some(rate_max) = self.rate_max {
            canopy.arg("--max-rate").arg(rate_max.to_string());
        }
        canopy
    }

    /// Runs a command with some input to its end, and returns what it printed. Fails if it did not
    /// do its work; entries that vanished or could not be read are not a failure.
    fn run(
        &self,
        mut command: Command,
        input: &[u8],
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<String> {
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
}

/// Data of the index about a suspect.
#[derive(Default)]
struct Known {
    /// Approximate number of entries to look at.
    entries: i64,
    /// Subdirectories of a recursive suspect.
    subdirectories: Vec<canopy_watch::Suspect>,
}

impl Known {
    /// Returns nothing for a path that the index lacks.
    fn of(index: &Index, suspect: &canopy_watch::Suspect) -> Self {
        let known = || -> canopy_read::Result<Self> {
            if !suspect.recursive {
                return Ok(Known { entries: DIRECTORY_ENTRIES, subdirectories: Vec::new() });
            }
            let start = locate(index, OsStr::from_bytes(&suspect.path))?;
            let totals = VisibleTree::of(&start, 1).sum_alone()?;
            let names = subdirectories(&start.view, &start.source, &start.path)?;
            let above = suspect.path.strip_suffix(b"/").unwrap_or(&suspect.path);
            let below = |name: &String| canopy_watch::Suspect {
                path: [above, b"/", &unescape(name)].concat(),
                recursive: true,
            };
            let subdirectories = names.iter().map(below).collect();
            Ok(Known { entries: totals.entries + totals.dirs, subdirectories })
        };
        known().unwrap_or_default()
    }
}

/// Progress of a process that reports it.
struct Pulse {
    /// Time of its last progress.
    last: Mutex<Instant>,
    /// Whether it reads no source any more.
    is_over: AtomicBool,
}

impl Pulse {
    fn new() -> Self {
        Pulse { last: Mutex::new(Instant::now()), is_over: AtomicBool::new(false) }
    }

    fn is_silent(&self, patience: Duration) -> bool {
        !self.is_over.load(Ordering::Relaxed) && self.last.lock().elapsed() > patience
    }

    /// Reads the output of a process, and removes its progress marks.
    fn read(&self, mut stream: impl Read) -> Vec<u8> {
        let (mut printed, mut chunk) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            *self.last.lock() = Instant::now();
            for &byte in &chunk[..length] {
                match byte {
                    PROGRESS => {}
                    FINISHED => self.is_over.store(true, Ordering::Relaxed),
                    byte => printed.push(byte),
                }
            }
        }
        printed
    }
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
    let (input, pulse) = (input.to_vec(), Arc::new(Pulse::new()));
    let heard = pulse.clone();
    // They may have to be left behind with the process.
    std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    let printed = std::thread::spawn(move || stdout.map(|stdout| heard.read(stdout)));
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
    fn what_hangs_is_ended() {
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

//! Has the index follow a batch of suspects, in processes of their own: what they take in memory
//! goes with them, and what goes wrong in one ends the batch and not the daemon.

use anyhow::Context;
use canopy_index::Index;
use canopy_watch::{Batch, Suspect, is_at_or_below};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How often it is looked whether a process has ended.
const LOOKED_EVERY: Duration = Duration::from_millis(5);

/// What brings an index up to date.
pub struct Applier {
    /// The index.
    pub index: PathBuf,
    /// Whether a source that is not in the index yet stays on one file system.
    pub one_file_system: bool,
    /// Entries that are looked at per second at most.
    pub rate_max: Option<NonZeroU32>,
}

/// What a process that has done its work has said.
struct Said {
    output: Vec<u8>,
}

impl Applier {
    /// Brings what the index says of a batch up to date, and returns the generation that has it.
    /// Ends early, with an error, once `stop` says so.
    pub fn apply(
        &self,
        root: &[u8],
        batch: &Batch,
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<u64> {
        if self.has(root)? {
            let mut suspects = batch.suspects.clone();
            suspects.extend(self.names(root, &batch.links, stop)?);
            if !suspects.is_empty() {
                let mut command = self.scanning("update");
                command.arg("--suspects");
                self.run(command, &lines(&suspects), stop)?;
            }
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

    /// Writes some of the index anew, if that is due; returns whether it was. Ends early, with an
    /// error, once `stop` says so.
    pub fn compact(&self, stop: &dyn Fn() -> bool) -> anyhow::Result<bool> {
        let generation = || anyhow::Ok(Index::open(&self.index)?.generation());
        let before = generation()?;
        let mut command = self.canopy("compact");
        command.args(["--due", "--once"]);
        self.run(command, &[], stop)?;
        Ok(generation()? > before)
    }

    /// Returns whether a directory is a source of the index, or lies in one.
    fn has(&self, root: &[u8]) -> anyhow::Result<bool> {
        if !self.index.join("CURRENT").try_exists()? {
            return Ok(false);
        }
        let index = Index::open(&self.index)?;
        let holds = |source: &str| is_at_or_below(root, &canopy_model::unescape(source));
        Ok(index.sources().iter().any(|source| holds(&source.root)))
    }

    /// Returns the directories that have one of these inodes, as far as the index knows.
    fn names(
        &self,
        root: &[u8],
        inodes: &[u64],
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<Vec<Suspect>> {
        if inodes.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = self.canopy("find");
        command.arg(OsStr::from_bytes(root)).args(["!", "-type", "d", "("]);
        for (number, inode) in inodes.iter().enumerate() {
            let or = if number > 0 { &["-o"][..] } else { &[] };
            command.args(or).args(["-inum", &inode.to_string()]);
        }
        command.args([")", "-printf", "%h\\0"]);
        let said = self.run(command, &[], stop)?;
        let paths = said.output.split(|&byte| byte == 0).filter(|path| !path.is_empty());
        Ok(paths.map(|path| Suspect { path: path.to_vec(), recursive: false }).collect())
    }

    fn canopy(&self, command: &str) -> Command {
        let mut canopy = Command::new("/proc/self/exe");
        canopy.arg("--index").arg(&self.index).arg(command);
        canopy
    }

    /// Returns a command that scans.
    fn scanning(&self, command: &str) -> Command {
        let mut canopy = self.canopy(command);
        if let Some(rate_max) = self.rate_max {
            canopy.arg("--max-rate").arg(rate_max.to_string());
        }
        canopy
    }

    /// Runs a command with some input to its end. Fails if it did not do its work; entries that
    /// vanished or could not be read are no failure.
    fn run(
        &self,
        mut command: Command,
        input: &[u8],
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<Said> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot run canopy")?;
        let (output, errors) = talk(&mut child, input, stop)?;
        match child.wait()?.code() {
            Some(0 | 1) => Ok(Said { output }),
            _ => {
                let errors = String::from_utf8_lossy(&errors).into_owned();
                let last = errors.lines().last().unwrap_or("canopy: the scan was ended");
                anyhow::bail!("{}", last.strip_prefix("canopy: ").unwrap_or(last))
            }
        }
    }
}

/// Returns suspects as `canopy update --suspects` reads them.
fn lines(suspects: &[Suspect]) -> Vec<u8> {
    let mut lines = Vec::new();
    for suspect in suspects {
        lines.push(if suspect.recursive { b'r' } else { b'd' });
        lines.extend_from_slice(&suspect.path);
        lines.push(0);
    }
    lines
}

/// Reads suspects as [`lines`] writes them.
pub fn read_suspects(bytes: &[u8]) -> anyhow::Result<Vec<(PathBuf, bool)>> {
    let read = |line: &[u8]| {
        let (&kind, path) = line.split_first().filter(|(_, path)| path.first() == Some(&b'/'))?;
        let recursive = [b'd', b'r'].iter().position(|&known| known == kind)? == 1;
        Some((PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())), recursive))
    };
    let lines = bytes.split(|&byte| byte == 0).filter(|line| !line.is_empty());
    lines.map(|line| read(line).context("standard input has no suspects")).collect()
}

/// Gives a process its input, waits for it or has it end, and returns its output and what it said.
fn talk(
    child: &mut Child,
    input: &[u8],
    stop: &dyn Fn() -> bool,
) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let pid = Pid::from_raw(child.id().try_into()?);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        // One that ends early does not read it all.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        let output = scope.spawn(move || read_all(stdout));
        let errors = scope.spawn(move || read_all(stderr));
        let mut is_told = false;
        while child.try_wait()?.is_none() {
            if stop() && !is_told {
                kill(pid, Signal::SIGTERM)?;
                is_told = true;
            }
            std::thread::sleep(LOOKED_EVERY);
        }
        Ok((output.join().unwrap_or_default(), errors.join().unwrap_or_default()))
    })
}

fn read_all(stream: Option<impl Read>) -> Vec<u8> {
    let mut all = Vec::new();
    // What was read before an error may say more than that.
    let _ = stream.map(|mut stream| stream.read_to_end(&mut all));
    all
}

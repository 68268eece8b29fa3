//! Has the index follow a batch of suspects, in a process of its own: what it takes in memory goes
//! with it, and what goes wrong in it ends the batch and not the daemon.

use anyhow::Context;
use canopy_index::Index;
use canopy_watch::{Suspect, Suspects};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// As many paths fit into a command line.
const PATHS_MAX: usize = 1000;

/// How often it is looked whether the process has ended.
const LOOKED_EVERY: Duration = Duration::from_millis(10);

/// Brings what the index says of suspects up to date, and returns the generation that has it. The
/// suspects are those of `roots`, in path order. Ends early, with an error, once `stop` says so.
pub fn apply<'a>(
    index: &Path,
    roots: impl Iterator<Item = &'a Vec<u8>>,
    suspects: &[Suspect],
    one_file_system: bool,
    stop: &dyn Fn() -> bool,
) -> anyhow::Result<u64> {
    let mut paths = Vec::new();
    for root in roots {
        let mut trees = Suspects::new(root, PATHS_MAX);
        let own = suspects.iter().filter(|one| canopy_watch::is_at_or_below(&one.path, root));
        for suspect in own {
            trees.add(&Suspect { path: existing(&suspect.path, root), recursive: true });
        }
        paths.extend(trees.iter().map(|tree| tree.path));
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg("--index").arg(index).arg("index");
    if one_file_system {
        command.arg("--one-file-system");
    }
    command.arg("--").args(paths.iter().map(|path| OsStr::from_bytes(path)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run canopy index")?;
    let said = wait(&mut child, stop)?;
    match child.wait()?.code() {
        // Some entries vanished or could not be read, as they would in any scan.
        Some(0 | 1) => Ok(Index::open(index)?.generation()),
        _ => anyhow::bail!("{}", said.lines().last().unwrap_or("the scan was ended")),
    }
}

/// Returns the nearest directory above a path that is there, the root at the latest: its listing has
/// the attributes of what is at the path.
fn existing(path: &[u8], root: &[u8]) -> Vec<u8> {
    let is_dir =
        |path: &Path| path.symlink_metadata().is_ok_and(|about| about.file_type().is_dir());
    let above = Path::new(OsStr::from_bytes(path)).ancestors().skip(1);
    let found = above.take_while(|at| at.as_os_str().len() > root.len()).find(|at| is_dir(at));
    found.map_or(root.to_vec(), |at| at.as_os_str().as_bytes().to_vec())
}

/// Waits for a process, or has it end, and returns what it said.
fn wait(child: &mut Child, stop: &dyn Fn() -> bool) -> anyhow::Result<String> {
    let mut errors = child.stderr.take().context("it has no standard error")?;
    let pid = Pid::from_raw(child.id().try_into()?);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut said = Vec::new();
            let _ = errors.read_to_end(&mut said);
            String::from_utf8_lossy(&said).into_owned()
        });
        let mut is_told = false;
        while child.try_wait()?.is_none() {
            if stop() && !is_told {
                kill(pid, Signal::SIGTERM)?;
                is_told = true;
            }
            std::thread::sleep(LOOKED_EVERY);
        }
        Ok(reader.join().unwrap_or_default())
    })
}

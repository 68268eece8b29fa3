//! `canopy store probe`: two machines find out whether each sees at once what the other creates in a
//! directory that they share. `docs/engine.md`, "Directories that machines share", says what tables
//! need of that.

mod findings;
mod meeting;
mod rounds;

use anyhow::{Context, bail};
use canopy::commands::store::Probe as Arguments;
use canopy::{Outcome, message};
use canopy_store::storage::{Machine, SharedDirectory};
use findings::Findings;
use meeting::Meeting;
use serde_json::json;
use std::fs::{self, DirBuilder};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Both machines write below this directory, and remove it when they are done.
const PLACE: &str = ".canopy-probe";

/// How long to wait until a directory of the other machine is seen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Carries the subcommand out.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let shown = arguments.directory.display();
    if shown.to_string().contains("s3://") {
        bail!("{shown}: the probe is for directories; every machine can use a bucket");
    }
    let directory = arguments.directory.canonicalize().with_context(|| shown.to_string())?;
    // This refuses a damaged or a newer one before anything is tried.
    let shared = match SharedDirectory::root_of(&directory)? {
        Some(root) => Some(SharedDirectory::open(&root)?),
        None => None,
    };
    let root = shared.as_ref().map_or(&*directory, SharedDirectory::root);
    let place = root.join(PLACE);
    make(root, &place)?;
    let own = Machine::own();
    if !arguments.json {
        message(format_args!("waiting for the same command on another machine"));
    }
    let wait = Duration::from_secs(arguments.wait);
    let meeting = Meeting::find(&place, wait, arguments.rounds).inspect_err(|_| {
        let _ = fs::remove_dir(&place);
    })?;
    let tried = rounds::run(&meeting, &own);
    // The other one removes it, or finds it left.
    let left = meeting.leave();
    let _ = fs::remove_dir(&place);
    let (own, other) = tried.context("the probe was not finished")?;
    if let Err(error) = left {
        message(format_args!("{error:#}"));
    }
    if own.machine == other.machine {
        bail!(
            "both commands ran on one machine, {}: run it on two machines at the same time",
            own.machine.name
        );
    }
    let noted = match &shared {
        Some(shared) if own.passed(&other) => note(shared, &own, &other)?,
        _ => Noted::Nothing,
    };
    print(arguments.json, root, &own, &other, &noted)?;
    match own.passed(&other) {
        true => Ok(Outcome::Complete),
        false => bail!("{}", findings::refusal(root, &own, &other)),
    }
}

/// Makes the directory where the machines meet, unless the other one has. Nobody else may be able to
/// put something in its place: files are created and removed there.
fn make(root: &Path, place: &Path) -> anyhow::Result<()> {
    let caller = rustix::process::geteuid().as_raw();
    let metadata = fs::metadata(root).with_context(|| root.display().to_string())?;
    if ![0, caller].contains(&metadata.uid()) || metadata.mode() & 0o022 != 0 {
        bail!(
            "others can write to {}: give a directory of your own that they cannot write to",
            root.display()
        );
    }
    match DirBuilder::new().mode(0o700).create(place) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make {}", place.display()));
        }
        _ => {}
    }
    let begun = Instant::now();
    let metadata = loop {
        match fs::symlink_metadata(place) {
            // The other machine has made it, and it is not seen here yet.
            Err(error) if error.kind() == ErrorKind::NotFound && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            found => break found.with_context(|| place.display().to_string())?,
        }
    };
    if !metadata.is_dir() || metadata.uid() != caller {
        bail!("{} is not a directory of yours: remove it", place.display());
    }
    Ok(())
}

/// The machines' right to write after the probe.
enum Noted {
    /// It is not a shared directory yet, or the probe has failed.
    Nothing,
    /// Both machines may write.
    Both,
    /// Neither may: each has to pass with one of these.
    Unknown(Vec<String>),
}

/// Notes that both machines may write, if one of them could before.
fn note(shared: &SharedDirectory, own: &Findings, other: &Findings) -> anyhow::Result<Noted> {
    let notes = shared.notes();
    if !own.may_write && !other.may_write {
        let known = notes.names()?;
        // By hand all notes can be removed, to try all machines anew.
        if !known.is_empty() {
            return Ok(Noted::Unknown(known));
        }
    }
    notes.add(&own.machine, Some(&other.machine))?;
    Ok(Noted::Both)
}

fn print(
    is_json: bool,
    root: &Path,
    own: &Findings,
    other: &Findings,
    noted: &Noted,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if is_json {
        let shown = json!({
            "directory": root.display().to_string(),
            "passed": own.passed(other),
            "may_write": matches!(noted, Noted::Both),
            "here": own.as_json(),
            "there": other.as_json(),
        });
        writeln!(out, "{shown}")?;
        return Ok(());
    }
    own.print(&mut out)?;
    other.print(&mut out)?;
    let (here, there, shown) = (&own.machine.name, &other.machine.name, root.display());
    match noted {
        _ if !own.passed(other) => {}
        Noted::Nothing => writeln!(out, "passed: {here} and {there} can share {shown}")?,
        Noted::Both => writeln!(out, "passed: {here} and {there} may write to {shown}")?,
        Noted::Unknown(known) => writeln!(
            out,
            "passed, but neither may write to {shown} yet: run it on {here} and, at the same time, \
             on one of {}",
            known.join(", ")
        )?,
    }
    Ok(())
}

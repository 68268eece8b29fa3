//! Runs cases, several at a time, each in a directory of its own that is removed afterwards.

use crate::actors::Actors;
use crate::case::{Case, Reply, Step};
use crate::deal::deal;
use crate::features::Features;
use crate::script;
use anyhow::{Context, bail};
use rustix::fs::IFlags;
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many cases are under way at a time. Many wait, for the clock or for the file system.
const LANES: usize = 6;

/// Outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All answers were as expected.
    Passed,
    /// One reply was not as expected.
    Failed(Failure),
    /// It was not run, because the file system has or lacks a feature.
    Skipped(String),
}

/// A call with an unexpected reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Caller of the call.
    pub who: String,
    /// The call with its arguments.
    pub call: String,
    /// The expected reply.
    pub expected: String,
    /// The actual reply.
    pub got: String,
}

/// The directory that all cases of a run work in. It is removed when the run ends.
pub struct Base {
    path: PathBuf,
    /// The same directory on each mount, the first one's included.
    mounts: Vec<PathBuf>,
}

impl Base {
    /// Makes one below a directory, which other mounts of its file system have, too.
    pub fn new(directory: &Path, also: &[PathBuf]) -> anyhow::Result<Self> {
        let directory = directory
            .canonicalize()
            .with_context(|| format!("{}: cannot be found", directory.display()))?;
        let name = format!("canopy-conformance.{}", std::process::id());
        let base = directory.join(&name);
        std::fs::create_dir(&base).with_context(|| format!("{}: not made", base.display()))?;
        std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o755))?;
        let others = also.iter().map(|directory| directory.join(&name));
        let mounts = Vec::from_iter([base.clone()].into_iter().chain(others));
        let base = Self { path: base, mounts };
        let missing = base.mounts.iter().find(|mount| !mount.is_dir());
        match missing {
            None => Ok(base),
            Some(mount) => bail!("{}: it is not another mount of the same", mount.display()),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the processes that make calls on each mount.
    pub fn actors(&self) -> Vec<Actors> {
        self.mounts.iter().map(|mount| Actors::new(mount)).collect()
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{}: not removed: {error}", self.path.display());
        }
    }
}

/// Runs cases and returns their outcomes in the same order.
pub fn run(base: &Base, cases: &[Case], features: &Features) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![None; cases.len()]);
    let lane = || {
        let mut actors = base.actors();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(at) else { break };
            let outcome = match features.missing(case) {
                Some(reason) => Outcome::Skipped(reason),
                None => one(base, &mut actors, &format!("{at:05}"), case),
            };
            lock(&outcomes)[at] = Some(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });
    let outcomes = std::mem::take(&mut *lock(&outcomes));
    outcomes.into_iter().flatten().collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs one case in a directory of the given name, in which everybody may do everything.
pub fn one(base: &Base, actors: &mut [Actors], directory: &str, case: &Case) -> Outcome {
    let path = base.path().join(directory);
    let made = std::fs::create_dir(&path)
        .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)));
    if let Err(error) = made {
        return failed("making the directory of the case", &error);
    }
    let outcome = steps(actors, directory, case);
    for actors in actors.iter_mut() {
        actors.end(directory, outcome == Outcome::Passed);
    }
    match std::fs::remove_dir_all(&path).or_else(|_| remove_forbidden(&path)) {
        Err(error) if outcome == Outcome::Passed => failed("removing what the case left", &error),
        _ => outcome,
    }
}

/// Removes what a case left that did not get to take `chattr` back.
fn remove_forbidden(path: &Path) -> std::io::Result<()> {
    allow(path)?;
    std::fs::remove_dir_all(path)
}

fn allow(path: &Path) -> std::io::Result<()> {
    let about = path.symlink_metadata()?;
    if about.is_file() || about.is_dir() {
        let _ = rustix::fs::ioctl_setflags(std::fs::File::open(path)?, IFlags::empty());
    }
    if about.is_dir() {
        for entry in path.read_dir()? {
            allow(&entry?.path())?;
        }
    }
    Ok(())
}

fn failed(what: &str, error: &std::io::Error) -> Outcome {
    Outcome::Failed(Failure {
        who: "root".to_owned(),
        call: what.to_owned(),
        expected: "success".to_owned(),
        got: error.to_string(),
    })
}

fn steps(actors: &mut [Actors], directory: &str, case: &Case) -> Outcome {
    let mut variables = HashMap::new();
    let dealt = deal(case, actors.len());
    for (step, mount) in case.steps.iter().zip(dealt) {
        if let Err(failure) = take(&mut actors[mount], directory, step, &mut variables) {
            return Outcome::Failed(failure);
        }
    }
    Outcome::Passed
}

fn take(
    actors: &mut Actors,
    directory: &str,
    step: &Step,
    variables: &mut HashMap<String, String>,
) -> Result<(), Failure> {
    let replace = |text: &str| script::replace(text, |name| variables.get(name).cloned());
    let (call, expected) = (replace(&step.call), step.expected.replaced(replace));
    let reply = match call.as_str() {
        _ if step.later => match actors.ask(&step.who, directory, &call) {
            Ok(()) => return Ok(()),
            Err(reply) => reply,
        },
        "await" => actors.answer(&step.who),
        "pending" => actors.pending(&step.who),
        call => actors.call(&step.who, directory, call),
    };
    if !expected.matches(&reply) {
        let (expected, got) = (expected.to_string(), reply.to_string());
        return Err(Failure { who: step.who.clone(), call, expected, got });
    }
    if let (Some(variable), Reply::Value(value)) = (&step.variable, reply) {
        variables.insert(variable.clone(), value);
    }
    Ok(())
}

//! `canopy ns import`: the records of a tree, and maybe its contents, in one commit.

mod files;
mod look;
mod tree;

use crate::moment::Moment;
use crate::{paths, place};
use anyhow::{Context, bail};
use canopy::Outcome;
use canopy::commands::ns::Import as Arguments;
use canopy::with_progress;
use canopy_namespace::{Inode, Listing, Namespace};
use canopy_text::counted;
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tree::{Plan, Tree};

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let shown = arguments.source.display();
    let opened = File::open(&arguments.source);
    let source = opened.with_context(|| format!("cannot open {shown}"))?;
    if !source.metadata().with_context(|| format!("cannot look at {shown}"))?.is_dir() {
        bail!("{shown}: not a directory");
    }
    let namespace = place::open(&arguments.namespace)?;
    let plan = plan(arguments, &namespace)?;
    if is_below(&source, &plan.own).with_context(|| format!("cannot look above {shown}"))? {
        bail!("{shown} lies in the namespace, which cannot be imported into itself");
    }
    let entries = AtomicU64::new(0);
    let message = |elapsed: Duration| {
        let entries = entries.load(Ordering::Relaxed);
        let rate = entries as f64 / elapsed.as_secs_f64().max(0.001);
        format!("{}, {rate:.0} a second", counted(entries, "entry"))
    };
    let faults = with_progress(&message, || {
        // In a thread of its own, which has a working directory of its own.
        std::thread::scope(|scope| {
            let import = || Tree::new(&plan, &namespace, source.into(), &entries)?.run();
            let joined = scope.spawn(import).join();
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    let entries = entries.into_inner();
    canopy::say(format!("imported {}", counted(entries, "entry")))?;
    Ok(faults.finish("imported"))
}

/// Finds the directory that everything goes into, or the one in which it is to be made.
fn plan(arguments: &Arguments, namespace: &Namespace) -> anyhow::Result<Plan> {
    let names = paths::names(&arguments.into)?;
    let mut plan = Plan {
        with_data: arguments.data,
        crosses_mounts: arguments.cross_mounts,
        own: directories_of(&arguments.namespace)?,
        directory: Inode::default(),
        name: None,
        takes_attributes: true,
        has_names: false,
    };
    match (paths::find(&Moment::now(namespace), &names)?, names.split_last()) {
        (Some(found), _) => {
            plan.has_names = !is_empty(namespace, &found)?;
            plan.takes_attributes = !plan.has_names && namespace.xattrs(found.id)?.is_empty();
            plan.directory = found;
        }
        (None, Some((name, above))) => {
            let above = paths::find(&Moment::now(namespace), above)?
                .context("the namespace has no root")?;
            plan.name = Some((above.id, name.to_vec()));
            plan.directory = above;
        }
        (None, None) => bail!("the namespace has no root"),
    }
    if !plan.directory.is_directory() {
        bail!("{}: not a directory", paths::show(&names));
    }
    Ok(plan)
}

/// Returns the directories of a namespace and those directly in them, by device and inode number.
fn directories_of(namespace: &Path) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut all = Vec::new();
    for directory in [place::directory_of(namespace)?, place::local_of(namespace)?] {
        let failed = || format!("cannot read {}", directory.display());
        all.push(identity(&directory.metadata().with_context(failed)?));
        for entry in directory.read_dir().with_context(failed)? {
            let metadata = entry.with_context(failed)?.metadata().with_context(failed)?;
            all.extend(metadata.is_dir().then(|| identity(&metadata)));
        }
    }
    Ok(all)
}

/// Returns whether a directory is one of these, or below one as far as the caller may look. No
/// path says that: it may be too long, of another process, or lead elsewhere by now.
fn is_below(source: &File, directories: &[(u64, u64)]) -> std::io::Result<bool> {
    let mut at = source.try_clone()?;
    loop {
        let here = identity(&at.metadata()?);
        if directories.contains(&here) {
            return Ok(true);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(above) = rustix::fs::openat(&at, "..", flags, Mode::empty()) else {
            return Ok(false);
        };
        at = above.into();
        if identity(&at.metadata()?) == here {
            return Ok(false);
        }
    }
}

/// Returns the device and inode number of a file.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn is_empty(namespace: &Namespace, directory: &Inode) -> anyhow::Result<bool> {
    let mut is_empty = true;
    namespace.list(&mut Listing::new(directory.id), 0, |_| {
        is_empty = false;
        false
    })?;
    Ok(is_empty)
}

//! `canopy ns import`: the records of a tree, and maybe its contents, in one commit.

mod files;
mod look;
mod tree;

use crate::moment::Moment;
use crate::{paths, place};
use anyhow::{Context, bail};
use canopy::commands::building::with_progress;
use canopy::commands::ns::Import as Arguments;
use canopy::{Outcome, counted};
use canopy_namespace::{Inode, Listing, Namespace};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tree::{Plan, Tree};

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let shown = arguments.source.display();
    let opened = std::fs::File::open(&arguments.source);
    let source = opened.with_context(|| format!("cannot open {shown}"))?;
    if !source.metadata().with_context(|| format!("cannot look at {shown}"))?.is_dir() {
        bail!("{shown}: not a directory");
    }
    let namespace = place::open(&arguments.namespace)?;
    let plan = plan(arguments, &namespace)?;
    if is_below(&arguments.source, plan.own)? {
        bail!("{shown} lies in the namespace, which cannot be imported into itself");
    }
    let entries = AtomicU64::new(0);
    let message = |elapsed: Duration| {
        let entries = entries.load(Ordering::Relaxed);
        let rate = entries as f64 / elapsed.as_secs_f64().max(0.001);
        format!("{}, {rate:.0} a second", counted(entries, "entry"))
    };
    let faults = with_progress(message, || {
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
        own: identity(&place::directory_of(&arguments.namespace)?)?,
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

/// Returns the device and inode number of a file.
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    let metadata = path.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Returns whether a path leads to a directory, or below it.
fn is_below(path: &Path, directory: (u64, u64)) -> anyhow::Result<bool> {
    for above in path.canonicalize()?.ancestors() {
        if identity(above)? == directory {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_empty(namespace: &Namespace, directory: &Inode) -> anyhow::Result<bool> {
    let mut is_empty = true;
    namespace.list(&mut Listing::new(directory.id), 0, |_| {
        is_empty = false;
        false
    })?;
    Ok(is_empty)
}

//! `canopy ns export`: a tree of a namespace as files of the system.

mod attributes;
mod tree;

use crate::moment::Source;
use crate::{paths, place};
use anyhow::{Context, bail};
use canopy::Outcome;
use canopy::with_progress;
use canopy_namespace::acl;
use canopy_text::counted;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tree::Tree;

pub fn run(source: &Path, directory: &Path, snapshot: Option<&str>) -> anyhow::Result<Outcome> {
    let (place, path) = paths::split(source);
    let opened = Source::open(&place, snapshot)?;
    let moment = opened.moment(&place, snapshot)?;
    let inode = paths::existing(&moment, &path)?;
    if !inode.is_directory() {
        bail!("{}: not a directory", path.display());
    }
    let target = make(directory)?;
    let entries = AtomicU64::new(0);
    let message = |elapsed: Duration| {
        let entries = entries.load(Ordering::Relaxed);
        let rate = entries as f64 / elapsed.as_secs_f64().max(0.001);
        format!("{}, {rate:.0} a second", counted(entries, "entry"))
    };
    let start = paths::names(&path)?;
    let run = || Tree::new(&moment, &start, inode, target, &entries)?.run();
    let faults = with_progress(&message, run)?;
    canopy::say(format!("exported {}", counted(entries.into_inner(), "entry")))?;
    let outcome = faults.finish("exported");
    if matches!(outcome, Outcome::Partial) {
        canopy::message("the copy is not complete");
    }
    Ok(outcome)
}

/// Makes the directory that everything goes into, or takes an empty one; only the caller may enter
/// it.
fn make(directory: &Path) -> anyhow::Result<OwnedFd> {
    let target = place::new_or_empty(directory, OFlags::empty(), directory)?;
    target
        .set_permissions(Permissions::from_mode(0o700))
        .with_context(|| directory.display().to_string())?;
    for name in [acl::ACCESS, acl::DEFAULT] {
        // New files there would inherit it; most directories have none.
        let _ = rustix::fs::fremovexattr(&target, name);
    }
    Ok(target.into())
}

//! `canopy ns export`: a tree of a namespace as files of the system.

mod attributes;
mod tree;

use crate::moment::Moment;
use crate::{paths, place};
use anyhow::{Context, bail};
use canopy::commands::building::with_progress;
use canopy::{Outcome, counted};
use canopy_namespace::acl;
use rustix::fd::OwnedFd;
use std::fs::{DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tree::Tree;

pub fn run(source: &Path, directory: &Path, snapshot: Option<&str>) -> anyhow::Result<Outcome> {
    let (place, path) = paths::split(source);
    let namespace = place::open(&place)?;
    let moment = Moment::of(&namespace, &place, snapshot)?;
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
    let faults = with_progress(message, || Tree::new(&moment, inode, target, &entries)?.run())?;
    let entries = entries.into_inner();
    canopy::say(format!("exported {}", counted(entries, "entry")))?;
    Ok(faults.finish("exported"))
}

/// Makes the directory that everything goes into, or takes an empty one; only the caller may enter
/// it.
fn make(directory: &Path) -> anyhow::Result<OwnedFd> {
    let shown = directory.display();
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mut names = directory.read_dir().with_context(|| format!("cannot read {shown}"))?;
            if names.next().is_some() {
                bail!("{shown} is not empty: give a directory that is, or a new one");
            }
        }
        Err(error) => return Err(error).with_context(|| format!("cannot make {shown}")),
    }
    let target = File::open(directory).with_context(|| format!("cannot open {shown}"))?;
    target.set_permissions(Permissions::from_mode(0o700)).with_context(|| shown.to_string())?;
    for name in [acl::ACCESS, acl::DEFAULT] {
        // What is written there would inherit it; most have none.
        let _ = rustix::fs::fremovexattr(&target, name);
    }
    Ok(target.into())
}

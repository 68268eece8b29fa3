//! `canopy ns snapshot`: of a namespace that is mounted, of one that nobody has open, or of one whose
//! servers run.

use crate::servers::{self, Access, Served};
use crate::{moment, place, viewed};
use anyhow::{Context, anyhow, bail};
use canopy::Outcome;
use canopy::commands::ns::SnapshotCommand as Arguments;
use canopy_cluster::{RestoreError, restore_cluster, unfinished_restore};
use canopy_mount::SNAPSHOTS;
use canopy_namespace::{Execute, Namespace, SNAPSHOTS_MAX, system_clock};
use canopy_text::clock::full_time;
use canopy_text::human_size;
use canopy_tools::json::exact;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let (Arguments::Create { place, .. }
    | Arguments::Delete { place, .. }
    | Arguments::Restore { place, .. }
    | Arguments::List { place, .. }) = arguments;
    let namespace = &viewed::namespace_of(place)?;
    if let Arguments::Restore { name, .. } = arguments {
        restore(namespace, name)?;
        return Ok(Outcome::Complete);
    }
    servers::check_running(namespace)?;
    let place = &place::asked(place)?;
    match arguments {
        Arguments::Create { name, .. } => {
            canopy_namespace::check_snapshot_name(name)?;
            let created = change(place, "create", name, Namespace::create_snapshot, |served| {
                served.create_snapshot(name).map(drop)
            });
            created.map_err(|errno| not_created(place, name, errno))?;
        }
        Arguments::Delete { name, .. } => {
            let deleted = change(place, "delete", name, Namespace::delete_snapshot, |served| {
                served.delete_snapshot(name)
            });
            deleted.map_err(|error| match error.downcast_ref::<Errno>() {
                Some(&Errno::NOENT) => {
                    anyhow!("{} has no snapshot {name}", place.display())
                }
                _ => error.context(format!("cannot delete snapshot {name}")),
            })?;
        }
        Arguments::List { json, .. } => list(place, *json)?,
        Arguments::Restore { .. } => {}
    }
    Ok(Outcome::Complete)
}

/// Does something with a snapshot through the mount, or else by servers or with the namespace itself.
fn change<T>(
    place: &Path,
    what: &str,
    name: &str,
    of_closed: impl FnOnce(&Namespace, &str) -> canopy_namespace::Result<T>,
    of_served: impl FnOnce(&dyn Execute) -> canopy_namespace::Result<()>,
) -> anyhow::Result<()> {
    if place::control(place, SNAPSHOTS)?.is_some() {
        let value = format!("{what} {name}");
        rustix::fs::setxattr(place, SNAPSHOTS, value.as_bytes(), XattrFlags::empty())?;
        return Ok(());
    }
    if servers::is_served(place)? {
        return with_served(place, |served| match of_served(served) {
            Err(canopy_namespace::Error::Posix(errno)) => Err(errno.into()),
            changed => Ok(changed?),
        });
    }
    let namespace = place::open(place)?;
    let changed = of_closed(&namespace, name);
    let closed = namespace.close();
    match changed {
        Err(canopy_namespace::Error::Posix(errno)) => return Err(errno.into()),
        changed => changed?,
    };
    Ok(closed?)
}

/// Does something with a namespace on servers that run.
fn with_served<T>(
    place: &Path,
    work: impl FnOnce(&dyn Execute) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let served = Served::open(place, &Access::without_contents())?;
    let done = work(&*served.namespace);
    let ended = served.end();
    let done = done?;
    ended?;
    Ok(done)
}

/// Restores a namespace to the state of a snapshot.
fn restore(place: &Path, name: &str) -> anyhow::Result<()> {
    let shown = place.display();
    if servers::is_served(place)? {
        return restore_served(place, name);
    }
    if let Some(mount) = viewed::mounted(place)? {
        let point = String::from_utf8_lossy(&mount.point).into_owned();
        bail!(
            "{shown} is mounted on {point}: unmount it first (canopy ns unmount {point}), or copy \
             what you need from '{point}/[@{name}]'"
        );
    }
    let namespace = place::open(place)?;
    moment::past(&namespace, place, name)?;
    namespace.restore_snapshot(name)?;
    // The state that this process has in memory is outdated now.
    drop(namespace);
    Ok(place::open(place)?.close()?)
}

/// Restores a namespace on several servers, none of which runs.
fn restore_served(place: &Path, name: &str) -> anyhow::Result<()> {
    let shown = place.display();
    if servers::addresses(place)?.is_some() {
        bail!(
            "{shown}: while its servers run, a namespace cannot be restored: stop them, and name the \
             place of the namespace"
        );
    }
    canopy_namespace::check_snapshot_name(name)?;
    let environment = place::environment(place)?;
    let (done, all) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let show = |_: Duration| {
        let [done, all] = [&done, &all].map(|number| number.load(Ordering::Relaxed));
        format!("{done} of {all} servers restored")
    };
    let note = |tables: usize, of: usize| {
        done.store(tables, Ordering::Relaxed);
        all.store(of, Ordering::Relaxed);
    };
    let restored = canopy::with_progress(&show, || {
        restore_cluster(&environment, &system_clock(), name, &note)
    });
    restored.map_err(|error| match error {
        RestoreError::Running(addresses) => anyhow!(
            "processes of {shown} run, at {}: unmount it everywhere, and stop them (SIGTERM, such as by \
             'systemctl stop canopy-cluster@NAME'); or copy what you need from '[@{name}]' on a mount",
            addresses.join(", ")
        ),
        // The servers, which list them, do not run.
        RestoreError::NoSnapshot(others) if !others.is_empty() => {
            anyhow!("{shown} has no snapshot {name}; it has {}", others.join(", "))
        }
        RestoreError::NoSnapshot(_) => anyhow!("{shown} has no snapshot {name}, nor any other one"),
        RestoreError::Unfinished(begun) => anyhow!(
            "the restore of snapshot {begun} has not ended: finish it first, with 'canopy ns snapshot \
             restore {shown} {begun}'"
        ),
        error => {
            let begun = unfinished_restore(&*environment.storage).ok().flatten();
            let context = match begun {
                Some(_) => format!(
                    "{shown} is not restored: finish it with 'canopy ns snapshot restore {shown} {name}'"
                ),
                None => format!("cannot restore {shown}; nothing was changed"),
            };
            anyhow::Error::new(error).context(context)
        }
    })
}

fn not_created(place: &Path, name: &str, error: anyhow::Error) -> anyhow::Error {
    let shown = place.display();
    match error.downcast_ref::<Errno>() {
        Some(&Errno::EXIST) => anyhow!(
            "{shown} has a snapshot {name} already; delete it first (canopy ns snapshot delete), \
             or take another name"
        ),
        Some(&Errno::NOSPC) => anyhow!(
            "cannot make snapshot {name}: the disk is full, or there are {SNAPSHOTS_MAX} already"
        ),
        Some(&Errno::BUSY) => anyhow!(
            "cannot make snapshot {name}: a large file was written all the time; try again, or \
             mount {shown} with --no-passthrough"
        ),
        Some(&Errno::ROFS) => anyhow!("cannot make snapshot {name}: {shown} is read-only"),
        _ => error.context(format!("cannot make snapshot {name}")),
    }
}

fn list(place: &Path, is_json: bool) -> anyhow::Result<()> {
    let told = match place::control(place, SNAPSHOTS)? {
        Some(told) => told,
        None if servers::is_served(place)? => {
            with_served(place, |served| Ok(served.snapshots_as_json()?))?
        }
        None => place::open_read_only(place)?.snapshots_as_json()?,
    };
    let mut out = std::io::stdout().lock();
    if is_json {
        for line in told.lines() {
            let one: serde_json::Value = serde_json::from_str(line)?;
            writeln!(out, "{}", exact(one))?;
        }
        return Ok(());
    }
    if !told.is_empty() {
        let [name, created, files, bytes, held] = ["name", "created", "files", "bytes", "holds"];
        writeln!(out, "{name:<20} {created:<19}  {files:>10}  {bytes:>8}  {held:>8}")?;
    }
    for line in told.lines() {
        let one: serde_json::Value =
            serde_json::from_str(line).with_context(|| format!("{line}: not a snapshot"))?;
        let number = |key: &str| one[key].as_i64();
        let size = |key: &str| number(key).map_or("?".into(), human_size);
        let Some(created_ns) = number("created_ns") else { bail!("{line}: not a snapshot") };
        let files = number("files").map_or("?".into(), |files| files.to_string());
        let time = full_time(created_ns);
        let time = time.split('.').next().unwrap_or(&time);
        let name = one["name"].as_str().unwrap_or_default();
        let (bytes, held) = (size("bytes"), size("held_bytes"));
        writeln!(out, "{name:<20} {time:<19}  {files:>10}  {bytes:>8}  {held:>8}")?;
    }
    Ok(())
}

//! `canopy ns import`: the records of a tree, and maybe its contents. `tree` walks through the source and
//! passes what it finds to a `target`: `one_table` in one commit, or `servers` while these go on.

mod count;
mod files;
mod look;
mod one_table;
mod pool;
mod servers;
mod target;
mod tree;

use crate::faults::Faults;
use crate::servers::{Access, Served, is_served};
use crate::{paths, place};
use anyhow::{Context, bail};
use canopy::Outcome;
use canopy::commands::ns::Import as Arguments;
use canopy::with_progress;
use canopy_cluster::contents::Memory;
use canopy_namespace::operation::Moment;
use canopy_namespace::{EntryName, Execute, Inode, Listing, ROOT};
use canopy_text::counted;
use count::Count;
use one_table::OneTable;
use pool::Pool;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use servers::{Cluster, Sender};
use std::fs::{File, Metadata};
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tree::{Plan, Tree};

/// Bytes of a file that are written before they are sent to the storage of servers.
const FILE_BYTES: usize = 16 << 20;

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let shown = arguments.source.display();
    let opened = File::open(&arguments.source);
    let source = opened.with_context(|| format!("cannot open {shown}"))?;
    if !source.metadata().with_context(|| format!("cannot look at {shown}"))?.is_dir() {
        bail!("{shown}: not a directory");
    }
    let (entries, faults) = (AtomicU64::new(0), Faults::default());
    match is_served(&arguments.namespace)? {
        true => into_servers(arguments, source, &entries, &faults)?,
        false => into_table(arguments, source, &entries, &faults)?,
    }
    let entries = entries.into_inner();
    if arguments.json {
        canopy::say_json(&json!({ "entries": entries, "faults": faults.count() }))?;
    } else {
        canopy::say(format!("imported {}", counted(entries, "entry")))?;
    }
    Ok(faults.finish("imported"))
}

/// Imports into a namespace of one table: all of it appears at once.
fn into_table(
    arguments: &Arguments,
    source: File,
    entries: &AtomicU64,
    faults: &Faults,
) -> anyhow::Result<()> {
    let namespace = place::open(&arguments.namespace)?;
    let own = directories_of(&arguments.namespace)?;
    let plan = plan(arguments, &namespace, own)?;
    check_source(arguments, &source, &plan)?;
    with_progress(&|elapsed: Duration| progress(entries, None, elapsed), || {
        in_own_thread(|| {
            let mut target = OneTable::begin(&namespace, faults)?;
            let top = target.top(&plan)?;
            let tree = Tree::new(&plan, (&mut target, top), source.into(), entries, faults)?;
            let top = tree.run()?;
            target.finish(&plan, top)
        })
    })
}

/// Imports into a namespace whose servers run, and go on meanwhile.
fn into_servers(
    arguments: &Arguments,
    source: File,
    entries: &AtomicU64,
    faults: &Faults,
) -> anyhow::Result<()> {
    let memory = Memory { file_bytes: FILE_BYTES, ..Memory::default() };
    let served = Served::open(&arguments.namespace, &Access { memory, ..Access::default() })?;
    if !served.is_trusted() {
        bail!(
            "only the owner of {} can import into it, with a certificate for servers or from a machine \
             with its storage",
            arguments.namespace.display()
        );
    }
    let own = served.directory.as_deref().map(directories_of).transpose()?.unwrap_or_default();
    let mut plan = plan(arguments, &*served.namespace, own)?;
    check_source(arguments, &source, &plan)?;
    servers::check_other(&arguments.source, &served)?;
    let source = OwnedFd::from(source);
    let stat = look::look_at_open(&source).context("the source")?;
    let top = servers::prepare(&served, &mut plan, &source, &stat)?;
    let sender = Sender { served: &served, faults, resumes: top.resumes };
    let (count, pool) = (Count::default(), Pool::new(servers::JOBS));
    let counted = source.try_clone().ok().filter(|_| std::io::stderr().is_terminal());
    let imported =
        with_progress(&|elapsed: Duration| progress(entries, count.all(), elapsed), || {
            std::thread::scope(|scope| {
                let (sender, pool, plan) = (&sender, &pool, &plan);
                if let Some(source) = counted {
                    scope.spawn(|| count.run(source));
                }
                let _open = pool.start(scope, servers::THREADS, |job| sender.work(job));
                let imported = in_own_thread(|| {
                    let mut target = Cluster::new(sender, pool);
                    let tree = Tree::new(plan, (&mut target, top.id), source, entries, faults)?;
                    let top = tree.run()?;
                    target.finish(plan, top)
                });
                count.end();
                imported
            })
        });
    let ended = served.end();
    imported.context("the import is not complete; the same command completes it")?;
    Ok(ended?)
}

/// Does something in a thread of its own, which has a working directory of its own.
fn in_own_thread<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns a line about imported entries; `all` is their number once it is known.
fn progress(entries: &AtomicU64, all: Option<u64>, elapsed: Duration) -> String {
    let entries = entries.load(Ordering::Relaxed);
    let rate = entries as f64 / elapsed.as_secs_f64().max(0.001);
    let left = match all {
        Some(all) if entries > 0 => {
            format!(" of {all}, {:.0} s left", all.saturating_sub(entries) as f64 / rate)
        }
        _ => String::new(),
    };
    format!("{}{left}, {rate:.0} a second", counted(entries, "entry"))
}

/// Fails if the source lies in the namespace.
fn check_source(arguments: &Arguments, source: &File, plan: &Plan) -> anyhow::Result<()> {
    let shown = arguments.source.display();
    if is_below(source, &plan.own).with_context(|| format!("cannot look above {shown}"))? {
        bail!("{shown} lies in the namespace, which cannot be imported into itself");
    }
    Ok(())
}

/// Finds the directory that everything goes into, or the one in which it is to be made.
fn plan(
    arguments: &Arguments,
    namespace: &dyn Execute,
    own: Vec<(u64, u64)>,
) -> anyhow::Result<Plan> {
    let names = paths::names(&arguments.into)?;
    let root = namespace.inode(Moment::Now, ROOT)?;
    let lookup =
        |directory, name: &[u8]| namespace.lookup(Moment::Now, EntryName::new(directory, name));
    let find = |names: &[&[u8]]| paths::find_by(root.clone(), names, lookup);
    let mut plan = Plan {
        with_data: arguments.data,
        crosses_mounts: arguments.cross_mounts,
        own,
        directory: Inode::default(),
        name: None,
        takes_attributes: true,
        has_names: false,
    };
    match (find(&names)?, names.split_last()) {
        (Some(found), _) => {
            plan.has_names = !is_empty(namespace, &found)?;
            let has_xattrs = !namespace.xattrs(Moment::Now, found.id)?.is_empty();
            plan.takes_attributes = !plan.has_names && !has_xattrs;
            plan.directory = found;
        }
        (None, Some((name, above))) => {
            let above = find(above)?.context("the namespace has no root")?;
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

fn is_empty(namespace: &dyn Execute, directory: &Inode) -> anyhow::Result<bool> {
    let mut is_empty = true;
    namespace.list(Moment::Now, &mut Listing::new(directory.id), 0, |_| {
        is_empty = false;
        false
    })?;
    Ok(is_empty)
}

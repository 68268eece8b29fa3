//! `canopy ns view`: queries under names of their own. A view is a symbolic link in `.canopy/views`
//! of a mount, to the query below its root.

use crate::servers::is_served;
use crate::unmount::mounted_on;
use anyhow::{Context as _, anyhow, bail};
use canopy::Outcome;
use canopy::commands::ns::ViewCommand as Arguments;
use canopy_namespace::system_clock;
use canopy_query::{Component, Context, parse, system_zone};
use canopy_site::is_own_or_roots;
use canopy_text::safe::terminal_name;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where views are, one below the other, below the root of a mount.
const VIEWS: [&str; 2] = [".canopy", "views"];

/// The path from there to the root.
const UP: &[u8] = b"../../";

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    match arguments {
        Arguments::Add { directory, name, query } => add(directory, name, query)?,
        Arguments::List { directory, json } => list(directory, *json)?,
        Arguments::Remove { directory, name } => remove(directory, name)?,
    }
    Ok(Outcome::Complete)
}

/// The directory of the views of a mount.
struct Views {
    path: PathBuf,
    opened: OwnedFd,
}

impl Views {
    /// Opens it, and makes it if it is missing and wanted; none if there is none. Whoever owns a
    /// directory on the way could have it lead elsewhere, so that must be the caller, root, or the
    /// owner of the root of the mount.
    fn open(directory: &Path, are_made: bool) -> anyhow::Result<Option<Self>> {
        let shown = directory.display();
        let mut path = directory.canonicalize().with_context(|| format!("cannot find {shown}"))?;
        if mounted_on(&path)?.is_none_or(|mount| mount.file_system != canopy_mount::TYPE) {
            if is_served(directory)? {
                bail!(
                    "{shown} is a namespace on several servers: mount it (canopy ns mount {shown} \
                     DIRECTORY), and name that directory"
                );
            }
            bail!("{shown}: no namespace is mounted there; mount one first: canopy ns mount");
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut opened = rustix::fs::open(&path, flags, Mode::empty())
            .with_context(|| format!("cannot open {shown}"))?;
        let owner = rustix::fs::fstat(&opened)?.st_uid;
        for name in VIEWS {
            path.push(name);
            let shown = path.display();
            if are_made {
                match rustix::fs::mkdirat(&opened, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(Errno::ACCESS | Errno::PERM) => return Err(may_not(&path)),
                    failed => failed.with_context(|| format!("cannot make {shown}"))?,
                }
            }
            opened = match rustix::fs::openat(&opened, name, flags, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::LOOP | Errno::NOTDIR) => bail!("{shown} is not a directory"),
                other => other.with_context(|| format!("cannot open {shown}"))?,
            };
            let uid = rustix::fs::fstat(&opened)?.st_uid;
            if uid != owner && !is_own_or_roots(uid) {
                bail!("{shown} is of uid {uid}, who decides what is in it: it is left alone");
            }
        }
        Ok(Some(Views { path, opened }))
    }
}

fn may_not(views: &Path) -> anyhow::Error {
    anyhow!(
        "you may not make views in {}; make a symbolic link to the query where you may write",
        views.display()
    )
}

/// Checks the name of a view.
fn check_name(name: &OsStr) -> anyhow::Result<()> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.contains(&b'/') || matches!(bytes, b"." | b"..") {
        bail!("{}: the name of a view is one name, without a '/'", name.display());
    }
    if bytes.starts_with(b"[") && bytes.ends_with(b"]") {
        bail!("{}: a name in brackets would be a query itself", name.display());
    }
    Ok(())
}

/// Returns the kind of view that a path is. An error states the fault of a query in it.
fn kind(path: &[u8]) -> anyhow::Result<&'static str> {
    let user = |name: &str| canopy_text::user_id(name);
    let group = |name: &str| canopy_text::group_id(name);
    let now_ns = system_clock()();
    let context = Context { now_ns, zone: system_zone(), user: &user, group: &group };
    let mut kind = None;
    for name in path.split(|byte| *byte == b'/') {
        if name == b".." {
            bail!("a view is of what is below the root of the mount: it has no '..'");
        }
        let component = parse(name, &context).map_err(|error| {
            anyhow!("{}: {error}", String::from_utf8_lossy(&terminal_name(name, true)))
        })?;
        kind = match (kind, component) {
            (_, Some(Component::Search(_))) => Some("query"),
            (_, Some(Component::Snapshot(_))) => Some("snapshot"),
            (_, Some(Component::Recent { .. })) => Some("recent"),
            (_, Some(Component::Duplicates)) => Some("duplicates"),
            (kind, None) => kind,
        };
    }
    kind.context("a view is a query in brackets, as in 'proj/[size>1G and age>1y]'")
}

fn add(directory: &Path, name: &OsStr, query: &OsStr) -> anyhow::Result<()> {
    check_name(name)?;
    let query = query.as_bytes();
    let query = query.strip_prefix(b"/").unwrap_or(query);
    kind(query)?;
    let target = OsStr::from_bytes(&[UP, query].concat()).to_owned();
    let views = Views::open(directory, true)?.context("the directory of views has gone")?;
    match rustix::fs::symlinkat(&target, &views.opened, name) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => bail!(
            "there is a view {} already; remove it first: canopy ns view remove",
            name.display()
        ),
        Err(Errno::ACCESS | Errno::PERM) => Err(may_not(&views.path)),
        Err(error) => Err(io::Error::from(error))
            .with_context(|| format!("cannot make {}", views.path.join(name).display())),
    }
}

fn remove(directory: &Path, name: &OsStr) -> anyhow::Result<()> {
    check_name(name)?;
    let shown = name.display();
    let none = || format!("there is no view {shown}");
    let views = Views::open(directory, false)?.with_context(none)?;
    let found = match rustix::fs::statat(&views.opened, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => bail!(none()),
        found => found.with_context(|| format!("cannot find view {shown}"))?,
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
        bail!("{}: not a view, but a file of somebody's", views.path.join(name).display());
    }
    rustix::fs::unlinkat(&views.opened, name, AtFlags::empty())
        .with_context(|| format!("cannot remove view {shown}"))
}

fn list(directory: &Path, is_json: bool) -> anyhow::Result<()> {
    let Some(views) = Views::open(directory, false)? else { return Ok(()) };
    let entries = Dir::read_from(&views.opened)
        .with_context(|| format!("cannot read {}", views.path.display()))?;
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry?;
        let target = rustix::fs::readlinkat(&views.opened, entry.file_name(), Vec::new());
        let Ok(target) = target else { continue };
        let Some(query) = target.as_bytes().strip_prefix(UP) else { continue };
        // A user that a query names may have gone since.
        let kind = kind(query).unwrap_or("wrong");
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        all.push((name, kind, query.to_vec()));
    }
    all.sort();
    let mut out = std::io::stdout().lock();
    for (name, kind, query) in all {
        if is_json {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (name, query) = (text(name.as_bytes()), text(&query));
            let told = serde_json::json!({"name": name, "type": kind, "query": query});
            writeln!(out, "{told}")?;
            continue;
        }
        let is_terminal = out.is_terminal();
        let name = terminal_name(name.as_bytes(), is_terminal);
        let query = terminal_name(&query, is_terminal);
        let (name, query) = (String::from_utf8_lossy(&name), String::from_utf8_lossy(&query));
        writeln!(out, "{name:<20} {kind:<10} {query}")?;
    }
    Ok(())
}

//! `canopy ns view`: queries under names of their own. A view is a symbolic link in `.canopy/views`
//! of a mount, to the query below its root.

use crate::unmount::mounted_on;
use anyhow::{Context as _, anyhow, bail};
use canopy::Outcome;
use canopy::commands::ns::View as Arguments;
use canopy_namespace::query::{Component, Context, parse, system_zone};
use canopy_namespace::system_clock;
use canopy_text::safe::terminal_name;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// Where views are, below the root of a mount.
const VIEWS: &str = ".canopy/views";

/// What leads from there to the root.
const UP: &[u8] = b"../../";

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    match arguments {
        Arguments::Add { directory, name, query } => add(directory, name, query)?,
        Arguments::List { directory, json } => list(directory, *json)?,
        Arguments::Remove { directory, name } => remove(directory, name)?,
    }
    Ok(Outcome::Complete)
}

/// Returns where the views of a mount are.
fn views(directory: &Path) -> anyhow::Result<PathBuf> {
    let shown = directory.display();
    let full = directory.canonicalize().with_context(|| format!("cannot find {shown}"))?;
    if mounted_on(&full)?.is_none_or(|mount| mount.file_system != canopy_mount::TYPE) {
        bail!("{shown}: no namespace is mounted there; mount one first: canopy ns mount");
    }
    Ok(full.join(VIEWS))
}

/// Returns the path of a view.
fn path_of(directory: &Path, name: &OsStr) -> anyhow::Result<PathBuf> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.contains(&b'/') || matches!(bytes, b"." | b"..") {
        bail!("{}: the name of a view is one name, without a '/'", name.display());
    }
    if bytes.starts_with(b"[") && bytes.ends_with(b"]") {
        bail!("{}: a name in brackets would be a query itself", name.display());
    }
    Ok(views(directory)?.join(name))
}

/// Returns what kind of view a path is. An error says what is wrong with a query in it.
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
    let path = path_of(directory, name)?;
    let query = query.as_bytes();
    let query = query.strip_prefix(b"/").unwrap_or(query);
    kind(query)?;
    let target = OsStr::from_bytes(&[UP, query].concat()).to_owned();
    let views = path.parent().unwrap_or(directory);
    let made = DirBuilder::new().recursive(true).mode(0o755).create(views);
    let linked = made.and_then(|()| symlink(&target, &path));
    linked.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => anyhow!(
            "there is a view {} already; remove it first: canopy ns view remove",
            name.display()
        ),
        ErrorKind::PermissionDenied => anyhow!(
            "you may not make views in {}; make a symbolic link to the query where you may write",
            views.display()
        ),
        _ => anyhow!("cannot make {}: {error}", path.display()),
    })
}

fn remove(directory: &Path, name: &OsStr) -> anyhow::Result<()> {
    let path = path_of(directory, name)?;
    let shown = name.display();
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("there is no view {shown}"),
        found => {
            let found = found.with_context(|| format!("cannot find view {shown}"))?;
            if !found.is_symlink() {
                bail!("{}: not a view, but a file of somebody's", path.display());
            }
        }
    }
    fs::remove_file(&path).with_context(|| format!("cannot remove view {shown}"))
}

fn list(directory: &Path, is_json: bool) -> anyhow::Result<()> {
    let views = views(directory)?;
    let entries = match fs::read_dir(&views) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot read {}", views.display()))?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.into_os_string().into_vec();
        let Some(query) = target.strip_prefix(UP) else { continue };
        // A user that a query names may have gone since.
        let kind = kind(query).unwrap_or("wrong");
        all.push((entry.file_name(), kind, query.to_vec()));
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

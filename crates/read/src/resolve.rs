//! From a path as a user gives it to a place in the index, as the kernel resolves it: through
//! symbolic links, `..` from where a link has led, nothing beyond a missing name.
//!
//! Inside its sources the index decides what names are, also where a file system is not mounted
//! here or has changed since. Outside of them, the live file system decides.

use crate::error::{Error, Lost, Result};
use crate::links::{NameKind, Trail, TrailEnd, is_at_or_below, is_too_long, kind_of, parent_of};
use crate::locate::{Start, look_up, may_search, source_of, to_path};
use canopy_index::{Index, SourceRecord};
use canopy_model::{AbsolutePath, base_name, escape, join_absolute, unescape};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Finds the entry at a path: absolute or relative to the working directory. A symbolic link is
/// followed on the way, and at the end of the path only before a slash. The start keeps the path
/// as it was given.
///
/// # Errors
///
/// Fails with `NotCovered` if no source has the path, and with `Lost` if it leads to nothing known.
/// Fails with `WorkingDirectory` if a relative path has no beginning, and with `Index`.
pub fn locate(index: &Index, given: &OsStr) -> Result<Start> {
    match resolve(index, given)? {
        PathTarget::Entry(start) => Ok(*start),
        PathTarget::Uncovered(path) => Err(not_covered(index, &path)),
    }
}

/// Finds what a path means for a command that goes down trees: its entry, or the roots of all
/// sources below a directory that is in none, as if each of them had been given.
///
/// # Errors
///
/// Fails with `NotCovered` if no source has the path, and with `Lost` if it leads to nothing known.
/// Fails with `WorkingDirectory` if a relative path has no beginning, and with `Index`.
pub fn locate_all(index: &Index, given: &OsStr) -> Result<Vec<Start>> {
    let above = match resolve(index, given)? {
        PathTarget::Entry(start) => return Ok(vec![*start]),
        PathTarget::Uncovered(path) => path,
    };
    let view = Arc::new(index.seen_from(AbsolutePath::new(&above))?.flattened());
    let below = view.sources().iter().filter(|source| is_at_or_below(&source.root, &above));
    let start = |source: &SourceRecord| {
        let mut shown = given.as_bytes().to_vec();
        if shown.last() != Some(&b'/') {
            shown.push(b'/');
        }
        shown.extend_from_slice(&unescape(source.root[above.len()..].trim_start_matches('/')));
        Start { given: shown, ..Start::of_source(&view, source) }
    };
    let starts: Vec<Start> = below.map(start).collect();
    match starts.is_empty() {
        true => Err(not_covered(index, &above)),
        false => Ok(starts),
    }
}

/// The result of resolving a path.
enum PathTarget {
    Entry(Box<Start>),
    /// Nothing of any source, at this absolute path.
    Uncovered(String),
}

fn resolve(index: &Index, given: &OsStr) -> Result<PathTarget> {
    let lost = |why| Error::Lost { path: given.as_bytes().to_vec(), why };
    if given.is_empty() {
        return Err(lost(Lost::Missing));
    }
    let text = escape(given.as_bytes());
    let base = match base(&text) {
        Err(_) if in_removed_directory() => return Err(lost(Lost::Missing)),
        base => base?,
    };
    // Nothing lies below a symbolic link, so a path that has an entry needs no link resolved.
    if let Some(path) = without_dots(&base, &text)
        && let Some(start) = entry_at(index, given, &path)?
        && ends_well(&start, &text)?
    {
        return Ok(PathTarget::Entry(Box::new(start)));
    }
    let (way, name) = match text.rsplit_once('/') {
        _ if asks_for_directory(&text) => (&*text, None),
        Some((way, name)) => (&text[..=way.len()], Some(name)),
        None => ("", Some(&*text)),
    };
    let (trail, end) = follow(index, &base, way)?;
    let here = trail.directory().to_owned();
    let (path, why) = match end {
        TrailEnd::At(directory) => match name {
            Some(name) => (join_absolute(&directory, name), None),
            None => (directory, None),
        },
        TrailEnd::Loop => return Err(lost(Lost::Loop)),
        TrailEnd::Missing => (here, Some(Lost::Missing)),
        TrailEnd::LongName => (here, Some(Lost::LongName)),
        TrailEnd::NotDirectory => (here, Some(Lost::NotDirectory)),
        TrailEnd::Denied => (here, Some(Lost::Denied)),
        TrailEnd::Unknown => (here, Some(Lost::Unseen)),
    };
    if why.is_none()
        && let Some(start) = entry_at(index, given, &path)?
    {
        return Ok(PathTarget::Entry(Box::new(Start { links: trail.links(), ..start })));
    }
    let view = index.seen_from(AbsolutePath::new(&path))?;
    match (source_of(&view, AbsolutePath::new(&path)), why) {
        (None, None) => Ok(PathTarget::Uncovered(path)),
        (None, _) => Err(not_covered(index, &join_absolute(&base, text.trim_start_matches('/')))),
        (Some(_), why) => {
            let why = why.map_or_else(|| why_not_at(&view, &path), Ok)?;
            let is_there = why == Lost::Missing && Path::new(given).symlink_metadata().is_ok();
            Err(lost(if is_there { Lost::Unindexed } else { why }))
        }
    }
}

/// Returns why nothing is known of an absolute path whose directory is.
fn why_not_at(view: &Index, path: &str) -> Result<Lost> {
    Ok(match kind_of(view, parent_of(path), base_name(path), live_kind)? {
        NameKind::Missing if is_too_long(base_name(path)) => Lost::LongName,
        NameKind::Missing => Lost::Missing,
        NameKind::Closed => Lost::Denied,
        _ => Lost::Unseen,
    })
}

/// Returns the directory that a path begins in.
fn base(path: &str) -> Result<String> {
    if path.starts_with('/') {
        return Ok("/".to_owned());
    }
    let here = std::env::current_dir().map_err(Error::WorkingDirectory)?;
    Ok(escape(here.as_os_str().as_bytes()).into_owned())
}

/// Returns whether the working directory was removed, so that nothing is in it.
pub fn in_removed_directory() -> bool {
    std::env::current_dir().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Returns whether the last component of a path stands for a directory, through links.
fn asks_for_directory(path: &str) -> bool {
    matches!(path.rsplit('/').next(), Some("" | "." | ".."))
}

/// Returns the absolute path that a path stands for if no symbolic link is on its way; `None` if
/// that depends on what the names before a `..` are.
fn without_dots(base: &str, path: &str) -> Option<String> {
    let mut names = base.split('/').chain(path.split('/'));
    names.try_fold("/".to_owned(), |path, name| match name {
        "" | "." => Some(path),
        ".." => None,
        name => Some(join_absolute(&path, name)),
    })
}

/// Returns whether what was found is what the end of the path asks for.
fn ends_well(start: &Start, path: &str) -> Result<bool> {
    Ok(match path.rsplit('/').next() {
        Some("") => start.is_dir(),
        Some(".") => {
            start.is_dir()
                && may_search(&start.view, &start.source, start.path.as_path(), &start.inode)?
        }
        _ => true,
    })
}

/// Returns the entry with an absolute path, if the caller may see it.
fn entry_at(index: &Index, given: &OsStr, path: &str) -> Result<Option<Start>> {
    let path = AbsolutePath::new(path);
    let view = index.seen_from(path)?;
    let Some((source, path)) = source_of(&view, path) else { return Ok(None) };
    let Some(inode) = look_up(&view, source, path)? else { return Ok(None) };
    let (given, source) = (given.as_bytes().to_vec(), source.clone());
    let path = path.to_buf();
    Ok(Some(Start { given, source, path, inode, view: Arc::new(view), links: 0 }))
}

/// Follows a path to a directory; returns how far it goes, and where that is.
fn follow(index: &Index, base: &str, path: &str) -> Result<(Trail, TrailEnd)> {
    let mut trail = Trail::of_path(base, path);
    let end = trail
        .go_by_name(|ahead| Ok(Arc::new(index.seen_from(AbsolutePath::new(ahead))?)), live_kind)?;
    Ok((trail, end))
}

/// Returns what lies at an absolute path of the live file system.
fn live_kind(path: &str) -> NameKind {
    let path = to_path(path);
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => NameKind::Directory,
        Ok(found) if found.is_symlink() => match path.read_link() {
            Ok(target) => NameKind::Link(escape(target.as_os_str().as_bytes()).into_owned()),
            Err(_) => NameKind::Unseen,
        },
        Ok(_) => NameKind::Other,
        Err(error) if error.kind() == ErrorKind::NotFound => NameKind::Missing,
        Err(error) if error.kind() == ErrorKind::InvalidFilename => NameKind::Missing,
        Err(_) => NameKind::Unseen,
    }
}

/// Returns the error of a path that is in no source, with what helps as far as something does.
fn not_covered(index: &Index, path: &str) -> Error {
    let shown = |path: &str| to_path(path).display().to_string();
    let hint = match live_kind(path) {
        NameKind::Directory if path != "/" => format!(" ('canopy index {}' adds it)", shown(path)),
        NameKind::Other => {
            format!(" ('canopy index {}' adds the directory that it is in)", shown(parent_of(path)))
        }
        NameKind::Link(_) => {
            let inside = format!("{path}/");
            match locate(index, to_path(&inside).as_os_str()) {
                Ok(_) => format!(", but what this link leads to: ask for {}", shown(&inside)),
                Err(_) => String::new(),
            }
        }
        NameKind::Missing => ", and nothing is there".to_owned(),
        NameKind::Directory | NameKind::Closed | NameKind::Unseen => String::new(),
    };
    let roots: Vec<String> = index.sources().iter().map(|source| shown(&source.root)).collect();
    Error::NotCovered {
        path: shown(path),
        hint,
        covered: if roots.is_empty() { "no sources".to_owned() } else { roots.join(", ") },
    }
}

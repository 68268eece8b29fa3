//! Changes of an index that read no source: sources are removed and renamed, tables are changed.

use crate::Context;
use crate::publishing::publish;
use anyhow::Context as _;
use canopy_index::{Index, Writer, WriterOptions};
use canopy_model::{Generation, escape};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The result of a change of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedSource {
    /// Root of the source, escaped.
    pub root: String,
    /// The generation that has the change. `None` for a tree that was never a source: only the
    /// failure of its scan is forgotten.
    pub generation: Option<Generation>,
    /// Whether all derived tables could be computed anew.
    pub is_complete: bool,
}

/// Publishes a change of an index that exists, and returns the result of `change` with the
/// generation. After an error, the index stays as it was.
///
/// # Errors
///
/// [`NeedsDerivedTables`](crate::NeedsDerivedTables), [`Interrupted`](crate::Interrupted), errors of
/// the index, and those of `change`.
pub fn edit<T>(
    cx: &Context<'_>,
    location: &Path,
    change: impl FnOnce(&mut Writer) -> anyhow::Result<T>,
) -> anyhow::Result<(T, Generation)> {
    let mut writer = open(cx, location)?;
    let changed = change(&mut writer)?;
    Ok((changed, publish(cx, writer)?.generation))
}

/// Removes a source, which has this name or path, from the index; the tree stays. Derived tables are
/// computed with this number of threads.
///
/// # Errors
///
/// If there is no such source, and those of [`edit`].
pub fn remove_source(
    cx: &Context<'_>,
    location: &Path,
    source: &str,
    threads: usize,
) -> anyhow::Result<EditedSource> {
    change_source(cx, location, source, true, threads, &|writer, source| {
        Ok(writer.remove_source(source))
    })
}

/// Gives another name to a source, which has this name or path. Derived tables are computed with this
/// number of threads.
///
/// # Errors
///
/// If there is no such source, if another one has the name, and those of [`edit`].
pub fn rename_source(
    cx: &Context<'_>,
    location: &Path,
    source: &str,
    name: &str,
    threads: usize,
) -> anyhow::Result<EditedSource> {
    change_source(cx, location, source, false, threads, &|writer, source| {
        writer.rename_source(source, name)
    })
}

/// Opens the writer of an index that exists.
fn open(cx: &Context<'_>, location: &Path) -> anyhow::Result<Writer> {
    drop(Index::open(location)?);
    cx.open_writer(location, WriterOptions::default())
}

/// Changes the source of a name or root, and returns its root. `None` if there is no such source.
type SourceChange<'a> = &'a dyn Fn(&mut Writer, &str) -> canopy_index::Result<Option<String>>;

/// Publishes a change of a source, with derived tables. `change` returns the root of the source, if
/// there is one. Otherwise, the failure of the tree is forgotten, if the source `is_removed`.
fn change_source(
    cx: &Context<'_>,
    location: &Path,
    source: &str,
    is_removed: bool,
    threads: usize,
    change: SourceChange<'_>,
) -> anyhow::Result<EditedSource> {
    let mut writer = open(cx, location)?;
    // A name as it is, or else a path: the tree may be gone.
    let changed = match change(&mut writer, source)? {
        Some(root) => Some(root),
        None => change(&mut writer, &root(source)?)?,
    };
    if changed.is_none() && is_removed && writer.forget_failure(&root(source)?) {
        writer.save_failures()?;
        return Ok(EditedSource { root: root(source)?, generation: None, is_complete: true });
    }
    let root = changed.with_context(|| {
        format!("no source is called '{source}'; 'canopy source list' names all")
    })?;
    let is_complete = match cx.derived {
        Some(derived) => derived.refresh(&mut writer, threads)?,
        None => true,
    };
    let generation = Some(publish(cx, writer)?.generation);
    Ok(EditedSource { root, generation, is_complete })
}

/// Returns a path as sources have it: absolute, without links, escaped.
fn root(path: &str) -> anyhow::Result<String> {
    let path = Path::new(path);
    // A path that is gone may have a slash at its end, too.
    let absolute = || std::path::absolute(path).map(|path| path.components().collect::<PathBuf>());
    let real = path.canonicalize().or_else(|_| absolute());
    Ok(escape(real.context("no path")?.as_os_str().as_bytes()).into_owned())
}

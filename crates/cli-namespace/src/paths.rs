//! Paths in namespaces, and files in messages.

use crate::moment::Moment;
use crate::place;
use anyhow::{Context, anyhow, bail};
use canopy_namespace::{FileId, Inode};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Splits NAMESPACE:PATH: behind the bucket, or behind the first part that is a directory.
pub fn split(source: &Path) -> (PathBuf, PathBuf) {
    let bytes = source.as_os_str().as_bytes();
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':');
    let mut split = colons.map(|(at, _)| (path(&bytes[..at]), path(&bytes[at + 1..])));
    let whole = || (source.to_owned(), PathBuf::from("/"));
    if place::bucket_of(source).is_some() {
        // The first colon behind that of s3://.
        let is_scheme = |one: &Path| place::bucket_of(one).is_none();
        return split.find(|(namespace, _)| !is_scheme(namespace)).unwrap_or_else(whole);
    }
    match source.is_dir() {
        true => whole(),
        false => split.find(|(namespace, _)| namespace.is_dir()).unwrap_or_else(whole),
    }
}

/// Returns the names of a path in a namespace, which begins at its root with or without a slash.
pub fn names(path: &Path) -> anyhow::Result<Vec<&[u8]>> {
    let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    let names = Vec::from_iter(names.filter(|name| !matches!(*name, b"" | b".")));
    if names.contains(&&b".."[..]) {
        bail!("{}: '..' is not understood here", path.display());
    }
    Ok(names)
}

/// Returns the inode at a path; `None` if its last name is missing. No symbolic link is followed.
pub fn find(tree: &Moment<'_>, names: &[&[u8]]) -> anyhow::Result<Option<Inode>> {
    find_by(tree.root()?, names, |directory, name| tree.lookup(directory, name))
}

/// Like `find`, from a directory on, with a function that looks names up.
pub fn find_by(
    mut inode: Inode,
    names: &[&[u8]],
    lookup: impl Fn(FileId, &[u8]) -> canopy_namespace::Result<Inode>,
) -> anyhow::Result<Option<Inode>> {
    for (at, name) in names.iter().enumerate() {
        let shown = || show(&names[..=at]);
        inode = match lookup(inode.id, name) {
            Ok(found) => found,
            Err(error) if error.errno() == Errno::NOENT && at + 1 == names.len() => {
                return Ok(None);
            }
            Err(error) => return Err(error).with_context(shown),
        };
        if at + 1 < names.len() && !inode.is_directory() {
            bail!("{}: not a directory", shown());
        }
    }
    Ok(Some(inode))
}

/// Returns the inode at a path that must exist.
pub fn existing(tree: &Moment<'_>, path: &Path) -> anyhow::Result<Inode> {
    let names = names(path)?;
    find(tree, &names)?.ok_or_else(|| anyhow!("{}: no such file or directory", show(&names)))
}

/// Returns a path as messages show it.
pub fn show<T: AsRef<[u8]>>(names: &[T]) -> String {
    let names = Vec::from_iter(names.iter().map(|name| String::from_utf8_lossy(name.as_ref())));
    format!("/{}", names.join("/"))
}

//! Follows a path that is a symbolic link, for commands that look through it.

use crate::error::{Error, Lost, Result};
use crate::inode::Inode;
use crate::links::{LINKS_MAX, Links, Resolved, parent_of};
use crate::locate::{Start, absolute_path, to_path};
use crate::resolve::{locate, locate_all};
use canopy_index::Index;
use canopy_model::{FileType, join_absolute};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Finds the entry at a path, and where it is a symbolic link, what that leads to. It keeps the
/// path as it was given.
///
/// # Errors
///
/// Fails with `NotCovered` if no source has the path, and with `Lost` if it leads to nothing known.
/// Fails with `WorkingDirectory` if a relative path has no beginning, and with `Index`.
pub fn locate_followed(index: &Index, given: &OsStr) -> Result<Start> {
    follow_start(index, locate(index, given)?, given)
}

/// Finds what a path means as [`locate_all`] does, and where it is a symbolic link, what that
/// leads to.
///
/// # Errors
///
/// Fails with `NotCovered` if no source has the path, and with `Lost` if it leads to nothing known.
/// Fails with `WorkingDirectory` if a relative path has no beginning, and with `Index`.
pub fn locate_all_followed(index: &Index, given: &OsStr) -> Result<Vec<Start>> {
    let starts = locate_all(index, given)?;
    starts.into_iter().map(|start| follow_start(index, start, given)).collect()
}

fn follow_start(index: &Index, start: Start, given: &OsStr) -> Result<Start> {
    let (links, shown) = (Links::new(start.view.clone()), start.given.clone());
    let error = |why| Error::Lost { path: given.as_bytes().to_vec(), why };
    let start = followed(index, &links, start).map_err(error)?;
    Ok(Start { given: shown, ..start })
}

/// Returns the entry that a symbolic link leads to.
///
/// # Errors
///
/// Fails if a link leads to nothing known, or to itself.
pub fn inode_followed(
    index: &Index,
    links: &Links,
    start: &Start,
) -> std::result::Result<Inode, Lost> {
    let link = absolute_path(&start.source, start.path.as_path());
    match links.follow_after(start.links, &link, &start.inode.target) {
        Resolved::Entry(reached) => Ok(reached.inode),
        _ => followed(index, links, start.clone()).map(|found| found.inode),
    }
}

/// Follows an entry, which leads to itself unless it is a symbolic link. Some links lead through
/// directories that no index covers. Links on their way are resolved on the live file system, like
/// those of a path that a user gives.
///
/// # Errors
///
/// Fails if a link leads to nothing known, or to itself.
pub fn followed(index: &Index, links: &Links, start: Start) -> std::result::Result<Start, Lost> {
    if start.inode.attributes.file_type() != FileType::Symlink {
        return Ok(start);
    }
    let link = absolute_path(&start.source, start.path.as_path());
    let target = &start.inode.target;
    let (reached, before) = match links.follow_after(start.links, &link, target) {
        Resolved::Entry(reached) => (reached.absolute, reached.links),
        Resolved::Missing => return Err(Lost::Missing),
        Resolved::NotDirectory => return Err(Lost::NotDirectory),
        Resolved::Denied => return Err(Lost::Denied),
        Resolved::Loop => return Err(Lost::Loop),
        Resolved::LongName => return Err(Lost::LongName),
        Resolved::Unknown if target.is_empty() => return Err(Lost::Missing),
        Resolved::Unknown if target.starts_with('/') => (target.clone(), start.links + 1),
        Resolved::Unknown => (join_absolute(parent_of(&link), target), start.links + 1),
    };
    let found = match locate(index, to_path(&reached).as_os_str()) {
        Ok(found) if before + found.links > LINKS_MAX => return Err(Lost::Loop),
        Ok(found) => Start { links: before + found.links, ..found },
        Err(Error::NotCovered { .. }) => return Err(Lost::Outside),
        Err(Error::Lost { why, .. }) => return Err(why),
        Err(_) => return Err(Lost::Missing),
    };
    match found.inode.attributes.file_type() {
        FileType::Symlink => Err(Lost::Outside),
        _ => Ok(found),
    }
}

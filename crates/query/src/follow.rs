//! Where symbolic links lead, as far as the index knows.

use crate::error::{Error, Result};
use crate::locate::{Start, absolute_path, locate};
use canopy_index::Index;
use canopy_model::{FileType, unescape};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Links followed one after the other, as the kernel does.
const LINKS_MAX: usize = 40;

/// Finds the entry at a path, and where it is a symbolic link, what that leads to. It keeps the path as it was given.
pub(crate) fn locate_followed(index: &Index, given: &OsStr) -> Result<Start> {
    let start = locate(index, given)?;
    let missing = || Error::NotFound(given.to_string_lossy().into_owned());
    let start = followed(index, start).map_err(|_| missing())?;
    Ok(Start { given: given.as_bytes().to_vec(), ..start })
}

/// Why a symbolic link leads to nothing that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The index has nothing there, or not for the caller to see.
    Missing,
    /// The index does not cover it.
    Outside,
}

/// What an entry leads to: itself unless it is a symbolic link.
pub(crate) fn followed(index: &Index, mut start: Start) -> std::result::Result<Start, Lost> {
    for _ in 0..LINKS_MAX {
        if start.inode.attributes.file_type() != FileType::Symlink {
            return Ok(start);
        }
        let link = absolute_path(&start.source, &start.path);
        let link = unescape(&link);
        let target = unescape(&start.inode.target);
        if target.is_empty() {
            return Err(Lost::Missing);
        }
        let mut path = Vec::new();
        if !target.starts_with(b"/") {
            let end = link.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            path.extend_from_slice(&link[..end + 1]);
        }
        path.extend_from_slice(&target);
        start = match locate(index, OsStr::from_bytes(&path)) {
            Ok(next) => next,
            Err(Error::NotCovered { .. }) => return Err(Lost::Outside),
            Err(_) => return Err(Lost::Missing),
        };
    }
    Err(Lost::Missing)
}

//! Roots of sources that are entries of other sources: where a source was scanned without what is
//! mounted in it, the mount point is in its listing, and may be the root of another source.

use crate::error::Result;
use crate::links::parent_of;
use crate::locate::{lists, look_up, source_of};
use canopy_index::{Index, SourceRecord};
use canopy_model::{AbsolutePath, base_name};

/// Returns whether the root of a source is in a listing of another source that the caller sees, so
/// that a list of everything has it already.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn root_is_listed(index: &Index, source: &SourceRecord) -> Result<bool> {
    let Some((around, directory)) = source_of(index, AbsolutePath::new(parent_of(&source.root)))
    else {
        return Ok(false);
    };
    if around.id == source.id {
        return Ok(false);
    }
    let path = directory.child(base_name(&source.root));
    Ok(lists(index, around, directory)? && look_up(index, around, path.as_path())?.is_some())
}

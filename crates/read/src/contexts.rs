//! Security contexts of SELinux, which are values of an extended attribute.

use crate::error::Result;
use crate::inode::Inode;
use crate::locate::{Start, read_xattrs, xattrs_of};
use canopy_index::column::{KEY, NAME, VALUE, VALUE_PATH};
use canopy_model::{SourcePath, SourcePathBuf, unescape, xattr_names};
use rustc_hash::FxHashMap;

/// The attribute that holds them.
const KEY_NAME: &str = "security.selinux";

/// Returns whether an entry has a context.
pub fn has_context(inode: &Inode) -> bool {
    xattr_names::has(&inode.xattrs, KEY_NAME)
}

/// Returns whether a context is all that an entry has of extended attributes.
pub fn is_context_alone(inode: &Inode) -> bool {
    inode.xattrs == KEY_NAME
}

/// Returns the context of an entry, if it has one that the caller may see.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn context_of(start: &Start) -> Result<Option<Vec<u8>>> {
    if !has_context(&start.inode) {
        return Ok(None);
    }
    let all = xattrs_of(&start.view, &start.source, start.path.as_path())?;
    Ok(all.iter().find(|(key, _)| key == KEY_NAME).map(|(_, value)| text(value)))
}

/// Returns the contexts of what is in a directory, or in all below it too, by path.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn contexts_in(start: &Start, below: bool) -> Result<FxHashMap<SourcePathBuf, Vec<u8>>> {
    let mut found = FxHashMap::default();
    for shard in start.view.shards_with_values(start.source.id, start.path.as_path())? {
        for batch in read_xattrs(shard)? {
            let batch = batch?;
            let (paths, names) = (VALUE_PATH.of(&batch)?, NAME.of(&batch)?);
            let (keys, values) = (KEY.of(&batch)?, VALUE.of(&batch)?);
            let wanted = (0..batch.num_rows()).filter(|&at| {
                keys.value(at) == KEY_NAME && (below || paths.value(at) == start.path.as_str())
            });
            found.extend(wanted.map(|at| {
                (
                    SourcePath::escaped(paths.value(at)).child(names.value(at)),
                    text(values.value(at)),
                )
            }));
        }
    }
    Ok(found)
}

/// Returns a context without the NUL that ends it.
fn text(value: &str) -> Vec<u8> {
    let mut text = unescape(value).into_owned();
    text.pop_if(|last| *last == 0);
    text
}

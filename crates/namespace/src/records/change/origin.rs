//! Files that come from another file system with all their attributes, as imports make them.

use crate::error::Result;
use crate::records::acl;
use crate::records::inode::{Inode, flag};
use crate::records::xattrs::XATTR_BYTES_MAX;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Attributes and contents that a new file has from the beginning. It inherits nothing from its
/// directory but the tree with limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Nanoseconds since 1970 when its contents were changed.
    pub mtime_ns: i64,
    /// When its attributes were changed.
    pub ctime_ns: i64,
    /// When it was read.
    pub atime_ns: i64,
    /// When it was made.
    pub btime_ns: i64,
    /// Length, and space in units of 512 bytes, of contents that stay elsewhere: reading them fails.
    pub absent: Option<(u64, u64)>,
    /// Contents of a regular file that are a record.
    pub small: Vec<u8>,
    /// Names and values of extended attributes; none for directories.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Origin {
    /// Gives them to an inode, and returns the extended attributes that records contain.
    pub(super) fn give(
        &self,
        inode: &mut Inode,
        inline_bytes_max: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let has_contents = self.absent.is_some() || !self.small.is_empty();
        if has_contents && !inode.is_regular() || inode.is_directory() && !self.xattrs.is_empty() {
            return Err(Errno::INVAL.into());
        }
        (inode.mtime_ns, inode.ctime_ns) = (self.mtime_ns, self.ctime_ns);
        (inode.atime_ns, inode.btime_ns) = (self.atime_ns, self.btime_ns);
        if let Some((size, blocks)) = self.absent {
            (inode.size, inode.blocks) = (size, blocks);
            inode.flags |= flag::ABSENT;
        } else if !self.small.is_empty() {
            if self.small.len() > inline_bytes_max {
                return Err(Errno::FBIG.into());
            }
            inode.size = self.small.len() as u64;
            inode.blocks = inode.size.div_ceil(512);
            inode.flags |= flag::INLINE;
        }
        let mut recorded = Vec::with_capacity(self.xattrs.len());
        for (name, value) in &self.xattrs {
            if is_recorded(&mut inode.mode, name, value)? {
                recorded.push((name.clone(), value.clone()));
            }
        }
        if !recorded.is_empty() {
            inode.flags |= flag::XATTRS;
        }
        Ok(recorded)
    }
}

/// Returns whether an extended attribute of a file that comes from elsewhere is a record: an access
/// ACL may be no more than the mode, which it changes.
///
/// # Errors
///
/// Fails with `INVAL` or `TOOBIG` if no file can have the attribute.
pub(crate) fn is_recorded(mode: &mut u32, name: &[u8], value: &[u8]) -> Result<bool> {
    if value.len() > XATTR_BYTES_MAX {
        return Err(Errno::TOOBIG.into());
    }
    let is_access = name == acl::ACCESS.as_bytes();
    if !is_access && name != acl::DEFAULT.as_bytes() {
        return Ok(true);
    }
    let acl = acl::parse(value)?;
    if is_access {
        *mode = acl::mode_with(&acl, *mode);
    }
    Ok(!is_access || !acl::is_minimal(&acl))
}

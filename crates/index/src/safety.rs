//! Whether a directory is safe from everybody but its owner.

use crate::error::{Error, Result};
use canopy_model::{Acl, Permissions};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const STICKY: u32 = 0o1000;

/// Checks that nobody but user `uid` (and root) can change a directory, or replace it by renaming it
/// or one above it. It must exist. Returns its real path.
///
/// # Errors
/// [`Error::Unsafe`] if somebody else can, and if it or what is above it cannot be looked at.
pub fn check(directory: &Path, uid: u32) -> Result<PathBuf> {
    let real = directory.canonicalize().map_err(Error::io("open", directory))?;
    for (level, directory) in real.ancestors().enumerate() {
        let metadata = directory.symlink_metadata().map_err(Error::io("look at", directory))?;
        let fault = |why: String| Error::Unsafe { path: directory.to_owned(), why };
        if metadata.uid() != uid && metadata.uid() != 0 {
            return Err(fault(format!(
                "it belongs to uid {}, who could replace what is in it",
                metadata.uid()
            )));
        }
        if level == 0 && metadata.uid() != uid {
            return Err(fault(format!("it belongs to uid {}, not to you", metadata.uid())));
        }
        let sticky = level > 0 && metadata.mode() & STICKY != 0;
        if others_write(directory, &metadata, uid).map_err(Error::io("look at", directory))?
            && !sticky
        {
            let path = directory.display();
            return Err(fault(format!(
                "others can write to it; 'chmod go-w {path}' or take another place"
            )));
        }
    }
    Ok(real)
}

/// Returns whether anybody but `uid` and root may write to a directory.
fn others_write(directory: &Path, metadata: &Metadata, uid: u32) -> io::Result<bool> {
    if Permissions::surely_written_by_owner_alone(metadata.mode()) {
        return Ok(false);
    }
    let mut value = vec![0; 64 * 1024];
    // Without an ACL, or with one that cannot be read, the group bits count as what they are.
    let acl = match rustix::fs::getxattr(directory, Acl::XATTR_NAME, &mut value[..]) {
        Ok(length) => Some(Acl::decode(&value[..length]).map_err(io::Error::other)?),
        Err(_) => None,
    };
    let (uid_of, gid) = (metadata.uid(), metadata.gid());
    let acl = acl.as_ref();
    let permissions = Permissions { mode: metadata.mode(), uid: uid_of, gid, acl, unknown: false };
    Ok(permissions.others_may_write(uid))
}

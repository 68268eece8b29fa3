//! Whether an index directory is safe from everybody but its writer.

use crate::error::{Error, Result};
use canopy_model::{Acl, AclTag};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o022;

/// Checks that nobody but the caller (and root) can change the directory, or replace it by renaming
/// it or one above it. The directory must exist. Returns its real path.
pub(crate) fn check(index: &Path, uid: u32) -> Result<PathBuf> {
    let real = index.canonicalize().map_err(Error::io("open", index))?;
    for (level, directory) in real.ancestors().enumerate() {
        let metadata = directory.symlink_metadata().map_err(Error::io("look at", directory))?;
        let fault = |why: String| Error::Unsafe { path: directory.to_owned(), why };
        if metadata.uid() != uid && metadata.uid() != 0 {
            return Err(fault(format!(
                "it belongs to uid {}, who could replace the index",
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

/// Whether anybody but the owner may write. With an ACL the group bits of the mode are its mask, so
/// they bound all its named entries.
fn others_write(directory: &Path, metadata: &Metadata, uid: u32) -> io::Result<bool> {
    if metadata.mode() & OTHERS_WRITE == 0 {
        return Ok(false);
    }
    if metadata.mode() & 0o002 != 0 {
        return Ok(true);
    }
    // A mask with a write bit is harmless where no entry but root's or the owner's uses it.
    let mut value = vec![0; 64 * 1024];
    let acl = match rustix::fs::getxattr(directory, Acl::XATTR_NAME, &mut value[..]) {
        Ok(length) => Acl::decode(&value[..length]).map_err(io::Error::other)?,
        Err(_) => return Ok(true),
    };
    Ok(acl.entries.iter().any(|entry| {
        let harmless = match entry.tag {
            AclTag::Owner | AclTag::Mask => true,
            AclTag::User(named) => named == 0 || named == uid,
            _ => false,
        };
        !harmless && entry.permissions & 0o2 != 0
    }))
}

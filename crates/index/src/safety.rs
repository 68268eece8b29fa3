//! Whether a directory, and the way to it, is safe from everybody but its owner and root.

use crate::error::{Error, Result};
use canopy_model::{Acl, Permissions};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

const STICKY: u32 = 0o1000;

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

/// Checks that nobody but user `uid` (and root) can change a directory, replace it by renaming it or
/// one above it, or have the path lead elsewhere. It must exist. Returns its real path.
///
/// # Errors
/// [`Error::Unsafe`] if somebody else can; another if it or what is above it cannot be looked at.
pub fn check(directory: &Path, uid: u32) -> Result<PathBuf> {
    check_way(directory, uid)?;
    let real = directory.canonicalize().map_err(Error::io("open", directory))?;
    for (level, directory) in real.ancestors().enumerate() {
        let metadata = directory.symlink_metadata().map_err(Error::io("look at", directory))?;
        check_level(directory, &metadata, uid, level == 0)?;
        if level == 0 && metadata.uid() != uid {
            let why = format!("it belongs to uid {}, not to you", metadata.uid());
            return Err(Error::Unsafe { path: directory.to_owned(), why });
        }
    }
    Ok(real)
}

/// Checks that nobody but user `uid` (and root) decides where a path leads, as far as it exists:
/// whoever may write to a directory on its way could put a symbolic link there for a moment.
///
/// # Errors
/// As [`check`].
pub fn check_way(path: &Path, uid: u32) -> Result<()> {
    walk(path, uid, |directory, metadata| check_level(directory, metadata, uid, false))
}

/// Checks that every symbolic link on a path is root's or of user `uid`: whoever owns it decides
/// where the path leads, today and in the next run.
///
/// # Errors
/// As [`check`].
pub fn check_links(path: &Path, uid: u32) -> Result<()> {
    walk(path, uid, |_, _| Ok(()))
}

/// Looks at every link on a path, and calls `check` with the directories in which names are looked
/// up. Each is looked at once, so that none is a link at one time and a directory at another.
fn walk(path: &Path, uid: u32, check: impl Fn(&Path, &Metadata) -> Result<()>) -> Result<()> {
    let mut links_left = LINKS_MAX;
    let mut waiting = vec![std::path::absolute(path).map_err(Error::io("find", path))?];
    while let Some(path) = waiting.pop() {
        let (mut directory, mut known) = (PathBuf::new(), None);
        for component in path.components() {
            let at = directory.join(component);
            if let (Component::Normal(_), Some(metadata)) = (component, &known) {
                check(&directory, metadata)?;
            }
            let Ok(mut metadata) = at.symlink_metadata() else { break };
            if metadata.is_symlink() {
                let owner = metadata.uid();
                let fault = |why: String| Err(Error::Unsafe { path: at.clone(), why });
                if ![0, uid].contains(&owner) {
                    return fault(format!(
                        "it is a symbolic link of uid {owner}, who can have it lead elsewhere; give \
                         the path that is meant"
                    ));
                }
                if links_left == 0 {
                    return fault("there are too many symbolic links on the way".into());
                }
                links_left -= 1;
                let target = std::fs::read_link(&at).map_err(Error::io("read", &at))?;
                waiting.push(directory.join(target));
                let Ok(directory) = at.metadata() else { break };
                metadata = directory;
            }
            (directory, known) = (at, Some(metadata));
        }
    }
    Ok(())
}

/// Checks that nobody but user `uid` (and root) can replace what lies in a directory, or, if it is
/// the last one, put something there.
fn check_level(directory: &Path, metadata: &Metadata, uid: u32, is_last: bool) -> Result<()> {
    let fault = |why: String| Err(Error::Unsafe { path: directory.to_owned(), why });
    let owner = metadata.uid();
    if owner != uid && owner != 0 {
        return fault(format!("it belongs to uid {owner}, who could replace what is in it"));
    }
    let is_sticky = !is_last && metadata.mode() & STICKY != 0;
    let others_write = others_write(directory, metadata, uid);
    if others_write.map_err(Error::io("look at", directory))? && !is_sticky {
        let path = directory.display();
        return fault(format!("others can write to it; 'chmod go-w {path}' or take another place"));
    }
    Ok(())
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

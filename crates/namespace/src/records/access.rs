//! Permissions that a tablet judges for a caller, by what it has on record: `canopy_model::Grant`
//! decides.

use crate::error::Result;
use crate::records::acl;
use crate::records::inode::{Inode, flag};
use crate::records::keys::FileId;
use crate::records::tablet::Tablet;
use canopy_model::{Acl, Credentials, Grant, Wanted};

/// Returns whether a user passes the kernel's check of a file, whose attributes `xattr` knows.
pub(crate) fn passes(
    inode: &Inode,
    who: &Credentials,
    wanted: Wanted,
    xattr: impl Fn(FileId, &[u8]) -> Result<Option<Vec<u8>>>,
) -> Result<bool> {
    if who.is_root() {
        return Ok(true);
    }
    let acl = match inode.has(flag::XATTRS) {
        true => xattr(inode.id, acl::ACCESS.as_bytes())?,
        false => None,
    };
    let grant = match acl.map(|acl| Acl::decode(&acl)).transpose() {
        Ok(acl) => Grant::new(inode.mode, inode.uid, inode.gid, acl.as_ref(), wanted),
        // A damaged ACL grants nobody anything.
        Err(_) => Grant::of_hidden_acl(inode.mode, inode.uid, wanted),
    };
    Ok(grant.passes(who))
}

impl Tablet {
    /// Returns whether the permissions of a file let a user read it, who got to it.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn lets_read(&self, inode: &Inode, who: &Credentials) -> Result<bool> {
        passes(inode, who, Wanted::READ, |id, name| self.xattr_of(id, name))
    }

    /// Returns whether a user may change a file, as its owner or by writing to it.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn lets_change(&self, inode: &Inode, who: &Credentials) -> Result<bool> {
        let xattr = |id, name: &[u8]| self.xattr_of(id, name);
        Ok(inode.uid == who.uid || passes(inode, who, Wanted::WRITE, xattr)?)
    }
}

//! Effects of POSIX access control lists on new files and modes. Only `canopy_model::Grant` judges
//! who passes one.

use crate::error::Result;
use canopy_model::{Acl, AclEntry, AclTag};
use rustix::io::Errno;

/// The extended attributes that have a file's ACLs.
pub const ACCESS: &str = Acl::XATTR_NAME;
/// The ACL with which files made in a directory begin.
pub const DEFAULT: &str = "system.posix_acl_default";

/// Gives a new file in a directory with a default ACL its mode, and returns the ACLs that it gets,
/// with the attributes that they are.
pub fn inherit(default: &Acl, mode: &mut u32) -> Vec<(&'static str, Vec<u8>)> {
    let mut access = default.clone();
    let mut granted = 0;
    let has_mask = access.entries.iter().any(|entry| entry.tag == AclTag::Mask);
    for AclEntry { tag, permissions } in &mut access.entries {
        let shift = match tag {
            AclTag::Owner => 6,
            AclTag::Mask => 3,
            AclTag::OwningGroup if !has_mask => 3,
            AclTag::Other => 0,
            AclTag::User(_) | AclTag::OwningGroup | AclTag::Group(_) => continue,
        };
        *permissions &= (*mode >> shift & 7) as u16;
        granted |= u32::from(*permissions) << shift;
    }
    *mode = *mode & !0o777 | granted;
    let mut inherited = Vec::new();
    if !is_minimal(&access) {
        inherited.push((ACCESS, access.encode()));
    }
    if *mode & crate::records::inode::TYPE_MASK == crate::records::inode::file_type::DIRECTORY {
        inherited.push((DEFAULT, default.encode()));
    }
    inherited
}

/// Returns whether an ACL says no more than a mode does.
pub fn is_minimal(acl: &Acl) -> bool {
    let is_base = |tag| matches!(tag, AclTag::Owner | AclTag::OwningGroup | AclTag::Other);
    acl.entries.iter().all(|entry| is_base(entry.tag))
}

/// Returns an access ACL that grants what a mode that was set says.
pub fn with_mode(mut acl: Acl, mode: u32) -> Acl {
    let has_mask = acl.entries.iter().any(|entry| entry.tag == AclTag::Mask);
    for entry in &mut acl.entries {
        let shift = match entry.tag {
            AclTag::Owner => 6,
            AclTag::Mask => 3,
            AclTag::OwningGroup if !has_mask => 3,
            AclTag::Other => 0,
            AclTag::User(_) | AclTag::OwningGroup | AclTag::Group(_) => continue,
        };
        entry.permissions = (mode >> shift & 7) as u16;
    }
    acl
}

/// Returns the mode of a file that is given an access ACL.
pub fn mode_with(acl: &Acl, mode: u32) -> u32 {
    let of = |wanted: AclTag| {
        let mut entries = acl.entries.iter();
        entries.find(|entry| entry.tag == wanted).map(|entry| u32::from(entry.permissions))
    };
    let group = of(AclTag::Mask).or(of(AclTag::OwningGroup)).unwrap_or(0);
    let bits = [of(AclTag::Owner).unwrap_or(0), group, of(AclTag::Other).unwrap_or(0)];
    mode & !0o777 | bits[0] << 6 | bits[1] << 3 | bits[2]
}

/// Reads the value of an attribute that is to be an ACL: entries of all kinds that there must be, in
/// the kernel's order, none twice.
///
/// # Errors
///
/// Fails with `INVAL` if it is none.
pub fn parse(value: &[u8]) -> Result<Acl> {
    let acl = Acl::decode(value).map_err(|_| Errno::INVAL)?;
    let rank = |tag: AclTag| match tag {
        AclTag::Owner => (0, 0),
        AclTag::User(uid) => (1, uid),
        AclTag::OwningGroup => (2, 0),
        AclTag::Group(gid) => (3, gid),
        AclTag::Mask => (4, 0),
        AclTag::Other => (5, 0),
    };
    let ranks = Vec::from_iter(acl.entries.iter().map(|entry| rank(entry.tag)));
    let has = |kind: u8| ranks.iter().any(|rank| rank.0 == kind);
    let is_ordered = ranks.is_sorted_by(|one, other| one < other);
    let is_whole = [0, 2, 5].into_iter().all(has) && (has(4) || !(has(1) || has(3)));
    match is_ordered && is_whole {
        true => Ok(acl),
        false => Err(Errno::INVAL.into()),
    }
}

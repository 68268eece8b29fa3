//! The permissions of an inode, and what follows from them: who passes a check, who may see an
//! extended attribute, whether anybody else may write. Every scanner, writer and reader asks here.

use crate::{Acl, Attributes, FileType, Grant, Wanted};

/// The permissions of an inode.
#[derive(Clone, Copy, Debug)]
pub struct Permissions<'a> {
    /// Mode, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// The access ACL, if there is one.
    pub acl: Option<&'a Acl>,
    /// Whether there is an ACL that could not be read: then nobody but root is let in.
    pub unknown: bool,
}

impl<'a> Permissions<'a> {
    /// Returns the permissions of an inode with these attributes. `acl` is its access ACL: `None`
    /// if it has none, an error if it has one that could not be read or understood. Symbolic links
    /// have no ACL, and no permissions of their own.
    pub fn of_inode<E>(attributes: &Attributes, acl: Option<Result<&'a Acl, E>>) -> Self {
        let Attributes { mode, uid, gid, .. } = *attributes;
        let unknown = matches!(acl, Some(Err(_))) && attributes.file_type() != FileType::Symlink;
        Permissions { mode, uid, gid, acl: acl.and_then(Result::ok), unknown }
    }

    /// Returns who passes the kernel's check for the wanted bits.
    pub fn grant(&self, wanted: Wanted) -> Grant {
        if self.unknown {
            return Grant::nobody();
        }
        Grant::new(self.mode, self.uid, self.gid, self.acl, wanted)
    }

    /// Returns the grants that together say who may list a directory and look at what is in it.
    pub fn to_list(self) -> Vec<Grant> {
        if self.unknown {
            return vec![Grant::nobody()];
        }
        Grant::to_list(self.mode, self.uid, self.gid, self.acl)
    }

    /// Returns whether the mode alone shows that whoever may search may read too.
    pub(crate) fn surely_no_gate(&self) -> bool {
        self.acl.is_none() && self.mode & 0o111 & !(self.mode >> 2) == 0
    }

    /// Returns whether the mode alone shows that nobody but the owner may write. With an ACL, the
    /// group bits of the mode are its mask, so they bound all its named entries.
    pub fn surely_written_by_owner_alone(mode: u32) -> bool {
        mode & 0o022 == 0
    }

    /// Returns whether anybody but `uid` and root may write. An ACL that could not be read counts
    /// as one that lets others write.
    pub fn others_may_write(&self, uid: u32) -> bool {
        let own = Grant::from_parts([(uid, true)], [], false);
        self.unknown || !self.grant(Wanted::WRITE).implies(&own)
    }
}

/// How names begin that nobody without privilege is shown.
const PRIVILEGED: &str = "trusted.";

/// The permission that the kernel requires for seeing an extended attribute (xattr(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrAccess {
    /// Users who may look the entry up see the name and the value: `security.*`, `system.*`.
    Lookup,
    /// Users who may look the entry up see the name; the value takes read permission. So it is for
    /// `user.*`, and for attributes that only some file systems have, such as `lustre.*`.
    Read,
    /// Neither name nor value is shown without privilege: `trusted.*`.
    Privilege,
}

impl XattrAccess {
    /// Returns what it takes to see the attribute of this name, such as `user.mime_type`.
    pub fn of(key: &str) -> Self {
        if key.starts_with("security.") || key.starts_with("system.") {
            XattrAccess::Lookup
        } else if key.starts_with(PRIVILEGED) {
            XattrAccess::Privilege
        } else {
            XattrAccess::Read
        }
    }

    /// Returns whether names that begin with a text may be among those that are not shown.
    pub fn may_hide(start: &str) -> bool {
        PRIVILEGED.starts_with(start) || start.starts_with(PRIVILEGED)
    }

    /// Returns whether whoever may look an entry up sees that it has the attribute of this name.
    pub fn shows_name(key: &str) -> bool {
        Self::of(key) != XattrAccess::Privilege
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AclEntry, AclTag};

    #[test]
    fn only_writers_other_than_the_owner_and_root_count() {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let others = |mode: u16, named: &[AclEntry]| {
            let mut entries = vec![entry(AclTag::Owner, 7), entry(AclTag::OwningGroup, 5)];
            entries.extend(named);
            entries.extend([entry(AclTag::Mask, mode >> 3 & 7), entry(AclTag::Other, mode & 7)]);
            let acl = Acl { entries };
            let acl = (!named.is_empty()).then_some(&acl);
            let mode = u32::from(mode);
            Permissions { mode, uid: 7, gid: 7, acl, unknown: false }.others_may_write(7)
        };
        assert!(!others(0o755, &[]) && others(0o775, &[]) && others(0o757, &[]));
        assert!(others(0o702, &[]), "the group is judged by its own bits");
        let user = |uid| [entry(AclTag::User(uid), 6)];
        assert!(!others(0o775, &user(7)) && !others(0o775, &user(0)) && others(0o775, &user(8)));
        assert!(others(0o775, &[entry(AclTag::Group(0), 2)]));
        assert!(!others(0o755, &user(8)), "the mask takes the bit away");
        let unknown = Permissions { mode: 0o770, uid: 7, gid: 7, acl: None, unknown: true };
        assert!(unknown.others_may_write(7));
    }

    #[test]
    fn namespaces_decide_who_sees_an_attribute() {
        assert_eq!(XattrAccess::of("user.a"), XattrAccess::Read);
        assert_eq!(XattrAccess::of("security.selinux"), XattrAccess::Lookup);
        assert_eq!(XattrAccess::of("system.posix_acl_access"), XattrAccess::Lookup);
        // xattr_permission() in fs/xattr.c asks for read permission wherever it knows no other rule.
        assert_eq!(XattrAccess::of("lustre.lov"), XattrAccess::Read);
        assert!(!XattrAccess::shows_name("trusted.a") && XattrAccess::shows_name("trusteda"));
    }
}

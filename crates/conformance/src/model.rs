//! A second statement of the kernel's rules of access, independent of the kernel: inode(7), acl(5),
//! capabilities(7), chown(2), chmod(2), utimensat(2), write(2), unlink(2).

use crate::credentials::Credentials;

/// To read.
pub const R: u32 = 4;
/// To write.
pub const W: u32 = 2;
/// To execute or search.
pub const X: u32 = 1;

/// Runs with the owner's rights.
pub const SETUID: u32 = 0o4000;
/// Runs with the group's rights.
pub const SETGID: u32 = 0o2000;

/// Attributes of a file that decide access to it.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits. With an ACL, those of the group are the mask.
    pub mode: u32,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Further entries of its ACL.
    pub acl: Option<Acl>,
}

/// The entries of an ACL that are not in the mode.
#[derive(Clone, Debug, Default)]
pub struct Acl {
    /// Permissions of the owning group, before the mask.
    pub group: u32,
    /// Further users and their permissions, before the mask.
    pub users: Vec<(u32, u32)>,
    /// Further groups and their permissions, before the mask.
    pub groups: Vec<(u32, u32)>,
}

impl Credentials {
    /// Whether it has all capabilities.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it is in a group.
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

impl Object {
    /// Whether somebody may do all of what is wanted.
    pub fn may(&self, who: &Credentials, wanted: u32) -> bool {
        if who.is_root() {
            return self.is_directory || wanted & X == 0 || self.mode & 0o111 != 0;
        }
        if who.uid == self.uid {
            return grants(self.mode >> 6, wanted);
        }
        let mask = self.mode >> 3;
        let Some(acl) = &self.acl else {
            let bits = if who.is_in(self.gid) { mask } else { self.mode };
            return grants(bits, wanted);
        };
        if let Some((_, bits)) = acl.users.iter().find(|(uid, _)| *uid == who.uid) {
            return grants(bits & mask, wanted);
        }
        let owning = [(self.gid, acl.group)];
        let groups = owning.iter().chain(&acl.groups).filter(|(gid, _)| who.is_in(*gid));
        let bits = Vec::from_iter(groups.map(|(_, bits)| bits & mask));
        match &bits[..] {
            [] => grants(self.mode, wanted),
            // One of the groups has to grant all of it.
            bits => bits.iter().any(|bits| grants(*bits, wanted)),
        }
    }

    /// Whether somebody may change its mode, its times and the like.
    pub fn is_owned_by(&self, who: &Credentials) -> bool {
        who.is_root() || who.uid == self.uid
    }

    /// Whether somebody may let it run as its group.
    fn may_keep_setgid(&self, who: &Credentials) -> bool {
        who.is_root() || who.is_in(self.gid)
    }

    /// Its mode after somebody set it, or nothing if that is not allowed.
    pub fn after_chmod(&self, who: &Credentials, mode: u32) -> Option<u32> {
        let kept = if self.may_keep_setgid(who) { mode } else { mode & !SETGID };
        self.is_owned_by(who).then_some(kept)
    }

    /// Its mode after somebody gave it away, or nothing if that is not allowed.
    pub fn after_chown(
        &self,
        who: &Credentials,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Option<u32> {
        let is_owner = who.uid == self.uid;
        let may_give = uid.is_none_or(|uid| is_owner && uid == self.uid);
        let may_regroup = gid.is_none_or(|gid| is_owner && (gid == self.gid || who.is_in(gid)));
        (who.is_root() || may_give && may_regroup).then(|| self.without_privileges(who))
    }

    /// Its mode after somebody changed its contents.
    pub fn after_writing(&self, who: &Credentials) -> u32 {
        if who.is_root() { self.mode } else { self.without_privileges(who) }
    }

    fn without_privileges(&self, who: &Credentials) -> u32 {
        if self.is_directory {
            return self.mode;
        }
        let runs_as_group = self.mode & 0o010 != 0 || !self.may_keep_setgid(who);
        let group = if runs_as_group { SETGID } else { 0 };
        self.mode & !(SETUID | group)
    }

    /// Whether somebody who may write to this directory may remove a file of an owner from it.
    pub fn gives_up(&self, who: &Credentials, owner: u32) -> bool {
        let is_sticky = self.mode & 0o1000 != 0;
        !is_sticky || self.is_owned_by(who) || who.uid == owner
    }
}

fn grants(bits: u32, wanted: u32) -> bool {
    bits & wanted == wanted
}

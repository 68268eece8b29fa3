//! Users, and system calls as one of them.

use canopy_model::Credentials;
use nix::unistd::{Gid, Uid, setegid, seteuid, setgroups};
use rustix::fs::Mode;
use rustix::process::umask;

/// A user with the group of what it makes.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) gid: u32,
    pub(crate) credentials: Credentials,
}

impl User {
    fn new(uid: u32, gid: u32, others: &[u32]) -> Self {
        let gids = others.iter().copied().chain([gid]);
        User { gid, credentials: Credentials::new(uid, gids) }
    }

    /// Makes calls as this user, and as root again afterwards. The whole process is the user
    /// meanwhile: nobody else may do anything then.
    pub(crate) fn acts<T>(&self, mask: u32, calls: impl FnOnce() -> T) -> T {
        let groups = Vec::from_iter(self.credentials.gids.iter().copied().map(Gid::from_raw));
        setgroups(&groups).expect("groups");
        setegid(Gid::from_raw(self.gid)).expect("a group");
        let before = umask(Mode::from_raw_mode(mask));
        seteuid(Uid::from_raw(self.credentials.uid)).expect("a user");
        let outcome = calls();
        seteuid(Uid::from_raw(0)).expect("root");
        setegid(Gid::from_raw(0)).expect("root's group");
        setgroups(&[]).expect("no groups");
        umask(before);
        outcome
    }
}

/// Users of groups that overlap; the first is root.
pub(crate) fn users() -> Vec<User> {
    vec![
        User::new(0, 0, &[]),
        User::new(1001, 2001, &[2002]),
        User::new(1002, 2002, &[]),
        User::new(1003, 2003, &[2001, 2004]),
        User::new(1004, 2004, &[]),
    ]
}

/// Users and groups that own files, one of whom is nobody here.
pub(crate) const UIDS: [u32; 6] = [0, 1001, 1002, 1003, 1004, 1005];
pub(crate) const GIDS: [u32; 6] = [0, 2001, 2002, 2003, 2004, 2005];

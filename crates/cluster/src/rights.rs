//! The caller of a request, by what the kernel or a certificate says of its sender, and by what the
//! sender claims.

use crate::envelope::Claim;
use crate::error::Result;
use crate::wire::Peer;
use canopy_model::Credentials;
use nix::unistd::{Gid, Uid, User, getgrouplist};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Groups of a user are looked up again after so long.
const GROUPS_TIME: Duration = Duration::from_secs(30);

/// The number that no user and no group has.
const NO_ID: u32 = u32::MAX;

/// The user of a machine's requests that concern none of its users. Only machines can claim it.
pub(crate) const MACHINE: u32 = NO_ID;

/// Users whose groups are remembered.
const USERS_MAX: usize = 10_000;

/// The caller whose rights count.
pub(crate) enum Allowed {
    /// A server of the cluster: nothing is checked.
    Server,
    /// A user.
    User(Arc<Credentials>),
}

/// Decides who a caller is.
#[derive(Default)]
pub(crate) struct Rights {
    groups: Mutex<HashMap<u32, (Instant, Arc<Credentials>)>>,
}

impl Rights {
    /// Returns the caller of a request. This may ask the machine's database of users, which can block.
    ///
    /// # Errors
    ///
    /// Fails with `PERM` if the sender may not speak for that caller.
    pub(crate) fn caller(&self, peer: &Peer, claim: &Claim<'_>) -> Result<Allowed> {
        let denied = || canopy_namespace::Error::from(Errno::PERM);
        match (peer, claim) {
            (peer, claim) if self.may_be_server(peer) => Ok(allowed(claim)),
            (Peer::Local { uid } | Peer::User { uid }, Claim::User(who)) if who.uid == *uid => {
                self.of_user(*uid).map(Allowed::User)
            }
            (Peer::Node { speaks_for_root: true, .. }, Claim::User(_)) => Ok(allowed(claim)),
            (Peer::Node { .. }, Claim::User(who)) if !who.is_root() => {
                // Nor for the group of root. A machine itself has no groups.
                let is_machine = who.uid == MACHINE;
                let may_have = |gid: &u32| !is_machine && ![0, NO_ID].contains(gid);
                let gids = who.gids.iter().copied().filter(may_have);
                let who = Credentials { uid: who.uid, gids: gids.collect() };
                Ok(Allowed::User(Arc::new(who)))
            }
            _ => Err(denied().into()),
        }
    }

    /// Returns whether requests of servers are accepted from a sender. Without certificates, servers
    /// are processes of the same user, or of root.
    pub(crate) fn may_be_server(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Server { .. } => true,
            Peer::Local { uid } => *uid == 0 || *uid == rustix::process::geteuid().as_raw(),
            Peer::User { .. } | Peer::Node { .. } => false,
        }
    }

    /// Returns whether a sender may ask in the name of root.
    pub(crate) fn speaks_for_root(&self, peer: &Peer) -> bool {
        self.may_be_server(peer) || matches!(peer, Peer::Node { speaks_for_root: true, .. })
    }

    /// Returns a user with the groups that this machine knows.
    fn of_user(&self, uid: u32) -> Result<Arc<Credentials>> {
        if let Some((at, known)) = self.groups.lock().get(&uid)
            && at.elapsed() < GROUPS_TIME
        {
            return Ok(known.clone());
        }
        let credentials = Arc::new(Credentials { uid, gids: groups_of(uid)? });
        let mut groups = self.groups.lock();
        if groups.len() >= USERS_MAX {
            groups.clear();
        }
        groups.insert(uid, (Instant::now(), credentials.clone()));
        Ok(credentials)
    }
}

fn allowed(claim: &Claim<'_>) -> Allowed {
    match claim {
        Claim::Trusted => Allowed::Server,
        Claim::User(who) => Allowed::User(Arc::new(who.clone().into_owned())),
    }
}

/// Returns the groups of a user, sorted; none if this machine does not know the user.
fn groups_of(uid: u32) -> Result<Vec<u32>> {
    let failed = |errno: nix::Error| {
        let what = format!("look up the groups of user {uid}");
        canopy_namespace::Error::Io { what, source: errno.into() }
    };
    let Some(user) = User::from_uid(Uid::from_raw(uid)).map_err(failed)? else {
        return Ok(Vec::new());
    };
    let Ok(name) = CString::new(user.name) else { return Ok(Vec::new()) };
    let groups = getgrouplist(&name, user.gid).map_err(failed)?;
    let mut groups = Vec::from_iter(groups.into_iter().map(Gid::as_raw));
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn claim(uid: u32, gids: &[u32]) -> Claim<'static> {
        Claim::User(Cow::Owned(Credentials { uid, gids: gids.to_vec() }))
    }

    /// Returns the user and the groups that a sender gets; none if it is refused.
    fn granted(peer: &Peer, claim: &Claim<'_>) -> Option<(u32, Vec<u32>)> {
        match Rights::default().caller(peer, claim) {
            Ok(Allowed::User(who)) => Some((who.uid, who.gids.clone())),
            Ok(Allowed::Server) => Some((0, vec![u32::MAX])),
            Err(_) => None,
        }
    }

    #[test]
    fn nodes_speak_for_their_users_and_for_nobody_else() {
        let node = |speaks_for_root| Peer::Node { name: "n17".into(), speaks_for_root };
        assert_eq!(granted(&node(false), &claim(7, &[8, 9])), Some((7, vec![8, 9])));
        assert_eq!(granted(&node(false), &claim(7, &[0, 9, NO_ID])), Some((7, vec![9])));
        let machine = claim(MACHINE, &[9]);
        assert_eq!(granted(&node(false), &machine), Some((MACHINE, Vec::new())));
        for refused in [claim(0, &[0]), Claim::Trusted] {
            assert_eq!(granted(&node(false), &refused), None, "{refused:?}");
        }
        assert_eq!(granted(&node(true), &claim(0, &[0])), Some((0, vec![0])));
        assert_eq!(granted(&node(true), &Claim::Trusted), None);
    }

    #[test]
    fn users_speak_for_themselves() {
        for peer in [Peer::User { uid: 4_000_000 }, Peer::Local { uid: 4_000_000 }] {
            // This machine does not know the user, and the groups are those that it knows.
            assert_eq!(granted(&peer, &claim(4_000_000, &[0, 7])), Some((4_000_000, Vec::new())));
            for refused in [claim(0, &[0]), claim(7, &[7]), claim(MACHINE, &[]), Claim::Trusted] {
                assert_eq!(granted(&peer, &refused), None, "{peer} {refused:?}");
            }
        }
    }
}

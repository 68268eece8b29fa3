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
            (Peer::Node { speaks_for_root, .. }, Claim::User(who))
                if *speaks_for_root || !who.is_root() =>
            {
                Ok(allowed(claim))
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

//! The process behind a request of the kernel.

use canopy_fuse::caller::credentials;
use fuser::Request;

/// A process that asks for something.
#[derive(Clone, Copy)]
pub(crate) struct CallingProcess {
    pub(crate) uid: u32,
    gid: u32,
    pid: u32,
}

impl CallingProcess {
    pub(crate) fn of(request: &Request) -> Self {
        CallingProcess { uid: request.uid(), gid: request.gid(), pid: request.pid() }
    }

    /// Returns the groups of the process, as far as they can be found out.
    pub(crate) fn groups(self) -> Vec<u32> {
        credentials(self.uid, self.gid, self.pid).map_or_else(|_| Vec::new(), |who| who.gids)
    }

    /// Returns whether the process is in a group.
    pub(crate) fn is_in(self, gid: u32) -> bool {
        let who = credentials(self.uid, self.gid, self.pid);
        who.is_ok_and(|who| who.is_root() || who.gids.contains(&gid))
    }
}

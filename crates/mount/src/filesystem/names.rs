//! Names: finding what they stand for, making, renaming and linking them.

use super::{Answer, Filesystem, GENERATION, asking, empty, real};
use crate::caller::credentials;
use crate::convert::{attributes, errno};
use crate::nodes::is_virtual;
use crate::past::is_past;
use crate::results::is_query;
use canopy_namespace::{Error, Inode, New, RenameMode};
use fuser::{Errno, INodeNo, RenameFlags, ReplyData, ReplyEmpty, ReplyEntry, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

impl Filesystem {
    /// Looks a name up, and holds what it stands for.
    pub(super) fn find_name(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        if is_virtual(parent.0) {
            return self.look_up_virtual(request, parent.0, name, reply);
        }
        if is_past(parent.0) {
            let found = asking(request)
                .and_then(|who| self.queries.pasts.lookup(parent.0, name.as_bytes(), &who));
            return match found {
                Ok(inode) => reply.entry(&Duration::ZERO, &attributes(&inode), GENERATION),
                Err(error)
                    if error.errno() == rustix::io::Errno::NOENT && is_query(name.as_bytes()) =>
                {
                    self.look_up_virtual(request, parent.0, name, reply);
                }
                Err(error) => reply.error(errno(&error)),
            };
        }
        let ttl = self.ttl();
        match self.namespace.lookup_held(parent.0, name.as_bytes()) {
            Ok(inode) => reply.entry(&ttl, &attributes(&inode), GENERATION),
            Err(error)
                if error.errno() == rustix::io::Errno::NOENT && is_query(name.as_bytes()) =>
            {
                self.look_up_virtual(request, parent.0, name, reply);
            }
            // All changes come through the kernel, so it may remember what there is not.
            Err(error) if error.errno() == rustix::io::Errno::NOENT => {
                reply.entry(&ttl, &attributes(&Inode::default()), GENERATION);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Looks a name up that no record has: a query, or a result of one.
    fn look_up_virtual(&self, request: &Request, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        let answer = |found: Answer<Inode>, reply: ReplyEntry| match found {
            Ok(inode) => reply.entry(&Duration::ZERO, &attributes(&inode), GENERATION),
            Err(error) => reply.error(errno(&error)),
        };
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        if let Some(found) = self.queries.snapshot(uid, (parent, &name), || asking(request)) {
            return answer(found, reply);
        }
        if is_query(&name) {
            // Regular expressions and names of users may take long.
            return self.queries.run(uid, move |queries, _| {
                answer(queries.query(uid, parent, &name), reply);
            });
        }
        self.queries.run_query(uid, parent, move |queries, turn| {
            let who = credentials(uid, gid, pid).map_err(Error::from);
            answer(who.and_then(|who| queries.result(parent, &name, &who, turn)), reply);
        });
    }

    pub(super) fn create_entry(&self, parent: INodeNo, name: &OsStr, new: &New, reply: ReplyEntry) {
        let ttl = self.ttl();
        let created = free(parent, name)
            .and_then(|parent| self.namespace.create(parent, name.as_bytes(), new, true));
        match created {
            Ok(inode) => reply.entry(&ttl, &attributes(&inode), GENERATION),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Replies with the target of a query result.
    fn reply_result_target(&self, request: &Request, id: u64, reply: ReplyData) {
        let answer = |target: Answer<Vec<u8>>, reply: ReplyData| match target {
            Ok(target) if target.is_empty() => reply.error(Errno::ENAMETOOLONG),
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        };
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        match self.queries.target(id) {
            Ok(Some(target)) => answer(Ok(target), reply),
            Err(error) => answer(Err(error), reply),
            // The kernel knows it for longer than what was found is kept.
            Ok(None) => {
                let query = self.queries.nodes.parent(id).unwrap_or(id);
                self.queries.run_query(uid, query, move |queries, turn| {
                    let who = credentials(uid, gid, pid).map_err(Error::from);
                    answer(who.and_then(|who| queries.find_target(id, &who, turn)), reply);
                });
            }
        }
    }

    /// Replies with the target of a symbolic link.
    pub(super) fn reply_target(&self, request: &Request, id: INodeNo, reply: ReplyData) {
        if is_virtual(id.0) {
            return self.reply_result_target(request, id.0, reply);
        }
        let target = match id.0 {
            id if is_past(id) => self.queries.pasts.inode(id).map(|link| link.target),
            id => self.namespace.readlink(id).and_then(|target| {
                self.touch_access(id)?;
                Ok(target)
            }),
        };
        match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Gives what has a name another one.
    pub(super) fn rename_entry(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        (new_parent, new_name): (INodeNo, &OsStr),
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let is_whiteout = flags.contains(RenameFlags::RENAME_WHITEOUT);
        let others = flags.difference(RenameFlags::RENAME_WHITEOUT);
        let mode = if others.is_empty() {
            RenameMode::Replace
        } else if others == RenameFlags::RENAME_NOREPLACE {
            RenameMode::NoReplace
        } else if others == RenameFlags::RENAME_EXCHANGE && !is_whiteout {
            RenameMode::Exchange
        } else {
            return reply.error(Errno::EINVAL);
        };
        let owner = (request.uid(), request.gid());
        let renamed = real(parent).and_then(|from| {
            let (from, to) =
                ((from, name.as_bytes()), (free(new_parent, new_name)?, new_name.as_bytes()));
            match is_whiteout {
                true => self.namespace.rename_leaving_whiteout(from, to, mode, owner),
                false => self.namespace.rename(from, to, mode),
            }
        });
        empty(reply, renamed);
    }

    /// Gives a file one more name.
    pub(super) fn add_link(&self, id: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ttl = self.ttl();
        let linked = real(id).and_then(|id| {
            let parent = free(parent, name)?;
            self.namespace.link(id, parent, name.as_bytes())
        });
        match linked {
            Ok(inode) => {
                // The kernel holds it already, so it cannot have gone.
                self.namespace.hold(inode.id);
                reply.entry(&ttl, &attributes(&inode), GENERATION);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// Returns the id of a directory that a file can be called so in: names of snapshots are none of
/// users, who could pass what is theirs off as a snapshot.
pub(super) fn free(parent: INodeNo, name: &OsStr) -> Answer<u64> {
    let name = name.as_bytes();
    match is_query(name) && name.starts_with(b"[@") {
        true => Err(rustix::io::Errno::PERM.into()),
        false => real(parent),
    }
}

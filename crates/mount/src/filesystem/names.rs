//! Names: finding what they stand for, making, renaming and linking them.

use super::{Answer, Filesystem, GENERATION, asking, empty, real};
use crate::convert::{attributes, attributes_of, errno};
use crate::node::{Node, QueryId, Shown};
use canopy_fuse::caller::credentials;
use canopy_fuse::results::is_query;
use canopy_namespace::operation::Moment;
use canopy_namespace::{EntryName, Error, FileId, Inode, New, Ownership, RenameMode};
use fuser::{Errno, RenameFlags, ReplyData, ReplyEmpty, ReplyEntry, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// A name in a directory, as the kernel has them.
#[derive(Clone, Copy)]
pub(super) struct NodeName<'a> {
    pub(super) parent: Node,
    pub(super) name: &'a OsStr,
}

impl Filesystem {
    /// Looks a name up, and holds what it stands for.
    pub(super) fn find_name(
        &self,
        request: &Request,
        parent: Node,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let is_missing_query =
            |error: &Error| error.errno() == rustix::io::Errno::NOENT && is_query(name.as_bytes());
        let directory = match parent {
            Node::File(directory) => directory,
            Node::Query(_) => return self.look_up_virtual(request, parent, name, reply),
            Node::Snapshot(directory) => {
                let found = asking(request)
                    .and_then(|who| self.queries.pasts.lookup(directory, name.as_bytes(), &who));
                return match found {
                    Ok(shown) => reply.entry(&Duration::ZERO, &attributes(&shown), GENERATION),
                    Err(error) if is_missing_query(&error) => {
                        self.look_up_virtual(request, parent, name, reply);
                    }
                    Err(error) => reply.error(errno(&error)),
                };
            }
        };
        let ttl = self.ttl();
        let held = self.by(request);
        match held.and_then(|by| by.lookup_held(EntryName::new(directory, name.as_bytes()))) {
            Ok(inode) if !self.may_show(&inode, parent, name) => {
                // As the kernel does not know of it, nothing else lets it go.
                let _ = self.namespace.release(inode.id, 1);
                reply.error(Errno::ESTALE);
            }
            Ok(inode) => reply.entry(
                &ttl.of(&*self.namespace, &inode),
                &attributes(&Shown::file(inode)),
                GENERATION,
            ),
            Err(error) if is_missing_query(&error) => {
                self.look_up_virtual(request, parent, name, reply);
            }
            // All changes come through the kernel, so it may remember what there is not.
            Err(error) if error.errno() == rustix::io::Errno::NOENT => {
                let none = attributes_of(Node::File(FileId::NONE), &Inode::default());
                reply.entry(&ttl.files, &none, GENERATION);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Returns whether the kernel may be shown a file under a name now.
    fn may_show(&self, inode: &Inode, parent: Node, name: &OsStr) -> bool {
        let names = self.shown_names.as_ref().filter(|_| inode.is_directory());
        names.is_none_or(|names| names.show(inode.id, parent.into(), name))
    }

    /// Looks a name up that no record has: a query, or a result of one.
    fn look_up_virtual(&self, request: &Request, parent: Node, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        let answer = |found: Answer<Shown>, reply: ReplyEntry| match found {
            Ok(shown) => reply.entry(&Duration::ZERO, &attributes(&shown), GENERATION),
            Err(error) => reply.error(errno(&error)),
        };
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        if let Some(found) = self.queries.snapshot(uid, parent, &name, || asking(request)) {
            return answer(found, reply);
        }
        if is_query(&name) {
            // Regular expressions and names of users may take long.
            return self.queries.run(uid, move |queries, _| {
                answer(queries.query(uid, parent, &name), reply);
            });
        }
        let Node::Query(query) = parent else { return reply.error(Errno::ENOENT) };
        self.queries.run_query(uid, parent, move |queries, turn| {
            let who = credentials(uid, gid, pid).map_err(Error::from);
            answer(who.and_then(|who| queries.result(query, &name, &who, turn)), reply);
        });
    }

    /// Makes anything but an open file.
    pub(super) fn create_entry(
        &self,
        request: &Request,
        parent: Node,
        name: &OsStr,
        new: &New,
        reply: ReplyEntry,
    ) {
        let ttl = self.ttl();
        let created = free(parent, name).and_then(|parent| {
            self.by(request)?.create(EntryName::new(parent, name.as_bytes()), new)
        });
        match created {
            Ok(inode) => {
                // The kernel knows a new directory under no other name.
                let _ = self.may_show(&inode, parent, name);
                reply.entry(
                    &ttl.of(&*self.namespace, &inode),
                    &attributes(&Shown::file(inode)),
                    GENERATION,
                );
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Replies with the target of a query result.
    fn reply_result_target(&self, request: &Request, id: QueryId, reply: ReplyData) {
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
                let query = self.queries.nodes.parent(id).unwrap_or(Node::Query(id));
                self.queries.run_query(uid, query, move |queries, turn| {
                    let who = credentials(uid, gid, pid).map_err(Error::from);
                    answer(who.and_then(|who| queries.find_target(id, &who, turn)), reply);
                });
            }
        }
    }

    /// Replies with the target of a symbolic link.
    pub(super) fn reply_target(&self, request: &Request, link: Node, reply: ReplyData) {
        let target = match link {
            Node::Query(id) => return self.reply_result_target(request, id, reply),
            Node::Snapshot(file) => self.queries.pasts.shown(file).map(|link| link.inode.target),
            Node::File(id) => self.namespace.readlink(Moment::Now, id).and_then(|target| {
                self.touch_access(&*self.namespace, link)?;
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
        old: NodeName<'_>,
        new: NodeName<'_>,
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
        let whiteout = is_whiteout.then(|| Ownership { uid: request.uid(), gid: request.gid() });
        let renamed = real(old.parent).and_then(|from| {
            let from = EntryName::new(from, old.name.as_bytes());
            let to = EntryName::new(free(new.parent, new.name)?, new.name.as_bytes());
            self.by(request)?.rename(from, to, mode, whiteout)
        });
        if let (Some(names), Ok(())) = (&self.shown_names, &renamed) {
            let [from, to] = [old, new].map(|at| (at.parent.into(), at.name));
            names.rename(from, to, mode == RenameMode::Exchange);
        }
        empty(reply, renamed);
    }

    /// Gives a file one more name.
    pub(super) fn add_link(
        &self,
        request: &Request,
        file: Node,
        parent: Node,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let ttl = self.ttl();
        let linked = real(file).and_then(|id| {
            let name = EntryName::new(free(parent, name)?, name.as_bytes());
            // The kernel holds it already, so it cannot have gone.
            let inode = self.by(request)?.link(id, name)?;
            self.namespace.hold(inode.id)?;
            Ok(inode)
        });
        match linked {
            Ok(inode) => {
                reply.entry(
                    &ttl.of(&*self.namespace, &inode),
                    &attributes(&Shown::file(inode)),
                    GENERATION,
                );
            }
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// Returns the id of a directory that a file can be called so in: names of snapshots are none of
/// users, who could pass what is theirs off as a snapshot.
pub(super) fn free(parent: Node, name: &OsStr) -> Answer<FileId> {
    let name = name.as_bytes();
    match is_query(name) && name.starts_with(b"[@") {
        true => Err(rustix::io::Errno::PERM.into()),
        false => real(parent),
    }
}

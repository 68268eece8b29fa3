//! Attributes, extended ones too, and how much space there is.

use super::{Answer, Filesystem, asking, empty, real};
use crate::caller::CallingProcess;
use crate::convert::{attributes, errno};
use crate::node::{Node, QueryId, Shown};
use crate::past::SETUID_SETGID;
use crate::{control, quotas};
use canopy_fuse::attributes::{ERROR, PLAN};
use canopy_model::ErrorKind;
use canopy_namespace::operation::{Changer, Moment};
use canopy_namespace::quota::Quota;
use canopy_namespace::{Execute, FileId, LABEL, NAME_BYTES_MAX, SetAttributes, SetXattr, acl};
use fuser::{Errno, ReplyAttr, ReplyEmpty, ReplyStatfs, ReplyXattr, Request};
use rustix::io::Errno as Code;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Attribute by which programs get rights of root.
const CAPABILITY: &str = "security.capability";
const SETGID: u32 = 0o2000;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

impl Filesystem {
    /// Returns a node with its attributes.
    pub(super) fn shown(&self, node: Node) -> Answer<Shown> {
        match node {
            Node::File(id) => self.namespace.inode(Moment::Now, id).map(Shown::file),
            Node::Snapshot(file) => self.queries.pasts.shown(file),
            Node::Query(id) => self.queries.nodes.shown(id),
        }
    }

    /// Replies with the attributes of a file or directory.
    pub(super) fn reply_attributes(&self, node: Node, reply: ReplyAttr) {
        let ttl = self.ttl_of(node);
        match self.shown(node) {
            Ok(shown) => reply.attr(&ttl.of(&*self.namespace, &shown.inode), &attributes(&shown)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Sets attributes, and the length of a file.
    pub(super) fn set_attributes(
        &self,
        request: &Request,
        node: Node,
        set: SetAttributes,
        reply: ReplyAttr,
    ) {
        if set.is_empty() {
            match self.check_loss_of_privileges(request, node) {
                // Servers take the bits with what this user writes: they let only the owner do it alone.
                Ok(is_owner) if self.names_users && !is_owner => {
                    return self.reply_attributes(node, reply);
                }
                Ok(_) => {}
                Err(error) => return reply.error(errno(&error)),
            }
        }
        let (by, is_cut) = (CallingProcess::of(request), set.size.is_some());
        let namespace = match self.by(request) {
            Ok(namespace) => namespace,
            Err(error) => return reply.error(errno(&error)),
        };
        let set_all = move |this: &Self| {
            let ttl = this.ttl();
            let changed = real(node).and_then(|id| {
                let changer = this.changer(by, id, is_cut);
                namespace.set_attributes(id, &set, changer)
            });
            match changed {
                Ok(inode) => {
                    reply.attr(&ttl.of(&*this.namespace, &inode), &attributes(&Shown::file(inode)))
                }
                Err(error) => reply.error(errno(&error)),
            }
        };
        match real(node) {
            Ok(id) if is_cut => self.change(by.uid, id, set_all),
            _ => set_all(self),
        }
    }

    /// Returns whether a user owns a file or is root, and an error if the user may not take its setuid and
    /// setgid bits: by writing, or as the owner by chown(2). The kernel checks
    /// nothing where chown(2) names no owner and no group.
    fn check_loss_of_privileges(&self, request: &Request, node: Node) -> Answer<bool> {
        let id = real(node)?;
        let inode = self.namespace.inode(Moment::Now, id)?;
        let has_none = inode.is_directory() || inode.mode & SETUID_SETGID == 0;
        let lets = has_none || self.by(request)?.lets_change(id, &asking(request)?)?;
        match lets {
            true => Ok([0, inode.uid].contains(&request.uid())),
            false => Err(rustix::io::Errno::PERM.into()),
        }
    }

    /// Returns who changes a file. Groups are found out only where they may be needed, and the file
    /// has the bit that they decide about: that takes longer than most changes.
    pub(super) fn changer(
        &self,
        by: CallingProcess,
        id: FileId,
        may_need_groups: bool,
    ) -> Changer<'static> {
        if by.uid == 0 {
            return Changer::Privileged;
        }
        let has_setgid = || {
            let inode = self.namespace.inode(Moment::Now, id);
            inode.is_ok_and(|inode| inode.mode & SETGID != 0)
        };
        let groups = if may_need_groups && has_setgid() { by.groups() } else { Vec::new() };
        Changer::Member(groups.into())
    }

    /// Notes that something was read, where anything may change.
    pub(super) fn touch_access(&self, by: &dyn Execute, node: Node) -> Answer<()> {
        match node {
            Node::File(id) if !self.is_read_only => by.touch_access(id),
            _ => Ok(()),
        }
    }

    /// Replies with the free space; in a tree with limits, with the space left within them, unless
    /// servers do not answer.
    pub(super) fn reply_space(&self, node: Node, reply: ReplyStatfs) {
        let space = self.namespace.capacity().and_then(|mut space| {
            match self.tree_of(node) {
                Ok(Some(tree)) => quotas::limit_space(&mut space, &tree),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                Err(error) => return Err(error),
            }
            Ok(space)
        });
        match space {
            Ok(space) => reply.statfs(
                space.units,
                space.units_free,
                space.units_available,
                space.files,
                space.files_free,
                space.block_bytes as u32,
                NAME_BYTES_MAX as u32,
                space.unit_bytes as u32,
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Returns what the tree that a file is in may use, if it has limits.
    fn tree_of(&self, node: Node) -> Answer<Option<Quota>> {
        match node {
            Node::File(id) => self.namespace.quota_of_tree(id),
            Node::Query(_) | Node::Snapshot(_) => Ok(None),
        }
    }

    /// Sets an extended attribute; of the root, one that changes the namespace itself.
    pub(super) fn set_xattr(
        &self,
        request: &Request,
        node: Node,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    ) {
        let name = name.as_bytes();
        if control::is_control(node, name, request.uid()) {
            let (namespace, name) = (self.namespace.clone(), name.to_vec());
            let value = value.to_vec();
            // Not behind a check: the kernel keeps the root directory locked meanwhile.
            return self.queries.run_reader(request.uid(), move |_, _| {
                let set = control::set(&*namespace, &name, &value);
                if let Err(error) = &set {
                    tracing::warn!("{}: {error}", value.escape_ascii());
                }
                empty(reply, set);
            });
        }
        if quotas::is_quota(name) {
            // The kernel keeps the directory locked meanwhile: who may not set it, does not wait.
            if !asking(request).is_ok_and(|who| quotas::may_set(name, &who)) {
                return reply.error(Errno::EPERM);
            }
            let (by, value) = (self.by(request), value.to_vec());
            return self.queries.run(request.uid(), move |_, _| {
                let set = |by: Arc<dyn Execute>| quotas::set(&*by, real(node)?, &value);
                empty(reply, by.and_then(set));
            });
        }
        let how = match flags {
            0 => SetXattr::Any,
            XATTR_CREATE => SetXattr::Create,
            XATTR_REPLACE => SetXattr::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        match check_xattr(name) {
            Err(errno) => reply.error(errno),
            Ok(()) => {
                let by = CallingProcess::of(request);
                let set = real(node).and_then(|id| {
                    let changer = self.changer(by, id, name == acl::ACCESS.as_bytes());
                    self.by(request)?.set_xattr(id, name, value, how, changer)
                });
                empty(reply, set);
            }
        }
    }

    /// Replies with an extended attribute. The root also has those of the namespace itself.
    pub(super) fn reply_xattr(
        &self,
        request: &Request,
        node: Node,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let name = name.as_bytes();
        if control::is_control(node, name, request.uid()) {
            let (namespace, name) = (self.namespace.clone(), name.to_vec());
            let is_read_only = self.is_read_only;
            return self.queries.run(request.uid(), move |_, _| {
                match control::get(&*namespace, &name, is_read_only) {
                    Ok(value) => xattr(reply, &value, size),
                    Err(error) => reply.error(errno(&error)),
                }
            });
        }
        if let Err(errno) = check_xattr(name) {
            return reply.error(errno);
        }
        if name == ERROR.as_bytes()
            && let Some(why) = self.queries.refusal(request.uid(), node)
        {
            return xattr(reply, why.as_bytes(), size);
        }
        if name == LABEL
            && !matches!(node, Node::Snapshot(_))
            && self.namespace.state().is_ok_and(|state| state.lacks_labels)
        {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if let Node::Query(id) = node {
            return self.reply_plan(request, id, name, size, reply);
        }
        if let Node::File(id) = node
            && quotas::is_quota(name)
        {
            let who = asking(request);
            let (by, name) = (self.by(request), name.to_vec());
            return self.queries.run(request.uid(), move |_, _| {
                match who.and_then(|who| quotas::get(&*by?, id, &name, &who)) {
                    Ok(value) => xattr(reply, &value, size),
                    Err(error) => reply.error(errno(&error)),
                }
            });
        }
        let found = match node {
            Node::File(id) => self.by(request).and_then(|by| by.xattr(Moment::Now, id, name)),
            Node::Snapshot(file) => {
                asking(request).and_then(|who| self.queries.pasts.xattr(file, name, &who))
            }
            Node::Query(_) => Ok(None),
        };
        match found {
            Ok(Some(value)) => xattr(reply, &value, size),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Replies with the plan of a query, its only attribute.
    fn reply_plan(
        &self,
        request: &Request,
        id: QueryId,
        name: &[u8],
        size: u32,
        reply: ReplyXattr,
    ) {
        if name != PLAN.as_bytes() {
            return reply.error(Errno::ENODATA);
        }
        let who = asking(request);
        self.queries.run(request.uid(), move |queries, turn| {
            match who.and_then(|who| queries.plan(id, &who, turn)) {
                Ok(plan) => xattr(reply, plan.as_bytes(), size),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    /// Replies with the names of extended attributes.
    pub(super) fn reply_xattrs(&self, request: &Request, node: Node, size: u32, reply: ReplyXattr) {
        let names = match node {
            Node::File(id) => self.namespace.xattrs(Moment::Now, id),
            Node::Snapshot(file) => self.queries.pasts.xattrs(file),
            Node::Query(_) => Ok(Vec::new()),
        };
        match names {
            Ok(mut names) => {
                // As other file systems do; who may read their values is the kernel's to say.
                names.retain(|name| request.uid() == 0 || !name.starts_with(b"trusted."));
                let list = names.iter().flat_map(|name| name.iter().chain(&[0])).copied();
                xattr(reply, &Vec::from_iter(list), size);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Removes an extended attribute.
    pub(super) fn remove_xattr(
        &self,
        request: &Request,
        node: Node,
        name: &OsStr,
        reply: ReplyEmpty,
    ) {
        match check_xattr(name.as_bytes()) {
            Err(errno) => reply.error(errno),
            // The kernel asks before this user writes, and lets root alone call removexattr(2) for it.
            // Servers remove it with what the user writes.
            Ok(()) if name == CAPABILITY && self.names_users && request.uid() != 0 => reply.ok(),
            Ok(()) => {
                let name = name.as_bytes();
                let removed = real(node).and_then(|id| self.by(request)?.remove_xattr(id, name));
                // An ACL that is not there is as good as removed, as in other file systems.
                empty(
                    reply,
                    match removed {
                        Err(error) if error.errno() == Code::NODATA && is_acl(name) => Ok(()),
                        removed => removed,
                    },
                );
            }
        }
    }
}

/// Returns whether an attribute is an ACL.
fn is_acl(name: &[u8]) -> bool {
    [acl::ACCESS, acl::DEFAULT].iter().any(|one| one.as_bytes() == name)
}

/// Returns the error of an attribute that no user may have here.
fn check_xattr(name: &[u8]) -> Result<(), Errno> {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let is_known =
        prefixes.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
    match is_acl(name) || is_known {
        true => Ok(()),
        false if prefixes.contains(&name) => Err(Errno::EINVAL),
        false => Err(Errno::EOPNOTSUPP),
    }
}

/// Answers with a value, or with its size if none is taken.
pub(super) fn xattr(reply: ReplyXattr, value: &[u8], size: u32) {
    match size {
        0 => reply.size(value.len() as u32),
        _ if value.len() > size as usize => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

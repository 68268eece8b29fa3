//! Attributes, extended ones too, and how much space there is.

use super::contents::privileges;
use super::{Answer, Filesystem, asking, empty, real};
use crate::caller::By;
use crate::convert::{attributes, errno};
use crate::explain::PLAN;
use crate::nodes::is_virtual;
use crate::past::{SETUID_SETGID, is_past};
use crate::refusals::ERROR;
use crate::{control, quotas};
use canopy_namespace::quota::Quota;
use canopy_namespace::{Inode, NAME_BYTES_MAX, SetAttributes, SetXattr, acl};
use fuser::{Errno, INodeNo, ReplyAttr, ReplyEmpty, ReplyStatfs, ReplyXattr, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

impl Filesystem {
    pub(super) fn attributes_of(&self, id: u64) -> Answer<Inode> {
        match id {
            _ if is_virtual(id) => self.queries.nodes.inode(id),
            _ if is_past(id) => self.queries.pasts.inode(id),
            _ => self.namespace.inode(id),
        }
    }

    /// Replies with the attributes of a file or directory.
    pub(super) fn reply_attributes(&self, id: INodeNo, reply: ReplyAttr) {
        let ttl = if is_virtual(id.0) || is_past(id.0) { Duration::ZERO } else { self.ttl() };
        match self.attributes_of(id.0) {
            Ok(inode) => reply.attr(&ttl, &attributes(&inode)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Sets attributes, and the length of a file.
    pub(super) fn set_attributes(
        &self,
        request: &Request,
        id: INodeNo,
        set: SetAttributes,
        reply: ReplyAttr,
    ) {
        if set.is_empty()
            && let Err(error) = self.check_loss_of_privileges(request, id)
        {
            return reply.error(errno(&error));
        }
        let (by, is_cut) = (By::of(request), set.size.is_some());
        let set_all = move |this: &Self| {
            let is_in = |gid| by.is_in(gid);
            let privileges = privileges(by.uid == 0, &is_in);
            let ttl = this.ttl();
            match real(id).and_then(|id| this.namespace.set_attributes(id, &set, privileges)) {
                Ok(inode) => reply.attr(&ttl, &attributes(&inode)),
                Err(error) => reply.error(errno(&error)),
            }
        };
        match is_cut && real(id).is_ok() {
            true => self.change(by.uid, id.0, set_all),
            false => set_all(self),
        }
    }

    /// Returns an error if a user may not take a file's setuid and setgid bits: the kernel checks
    /// nothing where chown(2) names no owner and no group.
    fn check_loss_of_privileges(&self, request: &Request, id: INodeNo) -> Answer<()> {
        let inode = self.namespace.inode(real(id)?)?;
        let has_none = inode.is_directory() || inode.mode & SETUID_SETGID == 0;
        let lets = has_none
            || asking(request)
                .is_ok_and(|who| self.namespace.lets_change(&inode, &who).is_ok_and(|lets| lets));
        if lets { Ok(()) } else { Err(rustix::io::Errno::PERM.into()) }
    }

    /// Notes that something was read, where anything may change.
    pub(super) fn touch_access(&self, id: u64) -> Answer<()> {
        if self.is_read_only || is_past(id) { Ok(()) } else { self.namespace.touch_access(id) }
    }

    /// Replies with the free space; in a tree with limits, with the space left within them.
    pub(super) fn reply_space(&self, id: INodeNo, reply: ReplyStatfs) {
        let space = self.namespace.space().and_then(|mut space| {
            if let Some(tree) = self.tree_of(id.0)? {
                quotas::limit_space(&mut space, &tree);
            }
            Ok(space)
        });
        match space {
            Ok(space) => reply.statfs(
                space.f_blocks,
                space.f_bfree,
                space.f_bavail,
                space.f_files,
                space.f_ffree,
                space.f_bsize as u32,
                NAME_BYTES_MAX as u32,
                space.f_frsize as u32,
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Returns what the tree that a file is in may use, if it has limits.
    fn tree_of(&self, id: u64) -> Answer<Option<Quota>> {
        match is_virtual(id) || is_past(id) {
            true => Ok(None),
            false => self.namespace.quota_of_tree(id),
        }
    }

    /// Sets an extended attribute; of the root, one that changes the namespace itself.
    pub(super) fn set_xattr(
        &self,
        request: &Request,
        id: INodeNo,
        (name, value): (&OsStr, &[u8]),
        flags: i32,
        reply: ReplyEmpty,
    ) {
        let name = name.as_bytes();
        if control::is_control(id.0, name, request.uid()) {
            let (namespace, name) = (self.namespace.clone(), name.to_vec());
            let value = value.to_vec();
            // Not behind a check: the kernel keeps the root directory locked meanwhile.
            return self.queries.run_reader(request.uid(), move |queries, _| {
                let set = control::set(&namespace, &name, &value);
                if let Err(error) = &set {
                    queries.refusals.log(&format!("{}: {error}", value.escape_ascii()));
                }
                queries.pasts.forget_deleted();
                empty(reply, set);
            });
        }
        if quotas::is_quota(name) {
            // The kernel keeps the directory locked meanwhile: who may not set it, does not wait.
            if !asking(request).is_ok_and(|who| quotas::may_set(name, &who)) {
                return reply.error(Errno::EPERM);
            }
            let (namespace, value) = (self.namespace.clone(), value.to_vec());
            return self.queries.run(request.uid(), move |_, _| {
                empty(reply, real(id).and_then(|id| quotas::set(&namespace, id, &value)));
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
                let by = By::of(request);
                let is_in = |gid| by.is_in(gid);
                let privileges = privileges(by.uid == 0, &is_in);
                let set = real(id)
                    .and_then(|id| self.namespace.set_xattr(id, name, value, how, privileges));
                empty(reply, set);
            }
        }
    }

    /// Replies with an extended attribute. The root also has those of the namespace itself.
    pub(super) fn reply_xattr(
        &self,
        request: &Request,
        id: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let name = name.as_bytes();
        if let Err(errno) = check_xattr(name) {
            return reply.error(errno);
        }
        if name == ERROR.as_bytes()
            && let Some(why) = self.queries.refusal(request.uid(), id.0)
        {
            return xattr(reply, why.as_bytes(), size);
        }
        if !is_past(id.0) && self.namespace.is_missing_label(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if is_virtual(id.0) {
            return self.reply_plan(request, id.0, name, size, reply);
        }
        if control::is_control(id.0, name, request.uid()) {
            let (namespace, name) = (self.namespace.clone(), name.to_vec());
            let is_read_only = self.is_read_only;
            return self.queries.run(request.uid(), move |_, _| {
                match control::get(&namespace, &name, is_read_only) {
                    Ok(value) => xattr(reply, &value, size),
                    Err(error) => reply.error(errno(&error)),
                }
            });
        }
        if quotas::is_quota(name) && !is_past(id.0) {
            let who = asking(request);
            let (namespace, name) = (self.namespace.clone(), name.to_vec());
            return self.queries.run(request.uid(), move |_, _| {
                match who.and_then(|who| quotas::get(&namespace, id.0, &name, &who)) {
                    Ok(value) => xattr(reply, &value, size),
                    Err(error) => reply.error(errno(&error)),
                }
            });
        }
        let found = match is_past(id.0) {
            true => asking(request).and_then(|who| self.queries.pasts.xattr(id.0, name, &who)),
            false => self.namespace.xattr(id.0, name),
        };
        match found {
            Ok(Some(value)) => xattr(reply, &value, size),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Replies with the plan of a query, its only attribute.
    fn reply_plan(&self, request: &Request, id: u64, name: &[u8], size: u32, reply: ReplyXattr) {
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
    pub(super) fn reply_xattrs(
        &self,
        request: &Request,
        id: INodeNo,
        size: u32,
        reply: ReplyXattr,
    ) {
        let names = match id.0 {
            id if is_virtual(id) => Ok(Vec::new()),
            id if is_past(id) => self.queries.pasts.xattrs(id),
            id => self.namespace.xattrs(id),
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
    pub(super) fn remove_xattr(&self, id: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match check_xattr(name.as_bytes()) {
            Err(errno) => reply.error(errno),
            Ok(()) => {
                let name = name.as_bytes();
                empty(reply, real(id).and_then(|id| self.namespace.remove_xattr(id, name)));
            }
        }
    }
}

/// Returns the error of an attribute that no user may have here.
fn check_xattr(name: &[u8]) -> Result<(), Errno> {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let is_acl = [acl::ACCESS, acl::DEFAULT].iter().any(|one| one.as_bytes() == name);
    let is_known =
        prefixes.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
    match is_acl || is_known {
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

//! Extended attributes: a record each, by file and name.

use crate::error::Result;
use crate::records::acl;
use crate::records::change::{Privileges, SETGID};
use crate::records::inode::{Inode, file_type, flag};
use crate::records::keys::{FileId, NAME_BYTES_MAX, Space};
use crate::records::permissions::{Caller, is_acl};
use crate::records::tablet::Tablet;
use canopy_store::{Batch, Direction};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value has so many bytes at most, and so have all names of a file together.
pub const XATTR_BYTES_MAX: usize = 65_536;

/// The attribute that SELinux keeps its labels in. ls(1) asks for it for every file.
pub const LABEL: &[u8] = b"security.selinux";

/// The attribute that gives a program capabilities. It goes with the owner.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// Whether any file has a label of SELinux, as far as that is known.
#[derive(Default)]
pub(crate) struct Labels {
    are_there: AtomicBool,
    are_missing: AtomicBool,
}

/// Whether an attribute may be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetXattr {
    /// It does not matter.
    Any,
    /// It must not (`XATTR_CREATE`).
    Create,
    /// It must (`XATTR_REPLACE`).
    Replace,
}

impl Tablet {
    /// Returns whether no file is known to have a label of SELinux. Labels then count as unsupported
    /// here, so that programs need not ask for each file.
    pub(crate) fn lacks_labels(&self) -> bool {
        self.labels.are_missing.load(Ordering::Acquire)
            && !self.labels.are_there.load(Ordering::Acquire)
    }

    /// Notes that a file gets an extended attribute of this name.
    pub(crate) fn note_label(&self, name: &[u8]) {
        if name == LABEL {
            self.labels.are_there.store(true, Ordering::Release);
        }
    }

    /// Finds out whether any file has a label of SELinux, unless that is known. Reads all extended
    /// attributes, until `goes_on` returns false.
    pub(crate) fn find_labels(&self, goes_on: impl Fn() -> bool) -> Result<()> {
        let labels = &self.labels;
        let is_known = |one: &AtomicBool| one.load(Ordering::Acquire);
        if is_known(&labels.are_missing) || is_known(&labels.are_there) {
            return Ok(());
        }
        let mut scan = self.table.scan(&Space::Xattrs.range(), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            if record.key.name == LABEL {
                labels.are_there.store(true, Ordering::Release);
                return Ok(());
            }
            if !goes_on() {
                return Ok(());
            }
        }
        // One that was set meanwhile is noted beside.
        labels.are_missing.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the value of an attribute; none if the file has no such attribute.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does.
    pub fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.inode(id)?.has(flag::XATTRS) {
            true => self.xattr_of(id, name),
            false => Ok(None),
        }
    }

    /// Returns the names of a file's attributes, sorted.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does.
    pub fn xattrs(&self, id: FileId) -> Result<Vec<Vec<u8>>> {
        match self.inode(id)?.has(flag::XATTRS) {
            true => self.xattr_names(id),
            false => Ok(Vec::new()),
        }
    }

    /// Gives a file an attribute. An access ACL changes its mode, and is no more than that if it
    /// says no more; setgid goes with it if the caller is not in the group and may not set it.
    ///
    /// # Errors
    ///
    /// Fails with `EXIST` or `NODATA` as `how` says, and with `RANGE`, `TOOBIG` or `NOSPC` if name
    /// or value are too long. Fails with `RANGE` for an empty name, and with `INVAL` for one with a
    /// zero byte. Fails with `INVAL`, `ACCESS` or `OPNOTSUPP` for wrong ACLs. Fails as the table
    /// does.
    pub fn set_xattr(
        &self,
        id: FileId,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        self.set_xattr_for(Caller::Trusted, id, (name, value), how, privileges)
    }

    /// Like `set_xattr`, for a caller.
    pub(crate) fn set_xattr_for(
        &self,
        caller: Caller<'_>,
        id: FileId,
        (name, value): (&[u8], &[u8]),
        how: SetXattr,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        check_xattr_form(name)?;
        if value.len() > XATTR_BYTES_MAX {
            return Err(Errno::TOOBIG.into());
        }
        self.check_early(caller, id, |check, inode| check.set_xattr(inode, name))?;
        self.note_label(name);
        self.change_inode(id, |inode, batch| {
            if let Some(who) = caller.user() {
                self.check(who).set_xattr(inode, name)?;
            }
            let names = self.names_of(inode)?;
            let is_there = names.iter().any(|one| one == name);
            match how {
                // Linux does not look at it.
                _ if is_acl(name) && caller.user().is_some() => {}
                SetXattr::Create if is_there => return Err(Errno::EXIST.into()),
                SetXattr::Replace if !is_there => return Err(Errno::NODATA.into()),
                _ => {}
            }
            let names_bytes: usize = names.iter().map(|name| name.len() + 1).sum();
            if !is_there && names_bytes + name.len() + 1 > XATTR_BYTES_MAX {
                return Err(Errno::NOSPC.into());
            }
            let is_kept = set_acl(inode, name, value, privileges)?;
            if is_there {
                self.unindex_xattr(batch, id, name)?;
            }
            self.index_xattr(batch, id, name, None, is_kept.then_some(value))?;
            let key = Space::Xattrs.of(id, name);
            match is_kept {
                true => batch.put(key.as_ref(), value)?,
                false => batch.delete(key.as_ref())?,
            }
            let others = names.len() - usize::from(is_there);
            let has_any = is_kept || others > 0;
            inode.flags = inode.flags & !flag::XATTRS | if has_any { flag::XATTRS } else { 0 };
            inode.ctime_ns = self.now_ns();
            Ok(())
        })?;
        Ok(())
    }

    fn names_of(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        if inode.has(flag::XATTRS) { self.xattr_names(inode.id) } else { Ok(Vec::new()) }
    }

    /// Adds to `batch` that the index of an attribute has no longer what it has of a file.
    pub(crate) fn unindex_xattr(&self, batch: &mut Batch, id: FileId, name: &[u8]) -> Result<()> {
        if self.configured().indexes.xattr(name).is_none() {
            return Ok(());
        }
        let before = self.xattr_of(id, name)?;
        self.index_xattr(batch, id, name, before.as_deref(), None)
    }

    /// Takes an attribute of a file away.
    ///
    /// # Errors
    ///
    /// Fails with `NODATA` if there is no such attribute, and with `NOENT` if there is no such file.
    /// Fails with `RANGE` or `INVAL` for a name that no attribute has, and as the table does.
    pub fn remove_xattr(&self, id: FileId, name: &[u8]) -> Result<()> {
        self.remove_xattr_for(Caller::Trusted, id, name)
    }

    /// Like `remove_xattr`, for a caller. A user may remove an ACL that is not there, as in Linux.
    pub(crate) fn remove_xattr_for(
        &self,
        caller: Caller<'_>,
        id: FileId,
        name: &[u8],
    ) -> Result<()> {
        check_xattr_form(name)?;
        self.check_early(caller, id, |check, inode| check.remove_xattr(inode, name))?;
        self.change_inode(id, |inode, batch| {
            if let Some(who) = caller.user() {
                self.check(who).remove_xattr(inode, name)?;
            }
            batch.frees = true;
            let is_optional = is_acl(name) && caller.user().is_some();
            if !self.drop_xattr(inode, batch, name)? && !is_optional {
                return Err(Errno::NODATA.into());
            }
            inode.ctime_ns = self.now_ns();
            Ok(())
        })?;
        Ok(())
    }

    /// Adds to `batch` that an attribute of a file goes. Returns whether there is one.
    pub(crate) fn drop_xattr(
        &self,
        inode: &mut Inode,
        batch: &mut Batch,
        name: &[u8],
    ) -> Result<bool> {
        let names = self.names_of(inode)?;
        if !names.iter().any(|one| one == name) {
            return Ok(false);
        }
        self.unindex_xattr(batch, inode.id, name)?;
        batch.delete(Space::Xattrs.of(inode.id, name).as_ref())?;
        if names.len() == 1 {
            inode.flags &= !flag::XATTRS;
        }
        Ok(true)
    }
}

/// Returns an error for a name of an attribute that no system call can have.
pub(crate) fn check_xattr_form(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Errno::RANGE.into()),
        length if length > NAME_BYTES_MAX => Err(Errno::RANGE.into()),
        _ if name.contains(&0) => Err(Errno::INVAL.into()),
        _ => Ok(()),
    }
}

/// Gives an inode the mode that an attribute implies, if it is an ACL. Returns whether the attribute
/// says more than the mode does.
fn set_acl(
    inode: &mut Inode,
    name: &[u8],
    value: &[u8],
    privileges: Privileges<'_>,
) -> Result<bool> {
    let is_access = name == acl::ACCESS.as_bytes();
    if !is_access && name != acl::DEFAULT.as_bytes() {
        return Ok(true);
    }
    if inode.file_type() == file_type::SYMLINK {
        return Err(Errno::OPNOTSUPP.into());
    }
    let acl = acl::parse(value)?;
    if !is_access {
        return if inode.is_directory() { Ok(true) } else { Err(Errno::ACCESS.into()) };
    }
    inode.mode = acl::mode_with(&acl, inode.mode);
    if let Privileges::Drop(is_in) = privileges
        && !is_in(inode.gid)
    {
        inode.mode &= !SETGID;
    }
    Ok(!acl::is_minimal(&acl))
}

//! Permissions of changes and reads, for callers whom no kernel has checked.
//!
//! A [`Caller`] is trusted or a user. What a user needs for each operation is the table in
//! `operation/rights.rs`. Here are the checks that depend on records, in the order in which Linux
//! makes them, so that a call fails with the same error: search on a directory, the name, what is
//! there, write and search, the sticky bit. A check runs with the writer's lock of the tablet, in
//! the view in which the call is executed. For lengths, times of access and usage of trees it runs
//! just before that (`Tablet::check_early`). Only [`Grant`] judges permission bits.
//!
//! Differences from Linux: hard links are always protected as by the sysctl
//! `fs.protected_hardlinks`, whatever a host has set. The other `fs.protected_*` concern paths and
//! opening by name, which clients do.

use crate::error::Result;
use crate::operation::Changer;
use crate::records::access;
use crate::records::acl;
use crate::records::change::{
    GROUP_EXECUTE, New, RenameMode, SETGID, SETUID, SetAttributes, SetTime,
};
use crate::records::inode::{Inode, TYPE_MASK, file_type};
use crate::records::keys::{EntryName, FileId, check_name};
use crate::records::tablet::Tablet;
use crate::records::xattrs::check_xattr_form;
use canopy_model::{Credentials, Grant, Ownership, Wanted, XattrAccess};
use rustix::io::Errno;
use std::borrow::Cow;

const STICKY: u32 = 0o1000;

/// Bits of a mode that mkdir(2) sets.
const DIRECTORY_BITS: u32 = 0o1777;

/// The caller of an operation.
///
/// A user is checked, but for one thing: an operation on a file id does not prove that the user can
/// reach the file. A client looks a path up by names, each of which takes search on its directory,
/// and gets ids. Until a server gives out handles with keyed checksums, and takes nothing else from
/// users, an id that was guessed is as good as one that was looked up. Whoever executes operations
/// of users checks their handles before [`Tablet::execute_for`].
#[derive(Clone, Copy, Debug)]
pub enum Caller<'a> {
    /// Nothing is checked: somebody has done so, like the kernel for a mount of this process.
    Trusted,
    /// The namespace checks everything. User 0 has the rights of root.
    User(&'a Credentials),
}

impl<'a> Caller<'a> {
    /// Returns the user to check, if there is one.
    pub fn user(self) -> Option<&'a Credentials> {
        match self {
            Caller::Trusted => None,
            Caller::User(who) => Some(who),
        }
    }

    /// Returns who changes a file: an operation of a user may claim anything.
    pub(crate) fn changer<'c>(self, claimed: &'c Changer<'_>) -> Changer<'c>
    where
        'a: 'c,
    {
        match self {
            Caller::User(who) if !who.is_root() => Changer::Member(Cow::Borrowed(&who.gids)),
            Caller::User(_) => Changer::Privileged,
            Caller::Trusted => match claimed {
                Changer::Privileged => Changer::Privileged,
                Changer::Member(groups) => Changer::Member(Cow::Borrowed(groups)),
            },
        }
    }
}

/// Checks of one user's call. Whoever makes them has the writer's lock.
#[derive(Clone, Copy)]
pub(crate) struct Check<'a> {
    tablet: &'a Tablet,
    who: &'a Credentials,
}

impl Tablet {
    /// Returns the checks of a user. The caller has the writer's lock.
    pub(crate) fn check<'a>(&'a self, who: &'a Credentials) -> Check<'a> {
        Check { tablet: self, who }
    }

    /// Checks a call on one file before anything is touched. A change of attributes, or of extended
    /// ones, checks it once more, in its own view. Nothing checks it again for a length, a time of
    /// access or the usage of a tree: who might do this a moment ago could have done it then.
    pub(crate) fn check_early(
        &self,
        caller: Caller<'_>,
        id: FileId,
        check: impl FnOnce(Check<'_>, &Inode) -> Result<()>,
    ) -> Result<()> {
        let Caller::User(who) = caller else { return Ok(()) };
        let _writer = self.writer.lock();
        let (_, inode) = self.locate(id)?;
        check(self.check(who), &inode)
    }
}

/// A user, as permissions of files see one.
impl Check<'_> {
    /// Returns whether the user owns a file, or may do everything that its owner may.
    pub(crate) fn owns(self, inode: &Inode) -> bool {
        self.who.is_root() || self.who.uid == inode.uid
    }

    /// Returns whether the user is in a group, or needs not be.
    pub(crate) fn is_in(self, gid: u32) -> bool {
        self.who.is_root() || self.who.gids.contains(&gid)
    }

    /// Returns whether the permissions of a file let the user have it so.
    pub(crate) fn passes(self, inode: &Inode, wanted: Wanted) -> Result<bool> {
        if self.who.is_root() {
            return Ok(Grant::nobody().passes_access(self.who, inode.mode, wanted));
        }
        access::passes(inode, self.who, wanted, |id, name| self.tablet.xattr_of(id, name))
    }

    /// Returns an error unless the permissions of a file let the user have it so.
    pub(crate) fn require(self, inode: &Inode, wanted: Wanted) -> Result<()> {
        if self.passes(inode, wanted)? { Ok(()) } else { Err(Errno::ACCESS.into()) }
    }

    fn require_owner(self, inode: &Inode) -> Result<()> {
        if self.owns(inode) { Ok(()) } else { Err(Errno::PERM.into()) }
    }

    fn require_root(self) -> Result<()> {
        if self.who.is_root() { Ok(()) } else { Err(Errno::PERM.into()) }
    }

    /// Returns an error unless what the user makes is to belong to the user.
    fn require_self(self, uid: u32, gid: u32) -> Result<()> {
        let is_own = uid == self.who.uid && self.who.gids.contains(&gid);
        if is_own { Ok(()) } else { self.require_root() }
    }

    /// Returns a directory in which the user may look names up.
    pub(crate) fn search(self, directory: FileId) -> Result<Inode> {
        let pending = self.tablet.pending.read().get(&directory).cloned();
        let inode = match pending {
            Some(inode) => inode,
            None => self.tablet.locate(directory)?.1,
        };
        if !inode.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.require(&inode, Wanted::SEARCH)?;
        Ok(inode)
    }

    /// Returns an error unless the user may look a name up, and there can be such a name.
    pub(crate) fn search_for(self, name: EntryName<'_>) -> Result<()> {
        check_alive(&self.search(name.directory)?)?;
        check_name(name.name)
    }

    /// Returns the file of a name in a directory.
    pub(crate) fn find(self, directory: &Inode, name: EntryName<'_>) -> Result<Option<Inode>> {
        check_alive(directory)?;
        check_name(name.name)?;
        let found = self.tablet.record(&name.key())?;
        found.map(|found| self.tablet.inode_of_name(&found)).transpose()
    }
}

/// Names.
impl Check<'_> {
    /// Returns an error unless the user may add names to a directory.
    pub(crate) fn add_to(self, directory: &Inode) -> Result<()> {
        check_alive(directory)?;
        self.require(directory, Wanted::WRITE_SEARCH)
    }

    /// Returns an error unless the user may take a name of a file away from a directory.
    pub(crate) fn remove_from(self, directory: &Inode, file: &Inode) -> Result<()> {
        self.require(directory, Wanted::WRITE_SEARCH)?;
        let is_kept = directory.mode & STICKY != 0 && !self.owns(file) && !self.owns(directory);
        if is_kept { Err(Errno::PERM.into()) } else { Ok(()) }
    }

    /// Returns an error unless a name is free, and the user may look that up. Returns the directory.
    fn free(self, name: EntryName<'_>) -> Result<Inode> {
        let directory = self.search(name.directory)?;
        match self.find(&directory, name)?.is_some() || matches!(name.name, b"." | b"..") {
            true => Err(Errno::EXIST.into()),
            false => Ok(directory),
        }
    }

    /// Returns a file as the user may make it.
    pub(crate) fn create<'n>(self, name: EntryName<'_>, new: &'n New) -> Result<Cow<'n, New>> {
        let kind = new.mode & TYPE_MASK;
        let is_device = match kind {
            file_type::CHARACTER => new.rdev != 0,
            file_type::BLOCK => true,
            file_type::REGULAR | file_type::DIRECTORY | file_type::SYMLINK => false,
            file_type::FIFO | file_type::SOCKET => false,
            _ => return Err(Errno::INVAL.into()),
        };
        if new.origin.is_some() {
            return Err(Errno::PERM.into());
        }
        self.require_self(new.uid, new.gid)?;
        let directory = self.free(name)?;
        self.add_to(&directory)?;
        if is_device {
            self.require_root()?;
        }
        Ok(self.adapt(&directory, new))
    }

    /// Returns an error unless the user may add a name.
    pub(crate) fn add_name(self, name: EntryName<'_>) -> Result<()> {
        let directory = self.free(name)?;
        self.add_to(&directory)
    }

    /// Returns a file without a name as the user may make it.
    pub(crate) fn create_nameless<'n>(
        self,
        directory: FileId,
        new: &'n New,
    ) -> Result<Cow<'n, New>> {
        self.require_self(new.uid, new.gid)?;
        let directory = self.search(directory)?;
        self.add_to(&directory)?;
        Ok(self.adapt(&directory, new))
    }

    /// Returns a new file without the bits that the user may not give it.
    fn adapt<'n>(self, directory: &Inode, new: &'n New) -> Cow<'n, New> {
        let bits = match new.mode & TYPE_MASK {
            file_type::DIRECTORY => new.mode & DIRECTORY_BITS,
            file_type::SYMLINK => 0o777,
            _ => new.mode & 0o7777,
        };
        let is_foreign = directory.mode & SETGID != 0 && !self.is_in(directory.gid);
        let lets_act = bits & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE;
        let dropped = if is_foreign && lets_act { SETGID } else { 0 };
        let mode = new.mode & TYPE_MASK | bits & !dropped;
        match mode == new.mode {
            true => Cow::Borrowed(new),
            false => Cow::Owned(New { mode, ..new.clone() }),
        }
    }

    /// Returns an error unless the user may give a file this name, too.
    pub(crate) fn link(self, id: FileId, name: EntryName<'_>) -> Result<()> {
        let directory = self.free(name)?;
        let (_, inode) = self.tablet.locate(id)?;
        if !self.may_pin(&inode)? {
            return Err(Errno::PERM.into());
        }
        self.add_to(&directory)
    }

    /// Returns whether the user may give a file one more name, wherever that is.
    pub(crate) fn may_pin(self, inode: &Inode) -> Result<bool> {
        let is_harmless = inode.is_regular()
            && inode.mode & SETUID == 0
            && inode.mode & (SETGID | GROUP_EXECUTE) != SETGID | GROUP_EXECUTE;
        Ok(self.owns(inode) || is_harmless && self.passes(inode, Wanted::READ_WRITE)?)
    }

    /// Returns an error unless the user may take a name away.
    pub(crate) fn remove(self, name: EntryName<'_>) -> Result<()> {
        let directory = self.search(name.directory)?;
        let found = self.find(&directory, name)?.ok_or(Errno::NOENT)?;
        self.remove_from(&directory, &found)
    }

    /// Returns an error unless the user may give what has a name another one, or it stays as it is.
    /// `whiteout` are the owner and the group of a whiteout that is left.
    pub(crate) fn rename(
        self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
        whiteout: Option<Ownership>,
    ) -> Result<()> {
        if let Some(Ownership { uid, gid }) = whiteout {
            self.require_self(uid, gid)?;
        }
        let old = self.search(from.directory)?;
        let new = self.search(to.directory)?;
        let moved = self.find(&old, from)?.ok_or(Errno::NOENT)?;
        let replaced = self.find(&new, to)?;
        match (mode, &replaced) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST.into()),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT.into()),
            _ => {}
        }
        let other = replaced.as_ref();
        self.check_loop((from.directory, &moved), (to.directory, other), mode)?;
        if other.is_some_and(|other| other.id == moved.id) {
            return Ok(());
        }
        self.remove_from(&old, &moved)?;
        match other {
            None => self.add_to(&new)?,
            Some(other) => {
                self.remove_from(&new, other)?;
                match (moved.is_directory(), other.is_directory()) {
                    _ if mode == RenameMode::Exchange => {}
                    (true, false) => return Err(Errno::NOTDIR.into()),
                    (false, true) => return Err(Errno::ISDIR.into()),
                    _ => {}
                }
            }
        }
        if old.id == new.id {
            return Ok(());
        }
        // The directory above a directory is in it.
        let back = other.filter(|_| mode == RenameMode::Exchange);
        let moving = [Some(&moved), back].into_iter().flatten();
        let mut directories = moving.filter(|inode| inode.is_directory());
        directories.try_for_each(|inode| self.require(inode, Wanted::WRITE))
    }

    /// Returns an error if a directory would get below itself, or something above it would go. The
    /// kernel finds that before it looks at permissions.
    fn check_loop(
        self,
        (from, moved): (FileId, &Inode),
        (to, other): (FileId, Option<&Inode>),
        mode: RenameMode,
    ) -> Result<()> {
        if from == to {
            return Ok(());
        }
        if moved.is_directory() && self.tablet.is_within(to, moved.id)? {
            return Err(Errno::INVAL.into());
        }
        let Some(other) = other.filter(|other| other.is_directory()) else { return Ok(()) };
        match self.tablet.is_within(from, other.id)? {
            true if mode == RenameMode::Exchange => Err(Errno::INVAL.into()),
            true => Err(Errno::NOTEMPTY.into()),
            false => Ok(()),
        }
    }
}

/// Attributes and contents.
impl Check<'_> {
    /// Returns attributes as the user may set them.
    pub(crate) fn attributes<'s>(
        self,
        inode: &Inode,
        set: &'s SetAttributes,
    ) -> Result<Cow<'s, SetAttributes>> {
        if set.size.is_some() {
            match inode.file_type() {
                file_type::REGULAR if set.is_open => self.contents(inode, Wanted::WRITE)?,
                file_type::REGULAR => self.require(inode, Wanted::WRITE)?,
                file_type::DIRECTORY => return Err(Errno::ISDIR.into()),
                _ => return Err(Errno::INVAL.into()),
            }
        }
        self.times(inode, set)?;
        if set.mode.is_some() && inode.file_type() == file_type::SYMLINK {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.owner(inode, set)?;
        let Some(mode) = set.mode else { return Ok(Cow::Borrowed(set)) };
        self.require_owner(inode)?;
        match mode & SETGID == 0 || self.is_in(set.gid.unwrap_or(inode.gid)) {
            true => Ok(Cow::Borrowed(set)),
            false => Ok(Cow::Owned(SetAttributes { mode: Some(mode & !SETGID), ..set.clone() })),
        }
    }

    /// Returns an error unless the user may set these times: whoever may write may set both to now.
    fn times(self, inode: &Inode, set: &SetAttributes) -> Result<()> {
        match (set.atime, set.mtime) {
            (None, None) => Ok(()),
            // It belongs to the change of length.
            (None, Some(SetTime::Now)) if set.size.is_some() => Ok(()),
            (Some(SetTime::Now), Some(SetTime::Now)) if !self.owns(inode) => {
                self.require(inode, Wanted::WRITE)
            }
            _ => self.require_owner(inode),
        }
    }

    /// Returns an error unless the user may set this owner and this group. Setting neither takes
    /// setuid and setgid away, which only the owner may.
    fn owner(self, inode: &Inode, set: &SetAttributes) -> Result<()> {
        let SetAttributes { uid, gid, .. } = *set;
        if [uid, gid].contains(&Some(u32::MAX)) {
            return Err(Errno::INVAL.into());
        }
        if set.is_empty() && !inode.is_directory() {
            let loses = inode.mode & (SETUID | self.lost_setgid(inode)) != 0;
            return if loses { self.require_owner(inode) } else { Ok(()) };
        }
        if self.who.is_root() {
            return Ok(());
        }
        let is_owner = self.who.uid == inode.uid;
        let may_chown = uid.is_none_or(|uid| is_owner && uid == inode.uid);
        let may_chgrp = gid.is_none_or(|gid| is_owner && (gid == inode.gid || self.is_in(gid)));
        if may_chown && may_chgrp { Ok(()) } else { Err(Errno::PERM.into()) }
    }

    /// Returns the setgid bit if a file loses it once the user changes its owner.
    pub(crate) fn lost_setgid(self, inode: &Inode) -> u32 {
        match inode.mode & GROUP_EXECUTE != 0 || !self.is_in(inode.gid) {
            true => inode.mode & SETGID,
            false => 0,
        }
    }

    /// Returns an error unless the user may open a file to read, write or execute it. Contents that
    /// were opened are not checked again, as anywhere.
    pub(crate) fn open(self, inode: &Inode, wanted: Wanted) -> Result<()> {
        match inode.file_type() {
            file_type::SYMLINK => return Err(Errno::LOOP.into()),
            file_type::DIRECTORY if wanted.includes(Wanted::WRITE) => {
                return Err(Errno::ISDIR.into());
            }
            file_type::REGULAR => {}
            _ if wanted.includes(Wanted::EXECUTE) => return Err(Errno::ACCESS.into()),
            _ => {}
        }
        self.require(inode, wanted)
    }

    /// Returns an error unless the user may read or write contents of a file that a client has
    /// open. Servers do not know for what: so the owner may, who could have opened it before its
    /// permissions changed, and everybody else as they are now.
    pub(crate) fn contents(self, inode: &Inode, wanted: Wanted) -> Result<()> {
        if self.owns(inode) { Ok(()) } else { self.require(inode, wanted) }
    }
}

/// Extended attributes.
impl Check<'_> {
    /// Returns whether the user is shown the value of an attribute of this name.
    pub(crate) fn read_xattr(self, inode: &Inode, name: &[u8]) -> Result<bool> {
        check_xattr_form(name)?;
        if is_acl(name) {
            let is_link = inode.file_type() == file_type::SYMLINK;
            return if is_link { Err(Errno::OPNOTSUPP.into()) } else { Ok(true) };
        }
        match XattrAccess::of(&String::from_utf8_lossy(name)) {
            XattrAccess::Privilege if !self.who.is_root() => return Ok(false),
            XattrAccess::Read if name.starts_with(b"user.") && !has_user_xattrs(inode) => {
                return Ok(false);
            }
            XattrAccess::Read => self.require(inode, Wanted::READ)?,
            XattrAccess::Privilege | XattrAccess::Lookup => {}
        }
        check_xattr_name(name).map(|()| true)
    }

    /// Returns an error unless the user may set an attribute of this name.
    pub(crate) fn set_xattr(self, inode: &Inode, name: &[u8]) -> Result<()> {
        if name == acl::DEFAULT.as_bytes() && !inode.is_directory() {
            let is_link = inode.file_type() == file_type::SYMLINK;
            return Err(if is_link { Errno::OPNOTSUPP } else { Errno::ACCESS }.into());
        }
        self.write_xattr(inode, name)
    }

    /// Returns an error unless the user may remove an attribute of this name.
    pub(crate) fn remove_xattr(self, inode: &Inode, name: &[u8]) -> Result<()> {
        let is_missing = name == acl::DEFAULT.as_bytes()
            && !inode.is_directory()
            && inode.file_type() != file_type::SYMLINK;
        if is_missing { Ok(()) } else { self.write_xattr(inode, name) }
    }

    /// Returns an error unless the user may change or remove an attribute of this name.
    fn write_xattr(self, inode: &Inode, name: &[u8]) -> Result<()> {
        if is_acl(name) {
            return match inode.file_type() {
                file_type::SYMLINK => Err(Errno::OPNOTSUPP.into()),
                _ => self.require_owner(inode),
            };
        }
        if name.starts_with(b"user.") {
            let is_sticky = inode.is_directory() && inode.mode & STICKY != 0;
            if !has_user_xattrs(inode) || is_sticky && !self.owns(inode) {
                return Err(Errno::PERM.into());
            }
        }
        match XattrAccess::of(&String::from_utf8_lossy(name)) {
            XattrAccess::Read => self.require(inode, Wanted::WRITE)?,
            XattrAccess::Privilege => self.require_root()?,
            XattrAccess::Lookup if name.starts_with(b"security.") => self.require_root()?,
            XattrAccess::Lookup => {}
        }
        check_xattr_name(name)
    }
}

/// Returns an error if a directory was removed.
pub(crate) fn check_alive(directory: &Inode) -> Result<()> {
    if directory.nlink == 0 { Err(Errno::NOENT.into()) } else { Ok(()) }
}

fn has_user_xattrs(inode: &Inode) -> bool {
    inode.is_regular() || inode.is_directory()
}

/// Returns whether an attribute is one of the two ACLs.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    name == acl::ACCESS.as_bytes() || name == acl::DEFAULT.as_bytes()
}

/// Returns an error for the name of an attribute that no file has here.
fn check_xattr_name(name: &[u8]) -> Result<()> {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match prefixes.iter().find(|prefix| name.starts_with(prefix)) {
        Some(prefix) if name.len() > prefix.len() => Ok(()),
        Some(_) => Err(Errno::INVAL.into()),
        None => Err(Errno::OPNOTSUPP.into()),
    }
}

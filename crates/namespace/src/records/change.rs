//! Everything that changes names and attributes. Each change is one batch: the records of names and
//! inodes, the name index and the indexes of attributes change together or not at all.
//!
//! Rights of users are checked first, with the lock of the change (`records::permissions`). A trusted
//! caller is not checked: a mount of this process is one, since the kernel checks there.

mod origin;
mod rename;

use crate::error::{Error, Result};
use crate::quota::Transaction;
use crate::records::acl;
use crate::records::executed::Outcome;
use crate::records::inode::{Inode, TYPE_MASK, file_type, flag};
use crate::records::keys::{self, EntryName, FileId, Space, check_name};
use crate::records::permissions::Caller;
use crate::records::tablet::{Tablet, Writer};
use crate::records::xattrs::CAPABILITY;
use canopy_model::Acl;
use canopy_store::{Batch, Key};
use parking_lot::MutexGuard;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::atomic::Ordering;

pub use origin::Origin;
pub(crate) use origin::is_recorded;
pub use rename::RenameMode;

/// A file has so many names at most.
pub(crate) const LINKS_MAX: u32 = 65_000;

/// The longest target of a symbolic link, in bytes.
const TARGET_BYTES_MAX: usize = 4095;

pub(crate) const SETUID: u32 = 0o4000;
pub(crate) const SETGID: u32 = 0o2000;
pub(crate) const GROUP_EXECUTE: u32 = 0o010;

/// A file to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct New {
    /// Type and permissions.
    pub mode: u32,
    /// Permissions that it does not get unless its directory has a default ACL.
    pub umask: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group, unless the directory has the setgid bit.
    pub gid: u32,
    /// The device that a device file is of. Other files have none, whatever it is.
    pub rdev: u32,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
    /// Attributes that it brings from another file system. Only trusted callers may give it some.
    pub origin: Option<Box<Origin>>,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// To what it is when it is set.
    Now,
    /// To nanoseconds since 1970.
    To(i64),
}

/// Attributes to be set; those that are none stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttributes {
    /// Permissions; the type stays.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The owning group.
    pub gid: Option<u32>,
    /// The length, of a regular file.
    pub size: Option<u64>,
    /// When it was read.
    pub atime: Option<SetTime>,
    /// When it was changed.
    pub mtime: Option<SetTime>,
    /// Whether the length is that of a file which the caller has open to write: then its owner may
    /// set it, whatever the mode is by now.
    pub is_open: bool,
}

/// The treatment of setuid and setgid bits when the contents of a file change.
#[derive(Clone, Copy)]
pub enum Privileges<'a> {
    /// They stay, as who changes it may set them; no quota binds who may.
    Keep,
    /// They stay.
    KeepBound,
    /// They go, but for setgid without the right to execute, if who changes it is in a group.
    Drop(&'a dyn Fn(u32) -> bool),
}

impl SetAttributes {
    /// Returns whether nothing is set: the kernel asks so for a file to lose what gives programs
    /// privileges, which is up to whoever may change the file ([`Tablet::lets_change`]).
    pub fn is_empty(&self) -> bool {
        self.size.is_none() && self.has_no_more_than_a_size()
    }

    pub(crate) fn has_no_more_than_a_size(&self) -> bool {
        self.mode.is_none()
            && self.uid.is_none()
            && self.gid.is_none()
            && self.atime.is_none()
            && self.mtime.is_none()
    }
}

impl Tablet {
    /// Makes a file, a directory or anything else and returns its inode. If `is_held`, it is held.
    ///
    /// # Errors
    ///
    /// Fails with `EXIST` if the name is taken, and with `NOTDIR` or `NOENT` if the parent is not a
    /// directory or gone. Fails with `NOENT`, `NAMETOOLONG` or `INVAL` if the name or the target of
    /// a link is empty, too long, or has a byte that it cannot have. Fails with `NOSPC` or `DQUOT`
    /// if there is no room. Fails as the table does.
    pub fn create(&self, parent: FileId, name: &[u8], new: &New, is_held: bool) -> Result<Inode> {
        self.create_for(Caller::Trusted, EntryName::new(parent, name), new, is_held)
    }

    /// Like `create`, for a caller.
    pub(crate) fn create_for(
        &self,
        caller: Caller<'_>,
        name: EntryName<'_>,
        new: &New,
        is_held: bool,
    ) -> Result<Inode> {
        self.reserve_ids()?;
        let mut writer = self.writer.lock();
        let new = match caller.user() {
            Some(who) => self.check(who).create(name, new)?,
            None => Cow::Borrowed(new),
        };
        let EntryName { directory: parent, name } = name;
        check_name(name)?;
        self.limit_pending()?;
        let mut directory = self.directory(parent)?;
        let key = keys::name_in(parent, name);
        if matches!(name, b"." | b"..") || self.table.get(key.as_ref())?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let (inode, acls) = self.new_inode(&directory, &new, &mut writer)?;
        let mut batch = Transaction::new();
        // No quota binds an import.
        batch.is_bound = new.uid != 0 && new.origin.is_none();
        self.add_new(&mut batch, EntryName::new(parent, name), &inode, acls)?;
        if let Some(origin) = new.origin.as_ref().filter(|origin| !origin.small.is_empty()) {
            batch.put(Space::Contents.of(inode.id, b"").as_ref(), &origin.small)?;
        }
        self.touch(&mut directory, inode.ctime_ns);
        if inode.is_directory() {
            directory.nlink = directory.nlink.checked_add(1).ok_or(Errno::MLINK)?;
            self.rewrite_inode(&mut batch, &directory)?;
        }
        self.put_outcome(&mut batch, Outcome::Inode(&inode))?;
        if is_held {
            self.hold(inode.id);
        }
        self.commit(batch).inspect_err(|_| {
            if is_held {
                // It has not been made, so this cannot fail.
                let _ = self.release(inode.id, 1);
            }
        })?;
        self.remember(directory);
        self.places.insert(inode.id, key);
        Ok(inode)
    }

    /// Makes a regular file without a name in a directory (`O_TMPFILE`), held, and returns its
    /// inode.
    ///
    /// # Errors
    ///
    /// Fails with `NOTDIR` or `NOENT` if the parent is not a directory or gone, and with `INVAL` if
    /// the file is not regular. Fails with `NOSPC` or `DQUOT` if there is no room.
    pub fn create_nameless(&self, parent: FileId, new: &New) -> Result<Inode> {
        self.create_nameless_for(Caller::Trusted, parent, new)
    }

    /// Like `create_nameless`, for a caller.
    pub(crate) fn create_nameless_for(
        &self,
        caller: Caller<'_>,
        parent: FileId,
        new: &New,
    ) -> Result<Inode> {
        self.reserve_ids()?;
        let mut writer = self.writer.lock();
        let new = match caller.user() {
            Some(who) => self.check(who).create_nameless(parent, new)?,
            None => Cow::Borrowed(new),
        };
        let directory = self.directory(parent)?;
        let (mut inode, acls) = self.new_inode(&directory, &new, &mut writer)?;
        if !inode.is_regular() || new.origin.is_some() {
            return Err(Errno::INVAL.into());
        }
        inode.nlink = 0;
        inode.flags |= flag::LINKABLE;
        let mut batch = Transaction::new();
        batch.is_bound = new.uid != 0;
        for (xattr, value) in acls {
            batch.put(Space::Xattrs.of(inode.id, &xattr).as_ref(), &value)?;
        }
        self.write_inode(&mut batch, &Space::Orphans.of(inode.id, b""), None, &inode)?;
        self.put_outcome(&mut batch, Outcome::Inode(&inode))?;
        self.hold(inode.id);
        self.orphans.lock().insert(inode.id);
        self.commit(batch).inspect_err(|_| {
            self.orphans.lock().remove(&inode.id);
            // It has not been made, so this cannot fail.
            let _ = self.release(inode.id, 1);
        })?;
        Ok(inode)
    }

    /// Returns the inode of a new file in a directory, and its extended attributes: ACLs that it
    /// inherits, or those of its origin.
    pub(crate) fn new_inode(
        &self,
        directory: &Inode,
        new: &New,
        writer: &mut MutexGuard<'_, Writer>,
    ) -> Result<(Inode, Vec<(Vec<u8>, Vec<u8>)>)> {
        let (mut inode, acls) = self.unnumbered(directory, new)?;
        inode.id = writer.ids.new_id(&self.table)?;
        Ok((inode, acls))
    }

    /// Returns the same without an id.
    pub(crate) fn unnumbered(
        &self,
        directory: &Inode,
        new: &New,
    ) -> Result<(Inode, Vec<(Vec<u8>, Vec<u8>)>)> {
        let kind = new.mode & TYPE_MASK;
        match new.target.len() {
            0 if kind == file_type::SYMLINK => return Err(Errno::NOENT.into()),
            0 => {}
            _ if kind != file_type::SYMLINK => return Err(Errno::INVAL.into()),
            length if length > TARGET_BYTES_MAX => return Err(Errno::NAMETOOLONG.into()),
            _ if new.target.contains(&0) => return Err(Errno::INVAL.into()),
            _ => {}
        }
        let mut inode = Inode { mode: new.mode, uid: new.uid, gid: new.gid, ..Inode::default() };
        inode.nlink = if kind == file_type::DIRECTORY { 2 } else { 1 };
        inode.project = directory.project;
        if matches!(kind, file_type::CHARACTER | file_type::BLOCK) {
            inode.rdev = new.rdev;
        }
        inode.size = new.target.len() as u64;
        inode.target.clone_from(&new.target);
        if let Some(origin) = &new.origin {
            let inline_bytes_max = self.configured().settings.inline_bytes_max;
            let xattrs = origin.give(&mut inode, inline_bytes_max)?;
            return Ok((inode, xattrs));
        }
        if directory.mode & SETGID != 0 {
            inode.gid = directory.gid;
            inode.mode |= if kind == file_type::DIRECTORY { SETGID } else { 0 };
        }
        let acls = match kind {
            file_type::SYMLINK => Vec::new(),
            _ => match self.default_acl(directory)? {
                Some(default) => acl::inherit(&default, &mut inode.mode),
                None => {
                    inode.mode &= !(new.umask & 0o777);
                    Vec::new()
                }
            },
        };
        if !acls.is_empty() {
            inode.flags |= flag::XATTRS;
        }
        let now_ns = self.now_ns();
        (inode.mtime_ns, inode.ctime_ns) = (now_ns, now_ns);
        (inode.atime_ns, inode.btime_ns) = (now_ns, now_ns);
        let acls = acls.into_iter().map(|(acl, value)| (acl.as_bytes().to_vec(), value));
        Ok((inode, acls.collect()))
    }

    /// Adds to `batch` a new file under a name, with its extended attributes.
    pub(crate) fn add_new(
        &self,
        batch: &mut Transaction,
        name: EntryName<'_>,
        inode: &Inode,
        xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<()> {
        for (name, value) in xattrs {
            batch.put(Space::Xattrs.of(inode.id, &name).as_ref(), &value)?;
            self.index_xattr(batch, inode.id, &name, None, Some(&value))?;
        }
        batch.put(name.found_key(inode.id).as_ref(), b"")?;
        self.write_inode(batch, &name.key(), None, inode)?;
        self.index_name(batch, inode, None, Some(name.name), false)
    }

    fn default_acl(&self, directory: &Inode) -> Result<Option<Acl>> {
        if !directory.has(flag::XATTRS) {
            return Ok(None);
        }
        let value = self.xattr_of(directory.id, acl::DEFAULT.as_bytes())?;
        // An invalid ACL was refused when it was set.
        Ok(value.and_then(|value| Acl::decode(&value).ok()))
    }

    /// Gives a file another name and returns its inode.
    ///
    /// # Errors
    ///
    /// Fails with `EXIST` if the name is taken, with `NOENT` if the file or the directory is gone,
    /// and with `PERM` for a directory. Fails with `MLINK`, and with `XDEV` between trees with
    /// limits. Fails as the table does.
    pub fn link(&self, id: FileId, parent: FileId, name: &[u8]) -> Result<Inode> {
        self.link_for(Caller::Trusted, id, EntryName::new(parent, name))
    }

    /// Like `link`, for a caller.
    pub(crate) fn link_for(
        &self,
        caller: Caller<'_>,
        id: FileId,
        name: EntryName<'_>,
    ) -> Result<Inode> {
        let _writer = self.writer.lock();
        if let Some(who) = caller.user() {
            self.check(who).link(id, name)?;
        }
        let EntryName { directory: parent, name } = name;
        check_name(name)?;
        let (place, before) = self.locate(id)?;
        let mut inode = before.clone();
        self.overlay(&mut inode);
        if inode.is_directory() {
            return Err(Errno::PERM.into());
        }
        if inode.nlink == 0 && !inode.has(flag::LINKABLE) {
            return Err(Errno::NOENT.into());
        }
        if inode.nlink >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        let mut directory = self.directory(parent)?;
        check_tree(&directory, &inode)?;
        let key = keys::name_in(parent, name);
        if matches!(name, b"." | b"..") || self.table.get(key.as_ref())?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let mut batch = Transaction::new();
        inode.nlink += 1;
        inode.flags &= !flag::LINKABLE;
        inode.ctime_ns = self.now_ns();
        batch.put(keys::name_of(id, parent, name).as_ref(), b"")?;
        self.index_name(&mut batch, &inode, None, Some(name), true)?;
        if inode.nlink == 1 {
            self.remove_record(&mut batch, &place, &before)?;
            self.write_inode(&mut batch, &key, None, &inode)?;
        } else {
            let links = Space::Links.of(id, b"");
            let pointer = Inode::pointer(id).encode();
            batch.put(key.as_ref(), &pointer)?;
            if place != links {
                // The first name after the only one: the inode moves.
                self.remove_record(&mut batch, &place, &before)?;
                batch.put(place.as_ref(), &pointer)?;
                self.write_inode(&mut batch, &links, None, &inode)?;
            } else {
                self.write_inode(&mut batch, &links, Some(&before), &inode)?;
            }
        }
        self.touch(&mut directory, inode.ctime_ns);
        self.put_outcome(&mut batch, Outcome::Inode(&inode))?;
        self.commit(batch)?;
        self.orphans.lock().remove(&id);
        self.remember(directory);
        self.forget_pending(id);
        Ok(inode)
    }

    /// Takes a name of a file that is not a directory away. Returns which file it was.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name, with `ISDIR` if it is a directory's, and as the
    /// table does.
    pub fn unlink(&self, parent: FileId, name: &[u8]) -> Result<FileId> {
        self.unlink_for(Caller::Trusted, EntryName::new(parent, name))
    }

    /// Like `unlink`, for a caller.
    pub(crate) fn unlink_for(&self, caller: Caller<'_>, name: EntryName<'_>) -> Result<FileId> {
        self.remove_name(caller, name, false)
    }

    /// Removes an empty directory. Returns which it was.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such name, and with `NOTDIR` if it is not a directory's.
    /// Fails with `NOTEMPTY` if something is in it, and as the table does.
    pub fn rmdir(&self, parent: FileId, name: &[u8]) -> Result<FileId> {
        self.rmdir_for(Caller::Trusted, EntryName::new(parent, name))
    }

    /// Like `rmdir`, for a caller.
    pub(crate) fn rmdir_for(&self, caller: Caller<'_>, name: EntryName<'_>) -> Result<FileId> {
        match name.name {
            b"." => Err(Errno::INVAL.into()),
            b".." => Err(Errno::NOTEMPTY.into()),
            _ => self.remove_name(caller, name, true),
        }
    }

    fn remove_name(
        &self,
        caller: Caller<'_>,
        name: EntryName<'_>,
        is_rmdir: bool,
    ) -> Result<FileId> {
        let _writer = self.writer.lock();
        if let Some(who) = caller.user() {
            self.check(who).remove(name)?;
        }
        let EntryName { directory: parent, name } = name;
        check_name(name)?;
        let mut directory = self.directory(parent)?;
        let key = keys::name_in(parent, name);
        let found = self.record(&key)?.ok_or(Errno::NOENT)?;
        match (found.is_directory(), is_rmdir) {
            (true, false) => return Err(Errno::ISDIR.into()),
            (false, true) => return Err(Errno::NOTDIR.into()),
            _ => {}
        }
        if is_rmdir {
            self.check_empty(found.id)?;
        }
        let mut batch = Transaction::freeing();
        let now_ns = self.now_ns();
        self.touch(&mut directory, now_ns);
        if is_rmdir {
            directory.nlink = directory.nlink.saturating_sub(1);
            self.rewrite_inode(&mut batch, &directory)?;
        }
        let id = found.id;
        self.put_outcome(&mut batch, Outcome::File(id))?;
        self.drop_name(&mut batch, EntryName::new(parent, name), found, now_ns)?;
        self.commit(batch)?;
        self.forget_pending(id);
        self.remember(directory);
        Ok(id)
    }

    /// Adds to `batch` that a name goes, whose record is `found`. The file goes with its last name,
    /// unless somebody holds it. Once that is written, what is pending of it is in its record.
    pub(crate) fn drop_name(
        &self,
        batch: &mut Transaction,
        name: EntryName<'_>,
        found: Inode,
        now_ns: i64,
    ) -> Result<()> {
        let (key, id) = (name.key(), found.id);
        let (place, before) = match found.has(flag::LINKED) {
            true => {
                let links = Space::Links.of(id, b"");
                let linked = self.record(&links)?;
                (links, linked.ok_or(Errno::IO)?)
            }
            false => (key.clone(), found),
        };
        let mut inode = before.clone();
        self.overlay(&mut inode);
        inode.nlink = if inode.is_directory() { 0 } else { inode.nlink.saturating_sub(1) };
        inode.ctime_ns = now_ns;
        batch.delete(name.found_key(id).as_ref())?;
        if place != key {
            batch.delete(key.as_ref())?;
        }
        self.index_name(batch, &inode, Some(name), None, place != key)?;
        self.write_or_remove(batch, &place, &before, &inode)
    }

    /// Adds to `batch` the inode of a file that lost a name; its record lies at `place`. Without any
    /// name the file goes, unless somebody holds it.
    pub(crate) fn write_or_remove(
        &self,
        batch: &mut Transaction,
        place: &Key,
        before: &Inode,
        inode: &Inode,
    ) -> Result<()> {
        let id = inode.id;
        if inode.nlink > 0 {
            return self.write_inode(batch, place, Some(before), inode);
        }
        self.remove_record(batch, place, before)?;
        self.removals.fetch_add(1, Ordering::AcqRel);
        // A process that closes it meanwhile must find it here.
        self.orphans.lock().insert(id);
        if self.is_held(id) {
            return self.write_inode(batch, &Space::Orphans.of(id, b""), None, inode);
        }
        self.orphans.lock().remove(&id);
        self.remove_rest(batch, inode)
    }

    /// Adds to `batch` that what a file has beside its inode goes. Its object is removed once that
    /// outlasts a crash.
    pub(crate) fn remove_rest(&self, batch: &mut Transaction, inode: &Inode) -> Result<()> {
        if inode.has(flag::XATTRS) {
            for name in self.xattr_names(inode.id)? {
                self.unindex_xattr(batch, inode.id, &name)?;
                batch.delete(Space::Xattrs.of(inode.id, &name).as_ref())?;
            }
        }
        if inode.has(flag::INLINE) {
            batch.delete(Space::Contents.of(inode.id, b"").as_ref())?;
        }
        if inode.has(flag::OBJECT) {
            batch.put(Space::Doomed.of(inode.id, b"").as_ref(), b"")?;
            self.files.doom();
        }
        Ok(())
    }

    /// Removes a file that has neither a name nor a holder any more.
    pub(crate) fn remove_orphan(&self, id: FileId) -> Result<()> {
        let _writer = self.writer.lock();
        if self.is_held(id) || !self.orphans.lock().remove(&id) {
            return Ok(());
        }
        let place = Space::Orphans.of(id, b"");
        let Some(inode) = self.record(&place)? else { return Ok(()) };
        let mut batch = Transaction::freeing();
        self.remove_record(&mut batch, &place, &inode)?;
        self.remove_rest(&mut batch, &inode)?;
        self.commit(batch)?;
        self.forget_pending(id);
        Ok(())
    }

    /// Removes what a crash left without a name.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn remove_orphans(&self) -> Result<()> {
        let mut ids = self.ids_in(Space::Orphans)?;
        // A file that has a name after all is not removed: `check` reports it.
        ids.retain(|id| self.first_name(*id).is_ok_and(|name| name.is_none()));
        self.orphans.lock().extend(&ids);
        ids.into_iter().try_for_each(|id| self.remove_orphan(id))
    }

    /// Sets all attributes but the length, as a change that `frees` space or does not, and returns
    /// the inode. All of them are set, or none. Setting none counts as giving a file the owner that
    /// it has: that is what the kernel asks for then (`FUSE_HANDLE_KILLPRIV_V2`).
    pub(crate) fn set_attributes(
        &self,
        caller: Caller<'_>,
        id: FileId,
        set: &SetAttributes,
        privileges: Privileges<'_>,
        frees: bool,
    ) -> Result<Inode> {
        self.check_early(caller, id, |check, inode| check.attributes(inode, set).map(drop))?;
        let mut inode = self.change_inode(id, |inode, batch| {
            batch.is_bound = !matches!(privileges, Privileges::Keep);
            batch.frees = frees;
            self.apply_attributes(caller, inode, batch, set)
        })?;
        self.overlay(&mut inode);
        Ok(inode)
    }

    /// Gives an inode attributes, all but the length, with what that adds to the batch.
    pub(crate) fn apply_attributes(
        &self,
        caller: Caller<'_>,
        inode: &mut Inode,
        batch: &mut Transaction,
        set: &SetAttributes,
    ) -> Result<()> {
        let now_ns = self.now_ns();
        let check = caller.user().map(|who| self.check(who));
        let set = match check {
            Some(check) => &*check.attributes(inode, set)?,
            None => set,
        };
        if let Some(mode) = set.mode {
            inode.mode = inode.mode & TYPE_MASK | mode & 0o7777;
            self.change_acl_mask(batch, inode)?;
        }
        if set.uid.is_some() || set.gid.is_some() || set.has_no_more_than_a_size() {
            let lost = check.map_or(0, |check| check.lost_setgid(inode));
            if check.is_some() && !inode.is_directory() {
                self.drop_xattr(inode, batch, CAPABILITY)?;
            }
            inode.uid = set.uid.unwrap_or(inode.uid);
            inode.gid = set.gid.unwrap_or(inode.gid);
            if set.mode.is_none() && !inode.is_directory() {
                inode.mode = without_privileges(inode.mode, lost != 0);
            }
        }
        let time = |time| match time {
            SetTime::Now => now_ns,
            SetTime::To(time_ns) => time_ns,
        };
        inode.atime_ns = set.atime.map_or(inode.atime_ns, time);
        inode.mtime_ns = set.mtime.map_or(inode.mtime_ns, time);
        inode.ctime_ns = now_ns;
        self.files.set_times(inode, set)
    }

    /// Changes an inode, with what `change` adds to the batch, and returns it.
    pub(crate) fn change_inode(
        &self,
        id: FileId,
        change: impl Fn(&mut Inode, &mut Transaction) -> Result<()>,
    ) -> Result<Inode> {
        // The size in the record is that of the contents there.
        self.files.with_recorded(self, id, &mut || {
            let _writer = self.writer.lock();
            let (place, before) = self.locate(id)?;
            if before.has(flag::ACCESS_HALF | flag::FURTHER) {
                return Err(Error::AcrossTablets("a change of this directory"));
            }
            let mut inode = before.clone();
            self.overlay(&mut inode);
            let mut batch = Transaction::new();
            change(&mut inode, &mut batch)?;
            self.write_inode(&mut batch, &place, Some(&before), &inode)?;
            self.put_outcome(&mut batch, Outcome::Inode(&inode))?;
            self.commit(batch)?;
            self.forget_pending(id);
            Ok(inode)
        })
    }

    /// Adds to `batch` that an ACL's mask, or what it says of the group, is that of the mode.
    fn change_acl_mask(&self, batch: &mut Transaction, inode: &Inode) -> Result<()> {
        if !inode.has(flag::XATTRS) {
            return Ok(());
        }
        if let Some(value) = self.xattr_of(inode.id, acl::ACCESS.as_bytes())?
            && let Ok(access) = Acl::decode(&value)
        {
            let value = acl::with_mode(access, inode.mode).encode();
            batch.put(Space::Xattrs.of(inode.id, acl::ACCESS.as_bytes()).as_ref(), &value)?;
        }
        Ok(())
    }

    /// Adds the record of an inode at `place` and its index entries to `batch`; `before` is the
    /// current record. Keeps the recorded size of a file with contents that are not in storage yet.
    pub(crate) fn write_inode(
        &self,
        batch: &mut Transaction,
        place: &Key,
        before: Option<&Inode>,
        inode: &Inode,
    ) -> Result<()> {
        let recorded = self.files.recorded(inode);
        self.write_inode_with_size(batch, place, before, &recorded)
    }

    /// Like [`write_inode`](Self::write_inode), but records the size that `inode` states.
    pub(crate) fn write_inode_with_size(
        &self,
        batch: &mut Transaction,
        place: &Key,
        before: Option<&Inode>,
        inode: &Inode,
    ) -> Result<()> {
        if self.accounts.counts() {
            before.into_iter().for_each(|before| batch.sums.subtract(before));
            batch.sums.add(inode);
        }
        self.write_inode_uncounted(batch, place, before, inode)
    }

    /// Like [`write_inode_with_size`](Self::write_inode_with_size), but leaves quotas to the caller.
    pub(crate) fn write_inode_uncounted(
        &self,
        batch: &mut Batch,
        place: &Key,
        before: Option<&Inode>,
        inode: &Inode,
    ) -> Result<()> {
        match before {
            Some(before) if before.differs_only_often(inode) => {
                batch.merge(place.as_ref(), &inode.frequent())?;
            }
            _ => batch.put(place.as_ref(), &inode.encode())?,
        }
        match is_indexed(place) {
            true => self.index_inode(batch, before, Some(inode)),
            false => Ok(()),
        }
    }

    /// Adds to `batch` that the record at `place` goes, with what indexes have of the inode.
    pub(crate) fn remove_record(
        &self,
        batch: &mut Transaction,
        place: &Key,
        before: &Inode,
    ) -> Result<()> {
        if self.accounts.counts() {
            batch.sums.subtract(before);
        }
        batch.delete(place.as_ref())?;
        match is_indexed(place) {
            true => self.index_inode(batch, Some(before), None),
            false => Ok(()),
        }
    }

    /// Finds the current record of an inode and replaces it.
    pub(crate) fn rewrite_inode(&self, batch: &mut Transaction, inode: &Inode) -> Result<()> {
        let (place, before) = self.locate(inode.id)?;
        self.write_inode(batch, &place, Some(&before), inode)
    }

    /// Gives a directory the times of a change of its names.
    pub(crate) fn touch(&self, directory: &mut Inode, now_ns: i64) {
        (directory.mtime_ns, directory.ctime_ns) = (now_ns, now_ns);
    }
}

/// Returns an error if a file cannot get a name in a directory, as that is in another tree.
pub(crate) fn check_tree(directory: &Inode, inode: &Inode) -> Result<()> {
    match directory.project != 0 && directory.project != inode.project {
        true => Err(Errno::XDEV.into()),
        false => Ok(()),
    }
}

/// Returns whether indexes have the inode that lies there: what has a name, so not the root either.
pub(crate) fn is_indexed(place: &Key) -> bool {
    place.directory != Space::Orphans as u64 && *place != keys::root()
}

/// Returns a mode without the bits that let others act as the owner or the group. Without the right
/// to execute, setgid stays unless `drops_setgid`.
pub(crate) fn without_privileges(mode: u32, drops_setgid: bool) -> u32 {
    let setgid = if drops_setgid || mode & GROUP_EXECUTE != 0 { SETGID } else { 0 };
    mode & !(SETUID | setgid)
}

/// Returns the mode that a file has once its contents were changed, if that is another one.
pub(crate) fn lower_mode(inode: &Inode, privileges: Privileges<'_>) -> Option<u32> {
    let mode = match privileges {
        Privileges::Keep | Privileges::KeepBound => inode.mode,
        _ if inode.mode & 0o6000 == 0 => inode.mode,
        Privileges::Drop(is_in) => without_privileges(inode.mode, !is_in(inode.gid)),
    };
    (mode != inode.mode).then_some(mode)
}

//! How a tablet executes operations on names and attributes: those on names that it holds, and on
//! files that have records in it.

use super::reply::{Entries, Reply};
use super::{Access, Change, Changer, Hold, Moment, Operation, Page, Read, Target};
use crate::error::{Error, Result};
use crate::records::change::Privileges;
use crate::records::keys::FileId;
use crate::records::listing::{Entry, Listing, PAGE_MAX};
use crate::records::range::TabletRange;
use crate::records::tablet::Tablet;
use rustix::io::Errno;

impl Tablet {
    /// Executes an operation on present names and attributes. Operations on contents, snapshots,
    /// quotas, queries and the whole namespace are not a tablet's. An operation that fails has
    /// changed nothing.
    ///
    /// # Errors
    ///
    /// Fails with `NotHere` if another tablet holds the target, with `AcrossTablets` if several
    /// would have to execute it, and with `Invalid` if it is not a tablet's. Fails as the methods
    /// that it stands for.
    pub fn execute(&self, operation: &Operation<'_>) -> Result<Reply> {
        if !matches!(self.range, TabletRange::All) {
            self.check_range(operation)?;
        }
        match operation {
            Operation::Read(Moment::Now, read) => self.read(read),
            Operation::Access(access) => self.answer(access),
            Operation::Hold(hold) => self.execute_hold(hold),
            Operation::Change(change) => self.change(change),
            _ => unheld(),
        }
    }

    /// Returns an error for an operation on what other tablets hold.
    #[cold]
    fn check_range(&self, operation: &Operation<'_>) -> Result<()> {
        let target = operation.target();
        let is_here = match target {
            Target::Name { directory, hash } => self.holds(directory, hash)?,
            Target::File(id) => self.has_file(id)?,
            Target::Anywhere => true,
        };
        if !is_here {
            return Err(Error::NotHere(target));
        }
        let is_whole = match operation {
            Operation::Change(Change::Rename { to, .. }) => self.holds(to.directory, to.hash())?,
            Operation::Change(Change::Link { id, .. }) => self.has_file(*id)?,
            _ => true,
        };
        if is_whole { Ok(()) } else { Err(Error::AcrossTablets("another name of a file")) }
    }

    fn holds(&self, directory: FileId, hash: u64) -> Result<bool> {
        Ok(self.range.has_name(directory, hash) && self.has_file(directory)?)
    }

    /// Returns whether the records of a file are here.
    fn has_file(&self, id: FileId) -> Result<bool> {
        match self.locate(id) {
            Err(Error::Posix(Errno::NOENT)) => Ok(false),
            located => located.map(|_| true),
        }
    }

    fn read(&self, read: &Read<'_>) -> Result<Reply> {
        match read {
            Read::Lookup(name) => self.lookup(name.directory, name.name).map(Reply::Inode),
            Read::Inode(id) => self.inode(*id).map(Reply::Inode),
            Read::Parent(id) => self.parent(*id).map(Reply::File),
            Read::Readlink(id) => self.readlink(*id).map(target),
            Read::List(page) => {
                page.read(|listing, tell| self.list(listing, page.after, tell)).map(Reply::Entries)
            }
            Read::Xattr { id, name } => self.xattr(*id, name).map(Reply::Bytes),
            Read::Xattrs(id) => self.xattrs(*id).map(Reply::Names),
        }
    }

    fn answer(&self, access: &Access<'_>) -> Result<Reply> {
        let truth = match access {
            Access::Path(id) => return self.path(*id).map(Reply::Bytes),
            Access::IsDue(id) => self.is_access_due(*id),
            Access::MayRead(Moment::Now, id, who) => self.lets_read(&self.inode(*id)?, who),
            Access::MayChange(id, who) => self.lets_change(&self.inode(*id)?, who),
            Access::MayRead(Moment::Snapshot(_), ..) | Access::IsShown(..) => return unheld(),
        };
        truth.map(Reply::Truth)
    }

    fn execute_hold(&self, hold: &Hold<'_>) -> Result<Reply> {
        match hold {
            Hold::Name(name) => self.lookup_held(name.directory, name.name).map(Reply::Inode),
            Hold::File(id) => {
                self.hold(*id);
                Ok(Reply::Done)
            }
            Hold::Release(id, times) => self.release(*id, *times).map(done),
        }
    }

    fn change(&self, change: &Change<'_>) -> Result<Reply> {
        match change {
            Change::Create { name, new, holds } => {
                self.create(name.directory, name.name, new, *holds).map(Reply::Inode)
            }
            Change::CreateNameless { directory, new } => {
                self.create_nameless(*directory, new).map(Reply::Inode)
            }
            Change::Link { id, name } => {
                self.link(*id, name.directory, name.name).map(Reply::Inode)
            }
            Change::Unlink(name) => self.unlink(name.directory, name.name).map(Reply::File),
            Change::Rmdir(name) => self.rmdir(name.directory, name.name).map(Reply::File),
            Change::Rename { from, to, mode, whiteout } => match whiteout {
                Some(owner) => self.rename_leaving_whiteout(*from, *to, *mode, *owner).map(done),
                None => self.rename(*from, *to, *mode).map(done),
            },
            // A length is one of contents.
            Change::SetAttributes { set, .. } if set.size.is_some() => unheld(),
            Change::SetAttributes { id, set, changer } => {
                let is_in = |gid| changer.is_in(gid);
                let privileges = changer.privileges(&is_in);
                self.set_attributes(*id, set, privileges, false).map(Reply::Inode)
            }
            Change::SetXattr { id, name, value, how, changer } => {
                let is_in = |gid| changer.is_in(gid);
                self.set_xattr(*id, name, value, *how, changer.privileges(&is_in)).map(done)
            }
            Change::RemoveXattr { id, name } => self.remove_xattr(*id, name).map(done),
            Change::TouchAccess(id) => self.touch_access(*id).map(done),
            Change::Sync(id) => self.sync_inode(*id).map(done),
        }
    }
}

impl Changer<'_> {
    /// Returns whether the changer is in a group, as far as that is known.
    pub(super) fn is_in(&self, gid: u32) -> bool {
        match self {
            Changer::Privileged => true,
            Changer::Member(groups) => groups.contains(&gid),
        }
    }

    pub(super) fn privileges<'a>(&self, is_in: &'a dyn Fn(u32) -> bool) -> Privileges<'a> {
        match self {
            Changer::Privileged => Privileges::Keep,
            Changer::Member(_) => Privileges::Drop(is_in),
        }
    }
}

impl Page<'_> {
    /// Returns the entries of this part, which `list` goes through.
    pub(super) fn read(
        &self,
        list: impl FnOnce(&mut Listing, &mut dyn FnMut(Entry<'_>) -> bool) -> Result<()>,
    ) -> Result<Entries> {
        let count_max = self.count_max as usize;
        let mut entries = Entries::with_capacity(count_max.min(PAGE_MAX as usize));
        list(&mut Listing::behind(self), &mut |entry| {
            let has_room = entries.count() < count_max;
            if has_room {
                entries.push(entry);
            }
            has_room
        })?;
        Ok(entries)
    }
}

/// Returns the error of an operation that is not a tablet's.
fn unheld<T>() -> Result<T> {
    Err(Error::Invalid("a tablet executes operations on names and attributes alone".into()))
}

pub(super) fn done(_: ()) -> Reply {
    Reply::Done
}

pub(super) fn target(bytes: Vec<u8>) -> Reply {
    Reply::Bytes(Some(bytes))
}

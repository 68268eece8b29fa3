//! How a tablet executes operations on names and attributes: those on names that it holds, and on
//! files that have records in it.

use super::reply::{Entries, Reply};
use super::{Access, Caller, Change, Changer, Hold, Moment, Operation, Page, Read, Target};
use crate::error::{Error, Result};
use crate::records::change::Privileges;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, Space};
use crate::records::listing::{Entry, Listing, PAGE_MAX};
use crate::records::range::TabletRange;
use crate::records::tablet::Tablet;
use canopy_store::Key;
use rustix::io::Errno;

/// Renames may hide a file from a read so often.
const READ_ATTEMPTS: usize = 64;

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
        self.execute_for(Caller::Trusted, operation)
    }

    /// Like `execute`, but a user's operation is checked first, in the view and with the lock in
    /// which it is executed.
    ///
    /// # Errors
    ///
    /// Fails as `execute` does; with `ACCESS` or `PERM` where Linux does; with `PERM`, too, where an
    /// operation is not for users.
    pub fn execute_for(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply> {
        operation.check_caller(caller)?;
        if matches!(self.range, TabletRange::All) {
            return self.execute_here(caller, operation);
        }
        self.check_range(operation)?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.execute_here(caller, operation) {
                Err(Error::Posix(Errno::NOENT)) => {
                    let absence = self.absence(operation)?;
                    // Renames may hide a file from reads, which take no lock.
                    let is_hidden = matches!(absence, Error::Posix(_))
                        && matches!(operation, Operation::Read(..) | Operation::Access(_))
                        && matches!(operation.target(), Target::File(_));
                    if !is_hidden || attempt == READ_ATTEMPTS {
                        return Err(absence);
                    }
                }
                done => return done,
            }
        }
    }

    /// Returns the error of an operation that did not find something: its file may have moved to
    /// another tablet after the range was checked.
    #[cold]
    fn absence(&self, operation: &Operation<'_>) -> Result<Error> {
        match operation.target() {
            Target::File(id) if !self.has_file(id)? => Ok(Error::NotHere(Target::File(id))),
            _ => Ok(Errno::NOENT.into()),
        }
    }

    fn execute_here(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply> {
        match operation {
            Operation::Read(Moment::Now, read) => match caller {
                Caller::Trusted => self.read(read),
                Caller::User(who) => self.read_for(who, read),
            },
            Operation::Access(access) => self.answer(caller, access),
            Operation::Hold(hold) => self.execute_hold(caller, hold),
            Operation::Change(change) => self.change(caller, change),
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

    /// Returns whether the tablet holds names of a directory with a hash.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn holds(&self, directory: FileId, hash: u64) -> Result<bool> {
        if !self.range.has_name(directory, hash) {
            return Ok(false);
        }
        let without = match self.range.is_split(directory) {
            // Most tablets of a split directory hold only its content half. One look-up finds that;
            // a look-up by the directory's name would cost four and a scan.
            true => match self.record(&Space::Directories.of(directory, b""))? {
                Some(half) => return Ok(!half.has(flag::ACCESS_HALF)),
                None => flag::ACCESS_HALF,
            },
            false => flag::ACCESS_HALF | flag::FURTHER,
        };
        Ok(self.located_here(directory)?.is_some_and(|(_, inode)| !inode.has(without)))
    }

    /// Returns whether the records of a file are here; of a directory, those of its first partition.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn has_file(&self, id: FileId) -> Result<bool> {
        let located = match self.located_here(id)? {
            None => {
                // A rename may have hidden it. With the lock, there is none.
                let _writer = self.writer.lock();
                self.located_here(id)?
            }
            located => located,
        };
        Ok(located.is_some_and(|(_, inode)| !inode.has(flag::ACCESS_HALF | flag::FURTHER)))
    }

    /// Returns the record of a file and where it lies, if the tablet holds it. Records of names that
    /// arrive or leave do not count.
    fn located_here(&self, id: FileId) -> Result<Option<(Key, Inode)>> {
        let (key, inode) = match self.locate(id) {
            Err(Error::Posix(Errno::NOENT)) => return Ok(None),
            located => located?,
        };
        let is_held =
            !keys::is_name(key.as_ref()) || self.range.has_name(FileId(key.directory), key.hash);
        Ok(is_held.then_some((key, inode)))
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
            Read::Contents(part) => self.contents(part).map(Reply::Contents),
        }
    }

    fn answer(&self, caller: Caller<'_>, access: &Access<'_>) -> Result<Reply> {
        let truth = match access {
            Access::Path(id) => return self.path(*id).map(Reply::Bytes),
            Access::IsDue(id) => self.is_access_due(*id),
            Access::MayRead(Moment::Now, id, who) => self.lets_read(&self.inode(*id)?, who),
            Access::MayChange(id, who) => self.lets_change(&self.inode(*id)?, who),
            Access::NeedsObject(chunk, object) => self.needs_object(*chunk, *object),
            Access::Open(id, wanted) => return self.check_open(caller, *id, *wanted).map(done),
            Access::MayRead(Moment::Snapshot(_), ..) | Access::IsShown(..) => return unheld(),
        };
        truth.map(Reply::Truth)
    }

    fn execute_hold(&self, caller: Caller<'_>, hold: &Hold<'_>) -> Result<Reply> {
        match hold {
            Hold::Name(name) => match caller {
                Caller::Trusted => self.lookup_held(name.directory, name.name),
                Caller::User(who) => self.lookup_held_for(who, *name),
            }
            .map(Reply::Inode),
            Hold::File(id) => {
                self.hold(*id);
                Ok(Reply::Done)
            }
            Hold::Release(id, times) => self.release(*id, *times).map(done),
        }
    }

    fn change(&self, caller: Caller<'_>, change: &Change<'_>) -> Result<Reply> {
        match change {
            Change::Create { name, new, holds } => {
                self.create_for(caller, *name, new, *holds).map(Reply::Inode)
            }
            Change::CreateNameless { directory, new } => {
                self.create_nameless_for(caller, *directory, new).map(Reply::Inode)
            }
            Change::Link { id, name } => self.link_for(caller, *id, *name).map(Reply::Inode),
            Change::Unlink(name) => self.unlink_for(caller, *name).map(Reply::File),
            Change::Rmdir(name) => self.rmdir_for(caller, *name).map(Reply::File),
            Change::Rename { from, to, mode, whiteout } => {
                self.rename_for(caller, *from, *to, *mode, *whiteout).map(done)
            }
            Change::SetAttributes { id, set, changer } => {
                let changer = caller.changer(changer);
                let is_in = |gid| changer.is_in(gid);
                let privileges = changer.privileges(&is_in);
                match set.size {
                    Some(size) => self.set_length(caller, *id, (size, set), privileges),
                    None => self.set_attributes(caller, *id, set, privileges, false),
                }
                .map(Reply::Inode)
            }
            Change::SetXattr { id, name, value, how, changer } => {
                let changer = caller.changer(changer);
                let is_in = |gid| changer.is_in(gid);
                let privileges = changer.privileges(&is_in);
                self.set_xattr_for(caller, *id, (name, value), *how, privileges).map(done)
            }
            Change::RemoveXattr { id, name } => self.remove_xattr_for(caller, *id, name).map(done),
            Change::TouchAccess(id) => {
                self.check_reading(caller, *id)?;
                self.touch_access(*id).map(done)
            }
            Change::Sync(id) => self.sync_inode(*id).map(done),
            Change::WriteSmall { id, write, writer } => {
                self.write_small(caller, *id, write, writer).map(Reply::Written)
            }
            Change::PutChunks { id, put, writer } => {
                self.put_chunks(caller, *id, put, writer).map(Reply::Written)
            }
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

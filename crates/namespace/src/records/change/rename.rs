//! Renaming: the only change that concerns two directories.

use super::{New, check_tree};
use crate::error::Result;
use crate::quota::Transaction;
use crate::records::executed::Outcome;
use crate::records::inode::{Inode, file_type, flag};
use crate::records::keys::{EntryName, FileId, Space, check_name};
use crate::records::permissions::Caller;
use crate::records::tablet::{Tablet, Writer};
use canopy_model::Ownership;
use parking_lot::MutexGuard;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The treatment of a file that has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    /// It is replaced.
    Replace,
    /// The call fails (`RENAME_NOREPLACE`).
    NoReplace,
    /// It gets the old name (`RENAME_EXCHANGE`).
    Exchange,
}

impl Tablet {
    /// Renames a file or a directory. Both names change at once.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT`, `EXIST`, `NOTEMPTY`, `ISDIR`, `NOTDIR`, `INVAL`, `BUSY` and `XDEV` where
    /// rename(2) does, and with `DQUOT` where a limit is reached. Fails as the table does.
    pub fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> Result<()> {
        self.rename_for(Caller::Trusted, from, to, mode, None)
    }

    /// Like [`rename`](Self::rename), and leaves a whiteout of this owner and group under the old
    /// name (`RENAME_WHITEOUT`): a character device 0/0, which stands for a removed file in
    /// overlayfs.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT`, `EXIST`, `NOTEMPTY`, `ISDIR`, `NOTDIR`, `INVAL`, `BUSY` and `XDEV` where
    /// rename(2) does, and with `DQUOT` where a limit is reached. Fails as the table does.
    pub fn rename_leaving_whiteout(
        &self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
        owner: Ownership,
    ) -> Result<()> {
        self.rename_for(Caller::Trusted, from, to, mode, Some(owner))
    }

    /// Renames for a caller, and leaves a whiteout if its owner and group are given.
    pub(crate) fn rename_for(
        &self,
        caller: Caller<'_>,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
        whiteout: Option<Ownership>,
    ) -> Result<()> {
        if mode == RenameMode::Exchange && whiteout.is_some() {
            return Err(Errno::INVAL.into());
        }
        let left = whiteout.map(|Ownership { uid, gid }| {
            let mode = file_type::CHARACTER;
            New { mode, uid, gid, ..New::default() }
        });
        let check = || match caller.user() {
            Some(who) => self.check(who).rename(from, to, mode, whiteout),
            None => Ok(()),
        };
        if caller.user().is_some() {
            // Before contents of the file are touched.
            let _writer = self.writer.lock();
            check()?;
        }
        self.rename_checked(from, to, mode, left.as_ref(), check)
    }

    /// Renames, once `check` has passed with the lock of the change.
    fn rename_checked(
        &self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
        left: Option<&New>,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        check_name(from.name)?;
        check_name(to.name)?;
        if [from.name, to.name].iter().any(|name| matches!(*name, b"." | b"..")) {
            return Err(Errno::BUSY.into());
        }
        self.record_contents_of(from)?;
        let mut writer = self.writer.lock();
        check()?;
        self.limit_pending()?;
        let mut directories = vec![self.directory(from.directory)?];
        if to.directory != from.directory {
            directories.push(self.directory(to.directory)?);
        }
        let (old, new) = (from.key(), to.key());
        let moved = self.record(&old)?.ok_or(Errno::NOENT)?;
        let replaced = self.record(&new)?;
        match (mode, &replaced) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST.into()),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT.into()),
            _ => {}
        }
        if replaced.as_ref().is_some_and(|replaced| replaced.id == moved.id) {
            return Ok(());
        }
        self.check_rename(from.directory, &moved, to.directory, replaced.as_ref(), mode)?;
        if let [from, to] = &directories[..] {
            check_tree(to, &self.inode_of_name(&moved)?)?;
            if let Some(replaced) = replaced.as_ref().filter(|_| mode == RenameMode::Exchange) {
                check_tree(from, &self.inode_of_name(replaced)?)?;
            }
        }
        let replaced_id = replaced.as_ref().map(|replaced| replaced.id);
        let now_ns = self.now_ns();
        let mut batch = Transaction::new();
        let counts = |inode: &Inode| i64::from(inode.is_directory());
        let mut nlinks = [-counts(&moved), counts(&moved)];
        match replaced {
            Some(other) if mode == RenameMode::Exchange => {
                nlinks[0] += counts(&other);
                nlinks[1] -= counts(&other);
                self.move_name(&mut batch, to, from, other, now_ns)?;
            }
            Some(other) => {
                nlinks[1] -= counts(&other);
                self.drop_name(&mut batch, to, other, now_ns)?;
                batch.delete(old.as_ref())?;
            }
            None => batch.delete(old.as_ref())?,
        }
        self.put_outcome(&mut batch, Outcome::Done)?;
        let ids = [Some(moved.id), replaced_id];
        self.move_name(&mut batch, from, to, moved, now_ns)?;
        let add = |new| self.add_left(&mut batch, from, &directories[0], new, &mut writer);
        let left = left.map(add).transpose()?;
        for (at, directory) in directories.iter_mut().enumerate() {
            let change =
                if from.directory == to.directory { nlinks[0] + nlinks[1] } else { nlinks[at] };
            directory.nlink = directory.nlink.saturating_add_signed(change as i32);
            self.touch(directory, now_ns);
            if change != 0 {
                self.rewrite_inode(&mut batch, directory)?;
            }
        }
        self.commit(batch)?;
        ids.into_iter().flatten().for_each(|id| self.forget_pending(id));
        directories.into_iter().for_each(|directory| self.remember(directory));
        if let Some(id) = left {
            self.places.insert(id, old);
        }
        Ok(())
    }

    /// Adds to `batch` a new file under a name that is given up, and returns its id.
    fn add_left(
        &self,
        batch: &mut Transaction,
        name: EntryName<'_>,
        directory: &Inode,
        new: &New,
        writer: &mut MutexGuard<'_, Writer>,
    ) -> Result<FileId> {
        let (inode, acls) = self.new_inode(directory, new, writer)?;
        batch.is_bound = new.uid != 0;
        self.add_new(batch, name, &inode, acls)?;
        Ok(inode.id)
    }

    /// Puts the contents of a file into its records, if it is open and they are not there yet: who
    /// replaces a file by renaming a new one finds one of the two after a crash, never none.
    fn record_contents_of(&self, name: EntryName<'_>) -> Result<()> {
        match self.record(&name.key())? {
            Some(found) => self.files.record(self, found.id),
            None => Ok(()),
        }
    }

    /// Returns the inode of a file, of which a name's record is `found`.
    pub(crate) fn inode_of_name(&self, found: &Inode) -> Result<Inode> {
        match found.has(flag::LINKED) {
            true => Ok(self.linked(found.clone())?.ok_or(Errno::IO)?),
            false => Ok(found.clone()),
        }
    }

    /// Returns an error for a rename from one directory to another that POSIX forbids.
    fn check_rename(
        &self,
        from: FileId,
        moved: &Inode,
        to: FileId,
        replaced: Option<&Inode>,
        mode: RenameMode,
    ) -> Result<()> {
        for directory in [Some(moved), replaced].into_iter().flatten() {
            self.check_changeable(directory.id)?;
        }
        if moved.is_directory() && from != to && self.is_within(to, moved.id)? {
            return Err(Errno::INVAL.into());
        }
        let Some(replaced) = replaced else { return Ok(()) };
        if mode == RenameMode::Exchange {
            let is_loop =
                replaced.is_directory() && from != to && self.is_within(from, replaced.id)?;
            return if is_loop { Err(Errno::INVAL.into()) } else { Ok(()) };
        }
        match (moved.is_directory(), replaced.is_directory()) {
            (true, false) => Err(Errno::NOTDIR.into()),
            (false, true) => Err(Errno::ISDIR.into()),
            (true, true) => self.check_empty(replaced.id),
            _ => Ok(()),
        }
    }

    /// Adds to `batch` that the file whose record at the old name is `found` has the new one. What
    /// becomes of the old name's record is the caller's.
    fn move_name(
        &self,
        batch: &mut Transaction,
        from: EntryName<'_>,
        to: EntryName<'_>,
        found: Inode,
        now_ns: i64,
    ) -> Result<()> {
        let (id, new) = (found.id, to.key());
        batch.delete(from.found_key(id).as_ref())?;
        batch.put(to.found_key(id).as_ref(), b"")?;
        let is_linked = found.has(flag::LINKED);
        let (place, before) = match is_linked {
            true => {
                let links = Space::Links.of(id, b"");
                batch.put(new.as_ref(), &found.encode())?;
                let linked = self.record(&links)?.ok_or(Errno::IO)?;
                (links, linked)
            }
            false => (new, found),
        };
        let mut inode = before.clone();
        self.overlay(&mut inode);
        inode.ctime_ns = now_ns;
        inode = self.files.recorded(&inode).into_owned();
        match is_linked {
            true => self.write_inode(batch, &place, Some(&before), &inode)?,
            false => {
                if self.accounts.counts() {
                    batch.sums.subtract(&before);
                    batch.sums.add(&inode);
                }
                batch.put(place.as_ref(), &inode.encode())?;
                self.index_inode(batch, Some(&before), Some(&inode))?;
            }
        }
        self.index_name(batch, &inode, Some(from), Some(to.name), is_linked)
    }
}

//! Checks of changes that concern several tablets, each by the tablet that has what it depends on.
//! Together they find the errors that one tablet finds, in its order: a check gets the refusals that
//! the others would report before it.

use crate::error::Result;
use crate::operation::Caller;
use crate::records::change::{LINKS_MAX, RenameMode, check_tree};
use crate::records::inode::{Inode, flag};
use crate::records::keys::{EntryName, FileId, check_name};
use crate::records::permissions::check_alive;
use crate::records::tablet::Tablet;
use canopy_model::{Ownership, Wanted};
use rustix::io::Errno;

/// A file that is about to get a name by a rename, as the tablet of the name sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The directory of the name that it has.
    pub from: FileId,
    /// The project of that directory.
    pub from_project: u32,
    /// The name that it gets.
    pub to: EntryName<'a>,
    /// The treatment of a file that has this name.
    pub mode: RenameMode,
    /// The file; none if there is none.
    pub moved: Option<&'a Inode>,
    /// The file that has the name, if only a pointer to it is here and the caller has found it.
    pub other: Option<&'a Inode>,
    /// Why the old name cannot be taken away.
    pub refusal: Option<Errno>,
    /// Whether the new name is in the file that moves, or below it.
    pub is_loop: bool,
    /// The directory of the old name, and those above it, if they matter.
    pub above: &'a [FileId],
}

/// Outcome of the check of an arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The name is free.
    Free,
    /// Both names are of one file: nothing changes.
    Same,
    /// The name is of a file whose inode its home has, and which is needed to go on; whether that is a
    /// directory.
    Elsewhere(FileId, bool),
    /// The name is of this file, whose inode follows the record of the name.
    Replaces {
        /// The record: a pointer, or the inode.
        record: Box<Inode>,
        /// The inode.
        inode: Box<Inode>,
    },
}

impl Tablet {
    /// Returns the record of a name that is about to go, if there is one, and its directory. A user
    /// needs search there.
    ///
    /// # Errors
    ///
    /// Fails with `NOTDIR`, `NOENT` or `ACCESS` because of the directory. Fails with `NAMETOOLONG`,
    /// `INVAL` or `NOENT` because of the name, and as the table does.
    pub fn find_leaving(
        &self,
        caller: Caller<'_>,
        name: EntryName<'_>,
    ) -> Result<(Inode, Option<Inode>)> {
        let _writer = self.writer.lock();
        let directory = self.searched(caller, name.directory)?;
        check_alive(&directory)?;
        check_name(name.name)?;
        let mut found = self.record(&name.key())?;
        if let Some(found) = found.as_mut().filter(|found| !found.is_pointer()) {
            self.overlay(found);
        }
        Ok((directory, found))
    }

    /// Fails unless a caller may take a name of a file away from a directory.
    ///
    /// # Errors
    ///
    /// Fails with `ACCESS` or `PERM`, and as the table does.
    pub fn check_leaving(&self, caller: Caller<'_>, directory: FileId, file: &Inode) -> Result<()> {
        let Some(who) = caller.user() else { return Ok(()) };
        let _writer = self.writer.lock();
        self.check(who).remove_from(&self.directory(directory)?, file)
    }

    /// Returns a directory whose content half is here and which gets another name. The error is why a
    /// user may not move it to another directory.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if the directory is not here, and as the table does.
    pub fn check_renamed(&self, caller: Caller<'_>, id: FileId) -> Result<(Inode, Option<Errno>)> {
        let _writer = self.writer.lock();
        let inode = self.directory(id)?;
        let may_move = match caller.user() {
            Some(who) => self.check(who).passes(&inode, Wanted::WRITE)?,
            None => true,
        };
        Ok((inode, (!may_move).then_some(Errno::ACCESS)))
    }

    /// Fails unless a directory may go, as far as its names here decide that.
    ///
    /// # Errors
    ///
    /// Fails with `NOTEMPTY` if there is a name, and as the table does.
    pub fn check_vanishing(&self, id: FileId) -> Result<()> {
        let _writer = self.writer.lock();
        if self.is_empty(id)? { Ok(()) } else { Err(Errno::NOTEMPTY.into()) }
    }

    /// Returns the inode of a file with several names, which is at home here.
    ///
    /// # Errors
    ///
    /// Fails with `Corrupt` if there is none, and as the table does.
    pub fn inode_at_home(&self, id: FileId) -> Result<Inode> {
        let _writer = self.writer.lock();
        let (_, mut inode) = self.home_record(id)?;
        self.overlay(&mut inode);
        Ok(inode)
    }

    /// Returns a file whose inode is here and that gets one more name, and whether its record is that
    /// of a name. The errors are why it cannot: those that come before, and those that come after,
    /// what the caller may do in the directory.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if it is not here, and as the table does.
    pub fn check_linked(
        &self,
        caller: Caller<'_>,
        id: FileId,
    ) -> Result<(Inode, [Option<Errno>; 2])> {
        let _writer = self.writer.lock();
        let (_, mut inode) = self.locate(id)?;
        let mut refusals = [None; 2];
        if let Some(who) = caller.user() {
            refusals[0] = (!self.check(who).may_pin(&inode)?).then_some(Errno::PERM);
        }
        self.overlay(&mut inode);
        refusals[1] = match &inode {
            inode if inode.is_directory() => Some(Errno::PERM),
            inode if inode.nlink == 0 && !inode.has(flag::LINKABLE) => Some(Errno::NOENT),
            inode if inode.nlink >= LINKS_MAX => Some(Errno::MLINK),
            _ => None,
        };
        Ok((inode, refusals))
    }

    /// Fails unless a file may get a name here, by link(2). `refusals` are those of
    /// [`check_linked`](Self::check_linked).
    ///
    /// # Errors
    ///
    /// Fails where [`link`](Self::link) does.
    pub fn check_link(
        &self,
        caller: Caller<'_>,
        name: EntryName<'_>,
        inode: &Inode,
        refusals: [Option<Errno>; 2],
    ) -> Result<()> {
        let _writer = self.writer.lock();
        let is_dots = matches!(name.name, b"." | b"..");
        let is_taken = || Ok::<_, crate::Error>(is_dots || self.record(&name.key())?.is_some());
        if let Some(who) = caller.user() {
            let directory = self.check(who).search(name.directory)?;
            check_alive(&directory)?;
            check_name(name.name)?;
            if is_taken()? {
                return Err(Errno::EXIST.into());
            }
            refuse(refusals[0])?;
            self.check(who).add_to(&directory)?;
        }
        check_name(name.name)?;
        refuse(refusals[1])?;
        check_tree(&self.directory(name.directory)?, inode)?;
        if is_taken()? { Err(Errno::EXIST.into()) } else { Ok(()) }
    }

    /// Checks whether a file may get a name here by a rename, and finds what that replaces. Whether
    /// directories are empty, or would lie in themselves, is the caller's to find out.
    ///
    /// # Errors
    ///
    /// Fails where [`rename`](Self::rename) does.
    pub fn check_arrival(&self, caller: Caller<'_>, arrival: &Arrival<'_>) -> Result<Arrived> {
        let _writer = self.writer.lock();
        let Arrival { to, mode, .. } = *arrival;
        let directory = self.searched(caller, to.directory)?;
        let moved = arrival.moved.ok_or(Errno::NOENT)?;
        check_alive(&directory)?;
        check_name(to.name)?;
        let record = self.record(&to.key())?;
        match (mode, &record) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST.into()),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT.into()),
            _ if arrival.is_loop => return Err(Errno::INVAL.into()),
            (_, Some(record)) if record.id == moved.id => return Ok(Arrived::Same),
            (RenameMode::Exchange, Some(record)) if arrival.above.contains(&record.id) => {
                return Err(Errno::INVAL.into());
            }
            // Without a user, it is found later not to be empty.
            (_, Some(record)) if caller.user().is_some() && arrival.above.contains(&record.id) => {
                return Err(Errno::NOTEMPTY.into());
            }
            _ => {}
        }
        let mut other = record.clone();
        if let Some(record) = record.as_ref().filter(|record| record.is_pointer()) {
            let found = arrival.other.filter(|other| other.id == record.id);
            let Some(found) = found else {
                return Ok(Arrived::Elsewhere(record.id, record.has(flag::ACCESS_HALF)));
            };
            other = Some(found.clone());
        }
        refuse(arrival.refusal)?;
        if let Some(who) = caller.user() {
            match &other {
                None => self.check(who).add_to(&directory)?,
                Some(other) => self.check(who).remove_from(&directory, other)?,
            }
        }
        check_types(moved, other.as_ref(), mode)?;
        if arrival.from != to.directory {
            check_tree(&directory, moved)?;
            if let Some(other) = other.as_ref().filter(|_| mode == RenameMode::Exchange) {
                let from = Inode { project: arrival.from_project, ..Inode::default() };
                check_tree(&from, other)?;
            }
        }
        Ok(match (record, other) {
            (Some(record), Some(mut inode)) => {
                if !record.is_pointer() {
                    self.overlay(&mut inode);
                }
                Arrived::Replaces { record: Box::new(record), inode: Box::new(inode) }
            }
            _ => Arrived::Free,
        })
    }

    /// Returns a directory in which a caller may look names up.
    fn searched(&self, caller: Caller<'_>, directory: FileId) -> Result<Inode> {
        match caller.user() {
            Some(who) => self.check(who).search(directory),
            None => self.directory(directory),
        }
    }
}

/// Fails for a rename that is wrong wherever its names are.
///
/// # Errors
///
/// Fails with `INVAL`, `NOENT` or `NAMETOOLONG` for a name that no file has, with `BUSY` for one that
/// every directory has. Fails with `INVAL` for a whiteout in an exchange, and with `PERM` for one of
/// somebody else.
pub fn check_rename_names(
    caller: Caller<'_>,
    from: EntryName<'_>,
    to: EntryName<'_>,
    mode: RenameMode,
    whiteout: Option<Ownership>,
) -> Result<()> {
    if mode == RenameMode::Exchange && whiteout.is_some() {
        return Err(Errno::INVAL.into());
    }
    if let (Some(who), Some(owner)) = (caller.user(), whiteout)
        && !who.is_root()
        && (owner.uid != who.uid || !who.gids.contains(&owner.gid))
    {
        return Err(Errno::PERM.into());
    }
    check_name(from.name)?;
    check_name(to.name)?;
    match [from.name, to.name].iter().any(|name| matches!(*name, b"." | b"..")) {
        true => Err(Errno::BUSY.into()),
        false => Ok(()),
    }
}

/// Returns an error if one of two files cannot replace the other for not being a directory, or for
/// being one.
fn check_types(moved: &Inode, other: Option<&Inode>, mode: RenameMode) -> Result<()> {
    let Some(other) = other.filter(|_| mode != RenameMode::Exchange) else { return Ok(()) };
    match (moved.is_directory(), other.is_directory()) {
        (true, false) => Err(Errno::NOTDIR.into()),
        (false, true) => Err(Errno::ISDIR.into()),
        _ => Ok(()),
    }
}

/// Returns the error of a refusal, if there is one.
fn refuse(refusal: Option<Errno>) -> Result<()> {
    refusal.map_or(Ok(()), |refusal| Err(refusal.into()))
}

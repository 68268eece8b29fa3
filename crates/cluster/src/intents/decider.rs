//! The kinds of changes that may concern several servers, each at the server that decides.

use crate::brief;
use crate::error::{Error, Result};
use crate::intents::attempt::{AttemptError, ChangeAttempt, Outcome, run};
use crate::intents::part::{Arriving, MovingFile};
use crate::intents::participant::refusal_of;
use crate::intents::{IntentPart, LockKey, PartOutcome, directories};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::inode::flag;
use canopy_namespace::operation::{Caller, Change, Operation};
use canopy_namespace::{
    Effect, EntryName, FileId, Inode, MovedEntry, OwnedName, Ownership, RenameMode, Reply,
    check_rename_names,
};
use rustix::io::Errno;

type AttemptResult<T> = std::result::Result<T, AttemptError>;

/// A rename.
struct Rename {
    from: OwnedName,
    to: OwnedName,
    mode: RenameMode,
    whiteout: Option<Ownership>,
}

/// The file that a rename moves.
struct Moved {
    inode: Inode,
    entry: MovedEntry,
    /// Why it cannot be taken away from its directory.
    refusal: Option<i32>,
    /// Why it cannot be moved to another directory.
    late: Option<i32>,
}

impl Server {
    /// Renames. This server has to hold the old name.
    pub(crate) fn rename(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        change: &Change<'_>,
    ) -> Result<Reply> {
        let Change::Rename { from, to, mode, whiteout } = *change else { return Err(Error::Unfit) };
        check_rename_names(caller, from, to, mode, whiteout)?;
        let operation = Operation::Change(change.clone());
        let alone = self.change_if_local(&[from, to], |tablet| {
            if tablet.has_pointer(from)? || tablet.has_pointer(to)? {
                return Ok(None);
            }
            tablet.execute_for(caller, &operation).map(Some)
        })?;
        if let Some(reply) = alone {
            // An entry that was replaced is counted too much, until the partition is looked at.
            if mode != RenameMode::Exchange {
                self.count(from.directory, from.hash(), -i64::from(whiteout.is_none()))?;
                self.count(to.directory, to.hash(), 1)?;
            }
            return Ok(reply);
        }
        let rename = Rename { from: from.into(), to: to.into(), mode, whiteout };
        run(self, peers, caller, |attempt| rename.attempt(attempt))?;
        Ok(Reply::Done)
    }

    /// Gives a file that is here another name.
    pub(crate) fn link(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        id: FileId,
        name: EntryName<'_>,
    ) -> Result<Reply> {
        let owned = OwnedName::from(name);
        if self.has_directory(id)? {
            run(self, peers, caller, |attempt| link_directory(attempt, id, &owned))?;
        }
        let operation = Operation::Change(Change::Link { id, name });
        let is_home = self.layout.home(id)? == self.id;
        let alone = self.change_file_if_local(id, name, |tablet| {
            let is_elsewhere = !is_home && tablet.inode(id)?.nlink > 0;
            if is_elsewhere || !tablet.holds(name.directory, name.hash())? {
                return Ok(None);
            }
            tablet.execute_for(caller, &operation).map(Some)
        })?;
        if let Some(reply) = alone {
            self.count(name.directory, name.hash(), 1)?;
            return Ok(reply);
        }
        let inode = run(self, peers, caller, |attempt| link(attempt, id, &owned))?;
        Ok(Reply::Inode(inode))
    }

    /// Takes a name of a file away.
    pub(crate) fn unlink(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        name: EntryName<'_>,
    ) -> Result<Reply> {
        let operation = Operation::Change(Change::Unlink(name));
        let owned = OwnedName::from(name);
        loop {
            let alone =
                self.change_if_local(&[name], |tablet| match tablet.has_pointer(name)? {
                    true => Ok(None),
                    false => tablet.execute_for(caller, &operation).map(Some),
                })?;
            if let Some(reply) = alone {
                return Ok(reply);
            }
            brief::check()?;
            let unlinked = run(self, peers, caller, |attempt| unlink(attempt, &owned))?;
            // None if the file has lost its other names meanwhile.
            if let Some(id) = unlinked {
                return Ok(Reply::File(id));
            }
        }
    }
}

impl Rename {
    fn attempt(&self, attempt: &mut ChangeAttempt<'_>) -> AttemptResult<Outcome<()>> {
        let (from, caller) = (&self.from, attempt.caller);
        attempt.lock(&[LockKey::of(from)])?;
        let (directory, found) = attempt.server.tablet.find_leaving(caller, from.borrowed())?;
        let leaves = from.directory != self.to.directory;
        let (mut is_loop, mut above) = (false, Vec::new());
        if let Some(found) =
            found.as_ref().filter(|found| leaves && directories::is_directory(found))
        {
            directories::begin_move(attempt)?;
            is_loop = directories::above(attempt, self.to.directory)?.contains(&found.id);
            above = directories::above(attempt, from.directory)?;
        }
        let moved = found.map(|found| self.moved(attempt, &found)).transpose()?;
        let mut arriving = Arriving {
            from: from.clone(),
            from_project: directory.project,
            to: self.to.clone(),
            mode: self.mode,
            moved: moved.as_ref().map(|moved| moved.inode.clone()),
            moving: moved.as_ref().map(|moved| attempt.server.moving(moved.entry.clone())),
            other: None,
            refusal: moved.as_ref().and_then(|moved| moved.refusal),
            is_loop,
            above,
        };
        let mut late = None;
        let mut seen = self.arrive(attempt, &arriving)?;
        if let PartOutcome::NeedsInode(id, is_directory) = seen {
            if is_directory && leaves && arriving.above.is_empty() {
                directories::begin_move(attempt)?;
                arriving.above = directories::above(attempt, from.directory)?;
            }
            let (inode, refusal) = self.other(attempt, id, is_directory)?;
            (arriving.other, late) = (Some(inode), refusal);
            seen = self.arrive(attempt, &arriving)?;
        }
        let moved = moved.ok_or(canopy_namespace::Error::from(Errno::NOENT))?;
        let (other, back) = match seen {
            PartOutcome::SameFile => return Ok(Outcome::Nothing(())),
            // Somebody has replaced the file between the two messages.
            PartOutcome::NeedsInode(..) => return Err(AttemptError::Restart),
            PartOutcome::NameFree => (None, None),
            PartOutcome::NameTaken(inode, back) => {
                let arrives = back.as_ref().map(|back| &back.entry.inode);
                let arrives = arrives.filter(|back| !attempt.is_own && !back.is_pointer());
                if let Some(file) = arrives {
                    // First: entries of a hand-over that come late must not bring it from now on.
                    attempt.lock(&[LockKey::File(file.id)])?;
                    if !attempt.server.clear_copies(file.id)? {
                        return Err(AttemptError::Restart);
                    }
                }
                (Some(inode), back)
            }
            PartOutcome::Possible
            | PartOutcome::InodeAtHome(..)
            | PartOutcome::DirectoryClosed { .. } => {
                return Err(Error::Unfit.into());
            }
        };
        let refusal = moved.late.or(late).filter(|_| leaves);
        if let Some(refusal) = refusal {
            let errno = Errno::from_raw_os_error(refusal);
            return Err(canopy_namespace::Error::from(errno).into());
        }
        self.leave(attempt, &moved, back);
        if let Some(other) = other.filter(|other| !self.is_exchange() && other.is_directory()) {
            directories::close(attempt, other.id)?;
        }
        attempt.reply = Some(Reply::Done);
        Ok(Outcome::Decide(()))
    }

    fn is_exchange(&self) -> bool {
        self.mode == RenameMode::Exchange
    }

    /// Adds what happens to the old name, once the part of the new one is prepared: that was the last
    /// part.
    fn leave(&self, attempt: &mut ChangeAttempt<'_>, moved: &Moved, back: Option<Box<MovingFile>>) {
        let from = &self.from;
        let is_whole = !moved.entry.inode.is_pointer();
        attempt.gives = (is_whole && !attempt.is_own).then_some(moved.inode.id);
        // First, since the file may get another name here.
        attempt.effects.insert(0, Effect::Take(from.clone(), moved.inode.id));
        match back {
            Some(back) => {
                let MovingFile { entry, holds } = *back;
                let back = MovedEntry { name: from.name.clone(), ..entry };
                attempt.takes = if attempt.is_own { Vec::new() } else { holds };
                attempt.effects.push(Effect::Put(from.directory, back));
            }
            None if self.whiteout.is_none() => attempt.counts.push(from.counted(-1)),
            None => {}
        }
        if let Some(owner) = self.whiteout {
            attempt.effects.push(Effect::Whiteout(from.clone(), owner));
        }
    }

    fn arrive(
        &self,
        attempt: &mut ChangeAttempt<'_>,
        arriving: &Arriving,
    ) -> AttemptResult<PartOutcome> {
        attempt.part_at_name(&self.to, &IntentPart::Arrive(Box::new(arriving.clone())))
    }

    /// Returns the file that moves, once nothing else changes it.
    fn moved(&self, attempt: &mut ChangeAttempt<'_>, found: &Inode) -> AttemptResult<Moved> {
        let tablet = &attempt.server.tablet;
        let (from, to) = (self.from.clone(), self.to.clone());
        let (id, caller) = (found.id, attempt.caller);
        let at_home = match found {
            found if found.has(flag::LINKED) => {
                Some(IntentPart::Relink { id, removed: Some(from), added: Some(to) })
            }
            found if found.has(flag::ACCESS_HALF) => Some(IntentPart::Renamed { id, from, to }),
            _ => None,
        };
        let (inode, entry, late) = match at_home {
            Some(part) => {
                let home = attempt.server.layout.home(id)?;
                let (inode, late) = attempt.part(home, &part)?.inode()?;
                (inode, tablet.entry(self.from.borrowed())?, late)
            }
            None => {
                attempt.lock(&[LockKey::File(id)])?;
                let entry = tablet.entry(self.from.borrowed())?;
                (entry.inode.clone(), entry, None)
            }
        };
        let leaving = tablet.check_leaving(caller, self.from.directory, &inode);
        Ok(Moved { inode, entry, refusal: refusal_of(leaving)?, late })
    }

    /// Returns the file that has the new name, whose inode is at its home, once nothing else changes
    /// it. It loses that name, and gets the old one in an exchange.
    fn other(
        &self,
        attempt: &mut ChangeAttempt<'_>,
        id: FileId,
        is_directory: bool,
    ) -> AttemptResult<(Inode, Option<i32>)> {
        let is_exchange = self.is_exchange();
        let (from, to) = (self.to.clone(), self.from.clone());
        let part = match is_directory {
            true if is_exchange => IntentPart::Renamed { id, from, to },
            true => return Ok((attempt.peek(id)?, None)),
            false => {
                IntentPart::Relink { id, removed: Some(from), added: is_exchange.then_some(to) }
            }
        };
        let home = attempt.server.layout.home(id)?;
        Ok(attempt.part(home, &part)?.inode()?)
    }
}

/// Tries to give a file another name, and returns its inode.
fn link(
    attempt: &mut ChangeAttempt<'_>,
    id: FileId,
    name: &OwnedName,
) -> AttemptResult<Outcome<Inode>> {
    let (server, caller) = (attempt.server, attempt.caller);
    attempt.lock(&[LockKey::File(id)])?;
    let old = server.only_name(id)?;
    if let Some(old) = &old {
        attempt.lock(&[LockKey::of(old)])?;
        if server.tablet.file_under(old.borrowed())? != Some(id) {
            return Err(AttemptError::Restart);
        }
    }
    let (mut inode, refusals) = server.tablet.check_linked(caller, id)?;
    if inode.nlink == 0 && refusals[1].is_none() {
        return Err(Error::NotYet("the first name of a file".into()).into());
    }
    let refusals = refusals.map(|refusal| refusal.map(Errno::raw_os_error));
    let part = IntentPart::Link { name: name.clone(), inode: Box::new(inode.clone()), refusals };
    attempt.part_at_name(name, &part)?;
    inode.nlink += 1;
    inode.ctime_ns = server.tablet.now_ns();
    attempt.reply = Some(Reply::Inode(inode.clone()));
    match old {
        Some(old) => {
            let entry = server.tablet.entry(old.borrowed())?;
            let entry = MovedEntry { inode: inode.clone(), ..entry };
            let moving = Box::new(server.moving(entry));
            let names = vec![old.clone(), name.clone()];
            attempt.part(server.layout.home(id)?, &IntentPart::Gather { moving, names })?;
            attempt.gives = (!attempt.is_own).then_some(id);
            // First, since this server may be the home.
            attempt.effects.insert(0, Effect::Leave(old, id));
        }
        None => {
            let added = Some(name.clone());
            attempt.part(server.id, &IntentPart::Relink { id, removed: None, added })?;
        }
    }
    Ok(Outcome::Decide(inode))
}

/// Finds out why a directory gets no further name: that it is one, or that the name is not free.
fn link_directory(
    attempt: &mut ChangeAttempt<'_>,
    id: FileId,
    name: &OwnedName,
) -> AttemptResult<Outcome<()>> {
    let inode = attempt.peek(id)?;
    let owns = attempt.caller.user().is_none_or(|who| who.is_root() || who.uid == inode.uid);
    let refusal = Some(Errno::PERM.raw_os_error());
    let refusals = [refusal.filter(|_| !owns), refusal];
    let part = IntentPart::Link { name: name.clone(), inode: Box::new(inode), refusals };
    attempt.part_at_name(name, &part)?;
    Ok(Outcome::Nothing(()))
}

/// Tries to take a name of a file with several away. None if it has no others.
fn unlink(
    attempt: &mut ChangeAttempt<'_>,
    name: &OwnedName,
) -> AttemptResult<Outcome<Option<FileId>>> {
    let (server, caller) = (attempt.server, attempt.caller);
    attempt.lock(&[LockKey::of(name)])?;
    let (_, found) = server.tablet.find_leaving(caller, name.borrowed())?;
    let found = found.ok_or(canopy_namespace::Error::from(Errno::NOENT))?;
    let id = found.id;
    if found.has(flag::ACCESS_HALF) {
        let inode = attempt.peek(id)?;
        server.tablet.check_leaving(caller, name.directory, &inode)?;
        return Err(canopy_namespace::Error::from(Errno::ISDIR).into());
    }
    if !found.has(flag::LINKED) {
        return Ok(Outcome::Nothing(None));
    }
    let part = IntentPart::Relink { id, removed: Some(name.clone()), added: None };
    let (inode, _) = attempt.part(server.layout.home(id)?, &part)?.inode()?;
    server.tablet.check_leaving(caller, name.directory, &inode)?;
    attempt.effects.push(Effect::Take(name.clone(), id));
    attempt.reply = Some(Reply::File(id));
    Ok(Outcome::Decide(Some(id)))
}

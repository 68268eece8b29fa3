//! The kinds of changes that may concern several servers, each at the server that decides.

use crate::error::{Error, Result};
use crate::intents::part::{Arriving, Moving};
use crate::intents::participant::refusal_of;
use crate::intents::trial::{Outcome, Stop, Trial, run};
use crate::intents::{LockKey, Part, Seen, directories};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::inode::flag;
use canopy_namespace::operation::{Caller, Change, Operation};
use canopy_namespace::{
    Effect, EntryName, FileId, Inode, MovedEntry, OwnedName, Ownership, RenameMode, Reply,
    check_rename_names,
};
use rustix::io::Errno;

type Tried<T> = std::result::Result<T, Stop>;

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
        let alone = self.alone(&[from, to], |tablet| {
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
        run(self, peers, caller, |trial| rename.attempt(trial))?;
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
            run(self, peers, caller, |trial| link_directory(trial, id, &owned))?;
        }
        let operation = Operation::Change(Change::Link { id, name });
        let is_home = self.layout.home(id)? == self.id;
        let alone = self.alone_with_file(id, name, |tablet| {
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
        let inode = run(self, peers, caller, |trial| link(trial, id, &owned))?;
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
            let alone = self.alone(&[name], |tablet| match tablet.has_pointer(name)? {
                true => Ok(None),
                false => tablet.execute_for(caller, &operation).map(Some),
            })?;
            if let Some(reply) = alone {
                return Ok(reply);
            }
            let unlinked = run(self, peers, caller, |trial| unlink(trial, &owned))?;
            // None if the file has lost its other names meanwhile.
            if let Some(id) = unlinked {
                return Ok(Reply::File(id));
            }
        }
    }
}

impl Rename {
    fn attempt(&self, trial: &mut Trial<'_>) -> Tried<Outcome<()>> {
        let (from, caller) = (&self.from, trial.caller);
        trial.lock(&[LockKey::of(from)])?;
        let (directory, found) = trial.server.tablet.find_leaving(caller, from.borrowed())?;
        let leaves = from.directory != self.to.directory;
        let (mut is_loop, mut above) = (false, Vec::new());
        if let Some(found) =
            found.as_ref().filter(|found| leaves && directories::is_directory(found))
        {
            directories::begin_move(trial)?;
            is_loop = directories::above(trial, self.to.directory)?.contains(&found.id);
            above = directories::above(trial, from.directory)?;
        }
        let moved = found.map(|found| self.moved(trial, &found)).transpose()?;
        let mut arriving = Arriving {
            from: from.clone(),
            from_project: directory.project,
            to: self.to.clone(),
            mode: self.mode,
            moved: moved.as_ref().map(|moved| moved.inode.clone()),
            moving: moved.as_ref().map(|moved| trial.server.moving(moved.entry.clone())),
            other: None,
            refusal: moved.as_ref().and_then(|moved| moved.refusal),
            is_loop,
            above,
        };
        let mut late = None;
        let mut seen = self.arrive(trial, &arriving)?;
        if let Seen::Elsewhere(id, is_directory) = seen {
            if is_directory && leaves && arriving.above.is_empty() {
                directories::begin_move(trial)?;
                arriving.above = directories::above(trial, from.directory)?;
            }
            let (inode, refusal) = self.other(trial, id, is_directory)?;
            (arriving.other, late) = (Some(inode), refusal);
            seen = self.arrive(trial, &arriving)?;
        }
        let moved = moved.ok_or(canopy_namespace::Error::from(Errno::NOENT))?;
        let (other, back) = match seen {
            Seen::Same => return Ok(Outcome::Nothing(())),
            // Somebody has replaced the file between the two messages.
            Seen::Elsewhere(..) => return Err(Stop::Restart),
            Seen::Free => (None, None),
            Seen::Replaces(inode, back) => {
                let arrives = back.as_ref().map(|back| &back.entry.inode);
                let arrives = arrives.filter(|back| !trial.is_own && !back.is_pointer());
                if let Some(file) = arrives {
                    // First: entries of a hand-over that come late must not bring it from now on.
                    trial.lock(&[LockKey::File(file.id)])?;
                    if !trial.server.clear_copies(file.id)? {
                        return Err(Stop::Restart);
                    }
                }
                (Some(inode), back)
            }
            Seen::Nothing | Seen::Inode(..) | Seen::Closed { .. } => {
                return Err(Error::Unfit.into());
            }
        };
        let refusal = moved.late.or(late).filter(|_| leaves);
        if let Some(refusal) = refusal {
            let errno = Errno::from_raw_os_error(refusal);
            return Err(canopy_namespace::Error::from(errno).into());
        }
        self.leave(trial, &moved, back);
        if let Some(other) = other.filter(|other| !self.is_exchange() && other.is_directory()) {
            directories::close(trial, other.id)?;
        }
        trial.reply = Some(Reply::Done);
        Ok(Outcome::Decide(()))
    }

    fn is_exchange(&self) -> bool {
        self.mode == RenameMode::Exchange
    }

    /// Adds what happens to the old name, once the part of the new one is prepared: that was the last
    /// part.
    fn leave(&self, trial: &mut Trial<'_>, moved: &Moved, back: Option<Box<Moving>>) {
        let from = &self.from;
        let is_whole = !moved.entry.inode.is_pointer();
        trial.gives = (is_whole && !trial.is_own).then_some(moved.inode.id);
        // First, since the file may get another name here.
        trial.effects.insert(0, Effect::Take(from.clone(), moved.inode.id));
        match back {
            Some(back) => {
                let Moving { entry, holds } = *back;
                let back = MovedEntry { name: from.name.clone(), ..entry };
                trial.takes = if trial.is_own { Vec::new() } else { holds };
                trial.effects.push(Effect::Put(from.directory, back));
            }
            None if self.whiteout.is_none() => trial.counts.push(from.counted(-1)),
            None => {}
        }
        if let Some(owner) = self.whiteout {
            trial.effects.push(Effect::Whiteout(from.clone(), owner));
        }
    }

    fn arrive(&self, trial: &mut Trial<'_>, arriving: &Arriving) -> Tried<Seen> {
        trial.part_at_name(&self.to, &Part::Arrive(Box::new(arriving.clone())))
    }

    /// Returns the file that moves, once nothing else changes it.
    fn moved(&self, trial: &mut Trial<'_>, found: &Inode) -> Tried<Moved> {
        let tablet = &trial.server.tablet;
        let (from, to) = (self.from.clone(), self.to.clone());
        let (id, caller) = (found.id, trial.caller);
        let at_home = match found {
            found if found.has(flag::LINKED) => {
                Some(Part::Relink { id, removed: Some(from), added: Some(to) })
            }
            found if found.has(flag::ACCESS_HALF) => Some(Part::Renamed { id, from, to }),
            _ => None,
        };
        let (inode, entry, late) = match at_home {
            Some(part) => {
                let home = trial.server.layout.home(id)?;
                let (inode, late) = trial.part(home, &part)?.inode()?;
                (inode, tablet.entry(self.from.borrowed())?, late)
            }
            None => {
                trial.lock(&[LockKey::File(id)])?;
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
        trial: &mut Trial<'_>,
        id: FileId,
        is_directory: bool,
    ) -> Tried<(Inode, Option<i32>)> {
        let is_exchange = self.is_exchange();
        let (from, to) = (self.to.clone(), self.from.clone());
        let part = match is_directory {
            true if is_exchange => Part::Renamed { id, from, to },
            true => return Ok((trial.peek(id)?, None)),
            false => Part::Relink { id, removed: Some(from), added: is_exchange.then_some(to) },
        };
        let home = trial.server.layout.home(id)?;
        Ok(trial.part(home, &part)?.inode()?)
    }
}

/// Tries to give a file another name, and returns its inode.
fn link(trial: &mut Trial<'_>, id: FileId, name: &OwnedName) -> Tried<Outcome<Inode>> {
    let (server, caller) = (trial.server, trial.caller);
    trial.lock(&[LockKey::File(id)])?;
    let old = server.only_name(id)?;
    if let Some(old) = &old {
        trial.lock(&[LockKey::of(old)])?;
        if server.tablet.file_under(old.borrowed())? != Some(id) {
            return Err(Stop::Restart);
        }
    }
    let (mut inode, refusals) = server.tablet.check_linked(caller, id)?;
    if inode.nlink == 0 && refusals[1].is_none() {
        return Err(Error::NotYet("the first name of a file".into()).into());
    }
    let refusals = refusals.map(|refusal| refusal.map(Errno::raw_os_error));
    let part = Part::Link { name: name.clone(), inode: Box::new(inode.clone()), refusals };
    trial.part_at_name(name, &part)?;
    inode.nlink += 1;
    inode.ctime_ns = server.tablet.now_ns();
    trial.reply = Some(Reply::Inode(inode.clone()));
    match old {
        Some(old) => {
            let entry = server.tablet.entry(old.borrowed())?;
            let entry = MovedEntry { inode: inode.clone(), ..entry };
            let moving = Box::new(server.moving(entry));
            let names = vec![old.clone(), name.clone()];
            trial.part(server.layout.home(id)?, &Part::Gather { moving, names })?;
            trial.gives = (!trial.is_own).then_some(id);
            // First, since this server may be the home.
            trial.effects.insert(0, Effect::Leave(old, id));
        }
        None => {
            let added = Some(name.clone());
            trial.part(server.id, &Part::Relink { id, removed: None, added })?;
        }
    }
    Ok(Outcome::Decide(inode))
}

/// Finds out why a directory gets no further name: that it is one, or that the name is not free.
fn link_directory(trial: &mut Trial<'_>, id: FileId, name: &OwnedName) -> Tried<Outcome<()>> {
    let inode = trial.peek(id)?;
    let owns = trial.caller.user().is_none_or(|who| who.is_root() || who.uid == inode.uid);
    let refusal = Some(Errno::PERM.raw_os_error());
    let refusals = [refusal.filter(|_| !owns), refusal];
    let part = Part::Link { name: name.clone(), inode: Box::new(inode), refusals };
    trial.part_at_name(name, &part)?;
    Ok(Outcome::Nothing(()))
}

/// Tries to take a name of a file with several away. None if it has no others.
fn unlink(trial: &mut Trial<'_>, name: &OwnedName) -> Tried<Outcome<Option<FileId>>> {
    let (server, caller) = (trial.server, trial.caller);
    trial.lock(&[LockKey::of(name)])?;
    let (_, found) = server.tablet.find_leaving(caller, name.borrowed())?;
    let found = found.ok_or(canopy_namespace::Error::from(Errno::NOENT))?;
    let id = found.id;
    if found.has(flag::ACCESS_HALF) {
        let inode = trial.peek(id)?;
        server.tablet.check_leaving(caller, name.directory, &inode)?;
        return Err(canopy_namespace::Error::from(Errno::ISDIR).into());
    }
    if !found.has(flag::LINKED) {
        return Ok(Outcome::Nothing(None));
    }
    let part = Part::Relink { id, removed: Some(name.clone()), added: None };
    let (inode, _) = trial.part(server.layout.home(id)?, &part)?.inode()?;
    server.tablet.check_leaving(caller, name.directory, &inode)?;
    trial.effects.push(Effect::Take(name.clone(), id));
    trial.reply = Some(Reply::File(id));
    Ok(Outcome::Decide(Some(id)))
}

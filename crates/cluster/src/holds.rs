//! Files that sessions hold at their servers: a file that somebody has open stays when it loses its
//! last name, until the last session lets it go.
//!
//! A session holds a file or does not; its client counts. Each hold has a ticket, a number that grows
//! in the session. A release names the last ticket that it concerns. So each request may come twice
//! or late: a hold with a ticket that a release has named is refused, and a release does not take
//! back a later hold.
//!
//! Holds are in memory alone. A session that is silent for [`SessionSettings::lease`] loses them, and
//! so does every session when its server dies. The successor removes no file without a name for
//! [`SessionSettings::grace`]; meanwhile clients hold their files again. They notice by the *life*
//! of their session, a number that is another one each time. Holds of files whose names are handed
//! over go along, before the giver gives; clients get to know which these are by their next renewal.
//!
//! A mount holds files as long as its kernel remembers them, which may be for ever. So the reply to a
//! renewal names held files without a name, and the client lets those go that no program has open.
//! Otherwise a file that another client has removed would go on using its owner's quota. Directories
//! stay: a program may be in one without having it open.
//!
//! [`SessionSettings::lease`]: crate::SessionSettings::lease
//! [`SessionSettings::grace`]: crate::SessionSettings::grace

use crate::error::{Error, Result};
use crate::locks::LastRequest;
use crate::message::{Life, Response, Sender, SessionId};
use crate::server::Server;
use crate::sessions::HoldCounters;
use canopy_namespace::inode::flag;
use canopy_namespace::operation::{Change, FileLock, Hold, Operation, Target};
use canopy_namespace::{FileId, Inode, Reply};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// Files that are held beside their names' records: the inode lies at the home of its id.
pub(crate) const APART: u32 = flag::ACCESS_HALF | flag::LINKED;

/// Files that the reply to a renewal names at most.
const NAMELESS_MAX: usize = 4096;

/// Files that a session holds at a server.
pub(crate) struct SessionHolds {
    held: HashMap<FileId, HeldFile>,
    counters: HoldCounters,
    /// The last ticket that a release has named.
    floor: u64,
    /// Files that were handed over while they were held, as far as the client may not know it.
    moved: HashSet<FileId>,
    /// A number that is another one once the holds are lost.
    life: u64,
}

struct HeldFile {
    /// The latest ticket of its holds.
    ticket: u64,
    /// The last request about its locks.
    last: LastRequest,
}

/// A hold on its way to another server, with the locks of its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedHold {
    /// The session.
    pub session: SessionId,
    /// The file.
    pub id: FileId,
    /// The latest ticket of its holds.
    pub ticket: u64,
    /// The last request about its locks.
    pub last: LastRequest,
    /// Its locks.
    pub locks: Vec<FileLock>,
}

impl SessionHolds {
    pub(crate) fn new(life: u64, counters: HoldCounters) -> Self {
        SessionHolds { held: HashMap::new(), counters, floor: 0, moved: HashSet::new(), life }
    }

    /// Holds a file. Returns whether it was not held.
    fn insert(&mut self, id: FileId, ticket: u64) -> bool {
        let file = self.held.entry(id);
        let is_new = matches!(file, Entry::Vacant(_));
        let file = file.or_insert(HeldFile { ticket, last: LastRequest::none(ticket) });
        file.ticket = file.ticket.max(ticket);
        self.counters.add(usize::from(is_new));
        is_new
    }

    /// Lets a file go. Returns whether it was held.
    fn remove(&mut self, id: FileId) -> bool {
        let was_held = self.held.remove(&id).is_some();
        self.counters.subtract(usize::from(was_held));
        was_held
    }

    /// Returns whether there is nothing to lose.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.moved.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns the last request about locks of a file; none if it is not held.
    pub(crate) fn last_request(&mut self, id: FileId) -> Option<&mut LastRequest> {
        self.held.get_mut(&id).map(|file| &mut file.last)
    }

    /// Loses all holds, and returns the files.
    pub(crate) fn lose(&mut self, life: u64) -> Vec<FileId> {
        self.life = life;
        self.moved.clear();
        self.counters.subtract(self.held.len());
        self.held.drain().map(|(id, _)| id).collect()
    }
}

/// Returns whether an operation makes a file that is held.
pub(crate) fn makes_held(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Change(Change::Create { holds: true, .. } | Change::CreateNameless { .. })
    )
}

/// Returns whether a file is not here.
fn is_absent(error: &canopy_namespace::Error) -> bool {
    matches!(error, canopy_namespace::Error::NotHere(_)) || error.errno() == Errno::NOENT
}

impl Server {
    /// Holds a file for a session, or lets it go.
    pub(crate) fn answer_hold(
        &self,
        sender: Sender<'_>,
        hold: &Hold<'_>,
        ticket: u64,
    ) -> Result<Response> {
        if sender.session == SessionId::SERVER {
            return Err(Error::NotYet("holding a file without a session".into()));
        }
        let operation = Operation::Hold(hold.clone());
        let state = self.settled(&operation)?;
        let here = |outcome: canopy_namespace::Result<Reply>| {
            outcome.map_err(|error| self.refusal(&state, error))
        };
        let reply = match hold {
            Hold::Name(_) => {
                let reply = here(self.tablet.execute_for(sender.caller, &operation))?;
                let Reply::Inode(inode) = &reply else { return Err(Error::Unfit) };
                match inode.has(APART) {
                    true => self.tablet.release(inode.id, 1)?,
                    false => self.note_hold(sender.session, inode.id, ticket)?,
                }
                reply
            }
            Hold::File(id) => {
                here(self.hold_file(*id).map(|_| Reply::Done))?;
                self.note_hold(sender.session, *id, ticket)?;
                Reply::Done
            }
            Hold::Release(id, _) => {
                if !self.let_go(sender.session, *id, ticket)? && !self.tablet.has_file(*id)? {
                    return here(Err(canopy_namespace::Error::NotHere(Target::File(*id))))
                        .map(Response::Reply);
                }
                Reply::Done
            }
        };
        Ok(Response::Held(reply, self.life(sender.session)))
    }

    /// Holds files again that a session has held before. Returns those that are not here.
    pub(crate) fn reclaim(
        &self,
        session: SessionId,
        ids: &[FileId],
        ticket: u64,
    ) -> Result<Response> {
        self.sessions.begin(session)?;
        let mut absent = Vec::new();
        for id in ids {
            let _state = self.settled(&Operation::Hold(Hold::File(*id)))?;
            match self.hold_file(*id) {
                Ok(_) => self.note_hold(session, *id, ticket)?,
                Err(error) if is_absent(&error) => absent.push(*id),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Response::Reclaimed(absent, self.life(session)))
    }

    /// Lets files go that a session has held. Returns those that are not here.
    pub(crate) fn release(&self, session: SessionId, files: &[(FileId, u64)]) -> Result<Response> {
        let mut absent = Vec::new();
        for (id, ticket) in files {
            let _state = self.settled(&Operation::Hold(Hold::Release(*id, 1)))?;
            if !self.let_go(session, *id, *ticket)? && !self.tablet.has_file(*id)? {
                absent.push(*id);
            }
        }
        Ok(Response::Reclaimed(absent, self.life(session)))
    }

    /// Renews a session. The client knows that these files were handed over.
    pub(crate) fn renew(&self, session: SessionId, known: &[FileId]) -> Result<Response> {
        self.sessions.begin(session)?;
        let moved = self.sessions.with(session, |files| {
            known.iter().for_each(|id| _ = files.moved.remove(id));
            files.moved.iter().copied().collect()
        });
        let nameless = self.nameless_of(session)?;
        Ok(Response::Renewed(self.life(session), moved.unwrap_or_default(), nameless))
    }

    /// Returns files without a name that a session holds, but no directories.
    fn nameless_of(&self, session: SessionId) -> Result<Vec<FileId>> {
        let tablet = &self.tablet;
        // The cost is that of the shorter list: one user's files cost no other user's renewals.
        let nameless =
            self.sessions.with(session, |files| match files.held.len() < tablet.nameless_count() {
                true => tablet.nameless_of(files.held.keys().copied(), NAMELESS_MAX),
                false => tablet.nameless(|id| files.held.contains_key(id), NAMELESS_MAX),
            });
        let mut found = Vec::new();
        for id in nameless.unwrap_or_default() {
            match self.tablet.inode(id) {
                Ok(inode) if !inode.is_directory() => found.push(id),
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Executes a change that makes a held file.
    pub(crate) fn make_held(&self, sender: Sender<'_>, operation: &Operation<'_>) -> Result<Reply> {
        if sender.session == SessionId::SERVER {
            return Err(Error::NotYet("holding a file without a session".into()));
        }
        let state = self.settled(operation)?;
        let made = self.tablet.execute_for(sender.caller, operation);
        let reply = made.map_err(|error| self.refusal(&state, error))?;
        if let Reply::Inode(inode) = &reply {
            self.note_hold(sender.session, inode.id, 0)?;
        }
        Ok(reply)
    }

    /// Holds a file that was made before, as the reply is sent again. It may have gone since.
    pub(crate) fn hold_made(&self, session: SessionId, made: &Reply) -> Result<()> {
        let Reply::Inode(inode) = made else { return Ok(()) };
        let _state = self.settled(&Operation::Hold(Hold::File(inode.id)))?;
        match self.hold_file(inode.id) {
            Ok(_) => self.note_hold(session, inode.id, 0),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Holds a file whose inode is here.
    fn hold_file(&self, id: FileId) -> canopy_namespace::Result<Inode> {
        if !self.tablet.has_file(id)? {
            return Err(canopy_namespace::Error::NotHere(Target::File(id)));
        }
        self.tablet.hold_existing(id)
    }

    /// Notes a hold that the tablet has counted.
    fn note_hold(&self, session: SessionId, id: FileId, ticket: u64) -> Result<()> {
        let is_late = self.sessions.begin(session).and_then(|()| {
            let floor = self.sessions.with(session, |files| files.floor);
            match ticket > 0 && floor.is_some_and(|floor| ticket <= floor) {
                true => Err(canopy_namespace::Error::Repeated.into()),
                false => self.sessions.check_holds(session),
            }
        });
        if let Err(error) = is_late {
            self.tablet.release(id, 1)?;
            return Err(error);
        }
        self.insert_hold(session, id, ticket)
    }

    /// Notes a hold that the tablet has counted, and that is known not to be late.
    fn insert_hold(&self, session: SessionId, id: FileId, ticket: u64) -> Result<()> {
        match self.sessions.with(session, |files| files.insert(id, ticket)) {
            Some(true) => Ok(()),
            // The tablet counts each session once.
            Some(false) | None => Ok(self.tablet.release(id, 1)?),
        }
    }

    /// Lets a file go that a session holds by tickets up to this one. Returns whether the session is
    /// known to hold or have held it here.
    fn let_go(&self, session: SessionId, id: FileId, ticket: u64) -> Result<bool> {
        let released = self.sessions.with(session, |files| {
            files.floor = files.floor.max(ticket);
            match files.held.get(&id) {
                Some(file) if file.ticket <= ticket => {
                    files.remove(id);
                    self.sessions.locks.drop_all([(session, id)]);
                    Some(true)
                }
                Some(_) => Some(false),
                None => None,
            }
        });
        let released = released.flatten();
        if released == Some(true) {
            self.tablet.release(id, 1)?;
        }
        Ok(released.is_some())
    }

    /// Returns the life of a session here: a number that changes when its holds are lost.
    pub(crate) fn life(&self, session: SessionId) -> Life {
        let number = self.sessions.with(session, |files| files.life);
        Life { epoch: self.epoch(), number: number.unwrap_or_default() }
    }

    /// Returns the holds of all sessions of some files.
    pub(crate) fn holds_of(&self, files: &HashSet<FileId>) -> Vec<MovedHold> {
        let mut holds = Vec::new();
        self.sessions.each(|session, of_session| {
            let held = of_session.held.iter().filter(|(id, _)| files.contains(id));
            holds.extend(held.map(|(id, file)| MovedHold {
                session,
                id: *id,
                ticket: file.ticket,
                last: file.last,
                locks: self.sessions.locks.of(*id, session),
            }));
        });
        holds
    }

    /// Receiver: takes holds of files that arrive.
    pub(crate) fn take_holds(&self, holds: &[MovedHold]) -> Result<()> {
        for MovedHold { session, id, ticket, last, locks } in holds {
            self.sessions.begin(*session)?;
            self.tablet.hold(*id);
            self.insert_hold(*session, *id, *ticket)?;
            self.sessions.with(*session, |files| {
                if let Some(known) = files.last_request(*id)
                    && known.ticket < last.ticket
                {
                    *known = *last;
                }
                self.sessions.locks.change(|all| all.replace(*id, *session, locks));
            });
        }
        Ok(())
    }

    /// Receiver: drops a hold that has arrived, unless the file is here, or was held again since.
    pub(crate) fn drop_hold(&self, (session, id, ticket): (SessionId, FileId, u64)) -> Result<()> {
        if self.tablet.has_file(id)? {
            return Ok(());
        }
        let is_dropped = self.sessions.with(session, |files| {
            let is_that = files.held.get(&id).is_some_and(|held| held.ticket == ticket);
            is_that && files.remove(id)
        });
        match is_dropped {
            Some(true) => {
                self.sessions.locks.drop_all([(session, id)]);
                Ok(self.tablet.release(id, 1)?)
            }
            Some(false) | None => Ok(()),
        }
    }

    /// Giver: lets files go that were handed over, and notes that for their clients.
    pub(crate) fn give_holds(&self, files: &HashSet<FileId>) -> Result<()> {
        let mut gone = Vec::new();
        self.sessions.each(|_, of_session| {
            let before = gone.len();
            gone.extend(of_session.held.keys().filter(|id| files.contains(id)));
            for id in &gone[before..] {
                self.sessions.locks.change(|locks| locks.forget(*id));
                of_session.remove(*id);
                of_session.moved.insert(*id);
            }
        });
        gone.into_iter().try_for_each(|id| Ok(self.tablet.release(id, 1)?))
    }

    /// Ends holds of silent sessions, and the time in which nothing without a name is removed.
    pub(crate) fn end_holds(&self) -> Result<()> {
        let lost = self.sessions.lose_silent();
        lost.into_iter().try_for_each(|id| self.tablet.release(id, 1))?;
        if self.sessions.ends_grace() {
            self.tablet.keep_unheld(false);
            self.tablet.remove_orphans()?;
        }
        Ok(())
    }
}

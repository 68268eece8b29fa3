//! Locks of a client: what its programs have, and restoring that where servers have forgotten it.
//!
//! The client sends one request about a file at a time. What it believes to have changes with the
//! reply, unless the locks were restored meanwhile: then it asks again. If a request fails, the server
//! may have done it or not: the file is *unsure* until the next renewal has given the server what the
//! client believes.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::locks::{LockAsk, LockReply, LockRequest, LockTable};
use crate::message::{Life, Request, Response, SessionId};
use canopy_namespace::FileId;
use canopy_namespace::operation::{
    Caller, Change, FileLock, FileLocks, LockOutcome, LockOwner, LockRange, LossReport, Operation,
};
use canopy_partition::ServerId;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Attempts to hold a file again whose locks are asked for.
const ATTEMPTS: u32 = 5;

/// Time after which a lock is asked for again while others restore theirs, and the longest time for
/// which it is.
const GRACE_PAUSE: Duration = Duration::from_millis(50);
const GRACE_TIME: Duration = Duration::from_secs(30);

/// Pauses between two questions for turns: if locks whose turn it is were tried, or not so far; if a
/// server let nobody wait; if it did not answer.
const TURN_MIN: Duration = Duration::from_millis(1);
const TURN_PAUSE: Duration = Duration::from_millis(50);
const TURN_RETRY: Duration = Duration::from_millis(200);

/// Time until a client without threads tries a lock again.
const POLL: Duration = Duration::from_millis(10);

/// A client's own session in its tables.
const OWN: SessionId = SessionId::SERVER;

/// Locks of a client.
#[derive(Default)]
pub(crate) struct ClientLocks {
    files: Mutex<HashMap<FileId, Arc<LockedFile>>>,
    /// Files whose locks the server may not have as they are here.
    unsure: Mutex<BTreeSet<FileId>>,
    awaited: Mutex<Awaited>,
    turned: Condvar,
    /// The client, once it has threads.
    me: OnceLock<Weak<Client>>,
    report: OnceLock<LossReport>,
}

/// Locks that wait.
#[derive(Default)]
struct Awaited {
    places: HashMap<(FileId, LockOwner), Place>,
    /// Servers that threads ask.
    asked: HashSet<ServerId>,
}

/// A lock that waits.
struct Place {
    server: ServerId,
    turn: Turn,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Another lock is in the way.
    Waits,
    /// It may be this one's turn.
    Has,
    /// It is being tried.
    Tries,
}

/// A file with locks.
#[derive(Default)]
struct LockedFile {
    /// Held by whoever asks the server.
    asking: Mutex<()>,
    state: Mutex<FileState>,
}

#[derive(Default)]
struct FileState {
    held: LockTable,
    /// Locks that others may have had since, and that were not given back.
    lost: LockTable,
    /// Counts restorations and losses.
    changes: u64,
}

impl FileState {
    fn lose(&mut self) {
        self.held.of_session(OWN).iter().for_each(|lock| self.lost.set(OWN, lock));
        self.held = LockTable::default();
        self.changes += 1;
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.lost.is_empty()
    }
}

impl ClientLocks {
    /// Lets threads ask for the turns of locks.
    pub(crate) fn start(&self, client: &Arc<Client>) {
        // A second call changes nothing.
        let _ = self.me.set(Arc::downgrade(client));
    }

    /// Notes that a server may have forgotten the locks of files, or that they have moved.
    pub(crate) fn doubt(&self, ids: &[FileId]) {
        let files = self.files.lock();
        let locked = ids.iter().filter(|id| files.contains_key(id));
        self.unsure.lock().extend(locked);
    }

    /// Forgets a file that is not held any more.
    pub(crate) fn forget(&self, id: FileId) {
        self.files.lock().remove(&id);
        self.unsure.lock().remove(&id);
    }

    /// Notes that others may have had files since this client had locks on them.
    pub(crate) fn lose(&self, ids: &[FileId]) {
        let files = self.files.lock();
        let known = Vec::from_iter(ids.iter().filter_map(|id| Some((*id, files.get(id)?.clone()))));
        drop(files);
        known.iter().for_each(|(id, file)| self.lose_one(*id, file));
    }

    fn lose_one(&self, id: FileId, file: &LockedFile) {
        let had_locks = {
            let mut state = file.state.lock();
            let had_locks = !state.held.is_empty();
            state.lose();
            had_locks
        };
        if let Some(report) = self.report.get().filter(|_| had_locks) {
            report(id);
        }
    }

    fn find(&self, id: FileId) -> Option<Arc<LockedFile>> {
        self.files.lock().get(&id).cloned()
    }

    fn file(&self, id: FileId) -> Arc<LockedFile> {
        self.files.lock().entry(id).or_default().clone()
    }

    /// Forgets a file without locks that nobody asks for.
    fn tidy(&self, id: FileId, file: Arc<LockedFile>) {
        drop(file);
        let mut files = self.files.lock();
        let is_unused =
            |file: &Arc<LockedFile>| Arc::strong_count(file) == 1 && file.state.lock().is_empty();
        if files.get(&id).is_some_and(is_unused) && !self.unsure.lock().contains(&id) {
            files.remove(&id);
        }
    }

    /// Notes whose turn it may be.
    fn note_turns(&self, turns: &[(FileId, LockOwner)]) {
        let mut awaited = self.awaited.lock();
        for turn in turns {
            if let Some(place) = awaited.places.get_mut(turn) {
                place.turn = Turn::Has;
            }
        }
        self.turned.notify_all();
    }

    /// Waits until locks at a server have been tried whose turn it is, but not for long.
    fn await_tries(&self, server: ServerId) {
        let deadline = Instant::now() + TURN_PAUSE;
        let mut awaited = self.awaited.lock();
        let has_turn = |place: &Place| place.server == server && place.turn != Turn::Waits;
        while awaited.places.values().any(has_turn)
            && !self.turned.wait_until(&mut awaited, deadline).timed_out()
        {}
    }

    fn forget_place(&self, id: FileId, owner: LockOwner) {
        self.awaited.lock().places.remove(&(id, owner));
        self.turned.notify_all();
    }

    /// Has a place looked at again, at its server. Returns whether a thread has to be started.
    fn await_turn(&self, id: FileId, owner: LockOwner, server: ServerId) -> bool {
        let mut awaited = self.awaited.lock();
        awaited.places.insert((id, owner), Place { server, turn: Turn::Waits });
        self.turned.notify_all();
        awaited.asked.insert(server)
    }

    /// Returns whether locks wait at a server. If none do, its thread ends.
    fn goes_on(&self, server: ServerId) -> bool {
        let mut awaited = self.awaited.lock();
        let waits = awaited.places.values().any(|place| place.server == server);
        if !waits {
            awaited.asked.remove(&server);
        }
        waits
    }

    /// Has all locks that wait at a server tried again.
    fn try_all(&self, server: ServerId) {
        let mut awaited = self.awaited.lock();
        for place in awaited.places.values_mut().filter(|place| place.server == server) {
            place.turn = Turn::Has;
        }
        self.turned.notify_all();
    }
}

impl Client {
    /// Sends a request about locks on a file. The caller has `asking`.
    fn ask_locks(
        &self,
        id: FileId,
        file: &LockedFile,
        ask: &LockAsk,
    ) -> Result<(LockReply, ServerId)> {
        let (since, mut attempts) = (Instant::now(), 0);
        loop {
            self.restore_if_unsure(id, file);
            let (reply, server) = self.send_locks(id, ask)?;
            match reply {
                LockReply::Grace if since.elapsed() < GRACE_TIME => thread::sleep(GRACE_PAUSE),
                LockReply::Late => {}
                LockReply::NotHeld if attempts < ATTEMPTS => {
                    attempts += 1;
                    self.hold_again(server, id)?;
                    self.locks.doubt(&[id]);
                }
                LockReply::NotHeld | LockReply::Grace => {
                    return Err(canopy_namespace::Error::from(Errno::IO).into());
                }
                reply => return Ok((reply, server)),
            }
        }
    }

    fn send_locks(&self, id: FileId, ask: &LockAsk) -> Result<(LockReply, ServerId)> {
        let ticket = self.held.next_ticket();
        let request = Request::Lock(LockRequest { id, ticket, ask: ask.clone() });
        let sent = Instant::now();
        match self.ask_for_id_with_server(Caller::Trusted, id, &request)? {
            (Response::Lock(reply), server) => {
                if reply != LockReply::NotHeld {
                    self.held.note_heard(server, sent);
                }
                Ok((reply, server))
            }
            _ => Err(Error::Unfit),
        }
    }

    /// Gives the server the locks of a file as they are here, if it may have others. The caller has
    /// `asking`.
    fn restore_if_unsure(&self, id: FileId, file: &LockedFile) {
        if !self.locks.unsure.lock().remove(&id) {
            return;
        }
        let all = {
            let mut state = file.state.lock();
            state.changes += 1;
            state.held.of_session(OWN)
        };
        match self.send_locks(id, &LockAsk::Restore(all)) {
            Ok((LockReply::Done, _)) => {}
            Ok((LockReply::Lost, _)) => self.locks.lose_one(id, file),
            // The session does not hold the file yet, or the server does not answer.
            Ok(_) | Err(_) => _ = self.locks.unsure.lock().insert(id),
        }
    }

    /// Restores the locks of files that are unsure.
    pub(crate) fn restore_locks(&self) {
        let unsure = self.locks.unsure.lock().clone();
        for id in unsure {
            let file = self.locks.file(id);
            // A request for locks of the file restores them, too.
            if let Some(_asking) = file.asking.try_lock() {
                self.restore_if_unsure(id, &file);
            }
            self.locks.tidy(id, file);
        }
    }

    /// Returns an error if programs have lost locks on a file. Then nobody may go on as if they had
    /// them.
    ///
    /// # Errors
    ///
    /// Fails with `IO`.
    pub(crate) fn check_locks(&self, id: FileId) -> Result<()> {
        let Some(file) = self.locks.find(id) else { return Ok(()) };
        let has_locks = !file.state.lock().held.is_empty();
        let server =
            self.held.server_of(id).filter(|server| has_locks && self.held.is_late(*server));
        if let Some(server) = server {
            // The server may have forgotten the session.
            self.renew_at(Caller::Trusted, server)?;
            self.restore_locks();
        }
        let is_lost = !file.state.lock().lost.is_empty();
        if is_lost { Err(canopy_namespace::Error::from(Errno::IO).into()) } else { Ok(()) }
    }

    /// Returns the life of the session at a server in which its locks on a file hold; none if it has no
    /// locks there, or if the request does not change contents.
    ///
    /// # Errors
    ///
    /// Fails with `IO` if locks are lost, and with `LocksLost` if they may be.
    pub(crate) fn life_of_locks(
        &self,
        server: ServerId,
        id: FileId,
        request: &Request<'_>,
    ) -> Result<Option<Life>> {
        if !changes_contents(request) {
            return Ok(None);
        }
        let Some(file) = self.locks.find(id) else { return Ok(None) };
        // Asked first: locks are in doubt before the client takes on another life.
        let life = self.held.life_at(server);
        let _asking = file.asking.lock();
        self.restore_if_unsure(id, &file);
        let is_unsure = self.locks.unsure.lock().contains(&id);
        let state = file.state.lock();
        match life {
            _ if !state.lost.is_empty() => Err(canopy_namespace::Error::from(Errno::IO).into()),
            _ if state.held.is_empty() => Ok(None),
            Some(life) if !is_unsure => Ok(Some(life)),
            _ => Err(Error::LocksLost(server)),
        }
    }

    /// Asks the server of a file. If it has another life of the session than the one in which the client
    /// has locks on the file, these are restored first.
    pub(crate) fn ask_under_locks(
        &self,
        caller: Caller<'_>,
        id: FileId,
        request: &Request<'_>,
    ) -> Result<Response> {
        let mut attempts = 0;
        loop {
            match self.ask_for_id(caller, id, request) {
                Err(Error::LocksLost(server)) if attempts < ATTEMPTS => {
                    attempts += 1;
                    self.hold_again(server, id)?;
                }
                answered => return answered,
            }
        }
    }

    fn try_lock(&self, id: FileId, wanted: &FileLock, waits: bool) -> Result<LockOutcome> {
        let file = self.locks.file(id);
        let outcome = {
            let _asking = file.asking.lock();
            self.try_lock_of(id, &file, wanted, waits)
        };
        self.locks.tidy(id, file);
        outcome
    }

    fn try_lock_of(
        &self,
        id: FileId,
        file: &LockedFile,
        wanted: &FileLock,
        waits: bool,
    ) -> Result<LockOutcome> {
        let mut may_be_set = false;
        loop {
            self.check_locks(id).inspect_err(|_| {
                if may_be_set {
                    self.locks.unsure.lock().insert(id);
                    self.restore_if_unsure(id, file);
                }
            })?;
            let before = file.state.lock().changes;
            let asked = self.ask_locks(id, file, &LockAsk::Set(*wanted, waits));
            let (reply, server) = asked.inspect_err(|_| {
                self.locks.unsure.lock().insert(id);
            })?;
            let mut state = file.state.lock();
            if state.changes != before {
                // Locks may have been lost before this one was set, which is then refused here.
                may_be_set = true;
                continue;
            }
            state.held.drop_other_mode(OWN, wanted);
            if reply == LockReply::Done {
                state.held.set(OWN, wanted);
            }
            drop(state);
            if reply != LockReply::Waits {
                self.locks.forget_place(id, wanted.owner);
            }
            return match reply {
                LockReply::Done => Ok(LockOutcome::Set),
                LockReply::Waits => {
                    self.await_turn(id, wanted.owner, server);
                    Ok(LockOutcome::Waits)
                }
                LockReply::Refused(_) => Ok(LockOutcome::Refused),
                LockReply::MayGo => Ok(LockOutcome::MayGo),
                LockReply::Deadlock => Err(canopy_namespace::Error::from(Errno::DEADLK).into()),
                LockReply::Full => Err(canopy_namespace::Error::from(Errno::NOLCK).into()),
                _ => Err(Error::Unfit),
            };
        }
    }

    /// Has a thread ask for the turns of locks at a server.
    fn await_turn(&self, id: FileId, owner: LockOwner, server: ServerId) {
        let Some(me) = self.locks.me.get() else { return };
        if !self.locks.await_turn(id, owner, server) {
            return;
        }
        let me = me.clone();
        let run = move || {
            while let Some(client) = me.upgrade() {
                if !client.locks.goes_on(server) {
                    return;
                }
                client.ask_turns(server);
            }
        };
        let spawned = thread::Builder::new().name("cluster-locks".into()).spawn(run);
        if spawned.is_err() {
            // The lock is tried again each second.
            self.locks.awaited.lock().asked.remove(&server);
        }
    }

    fn ask_turns(&self, server: ServerId) {
        let asked = Instant::now();
        match self.ask_once(Caller::Trusted, server, &Request::AwaitLocks) {
            Ok(Response::Turns(turns)) => {
                self.locks.note_turns(&turns);
                match turns.is_empty() {
                    true => thread::sleep(TURN_PAUSE.saturating_sub(asked.elapsed())),
                    false => {
                        self.locks.await_tries(server);
                        thread::sleep(TURN_MIN);
                    }
                }
            }
            // It may have given the file to another one.
            Ok(_) | Err(_) => {
                self.locks.try_all(server);
                thread::sleep(TURN_RETRY);
            }
        }
    }

    fn free_lock(&self, id: FileId, owner: LockOwner, range: LockRange) -> Result<()> {
        let Some(file) = self.locks.find(id) else { return Ok(()) };
        let freed = {
            let _asking = file.asking.lock();
            self.free_lock_of(id, &file, owner, range)
        };
        self.locks.tidy(id, file);
        freed
    }

    fn free_lock_of(
        &self,
        id: FileId,
        file: &LockedFile,
        owner: LockOwner,
        range: LockRange,
    ) -> Result<()> {
        let holder = crate::locks::Holder { session: OWN, owner };
        loop {
            let before = {
                let mut state = file.state.lock();
                state.lost.unlock(holder, range);
                if !state.held.has(holder) {
                    return Ok(());
                }
                state.changes
            };
            let asked = self.ask_locks(id, file, &LockAsk::Unlock(owner, range));
            if let Ok((LockReply::Full, _)) = asked {
                return Err(canopy_namespace::Error::from(Errno::NOLCK).into());
            }
            let mut state = file.state.lock();
            if asked.is_ok() && state.changes != before {
                continue;
            }
            state.held.unlock(holder, range);
            if asked.is_err() {
                // The server gets to know with the next renewal that it is free.
                self.locks.unsure.lock().insert(id);
            }
            return Ok(());
        }
    }
}

/// Returns whether a request changes bytes of a file.
fn changes_contents(request: &Request<'_>) -> bool {
    match request {
        Request::Execute(Operation::Change(change)) => match change {
            Change::WriteSmall { .. } | Change::PutChunks { .. } => true,
            Change::SetAttributes { set, .. } => set.size.is_some(),
            _ => false,
        },
        _ => false,
    }
}

impl FileLocks for Client {
    fn test_lock(
        &self,
        id: FileId,
        wanted: &FileLock,
    ) -> canopy_namespace::Result<Option<FileLock>> {
        self.check_locks(id)?;
        let file = self.locks.file(id);
        let asked = {
            let _asking = file.asking.lock();
            self.ask_locks(id, &file, &LockAsk::Test(*wanted))
        };
        self.locks.tidy(id, file);
        match asked?.0 {
            LockReply::Done => Ok(None),
            LockReply::Refused(lock) => Ok(Some(lock)),
            _ => Err(Error::Unfit.into()),
        }
    }

    fn set_lock(
        &self,
        id: FileId,
        wanted: &FileLock,
        waits: bool,
    ) -> canopy_namespace::Result<LockOutcome> {
        Ok(self.try_lock(id, wanted, waits)?)
    }

    fn await_lock(&self, id: FileId, wanted: &FileLock, limit: Duration) -> bool {
        if self.locks.me.get().is_none() {
            thread::sleep(limit.min(POLL));
            return true;
        }
        let deadline = Instant::now() + limit;
        let mut awaited = self.locks.awaited.lock();
        loop {
            match awaited.places.get_mut(&(id, wanted.owner)) {
                Some(place) if place.turn == Turn::Has => {
                    place.turn = Turn::Tries;
                    return true;
                }
                Some(_) => {}
                None => return true,
            }
            if self.locks.turned.wait_until(&mut awaited, deadline).timed_out() {
                return false;
            }
        }
    }

    fn cancel_lock(&self, id: FileId, wanted: &FileLock) {
        self.locks.forget_place(id, wanted.owner);
        let file = self.locks.file(id);
        {
            let _asking = file.asking.lock();
            // A place that is not taken away is lost after some seconds.
            let _ = self.send_locks(id, &LockAsk::Cancel(*wanted));
        }
        self.locks.tidy(id, file);
    }

    fn unlock(
        &self,
        id: FileId,
        owner: LockOwner,
        range: LockRange,
    ) -> canopy_namespace::Result<()> {
        Ok(self.free_lock(id, owner, range)?)
    }

    fn may_be_closed(&self, id: FileId, owners: &[LockOwner]) {
        let Some(file) = self.locks.find(id) else { return };
        {
            let _asking = file.asking.lock();
            // Without it, others are refused at once.
            let _ = self.ask_locks(id, &file, &LockAsk::MayBeClosed(owners.to_vec()));
        }
        self.locks.tidy(id, file);
    }

    fn report_losses(&self, report: LossReport) {
        // A second one is ignored.
        let _ = self.locks.report.set(report);
    }

    fn may_have_locks(&self, id: FileId, owner: LockOwner) -> bool {
        let holder = crate::locks::Holder { session: OWN, owner };
        self.locks.find(id).is_some_and(|file| {
            let state = file.state.lock();
            state.held.has(holder) || state.lost.has(holder)
        })
    }
}

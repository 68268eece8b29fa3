//! Locks of programs (flock, fcntl) over servers.
//!
//! | to change | read |
//! | --- | --- |
//! | locks of one file, as Linux has them | `table` |
//! | all files of a server; queues, deadlocks, limits | `tables` |
//! | requests at a server | this file |
//! | who may wait at a server | `waits` |
//! | a client's locks; locks that are lost | `client` |
//!
//! The server that has a file's inode keeps its locks, in memory alone, with the session's hold of the
//! file (`holds`): they go when the hold goes, and move with it when names are handed over or a file is
//! renamed to another server. Requests do not wait at the server. One that finds a lock in its way gets
//! a place in the file's queue, and the client asks again: at once when [`Request::AwaitLocks`] says
//! that it is its turn, and otherwise each second.
//!
//! Requests may come twice or late. A client sends one request about a file at a time, with a growing
//! ticket, and takes no notice of a reply to an older one. The server executes no ticket that is not
//! larger than the last one of the file, and repeats the reply to that. So a lock that was given back
//! is never set again by a copy of an older request.
//!
//! **No two clients have conflicting locks at once**, as far as they use them:
//!
//! 1. A server sets no lock that conflicts with one that it knows. It forgets locks of a session when
//!    that has been silent for [`SessionSettings::lease`], and when it dies itself.
//! 2. A successor sets none for [`SessionSettings::grace`]. In that time clients restore theirs
//!    ([`LockAsk::Restore`]). Nothing else restores a lock that a server has forgotten: somebody else
//!    may have had the file in between.
//! 3. A client that has not heard of a server for nine tenths of a lease takes its locks there as lost.
//!    So it does not restore one that the server's predecessor had given to others. This relies on
//!    clocks that run at the same speed within a tenth.
//! 4. Programs whose lock was lost get EIO for the file until they have given it back.
//! 5. A change of contents by a client with locks on the file names the life of its session in which
//!    the client has them. A server refuses it in another life. So nothing that was written under a
//!    lost lock reaches the file, however late it comes; the client drops it.
//!
//! A client that is slower than that to restore its locks loses them: the clock decides about loss,
//! not about exclusion.
//!
//! [`Request::AwaitLocks`]: crate::message::Request::AwaitLocks
//! [`SessionSettings::lease`]: crate::SessionSettings::lease
//! [`SessionSettings::grace`]: crate::SessionSettings::grace

mod client;
mod table;
mod tables;
mod waits;

pub(crate) use client::ClientLocks;
pub(crate) use table::{Holder, LockTable};
pub(crate) use waits::{Account, LockWaiters};

use crate::error::{Error, Result};
use crate::message::{Response, Sender, SessionId};
use crate::rights::MACHINE;
use crate::server::Server;
use canopy_model::Wanted;
use canopy_namespace::FileId;
use canopy_namespace::operation::{
    Caller, FileLock, Hold, LockKind, LockMode, LockOwner, LockRange, Operation, Target,
};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tables::Locks;

/// A request about locks on a file that the session holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LockRequest {
    /// The file.
    pub id: FileId,
    /// A number that grows with each request of the session.
    pub ticket: u64,
    /// The action.
    pub ask: LockAsk,
}

/// Something to be done about locks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LockAsk {
    /// Returns a lock that keeps this one from being set.
    Test(FileLock),
    /// Sets a lock. Whether it waits if it cannot be set.
    Set(FileLock, bool),
    /// Has a lock wait no longer.
    Cancel(FileLock),
    /// Removes the locks of an owner from a range.
    Unlock(LockOwner, LockRange),
    /// Notes that the open files of owners may have just been closed.
    MayBeClosed(Vec<LockOwner>),
    /// Has the session have these locks, and no others: the server may have forgotten them, or have
    /// more.
    Restore(Vec<FileLock>),
}

/// A reply to a request about locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockReply {
    /// It is done; nothing keeps a lock from being set.
    Done,
    /// This lock is in the way.
    Refused(FileLock),
    /// A lock is in the way whose open file may have just been closed.
    MayGo,
    /// Another lock is in the way, or has its turn before.
    Waits,
    /// The owner would wait for itself.
    Deadlock,
    /// The user or the session has as many locks as it may.
    Full,
    /// Clients restore their locks. Somebody who wants one asks again.
    Grace,
    /// The session does not hold the file here.
    NotHeld,
    /// The request came after a newer one.
    Late,
    /// Others may have had the file since the session had its locks.
    Lost,
}

/// The last request about locks of a file that a session holds, with the reply, which a copy of the
/// request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRequest {
    pub(crate) ticket: u64,
    reply: LockReply,
}

impl LastRequest {
    /// Returns one that has all requests up to a ticket refused.
    pub(crate) fn none(ticket: u64) -> Self {
        LastRequest { ticket, reply: LockReply::Done }
    }
}

/// Locks of a server, for threads.
#[derive(Default)]
pub(crate) struct ServerLocks {
    locks: Mutex<Locks>,
    changed: Condvar,
}

impl ServerLocks {
    /// Does something that may give somebody a turn.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Locks) -> T) -> T {
        let done = change(&mut self.locks.lock());
        self.changed.notify_all();
        done
    }

    /// Removes what sessions have on files that they hold no longer.
    pub(crate) fn drop_all(&self, held: impl IntoIterator<Item = (SessionId, FileId)>) {
        self.change(|locks| {
            held.into_iter().for_each(|(session, id)| locks.drop_session(id, session));
        });
    }

    /// Returns the locks that a session has on a file.
    pub(crate) fn of(&self, id: FileId, session: SessionId) -> Vec<FileLock> {
        self.locks.lock().of(id, session)
    }

    /// Returns the numbers of locks and of places in queues.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.locks.lock().counts()
    }
}

impl Server {
    /// Executes a request about locks.
    pub(crate) fn answer_lock(
        &self,
        sender: Sender<'_>,
        request: &LockRequest,
    ) -> Result<Response> {
        let Sender { caller, session, .. } = sender;
        if session == SessionId::SERVER {
            return Err(Error::NotYet("locking a file without a session".into()));
        }
        let id = request.id;
        // No lock changes while the file moves.
        let state = self.wait_for_hand_over(&Operation::Hold(Hold::File(id)))?;
        if !self.tablet.has_file(id)? {
            let error = canopy_namespace::Error::NotHere(Target::File(id));
            return Err(self.refusal(&state, error));
        }
        self.check_locking(caller, id, &request.ask)?;
        self.sessions.begin(session)?;
        let (now, is_grace) = (self.sessions.now(), self.sessions.is_grace());
        let ask = claimed(caller, &request.ask);
        let reply = self.sessions.with(session, |files| {
            let Some(last) = files.last_request(id) else { return LockReply::NotHeld };
            if request.ticket <= last.ticket {
                let is_last = request.ticket == last.ticket;
                return if is_last { last.reply } else { LockReply::Late };
            }
            let reply = self.sessions.locks.change(|locks| match &ask {
                LockAsk::Test(_) | LockAsk::Set(..) if is_grace => LockReply::Grace,
                LockAsk::Test(wanted) => locks.test(id, session, wanted),
                LockAsk::Set(wanted, waits) => locks.set(id, session, wanted, *waits, now),
                LockAsk::Cancel(wanted) => {
                    locks.cancel(id, session, wanted);
                    LockReply::Done
                }
                LockAsk::Unlock(owner, range) => locks.unlock(id, session, *owner, *range),
                LockAsk::MayBeClosed(owners) => {
                    locks.note_closing(id, session, owners, now);
                    LockReply::Done
                }
                LockAsk::Restore(all) => match is_grace || locks.has_all(id, session, all) {
                    true if locks.replace(id, session, all) => LockReply::Done,
                    _ => {
                        // Nor does it keep some of them.
                        locks.drop_session(id, session);
                        LockReply::Lost
                    }
                },
            });
            *last = LastRequest { ticket: request.ticket, reply };
            reply
        });
        Ok(Response::Lock(reply.unwrap_or(LockReply::NotHeld)))
    }

    /// Fails with `LocksLost` if a session has lost the locks under which a change was made.
    pub(crate) fn check_life(&self, sender: Sender<'_>) -> Result<()> {
        match sender.life {
            Some(life) if life != self.life(sender.session) => Err(Error::LocksLost(self.id)),
            _ => Ok(()),
        }
    }

    /// Fails unless a user may open a file so that it can be locked. Linux takes a descriptor.
    fn check_locking(&self, caller: Caller<'_>, id: FileId, ask: &LockAsk) -> Result<()> {
        let locks = match ask {
            LockAsk::Set(lock, _) => std::slice::from_ref(lock),
            LockAsk::Restore(locks) => locks,
            LockAsk::Test(_)
            | LockAsk::Cancel(_)
            | LockAsk::Unlock(..)
            | LockAsk::MayBeClosed(_) => &[],
        };
        // A machine has checked its users when they opened the file.
        if caller.user().is_none_or(|who| who.uid == MACHINE) {
            return Ok(());
        }
        let may = |wanted| self.tablet.check_open(caller, id, wanted);
        let has = |kind, mode| {
            locks.iter().any(|lock: &FileLock| (lock.owner.kind, lock.mode) == (kind, mode))
        };
        if has(LockKind::Range, LockMode::Exclusive) {
            may(Wanted::WRITE)?;
        }
        if has(LockKind::Range, LockMode::Shared) {
            may(Wanted::READ)?;
        }
        if locks.iter().any(|lock| lock.owner.kind == LockKind::Whole) {
            may(Wanted::READ).or_else(|_| may(Wanted::WRITE))?;
        }
        Ok(())
    }

    /// Returns the locks of a session that may be set now. If there are none, waits for one, but not
    /// longer than this.
    pub(crate) fn await_locks(&self, session: SessionId, limit: Duration) -> Response {
        self.sessions.note(session);
        let deadline = Instant::now() + limit;
        let mut locks = self.sessions.locks.locks.lock();
        let mut since = 0;
        loop {
            let turns = locks.turns(session, since, self.sessions.now());
            since = locks.changes();
            if !turns.is_empty() {
                return Response::Turns(turns);
            }
            if self.sessions.locks.changed.wait_until(&mut locks, deadline).timed_out() {
                return Response::Turns(Vec::new());
            }
        }
    }
}

/// Returns what is asked, for a user only in that user's name.
fn claimed(caller: Caller<'_>, ask: &LockAsk) -> LockAsk {
    let mut ask = ask.clone();
    let Some(who) = caller.user().filter(|who| !who.is_root()) else { return ask };
    match &mut ask {
        LockAsk::Test(lock) | LockAsk::Set(lock, _) | LockAsk::Cancel(lock) => lock.uid = who.uid,
        LockAsk::Restore(locks) => locks.iter_mut().for_each(|lock| lock.uid = who.uid),
        LockAsk::Unlock(..) | LockAsk::MayBeClosed(_) => {}
    }
    ask
}

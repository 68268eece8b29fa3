//! A cut: the tables of all servers at one moment. Server 0 makes it, in rounds of messages to all:
//!
//! | round | a server |
//! | --- | --- |
//! | begin | answers: nothing is paused if one does not run |
//! | pause | begins no more changes of clients, and no hand-over; answers once those that run have ended |
//! | rest | answers once nothing of intents and hand-overs is unfinished |
//! | freeze | marks its table, in memory |
//! | resume | begins changes again |
//! | keep | writes what it had at the mark to storage, and makes a checkpoint of it |
//!
//! A round begins once all servers have done the one before. Requests of servers go on all the time, so
//! changes that run come to their end. The pause lasts for four rounds, without a write of a memtable.
//!
//! **Rules.** A server keeps to one cut, the latest: an earlier one is refused. A pause ends by itself
//! after [`PAUSE_MAX`], and takes the cut with it: later rounds of it are refused. Whoever opens a table
//! knows of no pause, so it refuses all rounds, too. A cut has failed if a server refuses one. It exists
//! once server 0 has recorded the checkpoints for good (`snapshots`).
//!
//! **Why that is one moment.** Let each server have kept its part of a cut.
//!
//! 1. *All were paused and at rest at once.* The first server freezes once all have paused, and all were
//!    at rest after that. None of them has ended its pause before it froze: it would have refused. None
//!    has lost its table before it made its checkpoint: the commit of that would have failed. So at some
//!    moment all are paused and at rest, and each freezes after it, without a change of a client in
//!    between.
//! 2. *Answered changes are in.* If a change was answered before another one began, and the latter is in
//!    the cut, it was executed before that moment. So the former was, too, and it is in.
//! 3. *A change of several servers is in everywhere or nowhere.* One that was decided before that moment
//!    has ended at all its servers by then. One that is decided later is decided by a server that was
//!    resumed, so all have frozen; or by a later owner of a table. That one opened the table after the
//!    checkpoint was made, so again all have frozen before; or before it, and then the checkpoint fails.
//! 4. *Each name is on one server.* What was given before that moment is held by its receiver by then, and
//!    a giver begins no hand-over while it is paused. (It would not do to look at each server when it
//!    freezes: a receiver may freeze, and then get what its giver has given before that one freezes.)
//!
//! 5. *Shares of limits fit together.* The authority changes them for changes of clients, when limits are
//!    set, and in reviews; all three count as changes that run. So no message of it is under way.
//! 6. *No server is missing.* The list of tables is read before the first round, and again at rest. A
//!    server that was added after that has nothing at that moment: whatever it gets comes from a change
//!    or a hand-over of another one, and these are paused.
//!
//! Clocks decide how long others wait, and nothing else. Leaving out a rule makes a test fail
//! (`tests/cuts`).

pub(crate) mod coordinator;

use crate::error::Result;
use crate::server::Server;
use canopy_store::Mark;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Time after which a pause ends by itself.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(3);

/// Time until a change that waits looks whether the pause has ended by itself.
const LOOK: Duration = Duration::from_millis(20);

/// An attempt to make a cut. Later ones are greater.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct CutId {
    /// Epoch of the table of server 0.
    pub epoch: u64,
    /// Counts attempts in this epoch.
    pub number: u64,
}

/// A round of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutMessage {
    /// Does nothing.
    Begin,
    /// Begins no more changes of clients.
    Pause,
    /// Returns whether nothing is unfinished.
    Rest,
    /// Marks the table, for a checkpoint that goes after some time unless it is kept.
    Freeze {
        /// Milliseconds from the making of the checkpoint on.
        lifetime_ms: u64,
    },
    /// Begins changes again.
    Resume,
    /// Makes the checkpoint.
    Keep,
    /// Ends the attempt.
    Abandon,
}

/// A server's reply to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutReply {
    /// It is done.
    Done,
    /// Something runs. The same is asked again.
    NotYet,
    /// The cut has failed.
    Refused,
    /// The checkpoint.
    Checkpoint(u64),
}

/// State of cuts at a server.
#[derive(Default)]
pub(crate) struct Cuts {
    /// Number of changes of clients that run.
    running: AtomicU64,
    /// Whether none is to begin. It is set with `state` locked.
    is_paused: AtomicBool,
    state: Mutex<State>,
    resumed: Condvar,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    /// The latest cut that has ended here.
    ended: CutId,
}

struct Current {
    id: CutId,
    /// End of the pause.
    deadline: Duration,
    stage: Stage,
}

enum Stage {
    Paused,
    Frozen(Mark),
    Resumed(Mark),
}

/// A change of a client that runs until this is dropped.
pub(crate) struct RunningChange<'a>(&'a Cuts);

impl Drop for RunningChange<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Cuts {
    /// Begins a change of a client. Waits for the end of a pause.
    pub(crate) fn begin_change(&self, now: impl Fn() -> Duration) -> RunningChange<'_> {
        loop {
            // In this order: a pause first says so, and then looks at those that run.
            self.running.fetch_add(1, Ordering::SeqCst);
            let running = RunningChange(self);
            if !self.is_paused() {
                return running;
            }
            drop(running);
            let mut state = self.state.lock();
            self.expire(&mut state, now());
            while self.is_paused() {
                self.resumed.wait_for(&mut state, LOOK);
                self.expire(&mut state, now());
            }
        }
    }

    /// Begins a change that nobody waits for, unless changes are paused.
    pub(crate) fn try_begin_change(&self) -> Option<RunningChange<'_>> {
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = RunningChange(self);
        (!self.is_paused()).then_some(running)
    }

    /// Returns whether no change of a client and no hand-over is to begin.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::SeqCst)
    }

    /// Ends a pause whose time is over.
    pub(crate) fn end_old_pause(&self, now: Duration) {
        if self.is_paused() {
            self.expire(&mut self.state.lock(), now);
        }
    }

    fn expire(&self, state: &mut State, now: Duration) {
        let is_over = |current: &Current| {
            !matches!(current.stage, Stage::Resumed(_)) && now >= current.deadline
        };
        if let Some(current) = &state.current
            && is_over(current)
        {
            self.end(state, current.id);
        }
    }

    /// Ends a cut, and what came before it.
    fn end(&self, state: &mut State, id: CutId) {
        state.ended = state.ended.max(id);
        if state.current.as_ref().is_some_and(|current| current.id <= id) {
            state.current = None;
            self.resume(state);
        }
    }

    /// Has changes begin again; `_state` is locked.
    fn resume(&self, _state: &mut State) {
        self.is_paused.store(false, Ordering::SeqCst);
        self.resumed.notify_all();
    }

    fn pause(&self, id: CutId, now: Duration) -> CutReply {
        let mut state = self.state.lock();
        self.expire(&mut state, now);
        let current = state.current.as_ref().map(|current| current.id);
        if id <= state.ended || current.is_some_and(|current| current > id) {
            return CutReply::Refused;
        }
        if current != Some(id) {
            let deadline = now + PAUSE_MAX;
            state.current = Some(Current { id, deadline, stage: Stage::Paused });
            self.is_paused.store(true, Ordering::SeqCst);
        }
        match self.running.load(Ordering::SeqCst) {
            0 => CutReply::Done,
            _ => CutReply::NotYet,
        }
    }

    /// Answers whether all is at rest in the pause of a cut: `Done` if nothing runs or is unfinished,
    /// and `Refused` if the pause has ended.
    fn rest(&self, id: CutId, now: Duration, is_still: impl FnOnce() -> bool) -> CutReply {
        let mut state = self.state.lock();
        self.expire(&mut state, now);
        let current = state.current.as_ref().filter(|current| current.id == id);
        match current.map(|current| &current.stage) {
            Some(Stage::Paused) if self.running.load(Ordering::SeqCst) > 0 => CutReply::NotYet,
            Some(Stage::Paused) if !is_still() => CutReply::NotYet,
            Some(Stage::Paused) => CutReply::Done,
            Some(Stage::Frozen(_) | Stage::Resumed(_)) | None => CutReply::Refused,
        }
    }

    /// Marks the table with `mark`.
    fn freeze(
        &self,
        id: CutId,
        now: Duration,
        mark: impl FnOnce() -> Result<Mark>,
    ) -> Result<CutReply> {
        let mut state = self.state.lock();
        self.expire(&mut state, now);
        let Some(current) = state.current.as_mut().filter(|current| current.id == id) else {
            return Ok(CutReply::Refused);
        };
        match &current.stage {
            Stage::Paused => {
                current.stage = Stage::Frozen(mark()?);
                Ok(CutReply::Done)
            }
            Stage::Frozen(_) => Ok(CutReply::Done),
            Stage::Resumed(_) => Ok(CutReply::Refused),
        }
    }

    fn resume_after(&self, id: CutId, now: Duration) -> CutReply {
        let mut state = self.state.lock();
        self.expire(&mut state, now);
        let current = state.current.take_if(|current| current.id == id);
        let Some(current) = current else { return CutReply::Refused };
        let (stage, reply) = match current.stage {
            Stage::Frozen(mark) | Stage::Resumed(mark) => (Stage::Resumed(mark), CutReply::Done),
            Stage::Paused => {
                state.ended = state.ended.max(id);
                self.resume(&mut state);
                return CutReply::Refused;
            }
        };
        state.current = Some(Current { stage, ..current });
        self.resume(&mut state);
        reply
    }

    /// Returns the mark of a cut after which changes have begun again.
    fn mark_of(&self, id: CutId) -> Option<Mark> {
        let state = self.state.lock();
        let current = state.current.as_ref().filter(|current| current.id == id)?;
        match &current.stage {
            Stage::Resumed(mark) => Some(mark.clone()),
            Stage::Paused | Stage::Frozen(_) => None,
        }
    }
}

impl Server {
    /// Does its part of a round.
    pub(crate) fn answer_cut(&self, id: CutId, step: CutMessage) -> Result<CutReply> {
        let now = self.sessions.now();
        match step {
            CutMessage::Begin => Ok(CutReply::Done),
            CutMessage::Pause => Ok(self.cuts.pause(id, now)),
            CutMessage::Rest => Ok(self.cuts.rest(id, now, || self.is_still())),
            CutMessage::Freeze { lifetime_ms } => {
                self.cuts.freeze(id, now, || Ok(self.tablet.mark(lifetime_ms)?))
            }
            CutMessage::Resume => Ok(self.cuts.resume_after(id, now)),
            CutMessage::Keep => match self.cuts.mark_of(id) {
                Some(mark) => Ok(CutReply::Checkpoint(self.tablet.table().flush_mark(&mark)?)),
                None => Ok(CutReply::Refused),
            },
            CutMessage::Abandon => {
                self.cuts.end(&mut self.cuts.state.lock(), id);
                Ok(CutReply::Done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    fn id(number: u64) -> CutId {
        CutId { epoch: 1, number }
    }

    #[test]
    fn a_pause_waits_for_changes_and_changes_wait_for_its_end() {
        let cuts = Cuts::default();
        let now = || Duration::ZERO;
        let running = cuts.begin_change(now);
        assert_eq!(cuts.pause(id(1), now()), CutReply::NotYet);
        drop(running);
        assert_eq!(cuts.pause(id(1), now()), CutReply::Done);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(cuts.begin_change(now)));
            std::thread::sleep(5 * SOON);
            assert!(!waiting.is_finished());
            // Nothing was frozen, so that is the end of the cut.
            assert_eq!(cuts.resume_after(id(1), now()), CutReply::Refused);
        });
        assert_eq!(cuts.pause(id(1), now()), CutReply::Refused, "a message that came late");
    }

    #[test]
    fn a_pause_that_ended_by_itself_takes_the_cut_with_it() {
        let cuts = Cuts::default();
        assert_eq!(cuts.pause(id(1), Duration::ZERO), CutReply::Done);
        drop(cuts.begin_change(|| PAUSE_MAX));
        let freeze = cuts.freeze(id(1), SOON, || panic!("it is not paused"));
        assert_eq!(freeze.unwrap(), CutReply::Refused);
        assert_eq!(cuts.resume_after(id(1), SOON), CutReply::Refused);
        assert!(cuts.mark_of(id(1)).is_none() && !cuts.is_paused());
    }

    #[test]
    fn a_later_cut_replaces_an_earlier_one() {
        let cuts = Cuts::default();
        assert_eq!(cuts.pause(id(1), SOON), CutReply::Done);
        assert_eq!(cuts.pause(id(2), SOON), CutReply::Done);
        assert_eq!(cuts.pause(id(1), SOON), CutReply::Refused);
        cuts.end(&mut cuts.state.lock(), id(1));
        assert!(cuts.is_paused(), "the end of the earlier one");
        cuts.end(&mut cuts.state.lock(), id(2));
        assert!(!cuts.is_paused());
    }
}

//! A participant: it checks and prepares its part of a change, and makes or drops it. Nothing here
//! asks another server.

use crate::error::{Error, Result};
use crate::intents::{LockKey, Part, PreparedPart, Seen, Sending, Stage, prepared};
use crate::message::{IntentReply, IntentStep};
use crate::server::Server;
use canopy_namespace::operation::Caller;
use canopy_namespace::{ExecutedRecord, FileId, Inode};
use canopy_partition::{Age, IntentId, Locked, Preparation, ServerId, Verdict};
use rustix::io::Errno;
use std::time::Duration;

/// Outcome of an attempt to lock.
pub(crate) enum Lock {
    /// All is locked.
    Granted,
    /// Somebody has it: another intent, or a hand-over.
    Wait(Option<IntentId>),
    /// An older change has it.
    GiveUp(IntentId),
}

impl Server {
    /// Answers a message about an intent.
    pub(crate) fn answer_intent(
        &self,
        intent: IntentId,
        step: &IntentStep<'_>,
    ) -> Result<IntentReply> {
        match step {
            IntentStep::Prepare { age, who, part, executed, has } => {
                if has.0 == self.epoch() {
                    self.sent_records.note(intent.decider, has.1);
                }
                let caller = who.as_deref().map_or(Caller::Trusted, Caller::User);
                self.prepare(intent, (*age, executed), caller, part)
            }
            IntentStep::Executed(records) => {
                self.take_ahead(records)?;
                Ok(IntentReply::Ended(true))
            }
            IntentStep::Ask { participant, preparation } => {
                Ok(IntentReply::Verdict(self.verdict(intent, *participant, *preparation)))
            }
            IntentStep::Commit(preparation) => {
                let has_ended = self.finish(intent, *preparation, true)?;
                let notices = self.tablet.notices();
                Ok(match notices.is_empty() {
                    true => IntentReply::Ended(has_ended),
                    false => IntentReply::Freed(has_ended, notices),
                })
            }
            IntentStep::Abort => {
                let preparation = self.state.read().intents.preparations.of(intent);
                preparation.map_or(Ok(true), |prepared| self.finish(intent, prepared, false))?;
                Ok(IntentReply::Ended(true))
            }
            IntentStep::Above { directory, age } => self.above(intent, *directory, *age),
            IntentStep::Peek(id) => self.peek(*id).map(|inode| IntentReply::Inode(Box::new(inode))),
        }
    }

    /// Returns a directory whose content half is here.
    fn peek(&self, id: FileId) -> Result<Inode> {
        let inode = self.tablet.inode(id)?;
        match inode.nlink > 0 {
            true => Ok(inode),
            false => Err(canopy_namespace::Error::from(Errno::NOENT).into()),
        }
    }

    /// Returns the directory above one whose home is here.
    fn above(&self, intent: IntentId, directory: FileId, age: Age) -> Result<IntentReply> {
        let state = self.state.read();
        let is_it = |key: &LockKey| *key == LockKey::File(directory);
        Ok(match state.intents.locks.test(is_it, intent, age) {
            Locked::Granted => IntentReply::Above(self.tablet.parent(directory)?),
            Locked::Wait(_) => IntentReply::Wait,
            Locked::GiveUp(_) => IntentReply::GiveUp,
        })
    }

    /// Locks names that are here, and files.
    pub(crate) fn lock(&self, intent: IntentId, age: Age, keys: &[LockKey]) -> Result<Lock> {
        let mut state = self.state.write();
        for key in keys {
            match *key {
                LockKey::Name(directory, hash) => {
                    self.check_held(&state, directory, hash)?;
                    if state.is_moving(directory, hash) {
                        return Ok(Lock::Wait(None));
                    }
                }
                LockKey::Directory(directory) if !state.is_at_rest(directory) => {
                    return Ok(Lock::Wait(None));
                }
                _ => {}
            }
        }
        state.intents.learn_time(age);
        Ok(match state.intents.lock(keys, intent, age) {
            Locked::Granted => Lock::Granted,
            Locked::Wait(by) => Lock::Wait(Some(by)),
            Locked::GiveUp(by) => Lock::GiveUp(by),
        })
    }

    /// Gives back what an intent has locked.
    pub(crate) fn unlock(&self, intent: IntentId) {
        self.state.write().intents.locks.unlock(intent);
        self.notify();
    }

    /// Locks and checks a part, and records it for good.
    fn prepare(
        &self,
        intent: IntentId,
        (age, executed): (Age, &[ExecutedRecord]),
        caller: Caller<'_>,
        part: &Part,
    ) -> Result<IntentReply> {
        let is_known = self.state.read().intents.preparations.of(intent).is_some();
        // A message that came twice: its decider waits for the first reply, or has given up.
        if is_known || !self.state.write().intents.preparing.insert(intent) {
            return Ok(IntentReply::GiveUp);
        }
        let reply = self.prepare_locked(intent, (age, executed), caller, part);
        if self.state.read().intents.preparations.of(intent).is_none() {
            self.unlock(intent);
            self.sent_records.end(intent, false);
        }
        self.state.write().intents.preparing.remove(&intent);
        reply
    }

    fn prepare_locked(
        &self,
        intent: IntentId,
        (age, executed): (Age, &[ExecutedRecord]),
        caller: Caller<'_>,
        part: &Part,
    ) -> Result<IntentReply> {
        let mut keys = vec![part.key()];
        if let Some(reply) = refused(&self.lock(intent, age, &keys)?) {
            return Ok(reply);
        }
        let files = part.files(&self.tablet)?;
        if !files.is_empty() {
            keys.extend(files);
            if let Some(reply) = refused(&self.lock(intent, age, &keys)?) {
                return Ok(reply);
            }
        }
        if let Some(id) = part.brings()
            && !self.clear_copies(id)?
        {
            return Ok(IntentReply::Wait);
        }
        let checked = part.check(self, caller)?;
        if !checked.seen.is_prepared() {
            return Ok(IntentReply::Seen(checked.seen));
        }
        let own = match checked.gives {
            Some(_) => match self.executed_to_send(intent.decider, intent)? {
                Sending::With(records) => records,
                Sending::Ahead(page) => {
                    let now = (self.epoch(), page.count);
                    return Ok(IntentReply::Executed(page.records, now));
                }
            },
            None => Vec::new(),
        };
        let preparation = {
            let intents = &mut self.state.write().intents;
            intents.prepared += 1;
            Preparation { epoch: intents.epoch, number: intents.prepared }
        };
        let part = PreparedPart {
            preparation,
            age,
            keys,
            effects: checked.effects,
            counts: checked.counts,
            takes: checked.takes,
            gives: checked.gives,
            executed: executed.to_vec(),
        };
        self.tablet.make(&[], &[prepared(intent, Some(&part))], None)?;
        {
            let intents = &mut self.state.write().intents;
            intents.preparations.prepare(intent, preparation);
            intents.parts.insert(intent, part);
        }
        // If this fails, the record may be in storage or not. So the part stays in doubt, as after a
        // crash: without its locks, another part could get into storage with the same ones.
        self.tablet.table().sync()?;
        Ok(IntentReply::Prepared(preparation, checked.seen, own))
    }

    /// Makes a part that was decided, or drops it. Returns whether it has ended, by what this owner of
    /// the table can know. Then it outlasts a crash.
    pub(crate) fn finish(
        &self,
        intent: IntentId,
        preparation: Preparation,
        is_committed: bool,
    ) -> Result<bool> {
        let epoch = self.end_part(intent, preparation, is_committed)?;
        if is_committed {
            self.tablet.table().sync()?;
        }
        Ok(preparation.was_ended(epoch))
    }

    fn end_part(
        &self,
        intent: IntentId,
        preparation: Preparation,
        is_committed: bool,
    ) -> Result<u64> {
        // Each part is made once, whoever learns of the decision first.
        let _one = self.ending.lock();
        let (epoch, part) = {
            let intents = &self.state.read().intents;
            (intents.epoch, intents.parts.get(&intent).cloned())
        };
        let Some(part) = part.filter(|part| part.preparation == preparation) else {
            return Ok(epoch);
        };
        let effects = if is_committed { &part.effects[..] } else { &[] };
        if is_committed {
            // First: the file stays, whoever takes its name away.
            self.take_holds(&part.takes)?;
            self.take_records(&part.executed)?;
        }
        self.tablet.make(effects, &[prepared(intent, None)], None)?;
        {
            let mut state = self.state.write();
            state.changes += u64::from(is_committed);
            state.forget_directories(effects);
            state.intents.preparations.end(intent, preparation);
            state.intents.parts.remove(&intent);
            state.intents.locks.unlock(intent);
        }
        self.sent_records.end(intent, is_committed);
        self.notify();
        if is_committed {
            self.give_holds(&part.gives.into_iter().collect())?;
            self.count_all(&part.counts)?;
        }
        Ok(epoch)
    }

    /// Counts names that partitions have got or lost.
    pub(crate) fn count_all(&self, counts: &[(FileId, u64, i64)]) -> Result<()> {
        for (directory, hash, by) in counts {
            self.count(*directory, *hash, *by)?;
        }
        Ok(())
    }

    /// Returns the fate of a preparation of another server. Waits for a decision that is being
    /// written.
    fn verdict(
        &self,
        intent: IntentId,
        participant: ServerId,
        preparation: Preparation,
    ) -> Verdict {
        loop {
            {
                let intents = &self.state.read().intents;
                let stage = intents.stage(intent);
                if stage != Some(Stage::Deciding) {
                    let is_running = stage.is_some();
                    let epoch = intents.epoch;
                    return intents.decisions.answer(
                        intent,
                        participant,
                        preparation,
                        epoch,
                        is_running,
                    );
                }
            }
            self.pause(Duration::from_millis(1));
        }
    }
}

/// Returns the reply to a part that was not locked.
fn refused(lock: &Lock) -> Option<IntentReply> {
    match lock {
        Lock::Granted => None,
        Lock::Wait(_) => Some(IntentReply::Wait),
        Lock::GiveUp(_) => Some(IntentReply::GiveUp),
    }
}

/// Returns the error of the system that a refusal is, which may be reported later; other errors end a
/// change at once.
pub(crate) fn refusal_of(checked: canopy_namespace::Result<()>) -> Result<Option<i32>> {
    match checked {
        Ok(()) => Ok(None),
        Err(canopy_namespace::Error::Posix(errno)) => Ok(Some(errno.raw_os_error())),
        Err(error) => Err(Error::Namespace(error)),
    }
}

impl Seen {
    /// Returns the inode that a home has found, and why a directory cannot be moved to another one.
    pub(crate) fn inode(self) -> Result<(Inode, Option<i32>)> {
        match self {
            Seen::Inode(inode, refusal) => Ok((*inode, refusal)),
            _ => Err(Error::Unfit),
        }
    }
}

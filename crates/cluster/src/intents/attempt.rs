//! One try to make a change: its server has all parts prepared, decides, and has them made.

use crate::error::{Error, Result};
use crate::intents::participant::Lock;
use crate::intents::{Holds, IntentPart, LockKey, PARTS, PartOutcome, Stage, decided};
use crate::message::{IntentMessage, IntentReply, Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::operation::Caller;
use canopy_namespace::{Effect, ExecutedRecord, FileId, Inode, OwnedName, Reply};
use canopy_partition::{Age, IntentId, Preparation, ServerId};
use rustix::io::Errno;
use std::borrow::Cow;
use std::time::Duration;

/// Time until something is tried again: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// A change does not wait longer than this for others.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Waits of a change, each longer than the one before.
pub(crate) struct Backoff {
    next: Duration,
    /// The moment of the first one.
    since: Option<Duration>,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff { next: PAUSE_MIN, since: None }
    }

    /// Fails if the change has waited for too long, or if the table has ended: another process has
    /// it, say, so nothing that waits here ends any more.
    pub(crate) fn check(&mut self, server: &Server, intent: IntentId) -> Result<()> {
        let table = server.tablet.table();
        if table.has_ended() {
            table.sync()?;
        }
        let now = server.now();
        let since = *self.since.get_or_insert(now);
        match now.saturating_sub(since) >= WAIT_MAX {
            true => Err(Error::InDoubt(intent)),
            false => Ok(()),
        }
    }

    /// Waits until something may have ended. Fails if that has lasted too long: a server is dead, say,
    /// and what it has decided is not known.
    pub(crate) fn pause(&mut self, server: &Server, intent: IntentId) -> Result<()> {
        self.check(server, intent)?;
        server.pause(self.next);
        self.next = (self.next * 2).min(PAUSE_MAX);
        Ok(())
    }
}

/// End of a try.
pub(crate) enum AttemptError {
    /// The change begins again: an older one has something that it needs.
    Restart,
    /// The change fails.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for AttemptError {
    fn from(error: E) -> Self {
        AttemptError::Failed(error.into())
    }
}

/// Outcome of a try that found all parts to be possible.
pub(crate) enum Outcome<T> {
    /// The change is to happen.
    Decide(T),
    /// There is nothing to change.
    Nothing(T),
}

/// A try that runs.
pub(crate) struct ChangeAttempt<'a> {
    pub(crate) server: &'a Server,
    pub(crate) caller: Caller<'a>,
    peers: &'a dyn Peers,
    age: Age,
    number: u64,
    /// Numbers of the parts so far, this server's own one included.
    count: u64,
    /// Effects here.
    pub(crate) effects: Vec<Effect>,
    /// By how many names partitions here change.
    pub(crate) counts: Vec<(FileId, u64, i64)>,
    /// The file that leaves, and holds of one that arrives in exchange.
    pub(crate) gives: Option<FileId>,
    pub(crate) takes: Holds,
    /// Whether the last part was one of this server.
    pub(crate) is_own: bool,
    /// The reply to the client, which is recorded with the decision.
    pub(crate) reply: Option<Reply>,
    /// Executed changes of the server of a file that arrives in exchange.
    executed: Vec<ExecutedRecord>,
    participants: Vec<(IntentId, ServerId, Preparation)>,
    /// Parts that may be prepared.
    asked: Vec<(IntentId, ServerId)>,
}

/// Tries a change until it is made, or fails.
pub(crate) fn run<T>(
    server: &Server,
    peers: &dyn Peers,
    caller: Caller<'_>,
    make: impl Fn(&mut ChangeAttempt<'_>) -> std::result::Result<Outcome<T>, AttemptError>,
) -> Result<T> {
    let mut waits = Backoff::new();
    let mut age = None;
    loop {
        let mut attempt = ChangeAttempt::begin(server, peers, caller, age);
        age = Some(attempt.age);
        match make(&mut attempt) {
            Ok(Outcome::Decide(value)) => return attempt.decide().map(|()| value),
            Ok(Outcome::Nothing(value)) => {
                attempt.abort();
                return Ok(value);
            }
            Err(AttemptError::Failed(error)) => {
                attempt.abort();
                return Err(error);
            }
            Err(AttemptError::Restart) => attempt.abort(),
        }
        waits.pause(server, attempt.intent(0))?;
    }
}

impl<'a> ChangeAttempt<'a> {
    fn begin(
        server: &'a Server,
        peers: &'a dyn Peers,
        caller: Caller<'a>,
        age: Option<Age>,
    ) -> Self {
        let intents = &mut server.state.write().intents;
        intents.changes += 1;
        let number = intents.changes;
        intents.time += u64::from(age.is_none());
        let new = Age { time: intents.time, server: server.id, number };
        intents.running.insert(number, Stage::Running);
        ChangeAttempt {
            server,
            caller,
            peers,
            age: age.unwrap_or(new),
            number,
            count: 0,
            effects: Vec::new(),
            counts: Vec::new(),
            gives: None,
            takes: Vec::new(),
            is_own: false,
            reply: None,
            executed: Vec::new(),
            participants: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// Returns the intent of a part.
    fn intent(&self, part: u64) -> IntentId {
        let epoch = self.server.state.read().intents.epoch;
        IntentId { decider: self.server.id, epoch, number: self.number * PARTS + part }
    }

    /// Locks names and files here.
    pub(crate) fn lock(&self, keys: &[LockKey]) -> std::result::Result<(), AttemptError> {
        let mut waits = Backoff::new();
        loop {
            let by = match self.server.lock(self.intent(0), self.age, keys)? {
                Lock::Granted => return Ok(()),
                Lock::Wait(by) => by,
                Lock::GiveUp(by) => {
                    self.server.resolve(self.peers, by)?;
                    return Err(AttemptError::Restart);
                }
            };
            if let Some(by) = by {
                self.server.resolve(self.peers, by)?;
            }
            waits.pause(self.server, by.unwrap_or(self.intent(0)))?;
        }
    }

    /// Has a server check and prepare a part.
    pub(crate) fn part(
        &mut self,
        server: ServerId,
        part: &IntentPart,
    ) -> std::result::Result<PartOutcome, AttemptError> {
        self.is_own = server == self.server.id;
        if self.is_own {
            return self.own_part(part);
        }
        self.count += 1;
        if self.count >= PARTS {
            return Err(Error::Unfit.into());
        }
        let intent = self.intent(self.count);
        let executed = match part.brings() {
            Some(_) => self.server.executed_for(self.peers, server, intent, self.reply.as_ref())?,
            None => Vec::new(),
        };
        let (mut waits, mut has) = (Backoff::new(), (0, 0));
        loop {
            let step = IntentMessage::Prepare {
                age: self.age,
                who: self.caller.user().map(Cow::Borrowed),
                part: Cow::Borrowed(part),
                executed: executed.clone(),
                has,
            };
            let reply = self.server.send(self.peers, server, intent, step);
            if matches!(reply, Err(Error::Unreachable { .. } | Error::NotRunning(_))) {
                self.asked.push((intent, server));
            }
            match reply? {
                IntentReply::Prepared(preparation, seen, executed) => {
                    self.executed.extend(executed);
                    self.participants.push((intent, server, preparation));
                    return Ok(seen);
                }
                IntentReply::Checked(seen) => return Ok(seen),
                IntentReply::GiveUp => return Err(AttemptError::Restart),
                IntentReply::Executed(records, now) => {
                    self.server.take_ahead(&records)?;
                    has = now;
                    continue;
                }
                IntentReply::Wait => {}
                _ => return Err(Error::Unfit.into()),
            }
            waits.pause(self.server, intent)?;
        }
    }

    /// Checks a part of this server. It is made by the batch of the decision.
    fn own_part(&mut self, part: &IntentPart) -> std::result::Result<PartOutcome, AttemptError> {
        self.lock(&[part.key()])?;
        self.lock(&part.files(&self.server.tablet)?)?;
        let checked = part.check(self.server, self.caller)?;
        self.effects.extend(checked.effects);
        self.counts.extend(checked.counts);
        Ok(checked.seen)
    }

    /// Has the server of a name check and prepare a part, wherever that is.
    pub(crate) fn part_at_name(
        &mut self,
        name: &OwnedName,
        part: &IntentPart,
    ) -> std::result::Result<PartOutcome, AttemptError> {
        let directory = name.directory;
        let hash = name.borrowed().hash();
        let mut waits = Backoff::new();
        loop {
            let known = self.server.find(directory, hash)?;
            match self.part(known.1, part) {
                Err(AttemptError::Failed(Error::WrongServer { partitions, .. })) => {
                    self.count -= u64::from(self.count > 0);
                    self.server.learn(directory, partitions);
                }
                outcome => return outcome,
            }
            if self.server.find(directory, hash)? == known {
                // It is about to hold the name, or there is no such directory.
                if !self.peek(directory)?.is_directory() {
                    return Err(canopy_namespace::Error::from(Errno::NOTDIR).into());
                }
                waits.pause(self.server, self.intent(0))?;
            }
        }
    }

    /// Returns a directory, or a file with several names, from its home.
    pub(crate) fn peek(&self, id: FileId) -> Result<Inode> {
        let home = self.server.layout.home(id)?;
        match self.server.send(self.peers, home, self.intent(0), IntentMessage::Peek(id))? {
            IntentReply::Inode(inode) => Ok(*inode),
            _ => Err(Error::Unfit),
        }
    }

    /// Returns the directory above one, from its home, once all earlier moves are known there.
    pub(crate) fn above(&self, directory: FileId) -> std::result::Result<FileId, AttemptError> {
        let home = self.server.layout.home(directory)?;
        let mut waits = Backoff::new();
        loop {
            let step = IntentMessage::Above { directory, age: self.age };
            match self.server.send(self.peers, home, self.intent(0), step)? {
                IntentReply::Above(directory) => return Ok(directory),
                IntentReply::Wait => waits.pause(self.server, self.intent(0))?,
                IntentReply::GiveUp => return Err(AttemptError::Restart),
                _ => return Err(Error::Unfit.into()),
            }
        }
    }

    /// Makes the change: all of it is seen from now on. Then has the participants make their parts; one
    /// that cannot be reached asks by itself, or is asked again.
    fn decide(mut self) -> Result<()> {
        self.server.state.write().intents.running.insert(self.number, Stage::Deciding);
        let records = self.participants.iter().map(|(intent, server, preparation)| {
            decided(*intent, Some(&[(*server, *preparation)].into()))
        });
        let tablet = &self.server.tablet;
        self.server.take_holds(&self.takes)?;
        self.server.take_records(&self.executed)?;
        let made = tablet.make(&self.effects, &Vec::from_iter(records), self.reply.as_ref());
        if let Err(error) = made {
            // A write that fails once it is visible fails the table with it, for good. Otherwise
            // nothing was written.
            let sync = self.server.tablet.table().sync();
            if matches!(sync, Ok(()) | Err(canopy_store::Error::Deferred { .. })) {
                self.abort();
            }
            return Err(error.into());
        }
        let participants = std::mem::take(&mut self.participants);
        {
            let intents = &mut self.server.state.write().intents;
            intents.unsure.insert(self.number, participants.clone());
            intents.effects.insert(self.number, std::mem::take(&mut self.effects));
        }
        self.server.make_sure(self.number)?;
        self.server.give_holds(&self.gives.into_iter().collect())?;
        self.server.count_all(&self.counts)?;
        for (intent, participant, preparation) in participants {
            // If this fails, it is done again beside requests.
            let _ = self.server.pass_on(self.peers, intent, participant, preparation);
        }
        Ok(())
    }

    /// Ends the try: nothing was changed, and nothing will be.
    fn abort(&mut self) {
        {
            let intent = self.intent(0);
            let intents = &mut self.server.state.write().intents;
            intents.running.remove(&self.number);
            intents.locks.unlock(intent);
        }
        self.server.notify();
        // One more was sent, perhaps, to a server that does not hold the name.
        (1..=self.count + 1)
            .for_each(|part| self.server.sent_records.end(self.intent(part), false));
        let prepared = self.participants.iter().map(|(intent, server, _)| (*intent, *server));
        for (intent, server) in prepared.chain(self.asked.iter().copied()) {
            // If this fails, the participant asks by itself.
            let _ = self.server.send(self.peers, server, intent, IntentMessage::Abort);
        }
    }
}

impl Server {
    /// Sends a message about an intent.
    pub(crate) fn send(
        &self,
        peers: &dyn Peers,
        to: ServerId,
        intent: IntentId,
        step: IntentMessage<'_>,
    ) -> Result<IntentReply> {
        if to == self.id {
            return self.answer_intent(intent, &step);
        }
        let request = Request::OfServer(ServerRequest::Intent(intent, Box::new(step)));
        match peers.ask(to, Sender::SERVER, &request)? {
            Response::Intent(reply) => Ok(reply),
            _ => Err(Error::Unfit),
        }
    }

    /// Makes a decision outlast a crash, and then known.
    pub(crate) fn make_sure(&self, number: u64) -> Result<()> {
        self.tablet.table().sync()?;
        {
            let mut state = self.state.write();
            state.changes += 1;
            let effects = state.intents.effects.remove(&number).unwrap_or_default();
            state.forget_directories(&effects);
            let intents = &mut state.intents;
            for (intent, server, preparation) in intents.unsure.remove(&number).unwrap_or_default()
            {
                intents.decisions.commit(intent, [(server, preparation)].into());
            }
            intents.running.remove(&number);
            let own = IntentId { decider: self.id, epoch: intents.epoch, number: number * PARTS };
            intents.locks.unlock(own);
        }
        self.notify();
        Ok(())
    }

    /// Has a participant make its part. The decision is forgotten once it has.
    pub(crate) fn pass_on(
        &self,
        peers: &dyn Peers,
        intent: IntentId,
        participant: ServerId,
        preparation: Preparation,
    ) -> Result<()> {
        let reply = self.send(peers, participant, intent, IntentMessage::Commit(preparation))?;
        let has_ended = match reply {
            IntentReply::Ended(has_ended) => has_ended,
            IntentReply::Freed(has_ended, notices) => {
                self.quotas.relay(participant, notices);
                has_ended
            }
            _ => false,
        };
        if !has_ended {
            return Ok(());
        }
        self.sent_records.end(intent, true);
        let is_new = self.state.write().intents.decisions.confirm(intent, participant, preparation);
        if is_new {
            self.tablet.make(&[], &[decided(intent, None)], None)?;
        }
        Ok(())
    }
}

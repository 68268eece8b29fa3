//! Changes that concern several servers: what each of them records, and what each decides. One
//! server, the decider, makes the change happen; the others are participants. No third party takes
//! part, and any of them may die at any point.
//!
//! 1. The decider locks its own names ([`Locks`]), and sends each participant its part.
//! 2. A participant locks its names, checks its part and records it ([`Preparations::prepare`]). It is
//!    *prepared*: durable and invisible. Changes of these names wait.
//! 3. Once all are prepared, the decider makes its own part and records the decision, with the
//!    preparations that it is based on ([`Decisions::commit`]). This one batch of its log is the moment
//!    of the change.
//! 4. Participants get to know, make their parts and confirm ([`Preparations::end`]). The decider
//!    repeats this message until they have ([`Decisions::unconfirmed`]). A participant also asks by
//!    itself: when it opens its table, and whenever somebody reads or changes these names
//!    ([`Preparations::unanswered`], [`Decisions::answer`]). So readers see either all of a change or
//!    nothing of it, from the decision on.
//! 5. The decider forgets the decision once all participants have confirmed ([`Decisions::confirm`]).
//!
//! An intent that is neither running nor recorded was aborted: nothing is recorded for it before
//! step 3. Only its decider's owner starts an intent, and no two intents are equal, since owners of a
//! table have different epochs. A participant numbers its preparations. A late message that has it
//! prepare again makes another preparation, which no decision names.
//!
//! Nobody waits in a circle: a change waits only for younger ones, and gives up its locks where it
//! would have to wait for an older one ([`Locks::lock`]). It keeps its age when it is tried again.
//!
//! `tests/intents` explores all of this exhaustively for small cases, with lost, late and repeated
//! messages, and with owners that do not know that they were replaced. Without any of the rules
//! that are named there, a change is lost, made twice or half seen.

use crate::placement::ServerId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One try to make a change. No two tries are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IntentId {
    /// The server that decides.
    pub decider: ServerId,
    /// Epoch of its table: it grows with each owner of the table.
    pub epoch: u64,
    /// Counts the intents of this owner.
    pub number: u64,
}

impl std::fmt::Display for IntentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "intent {} of server {} (epoch {})", self.number, self.decider, self.epoch)
    }
}

/// One time that a participant has recorded its part of an intent. No two of a server are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Preparation {
    /// Epoch of the participant's table.
    pub epoch: u64,
    /// Counts the preparations of this owner.
    pub number: u64,
}

impl Preparation {
    /// Returns whether an owner of this epoch that does not find it recorded may say that it has
    /// ended. Preparations of later owners are unknown to an owner that was replaced.
    pub fn was_ended(self, epoch: u64) -> bool {
        self.epoch <= epoch
    }
}

/// Fate of a preparation, by the word of an owner of the decider's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// The change has happened: the participant makes its part.
    Committed,
    /// Not decided yet.
    Pending,
    /// This preparation is not part of a change, and never will be.
    Aborted,
    /// The intent is that of a later owner, so the one who answers has been replaced.
    Unknown,
}

/// Decisions that participants have not confirmed, as the decider's table records them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Decisions(BTreeMap<IntentId, BTreeMap<ServerId, Preparation>>);

impl Decisions {
    /// All participants are prepared. The change happens with the batch that records this.
    pub fn commit(&mut self, intent: IntentId, participants: BTreeMap<ServerId, Preparation>) {
        if !participants.is_empty() {
            self.0.insert(intent, participants);
        }
    }

    /// Returns the participants that have not confirmed a decision.
    pub fn participants(&self, intent: IntentId) -> Option<&BTreeMap<ServerId, Preparation>> {
        self.0.get(&intent)
    }

    /// Returns the fate of a participant's preparation. `epoch` is that of the owner who answers, who
    /// `is_running` the intent now, or is recording its decision.
    pub fn answer(
        &self,
        intent: IntentId,
        participant: ServerId,
        preparation: Preparation,
        epoch: u64,
        is_running: bool,
    ) -> Verdict {
        let decided = self.0.get(&intent).and_then(|decided| decided.get(&participant));
        match decided {
            Some(decided) if *decided == preparation => Verdict::Committed,
            _ if is_running => Verdict::Pending,
            _ if intent.epoch > epoch => Verdict::Unknown,
            _ => Verdict::Aborted,
        }
    }

    /// Returns what participants have not confirmed. Each owner of the table repeats the decision
    /// until they do.
    pub fn unconfirmed(&self) -> impl Iterator<Item = (IntentId, ServerId, Preparation)> {
        self.0.iter().flat_map(|(intent, participants)| {
            participants.iter().map(|(server, preparation)| (*intent, *server, *preparation))
        })
    }

    /// A participant has made its part. Returns whether that was new. The decision is forgotten with
    /// the last of them.
    pub fn confirm(
        &mut self,
        intent: IntentId,
        participant: ServerId,
        preparation: Preparation,
    ) -> bool {
        let Some(participants) = self.0.get_mut(&intent) else { return false };
        if participants.get(&participant) != Some(&preparation) {
            return false;
        }
        participants.remove(&participant);
        if participants.is_empty() {
            self.0.remove(&intent);
        }
        true
    }
}

impl FromIterator<(IntentId, BTreeMap<ServerId, Preparation>)> for Decisions {
    fn from_iter<I>(records: I) -> Self
    where
        I: IntoIterator<Item = (IntentId, BTreeMap<ServerId, Preparation>)>,
    {
        Decisions(records.into_iter().collect())
    }
}

/// Parts of intents that are recorded and not decided, as a participant's table records them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Preparations(BTreeMap<IntentId, Preparation>);

impl Preparations {
    /// Returns the preparation of an intent.
    pub fn of(&self, intent: IntentId) -> Option<Preparation> {
        self.0.get(&intent).copied()
    }

    /// A part arrives. Returns the preparation that the decider gets to know: the one that is recorded
    /// already, or `fresh`, which has to be recorded.
    pub fn prepare(&mut self, intent: IntentId, fresh: Preparation) -> Preparation {
        *self.0.entry(intent).or_insert(fresh)
    }

    /// A preparation was decided or aborted. Returns whether it is still recorded: only then the part
    /// is made, if it was decided, by the batch that removes the record. If it is not, it was made
    /// before, which the decider gets to know again ([`Preparation::was_ended`]).
    pub fn end(&mut self, intent: IntentId, preparation: Preparation) -> bool {
        let is_recorded = self.of(intent) == Some(preparation);
        if is_recorded {
            self.0.remove(&intent);
        }
        is_recorded
    }

    /// Returns the preparations to ask the owner of the decider's table about.
    pub fn unanswered(&self) -> impl Iterator<Item = (IntentId, Preparation)> {
        self.0.iter().map(|(intent, preparation)| (*intent, *preparation))
    }
}

impl FromIterator<(IntentId, Preparation)> for Preparations {
    fn from_iter<I: IntoIterator<Item = (IntentId, Preparation)>>(records: I) -> Self {
        Preparations(records.into_iter().collect())
    }
}

/// Age of a change, which it keeps through all its tries: the least is the oldest. Times are counted
/// by servers, which learn of later ones from each other's messages. They need not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Age {
    /// Counted by the decider.
    pub time: u64,
    /// The decider.
    pub server: ServerId,
    /// Tells changes of one decider apart that began at one time.
    pub number: u64,
}

/// Answer to a change that wants to lock names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// All are locked.
    Granted,
    /// None was locked. The change keeps what it has, and tries again.
    Wait(IntentId),
    /// None was locked. An older change has one: this one gives all its locks back, and begins again.
    GiveUp(IntentId),
}

/// Names and files that intents have locked on one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Locks<K: Ord>(BTreeMap<K, (IntentId, Age)>);

impl<K: Ord> Default for Locks<K> {
    fn default() -> Self {
        Locks(BTreeMap::new())
    }
}

impl<K: Ord> Locks<K> {
    /// Locks all of these or none. What the intent has locked already stays so.
    pub fn lock(
        &mut self,
        keys: impl IntoIterator<Item = K>,
        intent: IntentId,
        age: Age,
    ) -> Locked {
        let keys = Vec::from_iter(keys);
        let locked = self.test(|key| keys.contains(key), intent, age);
        if locked == Locked::Granted {
            self.0.extend(keys.into_iter().map(|key| (key, (intent, age))));
        }
        locked
    }

    /// Returns whether an intent could lock something that all of these would keep it from. Nothing is
    /// locked.
    pub fn test(&self, conflicts: impl Fn(&K) -> bool, intent: IntentId, age: Age) -> Locked {
        let others = self.0.iter().filter(|(key, _)| conflicts(key)).map(|(_, holder)| holder);
        // The oldest of them decides: it would be waited for in the end.
        let other = others.filter(|(other, _)| *other != intent).min_by_key(|(_, age)| *age);
        match other {
            Some((other, holding)) if *holding < age => Locked::GiveUp(*other),
            Some((other, _)) => Locked::Wait(*other),
            None => Locked::Granted,
        }
    }

    /// Gives back all that an intent has locked.
    pub fn unlock(&mut self, intent: IntentId) {
        self.0.retain(|_, (holder, _)| *holder != intent);
    }

    /// Returns the intent that has locked something.
    pub fn holder(&self, key: &K) -> Option<IntentId> {
        self.0.get(key).map(|(intent, _)| *intent)
    }

    /// Returns all that is locked.
    pub fn iter(&self) -> impl Iterator<Item = (&K, IntentId)> {
        self.0.iter().map(|(key, (intent, _))| (key, *intent))
    }

    /// Returns whether nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

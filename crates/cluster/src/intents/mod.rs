//! Changes that concern several servers: rename, link, and unlink of one of several names. The rules
//! are those of `canopy_partition` (`intents`); here they meet tables, messages and threads.
//!
//! | to change | read |
//! | --- | --- |
//! | what a server knows of intents; its records | this file |
//! | a part of a change, as its server checks and prepares it | `part`, `participant` |
//! | the thread that makes a change happen | `attempt`; the kinds of changes: `decider` |
//! | directories that are removed, replaced or moved | `directories` |
//! | names that are in doubt; what crashes have left | `doubts` |
//! | late copies of changes of a file that has moved | `taken` |
//!
//! The server of the name that goes away decides; for an exchange, that of the first name; for a
//! link, that of the inode before. A change has a *part* on each server that it concerns. Each part on
//! another server is an intent of its own; all of one change are decided by one batch.
//!
//! - A file with several names has its inode, and the records of its names, at its home: the server of
//!   its id's block. All its names are pointers. A directory is similar (`answer`). So a change of a
//!   pointer has a part at the home.
//! - Names and files of a part are locked from before its check to its end. Other changes of them
//!   fail with [`Error::InDoubt`], and the request begins again once that is resolved. Reads ask the
//!   decider first, too. Neither asks with a lock held.
//! - A partition is not handed over while a name of it is locked, and a name that is being handed
//!   over is not locked.
//! - A server answers the messages of intents without asking anybody.
//! - A file takes along what its new server has to know of executed changes (`taken`).
//! - A change of one server alone takes no lock of this kind, and is executed by its tablet.

mod attempt;
mod decider;
mod directories;
mod doubts;
mod part;
mod participant;
mod taken;

pub(crate) use attempt::Backoff;
pub use part::{Arriving, Holds, IntentPart, MovingFile, PartOutcome};
pub(crate) use taken::{Sending, SentRecords};

use crate::error::{Error, Result};
use canopy_namespace::operation::Target;
use canopy_namespace::{Effect, ExecutedRecord, FileId, IntentRecord, IntentRole, Tablet};
use canopy_partition::{
    Age, Decisions, IntentId, Locked, Locks, Preparation, Preparations, ServerId,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

/// A change has fewer parts than this: numbers of intents are multiples of it, and some more. A
/// directory has a part on each server.
const PARTS: u64 = 1 << 14;

/// Something that an intent locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum LockKey {
    /// Names of a directory with a hash.
    Name(FileId, u64),
    /// A file whose inode is here.
    File(FileId),
    /// All names of a directory: it is removed.
    Directory(FileId),
    /// The moves of directories to others, which one change at a time makes (on server 0).
    Moves,
}

impl LockKey {
    /// Returns whether two intents cannot have locked both.
    fn conflicts(self, other: LockKey) -> bool {
        match (self, other) {
            (LockKey::Name(one, _), LockKey::Directory(other))
            | (LockKey::Directory(one), LockKey::Name(other, _)) => one == other,
            _ => self == other,
        }
    }
}

/// Record of a participant about an intent.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PreparedPart {
    preparation: Preparation,
    age: Age,
    keys: Vec<LockKey>,
    effects: Vec<Effect>,
    /// By how many names the part changes the count of a partition.
    counts: Vec<(FileId, u64, i64)>,
    /// Holds of the file that arrives.
    takes: Holds,
    /// The file that leaves.
    gives: Option<FileId>,
    /// Executed changes that have to be known here from then on.
    executed: Vec<ExecutedRecord>,
}

/// Stage of a change that this server decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is decided.
    Running,
    /// The decision is being written. Whoever asks waits.
    Deciding,
}

/// State of intents at a server. Its state is locked by `Server`.
pub(crate) struct Intents {
    /// Epoch of the table when this process opened it.
    epoch: u64,
    locks: Locks<LockKey>,
    /// Changes that are decided here, by number.
    running: BTreeMap<u64, Stage>,
    /// Decisions that may or may not be in storage: their participants get to know once they are.
    unsure: BTreeMap<u64, Vec<(IntentId, ServerId, Preparation)>>,
    /// Their changes here.
    effects: BTreeMap<u64, Vec<Effect>>,
    decisions: Decisions,
    preparations: Preparations,
    parts: HashMap<IntentId, PreparedPart>,
    /// Parts that are being prepared: a copy of the message must not interfere.
    preparing: HashSet<IntentId>,
    changes: u64,
    prepared: u64,
    time: u64,
}

impl Intents {
    /// Returns whether a file may come here by a change of several servers whose end is not known.
    pub(crate) fn awaits(&self, target: Target) -> bool {
        let Target::File(id) = target else { return false };
        let effects = self.parts.values().flat_map(|part| &part.effects);
        effects.into_iter().any(|effect| match effect {
            Effect::Put(_, entry) | Effect::Gather(entry, _) => entry.inode.id == id,
            _ => false,
        })
    }

    /// Reads what a table that was opened has of intents.
    pub(crate) fn open(tablet: &Tablet) -> Result<Self> {
        let mut intents = Intents {
            epoch: tablet.table().manifest().state.epoch,
            locks: Locks::default(),
            running: BTreeMap::new(),
            unsure: BTreeMap::new(),
            effects: BTreeMap::new(),
            decisions: Decisions::default(),
            preparations: Preparations::default(),
            parts: HashMap::new(),
            preparing: HashSet::new(),
            changes: 0,
            prepared: 0,
            time: 0,
        };
        let mut decided = BTreeMap::new();
        for record in tablet.intent_records(IntentRole::Decider)? {
            let (intent, participants) = decode(&record)?;
            decided.insert(intent, participants);
        }
        intents.decisions = decided.into_iter().collect();
        for record in tablet.intent_records(IntentRole::Participant)? {
            let (intent, part): (IntentId, PreparedPart) = decode(&record)?;
            intents.time = intents.time.max(part.age.time);
            let locked = intents.locks.lock(part.keys.iter().copied(), intent, part.age);
            if let Locked::Wait(other) | Locked::GiveUp(other) = locked {
                let text = format!("{intent} and {other} have locked the same: {:?}", part.keys);
                return Err(canopy_namespace::Error::Corrupt(text).into());
            }
            intents.preparations.prepare(intent, part.preparation);
            intents.parts.insert(intent, part);
        }
        Ok(intents)
    }

    /// Returns an intent that has locked one of these.
    pub(crate) fn holder(&self, keys: &[LockKey]) -> Option<IntentId> {
        if self.locks.is_empty() {
            return None;
        }
        keys.iter().find_map(|key| {
            let directory = match key {
                LockKey::Name(directory, _) => self.locks.holder(&LockKey::Directory(*directory)),
                _ => None,
            };
            directory.or_else(|| self.locks.holder(key))
        })
    }

    /// Locks all of these, or none if one conflicts.
    fn lock(&mut self, keys: &[LockKey], intent: IntentId, age: Age) -> Locked {
        let conflicts = |other: &LockKey| keys.iter().any(|key| key.conflicts(*other));
        match self.locks.test(conflicts, intent, age) {
            Locked::Granted => self.locks.lock(keys.iter().copied(), intent, age),
            refused => refused,
        }
    }

    /// Returns whether an intent has locked all names of a directory.
    pub(crate) fn is_closed(&self, directory: FileId) -> bool {
        self.locks.holder(&LockKey::Directory(directory)).is_some()
    }

    /// Returns the intents that have locked names of a directory with hashes of a range.
    pub(crate) fn holders_in(
        &self,
        directory: FileId,
        hashes: &RangeInclusive<u64>,
    ) -> Vec<IntentId> {
        let locked = self.locks.iter().filter(|(key, _)| match key {
            LockKey::Name(of, hash) => *of == directory && hashes.contains(hash),
            LockKey::Directory(of) => *of == directory,
            LockKey::File(_) | LockKey::Moves => false,
        });
        locked.map(|(_, intent)| intent).collect()
    }

    /// Returns whether something is left to be done beside requests.
    pub(crate) fn has_doubts(&self) -> bool {
        !self.unsure.is_empty()
            || self.preparations.unanswered().next().is_some()
            || self.decisions.unconfirmed().next().is_some()
    }

    /// Describes parts that are prepared, and decisions that participants have not confirmed.
    pub(crate) fn left(&self) -> Vec<String> {
        let prepared = self.parts.keys().map(|intent| format!("a part of {intent} is prepared"));
        let decided = self.decisions.unconfirmed();
        let decided = decided.map(|(intent, server, _)| {
            format!("{intent} is decided, and server {server} does not know it")
        });
        prepared.chain(decided).collect()
    }

    /// Returns whether nothing is locked, prepared or decided without confirmation.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.has_doubts() && self.locks.is_empty() && self.running.is_empty()
    }

    /// Returns the stage of an intent that this owner decides; none if it does not run.
    fn stage(&self, intent: IntentId) -> Option<Stage> {
        let is_own = intent.epoch == self.epoch;
        self.running.get(&(intent.number / PARTS)).copied().filter(|_| is_own)
    }

    fn learn_time(&mut self, age: Age) {
        self.time = self.time.max(age.time);
    }
}

/// Returns the record of a decision; without participants, the one that removes it.
fn decided(
    intent: IntentId,
    participants: Option<&BTreeMap<ServerId, Preparation>>,
) -> IntentRecord {
    record(IntentRole::Decider, intent, participants)
}

/// Returns the record of a part that is prepared; without it, the one that removes it.
fn prepared(intent: IntentId, part: Option<&PreparedPart>) -> IntentRecord {
    record(IntentRole::Participant, intent, part)
}

fn record<T: Serialize>(role: IntentRole, intent: IntentId, value: Option<&T>) -> IntentRecord {
    let rest = [&intent.decider.0.to_be_bytes()[..], &intent.epoch.to_be_bytes()].concat();
    // Encoding into memory cannot fail.
    let encode = |value| postcard::to_extend(value, Vec::new()).unwrap_or_default();
    IntentRecord { role, number: intent.number, rest, value: value.map(encode) }
}

fn decode<T: for<'a> Deserialize<'a>>(record: &IntentRecord) -> Result<(IntentId, T)> {
    let (decider, epoch) = record.rest.split_first_chunk().ok_or_else(damaged)?;
    let epoch = <[u8; 8]>::try_from(epoch).map_err(|_| damaged())?;
    let intent = IntentId {
        decider: ServerId(u32::from_be_bytes(*decider)),
        epoch: u64::from_be_bytes(epoch),
        number: record.number,
    };
    let value = record.value.as_deref().unwrap_or_default();
    Ok((intent, postcard::from_bytes(value).map_err(|_| damaged())?))
}

fn damaged() -> Error {
    canopy_namespace::Error::Corrupt("the record of an intent".into()).into()
}

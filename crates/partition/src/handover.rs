//! Hand-over of a partition from one server, the giver, to another, the receiver: what each of them
//! records, and what each decides. No third party takes part, and either may die at any point.
//!
//! 1. The giver begins an [`Attempt`]. Requests for the upper half wait.
//! 2. The receiver records the attempt ([`Holdings::begin`]), then the entries that arrive
//!    ([`Holdings::takes_entries`]). They are *offered*: durable, and in no partition that is held, so
//!    nobody sees them. Once all are there, it says so ([`Holdings::complete`]).
//! 3. The giver records that the partition is given ([`Holdings::give`]). This one batch of its log is
//!    the moment of hand-over. Its own copies are now in no partition that is held.
//! 4. The receiver learns of it and holds the partition ([`Holdings::hold`]). The giver repeats this
//!    message until the receiver confirms ([`Holdings::unconfirmed`]). A receiver that has an offer
//!    also asks by itself, as the attempt may have ended ([`Holdings::unanswered`],
//!    [`Holdings::answer`]).
//! 5. The giver removes its copies, in steps. It forgets the hand-over when this is done and the
//!    receiver has confirmed ([`Holdings::confirm`], [`Holdings::removed`]).
//!
//! Each of these changes is one batch of the server's table, with the entries that it concerns. The
//! engine refuses batches of an owner that another one has replaced.
//!
//! A partition that is held decides alone which entries are visible. So giving needs no tombstone of
//! the range, and the copies that remain still list what else has to go.
//!
//! `tests/handover` explores all of this exhaustively for small cases, with lost, late and repeated
//! messages, and with owners that do not know that they were replaced. Without any of the rules
//! that are named there, an entry is lost, seen twice or comes back.

use crate::map::SplitHistory;
use crate::partition::{DEPTH_MAX, PARTITIONS_MAX, PartitionId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// One try of a table's owner to hand a partition over, or to make a directory. No two tries are
/// equal, and of two tries for one partition the greater one is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// Epoch of the giver's table: it grows with each owner of the table.
    pub epoch: u64,
    /// Counts the attempts of this owner.
    pub number: u64,
}

/// State of entries that a server was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OfferState {
    /// Entries arrive.
    Incomplete,
    /// All have arrived. The giver may give at any moment.
    Complete,
    /// The attempt has ended without a hand-over: the entries are being removed.
    Ended,
}

/// Relation of a server to a partition, as its table records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Holding {
    /// The server answers for the entries.
    Held {
        /// The partition's depth, from which its splits follow.
        depth: u32,
    },
    /// The server has entries of an attempt, or a part of them, that nobody sees.
    Offered {
        /// The attempt that they belong to.
        attempt: Attempt,
        /// How far it has come.
        state: OfferState,
    },
    /// The server has handed the partition over, and something remains to be done.
    Given {
        /// The attempt that succeeded.
        attempt: Attempt,
        /// Whether the receiver is known to hold it.
        is_confirmed: bool,
        /// Whether the entries are removed here.
        is_removed: bool,
    },
}

/// Decision of a receiver about an attempt that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Begun {
    /// The attempt is recorded: entries may come.
    Accepted,
    /// Entries that lie here have to be removed first: those of an older attempt, or copies that
    /// this server has given away. The giver tries again later.
    Busy,
    /// A late message: the partition is held already, or a newer attempt is recorded.
    Late,
}

/// State of an attempt, by the word of an owner of the giver's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Answer {
    /// The partition is given: the receiver has to hold it.
    Given,
    /// Not decided yet.
    Pending,
    /// There will be no hand-over by this attempt.
    Ended,
    /// The attempt is that of a later owner, so the one who answers has been replaced.
    Unknown,
}

/// Partitions of one directory on one server, as the server's table records them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holdings(BTreeMap<PartitionId, Holding>);

impl Holdings {
    /// Returns the holdings of the first server of a new directory: partition 0, with all hashes.
    pub fn new_directory() -> Self {
        Holdings([(PartitionId::ZERO, Holding::Held { depth: 0 })].into())
    }

    /// Returns the records.
    pub fn records(&self) -> impl Iterator<Item = (PartitionId, Holding)> {
        self.0.iter().map(|(partition, holding)| (*partition, *holding))
    }

    /// Returns the record of a partition.
    pub fn record(&self, partition: PartitionId) -> Option<Holding> {
        self.0.get(&partition).copied()
    }

    /// Returns the partition that is held here and has the names with a hash. Entries of no such
    /// partition are invisible.
    pub fn holder(&self, hash: u64) -> Option<SplitHistory> {
        let path = hash.reverse_bits() & u64::from(PARTITIONS_MAX - 1);
        let of_depth = |depth: u32| PartitionId::new(path as u32 & ((1 << depth) - 1));
        (0..=DEPTH_MAX)
            .filter_map(|depth| self.history(of_depth(depth)?))
            .find(|history| history.holds(hash))
    }

    /// Returns the splits of a partition that is held here.
    pub fn history(&self, partition: PartitionId) -> Option<SplitHistory> {
        match self.record(partition)? {
            Holding::Held { depth } => SplitHistory::new(partition, depth),
            _ => None,
        }
    }

    /// Returns the splits of all partitions that are held here: the reply to a request for a name
    /// that is not.
    pub fn histories(&self) -> impl Iterator<Item = SplitHistory> {
        self.0.keys().filter_map(|partition| self.history(*partition))
    }

    /// Splits a partition whose two halves both stay here, and returns the new one. `None` if the
    /// partition is not held or cannot be split.
    pub fn split(&mut self, partition: PartitionId) -> Option<PartitionId> {
        let child = self.child(partition)?;
        self.deepen(partition);
        self.0.insert(child, Holding::Held { depth: child.first_depth() });
        Some(child)
    }

    /// Returns the partition that the next split of a held partition makes.
    pub fn child(&self, partition: PartitionId) -> Option<PartitionId> {
        partition.child(self.history(partition)?.depth())
    }

    fn deepen(&mut self, partition: PartitionId) {
        if let Some(Holding::Held { depth }) = self.0.get_mut(&partition) {
            *depth += 1;
        }
    }

    /// Giver: hands a partition over. The receiver has said that all entries of the attempt are
    /// there, and no request has changed them since they were sent. Returns whether that is still
    /// the next split of a partition that is held here.
    pub fn give(&mut self, child: PartitionId, attempt: Attempt) -> bool {
        let parent = child.parent().filter(|parent| self.child(*parent) == Some(child));
        let Some(parent) = parent else { return false };
        self.deepen(parent);
        let given = Holding::Given { attempt, is_confirmed: false, is_removed: false };
        self.0.insert(child, given);
        true
    }

    /// Giver: answers a receiver about an attempt. `epoch` is that of the owner who answers, and
    /// `running` the attempt that it has not decided yet.
    pub fn answer(
        &self,
        child: PartitionId,
        attempt: Attempt,
        epoch: u64,
        running: Option<Attempt>,
    ) -> Answer {
        match self.record(child) {
            _ if attempt.epoch > epoch => Answer::Unknown,
            Some(Holding::Given { attempt: given, .. }) if given == attempt => Answer::Given,
            _ if running == Some(attempt) => Answer::Pending,
            _ => Answer::Ended,
        }
    }

    /// Giver: returns what the receiver has not confirmed. Each owner of the table repeats
    /// the message until it does.
    pub fn unconfirmed(&self) -> impl Iterator<Item = (PartitionId, Attempt)> {
        self.records().filter_map(|(partition, holding)| match holding {
            Holding::Given { attempt, is_confirmed: false, .. } => Some((partition, attempt)),
            _ => None,
        })
    }

    /// Giver: the receiver holds the partition. Returns whether that was new.
    pub fn confirm(&mut self, child: PartitionId, attempt: Attempt) -> bool {
        match self.0.get_mut(&child) {
            Some(Holding::Given { attempt: given, is_confirmed, .. })
                if *given == attempt && !*is_confirmed =>
            {
                *is_confirmed = true;
                self.forget_if_done(child);
                true
            }
            _ => false,
        }
    }

    /// Giver and receiver: all entries of a partition of [`remains`](Self::remains) are removed.
    pub fn removed(&mut self, partition: PartitionId) {
        match self.0.get_mut(&partition) {
            Some(Holding::Given { is_removed, .. }) => *is_removed = true,
            Some(Holding::Offered { state: OfferState::Ended, .. }) => {
                self.0.remove(&partition);
            }
            _ => {}
        }
        self.forget_if_done(partition);
    }

    fn forget_if_done(&mut self, partition: PartitionId) {
        let record = self.record(partition);
        if let Some(Holding::Given { is_confirmed: true, is_removed: true, .. }) = record {
            self.0.remove(&partition);
        }
    }

    /// Returns the partitions whose entries have to be removed here, with their hashes.
    pub fn remains(&self) -> impl Iterator<Item = (PartitionId, RangeInclusive<u64>)> {
        let remain = |holding: &Holding| match holding {
            Holding::Held { .. } => false,
            Holding::Offered { state, .. } => *state == OfferState::Ended,
            Holding::Given { is_removed, .. } => !is_removed,
        };
        self.records()
            .filter(move |(_, holding)| remain(holding))
            .map(|(partition, _)| (partition, hashes_of(partition)))
    }

    /// Receiver: an attempt begins. If it is accepted, this has to be recorded before entries are.
    pub fn begin(&mut self, child: PartitionId, attempt: Attempt) -> Begun {
        match self.record(child) {
            Some(Holding::Held { .. }) => return Begun::Late,
            Some(Holding::Offered { attempt: other, .. }) if other > attempt => return Begun::Late,
            Some(Holding::Offered { attempt: other, state }) if other == attempt => {
                let is_open = state != OfferState::Ended;
                return if is_open { Begun::Accepted } else { Begun::Late };
            }
            Some(Holding::Offered { attempt: older, .. }) => {
                // The giver, or its successor, has given up the older attempt.
                self.end(child, older);
                return Begun::Busy;
            }
            Some(Holding::Given { .. }) => return Begun::Late,
            None => {}
        }
        let hashes = hashes_of(child);
        let overlaps = |other: &RangeInclusive<u64>| {
            other.contains(hashes.start()) || hashes.contains(other.start())
        };
        if self.remains().any(|(_, other)| overlaps(&other)) {
            return Begun::Busy;
        }
        let state = OfferState::Incomplete;
        self.0.insert(child, Holding::Offered { attempt, state });
        Begun::Accepted
    }

    /// Receiver: returns whether entries of an attempt are recorded when they arrive.
    pub fn takes_entries(&self, child: PartitionId, attempt: Attempt) -> bool {
        let state = OfferState::Incomplete;
        self.record(child) == Some(Holding::Offered { attempt, state })
    }

    /// Receiver: all entries of an attempt are recorded. Returns whether the giver gets to know:
    /// not if this is a late message.
    pub fn complete(&mut self, child: PartitionId, attempt: Attempt) -> bool {
        let is_current = self.takes_entries(child, attempt);
        let state = OfferState::Complete;
        if is_current {
            self.0.insert(child, Holding::Offered { attempt, state });
        }
        is_current || self.record(child) == Some(Holding::Offered { attempt, state })
    }

    /// Receiver: the giver has given. Returns whether the partition is held here now, which the
    /// giver gets to know; not if nothing is known of this attempt.
    pub fn hold(&mut self, child: PartitionId, attempt: Attempt) -> bool {
        let state = OfferState::Complete;
        match self.record(child) {
            Some(Holding::Held { .. }) => true,
            offered if offered == Some(Holding::Offered { attempt, state }) => {
                self.0.insert(child, Holding::Held { depth: child.first_depth() });
                true
            }
            _ => false,
        }
    }

    /// Receiver: an attempt has ended without a hand-over. Returns whether that was new. Its
    /// entries have to be removed, and no more of them are recorded.
    pub fn end(&mut self, child: PartitionId, attempt: Attempt) -> bool {
        match self.0.get_mut(&child) {
            Some(Holding::Offered { attempt: own, state })
                if *own == attempt && *state != OfferState::Ended =>
            {
                *state = OfferState::Ended;
                true
            }
            _ => false,
        }
    }

    /// Receiver: returns the attempts to ask the owner of the giver's table about: when the table is
    /// opened, and when a name of one is asked for.
    pub fn unanswered(&self) -> impl Iterator<Item = (PartitionId, Attempt)> {
        self.records().filter_map(|(partition, holding)| match holding {
            Holding::Offered { attempt, state } if state != OfferState::Ended => {
                Some((partition, attempt))
            }
            _ => None,
        })
    }
}

impl FromIterator<(PartitionId, Holding)> for Holdings {
    fn from_iter<I: IntoIterator<Item = (PartitionId, Holding)>>(records: I) -> Self {
        Holdings(records.into_iter().collect())
    }
}

/// Returns the hashes of a partition when it is handed over: it has not been split.
fn hashes_of(partition: PartitionId) -> RangeInclusive<u64> {
    partition.hashes(partition.first_depth())
}

//! Limits of accounts that use several servers: each server enforces a *share*, and one server, the
//! *authority*, knows the limit and hands the shares out. Together the servers never pass the
//! limit, whichever of them die and whichever messages are lost, late or repeated.
//!
//! A server's share is a *base*: the amount that its files of the account may use. Its *room* is
//! the base less what they do use. A create takes room, and a removal gives room back. So neither
//! changes the base, and nobody has to be asked.
//!
//! 1. The authority records a greater base for a server, if all bases together stay within the
//!    limit ([`Ledger::grant`]). Then it sends the base, and the server takes it ([`Share::take`]).
//! 2. If no room is left to grant, the authority collects room from all servers. Each lowers its
//!    base to what it uses, records that, and only then replies ([`Share::collect`]). The authority
//!    records the lower base ([`Ledger::collected`]).
//! 3. Each of these messages has a [`Round`] that grows. A server acts on no message of an earlier
//!    round than its latest, and the authority believes only the reply to its last message.
//! 4. A file that moves to another server takes its usage along. Both servers note the amount, with
//!    opposite signs, in the batches that move the file ([`Share::room`] gets usage and notes added
//!    up). So moves change no room, and files on their way are counted.
//!
//! So a base in the authority's records is never less than the server's own, unless users who are
//! not bound by limits have used more; and the sum of bases is at most the limit. A grant that gets
//! lost leaves the recorded base too large, which wastes room until the next collection: the
//! server's reply has its true base. Nothing is lost for good.
//!
//! A server that has been collected from is *closed*: what is freed there is usable only after it
//! has asked, since others may have used more than the limit. It reports the first removal, so that
//! an authority that found nothing asks again. A limit that may be passed for some time (soft)
//! counts as the limit until it is reached; then the hard one does, and grants end with the time.
//!
//! `tests/shares` explores all of this exhaustively for small cases. Without any of the rules that
//! are named there, the limit is passed or room is lost.

use crate::placement::ServerId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes and files.
pub type Amounts = [i64; 2];

/// Largest limit, which stands for none: sums of it do not overflow.
pub const UNLIMITED: i64 = 1 << 60;

/// Order of the messages of authorities to one server about one account.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Round {
    /// Epoch of the authority's table: it grows with each owner of the table.
    pub epoch: u64,
    /// Counts the messages of this owner.
    pub number: u64,
}

/// Conditions of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// The kinds of amounts that are limited.
    pub bound: [bool; 2],
    /// Whether room may be used without asking.
    pub is_open: bool,
    /// End of the time in which room may be used, in nanoseconds since 1970.
    pub until_ns: i64,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { bound: [false; 2], is_open: true, until_ns: i64::MAX }
    }
}

/// Share of a server, as its table records it. The default one limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Share {
    /// Round of the last message that changed it.
    pub round: Round,
    /// The amounts that the files of the account may use on this server.
    pub base: Amounts,
    /// Conditions.
    pub terms: Terms,
}

/// A message of the authority that gives a server a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The round.
    pub round: Round,
    /// The base.
    pub base: Amounts,
    /// Conditions.
    pub terms: Terms,
}

/// Reply of a server to a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Collected {
    /// The round of the message.
    pub round: Round,
    /// The base that is left.
    pub base: Amounts,
    /// Whether a change that has just got room is about to use it, so that some stayed.
    pub is_in_use: bool,
}

impl Terms {
    /// Returns whether the authority has to know when something is freed.
    pub fn reports(&self) -> bool {
        self.bound != [false; 2] && (!self.is_open || self.until_ns != i64::MAX)
    }
}

impl Share {
    /// Returns the amounts that may still be used, less than 0 if too much is. `used` is the usage
    /// on this server with the notes of moves.
    pub fn room(&self, used: Amounts) -> Amounts {
        [self.base[0] - used[0], self.base[1] - used[1]]
    }

    /// Server: gives room back, all but that which changes are about to use. The share has to be
    /// recorded before the reply is sent. None if the message is late.
    pub fn collect(
        &mut self,
        round: Round,
        bound: [bool; 2],
        used: Amounts,
        needed: Amounts,
    ) -> Option<Collected> {
        let is_in_use = |share: &Share| share.terms.is_open && share.terms.bound != [false; 2];
        if round == self.round {
            return Some(Collected { round, base: self.base, is_in_use: is_in_use(self) });
        }
        if round < self.round {
            return None;
        }
        let room = self.room(used);
        let was_bound = self.terms.bound;
        let mut is_kept = false;
        for kind in 0..2 {
            let kept = match was_bound[kind] && self.terms.is_open {
                true => needed[kind].min(room[kind]).max(0),
                false => 0,
            };
            is_kept |= kept > 0;
            self.base[kind] = used[kind] + kept;
        }
        self.round = round;
        self.terms = Terms { bound, is_open: is_kept, ..self.terms };
        Some(Collected { round, base: self.base, is_in_use: is_kept })
    }

    /// Server: takes what the authority has granted. Returns whether the share is another one now,
    /// and has to be recorded.
    pub fn take(&mut self, grant: &Grant) -> bool {
        let is_new = grant.round > self.round;
        if is_new {
            *self = Share { round: grant.round, base: grant.base, terms: grant.terms };
        }
        is_new
    }
}

/// Limits of an account; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bounds {
    /// Amounts that may be passed for some time.
    pub soft: Amounts,
    /// Amounts that may not be passed.
    pub hard: Amounts,
    /// Time for which the soft ones may be passed.
    pub grace_ns: i64,
}

/// Knowledge of the authority about one account: limits and bases are recorded, rounds are not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    bounds: Bounds,
    /// Since when each soft limit is passed, in nanoseconds since 1970; 0 if it is not.
    since_ns: Amounts,
    bases: BTreeMap<ServerId, Amounts>,
    /// The last round that was sent to each server.
    sent: BTreeMap<ServerId, Round>,
    last: Round,
}

impl Ledger {
    /// Returns a ledger with its records, for an owner of the authority's table.
    pub fn new(
        epoch: u64,
        bounds: Bounds,
        since_ns: Amounts,
        bases: impl IntoIterator<Item = (ServerId, Amounts)>,
    ) -> Self {
        let bases = bases.into_iter().collect();
        Ledger { bounds, since_ns, bases, sent: BTreeMap::new(), last: Round { epoch, number: 0 } }
    }

    /// Returns the limits.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Returns since when each soft limit is passed; 0 if it is not.
    pub fn since_ns(&self) -> Amounts {
        self.since_ns
    }

    /// Returns the recorded bases.
    pub fn bases(&self) -> &BTreeMap<ServerId, Amounts> {
        &self.bases
    }

    /// Returns the kinds of amounts that are limited.
    pub fn bound(&self) -> [bool; 2] {
        [0, 1].map(|kind| self.bounds.soft[kind] != 0 || self.bounds.hard[kind] != 0)
    }

    /// Returns the round of the next message to a server.
    pub fn next_round(&mut self, server: ServerId) -> Round {
        self.last.number += 1;
        self.sent.insert(server, self.last);
        self.last
    }

    /// Notes the base of a server that was collected from. Returns whether it is the reply to the
    /// last message, and so has to be recorded.
    pub fn collected(&mut self, server: ServerId, collected: &Collected) -> bool {
        let is_last = self.sent.get(&server) == Some(&collected.round);
        if is_last {
            self.bases.insert(server, collected.base);
        }
        is_last
    }

    /// Returns the sum of all bases.
    pub fn granted(&self) -> Amounts {
        let add = |sum: Amounts, base: &Amounts| {
            [sum[0].saturating_add(base[0]), sum[1].saturating_add(base[1])]
        };
        self.bases.values().fold([0; 2], add)
    }

    /// Returns the limit of a kind as it counts now.
    fn ceiling(&self, kind: usize, now_ns: i64) -> i64 {
        let or_none = |limit: i64| if limit == 0 { UNLIMITED } else { limit.min(UNLIMITED) };
        let (soft, hard) = (or_none(self.bounds.soft[kind]), or_none(self.bounds.hard[kind]));
        match self.is_within_grace(kind, now_ns) {
            true => hard,
            false => soft.min(hard),
        }
    }

    fn is_within_grace(&self, kind: usize, now_ns: i64) -> bool {
        let since_ns = self.since_ns[kind];
        since_ns != 0 && now_ns.saturating_sub(since_ns) <= self.bounds.grace_ns
    }

    /// Returns the amounts that can be granted, less than 0 if too much is in use.
    pub fn free(&self, now_ns: i64) -> Amounts {
        let granted = self.granted();
        [0, 1].map(|kind| self.ceiling(kind, now_ns).saturating_sub(granted[kind]))
    }

    /// Returns the end of grants that are made now.
    fn until_ns(&self, now_ns: i64) -> i64 {
        let ends = (0..2).filter(|kind| self.is_within_grace(*kind, now_ns));
        let ends = ends.map(|kind| self.since_ns[kind].saturating_add(self.bounds.grace_ns));
        ends.min().unwrap_or(i64::MAX)
    }

    /// Sets limits. All servers have been collected from, so the sum of bases is the usage.
    pub fn set(&mut self, bounds: Bounds, now_ns: i64) {
        self.bounds = bounds;
        self.review(now_ns);
    }

    /// Finds out whether soft limits are passed, after all servers have been collected from.
    /// Returns whether that has changed, and has to be recorded.
    pub fn review(&mut self, now_ns: i64) -> bool {
        let (granted, before) = (self.granted(), self.since_ns);
        self.since_ns = [0, 1].map(|kind| {
            let soft = self.bounds.soft[kind];
            match soft != 0 && granted[kind] > soft {
                true if before[kind] != 0 => before[kind],
                true => now_ns.max(1),
                false => 0,
            }
        });
        self.since_ns != before
    }

    /// Grants a server at least so much more, and some for later: a part of what is free. None if
    /// so much is not free. `is_complete` says that all servers have been collected from: then a
    /// soft limit may be passed from now on. The grant has to be recorded before it is sent.
    pub fn grant(
        &mut self,
        server: ServerId,
        needed: Amounts,
        servers: u32,
        now_ns: i64,
        is_complete: bool,
    ) -> Option<Grant> {
        let before = self.since_ns;
        if is_complete {
            self.review(now_ns);
            let free = self.free(now_ns);
            for kind in 0..2 {
                let is_passed = needed[kind] > 0 && free[kind] < needed[kind];
                if is_passed && self.bounds.soft[kind] != 0 && self.since_ns[kind] == 0 {
                    self.since_ns[kind] = now_ns.max(1);
                }
            }
        }
        let (free, bound) = (self.free(now_ns), self.bound());
        let has_room = |kind: usize| needed[kind] <= 0 || free[kind] >= needed[kind];
        if !(0..2).all(|kind| !bound[kind] || has_room(kind)) {
            // A change that is refused passes nothing.
            self.since_ns = before;
            return None;
        }
        let base = self.bases.entry(server).or_default();
        for kind in (0..2).filter(|kind| bound[*kind]) {
            let more = (free[kind] / (i64::from(servers) + 1)).max(0);
            base[kind] = base[kind].saturating_add(needed[kind].max(more));
        }
        let base = *base;
        let terms = Terms { bound, is_open: true, until_ns: self.until_ns(now_ns) };
        Some(Grant { round: self.next_round(server), base, terms })
    }

    /// Returns the message that nothing is limited any more.
    pub fn release(&mut self, server: ServerId) -> Grant {
        let base = self.bases.get(&server).copied().unwrap_or_default();
        Grant { round: self.next_round(server), base, terms: Terms::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000;

    fn ledger(soft: i64, hard: i64) -> Ledger {
        let bounds = Bounds { soft: [0, soft], hard: [0, hard], grace_ns: 100 };
        Ledger::new(1, bounds, [0; 2], [(ServerId(0), [0, 0]), (ServerId(1), [0, 0])])
    }

    /// Gives a server room until there is none, and has it used.
    fn fill(ledger: &mut Ledger, now_ns: i64) -> i64 {
        while let Some(grant) = ledger.grant(ServerId(0), [0, 1], 2, now_ns, true) {
            assert!(grant.base[1] <= 10, "{grant:?}");
        }
        ledger.granted()[1]
    }

    #[test]
    fn grants_end_exactly_at_the_limit() {
        let mut ledger = ledger(0, 10);
        let first = ledger.grant(ServerId(1), [0, 1], 2, NOW, false).unwrap();
        // A third of it: some is left for the other server.
        assert_eq!((first.base[1], first.terms.until_ns), (3, i64::MAX));
        assert_eq!(first.terms.bound, [false, true]);
        assert_eq!(fill(&mut ledger, NOW), 10);
        assert_eq!(ledger.free(NOW)[1], 0);
    }

    #[test]
    fn soft_limits_are_passed_for_some_time() {
        let mut ledger = ledger(4, 10);
        // Without the knowledge of all servers, the soft limit stays.
        assert_eq!(ledger.grant(ServerId(0), [0, 5], 2, NOW, false), None);
        let grant = ledger.grant(ServerId(0), [0, 5], 2, NOW, true).unwrap();
        assert_eq!((ledger.since_ns()[1], grant.terms.until_ns), (NOW, NOW + 100));
        assert!(grant.terms.reports());
        // A request beyond the hard limit gets nothing.
        let mut other = self::ledger(4, 10);
        assert_eq!(other.grant(ServerId(0), [0, 11], 2, NOW, true), None);
        assert_eq!(other.since_ns(), [0; 2]);
        // The time ends, and begins anew once less is used.
        assert_eq!(ledger.grant(ServerId(0), [0, 1], 2, NOW + 101, true), None);
        let round = ledger.next_round(ServerId(0));
        let collected = Collected { round, base: [0, 4], is_in_use: false };
        assert!(ledger.collected(ServerId(0), &collected));
        assert!(ledger.review(NOW + 102));
        assert_eq!(ledger.since_ns(), [0; 2]);
        assert!(ledger.grant(ServerId(0), [0, 1], 2, NOW + 102, true).is_some());
        assert_eq!(ledger.since_ns()[1], NOW + 102);
    }

    #[test]
    fn room_that_a_change_is_about_to_use_stays() {
        let round = |number| Round { epoch: 1, number };
        let terms = Terms { bound: [false, true], ..Terms::default() };
        let mut share = Share { round: round(1), base: [0, 5], terms };
        let collected = share.collect(round(2), terms.bound, [0, 3], [0, 1]).unwrap();
        assert_eq!((collected.base, collected.is_in_use), ([0, 4], true));
        // A repeated message gets its first reply again, and a late one gets none.
        assert_eq!(share.collect(round(2), terms.bound, [0, 2], [0; 2]), Some(collected));
        assert_eq!(share.collect(round(1), terms.bound, [0, 2], [0; 2]), None);
        let collected = share.collect(round(3), terms.bound, [0, 3], [0; 2]).unwrap();
        assert_eq!((collected.base, collected.is_in_use), ([0, 3], false));
        assert!(share.terms.reports());
        assert!(!share.take(&Grant { round: round(3), base: [0, 9], terms }));
        assert!(share.take(&Grant { round: round(4), base: [0, 9], terms }));
        assert_eq!(share.room([0, 3]), [0, 6]);
    }

    #[test]
    fn usage_beyond_the_limit_is_known_once_it_is_collected() {
        let mut ledger = ledger(0, 4);
        let round = ledger.next_round(ServerId(1));
        let mut share = Share { base: [0, 1], ..Share::default() };
        let collected = share.collect(round, ledger.bound(), [0, 6], [0; 2]).unwrap();
        assert!(ledger.collected(ServerId(1), &collected));
        assert_eq!(ledger.free(NOW)[1], -2);
        assert_eq!(ledger.grant(ServerId(0), [0, 1], 2, NOW, true), None);
    }
}

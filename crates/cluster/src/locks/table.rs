//! Locks of one file, as flock(2) and fcntl(2) of Linux have them. Pure: no clock, no server.
//!
//! - An owner has at most one mode for each byte. A new lock replaces what the owner has in its range,
//!   so locks shrink, split and merge with neighbours.
//! - Locks of different owners conflict if they overlap and one is exclusive. Locks of flock and of
//!   fcntl never conflict.
//! - flock changes a mode in two steps, as in Linux: the old lock goes first, also if the new one is
//!   refused then.

use crate::message::SessionId;
use canopy_namespace::operation::{FileLock, LockKind, LockMode, LockOwner, LockRange};
use std::collections::BTreeMap;

/// An owner of locks: one of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Holder {
    pub(crate) session: SessionId,
    pub(crate) owner: LockOwner,
}

/// Locks of one owner.
#[derive(Clone, Debug, Default)]
struct Owned {
    uid: u32,
    /// Sorted and disjoint. Neighbours of one mode are one lock.
    locks: Vec<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    range: LockRange,
    mode: LockMode,
    pid: u32,
}

/// Locks of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockTable(BTreeMap<Holder, Owned>);

impl LockTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a lock of somebody else that conflicts with a wanted one.
    pub(crate) fn conflict(
        &self,
        session: SessionId,
        wanted: &FileLock,
    ) -> Option<(Holder, FileLock)> {
        self.conflicts(session, wanted).next()
    }

    /// Returns one conflicting lock of each other owner that has one.
    pub(crate) fn conflicts(
        &self,
        session: SessionId,
        wanted: &FileLock,
    ) -> impl Iterator<Item = (Holder, FileLock)> {
        let wanted = *wanted;
        let asking = Holder { session, owner: wanted.owner };
        let others = self.0.iter().filter(move |(holder, _)| {
            **holder != asking && holder.owner.kind == wanted.owner.kind
        });
        others.filter_map(move |(holder, owned)| {
            let from = owned.locks.partition_point(|held| held.range.end < wanted.range.start);
            let overlapping =
                owned.locks[from..].iter().take_while(|held| held.range.overlaps(wanted.range));
            let mut exclusive = overlapping.filter(|held| {
                wanted.mode == LockMode::Exclusive || held.mode == LockMode::Exclusive
            });
            exclusive.next().map(|held| (*holder, held.lock(*holder, owned.uid)))
        })
    }

    /// Sets a lock that conflicts with none.
    pub(crate) fn set(&mut self, session: SessionId, lock: &FileLock) {
        let holder = Holder { session, owner: lock.owner };
        let owned = self.0.entry(holder).or_default();
        owned.uid = lock.uid;
        owned.put(lock.range, Some(Held { range: lock.range, mode: lock.mode, pid: lock.pid }));
    }

    /// Removes an owner's locks from a range.
    pub(crate) fn unlock(&mut self, holder: Holder, range: LockRange) {
        let Some(owned) = self.0.get_mut(&holder) else { return };
        owned.put(range, None);
        if owned.locks.is_empty() {
            self.0.remove(&holder);
        }
    }

    /// Removes what an owner of flock has in another mode than the wanted one.
    pub(crate) fn drop_other_mode(&mut self, session: SessionId, wanted: &FileLock) {
        let holder = Holder { session, owner: wanted.owner };
        if wanted.owner.kind == LockKind::Whole
            && self
                .0
                .get(&holder)
                .is_some_and(|owned| owned.locks.iter().any(|held| held.mode != wanted.mode))
        {
            self.0.remove(&holder);
        }
    }

    /// Returns whether an owner has any lock.
    pub(crate) fn has(&self, holder: Holder) -> bool {
        self.0.contains_key(&holder)
    }

    /// Returns the number of locks of an owner.
    pub(crate) fn count(&self, holder: Holder) -> usize {
        self.0.get(&holder).map_or(0, |owned| owned.locks.len())
    }

    /// Returns the number of owners.
    pub(crate) fn owners(&self) -> usize {
        self.0.len()
    }

    /// Returns whether another session has a lock that conflicts with one of these. Takes little longer
    /// than sorting all of them.
    pub(crate) fn conflicts_with_any(&self, session: SessionId, wanted: &[FileLock]) -> bool {
        let others = self.0.iter().filter(|(holder, _)| holder.session != session);
        let others = others.flat_map(|(holder, owned)| {
            let kind = holder.owner.kind;
            owned.locks.iter().map(move |held| (kind, held.range, held.mode, false))
        });
        let wanted = wanted.iter().map(|lock| (lock.owner.kind, lock.range, lock.mode, true));
        let mut all = Vec::from_iter(others.chain(wanted));
        all.sort_unstable_by_key(|(kind, range, ..)| (*kind, range.start));
        // The largest ends so far, by kind of lock and by side: of exclusive ones, and of all.
        let mut ends = [[(None, None); 2]; 2];
        all.into_iter().any(|(kind, range, mode, is_wanted)| {
            let sides = &mut ends[usize::from(kind == LockKind::Whole)];
            let (exclusive, any) = sides[usize::from(!is_wanted)];
            let against = if mode == LockMode::Exclusive { any } else { exclusive };
            let own = &mut sides[usize::from(is_wanted)];
            own.1 = own.1.max(Some(range.end));
            if mode == LockMode::Exclusive {
                own.0 = own.0.max(Some(range.end));
            }
            against.is_some_and(|end| end >= range.start)
        })
    }

    /// Returns all locks of a session.
    pub(crate) fn of_session(&self, session: SessionId) -> Vec<FileLock> {
        let owned = self.of(session);
        let locks = owned.flat_map(|(holder, owned)| {
            owned.locks.iter().map(|held| held.lock(*holder, owned.uid))
        });
        locks.collect()
    }

    /// Returns the owners of a session.
    pub(crate) fn holders(&self, session: SessionId) -> Vec<Holder> {
        self.of(session).map(|(holder, _)| *holder).collect()
    }

    /// Returns all owners.
    pub(crate) fn all_holders(&self) -> Vec<Holder> {
        self.0.keys().copied().collect()
    }

    /// Returns the user whom an owner's locks count for.
    pub(crate) fn uid(&self, holder: Holder) -> Option<u32> {
        self.0.get(&holder).map(|owned| owned.uid)
    }

    /// Returns a table with an owner's locks alone.
    pub(crate) fn clone_of(&self, holder: Holder) -> LockTable {
        let owned = self.0.get(&holder).map(|owned| (holder, owned.clone()));
        LockTable(owned.into_iter().collect())
    }

    /// Returns whether a session has a lock.
    pub(crate) fn has_lock(&self, session: SessionId, lock: &FileLock) -> bool {
        let Some(owned) = self.0.get(&Holder { session, owner: lock.owner }) else { return false };
        let from = owned.locks.partition_point(|held| held.range.end < lock.range.start);
        let mut next = lock.range.start;
        for held in &owned.locks[from..] {
            if held.range.start > next || held.mode != lock.mode {
                return false;
            }
            match held.range.end.checked_add(1) {
                Some(after) if held.range.end < lock.range.end => next = after,
                _ => return true,
            }
        }
        false
    }

    fn of(&self, session: SessionId) -> impl Iterator<Item = (&Holder, &Owned)> {
        let first = LockOwner { kind: LockKind::Range, number: 0 };
        let from = Holder { session, owner: first };
        self.0.range(from..).take_while(move |(holder, _)| holder.session == session)
    }
}

impl Held {
    fn lock(self, holder: Holder, uid: u32) -> FileLock {
        let Held { range, mode, pid } = self;
        FileLock { owner: holder.owner, mode, range, pid, uid }
    }
}

impl Owned {
    /// Replaces what is in a range.
    fn put(&mut self, range: LockRange, new: Option<Held>) {
        let LockRange { start, end } = range;
        let from = self.locks.partition_point(|held| held.range.end < start);
        let to = self.locks.partition_point(|held| held.range.start <= end);
        let first = self.locks[from..to].first().filter(|held| held.range.start < start);
        let left = first.map(|held| Held {
            range: LockRange { start: held.range.start, end: start - 1 },
            ..*held
        });
        let last = self.locks[from..to].last().filter(|held| held.range.end > end);
        let right = last
            .map(|held| Held { range: LockRange { start: end + 1, end: held.range.end }, ..*held });
        let at = from;
        let parts: Vec<Held> = left.into_iter().chain(new).chain(right).collect();
        let count = parts.len();
        self.locks.splice(from..to, parts);
        // The new neighbours may be one lock.
        let (mut next, mut last) = (at.saturating_sub(1), at + count);
        while next + 1 < self.locks.len() && next < last {
            let (one, other) = (self.locks[next], self.locks[next + 1]);
            let touches = one.range.end.checked_add(1) == Some(other.range.start);
            if touches && one.mode == other.mode {
                self.locks[next].range.end = other.range.end;
                self.locks[next].pid = new.map_or(one.pid, |new| new.pid);
                self.locks.remove(next + 1);
                last -= 1;
            } else {
                next += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;

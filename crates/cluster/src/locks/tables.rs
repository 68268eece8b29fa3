//! Locks of all files at a server, with those who wait for some.
//!
//! - Whoever waits has a place in a queue of the file. One that comes later and conflicts with it
//!   waits, too, although no lock is in its way: nobody starves. That does not last longer than
//!   [`TURN`], and does not bind an owner who has locks on the file: so a queue never makes a
//!   deadlock of its own.
//! - The server never sets a lock by itself: it is set by the request that asks for it. A place is
//!   lost if its owner does not ask for [`WAITER_LIFE`].
//! - An owner who would wait for itself is refused, as in Linux: through all files of this server,
//!   and for locks of fcntl alone.
//! - Users and sessions have a limited number of locks and places.

use crate::locks::LockReply;
use crate::locks::table::{Holder, LockTable};
use crate::message::SessionId;
use canopy_namespace::FileId;
use canopy_namespace::operation::{FileLock, LockKind, LockMode, LockOwner, LockRange};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// Time for which somebody who waits is before others who conflict with no lock.
const TURN: Duration = Duration::from_secs(1);

/// Time without a request after which a place in a queue is lost.
const WAITER_LIFE: Duration = Duration::from_secs(5);

/// Time for which a lock may go after a descriptor of its open file was closed.
const CLOSING: Duration = Duration::from_secs(1);

/// Owners that are looked at for a deadlock, with so many locks. Linux looks at ten.
const OWNERS_MAX: usize = 1000;
const DEADLOCK_STEPS: usize = 1 << 15;

/// Locks and places that are looked at to find those whose turn it is.
const TURN_STEPS: usize = 1 << 17;

/// Locks of a user, and of a session.
const LOCKS_OF_USER: usize = 65_536;
const LOCKS_OF_SESSION: usize = 262_144;

/// Locks of a file, which move in one message, and of one user among them.
const LOCKS_OF_FILE: usize = 16_384;
const LOCKS_OF_USER_OF_FILE: usize = 4096;

/// Places of a user, and of a session.
const WAITERS_OF_USER: usize = 1024;
const WAITERS_OF_SESSION: usize = 8192;

/// Locks of a server.
#[derive(Default)]
pub(crate) struct Locks {
    files: HashMap<FileId, Locked>,
    /// Files for which owners wait.
    waiting: BTreeMap<Holder, BTreeSet<FileId>>,
    users: HashMap<u32, Count>,
    sessions: HashMap<SessionId, Count>,
    /// Number of changes that may have given somebody a turn.
    changes: u64,
}

#[derive(Default)]
struct Locked {
    table: LockTable,
    /// Number of locks.
    count: usize,
    /// Locks of each user.
    users: HashMap<u32, Count>,
    /// The number of the last change that may have given somebody a turn.
    changed: u64,
    waiters: VecDeque<Waiter>,
    /// Owners whose open files may have just been closed, and until when that is so.
    closing: BTreeMap<Holder, Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    session: SessionId,
    wanted: FileLock,
    since: Duration,
    /// The moment at which it was asked for last.
    seen: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    locks: usize,
    waiters: usize,
}

impl Waiter {
    fn holder(&self) -> Holder {
        Holder { session: self.session, owner: self.wanted.owner }
    }

    fn is(&self, session: SessionId, wanted: &FileLock) -> bool {
        let FileLock { owner, mode, range, .. } = self.wanted;
        self.session == session && (owner, mode, range) == (wanted.owner, wanted.mode, wanted.range)
    }

    fn conflicts(&self, holder: Holder, wanted: &FileLock) -> bool {
        let is_exclusive = [self.wanted.mode, wanted.mode].contains(&LockMode::Exclusive);
        self.holder() != holder
            && self.wanted.owner.kind == wanted.owner.kind
            && is_exclusive
            && self.wanted.range.overlaps(wanted.range)
    }
}

impl Locked {
    /// Returns whether somebody who waits goes before a wanted lock that conflicts with none.
    fn is_before(&self, session: SessionId, wanted: &FileLock, now: Duration) -> bool {
        let holder = Holder { session, owner: wanted.owner };
        let place = self.waiters.iter().position(|waiter| waiter.is(session, wanted));
        let since = place.map_or(now, |place| self.waiters[place].since);
        let mut earlier = self.waiters.iter().take(place.unwrap_or(usize::MAX));
        now.saturating_sub(since) < TURN
            && !self.table.has(holder)
            && earlier.any(|waiter| waiter.conflicts(holder, wanted))
    }
}

impl Locks {
    /// Returns a lock that keeps another one from being set.
    pub(crate) fn test(&self, id: FileId, session: SessionId, wanted: &FileLock) -> LockReply {
        let conflict = self.files.get(&id).and_then(|file| file.table.conflict(session, wanted));
        match conflict {
            None => LockReply::Done,
            Some((holder, lock)) => {
                let pid = if holder.session == session { lock.pid } else { 0 };
                LockReply::Refused(FileLock { pid, ..lock })
            }
        }
    }

    /// Sets a lock if nothing conflicts; otherwise it may wait.
    pub(crate) fn set(
        &mut self,
        id: FileId,
        session: SessionId,
        wanted: &FileLock,
        waits: bool,
        now: Duration,
    ) -> LockReply {
        let holder = Holder { session, owner: wanted.owner };
        self.drop_silent(id, now);
        self.change(id, holder, |table| table.drop_other_mode(session, wanted));
        let file = self.files.entry(id).or_default();
        let refused = file.table.conflict(session, wanted);
        if refused.is_none() && !(waits && file.is_before(session, wanted, now)) {
            let reply = match self.is_full(id, holder, wanted.uid) {
                true => LockReply::Full,
                false => {
                    self.change(id, holder, |table| table.set(session, wanted));
                    LockReply::Done
                }
            };
            self.cancel(id, session, wanted);
            return reply;
        }
        match refused {
            Some((holder, lock)) if !waits => {
                let may_go = file.closing.get(&holder).is_some_and(|until| now < *until);
                self.tidy(id);
                if may_go { LockReply::MayGo } else { LockReply::Refused(lock) }
            }
            _ => self.wait(id, session, wanted, now),
        }
    }

    /// Gives a lock a place in the queue.
    fn wait(
        &mut self,
        id: FileId,
        session: SessionId,
        wanted: &FileLock,
        now: Duration,
    ) -> LockReply {
        if self.would_deadlock(id, session, wanted) {
            self.cancel(id, session, wanted);
            return LockReply::Deadlock;
        }
        let Some(file) = self.files.get_mut(&id) else { return LockReply::Waits };
        if let Some(waiter) = file.waiters.iter_mut().find(|waiter| waiter.is(session, wanted)) {
            waiter.seen = now;
            return LockReply::Waits;
        }
        let of_user = self.users.get(&wanted.uid).map_or(0, |count| count.waiters);
        let of_session = self.sessions.get(&session).map_or(0, |count| count.waiters);
        if of_user >= WAITERS_OF_USER || of_session >= WAITERS_OF_SESSION {
            self.tidy(id);
            return LockReply::Full;
        }
        self.users.entry(wanted.uid).or_default().waiters += 1;
        self.sessions.entry(session).or_default().waiters += 1;
        file.waiters.push_back(Waiter { session, wanted: *wanted, since: now, seen: now });
        let holder = Holder { session, owner: wanted.owner };
        self.waiting.entry(holder).or_default().insert(id);
        LockReply::Waits
    }

    /// Takes a place in the queue away.
    pub(crate) fn cancel(&mut self, id: FileId, session: SessionId, wanted: &FileLock) {
        self.remove_waiters(id, |waiter| waiter.is(session, wanted));
        self.tidy(id);
    }

    /// Notes that the open files of owners may have just been closed.
    pub(crate) fn note_closing(
        &mut self,
        id: FileId,
        session: SessionId,
        owners: &[LockOwner],
        now: Duration,
    ) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let holders = owners.iter().map(|owner| Holder { session, owner: *owner });
        let with_locks = holders.filter(|holder| file.table.has(*holder));
        file.closing.extend(with_locks.map(|holder| (holder, now + CLOSING)));
    }

    /// Removes an owner's locks from a range.
    pub(crate) fn unlock(
        &mut self,
        id: FileId,
        session: SessionId,
        owner: LockOwner,
        range: LockRange,
    ) -> LockReply {
        let holder = Holder { session, owner };
        let Some(file) = self.files.get(&id) else { return LockReply::Done };
        let mut after = file.table.clone_of(holder);
        after.unlock(holder, range);
        let splits = after.count(holder) > file.table.count(holder);
        if splits && file.table.uid(holder).is_some_and(|uid| self.is_full(id, holder, uid)) {
            return LockReply::Full;
        }
        self.change(id, holder, |table| table.unlock(holder, range));
        self.tidy(id);
        LockReply::Done
    }

    /// Has a session have these locks on a file, and no others, if nothing conflicts. Returns whether
    /// it does.
    pub(crate) fn replace(&mut self, id: FileId, session: SessionId, locks: &[FileLock]) -> bool {
        let file = self.files.get(&id);
        if locks.len() > LOCKS_OF_FILE
            || file.is_some_and(|file| file.table.conflicts_with_any(session, locks))
        {
            return false;
        }
        self.drop_locks(id, session);
        for lock in locks {
            let holder = Holder { session, owner: lock.owner };
            if self.is_full(id, holder, lock.uid) {
                self.drop_locks(id, session);
                self.tidy(id);
                return false;
            }
            self.change(id, holder, |table| table.set(session, lock));
        }
        self.tidy(id);
        true
    }

    /// Returns whether a session has all these locks on a file.
    pub(crate) fn has_all(&self, id: FileId, session: SessionId, locks: &[FileLock]) -> bool {
        let table = self.files.get(&id).map(|file| &file.table);
        locks.iter().all(|lock| table.is_some_and(|table| table.has_lock(session, lock)))
    }

    /// Returns the locks that a session has on a file.
    pub(crate) fn of(&self, id: FileId, session: SessionId) -> Vec<FileLock> {
        self.files.get(&id).map(|file| file.table.of_session(session)).unwrap_or_default()
    }

    /// Removes what a session has on a file, and its places.
    pub(crate) fn drop_session(&mut self, id: FileId, session: SessionId) {
        self.drop_locks(id, session);
        self.remove_waiters(id, |waiter| waiter.session == session);
        self.tidy(id);
    }

    /// Removes everything about a file.
    pub(crate) fn forget(&mut self, id: FileId) {
        self.remove_waiters(id, |_| true);
        let holders = self.files.get(&id).map(|file| file.table.all_holders()).unwrap_or_default();
        for holder in holders {
            self.change(id, holder, |table| table.unlock(holder, LockRange::ALL));
        }
        self.tidy(id);
    }

    /// Returns those of a session's places whose locks may be set now, in files that have changed since a
    /// number of changes. Those at the end of long queues may be missing.
    pub(crate) fn turns(
        &self,
        session: SessionId,
        since: u64,
        now: Duration,
    ) -> Vec<(FileId, LockOwner)> {
        let first = LockOwner { kind: LockKind::Range, number: 0 };
        let waiting = self.waiting.range(Holder { session, owner: first }..);
        let own = waiting.take_while(|(holder, _)| holder.session == session);
        let ids = BTreeSet::from_iter(own.flat_map(|(_, ids)| ids));
        let (mut turns, mut steps) = (BTreeSet::new(), 0);
        'files: for id in ids {
            let Some(file) = self.files.get(id).filter(|file| file.changed > since) else {
                continue;
            };
            for (place, waiter) in file.waiters.iter().enumerate() {
                if waiter.session != session {
                    continue;
                }
                steps += place + file.table.owners();
                if steps > TURN_STEPS {
                    break 'files;
                }
                let wanted = &waiter.wanted;
                if file.table.conflict(session, wanted).is_none()
                    && !file.is_before(session, wanted, now)
                {
                    turns.insert((*id, wanted.owner));
                }
            }
        }
        turns.into_iter().collect()
    }

    /// Returns the number of changes that may have given somebody a turn.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the numbers of locks and of places.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let sum = |of: fn(&Count) -> usize| self.sessions.values().map(of).sum();
        (sum(|count| count.locks), sum(|count| count.waiters))
    }

    fn is_full(&self, id: FileId, holder: Holder, uid: u32) -> bool {
        let of_user = self.users.get(&uid).copied().unwrap_or_default();
        let of_session = self.sessions.get(&holder.session).copied().unwrap_or_default();
        let is_full_of = |file: &Locked| {
            file.count >= LOCKS_OF_FILE
                || file.users.get(&uid).is_some_and(|count| count.locks >= LOCKS_OF_USER_OF_FILE)
        };
        of_user.locks >= LOCKS_OF_USER
            || of_session.locks >= LOCKS_OF_SESSION
            || self.files.get(&id).is_some_and(is_full_of)
    }

    /// Returns whether an owner who waits for a lock would wait for itself.
    fn would_deadlock(&self, id: FileId, session: SessionId, wanted: &FileLock) -> bool {
        if wanted.owner.kind != LockKind::Range {
            return false;
        }
        let asking = Holder { session, owner: wanted.owner };
        let mut steps = 0;
        let mut blockers = |id: FileId, session: SessionId, wanted: &FileLock| {
            let file = self.files.get(&id).filter(|_| steps < DEADLOCK_STEPS);
            steps += file.map_or(0, |file| file.table.owners() + file.waiters.len());
            let conflicts = file.map(|file| file.table.conflicts(session, wanted));
            let holders = conflicts.into_iter().flatten().map(|(holder, _)| holder);
            Vec::from_iter(holders.take(OWNERS_MAX))
        };
        let mut next = blockers(id, session, wanted);
        let mut seen = BTreeSet::new();
        while let Some(holder) = next.pop() {
            if holder == asking {
                return true;
            }
            if !seen.insert(holder) || seen.len() > OWNERS_MAX {
                continue;
            }
            for id in self.waiting.get(&holder).into_iter().flatten() {
                let waiters = self.files.get(id).map(|file| &file.waiters).into_iter().flatten();
                for waiter in waiters.filter(|waiter| waiter.holder() == holder) {
                    next.extend(blockers(*id, holder.session, &waiter.wanted));
                }
            }
        }
        false
    }

    /// Changes locks of an owner, and counts.
    fn change(&mut self, id: FileId, holder: Holder, change: impl FnOnce(&mut LockTable)) {
        let file = self.files.entry(id).or_default();
        let table = &mut file.table;
        let (before, old) = (table.count(holder), table.uid(holder));
        change(table);
        // An owner that changes its locks is there.
        file.closing.remove(&holder);
        let (after, new) = (table.count(holder), table.uid(holder));
        file.count = (file.count + after).saturating_sub(before);
        self.changes += 1;
        file.changed = self.changes;
        for users in [&mut file.users, &mut self.users] {
            if let Some(uid) = old {
                subtract(users, uid, Count { locks: before, waiters: 0 });
            }
            if let Some(uid) = new {
                users.entry(uid).or_default().locks += after;
            }
        }
        self.sessions.entry(holder.session).or_default().locks += after;
        subtract(&mut self.sessions, holder.session, Count { locks: before, waiters: 0 });
    }

    fn drop_locks(&mut self, id: FileId, session: SessionId) {
        let holders = self.files.get(&id).map(|file| file.table.holders(session));
        for holder in holders.unwrap_or_default() {
            self.change(id, holder, |table| table.unlock(holder, LockRange::ALL));
        }
    }

    /// Takes places away whose owners do not ask any more.
    fn drop_silent(&mut self, id: FileId, now: Duration) {
        self.remove_waiters(id, |waiter| now.saturating_sub(waiter.seen) >= WAITER_LIFE);
    }

    fn remove_waiters(&mut self, id: FileId, goes: impl Fn(&Waiter) -> bool) {
        let Some(file) = self.files.get_mut(&id) else { return };
        if !file.waiters.iter().any(&goes) {
            return;
        }
        self.changes += 1;
        file.changed = self.changes;
        let (gone, stays) = file.waiters.drain(..).partition(goes);
        file.waiters = stays;
        let gone: VecDeque<Waiter> = gone;
        for waiter in gone {
            let holder = waiter.holder();
            let one = Count { locks: 0, waiters: 1 };
            subtract(&mut self.users, waiter.wanted.uid, one);
            subtract(&mut self.sessions, waiter.session, one);
            if !file.waiters.iter().any(|other| other.holder() == holder)
                && let Some(ids) = self.waiting.get_mut(&holder)
            {
                ids.remove(&id);
                if ids.is_empty() {
                    self.waiting.remove(&holder);
                }
            }
        }
    }

    /// Forgets a file without locks.
    fn tidy(&mut self, id: FileId) {
        let is_empty = |file: &Locked| file.table.is_empty() && file.waiters.is_empty();
        if self.files.get(&id).is_some_and(is_empty) {
            self.files.remove(&id);
        }
    }
}

/// Subtracts from a count, which is forgotten if nothing is left.
fn subtract<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, Count>, key: K, by: Count) {
    let Entry::Occupied(mut entry) = counts.entry(key) else { return };
    let count = entry.get_mut();
    count.locks = count.locks.saturating_sub(by.locks);
    count.waiters = count.waiters.saturating_sub(by.waiters);
    if *count == Count::default() {
        entry.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(70);
    const OTHER: FileId = FileId(71);

    fn lock(owner: u64, mode: LockMode, start: u64, end: u64) -> FileLock {
        let owner = LockOwner { kind: LockKind::Range, number: owner };
        FileLock { owner, mode, range: LockRange { start, end }, pid: 1, uid: owner.number as u32 }
    }

    fn shared(owner: u64) -> FileLock {
        lock(owner, LockMode::Shared, 0, 9)
    }

    fn exclusive(owner: u64) -> FileLock {
        lock(owner, LockMode::Exclusive, 0, 9)
    }

    /// Sets a lock for the session that has the owner's number.
    fn set(locks: &mut Locks, id: FileId, wanted: &FileLock, ms: u64) -> LockReply {
        locks.set(id, session(wanted), wanted, true, Duration::from_millis(ms))
    }

    fn session(lock: &FileLock) -> SessionId {
        SessionId(lock.owner.number)
    }

    fn unlock(locks: &mut Locks, id: FileId, lock: &FileLock) {
        let reply = locks.unlock(id, session(lock), lock.owner, LockRange::ALL);
        assert_eq!(reply, LockReply::Done);
    }

    #[test]
    fn turns_are_taken_in_order() {
        let mut locks = Locks::default();
        assert_eq!(set(&mut locks, FILE, &shared(1), 0), LockReply::Done);
        assert_eq!(set(&mut locks, FILE, &exclusive(2), 0), LockReply::Waits);
        // No lock is in the way of this one, but it came after the second.
        assert_eq!(set(&mut locks, FILE, &shared(3), 1), LockReply::Waits);
        // Requests that do not wait, and holders of locks, are not delayed.
        let at = Duration::from_millis(2);
        assert_eq!(locks.set(FILE, SessionId(4), &shared(4), false, at), LockReply::Done);
        unlock(&mut locks, FILE, &shared(4));
        let upper = lock(1, LockMode::Shared, 5, 30);
        assert_eq!(set(&mut locks, FILE, &upper, 2), LockReply::Done);
        assert!(
            locks.turns(SessionId(2), 0, at).is_empty()
                && locks.turns(SessionId(3), 0, at).is_empty()
        );
        unlock(&mut locks, FILE, &shared(1));
        assert_eq!(locks.turns(SessionId(2), 0, at), [(FILE, exclusive(2).owner)]);
        assert!(locks.turns(SessionId(3), 0, at).is_empty());
        assert!(locks.turns(SessionId(2), locks.changes(), at).is_empty());
        assert_eq!(set(&mut locks, FILE, &shared(3), 3), LockReply::Waits);
        assert_eq!(set(&mut locks, FILE, &exclusive(2), 3), LockReply::Done);
        unlock(&mut locks, FILE, &exclusive(2));
        assert_eq!(set(&mut locks, FILE, &shared(3), 4), LockReply::Done);
        unlock(&mut locks, FILE, &shared(3));
        assert_eq!(locks.counts(), (0, 0));
        assert!(locks.files.is_empty() && locks.users.is_empty() && locks.waiting.is_empty());
    }

    #[test]
    fn nobody_waits_for_ever_for_one_that_waits() {
        let mut locks = Locks::default();
        assert_eq!(set(&mut locks, FILE, &shared(1), 0), LockReply::Done);
        assert_eq!(set(&mut locks, FILE, &exclusive(2), 0), LockReply::Waits);
        assert_eq!(set(&mut locks, FILE, &shared(3), 100), LockReply::Waits);
        assert_eq!(set(&mut locks, FILE, &exclusive(2), 1000), LockReply::Waits);
        assert_eq!(set(&mut locks, FILE, &shared(3), 1099), LockReply::Waits);
        assert_eq!(set(&mut locks, FILE, &shared(3), 1100), LockReply::Done);
        // A place is lost without requests.
        assert_eq!(set(&mut locks, FILE, &shared(4), 1200), LockReply::Waits);
        assert_eq!(set(&mut locks, FILE, &shared(5), 6000), LockReply::Done);
    }

    #[test]
    fn an_owner_does_not_wait_for_itself() {
        let mut locks = Locks::default();
        for (id, owner) in [(FILE, 1), (OTHER, 2), (FileId(72), 3)] {
            assert_eq!(set(&mut locks, id, &exclusive(owner), 0), LockReply::Done);
        }
        assert_eq!(set(&mut locks, OTHER, &exclusive(1), 0), LockReply::Waits);
        assert_eq!(set(&mut locks, FileId(72), &exclusive(2), 0), LockReply::Waits);
        assert_eq!(set(&mut locks, FILE, &exclusive(3), 0), LockReply::Deadlock);
        // One of two holders of a shared lock may wait for the other.
        assert_eq!(set(&mut locks, FileId(73), &shared(4), 0), LockReply::Done);
        assert_eq!(set(&mut locks, FileId(73), &shared(5), 0), LockReply::Done);
        assert_eq!(set(&mut locks, FileId(73), &exclusive(4), 0), LockReply::Waits);
        assert_eq!(set(&mut locks, FileId(73), &exclusive(5), 0), LockReply::Deadlock);
        // flock(2) does not look for deadlocks.
        let whole = |number, mode| {
            let owner = LockOwner { kind: LockKind::Whole, number };
            FileLock { owner, mode, range: LockRange::ALL, pid: 1, uid: 7 }
        };
        for (id, number) in [(FILE, 8), (OTHER, 9)] {
            let lock = whole(number, LockMode::Exclusive);
            assert_eq!(set(&mut locks, id, &lock, 0), LockReply::Done);
        }
        for (id, number) in [(FILE, 9), (OTHER, 8)] {
            let lock = whole(number, LockMode::Exclusive);
            assert_eq!(set(&mut locks, id, &lock, 0), LockReply::Waits);
        }
    }

    #[test]
    fn a_lock_may_go_for_a_moment_after_a_close() {
        let mut locks = Locks::default();
        let attempt = |locks: &mut Locks, ms| {
            let wanted = exclusive(2);
            locks.set(FILE, session(&wanted), &wanted, false, Duration::from_millis(ms))
        };
        let held = exclusive(1);
        let note_closing = |locks: &mut Locks, ms| {
            locks.note_closing(FILE, session(&held), &[held.owner], Duration::from_millis(ms));
        };
        note_closing(&mut locks, 0);
        assert_eq!(set(&mut locks, FILE, &held, 0), LockReply::Done);
        assert_eq!(attempt(&mut locks, 0), LockReply::Refused(held));
        note_closing(&mut locks, 10);
        assert_eq!(attempt(&mut locks, 1009), LockReply::MayGo);
        assert_eq!(attempt(&mut locks, 1010), LockReply::Refused(held));
        // An owner that sets a lock has not closed its file.
        note_closing(&mut locks, 1010);
        assert_eq!(set(&mut locks, FILE, &held, 1011), LockReply::Done);
        assert_eq!(attempt(&mut locks, 1011), LockReply::Refused(held));
        note_closing(&mut locks, 1012);
        unlock(&mut locks, FILE, &held);
        assert_eq!(attempt(&mut locks, 1012), LockReply::Done);
        assert!(locks.files.values().all(|file| file.closing.is_empty()));
    }

    /// One message of a user with very many locks kept everybody waiting for seconds.
    #[test]
    fn locks_are_restored_within_limits() {
        let mut locks = Locks::default();
        let all = |mode, count: u64| Vec::from_iter((0..count).map(|at| lock(at, mode, at, at)));
        let session = SessionId(1);
        let user = |locks: Vec<FileLock>| {
            Vec::from_iter(locks.into_iter().map(|lock| FileLock { uid: 7, ..lock }))
        };
        let most = LOCKS_OF_USER_OF_FILE as u64;
        assert!(locks.replace(FILE, session, &user(all(LockMode::Shared, most))));
        assert!(locks.replace(FILE, session, &user(all(LockMode::Shared, most))));
        assert!(!locks.replace(FILE, session, &user(all(LockMode::Shared, most + 1))));
        assert_eq!(locks.counts(), (0, 0));
        let many = all(LockMode::Shared, LOCKS_OF_FILE as u64);
        assert!(locks.replace(FILE, session, &many));
        let repeated = Vec::from_iter(many.iter().chain(&many[..1]).copied());
        assert!(!locks.replace(FILE, session, &repeated));
        assert!(locks.replace(FILE, session, &many[..10]));
        let conflicting = [lock(70, LockMode::Exclusive, 9, 20)];
        assert!(!locks.replace(FILE, SessionId(2), &conflicting));
        assert!(locks.replace(FILE, SessionId(2), &[lock(70, LockMode::Exclusive, 10, 20)]));
        assert!(!locks.replace(FILE, session, &many));
        assert_eq!(locks.counts(), (11, 0));
        (1..=2).for_each(|session| locks.drop_session(FILE, SessionId(session)));
        assert!(locks.files.is_empty() && locks.users.is_empty() && locks.sessions.is_empty());
    }

    #[test]
    fn users_have_limits_of_their_own() {
        let mut locks = Locks::default();
        let of = |uid: u32, at: u64| FileLock {
            uid,
            ..lock(uid.into(), LockMode::Exclusive, 2 * at, 2 * at)
        };
        let mut set_in = |id, session: u64, wanted: &FileLock, waits: bool| {
            locks.set(id, SessionId(session), wanted, waits, Duration::ZERO)
        };
        let per_file = LOCKS_OF_USER_OF_FILE as u64;
        for number in 0..LOCKS_OF_USER as u64 {
            let (file, at) = (FileId(FILE.0 + number / per_file), number % per_file);
            assert_eq!(set_in(file, at % 3, &of(7, at), false), LockReply::Done);
            if at == per_file - 1 {
                assert_eq!(set_in(file, 1, &of(7, per_file), false), LockReply::Full);
                assert_eq!(set_in(file, 1, &of(8, per_file), false), LockReply::Done);
            }
        }
        let empty = FileId(FILE.0 + 1000);
        assert_eq!(set_in(empty, 1, &of(7, 0), false), LockReply::Full);
        assert_eq!(set_in(empty, 1, &of(8, 0), false), LockReply::Done);
        let mut set = |session, wanted: &FileLock, waits| set_in(FILE, session, wanted, waits);
        for place in 0..WAITERS_OF_USER as u64 {
            let waiting = FileLock { uid: 7, ..lock(10 + place, LockMode::Shared, 0, 0) };
            assert_eq!(set(4 + place % 2, &waiting, true), LockReply::Waits);
        }
        let waiting = |uid| FileLock { uid, ..lock(5000, LockMode::Shared, 0, 0) };
        assert_eq!(set(4, &waiting(7), true), LockReply::Full);
        assert_eq!(set(4, &waiting(8), true), LockReply::Waits);
        // One lock would become two.
        let mut free = |start, end| {
            locks.unlock(FILE, SessionId::SERVER, of(7, 0).owner, LockRange { start, end })
        };
        assert_eq!(free(0, 0), LockReply::Done);
        for (file, session) in (FILE.0..FILE.0 + 17)
            .chain([empty.0])
            .flat_map(|file| (0..10).map(move |session| (file, session)))
        {
            locks.drop_session(FileId(file), SessionId(session));
        }
        assert!(locks.files.is_empty() && locks.users.is_empty() && locks.sessions.is_empty());
    }
}

//! The one rule of how many processes there are at once: of a user, of an account, and of all.
//!
//! At a limit, a new process takes the place of an idle one of the user, or of the account. Where
//! all places are taken, it takes that of any idle one, else one of the account with most places,
//! as long as its own account has fewer, even with one more.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many processes there are at once.
#[derive(Clone, Copy, Debug)]
pub struct RoomLimits {
    /// Most processes of all accounts together.
    pub all: usize,
    /// Most processes of one account, which may have many uids.
    pub of_account: usize,
    /// Most processes of one uid, which may have several sets of groups.
    pub of_user: usize,
}

/// A process that has a place.
pub(crate) trait Occupant {
    fn uid(&self) -> u32;

    fn account(&self) -> u32;

    /// When it was used last.
    fn used(&self) -> Instant;

    /// Whether it was asked to make way, and still has its place.
    fn is_leaving(&self) -> bool;

    /// Ends if nobody has used it for so long. Returns whether that was so.
    fn retire(&self, idle: Duration) -> bool;

    /// Ends, for another account. Returns whether its place is free at once.
    fn make_way(&self) -> bool;
}

/// All processes that have a place, by keys: few enough that looking through them takes no longer
/// than hashing a key.
pub(crate) struct Room<K, T> {
    limits: RoomLimits,
    all: Vec<(K, Arc<T>)>,
}

impl<K: Eq, T: Occupant> Room<K, T> {
    pub(crate) fn new(limits: RoomLimits) -> Self {
        Room { limits, all: Vec::new() }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&Arc<T>> {
        self.all.iter().find(|(other, _)| other == key).map(|(_, one)| one)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.all.iter().map(|(_, one)| one)
    }

    /// Gives a place to a process; nobody may have it by that key.
    pub(crate) fn insert(&mut self, key: K, occupant: Arc<T>) {
        self.all.push((key, occupant));
    }

    /// Frees the place that somebody has by a key.
    pub(crate) fn remove(&mut self, key: &K) {
        self.all.retain(|(other, _)| other != key);
    }

    /// Frees the place of an occupant, if it still has one.
    pub(crate) fn leave(&mut self, occupant: &Arc<T>) {
        self.all.retain(|(_, one)| !Arc::ptr_eq(one, occupant));
    }

    /// Returns whether one more process of a user may have a place, once others have made way.
    pub(crate) fn make_room(&mut self, uid: u32, account: u32) -> bool {
        let RoomLimits { all, of_account, of_user } = self.limits;
        let is_users = |one: &T| one.uid() == uid;
        let is_accounts = |one: &T| one.account() == account;
        if self.count(&is_users) >= of_user && !self.retire_one(&is_users) {
            return false;
        }
        if self.count(&is_accounts) >= of_account && !self.retire_one(&is_accounts) {
            return false;
        }
        // Those that leave are there for a moment, and are bounded, too.
        if self.all.len() >= 2 * all {
            return false;
        }
        self.count(&|one| !one.is_leaving()) < all
            || self.retire_one(&|_| true)
            || self.take_from_largest(account)
    }

    fn count(&self, among: &dyn Fn(&T) -> bool) -> usize {
        self.iter().filter(|one| among(one)).count()
    }

    /// Ends the process that has been idle for longest, among some of them.
    fn retire_one(&mut self, among: &dyn Fn(&T) -> bool) -> bool {
        let mut tried = None;
        loop {
            let some = self.iter().filter(|one| among(one)).map(|one| (one.used(), one));
            let later = some.filter(|(used, _)| tried.is_none_or(|tried| *used > tried));
            let Some((used, one)) = later.min_by_key(|(used, _)| *used) else { return false };
            if one.retire(Duration::ZERO) {
                self.leave(&one.clone());
                return true;
            }
            tried = Some(used);
        }
    }

    /// Ends a process of the account that has most of them, though it is busy.
    fn take_from_largest(&mut self, account: u32) -> bool {
        let staying = || self.iter().filter(|one| !one.is_leaving());
        let count_of = |account| staying().filter(|one| one.account() == account).count();
        let largest = staying().map(|one| (count_of(one.account()), one.account())).max();
        let Some((_, largest)) = largest.filter(|(count, _)| *count > count_of(account) + 1) else {
            return false;
        };
        let theirs = staying().filter(|one| one.account() == largest);
        let Some(ended) = theirs.min_by_key(|one| one.used()) else { return false };
        if ended.make_way() {
            self.leave(&ended.clone());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Person {
        uid: u32,
        used: Instant,
        is_busy: bool,
        stays: bool,
        is_leaving: AtomicBool,
    }

    impl Occupant for Person {
        fn uid(&self) -> u32 {
            self.uid
        }

        /// Ten uids are one account.
        fn account(&self) -> u32 {
            self.uid / 10
        }

        fn used(&self) -> Instant {
            self.used
        }

        fn is_leaving(&self) -> bool {
            self.is_leaving.load(Ordering::SeqCst)
        }

        fn retire(&self, _: Duration) -> bool {
            !self.is_busy
        }

        fn make_way(&self) -> bool {
            self.is_leaving.store(true, Ordering::SeqCst);
            !self.stays
        }
    }

    const LIMITS: RoomLimits = RoomLimits { all: 6, of_account: 4, of_user: 2 };

    struct Fixture {
        room: Room<u32, Person>,
        next: u32,
        is_busy: bool,
        stays: bool,
    }

    impl Fixture {
        fn new(is_busy: bool, stays: bool) -> Self {
            Fixture { room: Room::new(LIMITS), next: 0, is_busy, stays }
        }

        fn enter(&mut self, uid: u32) -> bool {
            if !self.room.make_room(uid, uid / 10) {
                return false;
            }
            self.next += 1;
            let used = Instant::now() + Duration::from_secs(self.next.into());
            let (is_busy, stays) = (self.is_busy, self.stays);
            let person = Person { uid, used, is_busy, stays, is_leaving: AtomicBool::new(false) };
            self.room.insert(self.next, Arc::new(person));
            true
        }

        /// The uids of those who stay, sorted.
        fn uids(&self) -> Vec<u32> {
            let staying = self.room.iter().filter(|one| !one.is_leaving());
            let mut uids: Vec<u32> = staying.map(|one| one.uid).collect();
            uids.sort_unstable();
            uids
        }
    }

    #[test]
    fn the_idle_make_room_for_their_own_first() {
        let mut place = Fixture::new(false, false);
        for uid in [10, 10, 11, 12] {
            assert!(place.enter(uid));
        }
        assert!(place.enter(10), "the oldest of the user");
        assert!(place.room.get(&1).is_none());
        assert!(place.enter(13), "the oldest of the account");
        assert!(place.room.get(&2).is_none());
        assert_eq!(place.uids(), [10, 11, 12, 13]);
        assert!(place.enter(20) && place.enter(21) && place.enter(22), "the oldest of all");
        assert_eq!(place.uids(), [10, 12, 13, 20, 21, 22]);
    }

    #[test]
    fn the_busy_keep_their_share() {
        let mut place = Fixture::new(true, false);
        assert!(place.enter(10) && place.enter(10));
        assert!(!place.enter(10), "the limit of a user");
        assert!(place.enter(11) && place.enter(12));
        assert!(!place.enter(13), "the limit of an account");
        assert!(place.enter(20) && place.enter(21));
        // All places are taken: four and two.
        assert!(place.enter(22), "of the largest account, the one that was used first");
        assert_eq!(place.uids(), [10, 11, 12, 20, 21, 22]);
        assert!(!place.enter(23) && !place.enter(13), "nobody has fewer than another");
        assert!(place.enter(30) && place.enter(31), "one of each of the others");
        assert_eq!(place.uids().len(), LIMITS.all);
        assert_eq!(place.uids()[4..], [30, 31]);
        assert!(!place.enter(32), "as many as the others have, with one more");
    }

    #[test]
    fn those_that_leave_are_bounded() {
        let mut place = Fixture::new(true, true);
        for uid in [10, 11, 12, 13, 20, 21] {
            assert!(place.enter(uid));
        }
        assert!(place.enter(30));
        assert_eq!(place.uids(), [11, 12, 13, 20, 21, 30]);
        assert!(!place.enter(14), "one that leaves still counts for its account");
        for uid in 40..60 {
            place.enter(uid);
        }
        assert!(place.room.iter().count() <= 2 * LIMITS.all);
    }
}

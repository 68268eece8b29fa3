//! Places for processes that serve one caller each, such as a connection.

use crate::accounts::Accounts;
use crate::room::{Occupant, Room, RoomLimits};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Seated = Mutex<Room<u64, Occupied>>;

/// Places for the processes of all users, within limits by account. They are busy until they are
/// given back.
pub struct Seats {
    accounts: Accounts,
    next: AtomicU64,
    room: Arc<Seated>,
}

/// A place, which is free again when this is dropped.
pub struct Seat {
    key: u64,
    occupied: Arc<Occupied>,
    room: Arc<Seated>,
}

struct Occupied {
    uid: u32,
    account: u32,
    since: Instant,
    is_asked_to_leave: AtomicBool,
}

impl Seats {
    /// Returns places, all free.
    pub fn new(accounts: Accounts, limits: RoomLimits) -> Self {
        Seats { accounts, next: AtomicU64::new(0), room: Arc::new(Mutex::new(Room::new(limits))) }
    }

    /// Takes a place for a user, if there is one. Where all are taken, somebody is asked to leave.
    pub fn take(&self, uid: u32) -> Option<Seat> {
        let account = self.accounts.of(uid);
        let mut room = self.room.lock();
        if !room.make_room(uid, account) {
            return None;
        }
        let (since, is_asked_to_leave) = (Instant::now(), AtomicBool::new(false));
        let occupied = Arc::new(Occupied { uid, account, since, is_asked_to_leave });
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        room.insert(key, occupied.clone());
        Some(Seat { key, occupied, room: self.room.clone() })
    }
}

impl Seat {
    /// Returns the account that the place counts for.
    pub fn account(&self) -> u32 {
        self.occupied.account
    }

    /// Returns whether another account needs the place.
    pub fn is_asked_to_leave(&self) -> bool {
        self.occupied.is_leaving()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.lock().remove(&self.key);
    }
}

impl Occupant for Occupied {
    fn uid(&self) -> u32 {
        self.uid
    }

    fn account(&self) -> u32 {
        self.account
    }

    fn used(&self) -> Instant {
        self.since
    }

    fn is_leaving(&self) -> bool {
        self.is_asked_to_leave.load(Ordering::SeqCst)
    }

    fn retire(&self, _: Duration) -> bool {
        false
    }

    fn make_way(&self) -> bool {
        self.is_asked_to_leave.store(true, Ordering::SeqCst);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_of_an_account_share_its_places() {
        let accounts = Accounts::of_ranges(vec![(100_000..200_000, 1)]);
        let seats = Seats::new(accounts, RoomLimits { all: 4, of_account: 3, of_user: 3 });
        let mut own: Vec<Seat> = (100_000..).map_while(|uid| seats.take(uid)).collect();
        assert_eq!(own.len(), 3);
        assert!(own.iter().all(|seat| seat.account() == 1));
        assert!(seats.take(1).is_none(), "the same account");
        let _others = [seats.take(2).expect("a free one"), seats.take(3).expect("one of three")];
        assert_eq!(own.iter().filter(|seat| seat.is_asked_to_leave()).count(), 1);
        assert!(seats.take(1).is_none(), "it has not left yet");
        own.retain(|seat| !seat.is_asked_to_leave());
        assert!(seats.take(1).is_none(), "all places are taken, and nobody has more");
        own.clear();
        assert!(seats.take(1).is_some());
    }
}

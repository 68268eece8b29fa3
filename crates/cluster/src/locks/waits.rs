//! Threads of a process that wait for turns of locks: few, and few for each user.

use crate::message::{Sender, SessionId};
use canopy_namespace::operation::Caller;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Threads that wait.
const WAITS: usize = 32;

/// Threads that wait for one user or one session.
const WAITS_OF_ONE: usize = 4;

/// The account that a request counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Account {
    /// A user who is checked.
    User(u32),
    /// A client that is trusted, or speaks for root.
    Session(SessionId),
}

impl Account {
    /// Returns the account of a sender.
    pub(crate) fn of(sender: &Sender<'_>) -> Self {
        match sender.caller {
            Caller::User(who) if !who.is_root() => Account::User(who.uid),
            _ => Account::Session(sender.session),
        }
    }
}

/// Counts threads that wait.
#[derive(Default)]
pub(crate) struct LockWaiters(Mutex<HashMap<Account, usize>>);

/// A thread that may wait until this is dropped.
pub(crate) struct Waiting<'a> {
    waits: &'a LockWaiters,
    account: Account,
}

impl LockWaiters {
    /// Returns the right to wait; none if too many do.
    pub(crate) fn begin(&self, account: Account) -> Option<Waiting<'_>> {
        let mut counts = self.0.lock();
        let all: usize = counts.values().sum();
        let own = counts.get(&account).copied().unwrap_or_default();
        if all >= WAITS || own >= WAITS_OF_ONE {
            return None;
        }
        counts.insert(account, own + 1);
        Some(Waiting { waits: self, account })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut counts = self.waits.0.lock();
        if let Some(count) = counts.get_mut(&self.account) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_room_for_others() {
        let waits = LockWaiters::default();
        let of_one = Vec::from_iter((0..WAITS).map_while(|_| waits.begin(Account::User(7))));
        assert_eq!(of_one.len(), WAITS_OF_ONE);
        let rest = Vec::from_iter((8..100).map_while(|uid| waits.begin(Account::User(uid))));
        assert_eq!(rest.len(), WAITS - WAITS_OF_ONE);
        drop(of_one);
        assert!(waits.begin(Account::User(7)).is_some());
    }
}

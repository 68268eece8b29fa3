//! Numbers of a client's changes: each slot of the session has one change under way at a time.

use canopy_namespace::ChangeId;
use parking_lot::{Condvar, Mutex};

/// Slots of a client's session.
pub(crate) struct Slots {
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    /// Numbers of the changes for which the slots were used last. A slot is there once it was used.
    latest: Vec<u64>,
    /// Slots that are free, the last one used at the end: few slots are used, so servers have few
    /// records.
    free: Vec<usize>,
}

/// A slot that is in use until this is dropped.
pub(crate) struct Slot<'a> {
    slots: &'a Slots,
    slot: usize,
    /// Number of the change.
    pub(crate) number: u64,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.slots.state.lock().free.push(self.slot);
        self.slots.freed.notify_one();
    }
}

impl Slots {
    pub(crate) fn new() -> Self {
        let state = State { latest: Vec::new(), free: Vec::new() };
        Slots { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// Takes a slot for a change, and waits until one is free.
    pub(crate) fn take(&self) -> Slot<'_> {
        let mut state = self.state.lock();
        loop {
            if let Some((slot, number)) = state.next() {
                return Slot { slots: self, slot, number };
            }
            self.freed.wait(&mut state);
        }
    }

    /// Takes a slot if one is free. A thread that has one must not wait for another one.
    pub(crate) fn try_take(&self) -> Option<Slot<'_>> {
        let (slot, number) = self.state.lock().next()?;
        Some(Slot { slots: self, slot, number })
    }
}

impl State {
    /// Returns a free slot with the number of its next change.
    fn next(&mut self) -> Option<(usize, u64)> {
        let unused = self.latest.len();
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if (unused as u64) < ChangeId::SLOTS => {
                self.latest.push(unused as u64);
                unused
            }
            None => return None,
        };
        self.latest[slot] += ChangeId::SLOTS;
        Some((slot, self.latest[slot]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_slot_has_one_change_at_a_time_and_growing_numbers() {
        let slots = Slots::new();
        let all = Vec::from_iter((0..ChangeId::SLOTS).map(|_| slots.take()));
        let slot = |number| ChangeId { session: 1, number }.slot();
        let used = BTreeSet::from_iter(all.iter().map(|taken| slot(taken.number)));
        assert_eq!(used.len() as u64, ChangeId::SLOTS);
        // One that waits gets a slot when there is one.
        let (first, rest) = (all[0].number, all.len());
        assert!(slots.try_take().is_none());
        let next = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| slots.take().number);
            drop(all.into_iter().next());
            waiting.join().unwrap()
        });
        assert_eq!(rest as u64, ChangeId::SLOTS);
        assert!(next > first);
    }
}

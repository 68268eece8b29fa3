//! Memory for results of queries, by account and in total.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Memory is charged in steps of this size while it grows.
const STEP_BYTES: usize = 256 << 10;

/// How much memory there is.
pub struct Budget {
    most: usize,
    of_account: usize,
    used: Mutex<HashMap<u32, usize>>,
}

/// Memory of one piece of work or one result; released on drop.
pub struct Charge {
    budget: Arc<Budget>,
    account: u32,
    bytes: usize,
}

impl Budget {
    /// Returns a budget of `most` bytes, and of `of_account` for one account.
    pub fn new(most: usize, of_account: usize) -> Arc<Self> {
        Arc::new(Budget { most, of_account, used: Mutex::default() })
    }

    /// Returns how much an account may have at most, when nobody else has any.
    pub fn of_account(&self) -> usize {
        self.of_account
    }

    /// Returns a charge of nothing yet.
    pub fn charge(self: &Arc<Self>, account: u32) -> Charge {
        Charge { budget: self.clone(), account, bytes: 0 }
    }
}

impl Charge {
    /// Makes it cover at least `bytes`. Returns whether it does: an account may have half of the
    /// part that others leave, so that there is always some for one more.
    pub fn cover(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        let wanted = bytes.next_multiple_of(STEP_BYTES);
        let mut used = self.budget.used.lock();
        let all: usize = used.values().sum();
        let own = used.get(&self.account).copied().unwrap_or_default();
        let left = self.budget.most.saturating_sub(all - own);
        let more = wanted - self.bytes;
        if own + more > self.budget.of_account.min(left / 2) {
            return false;
        }
        *used.entry(self.account).or_default() += more;
        self.bytes = wanted;
        true
    }

    /// Releases the memory beyond `bytes`.
    pub fn settle(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        let mut used = self.budget.used.lock();
        if let Some(own) = used.get_mut(&self.account) {
            *own -= less;
            if *own == 0 {
                used.remove(&self.account);
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.settle(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_some_left_for_one_more() {
        const MB: usize = 1 << 20;
        let budget = Budget::new(64 * MB, 16 * MB);
        let mut first = budget.charge(1);
        assert!(first.cover(16 * MB) && !first.cover(16 * MB + 1));
        // Another one of the same account has none.
        assert!(!budget.charge(1).cover(1));
        let mut others = Vec::new();
        for account in 2..8 {
            let mut charge = budget.charge(account);
            let most = (1..=64).rev().find(|half| charge.cover(half * (MB / 2)));
            others.push((most, charge));
        }
        let most: Vec<_> = others.iter().map(|(most, _)| most.unwrap_or_default()).collect();
        // In half megabytes: half of the 48, 32, 16, 8, 4 and 2 MB that others leave, 16 MB at most.
        assert_eq!(most, [32, 32, 16, 8, 4, 2]);
        first.settle(100);
        assert_eq!(first.bytes, 100);
        drop((first, others));
        assert!(budget.used.lock().is_empty());
    }
}

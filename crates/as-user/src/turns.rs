//! How many heavy requests of one account are answered at a time.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Heavy requests that are answered, by account.
pub(crate) struct Turns {
    most: usize,
    counts: Mutex<HashMap<u32, usize>>,
}

impl Turns {
    pub(crate) fn new(most: usize) -> Self {
        Turns { most, counts: Mutex::default() }
    }

    /// Counts one more; returns whether the account may have it.
    pub(crate) fn begin(&self, account: u32) -> bool {
        let mut all = self.counts.lock();
        let count = all.entry(account).or_default();
        let may_begin = *count < self.most;
        *count += usize::from(may_begin);
        may_begin
    }

    pub(crate) fn end(&self, account: u32) {
        let mut all = self.counts.lock();
        if let Some(count) = all.get_mut(&account) {
            *count -= 1;
            if *count == 0 {
                all.remove(&account);
            }
        }
    }
}

//! Answers about entries of just now: programs ask for the attributes of an entry again once they
//! have found it, and of all entries once they have listed them.

use crate::protocol::Entry;
use canopy_as_user::Accounts;
use canopy_model::Credentials;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an answer is believed: the processes that answer look for a new generation as often.
const TIME: Duration = Duration::from_secs(1);

/// How many entries are remembered for one set of credentials, and bytes of their paths and targets.
const ENTRIES_MAX: usize = 4096;
const BYTES_MAX: usize = 1 << 20;

/// How many sets of credentials are remembered, and those of one account.
const USERS_MAX: usize = 128;
const USERS_OF_ACCOUNT_MAX: usize = 16;

/// Entries by path from the root of the mount, and the times of the replies.
#[derive(Default)]
struct Memory {
    account: u32,
    last: Option<Instant>,
    entries: HashMap<Vec<u8>, (Instant, Entry)>,
    bytes: usize,
}

impl Memory {
    fn add(&mut self, path: Vec<u8>, now: Instant, entry: Entry) {
        let bytes = bytes_of(&path, &entry);
        let has_room = |memory: &Memory| {
            memory.entries.len() < ENTRIES_MAX && memory.bytes + bytes <= BYTES_MAX
        };
        if !has_room(self) {
            self.entries.retain(|_, (since, _)| now.duration_since(*since) < TIME);
            self.bytes = self.entries.iter().map(|(path, (_, entry))| bytes_of(path, entry)).sum();
        }
        if !has_room(self) {
            self.entries.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        // A replaced entry counts until entries are counted again.
        self.entries.insert(path, (now, entry));
    }
}

fn bytes_of(path: &[u8], entry: &Entry) -> usize {
    path.len() + entry.target.len()
}

/// Recent replies for each set of credentials. No other credentials get them.
pub(crate) struct Recent {
    all: Mutex<HashMap<Credentials, Memory>>,
    accounts: Accounts,
}

impl Recent {
    pub(crate) fn new(accounts: Accounts) -> Self {
        Recent { all: Mutex::default(), accounts }
    }

    pub(crate) fn get(&self, who: &Credentials, path: &[u8]) -> Option<Entry> {
        let all = self.all.lock();
        let (since, entry) = all.get(who)?.entries.get(path)?;
        (since.elapsed() < TIME).then(|| entry.clone())
    }

    pub(crate) fn add<'a>(
        &self,
        who: &Credentials,
        told: impl IntoIterator<Item = (Vec<u8>, &'a Entry)>,
    ) {
        let account = self.accounts.of(who.uid);
        let mut all = self.all.lock();
        if !all.contains_key(who) && !self.has_room(&mut all, account) {
            return;
        }
        let now = Instant::now();
        let memory = all.entry(who.clone()).or_default();
        memory.account = account;
        memory.last = Some(now);
        for (path, entry) in told {
            memory.add(path, now, entry.clone());
        }
    }

    /// Returns whether one more set of credentials of an account can be remembered, once those are
    /// forgotten whose entries are too old.
    fn has_room(&self, all: &mut HashMap<Credentials, Memory>, account: u32) -> bool {
        let has_room = |all: &HashMap<Credentials, Memory>| {
            let own = all.values().filter(|memory| memory.account == account).count();
            all.len() < USERS_MAX && own < USERS_OF_ACCOUNT_MAX
        };
        if !has_room(all) {
            all.retain(|_, memory| memory.last.is_some_and(|last| last.elapsed() < TIME));
        }
        has_room(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_replies_are_for_one_set_of_credentials() {
        let ranges = vec![(100_000..200_000, 7)];
        let recent = Recent::new(Accounts::of_ranges(ranges));
        let (one, other) = (Credentials::new(1, [1]), Credentials::new(1, [1, 2]));
        let entry = Entry { ino: 7, ..Entry::default() };
        recent.add(&one, [(b"a".to_vec(), &entry)]);
        assert_eq!(recent.get(&one, b"a"), Some(entry.clone()));
        assert_eq!(recent.get(&one, b"b"), None);
        assert_eq!(recent.get(&other, b"a"), None);
        for number in 0..3 * ENTRIES_MAX {
            recent.add(&one, [(number.to_string().into_bytes(), &entry)]);
        }
        assert!(recent.all.lock()[&one].entries.len() <= ENTRIES_MAX);
        let deep = |number: usize| format!("{number}/{}", "x".repeat(4000)).into_bytes();
        for number in 0..ENTRIES_MAX {
            recent.add(&one, [(deep(number), &entry)]);
        }
        let held = recent.all.lock()[&one].entries.keys().map(Vec::len).sum::<usize>();
        assert!(held <= BYTES_MAX, "{held}");
        // The uids of one account leave others theirs.
        for uid in 100_000..100_000 + USERS_MAX as u32 {
            recent.add(&Credentials::new(uid, []), [(Vec::new(), &entry)]);
        }
        assert_eq!(recent.all.lock().len(), 1 + USERS_OF_ACCOUNT_MAX);
        for uid in 0..2 * USERS_MAX as u32 {
            recent.add(&Credentials::new(uid, []), [(Vec::new(), &entry)]);
        }
        assert_eq!(recent.all.lock().len(), USERS_MAX);
    }
}

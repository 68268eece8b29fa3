//! What helpers have told of entries just now: programs ask for the attributes of an entry again
//! once they have found it, and of all entries once they have listed them.

use crate::protocol::Entry;
use canopy_model::Credentials;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What was told is believed for so long, as helpers themselves look for a new generation no more
/// often.
const TIME: Duration = Duration::from_secs(1);

/// So many entries are remembered for one set of credentials, and so many of these.
const ENTRIES_MAX: usize = 4096;
const USERS_MAX: usize = 128;

/// Entries by path from the root of the mount, and when they were told.
#[derive(Default)]
struct Memory {
    last: Option<Instant>,
    entries: HashMap<Vec<u8>, (Instant, Entry)>,
}

/// What was told to each set of credentials, and is told to no other.
#[derive(Default)]
pub(crate) struct Recent(Mutex<HashMap<Credentials, Memory>>);

impl Recent {
    pub(crate) fn get(&self, who: &Credentials, path: &[u8]) -> Option<Entry> {
        let all = self.0.lock();
        let (since, entry) = all.get(who)?.entries.get(path)?;
        (since.elapsed() < TIME).then(|| entry.clone())
    }

    pub(crate) fn add<'a>(
        &self,
        who: &Credentials,
        told: impl IntoIterator<Item = (Vec<u8>, &'a Entry)>,
    ) {
        let mut all = self.0.lock();
        if !all.contains_key(who) && all.len() >= USERS_MAX {
            all.retain(|_, memory| memory.last.is_some_and(|last| last.elapsed() < TIME));
            if all.len() >= USERS_MAX {
                return;
            }
        }
        let now = Instant::now();
        let memory = all.entry(who.clone()).or_default();
        memory.last = Some(now);
        for (path, entry) in told {
            if memory.entries.len() >= ENTRIES_MAX {
                memory.entries.retain(|_, (since, _)| now.duration_since(*since) < TIME);
            }
            if memory.entries.len() >= ENTRIES_MAX {
                memory.entries.clear();
            }
            memory.entries.insert(path, (now, entry.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_was_told_is_told_to_no_other() {
        let recent = Recent::default();
        let (one, other) = (Credentials::new(1, [1]), Credentials::new(1, [1, 2]));
        let entry = Entry { ino: 7, ..Entry::default() };
        recent.add(&one, [(b"a".to_vec(), &entry)]);
        assert_eq!(recent.get(&one, b"a"), Some(entry.clone()));
        assert_eq!(recent.get(&one, b"b"), None);
        assert_eq!(recent.get(&other, b"a"), None);
        for number in 0..3 * ENTRIES_MAX {
            recent.add(&one, [(number.to_string().into_bytes(), &entry)]);
        }
        assert!(recent.0.lock()[&one].entries.len() <= ENTRIES_MAX);
        for uid in 0..2 * USERS_MAX as u32 {
            recent.add(&Credentials::new(uid, []), [(Vec::new(), &entry)]);
        }
        assert_eq!(recent.0.lock().len(), USERS_MAX);
    }
}

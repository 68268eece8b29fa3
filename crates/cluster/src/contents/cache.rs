//! Chunks in memory. Objects never change, so what is here is right for as long as a record names
//! it; the least recently used goes first.

use bytes::Bytes;
use canopy_namespace::{ChunkId, ObjectId, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap, HashSet};

/// An object of a chunk.
type Name = (ChunkId, ObjectId);

/// Objects that were fetched or made.
pub(super) struct Cache {
    bytes_max: usize,
    state: Mutex<State>,
    fetched: Condvar,
}

#[derive(Default)]
struct State {
    entries: HashMap<Name, (u64, Bytes)>,
    /// By when they were used last.
    uses: BTreeMap<u64, Name>,
    next_use: u64,
    bytes: usize,
    /// Objects that somebody fetches now.
    fetching: HashSet<Name>,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Cache { bytes_max, state: Mutex::default(), fetched: Condvar::new() }
    }

    /// Returns whether an object is here.
    pub(super) fn has(&self, name: Name) -> bool {
        self.state.lock().entries.contains_key(&name)
    }

    /// Returns an object, which `fetch` gets if it is not here. Several who want the same one wait
    /// for the first.
    pub(super) fn get(&self, name: Name, fetch: impl FnOnce() -> Result<Bytes>) -> Result<Bytes> {
        {
            let mut state = self.state.lock();
            loop {
                if let Some(bytes) = state.touch(name) {
                    return Ok(bytes);
                }
                if state.fetching.insert(name) {
                    break;
                }
                self.fetched.wait(&mut state);
            }
        }
        let fetched = fetch();
        {
            let mut state = self.state.lock();
            state.fetching.remove(&name);
            if let Ok(bytes) = &fetched {
                state.insert(name, bytes.clone(), self.bytes_max);
            }
        }
        self.fetched.notify_all();
        fetched
    }

    /// Keeps an object that was made here.
    pub(super) fn put(&self, name: Name, bytes: Bytes) {
        self.state.lock().insert(name, bytes, self.bytes_max);
    }
}

impl State {
    fn touch(&mut self, name: Name) -> Option<Bytes> {
        let (used, bytes) = self.entries.get_mut(&name)?;
        self.uses.remove(used);
        *used = self.next_use;
        self.uses.insert(self.next_use, name);
        self.next_use += 1;
        Some(bytes.clone())
    }

    fn insert(&mut self, name: Name, bytes: Bytes, bytes_max: usize) {
        if self.touch(name).is_some() || bytes.len() > bytes_max {
            return;
        }
        self.bytes += bytes.len();
        self.uses.insert(self.next_use, name);
        self.entries.insert(name, (self.next_use, bytes));
        self.next_use += 1;
        while self.bytes > bytes_max
            && let Some((_, oldest)) = self.uses.pop_first()
            && let Some((_, bytes)) = self.entries.remove(&oldest)
        {
            self.bytes -= bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_namespace::FileId;

    fn name(number: u64) -> Name {
        (ChunkId::new(FileId(1), 0), ObjectId { epoch: 1, number })
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = Cache::new(30);
        let bytes = || Ok(Bytes::from_static(&[1; 10]));
        for number in 0..3 {
            cache.get(name(number), bytes).expect("bytes");
        }
        cache.get(name(0), || unreachable!("it is here")).expect("bytes");
        cache.put(name(3), Bytes::from_static(&[1; 10]));
        assert!(cache.has(name(0)) && cache.has(name(2)) && cache.has(name(3)));
        assert!(!cache.has(name(1)));
        cache.put(name(4), vec![0; 31].into());
        assert!(!cache.has(name(4)), "it is larger than the cache");
    }
}

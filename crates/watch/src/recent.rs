//! A cache of recently used values, in bounded memory.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Bytes that a value may have on average where as many are kept as may be.
const VALUE_BYTES: usize = 256;

/// Values by key: at least the last `len_max` / 2, and at most `len_max`. Values that are used
/// again stay.
pub(crate) struct Recent<K, V> {
    young: FxHashMap<K, V>,
    old: FxHashMap<K, V>,
    /// Bytes of the young values.
    young_bytes: usize,
    len_max: usize,
    bytes_of: fn(&V) -> usize,
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    /// Begins with none. `bytes_of` says what a value takes.
    pub(crate) fn new(len_max: usize, bytes_of: fn(&V) -> usize) -> Self {
        let (young, old) = (FxHashMap::default(), FxHashMap::default());
        Recent { young, old, young_bytes: 0, len_max, bytes_of }
    }

    /// Returns the value of a key, if it is known.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    /// Keeps a value, as the last one.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let len_max = self.len_max / 2;
        if self.young.len() >= len_max || self.young_bytes >= len_max * VALUE_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += (self.bytes_of)(&value);
        self.young.insert(key, value);
    }

    /// Forgets the value of a key.
    pub(crate) fn forget(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
        self.young_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_paths_stay() {
        let mut recent = Recent::new(8, |_: &u32| 1);
        recent.insert(0, 0);
        for number in 1..100 {
            recent.insert(number, number);
            assert_eq!(recent.get(&0), Some(0), "{number}");
            assert!(recent.young.len() + recent.old.len() <= 8);
        }
        assert_eq!((recent.get(&99), recent.get(&1)), (Some(99), None));
        recent.forget(&99);
        assert_eq!(recent.get(&99), None);
        recent.clear();
        assert_eq!(recent.get(&0), None);
    }

    #[test]
    fn long_values_are_fewer() {
        let mut recent = Recent::new(100, Vec::<u8>::len);
        for number in 0..100 {
            recent.insert(number, vec![0; 100 * VALUE_BYTES]);
        }
        assert!(recent.young.len() + recent.old.len() <= 2);
    }
}

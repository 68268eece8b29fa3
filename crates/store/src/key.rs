//! Keys of records: a directory's id, the hash of a name, the name. The caller decides what the
//! parts mean: an index of attributes has the attribute in place of the directory.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A key that owns its name. Keys are ordered by directory, then hash, then the bytes of the name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Key {
    /// Prefix of all keys that are listed together: the id of a directory, or of an attribute in an
    /// index.
    pub directory: u64,
    /// Orders the records of a directory, so that a part of it is one range.
    pub hash: u64,
    /// The rest of the key.
    pub name: Vec<u8>,
}

/// A key whose name lies elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRef<'a> {
    /// As in [`Key`].
    pub directory: u64,
    /// As in [`Key`].
    pub hash: u64,
    /// As in [`Key`].
    pub name: &'a [u8],
}

/// Names of keys are this long at most, in bytes.
pub const NAME_MAX: usize = 65_535;

/// Returns the hash that [`Key::named`] gives a name.
pub fn hash_of(name: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name)
}

impl Key {
    /// Returns the key of `name` in `directory`, with the name's own hash. Tables keep no
    /// hashes of such keys: they are computed again.
    pub fn named(directory: u64, name: &[u8]) -> Self {
        Key { directory, hash: hash_of(name), name: name.to_vec() }
    }

    /// Returns a view of this key.
    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef { directory: self.directory, hash: self.hash, name: &self.name }
    }

    /// Returns the least key that is greater than this one.
    pub fn successor(mut self) -> Self {
        self.name.push(0);
        self
    }
}

impl KeyRef<'_> {
    /// Returns a key that owns its name.
    pub fn to_key(self) -> Key {
        Key { directory: self.directory, hash: self.hash, name: self.name.to_vec() }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:016x}/{}", self.directory, self.hash, self.name.escape_ascii())
    }
}

/// The keys from `start` up to, but not including, `end`; without an end, all from `start` on.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeyRange {
    /// The least key.
    pub start: Key,
    /// The least key beyond.
    pub end: Option<Key>,
}

impl KeyRange {
    /// Returns the range of all keys.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns the range of all keys of one directory.
    pub fn directory(directory: u64) -> Self {
        let key = |directory| Key { directory, hash: 0, name: Vec::new() };
        KeyRange { start: key(directory), end: directory.checked_add(1).map(key) }
    }

    /// Returns whether the range has `key`.
    pub fn contains(&self, key: KeyRef<'_>) -> bool {
        self.start.as_ref() <= key && self.end.as_ref().is_none_or(|end| key < end.as_ref())
    }

    /// Returns whether the range has no key.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Returns the keys that both ranges have.
    pub fn intersection(&self, other: &Self) -> Self {
        let ends = [&self.end, &other.end];
        KeyRange {
            start: self.start.clone().max(other.start.clone()),
            end: ends.into_iter().flatten().min().cloned(),
        }
    }

    /// Returns whether the range has all keys of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        other.is_empty() || self.intersection(other) == *other
    }
}

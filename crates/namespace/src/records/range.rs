//! The names that a tablet holds: all of a namespace, or a part of them.
//!
//! A directory has its names in one tablet until they are many. Then each of several tablets holds
//! the names in one range of hashes, which is one range of keys. All records of a file lie in the
//! tablet that holds its name.

use crate::records::keys::{self, FileId};
use canopy_store::{Key, KeyRange};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The names that a tablet holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TabletRange {
    /// All names of the namespace.
    #[default]
    All,
    /// Names in the directories that the tablet has records of: all names of each, but for these
    /// directories, of which it holds the names with hashes of a range.
    Part(BTreeMap<FileId, RangeInclusive<u64>>),
}

impl TabletRange {
    /// Returns whether the tablet holds a name, if it has a record of the directory.
    pub fn has_name(&self, directory: FileId, hash: u64) -> bool {
        match self {
            TabletRange::All => true,
            TabletRange::Part(split) => {
                split.get(&directory).is_none_or(|hashes| hashes.contains(&hash))
            }
        }
    }

    /// Returns whether other tablets hold names of a directory, too.
    pub fn is_split(&self, directory: FileId) -> bool {
        match self {
            TabletRange::All => false,
            TabletRange::Part(split) => split.contains_key(&directory),
        }
    }

    /// Returns the range of the names of a directory that the tablet holds.
    pub fn names_in(&self, directory: FileId) -> KeyRange {
        let all = keys::names_in(directory);
        let TabletRange::Part(split) = self else { return all };
        let Some(hashes) = split.get(&directory) else { return all };
        let bound = |hash| Key { directory: directory.0, hash, name: Vec::new() };
        let end = hashes.end().checked_add(1).map(bound).or(all.end);
        KeyRange { start: bound(*hashes.start()), end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_their_names() {
        let middle = 1 << 63;
        let (one, other) = (FileId(7), FileId(8));
        let low = TabletRange::Part([(one, 0..=middle - 1)].into());
        let high = TabletRange::Part([(one, middle..=u64::MAX)].into());
        for (range, hashes) in [(&low, [0, middle - 1]), (&high, [middle, u64::MAX])] {
            for hash in [0, 1, middle - 1, middle, middle + 1, u64::MAX] {
                let is_in = (hashes[0]..=hashes[1]).contains(&hash);
                assert_eq!(range.has_name(one, hash), is_in);
                let key = Key { directory: one.0, hash, name: b"a".to_vec() };
                assert_eq!(range.names_in(one).contains(key.as_ref()), is_in);
                assert!(range.has_name(other, hash) && TabletRange::All.has_name(one, hash));
            }
            assert!(range.is_split(one) && !range.is_split(other));
            assert_eq!(range.names_in(other), keys::names_in(other));
        }
        assert!(!TabletRange::All.is_split(one));
        assert_eq!(TabletRange::All.names_in(one), keys::names_in(one));
    }
}

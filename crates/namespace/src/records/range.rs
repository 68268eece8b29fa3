//! The names that a tablet holds: all of a namespace, or a part of them.
//!
//! A directory has its names in one tablet until they are many. Then each of several tablets holds
//! the names in some ranges of hashes, each of which is one range of keys. All records of a file lie
//! in the tablet that holds its name. Records in other ranges are invisible: they arrive or leave.

use crate::records::keys::{self, FileId};
use canopy_store::{Key, KeyRange};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The names that a tablet holds.
#[derive(Debug, Default)]
pub enum TabletRange {
    /// All names of the namespace.
    #[default]
    All,
    /// Names in the directories of which the tablet has the content half: all names of each, but for
    /// these directories, of which it holds the names with hashes of some ranges.
    Part(SplitDirectories),
}

/// Directories with names in several tablets, and the ranges of hashes that one tablet holds.
#[derive(Debug, Default)]
pub struct SplitDirectories(RwLock<BTreeMap<FileId, Vec<RangeInclusive<u64>>>>);

impl SplitDirectories {
    fn ranges(&self, directory: FileId) -> Option<Vec<RangeInclusive<u64>>> {
        self.0.read().get(&directory).cloned()
    }
}

impl FromIterator<(FileId, RangeInclusive<u64>)> for SplitDirectories {
    fn from_iter<I: IntoIterator<Item = (FileId, RangeInclusive<u64>)>>(ranges: I) -> Self {
        let mut split: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (directory, range) in ranges {
            split.entry(directory).or_default().push(range);
        }
        SplitDirectories(RwLock::new(split))
    }
}

impl TabletRange {
    /// Returns whether the tablet holds a name, if it has the content half of the directory.
    pub fn has_name(&self, directory: FileId, hash: u64) -> bool {
        match self {
            TabletRange::All => true,
            TabletRange::Part(split) => {
                let split = split.0.read();
                let ranges = split.get(&directory);
                ranges.is_none_or(|ranges| ranges.iter().any(|range| range.contains(&hash)))
            }
        }
    }

    /// Returns whether other tablets hold names of a directory, too.
    pub fn is_split(&self, directory: FileId) -> bool {
        match self {
            TabletRange::All => false,
            TabletRange::Part(split) => split.0.read().contains_key(&directory),
        }
    }

    /// Returns the range of hashes that the tablet holds, with a hash in it; none if it does not hold
    /// names with this hash.
    pub fn around(&self, directory: FileId, hash: u64) -> Option<RangeInclusive<u64>> {
        let TabletRange::Part(split) = self else { return Some(0..=u64::MAX) };
        match split.ranges(directory) {
            None => Some(0..=u64::MAX),
            Some(ranges) => ranges.into_iter().find(|range| range.contains(&hash)),
        }
    }

    /// Returns the ranges of the names of a directory that the tablet holds.
    pub fn names_in(&self, directory: FileId) -> Vec<KeyRange> {
        let TabletRange::Part(split) = self else { return vec![keys::names_in(directory)] };
        match split.ranges(directory) {
            None => vec![keys::names_in(directory)],
            Some(ranges) => ranges.into_iter().map(|range| names_with(directory, &range)).collect(),
        }
    }

    /// Returns the names that the tablet holds now, whatever it holds later.
    pub(crate) fn frozen(&self) -> Self {
        match self {
            TabletRange::All => TabletRange::All,
            TabletRange::Part(split) => {
                let split = split.0.read().clone();
                TabletRange::Part(SplitDirectories(RwLock::new(split)))
            }
        }
    }

    /// Has the tablet hold names of a directory with hashes of these ranges from now on, and no
    /// others. A tablet with all names stays so.
    pub(crate) fn set(&self, directory: FileId, ranges: Vec<RangeInclusive<u64>>) {
        if let TabletRange::Part(split) = self {
            split.0.write().insert(directory, ranges);
        }
    }
}

/// Returns the range of the names of a directory with these hashes.
pub(crate) fn names_with(directory: FileId, hashes: &RangeInclusive<u64>) -> KeyRange {
    let bound = |hash| Key { directory: directory.0, hash, name: Vec::new() };
    let end = hashes.end().checked_add(1).map(bound).or(keys::names_in(directory).end);
    KeyRange { start: bound(*hashes.start()), end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part<const N: usize>(ranges: [(FileId, RangeInclusive<u64>); N]) -> TabletRange {
        TabletRange::Part(ranges.into_iter().collect())
    }

    #[test]
    fn ranges_have_their_names() {
        let middle = 1 << 63;
        let (one, other) = (FileId(7), FileId(8));
        let low = part([(one, 0..=middle - 1)]);
        let high = part([(one, middle..=u64::MAX)]);
        for (range, hashes) in [(&low, [0, middle - 1]), (&high, [middle, u64::MAX])] {
            for hash in [0, 1, middle - 1, middle, middle + 1, u64::MAX] {
                let is_in = (hashes[0]..=hashes[1]).contains(&hash);
                assert_eq!(range.has_name(one, hash), is_in);
                let key = Key { directory: one.0, hash, name: b"a".to_vec() };
                assert_eq!(range.names_in(one)[0].contains(key.as_ref()), is_in);
                assert!(range.has_name(other, hash) && TabletRange::All.has_name(one, hash));
            }
            assert!(range.is_split(one) && !range.is_split(other));
            assert_eq!(range.names_in(other), [keys::names_in(other)]);
        }
        assert!(!TabletRange::All.is_split(one));
        assert_eq!(TabletRange::All.names_in(one), [keys::names_in(one)]);
    }
}

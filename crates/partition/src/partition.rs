//! Numbers of partitions, and the hashes that partitions hold.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;

/// Most splits on the way from partition 0 to any partition.
pub const DEPTH_MAX: u32 = 16;

/// Most partitions of a directory.
pub const PARTITIONS_MAX: u32 = 1 << DEPTH_MAX;

/// Number of a partition in its directory, below [`PARTITIONS_MAX`].
///
/// The bits of the number are the path of splits from partition 0: bit `k` is set if the split of
/// depth `k` led to the upper half.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "u32", into = "u32")]
pub struct PartitionId(u32);

impl PartitionId {
    /// The partition that a directory begins with.
    pub const ZERO: PartitionId = PartitionId(0);

    /// Returns the partition with a number; `None` from [`PARTITIONS_MAX`] on.
    pub fn new(number: u32) -> Option<Self> {
        (number < PARTITIONS_MAX).then_some(PartitionId(number))
    }

    /// Returns the number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Returns the partition whose split made this one; `None` for partition 0.
    pub fn parent(self) -> Option<Self> {
        let top = self.0.checked_ilog2()?;
        Some(PartitionId(self.0 & !(1 << top)))
    }

    /// Returns the depth that the partition has from its beginning until its first split: the
    /// number of splits that led to it.
    pub fn first_depth(self) -> u32 {
        self.0.checked_ilog2().map_or(0, |top| top + 1)
    }

    /// Returns the partition that a split makes of the upper half while this one has `depth`;
    /// `None` below its first depth and from [`DEPTH_MAX`] on.
    pub fn child(self, depth: u32) -> Option<Self> {
        let is_depth = (self.first_depth()..DEPTH_MAX).contains(&depth);
        is_depth.then(|| PartitionId(self.0 | 1 << depth))
    }

    /// Returns the hashes of names that the partition holds while it has `depth`, at most
    /// [`DEPTH_MAX`]: 2^(64 - depth) of them.
    pub fn hashes(self, depth: u32) -> RangeInclusive<u64> {
        // The lowest bit of a number decides first, so it is the highest bit of the hashes.
        let first = u64::from(self.0).reverse_bits();
        first..=first | u64::MAX.checked_shr(depth).unwrap_or(0)
    }
}

impl From<PartitionId> for u32 {
    fn from(partition: PartitionId) -> u32 {
        partition.0
    }
}

impl TryFrom<u32> for PartitionId {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        PartitionId::new(number).ok_or("a directory has at most 65536 partitions")
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(number: u32) -> PartitionId {
        PartitionId::new(number).unwrap()
    }

    #[test]
    fn numbers_are_paths_of_splits() {
        let family = |number| {
            let this = partition(number);
            (this.parent().map(PartitionId::number), this.first_depth())
        };
        assert_eq!(family(0), (None, 0));
        assert_eq!(family(1), (Some(0), 1));
        assert_eq!(family(2), (Some(0), 2));
        assert_eq!(family(3), (Some(1), 2));
        assert_eq!(family(5), (Some(1), 3));
        assert_eq!(family(65535), (Some(32767), 16));
        assert_eq!(PartitionId::new(65536), None);
        // The paper's example: P1 of depth 2 splits, and P5 gets the larger half.
        assert_eq!(partition(1).child(2), Some(partition(5)));
        assert_eq!((partition(1).child(0), partition(1).child(16)), (None, None));
    }

    #[test]
    fn a_partition_is_one_range() {
        assert_eq!(PartitionId::ZERO.hashes(0), 0..=u64::MAX);
        assert_eq!(PartitionId::ZERO.hashes(1), 0..=u64::MAX >> 1);
        assert_eq!(partition(1).hashes(1), 1 << 63..=u64::MAX);
        // The paper's P5 has (0.625, 0.75] of the hashes.
        assert_eq!(partition(5).hashes(3), 5 << 61..=(6 << 61) - 1);
        assert_eq!(partition(65535).hashes(16), 0xffff << 48..=u64::MAX);
    }
}

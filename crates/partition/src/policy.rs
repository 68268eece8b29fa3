//! When a partition splits.

use crate::map::SplitHistory;
use crate::partition::PartitionId;
use crate::placement::Placement;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// A half with less than this share of the entries is too small (one eighth): the hash has no key,
/// so names can be made to collide, and further splits would not help.
const SMALLER_HALF_DIVISOR: u64 = 8;

/// Settings of a namespace that decide when partitions split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitPolicy {
    /// Entries above which a partition splits, on average.
    pub entries_max: u64,
    /// Largest difference between the threshold of a partition and the average, in percent of it.
    /// So the partitions of a directory do not all split at once (Figure 5 of the paper).
    pub variation_percent: u8,
    /// Partitions of a directory that a server gets at most.
    pub partitions_per_server: u32,
}

impl Default for SplitPolicy {
    /// Returns the paper's threshold, and four partitions a server (Figure 8: 4, 8 and 16 are best).
    fn default() -> Self {
        SplitPolicy { entries_max: 8000, variation_percent: 25, partitions_per_server: 4 }
    }
}

/// A split: the upper half of a partition becomes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The partition that the split makes.
    pub child: PartitionId,
    /// Whether the entries of the upper half move to another server. Otherwise the split writes one
    /// record.
    pub moves: bool,
}

impl SplitPolicy {
    /// Returns the number of entries above which a partition of a directory splits.
    pub fn threshold(&self, directory: u64, partition: PartitionId) -> u64 {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&directory.to_le_bytes());
        bytes[8..].copy_from_slice(&partition.number().to_le_bytes());
        let variation = self.entries_max.saturating_mul(self.variation_percent.into()) / 100;
        let places = variation.saturating_mul(2).saturating_add(1);
        self.entries_max.saturating_sub(variation).saturating_add(xxh3_64(&bytes) % places)
    }

    /// Returns the split that a partition may make now, whatever its size. `None` if there is no
    /// server for its child, of `servers` that exist: partition numbers stay dense.
    pub fn child(
        &self,
        placement: &Placement,
        history: SplitHistory,
        servers: u32,
    ) -> Option<Split> {
        let partition = history.partition();
        let child = partition.child(history.depth())?;
        let moves = placement.server(child) != placement.server(partition);
        placement.has_server(child, servers).then_some(Split { child, moves })
    }

    /// Returns whether the larger half of a split, with `larger` entries, may split again, as the
    /// other half got `smaller` entries. Without entries, as in a split by a hint, it may.
    pub fn may_split_again(smaller: u64, larger: u64) -> bool {
        let all = smaller.saturating_add(larger);
        all == 0 || smaller.saturating_mul(SMALLER_HALF_DIVISOR) >= all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::ServerId;

    #[test]
    fn thresholds_differ_by_up_to_a_quarter() {
        let policy = SplitPolicy::default();
        let all = |directory| {
            (0..4096).filter_map(PartitionId::new).map(move |one| policy.threshold(directory, one))
        };
        let (least, most) = (all(7).min().unwrap(), all(7).max().unwrap());
        assert!((6000..6100).contains(&least) && (9900..=10_000).contains(&most), "{least} {most}");
        let mean = all(7).sum::<u64>() / 4096;
        assert!((7900..8100).contains(&mean), "{mean}");
        assert_ne!(all(7).collect::<Vec<_>>(), all(8).collect::<Vec<_>>());
        let constant = SplitPolicy { variation_percent: 0, ..policy };
        assert_eq!(constant.threshold(7, PartitionId::ZERO), 8000);
        let largest = SplitPolicy { entries_max: u64::MAX, ..policy };
        assert!(largest.threshold(7, PartitionId::ZERO) >= u64::MAX / 100);
    }

    #[test]
    fn a_partition_splits_if_there_is_a_server() {
        let policy = SplitPolicy::default();
        let placement = Placement::new(ServerId(1), 3, 2).unwrap();
        let split = |number: u32, depth: u32, servers: u32| {
            let history = SplitHistory::new(PartitionId::new(number).unwrap(), depth).unwrap();
            let split = policy.child(&placement, history, servers);
            split.map(|split| (split.child.number(), split.moves))
        };
        assert_eq!(split(0, 0, 3), Some((1, true)));
        assert_eq!(split(0, 1, 3), Some((2, true)));
        assert_eq!(split(1, 2, 3), Some((5, true)));
        // There are partitions 0 to 5 with three servers, and 6 and 7 with the fourth.
        assert_eq!(split(2, 2, 3), None);
        assert_eq!(split(2, 2, 4), Some((6, true)));
        let single = Placement::new(ServerId(0), 1, 4).unwrap();
        let history = SplitHistory::new(PartitionId::ZERO, 1).unwrap();
        assert_eq!(policy.child(&single, history, 1).map(|split| split.moves), Some(false));
    }

    #[test]
    fn colliding_names_end_splits() {
        let may = SplitPolicy::may_split_again;
        assert!(may(0, 0) && may(4000, 4000) && may(1000, 7000));
        assert!(!may(0, 8000) && !may(999, 7001));
        assert!(may(u64::MAX, u64::MAX));
    }
}

//! The partitions of a directory that are known to exist.

use crate::partition::{DEPTH_MAX, PARTITIONS_MAX, PartitionId};
use serde::{Deserialize, Serialize};

/// The splits of one partition, which its server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(PartitionId, u8)", into = "(PartitionId, u8)")]
pub struct SplitHistory {
    partition: PartitionId,
    depth: u8,
}

impl SplitHistory {
    /// Returns the history of a partition that has reached `depth`; `None` if it cannot have it.
    pub fn new(partition: PartitionId, depth: u32) -> Option<Self> {
        let is_depth = (partition.first_depth()..=DEPTH_MAX).contains(&depth);
        is_depth.then_some(SplitHistory { partition, depth: depth as u8 })
    }

    /// Returns the partition.
    pub fn partition(self) -> PartitionId {
        self.partition
    }

    /// Returns the number of splits on the way from partition 0, its own ones included.
    pub fn depth(self) -> u32 {
        self.depth.into()
    }

    /// Returns whether the partition holds the names with a hash.
    pub fn holds(self, hash: u64) -> bool {
        self.partition.hashes(self.depth()).contains(&hash)
    }

    /// Returns the partitions that its splits have made, in the order of splits.
    pub fn children(self) -> impl Iterator<Item = PartitionId> {
        let SplitHistory { partition, .. } = self;
        (partition.first_depth()..self.depth()).filter_map(move |depth| partition.child(depth))
    }
}

impl From<SplitHistory> for (PartitionId, u8) {
    fn from(history: SplitHistory) -> Self {
        (history.partition, history.depth)
    }
}

impl TryFrom<(PartitionId, u8)> for SplitHistory {
    type Error = &'static str;

    fn try_from((partition, depth): (PartitionId, u8)) -> Result<Self, Self::Error> {
        SplitHistory::new(partition, depth.into()).ok_or("no partition has this depth")
    }
}

/// Partitions of a directory that exist, as far as they are known: the bitmap of the paper. Partition
/// 0 always exists. A map of a client may lack partitions, and never has too many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryMap {
    /// A bit for each partition but the first, up to the last word with a bit that is set.
    words: Vec<u64>,
}

impl DirectoryMap {
    /// Returns whether a partition is known to exist.
    pub fn contains(&self, partition: PartitionId) -> bool {
        let (word, bit) = place(partition);
        partition == PartitionId::ZERO
            || self.words.get(word).is_some_and(|word| word >> bit & 1 == 1)
    }

    /// Returns the number of known partitions.
    pub fn count(&self) -> usize {
        1 + self.words.iter().map(|word| word.count_ones() as usize).sum::<usize>()
    }

    /// Returns whether the directory has never been split, as far as that is known.
    pub fn is_unsplit(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns known partitions in the order of their numbers.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> {
        let numbers = 1..PARTITIONS_MAX.min(64 * self.words.len() as u32);
        let others = numbers.filter_map(PartitionId::new).filter(|one| self.contains(*one));
        std::iter::once(PartitionId::ZERO).chain(others)
    }

    /// Returns the depth of a known partition.
    pub fn depth(&self, partition: PartitionId) -> u32 {
        let has_split =
            |depth: &u32| partition.child(*depth).is_some_and(|child| self.contains(child));
        (partition.first_depth()..DEPTH_MAX).find(|depth| !has_split(depth)).unwrap_or(DEPTH_MAX)
    }

    /// Returns the history of a known partition.
    pub fn history(&self, partition: PartitionId) -> SplitHistory {
        SplitHistory { partition, depth: self.depth(partition) as u8 }
    }

    /// Returns the known partition that holds the names with a hash. If the map is stale, a
    /// descendant of that partition may hold them. At most 17 steps.
    pub fn find(&self, hash: u64) -> PartitionId {
        let path = (hash.reverse_bits() & u64::from(PARTITIONS_MAX - 1)) as u32;
        let of_depth = |depth: u32| PartitionId::new(path & ((1 << depth) - 1));
        let depth_max = (64 * self.words.len() as u32).next_power_of_two().trailing_zeros();
        let depths = (0..=depth_max.min(DEPTH_MAX)).rev();
        let mut candidates = depths.filter_map(of_depth);
        candidates.find(|one| self.contains(*one)).unwrap_or(PartitionId::ZERO)
    }

    /// Adds the partition that the next split of a known partition makes, and returns it. `None` if
    /// the partition cannot split any more.
    pub fn split(&mut self, partition: PartitionId) -> Option<PartitionId> {
        let child = partition.child(self.depth(partition))?;
        self.insert(child);
        Some(child)
    }

    /// Adds all partitions that must exist if a history is true.
    pub fn learn(&mut self, history: SplitHistory) {
        let mut known = Some(history);
        while let Some(history) = known {
            history.children().for_each(|child| self.insert(child));
            // The parent has split until it made this one.
            known = history
                .partition
                .parent()
                .and_then(|parent| SplitHistory::new(parent, history.partition.first_depth()));
        }
    }

    /// Adds the partitions of another map of the same directory.
    pub fn merge(&mut self, other: &DirectoryMap) {
        self.words.resize(self.words.len().max(other.words.len()), 0);
        self.words.iter_mut().zip(&other.words).for_each(|(own, other)| *own |= other);
    }

    fn insert(&mut self, partition: PartitionId) {
        let (word, bit) = place(partition);
        if partition != PartitionId::ZERO {
            self.words.resize(self.words.len().max(word + 1), 0);
            self.words[word] |= 1 << bit;
        }
    }
}

fn place(partition: PartitionId) -> (usize, u32) {
    (partition.number() as usize / 64, partition.number() % 64)
}

/// Builds the map of all partitions from the histories of servers, which `history` fetches. It
/// begins with partition 0, whose history names its children.
///
/// # Errors
///
/// Fails with the first error of `history`.
pub fn enumerate<E>(
    mut history: impl FnMut(PartitionId) -> Result<SplitHistory, E>,
) -> Result<DirectoryMap, E> {
    let mut map = DirectoryMap::default();
    let mut ahead = vec![PartitionId::ZERO];
    while let Some(partition) = ahead.pop() {
        let history = history(partition)?;
        map.learn(history);
        ahead.extend(history.children());
    }
    Ok(map)
}

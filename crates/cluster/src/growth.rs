//! Numbers of entries of partitions, and which partitions are to be split since they have too many.
//!
//! Counts are kept in memory, and may be too high: a rename may replace an entry. They are exact again
//! once a partition is looked at to be split.
//!
//! A split that leaves a half with less than an eighth of the entries shows that names collide, by
//! chance or on purpose. The other half is not split again by its size: it would come to no more. Its
//! server records that, in one record for each directory.

use crate::error::Result;
use crate::server::Server;
use canopy_namespace::{FileId, PartitionRecord, WHOLE};
use canopy_partition::{Holdings, PartitionId, Placement, SplitHistory, SplitPolicy};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Directories whose counts are remembered. Others are counted again when they are used.
const DIRECTORIES_MAX: usize = 1 << 16;

/// Directories with partitions that are remembered as not to be split.
const WHOLE_MAX: usize = 1 << 16;

/// Counts of a server's partitions.
#[derive(Default)]
pub(crate) struct Growth {
    counts: Mutex<HashMap<FileId, HashMap<PartitionId, u64>>>,
    /// Partitions that have too many entries, and were not looked at since.
    grown: Mutex<HashSet<(FileId, PartitionId)>>,
    /// Partitions that are not split by their size.
    whole: Mutex<HashMap<FileId, BTreeSet<PartitionId>>>,
}

impl Growth {
    /// Forgets the counts of a directory.
    pub(crate) fn forget(&self, directory: FileId) {
        self.counts.lock().remove(&directory);
    }

    /// Returns the partitions that may have to be split, each once.
    pub(crate) fn take_oversized(&self) -> Vec<(FileId, PartitionId)> {
        let mut grown = self.grown.lock();
        match grown.is_empty() {
            true => Vec::new(),
            false => grown.drain().collect(),
        }
    }

    /// Notes that partitions are not split by their size any more. Returns all such partitions of the
    /// directory that are known.
    pub(crate) fn keep_whole(
        &self,
        directory: FileId,
        partitions: impl IntoIterator<Item = PartitionId>,
    ) -> BTreeSet<PartitionId> {
        let mut whole = self.whole.lock();
        if whole.len() >= WHOLE_MAX && !whole.contains_key(&directory) {
            whole.clear();
        }
        let of_directory = whole.entry(directory).or_default();
        of_directory.extend(partitions);
        of_directory.clone()
    }

    /// Returns whether a partition may be split by its size.
    pub(crate) fn may_split(&self, directory: FileId, partition: PartitionId) -> bool {
        !self.whole.lock().get(&directory).is_some_and(|whole| whole.contains(&partition))
    }

    fn set(&self, directory: FileId, partition: PartitionId, count: u64) {
        let mut counts = self.counts.lock();
        if counts.len() >= DIRECTORIES_MAX && !counts.contains_key(&directory) {
            counts.clear();
        }
        counts.entry(directory).or_default().insert(partition, count);
    }
}

/// Entries of the halves that a split makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halves {
    lower: u64,
    upper: u64,
}

impl Halves {
    /// Returns whether the half that stays may be split by its size, and the half that leaves.
    pub(crate) fn may_split_again(self) -> (bool, bool) {
        let Halves { lower, upper } = self;
        let may = SplitPolicy::may_split_again(lower.min(upper), lower.max(upper));
        (may || lower < upper, may || upper < lower)
    }
}

impl Server {
    /// Counts an entry that was created (1) or removed (-1), of a name that is held, and notes the
    /// partition if it has too many.
    pub(crate) fn count(&self, directory: FileId, hash: u64, change: i64) -> Result<()> {
        let state = self.state.read();
        let holder = match state.holdings_of(directory) {
            Some(holdings) => holdings.holder(hash),
            None => Holdings::new_directory().holder(hash),
        };
        // It may have just gone elsewhere.
        let Some(history) = holder else { return Ok(()) };
        let partition = history.partition();
        let known =
            self.growth.counts.lock().get(&directory).and_then(|of| of.get(&partition)).copied();
        let count = match known {
            Some(count) => count.saturating_add_signed(change),
            None => self.tablet.count_entries(directory, &partition.hashes(history.depth()))?,
        };
        self.growth.set(directory, partition, count);
        if change > 0
            && count > self.layout.policy.threshold(directory.0, partition)
            && self.has_server_for_child(state.placements.get(&directory), history)
            && self.growth.may_split(directory, partition)
        {
            self.growth.grown.lock().insert((directory, partition));
        }
        Ok(())
    }

    /// Returns whether there is a server for the partition that the next split would make.
    fn has_server_for_child(&self, placement: Option<&Placement>, history: SplitHistory) -> bool {
        let servers = self.layout.server_count();
        match placement {
            Some(placement) => self.layout.policy.child(placement, history, servers).is_some(),
            None => servers.saturating_mul(self.layout.policy.partitions_per_server) > 1,
        }
    }

    /// Returns whether a partition here has too many entries, and may be split for that.
    pub(crate) fn is_too_large(&self, directory: FileId, partition: PartitionId) -> Result<bool> {
        if !self.growth.may_split(directory, partition) {
            return Ok(false);
        }
        let count = self.count_of(directory, partition)?;
        Ok(count > self.layout.policy.threshold(directory.0, partition))
    }

    /// Returns the number of entries of a partition; 0 if it is not here.
    pub(crate) fn count_of(&self, directory: FileId, partition: PartitionId) -> Result<u64> {
        let Some(history) = self.holdings(directory)?.history(partition) else { return Ok(0) };
        let count = self.tablet.count_entries(directory, &partition.hashes(history.depth()))?;
        self.growth.set(directory, partition, count);
        Ok(count)
    }

    /// Returns the partitions of a directory here, with their numbers of entries.
    pub(crate) fn counts_of(&self, directory: FileId) -> Result<Vec<(SplitHistory, u64)>> {
        let mut counts = Vec::new();
        for history in self.histories(directory)? {
            counts.push((history, self.count_of(directory, history.partition())?));
        }
        Ok(counts)
    }

    /// Records that a partition is not split by its size any more.
    pub(crate) fn mark_unsplittable(
        &self,
        directory: FileId,
        partition: PartitionId,
    ) -> Result<()> {
        if !self.growth.may_split(directory, partition) {
            return Ok(());
        }
        // With the lock: the directory must not be removed before its record is written.
        let state = self.state.write();
        if state.holdings_of(directory).is_none() {
            return Ok(());
        }
        let whole = self.growth.keep_whole(directory, [partition]);
        // A few numbers cannot fail to be encoded into memory.
        let value = postcard::to_extend(&whole, Vec::new()).unwrap_or_default();
        let record = PartitionRecord { directory, partition: WHOLE, value: Some(value) };
        self.tablet.put_partition_records(&[record])?;
        Ok(self.tablet.table().sync_visible()?)
    }

    /// Counts the entries of the halves that a split would make.
    pub(crate) fn halves(
        &self,
        directory: FileId,
        partition: PartitionId,
        child: PartitionId,
    ) -> Result<Halves> {
        let upper = child.hashes(child.first_depth());
        let upper = self.tablet.count_entries(directory, &upper)?;
        let all = self.count_of(directory, partition)?;
        Ok(Halves { lower: all.saturating_sub(upper), upper })
    }
}

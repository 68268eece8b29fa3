//! The recorded placements of directories, at a logical server (`layout`).

use crate::error::Result;
use crate::message::Partitions;
use crate::server::{Server, State};
use canopy_namespace::{FileId, PLACEMENT, PartitionRecord};
use canopy_partition::{PartitionId, Placement, Split, SplitHistory};

impl Server {
    /// Returns the servers of the partitions of a directory; none if it was never split, as far as is
    /// known here.
    pub(crate) fn placement(&self, directory: FileId) -> Option<Placement> {
        self.state.read().placements.get(&directory).copied()
    }

    /// Returns the servers of the partitions of a directory of which this server holds or offers one.
    ///
    /// # Errors
    ///
    /// Fails with `Corrupt` if that is not recorded.
    pub(crate) fn recorded_placement(&self, directory: FileId) -> Result<Placement> {
        let missing = || {
            let text = format!("directory {directory} has no record of its servers");
            canopy_namespace::Error::Corrupt(text)
        };
        Ok(self.placement(directory).ok_or_else(missing)?)
    }

    /// Records, for good, the servers of the partitions of a directory, unless they are known. A
    /// directory that is about to be removed stays as it is. Returns the placement that counts.
    pub(crate) fn take_placement(
        &self,
        directory: FileId,
        placement: Placement,
    ) -> Result<Option<Placement>> {
        let mut state = self.state.write();
        if let Some(known) = state.placements.get(&directory) {
            return Ok(Some(*known));
        }
        if state.is_closed(directory) {
            return Ok(None);
        }
        // A few numbers cannot fail to be encoded into memory.
        let value = postcard::to_extend(&placement, Vec::new()).unwrap_or_default();
        let record = PartitionRecord { directory, partition: PLACEMENT, value: Some(value) };
        self.tablet.put_partition_records(&[record])?;
        state.placements.insert(directory, placement);
        self.tablet.table().sync_visible()?;
        Ok(Some(placement))
    }

    /// Returns the split that a partition here makes next, with the servers of all partitions. Records
    /// these before the first split. None if there is no server for another partition.
    pub(crate) fn next_split(
        &self,
        directory: FileId,
        history: SplitHistory,
    ) -> Result<Option<(Placement, Split)>> {
        let layout = &self.layout;
        let placement = match self.placement(directory) {
            Some(placement) => placement,
            // A server gets the placement before its first other partition.
            None if history.partition() == PartitionId::ZERO => layout.new_placement(directory)?,
            None => return self.recorded_placement(directory).map(|_| None),
        };
        let split = layout.policy.child(&placement, history, layout.server_count());
        let Some(split) = split else { return Ok(None) };
        let recorded = self.take_placement(directory, placement)?;
        // Somebody else may have recorded another one just now: then this is tried again later.
        Ok((recorded == Some(placement)).then_some((placement, split)))
    }

    /// Returns what this server knows of the partitions of a directory.
    pub(crate) fn partitions(&self, directory: FileId) -> Result<Partitions> {
        self.partitions_in(&self.state.read(), directory)
    }

    /// Returns them by a state that is locked.
    pub(crate) fn partitions_in(&self, state: &State, directory: FileId) -> Result<Partitions> {
        let histories = self.holdings_in(state, directory)?.histories().collect();
        Ok(Partitions { histories, placement: state.placements.get(&directory).copied() })
    }
}

impl State {
    /// Returns what a refusal says about the partitions of a directory.
    pub(crate) fn partitions(&self, directory: FileId) -> Partitions {
        let histories = self.holdings_of(directory).map(|holdings| holdings.histories().collect());
        let placement = self.placements.get(&directory).copied();
        Partitions { histories: histories.unwrap_or_default(), placement }
    }
}

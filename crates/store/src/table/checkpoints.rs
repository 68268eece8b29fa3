//! Checkpoints of a table that this process has open: what it had at one moment, for as long as
//! somebody wants it.

use super::{Table, TableSnapshot};
use crate::checkpoint::{checkpoint, keep, release};
use crate::commit::{current, read_version};
use crate::error::{Error, Result};
use crate::manifest::{Checkpoint, Hold};
use crate::view::Layers;
use std::sync::Arc;

impl Table {
    /// Makes a checkpoint of what is in SSTables now, and returns its id, which no other gets. It
    /// goes after `lifetime_ms` milliseconds, unless it is kept.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if there is no such table, with `Contended` if others keep changing
    /// it, and as storage does.
    pub fn checkpoint(&self, lifetime_ms: u64) -> Result<u64> {
        self.check_writable()?;
        let (id, _) = checkpoint(&self.environment, self.id, Some(lifetime_ms))?;
        Ok(id)
    }

    /// Keeps a checkpoint until it is released. An error says that it is gone. A checkpoint that is
    /// kept already costs nothing.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if the table or the checkpoint is gone, with `Contended` if others
    /// keep changing the table, and as storage does.
    pub fn keep_checkpoint(&self, checkpoint: u64) -> Result<()> {
        let all = self.checkpoints()?;
        let found = all.iter().find(|one| one.id == checkpoint);
        match found.map(|found| found.hold) {
            Some(Hold::Forever) => Ok(()),
            // Nobody releases it while this process has the lock, and its time may be over.
            Some(Hold::Until(_)) if self.is_read_only => Ok(()),
            _ => keep(&self.environment, self.id, checkpoint),
        }
    }

    /// Lets a checkpoint go, if it is still there.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if there is no such table, with `Contended` if others keep changing
    /// it, and as storage does.
    pub fn release_checkpoint(&self, checkpoint: u64) -> Result<()> {
        self.check_writable()?;
        release(&self.environment, self.id, checkpoint)
    }

    /// Returns all checkpoints of the table, in the order in which they were made.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if there is no such table, with `Corrupt` if its manifest is damaged,
    /// and as storage does.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        Ok(current(&self.environment, self.id)?.state.checkpoints)
    }

    /// Returns the table as it was at a checkpoint, and the sizes of its SSTables together. It can be
    /// read until the checkpoint is released.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if the checkpoint is gone, and as storage does.
    pub fn at_checkpoint(&self, checkpoint: u64) -> Result<(TableSnapshot, u64)> {
        let all = self.checkpoints()?;
        let found = all.iter().find(|one| one.id == checkpoint).ok_or_else(|| {
            Error::NotFound(format!("checkpoint {checkpoint} of table {}", self.id))
        })?;
        let manifest = read_version(&self.environment, self.id, found.version)?;
        let view = Layers::of(&manifest.state, &self.cache, self.options.operator.clone());
        let bytes = manifest.state.runs.iter().map(|run| run.size_bytes()).sum();
        Ok((TableSnapshot { view: Arc::new(view), sequence: u64::MAX, pin: None }, bytes))
    }
}

//! Making a table what it was at a checkpoint.

use super::Table;
use crate::batch::Batch;
use crate::commit::{commit, current, read_version};
use crate::environment::Environment;
use crate::error::{Error, Fenced, Result};
use crate::manifest::{LeaseKind, Run};
use crate::memtable::{Memtable, ReaderRange};
use crate::names::TableId;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

impl Table {
    /// Restores the table's state at a checkpoint, and then makes the changes of `batch`, all in
    /// one commit. Nobody else writes meanwhile. Everything that this process read before is stale.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if the checkpoint is gone, and with `Fenced` if another process has
    /// taken over the table. Fails with `Contended` if others keep changing it, and as storage
    /// does.
    pub fn revert(&self, checkpoint: u64, batch: &Batch) -> Result<()> {
        self.flush()?;
        let mut flushing = self.flushing.lock();
        let then = runs_at(&self.environment, self.id, checkpoint)?;
        let memtable = Memtable::default();
        let operator = self.options.operator.as_deref();
        memtable.insert(batch.bytes(), 0, ReaderRange::NONE, operator)?;
        let changes = self.write_runs(&flushing, vec![Arc::new(memtable)])?;
        let known = flushing.manifest.clone();
        let committed = commit(&self.environment, self.id, Some(&known), |state, _| {
            self.check_writer(state)?;
            if !state.checkpoints.iter().any(|one| one.id == checkpoint) {
                return Err(gone(self.id, checkpoint));
            }
            let is_done = changes.first().is_some_and(|run| state.runs.first() == Some(run));
            if !is_done {
                let runs = changes.iter().chain(&then).map(|run| run.clone().within(&state.range));
                state.runs = runs.filter(|run| !run.sstables.is_empty()).collect();
                state.jobs.retain(|job| job.kind != LeaseKind::Writer);
                state.open_job(LeaseKind::Writer, None);
            }
            let job = state.jobs.iter().find(|job| job.kind == LeaseKind::Writer);
            Ok(job.map(|job| job.id).ok_or(Fenced::WriterClosed)?)
        });
        let (manifest, job) = committed?;
        (flushing.job, flushing.next_sstable) = (job, AtomicU32::new(0));
        flushing.manifest = Arc::new(manifest);
        self.publish(&mut self.write.lock(), &flushing.manifest);
        Ok(())
    }
}

fn gone(table: TableId, checkpoint: u64) -> Error {
    Error::NotFound(format!("checkpoint {checkpoint} of table {table}"))
}

/// Returns the runs that a checkpoint keeps.
fn runs_at(environment: &Environment, table: TableId, checkpoint: u64) -> Result<Vec<Run>> {
    let manifest = current(environment, table)?;
    let mut all = manifest.state.checkpoints.iter();
    let found = all.find(|one| one.id == checkpoint).ok_or_else(|| gone(table, checkpoint))?;
    Ok(read_version(environment, table, found.version)?.state.runs)
}

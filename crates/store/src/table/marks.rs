//! Marks: checkpoints of a moment whose records are written to SSTables later.
//!
//! [`Table::mark`] only ends the memtable: it writes nothing, so it takes microseconds. Later changes
//! go to later memtables. Before one of these is flushed, the checkpoint of the mark is committed, so
//! it contains all that was written before the mark and nothing else. Files that are ingested
//! meanwhile belong to the checkpoint, too.

use super::{Flushing, Opened, Options, Table, Write};
use crate::commit::{commit, current, read_version};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::manifest::{Hold, LeaseKind};
use crate::names::TableId;
use crate::runs::SstableCache;

use std::sync::{Arc, OnceLock, Weak};

/// A moment of a table that is open. If it is dropped before its checkpoint is made, none is made.
#[derive(Clone)]
pub struct Mark(Arc<MarkState>);

struct MarkState {
    /// Lifetime of the checkpoint.
    lifetime_ms: u64,
    /// Number of memtables that were frozen before.
    frozen: u64,
    checkpoint: OnceLock<u64>,
}

/// A mark without a checkpoint so far.
pub(super) struct OpenMark(Weak<MarkState>);

impl Mark {
    /// Returns the checkpoint, if it was made.
    pub fn checkpoint(&self) -> Option<u64> {
        self.0.checkpoint.get().copied()
    }
}

impl Write {
    /// Returns the oldest mark without a checkpoint, if all that was written before is in SSTables.
    fn due_mark(&mut self) -> Option<Arc<MarkState>> {
        let flushed = self.frozen_count - self.frozen.len() as u64;
        while let Some(OpenMark(mark)) = self.marks.front() {
            match mark.upgrade() {
                Some(mark) if mark.checkpoint.get().is_none() => {
                    return (mark.frozen <= flushed).then_some(mark);
                }
                _ => drop(self.marks.pop_front()),
            }
        }
        None
    }
}

impl Table {
    /// Marks this moment. [`flush_mark`](Self::flush_mark), or the next flush, makes its checkpoint,
    /// which goes after `lifetime_ms` unless it is renewed or kept.
    ///
    /// # Errors
    ///
    /// Fails with `Fenced` if the table is known to belong to another process, and if it is read
    /// alone.
    pub fn mark(&self, lifetime_ms: u64) -> Result<Mark> {
        self.check_writable()?;
        let mut write = self.write.lock();
        write.check()?;
        self.freeze(&mut write);
        let frozen = write.frozen_count;
        let mark = Arc::new(MarkState { lifetime_ms, frozen, checkpoint: OnceLock::new() });
        write.marks.push_back(OpenMark(Arc::downgrade(&mark)));
        Ok(Mark(mark))
    }

    /// Writes all that was written before a mark into SSTables, and returns the checkpoint of the
    /// mark.
    ///
    /// # Errors
    ///
    /// Fails with `Fenced` if another process has taken over the table, with `Contended` if others
    /// keep changing it, and as storage does.
    pub fn flush_mark(&self, mark: &Mark) -> Result<u64> {
        let mut flushing = self.flushing.lock();
        self.write_log()?;
        loop {
            self.make_due_checkpoints(&mut flushing)?;
            if let Some(checkpoint) = mark.checkpoint() {
                return Ok(checkpoint);
            }
            if !self.flush_oldest(&mut flushing)? {
                return Err(Error::NotFound(format!("a mark of table {}", self.id)));
            }
        }
    }

    /// Makes the checkpoints of marks that come before all memtables.
    pub(super) fn make_due_checkpoints(&self, flushing: &mut Flushing) -> Result<()> {
        loop {
            let due = self.write.lock().due_mark();
            let Some(mark) = due else { return Ok(()) };
            let deadline_ms = self.environment.clock.now_ms().saturating_add(mark.lifetime_ms);
            let known = flushing.manifest.clone();
            let (manifest, checkpoint) =
                commit(&self.environment, self.id, Some(&known), |state, versions| {
                    self.check_writer(state)?;
                    Ok(state.add_checkpoint(versions.this, Hold::Until(deadline_ms)))
                })?;
            flushing.manifest = Arc::new(manifest);
            // Only here is it set, with `flushing` locked.
            let _ = mark.checkpoint.set(checkpoint);
        }
    }

    /// Opens a table as it was at a checkpoint, to be read alone. Changes stay in memory. It can be
    /// read until the checkpoint is released. Another process may write the table meanwhile.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if the table or the checkpoint is gone, with `Invalid` if its merges
    /// need another operator, and as storage does.
    pub fn open_at(
        environment: &Environment,
        id: TableId,
        checkpoint: u64,
        cache: Arc<SstableCache>,
        options: Options,
    ) -> Result<Self> {
        let state = current(environment, id)?.state;
        state.check_live(id)?;
        let found = state.checkpoints.iter().find(|one| one.id == checkpoint);
        let gone = || Error::NotFound(format!("checkpoint {checkpoint} of table {id}"));
        let mut manifest = read_version(environment, id, found.ok_or_else(gone)?.version)?;
        options.check_operator(&manifest.state)?;
        // The records of its logs belong to later moments.
        manifest.state.log.clear();
        let writer = manifest.state.jobs.iter().find(|job| job.kind == LeaseKind::Writer);
        let (epoch, job) = (manifest.state.epoch, writer.map_or(0, |job| job.id));
        let (lock, is_read_only) = (None, true);
        let opened = Opened { environment, id, cache, options, epoch, job, lock, is_read_only };
        Ok(Table { is_past: true, ..Table::of(opened, manifest) })
    }
}

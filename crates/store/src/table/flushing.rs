//! Flushes: memtables that are full become runs of SSTables, and the log begins after them.

use super::{Flushing, Table};
use crate::commit::commit;
use crate::error::{Error, Fenced, Result};
use crate::manifest::{LeaseKind, LogStart, Run};
use crate::memtable::Memtable;
use crate::names::SstableName;
use crate::output::Output;
use crate::scan::{Direction, Older, Scan, ScanInput};
use crate::storage::Reserve;
use canopy_model::parallel;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

impl Table {
    /// Writes everything that was written so far into SSTables.
    ///
    /// # Errors
    ///
    /// Fails with `Fenced` if another process has taken over the table, with `Contended` if others
    /// keep changing it, and as storage does.
    pub fn flush(&self) -> Result<()> {
        self.check_writable()?;
        let mut flushing = self.flushing.lock();
        self.freeze(&mut self.write.lock());
        self.write_log()?;
        while self.flush_oldest(&mut flushing)? {}
        Ok(())
    }

    /// Writes the oldest memtable that is full into SSTables, or the one that grows: if its log has too
    /// many segments, or if it is the largest of tables that take too much of their
    /// [budget](crate::MemtableBudget). Returns whether there was one.
    ///
    /// # Errors
    ///
    /// Fails with `Fenced` if another process has taken over the table, with `Contended` if others
    /// keep changing it, and as storage does.
    pub fn flush_frozen(&self) -> Result<bool> {
        self.check_writable()?;
        let mut flushing = self.flushing.lock();
        {
            let mut write = self.write.lock();
            if self.share.is_due() || (self.share.has_long_log() && write.frozen.is_empty()) {
                self.freeze(&mut write);
            }
            if write.frozen.is_empty() {
                return Ok(false);
            }
        }
        self.write_log()?;
        self.flush_oldest(&mut flushing)
    }

    /// Writes the oldest frozen memtable into SSTables; its log is synced.
    pub(super) fn flush_oldest(&self, flushing: &mut Flushing) -> Result<bool> {
        self.make_due_checkpoints(flushing)?;
        if self.write.lock().recovered > 0 {
            self.flush_recovered(flushing, Vec::new())?;
            return Ok(true);
        }
        let (memtable, segment, run) = {
            let write = self.write.lock();
            let Some(frozen) = write.frozen.front() else { return Ok(false) };
            let Some(segment) = frozen.log_segment else { return Ok(false) };
            (frozen.memtable.clone(), segment, frozen.run.clone())
        };
        let run = match run {
            Some(run) => run,
            None => self.write_runs(flushing, vec![memtable.clone()])?.remove(0),
        };
        if let Some(frozen) = self.write.lock().frozen.front_mut() {
            frozen.run = Some(run.clone());
        }
        let own = LogStart { epoch: self.epoch, segment };
        let is_done = |log: &[LogStart]| matches!(log, [start] if start.segment >= segment);
        self.commit_runs(flushing, &[run], own, is_done)?;
        {
            let mut write = self.write.lock();
            let flushed = write.frozen.pop_front();
            write.frozen_bytes -= flushed.map_or(0, |frozen| frozen.memtable.bytes());
            self.publish(&mut write, &flushing.manifest);
        }
        // Freeing a large one takes a while, and readers and writers do not wait for it here.
        drop(memtable);
        Ok(true)
    }

    /// Writes the records of memtables into SSTables of our job, each as a run of its own, on
    /// several threads.
    pub(super) fn write_runs(
        &self,
        flushing: &Flushing,
        memtables: Vec<Arc<Memtable>>,
    ) -> Result<Vec<Run>> {
        let layout = &flushing.manifest.state.layout;
        let first = flushing.next_sstable.load(Ordering::Relaxed);
        let mut workers = vec![(); self.options.threads.max(1).min(memtables.len())];
        let written = parallel(&mut workers, memtables, |(), memtable| {
            let range_deletes = memtable.range_deletes(u64::MAX);
            let operator = self.options.operator.clone();
            let source = memtable.source(operator.clone());
            let input = ScanInput { source, range_deletes: Vec::new() };
            let scan = Scan::new(vec![input], Direction::Forward, Older::Present, operator);
            let output = Output {
                environment: &self.environment,
                table: self.id,
                layout,
                sstable_bytes: self.options.sstable_bytes,
                job: flushing.job,
                next_number: &flushing.next_sstable,
                kept: Reserve::Eighth,
                lease: None,
            };
            output.write(scan, &range_deletes)
        });
        written.inspect_err(|error| {
            if error.is_shortage() {
                self.remove_written(flushing, first);
            }
        })
    }

    /// Removes the SSTables of our job from a number on, which nothing refers to: on a full disk,
    /// each attempt would leave some more.
    fn remove_written(&self, flushing: &Flushing, first: u32) {
        for number in first..flushing.next_sstable.load(Ordering::Relaxed) {
            let name = self.id.sstable(SstableName { job: flushing.job, number });
            // An object that stays is removed when the job is closed.
            let _ = self.environment.storage.remove(&name);
        }
    }

    /// Commits runs above all others, that the log begins at `log`, and the job of the next flush.
    /// An attempt whose outcome was not known may have succeeded: then `is_done` knows the log.
    pub(super) fn commit_runs(
        &self,
        flushing: &mut Flushing,
        runs: &[Run],
        log: LogStart,
        is_done: impl Fn(&[LogStart]) -> bool,
    ) -> Result<()> {
        let known = flushing.manifest.clone();
        let committed = commit(&self.environment, self.id, Some(&known), |state, _| {
            self.check_writer(state)?;
            if !is_done(&state.log) {
                let runs = runs.iter().map(|run| run.clone().within(&state.range));
                let runs = Vec::from_iter(runs.filter(|run| !run.sstables.is_empty()));
                state.runs.splice(0..0, runs);
                state.log = vec![log];
                state.jobs.retain(|job| job.kind != LeaseKind::Writer);
                state.open_job(LeaseKind::Writer, None);
            }
            let job = state.jobs.iter().find(|job| job.kind == LeaseKind::Writer);
            Ok(job.map(|job| job.id).ok_or(Fenced::WriterClosed)?)
        });
        let (manifest, job) = committed.inspect_err(|error| match error {
            Error::Fenced(_) | Error::NotFound(_) => self.fail(error),
            _ => {}
        })?;
        if log.epoch == self.epoch {
            let segment = log.segment;
            self.old_segments.begin_at(segment);
            let mut log = self.log.lock();
            log.note_flushed(manifest.state.size_bytes(), segment);
            self.count_segments(&log);
        }
        *flushing = Flushing { job, next_sstable: AtomicU32::new(0), manifest: Arc::new(manifest) };
        Ok(())
    }
}

//! Opening a table: what the logs of older epochs have becomes memtables again.

use super::{Flushing, Frozen, Options, Table};
use crate::batch::{Changes, Mutation};
use crate::commit::current;
use crate::error::{Error, Result};
use crate::log::{Damaged, replay};
use crate::manifest::{LogStart, Run};
use crate::memtable::{Memtable, ReaderRange};
use crate::salvage::{Loss, keep_aside, put_note};
use crate::sorted::Unsorted;
use bytes::Bytes;
use canopy_model::parallel;
use std::sync::Arc;

/// Groups read from the logs of older epochs, the oldest first.
#[derive(Default)]
struct Recovery {
    /// Groups of about as many bytes as a memtable may have, so that threads share the work.
    chunks: Vec<Vec<Bytes>>,
    /// The bytes of the last chunk, and of all.
    chunk_bytes: u64,
    bytes: u64,
}

impl Recovery {
    /// Adds a group of a log.
    fn add(&mut self, group: Bytes, memtable_bytes: u64) {
        let length = group.len() as u64;
        if self.chunks.is_empty() || self.chunk_bytes + length > memtable_bytes {
            self.chunks.push(Vec::new());
            self.chunk_bytes = 0;
        }
        self.chunks.last_mut().expect("there is a chunk").push(group);
        self.chunk_bytes += length;
        self.bytes += length;
    }

    /// Returns memtables of what was added, the oldest first, and the greatest number of a change
    /// in them. Forgets what was added.
    fn take(&mut self, options: &Options) -> Result<(Vec<Arc<Memtable>>, u64)> {
        let chunks = std::mem::take(self).chunks;
        let mut workers = vec![(); options.threads.max(1).min(chunks.len())];
        let memtables = parallel(&mut workers, chunks, |(), chunk| {
            let mut replayed = Replayed::default();
            for group in chunk {
                replayed.add(&group, options)?;
            }
            Ok::<_, Error>(replayed.finish(options))
        })?;
        let sequence = memtables.iter().map(|(_, sequence)| *sequence).max().unwrap_or(0);
        Ok((memtables.into_iter().flat_map(|(memtables, _)| memtables).collect(), sequence))
    }
}

/// Memtables replayed from groups of a log.
#[derive(Default)]
struct Replayed {
    /// The oldest first.
    parts: Vec<PendingMemtable>,
    /// The number of the last change of a batch with ranges.
    sequence: u64,
}

/// Replayed records that become a memtable.
enum PendingMemtable {
    Records(Unsorted),
    WithRanges(Memtable),
}

impl Replayed {
    /// Adds a group of a log. Removals of ranges, which are rare, need a memtable that knows what
    /// was before them.
    fn add(&mut self, group: &[u8], options: &Options) -> Result<()> {
        let (memtable_bytes, operator) = (options.memtable_bytes, options.operator.as_deref());
        match self.parts.last_mut() {
            // Records after range deletes stay with them, so that many range deletes make few
            // memtables.
            Some(PendingMemtable::WithRanges(memtable)) if memtable.bytes() < memtable_bytes => {
                self.sequence =
                    memtable.insert(group, self.sequence, ReaderRange::NONE, operator)?;
                return Ok(());
            }
            Some(PendingMemtable::Records(_)) => {}
            _ => self.parts.push(PendingMemtable::Records(Unsorted::default())),
        }
        let Some(PendingMemtable::Records(records)) = self.parts.last_mut() else { return Ok(()) };
        let before = records.mark();
        for change in Changes::new(group) {
            match change.ok_or_else(|| Error::corrupt("log", "not a batch of changes"))? {
                Mutation::Record(record) => records.push(record),
                Mutation::DeleteRange(_) => {
                    records.truncate(before);
                    let memtable = Memtable::default();
                    self.sequence =
                        memtable.insert(group, self.sequence, ReaderRange::NONE, operator)?;
                    self.parts.push(PendingMemtable::WithRanges(memtable));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns memtables, the oldest first, and the number of the last change in them.
    fn finish(self, options: &Options) -> (Vec<Arc<Memtable>>, u64) {
        let operator = options.operator.as_deref();
        let memtables = self.parts.into_iter().map(|part| match part {
            PendingMemtable::Records(records) => Memtable::of_log(records, operator),
            PendingMemtable::WithRanges(memtable) => memtable,
        });
        let memtables = memtables.filter(|memtable| !memtable.is_empty());
        (memtables.map(Arc::new).collect(), self.sequence)
    }
}

impl Table {
    /// Reads the logs of older epochs into memtables. They are flushed together with the end of
    /// these logs, since merges may not happen twice. If they take too much memory, that is done at
    /// once.
    pub(super) fn recover(&self) -> Result<()> {
        let mut flushing = self.flushing.lock();
        let manifest = flushing.manifest.clone();
        let (mut recovery, mut runs) = (Recovery::default(), Vec::new());
        // Without an epoch of its own, a table that is read alone has no log of its own.
        let (end, own_epoch) = match self.is_read_only {
            true => (self.epoch.saturating_add(1), None),
            false => (self.epoch, Some(self.epoch)),
        };
        for start in manifest.state.log.iter().filter(|start| start.epoch < end) {
            let mut note = |damaged: Damaged<'_>| self.note_damaged(start.epoch, damaged);
            let note = self.options.salvages_log.then_some(&mut note as _);
            replay(&self.environment, self.id, *start, own_epoch, note, |group| {
                recovery.add(group, self.options.memtable_bytes);
                // The logs' bytes are in memory beside the memtables that are made of them.
                if recovery.bytes >= self.share.budget().recovered_bytes() && !self.is_read_only {
                    let (memtables, _) = recovery.take(&self.options)?;
                    let written = self.write_runs(&flushing, memtables)?;
                    runs.splice(0..0, written.into_iter().rev());
                }
                Ok(())
            })?;
        }
        // While we read, another process may have opened the table, written all of it into
        // SSTables, and the logs may have been collected under us.
        self.check_writer(&current(&self.environment, self.id)?.state)?;
        let (memtables, sequence) = recovery.take(&self.options)?;
        {
            let mut write = self.write.lock();
            // Every reader sees all that was read.
            write.sequence = sequence;
            write.frozen_bytes = memtables.iter().map(|memtable| memtable.bytes()).sum();
            // Memtables of a table that is read alone are never flushed.
            let log_segment = (!self.is_read_only).then_some(0);
            let frozen = |memtable| Frozen { memtable, log_segment, run: None };
            write.frozen.extend(memtables.into_iter().map(frozen));
            write.recovered = if self.is_read_only { 0 } else { write.frozen.len() };
            write.frozen_count = write.frozen.len() as u64;
        }
        self.account(&self.write.lock());
        let is_flushed = !runs.is_empty() || self.share.budget().pressure() > 0.0;
        match is_flushed && !self.is_read_only {
            false => self.publish(&mut self.write.lock(), &manifest),
            true => self.flush_recovered(&mut flushing, runs)?,
        }
        Ok(())
    }

    /// Keeps a damaged segment of a log, and notes that a part of it is lost.
    fn note_damaged(&self, epoch: u64, damaged: Damaged<'_>) -> Result<()> {
        let Damaged { number, bytes, what, lost_bytes } = damaged;
        let file_name = format!("log-{epoch:020}-{number:020}");
        if !bytes.is_empty() {
            keep_aside(&self.environment, self.id, &file_name, bytes)?;
        }
        let aside = format!("{}{file_name}", self.id.damaged());
        let loss = Loss {
            object: self.id.segment(epoch, number),
            what,
            aside: (!bytes.is_empty()).then_some(aside),
            is_log: true,
            ranges: Vec::new(),
            left: 0,
            lost: [0; 3],
            lost_bytes,
            is_unproved: false,
            stale: Vec::new(),
            has_unknown_stale: true,
        };
        put_note(&self.environment, self.id, &file_name, &loss)
    }

    /// Writes what was recovered from logs into SSTables above `runs`, which it is newer than, in
    /// one commit with the end of these logs.
    pub(super) fn flush_recovered(
        &self,
        flushing: &mut Flushing,
        mut runs: Vec<Run>,
    ) -> Result<()> {
        let (recovered, written) = {
            let write = self.write.lock();
            let frozen = write.frozen.iter().take(write.recovered);
            let memtables = Vec::from_iter(frozen.clone().map(|one| one.memtable.clone()));
            (memtables, frozen.map(|one| one.run.clone()).collect::<Option<Vec<_>>>())
        };
        let written = match written {
            Some(written) => written,
            None => self.write_runs(flushing, recovered.clone())?,
        };
        for (frozen, run) in self.write.lock().frozen.iter_mut().zip(&written) {
            frozen.run = Some(run.clone());
        }
        runs.splice(0..0, written.into_iter().rev());
        let own = LogStart { epoch: self.epoch, segment: 0 };
        self.commit_runs(flushing, &runs, own, |log| *log == [own])?;
        {
            let mut write = self.write.lock();
            write.frozen.drain(..recovered.len());
            write.recovered = 0;
            write.frozen_bytes = write.frozen.iter().map(|one| one.memtable.bytes()).sum();
            self.publish(&mut write, &flushing.manifest);
        }
        Ok(())
    }
}

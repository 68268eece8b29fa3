//! Writing records into the SSTables of a job.

use crate::commit::commit;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::key::{Key, KeyRange};
use crate::log::create_or_confirm;
use crate::manifest::{Run, SstableId, SstableRef};
use crate::names::{SstableName, TableId};
use crate::record::Layout;
use crate::scan::Scan;
use crate::sstable::{Builder, BuilderOptions};
use crate::storage::{Created, Reserve};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Where SSTables go, and under which names.
pub(crate) struct Output<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) table: TableId,
    pub(crate) layout: &'a Layout,
    /// About how large an SSTable gets.
    pub(crate) sstable_bytes: u64,
    pub(crate) job: u64,
    /// Shared by all that write for the job.
    pub(crate) next_number: &'a AtomicU32,
    /// The part of the reserve of storage that is left.
    pub(crate) kept: Reserve,
    /// Lease that keeps a job with a deadline open.
    pub(crate) lease: Option<&'a Lease>,
}

/// Keeps a job open while it is worked on.
pub(crate) struct Lease {
    table: TableId,
    job: u64,
    /// How long after each time others may close it.
    job_ms: u64,
    renew_at_ms: AtomicU64,
}

impl Lease {
    /// Keeps a job that was opened just now.
    pub(crate) fn new(environment: &Environment, table: TableId, job: u64, job_ms: u64) -> Self {
        let renew_at_ms = environment.clock.now_ms().saturating_add(job_ms / 2).into();
        Lease { table, job, job_ms, renew_at_ms }
    }

    /// Moves the deadline once half of the time is over. An error if the job was closed: what is
    /// done for it is in vain.
    fn renew(&self, environment: &Environment) -> Result<()> {
        let now_ms = environment.clock.now_ms();
        if now_ms < self.renew_at_ms.load(Ordering::Relaxed) {
            return Ok(());
        }
        let deadline_ms = now_ms.saturating_add(self.job_ms);
        commit(environment, self.table, None, |state, _| state.renew_job(self.job, deadline_ms))?;
        self.renew_at_ms.store(now_ms.saturating_add(self.job_ms / 2), Ordering::Relaxed);
        Ok(())
    }
}

impl Output<'_> {
    /// Writes all records of a scan as a run, with `range_deletes` for older ones. Each SSTable has
    /// the range from its first key to that of the next one; the first and the last have what is
    /// beyond.
    pub(crate) fn write(self, mut scan: Scan, range_deletes: &[KeyRange]) -> Result<Run> {
        let mut run = Run::default();
        let mut builder = Builder::new(self.layout, BuilderOptions::default());
        let mut start = Key::default();
        while let Some(record) = scan.next()? {
            if builder.size_bytes_estimate() >= self.sstable_bytes {
                let end = record.key.to_key();
                let full = std::mem::replace(
                    &mut builder,
                    Builder::new(self.layout, BuilderOptions::default()),
                );
                let range = KeyRange { start: start.clone(), end: Some(end.clone()) };
                self.finish(full, range, range_deletes, &mut run)?;
                start = end;
            }
            builder.add(record)?;
        }
        self.finish(builder, KeyRange { start, end: None }, range_deletes, &mut run)?;
        Ok(run)
    }

    /// Creates an SSTable that holds what a run has in `range`, unless that is nothing.
    fn finish(
        &self,
        mut builder: Builder,
        range: KeyRange,
        range_deletes: &[KeyRange],
        run: &mut Run,
    ) -> Result<()> {
        let parts = range_deletes.iter().map(|one| one.intersection(&range));
        for part in parts.filter(|part| !part.is_empty()) {
            builder.delete_range(part);
        }
        if builder.is_empty() {
            return Ok(());
        }
        let (bytes, info) = builder.finish()?;
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let name = SstableName { job: self.job, number };
        let object = self.table.sstable(name);
        let storage = &self.environment.storage;
        storage.check_reserve(&object, bytes.len() as u64, self.kept)?;
        match create_or_confirm(self.environment, &object, &bytes, false)? {
            Created::Now => {}
            // Names are those of our job alone.
            Created::ThereWasOne => {
                return Err(Error::corrupt(object, "there is one already, of another process"));
            }
        }
        let id = SstableId { table: self.table, name };
        run.sstables.push(SstableRef { id, info, range });
        self.lease.map_or(Ok(()), |lease| lease.renew(self.environment))
    }
}

//! Ingestion: a process writes records into SSTables at the speed of memory, with no server
//! between, and they become a table's newest runs in one commit (DeltaFS, section 5: client
//! logging).

use crate::batch::{Batch, Changes, Mutation};
use crate::commit::commit;
use crate::environment::Environment;
use crate::error::{Error, Fenced, Invalid, Result};
use crate::key::KeyRange;
use crate::manifest::{LeaseKind, Run, SstableId};
use crate::names::TableId;
use crate::output::{Lease, Output};
use crate::record::{Layout, RecordRef};
use crate::scan::{Direction, Older, Scan, ScanInput};
use crate::sorted::{Sorted, SortedSource, Unsorted};
use crate::storage::Reserve;
use crate::table::{Options, Table};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// Records on their way into a table. Those of one key count in the order in which they were added.
/// To readers they are older than what the table's writer has not flushed yet.
pub struct Ingestion {
    environment: Environment,
    table: TableId,
    options: Options,
    layout: Layout,
    range: KeyRange,
    job: u64,
    lease: Arc<Lease>,
    next_number: Arc<AtomicU32>,
    records: Unsorted,
    /// The newest first.
    runs: Vec<Run>,
    /// Whether records could not be written.
    has_failed: bool,
}

/// A part of an ingestion that a thread of its own fills. If several parts contain a key, they must
/// give it equal values: no part is newer than another.
pub struct IngestionPart(Ingestion);

impl IngestionPart {
    /// Adds the changes of a batch, as [`Ingestion::add_batch`] does.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if a name or value is too long, a key lies outside of the table's
    /// range, or records were lost before. Fails as storage does where records are written out.
    pub fn add_batch(&mut self, batch: &Batch) -> Result<()> {
        self.0.add_batch(batch)
    }

    /// Sorts and writes out what was added.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Invalid` if records were lost by an earlier error.
    pub fn write_out(&mut self) -> Result<()> {
        self.0.write_run()
    }
}

impl Table {
    /// Begins to add records to this table beside its log. Changes already written through the log
    /// are older than these records if they are flushed before [`Ingestion::commit`]. The records
    /// become visible with [`Table::refresh`].
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if there is no such table, with `Contended` if others keep changing
    /// it, and as storage does.
    pub fn ingestion(&self, memory_bytes: u64) -> Result<Ingestion> {
        let (environment, id, _, options) = self.parts();
        let options = Options { memtable_bytes: memory_bytes, ..options.clone() };
        Ingestion::begin(environment, id, &options)
    }
}

impl Ingestion {
    /// Begins to add records to a table. Nothing is seen of them before [`Ingestion::commit`].
    /// Others may end an ingestion that writes nothing out for [`Options::job_ms`].
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if there is no such table, with `Contended` if others keep changing
    /// it, and as storage does.
    pub fn begin(environment: &Environment, table: TableId, options: &Options) -> Result<Self> {
        let deadline_ms = environment.clock.now_ms().saturating_add(options.job_ms);
        let (manifest, job) = commit(environment, table, None, |state, _| {
            state.check_live(table)?;
            options.check_operator(state)?;
            Ok(state.open_job(LeaseKind::Ingestion, Some(deadline_ms)))
        })?;
        Ok(Ingestion {
            environment: environment.clone(),
            table,
            options: options.clone(),
            layout: manifest.state.layout,
            range: manifest.state.range,
            job,
            lease: Arc::new(Lease::new(environment, table, job, options.job_ms)),
            next_number: Arc::default(),
            records: Unsorted::default(),
            runs: Vec::new(),
            has_failed: false,
        })
    }

    /// Adds a record. Once they take [`Options::memtable_bytes`], they are sorted and written out.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if a name or value is too long, a key lies outside of the table's
    /// range, or records were lost before. Fails as storage does where records are written out.
    pub fn add(&mut self, record: RecordRef<'_>) -> Result<()> {
        crate::batch::check(record.key, record.value)?;
        if !self.range.contains(record.key) {
            return Err(Invalid::OutOfRange.into());
        }
        self.records.push(record);
        match self.records.memory_bytes() >= self.options.memtable_bytes {
            true => self.write_run(),
            false => Ok(()),
        }
    }

    /// Adds the changes of a batch, in their order, of which none may be the removal of a range.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if a name or value is too long, a key lies outside of the table's
    /// range, or records were lost before. Fails as storage does where records are written out.
    pub fn add_batch(&mut self, batch: &Batch) -> Result<()> {
        for change in Changes::new(batch.bytes()) {
            match change {
                Some(Mutation::Record(record)) => self.add(record)?,
                _ => return Err(Invalid::NotARecord.into()),
            }
        }
        Ok(())
    }

    /// Returns a part, which counts once [`Ingestion::join`] has got it.
    pub fn part(&self) -> IngestionPart {
        IngestionPart(Ingestion {
            environment: self.environment.clone(),
            table: self.table,
            options: self.options.clone(),
            layout: self.layout.clone(),
            range: self.range.clone(),
            job: self.job,
            lease: self.lease.clone(),
            next_number: self.next_number.clone(),
            records: Unsorted::default(),
            runs: Vec::new(),
            has_failed: false,
        })
    }

    /// Adds what a part has. It is older than what is added from now on.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Invalid` if records were lost by an earlier error.
    pub fn join(&mut self, mut part: IngestionPart) -> Result<()> {
        part.write_out()?;
        self.write_run()?;
        self.runs.splice(0..0, std::mem::take(&mut part.0.runs));
        Ok(())
    }

    fn write_run(&mut self) -> Result<()> {
        if self.has_failed {
            return Err(Invalid::LostRecords.into());
        }
        if self.records.memory_bytes() == 0 {
            return Ok(());
        }
        self.has_failed = true;
        let operator = self.options.operator.clone();
        let next = match self.records.memory_bytes() >= self.options.memtable_bytes {
            true => self.records.emptied(),
            false => Unsorted::default(),
        };
        let records = std::mem::replace(&mut self.records, next);
        let source = SortedSource::new(Arc::new(Sorted::new(records)), operator.clone());
        let input = ScanInput { source: Box::new(source), range_deletes: Vec::new() };
        let scan = Scan::new(vec![input], Direction::Forward, Older::Present, operator);
        let output = Output {
            environment: &self.environment,
            table: self.table,
            layout: &self.layout,
            sstable_bytes: self.options.sstable_bytes,
            job: self.job,
            next_number: &self.next_number,
            kept: Reserve::Whole,
            lease: Some(&self.lease),
        };
        let run = output.write(scan, &[]).map_err(ended)?;
        self.runs.insert(0, run);
        self.has_failed = false;
        Ok(())
    }

    /// Makes the records the table's newest runs, all at once.
    ///
    /// # Errors
    ///
    /// Fails with `Fenced` if others have ended the ingestion, with `Contended` if they keep
    /// changing the table, and as storage does.
    pub fn commit(mut self) -> Result<()> {
        self.write_run()?;
        let runs = std::mem::take(&mut self.runs);
        let job = self.job;
        commit(&self.environment, self.table, None, |state, _| {
            state.check_live(self.table)?;
            let is_own = |id: SstableId| id.table == self.table && id.name.job == job;
            let own = |run: &Run| run.sstables.iter().any(|one| is_own(one.id));
            if state.runs.iter().any(own) {
                // An attempt whose outcome was not known succeeded.
                return Ok(());
            }
            state.close_job(job).map_err(ended)?;
            let runs = runs.iter().map(|run| run.clone().within(&state.range));
            let runs = Vec::from_iter(runs.filter(|run| !run.sstables.is_empty()));
            state.runs.splice(0..0, runs);
            Ok(())
        })?;
        Ok(())
    }
}

/// Says what it means that the job was closed.
fn ended(error: Error) -> Error {
    match error {
        Error::Fenced(_) => Fenced::IngestionEnded.into(),
        error => error,
    }
}

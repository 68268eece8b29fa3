//! Ingestion: a process writes records into SSTables at the speed of memory, with no server between,
//! and they become a table's newest runs in one commit (DeltaFS, section 5: client logging).

use crate::commit::commit;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::key::KeyRef;
use crate::manifest::{JobKind, Run};
use crate::memtable::Below;
use crate::merge::{MergeOperator, Resolution};
use crate::names::TableId;
use crate::output::Output;
use crate::record::{Layout, Op, Record, RecordRef};
use crate::scan::{Direction, Input, Older, Scan, Source};
use crate::table::Options;
use std::sync::Arc;

/// Records on their way into a table. Those of one key count in the order in which they were added. To
/// readers they are older than what the table's writer has not flushed yet.
pub struct Ingestion {
    environment: Environment,
    table: TableId,
    options: Options,
    layout: Layout,
    job: u64,
    next_number: u32,
    records: Unsorted,
    /// The newest first.
    runs: Vec<Run>,
}

/// Records one after the other, and where each begins.
#[derive(Default)]
struct Unsorted {
    bytes: Vec<u8>,
    /// Directory and hash, where name and value begin, their lengths, and what the record does.
    places: Vec<Place>,
}

#[derive(Clone, Copy)]
struct Place {
    directory: u64,
    hash: u64,
    start: u64,
    value_length: u32,
    name_length: u16,
    op: Op,
}

impl Ingestion {
    /// Begins to add records to a table. Nothing is seen of them before [`Ingestion::commit`].
    pub fn begin(environment: &Environment, table: TableId, options: &Options) -> Result<Self> {
        let deadline_ms = environment.clock.now_ms().saturating_add(options.job_ms);
        let (manifest, job) = commit(environment, table, None, |state, _| {
            state.check_live(table)?;
            options.check_operator(state)?;
            Ok(state.open_job(JobKind::Ingestion, Some(deadline_ms)))
        })?;
        Ok(Ingestion {
            environment: environment.clone(),
            table,
            options: options.clone(),
            layout: manifest.state.layout,
            job,
            next_number: 0,
            records: Unsorted::default(),
            runs: Vec::new(),
        })
    }

    /// Adds a record. Once they take [`Options::memtable_bytes`], they are sorted and written out.
    pub fn add(&mut self, record: RecordRef<'_>) -> Result<()> {
        crate::batch::check(record.key, record.value)?;
        self.records.push(record);
        match self.records.memory_bytes() >= self.options.memtable_bytes {
            true => self.write_run(),
            false => Ok(()),
        }
    }

    fn write_run(&mut self) -> Result<()> {
        let operator = self.options.operator.clone();
        let records = std::mem::take(&mut self.records);
        let source = Sorted::new(records, operator.clone());
        let input = Input { source: Box::new(source), range_deletes: Vec::new() };
        let scan = Scan::new(vec![input], Direction::Forward, Older::Some, operator);
        let output = Output {
            environment: &self.environment,
            table: self.table,
            layout: &self.layout,
            sstable_bytes: self.options.sstable_bytes,
            job: self.job,
            next_number: &mut self.next_number,
        };
        let run = output.write(scan, &[])?;
        self.runs.insert(0, run);
        Ok(())
    }

    /// Makes the records the table's newest runs, all at once.
    pub fn commit(mut self) -> Result<()> {
        self.write_run()?;
        let runs = std::mem::take(&mut self.runs);
        let job = self.job;
        commit(&self.environment, self.table, None, |state, _| {
            state.check_live(self.table)?;
            let own = |run: &Run| run.sstables.iter().any(|one| one.id.name.job == job);
            if state.runs.iter().any(own) {
                // An attempt whose outcome was not known succeeded.
                return Ok(());
            }
            state.close_job(job).map_err(|_| {
                Error::Fenced("the ingestion took too long, and others ended it".into())
            })?;
            let runs = runs.iter().map(|run| run.clone().within(&state.range));
            let runs = Vec::from_iter(runs.filter(|run| !run.sstables.is_empty()));
            state.runs.splice(0..0, runs);
            Ok(())
        })?;
        Ok(())
    }
}

impl Unsorted {
    fn push(&mut self, record: RecordRef<'_>) {
        let RecordRef { key, op, value } = record;
        self.places.push(Place {
            directory: key.directory,
            hash: key.hash,
            start: self.bytes.len() as u64,
            // Both were checked.
            value_length: value.len() as u32,
            name_length: key.name.len() as u16,
            op,
        });
        self.bytes.extend_from_slice(key.name);
        self.bytes.extend_from_slice(value);
    }

    fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + self.places.len() * size_of::<Place>()) as u64
    }

    fn record(&self, place: &Place) -> RecordRef<'_> {
        let bytes = &self.bytes[place.start as usize..];
        let (name, bytes) = bytes.split_at(place.name_length.into());
        let Place { directory, hash, op, .. } = *place;
        let key = KeyRef { directory, hash, name };
        RecordRef { key, op, value: &bytes[..place.value_length as usize] }
    }
}

/// Records in order, those of one key made one.
struct Sorted {
    records: Unsorted,
    operator: Option<Arc<dyn MergeOperator>>,
    /// Those of the current key.
    current: std::ops::Range<usize>,
    /// What they are together, if they are several.
    own: Option<Record>,
}

impl Sorted {
    fn new(mut records: Unsorted, operator: Option<Arc<dyn MergeOperator>>) -> Self {
        let mut places = std::mem::take(&mut records.places);
        places.sort_unstable_by(|one, other| {
            let by_hash = (one.directory, one.hash).cmp(&(other.directory, other.hash));
            by_hash.then_with(|| {
                let [name, other_name] = [one, other].map(|place| records.record(place).key.name);
                // The newest of a key first.
                name.cmp(other_name).then(other.start.cmp(&one.start))
            })
        });
        records.places = places;
        let mut sorted = Sorted { records, operator, current: 0..0, own: None };
        sorted.enter(0);
        sorted
    }

    /// Goes to the records of the key at `start`.
    fn enter(&mut self, start: usize) {
        let places = &self.records.places;
        self.own = None;
        self.current = start..start;
        let Some(first) = places.get(start) else { return };
        let key = self.records.record(first).key;
        let is_same = |place: &Place| {
            (place.directory, place.hash) == (first.directory, first.hash)
                && self.records.record(place).key == key
        };
        let more = places[start + 1..].iter().take_while(|place| is_same(place)).count();
        self.current = start..start + 1 + more;
        if more > 0 && first.op == Op::Merge {
            self.own = Some(self.merged(key));
        }
    }

    /// Returns the record that those of the current key make together.
    fn merged(&self, key: KeyRef<'_>) -> Record {
        let mut resolution = Resolution::new(self.operator.as_deref());
        let mut below = Below::Older;
        for place in &self.records.places[self.current.clone()] {
            let record = self.records.record(place);
            match record.op {
                Op::Merge => resolution.older(key, record.value),
                Op::Put => below = Below::Value(record.value),
                Op::Delete => below = Below::Nothing,
            }
            if record.op != Op::Merge {
                break;
            }
        }
        resolution.into_record(&key.to_key(), below)
    }
}

impl Source for Sorted {
    fn record(&self) -> Option<RecordRef<'_>> {
        match &self.own {
            Some(own) => Some(own.as_ref()),
            None => Some(self.records.record(self.records.places.get(self.current.start)?)),
        }
    }

    fn advance(&mut self) -> Result<()> {
        self.enter(self.current.end);
        Ok(())
    }
}

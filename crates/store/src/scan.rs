//! Records of several sources as one sequence: memtables and runs, the newest first. The newest
//! record of a key counts, merges are put together, and what was taken away is left out.

use crate::error::Result;
use crate::key::{Key, KeyRange, KeyRef};
use crate::memtable::{Below, Memtable};
use crate::merge::{MergeOperator, Resolution};
use crate::record::{Op, Record, RecordRef};
use crate::runs::OpenRun;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the least key on.
    Forward,
    /// From the greatest key on.
    Backward,
}

/// Treatment of merges and removals, which only change older records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// There are none: merges become values, and removals go.
    Absent,
    /// There may be some: merges and removals stay.
    Present,
}

/// Records in order, each key once.
pub(crate) trait Source: Send {
    /// Returns the current record, or none at the end.
    fn record(&self) -> Option<RecordRef<'_>>;

    /// Goes to the next record.
    fn advance(&mut self) -> Result<()>;
}

/// A memtable is read so many records at a time, so that writers wait for little.
const CHUNK: usize = 256;

/// The records of a memtable.
pub(crate) struct MemtableSource {
    memtable: Arc<Memtable>,
    range: KeyRange,
    sequence: u64,
    direction: Direction,
    operator: Option<Arc<dyn MergeOperator>>,
    records: Vec<Record>,
    at: usize,
}

impl MemtableSource {
    pub(crate) fn new(
        memtable: Arc<Memtable>,
        range: KeyRange,
        sequence: u64,
        direction: Direction,
        operator: Option<Arc<dyn MergeOperator>>,
    ) -> Self {
        let (records, at) = (Vec::new(), 0);
        let mut source =
            MemtableSource { memtable, range, sequence, direction, operator, records, at };
        source.read();
        source
    }

    /// Reads the records after those that were read.
    fn read(&mut self) {
        let last = self.records.pop().map(|record| record.key);
        let is_backward = self.direction == Direction::Backward;
        let start = match &last {
            Some(last) if !is_backward => Bound::Excluded(last),
            _ => Bound::Included(&self.range.start),
        };
        let end = match (&last, &self.range.end) {
            (Some(last), _) if is_backward => Bound::Excluded(last),
            (_, Some(end)) => Bound::Excluded(end),
            (_, None) => Bound::Unbounded,
        };
        self.records.clear();
        self.at = 0;
        let (range, operator) = ((start, end), self.operator.as_deref());
        let (memtable, records) = (&self.memtable, &mut self.records);
        memtable.records(range, self.sequence, is_backward, CHUNK, operator, records);
    }
}

impl Source for MemtableSource {
    fn record(&self) -> Option<RecordRef<'_>> {
        self.records.get(self.at).map(Record::as_ref)
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        if self.at == self.records.len() && self.at == CHUNK {
            self.read();
        }
        Ok(())
    }
}

/// One of the inputs of a scan.
pub(crate) struct ScanInput {
    pub(crate) source: Box<dyn Source>,
    /// Keys of which nothing older counts.
    pub(crate) range_deletes: Vec<KeyRange>,
}

impl ScanInput {
    /// Returns the records of a run that lie in `range`.
    pub(crate) fn of_run(run: &OpenRun, range: &KeyRange, direction: Direction) -> Result<Self> {
        let source = Box::new(run.source(range, direction)?);
        Ok(ScanInput { source, range_deletes: run.range_deletes(range)? })
    }
}

/// The records of several inputs, each key once. It is before the first record until `next` is
/// called.
pub struct Scan {
    inputs: Vec<ScanInput>,
    /// The first two parts of each input's current key; none at its end.
    heads: Vec<Option<(u64, u64)>>,
    has_range_deletes: bool,
    direction: Direction,
    older: Older,
    operator: Option<Arc<dyn MergeOperator>>,
    /// The inputs that have the current key, the newest first.
    at_key: Vec<usize>,
    current: Current,
    /// Keeps what the scan reads from being freed meanwhile.
    _pin: Option<Box<dyn Send>>,
}

enum Current {
    /// That of the first of `at_key`.
    OfInput,
    Own(Record),
}

impl Scan {
    /// Returns the records of `inputs`, the newest of which comes first.
    pub(crate) fn new(
        inputs: Vec<ScanInput>,
        direction: Direction,
        older: Older,
        operator: Option<Arc<dyn MergeOperator>>,
    ) -> Self {
        let mut scan = Scan {
            heads: vec![None; inputs.len()],
            has_range_deletes: inputs.iter().any(|input| !input.range_deletes.is_empty()),
            inputs,
            direction,
            older,
            operator,
            at_key: Vec::new(),
            current: Current::OfInput,
            _pin: None,
        };
        (0..scan.inputs.len()).for_each(|input| scan.read_head(input));
        scan
    }

    /// Keeps something until the scan ends.
    pub(crate) fn pinning(mut self, pin: Box<dyn Send>) -> Self {
        self._pin = Some(pin);
        self
    }

    fn read_head(&mut self, input: usize) {
        let record = self.inputs[input].source.record();
        self.heads[input] = record.map(|record| (record.key.directory, record.key.hash));
    }

    /// Goes to the next record and returns it; none at the end.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    #[allow(clippy::should_implement_trait)] // What it returns borrows from the scan.
    pub fn next(&mut self) -> Result<Option<RecordRef<'_>>> {
        loop {
            for at in 0..self.at_key.len() {
                let input = self.at_key[at];
                self.inputs[input].source.advance()?;
                self.read_head(input);
            }
            self.find_next_key();
            if self.at_key.is_empty() {
                return Ok(None);
            }
            if self.resolve() {
                return Ok(self.record());
            }
        }
    }

    /// Returns the current record.
    pub fn record(&self) -> Option<RecordRef<'_>> {
        match &self.current {
            Current::Own(record) => Some(record.as_ref()),
            Current::OfInput => self.inputs[*self.at_key.first()?].source.record(),
        }
    }

    /// Finds the inputs that have the key that comes next.
    fn find_next_key(&mut self) {
        self.at_key.clear();
        for input in 0..self.heads.len() {
            let Some(head) = self.heads[input] else { continue };
            let Some(&first) = self.at_key.first() else {
                self.at_key.push(input);
                continue;
            };
            let order = Some(head).cmp(&self.heads[first]).then_with(|| {
                let name = |at: usize| self.inputs[at].source.record().map(|one| one.key.name);
                name(input).cmp(&name(first))
            });
            let order = match self.direction {
                Direction::Forward => order,
                Direction::Backward => order.reverse(),
            };
            if order == Ordering::Less {
                self.at_key.clear();
            }
            if order != Ordering::Greater {
                self.at_key.push(input);
            }
        }
    }

    /// Makes the current record of those that have the key; returns whether there is one.
    fn resolve(&mut self) -> bool {
        self.current = Current::OfInput;
        let Some(newest) = self.record() else { return false };
        if newest.op == Op::Put && !self.has_range_deletes {
            return true;
        }
        let key = newest.key;
        let mut resolution = Resolution::new(self.operator.as_deref());
        let below = self.below(key, &mut resolution);
        let below = match (below, self.older) {
            (Below::Older, Older::Absent) => Below::Nothing,
            (below, _) => below,
        };
        let key = key.to_key();
        let record = resolution.into_record(key.as_ref(), below);
        let is_there = record.op != Op::Delete || self.older == Older::Present;
        self.current = Current::Own(record);
        is_there
    }

    /// Adds the operands of a key to `resolution` and returns what lies below them.
    fn below<'a>(&'a self, key: KeyRef<'_>, resolution: &mut Resolution<'_>) -> Below<'a> {
        let mut at_key = self.at_key.iter().copied().peekable();
        for (at, input) in self.inputs.iter().enumerate() {
            if at_key.next_if_eq(&at).is_some() {
                match input.source.record() {
                    Some(RecordRef { op: Op::Put, value, .. }) => return Below::Value(value),
                    Some(RecordRef { op: Op::Delete, .. }) => return Below::Nothing,
                    Some(RecordRef { op: Op::Merge, value, .. }) => resolution.older(key, value),
                    None => {}
                }
            }
            if input.range_deletes.iter().any(|range| range.contains(key)) {
                return Below::Nothing;
            }
        }
        Below::Older
    }

    /// Returns all that is left, as records of their own.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn collect(mut self) -> Result<Vec<(Key, Vec<u8>)>> {
        let mut all = Vec::new();
        while let Some(record) = self.next()? {
            all.push((record.key.to_key(), record.value.to_vec()));
        }
        Ok(all)
    }
}

//! Records that were put down one after the other, and are then sorted: cheaper by far than keeping
//! them sorted, where nobody reads them meanwhile.

use crate::error::Result;
use crate::key::{Key, KeyRef};
use crate::memtable::Below;
use crate::merge::{MergeOperator, Resolution};
use crate::record::{Op, Record, RecordRef};
use crate::scan::Source;
use std::ops::Range;
use std::sync::Arc;

/// Records, and bytes of each, that fit into the cache next to the processor.
const TOUCHED_RECORDS: usize = 64;
const TOUCHED_BYTES: usize = 256;
const CACHE_LINE: usize = 64;

/// Records one after the other, and where each begins.
#[derive(Default)]
pub(crate) struct Unsorted {
    bytes: Vec<u8>,
    places: Vec<RecordSlot>,
}

/// Most of a record's key, and the position of the rest.
#[derive(Clone, Copy)]
struct RecordSlot {
    directory: u64,
    hash: u64,
    /// The first bytes of the name, in an order that is theirs: entries of an index have equal
    /// hashes, and comparing names there means waiting for memory.
    name_start: u64,
    /// Where the name begins; the value follows it.
    start: u64,
    value_length: u32,
    name_length: u16,
    op: Op,
}

/// Returns the first bytes of a name as a number; zeros are where it has none.
fn start_of(name: &[u8]) -> u64 {
    let mut start = [0; 8];
    let length = name.len().min(8);
    start[..length].copy_from_slice(&name[..length]);
    u64::from_be_bytes(start)
}

/// The end of the records that are there, for [`Unsorted::truncate`].
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    bytes: usize,
    places: usize,
}

impl Unsorted {
    /// Returns an empty one with room for as much as this one has.
    pub(crate) fn emptied(&self) -> Self {
        Unsorted {
            bytes: Vec::with_capacity(self.bytes.len()),
            places: Vec::with_capacity(self.places.len()),
        }
    }

    /// Adds a record, which is not too long.
    pub(crate) fn push(&mut self, record: RecordRef<'_>) {
        let RecordRef { key, op, value } = record;
        self.places.push(RecordSlot {
            directory: key.directory,
            hash: key.hash,
            name_start: start_of(key.name),
            start: self.bytes.len() as u64,
            value_length: value.len() as u32,
            name_length: key.name.len() as u16,
            op,
        });
        self.bytes.extend_from_slice(key.name);
        self.bytes.extend_from_slice(value);
        // Each begins elsewhere: that tells which is newer.
        if key.name.is_empty() && value.is_empty() {
            self.bytes.push(0);
        }
    }

    /// Returns where the records end now, for [`Unsorted::truncate`].
    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), places: self.places.len() }
    }

    /// Takes out what was added since a mark.
    pub(crate) fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.places.truncate(mark.places);
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + self.places.len() * size_of::<RecordSlot>()) as u64
    }

    fn record(&self, place: &RecordSlot) -> RecordRef<'_> {
        let bytes = &self.bytes[place.start as usize..];
        let (name, bytes) = bytes.split_at(place.name_length.into());
        let RecordSlot { directory, hash, op, .. } = *place;
        let key = KeyRef { directory, hash, name };
        RecordRef { key, op, value: &bytes[..place.value_length as usize] }
    }
}

/// Records by key, those of one key by age, the newest first.
pub(crate) struct Sorted(Unsorted);

impl Sorted {
    pub(crate) fn new(mut records: Unsorted) -> Self {
        let mut places = std::mem::take(&mut records.places);
        places.sort_unstable_by(|one, other| {
            let start = |place: &RecordSlot| (place.directory, place.hash, place.name_start);
            start(one).cmp(&start(other)).then_with(|| {
                let [name, other_name] = [one, other].map(|place| records.record(place).key.name);
                name.cmp(other_name).then(other.start.cmp(&one.start))
            })
        });
        records.places = places;
        Sorted(records)
    }

    /// Combines the records of each key into one, so that a key that changed often is quick to read.
    pub(crate) fn combined(mut self, operator: Option<&dyn MergeOperator>) -> Self {
        let (mut places, length) = (Vec::with_capacity(self.len()), self.len());
        let mut start = 0;
        while start < length {
            let group = start..self.group_from(start).end.min(length);
            start = group.end;
            if group.len() == 1 {
                places.push(self.0.places[group.start]);
                continue;
            }
            let key = self.record(group.start).key.to_key();
            let mut resolution = Resolution::new(operator);
            let below = self.resolve(group, &mut resolution);
            let record = resolution.into_record(key.as_ref(), below);
            self.0.push(record.as_ref());
            places.extend(self.0.places.pop());
        }
        self.0.places = places;
        self
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes()
    }

    /// Returns how many records there are.
    pub(crate) fn len(&self) -> usize {
        self.0.places.len()
    }

    /// Reads some of the bytes of records that are looked at next. They lie anywhere in memory; here
    /// the processor waits for many of them at once, later it would for each alone.
    fn touch(&self, records: Range<usize>) {
        let places = self.0.places.get(records.start..records.end.min(self.len()));
        let mut seen = 0;
        for place in places.unwrap_or_default() {
            let start = place.start as usize;
            let end = start + usize::from(place.name_length) + place.value_length as usize;
            for at in (start..end.min(start + TOUCHED_BYTES)).step_by(CACHE_LINE) {
                seen ^= self.0.bytes[at];
            }
        }
        std::hint::black_box(seen);
    }

    /// Returns the place of the first record whose key is not less.
    pub(crate) fn find(&self, key: KeyRef<'_>) -> usize {
        self.0.places.partition_point(|place| {
            let by_hash = (place.directory, place.hash).cmp(&(key.directory, key.hash));
            by_hash.then_with(|| self.0.record(place).key.name.cmp(key.name)).is_lt()
        })
    }

    /// Returns the records of the key of the one at `start`, which is their first.
    pub(crate) fn group_from(&self, start: usize) -> Range<usize> {
        let places = &self.0.places;
        let Some(first) = places.get(start) else { return start..start };
        let more =
            places[start + 1..].iter().take_while(|place| self.is_same(first, place)).count();
        start..start + 1 + more
    }

    /// Returns the records of the key of the one before `end`, which is their last.
    pub(crate) fn group_before(&self, end: usize) -> Range<usize> {
        let places = &self.0.places;
        let Some(last) = end.checked_sub(1) else { return 0..0 };
        let before = places[..last].iter().rev();
        let more = before.take_while(|place| self.is_same(&places[last], place)).count();
        last - more..end
    }

    fn is_same(&self, one: &RecordSlot, other: &RecordSlot) -> bool {
        (one.directory, one.hash) == (other.directory, other.hash)
            && self.0.record(one).key.name == self.0.record(other).key.name
    }

    pub(crate) fn record(&self, at: usize) -> RecordRef<'_> {
        self.0.record(&self.0.places[at])
    }

    /// Adds the operands of a key's records to `resolution` and returns what lies below them.
    pub(crate) fn resolve(
        &self,
        group: Range<usize>,
        resolution: &mut Resolution<'_>,
    ) -> Below<'_> {
        for at in group {
            let record = self.record(at);
            match record.op {
                Op::Merge => resolution.older(record.key, record.value),
                Op::Put => return Below::Value(record.value),
                Op::Delete => return Below::Nothing,
            }
        }
        Below::Older
    }
}

/// All of them, those of one key made one.
pub(crate) struct SortedSource {
    records: Arc<Sorted>,
    operator: Option<Arc<dyn MergeOperator>>,
    /// Those of the current key.
    current: Range<usize>,
    /// Those before this were read into the processor's caches.
    touched: usize,
    /// The current records combined into one, if they are several.
    own: Option<Record>,
}

impl SortedSource {
    pub(crate) fn new(records: Arc<Sorted>, operator: Option<Arc<dyn MergeOperator>>) -> Self {
        let mut source = SortedSource { records, operator, current: 0..0, touched: 0, own: None };
        source.enter(0);
        source
    }

    /// Goes to the records of the key at `start`.
    fn enter(&mut self, start: usize) {
        while self.touched < self.records.len() && self.touched < start + TOUCHED_RECORDS {
            let next = self.touched + TOUCHED_RECORDS;
            self.records.touch(self.touched..next);
            self.touched = next;
        }
        self.current = self.records.group_from(start);
        self.own = None;
        if self.current.len() > 1 && self.records.record(start).op == Op::Merge {
            let key: Key = self.records.record(start).key.to_key();
            let mut resolution = Resolution::new(self.operator.as_deref());
            let below = self.records.resolve(self.current.clone(), &mut resolution);
            self.own = Some(resolution.into_record(key.as_ref(), below));
        }
    }
}

impl Source for SortedSource {
    fn record(&self) -> Option<RecordRef<'_>> {
        match &self.own {
            Some(own) => Some(own.as_ref()),
            None => (!self.current.is_empty()).then(|| self.records.record(self.current.start)),
        }
    }

    fn advance(&mut self) -> Result<()> {
        self.enter(self.current.end);
        Ok(())
    }
}

//! Records of a file's chunks, as far as a client knows them.

use canopy_namespace::Stored;
use std::collections::BTreeMap;

/// More records are not kept.
const RECORDS_MAX: usize = 1 << 20;

/// Records of chunks in ranges of chunk numbers. Chunks in these ranges without a record are holes.
#[derive(Debug, Default)]
pub(super) struct Known {
    records: BTreeMap<u64, Stored>,
    /// The ranges: start and end. None touches another.
    ranges: BTreeMap<u64, u64>,
}

impl Known {
    /// Returns the record of a chunk, if it is known whether there is one.
    pub(super) fn get(&self, chunk: u64) -> Option<Option<Stored>> {
        self.end_at(chunk).map(|_| self.records.get(&chunk).copied())
    }

    /// Returns the end of the range that a chunk is in.
    fn end_at(&self, chunk: u64) -> Option<u64> {
        let (_, end) = self.ranges.range(..=chunk).next_back()?;
        (chunk < *end).then_some(*end)
    }

    /// Returns the first chunk from one on that has a record. An error is the number from which on
    /// nothing is known.
    pub(super) fn next(&self, from: u64) -> Result<Option<u64>, u64> {
        let end = self.end_at(from).ok_or(from)?;
        match self.records.range(from..end).next() {
            Some((chunk, _)) => Ok(Some(*chunk)),
            None if end == u64::MAX => Ok(None),
            None => Err(end),
        }
    }

    /// Adds the records of a range that begins with `from`. Those that were known stay.
    pub(super) fn add(&mut self, from: u64, records: &[(u64, Stored)], next: Option<u64>) {
        if self.records.len() + records.len() > RECORDS_MAX {
            *self = Known::default();
        }
        for (chunk, stored) in records {
            if self.end_at(*chunk).is_none() {
                self.records.insert(*chunk, *stored);
            }
        }
        let (mut start, mut end) = (from, next.unwrap_or(u64::MAX));
        if let Some((before, until)) = self.ranges.range(..=start).next_back()
            && *until >= start
        {
            (start, end) = (*before, end.max(*until));
        }
        while let Some((later, until)) = self.ranges.range(start..=end).next() {
            let (later, until) = (*later, *until);
            end = end.max(until);
            self.ranges.remove(&later);
        }
        self.ranges.insert(start, end);
    }

    /// Notes that a chunk has another record.
    pub(super) fn set(&mut self, chunk: u64, stored: Option<Stored>) {
        if self.end_at(chunk).is_some() {
            match stored {
                Some(stored) => self.records.insert(chunk, stored),
                None => self.records.remove(&chunk),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_namespace::ObjectId;

    fn stored(number: u64) -> Stored {
        let object = ObjectId { epoch: 1, number };
        Stored { object, object_bytes: 1, used: 1, checksum: 0 }
    }

    #[test]
    fn what_is_not_known_is_asked_for() {
        let mut known = Known::default();
        assert_eq!((known.get(0), known.next(0)), (None, Err(0)));
        known.add(2, &[(3, stored(3))], Some(6));
        assert_eq!((known.get(1), known.get(2), known.get(6)), (None, Some(None), None));
        assert_eq!(known.get(3), Some(Some(stored(3))));
        assert_eq!((known.next(2), known.next(4)), (Ok(Some(3)), Err(6)));
        known.set(3, Some(stored(30)));
        known.set(9, Some(stored(9)));
        known.add(0, &[(1, stored(1)), (3, stored(3))], Some(4));
        assert_eq!(known.get(3), Some(Some(stored(30))), "what was known stays");
        assert_eq!((known.next(0), known.get(9)), (Ok(Some(1)), None));
        known.add(6, &[], None);
        known.set(3, None);
        assert_eq!((known.next(2), known.ranges.len()), (Ok(None), 1));
    }
}

//! Reading all of an SSTable to see whether it is as it must be.

use super::builder::span;
use super::reader::Sstable;
use super::wire::Decoded;
use crate::error::Result;
use crate::key::{Key, KeyRange, KeyRef};
use crate::record::Op;
use std::sync::Arc;

/// Summary of the records seen so far.
#[derive(Default)]
struct Seen {
    first: Option<Key>,
    last: Option<Key>,
    /// Records, deletes and merges.
    counts: [u64; 3],
}

impl Sstable {
    /// Reads the whole file, and returns an error unless all checksums, sizes, counts and keys are
    /// right, records are sorted, and the filter passes every key.
    ///
    /// # Errors
    ///
    /// Fails with `Corrupt` if anything in the file is wrong, with `NotFound` if there is no file,
    /// and as storage does.
    pub fn verify(self: &Arc<Self>) -> Result<()> {
        // Opening has looked at the tail: it only must not have changed.
        let size_bytes = self.info().size_bytes;
        let start = size_bytes.saturating_sub(self.info().tail_bytes);
        let mut tail = Vec::new();
        self.read_range(start..size_bytes, &mut tail)?;
        if tail != self.tail() {
            return Err(self.corrupt("has another tail than when it was opened"));
        }
        let mut seen = Seen::default();
        let mut cursor = self.cursor(KeyRange::all());
        cursor.ignore_cache();
        while cursor.advance()? {
            let Some((block, record)) = cursor.block().zip(cursor.record()) else { break };
            let wrong = |what| self.corrupt(format!("has {what} at {:?}", record.key));
            self.verify_key(block, record.key, seen.last.as_ref()).map_err(wrong)?;
            seen.add(record.key, record.op);
        }
        let properties = self.properties();
        let ends = seen.first.zip(seen.last);
        if ends != properties.ends {
            return Err(self.corrupt("has other first and last keys than it says"));
        }
        if seen.counts != [properties.records, properties.deletes, properties.merges] {
            return Err(self.corrupt("has other records than it says"));
        }
        if span(ends.as_ref(), self.range_deletes()) != properties.span {
            return Err(self.corrupt("has another range of keys than it says"));
        }
        Ok(())
    }

    /// Returns what is wrong with a key of block `block`, if anything; `last` is the key before.
    fn verify_key(&self, block: usize, key: KeyRef<'_>, last: Option<&Key>) -> Decoded<()> {
        if last.is_some_and(|last| last.as_ref() >= key) {
            return Err("records that are not sorted");
        }
        if self.index().find(key) != Some(block) {
            return Err("a record in another block than its index says");
        }
        if !self.may_have(key) {
            return Err("a filter that does not pass a key");
        }
        Ok(())
    }
}

impl Seen {
    fn add(&mut self, key: KeyRef<'_>, op: Op) {
        self.counts[0] += 1;
        self.counts[1] += u64::from(op == Op::Delete);
        self.counts[2] += u64::from(op == Op::Merge);
        let key = key.to_key();
        self.first.get_or_insert_with(|| key.clone());
        self.last = Some(key);
    }
}

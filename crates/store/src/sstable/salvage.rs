//! Reading what is left of a damaged SSTable, and making a sound one of it.
//!
//! A block counts if the index has its checksum. Where the tail is damaged, too, blocks are found by
//! going through the file: each implies its own length, and where one is damaged, the next is looked
//! for at every byte. The checksums of the index are used as far as they can be read. If none of
//! them is right, blocks count that can be read and whose keys are in order.

use super::block::Block;
use super::builder::{Builder, BuilderOptions};
use super::filter;
use super::footer::{FOOTER_BYTES, Properties, Sections, SstableInfo, properties, whole};
use super::index::Index;
use super::rows::Rows;
use super::wire::{Decoded, Decoder};
use crate::error::Result;
use crate::key::{Key, KeyRange, KeyRef};
use crate::record::{Layout, Op};
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;

/// The readable part of a damaged SSTable.
pub(crate) struct Salvaged {
    /// A sound file of it, unless nothing is left.
    pub(crate) file: Option<(Bytes, SstableInfo)>,
    /// Keys whose records are lost, in order.
    pub(crate) lost: Vec<KeyRange>,
    /// Records that are left: puts, merges and deletes.
    pub(crate) left: [u64; 3],
    /// Whether blocks were taken that no checksum proves.
    pub(crate) is_unproved: bool,
    /// Whether range deletes are lost.
    pub(crate) has_lost_ranges: bool,
    /// The filter, if it is sound.
    filter: Option<Vec<u8>>,
}

impl Salvaged {
    /// Returns whether the filter is sound.
    pub(crate) fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Returns whether the damaged file may have had a record of `key`, if the filter is sound.
    pub(crate) fn may_have_had(&self, key: KeyRef<'_>) -> bool {
        let filter = self.filter.as_deref();
        filter.is_some_and(|filter| filter::may_have(filter, filter::fingerprint(key)))
    }
}

/// The parts of a sound tail.
struct Tail {
    range_deletes: Vec<KeyRange>,
    index: Index,
    filter: Vec<u8>,
}

impl Tail {
    fn read(bytes: &[u8], info: &SstableInfo) -> Decoded<Self> {
        let start = info.size_bytes.saturating_sub(info.tail_bytes) as usize;
        if bytes.len() as u64 != info.size_bytes {
            return Err("has another size");
        }
        let tail = bytes.get(start..).ok_or("is shorter than its tail")?;
        let sections = Sections::read(tail, info.size_bytes)?;
        let found: Properties = properties(sections.properties)?;
        if SstableInfo::of(&found, info.size_bytes, info.tail_bytes) != *info {
            return Err("is not what the manifest says");
        }
        Ok(Tail {
            range_deletes: whole(sections.range_deletes)?,
            index: Index::read(sections.index, sections.data_bytes)?,
            filter: sections.filter.to_vec(),
        })
    }
}

/// Returns the readable part of a file that `info` describes. `bytes` may be of any length: zeros
/// stand for bytes that could not be read.
pub(crate) fn salvage(bytes: &[u8], info: &SstableInfo, layout: &Layout) -> Result<Salvaged> {
    let tail = Tail::read(bytes, info).ok();
    let mut left = Left::new(info, layout);
    match &tail {
        Some(tail) => left.add_indexed(bytes, &tail.index)?,
        None => left.add_found(bytes, info)?,
    }
    let has_lost_ranges = tail.is_none() && info.range_deletes > 0;
    let range_deletes = tail.iter().flat_map(|tail| tail.range_deletes.iter().cloned());
    range_deletes.for_each(|range| left.builder.delete_range(range));
    let file = if left.builder.is_empty() { None } else { Some(left.builder.finish()?) };
    Ok(Salvaged {
        file,
        lost: left.lost,
        left: left.counts,
        is_unproved: left.is_unproved,
        has_lost_ranges,
        filter: tail.map(|tail| tail.filter),
    })
}

/// The blocks that were read so far.
struct Left<'a> {
    layout: &'a Layout,
    span: KeyRange,
    builder: Builder,
    block: Block,
    rows: Rows,
    lost: Vec<KeyRange>,
    counts: [u64; 3],
    last: Option<Key>,
    is_unproved: bool,
}

impl<'a> Left<'a> {
    fn new(info: &SstableInfo, layout: &'a Layout) -> Self {
        Left {
            layout,
            span: info.span.clone(),
            builder: Builder::new(layout, BuilderOptions::default()),
            block: Block::default(),
            rows: Rows::default(),
            lost: Vec::new(),
            counts: [0; 3],
            last: None,
            is_unproved: false,
        }
    }

    fn lose(&mut self, start: Key, end: Option<Key>) {
        let range = KeyRange { start, end }.intersection(&self.span);
        if range.is_empty() {
            return;
        }
        match self.lost.last_mut().filter(|last| last.end.as_ref() == Some(&range.start)) {
            Some(last) => last.end = range.end,
            None => self.lost.push(range),
        }
    }

    /// Loads a block and decodes its records, whose keys must be in order and behind all others.
    fn load(&mut self, bytes: &[u8]) -> Decoded<()> {
        self.block.load(bytes, self.layout)?;
        self.rows.decode(&self.block, 0..self.block.len(), self.layout)?;
        let key = |row| self.rows.record(&self.block, row).map(|record| record.key);
        let keys = (0..self.block.len()).map(key);
        let last = self.last.as_ref().map(Key::as_ref);
        let mut before = last;
        for key in keys {
            let key = key.ok_or("has a record that cannot be read")?;
            if before.is_some_and(|before| before >= key) || !self.span.contains(key) {
                return Err("has records that are not sorted");
            }
            before = Some(key);
        }
        Ok(())
    }

    /// Adds the records of the block that was loaded last.
    fn add(&mut self) -> Result<()> {
        for row in 0..self.block.len() {
            let Some(record) = self.rows.record(&self.block, row) else { continue };
            self.builder.add(record)?;
            let kind = match record.op {
                Op::Put => 0,
                Op::Merge => 1,
                Op::Delete => 2,
            };
            self.counts[kind] += 1;
            if row + 1 == self.block.len() {
                self.last = Some(record.key.to_key());
            }
        }
        Ok(())
    }

    /// Adds the blocks that a sound index has.
    fn add_indexed(&mut self, bytes: &[u8], index: &Index) -> Result<()> {
        for at in 0..index.len() {
            let range = index.range(at);
            let body = bytes.get(range.start as usize..range.end as usize).unwrap_or_default();
            let is_sound = crc32fast::hash(body) == index.crc(at)
                && self.load(body).is_ok()
                && self.block.len() as u64 == index.records(at);
            match is_sound {
                true => self.add()?,
                false => {
                    let end = (at + 1 < index.len()).then(|| index.separator(at + 1).to_key());
                    self.lose(index.separator(at).to_key(), end);
                }
            }
        }
        Ok(())
    }

    /// Adds the blocks that are found by going through the file.
    fn add_found(&mut self, bytes: &[u8], info: &SstableInfo) -> Result<()> {
        let data_bytes = info.size_bytes.saturating_sub(info.tail_bytes) as usize;
        let data = bytes.get(..data_bytes).unwrap_or(bytes);
        let checksums = checksums(bytes.get(data_bytes..).unwrap_or_default(), info);
        let mut found = find_blocks(data, self.layout, Some(&checksums));
        if found.is_empty() && info.records > 0 {
            found = find_blocks(data, self.layout, None);
            self.is_unproved = !found.is_empty();
        }
        // From where on keys may be missing, if any are.
        let (mut end, mut gap) = (0, None);
        for range in found {
            let start = range.start;
            if start != end {
                gap.get_or_insert_with(|| self.after_last());
            }
            end = range.end;
            if self.load(&data[range]).is_err() {
                gap.get_or_insert_with(|| self.after_last());
                continue;
            }
            if let Some(from) = gap.take() {
                let first = self.rows.record(&self.block, 0).map(|record| record.key.to_key());
                self.lose(from, first);
            }
            self.add()?;
        }
        if end != data_bytes || gap.is_some() {
            let from = gap.unwrap_or_else(|| self.after_last());
            self.lose(from, None);
        }
        Ok(())
    }

    fn after_last(&self) -> Key {
        self.last.clone().map_or_else(|| self.span.start.clone(), Key::successor)
    }
}

/// Returns the checksums of blocks that a damaged tail has, each with its place, as far as they are
/// where the footer or the manifest puts them.
fn checksums(tail: &[u8], info: &SstableInfo) -> HashMap<u32, usize> {
    let number = |at: usize| {
        let footer = tail.last_chunk::<FOOTER_BYTES>()?;
        footer[at * 8..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes) as usize)
    };
    // An empty list takes a byte.
    let starts = [(info.range_deletes == 0).then_some(1), number(1)];
    let read = |start: usize| {
        let mut input = Decoder::new(tail.get(start..)?);
        let count = input.size(tail.len() / 4).ok()?;
        let (checksums, _) = input.take(count * 4).ok()?.as_chunks::<4>();
        let numbered = checksums.iter().enumerate();
        Some(HashMap::from_iter(numbered.map(|(at, crc)| (u32::from_le_bytes(*crc), at))))
    };
    starts.into_iter().flatten().find_map(read).unwrap_or_default()
}

/// Returns where blocks are in `data` whose checksums are among these, in their order, or that
/// can be read if there are none.
fn find_blocks(
    data: &[u8],
    layout: &Layout,
    checksums: Option<&HashMap<u32, usize>>,
) -> Vec<Range<usize>> {
    let (mut found, mut at, mut next) = (Vec::new(), 0, 0);
    let mut block = Block::default();
    while at < data.len() {
        let length = Block::length(&data[at..], layout).unwrap_or(0);
        let body = &data[at..at + length];
        let place = match checksums {
            Some(_) if length == 0 => None,
            Some(known) => known.get(&crc32fast::hash(body)).copied(),
            None => block.load(body, layout).is_ok().then_some(next),
        };
        match place.filter(|place| *place >= next) {
            Some(place) => {
                found.push(at..at + length);
                (at, next) = (at + length, place + 1);
            }
            None => at += 1,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{BlockCache, Sstable};
    use super::*;
    use crate::record::{Column, Record};
    use crate::storage::{MemoryStorage, Storage};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// Returns a file of many small blocks, and its records.
    fn file() -> (Vec<u8>, SstableInfo, Layout, BTreeMap<Key, Record>) {
        let column = |near| Column { name: "time".into(), width: 8, near };
        let layout = Layout { columns: vec![column(None), column(Some(0))] };
        let mut records = BTreeMap::new();
        for at in 0..300u64 {
            let key = Key::named(at / 40, format!("file {at:05} of many").as_bytes());
            let op = [Op::Put, Op::Put, Op::Merge, Op::Delete][at as usize % 4];
            let mut value = [at * 1000, at * 1000 + at % 3].map(u64::to_le_bytes).concat();
            value.extend_from_slice("the same text ".repeat(at as usize % 4).as_bytes());
            if op == Op::Delete {
                value.clear();
            }
            records.insert(key.clone(), Record { key, op, value });
        }
        let mut builder = Builder::new(&layout, BuilderOptions { block_bytes: 600 });
        records.values().for_each(|record| builder.add(record.as_ref()).unwrap());
        let (bytes, info) = builder.finish().unwrap();
        (bytes.to_vec(), info, layout, records)
    }

    fn read(salvaged: &Salvaged) -> Vec<Record> {
        let Some((bytes, info)) = &salvaged.file else { return Vec::new() };
        let storage = Arc::new(MemoryStorage::default());
        storage.create("s", bytes.clone()).unwrap();
        let cache = Arc::new(BlockCache::new(1 << 20));
        let table = Arc::new(Sstable::open(storage, "s".into(), info, cache).unwrap());
        table.verify().unwrap();
        let mut cursor = table.cursor(KeyRange::all());
        let mut records = Vec::new();
        while cursor.advance().unwrap() {
            records.extend(cursor.record().map(|record| record.to_record()));
        }
        records
    }

    /// Fails unless what is left is right, and all that is missing lies in the ranges.
    #[track_caller]
    fn check(bytes: &[u8], info: &SstableInfo, layout: &Layout, all: &BTreeMap<Key, Record>) {
        let salvaged = salvage(bytes, info, layout).unwrap();
        // Where all checksums are gone, nobody can promise more.
        if salvaged.is_unproved {
            return drop(read(&salvaged));
        }
        let mut left = all.clone();
        for record in read(&salvaged) {
            let expected = left.remove(&record.key);
            assert_eq!(expected.as_ref(), Some(&record));
        }
        let is_lost = |key: &Key| salvaged.lost.iter().any(|range| range.contains(key.as_ref()));
        let silent = left.keys().find(|key| !is_lost(key));
        assert_eq!(silent, None, "{:?}", salvaged.lost);
        assert!(salvaged.lost.is_sorted_by(|one, next| one.end.as_ref() <= Some(&next.start)));
    }

    #[test]
    fn whatever_is_damaged_what_is_left_is_right_and_all_else_is_known_to_be_lost() {
        let (bytes, info, layout, records) = file();
        check(&bytes, &info, &layout, &records);
        for at in (0..bytes.len()).step_by(7) {
            for (length, mask) in [(1, 1), (1, 0x80), (40, 0xff), (200, 0x5a)] {
                let mut damaged = bytes.clone();
                damaged.iter_mut().skip(at).take(length).for_each(|byte| *byte ^= mask);
                check(&damaged, &info, &layout, &records);
                // And the tail, so that blocks have to be looked for.
                let end = damaged.len() - 20;
                damaged[end] ^= 1;
                check(&damaged, &info, &layout, &records);
            }
        }
    }

    #[test]
    fn files_of_any_length_are_read() {
        let (bytes, info, layout, records) = file();
        for length in (0..bytes.len()).step_by(13) {
            check(&bytes[..length], &info, &layout, &records);
        }
        check(&[&bytes[..], &[0; 100]].concat(), &info, &layout, &records);
    }
}

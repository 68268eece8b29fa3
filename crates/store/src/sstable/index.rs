//! Where the blocks of an SSTable are. See the module above for the bytes.

use super::block::BLOCK_BYTES_MAX;
use super::columns::{Columns, Encoder};
use super::wire::{Decoded, Decoder, put_varint};
use crate::key::{Key, KeyRef, NAME_MAX};
use std::ops::Range;

/// The blocks of an SSTable, in order.
#[derive(Default)]
pub(super) struct Index {
    /// The last directory of every group of separators. These few stay in the processor's caches;
    /// a search among all would wait for memory at nearly every step.
    last_directories: Vec<u64>,
    directories: Vec<u64>,
    hashes: Vec<u64>,
    /// Where the names of the separators end in `names`.
    name_ends: Vec<u64>,
    names: Vec<u8>,
    places: Vec<BlockEntry>,
}

/// Separators of a group: their directories are some four cache lines, read at once.
const GROUP: usize = 32;

/// Interpolated guesses of a search, and their usual error: among 20,000 hashes, the third guess is
/// mostly within `NEAR`.
const GUESSES: usize = 3;
const NEAR: usize = 8;

/// The end of a block in the file, its checksum and its number of records.
#[derive(Clone, Copy, Default)]
struct BlockEntry {
    end: u64,
    crc: u32,
    records: u32,
}

impl Index {
    /// Adds a block at the end of the file, whose first key is `first`; `last` is that of the block
    /// before.
    pub fn push(&mut self, last: Option<&Key>, first: KeyRef<'_>, block: &[u8], records: usize) {
        let separator = separator(last.map(Key::as_ref), first);
        self.directories.push(separator.directory);
        self.hashes.push(separator.hash);
        self.names.extend_from_slice(separator.name);
        self.name_ends.push(self.names.len() as u64);
        let end = self.data_bytes() + block.len() as u64;
        self.places.push(BlockEntry { end, crc: crc32fast::hash(block), records: records as u32 });
    }

    pub fn write(&self, encoder: &mut Encoder, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        out.extend(self.places.iter().flat_map(|place| place.crc.to_le_bytes()));
        let ends = Vec::from_iter(self.places.iter().map(|place| place.end));
        let records = Vec::from_iter(self.places.iter().map(|place| place.records.into()));
        let lengths = [differences(&self.name_ends), differences(&ends)];
        let [name_bytes, block_bytes] = &lengths;
        for column in [&self.directories, &self.hashes, name_bytes, block_bytes, &records] {
            encoder.encode(column, None, 8, out);
        }
        out.extend_from_slice(&self.names);
    }

    /// Returns the index that `bytes` are, of blocks that fill `data_bytes`.
    pub fn read(bytes: &[u8], data_bytes: u64) -> Decoded<Self> {
        let mut input = Decoder::new(bytes);
        let count = input.size(bytes.len() / 4)?;
        let (crcs, _) = input.take(count * 4)?.as_chunks::<4>();
        let mut columns = Columns::default();
        for _ in 0..5 {
            columns.push(&mut input, bytes.len(), count, 8)?;
        }
        let column = |at| {
            let mut column = Vec::with_capacity(count);
            columns.decode(bytes, at, 0..count, &mut column);
            column
        };
        let ends = sums(column(3), BLOCK_BYTES_MAX as u64)?;
        let places = ends.into_iter().zip(column(4)).zip(crcs).map(|((end, records), crc)| {
            // No block has so many that this cuts off: it is found wrong when it is read.
            let records = u32::try_from(records).unwrap_or(u32::MAX);
            BlockEntry { end, records, crc: u32::from_le_bytes(*crc) }
        });
        let places = Vec::from_iter(places);
        let directories = column(0);
        let groups = directories.chunks(GROUP);
        let index = Index {
            last_directories: groups.filter_map(|group| group.last().copied()).collect(),
            directories,
            hashes: column(1),
            name_ends: sums(column(2), NAME_MAX as u64)?,
            names: input.rest.to_vec(),
            places,
        };
        let name_bytes = index.name_ends.last().copied().unwrap_or(0);
        if name_bytes != index.names.len() as u64 || index.data_bytes() != data_bytes {
            return Err("has an index of another size");
        }
        let separators = || (0..count).map(|block| index.separator(block));
        if !separators().zip(separators().skip(1)).all(|(one, next)| one < next) {
            return Err("has an index that is not sorted");
        }
        Ok(index)
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn data_bytes(&self) -> u64 {
        self.places.last().map_or(0, |place| place.end)
    }

    pub fn records(&self, block: usize) -> u64 {
        self.places.get(block).map_or(0, |place| place.records.into())
    }

    pub fn crc(&self, block: usize) -> u32 {
        self.places.get(block).map_or(0, |place| place.crc)
    }

    /// Returns where a block is in the file.
    pub fn range(&self, block: usize) -> Range<u64> {
        let end = |block: usize| self.places.get(block).map_or(self.data_bytes(), |one| one.end);
        block.checked_sub(1).map_or(0, end)..end(block)
    }

    pub fn separator(&self, block: usize) -> KeyRef<'_> {
        let end = |block: usize| self.name_ends.get(block).map_or(0, |end| *end as usize);
        let range = block.checked_sub(1).map_or(0, end)..end(block);
        KeyRef {
            directory: self.directories.get(block).copied().unwrap_or(0),
            hash: self.hashes.get(block).copied().unwrap_or(0),
            name: self.names.get(range).unwrap_or_default(),
        }
    }

    /// Returns the block that `key` is in if it is there. Without one, it is less than all.
    pub fn find(&self, key: KeyRef<'_>) -> Option<usize> {
        let group = self.last_directories.partition_point(|last| *last < key.directory);
        let mut low = (group * GROUP).min(self.len());
        let group = self.directories.get(low..self.len().min(low + GROUP)).unwrap_or_default();
        low += group.iter().filter(|one| **one < key.directory).count();
        // Few directories have many blocks: their end is near, if they have any.
        let same = self.directories.get(low..).unwrap_or_default();
        let mut reach = 1;
        while same.get(reach - 1).is_some_and(|one| *one == key.directory) {
            reach *= 2;
        }
        let near = same.get(..reach).unwrap_or(same);
        let count = near.partition_point(|one| *one == key.directory);
        let mut high = low + count;
        let hashes = self.hashes.get(low..high).unwrap_or_default();
        low += lower_bound(hashes, key.hash);
        // Names count where hashes are the same, which is rare.
        while low < high && self.hashes.get(low) == Some(&key.hash) {
            let middle = low.midpoint(high);
            if self.separator(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }
}

/// Returns how many of `sorted` are less than `number`. Hashes of names are spread evenly, so that a
/// few guesses come near; halving would wait for memory at nearly every step.
fn lower_bound(sorted: &[u64], number: u64) -> usize {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return 0 };
    let gap = (last.saturating_sub(*first) / sorted.len() as u64).max(1);
    let gaps = |from: u64, to: u64| (to.saturating_sub(from) / gap) as usize;
    let narrowed = |within: Range<usize>, at: usize| match sorted[at] < number {
        true => at + 1..within.end,
        false => within.start..at,
    };
    let mut within = 0..sorted.len();
    let mut at = gaps(*first, number).min(sorted.len() - 1);
    for _ in 0..GUESSES {
        within = narrowed(within, at);
        let next = match sorted[at] < number {
            true => within.start.saturating_add(gaps(sorted[at], number)),
            false => within.end.saturating_sub(1 + gaps(number, sorted[at])),
        };
        let Some(last) = within.end.checked_sub(1).filter(|last| *last >= within.start) else {
            return within.start;
        };
        at = next.clamp(within.start, last);
    }
    for edge in [at.saturating_sub(NEAR), at.saturating_add(NEAR)] {
        if within.contains(&edge) {
            within = narrowed(within, edge);
        }
    }
    let start = within.start;
    start + sorted[within].partition_point(|one| *one < number)
}

/// Returns where the checksum of a block is in an index of `blocks`.
pub(super) fn crc_place(blocks: usize, block: usize) -> usize {
    let mut count = Vec::new();
    put_varint(&mut count, blocks as u64);
    count.len() + 4 * block
}

/// Returns the shortest key that is greater than `last` and at most `first`.
fn separator<'a>(last: Option<KeyRef<'_>>, first: KeyRef<'a>) -> KeyRef<'a> {
    let last = last.unwrap_or(KeyRef { directory: 0, hash: 0, name: &[] });
    let (hash, name) = match () {
        _ if last.directory < first.directory => (0, 0),
        _ if last.hash < first.hash => (first.hash, 0),
        _ => {
            let common = last.name.iter().zip(first.name).take_while(|(one, other)| one == other);
            (first.hash, (common.count() + 1).min(first.name.len()))
        }
    };
    KeyRef { directory: first.directory, hash, name: &first.name[..name] }
}

fn differences(ends: &[u64]) -> Vec<u64> {
    let starts = std::iter::once(&0).chain(ends);
    ends.iter().zip(starts).map(|(end, start)| end - start).collect()
}

/// Returns where each of `sizes`, which are at most `limit`, ends.
fn sums(mut sizes: Vec<u64>, limit: u64) -> Decoded<Vec<u64>> {
    let mut sum = 0u64;
    for size in &mut sizes {
        if *size > limit {
            return Err("has an index with a wrong size");
        }
        sum = sum.saturating_add(*size);
        *size = sum;
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_find_what_halving_finds() {
        let even = |count: u64| (0..count).map(|at| crate::key::hash_of(&at.to_le_bytes()));
        let columns = [
            Vec::new(),
            vec![7],
            vec![0, u64::MAX],
            vec![u64::MAX; 100],
            Vec::from_iter(0..1000),
            Vec::from_iter(even(3000)),
            // Most of them at one end, and many equal ones.
            Vec::from_iter((0..64).map(|bit| 1 << bit).chain(even(10))),
            Vec::from_iter((0..64).map(|bit| u64::MAX - (1 << bit)).chain(even(10))),
            Vec::from_iter(even(1000).map(|one| one >> 56)),
        ];
        for mut column in columns {
            column.sort_unstable();
            let near =
                column.iter().flat_map(|one| [one.wrapping_sub(1), *one, one.wrapping_add(1)]);
            for number in near.chain([0, 1 << 40, u64::MAX]) {
                let expected = column.partition_point(|one| *one < number);
                assert_eq!(lower_bound(&column, number), expected, "{number} in {column:?}");
            }
        }
    }
}

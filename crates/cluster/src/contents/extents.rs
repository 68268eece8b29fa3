//! Bytes at places, with gaps between them: what was written into a chunk, and is not in storage.

use std::collections::BTreeMap;
use std::ops::Range;

/// Memory that a part takes beside its bytes, about.
const PART_BYTES: usize = 64;

/// Parts of a chunk, by their offsets. None touches another.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents {
    parts: BTreeMap<u64, Vec<u8>>,
    /// The bytes of all parts.
    bytes: usize,
}

impl Extents {
    /// Puts bytes at an offset, over what is there.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let before = self.parts.range(..=offset).next_back();
        let touched = before.filter(|(start, part)| *start + part.len() as u64 >= offset);
        let start = touched.map_or(offset, |(start, _)| *start);
        let mut part = self.take(start);
        let at = (offset - start) as usize;
        let end = at + bytes.len();
        if part.len() < end {
            part.resize(end, 0);
        }
        part[at..end].copy_from_slice(bytes);
        self.join_followers(start, &mut part);
        self.bytes += part.len();
        self.parts.insert(start, part);
    }

    fn take(&mut self, start: u64) -> Vec<u8> {
        let part = self.parts.remove(&start).unwrap_or_default();
        self.bytes -= part.len();
        part
    }

    /// Takes the parts that a new one touches into it. The bytes of the new one count.
    fn join_followers(&mut self, start: u64, part: &mut Vec<u8>) {
        while let Some((next, _)) = self.parts.range(start..=start + part.len() as u64).next() {
            let next = *next;
            let follower = self.take(next);
            let covered = (start + part.len() as u64 - next) as usize;
            part.extend_from_slice(follower.get(covered..).unwrap_or_default());
        }
    }

    /// Returns the parts, in order.
    pub(super) fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.parts.iter().map(|(start, part)| (*start, &part[..]))
    }

    /// Returns the bytes in a range: each part with its place in the range.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = (usize, &[u8])> {
        let first = self.parts.range(..=range.start).next_back().map_or(range.start, |(at, _)| *at);
        self.parts.range(first.min(range.end)..range.end).filter_map(move |(start, part)| {
            let end = start + part.len() as u64;
            let (from, to) = ((*start).max(range.start), end.min(range.end));
            let bytes = part.get((from - start) as usize..to.saturating_sub(*start) as usize)?;
            (!bytes.is_empty()).then_some(((from - range.start) as usize, bytes))
        })
    }

    /// Returns the end of the last part; 0 if there is none.
    pub(super) fn end(&self) -> u64 {
        self.parts.last_key_value().map_or(0, |(start, part)| start + part.len() as u64)
    }

    /// Returns whether all bytes before `end` are here.
    pub(super) fn cover(&self, end: u64) -> bool {
        end == 0 || self.parts.get(&0).is_some_and(|part| part.len() as u64 >= end)
    }

    /// Returns about how much memory they take.
    pub(super) fn cost(&self) -> usize {
        self.bytes + self.parts.len() * PART_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes at random, and compares all that can be asked with an array.
    #[test]
    fn parts_are_what_was_written() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let (mut extents, mut model) = (Extents::default(), vec![None; 200]);
            for value in 0..random(12) as u8 {
                let (start, length) = (random(150) as usize, random(50) as usize);
                extents.write(start as u64, &vec![value; length]);
                model[start..start + length].fill(Some(value));
            }
            let mut found = vec![None; 200];
            let mut last = None;
            for (start, part) in extents.parts() {
                assert!(last.is_none_or(|last| last < start), "parts touch each other");
                last = Some(start + part.len() as u64);
                for (at, byte) in (start as usize..).zip(part) {
                    found[at] = Some(*byte);
                }
            }
            assert_eq!(found, model);
            let end = model.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            assert_eq!(extents.end(), end as u64);
            let whole = model.iter().position(Option::is_none).unwrap_or(200);
            assert!(extents.cover(whole as u64) && !extents.cover(whole as u64 + 1));
            let from = random(200) as usize;
            let to = from + random(200 - from as u64) as usize;
            let mut part = vec![None; to - from];
            for (at, bytes) in extents.within(from as u64..to as u64) {
                part[at..at + bytes.len()]
                    .copy_from_slice(&Vec::from_iter(bytes.iter().map(|byte| Some(*byte))));
            }
            assert_eq!(part, model[from..to]);
        }
    }
}

//! Looking into a segment of a log, of any size, in little memory; `log.rs` has the bytes.
//! Recovery takes whole segments; what it takes for torn, this takes for torn, too.

use crate::batch::{BATCH_BYTES_MAX, Changes, Mutation};
use crate::error::{Error, Result};
use crate::key::NAME_MAX;
use crate::log::{END, FENCE, GROWN, HEAD, SHARED, WHOLE, crc_until_body, has_group};
use crate::record::VALUE_MAX;
use crate::storage::{ReadAt, Storage};
use bytes::Bytes;
use std::ops::Range;

/// Bytes that are read at once, unless a change is longer.
const READ_BYTES: u64 = 1 << 20;

/// Most bytes of a torn end: a group has half of it at most.
const TORN_BYTES_MAX: u64 = 2 * BATCH_BYTES_MAX as u64;

/// A change has fewer bytes.
const CHANGE_BYTES_MAX: u64 = (VALUE_MAX + 2 * NAME_MAX + 64) as u64;

/// Kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// It was created whole.
    Whole,
    /// It grew, or still does.
    Grown,
    /// It ends the log of an epoch.
    Fence,
    /// A crash left nothing that could be read.
    Torn,
}

/// Summary of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its kind.
    pub kind: SegmentKind,
    /// Its size.
    pub size_bytes: u64,
    /// Epoch of its log, or of the writer that made it, if it is a fence.
    pub epoch: u64,
    /// Random; the same in all segments of an epoch.
    pub nonce: u64,
    /// Whole groups of batches.
    pub groups: u64,
    /// Changes in them.
    pub changes: u64,
    /// The bytes at its end that are not a whole group: a crash tore them, or they are being
    /// written.
    pub torn_bytes: u64,
}

/// Reads the segment or fence `name` and gives `each` all changes of it in order, with the number
/// of their group. A group is checked before anything of it is given. With an `epoch`, a segment
/// of another one's log is an error. Takes some megabytes of memory, whatever the bytes are.
///
/// # Errors
///
/// Fails with the first error of `each`, with `Corrupt` if a group is damaged or the epoch is
/// another one, and as storage does.
pub fn read_segment<E: From<Error>>(
    storage: &dyn Storage,
    name: &str,
    epoch: Option<u64>,
    mut each: impl FnMut(u64, Mutation<'_>) -> Result<(), E>,
) -> Result<SegmentInfo, E> {
    let mut input = SegmentReader::open(storage, name)?;
    let mut info = input.head(epoch)?;
    let mut at = HEAD as u64;
    while matches!(info.kind, SegmentKind::Whole | SegmentKind::Grown) {
        let Some(body) = input.group(at, info.kind)? else {
            info.torn_bytes = input.torn_bytes(at)?;
            break;
        };
        at = body.end;
        input.changes(body, |change| {
            info.changes += 1;
            each(info.groups, change)
        })?;
        info.groups += 1;
    }
    Ok(info)
}

struct SegmentReader<'a> {
    name: &'a str,
    storage: &'a dyn Storage,
    file: Option<Box<dyn ReadAt>>,
    size_bytes: u64,
    /// Whether it grows on storage of many machines, with room in it.
    is_shared: bool,
    /// The bytes that were read last, and where they begin.
    bytes: Bytes,
    start: u64,
}

impl<'a> SegmentReader<'a> {
    fn open(storage: &'a dyn Storage, name: &'a str) -> Result<Self> {
        let size_bytes = storage.size(name)?;
        let file = storage.open(name)?;
        let (bytes, is_shared) = (Bytes::new(), false);
        Ok(SegmentReader { name, storage, file, size_bytes, is_shared, bytes, start: 0 })
    }

    fn corrupt(&self, what: &str, at: u64) -> Error {
        Error::corrupt(self.name, format!("{what} (at byte {at})"))
    }

    /// Returns the bytes of a range within the file.
    fn read(&mut self, range: Range<u64>) -> Result<Bytes> {
        if range.start < self.start || range.end > self.start + self.bytes.len() as u64 {
            let end = range.end.max(self.size_bytes.min(range.start + READ_BYTES));
            let mut bytes = Vec::new();
            self.bytes = match &self.file {
                Some(file) => file.read_at(range.start..end, &mut bytes).map(|()| bytes.into())?,
                None => self.storage.read_range(self.name, range.start..end)?,
            };
            self.start = range.start;
        }
        let place = (range.start - self.start) as usize..(range.end - self.start) as usize;
        match place.end <= self.bytes.len() {
            true => Ok(self.bytes.slice(place)),
            false => Err(self.corrupt("ends too early", range.start)),
        }
    }

    /// Gives `each` the bytes of a range, some at a time.
    fn pieces(&mut self, range: Range<u64>, mut each: impl FnMut(&[u8])) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + READ_BYTES);
            each(&self.read(at..end)?);
            at = end;
        }
        Ok(())
    }

    /// Returns whether a whole group begins at `at` or behind it.
    fn has_group(&mut self, at: u64) -> Result<bool> {
        let length = self.size_bytes - at;
        if length > TORN_BYTES_MAX {
            return Err(self.corrupt(&format!("{length} bytes that are not a whole group"), at));
        }
        Ok(has_group(&self.read(at..self.size_bytes)?, at))
    }

    /// Returns the number of bytes from `at` on, unless all are zeros: room that was not used.
    fn torn_bytes(&mut self, at: u64) -> Result<u64> {
        let rest = self.read(at..self.size_bytes)?;
        let is_room = rest.iter().all(|byte| *byte == 0);
        Ok(if self.is_shared && is_room { 0 } else { rest.len() as u64 })
    }

    fn head(&mut self, epoch: Option<u64>) -> Result<SegmentInfo> {
        let mut info = SegmentInfo {
            kind: SegmentKind::Torn,
            size_bytes: self.size_bytes,
            epoch: epoch.unwrap_or(0),
            nonce: 0,
            groups: 0,
            changes: 0,
            torn_bytes: self.size_bytes,
        };
        if self.size_bytes < HEAD as u64 {
            return Ok(info);
        }
        let head = self.read(0..HEAD as u64)?;
        self.is_shared = head.starts_with(SHARED);
        let number = |at| head.get(at..).and_then(|rest| rest.first_chunk().copied());
        let number = |at| number(at).map_or(0, u64::from_le_bytes);
        let kinds = [
            (WHOLE, SegmentKind::Whole),
            (END, SegmentKind::Whole),
            (GROWN, SegmentKind::Grown),
            (SHARED, SegmentKind::Grown),
            (FENCE, SegmentKind::Fence),
        ];
        let kind = kinds.into_iter().find(|(magic, _)| head.starts_with(*magic));
        let is_of = |kind| kind == SegmentKind::Fence || epoch.is_none_or(|own| own == number(8));
        match kind.filter(|(_, kind)| is_of(*kind)) {
            Some((_, kind)) => {
                (info.kind, info.epoch, info.nonce, info.torn_bytes) =
                    (kind, number(8), number(16), 0);
                let is_longer = kind == SegmentKind::Fence && self.size_bytes > HEAD as u64;
                if is_longer {
                    return Err(self.corrupt("a fence with something behind it", HEAD as u64));
                }
            }
            None => {
                let is_torn = head.iter().all(|byte| *byte == 0) && !self.has_group(HEAD as u64)?;
                if !is_torn {
                    return Err(self.corrupt("not a segment of this log", 0));
                }
            }
        }
        Ok(info)
    }

    /// Returns where the body of the group at `at` is; nothing at the end, torn or not.
    fn group(&mut self, at: u64, kind: SegmentKind) -> Result<Option<Range<u64>>> {
        let has_grown = kind == SegmentKind::Grown;
        if at == self.size_bytes {
            return Ok(None);
        }
        let mut body = None;
        if let Some(start) = Some(at + 8).filter(|start| *start <= self.size_bytes) {
            let head = self.read(at..start)?;
            let number = |at: usize| {
                let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
                bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
            };
            let end = start + u64::from(number(0));
            body = Some((start..end, number(4))).filter(|_| end <= self.size_bytes);
        }
        let what = match &body {
            Some(_) => "the checksum of a group is wrong",
            None => "ends in the middle of a group",
        };
        if let Some((body, crc)) = body {
            let mut hasher = crc_until_body(at);
            self.pieces(body.clone(), |bytes| hasher.update(bytes))?;
            if !body.is_empty() && hasher.finalize() == crc {
                return Ok(Some(body));
            }
        }
        // A crash tears the last group only.
        match has_grown && !self.has_group(at + 1)? {
            true => Ok(None),
            false => Err(self.corrupt(what, at)),
        }
    }

    /// Gives `each` the changes of a group.
    fn changes<E: From<Error>>(
        &mut self,
        body: Range<u64>,
        mut each: impl FnMut(Mutation<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut at, mut wanted_bytes) = (body.start, READ_BYTES);
        while at < body.end {
            let bytes = self.read(at..body.end.min(at + wanted_bytes))?;
            let mut rest = &bytes[..];
            while let Some((change, after)) = Changes::split_first(rest) {
                each(change)?;
                rest = after;
            }
            let taken = (bytes.len() - rest.len()) as u64;
            let is_all = at + bytes.len() as u64 == body.end || wanted_bytes == CHANGE_BYTES_MAX;
            if taken == 0 && is_all {
                return Err(self.corrupt("not a batch of changes", at).into());
            }
            wanted_bytes = if taken == 0 { CHANGE_BYTES_MAX } else { READ_BYTES };
            at += taken;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::key::Key;
    use crate::storage::MemoryStorage;

    /// A segment with groups of batches of one change each, whose values have these lengths.
    fn segment(magic: &[u8; 8], lengths: &[usize]) -> Vec<u8> {
        let mut bytes = [&magic[..], &7u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
        for length in lengths {
            let mut batch = Batch::new();
            batch.put(Key::named(1, b"name").as_ref(), &vec![b'v'; *length]).unwrap();
            let crc = crate::log::crc(bytes.len() as u64, batch.bytes());
            bytes.extend((batch.bytes().len() as u32).to_le_bytes());
            bytes.extend(crc.to_le_bytes());
            bytes.extend(batch.bytes());
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Result<(SegmentInfo, Vec<usize>)> {
        let storage = MemoryStorage::default();
        storage.create("s", bytes.to_vec().into())?;
        let mut lengths = Vec::new();
        let info = read_segment(&storage, "s", Some(7), |group, change| {
            assert_eq!(group, lengths.len() as u64);
            let Mutation::Record(record) = change else { panic!("a range") };
            lengths.push(record.value.len());
            Ok::<(), Error>(())
        })?;
        Ok((info, lengths))
    }

    #[test]
    fn changes_of_any_length_come_in_order() {
        let lengths = [0, 5, READ_BYTES as usize - 60, READ_BYTES as usize, 3, VALUE_MAX, 1];
        for magic in [WHOLE, GROWN] {
            let bytes = segment(magic, &lengths);
            let (info, read) = read(&bytes).unwrap();
            assert_eq!(read, lengths);
            assert_eq!((info.groups, info.changes, info.torn_bytes), (7, 7, 0));
            assert_eq!((info.epoch, info.nonce), (7, 1));
        }
    }

    #[test]
    fn it_finds_torn_what_recovery_finds_torn() {
        let bytes = segment(GROWN, &[3, 4]);
        for length in 0..=bytes.len() {
            let (info, lengths) = read(&bytes[..length]).unwrap();
            let ends = [HEAD, HEAD + 38, HEAD + 77];
            let expected = ends[1..].iter().filter(|end| length >= **end).count();
            assert_eq!(lengths.len(), expected, "of {length} bytes");
            assert_eq!(info.torn_bytes > 0, length > 0 && !ends.contains(&length), "{length}");
        }
        let (info, lengths) = read(&[&bytes[..], &[0; 100]].concat()).unwrap();
        assert_eq!((info.torn_bytes, lengths.len()), (100, 2));
        let whole = segment(WHOLE, &[3, 4]);
        assert!((HEAD + 1..HEAD + 38).all(|length| read(&whole[..length]).is_err()));
    }

    #[test]
    fn no_byte_of_a_segment_makes_it_panic() {
        for magic in [WHOLE, GROWN, FENCE] {
            let bytes = segment(magic, &[3, 40]);
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 1 << bit;
                    let _ = read(&damaged);
                }
            }
        }
    }
}

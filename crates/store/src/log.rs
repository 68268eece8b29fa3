//! The log: records that a writer took since the last flush.
//!
//! ```text
//! segment   "CANOPYL1" if it was created whole, "CANOPYA1" if it grew;
//!           epoch u64, nonce u64, groups
//! shared    "CANOPYS1", epoch u64, nonce u64, groups, zeros: it grows on storage of many machines
//!           (`log/shared.rs`)
//! end       "CANOPYE1", epoch u64, nonce u64, groups: those of a shared segment that count
//! fence     "CANOPYF1", epoch u64 (of who made it), nonce u64
//! group     length u32, CRC-32 u32 of the place of the group in the segment, u64, and of the body;
//!           body: batches (`batch.rs`)
//! ```
//!
//! All numbers are little endian. A group has whole batches, so a batch is read whole or not at
//! all, and 64 MiB at most. A crash may tear the last group of a segment that grew: groups are
//! added one at a time, each after the one before was synced. Any part of it may be missing, or be
//! zeros, and of the first one the head, too; but no whole group is anywhere behind its beginning.
//! Anything else that is wrong is damage. The place is in the checksum so that nobody has a value
//! be taken for a group.

mod shared;

use self::shared::SharedSegment;
use crate::batch::Changes;
use crate::environment::Environment;
use crate::error::{Error, Fenced, Invalid, Result};
use crate::manifest::LogStart;
use crate::names::{TableId, segment_of};
use crate::salvage::read_lenient;
use crate::storage::{Append, Created};
use bytes::Bytes;
use std::time::Duration;

pub(crate) const WHOLE: &[u8; 8] = b"CANOPYL1";
pub(crate) const GROWN: &[u8; 8] = b"CANOPYA1";
pub(crate) const SHARED: &[u8; 8] = b"CANOPYS1";
pub(crate) const END: &[u8; 8] = b"CANOPYE1";
pub(crate) const FENCE: &[u8; 8] = b"CANOPYF1";
pub(crate) const HEAD: usize = 24;

/// A segment that grows is ended when it has so many bytes.
const SEGMENT_BYTES: u64 = 64 << 20;

/// So much room is kept free in a segment that grows, for changes that free space.
const SPARE_BYTES: u64 = 4 << 20;

/// Less of that room is not worth an attempt of its own.
const SPARE_BYTES_MIN: u64 = 64 << 10;

/// The most room that is kept for a flush, and for a merge, on storage of many machines.
const KEPT_BYTES_MAX: u64 = 256 << 20;

/// A write whose outcome is not known is tried so many times.
const RETRIES: u32 = 5;

/// The end of an epoch's log, where its writer adds.
pub(crate) struct LogWriter {
    environment: Environment,
    table: TableId,
    epoch: u64,
    nonce: u64,
    /// The segment that is written next, or now.
    segment: u64,
    /// The segment that grows, and its bytes.
    file: Option<(Box<dyn Append>, u64)>,
    /// The segment that grows on storage of many machines, and room of the next one.
    shared: Option<SharedSegment>,
    room: u64,
    /// Whether the next segment may be there already, as its creation failed.
    was_tried: bool,
    /// Whether what was added last took of the spare room.
    is_short: bool,
    /// Room that is kept for a merge of the table.
    merge_bytes: u64,
    /// The first segment of which something is not in SSTables.
    unflushed_segment: u64,
}

/// Returns the checksum of a group that begins at `place` in its segment.
pub(crate) fn crc(place: u64, body: &[u8]) -> u32 {
    let mut hasher = crc_until_body(place);
    hasher.update(body);
    hasher.finalize()
}

/// Returns what makes that checksum once it has seen the body.
pub(crate) fn crc_until_body(place: u64) -> crc32fast::Hasher {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place.to_le_bytes());
    hasher
}

/// Looking for a group ends after about so many bytes were looked at, some of them often: values
/// can be made to look like groups everywhere.
const SEARCH_BYTES_MAX: usize = 4 << 30;

/// Returns whether a whole group begins anywhere in `bytes`, which are at `place` in a segment.
pub(crate) fn has_group(bytes: &[u8], place: u64) -> bool {
    next_group(bytes, place).is_some()
}

/// Returns where the first whole group begins in `bytes`, which are at `place` in a segment.
fn next_group(bytes: &[u8], place: u64) -> Option<usize> {
    let mut left = SEARCH_BYTES_MAX;
    for at in 0..bytes.len() {
        let Some((group, _)) = Group::split(&bytes[at..], place + at as u64) else { continue };
        // Looking at the batches is cheaper than the checksum, and nearly never succeeds.
        let changes = Changes::new(group.body).take_while(Option::is_some).count();
        let has_batches = Changes::new(group.body).nth(changes).is_none();
        let looked_at = 64 * changes + if has_batches { group.body.len() } else { 0 };
        if has_batches && group.is_whole() {
            return Some(at);
        }
        left = left.saturating_sub(looked_at);
        if left == 0 {
            break;
        }
    }
    None
}

fn head(magic: &[u8; 8], epoch: u64, nonce: u64) -> Vec<u8> {
    [&magic[..], &epoch.to_le_bytes(), &nonce.to_le_bytes()].concat()
}

impl LogWriter {
    /// Begins the log of an epoch.
    pub(crate) fn new(environment: Environment, table: TableId, epoch: u64) -> Self {
        let nonce = environment.random.next_u64();
        LogWriter {
            environment,
            table,
            epoch,
            nonce,
            segment: 0,
            file: None,
            shared: None,
            room: 0,
            was_tried: false,
            is_short: false,
            merge_bytes: 0,
            unflushed_segment: 0,
        }
    }

    /// Notes the size of the table, which a merge of all of it needs, and the first segment that is not
    /// flushed.
    pub(crate) fn note_flushed(&mut self, table_bytes: u64, segment: u64) {
        self.merge_bytes = table_bytes.min(KEPT_BYTES_MAX);
        self.unflushed_segment = segment;
    }

    /// Adds a group of batches. It outlasts a crash once this returns. If it is deferred, the same
    /// group has to be added again before any other; after another error nothing more may be added.
    pub(crate) fn add(&mut self, batches: &[u8]) -> Result<()> {
        let length = u32::try_from(batches.len()).map_err(|_| Invalid::LargeGroup)?;
        if self.environment.storage.has_growing() {
            return self.add_shared(length, batches);
        }
        let group_head = |place| Group::head(length, place, batches);
        let wanted = HEAD as u64 + 8 + u64::from(length);
        self.is_short = self.make_room(wanted + SPARE_BYTES).is_err();
        if self.is_short {
            self.make_some_room(wanted)?;
        }
        let Some((file, bytes)) = &mut self.file else {
            return self.create(&group_head(HEAD as u64), batches);
        };
        if *bytes == 0 {
            file.append(&head(GROWN, self.epoch, self.nonce))?;
            *bytes = HEAD as u64;
        }
        let group_head = group_head(*bytes);
        file.append(&group_head)?;
        file.append(batches)?;
        file.sync()?;
        *bytes += (group_head.len() + batches.len()) as u64;
        if *bytes >= SEGMENT_BYTES {
            self.end_segment();
        }
        Ok(())
    }

    /// Makes room in the segment that grows, and begins one if there is none; does nothing where
    /// segments do not grow. Nothing is added.
    fn make_room(&mut self, bytes: u64) -> Result<()> {
        let deferred = |error: Error| match error.is_shortage() {
            true => error.deferred(),
            false => error,
        };
        if self.file.is_none() {
            let name = self.table.segment(self.epoch, self.segment);
            let file = self.environment.storage.append_to(&name).map_err(deferred)?;
            self.file = file.map(|file| (file, 0));
        }
        match &mut self.file {
            Some((file, _)) => file.reserve(bytes).map_err(deferred),
            None => Ok(()),
        }
    }

    /// Makes room for a group where there is too little for all that is kept free. A new segment
    /// gets as much of that as there is.
    fn make_some_room(&mut self, wanted: u64) -> Result<()> {
        if self.file.as_ref().is_some_and(|(_, bytes)| *bytes == 0) {
            let mut spare = SPARE_BYTES / 2;
            while spare >= SPARE_BYTES_MIN && self.make_room(wanted + spare).is_err() {
                spare /= 2;
            }
        }
        self.make_room(wanted)
    }

    /// Returns the number of segments that it has begun.
    pub(crate) fn segments(&self) -> u64 {
        self.segment + u64::from(self.file.is_some() || self.shared.is_some())
    }

    /// Returns whether the group that was added last took of the room that is kept for changes that
    /// free space.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Makes room for more than changes that free space.
    pub(crate) fn make_spare_room(&mut self) -> Result<()> {
        match self.environment.storage.has_growing() {
            true => self.check_reserve()?,
            false => self.make_room(HEAD as u64 + SPARE_BYTES)?,
        }
        self.is_short = false;
        Ok(())
    }

    /// Makes a group an object of its own.
    fn create(&mut self, group_head: &[u8], batches: &[u8]) -> Result<()> {
        let name = self.table.segment(self.epoch, self.segment);
        let own = head(WHOLE, self.epoch, self.nonce);
        let bytes = Bytes::from([&own, group_head, batches].concat());
        let created = create_or_confirm(&self.environment, &name, &bytes, self.was_tried);
        self.was_tried = created.is_err();
        match created.map_err(Error::deferred)? {
            Created::Now => {
                self.segment += 1;
                Ok(())
            }
            Created::ThereWasOne => Err(Fenced::LogTaken(self.table).into()),
        }
    }

    /// Ends the segment that grows, if it has anything, and returns the number of the next one.
    pub(crate) fn end_segment(&mut self) -> u64 {
        if self.shared.take_if(|segment| segment.has_groups()).is_some() {
            self.segment += 1;
        }
        if let Some((ended, _)) = self.file.take_if(|(_, bytes)| *bytes > 0) {
            self.segment += 1;
            self.begin_segment(ended);
        }
        self.segment
    }

    /// Begins a segment with as much spare room as the one that has ended kept: on a full disk
    /// others would take that at once. What fails here is tried again with the next group.
    fn begin_segment(&mut self, ended: Box<dyn Append>) {
        if self.make_room(HEAD as u64 + SPARE_BYTES).is_err() {
            drop(ended);
            let _ = self.make_some_room(HEAD as u64);
        }
    }
}

/// Returns how long to wait after an attempt that failed, the first of which is 1: a server that is
/// busy for seconds should not end a writer.
pub(crate) fn retry_pause(attempt: u32) -> Duration {
    Duration::from_millis(25) * 4u32.pow(attempt.min(5))
}

/// Creates an object, and reads it back where storage cannot say whether it was created.
/// `was_tried`: an earlier attempt may have created it.
pub(crate) fn create_or_confirm(
    environment: &Environment,
    name: &str,
    bytes: &Bytes,
    was_tried: bool,
) -> Result<Created> {
    let mut tries = 0;
    loop {
        let failed = match environment.storage.create(name, bytes.clone()) {
            Ok(Created::Now) => return Ok(Created::Now),
            Ok(Created::ThereWasOne) if tries == 0 && !was_tried => {
                return Ok(Created::ThereWasOne);
            }
            Ok(Created::ThereWasOne) => None,
            // It was refused before it was tried.
            Err(Error::Invalid(why)) => return Err(why.into()),
            Err(error) => Some(error),
        };
        tries += 1;
        match (environment.storage.read(name), failed) {
            (Ok(found), _) if found == *bytes => return Ok(Created::Now),
            (Ok(_), _) => return Ok(Created::ThereWasOne),
            // A full disk stays full for longer, and the caller tries again.
            (Err(_), Some(failed)) if failed.is_shortage() => return Err(failed),
            (Err(error), failed) if tries >= RETRIES => return Err(failed.unwrap_or(error)),
            (Err(_), _) => environment.clock.sleep(retry_pause(tries)),
        }
    }
}

/// A segment of which a part is lost.
pub(crate) struct Damaged<'a> {
    pub(crate) number: u64,
    /// All that can be read of it; nothing if it is missing.
    pub(crate) bytes: &'a Bytes,
    pub(crate) what: String,
    pub(crate) lost_bytes: u64,
}

/// Learns of damaged segments, which are an error where nobody wants to.
pub(crate) type Note<'a> = &'a mut dyn FnMut(Damaged<'_>) -> Result<()>;

/// Reads what was written to an older epoch's log, from a segment on. A reader with an epoch of its
/// own ends that log; one without changes nothing, and nobody may write meanwhile. `replayed` gets
/// the bytes of one group of batches after the other. With a `note`, damaged parts are skipped.
pub(crate) fn replay(
    environment: &Environment,
    table: TableId,
    start: LogStart,
    own_epoch: Option<u64>,
    mut note: Option<Note<'_>>,
    mut replayed: impl FnMut(Bytes) -> Result<()>,
) -> Result<()> {
    let mut torn = None;
    let LogStart { epoch, segment: mut number } = start;
    loop {
        let name = table.segment(epoch, number);
        let read = match note {
            Some(_) => {
                environment.storage.size(&name).and_then(|_| read_lenient(environment, &name))
            }
            None => environment.storage.read(&name),
        };
        let mut bytes = match read {
            Err(error) if error.is_not_found() => {
                if let Some(note) = &mut note
                    && let Some(next) = later_segment(environment, table, epoch, number)?
                {
                    note(Damaged {
                        number,
                        bytes: &Bytes::new(),
                        what: "is missing, and there are later ones".to_owned(),
                        lost_bytes: 0,
                    })?;
                    number = next;
                    continue;
                }
                let Some(own_epoch) = own_epoch else { return Ok(()) };
                let fence = Bytes::from(head(FENCE, own_epoch, environment.random.next_u64()));
                match create_or_confirm(environment, &name, &fence, false)? {
                    Created::Now => return Ok(()),
                    Created::ThereWasOne => environment.storage.read(&name)?,
                }
            }
            segment => segment?,
        };
        let mut name = name;
        if bytes.starts_with(SHARED) {
            (name, bytes) =
                shared::counted(environment, table, (epoch, number), own_epoch, note.is_some())?;
        } else if own_epoch.is_some() {
            // Data that its writer could not sync any more would be lost in the next crash, but not
            // the data that comes after it.
            environment.storage.sync(&name)?;
        }
        let parsed = match (Segment::parse(&name, &bytes, epoch), &mut note) {
            (Err(Error::Corrupt { what, .. }), Some(note)) => {
                let (segment, lost_bytes) = Segment::salvage(&bytes);
                note(Damaged { number, bytes: &bytes, what, lost_bytes })?;
                Some(segment)
            }
            (parsed, _) => parsed?,
        };
        let Some(segment) = parsed else {
            // A fence: an opening created it and got no further.
            return Ok(());
        };
        if let Some((name, number)) = torn {
            let what = "ends in the middle of a group, and is not the last".to_owned();
            match &mut note {
                Some(note) => {
                    note(Damaged { number, bytes: &Bytes::new(), what, lost_bytes: 0 })?;
                }
                None => return Err(Error::corrupt(name, what)),
            }
        }
        torn = segment.is_torn.then_some((name, number));
        segment.groups.iter().try_for_each(|group| replayed(bytes.slice_ref(group)))?;
        number += 1;
    }
}

/// Returns the number of the next segment of an epoch behind one that is missing.
fn later_segment(
    environment: &Environment,
    table: TableId,
    epoch: u64,
    number: u64,
) -> Result<Option<u64>> {
    let name = table.segment(epoch, number);
    let prefix = name.rsplit_once('/').map_or(&*name, |(directory, _)| directory);
    let listed = environment.storage.list(&format!("{prefix}/"), &name)?;
    Ok(listed.first().and_then(|one| segment_of(&one.name)).map(|(_, number)| number))
}

/// A segment that was read.
#[derive(Debug, PartialEq, Eq)]
struct Segment<'a> {
    /// The bodies of its groups.
    groups: Vec<&'a [u8]>,
    /// Whether a crash tore what comes after them.
    is_torn: bool,
}

impl<'a> Segment<'a> {
    /// Reads the object `name`; a fence is none.
    fn parse(name: &str, bytes: &'a [u8], epoch: u64) -> Result<Option<Self>> {
        let is_shared = bytes.starts_with(SHARED);
        let Some((head, mut rest)) = bytes.split_at_checked(HEAD) else {
            return Ok(Some(Segment { groups: Vec::new(), is_torn: true }));
        };
        let has_grown = head[..8] == *GROWN || is_shared;
        if head[..8] == *FENCE {
            return Ok(None);
        }
        if !(has_grown || [WHOLE, END].iter().any(|magic| head[..8] == magic[..]))
            || head[8..16] != epoch.to_le_bytes()
        {
            return match head.iter().all(|byte| *byte == 0) && !has_group(rest, HEAD as u64) {
                true => Ok(Some(Segment { groups: Vec::new(), is_torn: true })),
                false => Err(Error::corrupt(name, "not a segment of this log")),
            };
        }
        let mut groups = Vec::new();
        let place = |rest: &[u8]| (bytes.len() - rest.len()) as u64;
        while !rest.is_empty() {
            match Group::split(rest, place(rest)) {
                Some((group, after)) if group.is_whole() => {
                    groups.push(group.body);
                    rest = after;
                }
                // Room that was not used.
                _ if is_shared && rest.iter().all(|byte| *byte == 0) => rest = &[],
                _ if has_grown && !has_group(&rest[1..], place(rest) + 1) => break,
                Some(_) => return Err(Error::corrupt(name, "the checksum of a group is wrong")),
                None => return Err(Error::corrupt(name, "ends in the middle of a group")),
            }
        }
        Ok(Some(Segment { groups, is_torn: !rest.is_empty() }))
    }
}

impl<'a> Segment<'a> {
    /// Returns the length of its groups with their heads, in bytes.
    fn length(&self) -> usize {
        self.groups.iter().map(|body| 8 + body.len()).sum()
    }

    /// Returns all groups of a damaged segment that are whole, and how many bytes are lost.
    fn salvage(bytes: &'a [u8]) -> (Self, u64) {
        let (mut groups, mut lost_bytes, mut at) = (Vec::new(), 0, HEAD.min(bytes.len()));
        while at < bytes.len() {
            let rest = &bytes[at..];
            match Group::split(rest, at as u64).filter(|(group, _)| group.is_whole()) {
                Some((group, after)) => {
                    groups.push(group.body);
                    at = bytes.len() - after.len();
                }
                None => {
                    let next = next_group(&rest[1..], at as u64 + 1);
                    let skipped = next.map_or(rest.len(), |next| next + 1);
                    // Room that was made and not used is zeros.
                    let skipped_bytes = &rest[..skipped];
                    if skipped_bytes.iter().any(|byte| *byte != 0) {
                        lost_bytes += skipped as u64;
                    }
                    at += skipped;
                }
            }
        }
        (Segment { groups, is_torn: false }, lost_bytes)
    }
}

struct Group<'a> {
    body: &'a [u8],
    place: u64,
    crc: [u8; 4],
}

impl<'a> Group<'a> {
    /// Returns the head of a group of so many bytes at `place` in its segment.
    fn head(length: u32, place: u64, body: &[u8]) -> Vec<u8> {
        [length.to_le_bytes(), crc(place, body).to_le_bytes()].concat()
    }

    /// Returns the group that `bytes`, which are at `place` in a segment, begin with, whole or not,
    /// and what follows it, or nothing if its end is missing.
    fn split(bytes: &'a [u8], place: u64) -> Option<(Self, &'a [u8])> {
        let (length, bytes) = bytes.split_first_chunk::<4>()?;
        let (crc, bytes) = bytes.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let (body, rest) = bytes.split_at_checked(length)?;
        Some((Group { body, place, crc: *crc }, rest))
    }

    fn is_whole(&self) -> bool {
        !self.body.is_empty() && crc(self.place, self.body).to_le_bytes() == self.crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::key::Key;

    /// Returns a batch of 31 bytes and those of a value.
    fn batch(value: &[u8]) -> Vec<u8> {
        let mut batch = Batch::new();
        batch.put(Key::named(1, b"name").as_ref(), value).unwrap();
        batch.bytes()[..].to_vec()
    }

    fn segment(magic: &[u8; 8], bodies: &[&[u8]]) -> Vec<u8> {
        let mut bytes = head(magic, 7, 1);
        for body in bodies {
            let crc = crc(bytes.len() as u64, body);
            bytes.extend((body.len() as u32).to_le_bytes());
            bytes.extend(crc.to_le_bytes());
            bytes.extend(*body);
        }
        bytes
    }

    #[test]
    fn a_torn_segment_that_grew_has_its_whole_groups() {
        let (one, two) = (batch(b"one"), batch(b"two"));
        let whole = segment(GROWN, &[&one, &two]);
        for length in 0..=whole.len() {
            let segment = Segment::parse("s", &whole[..length], 7).unwrap().unwrap();
            let ends = [HEAD, HEAD + 8 + one.len(), whole.len()];
            let expected = ends[1..].iter().filter(|end| length >= **end).count();
            assert_eq!(segment.groups.len(), expected, "of {length} bytes");
            assert_eq!(segment.is_torn, !ends.contains(&length), "of {length} bytes");
        }
    }

    #[test]
    fn a_segment_that_was_created_whole_is_never_torn() {
        let whole = segment(WHOLE, &[&batch(b"one"), &batch(b"two")]);
        let refused =
            (HEAD..whole.len()).filter(|end| Segment::parse("s", &whole[..*end], 7).is_err());
        assert_eq!(refused.count(), whole.len() - HEAD - 2, "all but the whole groups");
    }

    #[test]
    fn zeros_that_a_file_grew_by_are_no_group() {
        let one = batch(b"one");
        let bytes = [segment(GROWN, &[&one]), vec![0; 100]].concat();
        let segment = Segment::parse("s", &bytes, 7).unwrap().unwrap();
        assert_eq!(segment, Segment { groups: vec![&one], is_torn: true });
    }

    #[test]
    fn a_group_that_was_written_in_parts_is_torn() {
        let (one, long) = (batch(b"one"), batch(&[7; 400]));
        let whole = segment(GROWN, &[&one, &long]);
        // The end of a group may be written before its beginning, as blocks are.
        for start in HEAD + 8 + one.len()..whole.len() {
            for end in start + 1..whole.len() {
                let mut bytes = whole.clone();
                bytes[start..end].fill(0);
                if bytes == whole {
                    continue;
                }
                let segment = Segment::parse("s", &bytes, 7).unwrap().unwrap();
                assert_eq!(segment, Segment { groups: vec![&one], is_torn: true });
            }
        }
        let mut bytes = self::segment(GROWN, &[&long]);
        bytes[..HEAD + 8].fill(0);
        let segment = Segment::parse("s", &bytes, 7).unwrap().unwrap();
        assert_eq!(segment, Segment { groups: Vec::new(), is_torn: true });
        bytes = whole;
        bytes[..HEAD].fill(0);
        assert!(Segment::parse("s", &bytes, 7).is_err(), "a group was whole after this head");
    }

    #[test]
    fn damage_before_a_whole_group_is_no_tear() {
        let bodies = [batch(b"one"), batch(b"two"), batch(b"three")];
        let bodies = bodies.each_ref().map(|body| &body[..]);
        let (group, whole) = (HEAD + 8 + bodies[0].len(), segment(GROWN, &bodies));
        // Flip each bit of the second group, including its length, which may become less or more.
        for bit in group * 8..(group + 8 + bodies[1].len()) * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Segment::parse("s", &bytes, 7).is_err(), "bit {bit}");
        }
        let mut bytes = whole;
        bytes[HEAD + 20..group + 20].fill(0);
        assert!(Segment::parse("s", &bytes, 7).is_err(), "a sector");
    }

    #[test]
    fn a_value_is_not_taken_for_a_group() {
        let inner = segment(GROWN, &[&batch(b"inner")]);
        let long = batch(&[&inner[HEAD..], &[7; 100]].concat());
        let mut bytes = segment(GROWN, &[&batch(b"one"), &long]);
        let last = bytes.len() - 1;
        bytes[last] = 0;
        assert!(Segment::parse("s", &bytes, 7).unwrap().unwrap().is_torn);
    }

    #[test]
    fn the_segment_of_another_log_is_refused() {
        assert!(Segment::parse("s", &segment(WHOLE, &[&batch(b"one")]), 8).is_err());
        assert!(Segment::parse("s", &[1; 100], 7).is_err());
        assert_eq!(Segment::parse("s", &head(FENCE, 9, 1), 7).unwrap(), None);
    }
}

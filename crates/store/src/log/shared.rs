//! Segments that grow on storage of many machines, where nothing locks an old writer out.
//!
//! A writer creates segment *n* with room for changes, and adds groups. A group is acknowledged once
//! it is synced and, *after that*, the writer finds no segment *n + 1*. When *n* is full, the writer
//! creates *n + 1* and never adds to *n* again. After an error of an addition, the log gets no more.
//!
//! An opener that finds *n* as the last segment creates a fence as *n + 1*, reads *n* *after that*,
//! and creates the *end* of *n*: an object of its own with all whole groups of *n*. An end that is
//! there already counts instead. Only the end is replayed, now and by any later opener.
//!
//! - No acknowledged group is lost. Its writer found no *n + 1* after its sync, so the sync was
//!   before the fence was created, and *n* was read later.
//! - All openers replay the same groups. A group that the old writer's machine stores late is in no
//!   end that was created before, and the end can be created once. An end does not depend on what the
//!   server has of *n* later, such as data that nobody synced.
//! - A fence is never removed, so a writer that wakes up late finds it. An end is needed as long as
//!   the log of its epoch is, and is collected with it.
//! - A segment whose successor is another segment is complete: its writer had synced all of it
//!   before. It is read after the successor was found.
//!
//! Storage must promise what `create` needs (one winner, and a missing name is missing), and that a
//! synced byte is read by every later read of another machine. `canopy store probe` tries both.

use super::{
    END, FENCE, Group, HEAD, KEPT_BYTES_MAX, LogWriter, RETRIES, SHARED, Segment,
    create_or_confirm, head, retry_pause,
};
use crate::environment::Environment;
use crate::error::{Error, Fenced, Result};
use crate::names::TableId;
use crate::salvage::read_lenient;
use crate::storage::{Append, Created, Growing, Reserve};
use bytes::Bytes;

/// Room of the first segment of an epoch. Each has twice that of the one before, up to the most: few
/// changes take little space.
const ROOM_MIN: u64 = 64 << 10;
const ROOM_MAX: u64 = 1 << 20;

/// A segment that grows, as its writer has it.
pub(super) struct SharedSegment {
    file: Box<dyn Append>,
    /// Bytes of its head and its groups.
    bytes: u64,
    room: u64,
    /// Name of the segment that comes after it.
    next: String,
}

impl SharedSegment {
    /// Returns whether it has a group.
    pub(super) fn has_groups(&self) -> bool {
        self.bytes > HEAD as u64
    }
}

impl LogWriter {
    /// Adds a group, as `add` does.
    pub(super) fn add_shared(&mut self, length: u32, batches: &[u8]) -> Result<()> {
        let wanted = 8 + u64::from(length);
        if self.shared.as_ref().is_some_and(|one| one.room - one.bytes < wanted) {
            self.end_segment();
        }
        let mut is_due = self.shared.is_none();
        let mut segment = match self.shared.take() {
            Some(segment) => segment,
            None => self.begin_shared(wanted)?,
        };
        let middle = segment.room / 2;
        is_due |= segment.bytes <= middle && segment.bytes + wanted > middle;
        let group = [&Group::head(length, segment.bytes, batches)[..], batches].concat();
        segment.file.append(&group)?;
        segment.file.sync()?;
        segment.bytes += group.len() as u64;
        let checked = self.check_is_missing(&segment.next);
        self.shared = Some(segment);
        // Twice in a segment: the server of a file system is asked.
        if is_due {
            self.is_short = self.check_reserve().is_err();
        }
        checked
    }

    /// Returns an error unless a segment more leaves storage its reserve. It also leaves room to flush this
    /// log and to merge the table: removed records leave storage only then.
    pub(super) fn check_reserve(&self) -> Result<()> {
        let next = self.table.segment(self.epoch, self.segment + 1);
        let room = self.room.clamp(ROOM_MIN, ROOM_MAX);
        let unflushed = self.segments().saturating_sub(self.unflushed_segment);
        let flush = unflushed.saturating_mul(ROOM_MAX).min(KEPT_BYTES_MAX);
        self.environment.storage.check_reserve(
            &next,
            room + flush + self.merge_bytes,
            Reserve::Whole,
        )
    }

    /// Returns an error unless the segment has room for some changes, or a small one more leaves flushes
    /// their room.
    pub(crate) fn check_room_for_flushes(&self) -> Result<()> {
        if self.shared.as_ref().is_some_and(|one| one.room - one.bytes >= ROOM_MIN / 4) {
            return Ok(());
        }
        self.check_small_segment()
    }

    /// Returns an error unless a small segment more leaves flushes their room.
    pub(crate) fn check_small_segment(&self) -> Result<()> {
        let next = self.table.segment(self.epoch, self.segment + 1);
        self.environment.storage.check_reserve(&next, ROOM_MIN, Reserve::Quarter)
    }

    /// Begins a segment with room for a group of so many bytes.
    fn begin_shared(&mut self, wanted: u64) -> Result<SharedSegment> {
        let own = head(SHARED, self.epoch, self.nonce);
        let room_min = ROOM_MIN.max(HEAD as u64 + wanted);
        // Where storage is nearly full, a flush soon frees the segment.
        let wanted = if self.is_short { ROOM_MIN } else { self.room.clamp(ROOM_MIN, ROOM_MAX) };
        let mut room = wanted.max(room_min);
        let storage = self.environment.storage.clone();
        let mut tries = 0;
        loop {
            let name = self.table.segment(self.epoch, self.segment);
            match storage.create_growing(&name, &own, room) {
                Ok(Growing::New(file)) => {
                    self.was_tried = false;
                    self.room = 2 * room;
                    let next = self.table.segment(self.epoch, self.segment + 1);
                    return Ok(SharedSegment { file, bytes: HEAD as u64, room, next });
                }
                // An attempt that failed has happened after all. Nothing is added to that segment.
                Ok(Growing::ThereWasOne) if self.was_tried && self.is_own(&name, &own)? => {
                    self.was_tried = false;
                    self.segment += 1;
                }
                Ok(Growing::ThereWasOne) => return Err(Fenced::LogTaken(self.table).into()),
                Err(error) if error.is_shortage() && room > room_min => {
                    self.was_tried = true;
                    room = room_min.max(room / 2);
                }
                Err(error) => {
                    self.was_tried = true;
                    tries += 1;
                    if error.is_shortage() || tries >= RETRIES {
                        return Err(error.deferred());
                    }
                    self.environment.clock.sleep(retry_pause(tries));
                }
            }
        }
    }

    /// Returns whether a segment is one of this writer.
    fn is_own(&self, name: &str, own: &[u8]) -> Result<bool> {
        match self.environment.storage.read(name) {
            Ok(bytes) => Ok(bytes.starts_with(own)),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.deferred()),
        }
    }

    /// Returns an error if an opener has ended the log, so that there is a next segment.
    fn check_is_missing(&self, next: &str) -> Result<()> {
        let mut tries = 0;
        loop {
            match self.environment.storage.size(next) {
                Err(error) if error.is_not_found() => return Ok(()),
                Ok(_) => return Err(Fenced::LogTaken(self.table).into()),
                Err(error) if tries >= RETRIES => return Err(error),
                Err(_) => tries += 1,
            }
            self.environment.clock.sleep(retry_pause(tries));
        }
    }
}

/// Returns the bytes that count of a segment that grows, and the name of the object that has them. An
/// opener with an epoch of its own ends the log if the segment is the last one. One that `salvages` ends no
/// segment that is damaged.
pub(super) fn counted(
    environment: &Environment,
    table: TableId,
    (epoch, number): (u64, u64),
    own_epoch: Option<u64>,
    salvages: bool,
) -> Result<(String, Bytes)> {
    let storage = &environment.storage;
    let (name, next) = (table.segment(epoch, number), table.segment(epoch, number + 1));
    let read = |name: &str| match salvages {
        true => read_lenient(environment, name),
        false => storage.read(name),
    };
    let has_fence = |next: Bytes| next.starts_with(FENCE);
    let is_last = match (storage.read(&next), own_epoch) {
        (Err(error), None) if error.is_not_found() => {
            return read(&name).map(|bytes| (name, bytes));
        }
        (Err(error), Some(own)) if error.is_not_found() => {
            let fence = Bytes::from(head(FENCE, own, environment.random.next_u64()));
            match create_or_confirm(environment, &next, &fence, false)? {
                Created::Now => true,
                Created::ThereWasOne => has_fence(storage.read(&next)?),
            }
        }
        (next, _) => has_fence(next?),
    };
    if !is_last {
        return read(&name).map(|bytes| (name, bytes));
    }
    let end_name = table.log_end(epoch, number);
    match storage.read(&end_name) {
        Err(error) if error.is_not_found() => {}
        end => return Ok((end_name, end?)),
    }
    // Only now is nothing acknowledged any more that would be missing.
    let bytes = read(&name)?;
    if own_epoch.is_none() {
        return Ok((name, bytes));
    }
    let length = match Segment::parse(&name, &bytes, epoch) {
        Ok(segment) => HEAD + segment.map_or(0, |segment| segment.length()),
        // The rest of a damaged one is salvaged from it, and nothing is ended.
        Err(Error::Corrupt { .. }) if salvages => return Ok((name, bytes)),
        Err(error) => return Err(error),
    };
    let own = head(END, epoch, environment.random.next_u64());
    let end = Bytes::from([&own[..], bytes.get(HEAD..length).unwrap_or_default()].concat());
    match create_or_confirm(environment, &end_name, &end, false)? {
        Created::Now => Ok((end_name, end)),
        Created::ThereWasOne => storage.read(&end_name).map(|end| (end_name, end)),
    }
}

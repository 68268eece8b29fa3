//! Writing the log: changes outlast a crash once it has them. One thread writes all that waits, and
//! those that wait for its changes share its sync.

use super::{PendingGroup, Table};
use crate::collect::collect;
use crate::error::{Error, Fenced, Result};
use crate::log::LogWriter;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A change that frees space waits for so many pauses for room that merges free: longer than replaced runs
/// stay. If there is none, none waits for the interval.
const ROOM_LOOKS: u32 = 100;
const ROOM_PAUSE: Duration = Duration::from_millis(50);
const ROOM_INTERVAL_MS: u64 = 30_000;

/// How much of the log outlasts a crash, and whether somebody writes more of it.
#[derive(Default)]
pub(super) struct Durable {
    state: Mutex<DurableState>,
    changed: Condvar,
    /// Nobody waits for room before.
    no_room_until_ms: AtomicU64,
}

#[derive(Default)]
struct DurableState {
    /// Everything up to this sequence number outlasts a crash.
    position: u64,
    /// Whether a thread writes the log on behalf of those that wait.
    is_written: bool,
}

impl Durable {
    fn position(&self) -> u64 {
        self.state.lock().position
    }

    fn advance(&self, position: u64) {
        let mut state = self.state.lock();
        state.position = state.position.max(position);
        // The thread that has the turn wakes the others at its end.
        if !state.is_written {
            self.changed.notify_all();
        }
    }

    /// Waits until everything up to `position` outlasts a crash, or until the caller should write
    /// the log: then the result is its turn.
    fn wait_for(&self, position: u64) -> Option<Turn<'_>> {
        let mut state = self.state.lock();
        while state.position < position {
            if !state.is_written {
                state.is_written = true;
                return Some(Turn(self));
            }
            self.changed.wait(&mut state);
        }
        None
    }
}

/// Held by the thread that writes the log for others. When it is dropped, the next one may.
struct Turn<'a>(&'a Durable);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_written = false;
        self.0.changed.notify_all();
    }
}

/// The segments of a writer's own log that SSTables have. `collect` would remove them, too, but lists all
/// objects for that, and so seldom.
#[derive(Default)]
pub(super) struct OldSegments {
    /// The first one that is needed.
    needed: AtomicU64,
    /// Those before this one were removed.
    removed: Mutex<u64>,
}

impl OldSegments {
    /// Notes that the log begins at a segment, as a manifest says.
    pub(super) fn begin_at(&self, segment: u64) {
        self.needed.fetch_max(segment, Ordering::Relaxed);
    }
}

impl Table {
    /// Notes whether the log has too many segments, so that the memtable is flushed.
    pub(super) fn count_segments(&self, log: &LogWriter) {
        let needed = self.old_segments.needed.load(Ordering::Relaxed);
        let count = log.segments().saturating_sub(needed);
        self.share.set_long_log(count > self.options.log_segments_max);
    }

    /// Removes segments of the log that are not needed any more, if there are any, but for the last
    /// one: the last segment of an epoch stays (`docs/engine.md`, "Collecting").
    ///
    /// # Errors
    ///
    /// Fails as storage does.
    pub fn remove_old_segments(&self) -> Result<()> {
        let mut removed = self.old_segments.removed.lock();
        let end = self.old_segments.needed.load(Ordering::Relaxed).saturating_sub(1);
        while *removed < end {
            self.environment.storage.remove(&self.id.segment(self.epoch, *removed))?;
            *removed += 1;
        }
        Ok(())
    }

    /// Returns the position of the last change: the number of changes that this process has made.
    /// [`sync_to`](Self::sync_to) makes them outlast a crash.
    pub fn position(&self) -> u64 {
        self.write.lock().sequence
    }

    /// Returns the position up to which everything outlasts a crash.
    pub fn durable_position(&self) -> u64 {
        self.durable.position()
    }

    /// Makes everything that was written outlast a crash, with one write of the log.
    ///
    /// # Errors
    ///
    /// Fails with `Deferred` if storage takes nothing now, and with `Fenced` if another process has
    /// taken over the table.
    pub fn sync(&self) -> Result<()> {
        let position = {
            let write = self.write.lock();
            write.check()?;
            write.sequence
        };
        self.sync_to(position)
    }

    /// Makes everything up to a [`position`](Self::position) outlast a crash. Threads that wait at
    /// the same time share writes of the log: each one contains all changes made before it began.
    /// Costs nothing if an earlier one has them.
    ///
    /// # Errors
    ///
    /// Fails as [`sync`](Self::sync) does.
    pub fn sync_to(&self, position: u64) -> Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        match self.durable.wait_for(position) {
            Some(_turn) => self.write_log(),
            None => Ok(()),
        }
    }

    /// Like [`sync`](Self::sync), after a batch that everybody sees already. A failure is never
    /// `Deferred`, which would mean that nothing was changed.
    ///
    /// # Errors
    ///
    /// Fails with `Storage` if storage takes nothing now: the batch outlasts a crash once it does.
    /// Fails as [`sync`](Self::sync) does, too.
    pub fn sync_visible(&self) -> Result<()> {
        self.sync().map_err(Error::undeferred)
    }

    /// Writes all changes that the log does not have, and the ends of segments.
    pub(super) fn write_log(&self) -> Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        let mut log = self.log.lock();
        let (pending, last) = {
            let mut write = self.write.lock();
            write.check()?;
            write.pending_bytes = 0;
            self.account(&write);
            (std::mem::take(&mut write.pending), write.sequence)
        };
        let mut pending = VecDeque::from(pending);
        while let Some(group) = pending.front_mut() {
            if !group.bytes.is_empty()
                && let Err(error) = log.add(&group.bytes)
            {
                group.was_tried = true;
                match error {
                    Error::Deferred { .. } => self.put_back(pending),
                    _ => self.fail(&error),
                }
                return Err(error);
            }
            if group.ends_segment {
                let segment = log.end_segment();
                let mut write = self.write.lock();
                let mut frozen = write.frozen.iter_mut();
                if let Some(frozen) = frozen.find(|frozen| frozen.log_segment.is_none()) {
                    frozen.log_segment = Some(segment);
                }
            }
            pending.pop_front();
        }
        self.count_segments(&log);
        if log.is_short() {
            self.write.lock().is_short = true;
        }
        self.durable.advance(last);
        Ok(())
    }

    /// Has the log take what it could not take before, and makes room for more unless that frees
    /// space. An error is deferred: where nothing can be written any more, that is found next.
    pub(super) fn catch_up(&self, frees: bool) -> Result<()> {
        match self.write_log() {
            Err(error @ Error::Deferred { .. }) => return Err(error),
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
        let has_room = || match frees {
            true => self.log.lock().check_room_for_flushes(),
            false => self.log.lock().make_spare_room(),
        };
        if has_room().is_err() {
            self.shorten_log().map_err(Error::deferred)?;
            if frees {
                self.wait_for_room(|| has_room().is_ok());
            }
            has_room().map_err(Error::deferred)?;
        }
        if !frees {
            self.write.lock().is_short = false;
        }
        Ok(())
    }

    /// Waits for the room that merges free, unless that was in vain lately.
    fn wait_for_room(&self, has_room: impl Fn() -> bool) {
        let clock = &self.environment.clock;
        if clock.now_ms() < self.durable.no_room_until_ms.load(Ordering::Relaxed) {
            return;
        }
        for _ in 0..ROOM_LOOKS {
            if has_room() {
                return;
            }
            clock.sleep(ROOM_PAUSE);
        }
        let until_ms = clock.now_ms().saturating_add(ROOM_INTERVAL_MS);
        self.durable.no_room_until_ms.store(until_ms, Ordering::Relaxed);
    }

    /// Flushes the memtables of a log on storage of many machines, if that frees a segment.
    fn shorten_log(&self) -> Result<()> {
        let needed = self.old_segments.needed.load(Ordering::Relaxed);
        let segments = self.log.lock().segments().saturating_sub(needed);
        if !self.environment.storage.has_growing() || segments < 2 {
            return Ok(());
        }
        self.flush()?;
        self.remove_old_segments()
    }

    /// Where storage is nearly full, removes what nobody needs, and flushes if many machines share it: then
    /// a compaction finds what was removed. A flush ends a segment, whose room is kept if there is none for
    /// another one.
    pub(crate) fn free_space(&self) -> Result<()> {
        let is_shared = self.environment.storage.has_growing();
        // A thread that writes the log looks itself.
        if let Some(mut log) = self.log.try_lock().filter(|_| is_shared) {
            let has_room = log.make_spare_room().is_ok();
            let mut write = self.write.lock();
            write.is_short = !has_room || write.pending.iter().any(|group| group.was_tried);
        }
        if !self.is_short() {
            return Ok(());
        }
        collect(&self.environment, self.id)?;
        self.cache.close_removed();
        match is_shared && self.log.lock().check_small_segment().is_ok() {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Keeps changes that the log cannot take now, before those that came since.
    fn put_back(&self, mut groups: VecDeque<PendingGroup>) {
        let mut write = self.write.lock();
        write.pending_bytes += groups.iter().map(|group| group.bytes.len()).sum::<usize>();
        groups.extend(write.pending.drain(..));
        write.pending = groups.into();
        write.is_short = true;
        self.account(&write);
    }

    /// Refuses every write from now on: what is in the log is not known.
    pub(super) fn fail(&self, error: &Error) {
        let mut write = self.write.lock();
        let ended = || Fenced::Ended { kind: error.kind(), said: error.to_string() };
        write.ended.get_or_insert_with(ended);
        self.account(&write);
    }
}

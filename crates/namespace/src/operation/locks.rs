//! Locks of programs on open files, by flock(2) and fcntl(2), for whoever keeps them elsewhere than
//! in the kernel: a client of servers. Like contents, they are not operations: a lock changes no
//! record.

use crate::error::Result;
use crate::records::keys::FileId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The system call that locks belong to. Those of one kind do not conflict with those of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// Byte ranges, by fcntl(2).
    Range,
    /// Whole files, by flock(2).
    Whole,
}

/// An owner of locks on a file: a process, or an open file description. Numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockOwner {
    /// The system call.
    pub kind: LockKind,
    /// The owner's number in the mount.
    pub number: u64,
}

/// Access that a lock gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockMode {
    /// Others may have shared locks, too.
    Shared,
    /// Others have none.
    Exclusive,
}

/// Bytes of a file, with both ends. A message with an end before its start is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub struct LockRange {
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub end: u64,
}

impl TryFrom<(u64, u64)> for LockRange {
    type Error = &'static str;

    fn try_from((start, end): (u64, u64)) -> std::result::Result<Self, Self::Error> {
        match start <= end {
            true => Ok(LockRange { start, end }),
            false => Err("a range that ends before it begins"),
        }
    }
}

impl From<LockRange> for (u64, u64) {
    fn from(range: LockRange) -> Self {
        (range.start, range.end)
    }
}

impl LockRange {
    /// All bytes.
    pub const ALL: LockRange = LockRange { start: 0, end: u64::MAX };

    /// Returns whether two ranges have a byte in common.
    pub fn overlaps(self, other: LockRange) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// A lock that is held or wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLock {
    /// The owner.
    pub owner: LockOwner,
    /// The access.
    pub mode: LockMode,
    /// The bytes.
    pub range: LockRange,
    /// The process that asked, for others who ask which one it was.
    pub pid: u32,
    /// The user whom it counts for.
    pub uid: u32,
}

/// Outcome of an attempt to set a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// It is set.
    Set,
    /// Another lock is in the way.
    Refused,
    /// Another lock is in the way, whose open file may have just been closed
    /// ([`FileLocks::may_be_closed`]).
    MayGo,
    /// Another lock is in the way, and this one waits for its turn.
    Waits,
}

/// Sets locks on files that are held. Calls come from any number of threads.
pub trait FileLocks: Send + Sync {
    /// Returns a lock that keeps another one from being set; none if nothing does. The process of one
    /// of another client is 0.
    ///
    /// # Errors
    ///
    /// Fails if the server of the file cannot be asked, and with `IO` if locks on it were lost.
    fn test_lock(&self, id: FileId, wanted: &FileLock) -> Result<Option<FileLock>>;

    /// Tries to set a lock, in place of what its owner has there. If it `waits`, it gets its turn
    /// before those that come later: the caller tries again after [`await_lock`](Self::await_lock),
    /// or calls [`cancel_lock`](Self::cancel_lock).
    ///
    /// # Errors
    ///
    /// Fails with `DEADLK` if the owner would wait for itself, with `NOLCK` if a limit is reached,
    /// with `IO` if locks on the file were lost, and if the server cannot be asked.
    fn set_lock(&self, id: FileId, wanted: &FileLock, waits: bool) -> Result<LockOutcome>;

    /// Waits until it is the turn of a lock that waits, and not longer than `limit`. Returns whether
    /// it may be. Each second another try is needed to keep the place.
    fn await_lock(&self, id: FileId, wanted: &FileLock, limit: Duration) -> bool;

    /// Has a lock wait no longer.
    fn cancel_lock(&self, id: FileId, wanted: &FileLock);

    /// Removes locks of an owner from a range, after what was written is where others see it.
    ///
    /// # Errors
    ///
    /// Fails if what was written cannot be sent, if the server cannot be asked, and with `NOLCK` if
    /// one lock would become two and a limit is reached.
    fn unlock(&self, id: FileId, owner: LockOwner, range: LockRange) -> Result<()>;

    /// Notes that a descriptor of open files was closed, perhaps the last one: the kernel reports the
    /// end of an open file only after close(2) has returned. For a second, [`set_lock`](Self::set_lock)
    /// answers `MayGo` in place of `Refused` where a lock of these owners is in the way. This is an
    /// aid: if the server cannot be asked, nothing happens.
    fn may_be_closed(&self, id: FileId, owners: &[LockOwner]);

    /// Returns whether an owner may have locks on a file, or has lost some. Asks nobody.
    fn may_have_locks(&self, id: FileId, owner: LockOwner) -> bool;

    /// Has losses of locks on files reported from now on. `report` must not wait.
    fn report_losses(&self, report: LossReport);
}

/// Takes note that locks on a file were lost.
pub type LossReport = Box<dyn Fn(FileId) + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_end_before_they_begin_are_no_messages() {
        for (start, end, is_sound) in [(0, 0, true), (5, 4, false), (0, u64::MAX, true)] {
            let bytes = postcard::to_extend(&(start, end), Vec::new()).unwrap();
            let range = LockRange { start, end };
            assert_eq!(bytes, postcard::to_extend(&range, Vec::new()).unwrap());
            assert_eq!(postcard::from_bytes::<LockRange>(&bytes).is_ok(), is_sound);
        }
    }
}

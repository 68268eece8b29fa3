//! Moments at which directories and entries are known to have been as they were seen.
//!
//! The kernel notes the time whenever a name is made, renamed or removed in a directory, whenever
//! the permissions or the contents of an inode change, and whenever an inode gets or loses a name:
//! its change time, which nobody can set. So an inode that is looked at after a moment, and whose
//! change time is before that, was at that moment as it is seen: in the same place, with the same
//! permissions, names in it, size and values.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, MemfdFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW};
use std::time::{Duration, SystemTime};

/// Lag of a clock that is assumed if no file shows it.
const UNKNOWN_LAG: Duration = Duration::from_millis(100);

pub(crate) const SECOND_NS: i64 = 1_000_000_000;

/// A moment, in nanoseconds, by the clock that file systems take change times from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) i64);

impl Default for Moment {
    fn default() -> Self {
        Moment::NEVER
    }
}

impl Moment {
    /// A moment before every change: nothing is known to have been then as it is seen.
    pub(crate) const NEVER: Moment = Moment(i64::MIN);

    /// Returns whether an inode seen after this moment, and last changed then, was at this moment
    /// as it was seen.
    pub(crate) fn is_after(self, change: ChangeTime) -> bool {
        self.0 > change.0
    }
}

/// The latest moment at which an inode may have changed, by its change time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeTime(i64);

impl ChangeTime {
    /// The change time of an inode that never changed.
    pub(crate) const NONE: ChangeTime = ChangeTime(i64::MIN);

    /// The change time of an inode that may change at any moment.
    pub(crate) const ALWAYS: ChangeTime = ChangeTime(i64::MAX);

    /// Takes it from a change time on a file system whose clock may be so far behind. A file system
    /// without fractions of seconds rounds all times down.
    pub(crate) fn at(ctime_ns: i64, lag_ns: i64) -> Self {
        let rounded_ns = if ctime_ns % SECOND_NS == 0 { SECOND_NS - 1 } else { 0 };
        ChangeTime(ctime_ns.saturating_add(rounded_ns + lag_ns))
    }
}

/// The clock that file systems take change times from. It ticks 100 to 1,000 times a second and
/// cannot be read in this precision, but a file can be changed and its change time read. (Since
/// Linux 6.13 times that were looked at are exact, and no change has an older one than those that
/// came before.)
#[derive(Debug)]
pub(crate) struct Clock {
    file: Option<OwnedFd>,
    is_exact: bool,
}

/// Number of successive changes that distinguish a clock with ticks from an exact one.
const CHANGES_AT_ONCE: usize = 8;

impl Clock {
    pub(crate) fn new() -> Self {
        let file = rustix::fs::memfd_create(c"canopy-clock", MemfdFlags::CLOEXEC).ok();
        let mut clock = Clock { file, is_exact: false };
        let moments: Vec<Moment> = (0..CHANGES_AT_ONCE).map(|_| clock.now()).collect();
        clock.is_exact = clock.file.is_some() && moments.is_sorted_by(|one, next| one < next);
        clock
    }

    /// Returns whether each change of an inode that was looked at has another change time.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Returns the present moment: each change from now on has a change time that is not before it.
    pub(crate) fn now(&self) -> Moment {
        let told = self.file.as_ref().and_then(|file| {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            rustix::fs::futimens(file, &Timestamps { last_access: now, last_modification: now })
                .ok()?;
            let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::CTIME).ok()?;
            Some(crate::inode::nanoseconds(&stat.stx_ctime))
        });
        Moment(told.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let earlier = since.unwrap_or_default().saturating_sub(UNKNOWN_LAG);
            i64::try_from(earlier.as_nanos()).unwrap_or(i64::MIN)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::stat_at;
    use rustix::fs::CWD;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_change_is_not_before_a_moment_that_came_first() {
        let clock = Clock::new();
        for place in ["/dev/shm", "/var/tmp"] {
            let directory = tempfile::tempdir_in(place).unwrap();
            let path = CString::new(directory.path().as_os_str().as_bytes()).unwrap();
            let change = || {
                let stat = stat_at(CWD, &path).unwrap();
                ChangeTime::at(stat.attributes.ctime_ns, 0)
            };
            for number in 0..2000 {
                let before = clock.now();
                std::fs::create_dir(directory.path().join(number.to_string())).unwrap();
                assert!(!before.is_after(change()), "{place} {number}");
            }
            std::thread::sleep(Duration::from_millis(20));
            assert!(clock.now().is_after(change()), "{place}");
        }
    }

    #[test]
    fn times_without_fractions_may_be_a_second_old() {
        let change = ChangeTime::at(5 * SECOND_NS, 0);
        assert!(!Moment(6 * SECOND_NS - 1).is_after(change));
        assert!(Moment(6 * SECOND_NS).is_after(change));
        assert!(Moment(5 * SECOND_NS + 2).is_after(ChangeTime::at(5 * SECOND_NS + 1, 0)));
        assert!(!Moment(5 * SECOND_NS + 2).is_after(ChangeTime::at(5 * SECOND_NS + 1, 1)));
        assert!(!Moment::NEVER.is_after(ChangeTime::NONE));
    }
}

//! Counts of a walk, and faults of entries.

use canopy_model::{ErrorKind, SourcePathBuf};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// Step at which an entry failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opening or reading a directory.
    List,
    /// Looking at an entry.
    Look,
    /// Reading where a symbolic link points.
    ReadLink,
    /// Reading extended attributes.
    Xattrs,
}

/// A fault of an entry, or of its listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A system call failed: the entry is missing, or its listing is missing or incomplete.
    Failed(Step, Errno),
    /// The permissions or the place of a directory on the way changed during the read. Only users
    /// let in both before and after see the listing.
    Narrowed,
    /// The contents of the directory are missing, since it was moved while it was read, or too often.
    Moved,
    /// The contents of the directory are missing, since its path is too long, or it is nested too
    /// deeply for the open files that the system allows.
    LongPath,
}

/// An entry with what is wrong with it.
#[derive(Clone, Debug)]
pub struct ScanError {
    /// Its path.
    pub path: SourcePathBuf,
    /// Its fault.
    pub fault: Fault,
}

impl ScanError {
    /// Returns what a caller should make of it.
    pub fn kind(&self) -> ErrorKind {
        match self.fault {
            Fault::Failed(_, errno) => ErrorKind::of_io(&errno.into()),
            _ => ErrorKind::Unavailable,
        }
    }

    /// Returns whether the entry went away during the walk.
    pub fn vanished(&self) -> bool {
        matches!(
            self.fault,
            Fault::Failed(_, Errno::NOENT) | Fault::Failed(Step::List, Errno::NOTDIR)
        )
    }
}

/// Counts of a walk so far. Other threads can read them while it runs.
#[derive(Debug, Default)]
pub struct Counts {
    /// Entries, directories among them, without the root.
    pub entries: AtomicU64,
    /// Entries that were looked at, about; those of a directory count as entries later.
    pub looked_at: AtomicU64,
    /// Directories listed.
    pub directories: AtomicU64,
    /// Entries that could not be read.
    pub failed: AtomicU64,
    /// Entries that went away.
    pub vanished: AtomicU64,
    /// Listings that fewer see than might, since a directory on the way changed meanwhile.
    pub narrowed: AtomicU64,
    /// Listings that were left out since the directory, or one above it, was moved meanwhile.
    pub moved: AtomicU64,
    /// Directories whose contents were left out since their paths are too long.
    pub long_paths: AtomicU64,
    /// Times that a listing lacks some of what it should have, though the directory could be opened.
    pub partial: AtomicU64,
    /// Directories for root alone, since their permissions are of users or groups that the user
    /// namespace does not know.
    pub unmapped: AtomicU64,
}

impl Counts {
    /// Returns how far a walk is, in entries.
    pub fn progress(&self) -> u64 {
        let [entries, looked_at] =
            [&self.entries, &self.looked_at].map(|count| count.load(Ordering::Relaxed));
        entries.max(looked_at)
    }

    /// Returns all of them as they are now, for [`Counts::set_back`].
    pub fn now(&self) -> [u64; 10] {
        self.all().map(|count| count.load(Ordering::Relaxed))
    }

    /// Sets all of them back to what they were, since what was found meanwhile is found again.
    pub fn set_back(&self, before: [u64; 10]) {
        let all = self.all().into_iter().zip(before);
        all.for_each(|(count, before)| count.store(before, Ordering::Relaxed));
    }

    fn all(&self) -> [&AtomicU64; 10] {
        let Counts { entries, looked_at, directories, failed, vanished, .. } = self;
        let Counts { narrowed, moved, long_paths, partial, unmapped, .. } = self;
        [
            entries,
            looked_at,
            directories,
            failed,
            vanished,
            narrowed,
            moved,
            long_paths,
            partial,
            unmapped,
        ]
    }

    /// Returns how many entries and listings something is wrong with.
    pub fn faults(&self) -> u64 {
        let counts = [&self.failed, &self.vanished, &self.narrowed, &self.moved, &self.long_paths];
        counts.into_iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

//! Counting the entries of a tree beside its import, for the time that is left.

use super::look;
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FileType};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Directories that are open at once: of a deeper tree, no more is counted.
const DEPTH_MAX: usize = 200;

/// Entries of a tree, as far as they were counted.
#[derive(Default)]
pub struct Count {
    entries: AtomicU64,
    is_whole: AtomicBool,
    is_over: AtomicBool,
}

impl Count {
    /// Counts the entries below a directory, on the file system that it is on.
    pub fn run(&self, source: OwnedFd) {
        let is_whole = look::look_at_open(&source).is_ok_and(|stat| {
            let device = look::device_of(&stat);
            self.count(&source, device, DEPTH_MAX).is_some()
        });
        self.is_whole.store(is_whole, Ordering::Release);
    }

    /// Ends the count.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns the number of all entries, once it is known.
    pub fn all(&self) -> Option<u64> {
        let is_whole = self.is_whole.load(Ordering::Acquire);
        is_whole.then(|| self.entries.load(Ordering::Relaxed))
    }

    /// Counts those of a directory; none if it is too deep, or the count has ended.
    fn count(&self, directory: &OwnedFd, device: u64, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut inner: Vec<CString> = Vec::new();
        for entry in Dir::read_from(directory).ok()?.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries.fetch_add(1, Ordering::Relaxed);
            if entry.file_type() == FileType::Directory {
                inner.push(name.to_owned());
            }
            if self.is_over.load(Ordering::Relaxed) {
                return None;
            }
        }
        for name in inner {
            let Ok(fd) = look::open_directory(directory, &name) else { continue };
            if look::look_at_open(&fd).is_ok_and(|stat| look::device_of(&stat) == device) {
                self.count(&fd, device, depth)?;
            }
        }
        Some(())
    }
}

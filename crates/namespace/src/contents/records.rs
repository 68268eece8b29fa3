//! The open files of a process, as its tablets see them.

use super::{Contents, is_clean, timespec};
use crate::error::Result;
use crate::records::change::{SetAttributes, SetTime};
use crate::records::inode::{Inode, flag};
use crate::records::keys::FileId;
use crate::records::open_files::OpenFiles;
use crate::records::tablet::Tablet;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT};
use std::borrow::Cow;
use std::sync::atomic::Ordering;

impl OpenFiles for Contents {
    fn overlay(&self, inode: &mut Inode) {
        // Chunks of an open file may have the contents before its record says so.
        let has_object = inode.has(flag::OBJECT) || inode.is_regular() && self.chunks().is_some();
        if !has_object {
            return;
        }
        let Some(opened) = self.find(inode.id, false) else { return };
        if let Some(object) = opened.object() {
            object.describe(inode);
        }
    }

    fn recorded<'a>(&self, inode: &'a Inode) -> Cow<'a, Inode> {
        let mut recorded = Cow::Borrowed(inode);
        if self.chunks().is_none() || !inode.is_regular() {
            return recorded;
        }
        if let Some(opened) = self.find(inode.id, false)
            && let Some(chunked) = opened.chunked()
        {
            chunked.describe_recorded(recorded.to_mut());
        }
        recorded
    }

    fn closings(&self) -> u64 {
        self.closed.load(Ordering::Acquire)
    }

    fn is_dirty(&self, id: FileId) -> bool {
        let opened = self.find(id, false).filter(|opened| opened.object().is_none());
        opened.is_some_and(|opened| !is_clean(&opened))
    }

    fn set_times(&self, inode: &Inode, set: &SetAttributes) -> Result<()> {
        let is_file = inode.has(flag::OBJECT) && self.chunks().is_none();
        if !is_file || (set.atime.is_none() && set.mtime.is_none()) {
            return Ok(());
        }
        let time = |set: Option<SetTime>, time_ns| match set {
            Some(_) => timespec(time_ns),
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        let times = Timestamps {
            last_access: time(set.atime, inode.atime_ns),
            last_modification: time(set.mtime, inode.mtime_ns),
        };
        let opened = self.find(inode.id, false);
        match opened.as_ref().and_then(|opened| opened.file()) {
            Some(object) => Ok(rustix::fs::futimens(object, &times)?),
            None => {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                Ok(rustix::fs::utimensat(CWD, self.path(inode.id), &times, flags)?)
            }
        }
    }

    fn record(&self, tablet: &Tablet, id: FileId) -> Result<()> {
        match self.find(id, false).filter(|opened| opened.object().is_none()) {
            Some(opened) => opened.flush_inline(tablet, &mut opened.inline.write()),
            None => Ok(()),
        }
    }

    fn with_recorded(
        &self,
        tablet: &Tablet,
        id: FileId,
        change: &mut dyn FnMut() -> Result<Inode>,
    ) -> Result<Inode> {
        let Some(opened) = self.find(id, false) else { return change() };
        let mut inline = opened.inline.write();
        if inline.is_dirty {
            opened.flush_inline(tablet, &mut inline)?;
        }
        change()
    }

    fn doom(&self) {
        self.has_doomed.store(true, Ordering::Release);
    }
}

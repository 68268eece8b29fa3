//! Work that an earlier process of the namespace left undone when it died.

use crate::contents::describe;
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::quota::Transaction;
use crate::records::inode::flag;
use crate::records::keys::{FileId, Space};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

impl Namespace {
    /// Does what a process that died could not do any more: removes what has no name, and objects
    /// of files that are gone, and gives records the sizes of objects that were open.
    pub(crate) fn recover(&self) -> Result<()> {
        self.tablet.remove_orphans()?;
        for id in self.tablet.ids_in(Space::Unsettled)? {
            self.contents.unsettle(id);
            // The rest is opened although an object cannot be read; `check` reports it.
            let recovered = self.recover_object(id);
            if let Err(error @ (Error::Store(_) | Error::Corrupt(_))) = recovered {
                return Err(error);
            }
        }
        self.settle()
    }

    /// Removes objects that a crash has left: they were made, and what says of which file they are
    /// was lost. Those that were written last give their records their sizes. Looks at all objects,
    /// once.
    pub(crate) fn remove_strays(&self) -> Result<()> {
        if !self.has_strays() {
            return Ok(());
        }
        // Objects whose records were lost are not strays: a repair finds files for them.
        if self.tablet.table.has_losses()? {
            return Ok(());
        }
        if let Some(chunks) = self.contents.chunks() {
            let _ = self.remove_stray_chunks(chunks)?;
            self.has_strays.store(false, Ordering::Release);
            return Ok(());
        }
        if !self.is_read_only() {
            self.remove_stray_copies()?;
        }
        for id in self.contents.objects()? {
            let _changing = self.contents.changing.read();
            let _writer = self.tablet.writer.lock();
            if self.contents.find(id, false).is_some() {
                continue;
            }
            match self.tablet.inode_now(id) {
                Ok(inode) if inode.has(flag::OBJECT) => {
                    // The note that they may differ was lost, too.
                    if self.contents.object_size(id) != Some(inode.size) {
                        self.recover_object_now(id)?;
                    }
                }
                Ok(_) | Err(Error::Posix(Errno::NOENT)) if self.is_read_only() => {}
                Ok(_) | Err(Error::Posix(Errno::NOENT)) => self.discard_object(id)?,
                // `check` tells of it.
                Err(Error::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.has_strays.store(false, Ordering::Release);
        Ok(())
    }

    /// Gives a record what its object says.
    fn recover_object(&self, id: FileId) -> Result<()> {
        let _writer = self.tablet.writer.lock();
        self.recover_object_now(id)
    }

    /// Does the same for who has the writer's lock.
    fn recover_object_now(&self, id: FileId) -> Result<()> {
        let (place, before) = self.tablet.locate(id)?;
        if !before.has(flag::OBJECT) {
            return Ok(());
        }
        let mut inode = before.clone();
        describe(&self.contents.open_object(id)?, &mut inode);
        // Opening a namespace on a full disk must not fail for this.
        let mut batch = Transaction::freeing();
        self.tablet.write_inode(&mut batch, &place, Some(&before), &inode)?;
        self.tablet.commit(batch)
    }
}

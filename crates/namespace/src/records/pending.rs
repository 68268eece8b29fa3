//! Times and sizes that are newer in memory than in records. They go into the table together, every
//! few seconds, when somebody syncs, or when there are many.

use crate::contents::describe;
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::quota::Transaction;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{FileId, Space};
use canopy_store::{Batch, Durability};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Most files that wait.
const PENDING_MAX: usize = 1 << 14;

/// Most files that wait while a disk is full.
const PENDING_FULL_MAX: usize = 1 << 17;

/// Space of removed files is given back within half a second where there is less than this, in
/// bytes.
const SHORT_BYTES: u64 = 256 << 20;

/// Files that are written while others wait.
const STEP: usize = 128;

/// So many notes are taken away in one batch.
const SETTLED: usize = 1 << 16;

impl Namespace {
    /// Changes times or the size of an inode in memory.
    pub(crate) fn change_pending(&self, id: FileId, change: impl FnOnce(&mut Inode)) -> Result<()> {
        let _writer = self.tablet.writer.lock();
        if let Some(inode) = self.tablet.pending.write().get_mut(&id) {
            change(inode);
            return Ok(());
        }
        self.limit_pending()?;
        let mut inode = self.inode_now(id)?;
        change(&mut inode);
        self.tablet.remember(inode);
        Ok(())
    }

    /// Puts some of what waits into records if it is too much, before a change adds to it: a change
    /// that was made must not fail for this. The caller has the writer's lock.
    pub(crate) fn limit_pending(&self) -> Result<()> {
        let waiting = self.tablet.pending.read().len();
        if waiting < PENDING_MAX {
            return Ok(());
        }
        let some = Vec::from_iter(self.tablet.pending.read().values().take(STEP).cloned());
        match self.flush_inodes(&some) {
            // A full disk takes nothing now. Some more may wait.
            Err(error) if error.errno() == Errno::NOSPC && waiting < PENDING_FULL_MAX => Ok(()),
            flushed => flushed,
        }
    }

    /// Puts everything that waits in memory into records. What fails does not keep the rest; the
    /// first failure is returned.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn flush_pending(&self) -> Result<()> {
        let mut outcome = self.flush_all_chunks();
        for opened in self.contents.all() {
            if opened.chunked().is_some() {
                self.contents.forget_unused(opened.id());
                continue;
            }
            match self.flush_file(&opened) {
                Ok(()) => self.contents.forget_unused(opened.id()),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        let pending = Vec::from_iter(self.tablet.pending.read().values().cloned());
        for some in pending.chunks(STEP) {
            let _writer = self.tablet.writer.lock();
            if let Err(error) = self.flush_inodes(some) {
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }

    /// Puts what waits of inodes into their records. The caller has the writer's lock.
    pub(crate) fn flush_all_inodes(&self) -> Result<()> {
        let pending = Vec::from_iter(self.tablet.pending.read().values().cloned());
        pending.chunks(STEP).try_for_each(|some| self.flush_inodes(some))
    }

    /// Puts what waits of one inode into its record.
    pub(crate) fn flush_inode(&self, id: FileId) -> Result<()> {
        let _writer = self.tablet.writer.lock();
        let pending = self.tablet.pending.read().get(&id).cloned();
        self.flush_inodes(pending.as_slice())
    }

    /// Puts what waits of some inodes into their records.
    fn flush_inodes(&self, inodes: &[Inode]) -> Result<()> {
        let mut batch = Transaction::new();
        // Of what was written and is in no record yet, the size is not to be in one either.
        let is_written = |inode: &&Inode| !self.contents.is_dirty(inode.id);
        let inodes = Vec::from_iter(inodes.iter().filter(is_written));
        for inode in &inodes {
            self.put_pending(&mut batch, inode)?;
        }
        if !batch.is_empty() {
            self.commit(batch)?;
        }
        inodes.iter().for_each(|inode| self.tablet.forget_pending(inode.id));
        Ok(())
    }

    /// Puts everything that waits into records, but for those that are damaged. The caller has the
    /// writer's lock.
    pub(crate) fn flush_what_is_sound(&self) -> Result<()> {
        let pending = Vec::from_iter(self.tablet.pending.read().values().cloned());
        for inode in &pending {
            match self.flush_inodes(std::slice::from_ref(inode)) {
                Err(Error::Corrupt(_)) | Ok(()) => {}
                failed => return failed,
            }
        }
        Ok(())
    }

    fn put_pending(&self, batch: &mut Transaction, pending: &Inode) -> Result<()> {
        let (place, before) = match self.tablet.locate(pending.id) {
            Err(Error::Posix(Errno::NOENT)) => return Ok(()),
            located => located?,
        };
        let mut inode = before.clone();
        self.overlay(&mut inode);
        match inode == before {
            true => Ok(()),
            false => self.write_inode(batch, &place, Some(&before), &inode),
        }
    }

    /// Removes objects of files that are gone for good, and the notes that objects may differ from
    /// their records where they do not: first all of that has to outlast a crash, also what is in
    /// objects, which may have taken the place of others.
    pub(crate) fn settle(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let doomed = {
            // Whoever adds a tree dooms its objects until all of it is there.
            let _writer = self.tablet.writer.lock();
            self.tablet.ids_in(Space::Doomed)?
        };
        let unsettled = self.contents.take_unsettled();
        if unsettled.is_empty() && doomed.is_empty() {
            return Ok(());
        }
        let synced = self.contents.sync_all().and_then(|()| Ok(self.tablet.table.sync()?));
        synced.inspect_err(|_| self.contents.unsettle_again(&unsettled))?;
        let mut outcome = Ok(());
        let mut batch = Batch::new();
        for id in doomed {
            let _changing = self.contents.changing.read();
            let removed = match self.contents.chunks() {
                Some(chunks) => self.drop_chunks(chunks, id),
                None => self.discard_object(id),
            };
            match removed {
                Ok(()) => batch.delete(Space::Doomed.of(id, b"").as_ref())?,
                Err(error) => outcome = outcome.and(Err(error)),
            }
            if batch.len() >= SETTLED {
                let written = self.tablet.table.write_freeing(&batch, Durability::Visible);
                written.inspect_err(|_| self.contents.unsettle_again(&unsettled))?;
                batch.clear();
            }
        }
        // With this lock, what is not open is not opened.
        let _writer = self.tablet.writer.lock();
        let settled = self.contents.settled(unsettled);
        for id in &settled {
            batch.delete(Space::Unsettled.of(*id, b"").as_ref())?;
        }
        let written = self.tablet.table.write_freeing(&batch, Durability::Visible);
        written.inspect_err(|_| self.contents.unsettle_again(&settled))?;
        outcome
    }

    /// Does something; where the disk is full, once more after the space of removed files was given
    /// back.
    pub(crate) fn with_room<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        match work() {
            Err(error) if error.errno() == Errno::NOSPC && self.reclaim() => work(),
            done => done,
        }
    }

    /// Gives back the space of removed files at once. Returns whether there may be more now.
    fn reclaim(&self) -> bool {
        if self.contents.chunks().is_some() {
            return false;
        }
        let Some(_one) = self.reclaiming.try_lock() else {
            // Somebody else is just doing it.
            drop(self.reclaiming.lock());
            return true;
        };
        let has_doomed = self.tablet.ids_in(Space::Doomed).is_ok_and(|ids| !ids.is_empty());
        has_doomed && self.settle().is_ok()
    }

    /// Gives back the space of removed files if there is little: the kernel writes large files
    /// itself, and nobody hears of it when it finds the disk full.
    pub(crate) fn reclaim_if_short(&self) -> Result<()> {
        if self.contents.chunks().is_some() || !self.has_doomed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let space = self.contents.space()?;
        if space.f_bavail.saturating_mul(space.f_frsize) >= SHORT_BYTES {
            return Ok(());
        }
        let _one = self.reclaiming.lock();
        self.settle()
    }

    /// Does what a process that died could not do any more: removes what has no name, and objects
    /// of files that are gone, and gives records the sizes of objects that were open.
    pub(crate) fn recover(&self) -> Result<()> {
        self.remove_orphans()?;
        for id in self.tablet.ids_in(Space::Unsettled)? {
            self.contents.unsettle(id);
            // An object that cannot be read is no reason not to open all else; `check` tells of it.
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
            match self.inode_now(id) {
                Ok(inode) if inode.has(flag::OBJECT) => {
                    // What noted that they may differ was lost, too.
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
        self.write_inode(&mut batch, &place, Some(&before), &inode)?;
        self.commit(batch)
    }
}

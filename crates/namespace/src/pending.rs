//! Times and sizes that are newer in memory than in records. They go into the table together, every
//! few seconds, when somebody syncs, or when there are many.

use crate::contents::describe;
use crate::error::{Error, Result};
use crate::inode::{Inode, flag};
use crate::keys::{FileId, ROOT, Space};
use crate::namespace::{IDS, Namespace};
use canopy_store::{Batch, Direction, Durability};
use rustix::io::Errno;

/// So many wait at most.
const PENDING_MAX: usize = 1 << 14;

impl Namespace {
    /// Remembers an inode whose times are newer than its record's. The caller has the writer's lock.
    pub(crate) fn remember(&self, inode: Inode) {
        self.pending.write().insert(inode.id, inode);
    }

    /// Forgets an inode whose record has all there is.
    pub(crate) fn forget_pending(&self, id: FileId) {
        if !self.pending.read().is_empty() {
            self.pending.write().remove(&id);
        }
    }

    /// Changes times or the size of an inode in memory.
    pub(crate) fn change_pending(&self, id: FileId, change: impl FnOnce(&mut Inode)) -> Result<()> {
        let _writer = self.writer.lock();
        if let Some(inode) = self.pending.write().get_mut(&id) {
            change(inode);
            return Ok(());
        }
        let mut inode = self.inode(id)?;
        change(&mut inode);
        self.remember(inode);
        self.limit_pending()
    }

    /// Puts what waits into records if it is too much. The caller has the writer's lock.
    pub(crate) fn limit_pending(&self) -> Result<()> {
        let waiting = self.pending.read().len();
        if waiting < PENDING_MAX { Ok(()) } else { self.flush_inodes() }
    }

    /// Puts everything that waits in memory into records.
    pub fn flush_pending(&self) -> Result<()> {
        for opened in self.contents.all() {
            self.flush_file(&opened, false)?;
        }
        let _writer = self.writer.lock();
        self.flush_inodes()
    }

    /// Puts what waits of one inode into its record.
    pub(crate) fn flush_inode(&self, id: FileId) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Batch::new();
        let pending = self.pending.read().get(&id).cloned();
        if let Some(inode) = pending {
            self.put_pending(&mut batch, &inode)?;
            self.table.write(&batch, Durability::Visible)?;
            self.forget_pending(id);
        }
        Ok(())
    }

    fn flush_inodes(&self) -> Result<()> {
        let pending = Vec::from_iter(self.pending.read().values().cloned());
        for inodes in pending.chunks(64) {
            let mut batch = Batch::new();
            for inode in inodes {
                self.put_pending(&mut batch, inode)?;
            }
            if !batch.is_empty() {
                self.table.write(&batch, Durability::Visible)?;
            }
            let mut pending = self.pending.write();
            inodes.iter().for_each(|inode| drop(pending.remove(&inode.id)));
        }
        Ok(())
    }

    fn put_pending(&self, batch: &mut Batch, pending: &Inode) -> Result<()> {
        let (place, before) = match self.locate(pending.id) {
            Err(Error::Posix(Errno::NOENT)) => return Ok(()),
            located => located?,
        };
        let mut inode = before.clone();
        self.overlay(&mut inode);
        match inode == before {
            true => Ok(()),
            false => self.put(batch, &place, Some(&before), &inode),
        }
    }

    /// Removes objects of files that are gone for good.
    pub(crate) fn remove_doomed(&self) -> Result<()> {
        let doomed = {
            // Whoever dooms an object has written why before this lock is free.
            let _writer = self.writer.lock();
            self.contents.take_doomed()
        };
        if doomed.is_empty() {
            return Ok(());
        }
        self.table.sync()?;
        let mut batch = Batch::new();
        for id in doomed {
            self.contents.remove_object(id)?;
            batch.delete(Space::Doomed.of(id, b"").as_ref())?;
        }
        Ok(self.table.write(&batch, Durability::Visible)?)
    }

    /// Does what a process that died could not do any more: removes what has no name, and objects
    /// of files that are gone, and gives records the sizes of objects that were open.
    pub(crate) fn recover(&self) -> Result<()> {
        self.remove_orphans()?;
        for id in self.ids_in(Space::Doomed)? {
            self.contents.doom(id);
        }
        self.remove_doomed()?;
        self.remove_lost_objects()?;
        for id in self.ids_in(Space::Opened)? {
            match self.recover_times(id).and_then(|()| self.open_file(id)) {
                Ok(opened) => {
                    self.mark_written(&opened)?;
                    self.close_file(&opened)?;
                }
                Err(Error::Posix(Errno::NOENT)) => {
                    let mut batch = Batch::new();
                    batch.delete(Space::Opened.of(id, b"").as_ref())?;
                    self.table.write(&batch, Durability::Visible)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes objects of new files whose records a crash has taken. Their ids are among those that
    /// were taken from the table last: the next ones are taken anew.
    fn remove_lost_objects(&self) -> Result<()> {
        let end = self.writer.lock().next_id;
        let recent = end.saturating_sub(IDS).max(ROOT + 1)..end;
        for id in recent.filter(|id| self.contents.has_object(*id)) {
            match self.locate(id) {
                Err(Error::Posix(Errno::NOENT)) => self.contents.remove_object(id)?,
                located => drop(located?),
            }
        }
        Ok(())
    }

    /// Gives the record of a file the times of its object, which was open and may have been written
    /// later: whoever looks for what has changed must find it.
    fn recover_times(&self, id: FileId) -> Result<()> {
        let _writer = self.writer.lock();
        let (place, before) = self.locate(id)?;
        if !before.has(flag::OBJECT) {
            return Ok(());
        }
        let mut inode = before.clone();
        describe(&self.contents.open_object(id)?, &mut inode);
        inode.mtime_ns = inode.mtime_ns.max(before.mtime_ns);
        inode.atime_ns = inode.atime_ns.max(before.atime_ns);
        let mut batch = Batch::new();
        self.put(&mut batch, &place, Some(&before), &inode)?;
        Ok(self.table.write(&batch, Durability::Visible)?)
    }

    /// Returns the ids of files that have records in a space.
    pub(crate) fn ids_in(&self, space: Space) -> Result<Vec<FileId>> {
        let mut scan = self.table.scan(&space.range(), Direction::Forward)?;
        let mut ids = Vec::new();
        while let Some(record) = scan.next()? {
            ids.push(record.key.hash);
        }
        Ok(ids)
    }
}

//! Times and sizes that are newer in memory than in records. They go into the table together, every
//! few seconds, when somebody syncs, or when there are many.

use crate::error::{Error, Result};
use crate::quota::Transaction;
use crate::records::inode::Inode;
use crate::records::keys::FileId;
use crate::records::tablet::Tablet;
use rustix::io::Errno;

/// Most files that wait.
const PENDING_MAX: usize = 1 << 14;

/// Most files that wait while a disk is full.
const PENDING_FULL_MAX: usize = 1 << 17;

/// Files that are written while others wait.
const STEP: usize = 128;

const DAY_NS: i64 = 86_400_000_000_000;

/// How attributes in memory differ from a record, in the order of what they ask of a full disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// By the time of access at most, which may wait.
    Access,
    /// By times alone, or by any attribute of a directory. Searches need these, and records do not
    /// grow by them: the batch may use room that is kept for changes that free space.
    Times,
    /// By the size of a file.
    Size,
}

/// Result of writing attributes from memory into records.
enum Flushed {
    /// Records have them.
    Written,
    /// Times of access wait, since the disk is full.
    Kept,
}

impl Tablet {
    /// Changes times or the size of an inode in memory.
    pub(crate) fn change_pending(&self, id: FileId, change: impl FnOnce(&mut Inode)) -> Result<()> {
        let _writer = self.writer.lock();
        if let Some(inode) = self.pending.write().get_mut(&id) {
            change(inode);
            return Ok(());
        }
        self.limit_pending()?;
        let mut inode = self.inode_now(id)?;
        change(&mut inode);
        self.remember(inode);
        Ok(())
    }

    /// Puts some of what waits into records if it is too much, before a change adds to it: a change
    /// that was made must not fail for this. The caller has the writer's lock.
    pub(crate) fn limit_pending(&self) -> Result<()> {
        let waiting = self.pending.read().len();
        if waiting < PENDING_MAX {
            return Ok(());
        }
        let some = Vec::from_iter(self.pending.read().values().take(STEP).cloned());
        match self.flush_inodes(&some) {
            // A full disk takes nothing now. Some more may wait.
            Err(error) if error.errno() == Errno::NOSPC && waiting < PENDING_FULL_MAX => Ok(()),
            Ok(Flushed::Kept) if waiting >= PENDING_FULL_MAX => Err(Errno::NOSPC.into()),
            flushed => flushed.map(drop),
        }
    }

    /// Puts the times and sizes that wait in memory into records. After a failure it goes on, and
    /// returns the first one. Contents of open files are not its business. Times of access wait on
    /// while the disk is full.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table does.
    pub fn flush_pending(&self) -> Result<()> {
        let pending = Vec::from_iter(self.pending.read().values().cloned());
        let mut outcome = Ok(());
        for some in pending.chunks(STEP) {
            let _writer = self.writer.lock();
            outcome = outcome.and(self.flush_inodes(some).map(drop));
        }
        outcome
    }

    /// Puts what waits of inodes into their records. The caller has the writer's lock.
    pub(crate) fn flush_all_inodes(&self) -> Result<()> {
        let pending = Vec::from_iter(self.pending.read().values().cloned());
        pending.chunks(STEP).try_for_each(|some| self.flush_inodes(some).map(drop))
    }

    /// Puts what waits of one inode into its record.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table does.
    pub fn flush_inode(&self, id: FileId) -> Result<()> {
        let _writer = self.writer.lock();
        let pending = self.pending.read().get(&id).cloned();
        self.flush_inodes(pending.as_slice()).map(drop)
    }

    /// Puts what waits of some inodes into their records.
    fn flush_inodes(&self, inodes: &[Inode]) -> Result<Flushed> {
        let mut batch = Transaction::new();
        let mut difference = Difference::Access;
        // The size of data that is in no record yet must not be in one either.
        let is_written = |inode: &&Inode| !self.files.is_dirty(inode.id);
        let inodes = Vec::from_iter(inodes.iter().filter(is_written));
        for inode in &inodes {
            difference = difference.max(self.put_pending(&mut batch, inode)?);
        }
        if !batch.is_empty() {
            batch.frees = difference == Difference::Times;
            match self.commit(batch) {
                Err(error) if difference == Difference::Access && error.errno() == Errno::NOSPC => {
                    return Ok(Flushed::Kept);
                }
                committed => committed?,
            }
        }
        inodes.iter().for_each(|inode| self.forget_pending(inode.id));
        Ok(Flushed::Written)
    }

    /// Puts everything that waits into records, but for those that are damaged. The caller has the
    /// writer's lock.
    pub(crate) fn flush_what_is_sound(&self) -> Result<()> {
        let pending = Vec::from_iter(self.pending.read().values().cloned());
        for inode in &pending {
            match self.flush_inodes(std::slice::from_ref(inode)) {
                Err(Error::Corrupt(_)) | Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Puts what waits of an inode into its record, and returns how that differed.
    fn put_pending(&self, batch: &mut Transaction, pending: &Inode) -> Result<Difference> {
        let (place, before) = match self.locate(pending.id) {
            Err(Error::Posix(Errno::NOENT)) => return Ok(Difference::Access),
            located => located?,
        };
        let mut inode = before.clone();
        self.overlay(&mut inode);
        if inode != before {
            self.write_inode(batch, &place, Some(&before), &inode)?;
        }
        let Inode { atime_ns, mtime_ns, ctime_ns, .. } = inode;
        let accessed = Inode { atime_ns, ..before };
        Ok(match accessed == inode {
            true => Difference::Access,
            false if inode.is_directory() => Difference::Times,
            false if (Inode { mtime_ns, ctime_ns, ..accessed }) == inode => Difference::Times,
            false => Difference::Size,
        })
    }

    /// Returns whether reading a file now changes its time of access.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does.
    pub fn is_access_due(&self, id: FileId) -> Result<bool> {
        Ok(is_access_due(&self.inode(id)?, self.now_ns()))
    }

    /// Makes what is known of a directory, and all that happened to names and attributes before,
    /// outlast a crash.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn sync_inode(&self, id: FileId) -> Result<()> {
        self.flush_inode(id)?;
        Ok(self.table.sync()?)
    }

    /// Notes that a file or a directory was read, if its time of access is older than what changed
    /// it, or than a day (relatime).
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does.
    pub fn touch_access(&self, id: FileId) -> Result<()> {
        let now_ns = self.now_ns();
        let is_due = |inode: &Inode| is_access_due(inode, now_ns);
        if self.pending.read().get(&id).is_some_and(|inode| !is_due(inode)) {
            return Ok(());
        }
        let inode = self.inode(id)?;
        match is_due(&inode) {
            true => self.change_pending(id, |inode| inode.atime_ns = now_ns),
            false => Ok(()),
        }
    }
}

/// Returns whether reading a file now changes its time of access.
fn is_access_due(inode: &Inode, now_ns: i64) -> bool {
    inode.atime_ns <= inode.mtime_ns.max(inode.ctime_ns)
        || now_ns.saturating_sub(inode.atime_ns) >= DAY_NS
}

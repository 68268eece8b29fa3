//! Delayed work: contents and times that wait in memory go into records, and the space of removed
//! files is freed.

use crate::error::Result;
use crate::namespace::Namespace;
use crate::records::keys::Space;
use canopy_store::{Batch, Durability};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Space of removed files is given back within half a second where there is less than this, in
/// bytes.
const SHORT_BYTES: u64 = 256 << 20;

/// Notes that are removed in one batch.
const SETTLED: usize = 1 << 16;

impl Namespace {
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
        outcome.and(self.tablet.flush_pending())
    }

    /// Removes objects of files that are gone for good, and the notes that objects may differ from
    /// their records where they do not: first all of that has to outlast a crash, also what is in
    /// objects, which may have taken the place of others.
    pub(crate) fn settle(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let doomed = {
            // A process that adds a tree dooms its objects until all of it is there.
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
        let frees = !doomed.is_empty();
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
        if frees {
            self.reclaims.fetch_add(1, Ordering::AcqRel);
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
        let reclaims = self.reclaims.load(Ordering::Acquire);
        match work() {
            Err(error) if error.errno() == Errno::NOSPC && self.reclaim(reclaims) => work(),
            done => done,
        }
    }

    /// Gives back the space of removed files at once. Returns whether there may be more than there
    /// was after so many reclaims.
    fn reclaim(&self, reclaims: u64) -> bool {
        if self.contents.chunks().is_some() {
            return false;
        }
        let Some(_one) = self.reclaiming.try_lock() else {
            // Somebody else is just doing it.
            drop(self.reclaiming.lock());
            return true;
        };
        let has_doomed = self.tablet.ids_in(Space::Doomed).is_ok_and(|ids| !ids.is_empty());
        if has_doomed {
            return self.settle().is_ok();
        }
        // Upkeep may have done it since the work found none.
        self.reclaims.load(Ordering::Acquire) != reclaims
    }

    /// Gives back the space of removed files if there is little: the kernel writes large files
    /// itself, and nobody hears of it when it finds the disk full.
    pub(crate) fn reclaim_if_short(&self) -> Result<()> {
        if self.contents.chunks().is_some()
            || !self.contents.has_doomed.swap(false, Ordering::AcqRel)
        {
            return Ok(());
        }
        let space = self.contents.space()?;
        if space.f_bavail.saturating_mul(space.f_frsize) >= SHORT_BYTES {
            return Ok(());
        }
        let _one = self.reclaiming.lock();
        self.settle()
    }
}

#[cfg(test)]
mod tests {
    use crate::inode::file_type;
    use crate::{
        Contents, Namespace, New, Ownership, Privileges, ROOT, Settings, create_namespace,
        system_clock,
    };
    use canopy_store::Environment;
    use canopy_store::storage::LocalStorage;
    use rustix::io::Errno;
    use std::cell::Cell;
    use std::sync::Arc;

    /// Such a change was refused, though the disk had room again.
    #[test]
    fn a_change_is_tried_again_when_upkeep_reclaims_space_just_before_it_could() {
        let place = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(place.path()).unwrap();
        let environment = Environment::system(Arc::new(storage));
        let settings = Settings::default();
        create_namespace(&environment, &settings, Ownership::ROOT, &system_clock()).unwrap();
        let contents = Contents::new(&place.path().join("contents")).unwrap();
        let namespace = Namespace::open(&environment, contents, system_clock()).unwrap();
        let tries_with = |settle: bool| {
            let tries = Cell::new(0);
            let result = namespace.with_room(|| {
                tries.set(tries.get() + 1);
                if settle {
                    namespace.settle()?;
                }
                Err::<(), _>(Errno::NOSPC.into())
            });
            assert_eq!(result.unwrap_err().errno(), Errno::NOSPC);
            tries.get()
        };
        assert_eq!(tries_with(true), 1, "there was nothing to reclaim");
        for settle in [true, false] {
            let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
            let id = namespace.create(ROOT, b"large", &new, false).unwrap().id;
            let opened = namespace.open_file(id).unwrap();
            namespace.write(&opened, Some(0), &vec![1; 1 << 20], Privileges::Keep).unwrap();
            namespace.close_file(&opened).unwrap();
            namespace.unlink(ROOT, b"large").unwrap();
            assert_eq!(tries_with(settle), 2);
            assert_eq!(tries_with(settle), 1);
        }
    }
}

//! Locks of programs, with contents: whoever gets a lock reads what others have written, and whoever
//! gives one back has sent what was written before.

use super::ClusterNamespace;
use canopy_namespace::operation::{
    FileLock, FileLocks, LockOutcome, LockOwner, LockRange, LossReport,
};
use canopy_namespace::{FileId, Result};
use rustix::io::Errno;
use std::time::Duration;

impl ClusterNamespace {
    /// Returns whether servers keep locks of programs.
    pub(crate) fn has_locks(&self) -> bool {
        self.files.operations.locks().is_some()
    }

    fn locks_of_servers(&self) -> Result<&dyn FileLocks> {
        Ok(self.files.operations.locks().ok_or(Errno::NOLCK)?)
    }
}

impl FileLocks for ClusterNamespace {
    fn test_lock(&self, id: FileId, wanted: &FileLock) -> Result<Option<FileLock>> {
        self.locks_of_servers()?.test_lock(id, wanted)
    }

    fn set_lock(&self, id: FileId, wanted: &FileLock, waits: bool) -> Result<LockOutcome> {
        let outcome = self.locks_of_servers()?.set_lock(id, wanted, waits)?;
        if outcome == LockOutcome::Set
            && let Some(file) = self.files.find(id)
        {
            file.doubt();
        }
        Ok(outcome)
    }

    fn await_lock(&self, id: FileId, wanted: &FileLock, limit: Duration) -> bool {
        self.locks_of_servers().is_ok_and(|locks| locks.await_lock(id, wanted, limit))
    }

    fn cancel_lock(&self, id: FileId, wanted: &FileLock) {
        if let Ok(locks) = self.locks_of_servers() {
            locks.cancel_lock(id, wanted);
        }
    }

    fn unlock(&self, id: FileId, owner: LockOwner, range: LockRange) -> Result<()> {
        let sent = self.files.find(id).map_or(Ok(()), |file| {
            self.files.flush(&file)?;
            self.files.operations.check_locks(id)?;
            // The error stays for close(2): many programs do not look at this one.
            if file.state.lock().has_lost { Err(Errno::IO.into()) } else { Ok(()) }
        });
        // The lock goes, too, if nothing can be sent.
        self.locks_of_servers()?.unlock(id, owner, range)?;
        sent
    }

    fn may_be_closed(&self, id: FileId, owners: &[LockOwner]) {
        if let Ok(locks) = self.locks_of_servers() {
            locks.may_be_closed(id, owners);
        }
    }

    fn may_have_locks(&self, id: FileId, owner: LockOwner) -> bool {
        self.locks_of_servers().is_ok_and(|locks| locks.may_have_locks(id, owner))
    }

    fn report_losses(&self, report: LossReport) {
        if let Ok(locks) = self.locks_of_servers() {
            locks.report_losses(report);
        }
    }
}

//! Opening a table without room for anything: to read it alone, or on a disk that is nearly full.

use super::{Opened, Options, Table};
use crate::commit::current;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::manifest::{LeaseKind, State};
use crate::names::{TableId, segment_of};
use crate::runs::SstableCache;
use rustix::io::Errno;
use std::sync::Arc;

/// Opening a table for writing takes no more than so many bytes: a manifest, a fence, and the
/// beginning of a log.
const OPENING_BYTES: u64 = 64 << 10;

impl Table {
    /// Opens a table that nobody else has open, and changes nothing in storage: logs are read into
    /// memory, and changes stay there. Returns nothing where storage has no locks: then somebody
    /// else may write the table meanwhile.
    ///
    /// # Errors
    ///
    /// Fails with `Fenced` if another process has the lock, and with `NotFound` if there is no such
    /// table. Fails with `Invalid` if its merges need another operator, and with `Corrupt` if its
    /// log is damaged.
    pub fn open_read_only(
        environment: &Environment,
        id: TableId,
        cache: Arc<SstableCache>,
        options: Options,
    ) -> Result<Option<Self>> {
        current(environment, id)?.state.check_live(id)?;
        let Some(lock) = environment.storage.lock(&id.lock())? else { return Ok(None) };
        let manifest = current(environment, id)?;
        manifest.state.check_live(id)?;
        options.check_operator(&manifest.state)?;
        let writer = manifest.state.jobs.iter().find(|job| job.kind == LeaseKind::Writer);
        let (epoch, job) = (manifest.state.epoch, writer.map_or(0, |job| job.id));
        let (lock, is_read_only) = (Some(lock), true);
        let opened = Opened { environment, id, cache, options, epoch, job, lock, is_read_only };
        let table = Table::of(opened, manifest);
        table.recover()?;
        Ok(Some(table))
    }

    /// Returns whether changes stay in memory.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns an error if changes stay in memory.
    pub(super) fn check_writable(&self) -> Result<()> {
        match self.is_read_only {
            true => Err(Error::storage(format!("table {}", self.id), Errno::ROFS)),
            false => Ok(()),
        }
    }

    /// Returns whether SSTables contain everything that was written before the table was opened.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn is_flushed(&self) -> Result<bool> {
        crate::checkpoint::is_flushed(&self.environment, self.id)
    }

    /// Returns an error unless there is room to open a table, so that an attempt that fails leaves
    /// nothing behind. Room that a killed process set aside for its log is given back first. The
    /// caller holds the lock.
    pub(super) fn make_room_to_open(
        environment: &Environment,
        id: TableId,
        state: &State,
    ) -> Result<()> {
        for listed in environment.storage.list(&id.segments(), "")? {
            let epoch = segment_of(&listed.name).map(|(epoch, _)| epoch);
            if state.log.iter().any(|start| Some(start.epoch) == epoch) {
                environment.storage.trim(&listed.name)?;
            }
        }
        environment.storage.check_room(OPENING_BYTES)
    }
}

//! Checkpoints, and reading a table without writing it.

use crate::commit::{commit, current, read_version};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::key::{Key, KeyRange, KeyRef};
use crate::manifest::{Hold, Manifest, Version};
use crate::merge::MergeOperator;
use crate::names::TableId;
use crate::runs::{OpenRun, SstableCache};
use crate::scan::{Direction, Scan};
use crate::table::Options;
use crate::view::Layers;
use std::sync::Arc;

/// Makes a checkpoint of what a table has in SSTables now, and returns its id and the manifest that
/// it keeps. `lifetime_ms` says how long it is kept; without one, until it is released.
///
/// # Errors
///
/// Fails with `NotFound` if there is no such table, with `Contended` if others keep changing it,
/// and as storage does.
pub fn checkpoint(
    environment: &Environment,
    table: TableId,
    lifetime_ms: Option<u64>,
) -> Result<(u64, Manifest)> {
    let deadline_ms = lifetime_ms.map(|ms| environment.clock.now_ms().saturating_add(ms));
    let hold = deadline_ms.map_or(Hold::Forever, Hold::Until);
    let (manifest, id) = commit(environment, table, None, |state, versions| {
        state.check_live(table)?;
        Ok(state.add_checkpoint(versions.this, hold))
    })?;
    Ok((id, manifest))
}

/// Keeps a checkpoint for longer: `lifetime_ms` from now. An error says that it is gone.
///
/// # Errors
///
/// Fails with `NotFound` if the table or the checkpoint is gone, with `Contended` if others keep
/// changing the table, and as storage does.
pub fn renew(
    environment: &Environment,
    table: TableId,
    checkpoint: u64,
    lifetime_ms: u64,
) -> Result<()> {
    let deadline_ms = environment.clock.now_ms().saturating_add(lifetime_ms);
    commit(environment, table, None, |state, _| {
        let mut all = state.checkpoints.iter_mut();
        match all.find(|one| one.id == checkpoint) {
            Some(found) if matches!(found.hold, Hold::Until(_)) => {
                found.hold = Hold::Until(deadline_ms);
                Ok(())
            }
            _ => Err(gone(table, checkpoint)),
        }
    })?;
    Ok(())
}

/// Keeps a checkpoint that was made for some time until it is released. An error says that it is
/// gone.
///
/// # Errors
///
/// Fails with `NotFound` if the table or the checkpoint is gone, with `Contended` if others keep
/// changing the table, and as storage does.
pub fn keep(environment: &Environment, table: TableId, checkpoint: u64) -> Result<()> {
    commit(environment, table, None, |state, _| {
        let mut all = state.checkpoints.iter_mut();
        match all.find(|one| one.id == checkpoint) {
            Some(found) if matches!(found.hold, Hold::Until(_) | Hold::Forever) => {
                found.hold = Hold::Forever;
                Ok(())
            }
            _ => Err(gone(table, checkpoint)),
        }
    })?;
    Ok(())
}

/// Lets a checkpoint go, if it is still there.
///
/// # Errors
///
/// Fails with `NotFound` if there is no such table, with `Contended` if others keep changing it,
/// and as storage does.
pub fn release(environment: &Environment, table: TableId, checkpoint: u64) -> Result<()> {
    commit(environment, table, None, |state, _| {
        let is_clones = |hold| matches!(hold, Hold::Pending { .. } | Hold::Confirmed { .. });
        state.checkpoints.retain(|one| one.id != checkpoint || is_clones(one.hold));
        Ok(())
    })?;
    Ok(())
}

/// Returns whether SSTables have all that was written to a table: its log has nothing to add to a
/// checkpoint. Somebody may write the next moment.
///
/// # Errors
///
/// Fails with `NotFound` if there is no such table, with `Corrupt` if its manifest is damaged, and
/// as storage does.
pub fn is_flushed(environment: &Environment, table: TableId) -> Result<bool> {
    let state = current(environment, table)?.state;
    let [start] = state.log[..] else { return Ok(false) };
    match environment.storage.read(&table.segment(start.epoch, start.segment)) {
        Err(error) if error.is_not_found() => Ok(true),
        // A writer begins a segment before it has anything for it.
        read => read.map(|bytes| bytes.iter().all(|byte| *byte == 0)),
    }
}

/// Returns the current manifest of a table, for those who look into it.
///
/// # Errors
///
/// Fails with `NotFound` if there is no such table, with `Corrupt` if its manifest is damaged, and
/// as storage does.
pub fn inspect(environment: &Environment, table: TableId) -> Result<Manifest> {
    current(environment, table)
}

/// Returns the manifest of a version that a checkpoint keeps.
///
/// # Errors
///
/// Fails with `NotFound` if the version is gone, with `Corrupt` if its manifest is damaged, and as
/// storage does.
pub fn inspect_version(
    environment: &Environment,
    table: TableId,
    version: Version,
) -> Result<Manifest> {
    read_version(environment, table, version)
}

fn gone(table: TableId, checkpoint: u64) -> Error {
    Error::NotFound(format!("checkpoint {checkpoint} of table {table} (its time was over)"))
}

/// A read-only view of a table's SSTables at one moment.
pub struct Reader {
    manifest: Manifest,
    view: Layers,
}

impl Reader {
    /// Reads what is in SSTables now, or at a checkpoint. Without a checkpoint, compactions may
    /// remove SSTables under the reader, which is then an error.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if the table or the checkpoint is gone, with `Invalid` if its merges
    /// need another operator, and as storage does.
    pub fn open(
        environment: &Environment,
        table: TableId,
        checkpoint: Option<u64>,
        cache: &Arc<SstableCache>,
        options: &Options,
    ) -> Result<Self> {
        let mut manifest = current(environment, table)?;
        if let Some(checkpoint) = checkpoint {
            let mut all = manifest.state.checkpoints.iter();
            let found = all.find(|one| one.id == checkpoint);
            let version = found.ok_or_else(|| gone(table, checkpoint))?.version;
            manifest = read_version(environment, table, version)?;
        }
        manifest.state.check_live(table)?;
        options.check_operator(&manifest.state)?;
        let view = Layers::of(&manifest.state, cache, options.operator.clone());
        Ok(Reader { manifest, view })
    }

    /// Returns the state that is read.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn runs(&self) -> &[OpenRun] {
        &self.view.runs
    }

    pub(crate) fn operator(&self) -> Option<Arc<dyn MergeOperator>> {
        self.view.operator.clone()
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn get(&self, key: KeyRef<'_>) -> Result<Option<Vec<u8>>> {
        self.view.get(key, u64::MAX)
    }

    /// Returns the values of keys, in their order.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        self.view.get_many(keys, u64::MAX)
    }

    /// Returns the records of a range.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Scan> {
        self.view.scan(range, u64::MAX, direction)
    }
}

//! Collecting: `docs/engine.md`, "Collecting". Any process may do it for any table, at any time.

use crate::commit::{commit, current, read_version};
use crate::environment::Environment;
use crate::error::Result;
use crate::landmarks::is_landmark;
use crate::manifest::{Hold, Manifest, Phase, State};
use crate::names::{Object, SstableName, TableId, sstable_of, version_of};
use crate::storage::Listed;
use std::collections::{BTreeMap, BTreeSet};

/// Counts and sizes of the removed objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Removed manifests.
    pub manifests: u64,
    /// Removed SSTables.
    pub sstables: u64,
    /// Removed segments of logs.
    pub segments: u64,
    /// The sizes of all removed objects together.
    pub bytes: u64,
}

/// Removes the unreferenced objects of a table, after expired leases and checkpoints are given up.
/// Leftovers of a creation that never ended are removed, too. One manifest of a deleted table stays
/// for ever as a tombstone, so that no process that slept brings the table back.
///
/// # Errors
///
/// Fails with `NotFound` if there is no such table, with `Contended` if others keep changing it,
/// and as storage does.
pub fn collect(environment: &Environment, table: TableId) -> Result<Collected> {
    let manifest = give_up(environment, table)?;
    let mut collected = Collected::default();
    for (listed, object) in garbage(environment, table, &manifest)?.unwrap_or_default() {
        environment.storage.remove(&listed.name)?;
        collected.bytes += listed.size_bytes;
        match object {
            Object::Manifest(_) => collected.manifests += 1,
            Object::Sstable(_) => collected.sstables += 1,
            Object::Segment { .. } | Object::LogEnd { .. } => collected.segments += 1,
            Object::Lock => {}
        }
    }
    Ok(collected)
}

/// Returns the objects of a table that nothing refers to: what [`collect`] would remove now, but
/// for what jobs and checkpoints keep whose time is over. First SSTables, then segments, then
/// manifests, each by name. Returns nothing if `manifest` is not the current one any more.
///
/// # Errors
///
/// Fails as storage does, and with `Corrupt` if a manifest is damaged.
pub fn garbage(
    environment: &Environment,
    table: TableId,
    manifest: &Manifest,
) -> Result<Option<Vec<(Listed, Object)>>> {
    let Some(kept) = kept(environment, table, manifest)? else { return Ok(None) };
    let state = &manifest.state;
    let is_deleted = state.phase == Phase::Deleted;
    let mut garbage = Vec::new();

    for listed in environment.storage.list(&table.sstables(), "")? {
        let Some(name) = sstable_of(&listed.name) else { continue };
        // Jobs that this manifest does not know were opened since.
        let is_closed = name.job < state.next_job && (is_deleted || state.job(name.job).is_none());
        if is_closed && !kept.sstables.contains(&name) {
            garbage.push((listed, Object::Sstable(name)));
        }
    }

    let segments = environment.storage.list(&table.segments(), "")?;
    let named = segments.into_iter().filter_map(|one| match Object::parse(&one.name)?.1 {
        object @ (Object::Segment { .. } | Object::LogEnd { .. }) => Some((one, object)),
        _ => None,
    });
    let named = Vec::from_iter(named);
    let last = BTreeMap::from_iter(named.iter().filter_map(|(_, object)| match object {
        Object::Segment { epoch, number } => Some((*epoch, *number)),
        _ => None,
    }));
    for (listed, object) in named {
        let (epoch, number, is_last) = match object {
            Object::Segment { epoch, number } => (epoch, number, last[&epoch] == number),
            Object::LogEnd { epoch, number } => (epoch, number, false),
            _ => continue,
        };
        let start = state.log.iter().find(|start| start.epoch == epoch);
        // Epochs that this manifest does not know began since.
        let is_over = epoch <= state.epoch
            && (is_deleted || start.is_none_or(|start| number < start.segment));
        // The last one of an epoch keeps a writer who sleeps from adding to it.
        if is_over && (is_deleted || !is_last) {
            garbage.push((listed, object));
        }
    }

    let current = manifest.version.number;
    // Where listings are not trusted, others find the current version by them.
    let stays =
        |version| !environment.storage.has_ordered_listings() && is_landmark(version, current);
    for listed in environment.storage.list(&table.manifests(), "")? {
        let Some(version) = version_of(&listed.name) else { continue };
        if version < current && !kept.versions.contains(&version) && !stays(version) {
            garbage.push((listed, Object::Manifest(version)));
        }
    }
    Ok(Some(garbage))
}

/// Objects that the current manifest and its checkpoints refer to.
struct LiveObjects {
    sstables: BTreeSet<SstableName>,
    versions: BTreeSet<u64>,
}

/// Returns what is kept, or nothing if the manifest is not current any more.
fn kept(
    environment: &Environment,
    table: TableId,
    manifest: &Manifest,
) -> Result<Option<LiveObjects>> {
    let mut kept = LiveObjects { sstables: BTreeSet::new(), versions: BTreeSet::new() };
    let mut add = |state: &State| {
        let own = state.sstables().filter(|sstable| sstable.id.table == table);
        kept.sstables.extend(own.map(|sstable| sstable.id.name));
    };
    if manifest.state.phase != Phase::Deleted {
        add(&manifest.state);
    }
    for checkpoint in &manifest.state.checkpoints {
        match read_version(environment, table, checkpoint.version) {
            Err(error) if error.is_not_found() => return Ok(None),
            version => add(&version?.state),
        }
    }
    let versions = manifest.state.checkpoints.iter().map(|checkpoint| checkpoint.version.number);
    kept.versions.extend(versions);
    Ok(Some(kept))
}

/// Closes jobs and checkpoints whose time is over, drops parents that are not needed any more and
/// gives up a creation that took too long. Returns the current manifest.
fn give_up(environment: &Environment, table: TableId) -> Result<Manifest> {
    loop {
        let manifest = current(environment, table)?;
        let mut state = manifest.state.clone();
        let now_ms = environment.clock.now_ms();
        state.jobs.retain(|job| job.deadline_ms.is_none_or(|deadline| now_ms < deadline));
        if state.phase == Phase::Deleted {
            state.jobs.clear();
        }
        if matches!(state.phase, Phase::Creating { deadline_ms } if deadline_ms <= now_ms) {
            state.phase = Phase::Deleted;
        }
        let mut held = Vec::new();
        for checkpoint in &manifest.state.checkpoints {
            if is_held(environment, table, checkpoint.id, checkpoint.hold, now_ms)? {
                held.push(checkpoint.clone());
            }
        }
        state.checkpoints = held;
        drop_parents(environment, table, &mut state)?;
        if state == manifest.state {
            return Ok(manifest);
        }
        let (before, changed) = (manifest.version, state);
        let committed = commit(environment, table, Some(&manifest), |state, versions| {
            let is_same = versions.before == before;
            if is_same {
                *state = changed.clone();
            }
            Ok(is_same)
        })?;
        if let (manifest, true) = committed {
            return Ok(manifest);
        }
    }
}

/// Returns whether a checkpoint is still needed.
fn is_held(
    environment: &Environment,
    table: TableId,
    checkpoint: u64,
    hold: Hold,
    now_ms: u64,
) -> Result<bool> {
    Ok(match hold {
        Hold::Forever => true,
        Hold::Until(deadline_ms) | Hold::Pending { deadline_ms, .. } => now_ms < deadline_ms,
        Hold::Confirmed { clone } => match current(environment, clone) {
            // It was there before anything was confirmed, and never ends to be.
            Err(error) if error.is_not_found() => true,
            manifest => {
                let mut state = manifest?.state;
                if matches!(state.phase, Phase::Creating { deadline_ms } if deadline_ms <= now_ms) {
                    state = give_up_creation(environment, clone)?;
                }
                let mut parents = state.parents.iter();
                let is_gone = state.phase == Phase::Deleted && state.checkpoints.is_empty();
                let refers = |parent: &&crate::manifest::Parent| {
                    parent.table == table && parent.checkpoint == checkpoint
                };
                !is_gone && parents.any(|parent| refers(&parent))
            }
        },
    })
}

/// Deletes a table whose creation took too long, unless it was finished after all.
fn give_up_creation(environment: &Environment, table: TableId) -> Result<State> {
    let (manifest, ()) = commit(environment, table, None, |state, _| {
        if matches!(state.phase, Phase::Creating { .. }) {
            state.phase = Phase::Deleted;
        }
        Ok(())
    })?;
    Ok(manifest.state)
}

/// Drops the parents none of whose SSTables is referred to any more.
fn drop_parents(environment: &Environment, table: TableId, state: &mut State) -> Result<()> {
    if state.parents.is_empty() || matches!(state.phase, Phase::Creating { .. }) {
        return Ok(());
    }
    let mut referred = BTreeSet::new();
    if state.phase != Phase::Deleted {
        referred.extend(state.sstables().map(|sstable| sstable.id.table));
    }
    for checkpoint in &state.checkpoints {
        match read_version(environment, table, checkpoint.version) {
            // Somebody else went further: then this state is not committed.
            Err(error) if error.is_not_found() => return Ok(()),
            version => referred.extend(version?.state.sstables().map(|sstable| sstable.id.table)),
        }
    }
    state.parents.retain(|parent| referred.contains(&parent.table));
    Ok(())
}

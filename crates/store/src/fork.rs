//! Clones, ranges handed over, deletion: `docs/engine.md`, "Clones".

use crate::commit::{commit, create, current, read_version};
use crate::environment::Environment;
use crate::error::{Contended, Error, Invalid, Result};
use crate::key::KeyRange;
use crate::manifest::{Hold, Manifest, Parent, Phase, State, Version};
use crate::names::TableId;
use std::collections::BTreeSet;

/// Base of a clone: a table as it is now, or at a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Base {
    /// The table.
    pub table: TableId,
    /// The checkpoint; without one, what is in SSTables now.
    pub checkpoint: Option<u64>,
}

/// Others may give up a creation that takes longer.
const CREATION_MS: u64 = 10 * 60_000;

/// Creates a table that has what `bases` have in `range`, without copying a record. Where several
/// have a key, the first one's record counts. They must have the same layout and merge operator.
///
/// # Errors
///
/// Fails with `Invalid` if there are no bases or they differ, and with `NotFound` if one is gone.
/// Fails with `Contended` if it took too long, and as storage does.
pub fn clone(environment: &Environment, bases: &[Base], range: &KeyRange) -> Result<TableId> {
    let clone = TableId::random(environment);
    let deadline_ms = environment.clock.now_ms().saturating_add(CREATION_MS);
    let hold = Hold::Pending { clone, deadline_ms };
    let mut parents = Vec::new();
    let mut manifests = Vec::new();
    for base in bases {
        manifests.push(hold_base(environment, base, hold, &mut parents)?);
    }
    let state = begin(&manifests, parents, range, deadline_ms)?;
    let manifest = create(environment, clone, state)?;
    for parent in &manifest.state.parents {
        confirm(environment, clone, parent)?;
    }
    commit(environment, clone, Some(&manifest), |state, _| match state.phase {
        Phase::Creating { .. } => {
            state.phase = Phase::Live;
            Ok(())
        }
        // An attempt whose outcome was not known may have succeeded.
        Phase::Live => Ok(()),
        Phase::Deleted => Err(given_up(clone)),
    })?;
    Ok(clone)
}

fn given_up(clone: TableId) -> Error {
    Contended::Clone(clone).into()
}

/// Holds a checkpoint in a table, and in all tables whose SSTables it refers to. Returns what it
/// keeps.
fn hold_base(
    environment: &Environment,
    base: &Base,
    hold: Hold,
    parents: &mut Vec<Parent>,
) -> Result<Manifest> {
    let (committed, (checkpoint, version)) =
        commit(environment, base.table, None, |state, versions| {
            state.check_live(base.table)?;
            let version = match base.checkpoint {
                None => versions.this,
                Some(id) => version_of(state, id, base.table)?,
            };
            Ok((state.add_checkpoint(version, hold), version))
        })?;
    parents.push(Parent { table: base.table, checkpoint });
    let manifest = match committed.version == version {
        true => committed,
        false => read_version(environment, base.table, version)?,
    };
    let tables = BTreeSet::from_iter(manifest.state.sstables().map(|sstable| sstable.id.table));
    for parent in &manifest.state.parents {
        if tables.contains(&parent.table) {
            let (_, checkpoint) = commit(environment, parent.table, None, |state, _| {
                let version = version_of(state, parent.checkpoint, parent.table)?;
                Ok(state.add_checkpoint(version, hold))
            })?;
            parents.push(Parent { table: parent.table, checkpoint });
        }
    }
    Ok(manifest)
}

fn version_of(state: &State, checkpoint: u64, table: TableId) -> Result<Version> {
    let found = state.checkpoints.iter().find(|one| one.id == checkpoint);
    found.map(|one| one.version).ok_or_else(|| {
        Error::NotFound(format!("checkpoint {checkpoint} of table {table} (its time was over)"))
    })
}

/// Returns the state that a clone begins with.
fn begin(
    bases: &[Manifest],
    parents: Vec<Parent>,
    range: &KeyRange,
    deadline_ms: u64,
) -> Result<State> {
    let Some(first) = bases.first() else {
        return Err(Invalid::NoBase.into());
    };
    let layout = first.state.layout.clone();
    let merge_operator = first.state.merge_operator.clone();
    let differs = |base: &&Manifest| {
        base.state.layout != layout || base.state.merge_operator != merge_operator
    };
    if bases.iter().any(|base| differs(&base)) {
        return Err(Invalid::DifferentTables.into());
    }
    let runs = bases.iter().flat_map(|base| {
        let range = base.state.range.intersection(range);
        base.state.runs.iter().map(move |run| run.clone().within(&range))
    });
    Ok(State {
        phase: Phase::Creating { deadline_ms },
        layout,
        merge_operator,
        range: range.clone(),
        epoch: 0,
        log: Vec::new(),
        next_job: 0,
        jobs: Vec::new(),
        runs: runs.filter(|run| !run.sstables.is_empty()).collect(),
        parents,
        next_checkpoint: 0,
        checkpoints: Vec::new(),
    })
}

/// Keeps a parent's checkpoint for as long as the clone refers to it.
fn confirm(environment: &Environment, clone: TableId, parent: &Parent) -> Result<()> {
    commit(environment, parent.table, None, |state, _| {
        let mut all = state.checkpoints.iter_mut();
        let found = all.find(|one| one.id == parent.checkpoint).ok_or_else(|| given_up(clone))?;
        found.hold = Hold::Confirmed { clone };
        Ok(())
    })?;
    Ok(())
}

/// Takes all keys outside of `range` away from a table, which another one has now, for example.
/// Its writer must have flushed.
///
/// # Errors
///
/// Fails with `NotFound` if there is no such table, with `Contended` if others keep changing it,
/// and as storage does.
pub fn restrict(environment: &Environment, table: TableId, range: &KeyRange) -> Result<()> {
    commit(environment, table, None, |state, _| {
        state.check_live(table)?;
        state.range = state.range.intersection(range);
        let runs = std::mem::take(&mut state.runs).into_iter();
        let runs = runs.map(|run| run.within(&state.range));
        state.runs = runs.filter(|run| !run.sstables.is_empty()).collect();
        Ok(())
    })?;
    Ok(())
}

/// Deletes a table. Its clones, and readers that have a checkpoint, lose nothing.
///
/// # Errors
///
/// Fails with `NotFound` if there is no such table, with `Contended` if others keep changing it,
/// and as storage does.
pub fn delete(environment: &Environment, table: TableId) -> Result<()> {
    match current(environment, table)?.state.phase {
        Phase::Deleted => Ok(()),
        _ => {
            commit(environment, table, None, |state, _| {
                state.phase = Phase::Deleted;
                Ok(())
            })?;
            Ok(())
        }
    }
}

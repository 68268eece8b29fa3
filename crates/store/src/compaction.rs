//! Compaction: runs next to each other become one. Any process may do it for any table.

use crate::commit::{commit, current};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::key::KeyRange;
use crate::manifest::{Hold, JobKind, Run, SstableId, State};
use crate::names::TableId;
use crate::output::Output;
use crate::scan::{Direction, Input, Older, Scan};
use crate::table::Options;
use crate::tables::{OpenRun, Tables};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// Returns the runs that should become one, by their places in the state, if any should.
///
/// Runs are sorted into tiers by size, each `fanout` times larger than the one before. `fanout`
/// runs next to each other that are in one tier or in lower ones become one; so a record is
/// written about once a tier. The oldest run is merged with all others once they are as large as
/// it, so that what is overwritten takes no more than as much again.
pub(crate) fn pick(state: &State, options: &Options) -> Option<Range<usize>> {
    let is_busy = |run: &Run| {
        let id = run.sstables.first().map(|sstable| sstable.id);
        state.jobs.iter().any(|job| match &job.kind {
            JobKind::Compaction(inputs) => id.is_some_and(|id| inputs.contains(&id)),
            _ => false,
        })
    };
    let fanout = options.fanout.max(2);
    let sizes = Vec::from_iter(state.runs.iter().map(Run::size_bytes));
    let busy = Vec::from_iter(state.runs.iter().map(is_busy));
    let newer: u64 = sizes.iter().take(sizes.len().saturating_sub(1)).sum();
    if sizes.len() >= fanout && sizes.last().is_some_and(|oldest| newer >= *oldest) {
        let all = 0..sizes.len();
        if !busy.contains(&true) {
            return Some(all);
        }
    }
    let tier = |bytes: u64| (bytes / options.memtable_bytes.max(1)).max(1).ilog(fanout as u64);
    let most = sizes.iter().map(|bytes| tier(*bytes)).max()?;
    (0..=most).find_map(|most| {
        let fits = |at: usize| !busy[at] && tier(sizes[at]) <= most;
        let start = (0..sizes.len()).find(|at| fits(*at))?;
        let end = (start..sizes.len()).find(|at| !fits(*at)).unwrap_or(sizes.len());
        (end - start >= fanout).then_some(start..end)
    })
}

/// Finds runs of a table that should become one, and makes them one. Returns whether there were
/// any.
pub fn compact(
    environment: &Environment,
    table: TableId,
    tables: &Arc<Tables>,
    options: &Options,
) -> Result<bool> {
    compact_picked(environment, table, tables, options, |state| pick(state, options))
}

/// Makes all runs of a table one. Returns whether there were several.
pub fn compact_all(
    environment: &Environment,
    table: TableId,
    tables: &Arc<Tables>,
    options: &Options,
) -> Result<bool> {
    compact_picked(environment, table, tables, options, |state| {
        let is_busy = state.jobs.iter().any(|job| matches!(job.kind, JobKind::Compaction(_)));
        (state.runs.len() > 1 && !is_busy).then_some(0..state.runs.len())
    })
}

fn compact_picked(
    environment: &Environment,
    table: TableId,
    tables: &Arc<Tables>,
    options: &Options,
    pick: impl Fn(&State) -> Option<Range<usize>>,
) -> Result<bool> {
    if pick(&current(environment, table)?.state).is_none() {
        return Ok(false);
    }
    let deadline_ms = environment.clock.now_ms().saturating_add(options.job_ms);
    let (manifest, picked) = commit(environment, table, None, |state, _| {
        state.check_live(table)?;
        options.check_operator(state)?;
        let Some(places) = pick(state) else { return Ok(None) };
        let inputs = sstables_of(&state.runs[places.clone()]);
        Ok(Some((state.open_job(JobKind::Compaction(inputs), Some(deadline_ms)), places)))
    })?;
    let Some((job, places)) = picked else { return Ok(false) };
    let state = &manifest.state;
    let merged = merge(environment, table, tables, options, state, (job, places.clone()));
    let merged = merged.inspect_err(|_| {
        // What was written can go at once; if this fails, too, then after the deadline.
        let _ = commit(environment, table, None, |state, _| state.close_job(job));
    })?;
    let inputs = &state.runs[places];
    let grace = Hold::Until(environment.clock.now_ms().saturating_add(options.grace_ms));
    commit(environment, table, Some(&manifest), |state, versions| {
        state.check_live(table)?;
        if state.sstables().any(|sstable| sstable.id.table == table && sstable.id.name.job == job) {
            // An attempt whose outcome was not known succeeded.
            return Ok(());
        }
        state.close_job(job)?;
        // For those who read what is replaced now.
        state.add_checkpoint(versions.before, grace);
        replace(state, inputs, merged.clone())
    })
    .inspect_err(|_| {
        let _ = commit(environment, table, None, |state, _| state.close_job(job));
    })?;
    Ok(true)
}

fn sstables_of(runs: &[Run]) -> Vec<SstableId> {
    runs.iter().flat_map(|run| &run.sstables).map(|sstable| sstable.id).collect()
}

/// Writes the records of runs next to each other as one run.
fn merge(
    environment: &Environment,
    table: TableId,
    tables: &Arc<Tables>,
    options: &Options,
    state: &State,
    (job, places): (u64, Range<usize>),
) -> Result<Run> {
    let older = if places.end == state.runs.len() { Older::Absent } else { Older::Present };
    let all = KeyRange::all();
    let (mut inputs, mut range_deletes) = (Vec::new(), Vec::new());
    for run in &state.runs[places] {
        let run = OpenRun::new(run.clone(), tables.clone());
        let input = Input::of_run(&run, &all, Direction::Forward)?;
        if older == Older::Present {
            range_deletes.extend(input.range_deletes.iter().cloned());
        }
        inputs.push(input);
    }
    let scan = Scan::new(inputs, Direction::Forward, older, options.operator.clone());
    let output = Output {
        environment,
        table,
        layout: &state.layout,
        sstable_bytes: options.sstable_bytes,
        job,
        next_number: &AtomicU32::new(0),
    };
    output.write(scan, &range_deletes)
}

/// Puts a run in the place of those that were merged, which must be as they were: an SSTable can be
/// in several runs with other ranges, and what others took from a range is not in all of them.
fn replace(state: &mut State, inputs: &[Run], merged: Run) -> Result<()> {
    let start = state.runs.windows(inputs.len()).position(|runs| runs == inputs);
    let Some(start) = start else {
        return Err(Error::Fenced("the runs that were merged have changed".into()));
    };
    let new = Some(merged.within(&state.range)).filter(|run| !run.sstables.is_empty());
    state.runs.splice(start..start + inputs.len(), new);
    Ok(())
}

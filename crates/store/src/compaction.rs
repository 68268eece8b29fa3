//! Compaction: runs next to each other become one. Any process may do it for any table.

use crate::commit::{commit, current};
use crate::environment::Environment;
use crate::error::{Fenced, Result};
use crate::key::KeyRange;
use crate::manifest::{Hold, LeaseKind, Run, SstableId, State};
use crate::names::{SstableName, TableId};
use crate::output::{Lease, Output};
use crate::runs::{OpenRun, SstableCache};
use crate::scan::{Direction, Older, Scan, ScanInput};
use crate::storage::Reserve;
use crate::table::Options;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// A memtable takes some five times the bytes that its SSTables have; runs of the lowest tier are
/// smaller than a memtable.
const LOWEST_TIER: u64 = 4;

/// Time for readers of replaced runs, where storage is nearly full. Those who find them gone begin again.
const SHORT_GRACE_MS: u64 = 2000;

/// Where storage is nearly full, all runs become one once the newer ones have this part of the bytes or of
/// the records of the oldest.
const SHORT_RATIO: u64 = 32;

/// Merges leave this part of the reserve of storage.
const MERGES_LEAVE: Reserve = Reserve::Half;

/// Runs next to each other that should become one, by their places in the state, and the keys of them that
/// are merged. All others stay as they are.
struct Picked {
    places: Range<usize>,
    range: KeyRange,
}

/// Returns all keys of runs.
fn whole(places: Range<usize>) -> Picked {
    Picked { places, range: KeyRange::all() }
}

/// Returns the runs that should become one, by their places in the state, if any should.
pub(crate) fn pick(state: &State, options: &Options) -> Option<Range<usize>> {
    let is_busy = |run: &Run| {
        let id = run.sstables.first().map(|sstable| sstable.id);
        state.jobs.iter().any(|job| match &job.kind {
            LeaseKind::Compaction(inputs) => id.is_some_and(|id| inputs.contains(&id)),
            _ => false,
        })
    };
    let runs = state.runs.iter().map(|run| (!is_busy(run)).then(|| run.size_bytes()));
    pick_of(&Vec::from_iter(runs), options)
}

/// Returns which of runs should become one, given their sizes, the newest first; those that others
/// merge have none.
///
/// Runs are sorted into tiers by size, each `fanout` times larger than the one before. `fanout`
/// runs of one tier become one, with those between and beside them that are in lower tiers; so a
/// record is written about once a tier. A large run is not written again for a few small ones. The
/// oldest run is merged with all others once they are as large as it, so that what is overwritten
/// takes no more than as much again.
fn pick_of(runs: &[Option<u64>], options: &Options) -> Option<Range<usize>> {
    let fanout = options.fanout.max(2);
    // Consider only runs older than every run in another job; newer runs do not matter.
    let start = runs.iter().rposition(Option::is_none).map_or(0, |busy| busy + 1);
    let free = Vec::from_iter(runs[start..].iter().copied().flatten());
    if free.len() >= fanout
        && let Some((oldest, newer)) = free.split_last()
        && newer.iter().sum::<u64>() >= *oldest
    {
        return Some(start..runs.len());
    }
    let lowest = (options.memtable_bytes / LOWEST_TIER).max(1);
    let tier = |bytes: u64| (bytes / lowest).max(1).ilog(fanout as u64) as usize;
    let tiers = Vec::from_iter(runs.iter().map(|bytes| bytes.map(tier)));
    let most = tiers.iter().copied().flatten().max()?;
    (0..=most).find_map(|most| {
        let fits = |at: &usize| tiers[*at].is_some_and(|tier| tier <= most);
        let mut start = 0;
        while start < runs.len() {
            let end = (start..runs.len()).find(|at| !fits(at)).unwrap_or(runs.len());
            let of_tier = tiers[start..end].iter().filter(|tier| **tier == Some(most)).count();
            // Few of each tier, but one among the other, would never become fewer.
            if of_tier >= fanout || end - start > fanout * (most + 1) {
                return Some(start..end);
            }
            start = end + 1;
        }
        None
    })
}

/// Finds runs of a table that should become one, and makes them one. Returns whether there were
/// any.
///
/// # Errors
///
/// Fails with `Fenced` if others have ended the job or changed the runs, with `Contended` if they
/// keep changing the table, and as storage does.
pub fn compact(
    environment: &Environment,
    table: TableId,
    cache: &Arc<SstableCache>,
    options: &Options,
) -> Result<bool> {
    compact_picked(environment, table, cache, options, |state| pick(state, options).map(whole))
}

/// Like `compact`, where storage is nearly full: a table soon becomes one run, without what was removed,
/// and the replaced runs go within seconds. With `even_few`, few newer records are enough.
///
/// # Errors
///
/// Fails as `compact` does.
pub(crate) fn compact_where_short(
    environment: &Environment,
    table: TableId,
    cache: &Arc<SstableCache>,
    options: &Options,
    even_few: bool,
) -> Result<bool> {
    let options = Options { grace_ms: options.grace_ms.min(SHORT_GRACE_MS), ..options.clone() };
    let name = table.sstable(SstableName { job: 0, number: 0 });
    let fits = |bytes: u64| environment.storage.check_reserve(&name, bytes, MERGES_LEAVE).is_ok();
    compact_picked(environment, table, cache, &options, |state| {
        let is_due = !is_busy(state) && is_worth_merging(state, even_few);
        let all = is_due.then(|| part_of_all(state, fits)).flatten();
        all.or_else(|| pick(state, &options).map(whole))
    })
}

/// Merges all runs in a range of keys that gives at most about so many bytes, so that it needs no more
/// room, and frees SSTables of the oldest run. Repeated, it makes all runs one. Returns whether there were
/// several, and an SSTable of the oldest was not too large.
///
/// # Errors
///
/// Fails as [`compact`] does.
pub fn compact_part(
    environment: &Environment,
    table: TableId,
    cache: &Arc<SstableCache>,
    options: &Options,
    bytes_max: u64,
) -> Result<bool> {
    compact_picked(environment, table, cache, options, |state| {
        (!is_busy(state)).then(|| part_of_all(state, |bytes| bytes <= bytes_max)).flatten()
    })
}

fn is_busy(state: &State) -> bool {
    state.jobs.iter().any(|job| matches!(job.kind, LeaseKind::Compaction(_)))
}

/// Returns whether the newer runs have enough that all runs should become one where storage is nearly
/// full.
fn is_worth_merging(state: &State, even_few: bool) -> bool {
    let Some((oldest, newer)) = state.runs.split_last() else { return false };
    let is_much =
        |of: fn(&Run) -> u64| newer.iter().map(of).sum::<u64>() >= of(oldest) / SHORT_RATIO;
    !newer.is_empty() && (even_few || is_much(Run::size_bytes) || is_much(Run::records))
}

/// Returns all runs, with the range of keys in which they are merged: if possible all keys. Otherwise it
/// begins where the second oldest run does, which soon is gone however many newer ones come. It ends with an
/// SSTable of the oldest run, which can go then. `fits` knows whether there is room for so many bytes.
fn part_of_all(state: &State, fits: impl Fn(u64) -> bool) -> Option<Picked> {
    let (oldest, newer) = state.runs.split_last()?;
    let first = newer.last()?.sstables.first()?;
    let start = first.info.span.intersection(&first.range).start;
    // An estimate: each delete removes an average record of the oldest run, and keys are spread evenly.
    let newer_of = |of: fn(&Run) -> u64| newer.iter().map(of).sum::<u64>();
    let records = oldest.records().max(1) as f64;
    let kept = 1.0 - newer_of(Run::deletes).min(oldest.records()) as f64 / records;
    let of_newer = newer_of(Run::size_bytes) as f64 / oldest.size_bytes().max(1) as f64;
    let merged = |bytes: u64| (bytes as f64 * (kept + of_newer)) as u64;
    let mut range = KeyRange { start, end: None };
    let mut bytes = 0;
    for sstable in &oldest.sstables {
        if sstable.range.end.as_ref().is_some_and(|end| *end <= range.start) {
            continue;
        }
        if !fits(merged(bytes + sstable.info.size_bytes)) {
            match bytes {
                0 => return None,
                _ => range.end = Some(sstable.range.start.clone()),
            }
            break;
        }
        if bytes == 0 {
            range.start = range.start.min(sstable.range.start.clone());
        }
        bytes += sstable.info.size_bytes;
    }
    Some(Picked { places: 0..state.runs.len(), range })
}

/// Makes all runs of a table one. Returns whether there were several.
///
/// # Errors
///
/// Fails with `Fenced` if others have ended the job or changed the runs, with `Contended` if they
/// keep changing the table, and as storage does.
pub fn compact_all(
    environment: &Environment,
    table: TableId,
    cache: &Arc<SstableCache>,
    options: &Options,
) -> Result<bool> {
    compact_picked(environment, table, cache, options, |state| {
        (state.runs.len() > 1 && !is_busy(state)).then(|| whole(0..state.runs.len()))
    })
}

fn compact_picked(
    environment: &Environment,
    table: TableId,
    cache: &Arc<SstableCache>,
    options: &Options,
    pick: impl Fn(&State) -> Option<Picked>,
) -> Result<bool> {
    if pick(&current(environment, table)?.state).is_none() {
        return Ok(false);
    }
    let deadline_ms = environment.clock.now_ms().saturating_add(options.job_ms);
    let (manifest, picked) = commit(environment, table, None, |state, _| {
        state.check_live(table)?;
        options.check_operator(state)?;
        let Some(picked) = pick(state) else { return Ok(None) };
        let inputs = sstables_of(&state.runs[picked.places.clone()]);
        Ok(Some((state.open_job(LeaseKind::Compaction(inputs), Some(deadline_ms)), picked)))
    })?;
    let Some((job, picked)) = picked else { return Ok(false) };
    let state = &manifest.state;
    let merged = merge(environment, table, cache, options, state, job, &picked);
    let merged = merged.inspect_err(|_| {
        // Close the job, so that the written SSTables can be collected at once. If that fails, too,
        // they can be after the deadline.
        let _ = commit(environment, table, None, |state, _| state.close_job(job));
    })?;
    let inputs = &state.runs[picked.places];
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
        replace(state, inputs, &picked.range, merged.clone())
    })
    .inspect_err(|_| {
        let _ = commit(environment, table, None, |state, _| state.close_job(job));
    })?;
    Ok(true)
}

fn sstables_of(runs: &[Run]) -> Vec<SstableId> {
    runs.iter().flat_map(|run| &run.sstables).map(|sstable| sstable.id).collect()
}

/// Writes the records of a range of runs next to each other as one run.
fn merge(
    environment: &Environment,
    table: TableId,
    cache: &Arc<SstableCache>,
    options: &Options,
    state: &State,
    job: u64,
    picked: &Picked,
) -> Result<Run> {
    let Picked { places, range } = picked;
    let older = if places.end == state.runs.len() { Older::Absent } else { Older::Present };
    let (mut inputs, mut range_deletes) = (Vec::new(), Vec::new());
    for run in &state.runs[places.clone()] {
        let run = OpenRun::new(run.clone(), cache.clone());
        let input = ScanInput::of_run(&run, range, Direction::Forward)?;
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
        kept: MERGES_LEAVE,
        lease: Some(&Lease::new(environment, table, job, options.job_ms)),
    };
    output.write(scan, &range_deletes)
}

/// Puts the merged records of a range in the place of those of some runs, which must be as they were: an
/// SSTable can be in several runs with other ranges, and what others took from a range is not in all of
/// them.
fn replace(state: &mut State, inputs: &[Run], range: &KeyRange, merged: Run) -> Result<()> {
    let start = state.runs.windows(inputs.len()).position(|runs| runs == inputs);
    let Some(start) = start else {
        return Err(Fenced::RunsChanged.into());
    };
    let mut runs = Vec::from_iter(inputs.iter().map(|run| run.clone().without(range)));
    if let Some(oldest) = runs.last_mut() {
        oldest.sstables.extend(merged.within(range).within(&state.range).sstables);
        oldest.sstables.sort_by(|one, other| one.range.start.cmp(&other.range.start));
    }
    runs.retain(|run| !run.sstables.is_empty());
    state.runs.splice(start..start + inputs.len(), runs);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSHED_BYTES: u64 = 12 << 20;

    /// Flushes into a table whose records are all overwritten again and again, at random. Returns
    /// the bytes that flushes and compactions write for each byte flushed, and the most runs.
    fn overwrite(table_bytes: u64, flushes: u64) -> (f64, usize) {
        let options = Options::default();
        let (mut runs, mut written, mut most) = (vec![table_bytes], 0, 0);
        for _ in 0..flushes {
            runs.insert(0, FLUSHED_BYTES);
            while let Some(places) =
                pick_of(&Vec::from_iter(runs.iter().copied().map(Some)), &options)
            {
                let share = |bytes: &u64| 1.0 - (*bytes as f64 / table_bytes as f64).min(1.0);
                let missing: f64 = runs[places.clone()].iter().map(share).product();
                let merged = (table_bytes as f64 * (1.0 - missing)) as u64;
                runs.splice(places, [merged]);
                written += merged;
            }
            most = most.max(runs.len());
        }
        (1.0 + written as f64 / (flushes * FLUSHED_BYTES) as f64, most)
    }

    #[test]
    fn rewritten_bytes_hardly_grow_with_the_table() {
        // Three small runs and a large one once became one: 25 and 2,400 times the bytes.
        for (table_bytes, times, runs) in [(880 << 20, 4.5, 10), (88_000 << 20, 8.0, 20)] {
            let flushes = 2 * table_bytes / FLUSHED_BYTES;
            let (written, most) = overwrite(table_bytes, flushes);
            assert!(written < times, "{table_bytes}: {written}");
            assert!(most <= runs, "{table_bytes}: {most} runs");
        }
    }

    #[test]
    fn a_large_run_is_left_alone_by_few_small_ones() {
        let [small, large, oldest] = [FLUSHED_BYTES, 1 << 30, 1 << 40].map(Some);
        let pick = |runs: &[Option<u64>]| pick_of(&[runs, &[oldest]].concat(), &Options::default());
        assert_eq!(pick(&[small, small, small, large]), None);
        assert_eq!(pick(&[small, small, small, small, large]), Some(0..4));
        assert_eq!(pick(&[small, large, small, small, small, small]), Some(2..6));
        assert_eq!(pick(&[small, None, small, small, small, small]), Some(2..6));
        assert_eq!(pick(&[large, small, large, large, small, large, None]), Some(0..6));
        let large = Some(1 << 39);
        assert_eq!(pick(&[None, small, large, large]), Some(1..5));
    }

    #[test]
    fn runs_that_are_never_of_one_tier_become_one_at_last() {
        let [small, large] = [1, FLUSHED_BYTES * 10].map(Some);
        let mut runs = vec![Some(1 << 40)];
        for at in 0..1000 {
            runs.insert(0, if at % 3 == 0 { large } else { small });
            while let Some(places) = pick_of(&runs, &Options::default()) {
                let bytes = runs[places.clone()].iter().flatten().sum();
                runs.splice(places, [Some(bytes)]);
            }
        }
        assert!(runs.len() < 20, "{}", runs.len());
    }
}

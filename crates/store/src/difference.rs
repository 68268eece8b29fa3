//! Differences between two checkpoints of a table, found without reading the runs that both share.
//!
//! Compactions and flushes keep the order of all other runs. So a shared run hides the same
//! records, and is hidden by the same records, at both checkpoints. A key is unchanged if its value
//! is unchanged between any two shared runs, and above and below them. There, the other runs agree
//! before and after: a flush adds only new changes, a compaction adds none.

use crate::checkpoint::Reader;
use crate::error::Result;
use crate::key::{KeyRange, KeyRef};
use crate::record::{Op, RecordRef};
use crate::runs::OpenRun;
use crate::scan::{Direction, Older, Scan, ScanInput};
use std::cmp::Ordering;

impl Reader {
    /// Calls `each` with the keys of a range whose values may differ from an older checkpoint of
    /// the table, some of them several times, with the value if it is known without looking. Ends
    /// once `each` returns false. Returns false if the differences cannot be known.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and with `Corrupt` or `NotFound` if an object of the table is damaged
    /// or missing.
    pub fn differences(
        &self,
        older: &Reader,
        range: &KeyRange,
        mut each: impl FnMut(KeyRef<'_>, Option<&[u8]>) -> bool,
    ) -> Result<bool> {
        let (before, now) = (&older.manifest().state, &self.manifest().state);
        if (&before.range, &before.layout) != (&now.range, &now.layout) {
            return Ok(false);
        }
        let range = now.range.intersection(range);
        for Gap { before, now, below } in gaps(older.runs(), self.runs()) {
            let (Some(mut before), Some(mut now)) =
                (self.scan_of(before, below, &range)?, self.scan_of(now, below, &range)?)
            else {
                return Ok(false);
            };
            if !compare(&mut before, &mut now, &mut each)? {
                break;
            }
        }
        Ok(true)
    }

    /// Returns all that some runs say of a range; none if they remove ranges in it.
    fn scan_of(&self, runs: &[OpenRun], below: Older, range: &KeyRange) -> Result<Option<Scan>> {
        let inputs = runs.iter().map(|run| ScanInput::of_run(run, range, Direction::Forward));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let removes = inputs.iter().any(|input| !input.range_deletes.is_empty());
        let scan = || Scan::new(inputs, Direction::Forward, below, self.operator());
        Ok((!removes).then(scan))
    }
}

/// Runs of two checkpoints that lie between the same others.
struct Gap<'a> {
    before: &'a [OpenRun],
    now: &'a [OpenRun],
    /// Whether there are others below.
    below: Older,
}

/// Returns where not the same runs lie between those that both checkpoints have.
fn gaps<'a>(mut before: &'a [OpenRun], mut now: &'a [OpenRun]) -> Vec<Gap<'a>> {
    let (mut gaps, mut at) = (Vec::new(), 0);
    while let Some(run) = now.get(at) {
        match before.iter().position(|one| one.run == run.run) {
            Some(same) => {
                gaps.push(Gap { before: &before[..same], now: &now[..at], below: Older::Present });
                (before, now, at) = (&before[same + 1..], &now[at + 1..], 0);
            }
            None => at += 1,
        }
    }
    gaps.push(Gap { before, now, below: Older::Absent });
    gaps.retain(|gap| !gap.before.is_empty() || !gap.now.is_empty());
    gaps
}

/// Calls `each` with the differences of two scans; returns whether it wants more.
fn compare(
    before: &mut Scan,
    now: &mut Scan,
    each: &mut impl FnMut(KeyRef<'_>, Option<&[u8]>) -> bool,
) -> Result<bool> {
    let (mut old, mut new) = (before.next()?.is_some(), now.next()?.is_some());
    loop {
        let (was, is) = (before.record().filter(|_| old), now.record().filter(|_| new));
        let order = match (was, is) {
            (None, None) => return Ok(true),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(was), Some(is)) => was.key.cmp(&is.key),
        };
        let goes_on = match (order, was, is) {
            (Ordering::Less, Some(was), _) => each(was.key, None),
            (Ordering::Greater, _, Some(is)) => each(is.key, value_of(is)),
            (_, Some(was), Some(is)) => {
                (was.op, was.value) == (is.op, is.value) || each(is.key, value_of(is))
            }
            _ => true,
        };
        if !goes_on {
            return Ok(false);
        }
        if order != Ordering::Greater {
            old = before.next()?.is_some();
        }
        if order != Ordering::Less {
            new = now.next()?.is_some();
        }
    }
}

fn value_of(record: RecordRef<'_>) -> Option<&[u8]> {
    (record.op == Op::Put).then_some(record.value)
}

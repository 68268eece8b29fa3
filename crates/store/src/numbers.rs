//! Numbers that a storage gives out once. A table reserves a run of them by creating an object that
//! names it. No other table gets them: not a clone, not a later table, not after the table is gone.
//!
//! Runs lie at fixed places ([`RunLayout`]): the name of a run follows from its first number alone.
//! So two that want the same numbers create the same object, and one of them succeeds. Were the
//! length free, `ids/16-16` and `ids/16-64` would both succeed.
//!
//! A listing only says where to begin. If it misses a run, the creation finds that run. Nothing of
//! this is ever removed: a table that is deleted may have given its numbers to records of clones.

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::log::create_or_confirm;
use crate::names::TableId;
use crate::storage::{Created, Storage};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Range;

/// The names of these objects begin so.
const PREFIX: &str = "ids/";

/// Such an object has no more bytes than this.
const OBJECT_BYTES_MAX: u64 = 256;

/// The places of runs in a part of the numbers: one after another, all of one length. Every process
/// that uses a storage has the same layouts, and those of different lengths share no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLayout {
    /// The numbers. Runs begin at the first one.
    pub numbers: Range<u64>,
    /// How many numbers a run has; not 0.
    pub run: u64,
}

impl RunLayout {
    /// Returns the first run that begins at a number or behind it, if there is one.
    fn run_from(&self, from: u64) -> Option<Range<u64>> {
        let Range { start, end } = self.numbers;
        let runs = from.saturating_sub(start).div_ceil(self.run);
        let first = start.checked_add(runs.checked_mul(self.run)?)?;
        let run = first..first.checked_add(self.run)?;
        (run.end <= end).then_some(run)
    }
}

fn name_of(run: &Range<u64>) -> String {
    format!("{PREFIX}{:011}-{}", run.start, run.end - run.start)
}

/// Returns the run that an object is of, by its name; nothing if no run has this name.
fn run_of(name: &str) -> Option<Range<u64>> {
    let (first, count) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let (first, count) = (first.parse::<u64>().ok()?, count.parse::<u64>().ok()?);
    let run = first..first.checked_add(count)?;
    (name_of(&run) == name).then_some(run)
}

/// Reserves a run of numbers for a table: the first free one that begins at `from` or behind it.
/// Returns nothing if there is none. After an error, a run may be reserved that nobody uses.
///
/// # Errors
///
/// Fails as storage does.
pub fn reserve_numbers(
    environment: &Environment,
    owner: TableId,
    layout: &RunLayout,
    from: u64,
) -> Result<Option<Range<u64>>> {
    let Some(mut run) = layout.run_from(from) else { return Ok(None) };
    let taken = reserved_numbers(&*environment.storage, run.start)?;
    let taken = BTreeSet::from_iter(taken.into_iter().map(|run| (run.start, run.end)));
    // The nonce distinguishes attempts of one table, whose outcome may not be known.
    let nonce = environment.random.next_u64();
    let bytes = Bytes::from(format!("{owner} {nonce:016x}\n"));
    loop {
        let is_taken = taken.contains(&(run.start, run.end));
        if !is_taken
            && create_or_confirm(environment, &name_of(&run), &bytes, false)? == Created::Now
        {
            return Ok(Some(run));
        }
        match layout.run_from(run.end) {
            Some(next) => run = next,
            None => return Ok(None),
        }
    }
}

/// Returns the reserved runs that begin at `from` or behind it, in order.
///
/// # Errors
///
/// Fails as storage does.
pub fn reserved_numbers(storage: &dyn Storage, from: u64) -> Result<Vec<Range<u64>>> {
    let after = from.checked_sub(1).map(|before| name_of(&(before..before.saturating_add(1))));
    let listed = storage.list(PREFIX, &after.unwrap_or_default())?;
    let runs = listed.iter().filter_map(|one| run_of(&one.name));
    Ok(runs.filter(|run| run.start >= from).collect())
}

/// Returns the table for which a run is reserved; nothing if nobody reserved it.
///
/// # Errors
///
/// Fails with `Corrupt` if the object is damaged, and as storage does.
pub fn owner_of_numbers(storage: &dyn Storage, run: &Range<u64>) -> Result<Option<TableId>> {
    let name = name_of(run);
    match storage.size(&name) {
        Err(error) if error.is_not_found() => return Ok(None),
        // Somebody else made it: reading it could take any time and memory.
        Ok(bytes) if bytes > OBJECT_BYTES_MAX => {
            return Err(Error::corrupt(name, format!("has {bytes} bytes")));
        }
        size => size?,
    };
    let bytes = storage.read(&name)?;
    let owner = std::str::from_utf8(&bytes).ok().and_then(|text| text.split_once(' '));
    let owner = owner.and_then(|(table, _)| TableId::parse(table));
    owner.map(Some).ok_or_else(|| Error::corrupt(name, "does not name a table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_lie_at_fixed_places() {
        let layout = RunLayout { numbers: 5..17, run: 4 };
        for (from, first) in [(0, 5), (5, 5), (6, 9), (9, 9), (10, 13), (13, 13)] {
            assert_eq!(layout.run_from(from), Some(first..first + 4), "from {from}");
        }
        assert_eq!(layout.run_from(14), None);
        assert_eq!(layout.run_from(u64::MAX), None);
        // Numbers at the end that do not fill a run are never reserved.
        assert_eq!(RunLayout { numbers: 0..7, run: 4 }.run_from(1), None);
        let last = RunLayout { numbers: u64::MAX - 3..u64::MAX, run: 2 };
        assert_eq!(last.run_from(u64::MAX - 2), None);
    }

    #[test]
    fn names_say_which_run_it_is() {
        for run in [0..65_536, 65_536..65_552, (1 << 34) - 16..1 << 34] {
            assert_eq!(run_of(&name_of(&run)), Some(run));
        }
        for name in [
            "ids/",
            "ids/7",
            "ids/7-1",
            "ids/00000000007-01",
            "ids/-00000000007-1",
            "ids/00000000007-1.tmp",
            "ids/00000000001-18446744073709551615",
            "other/00000000007-1",
        ] {
            assert_eq!(run_of(name), None, "{name}");
        }
    }
}

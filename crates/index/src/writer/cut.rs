//! Taking listings out of the shards of a source, so that newer ones take their place.
//!
//! Files of shards never change. If a shard keeps most of its rows, the manifest marks the others
//! dead. If it keeps few, these few are written anew together with the new rows, and the shard is
//! dropped. Small shards of a class that has several of similar size are also written anew. That
//! bounds their number, however often a source is updated, and each row is written anew only as
//! often as the class has sizes.
//!
//! The row of a directory itself, its values and its sealed record belong to the listing that it is
//! in. `cut_sealed` does this for sealed records.

use super::copying::{copy_listings, copy_values, read};
use super::pages::page_with_room;
use super::replaced::Replaced;
use super::{Rows, Writer, now_ns};
use crate::builder::Builder;
use crate::column::*;
use crate::error::{Error, Result};
use crate::listing_ordinal::{ListingOrdinal, ListingRange};
use crate::packed::PackedList;
use crate::pages::PageRecord;
use crate::schema::FileKind;
use crate::sealed::SealedFile;
use crate::shard::{RowRange, Shard};
use crate::shard_record::{DeadListings, ShardRecord};
use crate::source_id::SourceId;
use canopy_model::{ClassId, SourcePath};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::path::Path;

/// Rows of the smallest shards, for comparing sizes.
const SMALL_ROWS: usize = 4096;

/// Ranges of dead listings or values of a shard from which on it is written anew.
const DEAD_RANGES_MAX: usize = 4096;

/// Rows that count up to which a shard is joined with others of its size.
const JOINED_ROWS_MAX: usize = 256 * 1024;

/// Number of similarly sized shards of a class that become one.
const JOINED_SHARDS: usize = 8;

/// Fate of a shard, or of a file of sealed records, with replaced rows.
pub(super) enum Cut {
    /// It is dropped.
    Gone(ClassId, String),
    /// Some of its rows no longer count.
    Dead(ClassId, Box<ShardRecord>),
    /// Some records of a file of sealed ones no longer count.
    Sealed(ClassId, Box<SealedFile>),
}

/// The rest of a shard.
struct Rest {
    class: ClassId,
    shard: Shard,
    listings: Vec<ListingRange>,
    values: Vec<RowRange>,
    /// Rows that count.
    rows: usize,
    changed: bool,
}

impl Writer {
    /// Takes listings out of the shards of a source, for the source that was begun under this
    /// number. Rows that are written anew are added to the builders of their class.
    pub(super) fn cut(&self, begun: SourceId, replaced: &Replaced, left: &mut Rows) -> Result<()> {
        let Some(begun) = self.begun.get(&begun) else { return Ok(()) };
        let source = replaced.source;
        let max = self.options.page_shards_max;
        let written = left.iter().filter(|(_, builders)| !builders.is_empty());
        let written: FxHashSet<ClassId> = written.map(|((class, _), _)| *class).collect();
        // Rows that are written anew join the shards of one page.
        let is_joined = |class: ClassId, page: &PageRecord| {
            let held = self.classes.get(&class).filter(|_| written.contains(&class));
            let joins = held.and_then(|held| page_with_room(&held.manifest.shards, source, 1, max));
            joins.is_some_and(|joins| joins.id == page.id)
        };
        let is_wanted =
            |class, page: &PageRecord| is_joined(class, page) || replaced.may_be_in(page);
        let mut rests = Vec::new();
        for (class, shard) in self.shards_where(source, is_wanted)? {
            rests.push(rest_of(class, shard, replaced)?);
        }
        let joined = joined(&rests, &written);
        let copied_rows_max = self.options.copied_rows_max;
        let mut cuts = begun.cuts.lock();
        for (rest, joined) in rests.into_iter().zip(joined) {
            let Rest { class, shard, listings, values, rows, changed } = rest;
            let all: usize = [FileKind::Entries, FileKind::Dirs, FileKind::Xattrs]
                .map(|kind| shard.rows(kind))
                .iter()
                .sum();
            let ranges = listings.len().max(values.len());
            if changed && rows == 0 && listings.is_empty() {
                cuts.push(Cut::Gone(class, shard.record().id.clone()));
            } else if joined
                || changed && (rows <= copied_rows_max || ranges > DEAD_RANGES_MAX)
                || changed && rows < all / 2 && copied_rows_max > 0
            {
                let builders = left.entry((class, 0)).or_default();
                let mut builder = Builder::default();
                for range in listings {
                    copy_listings(&shard, range, &mut builder)?;
                }
                copy_values(&shard, &values, &mut builder)?;
                builders.push(builder);
                cuts.push(Cut::Gone(class, shard.record().id.clone()));
            } else if changed {
                cuts.push(Cut::Dead(class, Box::new(dead_record(&shard, &listings, &values)?)));
            }
        }
        Ok(())
    }
}

/// Finds out what stays of a shard.
fn rest_of(class: ClassId, shard: Shard, replaced: &Replaced) -> Result<Rest> {
    let kept = replaced.kept.of(&shard.record().id);
    let is_kept = |ordinal| kept.is_some_and(|kept| kept.has(ordinal));
    let mut dead = replaced_listings(&shard, replaced)?;
    let mut listings = Vec::new();
    for live in shard.live_listings()? {
        listings.extend(without(live, &mut dead, is_kept));
    }
    let before = shard.live_values()?;
    let mut directories = replaced.whole().chain(replaced.alone());
    let values = match directories.any(|directory| shard.may_have_values(directory)) {
        true => kept_values(&shard, &before, replaced)?,
        false => before.clone(),
    };
    let (entries, dirs) = shard.rows_of(&listings)?;
    let rows = [&entries, &dirs, &values].into_iter().flatten().map(RowRange::len).sum();
    let changed = listings != shard.live_listings()? || values != before;
    Ok(Rest { class, shard, listings, values, rows, changed })
}

/// Returns the listings of a shard that are replaced, dead ones among them, in order and disjoint.
pub(super) fn replaced_listings(shard: &Shard, replaced: &Replaced) -> Result<Vec<ListingRange>> {
    let mut ranges = Vec::new();
    let left_out = left_out_of(shard, replaced)?;
    for directory in replaced.whole() {
        ranges.extend(between(shard.all_listings_below(directory)?, &left_out));
    }
    for directory in replaced.alone() {
        ranges.push(shard.all_listings_at(directory)?);
    }
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    Ok(ranges)
}

/// Returns the listings of a shard that stay though they are below what is replaced with all below
/// it, in order and disjoint.
pub(super) fn left_out_of(shard: &Shard, replaced: &Replaced) -> Result<Vec<ListingRange>> {
    let ranges = replaced.left_out().map(|directory| shard.all_listings_below(directory));
    let mut ranges = ranges.collect::<Result<Vec<_>>>()?;
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    Ok(ranges)
}

/// Returns what is left of a range without those of `dead` in it but for those that are kept.
fn without(
    live: ListingRange,
    dead: &mut Vec<ListingRange>,
    is_kept: impl Fn(ListingOrdinal) -> bool,
) -> Vec<ListingRange> {
    let mut rest: Vec<ListingRange> = Vec::new();
    let mut add = |range: ListingRange| {
        if range.is_empty() {
            return;
        }
        match rest.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => rest.push(range),
        }
    };
    let mut at = live.start;
    for dead in dead.iter().filter(|dead| dead.start < live.end && dead.end > live.start) {
        let (start, end) = (dead.start.max(live.start), dead.end.min(live.end));
        add(at..start);
        let within = start..end;
        let kept = ListingOrdinal::each(std::slice::from_ref(&within));
        kept.filter(|&ordinal| is_kept(ordinal)).for_each(|at| add(at..at + 1));
        at = end;
    }
    add(at..live.end);
    dead.retain(|dead| dead.end > live.end);
    rest
}

/// Returns those of some rows of `xattrs` whose directories are not replaced, or stay as they were.
pub(super) fn kept_values(
    shard: &Shard,
    rows: &[RowRange],
    replaced: &Replaced,
) -> Result<Vec<RowRange>> {
    let mut kept: Vec<RowRange> = Vec::new();
    let mut at = rows.iter().cloned().flatten();
    for batch in read(shard, FileKind::Xattrs, VALUE_PATH, rows)? {
        let batch = batch?;
        let paths = VALUE_PATH.of(&batch)?;
        let mut last: Option<(&str, bool)> = None;
        for path in (0..batch.num_rows()).map(|row| paths.value(row)) {
            let stays = match last.filter(|(last, _)| *last == path) {
                Some((_, stays)) => stays,
                None => {
                    let path = SourcePath::escaped(path);
                    !replaced.holds(path) || replaced.kept_values.has(path)
                }
            };
            last = Some((path, stays));
            let Some(row) = at.next().filter(|_| stays) else { continue };
            match kept.last_mut().filter(|range| range.end == row) {
                Some(range) => range.end = row + 1,
                None => kept.push(row..row + 1),
            }
        }
    }
    Ok(kept)
}

/// Decides which shards are written anew since their class gets another one and has several of
/// their size.
fn joined(rests: &[Rest], written: &FxHashSet<ClassId>) -> Vec<bool> {
    let mut sizes: FxHashMap<(ClassId, u32), usize> = FxHashMap::default();
    let size = |rest: &Rest| (rest.rows / SMALL_ROWS + 1).ilog(JOINED_SHARDS);
    let may_join = |rest: &&Rest| {
        written.contains(&rest.class) && rest.rows > 0 && rest.rows <= JOINED_ROWS_MAX
    };
    for rest in rests.iter().filter(may_join) {
        *sizes.entry((rest.class, size(rest))).or_default() += 1;
    }
    let is_joined = |rest: &Rest| {
        let count = sizes.get(&(rest.class, size(rest))).copied().unwrap_or_default();
        may_join(&rest) && count >= JOINED_SHARDS
    };
    rests.iter().map(is_joined).collect()
}

/// Returns the record of a shard of which only these rows count.
fn dead_record(
    shard: &Shard,
    listings: &[ListingRange],
    values: &[RowRange],
) -> Result<ShardRecord> {
    let mut record = shard.record().clone();
    let mut dead = Vec::new();
    for cover in shard.covers()? {
        for Range { start: first, end } in between(cover.first..cover.end, listings) {
            let before = shard.totals_before(first)?;
            let mut totals = shard.totals_before(end)?;
            totals -= before;
            dead.push(DeadListings { first, end, before, totals });
        }
    }
    let rows = 0..shard.rows(FileKind::Xattrs);
    let dead_values = between(rows, values);
    let dead_values = dead_values.into_iter().map(|rows| (rows.start as u32, rows.end as u32));
    record.dead = packed(&shard.place.directory, dead)?;
    record.dead_values = packed(&shard.place.directory, dead_values.collect())?;
    record.dead_since_ns = record.dead_since_ns.or(Some(now_ns()));
    Ok(record)
}

/// Returns what of a range lies between others, which are sorted and disjoint.
pub(super) fn between<T: Copy + Ord>(range: Range<T>, others: &[Range<T>]) -> Vec<Range<T>> {
    let mut found = Vec::new();
    let mut at = range.start;
    for other in others.iter().filter(|other| other.start < range.end && other.end > range.start) {
        if other.start > at {
            found.push(at..other.start);
        }
        at = at.max(other.end);
    }
    if at < range.end {
        found.push(at..range.end);
    }
    found
}

fn packed<T: serde::Serialize>(directory: &Path, list: Vec<T>) -> Result<PackedList<T>> {
    PackedList::new(list).map_err(Error::encode(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_parts_of_a_range_stay() {
        let listings = |rows: &[RowRange]| -> Vec<ListingRange> {
            rows.iter().cloned().map(ListingOrdinal::range).collect()
        };
        let mut dead = listings(&[2..4, 6..9, 20..30]);
        let first = ListingOrdinal::range(0..10);
        let rest = without(first, &mut dead, |ordinal| ordinal == ListingOrdinal(7));
        assert_eq!(rest, listings(&[0..2, 4..6, 7..8, 9..10]));
        assert_eq!(dead, listings(&[20..30]));
        let second = ListingOrdinal::range(10..25);
        assert_eq!(without(second.clone(), &mut dead, |_| true), [second]);
        assert_eq!(between(0..10, &[0..2, 4..6, 7..8, 9..12]), [2..4, 6..7, 8..9]);
        assert_eq!(between(5..10, &[]), [5..10]);
    }
}

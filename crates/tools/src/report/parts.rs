//! Inputs of a report: the rows of files of shards that its starts cover.

use crate::error::Result;
use canopy_index::column::{LISTING, UID};
use canopy_index::{FileKind, ListingOrdinal, ListingRange, RowRange, Shard, holds};
use canopy_read::listings::{ListingHeads, merge_ranges};
use canopy_read::locate::Start;
use canopy_read::plan::{self, ShardRange, Unit};
use std::sync::Arc;

/// A row of a report: which part has it, and its number in the part's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct RowId {
    pub(super) part: u32,
    pub(super) row: u32,
}

/// The rows of one file that a start covers.
pub(super) struct CoveredFile<'a> {
    pub(super) start: &'a Start,
    pub(super) shard: Arc<Shard>,
    pub(super) kind: FileKind,
    /// The listings at and below the start that count, sorted and disjoint; none is empty.
    pub(super) listings: Vec<ListingRange>,
    /// Sorted and disjoint.
    pub(super) rows: Vec<RowRange>,
    /// Rows of the files of all parts before this one.
    pub(super) base: usize,
}

impl CoveredFile<'_> {
    /// Gives the range from its first listing to its last one, with those between that do not count.
    pub(super) fn span(&self) -> ListingRange {
        let start = self.listings.first().map_or(ListingOrdinal(0), |listings| listings.start);
        start..self.listings.last().map_or(start, |listings| listings.end)
    }

    /// Cuts its rows at row groups, and leaves out those that have nothing of the owner.
    pub(super) fn units(&self, owner: Option<u32>) -> Result<Vec<Unit>> {
        match owner {
            Some(uid) if self.kind != FileKind::Listings => {
                units_of_owner(&self.shard, self.kind, &self.rows, uid)
            }
            _ => Ok(plan::units(&self.shard, self.kind, &self.rows)),
        }
    }

    /// Gives some of its rows, which ascend, as one unit, whatever row groups they are in.
    pub(super) fn unit_of(&self, rows: impl Iterator<Item = u32>) -> Unit {
        self.unit(merge_ranges(rows.map(|row| row as usize..row as usize + 1).collect()))
    }

    /// Gives ranges of its rows, sorted and disjoint, as one unit.
    pub(super) fn unit(&self, rows: Vec<RowRange>) -> Unit {
        Unit { shard: self.shard.clone(), kind: self.kind, rows }
    }

    /// Closes the file of a shard that has no other unit of its kind.
    pub(super) fn close(&self) {
        self.unit(Vec::new()).close();
    }
}

/// Returns the parts of the given kinds, of all starts. Parts of entries are limited to listings in
/// which the owner has any.
pub(super) fn parts<'a>(
    starts: &'a [Start],
    kinds: &[FileKind],
    owner: Option<u32>,
) -> Result<Vec<CoveredFile<'a>>> {
    let mut parts = Vec::new();
    let mut base = 0;
    for start in starts {
        for range in plan::below(&start.view, start.source.id, start.path.as_path())? {
            for &kind in kinds {
                let rows = match (kind, owner) {
                    (FileKind::Entries, Some(uid)) => entries_of_owner(&range, uid)?,
                    _ => range.rows(kind)?,
                };
                if !rows.is_empty() {
                    let ShardRange { shard, listings } = range.clone();
                    parts.push(CoveredFile { start, shard, kind, listings, rows, base });
                    base += range.shard.rows(kind);
                }
            }
            range.shard.close(FileKind::Usage);
        }
    }
    Ok(parts)
}

/// Gives those rows of a file that are in row groups which may have rows of an owner.
pub(super) fn units_of_owner(
    shard: &Arc<Shard>,
    kind: FileKind,
    rows: &[RowRange],
    uid: u32,
) -> Result<Vec<Unit>> {
    let uid = i64::from(uid);
    let mut units = Vec::new();
    for unit in plan::units(shard, kind, rows) {
        if unit.bounds(UID)?.is_none_or(|(min, max)| min <= uid && uid <= max) {
            units.push(unit);
        }
    }
    Ok(units)
}

/// Gives the entries of those listings in which an owner has any.
fn entries_of_owner(range: &ShardRange, uid: u32) -> Result<Vec<RowRange>> {
    let ordinals = listings_of_owner(range, uid)?;
    if ordinals.is_empty() {
        return Ok(Vec::new());
    }
    let heads = ListingHeads::first_rows(&range.shard, &range.listings)?;
    let entries = ordinals.into_iter().map(|ordinal| heads.rows(&(ordinal..ordinal + 1)).0);
    Ok(merge_ranges(entries.collect()))
}

/// Gives the ordinals of the listings in which an owner has entries.
fn listings_of_owner(range: &ShardRange, uid: u32) -> Result<Vec<ListingOrdinal>> {
    let mut ordinals: Vec<ListingOrdinal> = Vec::new();
    let all = 0..range.shard.rows(FileKind::Usage);
    for unit in units_of_owner(&range.shard, FileKind::Usage, &[all], uid)? {
        for batch in unit.read(LISTING | UID)? {
            let batch = batch?;
            let owned = LISTING.of(&batch)?.iter().zip(UID.of(&batch)?);
            for (listing, _) in owned.filter(|(_, other)| **other == uid) {
                if holds(&range.listings, listing) && ordinals.last() != Some(&listing) {
                    ordinals.push(listing);
                }
            }
        }
    }
    Ok(ordinals)
}

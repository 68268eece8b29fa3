//! What has to be read for a report: the files of shards that have rows of the starts, cut at row
//! groups.

use crate::error::Result;
use arrow::datatypes::UInt32Type;
use canopy_index::{FileKind, RowRange, Shard};
use canopy_read::columns::numbers;
use canopy_read::listings::{ListingHeads, merge_ranges};
use canopy_read::locate::Start;

pub(super) const BATCH_ROWS: usize = 8192;

/// The rows of one file that a start covers.
pub(super) struct Part<'a> {
    pub(super) start: &'a Start,
    pub(super) shard: &'a Shard,
    pub(super) kind: FileKind,
    /// Sorted and disjoint.
    pub(super) rows: Vec<RowRange>,
    /// Rows of the files of all parts before this one.
    pub(super) base: usize,
}

/// Rows of a part within one row group.
pub(super) struct Unit {
    pub(super) part: u32,
    pub(super) rows: Vec<RowRange>,
}

impl Part<'_> {
    /// Closes the file of a shard that has no other unit.
    pub(super) fn close(&self) {
        if self.shard.rows(self.kind) <= canopy_index::schema::ROW_GROUP_ROWS {
            self.shard.close(self.kind);
            self.shard.close(FileKind::Listings);
        }
    }
}

/// The parts of the given kinds, of all starts. Of entries, only those of listings in which the
/// owner has any.
pub(super) fn parts<'a>(
    starts: &'a [Start],
    kinds: &[FileKind],
    owner: Option<u32>,
) -> Result<Vec<Part<'a>>> {
    let mut parts = Vec::new();
    let mut base = 0;
    for start in starts {
        for shard in start.view.shards_of(start.source.id) {
            let listings = shard.listings_below(&start.path)?;
            if listings.is_empty() {
                continue;
            }
            let (entries, dirs) = shard.rows_of(listings.clone())?;
            for &kind in kinds {
                let rows = match (kind, owner) {
                    (FileKind::Entries, Some(uid)) => entries_of(shard, &listings, uid)?,
                    (FileKind::Entries, None) => vec![entries.clone()],
                    (FileKind::Dirs, _) => vec![dirs.clone()],
                    _ => vec![listings.clone()],
                };
                if rows.iter().any(|range| !range.is_empty()) {
                    parts.push(Part { start, shard, kind, rows, base });
                    base += shard.rows(kind);
                }
            }
            shard.close(FileKind::Usage);
        }
    }
    Ok(parts)
}

/// The entries of those listings in which an owner has any.
fn entries_of(shard: &Shard, listings: &RowRange, uid: u32) -> Result<Vec<RowRange>> {
    let ordinals = listings_of(shard, listings, uid)?;
    if ordinals.is_empty() {
        return Ok(Vec::new());
    }
    let heads = ListingHeads::first_rows(shard, listings)?;
    let entries = ordinals.into_iter().map(|ordinal| heads.rows(&(ordinal..ordinal + 1)).0);
    Ok(merge_ranges(entries.collect()))
}

/// Ordinals of the listings in which an owner has entries.
fn listings_of(shard: &Shard, listings: &RowRange, uid: u32) -> Result<Vec<usize>> {
    let mut ordinals: Vec<usize> = Vec::new();
    for rows in groups_with(shard, FileKind::Usage, uid)? {
        for batch in shard.read(
            FileKind::Usage,
            &["listing", "uid"],
            std::slice::from_ref(&rows),
            BATCH_ROWS,
        )? {
            let batch = batch?;
            let [of, uids] =
                ["listing", "uid"].map(|name| numbers::<UInt32Type>(&batch, name).values());
            for (&listing, _) in of.iter().zip(uids).filter(|(_, other)| **other == uid) {
                let listing = listing as usize;
                if listings.contains(&listing) && ordinals.last() != Some(&listing) {
                    ordinals.push(listing);
                }
            }
        }
    }
    Ok(ordinals)
}

/// The row groups of a file that may have rows of an owner.
pub(super) fn groups_with(shard: &Shard, kind: FileKind, uid: u32) -> Result<Vec<RowRange>> {
    if shard.rows(kind) == 0 {
        return Ok(Vec::new());
    }
    let bounds = shard.bounds(kind, canopy_index::column::UID)?;
    let uid = i64::from(uid);
    let may = |group: usize| {
        bounds.get(group).copied().flatten().is_none_or(|(min, max)| min <= uid && uid <= max)
    };
    Ok(shard
        .row_groups(kind)
        .into_iter()
        .enumerate()
        .filter(|(at, _)| may(*at))
        .map(|(_, rows)| rows)
        .collect())
}

/// Cuts parts at row groups, and leaves out those that have nothing of the owner.
pub(super) fn units(parts: &[Part<'_>], owner: Option<u32>) -> Result<Vec<Unit>> {
    let mut units = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let groups = match owner {
            Some(uid) if part.kind != FileKind::Listings => {
                groups_with(part.shard, part.kind, uid)?
            }
            _ => part.shard.row_groups(part.kind),
        };
        for group in groups {
            let clip = |range: &RowRange| range.start.max(group.start)..range.end.min(group.end);
            let rows: Vec<RowRange> =
                part.rows.iter().map(clip).filter(|range| !range.is_empty()).collect();
            if !rows.is_empty() {
                units.push(Unit { part: number as u32, rows });
            }
        }
    }
    Ok(units)
}

//! Contents of single listings.

use super::super::parts::{CoveredFile, units_of_owner};
use super::super::tree_sums::{Sums, add};
use crate::error::Result;
use canopy_index::column::*;
use canopy_index::{FileKind, ListingRange, Shard, SumColumn, holds};
use canopy_model::clamped;
use canopy_read::plan;
use std::sync::Arc;

/// Contents of one listing, or of one directory in all parts of its listing.
#[derive(Clone, Copy, Default)]
pub(in crate::report) struct Held {
    /// Number of entries, directories among them.
    pub(in crate::report) entries: i64,
    /// Bytes of entries that are not directories.
    pub(in crate::report) bytes: i128,
    /// Sums of all entries.
    pub(super) sums: Sums,
}

impl Held {
    /// Adds the contents of another part of the listing.
    pub(super) fn add(&mut self, other: &Held) {
        self.entries += other.entries;
        self.bytes = self.bytes.saturating_add(other.bytes);
        add(&mut self.sums, &other.sums);
    }
}

/// Reads what each of some listings holds, also of those that do not count.
pub(super) fn of_all(shard: &Arc<Shard>, listings: &ListingRange) -> Result<Vec<Held>> {
    let rows = shard.rows(FileKind::Listings);
    let mut before: Vec<[i128; 5]> = Vec::with_capacity(listings.end - listings.start + 1);
    let with_next = listings.start.row()..rows.min(listings.end.row() + 1);
    let columns = FIRST_ENTRY | FIRST_DIR | BYTES_BEFORE | DIR_BYTES_BEFORE | BLOCKS_BEFORE;
    let highs = shard.highs()?;
    for unit in plan::units(shard, FileKind::Listings, std::slice::from_ref(&with_next)) {
        for batch in unit.read(columns)? {
            let batch = batch?;
            let (entries, dirs) = (FIRST_ENTRY.of(&batch)?, FIRST_DIR.of(&batch)?);
            let (bytes, dir_bytes) = (BYTES_BEFORE.of(&batch)?, DIR_BYTES_BEFORE.of(&batch)?);
            let blocks = BLOCKS_BEFORE.of(&batch)?;
            let first = listings.start + before.len();
            before.extend((0..batch.num_rows()).map(|at| {
                let whole = |column, low| highs.whole(first + at, column, low);
                [
                    entries[at].into(),
                    dirs[at].into(),
                    whole(SumColumn::BytesBefore, bytes[at]),
                    whole(SumColumn::DirBytesBefore, dir_bytes[at]),
                    whole(SumColumn::BlocksBefore, blocks[at]),
                ]
            }));
        }
    }
    if listings.end.row() >= rows {
        let all = shard.record().totals;
        before.push([all.entries.into(), all.dirs.into(), all.bytes, all.dir_bytes, all.blocks]);
    }
    let between = |pair: &[[i128; 5]]| {
        let [entries, dirs, bytes, dir_bytes, blocks]: [i128; 5] =
            std::array::from_fn(|at| pair[1][at].saturating_sub(pair[0][at]));
        let sums = [entries + dirs, bytes.saturating_add(dir_bytes), blocks];
        Held { entries: clamped(entries + dirs), bytes, sums }
    };
    let held: Vec<Held> = before.windows(2).map(between).collect();
    if held.len() != listings.end - listings.start {
        return Err(shard.corrupt(FileKind::Listings, "rows are missing").into());
    }
    Ok(held)
}

/// Reads what the listings of a part hold of an owner, one after the other from the first to the
/// last. Those between that do not count hold nothing.
pub(super) fn of_owner(part: &CoveredFile<'_>, uid: u32) -> Result<Vec<Held>> {
    let (shard, listings, span) = (&part.shard, &part.listings, part.span());
    let mut held = vec![Held::default(); span.end - span.start];
    let usage = 0..shard.rows(FileKind::Usage);
    for unit in units_of_owner(shard, FileKind::Usage, &[usage], uid)? {
        for batch in unit.read(LISTING | UID | COUNT | SIZE | BLOCKS)? {
            let batch = batch?;
            let (of, uids, counts) = (LISTING.of(&batch)?, UID.of(&batch)?, COUNT.of(&batch)?);
            let (sizes, blocks) = (SIZE.of(&batch)?, BLOCKS.of(&batch)?);
            for at in (0..batch.num_rows()).filter(|&at| uids[at] == uid) {
                if holds(listings, of.value(at)) {
                    let sums = [counts[at], sizes[at], blocks[at]].map(i128::from);
                    let own = Held { entries: counts[at], bytes: sums[1], sums };
                    held[of.value(at) - span.start].add(&own);
                }
            }
        }
    }
    shard.close(FileKind::Usage);
    let (_, dirs) = shard.rows_of(listings)?;
    for unit in units_of_owner(shard, FileKind::Dirs, &dirs, uid)? {
        for batch in unit.read(LISTING | UID | SIZE | BLOCKS)? {
            let batch = batch?;
            let (of, uids) = (LISTING.of(&batch)?, UID.of(&batch)?);
            let (sizes, blocks) = (SIZE.of(&batch)?, BLOCKS.of(&batch)?);
            for at in (0..batch.num_rows()).filter(|&at| uids[at] == uid) {
                let listing = of.value(at).row().checked_sub(span.start.row());
                let bad = || shard.corrupt(unit.kind, "it names a listing that does not exist");
                let held = listing.and_then(|at| held.get_mut(at)).ok_or_else(bad)?;
                let sums = [1, sizes[at], blocks[at]].map(i128::from);
                held.add(&Held { entries: 1, bytes: 0, sums });
            }
        }
    }
    Ok(held)
}

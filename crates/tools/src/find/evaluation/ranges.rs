//! Rows of a shard that a search looks at: those below the start that are neither too near, too
//! far, on another file system nor pruned.

use super::search::Search;
use super::select::Selected;
use crate::error::Result;
use canopy_index::column::{DEPTH, DEV, NAME, PATH};
use canopy_index::{Columns, FileKind, ListingOrdinal, ListingRange, RowRange};
use canopy_model::{SourcePath, SourcePathBuf};
use canopy_read::listings::{ListingHeads, merge_ranges};
use canopy_read::plan::{BATCH_ROWS, ShardRange, Unit};
use canopy_read::work::listed;

impl Search<'_, '_> {
    /// Returns the rows below the start, less those too near (unless `near`), too far or pruned,
    /// cut into units.
    pub(super) fn units(&self, ranges: &[ShardRange], near: bool) -> Result<Vec<Unit>> {
        let mut units = Vec::new();
        for range in ranges {
            let (entries, dirs) = self.allowed_rows(range, near)?;
            units.extend(range.units(FileKind::Dirs, &dirs));
            units.extend(range.units(FileKind::Entries, &entries));
        }
        Ok(units)
    }

    fn allowed_rows(
        &self,
        range: &ShardRange,
        near: bool,
    ) -> Result<(Vec<RowRange>, Vec<RowRange>)> {
        let (shard, globals) = (&range.shard, &self.find.globals);
        // An entry is one level below its listing.
        let (start, above) = (self.start.depth(), self.visit.depth + 1);
        let depth_min = if near { 0 } else { globals.depth_min };
        let depth_min = depth_min.saturating_add(start).saturating_sub(above);
        let depth_max = globals.depth_max.saturating_add(start).saturating_sub(above);
        let all_depths = depth_min <= start && globals.depth_max == u32::MAX;
        if all_depths && self.pruned.is_empty() && self.visit.device.is_none() {
            return Ok(shard.rows_of(&range.listings)?);
        }
        let listings = self.allowed_listings(range, depth_min, depth_max)?;
        let first_rows = ListingHeads::first_rows(shard, &range.listings)?;
        let rows = listings.iter().map(|listings| first_rows.rows(listings));
        let (entries, dirs) = rows.unzip();
        Ok((merge_ranges(entries), merge_ranges(dirs)))
    }

    /// Returns the listings of a range between two depths that are neither pruned nor on another
    /// file system than the search stays on.
    fn allowed_listings(
        &self,
        range: &ShardRange,
        depth_min: u32,
        depth_max: u32,
    ) -> Result<Vec<ListingRange>> {
        let device = self.visit.device;
        let columns = Columns::from(DEPTH)
            | Columns::from(PATH).when(!self.pruned.is_empty())
            | Columns::from(DEV).when(device.is_some());
        let mut allowed: Vec<ListingRange> = Vec::new();
        let listings = &range.listings;
        let mut ordinals = ListingOrdinal::each(listings);
        for batch in range.shard.read_listings(columns, listings, BATCH_ROWS)? {
            let batch = batch?;
            let (paths, devs) = (PATH.find(&batch), DEV.find(&batch));
            for (at, (&depth, ordinal)) in DEPTH.of(&batch)?.iter().zip(&mut ordinals).enumerate() {
                let pruned =
                    paths.is_some_and(|paths| self.is_pruned(SourcePath::escaped(paths.value(at))));
                let here =
                    device.is_none_or(|device| devs.is_some_and(|devs| devs.value(at) == device));
                if depth_min <= depth && depth <= depth_max && !pruned && here {
                    allowed.push(ordinal..ordinal + 1);
                }
            }
        }
        Ok(merge_ranges(allowed))
    }

    /// Returns the directories at which the expression prunes, in path order.
    pub(super) fn find_pruned(
        &self,
        threads: usize,
        ranges: &[ShardRange],
    ) -> Result<Vec<SourcePathBuf>> {
        let mut units = Vec::new();
        for range in ranges {
            units.extend(range.units(FileKind::Dirs, &range.rows(FileKind::Dirs)?));
        }
        let mut pruned = listed(threads, &units, |unit| self.pruned_in(unit))?;
        pruned.sort_by(|a, b| a.as_path().cmp(&b.as_path()));
        Ok(pruned)
    }

    /// Returns the directories of a unit at which the expression prunes.
    fn pruned_in(&self, unit: &Unit) -> Result<Vec<SourcePathBuf>> {
        let mut rows = Selected::default();
        self.evaluate(&self.find.expr, unit, |_, hits| {
            hits.iter().filter(|hit| hit.pruned).for_each(|hit| rows.push(hit.row, 0));
        })?;
        let mut found = Vec::new();
        if rows.ranges.is_empty() {
            return Ok(found);
        }
        for placed in unit.read_placed(NAME, &rows.ranges, false)? {
            let placed = placed?;
            let names = NAME.of(&placed.batch)?;
            for (at, listing) in placed.ordinals()?.iter().enumerate() {
                let head = placed.head(listing)?;
                // Nothing is evaluated on what is too near.
                if self.visit.depth_of_entries(&head) >= self.find.globals.depth_min {
                    found.push(head.path.child(names.value(at)));
                }
            }
        }
        Ok(found)
    }

    /// Returns whether a directory is one of the pruned ones or below one.
    pub(super) fn is_pruned(&self, path: SourcePath<'_>) -> bool {
        // Of the pruned directories above a path, the highest comes first; every one in between is
        // below it.
        let end = self.pruned.partition_point(|pruned| pruned.as_path() <= path);
        let mut above = Some(path);
        while let Some(directory) = above {
            if self.pruned[..end]
                .binary_search_by(|pruned| pruned.as_path().cmp(&directory))
                .is_ok()
            {
                return true;
            }
            above = directory.parent();
        }
        false
    }
}

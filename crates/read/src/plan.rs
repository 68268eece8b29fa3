//! The plan of a read, for the rows at and below a path: shards, and rows of their files. The rows
//! are cut into units for threads to take from.
//!
//! 1. [`below`] gives the shards with listings at or below a path, each with the range of them.
//! 2. [`ShardRange::rows`] gives the rows of a file that belong to those listings.
//! 3. [`ShardRange::units`] cuts rows at row groups; whoever knows bounds leaves out the units that
//!    [`Unit::bounds`] rules out.
//! 4. [`Unit::read`] reads columns of a unit, [`Unit::read_placed`] also where each row is.

use crate::error::Result;
use crate::listings::{ListingHead, ListingHeads};
use arrow::array::RecordBatch;
use canopy_index::column::{LISTING, NAME, Numbers};
use canopy_index::schema::ROW_GROUP_ROWS;
use canopy_index::{
    ColumnId, Columns, FileKind, Index, ListingOrdinal, ListingRange, RowRange, Shard, ShardRead,
    SourceId, holds,
};
use canopy_model::{SourcePath, SourcePathBuf};
use std::collections::VecDeque;
use std::ops::{Add, Range, Sub};
use std::sync::Arc;

/// Rows of a batch.
pub const BATCH_ROWS: usize = 8192;

/// The listings of one shard that are at or below a path and count.
#[derive(Clone)]
pub struct ShardRange {
    /// The shard.
    pub shard: Arc<Shard>,
    /// Ordinals of the listings, sorted and disjoint; there is one at least, and none is empty.
    pub listings: Vec<ListingRange>,
}

/// Rows of one file of a shard, all in one row group: what a thread reads at a time.
#[derive(Clone)]
pub struct Unit {
    /// The shard.
    pub shard: Arc<Shard>,
    /// The file of the shard.
    pub kind: FileKind,
    /// The rows, sorted and disjoint; none is empty.
    pub rows: Vec<RowRange>,
}

/// Rows of a unit, and where they are.
pub struct Placed {
    /// The rows.
    pub batch: RecordBatch,
    shard: Arc<Shard>,
    kind: FileKind,
    heads: ListingHeads,
}

/// Gives the shards of a source with listings at or below a path in it. Opens a shard if the manifest
/// does not suffice.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn below(index: &Index, source: SourceId, path: SourcePath<'_>) -> Result<Vec<ShardRange>> {
    ranges(index.shards_below(source, path)?, |shard| shard.listings_below(path))
}

/// As [`below`], with the listings of the path itself alone.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn at(index: &Index, source: SourceId, path: SourcePath<'_>) -> Result<Vec<ShardRange>> {
    ranges(index.shards_at(source, path)?, |shard| shard.listings_at(path))
}

fn ranges<'a>(
    shards: impl IntoIterator<Item = &'a Arc<Shard>>,
    find: impl Fn(&Shard) -> canopy_index::Result<Vec<ListingRange>>,
) -> Result<Vec<ShardRange>> {
    let mut ranges = Vec::new();
    for shard in shards {
        let listings = find(shard)?;
        if !listings.is_empty() {
            ranges.push(ShardRange { shard: shard.clone(), listings });
        }
    }
    Ok(ranges)
}

/// Cuts the rows of one file of all shards of a source into units, those of a shard one after the
/// other. Only rows of listings at or below a path are included. Opens no shard without such a
/// file. For values of extended attributes, also returns units of other paths: a shard of values
/// has no listing of their entries.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn units_below(
    index: &Index,
    source: SourceId,
    path: SourcePath<'_>,
    kind: FileKind,
) -> Result<Vec<Unit>> {
    if kind == FileKind::Xattrs {
        let mut all = Vec::new();
        // The path may be that of an entry.
        for shard in index.shards_with_values(source, path.parent().unwrap_or_default())? {
            all.extend(units(shard, kind, &shard.live_values()?));
        }
        return Ok(all);
    }
    units_of(index.shards_below(source, path)?, kind, |shard| shard.listings_below(path))
}

/// As [`units_below`], of the listing of the path itself alone. Not for values of extended
/// attributes.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn units_at(
    index: &Index,
    source: SourceId,
    path: SourcePath<'_>,
    kind: FileKind,
) -> Result<Vec<Unit>> {
    units_of(index.shards_at(source, path)?, kind, |shard| shard.listings_at(path))
}

fn units_of(
    shards: Vec<&Arc<Shard>>,
    kind: FileKind,
    find: impl Fn(&Shard) -> canopy_index::Result<Vec<ListingRange>>,
) -> Result<Vec<Unit>> {
    let shards = shards.into_iter().filter(|shard| shard.rows(kind) > 0);
    let mut all = Vec::new();
    for range in ranges(shards, find)? {
        all.extend(range.units(kind, &range.rows(kind)?));
    }
    Ok(all)
}

impl ShardRange {
    /// The rows of a file that belong to the listings, sorted and disjoint. For files such as
    /// `usage`, whose first rows listings do not contain, reads the `listing` of all rows.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn rows(&self, kind: FileKind) -> Result<Vec<RowRange>> {
        match kind {
            FileKind::Listings => Ok(self.listings.iter().map(ListingOrdinal::rows).collect()),
            FileKind::Entries => Ok(self.shard.rows_of(&self.listings)?.0),
            FileKind::Dirs => Ok(self.shard.rows_of(&self.listings)?.1),
            _ => self.rows_by_listing(kind),
        }
    }

    fn rows_by_listing(&self, kind: FileKind) -> Result<Vec<RowRange>> {
        let all = 0..self.shard.rows(kind);
        if self.listings == [self.shard.all_listings()] {
            return Ok(vec![all]);
        }
        let mut rows: Vec<RowRange> = Vec::new();
        let mut numbers = all.clone();
        for batch in self.shard.read(kind, LISTING, &[all], BATCH_ROWS)? {
            for (listing, row) in LISTING.of(&batch?)?.iter().zip(&mut numbers) {
                if holds(&self.listings, listing) {
                    push_row(&mut rows, row);
                }
            }
        }
        Ok(rows)
    }

    /// Cuts it into pieces of so many listings, the last one of fewer.
    pub fn pieces(&self, listings: usize) -> Vec<ShardRange> {
        let mut left: VecDeque<ListingRange> = self.listings.iter().cloned().collect();
        let mut pieces = Vec::new();
        while !left.is_empty() {
            let listings = take_first(&mut left, listings);
            pieces.push(ShardRange { shard: self.shard.clone(), listings });
        }
        pieces
    }

    /// Cuts rows of a file at its row groups.
    pub fn units(&self, kind: FileKind, rows: &[RowRange]) -> Vec<Unit> {
        units(&self.shard, kind, rows)
    }

    /// As [`Unit::close`], when the rows of a file that belong to the listings have been read.
    pub fn close(&self, kind: FileKind) {
        close_small(&self.shard, kind);
    }
}

fn close_small(shard: &Shard, kind: FileKind) {
    if shard.rows(kind) <= ROW_GROUP_ROWS {
        shard.close(kind);
        shard.close(FileKind::Listings);
    }
}

/// Takes the first `count` rows or listings of some ranges, or all if there are fewer. No range may
/// be empty.
pub(crate) fn take_first<T>(ranges: &mut VecDeque<Range<T>>, mut count: usize) -> Vec<Range<T>>
where
    T: Copy + Ord + Add<usize, Output = T> + Sub<Output = usize>,
{
    let mut taken = Vec::new();
    while count > 0
        && let Some(range) = ranges.front_mut()
    {
        let end = range.end.min(range.start + count);
        count -= end - range.start;
        taken.push(range.start..end);
        range.start = end;
        if end == range.end {
            ranges.pop_front();
        }
    }
    taken
}

/// Adds a row to ranges, which comes after all that they have.
#[inline]
pub fn push_row(ranges: &mut Vec<RowRange>, row: usize) {
    match ranges.last_mut() {
        Some(last) if last.end == row => last.end += 1,
        _ => ranges.push(row..row + 1),
    }
}

/// Returns how many rows there are in some ranges.
pub fn row_count(ranges: &[RowRange]) -> usize {
    ranges.iter().map(RowRange::len).sum()
}

/// Cuts rows of a file of a shard, sorted and disjoint, at its row groups.
pub fn units(shard: &Arc<Shard>, kind: FileKind, rows: &[RowRange]) -> Vec<Unit> {
    let mut units = Vec::new();
    for group in shard.row_groups(kind) {
        let clip = |range: &RowRange| range.start.max(group.start)..range.end.min(group.end);
        let rows: Vec<RowRange> = rows.iter().map(clip).filter(|range| !range.is_empty()).collect();
        if !rows.is_empty() {
            units.push(Unit { shard: shard.clone(), kind, rows });
        }
    }
    units
}

impl Unit {
    /// Number of its row group.
    fn row_group(&self) -> usize {
        self.rows.first().map_or(0, |rows| rows.start / ROW_GROUP_ROWS)
    }

    /// How many rows it has.
    pub fn row_count(&self) -> usize {
        row_count(&self.rows)
    }

    /// The smallest and the largest value of a column in its row group, where known.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn bounds(&self, column: impl Into<ColumnId>) -> Result<Option<(i64, i64)>> {
        let bounds = self.shard.bounds(self.kind, column)?;
        Ok(bounds.get(self.row_group()).copied().flatten())
    }

    /// Reads columns of all its rows, in batches of [`BATCH_ROWS`].
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn read(&self, columns: impl Into<Columns>) -> Result<ShardRead> {
        self.read_rows(columns, &self.rows)
    }

    /// Reads columns of some of its rows, sorted and disjoint.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn read_rows(&self, columns: impl Into<Columns>, rows: &[RowRange]) -> Result<ShardRead> {
        Ok(self.shard.read(self.kind, columns, rows, BATCH_ROWS)?)
    }

    /// Reads columns of some rows of `entries` or `dirs` with their names and paths; with
    /// `devices`, also the device of their directories.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn read_placed(
        &self,
        columns: impl Into<Columns>,
        rows: &[RowRange],
        devices: bool,
    ) -> Result<impl Iterator<Item = Result<Placed>>> {
        let read = self.read_rows(columns.into() | LISTING | NAME, rows)?;
        let (shard, kind) = (self.shard.clone(), self.kind);
        Ok(read.map(move |batch| Placed::new(&shard, kind, batch?, devices)))
    }

    /// Closes the files of a shard that has no other unit of this kind: their memory serves the
    /// next one. To be called when the unit has been read.
    pub fn close(&self) {
        close_small(&self.shard, self.kind);
    }
}

impl Placed {
    /// Looks up where the rows of a batch with `listing` are; with `devices`, also on which device.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn new(
        shard: &Arc<Shard>,
        kind: FileKind,
        batch: RecordBatch,
        devices: bool,
    ) -> Result<Self> {
        let listings = LISTING.of(&batch)?;
        let heads = match devices {
            true => ListingHeads::read_with_devices(shard, listings.iter())?,
            false => ListingHeads::read(shard, listings.iter())?,
        };
        Ok(Placed { shard: shard.clone(), kind, heads, batch })
    }

    /// The listings that its rows are in, row by row.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn listings(&self) -> Result<impl Iterator<Item = Result<ListingHead<'_>>>> {
        let listings = LISTING.of(&self.batch)?.iter();
        Ok(listings.map(|listing| self.heads.expect(&self.shard, self.kind, listing)))
    }

    /// The listing that a row is in.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn listing(&self, at: usize) -> Result<ListingHead<'_>> {
        self.head(self.ordinals()?.value(at))
    }

    /// Returns the ordinal of the listing of each row.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn ordinals(&self) -> Result<Numbers<'_, ListingOrdinal>> {
        Ok(LISTING.of(&self.batch)?)
    }

    /// Returns the head of a listing, by its ordinal, that some row is in.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn head(&self, listing: ListingOrdinal) -> Result<ListingHead<'_>> {
        self.heads.expect(&self.shard, self.kind, listing)
    }

    /// The path of a row; of a batch with `name`.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn path(&self, at: usize) -> Result<SourcePathBuf> {
        Ok(self.listing(at)?.path.child(NAME.of(&self.batch)?.value(at)))
    }
}

//! The heads of listings that rows refer to: path and device by ordinal.

use crate::error::Result;
use crate::plan::BATCH_ROWS;
use arrow::array::RecordBatch;
use canopy_index::column::{DEV, FILES, FIRST_DIR, FIRST_ENTRY, OTHERS, PATH, SUBDIRS, SYMLINKS};
use canopy_index::{Columns, FileKind, ListingOrdinal, ListingRange, RowRange, Shard};
use canopy_model::{Device, SourcePath};

use std::ops::Range;

/// The data of a row's listing.
pub struct ListingHead<'a> {
    /// Path of the directory.
    pub path: SourcePath<'a>,
    /// `None` where devices were not asked for.
    pub dev: Option<Device>,
}

impl ListingHead<'_> {
    /// How many components the path has.
    pub fn depth(&self) -> u32 {
        depth(self.path)
    }
}

/// How many components a path has.
pub fn depth(path: SourcePath<'_>) -> u32 {
    match path.as_str() {
        "" => 0,
        path => 1 + memchr::memchr_iter(b'/', path.as_bytes()).count() as u32,
    }
}

/// The heads of some listings of a shard.
pub struct ListingHeads {
    /// Ranges of ordinals that were read, with the number of heads before each.
    ranges: Vec<(ListingRange, usize)>,
    batches: Vec<RecordBatch>,
}

/// The first rows of listings in some ranges.
pub struct FirstRows {
    /// The ranges, with the number of `rows` before those of each.
    ranges: Vec<(ListingRange, usize)>,
    /// First entry and first directory of each listing, and where those of each range end.
    rows: Vec<(usize, usize)>,
}

impl ListingHeads {
    /// Reads the paths of the given listings, whose ordinals ascend.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn read(shard: &Shard, listings: impl Iterator<Item = ListingOrdinal>) -> Result<Self> {
        Self::read_columns(shard, near_each_other(listings), PATH.into())
    }

    /// As [`ListingHeads::read`], and their devices.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn read_with_devices(
        shard: &Shard,
        listings: impl Iterator<Item = ListingOrdinal>,
    ) -> Result<Self> {
        Self::read_columns(shard, near_each_other(listings), PATH | DEV)
    }

    fn read_columns(
        shard: &Shard,
        mut wanted: Vec<ListingRange>,
        columns: Columns,
    ) -> Result<Self> {
        let end = shard.all_listings().end;
        wanted.iter_mut().for_each(|range| range.end = range.end.min(end));
        wanted.retain(|range| !range.is_empty());
        let read = shard.read_listings(columns, &wanted, BATCH_ROWS)?;
        let batches = read.collect::<canopy_index::Result<Vec<_>>>()?;
        let mut before = 0;
        let ranges = wanted
            .into_iter()
            .map(|range| {
                let start = before;
                before += range.end - range.start;
                (range, start)
            })
            .collect();
        Ok(ListingHeads { ranges, batches })
    }

    /// The head of a listing, `None` if there is no such listing.
    pub fn get(&self, listing: ListingOrdinal) -> Option<ListingHead<'_>> {
        let at = self.ranges.partition_point(|(range, _)| range.end <= listing);
        let (range, before) = self.ranges.get(at).filter(|(range, _)| range.contains(&listing))?;
        let mut row = before + (listing - range.start);
        let batch = self.batches.iter().find(|batch| {
            let here = row < batch.num_rows();
            if !here {
                row -= batch.num_rows();
            }
            here
        })?;
        let path = SourcePath::escaped(PATH.find(batch)?.value(row));
        Some(ListingHead { path, dev: DEV.find(batch).map(|devs| devs.value(row)) })
    }

    /// The head of a listing that a row of a file of the shard names; a file that names one
    /// that does not exist is damaged.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if there is no such listing, as the file is damaged.
    pub fn expect(
        &self,
        shard: &Shard,
        kind: FileKind,
        listing: ListingOrdinal,
    ) -> Result<ListingHead<'_>> {
        let bad = || shard.corrupt(kind, "it names a listing that does not exist").into();
        self.get(listing).ok_or_else(bad)
    }

    /// Reads where the rows of listings begin, which are given as [`Shard::listings_below`] does.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn first_rows(shard: &Shard, listings: &[ListingRange]) -> Result<FirstRows> {
        let mut first = Vec::with_capacity(ListingOrdinal::count(listings));
        let columns = FIRST_ENTRY | FIRST_DIR;
        for batch in shard.read_listings(columns, listings, BATCH_ROWS)? {
            let batch = batch?;
            let more = FIRST_ENTRY.of(&batch)?.iter().zip(FIRST_DIR.of(&batch)?);
            first.extend(more.map(|(&entry, &dir)| (entry as usize, dir as usize)));
        }
        let mut found = FirstRows { ranges: Vec::with_capacity(listings.len()), rows: Vec::new() };
        let mut first = first.into_iter();
        for range in listings {
            found.ranges.push((range.clone(), found.rows.len()));
            found.rows.extend(first.by_ref().take(range.end - range.start));
            let (entries, dirs) = shard.rows_of(std::slice::from_ref(range))?;
            // Where there are none, none of the listings in the range has any.
            let last = found.rows.last().copied().unwrap_or_default();
            let end = |rows: &[RowRange], last| rows.last().map_or(last, |rows| rows.end);
            found.rows.push((end(&entries, last.0), end(&dirs, last.1)));
        }
        Ok(found)
    }
}

/// Returns ranges that hold listings whose ordinals ascend, and few others.
fn near_each_other(listings: impl Iterator<Item = ListingOrdinal>) -> Vec<ListingRange> {
    let mut wanted: Vec<ListingRange> = Vec::new();
    for listing in listings {
        match wanted.last_mut() {
            Some(last) if listing < last.end => {}
            // Pages are decoded whole: a small gap costs less than a new range.
            Some(last) if listing < last.end + 16 => last.end = listing + 1,
            _ => wanted.push(listing..listing + 1),
        }
    }
    wanted
}

impl FirstRows {
    /// The entries and the directories of some listings, which are all in one of the ranges.
    pub fn rows(&self, listings: &ListingRange) -> (RowRange, RowRange) {
        let at = self.ranges.partition_point(|(range, _)| range.end <= listings.start);
        let (range, before) = &self.ranges[at];
        let first = self.rows[before + (listings.start - range.start)];
        let end = self.rows[before + (listings.end - range.start)];
        (first.0..end.0, first.1..end.1)
    }
}

/// How many rows the listings of a batch have, that of one with [`RowCounts::COLUMNS`].
pub struct RowCounts<'a> {
    /// Numbers of all entries that are not directories, by type.
    entries: [&'a [i64]; 3],
    dirs: &'a [i64],
}

impl<'a> RowCounts<'a> {
    /// The columns that it is made of.
    pub const COLUMNS: Columns =
        Columns::of(&[FILES.id(), SYMLINKS.id(), OTHERS.id(), SUBDIRS.id()]);

    /// Takes the columns of a batch.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if a column is missing.
    pub fn of(batch: &'a RecordBatch) -> Result<Self> {
        let entries = [FILES.of(batch)?, SYMLINKS.of(batch)?, OTHERS.of(batch)?];
        Ok(RowCounts { entries, dirs: SUBDIRS.of(batch)? })
    }

    /// How many entries a listing of the shard has.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn entries(&self, shard: &Shard, at: usize) -> Result<usize> {
        let count = self.entries.iter().fold(0_i64, |sum, more| sum.wrapping_add(more[at]));
        checked(shard, FileKind::Entries, count)
    }

    /// How many directories a listing of the shard has.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn dirs(&self, shard: &Shard, at: usize) -> Result<usize> {
        checked(shard, FileKind::Dirs, self.dirs[at])
    }
}

/// Returns a number of rows that a file of a shard can have.
fn checked(shard: &Shard, kind: FileKind, rows: i64) -> Result<usize> {
    let fits = usize::try_from(rows).ok().filter(|&rows| rows <= shard.rows(kind));
    let bad = || shard.corrupt(FileKind::Listings, "a listing has more rows than there are");
    Ok(fits.ok_or_else(bad)?)
}

/// Joins ranges of rows or listings that touch. They are sorted and disjoint; empty ones go away.
pub fn merge_ranges<T: Copy + PartialOrd>(ranges: Vec<Range<T>>) -> Vec<Range<T>> {
    let mut merged: Vec<Range<T>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => merged.push(range),
        }
    }
    merged
}

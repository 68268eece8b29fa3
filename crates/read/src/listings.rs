//! The heads of listings that rows refer to: path and device by ordinal.

use crate::error::Result;
use crate::plan::BATCH_ROWS;
use arrow::array::RecordBatch;
use canopy_index::column::{DEV, FIRST_DIR, FIRST_ENTRY, PATH};
use canopy_index::{Columns, FileKind, RowRange, Shard};

/// What a row's listing says.
pub struct ListingHead<'a> {
    /// Path of the directory, escaped.
    pub path: &'a str,
    /// `None` where devices were not asked for.
    pub dev: Option<u64>,
}

impl ListingHead<'_> {
    /// How many components the path has.
    pub fn depth(&self) -> u32 {
        match self.path {
            "" => 0,
            path => 1 + memchr::memchr_iter(b'/', path.as_bytes()).count() as u32,
        }
    }
}

/// The heads of some listings of a shard.
pub struct ListingHeads {
    /// Ranges of ordinals that were read, with the number of heads before each.
    ranges: Vec<(RowRange, usize)>,
    batches: Vec<RecordBatch>,
}

/// The first rows of consecutive listings.
pub struct FirstRows {
    first_listing: usize,
    /// First entry and first directory of each listing, and of the one after the last.
    rows: Vec<(usize, usize)>,
}

impl ListingHeads {
    /// Reads the paths of the given listings, whose ordinals ascend.
    pub fn read(shard: &Shard, listings: &[u32]) -> Result<Self> {
        Self::read_columns(shard, listings, PATH.into())
    }

    /// As [`ListingHeads::read`], and their devices.
    pub fn read_with_devices(shard: &Shard, listings: &[u32]) -> Result<Self> {
        Self::read_columns(shard, listings, PATH | DEV)
    }

    fn read_columns(shard: &Shard, listings: &[u32], columns: Columns) -> Result<Self> {
        let mut wanted: Vec<RowRange> = Vec::new();
        for &listing in listings {
            let listing = listing as usize;
            match wanted.last_mut() {
                Some(last) if listing < last.end => {}
                // Pages are decoded whole: a small gap costs less than a new range.
                Some(last) if listing < last.end + 16 => last.end = listing + 1,
                _ => wanted.push(listing..listing + 1),
            }
        }
        let rows = shard.rows(FileKind::Listings);
        wanted.iter_mut().for_each(|range| range.end = range.end.min(rows));
        wanted.retain(|range| !range.is_empty());
        let read = shard.read(FileKind::Listings, columns, &wanted, BATCH_ROWS)?;
        let batches = read.collect::<canopy_index::Result<Vec<_>>>()?;
        let mut before = 0;
        let ranges = wanted
            .into_iter()
            .map(|range| {
                let start = before;
                before += range.len();
                (range, start)
            })
            .collect();
        Ok(ListingHeads { ranges, batches })
    }

    /// The head of a listing, `None` if there is no such listing.
    pub fn get(&self, listing: u32) -> Option<ListingHead<'_>> {
        let listing = listing as usize;
        let at = self.ranges.partition_point(|(range, _)| range.end <= listing);
        let (range, before) = self.ranges.get(at).filter(|(range, _)| range.contains(&listing))?;
        let mut row = before + listing - range.start;
        let batch = self.batches.iter().find(|batch| {
            let here = row < batch.num_rows();
            if !here {
                row -= batch.num_rows();
            }
            here
        })?;
        let path = PATH.find(batch)?.value(row);
        Some(ListingHead { path, dev: DEV.find(batch).map(|devs| devs[row]) })
    }

    /// The head of a listing that a row of a file of the shard names; a file that names one
    /// that does not exist is damaged.
    pub fn expect(&self, shard: &Shard, kind: FileKind, listing: u32) -> Result<ListingHead<'_>> {
        let bad = || shard.corrupt(kind, "it names a listing that does not exist").into();
        self.get(listing).ok_or_else(bad)
    }

    /// Reads where the rows of consecutive listings begin.
    pub fn first_rows(shard: &Shard, listings: &RowRange) -> Result<FirstRows> {
        let mut rows = Vec::with_capacity(listings.len() + 1);
        let columns = FIRST_ENTRY | FIRST_DIR;
        let range = std::slice::from_ref(listings);
        for batch in shard.read(FileKind::Listings, columns, range, BATCH_ROWS)? {
            let batch = batch?;
            let first = FIRST_ENTRY.of(&batch)?.iter().zip(FIRST_DIR.of(&batch)?);
            rows.extend(first.map(|(&entry, &dir)| (entry as usize, dir as usize)));
        }
        let (entries, dirs) = shard.rows_of(listings.clone())?;
        rows.push((entries.end, dirs.end));
        Ok(FirstRows { first_listing: listings.start, rows })
    }
}

impl FirstRows {
    /// The entries and the directories of some of the listings.
    pub fn rows(&self, listings: &RowRange) -> (RowRange, RowRange) {
        let first = self.rows[listings.start - self.first_listing];
        let end = self.rows[listings.end - self.first_listing];
        (first.0..end.0, first.1..end.1)
    }
}

/// Joins ranges that touch. They are sorted and disjoint; empty ones go away.
pub fn merge_ranges(ranges: Vec<RowRange>) -> Vec<RowRange> {
    let mut merged: Vec<RowRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => merged.push(range),
        }
    }
    merged
}

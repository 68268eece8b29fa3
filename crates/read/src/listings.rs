//! The heads of listings that rows refer to: path and device by ordinal.

use crate::columns::{numbers, strings};
use crate::error::Result;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{UInt32Type, UInt64Type};
use canopy_index::{FileKind, RowRange, Shard};

const BATCH_ROWS: usize = 8192;

/// What a row's listing says.
pub struct ListingHead<'a> {
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
        Self::read_columns(shard, listings, &["path"])
    }

    /// As [`ListingHeads::read`], and their devices.
    pub fn read_with_devices(shard: &Shard, listings: &[u32]) -> Result<Self> {
        Self::read_columns(shard, listings, &["path", "dev"])
    }

    fn read_columns(shard: &Shard, listings: &[u32], columns: &[&str]) -> Result<Self> {
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
        let devs = batch.column_by_name("dev").map(|column| column.as_primitive::<UInt64Type>());
        Some(ListingHead {
            path: strings(batch, "path").value(row),
            dev: devs.map(|devs| devs.value(row)),
        })
    }

    /// Reads where the rows of consecutive listings begin.
    pub fn first_rows(shard: &Shard, listings: &RowRange) -> Result<FirstRows> {
        let columns = ["first_entry", "first_dir"];
        let mut rows = Vec::with_capacity(listings.len() + 1);
        for batch in
            shard.read(FileKind::Listings, &columns, std::slice::from_ref(listings), BATCH_ROWS)?
        {
            let batch = batch?;
            let [entries, dirs] = columns.map(|name| numbers::<UInt32Type>(&batch, name));
            rows.extend(
                (0..entries.len()).map(|at| (entries.value(at) as usize, dirs.value(at) as usize)),
            );
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

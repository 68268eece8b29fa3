//! Numbers of the listings in a shard.

use crate::shard::RowRange;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Range, Sub};

/// The number of a listing in its shard, which is its row in the file `listings`. A row of another
/// file is not a listing: [`crate::Shard::rows_of`] finds the rows of listings there.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ListingOrdinal(pub u32);

/// Consecutive listings of a shard.
pub type ListingRange = Range<ListingOrdinal>;

impl ListingOrdinal {
    /// Returns the listing in a row of `listings`. A shard has fewer rows than 32 bits can number.
    #[inline]
    pub fn of_row(row: usize) -> Self {
        ListingOrdinal(row as u32)
    }

    /// Returns the row of `listings` that it is in.
    #[inline]
    pub fn row(self) -> usize {
        self.0 as usize
    }

    /// Returns the rows of `listings` that a range of listings is in.
    #[inline]
    pub fn rows(range: &ListingRange) -> RowRange {
        range.start.row()..range.end.row()
    }

    /// Returns the listings in a range of rows of `listings`.
    #[inline]
    pub fn range(rows: RowRange) -> ListingRange {
        Self::of_row(rows.start)..Self::of_row(rows.end)
    }

    /// Returns the listings of ranges, one after the other.
    pub fn each(ranges: &[ListingRange]) -> impl Iterator<Item = ListingOrdinal> {
        ranges.iter().flat_map(|range| (range.start.0..range.end.0).map(ListingOrdinal))
    }

    /// Returns the number of listings in ranges.
    pub fn count(ranges: &[ListingRange]) -> usize {
        ranges.iter().map(|range| Self::rows(range).len()).sum()
    }
}

impl Add<usize> for ListingOrdinal {
    type Output = Self;

    #[inline]
    fn add(self, listings: usize) -> Self {
        Self::of_row(self.row() + listings)
    }
}

impl AddAssign<usize> for ListingOrdinal {
    #[inline]
    fn add_assign(&mut self, listings: usize) {
        *self = *self + listings;
    }
}

/// The number of listings from another one to this one, 0 if the other one is behind.
impl Sub for ListingOrdinal {
    type Output = usize;

    #[inline]
    fn sub(self, other: Self) -> usize {
        self.row().saturating_sub(other.row())
    }
}

impl fmt::Debug for ListingOrdinal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

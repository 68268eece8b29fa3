//! Which rows of a shard count: those that nothing newer has replaced.
//!
//! Files of shards never change. What a later generation has listed anew is told as dead in the
//! manifest, by ranges of listings, together with the running totals at both ends of each range, so
//! that sums and rows of what is left are known without reading anything.

use super::{RowRange, Shard};
use crate::error::{Error, Result};
use crate::schema::FileKind;
use crate::shard_record::DeadListings;
use canopy_model::Totals;

impl Shard {
    /// Returns the listings that count, as ranges of ordinals, sorted and disjoint.
    pub fn live_listings(&self) -> Result<Vec<RowRange>> {
        self.live(0..self.rows(FileKind::Listings))
    }

    /// Returns the rows of `xattrs` that count, as ranges, sorted and disjoint.
    pub fn live_values(&self) -> Result<Vec<RowRange>> {
        let dead = self.unpacked(self.record.dead_values.get())?;
        let ranges = dead.iter().map(|&(first, end)| first as usize..end as usize);
        self.less(0..self.rows(FileKind::Xattrs), ranges)
    }

    /// Returns the listings of a range that count.
    pub(crate) fn live(&self, listings: RowRange) -> Result<Vec<RowRange>> {
        let dead = self.dead()?.iter();
        self.less(listings, dead.map(|dead| dead.first as usize..dead.end as usize))
    }

    /// Returns what is left of a range without others, which must follow each other.
    fn less(&self, range: RowRange, dead: impl Iterator<Item = RowRange>) -> Result<Vec<RowRange>> {
        let mut live = Vec::new();
        let (mut at, mut dead_end) = (range.start, 0);
        for dead in dead {
            if dead.is_empty() || dead.start < dead_end {
                let detail = "its manifest: the dead rows of a shard are out of order";
                return Err(Error::corrupt(&self.place.directory, detail));
            }
            dead_end = dead.end;
            if dead.start > at {
                live.push(at..dead.start.min(range.end));
            }
            at = at.max(dead.end);
            if at >= range.end {
                break;
            }
        }
        if at < range.end {
            live.push(at..range.end);
        }
        live.retain(|range| !range.is_empty());
        Ok(live)
    }

    /// Returns the ranges of listings that do not count.
    pub(crate) fn dead(&self) -> Result<&[DeadListings]> {
        self.unpacked(self.record.dead.get())
    }

    /// Returns those of them that lie in a range, at whose ends none is cut.
    pub(crate) fn dead_within(&self, listings: &RowRange) -> Result<&[DeadListings]> {
        let dead = self.dead()?;
        let first = dead.partition_point(|dead| (dead.end as usize) <= listings.start);
        let end = dead.partition_point(|dead| (dead.first as usize) < listings.end);
        Ok(&dead[first..end.max(first)])
    }

    /// Returns the running totals before a listing where dead listings begin or end.
    pub(crate) fn told_totals_before(&self, listing: usize) -> Result<Option<Totals>> {
        let dead = self.dead()?;
        let behind = dead.partition_point(|dead| (dead.end as usize) < listing);
        let told = dead.get(behind).and_then(|dead| match listing {
            at if at == dead.end as usize => Some(dead.up_to_end()),
            at if at == dead.first as usize => Some(dead.before),
            _ => None,
        });
        Ok(told)
    }
}

//! Live rows of a shard: those that nothing newer has replaced.
//!
//! Files of shards never change. The manifest marks listings dead that a later generation has
//! listed anew. It stores them as ranges, together with the running totals at both ends of each
//! range. So sums and rows of the live listings are known without reading anything.
//!
//! The alternative is a shard for each slice between dead rows. It would need one look-up for each
//! slice.

use super::{RowRange, Shard};
use crate::builder::SHARD_ROWS_MAX;
use crate::error::{Error, Result};
use crate::listing_ordinal::{ListingOrdinal, ListingRange};
use crate::schema::FileKind;
use crate::shard_record::DeadListings;
use canopy_model::Totals;
use std::ops::Range;

/// Rows that count below which a shard is small.
pub(crate) const SMALL_ROWS_MAX: usize = SHARD_ROWS_MAX / 8;

/// The share of dead rows, as one of so many, from which on they are too many.
const DEAD_SHARE: usize = 3;

impl Shard {
    /// Returns the listings that count, as ranges of ordinals, sorted and disjoint.
    pub fn live_listings(&self) -> Result<Vec<ListingRange>> {
        self.live(self.all_listings())
    }

    /// Returns the rows of `xattrs` that count, as ranges, sorted and disjoint.
    pub fn live_values(&self) -> Result<Vec<RowRange>> {
        let dead = self.unpacked(self.record.dead_values.get())?;
        let ranges = dead.iter().map(|&(first, end)| first as usize..end as usize);
        self.less(0..self.rows(FileKind::Xattrs), ranges)
    }

    /// Returns whether any of its rows does not count.
    pub fn has_dead(&self) -> bool {
        !self.record.dead.is_empty() || !self.record.dead_values.is_empty()
    }

    /// Returns the listings of a range that count.
    pub(crate) fn live(&self, listings: ListingRange) -> Result<Vec<ListingRange>> {
        let dead = self.dead_within(&listings)?.iter();
        self.less(listings, dead.map(|dead| dead.first..dead.end))
    }

    /// Returns what is left of a range without others, which must follow each other.
    fn less<T: Copy + Ord + Default>(
        &self,
        range: Range<T>,
        dead: impl Iterator<Item = Range<T>>,
    ) -> Result<Vec<Range<T>>> {
        let mut live = Vec::new();
        let (mut at, mut dead_end) = (range.start, T::default());
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

    /// Returns how many of its rows count, and how many there are: listings, what is in them, and
    /// values of extended attributes. Opens no file.
    pub(crate) fn live_rows(&self) -> Result<(usize, usize)> {
        let kinds = [FileKind::Entries, FileKind::Dirs, FileKind::Xattrs, FileKind::Listings];
        let all: usize = kinds.iter().map(|&kind| self.rows(kind)).sum();
        let listings = self.dead()?.iter().map(|dead| {
            let within = dead.totals.entries.saturating_add(dead.totals.dirs).max(0) as usize;
            within + (dead.end - dead.first)
        });
        let values = self.unpacked(self.record.dead_values.get())?;
        let values = values.iter().map(|(first, end)| end.saturating_sub(*first) as usize);
        Ok((all.saturating_sub(listings.chain(values).sum()), all))
    }

    /// Returns whether it has few rows that count.
    pub(crate) fn is_small(&self) -> Result<bool> {
        Ok(self.live_rows()?.0 < SMALL_ROWS_MAX)
    }

    /// Returns whether too many of its rows do not count.
    pub(crate) fn is_wasteful(&self) -> Result<bool> {
        let (live, all) = self.live_rows()?;
        Ok(live < all - all / DEAD_SHARE)
    }

    /// Returns the ranges of listings that do not count.
    pub(crate) fn dead(&self) -> Result<&[DeadListings]> {
        self.unpacked(self.record.dead.get())
    }

    /// Returns those of them that lie in a range, or partly.
    pub(crate) fn dead_within(&self, listings: &ListingRange) -> Result<&[DeadListings]> {
        let dead = self.dead()?;
        let first = dead.partition_point(|dead| dead.end <= listings.start);
        let end = dead.partition_point(|dead| dead.first < listings.end);
        Ok(&dead[first..end.max(first)])
    }

    /// Returns the running totals before a listing where dead listings begin or end.
    pub(crate) fn recorded_totals_before(&self, listing: ListingOrdinal) -> Result<Option<Totals>> {
        let dead = self.dead()?;
        let behind = dead.partition_point(|dead| dead.end < listing);
        let told = dead.get(behind).and_then(|dead| match listing {
            at if at == dead.end => Some(dead.up_to_end()),
            at if at == dead.first => Some(dead.before),
            _ => None,
        });
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::digest::Digests;
    use crate::packed::PackedList;
    use crate::shard::holds;
    use crate::source_id::SourceId;
    use canopy_model::{
        Access, Attributes, Device, Listing, Rows, SourcePath, compare_paths, is_below,
    };
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    /// A listing as it was given, and whether it counts.
    struct Known {
        path: String,
        totals: Totals,
        links: usize,
        live: bool,
    }

    /// Gives numbers that look like any others.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as usize % end
        }
    }

    #[test]
    fn live_rows_equal_a_list_without_the_dead() {
        for (seed, listings, dead) in [(1, 3, 1), (2, 40, 0), (3, 40, 9), (4, 3000, 90)] {
            let numbers = &mut Numbers(seed);
            let (mut shard, mut known) = shard_of(listings, numbers);
            kill(&mut shard, &mut known, dead, numbers);
            assert_eq!(shard.has_dead(), dead > 0);
            let live = ordinals(&shard.live_listings().unwrap());
            assert_eq!(live, wanted(&known, |_| true));
            for _ in 0..60 {
                check(&shard, &known, &directory(&known, numbers));
            }
            check(&shard, &known, "");
        }
    }

    /// Compares what a shard says of a directory with what the list does.
    fn check(shard: &Shard, known: &[Known], directory: &str) {
        let path = SourcePath::escaped(directory);
        let at = shard.listings_at(path).unwrap();
        assert_eq!(ordinals(&at), wanted(known, |path| path == directory), "at {directory}");
        let below = shard.listings_below(path).unwrap();
        let expected = wanted(known, |path| is_below(path, directory));
        assert_eq!(ordinals(&below), expected, "below {directory}");
        for ordinal in 0..known.len() {
            assert_eq!(
                holds(&below, ListingOrdinal::of_row(ordinal)),
                expected.contains(&ordinal),
                "{ordinal}"
            );
        }
        let mut totals = Totals::default();
        expected.iter().for_each(|&ordinal| totals += known[ordinal].totals);
        assert_eq!(shard.totals_below(path).unwrap(), totals, "below {directory}");
        let (mut entries, mut dirs, mut links) = (Vec::new(), Vec::new(), Vec::new());
        let mut before = Totals::default();
        for (ordinal, known) in known.iter().enumerate() {
            let first = before;
            before += known.totals;
            if expected.contains(&ordinal) {
                entries.extend(first.entries as usize..before.entries as usize);
                dirs.extend(first.dirs as usize..before.dirs as usize);
                links.extend(std::iter::repeat_n(ordinal, known.links));
            }
        }
        let found = shard.rows_of(&below).unwrap();
        assert_eq!((rows(&found.0), rows(&found.1)), (entries, dirs), "below {directory}");
        let found = shard.hardlinks(&below).unwrap();
        let found: Vec<usize> = found.iter().map(|link| link.listing.row()).collect();
        assert_eq!(found, links, "below {directory}");
    }

    /// Makes a shard of directories with up to four entries and two directories in each.
    fn shard_of(count: usize, numbers: &mut Numbers) -> (Shard, Vec<Known>) {
        let mut paths = BTreeSet::from([String::new()]);
        while paths.len() < count {
            let depth = 1 + numbers.below(5);
            let name = |_| ["a", "b", "b-c", "é"][numbers.below(4)].to_owned() + "x";
            let mut path = (0..depth).map(name).collect::<Vec<_>>().join("/");
            path.push_str(&"0123456789"[..1 + numbers.below(9)]);
            paths.insert(path);
        }
        let mut builder = Builder::default();
        let mut known = Vec::new();
        for path in paths {
            let (mut rows, mut totals, mut links) = (Rows::default(), Totals::default(), 0);
            for name in 0..numbers.below(5) {
                let (nlink, size_bytes) = (1 + numbers.below(2) as u32, numbers.below(99) as i64);
                let (mode, ino) = (0o100_644, numbers.below(50) as u64);
                let attributes =
                    Attributes { mode, nlink, ino, size_bytes, blocks: 8, ..Attributes::default() };
                rows.push(&format!("f{name}"), attributes, "");
                totals += Totals::of_entry(size_bytes, 8);
                links += usize::from(nlink > 1);
            }
            for name in 0..numbers.below(3) {
                let attributes =
                    Attributes { mode: 0o040_755, size_bytes: 4096, ..Attributes::default() };
                rows.push(&format!("d{name}"), attributes, "");
                totals += Totals { dirs: 1, dir_bytes: 4096, ..Totals::default() };
            }
            let listing = Listing {
                path: SourcePath::escaped(&path),
                depth: path.split('/').filter(|name| !name.is_empty()).count() as u32,
                part: 0,
                dev: Device(1),
                directory: &Attributes::default(),
                access: &Access::EVERYONE,
                rows: &rows,
            };
            builder.push(&listing, Digests::default(), &mut Vec::new());
            known.push(Known { path, totals, links, live: true });
        }
        known.sort_by(|a, b| compare_paths(&a.path, &b.path));
        (Shard::in_memory(SourceId(1), PathBuf::from("memory"), builder).unwrap(), known)
    }

    /// Has up to so many ranges of listings count no longer.
    fn kill(shard: &mut Shard, known: &mut [Known], count: usize, numbers: &mut Numbers) {
        for _ in 0..count {
            let first = numbers.below(known.len());
            let end = known.len().min(first + 1 + numbers.below(5));
            known[first..end].iter_mut().for_each(|known| known.live = false);
        }
        let covers = shard.covers().unwrap();
        let mut dead: Vec<DeadListings> = Vec::new();
        let mut before = Totals::default();
        for (ordinal, known) in (0..).map(ListingOrdinal).zip(&*known) {
            if !known.live {
                let begins_cover = covers.iter().any(|cover| cover.first == ordinal);
                match dead.last_mut().filter(|dead| dead.end == ordinal && !begins_cover) {
                    Some(last) => {
                        last.end += 1;
                        last.totals += known.totals;
                    }
                    None => {
                        let (end, totals) = (ordinal + 1, known.totals);
                        dead.push(DeadListings { first: ordinal, end, before, totals });
                    }
                }
            }
            before += known.totals;
        }
        shard.record.dead = PackedList::new(dead).unwrap();
    }

    /// Chooses a directory of the list, one above it or one that is not there.
    fn directory(known: &[Known], numbers: &mut Numbers) -> String {
        let path = &known[numbers.below(known.len())].path;
        match numbers.below(4) {
            0 => format!("{path}x"),
            _ => {
                let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
                let ends: Vec<usize> = ends.collect();
                path[..ends[numbers.below(ends.len())]].to_owned()
            }
        }
    }

    fn wanted(known: &[Known], is_wanted: impl Fn(&str) -> bool) -> Vec<usize> {
        let all = known.iter().enumerate();
        all.filter(|(_, known)| known.live && is_wanted(&known.path)).map(|(at, _)| at).collect()
    }

    /// Gives the rows of ranges, which must be sorted, disjoint and not empty.
    fn rows(ranges: &[RowRange]) -> Vec<usize> {
        assert!(ranges.iter().all(|range| !range.is_empty()), "{ranges:?}");
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
        ranges.iter().cloned().flatten().collect()
    }

    /// Gives the rows of listings in ranges, which must be sorted, disjoint and not empty.
    fn ordinals(ranges: &[ListingRange]) -> Vec<usize> {
        rows(&ranges.iter().map(ListingOrdinal::rows).collect::<Vec<_>>())
    }

    #[test]
    fn values_that_do_not_count_are_left_out() {
        let (mut shard, _) = shard_of(3, &mut Numbers(5));
        assert!(shard.live_values().unwrap().is_empty());
        shard.record.files[FileKind::Xattrs as usize] =
            Some(crate::shard_record::FileRecord { rows: 10, bytes: 1 });
        assert_eq!(shard.live_values().unwrap(), [0..10]);
        shard.record.dead_values = PackedList::new(vec![(0, 2), (4, 5), (8, 10)]).unwrap();
        assert_eq!(shard.live_values().unwrap(), [2..4, 5..8]);
        assert!(shard.has_dead());
    }

    #[test]
    fn dead_rows_that_are_out_of_order_are_an_error() {
        let (mut shard, _) = shard_of(30, &mut Numbers(6));
        for ranges in [vec![(4, 6), (5, 7)], vec![(4, 6), (1, 2)], vec![(3, 3)], vec![(5, 2)]] {
            let dead = ranges.into_iter().map(|(first, end)| {
                let (before, totals) = (Totals::default(), Totals::default());
                DeadListings {
                    first: ListingOrdinal(first),
                    end: ListingOrdinal(end),
                    before,
                    totals,
                }
            });
            shard.record.dead = PackedList::new(dead.collect()).unwrap();
            assert!(shard.live_listings().is_err());
        }
    }
}

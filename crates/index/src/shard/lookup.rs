//! Where in `listings` a directory is, and what lies before a listing. A look-up decodes one page
//! of paths and one of numbers; both are kept for the next one, which often needs them again.
//!
//! Pages of `listings` and `dirs` have 512 rows. The beginning and the end of a subtree and its
//! running totals mostly lie in one page.

use super::{OpenFile, RowRange, Shard, SumColumn};
use crate::column::*;
use crate::error::{Error, Result};
use crate::listing_ordinal::{ListingOrdinal, ListingRange};
use crate::schema::{FENCE_ROWS, FENCES_END, FENCES_KEY, FileKind};
use crate::shard_record::{HardLink, Overlap};
use arrow::array::RecordBatch;
use canopy_model::{Device, SourcePath, Totals};
use parking_lot::Mutex;
use std::sync::OnceLock;

/// No listings.
const NONE: ListingRange = ListingOrdinal(0)..ListingOrdinal(0);

/// Pages that are kept of a shard: a subtree begins in one and ends in another.
const KEPT_MAX: usize = 2;

/// Pages of a file of listings that look-ups have read.
#[derive(Default)]
pub(super) struct Pages {
    fences: OnceLock<Vec<String>>,
    paths: DecodedPages,
    numbers: DecodedPages,
}

/// Columns of the pages that were decoded last, by number of the page.
#[derive(Default)]
struct DecodedPages(Mutex<Vec<(usize, RecordBatch)>>);

/// The columns of [`Pages::numbers`].
const NUMBERS: Columns = Columns::of(&[
    DEV.id(),
    FIRST_ENTRY.id(),
    FIRST_DIR.id(),
    BYTES_BEFORE.id(),
    DIR_BYTES_BEFORE.id(),
    BLOCKS_BEFORE.id(),
]);

impl Shard {
    /// Returns all listings, dead ones among them.
    pub fn all_listings(&self) -> ListingRange {
        ListingOrdinal::range(0..self.rows(FileKind::Listings))
    }

    /// Returns the listings of a directory and all below it that count, as ranges of ordinals,
    /// sorted and disjoint; none is empty. Opens no file if the covers suffice.
    pub fn listings_below(&self, directory: SourcePath<'_>) -> Result<Vec<ListingRange>> {
        let all = self.all_listings_below(directory)?;
        self.live(all)
    }

    /// As [`Shard::listings_below`], dead ones among them.
    pub(crate) fn all_listings_below(&self, directory: SourcePath<'_>) -> Result<ListingRange> {
        match Overlap::of(&self.record.prefix, directory) {
            Overlap::Outside => return Ok(NONE),
            Overlap::Inside => return Ok(self.all_listings()),
            Overlap::Partly => {}
        }
        let mut found: Option<ListingRange> = None;
        for cover in self.covers()? {
            let whole = cover.first..cover.end;
            let range = match Overlap::of(&cover.prefix, directory) {
                Overlap::Outside => continue,
                Overlap::Inside => whole,
                Overlap::Partly => self.search(directory, whole)?,
            };
            if !range.is_empty() {
                let start = found.as_ref().map_or(range.start, |found| found.start);
                found = Some(start..range.end);
            }
        }
        Ok(found.unwrap_or(NONE))
    }

    /// Returns the listing of a directory itself, if it counts: no, one or, of a huge directory,
    /// several ordinals, as ranges.
    pub fn listings_at(&self, directory: SourcePath<'_>) -> Result<Vec<ListingRange>> {
        let all = self.all_listings_at(directory)?;
        self.live(all)
    }

    /// As [`Shard::listings_at`], dead ones among them.
    pub(crate) fn all_listings_at(&self, directory: SourcePath<'_>) -> Result<ListingRange> {
        let may_hold = |prefix: &str| match Overlap::of(prefix, directory) {
            Overlap::Outside => false,
            Overlap::Inside => prefix == directory.as_str(),
            Overlap::Partly => true,
        };
        if !may_hold(&self.record.prefix)
            || !self.covers()?.iter().any(|cover| may_hold(&cover.prefix))
        {
            return Ok(NONE);
        }
        let first = self.partition_point(|path| path < directory)?;
        let end = self.partition_point(|path| path <= directory)?;
        Ok(first..end)
    }

    /// Returns the sums over all entries below a directory. Opens no file if the covers suffice.
    pub fn totals_below(&self, directory: SourcePath<'_>) -> Result<Totals> {
        match Overlap::of(&self.record.prefix, directory) {
            Overlap::Outside => return Ok(Totals::default()),
            Overlap::Inside => {
                let mut totals = self.record.totals;
                self.dead()?.iter().for_each(|dead| totals -= dead.totals);
                return Ok(totals);
            }
            Overlap::Partly => {}
        }
        let mut totals = Totals::default();
        for cover in self.covers()? {
            let whole = cover.first..cover.end;
            match Overlap::of(&cover.prefix, directory) {
                Overlap::Outside => {}
                Overlap::Inside => {
                    totals += cover.totals;
                    self.dead_within(&whole)?.iter().for_each(|dead| totals -= dead.totals);
                }
                Overlap::Partly => {
                    for range in self.live(self.search(directory, whole)?)? {
                        totals += self.totals_of(range)?;
                    }
                }
            }
        }
        Ok(totals)
    }

    /// Returns, if all of the shard is below a directory and its manifest says so, the sums over
    /// all entries, with those once that have several links but no name elsewhere, and the links of
    /// the others that have several.
    pub fn once_below(&self, directory: SourcePath<'_>) -> Result<Option<(Totals, &[HardLink])>> {
        match (Overlap::of(&self.record.prefix, directory), &self.record.open_links) {
            (Overlap::Inside, Some(open)) if self.record.dead.is_empty() => {
                let mut totals = self.record.totals;
                totals -= self.record.repeats;
                Ok(Some((totals, self.unpacked(open.get())?)))
            }
            _ => Ok(None),
        }
    }

    /// Returns whether it may have values of extended attributes of what is in a directory or below.
    pub(crate) fn may_have_values(&self, directory: SourcePath<'_>) -> bool {
        let prefix = self.record.values_prefix.as_deref();
        prefix.is_some_and(|prefix| Overlap::of(prefix, directory) != Overlap::Outside)
    }

    /// Returns whether the manifest alone has the sums over all entries below a directory, and
    /// their hard links.
    pub fn has_totals_below(&self, directory: SourcePath<'_>) -> bool {
        match Overlap::of(&self.record.prefix, directory) {
            Overlap::Outside => true,
            Overlap::Inside => self.record.file(FileKind::Hardlinks).is_none(),
            Overlap::Partly => false,
        }
    }

    /// Returns the sums over the entries of a range of listings.
    fn totals_of(&self, listings: ListingRange) -> Result<Totals> {
        let mut totals = self.totals_before(listings.end)?;
        totals -= self.totals_before(listings.start)?;
        Ok(totals)
    }

    /// Returns the entries and the directories of ranges of listings, sorted and disjoint, as
    /// ranges of rows of these files; none is empty.
    pub fn rows_of(&self, listings: &[ListingRange]) -> Result<(Vec<RowRange>, Vec<RowRange>)> {
        let (mut entries, mut dirs) = (Vec::new(), Vec::new());
        for range in listings {
            let (more_entries, more_dirs) = self.rows_of_range(range.clone())?;
            entries.extend(Some(more_entries).filter(|range| !range.is_empty()));
            dirs.extend(Some(more_dirs).filter(|range| !range.is_empty()));
        }
        Ok((entries, dirs))
    }

    /// Returns the entries and the directories of a range of listings, as ranges of rows of these
    /// files.
    pub fn rows_of_range(&self, listings: ListingRange) -> Result<(RowRange, RowRange)> {
        let (first, end) = (self.totals_before(listings.start)?, self.totals_before(listings.end)?);
        let range = |first: i64, end: i64, kind| {
            let range = first as usize..end as usize;
            let sound = range.start <= range.end && range.end <= self.rows(kind);
            sound
                .then_some(range)
                .ok_or_else(|| self.corrupt(FileKind::Listings, "its ordinals are out of order"))
        };
        Ok((
            range(first.entries, end.entries, FileKind::Entries)?,
            range(first.dirs, end.dirs, FileKind::Dirs)?,
        ))
    }

    /// Returns the device of the directory that a listing is of.
    pub fn device_of(&self, listing: ListingOrdinal) -> Result<Device> {
        let (batch, row) = self.numbers(listing)?;
        Ok(DEV.of(&batch)?.value(row))
    }

    /// Returns the running totals before a listing. The last ordinal but one past the end gives
    /// those of all.
    pub(crate) fn totals_before(&self, listing: ListingOrdinal) -> Result<Totals> {
        if listing == ListingOrdinal(0) {
            return Ok(Totals::default());
        }
        if listing.row() >= self.rows(FileKind::Listings) {
            return Ok(self.record.totals);
        }
        if let Some(totals) = self.recorded_totals_before(listing)? {
            return Ok(totals);
        }
        let (batch, row) = self.numbers(listing)?;
        let highs = self.highs()?;
        let (bytes, dir_bytes) = (BYTES_BEFORE.of(&batch)?[row], DIR_BYTES_BEFORE.of(&batch)?[row]);
        Ok(Totals {
            entries: i64::from(FIRST_ENTRY.of(&batch)?[row]),
            dirs: i64::from(FIRST_DIR.of(&batch)?[row]),
            bytes: highs.whole(listing, SumColumn::BytesBefore, bytes),
            dir_bytes: highs.whole(listing, SumColumn::DirBytesBefore, dir_bytes),
            blocks: highs.whole(listing, SumColumn::BlocksBefore, BLOCKS_BEFORE.of(&batch)?[row]),
        })
    }

    /// Returns the listings among `within` that are a directory or below it.
    fn search(&self, directory: SourcePath<'_>, within: ListingRange) -> Result<ListingRange> {
        let first = self.partition_point(|path| path < directory)?;
        let end = self.partition_point(|path| path < directory || path.is_below(directory))?;
        let clamp = |ordinal: ListingOrdinal| ordinal.max(within.start).min(within.end);
        Ok(clamp(first)..clamp(end))
    }

    /// Returns the number of listings at the front whose paths fulfil a condition that none fulfils
    /// after them.
    fn partition_point(&self, holds: impl Fn(SourcePath<'_>) -> bool) -> Result<ListingOrdinal> {
        let open = self.open(FileKind::Listings)?;
        let fences = self.fences(&open)?;
        let Some(page) =
            fences.partition_point(|path| holds(SourcePath::escaped(path))).checked_sub(1)
        else {
            return Ok(ListingOrdinal(0));
        };
        let batch = self.page(&open.pages.paths, PATH.into(), page)?;
        let paths = PATH.of(&batch)?;
        let (mut first, mut end) = (0, batch.num_rows());
        while first < end {
            let middle = first.midpoint(end);
            match holds(SourcePath::escaped(paths.value(middle))) {
                true => first = middle + 1,
                false => end = middle,
            }
        }
        Ok(ListingOrdinal::of_row(page * FENCE_ROWS + first))
    }

    /// Returns the page of [`NUMBERS`] that a listing is in, and its row there.
    fn numbers(&self, listing: ListingOrdinal) -> Result<(RecordBatch, usize)> {
        let open = self.open(FileKind::Listings)?;
        let batch = self.page(&open.pages.numbers, NUMBERS, listing.row() / FENCE_ROWS)?;
        Ok((batch, listing.row() % FENCE_ROWS))
    }

    /// Columns of a page of `listings`.
    fn page(&self, kept: &DecodedPages, columns: Columns, page: usize) -> Result<RecordBatch> {
        let kept = || kept.0.lock();
        if let Some((_, batch)) = kept().iter().find(|(number, _)| *number == page) {
            return Ok(batch.clone());
        }
        let start = page * FENCE_ROWS;
        let rows = start..self.rows(FileKind::Listings).min(start + FENCE_ROWS);
        let batch =
            self.read(FileKind::Listings, columns, std::slice::from_ref(&rows), FENCE_ROWS)?.next();
        let missing = || self.corrupt(FileKind::Listings, "a row is missing");
        let batch = batch.ok_or_else(missing)??;
        if batch.num_rows() != rows.len() {
            return Err(missing());
        }
        let mut kept = kept();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push((page, batch.clone()));
        Ok(batch)
    }

    fn fences<'a>(&self, open: &'a OpenFile) -> Result<&'a [String]> {
        if let Some(fences) = open.pages.fences.get() {
            return Ok(fences);
        }
        let metadata = open.metadata.metadata().file_metadata();
        let fences = metadata
            .key_value_metadata()
            .and_then(|pairs| pairs.iter().find(|pair| pair.key == FENCES_KEY))
            .and_then(|pair| pair.value.as_deref())
            .ok_or_else(|| Error::corrupt(&open.path, "its fences are missing"))?;
        let fences: Vec<String> = fences.split(FENCES_END).map(str::to_owned).collect();
        if fences.len() != self.rows(FileKind::Listings).div_ceil(FENCE_ROWS) {
            return Err(Error::corrupt(&open.path, "it has a wrong number of fences"));
        }
        Ok(open.pages.fences.get_or_init(|| fences))
    }
}

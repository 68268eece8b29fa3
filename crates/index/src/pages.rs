//! The pages of manifests: the records of up to [`PAGE_SHARDS_MAX`] shards of a class and a source,
//! in a file that never changes.
//!
//! A manifest says of a page where its listings are and what their entries add up to. So whoever
//! asks for a part of the tree reads the pages of that part alone, and a new generation shares with
//! the one before the pages that it does not change.
//!
//! An update reads and writes the pages that it changes, and one more. `du -s` of everything reads
//! no page; `find` in a directory reads the pages around it. Generations are compared page by page,
//! so clean-up and `diff` cost as much as has changed.
//!
//! The manifest describes the paths of a page by at most 8 ranges, not by prefixes. Pages are
//! consecutive in path order, so ranges stay narrow where common directories do not. A command
//! reads this list for all classes that its user may see: some 300 bytes for 64 shards.

use crate::covers::common_directory;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::manifest::{self, Document};
use crate::packed::PackedList;
use crate::schema::FileKind;
use crate::shard::{ClassDir, Shard, missing};
use crate::shard_record::{HardLink, Overlap, ShardRecord, TotalsRecord};
use crate::source_id::SourceId;
use canopy_model::{Device, Generation, SourcePath, Totals, compare_paths, is_below};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

/// Most shards of a page, by default.
pub(crate) const PAGE_SHARDS_MAX: usize = 64;

/// Most ranges of directories of a page.
const RANGES_MAX: usize = 8;

/// Most hard links that the record of a page has.
const OPEN_LINKS_MAX: usize = 256;

/// The records of some shards: `ID-page.bin` in the class directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Page {
    pub(crate) shards: Vec<ShardRecord>,
}

impl Document for Page {
    const KIND: &'static str = "page";

    fn is_sound(&self) -> bool {
        self.shards.iter().all(ShardRecord::is_sound)
    }
}

/// Summary of some shards of one source, and of their place in the tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// The source that the shards belong to.
    pub(crate) source: SourceId,
    /// How many shards there are.
    pub(crate) shards: u32,
    /// The size of all files of the shards in bytes.
    pub(crate) bytes: u64,
    /// How many of them have a file of each kind, by its place in [`FileKind::ALL`], and how many row
    /// groups these files have.
    pub(crate) files: [(u32, u32); FileKind::COUNT],
    /// Where the listings are.
    pub(crate) ranges: PathRanges,
    /// The deepest directory that is or is above all those of whose entries there are values of
    /// extended attributes, if there are any.
    pub(crate) values_prefix: Option<String>,
    /// Sums over all entries that count.
    #[serde(with = "TotalsRecord")]
    pub(crate) totals: Totals,
    /// Surplus that entries with several links add to these sums, if each of `open_links` counts
    /// once.
    #[serde(with = "TotalsRecord")]
    pub(crate) repeats: Totals,
    /// Entries with several links of which some may be elsewhere; `None` if only the shards know.
    pub(crate) open_links: Option<PackedList<HardLink>>,
}

/// Record of a page in a manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PageRecord {
    pub(crate) id: PageId,
    pub(crate) extent: Extent,
    /// How many shards are small.
    pub(crate) small_shards: u32,
    /// Whether a shard has too many dead rows.
    pub(crate) is_wasteful: bool,
    /// When the first row of a shard was found dead, in nanoseconds since 1970.
    pub(crate) dead_since_ns: Option<i64>,
}

/// How the name of the file of a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct PageId {
    /// The generation in which it was written. No shard of it is of a later one.
    pub(crate) generation: Generation,
    pub(crate) number: u64,
    /// Random bytes that nobody can guess, where the page names shards that are found by name
    /// alone.
    pub(crate) secret: Option<[u8; 16]>,
}

impl PageId {
    /// Returns the name of the file.
    pub(crate) fn file_name(self) -> String {
        let PageId { generation, number, secret } = self;
        match secret {
            Some(secret) => format!("{generation}-{number}-{}-page.bin", hex::encode(secret)),
            None => format!("{generation}-{number}-page.bin"),
        }
    }
}

/// Ranges of directories: the first one and the last one of each, with NUL behind each, as no path
/// has it. So a manifest of many pages is read with few allocations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PathRanges(String);

impl PathRanges {
    fn push(&mut self, first: &str, last: &str) {
        [first, "\0", last, "\0"].into_iter().for_each(|text| self.0.push_str(text));
    }

    fn iter(&self) -> impl Iterator<Item = PathRange<'_>> {
        let mut paths = self.0.split_terminator('\0');
        std::iter::from_fn(move || Some(PathRange { first: paths.next()?, last: paths.next()? }))
    }

    /// Returns the deepest directory that is or is above all of them; `None` if there are none.
    pub(crate) fn common_directory(&self) -> Option<&str> {
        let PathRange { first, last } = self.hull()?;
        Some(common_directory(first, last).0)
    }

    /// Returns the range from the first directory of all to the last one.
    fn hull(&self) -> Option<PathRange<'_>> {
        let (first, _) = self.0.split_once('\0')?;
        let all = self.0.strip_suffix('\0')?;
        Some(PathRange { first, last: all.rsplit_once('\0')?.1 })
    }
}

/// Directories from one to another in path order, and all below the last one.
#[derive(Clone, Copy)]
struct PathRange<'a> {
    first: &'a str,
    last: &'a str,
}

impl PathRange<'_> {
    fn overlap(self, directory: SourcePath<'_>) -> Overlap {
        let (first, last) = (SourcePath::escaped(self.first), SourcePath::escaped(self.last));
        if first.is_below(directory) && last.is_below(directory) {
            Overlap::Inside
        } else if directory < first && !first.is_below(directory)
            || directory > last && !directory.is_below(last)
        {
            Overlap::Outside
        } else {
            Overlap::Partly
        }
    }

    fn has(self, directory: SourcePath<'_>) -> bool {
        let (first, last) = (SourcePath::escaped(self.first), SourcePath::escaped(self.last));
        first <= directory && (directory <= last || directory.is_below(last))
    }
}

impl PageRecord {
    /// Describes a page of some shards of a source; there is one at least.
    fn of(id: PageId, shards: &[Arc<Shard>]) -> Result<Self> {
        let (mut small_shards, mut is_wasteful) = (0, false);
        for shard in shards {
            small_shards += u32::from(shard.is_small()?);
            is_wasteful |= shard.is_wasteful()?;
        }
        Ok(PageRecord {
            id,
            extent: Extent::of(shards)?,
            small_shards,
            is_wasteful,
            dead_since_ns: shards.iter().filter_map(|shard| shard.record().dead_since_ns).min(),
        })
    }
}

impl Extent {
    /// Describes some shards of a source; there is one at least.
    fn of(shards: &[Arc<Shard>]) -> Result<Self> {
        let records = || shards.iter().map(|shard| shard.record());
        let mut prefixes: Vec<&str> = Vec::new();
        for shard in shards {
            prefixes.extend(shard.covers()?.iter().map(|cover| cover.prefix.as_str()));
        }
        let mut files = [(0, 0); FileKind::COUNT];
        for shard in shards {
            for kind in FileKind::ALL.into_iter().filter(|&kind| shard.rows(kind) > 0) {
                files[kind as usize].0 += 1;
                files[kind as usize].1 += shard.row_groups(kind).len() as u32;
            }
        }
        let values = records().filter_map(|shard| shard.values_prefix.as_deref());
        let mut sums = Sums::default();
        for shard in shards {
            let all = shard.totals_below(SourcePath::ROOT)?;
            let once = if shard.has_hardlinks() {
                shard.once_below(SourcePath::ROOT)?
            } else {
                Some((all, &[][..]))
            };
            match once {
                Some((once, links)) => {
                    let mut repeats = all;
                    repeats -= once;
                    sums.add(all, repeats, Some(links));
                }
                None => sums.add(all, Totals::default(), None),
            }
        }
        let (totals, repeats, open_links) = sums.finish();
        Ok(Extent {
            source: records().next().map_or(SourceId(0), |shard| shard.source),
            shards: shards.len() as u32,
            bytes: records().map(ShardRecord::bytes).sum(),
            files,
            ranges: ranges(prefixes.into_iter().map(|prefix| (prefix, prefix)).collect()),
            values_prefix: values.reduce(|a, b| common_directory(a, b).0).map(str::to_owned),
            totals,
            repeats,
            open_links,
        })
    }

    /// Describes what several extents of one source have together; there is one at least.
    pub(crate) fn joined(extents: &[&Extent]) -> postcard::Result<Self> {
        let mut joined = Extent { source: extents[0].source, ..Extent::default() };
        let mut paths = Vec::new();
        let mut sums = Sums::default();
        for extent in extents {
            joined.shards += extent.shards;
            joined.bytes += extent.bytes;
            for (sum, (files, groups)) in joined.files.iter_mut().zip(extent.files) {
                *sum = (sum.0 + files, sum.1 + groups);
            }
            paths.extend(extent.ranges.iter().map(|range| (range.first, range.last)));
            let links = extent.open_links.as_ref().map(PackedList::get).transpose()?;
            sums.add(extent.totals, extent.repeats, links);
        }
        joined.ranges = ranges(paths);
        let values = extents.iter().filter_map(|extent| extent.values_prefix.as_deref());
        joined.values_prefix = values.reduce(|a, b| common_directory(a, b).0).map(str::to_owned);
        (joined.totals, joined.repeats, joined.open_links) = sums.finish();
        Ok(joined)
    }

    /// Returns how its listings lie to the subtree of a directory.
    pub(crate) fn overlap(&self, directory: SourcePath<'_>) -> Overlap {
        // That tells of most pages.
        match self.ranges.hull().map(|hull| hull.overlap(directory)) {
            Some(Overlap::Partly) => {}
            Some(overlap) => return overlap,
            None => return Overlap::Outside,
        }
        let mut overlaps = self.ranges.iter().map(|range| range.overlap(directory));
        let first = overlaps.next().unwrap_or(Overlap::Outside);
        if overlaps.all(|overlap| overlap == first) { first } else { Overlap::Partly }
    }

    /// Returns whether it may have listings at or below a directory.
    pub(crate) fn may_have_below(&self, directory: SourcePath<'_>) -> bool {
        self.overlap(directory) != Overlap::Outside
    }

    /// Returns whether it may have the listing of a directory.
    pub(crate) fn may_have_at(&self, directory: SourcePath<'_>) -> bool {
        self.ranges.hull().is_some_and(|hull| hull.has(directory))
            && self.ranges.iter().any(|range| range.has(directory))
    }

    /// Returns whether it may have values of extended attributes of what is in a directory or below.
    pub(crate) fn may_have_values(&self, directory: SourcePath<'_>) -> bool {
        let prefix = self.values_prefix.as_deref();
        prefix.is_some_and(|prefix| Overlap::of(prefix, directory) != Overlap::Outside)
    }

    /// Returns, if all of it is below a directory and the record says so, the sums over all entries,
    /// with those that have several links once, and the links that may be repeated elsewhere.
    pub(crate) fn once_below(
        &self,
        directory: SourcePath<'_>,
    ) -> postcard::Result<Option<(Totals, &[HardLink])>> {
        match (self.overlap(directory), &self.open_links) {
            (Overlap::Inside, Some(open)) => {
                let mut totals = self.totals;
                totals -= self.repeats;
                Ok(Some((totals, open.get()?)))
            }
            _ => Ok(None),
        }
    }
}

/// Reads the shards of a page.
pub(crate) fn read(place: &Arc<ClassDir>, record: &PageRecord) -> Result<Vec<Arc<Shard>>> {
    let path = place.directory.join(record.id.file_name());
    let Page { shards } = manifest::read(&path).map_err(missing)?;
    if shards.iter().any(|shard| shard.source != record.extent.source) {
        return Err(Error::corrupt(&path, "it has a shard of another source"));
    }
    if shards.len() != record.extent.shards as usize {
        return Err(Error::corrupt(
            &path,
            "it has another number of shards than its manifest says",
        ));
    }
    Ok(shards.into_iter().map(|shard| Arc::new(Shard::new(shard, place.clone()))).collect())
}

/// Writes shards of one source as a page of a class that everybody who may read the class may read,
/// or with this mode. Not durable before a sync.
pub(crate) fn write(
    disk: &Disk,
    directory: &Path,
    id: PageId,
    shards: &[Arc<Shard>],
    mode: u32,
) -> Result<PageRecord> {
    let page = Page { shards: shards.iter().map(|shard| shard.record().clone()).collect() };
    manifest::write(disk, &directory.join(id.file_name()), &page, mode, false)?;
    PageRecord::of(id, shards)
}

/// Divides shards of one source into pages of at most so many, such that few pages have what is in
/// one part of the tree.
pub(crate) fn divide(mut shards: Vec<Arc<Shard>>, max: usize) -> Result<Vec<Vec<Arc<Shard>>>> {
    for shard in &shards {
        // Decode covers now, where errors can be returned; they stay decoded.
        shard.covers()?;
    }
    let first = |shard: &Arc<Shard>| {
        let covers = shard.covers().unwrap_or_default();
        covers.first().map(|cover| cover.prefix.clone()).unwrap_or_default()
    };
    let mut placed: Vec<(String, Arc<Shard>)> =
        shards.drain(..).map(|shard| (first(&shard), shard)).collect();
    placed.sort_by(|(a, _), (b, _)| compare_paths(a, b));
    let pages = placed.len().div_ceil(max).max(1);
    let size = placed.len().div_ceil(pages).max(1);
    let page =
        |page: &[(String, Arc<Shard>)]| page.iter().map(|(_, shard)| shard.clone()).collect();
    Ok(placed.chunks(size).map(page).collect())
}

/// Adds up what counts in several parts: all, what entries with several links count too often, and
/// links that may be repeated elsewhere, unless these are too many.
struct Sums {
    totals: Totals,
    repeats: Totals,
    seen: FxHashSet<(Device, u64)>,
    open: Option<Vec<HardLink>>,
}

impl Default for Sums {
    fn default() -> Self {
        let (totals, repeats) = (Totals::default(), Totals::default());
        Sums { totals, repeats, seen: FxHashSet::default(), open: Some(Vec::new()) }
    }
}

impl Sums {
    fn add(&mut self, totals: Totals, repeats: Totals, links: Option<&[HardLink]>) {
        self.totals += totals;
        self.repeats += repeats;
        let Some(links) = links else {
            self.open = None;
            return;
        };
        for link in links {
            match self.seen.insert(link.id()) {
                true => self.open.iter_mut().for_each(|open| open.push(*link)),
                false => self.repeats += link.once(),
            }
        }
    }

    fn finish(self) -> (Totals, Totals, Option<PackedList<HardLink>>) {
        let open = self.open.filter(|open| open.len() <= OPEN_LINKS_MAX);
        let open = open.and_then(|open| PackedList::new(open).ok());
        (self.totals, self.repeats, open)
    }
}

/// Returns the ranges that ranges of directories are in, each from one to another and all below that
/// one, split where neighbours have least in common.
fn ranges(mut parts: Vec<(&str, &str)>) -> PathRanges {
    parts.sort_by(|(a, _), (b, _)| compare_paths(a, b));
    // Those that meet are one.
    parts.dedup_by(|(first, last), (_, end)| {
        let meets = is_below(first, end) || compare_paths(first, end) != Ordering::Greater;
        let ends_later = !is_below(last, end)
            && (is_below(end, last) || compare_paths(last, end) == Ordering::Greater);
        if meets && ends_later {
            *end = *last;
        }
        meets
    });
    let shared = parts.windows(2).map(|pair| common_directory(pair[0].1, pair[1].0).1);
    let mut splits: Vec<(usize, usize)> = shared.zip(1..).collect();
    splits.sort_unstable();
    splits.truncate(RANGES_MAX - 1);
    let mut splits: Vec<usize> = splits.into_iter().map(|(_, at)| at).collect();
    splits.sort_unstable();
    splits.push(parts.len());
    let mut start = 0;
    let mut ranges = PathRanges::default();
    for end in splits {
        if let [(first, _), .., (_, last)] | [(first, last)] = parts[start..end] {
            ranges.push(first, last);
        }
        start = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_all_that_they_are_made_of() {
        let paths = ["a", "a/b", "a/b/c", "a-b", "b", "b/x", "c/d/e/f", "c/d/g", "", "é", "a/bb"];
        let near = ["a/b/c/d", "a0", "c", "c/d", "c/d/e", "c/d/f", "z", "b/y", "a/a"];
        // All sets of up to eleven of them.
        for set in 1_u32..1 << paths.len() {
            let some: Vec<&str> =
                (0..paths.len()).filter(|at| set >> at & 1 == 1).map(|at| paths[at]).collect();
            let ranges = ranges(some.iter().map(|path| (*path, *path)).collect());
            assert!(ranges.iter().count() <= RANGES_MAX);
            for directory in paths.iter().chain(&near) {
                let holds = some.iter().any(|prefix| is_below(directory, prefix));
                let has = ranges.iter().any(|range| range.has(SourcePath::escaped(directory)));
                assert!(has || !holds, "{directory} in {some:?}");
                for range in ranges.iter() {
                    let within = |path: &&&str| range.has(SourcePath::escaped(path));
                    let own: Vec<_> = some.iter().filter(within).collect();
                    match range.overlap(SourcePath::escaped(directory)) {
                        Overlap::Inside => {
                            assert!(own.iter().all(|path| is_below(path, directory)))
                        }
                        Overlap::Outside => assert!(own.iter().all(|path| {
                            Overlap::of(path, SourcePath::escaped(directory)) == Overlap::Outside
                        })),
                        Overlap::Partly => {}
                    }
                }
            }
        }
        assert_eq!(ranges(vec![]).iter().count(), 0);
    }
}

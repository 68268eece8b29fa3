//! Totals of subtrees, from the running totals of the shards.
//!
//! [`VisibleTree::sum`] answers for one directory with two look-ups a shard, or none if a cover
//! suffices. [`VisibleTree::nodes`] answers for every directory down to some depth with one pass
//! over the listings. Both count an entry with several hard links once; the link that counts is the
//! first in path order.

use crate::error::Result;
use crate::listings::ListingHeads;
use crate::locate::Start;
use crate::plan::BATCH_ROWS;
use crate::work::in_parallel;
use canopy_index::column::*;
use canopy_index::{FileKind, Index, ListingOrdinal, ListingRange, Shard, SourceId, SumColumn};
use canopy_model::{Device, SourcePath, SourcePathBuf, Totals};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

/// Look-ups in shards for which a thread is started.
const THREAD_LOOKUPS: usize = 8;

/// Device and inode of what has been counted.
pub type SeenInodes = FxHashSet<(Device, u64)>;

/// A directory and all below it, as far as the caller sees it.
pub struct VisibleTree<'a> {
    /// The index as the caller sees it.
    pub index: &'a Index,
    /// Number of its source.
    pub source: SourceId,
    /// Path of the directory.
    pub path: SourcePath<'a>,
    /// How many threads look shards up.
    pub threads: usize,
}

/// The totals that one directory adds to those above it: itself and its entries that are not
/// directories.
#[derive(Clone, Debug)]
pub struct DirectoryTotals {
    /// Its path.
    pub path: SourcePathBuf,
    /// The totals that it adds.
    pub own: Totals,
}

/// A further sighting of an entry with several links.
pub struct LinkSighting {
    /// Path of the listing that it is in.
    pub listing: SourcePathBuf,
    /// Device and inode.
    pub id: (Device, u64),
    /// The totals that the entry adds, once.
    pub once: Totals,
}

impl<'a> VisibleTree<'a> {
    /// The subtree of an entry that a user named.
    pub fn of(start: &'a Start, threads: usize) -> Self {
        VisibleTree {
            index: &start.view,
            source: start.source.id,
            path: start.path.as_path(),
            threads,
        }
    }

    /// The shards that may have something of it.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn shards(&self) -> Result<Vec<&'a Shard>> {
        let shards = self.index.shards_below(self.source, self.path)?;
        Ok(shards.into_iter().map(AsRef::as_ref).collect())
    }

    /// As [`VisibleTree::sum`], where nothing was seen before, and nobody asks later what was.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn sum_alone(&self) -> Result<Totals> {
        self.sum_of(&mut SeenInodes::default(), true)
    }

    /// Sums over everything below the directory, less links that were seen before.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn sum(&self, seen: &mut SeenInodes) -> Result<Totals> {
        self.sum_of(seen, false)
    }

    fn sum_of(&self, seen: &mut SeenInodes, alone: bool) -> Result<Totals> {
        let found = Mutex::new((Totals::default(), Vec::new()));
        let add = |shard: &Shard| -> Result<()> {
            let totals = shard.totals_below(self.path)?;
            let links = match shard.has_hardlinks() && totals.entries > 0 {
                true => shard.hardlinks(&shard.listings_below(self.path)?)?,
                false => Vec::new(),
            };
            let mut found = found.lock();
            found.0 += totals;
            found.1.extend(links);
            Ok(())
        };
        // Starting a thread takes longer than a few look-ups.
        let mut shards = Vec::new();
        let asked = match alone {
            true => {
                let (totals, links, asked) = self.index.sums_below(self.source, self.path)?;
                *found.lock() = (totals, links);
                asked.into_iter().map(AsRef::as_ref).collect()
            }
            false => self.shards()?,
        };
        for shard in asked {
            match if alone { shard.once_below(self.path)? } else { None } {
                Some((totals, links)) => {
                    let mut found = found.lock();
                    found.0 += totals;
                    found.1.extend_from_slice(links);
                }
                None => shards.push(shard),
            }
        }
        let (told, asked): (Vec<_>, Vec<_>) =
            shards.into_iter().partition(|shard| shard.has_totals_below(self.path));
        told.into_iter().try_for_each(add)?;
        in_parallel(self.threads.min(asked.len() / THREAD_LOOKUPS), &asked, |shard| add(shard))?;
        let (mut totals, links) = found.into_inner();
        seen.reserve(links.len());
        for link in links {
            if !seen.insert(link.id()) {
                totals -= link.once();
            }
        }
        Ok(totals)
    }

    /// Sums over everything below the directory, each link as often as it occurs.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn sum_of_names(&self) -> Result<Totals> {
        let sum = Mutex::new(Totals::default());
        let shards = self.shards()?;
        in_parallel(
            self.threads.min(shards.len() / THREAD_LOOKUPS),
            &shards,
            |shard| -> Result<()> {
                let totals = shard.totals_below(self.path)?;
                *sum.lock() += totals;
                Ok(())
            },
        )?;
        Ok(sum.into_inner())
    }

    /// The directories down to `depth` components in path order, deeper ones added to those above
    /// them. A directory that cannot be listed is there with itself alone.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn nodes(&self, depth: usize) -> Result<Vec<DirectoryTotals>> {
        let all = Mutex::new(Vec::new());
        in_parallel(self.threads, &self.shards()?, |shard| -> Result<()> {
            let listings = shard.listings_below(self.path)?;
            if listings.is_empty() {
                return Ok(());
            }
            let mut nodes = Nodes { depth, nodes: Vec::new() };
            listing_nodes(shard, &listings, &mut nodes)?;
            let listed = std::mem::take(&mut nodes.nodes);
            dir_nodes(shard, &listings, &mut nodes)?;
            let mut all = all.lock();
            all.extend(listed);
            all.extend(nodes.nodes);
            Ok(())
        })?;
        let mut all: Vec<DirectoryTotals> = all.into_inner();
        all.sort_by(|a, b| a.path.as_path().cmp(&b.path.as_path()));
        all.dedup_by(|later, first| {
            let same = later.path == first.path;
            if same {
                first.own += later.own;
            }
            same
        });
        Ok(all)
    }

    /// All sightings of entries with several links, in path order of their listings.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn links(&self) -> Result<Vec<LinkSighting>> {
        let all = Mutex::new(Vec::new());
        let shards: Vec<&Shard> =
            self.shards()?.into_iter().filter(|shard| shard.has_hardlinks()).collect();
        in_parallel(self.threads, &shards, |shard| -> Result<()> {
            let rows = shard.hardlinks(&shard.listings_below(self.path)?)?;
            let heads = ListingHeads::read(shard, rows.iter().map(|row| row.listing))?;
            let mut found = Vec::with_capacity(rows.len());
            for row in rows {
                let listing = heads.expect(shard, FileKind::Hardlinks, row.listing)?.path.to_buf();
                found.push(LinkSighting { listing, id: row.id(), once: row.once() });
            }
            all.lock().extend(found);
            Ok(())
        })?;
        let mut all = all.into_inner();
        all.sort_by(|a: &LinkSighting, b| a.listing.as_path().cmp(&b.listing.as_path()));
        Ok(all)
    }
}

/// Nodes in the making; neighbours with the same path become one.
struct Nodes {
    depth: usize,
    nodes: Vec<DirectoryTotals>,
}

impl Nodes {
    fn add(&mut self, path: SourcePath<'_>, own: Totals) {
        let path = truncated(path, self.depth);
        match self.nodes.last_mut() {
            Some(last) if last.path.as_path() == path => last.own += own,
            _ => self.nodes.push(DirectoryTotals { path: path.to_buf(), own }),
        }
    }
}

/// The first so many components of a path.
pub fn truncated(path: SourcePath<'_>, depth: usize) -> SourcePath<'_> {
    if depth == 0 {
        return SourcePath::ROOT;
    }
    let text = path.as_str();
    match text.bytes().enumerate().filter(|(_, byte)| *byte == b'/').nth(depth - 1) {
        Some((end, _)) => SourcePath::escaped(&text[..end]),
        None => path,
    }
}

fn listing_nodes(shard: &Shard, listings: &[ListingRange], nodes: &mut Nodes) -> Result<()> {
    let columns = PATH | FILES | SYMLINKS | OTHERS | ENTRY_BYTES | ENTRY_BLOCKS;
    let highs = shard.highs()?;
    let mut ordinals = ListingOrdinal::each(listings);
    for batch in shard.read_listings(columns, listings, BATCH_ROWS)? {
        let batch = batch?;
        let (paths, files) = (PATH.of(&batch)?, FILES.of(&batch)?);
        let (symlinks, others) = (SYMLINKS.of(&batch)?, OTHERS.of(&batch)?);
        let (bytes, blocks) = (ENTRY_BYTES.of(&batch)?, ENTRY_BLOCKS.of(&batch)?);
        for at in 0..batch.num_rows() {
            let entries = files[at] + symlinks[at] + others[at];
            let missing = || shard.corrupt(FileKind::Listings, "it has more rows than it should");
            let ordinal = ordinals.next().ok_or_else(missing)?;
            let bytes = highs.whole(ordinal, SumColumn::EntryBytes, bytes[at]);
            let blocks = highs.whole(ordinal, SumColumn::EntryBlocks, blocks[at]);
            let path = SourcePath::escaped(paths.value(at));
            nodes.add(path, Totals { entries, bytes, blocks, ..Totals::default() });
        }
    }
    Ok(())
}

fn dir_nodes(shard: &Shard, listings: &[ListingRange], nodes: &mut Nodes) -> Result<()> {
    let (_, dirs) = shard.rows_of(listings)?;
    if dirs.is_empty() {
        return Ok(());
    }
    let columns = LISTING | NAME | SIZE | BLOCKS;
    for batch in shard.read(FileKind::Dirs, columns, &dirs, BATCH_ROWS)? {
        let batch = batch?;
        let ordinals = LISTING.of(&batch)?;
        let heads = ListingHeads::read(shard, ordinals.iter())?;
        let (names, sizes, blocks) = (NAME.of(&batch)?, SIZE.of(&batch)?, BLOCKS.of(&batch)?);
        for at in 0..batch.num_rows() {
            let head = heads.expect(shard, FileKind::Dirs, ordinals.value(at))?;
            let own = Totals::of_directory(sizes[at], blocks[at]);
            nodes.add(head.path.child(names.value(at)).as_path(), own);
        }
    }
    Ok(())
}

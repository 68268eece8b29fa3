//! Statistics of directories and subtrees: [`Summary`]s by owner and group.
//!
//! Those of a subtree come from the blocks that the index keeps ([`canopy_index::BlockSummary`]);
//! entries are only read of the blocks at both ends of the subtree's range in a shard, and of those
//! with listings that no longer count. Those of single directories are made of their entries.

use crate::depth_first;
use crate::error::{Error, Result};
use crate::fold::{Folded, Sum, TreeFold};
use crate::inode::InodeColumns;
use crate::plan::{BATCH_ROWS, row_count};
use crate::totals::VisibleTree;
use crate::work::by_workers;
use arrow::array::{Array, RecordBatch, StringArray};
use canopy_index::column::*;
use canopy_index::{
    BlockSummary, Columns, FileKind, ListingOrdinal, ListingRange, RowRange, Shard,
};
use canopy_model::{Ownership, Parts, SourcePath, Summary};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Entries of a part of a shard below which blocks are not worth reading.
const ENTRIES_MIN: usize = 4096;

/// Statistics by owner and group.
pub type ByOwner = FxHashMap<Ownership, Summary>;

/// The properties of entries that the requested statistics need.
#[derive(Clone, Debug)]
pub struct StatisticsRequest {
    /// The statistics.
    pub parts: Parts,
    /// Columns of the entries; what comes of others is not to be used.
    pub columns: Columns,
}

impl StatisticsRequest {
    /// All statistics.
    pub fn all() -> Self {
        let columns = INODE | NAME | XATTRS;
        StatisticsRequest { parts: Parts::ALL, columns }
    }
}

/// The statistics of all entries at and below a directory, as far as the caller sees them.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn of_subtree(subtree: &VisibleTree<'_>, wanted: &StatisticsRequest) -> Result<ByOwner> {
    let sum = Mutex::new(ByOwner::default());
    let shards = subtree.shards()?;
    let start = |_| Ok(ByOwner::default());
    let work = |found: &mut ByOwner, shard: &&Shard| of_shard(shard, subtree.path, wanted, found);
    let finish = |found: ByOwner| {
        merge_into(&mut sum.lock(), found);
        Ok(())
    };
    by_workers(subtree.threads.clamp(1, shards.len().max(1)), &shards, start, work, finish)?;
    Ok(sum.into_inner())
}

/// Adds statistics to others.
pub fn merge_into(sum: &mut ByOwner, more: ByOwner) {
    for (owner, summary) in more {
        match sum.get_mut(&owner) {
            Some(known) => known.merge(&summary),
            None => {
                sum.insert(owner, summary);
            }
        }
    }
}

fn of_shard(
    shard: &Shard,
    directory: SourcePath<'_>,
    wanted: &StatisticsRequest,
    found: &mut ByOwner,
) -> Result<()> {
    let listings = shard.listings_below(directory)?;
    let count = row_count(&shard.rows_of(&listings)?.0);
    if count == 0 {
        return Ok(());
    }
    let whole = count == shard.rows(FileKind::Entries);
    let blocks = match whole || count >= ENTRIES_MIN {
        true => shard.summaries(wanted.parts.extensions)?,
        false => Vec::new(),
    };
    let mut blocks = blocks.chunk_by(|a, b| a.listings == b.listings).peekable();
    // Parts of each range outside of whole blocks: listings before the first one, between them, and
    // after the last one.
    let mut rest = Vec::new();
    for range in listings {
        let mut at = range.start;
        while let Some(block) = blocks.next_if(|block| block[0].listings.start < range.end) {
            let listings = &block[0].listings;
            let whole = at <= listings.start && listings.end <= range.end;
            if !whole || (wanted.parts.extensions && block.iter().any(|owner| !owner.extensions)) {
                continue;
            }
            rest.push(at..listings.start);
            at = listings.end;
            block.iter().for_each(|owner| add_block(found, owner, wanted.parts));
        }
        rest.push(at..range.end);
    }
    rest.retain(|listings| !listings.is_empty());
    let (entries, _) = shard.rows_of(&rest)?;
    read_entries(shard, &entries, wanted, |_, owner, entry| {
        entry.add_to(found.entry(owner).or_default(), wanted.parts);
    })?;
    shard.close(FileKind::Summaries);
    shard.close(FileKind::Entries);
    Ok(())
}

fn add_block(found: &mut ByOwner, block: &BlockSummary, parts: Parts) {
    let summary = found.entry(block.owner).or_default();
    summary.merge(&block.summary);
    // The owners are the keys; a summary has them so that those of several owners can be added up.
    if parts.owners {
        summary.uids.insert(block.owner.uid);
        summary.gids.insert(block.owner.gid);
    }
}

/// The statistics of single listings, given as ranges, in their order; those without entries are
/// left out.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn of_listings<K: PartialEq>(
    shard: &Shard,
    listings: &[ListingRange],
    wanted: &StatisticsRequest,
    key: impl Fn(Ownership) -> K,
) -> Result<Vec<(ListingOrdinal, K, Summary)>> {
    let mut found: Vec<(ListingOrdinal, K, Summary)> = Vec::new();
    let mut first = 0;
    let (entries, _) = shard.rows_of(listings)?;
    read_entries(shard, &entries, wanted, |listing, owner, entry| {
        if found.last().is_some_and(|last| last.0 != listing) {
            first = found.len();
        }
        let key = key(owner);
        let at = match found[first..].iter().rposition(|known| known.0 == listing && known.1 == key)
        {
            Some(at) => first + at,
            None => {
                found.push((listing, key, Summary::default()));
                found.len() - 1
            }
        };
        entry.add_to(&mut found[at].2, wanted.parts);
    })?;
    Ok(found)
}

/// Adds the statistics of those rows that belong to an owner.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn of_rows(
    shard: &Shard,
    rows: &[RowRange],
    wanted: &StatisticsRequest,
    owner: u32,
    found: &mut ByOwner,
) -> Result<()> {
    for batch in shard.read(FileKind::Entries, wanted.columns, rows, BATCH_ROWS)? {
        let batch = batch?;
        each_entry(&batch, 0..batch.num_rows(), |_, of, entry| {
            if of.uid == owner {
                entry.add_to(found.entry(of).or_default(), wanted.parts);
            }
        });
    }
    Ok(())
}

/// One entry, as far as its columns were read.
struct Entry<'a> {
    inodes: &'a InodeColumns<'a>,
    names: Option<&'a StringArray>,
    xattrs: Option<&'a StringArray>,
    at: usize,
}

impl Entry<'_> {
    fn add_to(&self, summary: &mut Summary, parts: Parts) {
        let name = self.names.map_or("", |names| names.value(self.at));
        let has_xattrs = self.xattrs.is_some_and(|xattrs| !xattrs.is_null(self.at));
        summary.add(&self.inodes.row(self.at), name, has_xattrs, parts);
    }
}

fn read_entries(
    shard: &Shard,
    rows: &[RowRange],
    wanted: &StatisticsRequest,
    mut each: impl FnMut(ListingOrdinal, Ownership, Entry<'_>),
) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let columns = wanted.columns | LISTING;
    for batch in shard.read(FileKind::Entries, columns, rows, BATCH_ROWS)? {
        let batch = batch?;
        let listings = LISTING.of(&batch)?;
        each_entry(&batch, 0..batch.num_rows(), |at, owner, entry| {
            each(listings.value(at), owner, entry)
        });
    }
    Ok(())
}

fn each_entry(
    batch: &RecordBatch,
    rows: RowRange,
    mut each: impl FnMut(usize, Ownership, Entry<'_>),
) {
    let inodes = InodeColumns::of(batch);
    let (names, xattrs) = (NAME.find(batch), XATTRS.find(batch));
    let (uids, gids) = (UID.find(batch), GID.find(batch));
    for at in rows {
        let (uid, gid) = (uids.map_or(0, |ids| ids[at]), gids.map_or(0, |ids| ids[at]));
        each(at, Ownership { uid, gid }, Entry { inodes: &inodes, names, xattrs, at });
    }
}

/// Calls `each` for every directory at and below the start that has a listing, after those below
/// it, with the statistics of all entries at and below it. Holds those of one path from the start
/// to a leaf at a time.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read or is damaged, and with the first error of
/// `each`.
pub fn of_each_subtree<K: Ord + Copy, E: From<Error>>(
    start: &crate::locate::Start,
    wanted: &StatisticsRequest,
    key: impl Fn(Ownership) -> K,
    mut each: impl FnMut(SourcePath<'_>, Vec<(K, Summary)>) -> Result<(), E>,
) -> Result<(), E> {
    let mut each = |folded: Folded<'_, ByKey<K>>| each(folded.path, folded.total.0);
    let mut fold = TreeFold::new(start.path.as_path());
    depth_first::in_order(start, wanted.columns, |directory, rows| -> Result<(), E> {
        // Directories on the way that have no listing, since they can only be entered, have
        // statistics all the same.
        let own = fold.enter_through(directory.path.as_path(), &mut each)?;
        rows.dirs.take(rows.dir_count, |_, _| Ok::<_, Error>(()))?;
        rows.entries.take(rows.entry_count, |batch, range| {
            each_entry(batch, range, |_, owner, entry| {
                entry.add_to(own.of(key(owner)), wanted.parts);
            });
            Ok(())
        })
    })?;
    fold.finish(&mut each)
}

/// Summaries by key, sorted.
struct ByKey<K>(Vec<(K, Summary)>);

impl<K> Default for ByKey<K> {
    fn default() -> Self {
        ByKey(Vec::new())
    }
}

impl<K: Ord + Copy> Sum for ByKey<K> {
    fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(key, summary)| self.of(*key).merge(summary));
    }
}

impl<K: Ord + Copy> ByKey<K> {
    /// The summary of a key.
    fn of(&mut self, key: K) -> &mut Summary {
        let at = self.0.binary_search_by_key(&key, |(key, _)| *key).unwrap_or_else(|at| {
            self.0.insert(at, (key, Summary::default()));
            at
        });
        &mut self.0[at].1
    }
}

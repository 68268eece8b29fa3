//! The one pass over listings: what single directories hold, and what their trees do.
//!
//! A tree may lie in many shards. Each shard adds up what it has of each tree, in path order with
//! the directories on the way to the current one on a stack; the sums meet by a hash of the path of
//! 128 bits under a secret. Memory: 56 bytes a directory in each shard that has anything below it,
//! and as much again for those that several have.

mod held;

use super::ReportOptions;
use super::parts::{CoveredFile, RowId, units_of_owner};
use super::sections::{DirectorySizes, FlaggedRows};
use super::top_k::TopK;
use super::tree_sums::{OpenTree, TreeSums, add, start_key};
use crate::error::Result;
use arrow::array::RecordBatch;
use canopy_index::column::*;
use canopy_index::{FileKind, ListingOrdinal, ListingRange};
use canopy_model::{SourcePath, SourcePathBuf};
use canopy_read::fold::{Folded, TreeFold};
use canopy_read::listings::merge_ranges;
use canopy_read::work::merged;
use rustc_hash::{FxHashMap, FxHashSet};

pub(super) use held::Held;

/// Results of the pass.
#[derive(Default)]
pub(super) struct ListingPass {
    pub(super) trees: TreeSums,
    pub(super) directories: DirectorySizes,
    pub(super) deepest: TopK,
    pub(super) empty: FlaggedRows,
    /// Directories whose listing comes in several parts, by start and path.
    split: FxHashMap<(u128, SourcePathBuf), (RowId, Held)>,
}

/// Settings of the pass.
struct Scope<'a> {
    top: usize,
    owner: Option<u32>,
    trees: bool,
    /// Directories whose listing comes in several parts.
    split: &'a FxHashSet<SourcePathBuf>,
}

/// Reads the listings of all parts; sums of trees if `trees`.
pub(super) fn read(
    parts: &[CoveredFile<'_>],
    options: &ReportOptions,
    trees: bool,
) -> Result<ListingPass> {
    let split = split_directories(parts)?;
    let scope = Scope { top: options.top, owner: options.owner, trees, split: &split };
    let numbered: Vec<(u32, &CoveredFile<'_>)> = (0..).zip(parts).collect();
    let work = |found: &mut ListingPass, &(number, part): &(u32, &CoveredFile<'_>)| -> Result<()> {
        PartPass { part, number, scope: &scope, found }.run()?;
        part.shard.close(FileKind::Listings);
        Ok(())
    };
    let start = || ListingPass::new(scope.top);
    let mut all = merged(options.threads, &numbered, start, work, ListingPass::merge)?;
    all.trees.join();
    for (id, held) in std::mem::take(&mut all.split).into_values() {
        if scope.counts(&held) {
            all.directories.add(id, &held);
        }
    }
    Ok(all)
}

/// Finds the directories whose listing comes in several parts.
fn split_directories(parts: &[CoveredFile<'_>]) -> Result<FxHashSet<SourcePathBuf>> {
    let mut found = FxHashSet::default();
    for part in parts.iter().filter(|part| part.shard.record().parts) {
        for unit in part.units(None)? {
            for batch in unit.read(PATH | PART)? {
                let batch = batch?;
                let rows = PATH.of(&batch)?.iter().flatten().zip(PART.of(&batch)?);
                let later = rows.filter(|(_, number)| **number > 0);
                found.extend(later.map(|(path, _)| SourcePath::escaped(path).to_buf()));
            }
        }
    }
    Ok(found)
}

impl Scope<'_> {
    /// Returns whether a directory that holds this is one to count.
    fn counts(&self, held: &Held) -> bool {
        self.owner.is_none() || held.entries > 0
    }
}

impl ListingPass {
    fn new(top: usize) -> Self {
        ListingPass {
            directories: DirectorySizes::new(top),
            deepest: TopK::new(top),
            empty: FlaggedRows::new(top),
            ..ListingPass::default()
        }
    }

    fn merge(&mut self, other: ListingPass) {
        self.trees.merge(other.trees);
        self.directories.merge(other.directories);
        self.deepest.merge(other.deepest);
        self.empty.merge(other.empty);
        for (key, (id, held)) in other.split {
            self.add_split(key, id, &held);
        }
    }

    fn add_split(&mut self, key: (u128, SourcePathBuf), id: RowId, held: &Held) {
        let known = self.split.entry(key).or_insert((id, Held::default()));
        known.0 = known.0.min(id);
        known.1.add(held);
    }
}

/// One pass over the listings of a part.
struct PartPass<'a, 'f> {
    part: &'a CoveredFile<'a>,
    number: u32,
    scope: &'a Scope<'a>,
    found: &'f mut ListingPass,
}

impl PartPass<'_, '_> {
    fn run(&mut self) -> Result<()> {
        let held = match self.scope.owner {
            None => held::of_all(&self.part.shard, &self.part.span())?,
            Some(uid) => held::of_owner(self.part, uid)?,
        };
        let listings = self.listings(&held)?;
        if listings.is_empty() { Ok(()) } else { self.read(&listings, &held) }
    }

    /// Gives the listings to look at: all, or of an owner those with something of theirs and those
    /// of directories of theirs.
    fn listings(&self, held: &[Held]) -> Result<Vec<ListingRange>> {
        let (shard, start) = (&self.part.shard, self.part.span().start);
        let Some(owner) = self.scope.owner else { return Ok(self.part.listings.clone()) };
        let mut wanted: Vec<bool> = held.iter().map(|held| held.entries > 0).collect();
        for unit in units_of_owner(shard, FileKind::Listings, &self.part.rows, owner)? {
            let mut rows = unit.rows.iter().cloned().flatten();
            for batch in unit.read(UID)? {
                for (uid, row) in UID.of(&batch?)?.iter().zip(&mut rows) {
                    wanted[ListingOrdinal::of_row(row) - start] |= *uid == owner;
                }
            }
        }
        let rows = wanted.iter().enumerate().filter(|(_, wanted)| **wanted);
        let rows = rows.map(|(at, _)| start + at..start + at + 1);
        Ok(merge_ranges(rows.collect()))
    }

    fn read(&mut self, listings: &[ListingRange], held: &[Held]) -> Result<()> {
        let start = self.part.start;
        let mut fold = TreeFold::with(start.path.as_path(), OpenTree::of_start(start));
        let mut ordinals = ListingOrdinal::each(listings);
        let counts = FILES | SYMLINKS | OTHERS | SUBDIRS;
        let columns =
            PATH | DEPTH | PART | UID | SIZE | BLOCKS | counts.when(self.scope.owner.is_some());
        for batch in
            self.part.unit(listings.iter().map(ListingOrdinal::rows).collect()).read(columns)?
        {
            let batch = batch?;
            let ordinals = ordinals.by_ref().take(batch.num_rows());
            self.batch(&batch, ordinals, held, &mut fold)?;
        }
        fold.finish(|tree| self.leave(tree))
    }

    fn batch(
        &mut self,
        batch: &RecordBatch,
        ordinals: impl Iterator<Item = ListingOrdinal>,
        held: &[Held],
        fold: &mut TreeFold<OpenTree>,
    ) -> Result<()> {
        // In an owner's directory, entries of others count, too.
        let counts = [FILES, SYMLINKS, OTHERS, SUBDIRS].map(|column| column.find(batch));
        let (paths, depths, numbers) = (PATH.of(batch)?, DEPTH.of(batch)?, PART.of(batch)?);
        let (uids, sizes, blocks) = (UID.of(batch)?, SIZE.of(batch)?, BLOCKS.of(batch)?);
        let start = self.part.span().start;
        for (at, ordinal) in ordinals.enumerate() {
            let held = &held[ordinal - start];
            let id = RowId { part: self.number, row: ordinal.0 };
            let path = SourcePath::escaped(paths.value(at));
            let own = numbers[at] == 0 && self.scope.owner.is_none_or(|owner| owner == uids[at]);
            let no_others = counts.iter().flatten().all(|count| count[at] == 0);
            let empty = own && held.entries == 0 && no_others;
            let split = !self.scope.split.is_empty() && self.scope.split.contains(path.as_str());
            if split {
                self.found.add_split((start_key(self.part.start), path.to_buf()), id, held);
            } else if self.scope.counts(held) {
                self.found.directories.add(id, held);
            }
            if own {
                let depth = i64::from(depths[at]) - i64::from(self.part.start.depth());
                self.found.deepest.offer(depth, id);
            }
            if empty && !split {
                self.found.empty.add(0, id);
            }
            if self.scope.trees {
                let tree =
                    fold.enter_through_with(path, OpenTree::child, |tree| self.leave(tree))?;
                add(&mut tree.inside, &held.sums);
                tree.id = tree.id.min(id);
                if own {
                    tree.itself = [1, sizes[at], blocks[at]].map(i128::from);
                }
            }
        }
        Ok(())
    }

    /// Takes in the tree of a directory that has been left.
    fn leave(&mut self, tree: Folded<'_, OpenTree>) -> Result<()> {
        if self.scope.trees {
            self.found.trees.push(tree);
        }
        Ok(())
    }
}

//! Statistics of blocks of listings, so that those of a subtree need no scan of its entries.
//!
//! A block is a few thousand entries in path order, whole listings only. It ends where a cover
//! ends, so that the directories at the top of a tree are made of whole blocks. Each block has a
//! [`Summary`] for each owner and group with entries in it.
//!
//! The statistics of a subtree are the sum of three parts:
//!
//! - whole blocks;
//! - entries at both ends of its range in a shard, in at most two blocks at each end;
//! - live entries of blocks with dead listings.
//!
//! The statistics of a single directory come from its entries. All statistics together take 1.4 %
//! of the index. Extrema of six times alone took 8 % when they were stored for each directory.
//! Months of times are calendar months in UTC, so months that were written at different times add
//! up. Ages do not.

use crate::builder::Builder;
use crate::listing_ordinal::{ListingOrdinal, ListingRange};
use crate::shard_record::Cover;
use canopy_model::{Count, Ownership, Parts, Summary};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Entries from which on a block ends.
const BLOCK_ENTRIES: u32 = 8192;

/// Entries from which on a block ends where a cover does.
const BLOCK_ENTRIES_MIN: u32 = 1024;

/// Most extensions that a summary keeps. Names that end in a number of their own would have as many
/// as there are entries.
const EXTENSIONS_MAX: usize = 1024;

/// Statistics of the entries of one owner and group in a block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSummary {
    /// The block's listings.
    pub listings: ListingRange,
    /// Owner and group.
    pub owner: Ownership,
    /// Statistics of their entries, without the owner and the group.
    pub summary: Summary,
    /// Whether `summary` has extensions: not if they were not read, nor where they are too many,
    /// so that names have to be read.
    pub extensions: bool,
}

impl BlockSummary {
    /// Encodes the values of the columns `summary` and `extensions`.
    pub(crate) fn encode(&self) -> postcard::Result<(Vec<u8>, Option<Vec<u8>>)> {
        let summary = postcard::to_extend(&self.summary, Vec::new())?;
        let mut counts: Vec<_> = self.summary.extensions.iter().collect();
        counts.sort_unstable_by_key(|(extension, _)| *extension);
        let counts = self.extensions.then(|| postcard::to_extend(&counts, Vec::new()));
        Ok((summary, counts.transpose()?))
    }
}

/// Decodes the values of the columns `summary` and `extensions`; without the latter, the summary
/// has no extensions.
pub(crate) fn decode(summary: &[u8], extensions: Option<&[u8]>) -> postcard::Result<Summary> {
    let mut summary: Summary = postcard::from_bytes(summary)?;
    if let Some(extensions) = extensions {
        let counts: Vec<(&str, Count)> = postcard::from_bytes(extensions)?;
        summary.extensions = counts.into_iter().map(|(name, count)| (name.into(), count)).collect();
    }
    Ok(summary)
}

/// Returns the summaries of a shard, by block, owner and group.
pub(crate) fn of_blocks(builder: &Builder, covers: &[Cover]) -> Vec<BlockSummary> {
    let mut found = Vec::new();
    for listings in blocks(builder, covers) {
        let mut owners: FxHashMap<Ownership, Summary> = FxHashMap::default();
        for head in &builder.heads[listings.clone()] {
            for at in head.entries.clone() {
                let at = at as usize;
                let attributes = &builder.entries.attributes()[at];
                let has_xattrs =
                    builder.entries.has_xattrs() && builder.entries.xattrs(at).next().is_some();
                let owner = attributes.ownership();
                let parts = Parts { owners: false, ..Parts::ALL };
                owners.entry(owner).or_default().add(
                    attributes,
                    builder.entries.name(at),
                    has_xattrs,
                    parts,
                );
            }
        }
        let first = found.len();
        found.extend(owners.into_iter().map(|(owner, mut summary)| {
            let extensions = summary.extensions.len() <= EXTENSIONS_MAX;
            if !extensions {
                summary.extensions.clear();
            }
            BlockSummary {
                listings: ListingOrdinal::range(listings.clone()),
                owner,
                summary,
                extensions,
            }
        }));
        found[first..].sort_unstable_by_key(|block| block.owner);
    }
    found
}

/// Cuts the listings of a shard into blocks.
fn blocks(builder: &Builder, covers: &[Cover]) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut start = 0;
    let mut entries = 0;
    for cover in covers {
        for ordinal in cover.first.row()..cover.end.row() {
            entries += builder.heads[ordinal].entries.len() as u32;
            let last_of_cover = ordinal + 1 == cover.end.row();
            if entries >= BLOCK_ENTRIES || (last_of_cover && entries >= BLOCK_ENTRIES_MIN) {
                blocks.push(start..ordinal + 1);
                (start, entries) = (ordinal + 1, 0);
            }
        }
    }
    if entries > 0 {
        blocks.push(start..builder.heads.len());
    }
    blocks
}

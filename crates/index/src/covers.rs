//! The covers of a shard: ranges of its listings that have a deep directory in common, so that
//! their sums answer for most directories without opening a file.
//!
//! The manifest holds at most 16 covers a shard, each with its deepest common directory and its
//! totals. With them, `du -s` of most directories opens no file.

use crate::builder::Builder;
use crate::listing_ordinal::ListingOrdinal;
use crate::shard_record::Cover;
use canopy_model::Totals;

/// Most covers of a shard.
const COVERS_MAX: usize = 16;

/// Splits the listings where neighbours have least in common, into at most [`COVERS_MAX`] ranges.
/// `before` are the running totals, one more than there are listings.
pub(crate) fn covers(builder: &Builder, before: &[Totals]) -> Vec<Cover> {
    let heads = &builder.heads;
    if heads.is_empty() {
        return Vec::new();
    }
    let shared: Vec<usize> = heads
        .windows(2)
        .map(|pair| {
            common_directory(builder.path(&pair[0]).as_str(), builder.path(&pair[1]).as_str()).1
        })
        .collect();
    let deepest = heads.iter().map(|head| head.depth as usize).max().unwrap_or(0);
    let limit = (0..=deepest)
        .take_while(|&limit| shared.iter().filter(|&&depth| depth <= limit).count() < COVERS_MAX)
        .last();
    let splits = |at: &usize| limit.is_some_and(|limit| shared[at - 1] <= limit);
    let mut ends: Vec<usize> = (1..heads.len()).filter(splits).collect();
    ends.push(heads.len());
    let mut first = 0;
    ends.into_iter()
        .map(|end| {
            let (low, high) = (builder.path(&heads[first]), builder.path(&heads[end - 1]));
            let mut totals = before[end];
            totals -= before[first];
            let prefix = common_directory(low.as_str(), high.as_str()).0.to_owned();
            let cover = Cover {
                prefix,
                first: ListingOrdinal::of_row(first),
                end: ListingOrdinal::of_row(end),
                totals,
            };
            first = end;
            cover
        })
        .collect()
}

/// Returns the deepest directory that is or is above both paths, and its depth.
pub(crate) fn common_directory<'a>(a: &'a str, b: &str) -> (&'a str, usize) {
    let mut depth = 0;
    let mut end = 0;
    for (x, y) in a.split('/').zip(b.split('/')) {
        if x != y || x.is_empty() {
            break;
        }
        end += x.len() + usize::from(depth > 0);
        depth += 1;
    }
    (&a[..end], depth)
}

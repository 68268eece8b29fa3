//! Directories of a source that something newer replaces.

use crate::digest::DigestKey;
use crate::listing_ordinal::ListingOrdinal;
use crate::pages::PageRecord;
use crate::source_id::SourceId;
use canopy_model::{compare_paths, is_below};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Directories of a source whose listings something newer replaces. Paths are below its root.
#[derive(Default)]
pub(super) struct Replaced {
    /// Number of the source.
    pub(super) source: SourceId,
    /// Its root, absolute and escaped.
    pub(super) root: String,
    /// Directories that are replaced with all below them, in path order, none below another one.
    whole: Vec<String>,
    /// Directories whose listing alone is replaced.
    alone: BTreeSet<String>,
    /// Directories below those that stay with all below them, in path order, none below another one.
    left_out: Vec<String>,
    /// Listings among these that stay, since they are as they were.
    pub(super) kept: Arc<KeptListings>,
    /// Directories among these whose entries' values of extended attributes stay.
    pub(super) kept_values: KeptValues,
}

/// Listings of a source that stay, by shard. All threads add to them.
#[derive(Default)]
pub(super) struct KeptListings {
    shards: Vec<KeptOfShard>,
    /// Where a shard is among them, by its id.
    places: FxHashMap<String, usize>,
}

/// Listings of a shard that stay: a bit each, by ordinal.
pub(super) struct KeptOfShard(Vec<AtomicU64>);

impl KeptListings {
    /// Returns that none stays, of shards with these ids and so many listings.
    pub(super) fn none<'a>(shards: impl Iterator<Item = (&'a str, usize)>) -> Self {
        let mut kept = KeptListings::default();
        for (place, (id, listings)) in shards.enumerate() {
            let words = (0..listings.div_ceil(64)).map(|_| AtomicU64::new(0));
            kept.shards.push(KeptOfShard(words.collect()));
            kept.places.insert(id.to_owned(), place);
        }
        kept
    }

    /// Takes note that a listing of the shard at this place stays.
    pub(super) fn add(&self, shard: u32, ordinal: ListingOrdinal) {
        let words = &self.shards[shard as usize].0;
        words[ordinal.row() / 64].fetch_or(1 << (ordinal.row() % 64), Relaxed);
    }

    /// Returns those of a shard, by its id.
    pub(super) fn of(&self, shard: &str) -> Option<&KeptOfShard> {
        self.places.get(shard).map(|&place| &self.shards[place])
    }
}

impl KeptOfShard {
    pub(super) fn has(&self, ordinal: ListingOrdinal) -> bool {
        let word = self.0.get(ordinal.row() / 64);
        word.is_some_and(|word| word.load(Relaxed) >> (ordinal.row() % 64) & 1 == 1)
    }
}

/// Directories whose entries' values of extended attributes stay, by the digest of their place.
#[derive(Default)]
pub(super) struct KeptValues {
    pub(super) key: DigestKey,
    pub(super) places: FxHashSet<u64>,
}

impl KeptValues {
    pub(super) fn has(&self, path: &str) -> bool {
        !self.places.is_empty() && self.places.contains(&self.key.of_place(path, 0))
    }
}

impl Replaced {
    /// Returns what replaces directories with all below them, but for those that are left out and
    /// all below these, and listings alone, which may be below what is left out.
    pub(super) fn new(
        source: SourceId,
        root: &str,
        whole: impl IntoIterator<Item = String>,
        left_out: impl IntoIterator<Item = String>,
        alone: impl IntoIterator<Item = String>,
    ) -> Self {
        let (whole, left_out) = (topmost(whole), topmost(left_out));
        let root = root.to_owned();
        let mut replaced = Replaced { source, root, whole, left_out, ..Self::default() };
        for path in alone {
            if !replaced.holds(&path) {
                replaced.alone.insert(path);
            }
        }
        replaced
    }

    /// Returns whether the listing of a directory is replaced.
    pub(super) fn holds(&self, path: &str) -> bool {
        is_in(&self.whole, path) && !is_in(&self.left_out, path) || self.alone.contains(path)
    }

    /// Returns whether all that is at and below a directory is replaced, given that this is one of
    /// [`Replaced::whole`] or below one.
    pub(super) fn holds_all_below(&self, path: &str) -> bool {
        let first = self.left_out.partition_point(|out| compare_paths(out, path) == Ordering::Less);
        let below = self.left_out.get(first).is_some_and(|out| is_below(out, path));
        !below && !is_in(&self.left_out, path)
    }

    /// Returns whether a page may have something that is replaced.
    pub(super) fn may_be_in(&self, page: &PageRecord) -> bool {
        let whole = |directory| {
            page.extent.may_have_below(directory) || page.extent.may_have_values(directory)
        };
        let alone = |directory| {
            page.extent.may_have_at(directory) || page.extent.may_have_values(directory)
        };
        self.whole().any(whole) || self.alone().any(alone)
    }

    /// Directories below those that stay with all below them.
    pub(super) fn left_out(&self) -> impl Iterator<Item = &str> {
        self.left_out.iter().map(String::as_str)
    }

    /// Directories that are replaced with all below them.
    pub(super) fn whole(&self) -> impl Iterator<Item = &str> {
        self.whole.iter().map(String::as_str)
    }

    /// Directories whose listing alone is replaced.
    pub(super) fn alone(&self) -> impl Iterator<Item = &str> {
        self.alone.iter().map(String::as_str)
    }
}

/// Returns directories in path order, without those below others.
fn topmost(directories: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = directories.into_iter().collect();
    all.sort_by(|a, b| compare_paths(a, b));
    let mut top: Vec<String> = Vec::with_capacity(all.len());
    for path in all {
        if top.last().is_none_or(|last| !is_below(&path, last)) {
            top.push(path);
        }
    }
    top
}

/// Returns whether a path is at or below one of these directories, which are in path order, none
/// below another one.
fn is_in(directories: &[String], path: &str) -> bool {
    let after = |directory: &String| compare_paths(directory, path) != Ordering::Greater;
    let last = directories.partition_point(after).checked_sub(1).map(|at| &directories[at]);
    last.is_some_and(|last| is_below(path, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_listings_are_known_by_their_path() {
        let own = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>();
        let whole = own(&["a/b", "a-b", "a/b/c", "x"]);
        let replaced = Replaced::new(SourceId(0), "/", whole, [], own(&["a", "x/y", "a/d"]));
        assert_eq!(replaced.whole().collect::<Vec<_>>(), ["a/b", "a-b", "x"]);
        assert_eq!(replaced.alone().collect::<Vec<_>>(), ["a", "a/d"]);
        for path in ["a", "a/b", "a/b/c/d", "a-b", "a-b/c", "a/d", "x/y/z"] {
            assert!(replaced.holds(path), "{path}");
        }
        for path in ["", "a/bc", "a/d/e", "a-", "xx", "a/c"] {
            assert!(!replaced.holds(path), "{path}");
        }
        assert!(Replaced::new(SourceId(0), "/", own(&[""]), [], []).holds("any/thing"));
        let left_out = own(&["b", "a/c", "b/c"]);
        let replaced = Replaced::new(SourceId(0), "/", own(&[""]), left_out, own(&["b/x", "d"]));
        assert_eq!(replaced.alone().collect::<Vec<_>>(), ["b/x"]);
        for path in ["", "a", "a/cc", "b/x", "b-"] {
            assert!(replaced.holds(path), "{path}");
        }
        for path in ["b", "b/c/d", "a/c", "a/c/d", "b/x/y"] {
            assert!(!replaced.holds(path), "{path}");
        }
        assert!(["any", "a/cc", "a/b"].iter().all(|path| replaced.holds_all_below(path)));
        assert!(["", "a", "a/c", "a/c/d", "b"].iter().all(|path| !replaced.holds_all_below(path)));
    }
}

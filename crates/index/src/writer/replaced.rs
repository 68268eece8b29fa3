//! Directories of a source that something newer replaces.

use crate::digest::DigestKey;
use crate::listing_ordinal::ListingOrdinal;
use crate::pages::PageRecord;
use crate::source_id::SourceId;
use canopy_model::{SourcePath, SourcePathBuf};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Directories of a source whose listings something newer replaces.
#[derive(Default)]
pub(super) struct Replaced {
    /// Number of the source.
    pub(super) source: SourceId,
    /// Its root, absolute and escaped.
    pub(super) root: String,
    /// Directories that are replaced with all below them, in path order, none below another one.
    whole: Vec<SourcePathBuf>,
    /// Directories whose listing alone is replaced, in path order.
    alone: Vec<SourcePathBuf>,
    /// Directories below those that stay with all below them, in path order, none below another one.
    left_out: Vec<SourcePathBuf>,
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
    pub(super) fn has(&self, path: SourcePath<'_>) -> bool {
        !self.places.is_empty() && self.places.contains(&self.key.of_place(path, 0))
    }
}

impl Replaced {
    /// Returns what replaces directories with all below them, but for those that are left out and
    /// all below these, and listings alone, which may be below what is left out.
    pub(super) fn new(
        source: SourceId,
        root: &str,
        whole: impl IntoIterator<Item = SourcePathBuf>,
        left_out: impl IntoIterator<Item = SourcePathBuf>,
        alone: impl IntoIterator<Item = SourcePathBuf>,
    ) -> Self {
        let (whole, left_out) = (topmost(whole), topmost(left_out));
        let root = root.to_owned();
        let mut replaced = Replaced { source, root, whole, left_out, ..Self::default() };
        let mut alone: Vec<SourcePathBuf> = alone.into_iter().collect();
        alone.retain(|path| !replaced.holds(path.as_path()));
        alone.sort_by(|a, b| a.as_path().cmp(&b.as_path()));
        alone.dedup();
        replaced.alone = alone;
        replaced
    }

    /// Returns whether the listing of a directory is replaced.
    pub(super) fn holds(&self, path: SourcePath<'_>) -> bool {
        let is_alone = || self.alone.binary_search_by(|own| own.as_path().cmp(&path)).is_ok();
        is_in(&self.whole, path) && !is_in(&self.left_out, path) || is_alone()
    }

    /// Returns whether all that is at and below a directory is replaced, given that this is one of
    /// [`Replaced::whole`] or below one.
    pub(super) fn holds_all_below(&self, path: SourcePath<'_>) -> bool {
        let first = self.left_out.partition_point(|out| out.as_path() < path);
        let below = self.left_out.get(first).is_some_and(|out| out.as_path().is_below(path));
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
    pub(super) fn left_out(&self) -> impl Iterator<Item = SourcePath<'_>> {
        self.left_out.iter().map(SourcePathBuf::as_path)
    }

    /// Directories that are replaced with all below them.
    pub(super) fn whole(&self) -> impl Iterator<Item = SourcePath<'_>> {
        self.whole.iter().map(SourcePathBuf::as_path)
    }

    /// Directories whose listing alone is replaced.
    pub(super) fn alone(&self) -> impl Iterator<Item = SourcePath<'_>> {
        self.alone.iter().map(SourcePathBuf::as_path)
    }
}

/// Returns directories in path order, without those below others.
fn topmost(directories: impl IntoIterator<Item = SourcePathBuf>) -> Vec<SourcePathBuf> {
    let mut all: Vec<SourcePathBuf> = directories.into_iter().collect();
    all.sort_by(|a, b| a.as_path().cmp(&b.as_path()));
    let mut top: Vec<SourcePathBuf> = Vec::with_capacity(all.len());
    for path in all {
        if top.last().is_none_or(|last| !path.as_path().is_below(last.as_path())) {
            top.push(path);
        }
    }
    top
}

/// Returns whether a path is at or below one of these directories, which are in path order, none
/// below another one.
fn is_in(directories: &[SourcePathBuf], path: SourcePath<'_>) -> bool {
    let after = directories.partition_point(|directory| directory.as_path() <= path);
    let last = after.checked_sub(1).map(|at| &directories[at]);
    last.is_some_and(|last| path.is_below(last.as_path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_listings_are_known_by_their_path() {
        let own = |paths: &[&str]| {
            paths.iter().map(|path| SourcePath::escaped(path).to_buf()).collect::<Vec<_>>()
        };
        let whole = own(&["a/b", "a-b", "a/b/c", "x"]);
        let replaced = Replaced::new(SourceId(0), "/", whole, [], own(&["a", "x/y", "a/d"]));
        assert_eq!(
            replaced.whole().map(SourcePath::as_str).collect::<Vec<_>>(),
            ["a/b", "a-b", "x"]
        );
        assert_eq!(replaced.alone().map(SourcePath::as_str).collect::<Vec<_>>(), ["a", "a/d"]);
        for path in ["a", "a/b", "a/b/c/d", "a-b", "a-b/c", "a/d", "x/y/z"] {
            assert!(replaced.holds(SourcePath::escaped(path)), "{path}");
        }
        for path in ["", "a/bc", "a/d/e", "a-", "xx", "a/c"] {
            assert!(!replaced.holds(SourcePath::escaped(path)), "{path}");
        }
        assert!(
            Replaced::new(SourceId(0), "/", own(&[""]), [], [])
                .holds(SourcePath::escaped("any/thing"))
        );
        let left_out = own(&["b", "a/c", "b/c"]);
        let replaced = Replaced::new(SourceId(0), "/", own(&[""]), left_out, own(&["b/x", "d"]));
        assert_eq!(replaced.alone().map(SourcePath::as_str).collect::<Vec<_>>(), ["b/x"]);
        for path in ["", "a", "a/cc", "b/x", "b-"] {
            assert!(replaced.holds(SourcePath::escaped(path)), "{path}");
        }
        for path in ["b", "b/c/d", "a/c", "a/c/d", "b/x/y"] {
            assert!(!replaced.holds(SourcePath::escaped(path)), "{path}");
        }
        assert!(
            ["any", "a/cc", "a/b"]
                .iter()
                .all(|path| replaced.holds_all_below(SourcePath::escaped(path)))
        );
        assert!(
            ["", "a", "a/c", "a/c/d", "b"]
                .iter()
                .all(|path| !replaced.holds_all_below(SourcePath::escaped(path)))
        );
    }
}

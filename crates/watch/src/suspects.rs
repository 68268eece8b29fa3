//! Suspects: a set of directories to be looked at again, some with all below them.
//!
//! The set is bounded, and so is the memory that it takes. A set that grows beyond its limits folds
//! the deepest of its directories into their parents, each then with all below it: less exact,
//! never less.

use std::collections::BTreeMap;
use std::ops::Bound;

/// A directory that may differ from its state in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Its absolute path, without a slash at the end unless it is `/`.
    pub path: Vec<u8>,
    /// Whether all below it is suspect, too.
    pub recursive: bool,
}

/// Suspects without duplicates, in path order. A recursive one has none below it.
#[derive(Clone, Debug)]
pub struct Suspects {
    /// By [`key`], and whether recursive.
    by_key: BTreeMap<Vec<u8>, bool>,
    root: Vec<u8>,
    len_max: usize,
    /// Bytes of all keys.
    bytes: usize,
}

/// Bytes that a path may have on average in a set that is full.
const PATH_BYTES: usize = 256;

/// Result of adding a suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is new, or was there without the directories below it.
    New,
    /// It is part of a suspect that was there.
    Known,
}

impl Suspects {
    /// Returns an empty set of directories at and below `root`, of `len_max` at most (at least 1).
    pub fn new(root: &[u8], len_max: usize) -> Self {
        Suspects { by_key: BTreeMap::new(), root: key(root), len_max: len_max.max(1), bytes: 0 }
    }

    /// Adds a directory, which must lie in the root or be it.
    pub fn add(&mut self, suspect: &Suspect) -> Added {
        let key = key(&suspect.path);
        debug_assert!(is_in(&key, &self.root), "{suspect:?}");
        if let Some((before, &recursive)) = self.by_key.range::<[u8], _>(up_to(&key)).next_back() {
            // Any suspect between a directory and one below it lies below it, too, and a recursive
            // one has none below it. So if one of the directories above is recursive, it is this
            // one.
            let covers = if recursive { is_in(&key, before) } else { *before == key };
            if covers && (recursive || !suspect.recursive) {
                return Added::Known;
            }
        }
        if suspect.recursive {
            self.remove_below(&key);
        }
        self.insert(key, suspect.recursive);
        if self.is_beyond(self.len_max) {
            self.fold();
        }
        Added::New
    }

    fn insert(&mut self, key: Vec<u8>, recursive: bool) {
        let length = key.len();
        if self.by_key.insert(key, recursive).is_none() {
            self.bytes += length;
        }
    }

    /// Returns whether there are more than so many, or so many of usual length take less memory.
    fn is_beyond(&self, len: usize) -> bool {
        self.by_key.len() > len || self.bytes > len * PATH_BYTES + self.root.len()
    }

    fn remove_below(&mut self, key: &[u8]) {
        if key.is_empty() {
            self.clear();
            return;
        }
        let (first, end) = ([key, &[0]].concat(), [key, &[1]].concat());
        let range = (Bound::Included(&first[..]), Bound::Excluded(&end[..]));
        let below = Vec::from_iter(self.by_key.range::<[u8], _>(range).map(|(key, _)| key.clone()));
        for key in below {
            self.by_key.remove(&key);
            self.bytes -= key.len();
        }
    }

    fn clear(&mut self) {
        self.by_key.clear();
        self.bytes = 0;
    }

    /// Folds the deepest ones until a quarter of the room is free, or only the root is left.
    fn fold(&mut self) {
        let depth = |key: &[u8]| key.iter().filter(|&&byte| byte == 0).count();
        let mut levels: Vec<Vec<Vec<u8>>> = Vec::new();
        for key in self.by_key.keys() {
            let level = depth(key);
            levels.resize(levels.len().max(level + 1), Vec::new());
            levels[level].push(key.clone());
        }
        let (top, aim) = (depth(&self.root), self.len_max - self.len_max / 4);
        while self.is_beyond(aim)
            && let Some(deepest) = levels.pop().filter(|_| levels.len() > top)
        {
            let mut parents = Vec::from_iter(deepest.iter().map(|key| self.parent_in_root(key)));
            parents.dedup();
            for parent in parents {
                self.remove_below(&parent);
                self.insert(parent.clone(), true);
                levels[depth(&parent)].push(parent);
            }
        }
    }

    fn parent_in_root(&self, key: &[u8]) -> Vec<u8> {
        let end = key.iter().rposition(|&byte| byte == 0).unwrap_or(0);
        key[..end.max(self.root.len())].to_vec()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Returns all in path order.
    pub fn iter(&self) -> impl Iterator<Item = Suspect> {
        self.by_key.iter().map(|(key, &recursive)| Suspect { path: path(key), recursive })
    }

    /// Takes all out.
    pub fn take(&mut self) -> Vec<Suspect> {
        let all = Vec::from_iter(self.iter());
        self.clear();
        all
    }
}

/// Returns a path as it is sorted: a slash becomes the byte that no path has, which is the smallest,
/// and `/` is empty, so that what is below a directory follows it at once.
fn key(path: &[u8]) -> Vec<u8> {
    let path = if path == b"/" { b"" } else { path };
    path.iter().map(|&byte| if byte == b'/' { 0 } else { byte }).collect()
}

/// The inverse of [`key`].
fn path(key: &[u8]) -> Vec<u8> {
    match key {
        [] => b"/".to_vec(),
        key => key.iter().map(|&byte| if byte == 0 { b'/' } else { byte }).collect(),
    }
}

fn up_to(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}

/// Whether a key is another's or one of what is below that.
fn is_in(key: &[u8], directory: &[u8]) -> bool {
    key.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == 0)
}

/// Returns whether a path is another or lies below it. Both are absolute.
pub fn is_at_or_below(path: &[u8], directory: &[u8]) -> bool {
    let directory = if directory == b"/" { b"" } else { directory };
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn suspect(path: &str, recursive: bool) -> Suspect {
        Suspect { path: path.as_bytes().to_vec(), recursive }
    }

    fn shown(suspects: &Suspects) -> Vec<String> {
        let show = |one: Suspect| {
            let star = if one.recursive { "/**" } else { "" };
            format!("{}{star}", String::from_utf8(one.path).unwrap())
        };
        suspects.iter().map(show).collect()
    }

    #[test]
    fn recursive_ones_swallow_those_below() {
        let mut suspects = Suspects::new(b"/", 100);
        for path in ["/a/b", "/a", "/a-b", "/a/b/c", "/ab"] {
            assert_eq!(suspects.add(&suspect(path, false)), Added::New);
        }
        assert_eq!(suspects.add(&suspect("/a/b", false)), Added::Known);
        assert_eq!(shown(&suspects), ["/a", "/a/b", "/a/b/c", "/a-b", "/ab"]);
        assert_eq!(suspects.add(&suspect("/a/b", true)), Added::New);
        assert_eq!(suspects.add(&suspect("/a/b/c/d", true)), Added::Known);
        assert_eq!(shown(&suspects), ["/a", "/a/b/**", "/a-b", "/ab"]);
        assert_eq!(suspects.add(&suspect("/", true)), Added::New);
        assert_eq!(shown(&suspects), ["//**"]);
        assert_eq!(suspects.take().len(), 1);
        assert!(suspects.is_empty());
    }

    #[test]
    fn beyond_the_limit_the_deepest_are_folded_into_their_parents() {
        let mut suspects = Suspects::new(b"/r", 8);
        suspects.add(&suspect("/r/x", false));
        for number in 0..8 {
            suspects.add(&suspect(&format!("/r/deep/er/{number}"), false));
        }
        assert_eq!(shown(&suspects), ["/r/deep/er/**", "/r/x"]);
        for number in 0..8 {
            suspects.add(&suspect(&format!("/r/{number}"), false));
        }
        assert_eq!(shown(&suspects), ["/r/**"]);
        assert_eq!(suspects.add(&suspect("/r", false)), Added::Known);
    }

    #[test]
    fn long_paths_take_no_more_memory_than_usual_ones() {
        let mut suspects = Suspects::new(b"/r", 1000);
        let tops = ["a", "b", "c"].map(|name| format!("/r/{}{name}", "x/".repeat(1900)));
        for number in 0..900 {
            suspects.add(&suspect(&format!("{}/{number}", tops[number % 3]), false));
        }
        suspects.add(&suspect("/r/y", false));
        let all = suspects.take();
        let bytes: usize = all.iter().map(|one| one.path.len()).sum();
        assert!(bytes < 1000 * PATH_BYTES && all.len() > 1, "{bytes} in {}", all.len());
        for number in 0..900 {
            assert!(covers(&all, format!("{}/{number}", tops[number % 3]).as_bytes()));
        }
        assert!(covers(&all, b"/r/y") && !covers(&all, b"/r/z"));
    }

    /// Whether a directory is to be looked at again.
    fn covers(suspects: &[Suspect], path: &[u8]) -> bool {
        suspects
            .iter()
            .any(|one| one.path == path || one.recursive && is_at_or_below(path, &one.path))
    }

    proptest! {
        #[test]
        fn nothing_that_was_added_is_ever_lost(
            added in prop::collection::vec(
                (prop::collection::vec(prop::sample::select(vec!["a", "b", "b!", "c"]), 0..6), any::<bool>()),
                0..60,
            ),
            len_max in 1_usize..40,
        ) {
            let mut suspects = Suspects::new(b"/r", len_max);
            let mut all = BTreeSet::new();
            for (names, recursive) in &added {
                let path = ["/r"].iter().chain(names).copied().collect::<Vec<_>>().join("/");
                suspects.add(&suspect(&path, *recursive));
                all.insert((path, *recursive));
                prop_assert!(suspects.len() <= len_max);
            }
            let left = suspects.take();
            for (path, recursive) in all {
                prop_assert!(covers(&left, path.as_bytes()), "{path}");
                if recursive {
                    prop_assert!(covers(&left, format!("{path}/new").as_bytes()), "{path}");
                }
            }
            // No two of them mean the same.
            for (at, one) in left.iter().enumerate() {
                let others = [&left[..at], &left[at + 1..]].concat();
                prop_assert!(!one.recursive || !others.iter().any(|other| is_at_or_below(&other.path, &one.path)));
            }
        }
    }
}

//! Types of paths, so that paths of different kinds are not mixed up. All are escaped text, as
//! [`escape`](crate::escape) makes it, and compare in path order where they have an order.
//!
//! - [`SourcePath`] and [`SourcePathBuf`]: from the root of a source on; empty for the root itself.
//! - [`AbsolutePath`]: from the root of the file system on.

use crate::name::{base_name, compare_paths, is_below, join, join_absolute, parent};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::cmp::Ordering;

/// A path from the root of a source on, without a slash at either end; empty for the root itself.
/// Entries of two sources may have the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourcePath<'a>(&'a str);

/// An owned [`SourcePath`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourcePathBuf(String);

impl<'a> SourcePath<'a> {
    /// The path of the root itself.
    pub const ROOT: SourcePath<'static> = SourcePath("");

    /// Takes escaped text that is known to be relative to the root, as columns of an index and
    /// walks of a tree contain it.
    #[inline]
    pub fn escaped(text: &'a str) -> Self {
        SourcePath(text)
    }

    /// Returns the part of an absolute path below a root; `None` if it is neither that root nor below
    /// it.
    pub fn below(path: AbsolutePath<'a>, root: AbsolutePath<'_>) -> Option<Self> {
        let below = path.0.strip_prefix(root.0.trim_end_matches('/'))?;
        match below.is_empty() || below.starts_with('/') {
            true => Some(SourcePath(below.trim_start_matches('/'))),
            false => None,
        }
    }

    /// Returns the path as escaped text.
    #[inline]
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns whether this is the root.
    #[inline]
    pub fn is_root(self) -> bool {
        self.0.is_empty()
    }

    /// Returns the directory that holds the entry; `None` for the root.
    pub fn parent(self) -> Option<Self> {
        parent(self.0).map(SourcePath)
    }

    /// Returns the name, escaped; empty for the root.
    pub fn base_name(self) -> &'a str {
        base_name(self.0)
    }

    /// Returns whether this is `directory` or lies below it.
    pub fn is_below(self, directory: SourcePath<'_>) -> bool {
        is_below(self.0, directory.0)
    }

    /// Returns the path of an entry of this directory, by its name, escaped.
    pub fn child(self, name: &str) -> SourcePathBuf {
        SourcePathBuf(join(self.0, name))
    }

    /// Returns the absolute path, for the absolute path of the root.
    pub fn absolute(self, root: &str) -> String {
        join_absolute(root, self.0)
    }

    /// Copies the path.
    pub fn to_buf(self) -> SourcePathBuf {
        SourcePathBuf(self.0.to_owned())
    }
}

impl Ord for SourcePath<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        compare_paths(self.0, other.0)
    }
}

impl PartialOrd for SourcePath<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl SourcePathBuf {
    /// Returns the path of the root.
    pub fn root() -> Self {
        SourcePathBuf::default()
    }

    /// Takes escaped text, as [`SourcePath::escaped`] does.
    #[inline]
    pub fn escaped(text: String) -> Self {
        SourcePathBuf(text)
    }

    /// Returns the path, borrowed.
    #[inline]
    pub fn as_path(&self) -> SourcePath<'_> {
        SourcePath(&self.0)
    }

    /// Returns the path as escaped text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Makes this another path, in the same memory.
    pub fn set(&mut self, path: SourcePath<'_>) {
        path.0.clone_into(&mut self.0);
    }
}

/// Lets sets and maps find a path by a part of another one's text.
impl Borrow<str> for SourcePathBuf {
    #[inline]
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A path from the root of the file system on, escaped. Functions that take one do not accept the
/// path of an entry below the root of its source: entries of two sources may have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AbsolutePath<'a>(&'a str);

impl<'a> AbsolutePath<'a> {
    /// Takes a path that is absolute and escaped, as [`join_absolute`] makes them.
    pub fn new(path: &'a str) -> Self {
        AbsolutePath(path)
    }

    /// Returns the path as text, escaped.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the path and those of the directories above it but the root, the highest first.
    pub fn with_above(self) -> impl Iterator<Item = AbsolutePath<'a>> {
        let ends = self.0.match_indices('/').map(|(at, _)| at).chain([self.0.len()]);
        ends.filter(|&end| end > 0).map(move |end| AbsolutePath(&self.0[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_a_root_is_relative_to_it() {
        let below = |path, root| {
            let path = SourcePath::below(AbsolutePath::new(path), AbsolutePath::new(root));
            path.map(SourcePath::as_str)
        };
        assert_eq!(below("/a/b/c", "/a"), Some("b/c"));
        assert_eq!(below("/a", "/a"), Some(""));
        assert_eq!(below("/a", "/"), Some("a"));
        assert_eq!(below("/", "/"), Some(""));
        assert_eq!(below("/ab", "/a"), None);
        assert_eq!(below("/a", "/a/b"), None);
        for (path, root) in [("/a/b/c", "/a"), ("/a", "/a"), ("/a", "/"), ("/", "/")] {
            let relative = SourcePath::escaped(below(path, root).unwrap());
            assert_eq!(relative.absolute(root), path);
        }
    }

    #[test]
    fn children_and_parents_agree() {
        let mut path = SourcePathBuf::root();
        for name in ["a", "b c", "d"] {
            let child = path.as_path().child(name);
            assert_eq!(child.as_path().parent(), Some(path.as_path()));
            assert_eq!(child.as_path().base_name(), name);
            assert!(child.as_path().is_below(path.as_path()));
            assert!(!path.as_path().is_below(child.as_path()));
            assert!(path.as_path() < child.as_path());
            path = child;
        }
        assert!(SourcePath::ROOT.is_root() && SourcePath::ROOT.parent().is_none());
        // Path order: what is in a directory comes before its siblings.
        assert!(SourcePath::escaped("a/z") < SourcePath::escaped("a!"));
    }
}

//! Entries that a scan leaves out.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Patterns of entries to leave out, with all below them. A pattern without a '/' is matched
/// against names, one with it against paths below the root of the source (a leading '/' means just
/// that root).
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    names: GlobSet,
    paths: GlobSet,
}

/// A pattern that is not a glob.
#[derive(Debug, thiserror::Error)]
#[error("invalid pattern")]
pub struct InvalidGlob(#[from] globset::Error);

impl Excludes {
    /// Compiles patterns.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidGlob> {
        let mut names = GlobSetBuilder::new();
        let mut paths = GlobSetBuilder::new();
        for pattern in patterns {
            let glob = |pattern: &str| -> Result<Glob, globset::Error> {
                GlobBuilder::new(pattern).literal_separator(true).build()
            };
            if pattern.contains('/') {
                paths.add(glob(pattern.trim_start_matches('/').trim_end_matches('/'))?);
            } else {
                names.add(glob(pattern)?);
            }
        }
        Ok(Excludes { names: names.build()?, paths: paths.build()? })
    }

    /// Returns whether an entry is to be left out. `path` gives its path below the root and is
    /// asked only where needed.
    pub fn matches(&self, name: &[u8], path: impl FnOnce() -> Vec<u8>) -> bool {
        let as_path = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).to_owned();
        (!self.names.is_empty() && self.names.is_match(as_path(name)))
            || (!self.paths.is_empty() && self.paths.is_match(as_path(&path())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_told_apart() {
        let excludes = Excludes::new(["*.tmp", "/proc", "home/*/cache/"]).unwrap();
        let left_out = |path: &str| {
            let name = path.rsplit('/').next().unwrap();
            excludes.matches(name.as_bytes(), || path.as_bytes().to_vec())
        };
        assert!(left_out("a/b.tmp") && left_out("proc") && left_out("home/ann/cache"));
        assert!(!left_out("a/proc") && !left_out("home/ann/x/cache") && !left_out("b.tmp2"));
        assert!(Excludes::new(["["]).is_err());
    }
}

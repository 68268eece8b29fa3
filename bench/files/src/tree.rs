//! Trees of three levels with at most 64 files a directory, and the making of files.

use crate::bench::on_threads;
use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

/// The entries of a directory block of the paper's old file system.
const FILES_IN_DIRECTORY: usize = 64;

/// Makes an empty file that must not be there, and leaves it open.
pub fn create(root: &OwnedFd, path: &str) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, path, flags, Mode::from(0o644));
    file.with_context(|| path.to_string())
}

pub fn mkdir(root: &OwnedFd, path: &str) -> Result<()> {
    rustix::fs::mkdirat(root, path, Mode::from(0o755)).with_context(|| path.to_string())
}

pub struct Tree {
    pub files: usize,
    /// Directories of the lowest level, and how many of them each directory of the level above has.
    leaves: usize,
    fan: usize,
}

impl Tree {
    pub fn new(files: usize) -> Self {
        let leaves = files.div_ceil(FILES_IN_DIRECTORY);
        Tree { files, leaves, fan: (leaves as f64).sqrt().ceil() as usize }
    }

    /// Makes the directories below `tree`.
    pub fn make_directories(&self, root: &OwnedFd) -> Result<()> {
        self.directories().iter().try_for_each(|path| mkdir(root, path))
    }

    /// Returns `tree` and all directories below it, each before those in it.
    pub fn directories(&self) -> Vec<String> {
        let mut paths = vec!["tree".to_string()];
        for leaf in 0..self.leaves {
            if leaf.is_multiple_of(self.fan) {
                paths.push(format!("tree/{:03}", leaf / self.fan));
            }
            paths.push(self.leaf(leaf));
        }
        paths
    }

    fn leaf(&self, leaf: usize) -> String {
        format!("tree/{:03}/{:03}", leaf / self.fan, leaf % self.fan)
    }

    pub fn file(&self, at: usize) -> String {
        format!("{}/file{at:06}", self.leaf(at / FILES_IN_DIRECTORY))
    }

    /// Makes empty files, of which each thread makes every other one.
    pub fn make_files(&self, root: &OwnedFd, threads: usize) -> Result<()> {
        on_threads(threads, |thread| {
            (thread..self.files).step_by(threads).try_for_each(|at| {
                create(root, &self.file(at))?;
                Ok(())
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn no_directory_has_more_than_64_entries_and_all_are_made_first() {
        let tree = Tree::new(200_000);
        let mut entries = BTreeMap::<String, usize>::new();
        let mut known = BTreeSet::new();
        let files = (0..tree.files).map(|at| tree.file(at));
        for path in tree.directories().into_iter().chain(files) {
            if let Some((parent, _)) = path.rsplit_once('/') {
                assert!(known.contains(parent), "{path}");
                *entries.entry(parent.into()).or_default() += 1;
            }
            assert!(known.insert(path));
        }
        assert!(entries.values().all(|count| *count <= 64));
        assert_eq!(entries.values().sum::<usize>(), known.len() - 1);
    }
}

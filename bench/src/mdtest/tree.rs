//! The tree of directories that items lie in.

use crate::mdtest::places::Place;
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

/// Directories that a tree may have.
const DIRECTORIES_MAX: u64 = 1 << 24;

/// A tree in which each directory but the leaves has as many branches. Directories are numbered from the
/// root (0) downwards.
pub struct Tree {
    branches: u64,
    directories: u64,
    /// Number of the first leaf.
    first_leaf: u64,
    has_only_leaves: bool,
    /// Items of each process in a directory.
    each: u64,
}

impl Tree {
    pub fn new(depth: u32, branches: u64, has_only_leaves: bool) -> Result<Self> {
        let (mut directories, mut level) = (1_u64, 1_u64);
        let mut first_leaf = 0;
        for _ in 0..depth {
            first_leaf = directories;
            level = level.saturating_mul(branches);
            directories = directories.saturating_add(level);
            ensure!(
                directories <= DIRECTORIES_MAX,
                "-z and -b: a tree has at most {DIRECTORIES_MAX} directories"
            );
        }
        Ok(Tree { branches, directories, first_leaf, has_only_leaves, each: 0 })
    }

    pub fn with_items(self, each: u64) -> Self {
        Tree { each, ..self }
    }

    pub fn directories(&self) -> u64 {
        self.directories
    }

    /// Returns the numbers of the directories that items lie in.
    pub fn places(&self) -> std::ops::Range<u64> {
        let first = if self.has_only_leaves { self.first_leaf } else { 0 };
        first..self.directories
    }

    /// Returns the number of items of a process.
    pub fn items(&self) -> u64 {
        self.places().count() as u64 * self.each
    }

    fn path(&self, root: &Path, number: u64) -> PathBuf {
        let mut steps = Vec::new();
        let mut at = number;
        while at > 0 {
            steps.push(at);
            at = (at - 1) / self.branches;
        }
        steps
            .iter()
            .rev()
            .fold(root.to_owned(), |path, step| path.join(format!("mdtest_tree.{step}")))
    }

    pub fn make(&self, place: &dyn Place, root: &Path) -> Result<()> {
        (0..self.directories).try_for_each(|number| place.make_directory(&self.path(root, number)))
    }

    pub fn remove(&self, place: &dyn Place, root: &Path) -> Result<()> {
        let mut numbers = (0..self.directories).rev();
        numbers.try_for_each(|number| place.remove_directory(&self.path(root, number)))
    }

    /// Calls `work` with the directory and the number of each item of a process, in order or not.
    pub fn each_item(
        &self,
        root: &Path,
        is_random: bool,
        mut work: impl FnMut(&Path, u64) -> Result<()>,
    ) -> Result<()> {
        if is_random {
            let (first, items) = (self.places().start, self.items());
            // A prime, so that each item comes once.
            return (0..items).try_for_each(|at| {
                let item = at.wrapping_mul(2_654_435_761) % items;
                work(&self.path(root, first + item / self.each), item)
            });
        }
        let mut number = 0;
        for place in self.places() {
            let directory = self.path(root, place);
            for _ in 0..self.each {
                work(&directory, number)?;
                number += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_the_shape_of_mdtest() {
        let tree = Tree::new(2, 3, false).unwrap().with_items(5);
        assert_eq!((tree.directories(), tree.items()), (13, 65));
        assert_eq!(tree.path(Path::new("r"), 12), Path::new("r/mdtest_tree.3/mdtest_tree.12"));
        let leaves = Tree::new(2, 3, true).unwrap().with_items(5);
        assert_eq!((leaves.places(), leaves.items()), (4..13, 45));
        assert_eq!(Tree::new(0, 1, true).unwrap().places(), 0..1);
        assert_eq!(Tree::new(3, 1, false).unwrap().directories(), 4);
        assert!(Tree::new(40, 2, false).is_err());
        for is_random in [false, true] {
            let mut seen = std::collections::BTreeSet::new();
            tree.each_item(Path::new("r"), is_random, |directory, number| {
                assert!(seen.insert((number, directory.to_owned())));
                Ok(())
            })
            .unwrap();
            assert_eq!(seen.len(), 65);
        }
    }
}

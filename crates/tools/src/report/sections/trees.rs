//! The largest directories with all below them.

use super::*;
use crate::report::link_names::LinkNames;
use crate::report::tree_sums::{TreeSum, TreeSums, child_key, start_key};
use canopy_model::{Device, compare_paths};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// The trees that take most space, of directories that can be listed.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Trees(Vec<Tree>);

/// A directory with all below it; hard links count once.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tree {
    pub(super) path: String,
    inodes: i128,
    bytes: i128,
    pub(super) disk_bytes: i128,
}

impl Tree {
    /// Makes it of the sums of a directory.
    pub(super) fn new(path: &str, tree: &TreeSum) -> Self {
        let [inodes, bytes, blocks] = tree.sums();
        Tree { path: path.to_owned(), inodes, bytes, disk_bytes: blocks.saturating_mul(512) }
    }
}

impl ReportSection for Trees {
    const TITLE: &'static str = "Largest directories, with all below";
    const NOTE: Option<&'static str> = Some("As du; hard links count once in each.");
    const NEEDS: &'static [Need] = &[Need::Links, Need::Trees, Need::Listings];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let top = facts.options.top;
        let trees = facts.listings.trees.listed();
        let mut found: Vec<(i128, RowId, &TreeSum)> =
            trees.map(|tree| (tree.sums()[2], tree.id, tree)).collect();
        if let Some(last) = top.min(found.len()).checked_sub(1) {
            let least = found.select_nth_unstable_by_key(last, |tree| Reverse(tree.0)).1.0;
            found.retain(|tree| tree.0 >= least);
        } else {
            found.clear();
        }
        let paths = facts.directory_paths(found.iter().map(|(_, id, _)| *id).collect())?;
        let found = found.into_iter();
        let mut found: Vec<(i128, &String, &TreeSum)> =
            found.filter_map(|(blocks, id, tree)| Some((blocks, paths.get(&id)?, tree))).collect();
        found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| compare_paths(a.1, b.1)));
        found.truncate(top);
        Ok(Some(Trees(found.into_iter().map(|(_, path, tree)| Tree::new(path, tree)).collect())))
    }

    fn blocks(&self) -> Vec<Block> {
        let columns = [("on disk", true), ("sizes", true), ("inodes", true), ("path", false)];
        let table = table(&columns, &self.0, |tree| {
            vec![size(tree.disk_bytes), size(tree.bytes), count(tree.inodes), name(&tree.path)]
        });
        let most = self.0.first().map_or(0, |tree| tree.disk_bytes);
        vec![table.with_shares(self.0.iter().map(|tree| tree.disk_bytes), most).block()]
    }
}

/// Takes further names of inodes off the trees that have them twice.
pub(in crate::report) fn count_once(trees: &mut TreeSums, links: &LinkNames<'_>) {
    // Neighbouring names of an inode both lie in a tree exactly if their deepest common directory
    // does.
    let mut last: FxHashMap<(u128, Device, u64), &str> = FxHashMap::default();
    for (start, entry) in &links.names {
        let root = start.path.as_path().absolute(&start.source.root);
        let below = entry.directory.get(root.len()..).unwrap_or("").trim_start_matches('/');
        let a = &entry.attributes;
        let mut key = start_key(start);
        let Some(before) = last.insert((key, entry.dev, a.ino), below) else { continue };
        let mut take = |key: u128| {
            if let Some(tree) = trees.get_mut(key) {
                let once: [i128; 3] = [1, a.size_bytes.into(), a.blocks.into()];
                let mut sums = tree.sums();
                sums.iter_mut().zip(once).for_each(|(sum, once)| *sum -= once);
                tree.set_sums(&sums);
            }
        };
        take(key);
        let common =
            before.split('/').zip(below.split('/')).take_while(|(a, b)| a == b && !a.is_empty());
        for (name, _) in common {
            key = child_key(key, name);
            take(key);
        }
    }
}

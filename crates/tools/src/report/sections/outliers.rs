//! Directories unlike their siblings.

use super::trees::Tree;
use super::*;
use crate::report::tree_sums::{TreeSum, TreeSums};
use canopy_model::compare_paths;
use rustc_hash::FxHashMap;

/// Standard deviations from the mean of its siblings from which on a tree is shown, as
/// gufi_find_outliers has it.
const DEVIATIONS_MIN: f64 = 3.0;

/// The trees whose space is far from the mean of the trees in the same directory, the farthest
/// first.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Outliers(Vec<Outlier>);

#[derive(Clone, Debug, Serialize)]
struct Outlier {
    #[serde(flatten)]
    tree: Tree,
    /// How many directories there are in the same directory, this one among them.
    siblings: i64,
    /// Mean of their `disk_bytes`.
    mean_disk_bytes: f64,
    /// How far from it, in standard deviations, to six places.
    deviations: f64,
}

impl ReportSection for Outliers {
    const TITLE: &'static str = "Directories unlike their siblings";
    const NOTE: Option<&'static str> =
        Some("Space is 3 or more standard deviations from the mean of the directories beside it.");
    const NEEDS: &'static [Need] = &[Need::Links, Need::Trees, Need::Listings];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let top = facts.options.top;
        let mut found = far(&facts.listings.trees);
        found.sort_by(|a, b| b.deviations.abs().total_cmp(&a.deviations.abs()));
        match top.checked_sub(1).and_then(|last| found.get(last)) {
            Some(&Far { deviations: least, .. }) => {
                found.retain(|far| far.deviations.abs() >= least.abs());
            }
            None if top == 0 => found.clear(),
            None => {}
        }
        let paths = facts.directory_paths(found.iter().map(|far| far.tree.id).collect())?;
        let outlier = |far: Far<'_>| {
            Some(Outlier {
                tree: Tree::new(paths.get(&far.tree.id)?, far.tree),
                siblings: far.siblings,
                mean_disk_bytes: far.mean_blocks * 512.0,
                deviations: far.deviations,
            })
        };
        let mut found: Vec<Outlier> = found.into_iter().filter_map(outlier).collect();
        found.sort_by(|a, b| {
            let farthest = b.deviations.abs().total_cmp(&a.deviations.abs());
            farthest.then_with(|| compare_paths(&a.tree.path, &b.tree.path))
        });
        found.truncate(top);
        Ok(Some(Outliers(found)))
    }

    fn blocks(&self) -> Vec<Block> {
        let columns = [
            ("on disk", true),
            ("mean", true),
            ("deviations", true),
            ("beside it", true),
            ("path", false),
        ];
        let table = table(&columns, &self.0, |row| {
            vec![
                size(row.tree.disk_bytes),
                size(row.mean_disk_bytes.round() as i128),
                format!("{:+.1}", row.deviations).into(),
                count(row.siblings - 1),
                name(&row.tree.path),
            ]
        });
        vec![table.block()]
    }
}

/// Statistics of the trees in one directory.
#[derive(Default)]
struct Siblings {
    count: i64,
    sum: i128,
    squares: u128,
}

/// A tree that is far from its siblings.
struct Far<'a> {
    tree: &'a TreeSum,
    siblings: i64,
    mean_blocks: f64,
    deviations: f64,
}

fn far(trees: &TreeSums) -> Vec<Far<'_>> {
    let listed = || trees.listed().filter(|tree| tree.parent != 0);
    let mut siblings: FxHashMap<u64, Siblings> = FxHashMap::default();
    for tree in listed() {
        let all = siblings.entry(tree.parent).or_default();
        let blocks = tree.sums()[2];
        all.count += 1;
        all.sum = all.sum.saturating_add(blocks);
        all.squares = all.squares.saturating_add(blocks.unsigned_abs().saturating_pow(2));
    }
    // No value is farther from the mean than the root of the number of the others.
    siblings.retain(|_, all| (all.count - 1) as f64 >= DEVIATIONS_MIN * DEVIATIONS_MIN);
    let mut found = Vec::new();
    for tree in listed() {
        let Some(all) = siblings.get(&tree.parent) else { continue };
        let (mean_blocks, deviation) = mean_and_deviation(all.count, all.sum, all.squares);
        // Rounded, so that what is equal stays so: single large ones among so many equal ones are
        // equally far.
        let deviations = ((tree.sums()[2] as f64 - mean_blocks) / deviation * 1e6).round() / 1e6;
        if deviations.abs() >= DEVIATIONS_MIN {
            found.push(Far { tree, siblings: all.count, mean_blocks, deviations });
        }
    }
    found
}

//! Which directories stand out: the largest trees, those unlike their siblings, and the best of
//! lists.

use super::best::{Best, Place};
use super::details::Entry;
use super::directories::start_key;
use super::document::{self, Outlier};
use super::gather::mean_and_deviation;
use super::parts::{BATCH_ROWS, Part};
use super::tree_sums::{Tree, Trees, child_key};
use crate::error::Result;
use canopy_index::FileKind;
use canopy_model::{compare_paths, join_absolute};
use canopy_read::columns::strings;
use canopy_read::listings::merge_ranges;
use canopy_read::locate::{Start, absolute_path};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Standard deviations from the mean of its siblings from which on a tree is shown, as
/// gufi_find_outliers has it.
const DEVIATIONS_MIN: f64 = 3.0;

/// Takes further names of inodes off the trees that have them twice. `names` are those of inodes
/// with several, in the order of their directories, each with its start.
pub(super) fn count_once(trees: &mut Trees, names: &[(&Start, Entry)]) {
    // Neighbouring names of an inode both lie in a tree exactly if their deepest common directory
    // does.
    let mut last: FxHashMap<(u128, u64, u64), &str> = FxHashMap::default();
    for (start, entry) in names {
        let root = join_absolute(&start.source.root, &start.path);
        let below = entry.directory.get(root.len()..).unwrap_or("").trim_start_matches('/');
        let a = &entry.attributes;
        let mut key = start_key(start);
        let Some(before) = last.insert((key, entry.dev, a.ino), below) else { continue };
        let mut take = |key: u128| {
            if let Some(tree) = trees.get_mut(key) {
                let once = [1, a.size_bytes, a.blocks];
                tree.sums
                    .iter_mut()
                    .zip(once)
                    .for_each(|(sum, once)| *sum = sum.wrapping_sub(once));
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

/// The trees that take most space, of directories that can be listed.
pub(super) fn largest(
    parts: &[Part<'_>],
    trees: &Trees,
    top: usize,
) -> Result<Vec<document::Tree>> {
    let mut found: Vec<(i64, Place, &Tree)> =
        trees.listed().map(|tree| (tree.sums[2], tree.place, tree)).collect();
    if let Some(last) = top.min(found.len()).checked_sub(1) {
        let least = found.select_nth_unstable_by_key(last, |tree| Reverse(tree.0)).1.0;
        found.retain(|tree| tree.0 >= least);
    } else {
        found.clear();
    }
    let paths = paths(parts, found.iter().map(|(_, place, _)| *place).collect())?;
    let mut found: Vec<(i64, &String, &Tree)> = found
        .into_iter()
        .filter_map(|(blocks, place, tree)| Some((blocks, paths.get(&place)?, tree)))
        .collect();
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| compare_paths(a.1, b.1)));
    found.truncate(top);
    Ok(found.into_iter().map(|(_, path, tree)| shown(path, tree)).collect())
}

fn shown(path: &str, tree: &Tree) -> document::Tree {
    let [inodes, bytes, blocks] = tree.sums;
    document::Tree { path: path.to_owned(), inodes, bytes, disk_bytes: blocks.wrapping_mul(512) }
}

/// What the trees in one directory take.
#[derive(Default)]
struct Siblings {
    count: i64,
    sum: i128,
    squares: u128,
}

/// The trees whose space is far from the mean of the trees in the same directory, the farthest
/// first.
pub(super) fn outliers(parts: &[Part<'_>], trees: &Trees, top: usize) -> Result<Vec<Outlier>> {
    let listed = || trees.listed().filter(|tree| tree.parent != 0).map(|tree| (tree, tree.place));
    let mut siblings: FxHashMap<u64, Siblings> = FxHashMap::default();
    for (tree, _) in listed() {
        let all = siblings.entry(tree.parent).or_default();
        let blocks = tree.sums[2];
        all.count += 1;
        all.sum += i128::from(blocks);
        all.squares = all.squares.saturating_add(u128::from(blocks.unsigned_abs()).pow(2));
    }
    // No value is farther from the mean than the root of the number of the others.
    siblings.retain(|_, all| (all.count - 1) as f64 >= DEVIATIONS_MIN * DEVIATIONS_MIN);
    let mut found: Vec<(f64, Place, &Tree, i64, f64)> = Vec::new();
    for (tree, place) in listed() {
        let Some(all) = siblings.get(&tree.parent) else { continue };
        let (mean, deviation) = mean_and_deviation(all.count, all.sum, all.squares);
        // Rounded, so that what is equal stays so: single large ones among so many equal ones are
        // equally far.
        let deviations = ((tree.sums[2] as f64 - mean) / deviation * 1e6).round() / 1e6;
        if deviations.abs() >= DEVIATIONS_MIN {
            found.push((deviations, place, tree, all.count, mean));
        }
    }
    found.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    match top.checked_sub(1).and_then(|last| found.get(last)) {
        Some(&(least, ..)) => found.retain(|row| row.0.abs() >= least.abs()),
        None if top == 0 => found.clear(),
        None => {}
    }
    let paths = paths(parts, found.iter().map(|row| row.1).collect())?;
    let outlier = |(deviations, place, tree, siblings, mean): (f64, Place, &Tree, i64, f64)| {
        let tree = shown(paths.get(&place)?, tree);
        Some(Outlier { tree, siblings, mean_disk_bytes: mean * 512.0, deviations })
    };
    let mut found: Vec<Outlier> = found.into_iter().filter_map(outlier).collect();
    found.sort_by(|a, b| {
        b.deviations
            .abs()
            .total_cmp(&a.deviations.abs())
            .then_with(|| compare_paths(&a.tree.path, &b.tree.path))
    });
    found.truncate(top);
    Ok(found)
}

/// The best directories of a list with their keys, in order.
pub(super) fn best(parts: &[Part<'_>], list: Best, top: usize) -> Result<Vec<(String, i64)>> {
    let list = list.into_candidates();
    let mut paths = paths(parts, list.iter().map(|(_, place)| *place).collect())?;
    let mut rows: Vec<(String, i64)> =
        list.into_iter().filter_map(|(key, place)| Some((paths.remove(&place)?, key))).collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| compare_paths(&a.0, &b.0)));
    rows.truncate(top);
    Ok(rows)
}

/// The absolute paths of listings.
fn paths(parts: &[Part<'_>], mut places: Vec<Place>) -> Result<FxHashMap<Place, String>> {
    places.sort_unstable();
    places.dedup();
    let mut found = FxHashMap::default();
    for places in places.chunk_by(|a, b| a.0 == b.0) {
        let part = &parts[places[0].0 as usize];
        let rows =
            merge_ranges(places.iter().map(|&(_, row)| row as usize..row as usize + 1).collect());
        let mut places = places.iter();
        for batch in part.shard.read(FileKind::Listings, &["path"], &rows, BATCH_ROWS)? {
            let batch = batch?;
            let read = strings(&batch, "path");
            for (at, place) in places.by_ref().take(batch.num_rows()).enumerate() {
                found.insert(*place, absolute_path(&part.start.source, read.value(at)));
            }
        }
    }
    Ok(found)
}

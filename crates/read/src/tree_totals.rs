//! Subtree totals of every directory, for the tables of SQL.

use crate::error::{Error, Result};
use crate::fold::{Sum, fold_tree};
use crate::totals::{DirectoryTotals, VisibleTree};
use canopy_model::{Device, SourcePathBuf, Totals};
use rustc_hash::FxHashMap;

/// Subtree totals of every directory of a subtree, in path order, each link counted once in every
/// directory above it.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn tree_totals(subtree: &VisibleTree<'_>, own: Totals) -> Result<Vec<DirectoryTotals>> {
    let mut nodes = subtree.nodes(usize::MAX)?;
    match nodes.first_mut() {
        Some(first) if first.path.as_path() == subtree.path => first.own += own,
        _ => nodes.insert(0, DirectoryTotals { path: subtree.path.to_buf(), own }),
    }
    // Neighbouring links of an inode both lie in a directory exactly if their deepest common
    // directory does.
    let mut last: FxHashMap<(Device, u64), SourcePathBuf> = FxHashMap::default();
    for link in subtree.links()? {
        if let Some(before) = last.insert(link.id, link.listing.clone()) {
            let mut common = before.as_path();
            while !link.listing.as_path().is_below(common) {
                common = common.parent().unwrap_or_default();
            }
            if let Ok(at) = nodes.binary_search_by(|node| node.path.as_path().cmp(&common)) {
                nodes[at].own -= link.once;
            }
        }
    }
    let mut totals = vec![Totals::default(); nodes.len()];
    let directories = nodes.iter().enumerate();
    let directories = directories.map(|(at, node)| (node.path.as_path(), Numbered(at, node.own)));
    fold_tree(subtree.path, directories, |folded| {
        totals[folded.own.0] = folded.total.1;
        Ok::<_, Error>(())
    })?;
    nodes.iter_mut().zip(totals).for_each(|(node, total)| node.own = total);
    Ok(nodes)
}

/// The totals that a directory adds, with its place among all.
#[derive(Default)]
struct Numbered(usize, Totals);

impl Sum for Numbered {
    fn add(&mut self, other: &Self) {
        self.0 = other.0;
        self.1 += other.1;
    }
}

//! Subtree totals of every directory, for the tables of SQL.

use crate::error::Result;
use crate::totals::{Node, Subtree};
use canopy_model::{Totals, compare_paths, is_below, parent};
use rustc_hash::FxHashMap;

/// Subtree totals of every directory of a subtree, in path order, each link counted once in every
/// directory above it.
pub fn tree_totals(subtree: &Subtree<'_>, own: Totals) -> Result<Vec<Node>> {
    let mut nodes = subtree.nodes(usize::MAX)?;
    match nodes.first_mut() {
        Some(first) if first.path == subtree.path => first.own += own,
        _ => nodes.insert(0, Node { path: subtree.path.to_owned(), own }),
    }
    // Neighbouring links of an inode both lie in a directory exactly if their deepest common
    // directory does.
    let mut last: FxHashMap<(u64, u64), String> = FxHashMap::default();
    for link in subtree.links()? {
        if let Some(before) = last.insert(link.id, link.listing.clone()) {
            let mut common = before.as_str();
            while !is_below(&link.listing, common) {
                common = parent(common).unwrap_or("");
            }
            if let Ok(at) = nodes.binary_search_by(|node| compare_paths(&node.path, common)) {
                nodes[at].own -= link.once;
            }
        }
    }
    // From the last to the first, each directory adds itself to the one around it.
    let mut around: Vec<usize> = Vec::new();
    let mut parents = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        while around.last().is_some_and(|&above| !is_below(&node.path, &nodes[above].path)) {
            around.pop();
        }
        parents.push(around.last().copied());
        around.push(at);
    }
    for at in (0..nodes.len()).rev() {
        if let Some(above) = parents[at] {
            let own = nodes[at].own;
            nodes[above].own += own;
        }
    }
    Ok(nodes)
}

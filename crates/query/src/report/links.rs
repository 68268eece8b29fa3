//! Inodes with several names.

use super::details::Entry;
use super::document::{LinkedInode, Links};
use canopy_model::Totals;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// The names of one inode.
struct Inode<'a> {
    first: &'a Entry,
    names: i64,
}

/// Inodes by device and number, from their names in the order of paths.
fn inodes<'a>(names: impl Iterator<Item = &'a Entry>) -> FxHashMap<(u64, u64), Inode<'a>> {
    let mut inodes: FxHashMap<(u64, u64), Inode<'a>> = FxHashMap::default();
    for entry in names {
        let inode =
            inodes.entry((entry.dev, entry.attributes.ino)).or_insert(Inode { first: entry, names: 0 });
        inode.names += 1;
    }
    inodes
}

/// What is known of inodes from their names, in the order of paths.
pub(super) fn links<'a>(names: impl Iterator<Item = &'a Entry>, top: usize) -> Links {
    let inodes = inodes(names);
    let mut links = Links::default();
    let mut several: Vec<((u64, u64), i64, Inode<'_>)> = Vec::new();
    for (id, inode) in inodes {
        let attributes = &inode.first.attributes;
        links.names_elsewhere += i64::from(i64::from(attributes.nlink) > inode.names);
        if inode.names > 1 {
            let saved = attributes.blocks.saturating_mul(512).saturating_mul(inode.names - 1);
            links.inodes += 1;
            links.names += inode.names;
            links.saved_disk_bytes = links.saved_disk_bytes.saturating_add(saved);
            several.push((id, saved, inode));
        }
    }
    several.sort_by(|(_, a_saved, a), (_, b_saved, b)| {
        (Reverse((*a_saved, a.names)))
            .cmp(&Reverse((*b_saved, b.names)))
            .then_with(|| a.first.cmp_path(b.first))
    });
    let row = |(_, saved, inode): ((u64, u64), i64, Inode<'_>)| LinkedInode {
        path: inode.first.path(),
        names: inode.names,
        nlink: inode.first.attributes.nlink,
        bytes: inode.first.attributes.size_bytes,
        saved_disk_bytes: saved,
    };
    links.largest = several.into_iter().take(top).map(row).collect();
    links
}

/// What second and further names add to sums in which each inode is to count once.
pub(super) fn surplus<'a>(names: impl Iterator<Item = &'a Entry>) -> Totals {
    let mut seen = rustc_hash::FxHashSet::default();
    let mut surplus = Totals::default();
    for entry in names {
        let a = &entry.attributes;
        if !seen.insert((entry.dev, a.ino)) {
            surplus += Totals { entries: 1, bytes: a.size_bytes, blocks: a.blocks, ..Totals::default() };
        }
    }
    surplus
}

//! Inodes with several names.

use super::best::Place;
use super::details::Entry;
use super::document::{LinkedInode, Links};
use super::parts::Part;
use crate::error::Result;
use canopy_index::FileKind;
use canopy_model::Totals;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Those of the names of all inodes with several links that share their inode, and the number of
/// inodes that only one of them leads to. `places` are all rows with several links.
pub(super) fn sharing(parts: &[Part<'_>], mut places: Vec<Place>) -> Result<(Vec<Place>, i64)> {
    places.sort_unstable();
    let mut names: Vec<((u64, u64), Place)> = Vec::with_capacity(places.len());
    for places in places.chunk_by(|a, b| a.0 == b.0) {
        let part = &parts[places[0].0 as usize];
        // Its rows are those of the same entries, in the same order.
        let links = part.shard.hardlinks(&part.shard.listings_below(&part.start.path)?)?;
        part.shard.close(FileKind::Hardlinks);
        if links.len() != places.len() {
            let detail =
                format!("it has {} rows of a subtree, expected {}", links.len(), places.len());
            return Err(part.shard.corrupt(FileKind::Hardlinks, detail).into());
        }
        names.extend(links.iter().zip(places).map(|(link, place)| ((link.dev, link.ino), *place)));
    }
    names.sort_unstable();
    let (mut sharing, mut single) = (Vec::new(), 0);
    for names in names.chunk_by(|a, b| a.0 == b.0) {
        match names {
            [_] => single += 1,
            _ => sharing.extend(names.iter().map(|(_, place)| *place)),
        }
    }
    Ok((sharing, single))
}

/// The names of one inode.
struct Inode<'a> {
    first: &'a Entry,
    names: i64,
}

/// Inodes by device and number, from their names in the order of paths.
fn inodes<'a>(names: impl Iterator<Item = &'a Entry>) -> FxHashMap<(u64, u64), Inode<'a>> {
    let mut inodes: FxHashMap<(u64, u64), Inode<'a>> = FxHashMap::default();
    for entry in names {
        let inode = inodes
            .entry((entry.dev, entry.attributes.ino))
            .or_insert(Inode { first: entry, names: 0 });
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
            surplus +=
                Totals { entries: 1, bytes: a.size_bytes, blocks: a.blocks, ..Totals::default() };
        }
    }
    surplus
}

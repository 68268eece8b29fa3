//! Inodes with several names.

use super::*;
use canopy_model::Device;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Inodes with several names, which are not directories.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::report) struct Links {
    /// Inodes with two or more names here.
    inodes: i64,
    /// Their names.
    names: i64,
    /// Space that copies would take instead.
    saved_disk_bytes: i128,
    /// Inodes with names that are not here, or not to be seen.
    names_elsewhere: i64,
    /// By space saved, then names.
    largest: Vec<LinkedInode>,
}

/// An inode with several names.
#[derive(Clone, Debug, Serialize)]
struct LinkedInode {
    /// Its first name here.
    path: String,
    names: i64,
    /// How many names it has in all.
    nlink: u32,
    bytes: i64,
    saved_disk_bytes: i128,
}

/// The names of one inode.
struct Names<'a> {
    first: &'a EntryDetails,
    count: i64,
    saved_disk_bytes: i128,
}

impl ReportSection for Links {
    const TITLE: &'static str = "Hard links";
    const NEEDS: &'static [Need] = &[Need::Links];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let mut links = Links { names_elsewhere: facts.links.single, ..Links::default() };
        let mut inodes: FxHashMap<(Device, u64), Names<'_>> = FxHashMap::default();
        for (_, entry) in &facts.links.names {
            let none = Names { first: entry, count: 0, saved_disk_bytes: 0 };
            inodes.entry((entry.dev, entry.attributes.ino)).or_insert(none).count += 1;
        }
        let mut several: Vec<Names<'_>> = Vec::new();
        for (_, mut inode) in inodes {
            let attributes = &inode.first.attributes;
            links.names_elsewhere += i64::from(i64::from(attributes.nlink) > inode.count);
            if inode.count > 1 {
                let copies = inode.count - 1;
                let saved = i128::from(attributes.blocks).saturating_mul(512 * i128::from(copies));
                inode.saved_disk_bytes = saved;
                links.inodes += 1;
                links.names += inode.count;
                links.saved_disk_bytes = links.saved_disk_bytes.saturating_add(saved);
                several.push(inode);
            }
        }
        several.sort_by(|a, b| {
            let rank = |inode: &Names<'_>| Reverse((inode.saved_disk_bytes, inode.count));
            rank(a).cmp(&rank(b)).then_with(|| a.first.cmp_path(b.first))
        });
        let row = |inode: Names<'_>| LinkedInode {
            path: inode.first.path(),
            names: inode.count,
            nlink: inode.first.attributes.nlink,
            bytes: inode.first.attributes.size_bytes,
            saved_disk_bytes: inode.saved_disk_bytes,
        };
        links.largest = several.into_iter().take(facts.options.top).map(row).collect();
        Ok(Some(links))
    }

    fn blocks(&self) -> Vec<Block> {
        let known = Block::Facts(vec![
            (count(self.inodes), "inodes with several names here"),
            (count(self.names), "names of theirs"),
            (size(self.saved_disk_bytes), "that copies would take"),
            (count(self.names_elsewhere), "inodes with names elsewhere"),
        ]);
        let columns = [("saved", true), ("size", true), ("names", true), ("first path", false)];
        let table = table(&columns, &self.largest, |inode| {
            vec![
                size(inode.saved_disk_bytes),
                size(inode.bytes),
                format!("{} of {}", inode.names, inode.nlink).into(),
                name(&inode.path),
            ]
        });
        vec![known, table.block()]
    }
}

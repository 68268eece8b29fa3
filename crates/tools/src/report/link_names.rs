//! The names of inodes with several: for their section, and so that sums count each inode once.

use super::ReportOptions;
use super::details::{self, EntryDetails};
use super::parts::{CoveredFile, RowId};
use crate::error::Result;
use canopy_index::FileKind;
use canopy_index::column::{BLOCKS, GID, INO, NLINK, SIZE, UID};
use canopy_model::{Attributes, Device, Totals};
use canopy_read::locate::Start;
use rustc_hash::FxHashSet;

/// Names of inodes with several.
#[derive(Default)]
pub(super) struct LinkNames<'a> {
    /// In the order of paths, each with the start that it is below.
    pub(super) names: Vec<(&'a Start, EntryDetails)>,
    /// Inodes that only one of the names leads to, if those names were left out.
    pub(super) single: i64,
}

impl<'a> LinkNames<'a> {
    /// Reads the names of all rows with several links. In a report on an owner, only some of the
    /// rows that the index has of links were looked at; all of those are read.
    pub(super) fn read(
        parts: &[CoveredFile<'a>],
        ids: Vec<RowId>,
        options: &ReportOptions,
    ) -> Result<Self> {
        let (ids, single) = match options.owner {
            None => sharing(parts, ids)?,
            Some(_) => (ids, 0),
        };
        let columns = INO | NLINK | UID | GID | SIZE | BLOCKS;
        let names = details::read_in_order(parts, ids, columns, options.threads)?;
        Ok(LinkNames { names, single })
    }

    /// Adds up what second and further names add to sums in which each inode is to count once.
    pub(super) fn surplus(&self) -> Totals {
        let mut surplus = Totals::default();
        for a in self.surplus_names() {
            surplus += Totals::of_entry(a.size_bytes, a.blocks);
        }
        surplus
    }

    /// Gives the attributes of second and further names.
    pub(super) fn surplus_names(&self) -> impl Iterator<Item = &Attributes> {
        let mut seen = FxHashSet::default();
        let names = self.names.iter().map(|(_, entry)| entry);
        names
            .filter(move |entry| !seen.insert((entry.dev, entry.attributes.ino)))
            .map(|entry| &entry.attributes)
    }
}

/// Gives those rows that share their inode with another one, and the number of inodes that only one
/// of them leads to. `ids` are all rows with several links.
fn sharing(parts: &[CoveredFile<'_>], mut ids: Vec<RowId>) -> Result<(Vec<RowId>, i64)> {
    ids.sort_unstable();
    let mut names: Vec<((Device, u64), RowId)> = Vec::with_capacity(ids.len());
    for ids in ids.chunk_by(|a, b| a.part == b.part) {
        let part = &parts[ids[0].part as usize];
        // Its rows are those of the same entries, in the same order.
        let links = part.shard.hardlinks(&part.listings)?;
        part.shard.close(FileKind::Hardlinks);
        if links.len() != ids.len() {
            let detail =
                format!("it has {} rows of a subtree, expected {}", links.len(), ids.len());
            return Err(part.shard.corrupt(FileKind::Hardlinks, detail).into());
        }
        names.extend(links.iter().zip(ids).map(|(link, id)| ((link.dev, link.ino), *id)));
    }
    names.sort_unstable();
    let (mut sharing, mut single) = (Vec::new(), 0);
    for names in names.chunk_by(|a, b| a.0 == b.0) {
        match names {
            [_] => single += 1,
            _ => sharing.extend(names.iter().map(|(_, id)| *id)),
        }
    }
    Ok((sharing, single))
}

//! Reading what chosen rows are: their paths and attributes.

use super::parts::{CoveredFile, RowId};
use crate::error::Result;
use canopy_index::column::*;
use canopy_index::{Columns, FileKind, ListingOrdinal};
use canopy_model::{Attributes, Device, compare_paths, join_absolute};
use canopy_read::inode::{InodeColumns, text_or_empty};
use canopy_read::locate::{Start, absolute_path};
use canopy_read::work::listed;
use canopy_text::user_name;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::cmp::Ordering;
use std::sync::Arc;

/// An entry of a list, as a report shows it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ListedEntry {
    pub(super) path: String,
    pub(super) uid: u32,
    pub(super) user: Option<String>,
    /// Type and permissions, as `st_mode`.
    pub(super) mode: u32,
    pub(super) bytes: i64,
    pub(super) disk_bytes: i64,
    pub(super) mtime_ns: i64,
    pub(super) atime_ns: i64,
}

/// An entry, a directory among them.
#[derive(Clone, Debug)]
pub(super) struct EntryDetails {
    /// Absolute path of the directory that holds it.
    pub(super) directory: Arc<str>,
    pub(super) name: String,
    pub(super) attributes: Attributes,
    pub(super) dev: Device,
    /// Where it points if it is a symbolic link.
    pub(super) target: String,
}

impl EntryDetails {
    /// Gives its absolute path.
    pub(super) fn path(&self) -> String {
        join_absolute(&self.directory, &self.name)
    }

    /// Compares by the order of ties: by directory, then by name.
    pub(super) fn cmp_path(&self, other: &EntryDetails) -> Ordering {
        compare_paths(&self.directory, &other.directory).then_with(|| self.name.cmp(&other.name))
    }

    /// Makes it an entry of a list.
    pub(super) fn listed(&self) -> ListedEntry {
        let a = &self.attributes;
        ListedEntry {
            path: self.path(),
            uid: a.uid,
            user: user_name(a.uid),
            mode: a.mode,
            bytes: a.size_bytes,
            disk_bytes: a.blocks.saturating_mul(512),
            mtime_ns: a.mtime_ns,
            atime_ns: a.atime_ns,
        }
    }
}

/// Reads the entries of rows; what is in none of the columns of inodes and targets is 0 or empty.
pub(super) fn read(
    parts: &[CoveredFile<'_>],
    mut ids: Vec<RowId>,
    columns: Columns,
    threads: usize,
) -> Result<FxHashMap<RowId, EntryDetails>> {
    ids.sort_unstable();
    ids.dedup();
    let by_part: Vec<&[RowId]> = ids.chunk_by(|a, b| a.part == b.part).collect();
    let read = |ids: &&[RowId]| read_part(&parts[ids[0].part as usize], ids, columns);
    Ok(listed(threads, &by_part, read)?.into_iter().collect())
}

/// Reads the entries of rows in the order of their paths, each with the start that it is below.
pub(super) fn read_in_order<'a>(
    parts: &[CoveredFile<'a>],
    ids: Vec<RowId>,
    columns: Columns,
    threads: usize,
) -> Result<Vec<(&'a Start, EntryDetails)>> {
    let entries = read(parts, ids, columns, threads)?.into_iter();
    let mut entries: Vec<_> =
        entries.map(|(id, entry)| (parts[id.part as usize].start, entry)).collect();
    entries.sort_by(|a, b| a.1.cmp_path(&b.1));
    Ok(entries)
}

fn read_part(
    part: &CoveredFile<'_>,
    ids: &[RowId],
    columns: Columns,
) -> Result<Vec<(RowId, EntryDetails)>> {
    let unit = part.unit_of(ids.iter().map(|id| id.row));
    let no_device = || part.shard.corrupt(FileKind::Listings, "it has no devices");
    let mut found = Vec::with_capacity(ids.len());
    let mut ids = ids.iter();
    for placed in unit.read_placed(columns, &unit.rows, true)? {
        let placed = placed?;
        let batch = &placed.batch;
        let (listings, names, targets) = (LISTING.of(batch)?, NAME.of(batch)?, TARGET.find(batch));
        let inodes = InodeColumns::of(batch);
        let mut last: Option<(ListingOrdinal, Arc<str>)> = None;
        for (at, id) in ids.by_ref().take(batch.num_rows()).enumerate() {
            let listing = placed.listing(at)?;
            let directory = match &last {
                Some((last, directory)) if *last == listings.value(at) => directory.clone(),
                _ => Arc::from(absolute_path(&part.start.source, listing.path)),
            };
            last = Some((listings.value(at), directory.clone()));
            let entry = EntryDetails {
                directory,
                name: names.value(at).to_owned(),
                attributes: inodes.row(at),
                dev: listing.dev.ok_or_else(no_device)?,
                target: text_or_empty(targets, at).to_owned(),
            };
            found.push((*id, entry));
        }
    }
    unit.close();
    Ok(found)
}

/// Gives rows by number among those of all parts, which ascend, as rows of the parts.
pub(super) fn by_part(parts: &[CoveredFile<'_>], rows: &[u32]) -> Vec<(usize, Vec<u32>)> {
    let of = |row: u32| parts.partition_point(|part| part.base <= row as usize).saturating_sub(1);
    let in_part = |rows: &[u32]| {
        let part = of(rows[0]);
        (part, rows.iter().map(|&row| row - parts[part].base as u32).collect())
    };
    rows.chunk_by(|a, b| of(*a) == of(*b)).map(in_part).collect()
}

/// Reads the entries of rows by number among those of all parts, which ascend.
pub(super) fn of_rows(
    parts: &[CoveredFile<'_>],
    rows: &[u32],
    threads: usize,
) -> Result<FxHashMap<u32, EntryDetails>> {
    let mut ids = Vec::with_capacity(rows.len());
    for (part, rows) in by_part(parts, rows) {
        ids.extend(rows.into_iter().map(|row| RowId { part: part as u32, row }));
    }
    let number = |id: RowId| (parts[id.part as usize].base + id.row as usize) as u32;
    let found = read(parts, ids, INODE, threads)?.into_iter();
    Ok(found.map(|(id, entry)| (number(id), entry)).collect())
}

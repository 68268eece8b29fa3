//! Reading what chosen rows are: their paths and attributes.

use super::best::{Best, Place};
use super::document::Item;
use super::parts::{BATCH_ROWS, Part};
use crate::error::Result;
use arrow::array::AsArray;
use arrow::datatypes::UInt32Type;
use canopy_index::FileKind;
use canopy_model::{Attributes, compare_paths, join_absolute};
use canopy_read::columns::{INODE, InodeColumns, numbers, strings, text_or_empty};
use canopy_read::listings::{ListingHeads, merge_ranges};
use canopy_read::locate::absolute_path;
use canopy_read::work::in_parallel;
use canopy_text::user_name;
use rustc_hash::FxHashMap;
use std::cmp::{Ordering, Reverse};
use std::sync::{Arc, Mutex};

/// An entry, a directory among them.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Absolute path of the directory that holds it.
    pub(super) directory: Arc<str>,
    pub(super) name: String,
    pub(super) attributes: Attributes,
    pub(super) dev: u64,
    /// Where it points if it is a symbolic link.
    pub(super) target: String,
}

impl Entry {
    pub(super) fn path(&self) -> String {
        join_absolute(&self.directory, &self.name)
    }

    /// The order of ties: by directory, then by name.
    pub(super) fn cmp_path(&self, other: &Entry) -> Ordering {
        compare_paths(&self.directory, &other.directory).then_with(|| self.name.cmp(&other.name))
    }

    pub(super) fn item(&self) -> Item {
        let a = &self.attributes;
        Item {
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

/// Rows by number among those of all parts, which ascend, as rows of the parts.
pub(super) fn by_part(parts: &[Part<'_>], rows: &[u32]) -> Vec<(usize, Vec<u32>)> {
    let of = |row: u32| parts.partition_point(|part| part.base <= row as usize).saturating_sub(1);
    rows.chunk_by(|a, b| of(*a) == of(*b))
        .map(|rows| {
            let part = of(rows[0]);
            (part, rows.iter().map(|&row| row - parts[part].base as u32).collect())
        })
        .collect()
}

/// What to read of entries; attributes that are not asked for are 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// All attributes.
    All,
    /// Inode, links and sizes.
    Links,
    /// Names and targets alone.
    Targets,
}

impl Depth {
    fn columns(self, kind: FileKind) -> Vec<&'static str> {
        let mut columns = vec!["listing", "name"];
        match self {
            Depth::All => columns.extend(INODE),
            Depth::Links => columns.extend(["ino", "nlink", "size", "blocks"]),
            Depth::Targets => {}
        }
        if kind == FileKind::Entries && self != Depth::Links {
            columns.push("target");
        }
        columns
    }
}

/// Reads the entries at some places.
pub(super) fn read(
    parts: &[Part<'_>],
    places: &[Place],
    depth: Depth,
    threads: usize,
) -> Result<FxHashMap<Place, Entry>> {
    let mut places = places.to_vec();
    places.sort_unstable();
    places.dedup();
    let by_part: Vec<&[Place]> = places.chunk_by(|a, b| a.0 == b.0).collect();
    let found = Mutex::new(FxHashMap::default());
    in_parallel(threads, &by_part, |places| -> Result<()> {
        let entries = read_part(&parts[places[0].0 as usize], places, depth)?;
        found.lock().expect("no thread panics while it holds the lock").extend(entries);
        Ok(())
    })?;
    Ok(found.into_inner().expect("no thread panics while it holds the lock"))
}

fn read_part(part: &Part<'_>, places: &[Place], depth: Depth) -> Result<Vec<(Place, Entry)>> {
    let ranges =
        merge_ranges(places.iter().map(|&(_, row)| row as usize..row as usize + 1).collect());
    let mut found = Vec::with_capacity(places.len());
    let mut places = places.iter();
    for batch in part.shard.read(part.kind, &depth.columns(part.kind), &ranges, BATCH_ROWS)? {
        let batch = batch?;
        let listings = numbers::<UInt32Type>(&batch, "listing").values();
        let heads = ListingHeads::read_with_devices(part.shard, listings)?;
        let names = strings(&batch, "name");
        let inodes = InodeColumns::of(&batch);
        let targets = batch.column_by_name("target").map(|column| column.as_string::<i32>());
        let mut last: Option<(u32, Arc<str>)> = None;
        for (at, place) in places.by_ref().take(batch.num_rows()).enumerate() {
            let bad = || part.shard.corrupt(part.kind, "it names a listing that does not exist");
            let head = heads.get(listings[at]).ok_or_else(bad)?;
            let dev = head.dev.ok_or_else(bad)?;
            let directory = match &last {
                Some((listing, directory)) if *listing == listings[at] => directory.clone(),
                _ => Arc::from(absolute_path(&part.start.source, head.path)),
            };
            last = Some((listings[at], directory.clone()));
            let entry = Entry {
                directory,
                name: names.value(at).to_owned(),
                attributes: inodes.row(at),
                dev,
                target: text_or_empty(targets, at).to_owned(),
            };
            found.push((*place, entry));
        }
    }
    part.close();
    Ok(found)
}

/// Reads the entries of rows by number among those of all parts, which ascend.
pub(super) fn of_rows(
    parts: &[Part<'_>],
    rows: &[u32],
    threads: usize,
) -> Result<FxHashMap<u32, Entry>> {
    let mut places = Vec::with_capacity(rows.len());
    for (part, rows) in by_part(parts, rows) {
        places.extend(rows.into_iter().map(|row| (part as u32, row)));
    }
    let number = |place: Place| (parts[place.0 as usize].base + place.1 as usize) as u32;
    Ok(read(parts, &places, Depth::All, threads)?
        .into_iter()
        .map(|(place, entry)| (number(place), entry))
        .collect())
}

/// The best entries of lists, in order.
pub(super) fn best(
    parts: &[Part<'_>],
    lists: Vec<Best>,
    top: usize,
    threads: usize,
) -> Result<Vec<Vec<Item>>> {
    let lists: Vec<Vec<(i64, Place)>> = lists.into_iter().map(Best::into_candidates).collect();
    let places: Vec<Place> = lists.iter().flatten().map(|(_, place)| *place).collect();
    let entries = read(parts, &places, Depth::All, threads)?;
    let in_order = |list: Vec<(i64, Place)>| {
        let mut list: Vec<(i64, &Entry)> =
            list.into_iter().filter_map(|(key, place)| Some((key, entries.get(&place)?))).collect();
        list.sort_by(|a, b| Reverse(a.0).cmp(&Reverse(b.0)).then_with(|| a.1.cmp_path(b.1)));
        list.truncate(top);
        list.into_iter().map(|(_, entry)| entry.item()).collect()
    };
    Ok(lists.into_iter().map(in_order).collect())
}

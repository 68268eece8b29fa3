//! The one pass over listings: what single directories hold, and what their trees do.
//!
//! A tree may lie in many shards. Each shard adds up what it has of each tree, in path order with
//! the directories on the way to the current one on a stack; the sums meet by a hash of the path of
//! 128 bits under a secret. Memory: 56 bytes a directory in each shard that has anything below it,
//! and as much again for those that several have.

use super::best::{Best, Place};
use super::parts::{BATCH_ROWS, Part, groups_with};
use super::tree_sums::{NOWHERE, Sums, Tree, Trees, add, child_key, halves};
use crate::error::Result;
use arrow::array::Array;
use arrow::datatypes::{Int64Type, UInt32Type};
use canopy_index::{FileKind, RowRange, Shard};
use canopy_model::is_below;
use canopy_read::columns::{numbers, strings};
use canopy_read::listings::merge_ranges;
use canopy_read::locate::Start;
use canopy_read::work::by_workers;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Mutex;

/// What was found.
pub(super) struct Found {
    pub(super) trees: Trees,
    pub(super) listed: i64,
    pub(super) entries: i64,
    pub(super) squares: u128,
    pub(super) most_entries: Best,
    pub(super) most_bytes: Best,
    pub(super) deepest: Best,
    pub(super) empty: i64,
    pub(super) empty_first: Best,
    /// Directories whose listing comes in several parts, by start and path.
    pieces: FxHashMap<(u128, String), (Place, Here)>,
}

/// What one listing holds.
#[derive(Clone, Copy, Default)]
struct Here {
    /// Directories among them.
    entries: i64,
    /// Of those that are not directories.
    bytes: i64,
    sums: Sums,
}

/// What to look for.
pub(super) struct Wanted {
    pub(super) top: usize,
    pub(super) owner: Option<u32>,
    pub(super) trees: bool,
}

impl Found {
    fn new(top: usize) -> Self {
        Found {
            trees: Trees::new(),
            listed: 0,
            entries: 0,
            squares: 0,
            most_entries: Best::new(top),
            most_bytes: Best::new(top),
            deepest: Best::new(top),
            empty: 0,
            empty_first: Best::new(top),
            pieces: FxHashMap::default(),
        }
    }

    fn merge(&mut self, other: Found) {
        self.trees.merge(other.trees);
        self.listed += other.listed;
        self.entries += other.entries;
        self.squares = self.squares.saturating_add(other.squares);
        self.most_entries.merge(other.most_entries);
        self.most_bytes.merge(other.most_bytes);
        self.deepest.merge(other.deepest);
        self.empty += other.empty;
        self.empty_first.merge(other.empty_first);
        for (key, (place, here)) in other.pieces {
            self.piece(key, place, &here);
        }
    }

    fn piece(&mut self, key: (u128, String), place: Place, here: &Here) {
        let known = self.pieces.entry(key).or_insert((place, Here::default()));
        known.0 = known.0.min(place);
        known.1.entries += here.entries;
        known.1.bytes = known.1.bytes.wrapping_add(here.bytes);
    }

    /// Takes in what one directory holds.
    fn directory(&mut self, place: Place, here: &Here) {
        self.listed += 1;
        self.entries += here.entries;
        let entries = u128::from(here.entries.unsigned_abs());
        self.squares = self.squares.saturating_add(entries * entries);
        self.most_entries.offer(here.entries, place);
        self.most_bytes.offer(here.bytes, place);
    }
}

/// Reads the listings of all parts.
pub(super) fn scan(parts: &[Part<'_>], wanted: &Wanted, threads: usize) -> Result<Found> {
    let pieces = in_pieces(parts)?;
    let numbers: Vec<usize> = (0..parts.len()).collect();
    let all = Mutex::new(Found::new(wanted.top));
    let work = |found: &mut Found, &number: &usize| {
        let part = &parts[number];
        Pass { part, number: number as u32, wanted, pieces: &pieces, found }.run()?;
        part.shard.close(FileKind::Listings);
        Ok(())
    };
    let finish = |found: Found| -> Result<()> {
        all.lock().expect("no thread panics while it holds the lock").merge(found);
        Ok(())
    };
    by_workers(
        threads.clamp(1, parts.len().max(1)),
        &numbers,
        |_| Ok(Found::new(wanted.top)),
        work,
        finish,
    )?;
    let mut all = all.into_inner().expect("no thread panics while it holds the lock");
    all.trees.join();
    for (place, here) in std::mem::take(&mut all.pieces).into_values() {
        if wanted.owner.is_none() || here.entries > 0 {
            all.directory(place, &here);
        }
    }
    Ok(all)
}

/// The key of the tree of a start, which its address tells from others.
pub(super) fn start_key(start: &Start) -> u128 {
    child_key(std::ptr::from_ref(start).addr() as u128, "")
}

/// Directories whose listing comes in several parts.
fn in_pieces(parts: &[Part<'_>]) -> Result<FxHashSet<String>> {
    let mut found = FxHashSet::default();
    for part in parts.iter().filter(|part| part.shard.record().parts) {
        for batch in
            part.shard.read(FileKind::Listings, &["path", "part"], &part.rows, BATCH_ROWS)?
        {
            let batch = batch?;
            let (paths, numbers) =
                (strings(&batch, "path"), numbers::<UInt32Type>(&batch, "part").values());
            let later = (0..paths.len()).filter(|&at| numbers[at] > 0);
            found.extend(later.map(|at| paths.value(at).to_owned()));
        }
    }
    Ok(found)
}

/// One pass over the listings of a part.
struct Pass<'a, 'f> {
    part: &'a Part<'a>,
    number: u32,
    wanted: &'a Wanted,
    pieces: &'a FxHashSet<String>,
    found: &'f mut Found,
}

/// A directory on the way to the current one.
struct Open {
    /// Where its path ends in the current path.
    end: usize,
    key: u128,
    parent: u64,
    /// What is below it.
    below: Sums,
    /// What it is itself.
    own: Sums,
    place: Place,
}

impl Pass<'_, '_> {
    fn run(&mut self) -> Result<()> {
        let shard = self.part.shard;
        for listings in &self.part.rows {
            let held = match self.wanted.owner {
                None => held(shard, listings)?,
                Some(uid) => held_by(shard, listings, uid)?,
            };
            let rows = self.rows(listings, &held)?;
            self.read(&rows, listings, &held)?;
        }
        Ok(())
    }

    /// The listings to look at: all, or of an owner those with something of theirs and those of
    /// directories of theirs.
    fn rows(&self, listings: &RowRange, held: &[Here]) -> Result<Vec<RowRange>> {
        let Some(owner) = self.wanted.owner else { return Ok(vec![listings.clone()]) };
        let mut wanted: Vec<bool> = held.iter().map(|here| here.entries > 0).collect();
        for group in groups_with(self.part.shard, FileKind::Listings, owner)? {
            let rows = group.start.max(listings.start)..group.end.min(listings.end);
            if rows.is_empty() {
                continue;
            }
            let mut at = rows.start - listings.start;
            let read = self.part.shard.read(
                FileKind::Listings,
                &["uid"],
                std::slice::from_ref(&rows),
                BATCH_ROWS,
            )?;
            for batch in read {
                for uid in numbers::<UInt32Type>(&batch?, "uid").values() {
                    wanted[at] |= *uid == owner;
                    at += 1;
                }
            }
        }
        let rows = wanted.iter().enumerate().filter(|(_, wanted)| **wanted);
        let rows = rows.map(|(at, _)| listings.start + at..listings.start + at + 1);
        Ok(merge_ranges(rows.collect()))
    }

    fn read(&mut self, rows: &[RowRange], listings: &RowRange, held: &[Here]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let base = self.part.start.path.len();
        let mut current = self.part.start.path.clone();
        let root = start_key(self.part.start);
        let mut open = vec![Open {
            end: base,
            key: root,
            parent: 0,
            below: [0; 3],
            own: [0; 3],
            place: NOWHERE,
        }];
        let mut ordinals = rows.iter().cloned().flatten();
        let mut columns = vec!["path", "depth", "part", "uid", "size", "blocks"];
        let counts = ["files", "symlinks", "others", "subdirs"];
        if self.wanted.owner.is_some() {
            columns.extend(counts);
        }
        for batch in self.part.shard.read(FileKind::Listings, &columns, rows, BATCH_ROWS)? {
            let batch = batch?;
            // Of an owner's directory, entries of others count too.
            let counts: Vec<&[i64]> = match self.wanted.owner {
                Some(_) => counts
                    .iter()
                    .map(|name| &**numbers::<Int64Type>(&batch, name).values())
                    .collect(),
                None => Vec::new(),
            };
            let paths = strings(&batch, "path");
            let [depths, pieces, uids] =
                ["depth", "part", "uid"].map(|name| numbers::<UInt32Type>(&batch, name).values());
            let [sizes, blocks] =
                ["size", "blocks"].map(|name| numbers::<Int64Type>(&batch, name).values());
            for (at, ordinal) in ordinals.by_ref().take(batch.num_rows()).enumerate() {
                let here = &held[ordinal - listings.start];
                let place = (self.number, ordinal as u32);
                let path = paths.value(at);
                let own =
                    pieces[at] == 0 && self.wanted.owner.is_none_or(|owner| owner == uids[at]);
                let empty = own && here.entries == 0 && counts.iter().all(|count| count[at] == 0);
                self.directory(path, place, i64::from(depths[at]), (own, empty), here);
                if self.wanted.trees {
                    self.go_to(&mut open, &mut current, path);
                    let top = open.last_mut().expect("the start stays open");
                    add(&mut top.below, &here.sums);
                    top.place = top.place.min(place);
                    if own {
                        top.own = [1, sizes[at], blocks[at]];
                    }
                }
            }
        }
        while !open.is_empty() {
            self.close(&mut open);
        }
        Ok(())
    }

    /// Takes in one listing for the lists of single directories: whether the directory counts, and
    /// whether it is empty.
    fn directory(
        &mut self,
        path: &str,
        place: Place,
        depth: i64,
        (own, empty): (bool, bool),
        here: &Here,
    ) {
        let several = !self.pieces.is_empty() && self.pieces.contains(path);
        if several {
            self.found.piece((start_key(self.part.start), path.to_owned()), place, here);
        } else if self.wanted.owner.is_none() || here.entries > 0 {
            self.found.directory(place, here);
        }
        if own {
            self.found.deepest.offer(depth - i64::from(self.part.start.depth()), place);
        }
        if empty && !several {
            self.found.empty += 1;
            self.found.empty_first.offer(0, place);
        }
    }

    /// Leaves directories and enters others until `path` is the current one.
    fn go_to(&mut self, open: &mut Vec<Open>, current: &mut String, path: &str) {
        while open.len() > 1 && !is_below(path, &current[..open[open.len() - 1].end]) {
            self.close(open);
        }
        let mut at = open[open.len() - 1].end;
        current.truncate(at);
        while at < path.len() {
            let name_at = if at == 0 { 0 } else { at + 1 };
            let end = path[name_at..].find('/').map_or(path.len(), |end| name_at + end);
            let parent = open[open.len() - 1].key;
            let key = child_key(parent, &path[name_at..end]);
            open.push(Open {
                end,
                key,
                parent: parent as u64,
                below: [0; 3],
                own: [0; 3],
                place: NOWHERE,
            });
            at = end;
        }
        current.push_str(&path[current.len()..]);
    }

    /// Adds the innermost open directory to those above it and to the map.
    fn close(&mut self, open: &mut Vec<Open>) {
        let Some(last) = open.pop() else { return };
        if let Some(above) = open.last_mut() {
            add(&mut above.below, &last.below);
        }
        let mut sums = last.below;
        add(&mut sums, &last.own);
        self.found.trees.push(Tree {
            key: halves(last.key),
            sums,
            place: last.place,
            parent: last.parent,
        });
    }
}

/// What each of some listings holds.
fn held(shard: &Shard, listings: &RowRange) -> Result<Vec<Here>> {
    let rows = shard.rows(FileKind::Listings);
    let mut before: Vec<[i64; 5]> = Vec::with_capacity(listings.len() + 1);
    let with_next = listings.start..rows.min(listings.end + 1);
    let columns = ["first_entry", "first_dir", "bytes_before", "dir_bytes_before", "blocks_before"];
    for batch in
        shard.read(FileKind::Listings, &columns, std::slice::from_ref(&with_next), BATCH_ROWS)?
    {
        let batch = batch?;
        let [entries, dirs] =
            ["first_entry", "first_dir"].map(|name| numbers::<UInt32Type>(&batch, name).values());
        let [bytes, dir_bytes, blocks] = ["bytes_before", "dir_bytes_before", "blocks_before"]
            .map(|name| numbers::<Int64Type>(&batch, name).values());
        before.extend((0..batch.num_rows()).map(|at| {
            [i64::from(entries[at]), i64::from(dirs[at]), bytes[at], dir_bytes[at], blocks[at]]
        }));
    }
    if listings.end >= rows {
        let all = shard.record().totals;
        before.push([all.entries, all.dirs, all.bytes, all.dir_bytes, all.blocks]);
    }
    let here = |pair: &[[i64; 5]]| {
        let [entries, dirs, bytes, dir_bytes, blocks]: [i64; 5] =
            std::array::from_fn(|at| pair[1][at].wrapping_sub(pair[0][at]));
        Here {
            entries: entries + dirs,
            bytes,
            sums: [entries + dirs, bytes.wrapping_add(dir_bytes), blocks],
        }
    };
    let held: Vec<Here> = before.windows(2).map(here).collect();
    if held.len() != listings.len() {
        return Err(shard.corrupt(FileKind::Listings, "rows are missing").into());
    }
    Ok(held)
}

/// What each of some listings holds of an owner.
fn held_by(shard: &Shard, listings: &RowRange, uid: u32) -> Result<Vec<Here>> {
    let mut held = vec![Here::default(); listings.len()];
    for rows in groups_with(shard, FileKind::Usage, uid)? {
        let columns = ["listing", "uid", "count", "size", "blocks"];
        for batch in
            shard.read(FileKind::Usage, &columns, std::slice::from_ref(&rows), BATCH_ROWS)?
        {
            let batch = batch?;
            let [of, uids] =
                ["listing", "uid"].map(|name| numbers::<UInt32Type>(&batch, name).values());
            let [counts, sizes, blocks] =
                ["count", "size", "blocks"].map(|name| numbers::<Int64Type>(&batch, name).values());
            for at in (0..batch.num_rows()).filter(|&at| uids[at] == uid) {
                if listings.contains(&(of[at] as usize)) {
                    let here = &mut held[of[at] as usize - listings.start];
                    here.entries += counts[at];
                    here.bytes = here.bytes.wrapping_add(sizes[at]);
                    add(&mut here.sums, &[counts[at], sizes[at], blocks[at]]);
                }
            }
        }
    }
    shard.close(FileKind::Usage);
    let (_, dirs) = shard.rows_of(listings.clone())?;
    for group in groups_with(shard, FileKind::Dirs, uid)? {
        let rows = group.start.max(dirs.start)..group.end.min(dirs.end);
        if rows.is_empty() {
            continue;
        }
        let columns = ["listing", "uid", "size", "blocks"];
        for batch in
            shard.read(FileKind::Dirs, &columns, std::slice::from_ref(&rows), BATCH_ROWS)?
        {
            let batch = batch?;
            let [of, uids] =
                ["listing", "uid"].map(|name| numbers::<UInt32Type>(&batch, name).values());
            let [sizes, blocks] =
                ["size", "blocks"].map(|name| numbers::<Int64Type>(&batch, name).values());
            for at in (0..batch.num_rows()).filter(|&at| uids[at] == uid) {
                let Some(here) =
                    (of[at] as usize).checked_sub(listings.start).and_then(|at| held.get_mut(at))
                else {
                    return Err(shard
                        .corrupt(FileKind::Dirs, "it names a listing that does not exist")
                        .into());
                };
                here.entries += 1;
                add(&mut here.sums, &[1, sizes[at], blocks[at]]);
            }
        }
    }
    Ok(held)
}

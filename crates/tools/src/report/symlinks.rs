//! Where symbolic links lead, by what the index has.
//!
//! Names are looked up for all links at once, in rounds: each reads the paths of the listings once,
//! and the names in those listings that some link leads through.

use super::details::Entry;
use super::document::{FlaggedLinks, SymbolicLink, Symlinks};
use super::parts::BATCH_ROWS;
use crate::error::Result;
use arrow::array::AsArray;
use arrow::datatypes::UInt32Type;
use canopy_index::{FileKind, Index, RowRange, Shard};
use canopy_model::is_below;
use canopy_read::columns::{numbers, strings, text_or_empty};
use canopy_read::links::{End, Name, Trail};
use canopy_read::locate::{Start, absolute_path, source_of};
use canopy_read::work::in_parallel;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Mutex;

/// A link that is being followed, by its place among all.
struct Walk {
    number: usize,
    trail: Trail,
}

/// Names to look up, by absolute path of their directory.
type Names = FxHashMap<String, FxHashSet<String>>;

/// What names are, by absolute path of their directory.
type Known = FxHashMap<String, FxHashMap<String, Name>>;

/// Follows links of one start, which are in the order in which they are shown, and adds what comes
/// of it.
pub(super) fn follow(
    start: &Start,
    links: &[&Entry],
    threads: usize,
    top: usize,
    sum: &mut Symlinks,
) -> Result<()> {
    let index = &*start.view;
    let mut ends = vec![End::Unknown; links.len()];
    let mut known = Known::default();
    let begin = |(number, link): (usize, &&Entry)| Walk {
        number,
        trail: Trail::new(&link.directory, &link.target),
    };
    let mut walks: Vec<Walk> = links.iter().enumerate().map(begin).collect();
    while !walks.is_empty() {
        let mut wanted = Names::default();
        let mut waiting = Vec::new();
        for mut walk in walks {
            let tell = |directory: &str, name: &str| Ok(told(&known, directory, name).cloned());
            match walk.trail.go(index, tell)? {
                Some(end) => ends[walk.number] = end,
                None => {
                    walk.trail.ahead(|directory, name| want(&known, &mut wanted, directory, name));
                    waiting.push(walk);
                }
            }
        }
        walks = waiting;
        if !wanted.is_empty() {
            look_up(index, wanted, threads, &mut known)?;
        }
    }
    sum.symlinks += links.len() as i64;
    for (link, end) in links.iter().zip(ends) {
        match end {
            End::There(_) => {}
            End::Unknown => sum.unknown += 1,
            End::Missing | End::NotDirectory => sum.broken.add(link, top),
            End::Loop => sum.loops.add(link, top),
        }
    }
    Ok(())
}

impl FlaggedLinks {
    fn add(&mut self, link: &Entry, top: usize) {
        self.count += 1;
        if self.first.len() < top {
            self.first.push(SymbolicLink { path: link.path(), target: link.target.clone() });
        }
    }
}

fn told<'k>(known: &'k Known, directory: &str, name: &str) -> Option<&'k Name> {
    known.get(directory)?.get(name)
}

/// Has a name looked up that is not known.
fn want(known: &Known, wanted: &mut Names, directory: &str, name: &str) {
    if told(known, directory, name).is_some() {
        return;
    }
    match wanted.get_mut(directory) {
        Some(names) => {
            names.insert(name.to_owned());
        }
        None => {
            wanted.insert(directory.to_owned(), FxHashSet::from_iter([name.to_owned()]));
        }
    }
}

/// Looks names up in all shards.
fn look_up(index: &Index, wanted: Names, threads: usize, known: &mut Known) -> Result<()> {
    // By source and path below its root.
    let mut by_source: FxHashMap<u32, FxHashMap<String, &FxHashSet<String>>> = FxHashMap::default();
    for (directory, names) in &wanted {
        if let Some((source, path)) = source_of(index, directory) {
            by_source.entry(source.id).or_default().insert(path, names);
        }
    }
    let shards: Vec<&Shard> = index.shards().iter().map(|shard| &**shard).collect();
    let found = Mutex::new((FxHashSet::default(), Vec::new()));
    in_parallel(threads, &shards, |shard| -> Result<()> {
        let Some(wanted) = by_source.get(&shard.record().source) else { return Ok(()) };
        let Some(source) = index.sources().iter().find(|source| source.id == shard.record().source)
        else {
            return Ok(());
        };
        let covers = shard.covers()?;
        let near =
            |directory: &String| covers.iter().any(|cover| is_below(directory, &cover.prefix));
        if wanted.keys().any(near) {
            let (directories, names) = names_in(shard, wanted)?;
            shard.close(FileKind::Listings);
            let absolute = |path: String| absolute_path(source, &path);
            let names = names.into_iter().map(|(path, name, what)| (absolute(path), name, what));
            let mut found = found.lock().expect("no thread panics while it holds the lock");
            found.0.extend(directories.into_iter().map(absolute));
            found.1.extend(names);
        }
        Ok(())
    })?;
    let (seen, names) = found.into_inner().expect("no thread panics while it holds the lock");
    for (directory, name, what) in names {
        known.entry(directory).or_default().insert(name, what);
    }
    for (directory, names) in wanted {
        let missing = if seen.contains(&directory) { Name::Missing } else { Name::Unseen };
        let here = known.entry(directory).or_default();
        for name in names {
            here.entry(name).or_insert_with(|| missing.clone());
        }
    }
    Ok(())
}

/// Directories that have been seen, and what the wanted names in them are.
type NamesSeen = (Vec<String>, Vec<(String, String, Name)>);

fn names_in(shard: &Shard, wanted: &FxHashMap<String, &FxHashSet<String>>) -> Result<NamesSeen> {
    let listings = 0..shard.rows(FileKind::Listings);
    let mut here: Vec<(String, [usize; 2])> = Vec::new();
    // For each of these: where its rows end.
    let mut ends: Vec<[usize; 2]> = Vec::new();
    let columns = ["path", "first_entry", "first_dir"];
    for batch in
        shard.read(FileKind::Listings, &columns, std::slice::from_ref(&listings), BATCH_ROWS)?
    {
        let batch = batch?;
        let paths = strings(&batch, "path");
        let [entries, dirs] =
            ["first_entry", "first_dir"].map(|name| numbers::<UInt32Type>(&batch, name).values());
        for at in 0..batch.num_rows() {
            let first = [entries[at] as usize, dirs[at] as usize];
            if ends.len() < here.len() {
                ends.push(first);
            }
            if wanted.contains_key(paths.value(at)) {
                here.push((paths.value(at).to_owned(), first));
            }
        }
    }
    if ends.len() < here.len() {
        ends.push([shard.rows(FileKind::Entries), shard.rows(FileKind::Dirs)]);
    }
    let mut found = Vec::new();
    for (which, kind) in [(0, FileKind::Entries), (1, FileKind::Dirs)] {
        let ranges: Vec<RowRange> =
            here.iter().zip(&ends).map(|((_, first), end)| first[which]..end[which]).collect();
        if ranges.iter().all(|range| range.is_empty()) {
            continue;
        }
        let mut owners =
            ranges.iter().enumerate().flat_map(|(at, range)| std::iter::repeat_n(at, range.len()));
        let columns: &[&str] = if which == 0 { &["name", "mode", "target"] } else { &["name"] };
        for batch in shard.read(kind, columns, &ranges, BATCH_ROWS)? {
            let batch = batch?;
            let names = strings(&batch, "name");
            let modes = batch
                .column_by_name("mode")
                .map(|_| numbers::<UInt32Type>(&batch, "mode").values());
            let targets = batch.column_by_name("target").map(|column| column.as_string::<i32>());
            for (at, owner) in owners.by_ref().take(batch.num_rows()).enumerate() {
                let (path, name) = (&here[owner].0, names.value(at));
                if !wanted.get(path).is_some_and(|names| names.contains(name)) {
                    continue;
                }
                let what = match modes.map(|modes| modes[at] & 0o170_000) {
                    None => Name::Directory,
                    Some(0o120_000) => Name::Link(text_or_empty(targets, at).to_owned()),
                    Some(_) => Name::Other,
                };
                found.push((path.clone(), name.to_owned(), what));
            }
        }
        shard.close(kind);
    }
    Ok((here.into_iter().map(|(path, _)| path).collect(), found))
}

//! Where symbolic links lead, by what the index has.
//!
//! A link is followed as the kernel does: component by component, `..` from where a link has led, at most [`LINKS_MAX`] links. Names are
//! looked up for all links at once, in rounds: each reads the paths of the listings once, and the names in those listings that
//! some link leads through. Nobody learns of anything that is not in the shards that they can read: what lies in a directory
//! that they cannot list, or outside of all sources, is unknown.

use super::details::Entry;
use super::document::{FlaggedLinks, SymbolicLink, Symlinks};
use super::parts::BATCH_ROWS;
use crate::columns::{numbers, strings, text_or_empty};
use crate::error::Result;
use crate::locate::{Start, absolute_path, source_of};
use crate::work::in_parallel;
use arrow::array::AsArray;
use arrow::datatypes::UInt32Type;
use canopy_index::{FileKind, Index, RowRange, Shard};
use canopy_model::{is_below, join_absolute};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Mutex;

/// Links that the kernel follows for one path.
const LINKS_MAX: u32 = 40;

/// What a name is.
#[derive(Clone, Debug)]
enum Known {
    Directory,
    Other,
    Link(String),
    Missing,
    Unseen,
}

/// Where following a link has come to.
struct Walk {
    number: usize,
    /// Absolute path of a real directory.
    directory: String,
    /// What is to be followed from there, the next last.
    rest: Vec<String>,
    links: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    There,
    Broken,
    Loop,
    Unknown,
}

/// Names to look up, by absolute path of their directory.
type Names = FxHashMap<String, FxHashSet<String>>;

/// Follows links of one start, which are in the order in which they are shown, and adds what comes of it.
pub(super) fn follow(
    start: &Start,
    links: &[&Entry],
    threads: usize,
    top: usize,
    sum: &mut Symlinks,
) -> Result<()> {
    let index = &*start.view;
    let mut ends = vec![End::Unknown; links.len()];
    let mut known: FxHashMap<(String, String), Known> = FxHashMap::default();
    let mut walks: Vec<Walk> = Vec::new();
    for (number, link) in links.iter().enumerate() {
        let mut walk = Walk { number, directory: link.directory.to_string(), rest: Vec::new(), links: 0 };
        walk.lead(&link.target);
        walks.push(walk);
    }
    while !walks.is_empty() {
        let mut wanted = Names::default();
        walks.retain_mut(|walk| match walk.go(index, &known) {
            Some(end) => {
                ends[walk.number] = end;
                false
            }
            None => {
                walk.ask(&known, &mut wanted);
                true
            }
        });
        if !wanted.is_empty() {
            look_up(index, wanted, threads, &mut known)?;
        }
    }
    sum.symlinks += links.len() as i64;
    for (link, end) in links.iter().zip(ends) {
        match end {
            End::There => {}
            End::Unknown => sum.unknown += 1,
            End::Broken => sum.broken.add(link, top),
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

impl Walk {
    /// Makes a target what is to be followed next.
    fn lead(&mut self, target: &str) {
        self.links += 1;
        if target.starts_with('/') {
            self.directory = "/".to_owned();
        }
        // A slash at the end asks for a directory, as a '.' there does.
        let target =
            target.strip_suffix('/').map_or_else(|| target.to_owned(), |target| format!("{target}/."));
        self.rest.extend(target.split('/').rev().filter(|name| !name.is_empty()).map(str::to_owned));
    }

    /// Follows as far as names are known; `None` if it takes another one.
    fn go(&mut self, index: &Index, known: &FxHashMap<(String, String), Known>) -> Option<End> {
        while let Some(name) = self.rest.pop() {
            if self.links > LINKS_MAX {
                return Some(End::Loop);
            }
            match name.as_str() {
                "." => continue,
                ".." => {
                    let above = self.directory.rfind('/').unwrap_or(0).max(1);
                    self.directory.truncate(above);
                    continue;
                }
                _ => {}
            }
            let path = join_absolute(&self.directory, &name);
            let place = (std::mem::take(&mut self.directory), name);
            let found = match leads_to_source(index, &path) {
                true => Some(&Known::Directory),
                false if source_of(index, &place.0).is_none() => Some(&Known::Unseen),
                false => known.get(&place),
            };
            self.directory = place.0;
            match found {
                None => {
                    self.rest.push(place.1);
                    return None;
                }
                Some(Known::Directory) => self.directory = path,
                Some(Known::Other) if self.rest.is_empty() => return Some(End::There),
                Some(Known::Other | Known::Missing) => return Some(End::Broken),
                Some(Known::Unseen) => return Some(End::Unknown),
                Some(Known::Link(target)) => self.lead(target),
            }
        }
        Some(if self.links > LINKS_MAX { End::Loop } else { End::There })
    }

    /// Asks for the next name, and for those that come after it if all are directories.
    fn ask(&self, known: &FxHashMap<(String, String), Known>, wanted: &mut Names) {
        let mut directory = self.directory.clone();
        for name in self.rest.iter().rev() {
            match name.as_str() {
                "." => continue,
                ".." => return,
                _ => {}
            }
            let place = (directory, name.clone());
            let is_known = known.contains_key(&place);
            directory = place.0;
            if !is_known {
                match wanted.get_mut(&directory) {
                    Some(names) => {
                        names.insert(place.1);
                    }
                    None => {
                        wanted.insert(directory.clone(), FxHashSet::from_iter([place.1]));
                    }
                }
            }
            directory = join_absolute(&directory, name);
        }
    }
}

/// Whether a path is the root of a source or leads to it: those are real directories.
fn leads_to_source(index: &Index, path: &str) -> bool {
    let leads =
        |root: &str| root == path || root.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    index.sources().iter().any(|source| leads(&source.root))
}

/// Looks names up in all shards.
fn look_up(
    index: &Index,
    wanted: Names,
    threads: usize,
    known: &mut FxHashMap<(String, String), Known>,
) -> Result<()> {
    // By source and path below its root.
    let mut by_source: FxHashMap<u32, FxHashMap<String, &FxHashSet<String>>> = FxHashMap::default();
    for (directory, names) in &wanted {
        if let Some((source, path)) = source_of(index, directory) {
            by_source.entry(source.id).or_default().insert(path, names);
        }
    }
    let shards: Vec<&Shard> = index.shards().iter().map(|shard| &**shard).collect();
    let found = Mutex::new((FxHashSet::default(), Vec::new()));
    in_parallel(threads, &shards, |shard| {
        let Some(wanted) = by_source.get(&shard.record().source) else { return Ok(()) };
        let Some(source) = index.sources().iter().find(|source| source.id == shard.record().source) else {
            return Ok(());
        };
        let covers = shard.covers()?;
        let near = |directory: &String| covers.iter().any(|cover| is_below(directory, &cover.prefix));
        if wanted.keys().any(near) {
            let (directories, names) = names_in(shard, wanted)?;
            shard.close(FileKind::Listings);
            let absolute = |path: String| absolute_path(source, &path);
            let names = names.into_iter().map(|(path, name, what)| ((absolute(path), name), what));
            let mut found = found.lock().expect("no thread panics while it holds the lock");
            found.0.extend(directories.into_iter().map(absolute));
            found.1.extend(names);
        }
        Ok(())
    })?;
    let (seen, names) = found.into_inner().expect("no thread panics while it holds the lock");
    known.extend(names);
    for (directory, names) in wanted {
        let missing = if seen.contains(&directory) { Known::Missing } else { Known::Unseen };
        for name in names {
            known.entry((directory.clone(), name)).or_insert_with(|| missing.clone());
        }
    }
    Ok(())
}

/// Directories that have been seen, and what the wanted names in them are.
type NamesSeen = (Vec<String>, Vec<(String, String, Known)>);

fn names_in(shard: &Shard, wanted: &FxHashMap<String, &FxHashSet<String>>) -> Result<NamesSeen> {
    let listings = 0..shard.rows(FileKind::Listings);
    let mut here: Vec<(String, [usize; 2])> = Vec::new();
    // For each of these: where its rows end.
    let mut ends: Vec<[usize; 2]> = Vec::new();
    let columns = ["path", "first_entry", "first_dir"];
    for batch in shard.read(FileKind::Listings, &columns, std::slice::from_ref(&listings), BATCH_ROWS)? {
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
            let modes = batch.column_by_name("mode").map(|_| numbers::<UInt32Type>(&batch, "mode").values());
            let targets = batch.column_by_name("target").map(|column| column.as_string::<i32>());
            for (at, owner) in owners.by_ref().take(batch.num_rows()).enumerate() {
                let (path, name) = (&here[owner].0, names.value(at));
                if !wanted.get(path).is_some_and(|names| names.contains(name)) {
                    continue;
                }
                let what = match modes.map(|modes| modes[at] & 0o170_000) {
                    None => Known::Directory,
                    Some(0o120_000) => Known::Link(text_or_empty(targets, at).to_owned()),
                    Some(_) => Known::Other,
                };
                found.push((path.clone(), name.to_owned(), what));
            }
        }
        shard.close(kind);
    }
    Ok((here.into_iter().map(|(path, _)| path).collect(), found))
}

//! Where symbolic links lead, by what the index has.
//!
//! Names are looked up for all links at once, in rounds: each reads the paths of the listings once,
//! and the names in those listings that some link leads through.

use super::*;
use crate::report::details;
use canopy_index::column::{FIRST_DIR, FIRST_ENTRY, MODE, NAME, PATH, TARGET};
use canopy_index::{Index, ListingOrdinal, RowRange, Shard, SourceId, holds};
use canopy_model::{AbsolutePath, FileType, SourcePath, SourcePathBuf};
use canopy_read::inode::text_or_empty;
use canopy_read::links::{NameKind, Trail, TrailEnd};
use canopy_read::locate::{Start, absolute_path, source_of};
use canopy_read::plan::BATCH_ROWS;
use canopy_read::work::merged;
use rustc_hash::{FxHashMap, FxHashSet};

/// Where symbolic links lead, as far as the index tells.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::report) struct Symlinks {
    symlinks: i64,
    broken: FlaggedLinks,
    /// Those that lead to themselves, or through more than 40 others.
    loops: FlaggedLinks,
    /// Those that lead out of the index, or where the user cannot see.
    unknown: i64,
}

/// Some symbolic links.
#[derive(Clone, Debug, Default, Serialize)]
struct FlaggedLinks {
    count: i64,
    first: Vec<SymbolicLink>,
}

#[derive(Clone, Debug, Serialize)]
struct SymbolicLink {
    path: String,
    target: String,
}

/// The rows of symbolic links.
pub(in crate::report) struct SymlinkRows(Vec<RowId>);

impl EntryCollector for SymlinkRows {
    fn new(_: &Scope<'_>) -> Self {
        SymlinkRows(Vec::new())
    }

    fn columns(&self, _: &CoveredFile<'_>) -> Result<Columns> {
        Ok(MODE.into())
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        let modes = MODE.of(batch.batch)?;
        self.0.extend(batch.ids_where(|at| FileType::of_mode(modes[at]) == FileType::Symlink));
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl ReportSection for Symlinks {
    const TITLE: &'static str = "Symbolic links";
    const NOTE: Option<&'static str> = Some("As far as the index tells where they lead.");
    const NEEDS: &'static [Need] = &[Need::Entries];
    type Entries = SymlinkRows;

    fn answer(facts: &mut Facts<'_>, rows: SymlinkRows) -> Result<Option<Self>> {
        let threads = facts.options.threads;
        let links = details::read_in_order(&facts.parts, rows.0, TARGET.into(), threads)?;
        let mut answer = Symlinks::default();
        for start in facts.starts {
            let here = links.iter().filter(|(of, _)| std::ptr::eq(*of, start));
            let links: Vec<&EntryDetails> = here.map(|(_, link)| link).collect();
            let ends = follow(start, &links, threads)?;
            answer.add(&links, ends, facts.options.top);
        }
        Ok(Some(answer))
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks = vec![Block::Facts(vec![
            (count(self.symlinks), "symbolic links"),
            (count(self.broken.count), "broken"),
            (count(self.loops.count), "in loops"),
            (count(self.unknown), "lead where the index cannot tell"),
        ])];
        for (title, flagged) in [("Broken", &self.broken), ("Loops", &self.loops)] {
            if !flagged.first.is_empty() {
                let columns = [("target", false), ("path", false)];
                let table = table(&columns, &flagged.first, |link| {
                    vec![name(&link.target), name(&link.path)]
                });
                blocks.push(table.titled(title).block());
            }
        }
        blocks
    }
}

impl Symlinks {
    /// Adds links, which are in the order in which they are shown, and where they lead.
    fn add(&mut self, links: &[&EntryDetails], ends: Vec<TrailEnd>, top: usize) {
        self.symlinks += links.len() as i64;
        for (link, end) in links.iter().zip(ends) {
            match end {
                TrailEnd::At(_) => {}
                TrailEnd::Denied | TrailEnd::Unknown => self.unknown += 1,
                TrailEnd::Missing | TrailEnd::NotDirectory | TrailEnd::LongName => {
                    self.broken.add(link, top);
                }
                TrailEnd::Loop => self.loops.add(link, top),
            }
        }
    }
}

impl FlaggedLinks {
    fn add(&mut self, link: &EntryDetails, top: usize) {
        self.count += 1;
        if self.first.len() < top {
            self.first.push(SymbolicLink { path: link.path(), target: link.target.clone() });
        }
    }
}

/// A link that is being followed, by its number among all.
struct Walk {
    number: usize,
    trail: Trail,
}

/// Names to look up, by absolute path of their directory.
type Names = FxHashMap<String, FxHashSet<String>>;

/// Kinds of names, by absolute path of their directory.
type Known = FxHashMap<String, FxHashMap<String, NameKind>>;

/// Follows links of one start, and tells where each leads.
fn follow(start: &Start, links: &[&EntryDetails], threads: usize) -> Result<Vec<TrailEnd>> {
    let index = &*start.view;
    let mut ends = vec![TrailEnd::Unknown; links.len()];
    let mut known = Known::default();
    let begin = |(number, link): (usize, &&EntryDetails)| Walk {
        number,
        trail: Trail::new(&link.directory, &link.target),
    };
    let mut walks: Vec<Walk> = links.iter().enumerate().map(begin).collect();
    while !walks.is_empty() {
        let mut wanted = Names::default();
        let mut waiting = Vec::new();
        for mut walk in walks {
            let known_name = |directory: &str, name: &str| {
                Ok(match source_of(index, AbsolutePath::new(directory)) {
                    Some(_) => find(&known, directory, name).cloned(),
                    None => Some(NameKind::Unseen),
                })
            };
            match walk.trail.go(index, known_name)? {
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
    Ok(ends)
}

fn find<'k>(known: &'k Known, directory: &str, name: &str) -> Option<&'k NameKind> {
    known.get(directory)?.get(name)
}

/// Has a name looked up that is not known.
fn want(known: &Known, wanted: &mut Names, directory: &str, name: &str) {
    if find(known, directory, name).is_none() {
        wanted.entry(directory.to_owned()).or_default().insert(name.to_owned());
    }
}

/// Looks names up in all shards.
fn look_up(index: &Index, wanted: Names, threads: usize, known: &mut Known) -> Result<()> {
    // By source and path in it.
    let mut by_source: FxHashMap<SourceId, WantedNames<'_>> = FxHashMap::default();
    for (directory, names) in &wanted {
        let found = source_of(index, AbsolutePath::new(directory));
        if let Some((source, path)) = found {
            by_source.entry(source.id).or_default().insert(path.to_buf(), names);
        }
    }
    let shards: Vec<&Shard> = index.shards()?.into_iter().map(AsRef::as_ref).collect();
    let look = |found: &mut NamesSeen, shard: &&Shard| -> Result<()> {
        let Some(wanted) = by_source.get(&shard.record().source) else { return Ok(()) };
        let Some(source) = index.sources().iter().find(|source| source.id == shard.record().source)
        else {
            return Ok(());
        };
        let covers = shard.covers()?;
        let prefixes: Vec<_> =
            covers.iter().map(|cover| SourcePath::escaped(&cover.prefix)).collect();
        let near = |directory: &SourcePathBuf| {
            prefixes.iter().any(|prefix| directory.as_path().is_below(*prefix))
        };
        if wanted.keys().any(near) {
            let (directories, names) = names_in(shard, wanted)?;
            shard.close(FileKind::Listings);
            let absolute = |path: SourcePathBuf| absolute_path(source, path.as_path());
            let names = names.into_iter().map(|(path, name, what)| (absolute(path), name, what));
            found.0.extend(directories.into_iter().map(absolute));
            found.1.extend(names);
        }
        Ok(())
    };
    let merge = |all: &mut NamesSeen, more: NamesSeen| {
        all.0.extend(more.0);
        all.1.extend(more.1);
    };
    let (seen, names) = merged(threads, &shards, NamesSeen::default, look, merge)?;
    for (directory, name, what) in names {
        known.entry(directory).or_default().insert(name, what);
    }
    for (directory, names) in wanted {
        let listed = seen.contains(&directory);
        let here = known.entry(directory).or_default();
        for name in names {
            let otherwise = match listed {
                // A user who sees the listing of a directory may search it.
                true if name == "." => NameKind::Directory,
                true => NameKind::Missing,
                false => NameKind::Unseen,
            };
            here.entry(name).or_insert(otherwise);
        }
    }
    Ok(())
}

/// Directories that have been seen, by absolute path, and what the wanted names in them are.
type NamesSeen = (FxHashSet<String>, Vec<(String, String, NameKind)>);

/// Names to look up in one source, by path of their directory in it.
type WantedNames<'a> = FxHashMap<SourcePathBuf, &'a FxHashSet<String>>;

/// Directories of a source that have been seen, and what the wanted names in them are.
type NamesOfSource = (Vec<SourcePathBuf>, Vec<(SourcePathBuf, String, NameKind)>);

/// A directory that some wanted names are in, and its entries and directories.
struct WantedDirectory {
    path: SourcePathBuf,
    rows: [RowRange; 2],
}

fn names_in(shard: &Shard, wanted: &WantedNames<'_>) -> Result<NamesOfSource> {
    let directories = directories_in(shard, wanted)?;
    let mut found = Vec::new();
    for (which, kind) in [(0, FileKind::Entries), (1, FileKind::Dirs)] {
        let ranges: Vec<RowRange> =
            directories.iter().map(|directory| directory.rows[which].clone()).collect();
        if ranges.iter().all(|range| range.is_empty()) {
            continue;
        }
        let owners = directories.iter().zip(&ranges);
        let mut owners =
            owners.flat_map(|(owner, range)| std::iter::repeat_n(&owner.path, range.len()));
        let columns = NAME | (MODE | TARGET).when(kind == FileKind::Entries);
        for batch in shard.read(kind, columns, &ranges, BATCH_ROWS)? {
            let batch = batch?;
            let names = NAME.of(&batch)?;
            let (modes, targets) = (MODE.find(&batch), TARGET.find(&batch));
            for (at, path) in owners.by_ref().take(batch.num_rows()).enumerate() {
                let name = names.value(at);
                if !wanted.get(path).is_some_and(|names| names.contains(name)) {
                    continue;
                }
                let what = match modes.map(|modes| FileType::of_mode(modes[at])) {
                    None => NameKind::Directory,
                    Some(FileType::Symlink) => {
                        NameKind::Link(text_or_empty(targets, at).to_owned())
                    }
                    Some(_) => NameKind::Other,
                };
                found.push((path.clone(), name.to_owned(), what));
            }
        }
        shard.close(kind);
    }
    Ok((directories.into_iter().map(|directory| directory.path).collect(), found))
}

fn directories_in(shard: &Shard, wanted: &WantedNames<'_>) -> Result<Vec<WantedDirectory>> {
    let mut found: Vec<WantedDirectory> = Vec::new();
    let all = 0..shard.rows(FileKind::Listings);
    let live = shard.live_listings()?;
    let mut ordinals = all.clone();
    let columns = PATH | FIRST_ENTRY | FIRST_DIR;
    // Whether the rows of the last one have no end yet: it is where the next listing begins.
    let mut is_open = false;
    let end = |found: &mut Vec<WantedDirectory>, is_open: bool, ends: [usize; 2]| {
        if let Some(last) = found.last_mut().filter(|_| is_open) {
            last.rows.iter_mut().zip(ends).for_each(|(rows, end)| rows.end = end);
        }
    };
    for batch in shard.read(FileKind::Listings, columns, std::slice::from_ref(&all), BATCH_ROWS)? {
        let batch = batch?;
        let paths = PATH.of(&batch)?;
        let (entries, dirs) = (FIRST_ENTRY.of(&batch)?, FIRST_DIR.of(&batch)?);
        for (at, ordinal) in (0..batch.num_rows()).zip(&mut ordinals) {
            let first = [entries[at] as usize, dirs[at] as usize];
            end(&mut found, is_open, first);
            is_open = wanted.contains_key(paths.value(at))
                && holds(&live, ListingOrdinal::of_row(ordinal));
            if is_open {
                let path = SourcePath::escaped(paths.value(at)).to_buf();
                found.push(WantedDirectory { path, rows: first.map(|first| first..first) });
            }
        }
    }
    end(&mut found, is_open, [shard.rows(FileKind::Entries), shard.rows(FileKind::Dirs)]);
    Ok(found)
}

//! What differs between two generations of an index.
//!
//! 1. Files of shards never change: listings that both generations have in the same shard are as they
//!    were, and are not read. Of all others, only where they are, how many rows they have and their
//!    digests are read, and those of one directory with the same digests cancel out.
//! 2. Rows of what is left are read in portions of so many directories, and compared by name. Only
//!    what differs is held in memory.
//! 3. Inodes that are gone from one path and have come to another have moved. What moved along with
//!    its directory is not told again.

use crate::error::Result;
use canopy_index::column::*;
use canopy_index::{Columns, FileKind, Index, RowRange, Shard, SourceRecord};
use canopy_model::{FileType, base_name, compare_paths, join};
use canopy_read::inode::{InodeColumns, text_or_empty};
use canopy_read::listings::RowCounts;
use canopy_read::locate::absolute_path;
use canopy_read::plan::{BATCH_ROWS, Placed, ShardRange};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Rows of directories that are compared at a time, of both generations together.
const PORTION_ROWS: u64 = 1 << 17;

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It has come.
    Created,
    /// It is gone.
    Deleted,
    /// It is there in both generations, with other attributes or as another inode.
    Changed,
    /// It has another path.
    Moved,
}

/// What is compared of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Mode, with the type.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size_bytes: i64,
    /// Space in blocks of 512 bytes.
    pub blocks: i64,
    /// Time of modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
    btime_ns: i64,
    dev: u64,
    ino: u64,
    target: String,
}

/// An entry that differs.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What became of it.
    pub change: Change,
    /// Its absolute path, escaped: of the newer generation, unless it is deleted.
    pub path: String,
    /// Its path in the older one, if it has moved.
    pub old_path: Option<String>,
    /// What it was.
    pub old: Option<Entry>,
    /// What it is.
    pub new: Option<Entry>,
}

impl Difference {
    /// Returns by how many bytes files have grown.
    pub fn grown_bytes(&self) -> i64 {
        let bytes = |entry: &Option<Entry>| {
            entry.as_ref().filter(|entry| !entry.is_dir()).map_or(0, |entry| entry.size_bytes)
        };
        bytes(&self.new).wrapping_sub(bytes(&self.old))
    }
}

impl Entry {
    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        FileType::of_mode(self.mode) == FileType::Directory
    }

    /// Returns whether two entries of the same path or inode are to be told as changed. What is in a
    /// directory changes its times and size, and is told by itself.
    fn differs(&self, other: &Entry) -> bool {
        let owners = |entry: &Entry| (entry.mode, entry.uid, entry.gid);
        let contents = |entry: &Entry| (entry.size_bytes, entry.mtime_ns);
        owners(self) != owners(other)
            || self.target != other.target
            || (!self.is_dir() && contents(self) != contents(other))
    }

    /// Returns whether both are the same inode: numbers are given again, times of birth are not.
    fn is_inode(&self, other: &Entry) -> bool {
        let number = |entry: &Entry| (entry.dev, entry.ino, FileType::of_mode(entry.mode));
        let is_born = self.btime_ns != 0 && other.btime_ns != 0;
        let same = match is_born {
            true => self.btime_ns == other.btime_ns,
            false => self.is_dir() || self.mtime_ns == other.mtime_ns,
        };
        number(self) == number(other) && same
    }
}

/// A listing that one generation has and the other has not, in that shard.
struct Loose {
    /// Hash of the absolute path of the directory.
    directory: (u64, u64),
    part: u32,
    content: u64,
    rows: u32,
    is_old: bool,
    shard: u32,
    ordinal: u32,
}

/// Shards of a generation with the roots of their sources, and which of their listings it has at or
/// below a path.
struct Side<'a> {
    /// The path, absolute.
    path: Option<&'a str>,
    shards: Vec<(&'a SourceRecord, ShardRange)>,
}

/// Returns what differs between two generations at and below an absolute path, escaped, by path.
/// Without one, everywhere.
pub fn differences(old: &Index, new: &Index, path: Option<&str>) -> Result<Vec<Difference>> {
    let (old, new) = (Side::of(old, path)?, Side::of(new, path)?);
    // Nobody finds two paths with the same hashes by keys of this process.
    let hashes = (RandomState::new(), RandomState::new());
    let mut loose = old.without(&new, true, &hashes)?;
    loose.extend(new.without(&old, false, &hashes)?);
    let mut found = Found::default();
    for portion in portions(loose) {
        let mut rows = HashMap::new();
        old.read(&portion, true, &mut rows)?;
        let mut came = HashMap::new();
        new.read(&portion, false, &mut came)?;
        found.compare(rows, came);
    }
    let mut found = found.differences();
    found.sort_by(|a, b| compare_paths(&a.path, &b.path).then(a.change.cmp(&b.change)));
    Ok(found)
}

impl<'a> Side<'a> {
    fn of(index: &'a Index, path: Option<&'a str>) -> Result<Self> {
        let mut shards = Vec::new();
        for shard in index.shards() {
            let id = shard.record().source;
            let Some(source) = index.sources().iter().find(|source| source.id == id) else {
                continue;
            };
            let listings = match path {
                Some(path) => listings_of(shard, &source.root, path)?,
                None => shard.live_listings()?,
            };
            if !listings.is_empty() {
                shards.push((source, ShardRange { shard: shard.clone(), listings }));
            }
        }
        Ok(Side { path, shards })
    }

    /// Returns the listings that the other side does not have in the same shard.
    fn without(
        &self,
        other: &Side<'_>,
        is_old: bool,
        hashes: &(RandomState, RandomState),
    ) -> Result<Vec<Loose>> {
        let place = |range: &ShardRange| range.shard.path(FileKind::Listings);
        let others: HashMap<_, _> =
            other.shards.iter().map(|(_, range)| (place(range), &range.listings)).collect();
        let mut found = Vec::new();
        for (number, (source, range)) in self.shards.iter().enumerate() {
            let listings = match others.get(&place(range)) {
                Some(others) => less(&range.listings, others),
                None => range.listings.clone(),
            };
            if listings.is_empty() {
                continue;
            }
            let columns = PATH | PART | CONTENT | RowCounts::COLUMNS;
            let mut ordinals = listings.iter().cloned().flatten();
            for batch in range.shard.read(FileKind::Listings, columns, &listings, BATCH_ROWS)? {
                let batch = batch?;
                let (paths, parts) = (PATH.of(&batch)?, PART.of(&batch)?);
                let (contents, counts) = (CONTENT.of(&batch)?, RowCounts::of(&batch)?);
                for (at, ordinal) in (0..batch.num_rows()).zip(&mut ordinals) {
                    let path = absolute_path(source, paths.value(at));
                    let rows = counts.entries(&range.shard, at)? + counts.dirs(&range.shard, at)?;
                    found.push(Loose {
                        directory: (hashes.0.hash_one(&path), hashes.1.hash_one(&path)),
                        part: parts[at],
                        content: contents[at],
                        rows: rows as u32,
                        is_old,
                        shard: number as u32,
                        ordinal: ordinal as u32,
                    });
                }
            }
            range.shard.close(FileKind::Listings);
        }
        Ok(found)
    }

    /// Reads the entries of listings of this side, by their absolute paths.
    fn read(
        &self,
        portion: &[Loose],
        is_old: bool,
        entries: &mut HashMap<String, Entry>,
    ) -> Result<()> {
        let mut places: Vec<(u32, u32)> = portion
            .iter()
            .filter(|loose| loose.is_old == is_old && loose.rows > 0)
            .map(|loose| (loose.shard, loose.ordinal))
            .collect();
        places.sort_unstable();
        for places in places.chunk_by(|a, b| a.0 == b.0) {
            let (source, range) = &self.shards[places[0].0 as usize];
            let listings = places.iter().map(|&(_, at)| at as usize..at as usize + 1).collect();
            let range = ShardRange {
                shard: range.shard.clone(),
                listings: canopy_read::listings::merge_ranges(listings),
            };
            for kind in [FileKind::Entries, FileKind::Dirs] {
                let mut columns: Columns = INO | MODE | UID | GID | SIZE | BLOCKS | MTIME | BTIME;
                if kind == FileKind::Entries {
                    columns.add(TARGET.id());
                }
                for unit in range.units(kind, &range.rows(kind)?) {
                    for placed in unit.read_placed(columns, &unit.rows, true)? {
                        let placed = placed?;
                        self.add_rows(source, &placed, entries)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Side<'_> {
    /// Adds those rows that are asked for, by their absolute paths.
    fn add_rows(
        &self,
        source: &SourceRecord,
        placed: &Placed,
        entries: &mut HashMap<String, Entry>,
    ) -> Result<()> {
        let batch = &placed.batch;
        let (inodes, targets) = (InodeColumns::of(batch), TARGET.find(batch));
        let names = NAME.of(batch)?;
        for (at, listing) in (0..batch.num_rows()).zip(placed.listings()?) {
            let listing = listing?;
            let inode = inodes.row(at);
            let path = absolute_path(source, &join(listing.path, names.value(at)));
            if self.path.is_some_and(|asked| relative(&path, asked).is_none()) {
                continue;
            }
            let entry = Entry {
                mode: inode.mode,
                uid: inode.uid,
                gid: inode.gid,
                size_bytes: inode.size_bytes,
                blocks: inode.blocks,
                mtime_ns: inode.mtime_ns,
                btime_ns: inode.btime_ns,
                dev: listing.dev.unwrap_or_default(),
                ino: inode.ino,
                target: text_or_empty(targets, at).to_owned(),
            };
            entries.insert(path, entry);
        }
        Ok(())
    }
}

/// Takes away what both generations have of each directory, and returns the rest in portions, those
/// of a directory together, as they lie in the shards.
fn portions(mut loose: Vec<Loose>) -> Vec<Vec<Loose>> {
    loose.sort_unstable_by_key(|loose| (loose.directory, loose.part, loose.content, loose.is_old));
    let mut directories: Vec<Vec<Loose>> = Vec::new();
    let mut left = loose.into_iter().peekable();
    while let Some(first) = left.next() {
        let mut directory = vec![first];
        while let Some(next) = left.next_if(|next| next.directory == directory[0].directory) {
            directory.push(next);
        }
        let same = |a: &Loose, b: &Loose| {
            (a.part, a.content) == (b.part, b.content) && a.is_old != b.is_old
        };
        let mut rest: Vec<Loose> = Vec::new();
        for listing in directory {
            match rest.last() {
                Some(last) if same(last, &listing) => drop(rest.pop()),
                _ => rest.push(listing),
            }
        }
        directories.extend(Some(rest).filter(|rest| !rest.is_empty()));
    }
    directories.sort_by_key(|directory| {
        let first = directory.iter().find(|loose| !loose.is_old).unwrap_or(&directory[0]);
        (first.is_old, first.shard, first.ordinal)
    });
    let mut portions: Vec<Vec<Loose>> = Vec::new();
    let mut rows = PORTION_ROWS;
    for directory in directories {
        let more: u64 = directory.iter().map(|loose| u64::from(loose.rows)).sum();
        rows += more;
        if rows > PORTION_ROWS {
            portions.push(Vec::new());
            rows = more;
        }
        portions.last_mut().expect("one was pushed").extend(directory);
    }
    portions
}

/// What was found in the portions so far.
#[derive(Default)]
struct Found {
    /// Entries that are gone from their path, or are another inode there.
    gone: Vec<(String, Entry)>,
    /// Those that have come, or are another inode.
    came: Vec<(String, Entry)>,
    /// The same inodes at the same paths that are not as they were.
    changed: Vec<Difference>,
}

impl Found {
    /// Compares the entries of some directories.
    fn compare(&mut self, mut old: HashMap<String, Entry>, new: HashMap<String, Entry>) {
        for (path, new) in new {
            match old.remove(&path) {
                Some(old) if old.is_inode(&new) => {
                    if old.differs(&new) {
                        self.changed.push(changed(path, old, new));
                    }
                }
                before => {
                    self.gone.extend(before.map(|old| (path.clone(), old)));
                    self.came.push((path, new));
                }
            }
        }
        self.gone.extend(old);
    }

    /// Returns all differences, in no certain order.
    fn differences(self) -> Vec<Difference> {
        let Found { mut gone, mut came, changed: mut all } = self;
        // So that of several links to an inode the first one moves to the first one.
        gone.sort_by(|(a, _), (b, _)| compare_paths(b, a));
        came.sort_by(|(a, _), (b, _)| compare_paths(a, b));
        let mut by_inode: HashMap<(u64, u64), Vec<(String, Entry)>> = HashMap::new();
        for (path, old) in gone {
            by_inode.entry((old.dev, old.ino)).or_default().push((path, old));
        }
        let mut left = Vec::new();
        let mut moved = Vec::new();
        for (path, new) in came {
            let candidates = by_inode.get_mut(&(new.dev, new.ino));
            let found = candidates.and_then(|candidates| {
                let at = candidates.iter().rposition(|(_, old)| old.is_inode(&new))?;
                Some(candidates.remove(at))
            });
            match found {
                Some((old_path, old)) => moved.push((old_path, old, path, new)),
                None => left.push((path, new)),
            }
        }
        let directories: HashMap<String, String> = moved
            .iter()
            .filter(|(_, _, _, new)| new.is_dir())
            .map(|(old_path, _, path, _)| (path.clone(), old_path.clone()))
            .collect();
        for (old_path, old, path, new) in moved {
            let along = parent_of(&path).zip(parent_of(&old_path)).is_some_and(|(at, before)| {
                directories.get(at).is_some_and(|known| known == before)
                    && base_name(&path) == base_name(&old_path)
            });
            match along {
                true if !old.differs(&new) => {}
                true => all.push(changed(path, old, new)),
                false => all.push(Difference {
                    change: Change::Moved,
                    path,
                    old_path: Some(old_path),
                    old: Some(old),
                    new: Some(new),
                }),
            }
        }
        let mut deleted: HashMap<String, Entry> = by_inode.into_values().flatten().collect();
        for (path, new) in left {
            let difference = match deleted.remove(&path) {
                // Written anew under its name, as editors do.
                Some(old) if old.is_dir() == new.is_dir() => changed(path, old, new),
                before => {
                    all.extend(before.map(|old| deleted_of(path.clone(), old)));
                    let (change, new) = (Change::Created, Some(new));
                    Difference { change, path, old_path: None, old: None, new }
                }
            };
            all.push(difference);
        }
        all.extend(deleted.into_iter().map(|(path, old)| deleted_of(path, old)));
        all
    }
}

fn changed(path: String, old: Entry, new: Entry) -> Difference {
    let (old, new) = (Some(old), Some(new));
    Difference { change: Change::Changed, path, old_path: None, old, new }
}

fn deleted_of(path: String, old: Entry) -> Difference {
    Difference { change: Change::Deleted, path, old_path: None, old: Some(old), new: None }
}

fn parent_of(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

/// Returns the listings of a shard that may have entries at or below an absolute path.
fn listings_of(shard: &Shard, root: &str, path: &str) -> Result<Vec<RowRange>> {
    let Some(below) = relative(path, root) else {
        let all = relative(root, path).map(|_| shard.live_listings()).transpose()?;
        return Ok(all.unwrap_or_default());
    };
    let mut listings = shard.listings_below(below)?;
    if let Some(parent) = canopy_model::parent(below) {
        // Of the entry itself.
        listings.extend(shard.listings_at(parent)?);
        listings.sort_by_key(|range| range.start);
    }
    Ok(canopy_read::listings::merge_ranges(listings))
}

/// Returns an absolute path relative to a directory that it is or is below.
pub fn relative<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let below = path.strip_prefix(directory.trim_end_matches('/'))?;
    if below.is_empty() { Some("") } else { below.strip_prefix('/') }
}

/// Returns what is left of ranges without others; both are sorted and disjoint.
fn less(ranges: &[RowRange], others: &[RowRange]) -> Vec<RowRange> {
    let mut left = Vec::new();
    let mut others = others.iter().peekable();
    for range in ranges {
        let mut at = range.start;
        while let Some(other) = others.peek().filter(|other| other.start < range.end) {
            if other.start > at {
                left.push(at..other.start);
            }
            at = at.max(other.end);
            if other.end > range.end {
                break;
            }
            others.next();
        }
        if at < range.end {
            left.push(at..range.end);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_ranges() {
        assert_eq!(less(&[0..9], &[]), [0..9]);
        assert_eq!(less(&[0..9], &[2..3, 5..20]), [0..2, 3..5]);
        assert_eq!(less(&[0..3, 5..7, 8..9], &[1..6]), [0..1, 6..7, 8..9]);
        assert_eq!(less(&[3..9], &[0..1, 2..4, 9..12]), [4..9]);
        assert!(less(&[3..4, 6..9], &[0..20]).is_empty());
    }

    #[test]
    fn a_path_is_below_a_root_by_whole_names() {
        for (path, root, expected) in [
            ("/a/b", "/a", Some("b")),
            ("/a", "/a", Some("")),
            ("/ab", "/a", None),
            ("/a", "/", Some("a")),
            ("/", "/", Some("")),
            ("/", "/a", None),
        ] {
            assert_eq!(relative(path, root), expected, "{path} below {root}");
        }
    }
}

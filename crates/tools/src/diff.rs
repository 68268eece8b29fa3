//! Differences between two generations of an index.
//!
//! 1. Files of shards never change. Listings that both generations have in one shard are unchanged,
//!    and are not read. Only places, numbers of rows and digests of all others are read. Listings
//!    of one directory with equal digests cancel out.
//! 2. Rows of the remaining listings are read in portions of a limited number of directories, and
//!    compared by name. Only differences are held in memory.
//! 3. Roots of sources are in no listing, or in one of the source around theirs, and are looked up.
//! 4. Extended attributes and ACLs are kept only as sums of hashes, for entries of directories that
//!    differ.
//! 5. Inodes that are gone from one path and have come to another have moved. Entries that moved
//!    along with their directory are not reported again.

use crate::error::Result;
use canopy_index::column::*;
use canopy_index::{Columns, FileKind, Index, ListingOrdinal, ListingRange, Shard, SourceRecord};
use canopy_model::{
    AbsolutePath, Attributes, Device, FileType, SourcePath, base_name, compare_paths,
};
use canopy_read::inode::{InodeColumns, text_or_empty};
use canopy_read::listings::RowCounts;
use canopy_read::locate::{absolute_path, look_up, source_of};
use canopy_read::plan::{BATCH_ROWS, Placed, ShardRange};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

/// Rows of directories that are compared at a time, of both generations together.
const PORTION_ROWS: u64 = 1 << 17;

/// How an entry differs between two generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It has come.
    Created,
    /// It is gone.
    Deleted,
    /// It is there in both generations, with other attributes or as another inode.
    Changed,
    /// It has another path.
    Moved,
}

/// Attributes of an entry that are compared.
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
    /// Counted part of the size: 0 for a directory; an inode with several names counts at one of
    /// them alone.
    pub counted_bytes: i64,
    btime_ns: i64,
    dev: Device,
    ino: u64,
    nlink: u32,
    target: String,
    /// A hash of its extended attributes, ACLs among them.
    xattrs: u64,
}

/// An inode of the older generation, or of the newer one: its device, number and time of birth.
type InodeKey = (bool, Device, u64, i64);

/// An entry that differs.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Kind of the change.
    pub change: ChangeKind,
    /// Its absolute path, escaped: of the newer generation, unless it is deleted.
    pub path: String,
    /// Its path in the older one, if it has moved.
    pub old_path: Option<String>,
    /// Its older state.
    pub old: Option<Entry>,
    /// Its newer state.
    pub new: Option<Entry>,
}

impl Difference {
    /// Returns by how many bytes files have grown.
    pub fn grown_bytes(&self) -> i64 {
        let bytes = |entry: &Option<Entry>| entry.as_ref().map_or(0, |entry| entry.counted_bytes);
        bytes(&self.new).saturating_sub(bytes(&self.old))
    }

    /// Returns whether it has other extended attributes, or another ACL, than it had.
    pub fn has_other_xattrs(&self) -> bool {
        self.old.as_ref().zip(self.new.as_ref()).is_some_and(|(old, new)| old.xattrs != new.xattrs)
    }

    /// Returns whether it is one inode at one path.
    fn is_of_one_inode(&self) -> bool {
        let entries = self.old.as_ref().zip(self.new.as_ref());
        self.old_path.is_none() && entries.is_some_and(|(old, new)| old.is_inode(new))
    }
}

impl Entry {
    fn new(attributes: &Attributes, dev: Device, target: String, xattrs: u64) -> Self {
        let is_dir = FileType::of_mode(attributes.mode) == FileType::Directory;
        Entry {
            counted_bytes: if is_dir { 0 } else { attributes.size_bytes },
            nlink: attributes.nlink,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            size_bytes: attributes.size_bytes,
            blocks: attributes.blocks,
            mtime_ns: attributes.mtime_ns,
            btime_ns: attributes.btime_ns,
            dev,
            ino: attributes.ino,
            target,
            xattrs,
        }
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        FileType::of_mode(self.mode) == FileType::Directory
    }

    /// Returns which inode of a generation it is, if that may have several names there.
    fn linked(&self, is_old: bool) -> Option<InodeKey> {
        let is_linked = self.nlink > 1 && self.ino != 0 && !self.is_dir();
        is_linked.then_some((is_old, self.dev, self.ino, self.btime_ns))
    }

    /// Returns what this one of the older generation and one of the newer are in this way.
    fn linked_with(&self, new: &Entry) -> impl Iterator<Item = InodeKey> + use<> {
        [self.linked(true), new.linked(false)].into_iter().flatten()
    }

    /// Returns whether two entries of one path or inode are reported as changed. Entries in a
    /// directory change its times and size, and are reported themselves.
    fn differs(&self, other: &Entry) -> bool {
        let owners = |entry: &Entry| (entry.mode, entry.uid, entry.gid);
        let contents = |entry: &Entry| (entry.size_bytes, entry.mtime_ns);
        owners(self) != owners(other)
            || self.target != other.target
            || self.xattrs != other.xattrs
            || (!self.is_dir() && contents(self) != contents(other))
    }

    /// Returns whether both are the same inode of a file system: numbers are given again, times of
    /// birth are not. The number of its device may be another whenever it is mounted.
    fn is_inode(&self, other: &Entry) -> bool {
        let number = |entry: &Entry| (entry.ino, FileType::of_mode(entry.mode));
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
    /// Its inode.
    ino: u64,
    part: u32,
    content: u64,
    rows: u32,
    is_old: bool,
    shard: u32,
    ordinal: ListingOrdinal,
}

/// Hashes of paths. Nobody finds two with the same ones by keys of this process.
#[derive(Default)]
struct PathHashes(RandomState, RandomState);

impl PathHashes {
    fn of(&self, path: &str) -> (u64, u64) {
        (self.0.hash_one(path), self.1.hash_one(path))
    }
}

/// Extended attributes of a generation, except rows in shards that both generations have.
struct Values<'h> {
    hashes: &'h PathHashes,
    /// Sums of the hashes of names and values, by hash of the entry's path.
    sums: HashMap<(u64, u64), u64>,
}

impl Values<'_> {
    /// Returns the hash of the extended attributes of an entry that has these names.
    fn of(&self, path: &str, names: &str) -> u64 {
        match self.sums.get(&self.hashes.of(path)) {
            None if names.is_empty() => 0,
            sum => self.hashes.0.hash_one((names, sum)),
        }
    }
}

/// Shards of a generation with the roots of their sources, and which of their listings it has at or
/// below a path.
struct Side<'a> {
    /// The path, absolute.
    path: Option<&'a str>,
    /// Roots of sources of either generation there.
    roots: &'a HashSet<&'a str>,
    shards: Vec<(&'a SourceRecord, ShardRange)>,
    /// Shards with values of extended attributes there.
    with_values: Vec<(&'a SourceRecord, Arc<Shard>)>,
}

/// Returns what differs between two generations at and below an absolute path, escaped, by path.
/// Without one, everywhere.
pub fn differences(old: &Index, new: &Index, path: Option<&str>) -> Result<Vec<Difference>> {
    let sources = old.sources().iter().chain(new.sources()).map(|source| &*source.root);
    let is_asked = |root: &&str| path.is_none_or(|path| relative(root, path).is_some());
    let roots: HashSet<&str> = sources.filter(is_asked).collect();
    let mut found = Found::default();
    let shards = (old.shards_beside(new)?, new.shards_beside(old)?);
    let indexes = (old, new);
    let old = Side::of(old, shards.0, path, &roots)?;
    let new = Side::of(new, shards.1, path, &roots)?;
    let hashes = PathHashes::default();
    let mut loose = old.without(&new, true, &hashes)?;
    loose.extend(new.without(&old, false, &hashes)?);
    let portions = portions(loose);
    let directories = portions.iter().flatten().map(|loose| loose.directory).collect();
    let (old_values, new_values) =
        (old.values(&new, &directories, &hashes)?, new.values(&old, &directories, &hashes)?);
    found.compare(
        entries_at(indexes.0, &roots, &old_values)?,
        entries_at(indexes.1, &roots, &new_values)?,
        |_| false,
    );
    for portion in portions {
        let mut rows = HashMap::new();
        old.read(&portion, true, &old_values, &mut rows)?;
        let mut came = HashMap::new();
        new.read(&portion, false, &new_values, &mut came)?;
        let replaced = replaced(&portion);
        found.compare(rows, came, |directory| {
            !replaced.is_empty() && replaced.contains(&hashes.of(directory))
        });
    }
    Ok(found.differences())
}

/// Has inodes with several names count at one of these in each generation: at one that stays, if
/// there is any. `counted` are those that do already.
fn count_once(differences: &mut [Difference], mut counted: HashSet<InodeKey>) {
    let mut count = |entry: &mut Option<Entry>, is_old| {
        if let Some(entry) = entry
            && let Some(key) = entry.linked(is_old)
            && !counted.insert(key)
        {
            entry.counted_bytes = 0;
        }
    };
    for stays in [true, false] {
        for difference in differences.iter_mut().filter(|one| one.is_of_one_inode() == stays) {
            count(&mut difference.old, true);
            count(&mut difference.new, false);
        }
    }
}

impl<'a> Side<'a> {
    fn of(
        index: &'a Index,
        all: Vec<&Arc<Shard>>,
        path: Option<&'a str>,
        roots: &'a HashSet<&'a str>,
    ) -> Result<Self> {
        let (mut shards, mut with_values) = (Vec::new(), Vec::new());
        for shard in all {
            let id = shard.record().source;
            let Some(source) = index.sources().iter().find(|source| source.id == id) else {
                continue;
            };
            if shard.rows(FileKind::Xattrs) > 0 {
                with_values.push((source, shard.clone()));
            }
            let listings = match path {
                Some(path) => listings_of(shard, &source.root, path)?,
                None => shard.live_listings()?,
            };
            if !listings.is_empty() {
                shards.push((source, ShardRange { shard: shard.clone(), listings }));
            }
        }
        Ok(Side { path, roots, shards, with_values })
    }

    /// Adds up the values of extended attributes of entries of some directories, and of roots, that
    /// the other side does not have in the same shard.
    fn values<'h>(
        &self,
        other: &Side<'_>,
        directories: &HashSet<(u64, u64)>,
        hashes: &'h PathHashes,
    ) -> Result<Values<'h>> {
        let mut sums: HashMap<(u64, u64), u64> = HashMap::new();
        let place = |shard: &Shard| shard.path(FileKind::Xattrs);
        let others: HashMap<_, _> =
            other.with_values.iter().map(|(_, shard)| (place(shard), shard)).collect();
        for (source, shard) in &self.with_values {
            let rows = match others.get(&place(shard)) {
                Some(other) => less(&shard.live_values()?, &other.live_values()?),
                None => shard.live_values()?,
            };
            if rows.is_empty() {
                continue;
            }
            let columns = VALUE_PATH | NAME | KEY | VALUE;
            for batch in shard.read(FileKind::Xattrs, columns, &rows, BATCH_ROWS)? {
                let batch = batch?;
                let (paths, names) = (VALUE_PATH.of(&batch)?, NAME.of(&batch)?);
                let (keys, values) = (KEY.of(&batch)?, VALUE.of(&batch)?);
                let mut last: Option<(SourcePath<'_>, bool)> = None;
                for at in 0..batch.num_rows() {
                    let (path, name) = (SourcePath::escaped(paths.value(at)), names.value(at));
                    let is_wanted = match last.filter(|(last, _)| *last == path) {
                        Some((_, is_wanted)) => is_wanted,
                        None => directories.contains(&hashes.of(&absolute_path(source, path))),
                    };
                    last = Some((path, is_wanted));
                    if is_wanted || name.is_empty() {
                        let entry = hashes.of(&path.child(name).as_path().absolute(&source.root));
                        let value = hashes.0.hash_one((keys.value(at), values.value(at)));
                        let sum = sums.entry(entry).or_default();
                        // In whatever order they come.
                        *sum = sum.wrapping_add(value);
                    }
                }
            }
            shard.close(FileKind::Xattrs);
        }
        Ok(Values { hashes, sums })
    }

    /// Returns the listings that the other side does not have in the same shard.
    fn without(&self, other: &Side<'_>, is_old: bool, hashes: &PathHashes) -> Result<Vec<Loose>> {
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
            let columns = PATH | INO | PART | CONTENT | RowCounts::COLUMNS;
            let mut ordinals = ListingOrdinal::each(&listings);
            for batch in range.shard.read_listings(columns, &listings, BATCH_ROWS)? {
                let batch = batch?;
                let (paths, inos, parts) = (PATH.of(&batch)?, INO.of(&batch)?, PART.of(&batch)?);
                let (contents, counts) = (CONTENT.of(&batch)?, RowCounts::of(&batch)?);
                for (at, ordinal) in (0..batch.num_rows()).zip(&mut ordinals) {
                    let path = SourcePath::escaped(paths.value(at)).absolute(&source.root);
                    let rows = counts.entries(&range.shard, at)? + counts.dirs(&range.shard, at)?;
                    found.push(Loose {
                        directory: hashes.of(&path),
                        ino: inos[at],
                        part: parts[at],
                        content: contents[at],
                        rows: rows as u32,
                        is_old,
                        shard: number as u32,
                        ordinal,
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
        values: &Values<'_>,
        entries: &mut HashMap<String, Entry>,
    ) -> Result<()> {
        let mut places: Vec<(u32, ListingOrdinal)> = portion
            .iter()
            .filter(|loose| loose.is_old == is_old && loose.rows > 0)
            .map(|loose| (loose.shard, loose.ordinal))
            .collect();
        places.sort_unstable();
        for places in places.chunk_by(|a, b| a.0 == b.0) {
            let (source, range) = &self.shards[places[0].0 as usize];
            let listings = places.iter().map(|&(_, at)| at..at + 1).collect();
            let range = ShardRange {
                shard: range.shard.clone(),
                listings: canopy_read::listings::merge_ranges(listings),
            };
            for kind in [FileKind::Entries, FileKind::Dirs] {
                let mut columns: Columns =
                    INO | MODE | NLINK | UID | GID | SIZE | BLOCKS | MTIME | BTIME | XATTRS;
                if kind == FileKind::Entries {
                    columns.add(TARGET.id());
                }
                for unit in range.units(kind, &range.rows(kind)?) {
                    for placed in unit.read_placed(columns, &unit.rows, true)? {
                        let placed = placed?;
                        self.add_rows(source, &placed, values, entries)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds those rows that are asked for, by their absolute paths.
    fn add_rows(
        &self,
        source: &SourceRecord,
        placed: &Placed,
        values: &Values<'_>,
        entries: &mut HashMap<String, Entry>,
    ) -> Result<()> {
        let batch = &placed.batch;
        let (inodes, targets) = (InodeColumns::of(batch), TARGET.find(batch));
        let xattrs = XATTRS.find(batch);
        let names = NAME.of(batch)?;
        for (at, listing) in (0..batch.num_rows()).zip(placed.listings()?) {
            let listing = listing?;
            let inode = inodes.row(at);
            let path = listing.path.child(names.value(at)).as_path().absolute(&source.root);
            let is_asked = self.path.is_none_or(|asked| relative(&path, asked).is_some());
            if is_asked && !self.roots.contains(&*path) {
                let dev = listing.dev.unwrap_or_default();
                let target = text_or_empty(targets, at).to_owned();
                let xattrs = values.of(&path, text_or_empty(xattrs, at));
                entries.insert(path, Entry::new(&inode, dev, target, xattrs));
            }
        }
        Ok(())
    }
}

/// Returns the entries that a generation has at some absolute paths.
fn entries_at(
    index: &Index,
    paths: &HashSet<&str>,
    values: &Values<'_>,
) -> Result<HashMap<String, Entry>> {
    let mut entries = HashMap::new();
    for &path in paths {
        if let Some((source, below)) = source_of(index, AbsolutePath::new(path))
            && let Some(inode) = look_up(index, source, below)?
        {
            let xattrs = values.of(path, &inode.xattrs);
            let entry = Entry::new(&inode.attributes, inode.dev, inode.target, xattrs);
            entries.insert(path.to_owned(), entry);
        }
    }
    Ok(entries)
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
    let mut rows = 0;
    for directory in directories {
        let more: u64 = directory.iter().map(|loose| u64::from(loose.rows)).sum();
        rows += more;
        if portions.is_empty() || rows > PORTION_ROWS {
            portions.push(Vec::new());
            rows = more;
        }
        portions.last_mut().expect("one was pushed").extend(directory);
    }
    portions
}

/// Returns which directories of a portion are other inodes in the newer generation.
fn replaced(portion: &[Loose]) -> HashSet<(u64, u64)> {
    let of_one = portion.chunk_by(|a, b| a.directory == b.directory);
    let ino = |of_one: &[Loose], is_old| {
        of_one.iter().find(|loose| loose.is_old == is_old).map(|loose| loose.ino)
    };
    let is_replaced = |of_one: &&[Loose]| {
        ino(of_one, true).zip(ino(of_one, false)).is_some_and(|(old, new)| old != new)
    };
    of_one.filter(is_replaced).map(|of_one| of_one[0].directory).collect()
}

/// Differences found in the portions so far.
#[derive(Default)]
struct Found {
    /// Entries that are gone from their path, or are another inode there.
    gone: HashMap<String, Entry>,
    /// Those that have come, or are another inode.
    came: Vec<(String, Entry)>,
    /// Inodes that stayed at their paths and have changed.
    changed: Vec<Difference>,
    /// Inodes with several names of which one is as it was.
    linked: HashSet<InodeKey>,
}

impl Found {
    /// Compares the entries of some directories. In one that is replaced, nothing is as it was.
    fn compare(
        &mut self,
        mut old: HashMap<String, Entry>,
        new: HashMap<String, Entry>,
        is_replaced: impl Fn(&str) -> bool,
    ) {
        for (path, new) in new {
            match old.remove(&path) {
                Some(old) if old.is_inode(&new) && !parent_of(&path).is_some_and(&is_replaced) => {
                    if old.differs(&new) {
                        self.changed.push(difference(
                            ChangeKind::Changed,
                            path,
                            Some(old),
                            Some(new),
                        ));
                    } else {
                        self.linked.extend(old.linked_with(&new));
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

    /// Returns all differences, by path.
    fn differences(self) -> Vec<Difference> {
        let deleted_of = |path, old| difference(ChangeKind::Deleted, path, Some(old), None);
        let Found { gone, mut came, changed: mut all, mut linked } = self;
        came.sort_by(|(a, _), (b, _)| compare_paths(a, b));
        let mut moves = Moves { gone, pairs: Vec::new() };
        let (came_directories, came): (Vec<_>, Vec<_>) =
            came.into_iter().partition(|(_, new)| new.is_dir());
        let mut left = moves.pair_by_inode(came_directories);
        let directories: HashMap<String, String> =
            moves.pairs.iter().map(|pair| (pair.2.clone(), pair.0.clone())).collect();
        let path_along = |path: &str| -> Option<String> {
            Some(format!("{}/{}", directories.get(parent_of(path)?)?, base_name(path)))
        };
        // Each of several links goes with its directory, or else stays.
        let came = moves.pair(came, |path, _| path_along(path));
        let came = moves.pair(came, |path, _| Some(path.to_owned()));
        left.extend(moves.pair_by_inode(came));
        let Moves { gone: mut deleted, pairs } = moves;
        let moved = directories.iter().filter(|(path, old_path)| path != old_path);
        let moved_from: HashSet<&str> = moved.map(|(_, old_path)| old_path.as_str()).collect();
        let directory_stays =
            |path: &str| !parent_of(path).is_some_and(|parent| moved_from.contains(parent));
        for (old_path, old, path, new) in pairs {
            let is_expected = (old_path == path && directory_stays(&path))
                || path_along(&path).as_deref() == Some(&*old_path);
            match is_expected {
                true if !old.differs(&new) => linked.extend(old.linked_with(&new)),
                true => all.push(difference(ChangeKind::Changed, path, Some(old), Some(new))),
                false => all.push(Difference {
                    old_path: Some(old_path),
                    ..difference(ChangeKind::Moved, path, Some(old), Some(new))
                }),
            }
        }
        for (path, new) in left {
            let difference = match deleted.remove(&path) {
                // Written anew under its name, as editors do.
                Some(old) if old.is_dir() == new.is_dir() && directory_stays(&path) => {
                    difference(ChangeKind::Changed, path, Some(old), Some(new))
                }
                before => {
                    all.extend(before.map(|old| deleted_of(path.clone(), old)));
                    difference(ChangeKind::Created, path, None, Some(new))
                }
            };
            all.push(difference);
        }
        all.extend(deleted.into_iter().map(|(path, old)| deleted_of(path, old)));
        all.sort_by(|a, b| compare_paths(&a.path, &b.path).then(a.change.cmp(&b.change)));
        count_once(&mut all, linked);
        all
    }
}

/// Finds the older path of what has come.
struct Moves {
    /// Entries that are gone from their paths.
    gone: HashMap<String, Entry>,
    /// Pairs found: old path and entry, new path and entry.
    pairs: Vec<(String, Entry, String, Entry)>,
}

impl Moves {
    /// Pairs entries that have come with what is gone from the path that is asked for, if that is
    /// the same inode. Returns the others.
    fn pair(
        &mut self,
        came: Vec<(String, Entry)>,
        mut old_path: impl FnMut(&str, &Entry) -> Option<String>,
    ) -> Vec<(String, Entry)> {
        let mut left = Vec::new();
        for (path, new) in came {
            // Imported entries may have no number.
            let is_it = |old: &Entry| old.dev == new.dev && new.ino != 0 && old.is_inode(&new);
            let found = old_path(&path, &new)
                .filter(|old_path| self.gone.get(old_path).is_some_and(is_it))
                .and_then(|old_path| self.gone.remove_entry(&old_path));
            match found {
                Some((old_path, old)) => self.pairs.push((old_path, old, path, new)),
                None => left.push((path, new)),
            }
        }
        left
    }

    /// Pairs directories, or other entries, that have come with what is gone and is the same inode:
    /// of several links to it, the first one with the first one. Returns the others.
    fn pair_by_inode(&mut self, came: Vec<(String, Entry)>) -> Vec<(String, Entry)> {
        let Some((_, first)) = came.first() else { return came };
        let mut paths: HashMap<(Device, u64), Vec<String>> = HashMap::new();
        for (path, old) in self.gone.iter().filter(|(_, old)| old.is_dir() == first.is_dir()) {
            paths.entry((old.dev, old.ino)).or_default().push(path.clone());
        }
        paths.values_mut().for_each(|paths| paths.sort_by(|a, b| compare_paths(b, a)));
        self.pair(came, |_, new| paths.get_mut(&(new.dev, new.ino))?.pop())
    }
}

fn difference(
    change: ChangeKind,
    path: String,
    old: Option<Entry>,
    new: Option<Entry>,
) -> Difference {
    Difference { change, path, old_path: None, old, new }
}

fn parent_of(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

/// Returns the listings of a shard that may have entries at or below an absolute path.
fn listings_of(shard: &Shard, root: &str, path: &str) -> Result<Vec<ListingRange>> {
    let below = SourcePath::below(AbsolutePath::new(path), AbsolutePath::new(root));
    let Some(below) = below else {
        let all = relative(root, path).map(|_| shard.live_listings()).transpose()?;
        return Ok(all.unwrap_or_default());
    };
    let mut listings = shard.listings_below(below)?;
    if let Some(parent) = below.parent() {
        // The listing that contains the entry itself.
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
fn less<T: Copy + Ord>(ranges: &[Range<T>], others: &[Range<T>]) -> Vec<Range<T>> {
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
    fn inodes_match_by_number_and_birth() {
        let named = |path: &str, ino, dev, btime_ns| {
            let attributes = Attributes { ino, mode: 0o100_644, btime_ns, ..Default::default() };
            HashMap::from([(path.to_owned(), Entry::new(&attributes, dev, String::new(), 0))])
        };
        let found = |old, new| {
            let mut found = Found::default();
            found.compare(old, new, |_| false);
            found.differences().len()
        };
        // A device has another number when it is mounted again, but is not another for that.
        let entry = |dev, btime_ns| named("/a", 5, dev, btime_ns);
        for (new, expected) in
            [(entry(Device(7), 9), 0), (entry(Device(8), 9), 0), (entry(Device(7), 10), 1)]
        {
            assert_eq!(found(entry(Device(7), 9), new), expected);
        }
        assert_eq!(found(named("/a", 5, Device(7), 9), named("/b", 5, Device(7), 9)), 1);
        assert_eq!(found(named("/a", 5, Device(7), 9), named("/b", 5, Device(8), 9)), 2);
        // Imported entries have no numbers.
        assert_eq!(found(named("/a", 0, Device(7), 0), named("/b", 0, Device(7), 0)), 2);
    }

    #[test]
    fn ranges_lose_the_removed_parts() {
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

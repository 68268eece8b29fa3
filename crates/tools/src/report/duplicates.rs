//! Candidates for duplicates: regular files of the same size, mtime and name.
//!
//! 1. The scan keeps a quick hash of each file's key.
//! 2. Hashes that occur once go away.
//! 3. Of the others the keys are read again, some at a time, and hashed to 128 bits under a secret
//!    that is new in every run, so that no user can choose names that collide.
//! 4. Of the groups that are shown, all names are read.
//!
//! Memory: 8 bytes a file, and some 60 bytes for each of up to a million files that share
//! their hash.

use super::details;
use super::document::{DuplicateGroup, Duplicates};
use super::parts::{BATCH_ROWS, Part};
use crate::error::Result;
use arrow::datatypes::{Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use canopy_index::FileKind;
use canopy_read::columns::{numbers, strings};
use canopy_read::listings::{ListingHeads, merge_ranges};
use canopy_read::work::{by_workers, in_parallel};
use rustc_hash::{FxHashSet, FxHasher};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{LazyLock, Mutex};

/// Files are sorted by hash in so many pieces.
pub(super) const PIECES: usize = 256;

/// Files whose keys are read again at a time.
const FILES_MAX: usize = 1 << 20;

/// What duplicates share.
#[derive(Hash)]
pub(super) struct Key<'a> {
    pub(super) size_bytes: i64,
    pub(super) mtime_ns: i64,
    pub(super) name: &'a str,
}

impl Key<'_> {
    fn hashes(&self) -> [u64; 2] {
        static SECRETS: LazyLock<[RandomState; 2]> =
            LazyLock::new(|| [RandomState::new(), RandomState::new()]);
        [SECRETS[0].hash_one(self), SECRETS[1].hash_one(self)]
    }

    /// A quick hash. Whoever makes names that collide makes the report slower, not wrong.
    fn hash(&self) -> u64 {
        static SECRET: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
        let mut hasher = FxHasher::default();
        (*SECRET, self).hash(&mut hasher);
        hasher.finish()
    }
}

/// The hashes of all files, 32 bits each besides those that choose the piece, with numbers of rows.
/// That is enough to find nearly all files that have no duplicate.
#[derive(Default)]
pub(super) struct Keys {
    /// By the first bits of their hashes.
    pieces: Vec<Vec<u64>>,
    /// Set if there are more rows than have numbers.
    too_many: bool,
}

impl Keys {
    /// For so many files, about.
    pub(super) fn new(files: usize) -> Self {
        Keys {
            pieces: (0..PIECES).map(|_| Vec::with_capacity(files / PIECES)).collect(),
            too_many: false,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, key: &Key<'_>, row: usize) {
        let Ok(row) = u32::try_from(row) else {
            self.too_many = true;
            return;
        };
        let hash = key.hash();
        self.pieces[(hash >> 56) as usize].push(hash << 32 | u64::from(row));
    }

    pub(super) fn merge(&mut self, other: Keys) {
        self.too_many |= other.too_many;
        // Pieces of several workers stay apart until they are sorted.
        self.pieces.extend(other.pieces);
    }

    /// The rows of files whose hash others have too. Rows of the same hash are in the same vector.
    fn repeated(self, threads: usize) -> Result<Vec<Vec<u32>>> {
        let workers = self.pieces.len() / PIECES;
        let pieces: Vec<Mutex<Vec<u64>>> = self.pieces.into_iter().map(Mutex::new).collect();
        let take = |at: usize| {
            std::mem::take(
                &mut *pieces[at].lock().expect("no thread panics while it holds the lock"),
            )
        };
        let numbers: Vec<usize> = if workers == 0 { Vec::new() } else { (0..PIECES).collect() };
        let all = Mutex::new(Vec::new());
        let work = |piece: &mut Vec<u64>, &number: &usize| -> Result<()> {
            piece.clear();
            (0..workers).for_each(|worker| piece.extend(take(worker * PIECES + number)));
            piece.sort_unstable();
            let groups = piece.chunk_by(|a, b| a >> 32 == b >> 32).filter(|group| group.len() > 1);
            let repeated: Vec<u32> = groups.flatten().map(|file| *file as u32).collect();
            if !repeated.is_empty() {
                all.lock().expect("no thread panics while it holds the lock").push(repeated);
            }
            Ok(())
        };
        by_workers(threads.clamp(1, PIECES), &numbers, |_| Ok(Vec::new()), work, |_| Ok(()))?;
        Ok(all.into_inner().expect("no thread panics while it holds the lock"))
    }
}

/// A file whose hash others have too.
struct Member {
    hashes: [u64; 2],
    size_bytes: i64,
    row: u32,
    /// Device and inode, if it has several names.
    inode: Option<(u64, u64)>,
}

/// A group that may be shown.
struct Group {
    wasted_bytes: i64,
    size_bytes: i64,
    files: i64,
    mtime_ns: i64,
    name: String,
    rows: Vec<u32>,
}

/// The duplicates among the files of some keys; `None` if there are more rows than can be compared.
pub(super) fn find(
    parts: &[Part<'_>],
    keys: Keys,
    top: usize,
    threads: usize,
) -> Result<Option<Duplicates>> {
    if keys.too_many {
        return Ok(None);
    }
    let mut found = Duplicates::default();
    let mut largest: Vec<Group> = Vec::new();
    let mut chunk: Vec<u32> = Vec::new();
    let mut repeated = keys.repeated(threads)?.into_iter().peekable();
    while let Some(more) = repeated.next() {
        chunk.extend(more);
        if chunk.len() >= FILES_MAX || repeated.peek().is_none() {
            group(parts, std::mem::take(&mut chunk), top, threads, &mut found, &mut largest)?;
        }
    }
    for group in largest {
        found.largest.push(shown(parts, group, top, threads)?);
    }
    Ok(Some(found))
}

/// Counts the groups among some files, and keeps the largest.
fn group(
    parts: &[Part<'_>],
    mut rows: Vec<u32>,
    top: usize,
    threads: usize,
    found: &mut Duplicates,
    largest: &mut Vec<Group>,
) -> Result<()> {
    rows.sort_unstable();
    let mut members = read_members(parts, &rows, threads)?;
    members.sort_unstable_by_key(|member| (member.hashes, member.row));
    let mut kept: Vec<(i64, i64, i64, Vec<u32>)> = Vec::new();
    let mut inodes = FxHashSet::default();
    for group in members.chunk_by(|a, b| a.hashes == b.hashes) {
        inodes.clear();
        let distinct =
            group.iter().filter(|member| member.inode.is_none_or(|inode| inodes.insert(inode)));
        let rows: Vec<u32> = distinct.map(|member| member.row).collect();
        if rows.len() < 2 {
            continue;
        }
        let (files, size) = (rows.len() as i64, group[0].size_bytes);
        let wasted = size.saturating_mul(files - 1);
        found.groups += 1;
        found.files += files;
        found.wasted_bytes = found.wasted_bytes.saturating_add(wasted);
        kept.push((wasted, size, files, group.iter().map(|member| member.row).collect()));
    }
    kept.sort_unstable_by_key(|group| std::cmp::Reverse((group.0, group.1)));
    if let Some(&(wasted, size, ..)) = top.checked_sub(1).and_then(|last| kept.get(last)) {
        kept.retain(|group| (group.0, group.1) >= (wasted, size));
    }
    if top == 0 {
        return Ok(());
    }
    let mut firsts: Vec<u32> = kept.iter().map(|group| group.3[0]).collect();
    firsts.sort_unstable();
    let firsts = details::of_rows(parts, &firsts, threads)?;
    for (wasted_bytes, size_bytes, files, rows) in kept {
        let Some(first) = firsts.get(&rows[0]) else { continue };
        let (name, mtime_ns) = (first.name.clone(), first.attributes.mtime_ns);
        largest.push(Group { wasted_bytes, size_bytes, files, mtime_ns, name, rows });
    }
    largest.sort_by(|a, b| {
        let sums = (b.wasted_bytes, b.size_bytes).cmp(&(a.wasted_bytes, a.size_bytes));
        sums.then_with(|| (a.mtime_ns, &a.name).cmp(&(b.mtime_ns, &b.name)))
    });
    largest.truncate(top);
    Ok(())
}

fn read_members(parts: &[Part<'_>], rows: &[u32], threads: usize) -> Result<Vec<Member>> {
    let all = Mutex::new(Vec::with_capacity(rows.len()));
    let pieces = details::by_part(parts, rows);
    in_parallel(threads, &pieces, |(part, rows)| -> Result<()> {
        let part = &parts[*part];
        let ranges = merge_ranges(rows.iter().map(|&row| row as usize..row as usize + 1).collect());
        let mut at_row = rows.iter();
        let mut found = Vec::with_capacity(rows.len());
        let columns = ["listing", "name", "size", "mtime", "ino", "nlink"];
        for batch in part.shard.read(FileKind::Entries, &columns, &ranges, BATCH_ROWS)? {
            let batch = batch?;
            let names = strings(&batch, "name");
            let sizes = numbers::<Int64Type>(&batch, "size").values();
            let mtimes = numbers::<TimestampNanosecondType>(&batch, "mtime").values();
            let inodes = numbers::<UInt64Type>(&batch, "ino").values();
            let [nlinks, listings] =
                ["nlink", "listing"].map(|name| numbers::<UInt32Type>(&batch, name).values());
            let heads = match nlinks.iter().any(|&nlink| nlink > 1) {
                true => Some(ListingHeads::read_with_devices(part.shard, listings)?),
                false => None,
            };
            for (at, row) in at_row.by_ref().take(batch.num_rows()).enumerate() {
                let key =
                    Key { size_bytes: sizes[at], mtime_ns: mtimes[at], name: names.value(at) };
                let head = heads
                    .as_ref()
                    .filter(|_| nlinks[at] > 1)
                    .and_then(|heads| heads.get(listings[at]));
                found.push(Member {
                    hashes: key.hashes(),
                    size_bytes: sizes[at],
                    row: (part.base + *row as usize) as u32,
                    inode: head.and_then(|head| head.dev).map(|dev| (dev, inodes[at])),
                });
            }
        }
        all.lock().expect("no thread panics while it holds the lock").extend(found);
        Ok(())
    })?;
    Ok(all.into_inner().expect("no thread panics while it holds the lock"))
}

/// A group with the paths of its first files, one for each inode.
fn shown(parts: &[Part<'_>], group: Group, top: usize, threads: usize) -> Result<DuplicateGroup> {
    let mut entries: Vec<_> =
        details::of_rows(parts, &group.rows, threads)?.into_values().collect();
    entries.sort_by(|a, b| a.cmp_path(b));
    let mut seen = FxHashSet::default();
    entries.retain(|entry| {
        entry.attributes.nlink < 2 || seen.insert((entry.dev, entry.attributes.ino))
    });
    Ok(DuplicateGroup {
        name: group.name,
        bytes: group.size_bytes,
        mtime_ns: group.mtime_ns,
        files: group.files,
        wasted_bytes: group.wasted_bytes,
        paths: entries.iter().take(top).map(|entry| entry.path()).collect(),
    })
}

//! Candidates for duplicates: regular files of equal size, or of equal size, mtime and name; on
//! demand those of equal contents.
//!
//! 1. The scan keeps a quick hash of each file's key.
//! 2. Hashes that occur once go away.
//! 3. The keys of the others are read again, some at a time, and hashed to 128 bits. The hash has a
//!    secret that is new in every run, so that no user can choose names that collide.
//! 4. All names of the shown groups are read. Where contents count, all groups go to `contents`
//!    first.
//!
//! Memory: 8 bytes a file, and some 60 bytes for each of up to a million files that share
//! their hash.

mod contents;

use super::*;
use crate::report::details;
use canopy_index::column::{BLOCKS, INO, LISTING, MODE, MTIME, NAME, SIZE};
use canopy_model::Device;
use canopy_read::listings::ListingHeads;
use canopy_read::work::listed;
use contents::SizeGroup;
use parking_lot::Mutex;
use rustc_hash::{FxHashSet, FxHasher};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

/// The files that count as duplicates of each other. Hard links of one inode are one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DuplicateRule {
    /// Files of one size, modification time and name.
    #[default]
    SizeTimeAndName,
    /// Files of one size.
    Size,
    /// Equal contents, which the caller reads.
    Contents,
}

impl DuplicateRule {
    /// Gives what candidates share.
    fn key(self, size_bytes: i64, mtime_ns: i64, name: &str) -> Key<'_> {
        match self {
            DuplicateRule::SizeTimeAndName => Key { size_bytes, mtime_ns, name },
            DuplicateRule::Size | DuplicateRule::Contents => {
                Key { size_bytes, mtime_ns: 0, name: "" }
            }
        }
    }
}

/// Regular files that are duplicates by a [`DuplicateRule`].
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::report) struct Duplicates {
    groups: i64,
    /// Files in them.
    files: i64,
    /// Bytes of all but one of each group: sizes, or space on disk where times and names do not count.
    wasted_bytes: i64,
    /// By `wasted_bytes`, then size, mtime and name, or the first path.
    largest: Vec<DuplicateGroup>,
    /// Files that could not be read or have changed since they were scanned, where contents count.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_read: Option<i64>,
    /// Files that are in no group large enough to be shown, so that their contents were not
    /// compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_compared: Option<i64>,
    #[serde(skip)]
    rule: DuplicateRule,
}

impl Duplicates {
    /// Gives the number of files whose contents could not be compared.
    pub(in crate::report) fn not_read(&self) -> i64 {
        self.not_read.unwrap_or(0)
    }
}

/// Files that may be copies of each other.
#[derive(Clone, Debug, Serialize)]
struct DuplicateGroup {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    bytes: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime_ns: Option<i64>,
    files: i64,
    wasted_bytes: i64,
    /// The first of them.
    paths: Vec<String>,
}

impl EntryCollector for KeyHashes {
    fn new(scope: &Scope<'_>) -> Self {
        // As many as a worker gets, about.
        let files = scope.entries / scope.workers + (scope.entries >> 4) + PIECES;
        KeyHashes::new(files, scope.options.duplicates)
    }

    fn columns(&self, _: &CoveredFile<'_>) -> Result<Columns> {
        Ok(MODE | NAME | SIZE | MTIME)
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        let (sizes, mtimes) = (SIZE.of(batch.batch)?, MTIME.of(batch.batch)?);
        let names = NAME.of(batch.batch)?;
        for &at in batch.files.iter().filter(|&&at| sizes[at] > 0) {
            let key = self.rule.key(sizes[at], mtimes[at], names.value(at));
            self.push(&key, batch.number(at));
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.too_many |= other.too_many;
        // Pieces of several workers stay apart until they are sorted.
        self.pieces.extend(other.pieces);
    }
}

impl ReportSection for Duplicates {
    const TITLE: &'static str = "Candidates for duplicates";
    const NEEDS: &'static [Need] = &[Need::Entries];
    type Entries = KeyHashes;

    /// `None` if there are more rows than can be compared.
    fn answer(facts: &mut Facts<'_>, hashes: KeyHashes) -> Result<Option<Self>> {
        if hashes.too_many {
            return Ok(None);
        }
        let mut groups = Groups {
            parts: &facts.parts,
            top: facts.options.top,
            threads: facts.options.threads,
            rule: facts.options.duplicates,
            by_size: Vec::new(),
            found: Duplicates { rule: facts.options.duplicates, ..Duplicates::default() },
            largest: Vec::new(),
        };
        let mut chunk: Vec<u32> = Vec::new();
        let mut repeated = hashes.repeated(groups.threads)?.into_iter().peekable();
        while let Some(more) = repeated.next() {
            chunk.extend(more);
            if chunk.len() >= FILES_MAX || repeated.peek().is_none() {
                groups.add(std::mem::take(&mut chunk))?;
            }
        }
        groups.finish().map(Some)
    }

    fn note(&self) -> Option<&'static str> {
        Some(match self.rule {
            DuplicateRule::SizeTimeAndName => {
                "Files of the same size, modification time and name: 'canopy top duplicates \
                 --verify' compares their contents."
            }
            DuplicateRule::Size => "Files of the same size: --verify compares their contents.",
            DuplicateRule::Contents => "Files of equal contents.",
        })
    }

    fn blocks(&self) -> Vec<Block> {
        let mut known = vec![
            (count(self.groups), "groups"),
            (count(self.files), "files"),
            (size(self.wasted_bytes), "in all but one of each"),
        ];
        known.extend(self.not_read.map(|files| (count(files), "files could not be read")));
        known.extend(self.not_compared.map(|files| (count(files), "smaller files not compared")));
        let known = Block::Facts(known);
        let columns = [
            ("saved", true),
            ("size", true),
            ("files", true),
            ("modified", false),
            ("paths", false),
        ];
        let table = table(&columns, &self.largest, |group| {
            let mut paths: Vec<String> = group.paths.iter().map(|path| report_name(path)).collect();
            let more = group.files - group.files.min(paths.len() as i64);
            if more > 0 {
                paths.push(format!("(and {} more)", grouped(more)));
            }
            vec![
                size(group.wasted_bytes),
                size(group.bytes),
                count(group.files),
                group.mtime_ns.map_or_else(|| "".into(), date),
                paths.join("\n").into(),
            ]
        });
        vec![known, table.block()]
    }
}

/// Files are sorted by hash in so many pieces.
const PIECES: usize = 256;

/// Files whose keys are read again at a time.
const FILES_MAX: usize = 1 << 20;

/// The key that duplicates share.
#[derive(Hash)]
struct Key<'a> {
    size_bytes: i64,
    mtime_ns: i64,
    name: &'a str,
}

impl Key<'_> {
    fn hashes(&self) -> [u64; 2] {
        static SECRETS: LazyLock<[RandomState; 2]> =
            LazyLock::new(|| [RandomState::new(), RandomState::new()]);
        [SECRETS[0].hash_one(self), SECRETS[1].hash_one(self)]
    }

    /// Returns a quick hash. A user who makes names that collide makes the report slower, not
    /// wrong.
    fn hash(&self) -> u64 {
        static SECRET: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
        let mut hasher = FxHasher::default();
        (*SECRET, self).hash(&mut hasher);
        hasher.finish()
    }
}

/// The hashes of all files, 32 bits each besides those that choose the piece, with numbers of rows.
/// That is enough to find nearly all files that have no duplicate.
pub(in crate::report) struct KeyHashes {
    /// By the first bits of their hashes.
    pieces: Vec<Vec<u64>>,
    /// Set if there are more rows than have numbers.
    too_many: bool,
    rule: DuplicateRule,
}

impl KeyHashes {
    /// Begins with none, with room for about `files`.
    fn new(files: usize, rule: DuplicateRule) -> Self {
        KeyHashes {
            rule,
            pieces: (0..PIECES).map(|_| Vec::with_capacity(files / PIECES)).collect(),
            too_many: false,
        }
    }

    #[inline]
    fn push(&mut self, key: &Key<'_>, row: usize) {
        let Ok(row) = u32::try_from(row) else {
            self.too_many = true;
            return;
        };
        let hash = key.hash();
        self.pieces[(hash >> 56) as usize].push(hash << 32 | u64::from(row));
    }

    /// The rows of files whose hash others have too. Rows of the same hash are in the same vector.
    fn repeated(self, threads: usize) -> Result<Vec<Vec<u32>>> {
        let workers = self.pieces.len() / PIECES;
        let pieces: Vec<Mutex<Vec<u64>>> = self.pieces.into_iter().map(Mutex::new).collect();
        let take = |at: usize| std::mem::take(&mut *pieces[at].lock());
        let numbers: Vec<usize> = if workers == 0 { Vec::new() } else { (0..PIECES).collect() };
        listed(threads, &numbers, |&number| {
            let mut piece = Vec::new();
            (0..workers).for_each(|worker| piece.extend(take(worker * PIECES + number)));
            piece.sort_unstable();
            let groups = piece.chunk_by(|a, b| a >> 32 == b >> 32).filter(|group| group.len() > 1);
            let repeated: Vec<u32> = groups.flatten().map(|file| *file as u32).collect();
            Ok(Some(repeated).filter(|rows| !rows.is_empty()).into_iter().collect())
        })
    }
}

/// A file whose hash others have too.
struct Member {
    hashes: [u64; 2],
    size_bytes: i64,
    disk_bytes: i64,
    row: u32,
    /// Device and inode, by which a file that is there twice is known.
    inode: Option<(Device, u64)>,
}

/// Returns how many paths of a group are shown: at least two, as one is not a duplicate.
fn paths_of_group(top: usize) -> usize {
    top.max(2)
}

/// Returns the bytes that are saved if all files of a group but one go. Where only sizes count, huge
/// sparse files must not come first, so that is space on disk.
fn wasted_bytes(rule: DuplicateRule, files: &[&Member]) -> i64 {
    let Some(first) = files.first() else { return 0 };
    if rule == DuplicateRule::SizeTimeAndName {
        return first.size_bytes.saturating_mul(files.len() as i64 - 1);
    }
    let most = files.iter().map(|file| file.disk_bytes).max().unwrap_or(0);
    let sum: i128 = files.iter().map(|file| i128::from(file.disk_bytes)).sum();
    i64::try_from(sum - i128::from(most)).unwrap_or(i64::MAX)
}

/// The groups that have been found so far.
struct Groups<'a> {
    parts: &'a [CoveredFile<'a>],
    top: usize,
    threads: usize,
    rule: DuplicateRule,
    /// All groups, where their contents are still to be compared.
    by_size: Vec<SizeGroup>,
    found: Duplicates,
    /// Groups that may be shown, still without paths, and their rows.
    largest: Vec<(DuplicateGroup, Vec<u32>)>,
}

impl Groups<'_> {
    /// Counts the groups among some files, and keeps the largest.
    fn add(&mut self, mut rows: Vec<u32>) -> Result<()> {
        rows.sort_unstable();
        let mut members = read_members(self.parts, &rows, self.rule, self.threads)?;
        members.sort_unstable_by_key(|member| (member.hashes, member.row));
        let mut kept: Vec<LargeGroup> = Vec::new();
        let mut inodes = FxHashSet::default();
        for group in members.chunk_by(|a, b| a.hashes == b.hashes) {
            inodes.clear();
            let is_first = |member: &&Member| member.inode.is_none_or(|inode| inodes.insert(inode));
            let distinct: Vec<&Member> = group.iter().filter(is_first).collect();
            let files = distinct.len() as i64;
            if files < 2 {
                continue;
            }
            let size = group[0].size_bytes;
            let wasted = wasted_bytes(self.rule, &distinct);
            if self.rule == DuplicateRule::Contents {
                let rows = distinct.iter().map(|member| member.row).collect();
                self.by_size.push(SizeGroup { size_bytes: size, wasted_bytes: wasted, rows });
                continue;
            }
            self.found.groups += 1;
            self.found.files += files;
            self.found.wasted_bytes = self.found.wasted_bytes.saturating_add(wasted);
            let rows = group.iter().map(|member| member.row).collect();
            kept.push(LargeGroup { wasted_bytes: wasted, size_bytes: size, files, rows });
        }
        kept.sort_unstable_by_key(|group| std::cmp::Reverse(group.rank()));
        let last = self.top.checked_sub(1).and_then(|last| kept.get(last)).map(LargeGroup::rank);
        if let Some(last) = last {
            kept.retain(|group| group.rank() >= last);
        }
        if self.top > 0 { self.keep(kept) } else { Ok(()) }
    }

    /// Keeps the largest of groups.
    fn keep(&mut self, groups: Vec<LargeGroup>) -> Result<()> {
        let mut firsts: Vec<u32> = groups.iter().map(|group| group.rows[0]).collect();
        firsts.sort_unstable();
        let firsts = details::of_rows(self.parts, &firsts, self.threads)?;
        for LargeGroup { wasted_bytes, size_bytes: bytes, files, rows } in groups {
            let Some(first) = firsts.get(&rows[0]) else { continue };
            let is_alike = self.rule == DuplicateRule::SizeTimeAndName;
            let name = is_alike.then(|| first.name.clone());
            let mtime_ns = is_alike.then_some(first.attributes.mtime_ns);
            let paths = Vec::new();
            let group = DuplicateGroup { name, bytes, mtime_ns, files, wasted_bytes, paths };
            self.largest.push((group, rows));
        }
        self.largest.sort_by(|(a, _), (b, _)| {
            let sums = (b.wasted_bytes, b.bytes).cmp(&(a.wasted_bytes, a.bytes));
            sums.then_with(|| (a.mtime_ns, &a.name).cmp(&(b.mtime_ns, &b.name)))
        });
        self.largest.truncate(self.top);
        Ok(())
    }

    /// Reads the paths of the first files of the largest groups, one for each inode.
    fn finish(mut self) -> Result<Duplicates> {
        if self.rule == DuplicateRule::Contents {
            return contents::compared(self.parts, self.by_size, self.top, self.threads);
        }
        for (mut group, rows) in self.largest {
            let entries = details::of_rows(self.parts, &rows, self.threads)?;
            let mut entries: Vec<_> = entries.into_values().collect();
            entries.sort_by(|a, b| a.cmp_path(b));
            let mut seen = FxHashSet::default();
            entries.retain(|entry| seen.insert((entry.dev, entry.attributes.ino)));
            group.paths =
                entries.iter().take(paths_of_group(self.top)).map(|entry| entry.path()).collect();
            self.found.largest.push(group);
        }
        Ok(self.found)
    }
}

/// A group that may be one of the largest.
struct LargeGroup {
    wasted_bytes: i64,
    /// Size of each file.
    size_bytes: i64,
    files: i64,
    rows: Vec<u32>,
}

impl LargeGroup {
    /// Returns the value by which groups are sorted.
    fn rank(&self) -> (i64, i64) {
        (self.wasted_bytes, self.size_bytes)
    }
}

/// Reads the keys of rows by number among those of all parts, which ascend.
fn read_members(
    parts: &[CoveredFile<'_>],
    rows: &[u32],
    rule: DuplicateRule,
    threads: usize,
) -> Result<Vec<Member>> {
    listed(threads, &details::by_part(parts, rows), |(part, rows)| {
        let part = &parts[*part];
        let mut at_row = rows.iter();
        let mut found = Vec::with_capacity(rows.len());
        let columns = LISTING | NAME | SIZE | BLOCKS | MTIME | INO;
        for batch in part.unit_of(rows.iter().copied()).read(columns)? {
            let batch = batch?;
            let (names, sizes, mtimes) = (NAME.of(&batch)?, SIZE.of(&batch)?, MTIME.of(&batch)?);
            let (inodes, blocks, listings) =
                (INO.of(&batch)?, BLOCKS.of(&batch)?, LISTING.of(&batch)?);
            let heads = ListingHeads::read_with_devices(&part.shard, listings.iter())?;
            for (at, row) in at_row.by_ref().take(batch.num_rows()).enumerate() {
                let key = rule.key(sizes[at], mtimes[at], names.value(at));
                let dev = heads.get(listings.value(at)).and_then(|head| head.dev);
                found.push(Member {
                    hashes: key.hashes(),
                    size_bytes: sizes[at],
                    disk_bytes: blocks[at].saturating_mul(512),
                    row: (part.base + *row as usize) as u32,
                    inode: dev.map(|dev| (dev, inodes[at])),
                });
            }
        }
        Ok(found)
    })
}

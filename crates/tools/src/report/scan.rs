//! The one pass over entries and directories, for what no stored statistics tell.
//!
//! Reads the columns that the sections need, and keeps for each section the rows that may be shown,
//! as numbers: what they are called is read afterwards, of those that are shown. Memory: the lists;
//! 8 bytes a regular file where duplicates are asked for; 8 bytes a hard link or symbolic link; 8
//! bytes an entry of the size class that holds the median.

use super::best::{Best, Place, least_first};
use super::duplicates::{Key, Keys, PIECES};
use super::parts::{BATCH_ROWS, Part, Unit};
use super::sections::{Section, Sections};
use crate::error::Result;
use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, TimestampNanosecondType, UInt32Type};
use canopy_index::FileKind;
use canopy_model::{Totals, size_class, unescape};
use canopy_read::columns::{numbers, strings};
use canopy_read::work::by_workers;
use std::ops::RangeInclusive;
use std::sync::Mutex;

const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// The lists that rows are chosen for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(super) enum List {
    Largest,
    Newest,
    Oldest,
    Used,
    Unused,
    Sparse,
    WritableFiles,
    WritableDirs,
    Setuid,
    Setgid,
    Control,
    NotUtf8,
    Direction,
    Future,
}

impl List {
    pub(super) const COUNT: usize = 14;
}

/// What to look for.
pub(super) struct Wanted {
    pub(super) sections: Sections,
    pub(super) top: usize,
    pub(super) owner: Option<u32>,
    /// Size classes of which all sizes are kept, for the median.
    pub(super) median: Option<RangeInclusive<i32>>,
    /// Whether rows with several links are to be kept.
    pub(super) links: bool,
}

/// What was found.
pub(super) struct Found {
    pub(super) lists: Vec<Best>,
    /// How many there are of each list, as far as it is about some of the entries only.
    pub(super) counts: [i64; List::COUNT],
    pub(super) sticky: i64,
    pub(super) saved_bytes: i64,
    pub(super) squares: u128,
    pub(super) medians: Vec<i64>,
    pub(super) links: Vec<Place>,
    pub(super) symlinks: Vec<Place>,
    pub(super) keys: Keys,
    /// Directories: of the owner, if there is one.
    pub(super) dirs: Totals,
}

impl Found {
    /// For a worker that gets to see so many files, about.
    fn new(top: usize, files: usize) -> Self {
        Found {
            lists: (0..List::COUNT).map(|_| Best::new(top)).collect(),
            counts: [0; List::COUNT],
            sticky: 0,
            saved_bytes: 0,
            squares: 0,
            medians: Vec::new(),
            links: Vec::new(),
            symlinks: Vec::new(),
            keys: if files > 0 { Keys::new(files) } else { Keys::default() },
            dirs: Totals::default(),
        }
    }

    fn merge(&mut self, other: Found) {
        self.lists.iter_mut().zip(other.lists).for_each(|(list, other)| list.merge(other));
        self.counts.iter_mut().zip(other.counts).for_each(|(count, other)| *count += other);
        self.sticky += other.sticky;
        self.saved_bytes = self.saved_bytes.saturating_add(other.saved_bytes);
        self.squares = self.squares.saturating_add(other.squares);
        self.medians.extend(other.medians);
        self.links.extend(other.links);
        self.symlinks.extend(other.symlinks);
        self.keys.merge(other.keys);
        self.dirs += other.dirs;
    }

    /// Counts a row for a list and offers it.
    fn flag(&mut self, list: List, key: i64, place: Place) {
        self.counts[list as usize] += 1;
        self.lists[list as usize].offer(key, place);
    }

    pub(super) fn count(&self, list: List) -> i64 {
        self.counts[list as usize]
    }
}

/// Reads all units.
pub(super) fn scan(
    parts: &[Part<'_>],
    units: &[Unit],
    wanted: &Wanted,
    threads: usize,
) -> Result<Found> {
    let all = Mutex::new(Found::new(wanted.top, 0));
    let workers = threads.clamp(1, units.len().max(1));
    let entries = units.iter().filter(|unit| parts[unit.part as usize].kind == FileKind::Entries);
    let files: usize = entries.flat_map(|unit| &unit.rows).map(|rows| rows.len()).sum();
    let files = if wanted.sections.has(Section::Duplicates) {
        files / workers + (files >> 4) + PIECES
    } else {
        0
    };
    let start = |_| Ok(Found::new(wanted.top, files));
    let work = |found: &mut Found, unit: &Unit| {
        let part = &parts[unit.part as usize];
        let columns = columns(wanted, part)?;
        let mut numbers = unit.rows.iter().cloned().flatten();
        for batch in part.shard.read(part.kind, &columns, &unit.rows, BATCH_ROWS)? {
            let batch = batch?;
            let rows = numbers
                .by_ref()
                .take(batch.num_rows())
                .map(|row| (unit.part, row as u32))
                .collect();
            Rows::of(&batch, rows, wanted, part).look(wanted, found);
        }
        part.close();
        Ok(())
    };
    let finish = |found: Found| -> Result<()> {
        all.lock().expect("no thread panics while it holds the lock").merge(found);
        Ok(())
    };
    by_workers(workers, units, start, work, finish)?;
    Ok(all.into_inner().expect("no thread panics while it holds the lock"))
}

/// The columns to read of a part.
fn columns(wanted: &Wanted, part: &Part<'_>) -> Result<Vec<&'static str>> {
    use Section::*;
    let has = |sections: &[Section]| wanted.sections.any(sections);
    let entries = part.kind == FileKind::Entries;
    let lists = has(&[Largest, Newest, Oldest, Used, Unused, Sparse, Duplicates, Symlinks]);
    let mut columns = Vec::new();
    let mut add = |needed: bool, column| {
        if needed {
            columns.push(column);
        }
    };
    add(has(&[Permissions]) || (entries && (lists || has(&[Future]))), "mode");
    add(has(&[Names]) || (entries && has(&[Duplicates])), "name");
    add(wanted.owner.is_some(), "uid");
    let sized = entries && (has(&[Largest, Sparse, Duplicates]) || wanted.median.is_some());
    add(sized || (!entries && wanted.owner.is_some()), "size");
    add((entries && has(&[Sparse])) || (!entries && wanted.owner.is_some()), "blocks");
    let future =
        entries && has(&[Future]) && may_exceed(part, "mtime", part.start.source.scanned_ns)?;
    add(future || (entries && has(&[Newest, Oldest, Duplicates])), "mtime");
    add(entries && has(&[Used, Unused]), "atime");
    add(entries && wanted.links && may_exceed(part, "nlink", 1)?, "nlink");
    Ok(columns)
}

/// Whether a column may have a value beyond a limit.
fn may_exceed(part: &Part<'_>, column: &str, limit: i64) -> Result<bool> {
    let bounds =
        part.shard.bounds(part.kind, canopy_index::ColumnId::named(column).expect("a column"))?;
    Ok(bounds.iter().any(|bounds| bounds.is_none_or(|(_, max)| max > limit)))
}

/// The rows of a batch.
struct Rows<'a> {
    batch: &'a RecordBatch,
    places: Vec<Place>,
    scanned_ns: i64,
    base: usize,
    /// Those to look at, and those of them that are regular files.
    all: Vec<usize>,
    files: Vec<usize>,
    entries: bool,
}

impl<'a> Rows<'a> {
    fn of(batch: &'a RecordBatch, places: Vec<Place>, wanted: &Wanted, part: &Part<'_>) -> Self {
        let all: Vec<usize> = match wanted.owner {
            None => (0..batch.num_rows()).collect(),
            Some(owner) => {
                let uids = numbers::<UInt32Type>(batch, "uid").values();
                (0..batch.num_rows()).filter(|&at| uids[at] == owner).collect()
            }
        };
        let mut rows = Rows {
            batch,
            places,
            scanned_ns: part.start.source.scanned_ns,
            base: part.base,
            all,
            files: Vec::new(),
            entries: part.kind == FileKind::Entries,
        };
        if let (true, Some(modes)) = (rows.entries, rows.u32("mode")) {
            rows.files =
                rows.all.iter().copied().filter(|&at| modes[at] & TYPE == REGULAR).collect();
        }
        rows
    }

    fn u32(&self, name: &str) -> Option<&'a [u32]> {
        self.batch.column_by_name(name)?;
        Some(numbers::<UInt32Type>(self.batch, name).values())
    }

    fn i64(&self, name: &str) -> Option<&'a [i64]> {
        self.batch.column_by_name(name)?;
        Some(numbers::<Int64Type>(self.batch, name).values())
    }

    fn time(&self, name: &str) -> Option<&'a [i64]> {
        self.batch.column_by_name(name)?;
        Some(numbers::<TimestampNanosecondType>(self.batch, name).values())
    }

    fn names(&self) -> Option<&'a StringArray> {
        self.batch.column_by_name("name").map(|_| strings(self.batch, "name"))
    }

    fn look(&self, wanted: &Wanted, found: &mut Found) {
        if wanted.sections.has(Section::Permissions) {
            self.permissions(found);
        }
        if wanted.sections.has(Section::Names) {
            self.odd_names(found);
        }
        if !self.entries {
            self.own_directories(wanted, found);
            return;
        }
        self.sizes(wanted, found);
        self.times(wanted, found);
        if wanted.sections.has(Section::Duplicates) {
            self.keys(found);
        }
        if let (true, Some(nlinks)) = (wanted.links, self.u32("nlink")) {
            found
                .links
                .extend(self.all.iter().filter(|&&at| nlinks[at] > 1).map(|&at| self.places[at]));
        }
        if let (true, Some(modes)) = (wanted.sections.has(Section::Symlinks), self.u32("mode")) {
            let links = self.all.iter().filter(|&&at| modes[at] & TYPE == SYMLINK);
            found.symlinks.extend(links.map(|&at| self.places[at]));
        }
    }

    fn permissions(&self, found: &mut Found) {
        let Some(modes) = self.u32("mode") else { return };
        if !self.entries {
            for &at in self.all.iter().filter(|&&at| modes[at] & 0o002 != 0) {
                match modes[at] & 0o1000 {
                    0 => found.flag(List::WritableDirs, 0, self.places[at]),
                    _ => found.sticky += 1,
                }
            }
            return;
        }
        for &at in self.files.iter().filter(|&&at| modes[at] & 0o6002 != 0) {
            let bits =
                [(0o002, List::WritableFiles), (0o4000, List::Setuid), (0o2000, List::Setgid)];
            for (_, list) in bits.into_iter().filter(|(bit, _)| modes[at] & bit != 0) {
                found.flag(list, 0, self.places[at]);
            }
        }
    }

    fn odd_names(&self, found: &mut Found) {
        let Some(names) = self.names() else { return };
        // Printable ASCII, as nearly all names are. Without an early end, this is done for many
        // bytes at once.
        let is_plain =
            |text: &[u8]| text.iter().fold(true, |plain, byte| plain & (b' '..0x7F).contains(byte));
        if is_plain(names.value_data()) {
            return;
        }
        for &at in &self.all {
            let name = names.value(at);
            if is_plain(name.as_bytes()) {
                continue;
            }
            let tests: [(List, fn(&str) -> bool); 3] = [
                (List::Control, |name| name.chars().any(char::is_control)),
                (List::NotUtf8, |name| std::str::from_utf8(&unescape(name)).is_err()),
                (List::Direction, |name| name.chars().any(turns_text)),
            ];
            for (list, _) in tests.into_iter().filter(|(_, odd)| odd(name)) {
                found.flag(list, 0, self.places[at]);
            }
        }
    }

    /// Adds up the directories of an owner.
    fn own_directories(&self, wanted: &Wanted, found: &mut Found) {
        let (Some(_), Some(sizes), Some(blocks)) =
            (wanted.owner, self.i64("size"), self.i64("blocks"))
        else {
            return;
        };
        for &at in &self.all {
            found.dirs +=
                Totals { dirs: 1, dir_bytes: sizes[at], blocks: blocks[at], ..Totals::default() };
        }
    }

    fn sizes(&self, wanted: &Wanted, found: &mut Found) {
        let Some(sizes) = self.i64("size") else { return };
        if wanted.sections.has(Section::Largest) {
            let list = &mut found.lists[List::Largest as usize];
            self.files.iter().for_each(|&at| list.offer(sizes[at], self.places[at]));
        }
        if let Some(classes) = &wanted.median {
            for &at in &self.all {
                let size = u128::from(sizes[at].unsigned_abs());
                found.squares = found.squares.saturating_add(size * size);
                if classes.contains(&size_class(sizes[at])) {
                    found.medians.push(sizes[at]);
                }
            }
        }
        if let (true, Some(blocks)) = (wanted.sections.has(Section::Sparse), self.i64("blocks")) {
            for &at in &self.files {
                let saved = sizes[at].saturating_sub(blocks[at].saturating_mul(512));
                if saved > 0 {
                    found.saved_bytes = found.saved_bytes.saturating_add(saved);
                    found.flag(List::Sparse, saved, self.places[at]);
                }
            }
        }
    }

    fn times(&self, wanted: &Wanted, found: &mut Found) {
        let mut offer =
            |section: Section, list: List, times: Option<&[i64]>, key: fn(i64) -> i64| {
                if let (true, Some(times)) = (wanted.sections.has(section), times) {
                    let list = &mut found.lists[list as usize];
                    self.files.iter().for_each(|&at| list.offer(key(times[at]), self.places[at]));
                }
            };
        let (mtimes, atimes) = (self.time("mtime"), self.time("atime"));
        offer(Section::Newest, List::Newest, mtimes, |time| time);
        offer(Section::Oldest, List::Oldest, mtimes, least_first);
        offer(Section::Used, List::Used, atimes, |time| time);
        offer(Section::Unused, List::Unused, atimes, least_first);
        if let (true, Some(mtimes)) = (wanted.sections.has(Section::Future), mtimes) {
            for &at in self.files.iter().filter(|&&at| mtimes[at] > self.scanned_ns) {
                found.flag(List::Future, mtimes[at], self.places[at]);
            }
        }
    }

    fn keys(&self, found: &mut Found) {
        let (Some(sizes), Some(mtimes), Some(names)) =
            (self.i64("size"), self.time("mtime"), self.names())
        else {
            return;
        };
        for &at in self.files.iter().filter(|&&at| sizes[at] > 0) {
            let key = Key { size_bytes: sizes[at], mtime_ns: mtimes[at], name: names.value(at) };
            found.keys.add(&key, self.base + self.places[at].1 as usize);
        }
    }
}

/// Whether a character changes the direction of the text around it.
pub(super) fn turns_text(c: char) -> bool {
    matches!(c, '\u{200E}' | '\u{200F}' | '\u{061C}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

//! Carries a find out.
//!
//! For each start path:
//! 1. Look the start up in the listing of its parent, and evaluate the expression on it alone.
//! 2. Take the shards whose covers touch the subtree; narrow each to its range of listings, and by `-maxdepth`,
//!    `-mindepth` and `-prune` to parts of that range.
//! 3. Cut the rows at row groups into units of work, for all threads to take from; skip a row group whose bounds
//!    rule out every action.
//! 4. In a unit, read only the columns that tests ask for and evaluate the expression; then read the names, paths
//!    and printed columns of the rows that are left, and write them out as one block.

use super::expr::Reached;
use super::format::{Found, file_name};
use super::parse::Find;
use super::print::{Printer, Selected};
use super::test::{Rows, Test, XattrTest};
use crate::columns::{INODE, numbers, strings};
use crate::error::{Error, Result};
use crate::listings::{ListingHeads, merge_ranges};
use crate::locate::{Inode, Start, locate, read_xattrs, xattrs_of};
use crate::work::in_parallel;
use arrow::array::{
    ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray, UInt32Array,
    UInt64Array,
};
use arrow::datatypes::{Int64Type, UInt32Type};
use canopy_index::{FileKind, Index, RowRange, Shard};
use canopy_model::{compare_paths, escape, join, unescape};
use rustc_hash::{FxHashMap, FxHashSet};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Rows evaluated at a time.
pub(super) const BATCH_ROWS: usize = 8192;

/// How to carry a find out.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// How many threads read.
    pub threads: usize,
    /// Whether the output is a terminal, which control characters would disturb.
    pub terminal: bool,
    /// What time it is, in nanoseconds since 1970.
    pub now_ns: i64,
}

/// Carries a find out and writes what its actions print. Returns the start paths that could not be answered; other
/// errors end it. Blocks.
pub fn run(
    index: &Index,
    find: &Find,
    options: RunOptions,
    output: &mut (dyn Write + Send),
) -> Result<Vec<Error>> {
    let mut failed = Vec::new();
    for given in &find.starts {
        match locate(index, given) {
            Ok(start) => {
                let hits = xattr_hits(find, &start)?;
                Search { find, options, start: &start, pruned: Vec::new(), hits }.run(output)?;
            }
            Err(error @ (Error::NotCovered { .. } | Error::NotFound(_))) => failed.push(error),
            Err(error) => return Err(error),
        }
    }
    output.flush()?;
    Ok(failed)
}

struct Search<'a> {
    find: &'a Find,
    options: RunOptions,
    start: &'a Start,
    /// Directories below which nothing is looked at, in path order.
    pruned: Vec<String>,
    /// Paths in the source that pass tests of extended attributes that need values, by the number of the test.
    hits: Vec<FxHashSet<String>>,
}

/// Rows of one file of a shard, within one row group.
pub(super) struct Unit<'a> {
    pub(super) shard: &'a Shard,
    pub(super) kind: FileKind,
    rows: Vec<RowRange>,
}

impl Unit<'_> {
    /// Closes the files of a shard that has no other unit of this kind.
    fn close(&self) {
        if self.shard.rows(self.kind) <= canopy_index::schema::ROW_GROUP_ROWS {
            self.shard.close(self.kind);
            self.shard.close(FileKind::Listings);
        }
    }
}

impl Search<'_> {
    fn run(mut self, output: &mut (dyn Write + Send)) -> Result<()> {
        let empty_dirs = self.empty_dirs()?;
        let pruned = self.visit_start(&empty_dirs, output)?;
        if pruned || !self.start.is_dir() || self.find.depth_max == 0 {
            return Ok(());
        }
        let mut shards: Vec<(Arc<Shard>, RowRange)> = Vec::new();
        for shard in self.start.view.shards_of(self.start.source.id) {
            let listings = shard.listings_below(&self.start.path)?;
            if !listings.is_empty() {
                shards.push((shard.clone(), listings));
            }
        }
        if self.find.expr.prunes() {
            self.pruned = self.find_pruned(&shards, &empty_dirs)?;
        }
        let units: Vec<Unit<'_>> = shards
            .iter()
            .map(|(shard, listings)| self.units(shard, listings))
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect();
        let (find, start, options) = (self.find, self.start, self.options);
        let printer = Printer { find, start, options, output: Mutex::new(output) };
        let constant = self.constant(&empty_dirs);
        in_parallel(self.options.threads, &units, |unit| {
            let selected = match constant {
                Some(bits) => Selected::all(&unit.rows, bits),
                None => self.select(unit, &empty_dirs)?,
            };
            printer.print(unit, &selected)?;
            unit.close();
            Ok(())
        })
    }

    /// Evaluates the expression on the start itself. Returns whether it is pruned.
    fn visit_start(&self, empty_dirs: &FxHashSet<String>, output: &mut (dyn Write + Send)) -> Result<bool> {
        let start = self.start;
        let given = escape(&start.given).into_owned();
        let name = escape(trim_slashes(file_name(&start.given))).into_owned();
        let batch = single_row(&name, &start.inode);
        let rows = Rows {
            batch: &batch,
            dirs: start.is_dir(),
            shown: std::slice::from_ref(&given),
            paths: std::slice::from_ref(&start.path),
            empty_dirs,
            hits: &self.hits,
        };
        let reached = self.find.expr.evaluate(&rows, &self.find.actions);
        if self.find.depth_min == 0 {
            let target = unescape(&start.inode.target);
            let found = Found {
                shown: &start.given,
                name: file_name(&start.given),
                start: &start.given,
                depth: 0,
                target: &target,
                dev: start.inode.dev,
                attributes: start.inode.attributes,
            };
            let mut block = Vec::new();
            for (action, rows) in self.find.actions.iter().zip(&reached.actions) {
                if rows.value(0) {
                    action.carry_out(&found, self.options.terminal, self.options.now_ns, &mut block);
                }
            }
            output.write_all(&block)?;
        }
        Ok(reached.pruned.value(0))
    }

    /// Directories of the subtree that have a listing without entries, if a test asks for them.
    fn empty_dirs(&self) -> Result<FxHashSet<String>> {
        let mut asked = false;
        self.find.expr.each_test(&mut |test| asked |= matches!(test, Test::Empty));
        let mut empty = FxHashSet::default();
        if !asked {
            return Ok(empty);
        }
        let mut continued = FxHashSet::default();
        for shard in self.start.view.shards_of(self.start.source.id) {
            let listings = shard.listings_below(&self.start.path)?;
            if listings.is_empty() {
                continue;
            }
            let columns = ["path", "part", "files", "symlinks", "others", "subdirs"];
            for batch in
                shard.read(FileKind::Listings, &columns, std::slice::from_ref(&listings), BATCH_ROWS)?
            {
                let batch = batch?;
                let counts = columns[2..].iter().map(|name| numbers::<Int64Type>(&batch, name).values());
                let counts: Vec<_> = counts.collect();
                let paths = strings(&batch, "path");
                let parts = numbers::<UInt32Type>(&batch, "part").values();
                for at in 0..batch.num_rows() {
                    if counts.iter().all(|count| count[at] == 0) {
                        empty.insert(paths.value(at).to_owned());
                    } else if parts[at] > 0 {
                        continued.insert(paths.value(at).to_owned());
                    }
                }
            }
        }
        empty.retain(|path| !continued.contains(path));
        Ok(empty)
    }

    /// The directories at which the expression prunes, in path order.
    fn find_pruned(
        &self,
        shards: &[(Arc<Shard>, RowRange)],
        empty_dirs: &FxHashSet<String>,
    ) -> Result<Vec<String>> {
        let pruned = Mutex::new(Vec::new());
        in_parallel(self.options.threads, shards, |(shard, listings)| {
            let (_, dirs) = shard.rows_of(listings.clone())?;
            if dirs.is_empty() {
                return Ok(());
            }
            let unit = Unit { shard, kind: FileKind::Dirs, rows: vec![dirs] };
            let mut rows = Selected::default();
            self.evaluate(&unit, empty_dirs, |row, _, pruned| {
                if pruned {
                    rows.push(row, 0);
                }
            })?;
            let mut found = Vec::new();
            if !rows.is_empty() {
                for batch in shard.read(FileKind::Dirs, &["listing", "name"], &rows.ranges, BATCH_ROWS)? {
                    found.extend(row_paths(shard, &batch?)?);
                }
            }
            pruned.lock().expect("no thread panics while it holds the lock").extend(found);
            Ok(())
        })?;
        let mut pruned = pruned.into_inner().expect("no thread panics while it holds the lock");
        pruned.sort_by(|a, b| compare_paths(a, b));
        Ok(pruned)
    }

    fn is_pruned(&self, path: &str) -> bool {
        // Of the pruned directories above a path, the highest comes first; every one in between is below it.
        let end = self.pruned.partition_point(|pruned| compare_paths(pruned, path).is_le());
        let mut above = Some(path);
        while let Some(directory) = above {
            if self.pruned[..end].binary_search_by(|pruned| compare_paths(pruned, directory)).is_ok() {
                return true;
            }
            above = canopy_model::parent(directory);
        }
        false
    }

    /// The units of a shard: its rows below the start, less those too near, too far or pruned, cut at row groups.
    fn units<'s>(&self, shard: &'s Shard, listings: &RowRange) -> Result<Vec<Unit<'s>>> {
        let (entries, dirs) = self.allowed_rows(shard, listings)?;
        let mut units = Vec::new();
        for (kind, rows) in [(FileKind::Dirs, dirs), (FileKind::Entries, entries)] {
            for group in shard.row_groups(kind) {
                let clip = |range: &RowRange| range.start.max(group.start)..range.end.min(group.end);
                let rows: Vec<RowRange> = rows.iter().map(clip).filter(|range| !range.is_empty()).collect();
                if !rows.is_empty() {
                    units.push(Unit { shard, kind, rows });
                }
            }
        }
        Ok(units)
    }

    fn allowed_rows(&self, shard: &Shard, listings: &RowRange) -> Result<(Vec<RowRange>, Vec<RowRange>)> {
        let find = self.find;
        // An entry is one level below its listing.
        let start = self.start.depth();
        let depth_min = find.depth_min.saturating_add(start).saturating_sub(1);
        let depth_max = find.depth_max.saturating_add(start).saturating_sub(1);
        if find.depth_min <= 1 && depth_max >= u32::MAX - 1 && self.pruned.is_empty() {
            let (entries, dirs) = shard.rows_of(listings.clone())?;
            return Ok((vec![entries], vec![dirs]));
        }
        let mut columns = vec!["depth"];
        if !self.pruned.is_empty() {
            columns.push("path");
        }
        let mut allowed: Vec<RowRange> = Vec::new();
        let mut ordinal = listings.start;
        for batch in shard.read(FileKind::Listings, &columns, std::slice::from_ref(listings), BATCH_ROWS)? {
            let batch = batch?;
            let depths = numbers::<UInt32Type>(&batch, "depth").values();
            let paths = batch.column_by_name("path").map(|column| column.as_string::<i32>());
            for (at, &depth) in depths.iter().enumerate() {
                let pruned = paths.is_some_and(|paths| self.is_pruned(paths.value(at)));
                if depth_min <= depth && depth <= depth_max && !pruned {
                    allowed.push(ordinal..ordinal + 1);
                }
                ordinal += 1;
            }
        }
        let (mut entries, mut dirs) = (Vec::new(), Vec::new());
        let bounds = merge_ranges(allowed);
        let heads = ListingHeads::first_rows(shard, listings)?;
        for range in bounds {
            let (some_entries, some_dirs) = heads.rows(&range);
            entries.push(some_entries);
            dirs.push(some_dirs);
        }
        Ok((merge_ranges(entries), merge_ranges(dirs)))
    }

    /// The actions of every row, if no test tells rows apart.
    fn constant(&self, empty_dirs: &FxHashSet<String>) -> Option<u64> {
        let mut tells_apart = self.find.expr.prunes();
        self.find.expr.each_test(&mut |test| tells_apart |= !matches!(test, Test::Always(_)));
        if tells_apart {
            return None;
        }
        let batch = single_row("", &self.start.inode);
        let rows = Rows { batch: &batch, dirs: true, shown: &[], paths: &[], empty_dirs, hits: &self.hits };
        Some(bits_of(&self.find.expr.evaluate(&rows, &self.find.actions), 0))
    }

    /// The rows of a unit on which actions are to be carried out.
    fn select(&self, unit: &Unit<'_>, empty_dirs: &FxHashSet<String>) -> Result<Selected> {
        let mut selected = Selected::default();
        if self.ruled_out(unit)? {
            return Ok(selected);
        }
        self.evaluate(unit, empty_dirs, |row, actions, _| {
            if actions != 0 {
                selected.push(row, actions);
            }
        })?;
        Ok(selected)
    }

    /// Whether the bounds of the unit's row group rule out every action.
    fn ruled_out(&self, unit: &Unit<'_>) -> Result<bool> {
        let mut columns: Vec<&str> = Vec::new();
        self.find.expr.each_test(&mut |test| columns.extend(test.columns()));
        let group = unit.rows.first().map_or(0, |rows| rows.start / canopy_index::schema::ROW_GROUP_ROWS);
        let mut bounds: FxHashMap<&str, Option<(i64, i64)>> = FxHashMap::default();
        for column in columns {
            let known = unit.shard.bounds(unit.kind, column)?;
            bounds.insert(column, known.get(group).copied().flatten());
        }
        Ok(!self.find.expr.may_act(&|column| bounds.get(column).copied().flatten()))
    }

    /// Evaluates the expression over a unit; `each` gets the number of a row, its actions, and whether it is
    /// pruned.
    fn evaluate(
        &self,
        unit: &Unit<'_>,
        empty_dirs: &FxHashSet<String>,
        mut each: impl FnMut(usize, u64, bool),
    ) -> Result<()> {
        let mut columns: Vec<&str> = Vec::new();
        let mut reads_path = false;
        self.find.expr.each_test(&mut |test| {
            columns.extend(test.columns());
            reads_path |= test.reads_path();
        });
        let mut numbers_of_rows = unit.rows.iter().cloned().flatten();
        let prefix = escape(&self.start.given).into_owned();
        for batch in unit.shard.read(unit.kind, &columns, &unit.rows, BATCH_ROWS)? {
            let batch = batch?;
            let paths = if reads_path { row_paths(unit.shard, &batch)? } else { Vec::new() };
            let shown: Vec<String> = paths.iter().map(|path| self.shown(&prefix, path)).collect();
            let rows = Rows {
                batch: &batch,
                dirs: unit.kind == FileKind::Dirs,
                shown: &shown,
                paths: &paths,
                empty_dirs,
                hits: &self.hits,
            };
            let reached = self.find.expr.evaluate(&rows, &self.find.actions);
            for (at, row) in numbers_of_rows.by_ref().take(batch.num_rows()).enumerate() {
                each(row, bits_of(&reached, at), reached.pruned.value(at));
            }
        }
        Ok(())
    }

    /// The path of an entry as it would be printed, escaped.
    fn shown(&self, prefix: &str, path: &str) -> String {
        let below = path.get(self.start.path.len()..).unwrap_or("").trim_start_matches('/');
        let slash = if prefix.ends_with('/') { "" } else { "/" };
        format!("{prefix}{slash}{below}")
    }
}

/// A bit for every action that row `at` has reached.
fn bits_of(reached: &Reached, at: usize) -> u64 {
    let actions = reached.actions.iter().enumerate();
    actions.fold(0, |bits, (number, rows)| bits | u64::from(rows.value(at)) << number)
}

pub(super) fn bad_ordinal(shard: &Shard, kind: FileKind) -> Error {
    shard.corrupt(kind, "it names a listing that does not exist").into()
}

/// The path in the source of each row of a batch that has `listing` and `name`.
fn row_paths(shard: &Shard, batch: &RecordBatch) -> Result<Vec<String>> {
    let listings = numbers::<UInt32Type>(batch, "listing").values();
    let heads = ListingHeads::read(shard, listings)?;
    let names = strings(batch, "name");
    let path = |at: usize| -> Result<String> {
        let head = heads.get(listings[at]).ok_or_else(|| bad_ordinal(shard, FileKind::Listings))?;
        Ok(join(head.path, names.value(at)))
    };
    (0..batch.num_rows()).map(path).collect()
}

/// A batch with all columns that a test may read, for one inode.
fn single_row(name: &str, inode: &Inode) -> RecordBatch {
    let u32 = |value: u32| Arc::new(UInt32Array::from(vec![value])) as ArrayRef;
    let i64 = |value: i64| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    let time = |value: i64| Arc::new(TimestampNanosecondArray::from(vec![value])) as ArrayRef;
    let a = &inode.attributes;
    let columns: [ArrayRef; 12] = [
        Arc::new(UInt64Array::from(vec![a.ino])),
        u32(a.mode),
        u32(a.nlink),
        u32(a.uid),
        u32(a.gid),
        i64(a.size_bytes),
        u32(a.blksize_bytes),
        i64(a.blocks),
        time(a.atime_ns),
        time(a.mtime_ns),
        time(a.ctime_ns),
        time(a.btime_ns),
    ];
    let name: ArrayRef = Arc::new(StringArray::from(vec![name]));
    let xattrs = Some(inode.xattrs.as_str()).filter(|names| !names.is_empty());
    let xattrs: ArrayRef = Arc::new(StringArray::from(vec![xattrs]));
    let named = INODE.into_iter().zip(columns).chain([("name", name), ("xattrs", xattrs)]);
    let named = named.map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(named).expect("all columns have one row")
}

/// The paths that pass each test of extended attributes for which names in the listing are not enough.
fn xattr_hits(find: &Find, start: &Start) -> Result<Vec<FxHashSet<String>>> {
    let mut tests: Vec<&XattrTest> = Vec::new();
    find.expr.each_test(&mut |test| {
        if let Test::Xattr(test) = test {
            tests.push(test);
        }
    });
    tests.sort_by_key(|test| test.number);
    let mut hits = vec![FxHashSet::default(); tests.len()];
    if tests.iter().any(|test| test.reads_values()) {
        for shard in start.view.shards_of(start.source.id) {
            for batch in read_xattrs(shard)? {
                let batch = batch?;
                let [paths, names, keys, values] =
                    ["path", "name", "key", "value"].map(|name| strings(&batch, name));
                for at in 0..batch.num_rows() {
                    for test in tests.iter().filter(|test| test.holds(keys.value(at), values.value(at))) {
                        let path = join(paths.value(at), names.value(at));
                        hits[test.number].insert(path);
                    }
                }
            }
        }
        for (key, value) in xattrs_of(&start.view, &start.source, &start.path)? {
            for test in tests.iter().filter(|test| test.holds(&key, &value)) {
                hits[test.number].insert(start.path.clone());
            }
        }
    }
    Ok(hits)
}

fn trim_slashes(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|&byte| byte != b'/').map_or(name.len().min(1), |at| at + 1);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_searched_without_its_slashes() {
        for (path, name) in
            [(&b"/"[..], &b"/"[..]), (b"//", b"/"), (b"a/b/", b"b"), (b".", b"."), (b"a", b"a")]
        {
            assert_eq!(trim_slashes(file_name(path)), name);
        }
    }
}

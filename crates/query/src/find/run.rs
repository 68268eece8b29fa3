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

use super::action::Action;
use super::chunk::{Chunk, Places, shown, single_row};
use super::expr::{Expr, Reached};
use super::gather::gather;
use super::known::Known;
use super::links::{Links, Place};
use super::parse::Find;
use super::print::{Printer, Selected};
use super::rows::Batch;
use super::stage::Stage;
use crate::columns::numbers;
use crate::error::{Error, Result};
use crate::listings::{ListingHeads, merge_ranges};
use crate::locate::{Start, device_of, locate, to_path};
use crate::work::in_parallel;
use arrow::array::AsArray;
use arrow::datatypes::{UInt32Type, UInt64Type};
use canopy_index::{FileKind, Index, RowRange, Shard};
use canopy_model::{FileType, compare_paths, escape};
use std::cell::Cell;
use std::ffi::OsStr;
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
    /// Tells people what could not be done.
    pub tell: fn(&str),
}

/// How a find has ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// The start paths that could not be answered.
    pub failed: Vec<Error>,
    /// Whether anything else could not be done, which has been told.
    pub partial: bool,
}

/// A start with what is known of its subtree.
pub(super) struct Visit {
    /// Its place among the starts.
    pub(super) number: usize,
    /// Whether a symbolic link leads to it, which is followed.
    pub(super) via_link: bool,
    pub(super) start: Start,
    pub(super) known: Known,
}

/// Carries a find out and writes what its actions print. Errors but those of single starts and commands end it. Blocks.
pub fn run(
    index: &Index,
    find: &Find,
    options: RunOptions,
    output: &mut (dyn Write + Send),
) -> Result<Ended> {
    let mut ended = Ended::default();
    let mut visits = Vec::new();
    for (number, given) in find.starts.iter().enumerate() {
        match start_at(index, find, given, options) {
            Ok((start, via_link, unknown)) => {
                ended.partial |= unknown;
                visits.push(Visit { number, via_link, known: gather(find, &start)?, start });
            }
            Err(error @ (Error::NotCovered { .. } | Error::NotFound(_))) => ended.failed.push(error),
            Err(error) => return Err(error),
        }
    }
    let stage = Stage::new(find, options, output);
    for visit in &visits {
        Search { find, options, visit, start: &visit.start, pruned: Vec::new(), stage: &stage }.run()?;
    }
    ended.partial |= stage.finish()?;
    for visit in &visits {
        let problems = visit.known.problems.lock().expect("no thread panics while it holds the lock");
        let mut problems: Vec<&String> = problems.values().collect();
        problems.sort();
        problems.iter().for_each(|problem| (options.tell)(problem));
        ended.partial |= !problems.is_empty();
    }
    Ok(ended)
}

/// The start at a path; with `-H`, where it leads. Also whether that is unknown.
fn start_at(index: &Index, find: &Find, given: &OsStr, options: RunOptions) -> Result<(Start, bool, bool)> {
    let start = locate(index, given)?;
    if !find.globals.follow_starts || start.inode.attributes.file_type() != FileType::Symlink {
        return Ok((start, false, false));
    }
    let links = Links::new(start.view.clone(), start.source.clone());
    match links.follow(&start.path, &start.inode.target) {
        Place::There(reached) => {
            let there = locate(index, to_path(&reached.absolute).as_os_str())?;
            Ok((Start { given: start.given, ..there }, true, false))
        }
        Place::Missing | Place::Loop => Ok((start, false, false)),
        Place::Unknown => {
            let given = given.to_string_lossy();
            (options.tell)(&format!("-H: the index does not know where ‘{given}’ leads"));
            Ok((start, false, true))
        }
    }
}

struct Search<'s, 'a> {
    find: &'a Find,
    options: RunOptions,
    visit: &'a Visit,
    start: &'a Start,
    /// Directories below which nothing is looked at, in path order.
    pruned: Vec<String>,
    stage: &'s Stage<'a>,
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

impl Search<'_, '_> {
    fn run(mut self) -> Result<()> {
        let globals = &self.find.globals;
        let pruned = self.visit_start()?;
        if pruned || !self.start.is_dir() || globals.depth_max == 0 || self.stage.is_done() {
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
            self.pruned = self.find_pruned(&shards)?;
        }
        let device = if globals.one_file_system { self.device()? } else { None };
        let units: Vec<Unit<'_>> = shards
            .iter()
            .map(|(shard, listings)| self.units(shard, listings, device))
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect();
        let printer =
            Printer { find: self.find, start: self.start, options: self.options, stage: self.stage };
        in_parallel(self.options.threads, &units, |unit| {
            if self.stage.is_done() {
                return Ok(());
            }
            let selected = self.select(unit)?;
            if self.stage.counts_only() {
                self.stage.count(selected.acting_rows());
            } else if self.stage.is_careful() {
                self.hand_over(unit, &selected)?;
            } else {
                printer.print(unit, &selected)?;
            }
            unit.close();
            Ok(())
        })
    }

    /// Gives the selected rows of a unit to the stage, with all columns that tests and actions ask for.
    fn hand_over(&self, unit: &Unit<'_>, selected: &Selected) -> Result<()> {
        if selected.is_empty() {
            return Ok(());
        }
        let mut columns: Vec<&str> = self.find.actions.iter().flat_map(Action::columns).collect();
        self.find.expr.each_test(&mut |test| columns.extend(test.columns()));
        columns.extend(self.stage.order_column());
        columns.extend(["listing", "name"]);
        columns.sort_unstable();
        columns.dedup();
        for batch in unit.shard.read(unit.kind, &columns, &selected.ranges, BATCH_ROWS)? {
            if self.stage.is_done() {
                break;
            }
            self.stage.take(Chunk::below(self.visit, unit.shard, unit.kind, batch?)?)?;
        }
        Ok(())
    }

    /// Evaluates the expression on the start itself. Returns whether it is pruned.
    fn visit_start(&self) -> Result<bool> {
        let chunk = Chunk::of_start(self.visit);
        let reached = self.find.expr.evaluate(&chunk.rows(), &self.find.actions);
        let pruned = reached.pruned.value(0) && self.find.globals.depth_min == 0;
        let bits = bits_of(&reached, 0);
        if self.find.globals.depth_min == 0 && bits != 0 {
            match self.stage.counts_only() {
                true => self.stage.count(1),
                false => self.stage.take(chunk)?,
            }
        }
        Ok(pruned)
    }

    /// The device of the start directory's own listing, which is not that of its parent's where something is mounted.
    fn device(&self) -> Result<Option<u64>> {
        for shard in self.start.view.shards_of(self.start.source.id) {
            let listings = shard.listings_at(&self.start.path)?;
            if !listings.is_empty() {
                return Ok(Some(device_of(shard, listings.start)?));
            }
        }
        Ok(None)
    }

    /// The directories at which the expression prunes, in path order.
    fn find_pruned(&self, shards: &[(Arc<Shard>, RowRange)]) -> Result<Vec<String>> {
        let pruned = Mutex::new(Vec::new());
        in_parallel(self.options.threads, shards, |(shard, listings)| {
            let (_, dirs) = shard.rows_of(listings.clone())?;
            if dirs.is_empty() {
                return Ok(());
            }
            let unit = Unit { shard, kind: FileKind::Dirs, rows: vec![dirs] };
            let mut rows = Selected::default();
            self.evaluate(&self.find.expr, &unit, |row, _, pruned| {
                if pruned {
                    rows.push(row, 0);
                }
            })?;
            let mut found = Vec::new();
            if !rows.is_empty() {
                for batch in shard.read(FileKind::Dirs, &["listing", "name"], &rows.ranges, BATCH_ROWS)? {
                    // Nothing is evaluated on what is too near.
                    let depth = |path: &String| path.split('/').count() as u32 - self.start.depth();
                    let paths = Places::of(shard, &batch?)?.paths.into_iter();
                    found.extend(paths.filter(|path| depth(path) >= self.find.globals.depth_min));
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
    fn units<'s>(&self, shard: &'s Shard, listings: &RowRange, device: Option<u64>) -> Result<Vec<Unit<'s>>> {
        let (entries, dirs) = self.allowed_rows(shard, listings, device)?;
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

    fn allowed_rows(
        &self,
        shard: &Shard,
        listings: &RowRange,
        device: Option<u64>,
    ) -> Result<(Vec<RowRange>, Vec<RowRange>)> {
        let find = &self.find.globals;
        // An entry is one level below its listing.
        let start = self.start.depth();
        let depth_min = find.depth_min.saturating_add(start).saturating_sub(1);
        let depth_max = find.depth_max.saturating_add(start).saturating_sub(1);
        if find.depth_min <= 1 && depth_max >= u32::MAX - 1 && self.pruned.is_empty() && device.is_none() {
            let (entries, dirs) = shard.rows_of(listings.clone())?;
            return Ok((vec![entries], vec![dirs]));
        }
        let mut columns = vec!["depth"];
        if !self.pruned.is_empty() {
            columns.push("path");
        }
        if device.is_some() {
            columns.push("dev");
        }
        let mut allowed: Vec<RowRange> = Vec::new();
        let mut ordinal = listings.start;
        for batch in shard.read(FileKind::Listings, &columns, std::slice::from_ref(listings), BATCH_ROWS)? {
            let batch = batch?;
            let depths = numbers::<UInt32Type>(&batch, "depth").values();
            let paths = batch.column_by_name("path").map(|column| column.as_string::<i32>());
            let devs = batch.column_by_name("dev").map(|column| column.as_primitive::<UInt64Type>());
            for (at, &depth) in depths.iter().enumerate() {
                let pruned = paths.is_some_and(|paths| self.is_pruned(paths.value(at)));
                let here = device.is_none_or(|device| devs.is_some_and(|devs| devs.value(at) == device));
                if depth_min <= depth && depth <= depth_max && !pruned && here {
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

    /// The actions of every row that is told of by an expression without tests.
    fn constant(&self, expr: &Expr) -> u64 {
        let batch = single_row("", &self.start.inode);
        let rows = Batch {
            batch: &batch,
            dirs: true,
            via_link: false,
            shown: &[],
            paths: &[],
            devs: &[],
            known: &self.visit.known,
        };
        bits_of(&expr.evaluate(&rows, &self.find.actions), 0)
    }

    /// The rows of a unit on which actions are to be carried out.
    fn select(&self, unit: &Unit<'_>) -> Result<Selected> {
        let mut selected = Selected::default();
        let expr = self.told(unit)?;
        if !expr.acts() {
            return Ok(selected);
        }
        if expr.is_constant() {
            return Ok(Selected::all(&unit.rows, self.constant(&expr)));
        }
        self.evaluate(&expr, unit, |row, actions, _| {
            if actions != 0 {
                selected.push(row, actions);
            }
        })?;
        Ok(selected)
    }

    /// What is left of the expression for a unit: by what kind of rows it has and, if that does not settle it, by the bounds
    /// of its row group.
    fn told(&self, unit: &Unit<'_>) -> Result<Expr> {
        let dirs = unit.kind == FileKind::Dirs;
        let expr = self.find.expr.told(&|test| test.may_be(dirs, &|_| None));
        if !expr.acts() || expr.is_constant() {
            return Ok(expr);
        }
        let group = unit.rows.first().map_or(0, |rows| rows.start / canopy_index::schema::ROW_GROUP_ROWS);
        let failed = Cell::new(None);
        let bounds = |column: &str| match unit.shard.bounds(unit.kind, column) {
            Ok(known) => known.get(group).copied().flatten(),
            Err(error) => {
                failed.set(Some(error));
                None
            }
        };
        let expr = expr.told(&|test| test.may_be(dirs, &bounds));
        failed.take().map_or(Ok(expr), |error| Err(error.into()))
    }

    /// Evaluates the expression over a unit; `each` gets the number of a row, its actions, and whether it is
    /// pruned.
    fn evaluate(&self, expr: &Expr, unit: &Unit<'_>, mut each: impl FnMut(usize, u64, bool)) -> Result<()> {
        let mut columns: Vec<&str> = Vec::new();
        let mut reads_path = false;
        expr.each_test(&mut |test| {
            columns.extend(test.columns());
            reads_path |= test.reads_path();
        });
        let mut numbers_of_rows = unit.rows.iter().cloned().flatten();
        let prefix = escape(&self.start.given).into_owned();
        for batch in unit.shard.read(unit.kind, &columns, &unit.rows, BATCH_ROWS)? {
            let batch = batch?;
            let Places { paths, devs, .. } =
                if reads_path { Places::of(unit.shard, &batch)? } else { Places::default() };
            let shown: Vec<String> = paths.iter().map(|path| shown(self.start, &prefix, path)).collect();
            let rows = Batch {
                batch: &batch,
                dirs: unit.kind == FileKind::Dirs,
                via_link: false,
                shown: &shown,
                paths: &paths,
                devs: &devs,
                known: &self.visit.known,
            };
            let reached = expr.evaluate(&rows, &self.find.actions);
            for (at, row) in numbers_of_rows.by_ref().take(batch.num_rows()).enumerate() {
                each(row, bits_of(&reached, at), reached.pruned.value(at));
            }
        }
        Ok(())
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

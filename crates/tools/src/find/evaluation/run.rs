//! Carries a find out.
//!
//! For each start path:
//! 1. Look the start up in the listing of its parent, and evaluate the expression on it alone.
//! 2. Take the shards whose covers touch the subtree; narrow each to its range of listings, and by
//!    `-maxdepth`, `-mindepth` and `-prune` to parts of that range.
//! 3. Cut the rows at row groups into units of work, for all threads to take from; skip a row group
//!    whose bounds rule out every action.
//! 4. In a unit, read only the columns that tests ask for and evaluate the expression; then read
//!    the names, paths and printed columns of the rows that are left, and write them out as one
//!    block.

use super::action::Action;
use super::chunk::{Chunk, Places, shown};
use super::expr::{Expr, Reached};
use super::parse::Find;
use super::print::{Printer, Selected};
use super::rows::Batch;
use super::stage::Stage;
use super::visit::{Visit, start_at};
use crate::error::{Error, Result};
use arrow::array::{AsArray, RecordBatch, StringBuilder};
use arrow::datatypes::{UInt32Type, UInt64Type};
use canopy_index::{FileKind, Index, RowRange, Shard};
use canopy_model::{FileType, compare_paths, escape};
use canopy_read::columns::{numbers, row_of};
use canopy_read::listings::{ListingHeads, merge_ranges};
use canopy_read::locate::Start;
use canopy_read::work::in_parallel;
use std::cell::Cell;
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

/// Carries a find out and writes what its actions print. Errors but those of single starts and
/// commands end it. Blocks.
pub fn run(
    index: &Index,
    find: &Find,
    options: RunOptions,
    output: &mut (dyn Write + Send),
) -> Result<Ended> {
    let mut ended = Ended::default();
    let mut visits: Vec<Arc<Visit>> = Vec::new();
    for (number, given) in find.starts.iter().enumerate() {
        match start_at(index, find, number, given, options) {
            Ok((visit, unknown)) => {
                ended.partial |= unknown;
                visits.extend(visit.map(Arc::new));
            }
            Err(error) if error.is_of_path() => ended.failed.push(error),
            Err(error) => return Err(error),
        }
    }
    let stage = Stage::new(find, options, output);
    let mut next = 0;
    while let Some(visit) = visits.get(next).cloned() {
        next += 1;
        visits.extend(Search::new(find, options, &visit, &stage).run()?);
    }
    ended.partial |= stage.finish()?;
    for visit in &visits {
        let told = visit.known.told();
        told.iter().for_each(|problem| (options.tell)(problem));
        ended.partial |= !told.is_empty();
    }
    Ok(ended)
}

pub(super) struct Search<'s, 'a> {
    pub(super) find: &'a Find,
    pub(super) options: RunOptions,
    pub(super) visit: &'s Arc<Visit>,
    pub(super) start: &'s Start,
    /// Directories below which nothing is looked at, in path order.
    pub(super) pruned: Vec<String>,
    pub(super) stage: &'s Stage<'a>,
    /// With `-L`: what links lead to, which is visited next.
    pub(super) followed: Mutex<Vec<Arc<Visit>>>,
}

/// Rows of one file of a shard, within one row group.
pub(super) struct Unit<'a> {
    pub(super) shard: &'a Shard,
    pub(super) kind: FileKind,
    pub(super) rows: Vec<RowRange>,
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

impl<'s, 'a> Search<'s, 'a> {
    fn new(
        find: &'a Find,
        options: RunOptions,
        visit: &'s Arc<Visit>,
        stage: &'s Stage<'a>,
    ) -> Self {
        let start = &visit.start;
        Search {
            find,
            options,
            visit,
            start,
            pruned: Vec::new(),
            stage,
            followed: Mutex::default(),
        }
    }

    /// Searches, and gives what links lead to that are followed.
    fn run(mut self) -> Result<Vec<Arc<Visit>>> {
        let pruned = self.visit_start()?;
        let below = self.start.is_dir() && self.find.globals.depth_max > self.visit.depth;
        if below && !pruned && !self.stage.is_done() {
            self.search_below()?;
        }
        Ok(self.followed.into_inner().expect("no thread panics while it holds the lock"))
    }

    fn search_below(&mut self) -> Result<()> {
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
        self.leave_out_loops();
        let units = |near: bool| -> Result<Vec<Unit<'_>>> {
            let units = shards.iter().map(|(shard, listings)| self.units(shard, listings, near));
            Ok(units.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
        };
        if self.find.globals.follow_all {
            let links = units(true)?;
            in_parallel(self.options.threads, &links, |unit| self.follow_links(unit))?;
        }
        let units = units(false)?;
        let (find, options, stage) = (self.find, self.options, self.stage);
        let printer = Printer { find, visit: self.visit, options, stage };
        in_parallel(self.options.threads, &units, |unit| -> Result<()> {
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

    /// Gives the selected rows of a unit to the stage, with all columns that tests and actions ask
    /// for.
    fn hand_over(&self, unit: &Unit<'_>, selected: &Selected) -> Result<()> {
        if selected.is_empty() {
            return Ok(());
        }
        let mut columns: Vec<&str> = self.find.actions.iter().flat_map(Action::columns).collect();
        let dirs = unit.kind == FileKind::Dirs;
        self.find.expr.each_test(&mut |test| columns.extend(test.columns(dirs)));
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
        let near = self.visit.depth < self.find.globals.depth_min;
        let pruned = self.act_alone(Chunk::of_start(self.visit), near)?;
        Ok(pruned && !near)
    }

    /// Evaluates the expression on the only row of a chunk and acts on it, unless it is too near.
    /// Returns whether it is pruned.
    pub(super) fn act_alone(&self, chunk: Chunk, near: bool) -> Result<bool> {
        let reached = self.find.expr.evaluate(&chunk.rows(), &self.find.actions);
        let pruned = reached.pruned.value(0);
        if !near && bits_of(&reached, 0) != 0 {
            match self.stage.counts_only() {
                true => self.stage.count(1),
                false => self.stage.take(chunk)?,
            }
        }
        Ok(pruned)
    }

    /// The directories at which the expression prunes, in path order.
    fn find_pruned(&self, shards: &[(Arc<Shard>, RowRange)]) -> Result<Vec<String>> {
        let pruned = Mutex::new(Vec::new());
        in_parallel(self.options.threads, shards, |(shard, listings)| -> Result<()> {
            let (_, dirs) = shard.rows_of(listings.clone())?;
            if dirs.is_empty() {
                return Ok(());
            }
            let unit = Unit { shard, kind: FileKind::Dirs, rows: vec![dirs] };
            let mut rows = Selected::default();
            self.evaluate(&self.find.expr, &unit, |_, hits| {
                hits.iter().filter(|hit| hit.pruned).for_each(|hit| rows.push(hit.row, 0));
            })?;
            let mut found = Vec::new();
            if !rows.is_empty() {
                for batch in
                    shard.read(FileKind::Dirs, &["listing", "name"], &rows.ranges, BATCH_ROWS)?
                {
                    // Nothing is evaluated on what is too near.
                    let depth = |path: &String| {
                        path.split('/').count() as u32 - self.start.depth() + self.visit.depth
                    };
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

    pub(super) fn is_pruned(&self, path: &str) -> bool {
        // Of the pruned directories above a path, the highest comes first; every one in between is
        // below it.
        let end = self.pruned.partition_point(|pruned| compare_paths(pruned, path).is_le());
        let mut above = Some(path);
        while let Some(directory) = above {
            if self.pruned[..end]
                .binary_search_by(|pruned| compare_paths(pruned, directory))
                .is_ok()
            {
                return true;
            }
            above = canopy_model::parent(directory);
        }
        false
    }

    /// The units of a shard: its rows below the start, less those too near (unless asked for), too
    /// far or pruned, cut at row groups.
    fn units<'u>(
        &self,
        shard: &'u Shard,
        listings: &RowRange,
        near: bool,
    ) -> Result<Vec<Unit<'u>>> {
        let (entries, dirs) = self.allowed_rows(shard, listings, near)?;
        let mut units = Vec::new();
        for (kind, rows) in [(FileKind::Dirs, dirs), (FileKind::Entries, entries)] {
            for group in shard.row_groups(kind) {
                let clip =
                    |range: &RowRange| range.start.max(group.start)..range.end.min(group.end);
                let rows: Vec<RowRange> =
                    rows.iter().map(clip).filter(|range| !range.is_empty()).collect();
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
        near: bool,
    ) -> Result<(Vec<RowRange>, Vec<RowRange>)> {
        let (find, device) = (&self.find.globals, self.visit.device);
        // An entry is one level below its listing.
        let (start, above) = (self.start.depth(), self.visit.depth + 1);
        let depth_min = if near { 0 } else { find.depth_min };
        let depth_min = depth_min.saturating_add(start).saturating_sub(above);
        let depth_max = find.depth_max.saturating_add(start).saturating_sub(above);
        if depth_min <= start
            && find.depth_max == u32::MAX
            && self.pruned.is_empty()
            && device.is_none()
        {
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
        for batch in
            shard.read(FileKind::Listings, &columns, std::slice::from_ref(listings), BATCH_ROWS)?
        {
            let batch = batch?;
            let depths = numbers::<UInt32Type>(&batch, "depth").values();
            let paths = batch.column_by_name("path").map(|column| column.as_string::<i32>());
            let devs =
                batch.column_by_name("dev").map(|column| column.as_primitive::<UInt64Type>());
            for (at, &depth) in depths.iter().enumerate() {
                let pruned = paths.is_some_and(|paths| self.is_pruned(paths.value(at)));
                let here =
                    device.is_none_or(|device| devs.is_some_and(|devs| devs.value(at) == device));
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
        let batch = row_of("", &self.start.inode);
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
        // Links that are followed are left out one by one.
        if expr.is_constant() && !self.find.globals.follow_all {
            return Ok(Selected::all(&unit.rows, self.constant(&expr)));
        }
        // Only what prints rows as they are found has use for names.
        let prints = !self.stage.counts_only() && !self.stage.is_careful();
        let mut names = StringBuilder::new();
        let mut has_names = false;
        self.evaluate(&expr, unit, |batch, hits| {
            let column = batch.column_by_name("name").filter(|_| prints);
            let column = column.map(|column| column.as_string::<i32>());
            has_names = column.is_some();
            for hit in hits.iter().filter(|hit| hit.actions != 0) {
                selected.push(hit.row, hit.actions);
                if let Some(column) = column {
                    names.append_value(column.value(hit.at));
                }
            }
        })?;
        selected.names = has_names.then(|| names.finish());
        Ok(selected)
    }

    /// What is left of the expression for a unit: by what kind of rows it has and, if that does not
    /// settle it, by the bounds of its row group.
    fn told(&self, unit: &Unit<'_>) -> Result<Expr> {
        let dirs = unit.kind == FileKind::Dirs;
        let expr = self.find.expr.told(&|test| test.may_be(dirs, &|_| None));
        if !expr.acts() || expr.is_constant() {
            return Ok(expr);
        }
        let group =
            unit.rows.first().map_or(0, |rows| rows.start / canopy_index::schema::ROW_GROUP_ROWS);
        let failed = Cell::new(None);
        let bounds = |column: &str| match unit
            .shard
            .bounds(unit.kind, canopy_index::ColumnId::named(column).expect("a column"))
        {
            Ok(known) => known.get(group).copied().flatten(),
            Err(error) => {
                failed.set(Some(error));
                None
            }
        };
        let expr = expr.told(&|test| test.may_be(dirs, &bounds));
        failed.take().map_or(Ok(expr), |error| Err(error.into()))
    }

    /// Evaluates the expression over a unit; `each` gets batches with the rows of each in which
    /// anything was reached.
    fn evaluate(
        &self,
        expr: &Expr,
        unit: &Unit<'_>,
        mut each: impl FnMut(&RecordBatch, &[Hit]),
    ) -> Result<()> {
        let mut columns: Vec<&str> = Vec::new();
        let dirs = unit.kind == FileKind::Dirs;
        expr.each_test(&mut |test| columns.extend(test.columns(dirs)));
        let skips_links = self.find.globals.follow_all && !dirs;
        if skips_links {
            columns.push("mode");
        }
        let loops = if dirs { &self.visit.loops[..] } else { &[] };
        if !loops.is_empty() {
            columns.extend(["listing", "name"]);
        }
        // Who asks for the path of a row reads its listing.
        let reads_path = columns.contains(&"listing");
        let mut hits = Vec::new();
        let (mut range, mut passed) = (0, 0);
        let mut before = 0;
        let prefix = escape(&self.start.given).into_owned();
        for batch in unit.shard.read(unit.kind, &columns, &unit.rows, BATCH_ROWS)? {
            let batch = batch?;
            let Places { paths, devs, .. } =
                if reads_path { Places::of(unit.shard, &batch)? } else { Places::default() };
            let shown: Vec<String> =
                paths.iter().map(|path| shown(self.start, &prefix, path)).collect();
            let rows = Batch {
                batch: &batch,
                dirs,
                via_link: false,
                shown: &shown,
                paths: &paths,
                devs: &devs,
                known: &self.visit.known,
            };
            let reached = expr.evaluate(&rows, &self.find.actions);
            hits.clear();
            for at in reached.any().set_indices() {
                let is_loop = loops.iter().any(|(path, _)| *path == paths[at]);
                if is_loop || (skips_links && is_link(&batch, at)) {
                    continue;
                }
                while before + at >= passed + unit.rows[range].len() {
                    passed += unit.rows[range].len();
                    range += 1;
                }
                let row = unit.rows[range].start + (before + at - passed);
                hits.push(Hit {
                    at,
                    row,
                    actions: bits_of(&reached, at),
                    pruned: reached.pruned.value(at),
                });
            }
            before += batch.num_rows();
            each(&batch, &hits);
        }
        Ok(())
    }
}

/// A row in which anything was reached.
struct Hit {
    /// Its place in the batch.
    at: usize,
    /// Its number in the file.
    row: usize,
    /// A bit for every action.
    actions: u64,
    pruned: bool,
}

/// Whether a row, which has a mode, is a symbolic link.
pub(super) fn is_link(batch: &RecordBatch, at: usize) -> bool {
    FileType::of_mode(numbers::<UInt32Type>(batch, "mode").value(at)) == FileType::Symlink
}

/// A bit for every action that row `at` has reached.
fn bits_of(reached: &Reached, at: usize) -> u64 {
    let actions = reached.actions.iter().enumerate();
    actions.fold(0, |bits, (number, rows)| bits | u64::from(rows.value(at)) << number)
}

pub(super) fn bad_ordinal(shard: &Shard, kind: FileKind) -> Error {
    shard.corrupt(kind, "it names a listing that does not exist").into()
}

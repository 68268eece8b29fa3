//! Carries a find out.
//!
//! For each start path:
//! 1. Look the start up in the listing of its parent, and evaluate the expression on it alone.
//! 2. Take the shards with listings below it (`canopy_read::plan`); narrow each to the rows that
//!    `-maxdepth`, `-mindepth`, `-xdev` and `-prune` leave (`ranges`), cut at row groups into units
//!    of work for all threads to take from.
//! 3. In a unit, read only the columns of tests that bounds do not settle and evaluate the
//!    expression (`select`); then read the names, paths and printed columns of the rows that are
//!    left, and write them out as one block (`actions`).

use super::chunk::{Chunk, ChunkRow};
use super::outside::Outside;
use super::select::Selected;
use super::visit::{Visit, start_at};
use crate::error::{Error, Result, found_or_failed};
use crate::find::actions::{ActionSink, Printer, SortField, SortKey, Sortable, may_precede};
use crate::find::language::Find;
use canopy_index::column::NAME;
use canopy_index::{FileKind, Index, RowRange};
use canopy_model::SourcePathBuf;
use canopy_read::inode::{InodeColumns, text_or_empty};
use canopy_read::locate::Start;
use canopy_read::plan::{Unit, below, push_row};
use canopy_read::resolve::locate_all;
use canopy_read::work::in_parallel;
use parking_lot::Mutex;
use std::io::Write;
use std::sync::Arc;

/// How to carry a find out.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// How many threads read.
    pub threads: usize,
    /// Whether the output is a terminal, which control characters would disturb.
    pub terminal: bool,
    /// The current time, in nanoseconds since 1970.
    pub now_ns: i64,
    /// Whether directories that could not be listed when the caller indexed them are diagnosed.
    pub reports_unlisted: bool,
    /// Is called with each diagnostic: what could not be done.
    pub diagnostic: fn(&str),
}

/// How a find has ended.
#[derive(Debug, Default)]
pub struct FindOutcome {
    /// The start paths that could not be answered.
    pub failed: Vec<Error>,
    /// Whether anything else could not be done, of which there was a diagnostic.
    pub partial: bool,
}

/// Carries a find out and writes what its actions print. Errors but those of single starts and
/// commands end it. Blocks.
pub fn run(
    index: &Index,
    find: &Find,
    options: RunOptions,
    output: &mut (dyn Write + Send),
) -> Result<FindOutcome> {
    let mut outcome = FindOutcome::default();
    let mut visits: Vec<Arc<Visit>> = Vec::new();
    let outside = Arc::new(Outside::default());
    for (number, given) in find.starts.iter().enumerate() {
        let found = locate_all(index, given);
        let starts = found_or_failed(found, &mut outcome.failed, Error::of_start)?;
        for start in starts.into_iter().flatten() {
            match start_at(index, find, number, start, &outside, options) {
                Ok((visit, diagnosed)) => {
                    outcome.partial |= diagnosed;
                    visits.extend(visit.map(Arc::new));
                }
                Err(error) if error.is_of_path() => outcome.failed.push(error),
                Err(error) => return Err(error),
            }
        }
    }
    let sink = ActionSink::new(find, options, output);
    let mut next = 0;
    while let Some(visit) = visits.get(next).cloned() {
        next += 1;
        visits.extend(Search::new(&visit, &sink).run()?);
    }
    outcome.partial |= sink.finish()?;
    for visit in &visits {
        let diagnostics = visit.facts.diagnostics();
        diagnostics.iter().for_each(|text| (options.diagnostic)(text));
        outcome.partial |= !diagnostics.is_empty();
    }
    outside.remarks().iter().for_each(|text| (options.diagnostic)(text));
    Ok(outcome)
}

/// The search of one visit.
pub(super) struct Search<'s, 'a> {
    pub(super) find: &'a Find,
    pub(super) visit: &'s Arc<Visit>,
    pub(super) start: &'s Start,
    /// Directories below which nothing is looked at, in path order.
    pub(super) pruned: Vec<SourcePathBuf>,
    pub(super) sink: &'s ActionSink<'a>,
    /// With `-L`: what links lead to, which is visited next.
    pub(super) followed: Mutex<Vec<Arc<Visit>>>,
}

impl<'s, 'a> Search<'s, 'a> {
    fn new(visit: &'s Arc<Visit>, sink: &'s ActionSink<'a>) -> Self {
        let (find, start) = (sink.find, &visit.start);
        Search { find, visit, start, pruned: Vec::new(), sink, followed: Mutex::default() }
    }

    /// Searches, and returns what links lead to that are followed.
    fn run(mut self) -> Result<Vec<Arc<Visit>>> {
        let pruned = self.visit_start()?;
        let below = self.start.is_dir() && self.find.globals.depth_max > self.visit.depth;
        if below && !pruned && !self.sink.is_done() {
            self.search_below()?;
        }
        Ok(self.followed.into_inner())
    }

    fn search_below(&mut self) -> Result<()> {
        let ranges = below(&self.start.view, self.start.source.id, self.start.path.as_path())?;
        let threads = self.sink.options.threads;
        if self.find.expr.prunes() {
            self.pruned = self.find_pruned(threads, &ranges)?;
        }
        self.leave_out_loops();
        if self.sink.options.reports_unlisted {
            self.note_unlisted()?;
        }
        if self.find.globals.follow_all {
            in_parallel(threads, &self.units(&ranges, true)?, |unit| self.follow_links(unit))?;
        }
        let printer = Printer::new(self.visit, self.sink);
        in_parallel(threads, &self.units(&ranges, false)?, |unit| -> Result<()> {
            if self.sink.is_done() || self.is_behind(unit)? {
                return Ok(());
            }
            let selected = self.select(unit)?;
            if self.sink.counts_only() {
                self.sink.count(selected.acting_rows());
            } else if self.sink.is_sequential() {
                self.hand_over(unit, &selected)?;
            } else {
                printer.print(unit, &selected)?;
            }
            unit.close();
            Ok(())
        })
    }

    /// Gives the selected rows of a unit to the sink, with all columns that tests and actions ask
    /// for.
    fn hand_over(&self, unit: &Unit, selected: &Selected) -> Result<()> {
        if selected.acting_rows() == 0 {
            return Ok(());
        }
        let ranges = self.leading(unit, &selected.ranges)?;
        if ranges.is_empty() {
            return Ok(());
        }
        let columns = self.sink.columns(unit.kind == FileKind::Dirs);
        for placed in unit.read_placed(columns, &ranges, true)? {
            if self.sink.is_done() {
                break;
            }
            self.sink.take(Chunk::below(self.visit, unit, placed?)?)?;
        }
        Ok(())
    }

    /// Returns whether all rows of a unit are behind the last one that may be acted on.
    fn is_behind(&self, unit: &Unit) -> Result<bool> {
        let globals = &self.find.globals;
        let (Some(field @ SortField::Attribute(column)), Some(last)) =
            (&globals.sort, self.sink.last_held())
        else {
            return Ok(false);
        };
        let last = ChunkRow { chunk: &last, at: 0 };
        let last = last.key(field);
        Ok(unit.bounds(*column)?.is_some_and(|(low, high)| {
            let best = if globals.reverse { high } else { low };
            !may_precede(&SortKey::Number(best), &last, globals)
        }))
    }

    /// Returns those of some rows of a unit that may be before the last one that may be acted on,
    /// as far as what they are sorted by can be read without their paths.
    fn leading(&self, unit: &Unit, ranges: &[RowRange]) -> Result<Vec<RowRange>> {
        let globals = &self.find.globals;
        let field = globals.sort.as_ref().filter(|field| !field.columns().is_empty());
        let (Some(field), Some(last)) = (field, self.sink.last_held()) else {
            return Ok(ranges.to_vec());
        };
        let last = ChunkRow { chunk: &last, at: 0 };
        let last = last.key(field);
        let mut rows = ranges.iter().cloned().flatten();
        let mut leading = Vec::new();
        for batch in unit.read_rows(field.columns(), ranges)? {
            let batch = batch?;
            let (names, inodes) = (NAME.find(&batch), InodeColumns::of(&batch));
            for at in 0..batch.num_rows() {
                let key = field.key("", || text_or_empty(names, at), 0, || inodes.row(at));
                if let Some(row) = rows.next().filter(|_| may_precede(&key, &last, globals)) {
                    push_row(&mut leading, row);
                }
            }
        }
        Ok(leading)
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
        let reached = self.find.expr.evaluate(&chunk.rows(), &self.find.actions)?;
        let pruned = reached.pruned.value(0);
        if !near && reached.bits(0) != 0 {
            match self.sink.counts_only() {
                true => self.sink.count(1),
                false => self.sink.take(chunk)?,
            }
        }
        Ok(pruned)
    }
}

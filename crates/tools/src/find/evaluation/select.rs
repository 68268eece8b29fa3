//! Selects the rows of a unit on which actions are to be carried out.
//!
//! For each row group, tests that the kind of rows or their bounds decide are removed from the
//! expression (`Expr::simplify`). Columns that only these tests need are not read.

use super::candidates::IndexRows;
use super::chunk::Location;
use super::evaluate::Reached;
use super::search::Search;
use crate::error::Result;
use crate::find::language::Expr;
use arrow::array::{RecordBatch, StringArray, StringBuilder};
use canopy_index::column::{LISTING, MODE, NAME};
use canopy_index::{Columns, FileKind, RowRange};
use canopy_model::FileType;
use canopy_read::inode::one_row;
use canopy_read::plan::{Placed, Unit, push_row};

/// Rows of a unit, each with a bit for every action that is to be carried out on it.
#[derive(Default)]
pub(crate) struct Selected {
    pub(crate) ranges: Vec<RowRange>,
    bits: Vec<u64>,
    /// Set if the bits of all rows are equal: then `bits` is empty.
    same: Option<u64>,
    /// The names of all rows, where tests have read them.
    pub(crate) names: Option<StringArray>,
}

impl Selected {
    /// Takes all rows of some ranges.
    fn all(ranges: &[RowRange], bits: u64) -> Self {
        Selected { ranges: ranges.to_vec(), same: Some(bits), ..Selected::default() }
    }

    /// Adds a row, which comes after those that were added before.
    pub(super) fn push(&mut self, row: usize, bits: u64) {
        push_row(&mut self.ranges, row);
        self.bits.push(bits);
    }

    /// Returns how many rows there are with anything to be done.
    pub(crate) fn acting_rows(&self) -> u64 {
        match self.same {
            Some(0) => 0,
            _ => self.ranges.iter().map(|range| range.len() as u64).sum(),
        }
    }

    /// Returns the bits of the actions of each row, in order.
    pub(crate) fn actions(&self) -> impl Iterator<Item = u64> {
        let mut bits = self.bits.iter().copied();
        std::iter::from_fn(move || self.same.or_else(|| bits.next()))
    }
}

/// A row in which anything was reached.
pub(super) struct Hit {
    /// Its place in the batch.
    at: usize,
    /// Its number in the file.
    pub(super) row: usize,
    /// A bit for every action.
    actions: u64,
    pub(super) pruned: bool,
}

impl Search<'_, '_> {
    /// Selects the rows of a unit on which actions are to be carried out.
    pub(super) fn select(&self, unit: &Unit) -> Result<Selected> {
        let mut selected = Selected::default();
        let expr = self.simplify(unit)?;
        if !expr.acts() {
            return Ok(selected);
        }
        // Links that are followed are left out one by one.
        if expr.is_constant() && !self.find.globals.follow_all {
            return Ok(Selected::all(&unit.rows, self.constant_actions(&expr)?));
        }
        // Only what prints rows as they are found has use for names.
        let prints = !self.sink.counts_only() && !self.sink.is_sequential();
        let mut names = StringBuilder::new();
        let mut has_names = false;
        self.evaluate(&expr, unit, |batch, hits| {
            let column = NAME.find(batch).filter(|_| prints);
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

    /// Returns the actions that an expression without tests has for every row, as bits.
    fn constant_actions(&self, expr: &Expr) -> Result<u64> {
        let rows = IndexRows {
            batch: &one_row("", &self.start.inode),
            dirs: true,
            via_link: false,
            locations: &[],
            facts: &self.visit.facts,
        };
        Ok(expr.evaluate(&rows, &self.find.actions)?.bits(0))
    }

    /// Returns what is left of the expression for a unit: by what kind of rows it has and, if that
    /// does not settle it, by the bounds of its row group.
    fn simplify(&self, unit: &Unit) -> Result<Expr> {
        let dirs = unit.kind == FileKind::Dirs;
        let expr = self.find.expr.simplify(&|test| test.outcomes(dirs, &|_| Ok(None)))?;
        if !expr.acts() || expr.is_constant() {
            return Ok(expr);
        }
        expr.simplify(&|test| test.outcomes(dirs, &|column| Ok(unit.bounds(column)?)))
    }

    /// Evaluates the expression over a unit; `each` gets batches with the rows of each in which
    /// anything was reached.
    pub(super) fn evaluate(
        &self,
        expr: &Expr,
        unit: &Unit,
        mut each: impl FnMut(&RecordBatch, &[Hit]),
    ) -> Result<()> {
        let dirs = unit.kind == FileKind::Dirs;
        let skips_links = self.find.globals.follow_all && !dirs;
        let loops = if dirs { &self.visit.loops[..] } else { &[] };
        let mut columns = expr.columns(dirs);
        columns.add(Columns::from(MODE).when(skips_links));
        columns.add((LISTING | NAME).when(!loops.is_empty()));
        let mut hits = Vec::new();
        // The range that has the row, how many rows are before it, and before the batch.
        let (mut range, mut passed, mut before) = (0, 0, 0);
        for batch in unit.read(columns)? {
            let batch = batch?;
            // Asking for the path of a row reads its listing.
            let locations = match columns.has(LISTING) {
                true => {
                    let placed = Placed::new(&unit.shard, unit.kind, batch.clone(), true)?;
                    Location::of_rows(self.visit, &placed)?
                }
                false => Vec::new(),
            };
            let (via_link, facts) = (false, &self.visit.facts);
            let rows = IndexRows { batch: &batch, dirs, via_link, locations: &locations, facts };
            let reached = expr.evaluate(&rows, &self.find.actions)?;
            let modes = if skips_links { Some(MODE.of(&batch)?) } else { None };
            hits.clear();
            for at in reached.any().set_indices() {
                let is_loop = loops.iter().any(|(path, _)| *path == locations[at].path);
                let is_link = |modes: &[u32]| FileType::of_mode(modes[at]) == FileType::Symlink;
                if is_loop || modes.is_some_and(is_link) {
                    continue;
                }
                while before + at >= passed + unit.rows[range].len() {
                    passed += unit.rows[range].len();
                    range += 1;
                }
                let row = unit.rows[range].start + (before + at - passed);
                let (actions, pruned) = (reached.bits(at), reached.pruned.value(at));
                hits.push(Hit { at, row, actions, pruned });
            }
            before += batch.num_rows();
            each(&batch, &hits);
        }
        Ok(())
    }
}

impl Reached {
    /// Returns a bit for every action that a row has reached.
    pub(super) fn bits(&self, at: usize) -> u64 {
        let actions = self.actions.iter().enumerate();
        actions.fold(0, |bits, (number, rows)| bits | u64::from(rows.value(at)) << number)
    }
}

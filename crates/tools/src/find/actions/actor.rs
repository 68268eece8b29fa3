//! Evaluates entries one by one, as a live search and a search of records meet them, and acts on
//! them.

use super::action::{Action, Destination};
use super::entry::EntryView;
use super::held::Held;
use super::order::Sortable;
use super::printf::PrintfFormat;
use super::sink::{ActionSink, State};
use super::sum::Sum;
use crate::error::Result;
use crate::find::evaluation::{Candidates, RunOptions, Step};
use crate::find::language::Find;
use canopy_index::column::TARGET;
use parking_lot::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Bytes after which what has been printed is written out.
const BLOCK_BYTES: usize = 64 << 10;

/// Time after which it is, so that people see early what comes slowly.
const BLOCK_AGE: Duration = Duration::from_millis(100);

/// The facts of an entry that an action needs.
pub(crate) struct Needs {
    pub(crate) stat: bool,
    pub(crate) file_type: bool,
    pub(crate) target: bool,
    pub(crate) target_type: bool,
    pub(crate) file_system: bool,
    pub(crate) context: bool,
}

impl Needs {
    pub(crate) fn of(action: &Action) -> Self {
        let (columns, format) = (action.columns(), action.printf());
        let has = |letter| format.is_some_and(|format| format.has(letter));
        Needs {
            stat: format.map_or(!columns.is_empty(), PrintfFormat::needs_attributes),
            file_type: has('y'),
            target: columns.has(TARGET),
            target_type: has('Y'),
            file_system: has('F'),
            context: has('Z'),
        }
    }
}

/// One entry that is acted on as soon as it is met.
pub(crate) trait Met: Candidates {
    /// Returns what actions see of it; `None` if that cannot be had.
    fn view(&self, needs: &Needs) -> Option<EntryView<'_>>;
    /// Removes it. Returns whether that went well.
    fn delete(&self) -> bool;
}

/// Actions of one thread on entries.
pub(crate) struct Actor<'w, 'a> {
    sink: &'w ActionSink<'a>,
    block: Vec<u8>,
    counted: u64,
    sum: Sum,
    written: Instant,
}

impl<'w, 'a> Actor<'w, 'a> {
    pub(crate) fn new(sink: &'w ActionSink<'a>) -> Self {
        Actor { sink, block: Vec::new(), counted: 0, sum: Sum::default(), written: Instant::now() }
    }

    /// Evaluates the expression on an entry and acts on it. Returns whether it is pruned.
    pub(crate) fn evaluate(&mut self, entry: &impl Met) -> Result<bool> {
        let (mut pruned, mut acted) = (false, false);
        let mut acting: Option<MutexGuard<'_, State<'_>>> = None;
        let expr = &self.sink.find.expr;
        let outcome = expr.carry_out(entry, 0, &mut |step| match step {
            Step::Prune => {
                pruned = true;
                Ok(Some(true))
            }
            Step::Act(number) => {
                acted = true;
                self.act(number, entry, &mut acting)
            }
        })?;
        if let Some(mut acting) = acting {
            self.sink.row_done(&mut acting, acted, outcome);
        }
        if self.block.len() >= BLOCK_BYTES {
            self.write()?;
        }
        Ok(pruned)
    }

    /// Evaluates the expression on an entry, which is so far below its start, now or when all are
    /// there: then of those on which anything is to be done, what `hold` makes is held. Returns
    /// whether it is pruned.
    pub(crate) fn meet<H: Sortable>(
        &mut self,
        entry: &impl Met,
        depth: u32,
        held: &Mutex<Held<H>>,
        hold: impl FnOnce() -> H,
    ) -> Result<bool> {
        let Find { expr, actions, globals, .. } = self.sink.find;
        if depth < globals.depth_min {
            return Ok(false);
        }
        if !globals.holds() {
            return self.evaluate(entry);
        }
        let reached = expr.evaluate(entry, actions)?;
        if reached.actions.iter().any(|rows| rows.value(0)) {
            held.lock().push(hold(), globals);
        }
        Ok(reached.pruned.value(0))
    }

    fn act(
        &mut self,
        number: usize,
        entry: &impl Met,
        acting: &mut Option<MutexGuard<'w, State<'a>>>,
    ) -> Result<Option<bool>> {
        let sink = self.sink;
        let view = || entry.view(&sink.needs[number]);
        let action = &sink.find.actions[number];
        if !sink.is_sequential() {
            match action {
                Action::Delete => return Ok(Some(entry.delete())),
                Action::Count => {
                    self.counted += 1;
                    return Ok(Some(true));
                }
                Action::Sum => {
                    let Some(view) = view() else { return Ok(Some(false)) };
                    self.sum.add(&view.attributes, view.dev);
                    return Ok(Some(true));
                }
                Action::Write(format, Destination::Stdout) => {
                    let Some(view) = view() else { return Ok(Some(false)) };
                    let RunOptions { terminal, now_ns, .. } = sink.options;
                    format.write(&view, terminal, now_ns, &mut self.block);
                    return Ok(Some(true));
                }
                Action::Write(..) | Action::Exec(_) | Action::Quit => {}
            }
        }
        if sink.runs_beside(number) {
            // With these held, others would wait for the command.
            *acting = None;
            return match view() {
                _ if sink.is_done() => Ok(None),
                Some(view) => sink.act_beside(number, &view),
                None => Ok(Some(false)),
            };
        }
        let acting = acting.get_or_insert_with(|| sink.begin());
        if sink.is_done() {
            return Ok(None);
        }
        match action {
            Action::Delete => Ok(Some(entry.delete())),
            _ => view().map_or(Ok(Some(false)), |view| sink.act(acting, number, &view)),
        }
    }

    /// Writes out what has waited for long.
    pub(crate) fn pause(&mut self) -> Result<()> {
        if !self.block.is_empty()
            && (self.sink.options.terminal || self.written.elapsed() > BLOCK_AGE)
        {
            self.write()?;
            self.sink.flush()?;
        }
        Ok(())
    }

    /// Writes out what has been collected.
    pub(crate) fn write(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.sink.write(&self.block)?;
        }
        self.block.clear();
        self.written = Instant::now();
        Ok(())
    }

    /// Writes out what is left.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.sink.count(self.counted);
        self.sink.add_sum(std::mem::take(&mut self.sum));
        self.write()
    }
}

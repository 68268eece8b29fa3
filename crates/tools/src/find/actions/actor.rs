//! Evaluates entries one by one, as a live search and a search of records meet them, and acts on
//! them.

use super::action::{Action, Destination};
use super::entry::EntryView;
use super::printf::PrintfFormat;
use super::sink::{Acting, ActionSink};
use crate::error::Result;
use crate::find::evaluation::{Candidates, RunOptions, Step};
use crate::find::language::Find;
use canopy_index::column::TARGET;
use std::time::{Duration, Instant};

/// Bytes after which what has been printed is written out.
const BLOCK_BYTES: usize = 64 << 10;

/// Time after which it is, so that people see early what comes slowly.
const BLOCK_AGE: Duration = Duration::from_millis(100);

/// What an action asks of an entry.
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

/// What one thread does with entries.
pub(crate) struct Actor<'w, 'a> {
    find: &'w Find,
    /// By action.
    needs: &'w [Needs],
    options: RunOptions,
    sink: &'w ActionSink<'a>,
    block: Vec<u8>,
    counted: u64,
    written: Instant,
}

impl<'w, 'a> Actor<'w, 'a> {
    pub(crate) fn new(
        find: &'w Find,
        needs: &'w [Needs],
        options: RunOptions,
        sink: &'w ActionSink<'a>,
    ) -> Self {
        let (block, written) = (Vec::new(), Instant::now());
        Actor { find, needs, options, sink, block, counted: 0, written }
    }

    /// Evaluates the expression on an entry and acts on it. Returns whether it is pruned.
    pub(crate) fn evaluate(&mut self, entry: &impl Met) -> Result<bool> {
        let (mut pruned, mut acted) = (false, false);
        let mut acting: Option<Acting<'_, '_>> = None;
        let expr = &self.find.expr;
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
            acting.row_done(acted, outcome);
        }
        if self.block.len() >= BLOCK_BYTES {
            self.write()?;
        }
        Ok(pruned)
    }

    fn act(
        &mut self,
        number: usize,
        entry: &impl Met,
        acting: &mut Option<Acting<'w, 'a>>,
    ) -> Result<Option<bool>> {
        let sink = self.sink;
        let view = || entry.view(&self.needs[number]);
        let action = &self.find.actions[number];
        if !sink.is_sequential() {
            match action {
                Action::Delete => return Ok(Some(entry.delete())),
                Action::Count => {
                    self.counted += 1;
                    return Ok(Some(true));
                }
                Action::Write(format, Destination::Stdout) => {
                    let Some(view) = view() else { return Ok(Some(false)) };
                    let options = &self.options;
                    format.write(&view, options.terminal, options.now_ns, &mut self.block);
                    return Ok(Some(true));
                }
                Action::Write(..) | Action::Exec(_) | Action::Quit => {}
            }
        }
        if sink.runs_beside(number) {
            // What is held would have others wait for the command.
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
            _ => view().map_or(Ok(Some(false)), |view| acting.act(number, &view)),
        }
    }

    /// Writes out what has waited for long.
    pub(crate) fn pause(&mut self) -> Result<()> {
        if !self.block.is_empty() && (self.options.terminal || self.written.elapsed() > BLOCK_AGE) {
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
        self.write()
    }
}

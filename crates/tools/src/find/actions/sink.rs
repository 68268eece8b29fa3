//! Where actions are carried out.
//!
//! Rows that are only printed or counted are written by all threads in blocks. Where an order is
//! asked for, where files are written or commands run, and where an action decides what comes after
//! it, rows are acted on one by one, in one thread at a time; with `-j`, rows are acted on by several
//! threads, each row by one, and only what is written is so one by one.

use super::action::{Action, Destination, EntryFormat};
use super::actor::Needs;
use super::entry::{EntryView, LookedUp};
use super::exec::{Exec, Target, Waiting};
use super::held::{HeldChunks, leading};
use super::jobs::Jobs;
use super::json::print_json;
use super::order::{SortField, in_order};
use super::printf::PrintfFormat;
use super::sum::Sum;
use crate::error::Result;
use crate::find::evaluation::{Chunk, ChunkRow, Location, RunOptions, Step};
use crate::find::language::Find;
use crate::find::path::file_name;
use canopy_index::Columns;
use canopy_index::column::TARGET;
use canopy_model::{FileType, base_name, unescape};
use canopy_read::inode::{InodeColumns, text_or_empty};
use canopy_read::links::Resolved;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Carries the actions of a find out; see the module.
pub(crate) struct ActionSink<'a> {
    pub(in crate::find) find: &'a Find,
    pub(in crate::find) options: RunOptions,
    /// By action: what it asks of an entry that is not of an index.
    pub(in crate::find) needs: Vec<Needs>,
    /// Whether rows are acted on one by one.
    sequential: bool,
    /// Whether `%F`, `%Y` or `%Z` is printed.
    looks_up: bool,
    done: AtomicBool,
    counted: AtomicU64,
    /// How many commands may run beside each other, if any.
    jobs: Option<Jobs>,
    state: Mutex<State<'a>>,
}

pub(crate) struct State<'a> {
    output: &'a mut (dyn Write + Send),
    /// Each with whether it is a terminal.
    files: Vec<(BufWriter<&'a File>, bool)>,
    /// By action: the paths that wait for a command.
    waiting: Vec<Waiting>,
    /// Rows that wait until all are there to be sorted.
    held: HeldChunks,
    /// The sum that `--sum` prints.
    sum: Sum,
    /// How many rows were acted on.
    acted: u64,
    /// Whether the list of `--json` has begun.
    listed: bool,
    failed: bool,
    block: Vec<u8>,
}

impl<'a> ActionSink<'a> {
    pub(crate) fn new(
        find: &'a Find,
        options: RunOptions,
        output: &'a mut (dyn Write + Send),
    ) -> Self {
        let globals = &find.globals;
        let mut formats = find.actions.iter().filter_map(Action::printf);
        let parallel = find.actions.iter().all(Action::is_parallel);
        let files = find.files.iter();
        let state = State {
            output,
            files: files.map(|(_, file)| (BufWriter::new(file), file.is_terminal())).collect(),
            waiting: find.actions.iter().map(|_| Waiting::default()).collect(),
            held: HeldChunks::default(),
            sum: Sum::default(),
            acted: 0,
            listed: false,
            failed: false,
            block: Vec::new(),
        };
        ActionSink {
            find,
            options,
            needs: find.actions.iter().map(Needs::of).collect(),
            sequential: !parallel
                || globals.holds()
                || globals.limit.is_some()
                || globals.lists_json(),
            looks_up: formats.any(PrintfFormat::needs_look_up),
            done: AtomicBool::new(globals.limit == Some(0)),
            counted: AtomicU64::new(0),
            jobs: globals.jobs.map(Jobs::new),
            state: Mutex::new(state),
        }
    }

    /// Returns whether rows are acted on one by one instead of being printed by all threads.
    pub(crate) fn is_sequential(&self) -> bool {
        self.sequential
    }

    /// Returns whether nothing but the number of rows matters.
    pub(crate) fn counts_only(&self) -> bool {
        !self.sequential && self.find.globals.count
    }

    /// Returns whether nothing more is to be done.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the columns that rows are read with: those that actions, order and tests ask for, of
    /// rows that are all directories or all not.
    pub(crate) fn columns(&self, dirs: bool) -> Columns {
        let mut columns =
            self.find.globals.sort.as_ref().map(SortField::columns).unwrap_or_default();
        self.find.actions.iter().for_each(|action| columns.add(action.columns()));
        columns | self.find.expr.columns(dirs)
    }

    /// Counts rows.
    pub(crate) fn count(&self, rows: u64) {
        self.counted.fetch_add(rows, Ordering::Relaxed);
    }

    /// Adds what was added up elsewhere.
    pub(crate) fn add_sum(&self, sum: Sum) {
        if self.find.globals.sum {
            self.state.lock().sum.merge(sum);
        }
    }

    /// Writes what was printed elsewhere.
    pub(crate) fn write(&self, block: &[u8]) -> Result<()> {
        Ok(self.state.lock().output.write_all(block)?)
    }

    /// Acts on the rows of a chunk one by one, or holds them until all are there.
    pub(crate) fn take(&self, chunk: Chunk) -> Result<()> {
        let globals = &self.find.globals;
        if globals.holds() {
            let last = self.last_held();
            if let Some(chunk) = leading(chunk, last.as_deref(), globals) {
                self.state.lock().held.push(chunk, globals);
            }
            return Ok(());
        }
        if self.jobs.is_some() {
            return self.side_by_side(chunk.len(), |at| self.row_beside(&chunk, at));
        }
        let mut state = self.state.lock();
        for at in 0..chunk.len() {
            if self.is_done() {
                break;
            }
            self.row(&mut state, &chunk, at)?;
        }
        Ok(())
    }

    /// Acts on so many rows, in as many threads as commands may run.
    pub(crate) fn side_by_side(
        &self,
        rows: usize,
        act: impl Fn(usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let threads = self.jobs.as_ref().map_or(1, |jobs| jobs.count).min(rows);
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            loop {
                let row = next.fetch_add(1, Ordering::Relaxed);
                if row >= rows || self.is_done() {
                    return Ok(());
                }
                act(row).inspect_err(|_| self.done.store(true, Ordering::Relaxed))?;
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            let joined = others
                .into_iter()
                .map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            joined.fold(own, Result::and)
        })
    }

    /// Returns a row that is held and behind which none is acted on, once there is one, alone.
    pub(crate) fn last_held(&self) -> Option<Arc<Chunk>> {
        self.state.lock().held.last()
    }

    /// Acts on all that was held, runs the commands that wait, and writes out. Returns whether a
    /// command of a batch failed.
    pub(crate) fn finish(self) -> Result<bool> {
        let held = self.state.lock().held.take();
        let rows: Vec<ChunkRow<'_>> = held.iter().flat_map(Chunk::each).collect();
        let order = in_order(&rows, &self.find.globals);
        if self.jobs.is_some() {
            self.side_by_side(order.len(), |place| {
                let ChunkRow { chunk, at } = rows[order[place]];
                self.row_beside(chunk, at)
            })?;
        }
        let mut state = self.state.lock();
        for number in order {
            if self.is_done() || self.jobs.is_some() {
                break;
            }
            let ChunkRow { chunk, at } = rows[number];
            self.row(&mut state, chunk, at)?;
        }
        if self.find.globals.count {
            let counted = self.counted.load(Ordering::Relaxed);
            writeln!(state.output, "{counted}")?;
        }
        if self.find.globals.sum {
            let State { sum, output, .. } = &mut *state;
            sum.print(self.find.globals.json, output)?;
        }
        if self.find.globals.lists_json() {
            let end: &[u8] = if state.listed { b"\n]\n" } else { b"[]\n" };
            state.output.write_all(end)?;
        }
        state.flush()?;
        for (number, action) in self.find.actions.iter().enumerate() {
            if let Action::Exec(exec) = action {
                let outcome = exec.run_waiting(&mut state.waiting[number], self.jobs.as_ref());
                self.note(&mut state, outcome);
            }
        }
        let waiting = state.waiting.iter_mut();
        for running in Vec::from_iter(waiting.flat_map(|waiting| waiting.running.drain(..))) {
            self.note(&mut state, running.ended());
        }
        Ok(state.failed)
    }

    /// Evaluates the expression on one row and acts on it.
    fn row(&self, state: &mut State<'a>, chunk: &Chunk, at: usize) -> Result<()> {
        let mut acted = false;
        let outcome = self.evaluate(chunk, at, &mut |number, entry| {
            acted = true;
            self.act(state, number, entry)
        })?;
        self.row_done(state, acted, outcome);
        Ok(())
    }

    /// Does the same beside other rows, none of which ends the search.
    fn row_beside(&self, chunk: &Chunk, at: usize) -> Result<()> {
        self.evaluate(chunk, at, &mut |number, entry| self.act_beside(number, entry))?;
        Ok(())
    }

    /// Evaluates the expression on one row; `act` carries actions out.
    fn evaluate(
        &self,
        chunk: &Chunk,
        at: usize,
        act: &mut dyn FnMut(usize, &EntryView<'_>) -> Result<Option<bool>>,
    ) -> Result<Option<bool>> {
        let Chunk { visit, batch, locations, .. } = chunk;
        let Location { shown, depth, dev, .. } = &locations[at];
        visit.facts.forget_problem(shown);
        let name = unescape(base_name(shown));
        let (start, depth) = (&visit.start, *depth);
        let target = text_or_empty(TARGET.find(batch), at);
        let mut entry = EntryView {
            shown: &unescape(shown),
            name: if depth == 0 { file_name(&start.given) } else { &name },
            start: &visit.given,
            link: &start.given,
            depth,
            target: &unescape(target),
            dev: *dev,
            attributes: InodeColumns::of(batch).row(at),
            ..EntryView::default()
        };
        if self.looks_up {
            entry.looked_up = look_up(chunk, at, entry.attributes.file_type(), target);
        }
        self.find.expr.carry_out(&chunk.rows(), at, &mut |step| match step {
            Step::Act(number) => act(number, &entry),
            Step::Prune => Ok(Some(true)),
        })
    }

    /// Notes what has become of an entry.
    pub(crate) fn row_done(&self, state: &mut State<'a>, acted: bool, outcome: Option<bool>) {
        state.acted += u64::from(acted);
        if outcome.is_none() || self.find.globals.limit.is_some_and(|limit| state.acted >= limit) {
            self.done.store(true, Ordering::Relaxed);
        }
    }

    /// Makes other threads wait until what is acted on next is done.
    pub(crate) fn begin(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock()
    }

    /// Writes out what was written.
    pub(crate) fn flush(&self) -> Result<()> {
        self.state.lock().flush()
    }

    /// Carries an action out. Returns whether it is true; `None` ends the search.
    pub(crate) fn act(
        &self,
        state: &mut State<'a>,
        number: usize,
        entry: &EntryView<'_>,
    ) -> Result<Option<bool>> {
        match &self.find.actions[number] {
            Action::Quit => return Ok(None),
            // A live search deletes by itself, and nothing is deleted by what the index says.
            Action::Delete => return Ok(Some(false)),
            Action::Count => self.count(1),
            Action::Sum => state.sum.add(&entry.attributes, entry.dev),
            Action::Write(EntryFormat::Json, _) if self.find.globals.json => {
                let mut block = if state.listed { b",\n".to_vec() } else { b"[\n".to_vec() };
                state.listed = true;
                print_json(entry, &mut block);
                state.output.write_all(&block)?;
            }
            Action::Write(format, to) => {
                let mut block = std::mem::take(&mut state.block);
                block.clear();
                let terminal = match to {
                    Destination::Stdout => self.options.terminal,
                    Destination::Stderr => std::io::stderr().is_terminal(),
                    Destination::File(file) => state.files[*file].1,
                };
                format.write(entry, terminal, self.options.now_ns, &mut block);
                match to {
                    Destination::Stdout => state.output.write_all(&block)?,
                    Destination::Stderr => std::io::stderr().write_all(&block)?,
                    Destination::File(file) => state.files[*file].0.write_all(&block)?,
                }
                state.block = block;
            }
            Action::Exec(exec) => return self.command(state, number, exec, entry).map(Some),
        }
        Ok(Some(true))
    }

    /// Runs a command, or has the entry wait for one.
    fn command(
        &self,
        state: &mut State<'a>,
        number: usize,
        exec: &Exec,
        entry: &EntryView<'_>,
    ) -> Result<bool> {
        // Commands see what was written before, and write behind it.
        state.flush()?;
        let target = self.target(entry);
        if exec.batch {
            let outcome = exec.wait(target, &mut state.waiting[number], self.jobs.as_ref());
            self.note(state, outcome);
            return Ok(true);
        }
        Ok(self.ended_well(exec.run(target, false)))
    }

    fn target<'e>(&self, entry: &EntryView<'e>) -> Target<'e> {
        let EntryView { shown, link, directory, .. } = *entry;
        let globals = &self.find.globals;
        let follows = globals.follow_starts || globals.follow_all;
        Target { shown, start: link, is_start: shown == link, follows, directory }
    }

    /// Returns whether commands of an action run beside each other, one for each entry.
    pub(crate) fn runs_beside(&self, number: usize) -> bool {
        let runs = |action: &Action| matches!(action, Action::Exec(exec) if !exec.batch);
        self.jobs.is_some() && runs(&self.find.actions[number])
    }

    /// Carries an action out while other threads act on other entries: commands run beside each
    /// other, as many as may.
    pub(crate) fn act_beside(&self, number: usize, entry: &EntryView<'_>) -> Result<Option<bool>> {
        match (&self.find.actions[number], &self.jobs) {
            (Action::Exec(exec), Some(jobs)) if !exec.batch => {
                self.flush()?;
                let _permit = jobs.permit();
                Ok(Some(self.ended_well(exec.run(self.target(entry), true))))
            }
            _ => self.act(&mut self.state.lock(), number, entry),
        }
    }

    /// Returns whether a command succeeded, and reports why it could not run.
    fn ended_well(&self, outcome: std::result::Result<bool, String>) -> bool {
        outcome.unwrap_or_else(|error| {
            (self.options.diagnostic)(&error);
            false
        })
    }

    /// Notes how a command of a batch ended: one that fails makes the search partial, as in
    /// find(1).
    fn note(&self, state: &mut State<'a>, outcome: std::result::Result<bool, String>) {
        state.failed |= !self.ended_well(outcome);
    }
}

impl State<'_> {
    fn flush(&mut self) -> Result<()> {
        self.output.flush()?;
        for (file, _) in &mut self.files {
            file.flush()?;
        }
        Ok(())
    }
}

/// Looks up what `%F`, `%Y` and `%Z` print.
fn look_up(chunk: &Chunk, at: usize, file_type: FileType, target: &str) -> LookedUp {
    let (facts, location) = (&chunk.visit.facts, &chunk.locations[at]);
    let target_type = match file_type {
        FileType::Symlink => match facts.follow(location, target) {
            Resolved::Entry(reached) => reached.inode.attributes.file_type().letter(),
            Resolved::Missing | Resolved::NotDirectory => 'N',
            Resolved::Loop => 'L',
            Resolved::Denied | Resolved::LongName => '?',
            Resolved::Unknown => match facts.look_outside(location, target) {
                Some(Ok((attributes, _))) => attributes.file_type().letter(),
                Some(Err(Errno::NOENT | Errno::NOTDIR)) => 'N',
                Some(Err(Errno::LOOP)) => 'L',
                Some(Err(_)) | None => '?',
            },
        },
        other => other.letter(),
    };
    let context = facts.contexts.get(&location.path).map(|value| unescape(value).into_owned());
    LookedUp {
        file_system: facts.file_systems.name(location.dev).to_owned(),
        target_type,
        context: context.unwrap_or_default(),
    }
}

//! The careful way to act on what was found: row by row, in one thread at a time. Needed where an
//! order is asked for, where files are written or commands run, and where an action decides what
//! comes after it.

use super::action::{Action, Form, Printf, Sink};
use super::chunk::{Chunk, ChunkRow};
use super::exec::{Exec, Target, Waiting};
use super::expr::Step;
use super::format::{Found, Rare, file_name};
use super::json::print_json;
use super::known::UNKNOWN;
use super::order::in_order;
use super::parse::Find;
use super::run::RunOptions;
use crate::error::Result;
use arrow::array::AsArray;
use canopy_model::{FileType, base_name, unescape};
use canopy_read::columns::{InodeColumns, text_or_empty};
use canopy_read::links::Place;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Where actions are carried out.
pub(super) struct Stage<'a> {
    find: &'a Find,
    options: RunOptions,
    careful: bool,
    looks_up: bool,
    done: AtomicBool,
    counted: AtomicU64,
    inner: Mutex<Inner<'a>>,
}

struct Inner<'a> {
    output: &'a mut (dyn Write + Send),
    files: Vec<BufWriter<&'a File>>,
    /// By action: the paths that wait for a command.
    waiting: Vec<Waiting>,
    /// Rows that wait until all are there to be sorted.
    held: Vec<Chunk>,
    acted: u64,
    /// Whether the list of `--json` has begun.
    listed: bool,
    failed: bool,
    block: Vec<u8>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        find: &'a Find,
        options: RunOptions,
        output: &'a mut (dyn Write + Send),
    ) -> Self {
        let globals = &find.globals;
        let simple = find.actions.iter().all(Action::is_simple);
        let looks_up = |action: &Action| match action {
            Action::Write(Form::Printf(Printf(format)), _) => format.needs_known(),
            _ => false,
        };
        let inner = Inner {
            output,
            files: find.files.iter().map(|(_, file)| BufWriter::new(file)).collect(),
            waiting: find.actions.iter().map(|_| Waiting::default()).collect(),
            held: Vec::new(),
            acted: 0,
            listed: false,
            failed: false,
            block: Vec::new(),
        };
        Stage {
            find,
            options,
            careful: !simple || globals.holds() || globals.limit.is_some() || globals.json,
            looks_up: find.actions.iter().any(looks_up),
            done: AtomicBool::new(globals.limit == Some(0)),
            counted: AtomicU64::new(0),
            inner: Mutex::new(inner),
        }
    }

    /// Whether rows must come here instead of being printed by all threads.
    pub(super) fn is_careful(&self) -> bool {
        self.careful
    }

    /// Whether nothing but the number of rows matters.
    pub(super) fn counts_only(&self) -> bool {
        !self.careful && self.find.globals.count
    }

    /// Whether nothing more is to be done.
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// The column that the order asks for.
    pub(super) fn order_column(&self) -> Option<&'static str> {
        self.find.globals.sort.and_then(super::order::Field::column)
    }

    /// Counts rows.
    pub(super) fn count(&self, rows: u64) {
        self.counted.fetch_add(rows, Ordering::Relaxed);
    }

    /// Writes what was printed elsewhere.
    pub(super) fn write(&self, block: &[u8]) -> Result<()> {
        Ok(self.inner.lock().expect("no thread panics while it writes").output.write_all(block)?)
    }

    /// Acts on the rows of a chunk, or holds them until all are there.
    pub(super) fn take(&self, chunk: Chunk) -> Result<()> {
        let mut inner = self.inner.lock().expect("no thread panics while it writes");
        if self.find.globals.holds() {
            inner.held.push(chunk);
            return Ok(());
        }
        for at in 0..chunk.paths.len() {
            if self.is_done() {
                break;
            }
            self.row(&mut inner, &chunk, at)?;
        }
        Ok(())
    }

    /// Acts on all that was held, runs the commands that wait, and writes out. Whether anything
    /// failed.
    pub(super) fn finish(self) -> Result<bool> {
        let mut inner = self.inner.lock().expect("no thread panics while it writes");
        let held = std::mem::take(&mut inner.held);
        let rows: Vec<ChunkRow<'_>> = held
            .iter()
            .flat_map(|chunk| (0..chunk.paths.len()).map(move |at| ChunkRow { chunk, at }))
            .collect();
        for number in in_order(&rows, &self.find.globals) {
            if self.is_done() {
                break;
            }
            let ChunkRow { chunk, at } = rows[number];
            self.row(&mut inner, chunk, at)?;
        }
        if self.find.globals.count {
            let counted = self.counted.load(Ordering::Relaxed);
            writeln!(inner.output, "{counted}")?;
        }
        if self.find.globals.json {
            let end: &[u8] = if inner.listed { b"\n]\n" } else { b"[]\n" };
            inner.output.write_all(end)?;
        }
        inner.flush()?;
        for (number, action) in self.find.actions.iter().enumerate() {
            if let Action::Exec(exec) = action {
                let outcome = exec.run_waiting(&mut inner.waiting[number]);
                self.note(&mut inner, outcome);
            }
        }
        Ok(inner.failed)
    }

    /// Evaluates the expression on one row and acts on it.
    fn row(&self, inner: &mut Inner<'a>, chunk: &Chunk, at: usize) -> Result<()> {
        let batch = chunk.batch.slice(at, 1);
        chunk.visit.known.forget_problem(&chunk.shown[at]);
        let shown = unescape(&chunk.shown[at]);
        let start = &chunk.visit.start;
        let depth = chunk.depths[at];
        let targets = batch.column_by_name("target").map(|column| column.as_string::<i32>());
        let target = text_or_empty(targets, 0);
        let name = unescape(base_name(&chunk.shown[at]));
        let attributes = InodeColumns::of(&batch).row(0);
        let mut found = Found {
            shown: &shown,
            name: if depth == 0 { file_name(&start.given) } else { &name },
            start: &chunk.visit.given,
            link: &start.given,
            depth,
            target: &unescape(target),
            dev: chunk.devs[at],
            attributes,
            rare: Rare::default(),
            directory: None,
        };
        if self.looks_up {
            found.rare = rare(chunk, at, &found, target);
        }
        let rows = chunk.row(at, &batch);
        let mut acted = false;
        let outcome = self.find.expr.carry_out(&rows, 0, &mut |step| match step {
            Step::Act(number) => {
                acted = true;
                self.act(inner, number, &found)
            }
            Step::Prune => Ok(Some(true)),
        })?;
        self.row_done(inner, acted, outcome);
        Ok(())
    }

    fn row_done(&self, inner: &mut Inner<'a>, acted: bool, outcome: Option<bool>) {
        inner.acted += u64::from(acted);
        if outcome.is_none() || self.find.globals.limit.is_some_and(|limit| inner.acted >= limit) {
            self.done.store(true, Ordering::Relaxed);
        }
    }

    /// Has other threads wait until what is acted on next is done.
    pub(super) fn begin(&self) -> Acting<'_, 'a> {
        Acting { stage: self, inner: self.inner.lock().expect("no thread panics while it writes") }
    }

    /// Writes out what was written.
    pub(super) fn flush(&self) -> Result<()> {
        self.inner.lock().expect("no thread panics while it writes").flush()
    }

    fn act(&self, inner: &mut Inner<'a>, number: usize, found: &Found<'_>) -> Result<Option<bool>> {
        match &self.find.actions[number] {
            Action::Quit => return Ok(None),
            Action::Delete => unreachable!("only a live search deletes, and does it itself"),
            Action::Count => self.count(1),
            Action::Write(Form::Json, _) if self.find.globals.json => {
                let mut block = if inner.listed { b",\n".to_vec() } else { b"[\n".to_vec() };
                inner.listed = true;
                print_json(found, &mut block);
                inner.output.write_all(&block)?;
            }
            Action::Write(form, sink) => {
                let mut block = std::mem::take(&mut inner.block);
                block.clear();
                let terminal = *sink == Sink::Stdout && self.options.terminal;
                form.write(found, terminal, self.options.now_ns, &mut block);
                match sink {
                    Sink::Stdout => inner.output.write_all(&block)?,
                    Sink::Stderr => std::io::stderr().write_all(&block)?,
                    Sink::File(file) => inner.files[*file].write_all(&block)?,
                }
                inner.block = block;
            }
            Action::Exec(exec) => return self.command(inner, number, exec, found).map(Some),
        }
        Ok(Some(true))
    }

    /// Runs a command, or has the entry wait for one.
    fn command(
        &self,
        inner: &mut Inner<'a>,
        number: usize,
        exec: &Exec,
        found: &Found<'_>,
    ) -> Result<bool> {
        // Commands see what was written before, and write behind it.
        inner.flush()?;
        let Found { shown, link, directory, .. } = *found;
        let target = Target { shown, start: link, is_start: shown == link, directory };
        if exec.batch {
            let outcome = exec.wait(target, &mut inner.waiting[number]);
            self.note(inner, outcome);
            return Ok(true);
        }
        Ok(exec.run(target).unwrap_or_else(|error| {
            (self.options.tell)(&error);
            false
        }))
    }

    /// Commands of batches that fail make the search partial, as in find(1).
    fn note(&self, inner: &mut Inner<'a>, outcome: std::result::Result<bool, String>) {
        inner.failed |= !outcome.unwrap_or_else(|error| {
            (self.options.tell)(&error);
            false
        });
    }
}

/// Actions on one entry, while no other thread acts.
pub(super) struct Acting<'s, 'a> {
    stage: &'s Stage<'a>,
    inner: MutexGuard<'s, Inner<'a>>,
}

impl Acting<'_, '_> {
    /// Carries an action out. Whether it is true; `None` ends it all.
    pub(super) fn act(&mut self, number: usize, found: &Found<'_>) -> Result<Option<bool>> {
        self.stage.act(&mut self.inner, number, found)
    }

    /// Notes what has become of the entry.
    pub(super) fn row_done(&mut self, acted: bool, outcome: Option<bool>) {
        self.stage.row_done(&mut self.inner, acted, outcome);
    }
}

impl Inner<'_> {
    fn flush(&mut self) -> Result<()> {
        self.output.flush()?;
        for file in &mut self.files {
            file.flush()?;
        }
        Ok(())
    }
}

/// What `%F`, `%Y` and `%Z` print.
fn rare(chunk: &Chunk, at: usize, found: &Found<'_>, target: &str) -> Rare {
    let (known, path) = (&chunk.visit.known, &chunk.paths[at]);
    let file_type = found.attributes.file_type();
    let target_type = match file_type {
        FileType::Symlink => match known.follow(path, target) {
            Place::There(reached) => reached.inode.attributes.file_type().letter(),
            Place::Missing | Place::NotDirectory => 'N',
            Place::Loop => 'L',
            Place::Unknown => {
                known.problem(&chunk.shown[at], UNKNOWN);
                '?'
            }
        },
        other => other.letter(),
    };
    let context =
        known.contexts.get(path).map(|value| unescape(value).into_owned()).unwrap_or_default();
    Rare { file_system: known.file_systems.name(chunk.devs[at]).to_owned(), target_type, context }
}

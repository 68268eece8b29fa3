//! Evaluates entries of a live search and acts on them.

use super::dir::{Dir, Stat};
use super::entry::LiveEntry;
use super::{Live, Search, Tree};
use crate::error::{Error, Result};
use crate::find::actions::{Acting, Action, Destination, SortField};
use crate::find::evaluation::Step;
use crate::find::path::trim_slashes;
use canopy_model::{FileType, escape};
use rustix::fd::AsFd;
use rustix::fs::CWD;
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes after which what has been printed is written out.
const BLOCK_BYTES: usize = 64 << 10;

/// Time after which it is, so that people see early what comes slowly.
const BLOCK_AGE: Duration = Duration::from_millis(100);

/// What one thread does with entries.
pub(super) struct Actor<'w, 'a> {
    search: &'w Search<'w, 'a>,
    block: Vec<u8>,
    counted: u64,
    written: Instant,
}

/// An entry that waits until all are there to be sorted.
pub(super) struct Held {
    /// Number of its start.
    pub(super) tree: usize,
    pub(super) depth: u32,
    pub(super) stat: Option<Stat>,
    dir: Option<Arc<Dir>>,
    name: CString,
    shown: Vec<u8>,
    escaped: String,
    hint: Option<FileType>,
}

impl<'w, 'a> Actor<'w, 'a> {
    pub(super) fn new(search: &'w Search<'w, 'a>) -> Self {
        Actor { search, block: Vec::new(), counted: 0, written: Instant::now() }
    }

    /// Evaluates the expression on an entry, which is in `dir`, now or when all are there. Returns
    /// whether it is pruned.
    pub(super) fn meet(&mut self, entry: &LiveEntry<'_>, dir: Option<&Arc<Dir>>) -> Result<bool> {
        if entry.depth < self.search.live.find.globals.depth_min {
            return Ok(false);
        }
        if self.search.live.holds { self.hold(entry, dir) } else { self.evaluate(entry) }
    }

    /// Evaluates the expression on an entry and acts on it. Returns whether it is pruned.
    pub(super) fn evaluate(&mut self, entry: &LiveEntry<'_>) -> Result<bool> {
        let (mut pruned, mut acted) = (false, false);
        let mut acting: Option<Acting<'_, '_>> = None;
        let expr = &self.search.live.find.expr;
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
        entry: &LiveEntry<'_>,
        acting: &mut Option<Acting<'w, 'a>>,
    ) -> Result<Option<bool>> {
        let Search { live, sink, .. } = self.search;
        let view = || entry.view(&live.needs[number]);
        let action = &live.find.actions[number];
        if !sink.is_sequential() {
            match action {
                Action::Delete => return Ok(Some(entry.delete())),
                Action::Count => {
                    self.counted += 1;
                    return Ok(Some(true));
                }
                Action::Write(format, Destination::Stdout) => {
                    let Some(view) = view() else { return Ok(Some(false)) };
                    let options = &live.options;
                    format.write(&view, options.terminal, options.now_ns, &mut self.block);
                    return Ok(Some(true));
                }
                Action::Write(..) | Action::Exec(_) | Action::Quit => {}
            }
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

    /// Evaluates the expression on an entry and holds it for later if anything is to be done.
    /// Returns whether it is pruned.
    fn hold(&self, entry: &LiveEntry<'_>, dir: Option<&Arc<Dir>>) -> Result<bool> {
        let find = self.search.live.find;
        let reached = find.expr.evaluate(entry, &find.actions)?;
        if reached.actions.iter().any(|rows| rows.value(0)) {
            let sorts_by_stat = matches!(find.globals.sort, Some(SortField::Attribute(_)));
            let held = Held {
                tree: entry.tree.number,
                depth: entry.depth,
                stat: match sorts_by_stat {
                    true => entry.stat().copied(),
                    false => entry.stat.get().copied().flatten(),
                },
                dir: dir.cloned(),
                name: entry.name.to_owned(),
                shown: entry.shown.to_vec(),
                escaped: escape(trim_slashes(entry.shown)).into_owned(),
                hint: entry.hint,
            };
            self.search.held.lock().push(held);
        }
        Ok(reached.pruned.value(0))
    }

    /// Writes out what has waited for long.
    pub(super) fn pause(&mut self) -> Result<()> {
        if !self.block.is_empty()
            && (self.search.live.options.terminal || self.written.elapsed() > BLOCK_AGE)
        {
            self.write()?;
            self.search.sink.flush()?;
        }
        Ok(())
    }

    /// Writes out what has been collected.
    pub(super) fn write(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.search.sink.write(&self.block)?;
        }
        self.block.clear();
        self.written = Instant::now();
        Ok(())
    }

    /// Writes out what is left.
    pub(super) fn finish(mut self) -> Result<()> {
        self.search.sink.count(self.counted);
        self.write()
    }
}

impl Held {
    /// Returns its path as it is compared.
    pub(super) fn escaped(&self) -> &str {
        &self.escaped
    }

    /// Calls `act` with the entry, whose directory is opened again. There is a diagnostic if it has
    /// gone.
    pub(super) fn with_entry<T>(
        &self,
        live: &Live<'_>,
        trees: &[Tree<'_>],
        act: impl FnOnce(&LiveEntry<'_>) -> Result<T>,
    ) -> Result<()> {
        let opened = match self.dir.as_ref().map(|dir| dir.descriptor(live)).transpose() {
            Ok(opened) => opened,
            Err(errno) => {
                live.problem(&self.shown, &errno.into());
                return Ok(());
            }
        };
        let place = (opened.as_ref().map_or(CWD, |opened| opened.as_fd()), &*self.name);
        act(&LiveEntry::new(
            live,
            &trees[self.tree],
            place,
            &self.shown,
            self.depth,
            self.hint,
            self.stat,
        ))
        .map(|_: T| ())
    }
}

/// Keeps the first error where none can be returned.
pub(super) fn keep_error(first: &mut Option<Error>, outcome: Result<()>) {
    if let Err(error) = outcome {
        first.get_or_insert(error);
    }
}

//! Evaluates entries of a live search and acts on them, or holds them until all are there.

use super::dir::{Dir, Stat};
use super::entry::LiveEntry;
use super::{Live, Search, Tree};
use crate::error::{Error, Result};
use crate::find::actions::{Actor, SortField};
use crate::find::path::trim_slashes;
use canopy_model::{FileType, escape};
use rustix::fd::AsFd;
use rustix::fs::CWD;
use std::ffi::CString;
use std::sync::Arc;

/// What one thread does with the entries of a live search.
pub(super) struct LiveActor<'w, 'a> {
    search: &'w Search<'w, 'a>,
    pub(super) actor: Actor<'w, 'a>,
}

/// An entry that waits until all are there to be sorted.
pub(super) struct HeldEntry {
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

impl<'w, 'a> LiveActor<'w, 'a> {
    pub(super) fn new(search: &'w Search<'w, 'a>) -> Self {
        let live = &search.live;
        let actor = Actor::new(live.find, &live.needs, live.options, search.sink);
        LiveActor { search, actor }
    }

    /// Evaluates the expression on an entry, which is in `dir`, now or when all are there. Returns
    /// whether it is pruned.
    pub(super) fn meet(&mut self, entry: &LiveEntry<'_>, dir: Option<&Arc<Dir>>) -> Result<bool> {
        if entry.depth < self.search.live.find.globals.depth_min {
            return Ok(false);
        }
        if self.search.live.holds { self.hold(entry, dir) } else { self.actor.evaluate(entry) }
    }

    /// Evaluates the expression on an entry and holds it for later if anything is to be done.
    /// Returns whether it is pruned.
    fn hold(&self, entry: &LiveEntry<'_>, dir: Option<&Arc<Dir>>) -> Result<bool> {
        let find = self.search.live.find;
        let reached = find.expr.evaluate(entry, &find.actions)?;
        if reached.actions.iter().any(|rows| rows.value(0)) {
            let sorts_by_stat = matches!(find.globals.sort, Some(SortField::Attribute(_)));
            let held = HeldEntry {
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
            self.search.held.lock().push(held, &find.globals)?;
        }
        Ok(reached.pruned.value(0))
    }
}

impl HeldEntry {
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

//! Entries of a live search that are held until all are there.

use super::dir::{Dir, Stat};
use super::entry::LiveEntry;
use super::{Live, Tree};
use crate::error::Result;
use crate::find::actions::{Actor, SortField};
use crate::find::path::trim_slashes;
use canopy_model::{FileType, escape};
use rustix::fd::AsFd;
use rustix::fs::CWD;
use std::ffi::CString;
use std::sync::Arc;

/// An entry that waits until all are there to be sorted.
pub(super) struct HeldEntry {
    /// Number of its start.
    pub(super) tree: usize,
    pub(super) depth: u32,
    pub(super) stat: Option<Stat>,
    dir: Option<Arc<Dir>>,
    name: CString,
    shown: Vec<u8>,
    pub(super) escaped: String,
    hint: Option<FileType>,
}

impl HeldEntry {
    /// Holds an entry, which is in `dir`.
    pub(super) fn of(entry: &LiveEntry<'_>, dir: Option<&Arc<Dir>>) -> Self {
        let sorts_by_stat = matches!(entry.live.find.globals.sort, Some(SortField::Attribute(_)));
        HeldEntry {
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
        }
    }

    /// Acts on the entry, whose directory is opened again. There is a diagnostic if it has gone.
    pub(super) fn act(
        &self,
        live: &Live<'_>,
        trees: &[Tree<'_>],
        actor: &mut Actor<'_, '_>,
    ) -> Result<()> {
        let opened = match self.dir.as_ref().map(|dir| dir.descriptor(live)).transpose() {
            Ok(opened) => opened,
            Err(errno) => {
                live.problem_below(&self.shown, errno);
                return Ok(());
            }
        };
        let directory = opened.as_ref().map_or(CWD, |opened| opened.as_fd());
        let HeldEntry { shown, depth, hint, stat, .. } = self;
        let tree = &trees[self.tree];
        let entry = LiveEntry::new(live, tree, directory, &self.name, shown, *depth, *hint);
        actor.evaluate(&entry.with_stat(*stat)).map(drop)
    }
}

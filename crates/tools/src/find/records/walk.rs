//! The walk of a search of records: directories are the pieces of work that threads share.

use super::entry::RecordEntry;
use super::{Lookup, Record, Records, Search, Tree};
use crate::error::Result;
use crate::find::actions::Actor;
use crate::find::messages::file_system_loop;
use crate::find::path::push_component;
use canopy_model::FileType;
use canopy_scan::{Stack, share};
use std::sync::Arc;

/// A directory that is to be read.
struct Dir {
    id: u64,
    /// Its path as it is printed.
    shown: Vec<u8>,
    depth: u32,
    /// The directory above, where links are followed and loops are looked for.
    above: Option<Arc<Dir>>,
}

/// Meets everything below a start. Errors but those of single entries end it.
pub(super) fn walk<R: Records>(search: &Search<'_, '_, R>, tree: &Tree<'_>, id: u64) -> Result<()> {
    let first = Arc::new(Dir { id, shown: tree.given.to_vec(), depth: 0, above: None });
    let states = vec![(); search.sink.options.threads.max(1)];
    let (outcomes, _) = share(vec![vec![first]], states, |(), stack| {
        Walker { search, tree, actor: search.actor(), subdirs: Vec::new() }.run(stack)
    });
    outcomes.into_iter().collect()
}

/// One thread.
struct Walker<'w, 'a, R> {
    search: &'w Search<'w, 'a, R>,
    tree: &'w Tree<'w>,
    actor: Actor<'w, 'a>,
    subdirs: Vec<Arc<Dir>>,
}

impl<R: Records> Walker<'_, '_, R> {
    fn run(mut self, stack: &Stack<'_, Arc<Dir>>) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(dir) = stack.take(|| {
            if outcome.is_ok() {
                outcome = self.actor.pause();
            }
        }) {
            if outcome.is_ok() {
                outcome = self.read(&dir).and_then(|()| self.actor.pause());
            }
            self.subdirs.drain(..).rev().for_each(|subdir| stack.put(subdir));
            if outcome.is_err() || self.is_over() {
                stack.stop();
            }
        }
        let written = self.actor.finish();
        outcome.and(written)
    }

    fn is_over(&self) -> bool {
        self.search.sink.is_done() || self.search.failed.lock().is_some()
    }

    /// Meets what is in one directory, and notes its subdirectories.
    fn read(&mut self, dir: &Arc<Dir>) -> Result<()> {
        let search = self.search;
        let mut shown = dir.shown.clone();
        let mut outcome = Ok(());
        let listed = search.records.list(dir.id, &mut |name, record| {
            shown.truncate(dir.shown.len());
            push_component(&mut shown, name);
            outcome = self.entry(dir, &shown, name, record);
            outcome.is_ok() && !self.is_over()
        });
        if let Err(error) = listed {
            search.fail(error);
        }
        outcome
    }

    fn entry(
        &mut self,
        dir: &Arc<Dir>,
        shown: &[u8],
        name: &[u8],
        mut record: Record,
    ) -> Result<()> {
        let (search, depth) = (self.search, dir.depth + 1);
        let globals = &search.find.globals;
        let follows = globals.follow_all;
        if follows && record.attributes.file_type() == FileType::Symlink {
            match search.look(shown, true) {
                Lookup::Entry(reached) => record = reached,
                Lookup::Missing => {}
                Lookup::Outside => search.outside.note_unknown(shown),
                place @ Lookup::NotDirectory => search.problem(shown, place.problem()),
                place => {
                    search.problem(shown, place.problem());
                    return Ok(());
                }
            }
        }
        let id = record.attributes.ino;
        let is_directory = record.is_directory();
        if follows
            && is_directory
            && let Some(above) = same_above(dir, id)
        {
            search.diagnose(&file_system_loop(shown, &above.shown));
            return Ok(());
        }
        let entry = RecordEntry::new(search, self.tree, shown, name, depth, &record);
        let pruned = search.meet(&entry, &mut self.actor)?;
        if !is_directory || pruned || depth >= globals.depth_max {
            return Ok(());
        }
        if !follows && !search.entered.lock().insert(id) {
            search.problem(shown, "this directory is in another one, too; check the namespace");
            return Ok(());
        }
        let above = follows.then(|| dir.clone());
        self.subdirs.push(Arc::new(Dir { id, shown: shown.to_vec(), depth, above }));
        Ok(())
    }
}

/// Returns this directory or the one above it that has an id.
fn same_above(dir: &Arc<Dir>, id: u64) -> Option<&Dir> {
    let mut above = std::iter::successors(Some(&**dir), |dir| dir.above.as_deref());
    above.find(|dir| dir.id == id)
}

/// Directories above one another are dropped one by one: there may be more of them than a stack has
/// room for.
impl Drop for Dir {
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut dir) = above.and_then(Arc::into_inner) {
            above = dir.above.take();
        }
    }
}

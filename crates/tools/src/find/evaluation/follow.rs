//! `-L` in an index: what symbolic links lead to is searched as if it stood in their place.
//!
//! 1. The rows of a unit that are links are taken out and followed, as far as the index knows.
//! 2. The target of a link becomes a visit of its own, with the path of the link as its start.
//! 3. A link to a directory above it is diagnosed and left out; one that leads nowhere is looked at
//!    itself.

use super::chunk::{Chunk, Location};
use super::outside::inode_outside;
use super::search::Search;
use super::visit::Visit;
use crate::error::{Error, Result};
use crate::find::messages::{file_system_loop, link_problem, quoted};
use crate::find::path::push_component;
use canopy_index::RowRange;
use canopy_index::column::{MODE, TARGET};
use canopy_model::{AbsolutePath, FileType, is_below, unescape};
use canopy_read::Inode;
use canopy_read::gaps::unlisted;
use canopy_read::inode::{ENTRY, text_or_empty};
use canopy_read::links::{Resolved, ResolvedEntry, parent_of};
use canopy_read::locate::{Start, absolute_path, source_of, to_path, why_unlisted};
use canopy_read::plan::Unit;
use canopy_read::resolve::locate;
use rustix::io::Errno;
use std::sync::Arc;

/// The real directories above a link, up to a start.
#[derive(Clone)]
pub(crate) struct Ancestors {
    /// The highest, by absolute path, and its path as it is shown.
    top: String,
    shown: Vec<u8>,
    /// The directory of the link.
    bottom: String,
}

impl Ancestors {
    /// Returns the path, as it is shown, of a directory that is one of these.
    fn shown(&self, directory: &str) -> Option<Vec<u8>> {
        if !is_below_absolute(&self.bottom, directory) || !is_below_absolute(directory, &self.top) {
            return None;
        }
        let below = directory[self.top.len()..].trim_start_matches('/');
        let mut shown = self.shown.clone();
        if !below.is_empty() {
            push_component(&mut shown, &unescape(below));
        }
        Some(shown)
    }
}

fn is_below_absolute(path: &str, directory: &str) -> bool {
    is_below(path.trim_start_matches('/'), directory.trim_start_matches('/'))
}

impl Search<'_, '_> {
    /// Leaves out directories that are above the link that leads to the start, and below the start
    /// too.
    pub(super) fn leave_out_loops(&mut self) {
        for (path, problem) in &self.visit.loops {
            let far = self.visit.depth_of(path.as_path()) > self.find.globals.depth_max;
            if !far && !self.is_pruned(path.as_path()) {
                self.visit.facts.add_link_problem(problem.clone());
            }
        }
        self.pruned.extend(self.visit.loops.iter().map(|(path, _)| path.clone()));
        self.pruned.sort_by(|a, b| a.as_path().cmp(&b.as_path()));
    }

    /// Says of directories that could not be listed when the caller indexed them that they could
    /// not, as far as the search comes to them.
    pub(super) fn note_unlisted(&self) -> Result<()> {
        if !self.start.view.is_of_caller(self.start.source.id) {
            return Ok(());
        }
        for directory in unlisted(self.start)? {
            let depth = self.visit.depth_of(directory.path.as_path());
            let is_elsewhere =
                self.visit.device.is_some_and(|device| device != directory.inode.dev);
            if depth >= self.find.globals.depth_max
                || is_elsewhere
                || self.is_pruned(directory.path.as_path())
            {
                continue;
            }
            if let Some(why) = why_unlisted(&directory)? {
                let path = directory.given;
                self.visit.facts.add_link_problem(Error::Start { path, why }.to_string());
            }
        }
        Ok(())
    }

    /// Follows the links of a unit.
    pub(super) fn follow_links(&self, unit: &Unit) -> Result<()> {
        let mut links: Vec<RowRange> = Vec::new();
        let mut row_numbers = unit.rows.iter().cloned().flatten();
        for batch in unit.read(MODE)? {
            let batch = batch?;
            let rows = row_numbers.by_ref().take(batch.num_rows()).zip(MODE.of(&batch)?);
            let rows = rows.filter(|(_, mode)| FileType::of_mode(**mode) == FileType::Symlink);
            links.extend(rows.map(|(row, _)| row..row + 1));
        }
        if links.is_empty() {
            return Ok(());
        }
        for placed in unit.read_placed(ENTRY, &links, true)? {
            let chunk = Chunk::below(self.visit, unit, placed?)?;
            for at in 0..chunk.len() {
                self.follow_link(&chunk, at)?;
            }
        }
        Ok(())
    }

    fn follow_link(&self, chunk: &Chunk, at: usize) -> Result<()> {
        let (facts, location) = (&self.visit.facts, &chunk.locations[at]);
        let target = text_or_empty(TARGET.find(&chunk.batch), at);
        let mut there = facts.follow(location, target);
        if let Resolved::Entry(reached) = there {
            return self.visit_next(chunk, at, &reached);
        }
        if let Resolved::Unknown = there {
            there = match facts.look_outside(location, target) {
                Some(Ok((attributes, dev))) => {
                    return self.visit_outside(location, inode_outside(attributes, dev));
                }
                Some(Err(Errno::NOTDIR)) => Resolved::NotDirectory,
                Some(Err(Errno::LOOP)) => Resolved::Loop,
                Some(Err(Errno::NAMETOOLONG)) => Resolved::LongName,
                Some(Err(Errno::ACCESS)) => Resolved::Denied,
                Some(Err(_)) | None => Resolved::Missing,
            };
        }
        if let Some(what) = link_problem(&there) {
            let shown = quoted(&unescape(&location.shown));
            facts.add_link_problem(format!("{shown}: {what}"));
        }
        if let Resolved::Loop = there {
            return Ok(());
        }
        let near = location.depth < self.find.globals.depth_min;
        self.act_alone(chunk.only(at), near).map(|_| ())
    }

    /// Has what lies outside of the index visited in place of the link that leads there. What is in
    /// a directory is not searched.
    fn visit_outside(&self, location: &Location, inode: Inode) -> Result<()> {
        let (visit, start) = (self.visit, self.start);
        let is_dir = inode.attributes.file_type() == FileType::Directory;
        if is_dir && location.depth < self.find.globals.depth_max {
            let link = absolute_path(&start.source, location.path.as_path());
            visit.facts.outside.note_unsearched(link.as_bytes());
        }
        let given = unescape(&location.shown).into_owned();
        let start = Start { given, path: location.path.clone(), inode, ..start.clone() };
        let (links, outside) = (&visit.facts.links, &visit.facts.outside);
        let next = Visit {
            given: visit.given.clone(),
            depth: location.depth,
            via_link: true,
            device: visit.device,
            ..Visit::new(self.find, visit.number, start, links, outside)?
        };
        self.followed.lock().push(Arc::new(next));
        Ok(())
    }

    /// Has what a link leads to visited, unless it is a directory above the link.
    fn visit_next(&self, chunk: &Chunk, at: usize, reached: &ResolvedEntry) -> Result<()> {
        let (visit, location) = (self.visit, &chunk.locations[at]);
        let shown = unescape(&location.shown).into_owned();
        let link = absolute_path(&self.start.source, location.path.as_path());
        let mut ancestors = visit.ancestors.clone();
        ancestors.push(Ancestors {
            top: absolute_path(&self.start.source, self.start.path.as_path()),
            shown: self.start.given.clone(),
            bottom: parent_of(&link).to_owned(),
        });
        let is_dir = reached.inode.attributes.file_type() == FileType::Directory;
        let same = ancestors.iter().find_map(|above| above.shown(&reached.absolute));
        if let Some(same) = same.filter(|_| is_dir) {
            visit.facts.add_link_problem(file_system_loop(&shown, &same));
            return Ok(());
        }
        let links = reached.links;
        let seen = match reached.by_name {
            true => visit.facts.links.view(&reached.absolute)?,
            false => self.start.view.clone(),
        };
        let (view, seen) = (&self.start.view, &seen);
        let start = match source_of(seen, AbsolutePath::new(&reached.absolute)) {
            // Nothing lies below it that would have to be seen from there.
            Some((source, path)) if !is_dir => {
                let (source, path) = (source.clone(), path.to_buf());
                let inode = reached.inode.clone();
                Start { given: shown, source, path, inode, view: seen.clone(), links }
            }
            _ => {
                let there = locate(view, to_path(&reached.absolute).as_os_str())?;
                Start { given: shown, links, ..there }
            }
        };
        let below =
            ancestors.iter().filter(|above| is_below_absolute(&above.top, &reached.absolute));
        let loops = below.filter_map(|above| {
            let (source, path) = source_of(&start.view, AbsolutePath::new(&above.top))?;
            let problem = file_system_loop(&start.display(path), &above.shown);
            (source.id == start.source.id).then(|| (path.to_buf(), problem))
        });
        let loops = loops.collect();
        let next = Visit {
            given: visit.given.clone(),
            depth: location.depth,
            via_link: true,
            ancestors,
            loops,
            device: visit.device,
            ..Visit::new(self.find, visit.number, start, &visit.facts.links, &visit.facts.outside)?
        };
        self.followed.lock().push(Arc::new(next));
        Ok(())
    }
}

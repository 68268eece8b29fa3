//! `-L` in an index: what symbolic links lead to is searched as if it stood in their place.
//!
//! 1. Of each unit, the rows that are links are taken out and followed, as far as the index knows.
//! 2. What a link leads to becomes a visit of its own, with the path of the link as its start.
//! 3. A link to a directory above it is told and left out; one that leads nowhere is looked at
//!    itself.

use super::chunk::Chunk;
use super::gather::gather;
use super::known::{UNKNOWN, file_system_loop, quoted};
use super::run::{BATCH_ROWS, Search, Unit, is_link};
use super::visit::Visit;
use crate::error::Result;
use arrow::array::AsArray;
use arrow::datatypes::UInt32Type;
use canopy_index::RowRange;
use canopy_model::{FileType, compare_paths, is_below, unescape};
use canopy_read::columns::{INODE, numbers, text_or_empty};
use canopy_read::links::{Place, Reached, parent_of};
use canopy_read::locate::{Start, absolute_path, locate, source_of, to_path};
use std::sync::Arc;

/// Directories above a link, real ones.
#[derive(Clone)]
pub(super) struct Above {
    /// The highest, by absolute path, and its path as it is shown.
    top: String,
    shown: Vec<u8>,
    /// The directory of the link.
    bottom: String,
}

impl Above {
    /// The path, as it is shown, of a directory that is one of these.
    fn shown(&self, directory: &str) -> Option<Vec<u8>> {
        if !is_below_absolute(&self.bottom, directory) || !is_below_absolute(directory, &self.top) {
            return None;
        }
        let below = directory[self.top.len()..].trim_start_matches('/');
        let mut shown = self.shown.clone();
        if !below.is_empty() {
            if shown.last() != Some(&b'/') {
                shown.push(b'/');
            }
            shown.extend_from_slice(&unescape(below));
        }
        Some(shown)
    }
}

fn is_below_absolute(path: &str, directory: &str) -> bool {
    is_below(path.trim_start_matches('/'), directory.trim_start_matches('/'))
}

impl Search<'_, '_> {
    /// Directories that are above the link that leads to the start, and below the start too, are
    /// told and left out.
    pub(super) fn leave_out_loops(&mut self) {
        for (path, told) in &self.visit.loops {
            let depth = path.split('/').count() as u32 - self.start.depth() + self.visit.depth;
            if depth <= self.find.globals.depth_max && !self.is_pruned(path) {
                self.visit.known.tell_of_link(told.clone());
            }
        }
        self.pruned.extend(self.visit.loops.iter().map(|(path, _)| path.clone()));
        self.pruned.sort_by(|a, b| compare_paths(a, b));
    }

    /// Follows the links of a unit.
    pub(super) fn follow_links(&self, unit: &Unit<'_>) -> Result<()> {
        let mut links: Vec<RowRange> = Vec::new();
        let mut numbers_of_rows = unit.rows.iter().cloned().flatten();
        for batch in unit.shard.read(unit.kind, &["mode"], &unit.rows, BATCH_ROWS)? {
            let batch = batch?;
            let modes = numbers::<UInt32Type>(&batch, "mode").values();
            let rows = numbers_of_rows.by_ref().take(batch.num_rows()).zip(modes);
            let rows = rows.filter(|(_, mode)| FileType::of_mode(**mode) == FileType::Symlink);
            links.extend(rows.map(|(row, _)| row..row + 1));
        }
        if links.is_empty() {
            return Ok(());
        }
        let columns: Vec<&str> =
            INODE.into_iter().chain(["listing", "name", "target", "rdev", "xattrs"]).collect();
        for batch in unit.shard.read(unit.kind, &columns, &links, BATCH_ROWS)? {
            let chunk = Chunk::below(self.visit, unit.shard, unit.kind, batch?)?;
            for at in 0..chunk.paths.len() {
                debug_assert!(is_link(&chunk.batch, at));
                self.follow_link(&chunk, at)?;
            }
        }
        Ok(())
    }

    fn follow_link(&self, chunk: &Chunk, at: usize) -> Result<()> {
        let known = &self.visit.known;
        let tell =
            |what| known.tell_of_link(format!("{}: {what}", quoted(&unescape(&chunk.shown[at]))));
        let targets = chunk.batch.column_by_name("target").map(|column| column.as_string::<i32>());
        match known.follow(&chunk.paths[at], text_or_empty(targets, at)) {
            Place::There(reached) => return self.visit_next(chunk, at, &reached),
            Place::Loop => {
                tell("Too many levels of symbolic links");
                return Ok(());
            }
            Place::NotDirectory => tell("Not a directory"),
            Place::Unknown => tell(UNKNOWN),
            Place::Missing => {}
        }
        let near = chunk.depths[at] < self.find.globals.depth_min;
        self.act_alone(chunk.only(at), near).map(|_| ())
    }

    /// Has what a link leads to visited, unless it is a directory above the link.
    fn visit_next(&self, chunk: &Chunk, at: usize, reached: &Reached) -> Result<()> {
        let visit = self.visit;
        let shown = unescape(&chunk.shown[at]).into_owned();
        let link = absolute_path(&self.start.source, &chunk.paths[at]);
        let mut above = visit.above.clone();
        above.push(Above {
            top: absolute_path(&self.start.source, &self.start.path),
            shown: self.start.given.clone(),
            bottom: parent_of(&link).to_owned(),
        });
        let is_dir = reached.inode.attributes.file_type() == FileType::Directory;
        let same = above.iter().find_map(|above| above.shown(&reached.absolute));
        if let Some(same) = same.filter(|_| is_dir) {
            visit.known.tell_of_link(file_system_loop(&shown, &same));
            return Ok(());
        }
        let view = &self.start.view;
        let start = match source_of(view, &reached.absolute) {
            // Nothing lies below it that would have to be seen from there.
            Some((source, path)) if !is_dir => {
                let (source, inode) = (source.clone(), reached.inode.clone());
                Start { given: shown, source, path, inode, view: view.clone() }
            }
            _ => Start { given: shown, ..locate(view, to_path(&reached.absolute).as_os_str())? },
        };
        let below = above.iter().filter(|above| is_below_absolute(&above.top, &reached.absolute));
        let loops = below.filter_map(|above| {
            let (source, path) = source_of(&start.view, &above.top)?;
            let told = file_system_loop(&start.display(&path), &above.shown);
            (source.id == start.source.id).then_some((path, told))
        });
        let loops = loops.collect();
        let next = Visit {
            number: visit.number,
            given: visit.given.clone(),
            depth: chunk.depths[at],
            via_link: true,
            known: gather(self.find, &start, &visit.known.links)?,
            above,
            loops,
            device: visit.device,
            start,
        };
        let mut followed = self.followed.lock().expect("no thread panics while it holds the lock");
        followed.push(Arc::new(next));
        Ok(())
    }
}

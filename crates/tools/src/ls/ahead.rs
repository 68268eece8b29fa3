//! `ls -R`: what is in directories, read from all shards together instead of looked up one
//! directory after the other.

use super::entry::LsEntry;
use crate::error::Result;
use canopy_model::{SourcePath, SourcePathBuf};
use canopy_read::depth_first::{DepthFirst, ListedDirectory, ListingRows};
use canopy_read::inode::{ENTRY, inodes};
use canopy_read::locate::Start;
use canopy_read::totals::VisibleTree;
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// Most entries that are held in memory where directories are asked for in another order than that
/// of paths.
const HELD_MAX: i64 = 1_000_000;

/// The contents of the directories at and below a start.
pub(super) struct ReadAhead<'a> {
    merge: DepthFirst<'a>,
    /// Directories by path, in path order. All of the first one's listing is there if a second one
    /// is, or no more comes.
    ready: VecDeque<(SourcePathBuf, Vec<LsEntry>)>,
    ended: bool,
    /// All of them, where they are asked for in another order.
    held: FxHashMap<SourcePathBuf, Vec<LsEntry>>,
}

impl<'a> ReadAhead<'a> {
    /// Begins at a start, for directories that are asked for in path order or not. Returns `None`
    /// where that would take too much memory.
    pub(super) fn new(start: &'a Start, path_order: bool) -> Result<Option<Self>> {
        let merge = DepthFirst::new(start, ENTRY)?;
        let mut ahead =
            ReadAhead { merge, ready: VecDeque::new(), ended: false, held: FxHashMap::default() };
        if !path_order {
            let totals = VisibleTree::of(start, 1).sum_of_names()?;
            if totals.entries + totals.dirs > HELD_MAX {
                return Ok(None);
            }
            while !ahead.ended {
                ahead.read()?;
            }
            ahead.held = std::mem::take(&mut ahead.ready).into_iter().collect();
        }
        Ok(Some(ahead))
    }

    /// Returns what is in a directory; `None` if that is not known here. In path order, those
    /// before it are passed over.
    pub(super) fn take(&mut self, path: SourcePath<'_>) -> Result<Option<Vec<LsEntry>>> {
        if let Some(entries) = self.held.remove(path.as_str()) {
            return Ok(Some(entries));
        }
        loop {
            while self.ready.len() < 2 && !self.ended {
                self.read()?;
            }
            match self.ready.front().map(|(next, _)| next.as_path().cmp(&path)) {
                Some(Ordering::Less) => drop(self.ready.pop_front()),
                Some(Ordering::Equal) => {
                    return Ok(self.ready.pop_front().map(|(_, entries)| entries));
                }
                Some(Ordering::Greater) | None => return Ok(None),
            }
        }
    }

    /// Reads the next listing, which may be a further part of the last directory.
    fn read(&mut self) -> Result<()> {
        let ready = &mut self.ready;
        let more = self.merge.next(
            |directory: &ListedDirectory, rows: ListingRows<'_, '_>| -> Result<()> {
                if ready.back().is_none_or(|(path, _)| *path != directory.path) {
                    ready.push_back((directory.path.clone(), Vec::new()));
                }
                let Some((_, all)) = ready.back_mut() else { return Ok(()) };
                let ListingRows { entries, entry_count, dirs, dir_count } = rows;
                for (cursor, count) in [(entries, entry_count), (dirs, dir_count)] {
                    cursor.take(count, |batch, rows| -> Result<()> {
                        let found = inodes(batch, rows, directory.dev)?;
                        all.extend(found.map(|(name, inode)| LsEntry::listed(&name, inode)));
                        Ok(())
                    })?;
                }
                Ok(())
            },
        )?;
        self.ended = !more;
        Ok(())
    }
}

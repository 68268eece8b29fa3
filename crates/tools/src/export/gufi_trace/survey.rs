//! Facts from other listings that stanzas of GUFI's trace need.

use super::super::xattrs::Values;
use crate::error::Result;
use canopy_index::column::{FIRST_ENTRY, INO, INODE, PART, PATH};
use canopy_index::{FileKind, ListingOrdinal, RowRange, Shard, SourceId};
use canopy_model::{Attributes, SourcePath, SourcePathBuf};
use canopy_read::inode::InodeColumns;
use canopy_read::listings::RowCounts;
use canopy_read::locate::Start;
use canopy_read::plan::{ShardRange, units};
use canopy_read::work::{in_parallel, listed};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Listings of one shard below one start, whose stanzas one worker writes.
pub(super) struct ListingsUnit<'a> {
    pub(super) start: &'a Start,
    pub(super) values: &'a Values,
    pub(super) range: ShardRange,
}

/// A further part of a huge directory.
pub(super) struct FurtherPart {
    number: u32,
    pub(super) shard: Arc<Shard>,
    pub(super) entries: RowRange,
}

/// Facts from other listings that stanzas need, by source and path.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) inodes: FxHashMap<(SourceId, SourcePathBuf), u64>,
    pub(super) parts: FxHashMap<(SourceId, SourcePathBuf), Vec<FurtherPart>>,
}

/// The head of a stanza.
pub(super) struct Head {
    pub(super) path: SourcePathBuf,
    pub(super) part: u32,
    pub(super) attributes: Attributes,
    /// Inode of the directory that holds it, 0 if not known.
    pub(super) parent: u64,
    pub(super) entries: RowRange,
}

impl Survey {
    /// Looks for directories whose parent is not before them in the same unit, and for further
    /// parts of directories.
    pub(super) fn of(units: &[ListingsUnit<'_>], threads: usize) -> Result<Survey> {
        let parts: Mutex<FxHashMap<(SourceId, SourcePathBuf), Vec<FurtherPart>>> = Mutex::default();
        let wanted = Mutex::new(FxHashSet::default());
        in_parallel(threads, units, |unit| -> Result<()> {
            let source = unit.start.source.id;
            let mut missing = Vec::new();
            let heads = unit.heads(|path| missing.push((source, path.to_buf())))?;
            wanted.lock().extend(missing);
            let mut parts = parts.lock();
            for Head { path, part: number, entries, .. } in heads {
                if number > 0 {
                    let part = FurtherPart { number, shard: unit.range.shard.clone(), entries };
                    parts.entry((source, path)).or_default().push(part);
                }
            }
            Ok(())
        })?;
        let (mut parts, wanted) = (parts.into_inner(), wanted.into_inner());
        parts.values_mut().for_each(|parts| parts.sort_by_key(|part| part.number));
        let inodes = match wanted.is_empty() {
            true => FxHashMap::default(),
            false => inodes_of(units, &wanted, threads)?,
        };
        Ok(Survey { inodes, parts })
    }
}

/// Reads the inode numbers of some directories, by source and path.
fn inodes_of(
    listings: &[ListingsUnit<'_>],
    wanted: &FxHashSet<(SourceId, SourcePathBuf)>,
    threads: usize,
) -> Result<FxHashMap<(SourceId, SourcePathBuf), u64>> {
    let found = listed(threads, listings, |listings| -> Result<_> {
        let mut found = Vec::new();
        for unit in listings.units() {
            for batch in unit.read(PATH | INO)? {
                let batch = batch?;
                for (path, &ino) in PATH.of(&batch)?.iter().flatten().zip(INO.of(&batch)?) {
                    let key = (listings.start.source.id, SourcePath::escaped(path).to_buf());
                    if wanted.contains(&key) {
                        found.push((key, ino));
                    }
                }
            }
        }
        Ok(found)
    })?;
    Ok(found.into_iter().collect())
}

impl ListingsUnit<'_> {
    fn units(&self) -> Vec<canopy_read::plan::Unit> {
        let rows: Vec<RowRange> = self.range.listings.iter().map(ListingOrdinal::rows).collect();
        units(&self.range.shard, FileKind::Listings, &rows)
    }

    /// Reads its heads. A directory whose parent is not before it in the unit has parent 0, and
    /// `missing` gets the parent's path.
    pub(super) fn heads(&self, mut missing: impl FnMut(SourcePath<'_>)) -> Result<Vec<Head>> {
        let mut heads: Vec<Head> = Vec::with_capacity(ListingOrdinal::count(&self.range.listings));
        // Directories at or above the last one, with their inodes.
        let mut above: Vec<(SourcePathBuf, u64)> = Vec::new();
        for unit in self.units() {
            for batch in unit.read(INODE | PATH | PART | FIRST_ENTRY | RowCounts::COLUMNS)? {
                let batch = batch?;
                let inodes = InodeColumns::of(&batch);
                let (paths, parts) = (PATH.of(&batch)?, PART.of(&batch)?);
                let (firsts, counts) = (FIRST_ENTRY.of(&batch)?, RowCounts::of(&batch)?);
                for at in 0..batch.num_rows() {
                    let (path, attributes) = (SourcePath::escaped(paths.value(at)), inodes.row(at));
                    let parent = self.parent(path, &mut above, &mut missing);
                    above.push((path.to_buf(), attributes.ino));
                    let first = firsts[at] as usize;
                    let entries = first..first + counts.entries(&self.range.shard, at)?;
                    let (path, part) = (path.to_buf(), parts[at]);
                    heads.push(Head { path, part, attributes, parent, entries });
                }
            }
        }
        Ok(heads)
    }

    /// Gives the inode of the directory that holds another one, 0 if it is not `above`.
    fn parent(
        &self,
        path: SourcePath<'_>,
        above: &mut Vec<(SourcePathBuf, u64)>,
        missing: &mut impl FnMut(SourcePath<'_>),
    ) -> u64 {
        let is_done = |top: SourcePath<'_>| top == path || !path.is_below(top);
        while above.pop_if(|(top, _)| is_done(top.as_path())).is_some() {}
        let is_start = path == self.start.path.as_path();
        let Some(parent) = path.parent().filter(|_| !is_start) else { return 0 };
        match above.last() {
            Some((top, ino)) if top.as_path() == parent => *ino,
            _ => {
                missing(parent);
                0
            }
        }
    }
}

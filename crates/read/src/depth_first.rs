//! The directories below a start in one order: that of a depth-first walk, siblings by name.
//!
//! Each shard has its listings in path order, so this is a merge. A shard is opened when its first
//! cover says that its first listing may come next, and closed behind its last, so that those open
//! at a time are few where shards lie apart.

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::inode::InodeColumns;
use crate::listings::RowCounts;
use crate::locate::Start;
use canopy_index::column::{DEV, INODE, PART, PATH};
use canopy_index::{Columns, FileKind, ListingOrdinal, ListingRange, Shard};
use canopy_model::{Attributes, Device, SourcePath, SourcePathBuf};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// Listings read at a time from one shard.
const LISTINGS: usize = 2048;

/// Rows held in memory over all shards, about.
const ROWS_MAX: usize = 2 << 20;

/// A listing and how many rows it has.
pub struct ListedDirectory {
    /// Path of the directory.
    pub path: SourcePathBuf,
    /// Number of the part of a huge directory, from 0.
    pub part: u32,
    /// Its device.
    pub dev: Device,
    /// Attributes of the directory.
    pub attributes: Attributes,
    entry_count: usize,
    dir_count: usize,
}

/// Entries and directories of the listing that comes next.
pub struct ListingRows<'m, 'a> {
    /// Those that are not directories, the next ones of these rows.
    pub entries: &'m mut Cursor<'a>,
    /// How many of them belong to the listing.
    pub entry_count: usize,
    /// The directories in it.
    pub dirs: &'m mut Cursor<'a>,
    /// How many of them belong to the listing.
    pub dir_count: usize,
}

/// Calls `each` for every listing at and below the start, in path order, parts of a directory one
/// after the other. `columns` are read of `entries`, those of them that there are of `dirs`. Each
/// must take all rows.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read or is damaged, and with the first error of
/// `each`.
pub fn in_order<E: From<Error>>(
    start: &Start,
    columns: impl Into<Columns>,
    mut each: impl FnMut(&ListedDirectory, ListingRows<'_, '_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut merge = DepthFirst::new(start, columns)?;
    while merge.next(&mut each)? {}
    Ok(())
}

/// As [`in_order`], one listing at a time.
pub struct DepthFirst<'a> {
    heap: BinaryHeap<Next<'a>>,
    columns: Columns,
    chunk_rows: usize,
}

impl<'a> DepthFirst<'a> {
    /// Begins at a start.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn new(start: &'a Start, columns: impl Into<Columns>) -> Result<Self> {
        let columns = columns.into();
        let mut heap = BinaryHeap::new();
        for shard in start.view.shards_below(start.source.id, start.path.as_path())? {
            let listings = shard.listings_below(start.path.as_path())?;
            if !listings.is_empty() {
                let first = shard.covers()?.first().map_or("", |cover| cover.prefix.as_str());
                heap.push(Next {
                    path: SourcePath::escaped(first).to_buf(),
                    part: 0,
                    source: Source::Closed(shard, listings),
                });
            }
        }
        let chunk_rows = (ROWS_MAX / heap.len().max(1)).clamp(512, 8192);
        Ok(DepthFirst { heap, columns, chunk_rows })
    }

    /// Calls `each` for the next listing. Whether there was one.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read or is damaged, and with the first error of
    /// `each`.
    pub fn next<E: From<Error>>(
        &mut self,
        mut each: impl FnMut(&ListedDirectory, ListingRows<'_, '_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut called = false;
        while !called {
            let Some(Next { source, .. }) = self.heap.pop() else { return Ok(false) };
            let mut open = match source {
                Source::Closed(shard, listings) => {
                    Open::new(shard, listings, self.columns, self.chunk_rows)?
                }
                Source::Open(mut open) => {
                    if let Some(directory) = open.ready.pop_front() {
                        each(&directory, open.rows(&directory))?;
                        called = true;
                    }
                    *open
                }
            };
            if let Some(next) = open.peek()? {
                let (path, part) = (next.path.clone(), next.part);
                self.heap.push(Next { path, part, source: Source::Open(Box::new(open)) });
            }
        }
        Ok(true)
    }
}

/// The next listing of one shard, or the earliest one that is possible.
struct Next<'a> {
    path: SourcePathBuf,
    part: u32,
    source: Source<'a>,
}

enum Source<'a> {
    Closed(&'a Shard, Vec<ListingRange>),
    Open(Box<Open<'a>>),
}

impl Ord for Next<'_> {
    /// The first in path order is the greatest, since a heap gives the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.path.as_path().cmp(&self.path.as_path()).then(other.part.cmp(&self.part))
    }
}

impl PartialOrd for Next<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Next<'_> {}

struct Open<'a> {
    shard: &'a Shard,
    listings: Cursor<'a>,
    /// Listings that were not read.
    left: usize,
    ready: VecDeque<ListedDirectory>,
    entries: Cursor<'a>,
    dirs: Cursor<'a>,
}

impl<'a> Open<'a> {
    fn new(
        shard: &'a Shard,
        listings: Vec<ListingRange>,
        columns: Columns,
        chunk_rows: usize,
    ) -> Result<Self> {
        let (entries, dirs) = shard.rows_of(&listings)?;
        Ok(Open {
            shard,
            left: ListingOrdinal::count(&listings),
            listings: Cursor::new(
                shard,
                FileKind::Listings,
                INODE | PATH | PART | DEV | RowCounts::COLUMNS,
                listings.iter().map(ListingOrdinal::rows).collect(),
                LISTINGS.min(chunk_rows),
            ),
            ready: VecDeque::new(),
            entries: Cursor::new(shard, FileKind::Entries, columns, entries, chunk_rows),
            dirs: Cursor::new(shard, FileKind::Dirs, columns, dirs, chunk_rows),
        })
    }

    fn peek(&mut self) -> Result<Option<&ListedDirectory>> {
        if self.ready.is_empty() && self.left > 0 {
            let count = self.left.min(LISTINGS);
            let (shard, ready) = (self.shard, &mut self.ready);
            self.listings.take(count, |batch, rows| -> Result<()> {
                let inodes = InodeColumns::of(batch);
                let (paths, parts, devs) = (PATH.of(batch)?, PART.of(batch)?, DEV.of(batch)?);
                let counts = RowCounts::of(batch)?;
                for at in rows {
                    ready.push_back(ListedDirectory {
                        path: SourcePath::escaped(paths.value(at)).to_buf(),
                        part: parts[at],
                        dev: devs.value(at),
                        attributes: inodes.row(at),
                        entry_count: counts.entries(shard, at)?,
                        dir_count: counts.dirs(shard, at)?,
                    });
                }
                Ok(())
            })?;
            self.left -= count;
        }
        Ok(self.ready.front())
    }

    fn rows(&mut self, directory: &ListedDirectory) -> ListingRows<'_, 'a> {
        let &ListedDirectory { entry_count, dir_count, .. } = directory;
        ListingRows { entries: &mut self.entries, entry_count, dirs: &mut self.dirs, dir_count }
    }
}

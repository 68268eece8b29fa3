//! Directories that a pass over a tree in the index finds otherwise than a walk of the file system:
//! - those that the caller may not list, or that the index lacks;
//! - those that are one of the directories above them.

use crate::error::Result;
use crate::inode::{Inode, InodeColumns, text_or_empty};
use crate::listings::ListingHeads;
use crate::locate::{Start, caller};
use crate::plan::{self, BATCH_ROWS, ShardRange, row_count};
use canopy_index::column::*;
use canopy_index::{Columns, FileKind, ListingOrdinal, ListingRange, Shard};
use canopy_model::{Device, SourcePath, SourcePathBuf};
use rustc_hash::FxHashSet;
use std::hash::{BuildHasher, RandomState};

/// Directories at or below a start whose listings the caller does not see, in path order. Paths are
/// compared by hashes, which are less to keep. Costs a look at numbers of rows where there are none. Root sees all but what the index lacks,
/// which is known of the source.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn unlisted(start: &Start) -> Result<Vec<Start>> {
    let lacks_some = || -> Result<bool> {
        let root = &start.source.root;
        Ok(start.view.failures()?.iter().any(|failure| failure.published && failure.root == *root))
    };
    if caller().is_root() && !lacks_some()? {
        return Ok(Vec::new());
    }
    let mut parts = Vec::new();
    let (mut listing_count, mut dir_count) = (0, 1);
    for ShardRange { shard, listings } in
        plan::below(&start.view, start.source.id, start.path.as_path())?
    {
        let (_, dirs) = shard.rows_of(&listings)?;
        listing_count += match shard.record().parts {
            true => first_parts(&shard, &listings)?,
            false => ListingOrdinal::count(&listings),
        };
        dir_count += row_count(&dirs);
        parts.push((shard, listings, dirs));
    }
    if listing_count == dir_count {
        return Ok(Vec::new());
    }
    let hasher = RandomState::new();
    let mut listed = FxHashSet::default();
    for (shard, listings, _) in &parts {
        for batch in shard.read_listings(PATH, listings, BATCH_ROWS)? {
            let batch = batch?;
            let paths = PATH.of(&batch)?;
            listed.extend((0..batch.num_rows()).map(|at| hasher.hash_one(paths.value(at))));
        }
    }
    let mut found = Vec::new();
    if !listed.contains(&hasher.hash_one(start.path.as_str())) {
        found.push(start.clone());
    }
    let columns: Columns = LISTING | NAME | MODE | UID | GID | XATTRS;
    for (shard, _, dirs) in parts.iter().filter(|(_, _, dirs)| !dirs.is_empty()) {
        for batch in shard.read(FileKind::Dirs, columns, dirs, BATCH_ROWS)? {
            let batch = batch?;
            let (listings, names) = (LISTING.of(&batch)?, NAME.of(&batch)?);
            let (inodes, xattrs) = (InodeColumns::of(&batch), XATTRS.of(&batch)?);
            let heads = ListingHeads::read_with_devices(shard, listings.iter())?;
            for (at, listing) in listings.iter().enumerate() {
                let head = heads.expect(shard, FileKind::Dirs, listing)?;
                let path = head.path.child(names.value(at));
                if listed.contains(&hasher.hash_one(path.as_str())) {
                    continue;
                }
                let inode = Inode {
                    attributes: inodes.row(at),
                    target: String::new(),
                    dev: head.dev.unwrap_or_default(),
                    xattrs: text_or_empty(Some(xattrs), at).to_owned(),
                };
                let given = start.display(path.as_path());
                found.push(Start { given, path, inode, ..start.clone() });
            }
        }
    }
    found.sort_by(|a, b| a.path.as_path().cmp(&b.path.as_path()));
    Ok(found)
}

/// Returns how many of some listings are the first part of one.
fn first_parts(shard: &Shard, listings: &[ListingRange]) -> Result<usize> {
    let mut count = 0;
    for batch in shard.read_listings(PART, listings, BATCH_ROWS)? {
        count += PART.of(&batch?)?.iter().filter(|&&part| part == 0).count();
    }
    Ok(count)
}

/// The paths of directories below a start that are one of those above them, since it is bound
/// there, in path order. Costs a pass over the inode numbers of directories.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn loops(start: &Start) -> Result<Vec<SourcePathBuf>> {
    let ranges = plan::below(&start.view, start.source.id, start.path.as_path())?;
    let mut numbers = Vec::new();
    for ShardRange { shard, listings } in &ranges {
        for batch in shard.read_listings(INO, listings, BATCH_ROWS)? {
            numbers.extend_from_slice(INO.of(&batch?)?);
        }
    }
    numbers.sort_unstable();
    let same = numbers.windows(2).filter(|two| two[0] == two[1]);
    let repeated: FxHashSet<u64> = same.map(|two| two[0]).collect();
    if repeated.is_empty() {
        return Ok(Vec::new());
    }
    let mut met: Vec<(SourcePathBuf, (Device, u64))> = Vec::new();
    for ShardRange { shard, listings } in &ranges {
        for batch in shard.read_listings(PATH | INO | DEV, listings, BATCH_ROWS)? {
            let batch = batch?;
            let (paths, inos, devs) = (PATH.of(&batch)?, INO.of(&batch)?, DEV.of(&batch)?);
            let again = (0..batch.num_rows()).filter(|&at| repeated.contains(&inos[at]));
            met.extend(again.map(|at| {
                let path = SourcePath::escaped(paths.value(at)).to_buf();
                (path, (devs.value(at), inos[at]))
            }));
        }
    }
    met.sort_by(|(a, _), (b, _)| a.as_path().cmp(&b.as_path()));
    let mut open: Vec<(SourcePathBuf, (Device, u64))> = Vec::new();
    let mut found: Vec<SourcePathBuf> = Vec::new();
    for (path, id) in met {
        let is_below = |above: &SourcePathBuf| path.as_path().is_below(above.as_path());
        while open.last().is_some_and(|(above, _)| !is_below(above)) {
            open.pop();
        }
        if found.last().is_some_and(is_below) {
            continue;
        }
        // A huge directory comes in parts, which are not below each other.
        if open.iter().any(|(above, of_above)| *of_above == id && *above != path) {
            found.push(path);
        } else {
            open.push((path, id));
        }
    }
    Ok(found)
}

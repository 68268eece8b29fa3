//! Places of an inode in an index: the names of a file that are not known to have changed.

use super::Writer;
use super::copying::{read, read_listings};
use crate::column::{INO, LISTING, PATH};
use crate::error::Result;
use crate::listing_ordinal::ListingRange;
use crate::pages::PageRecord;
use crate::schema::FileKind;
use crate::shard::{RowRange, Shard};
use crate::source_id::SourceId;
use canopy_model::{SourcePath, SourcePathBuf};

impl Writer {
    /// Returns the directories of a source at or below `directory` in which the index has other
    /// entries than directories with one of these inodes, which are sorted; some of them several
    /// times. `None` if there are more than `max`.
    pub fn directories_with(
        &self,
        source: SourceId,
        directory: SourcePath<'_>,
        inodes: &[u64],
        max: usize,
    ) -> Result<Option<Vec<SourcePathBuf>>> {
        let mut found = Vec::new();
        let may_have = |_, page: &PageRecord| page.extent.may_have_below(directory);
        for (_, shard) in self.shards_where(source, may_have)? {
            let listings = listings_with(&shard, directory, inodes)?;
            for batch in read_listings(&shard, PATH, &listings)? {
                let batch = batch?;
                let paths = PATH.of(&batch)?;
                found.extend(
                    (0..batch.num_rows()).map(|at| SourcePath::escaped(paths.value(at)).to_buf()),
                );
                if found.len() > max {
                    return Ok(None);
                }
            }
            FileKind::ALL.into_iter().for_each(|kind| shard.close(kind));
        }
        Ok(Some(found))
    }
}

/// Returns the listings of a shard that have entries with one of these inodes.
fn listings_with(
    shard: &Shard,
    directory: SourcePath<'_>,
    inodes: &[u64],
) -> Result<Vec<ListingRange>> {
    let mut found: Vec<ListingRange> = Vec::new();
    let (entries, _) = shard.rows_of(&shard.listings_below(directory)?)?;
    if entries.is_empty() {
        return Ok(found);
    }
    let bounds = shard.bounds(FileKind::Entries, INO)?;
    for (group, bounds) in shard.row_groups(FileKind::Entries).into_iter().zip(bounds) {
        let has_any = |(min, max): (i64, i64)| {
            let first = inodes.partition_point(|&inode| inode < min as u64);
            inodes.get(first).is_some_and(|&inode| inode <= max as u64)
        };
        if bounds.is_some_and(|bounds| bounds.0 >= 0 && !has_any(bounds)) {
            continue;
        }
        let within = |range: &RowRange| range.start.max(group.start)..range.end.min(group.end);
        let rows = Vec::from_iter(entries.iter().map(within).filter(|rows| !rows.is_empty()));
        for batch in read(shard, FileKind::Entries, INO | LISTING, &rows)? {
            let batch = batch?;
            let (inos, listings) = (INO.of(&batch)?, LISTING.of(&batch)?);
            for (at, inode) in inos.iter().enumerate() {
                if inodes.binary_search(inode).is_err() {
                    continue;
                }
                let listing = listings.value(at);
                match found.last_mut() {
                    Some(last) if last.end > listing => {}
                    Some(last) if last.end == listing => last.end += 1,
                    _ => found.push(listing..listing + 1),
                }
            }
        }
    }
    Ok(found)
}

//! The contents of one directory of a source.

use crate::error::Result;
use crate::inode::{ENTRY, Inode, inodes};
use crate::plan::{BATCH_ROWS, row_count};
use canopy_index::{FileKind, Index, SourceRecord};
use canopy_model::SourcePath;

/// The contents of a directory.
pub enum Contents {
    /// Names, escaped, and what they are: directories behind all others, else by name in each part
    /// of the listing.
    Listed(Vec<(String, Inode)>),
    /// More than was asked for.
    TooMany,
    /// The caller may not list it, or there is no such directory.
    Unlisted,
}

impl Contents {
    /// Reads what is in a directory with this path in a source, if those are at most so many
    /// entries.
    ///
    /// # Errors
    ///
    /// Fails with `Index` if the index cannot be read, or a file of it is damaged.
    pub fn of(
        index: &Index,
        source: &SourceRecord,
        path: SourcePath<'_>,
        most: usize,
    ) -> Result<Self> {
        let mut found: Option<Vec<(String, Inode)>> = None;
        for shard in index.shards_at(source.id, path)? {
            let listings = shard.listings_at(path)?;
            let Some(first) = listings.first() else { continue };
            let all = found.get_or_insert_default();
            let dev = shard.device_of(first.start)?;
            let (entries, dirs) = shard.rows_of(&listings)?;
            if all.len() + row_count(&entries) + row_count(&dirs) > most {
                return Ok(Contents::TooMany);
            }
            for (kind, rows) in [(FileKind::Entries, entries), (FileKind::Dirs, dirs)] {
                if rows.is_empty() {
                    continue;
                }
                for batch in shard.read(kind, ENTRY, &rows, BATCH_ROWS)? {
                    let batch = batch?;
                    all.extend(inodes(&batch, 0..batch.num_rows(), dev)?);
                }
            }
        }
        Ok(found.map_or(Contents::Unlisted, Contents::Listed))
    }
}

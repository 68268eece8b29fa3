//! What is in one directory of a source.

use crate::columns::{InodeColumns, strings, text_or_empty};
use crate::error::Result;
use crate::locate::Inode;
use arrow::array::{AsArray, RecordBatch};
use canopy_index::column::{INODE, NAME, RDEV, TARGET, XATTRS};
use canopy_index::{Columns, FileKind, Index, RowRange, SourceRecord};
use std::sync::LazyLock;

/// Rows read at a time.
const BATCH_ROWS: usize = 8192;

/// The columns that a name and its inode are made of; directories have neither a target nor a
/// device.
pub static COLUMNS: LazyLock<Columns> = LazyLock::new(|| INODE | NAME | XATTRS | TARGET | RDEV);

/// What is in a directory.
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
    pub fn of(index: &Index, source: &SourceRecord, path: &str, most: usize) -> Result<Self> {
        let mut found: Option<Vec<(String, Inode)>> = None;
        for shard in index.shards_of(source.id) {
            let listings = shard.listings_at(path)?;
            if listings.is_empty() {
                continue;
            }
            let all = found.get_or_insert_default();
            let dev = shard.device_of(listings.start)?;
            let (entries, dirs) = shard.rows_of(listings)?;
            if all.len() + entries.len() + dirs.len() > most {
                return Ok(Contents::TooMany);
            }
            for (kind, rows) in [(FileKind::Entries, entries), (FileKind::Dirs, dirs)] {
                if rows.is_empty() {
                    continue;
                }
                for batch in shard.read(kind, *COLUMNS, std::slice::from_ref(&rows), BATCH_ROWS)? {
                    let batch = batch?;
                    all.extend(inodes(&batch, 0..batch.num_rows(), dev));
                }
            }
        }
        Ok(found.map_or(Contents::Unlisted, Contents::Listed))
    }
}

/// Rows of a batch with [`COLUMNS`] as names, escaped, and inodes; `dev` is the device of their
/// directory.
pub fn inodes(
    batch: &RecordBatch,
    rows: RowRange,
    dev: u64,
) -> impl Iterator<Item = (String, Inode)> {
    let (names, xattrs) = (strings(batch, "name"), strings(batch, "xattrs"));
    let targets = batch.column_by_name("target").map(|column| column.as_string::<i32>());
    let inodes = InodeColumns::of(batch);
    rows.map(move |at| {
        let inode = Inode {
            attributes: inodes.row(at),
            target: text_or_empty(targets, at).to_owned(),
            dev,
            xattrs: text_or_empty(Some(xattrs), at).to_owned(),
        };
        (names.value(at).to_owned(), inode)
    })
}

//! The files of a shard and their columns; `column` says what each column is and how it is written.
//!
//! All files are plain Parquet. Rows are in path order (see `canopy_model::compare_paths`);
//! ordinals are row numbers within the shard, from 0. Times are nanoseconds since 1970 in UTC,
//! sizes are bytes, `blocks` are units of 512 bytes. Names, paths and targets are escaped (see
//! `canopy_model::escape`), paths are relative to the root of the source, whose own path is empty.
//!
//! | file | a row is | sorted by |
//! | --- | --- | --- |
//! | `listings` | the contents of one directory (or one part of a huge one) | path, part |
//! | `entries` | an entry that is not a directory | listing, name |
//! | `dirs` | an entry that is a directory | listing, name |
//! | `usage` | an owner and group with entries that are not directories | listing, uid, gid |
//! | `hardlinks` | an entry that is not a directory and has nlink > 1 | listing, name |
//! | `summaries` | an owner and group with entries in a block of listings | first_listing, uid, gid |
//! | `xattrs` | the value of an extended attribute | path, name, key |
//!
//! A listing's entries are the rows `first_entry` .. next listing's `first_entry`, its directories
//! likewise from `first_dir`. `bytes_before`, `dir_bytes_before`, `blocks_before` (and the two
//! first ordinals) are running totals over all listings before this one, so the totals of any range
//! of listings are two rows' difference. A file without rows is not written, nor `hardlinks` with
//! few rows: those are in the manifest.
//!
//! The column `xattrs` of `entries` and `dirs` has the names of an entry's extended attributes but
//! `trusted.*`, joined by ','; a ',' or '\' in a name has a '\' before it. Their values are in the
//! file `xattrs` of the class of those who may see them, with the path of the entry's directory,
//! the entry's name and those attributes that are often asked for with them; values are escaped
//! like names. The attributes of a source's root have an empty path and name.
//!
//! A row of `summaries` stands for the listings `first_listing` .. `end_listing`; `summary` is a
//! `canopy_model::Summary` in Postcard without owners, groups and extensions, `extensions` a list
//! of extension, count and bytes, likewise; null where they are too many to keep.
//!
//! Only `mtime` of an inode's times is stored as such: `ctime = mtime + ctime_after_mtime`, `btime
//! = mtime + btime_after_mtime` and `atime = btime + atime_after_btime`, in nanoseconds, wrapping.
//! [`crate::Shard::read`] gives the times themselves.
//!
//! The `listings` file carries in its key-value metadata, under `canopy.fences`, the path of every
//! [`FENCE_ROWS`]th row from row 0, one NUL between two; its data pages hold as many rows, so a
//! look-up decodes one page.
//!
//! `docs/format.md` says all of this byte by byte.
//!
//! # Why the columns are laid out like this
//!
//! - `dirs` is sorted by listing and name, like `entries`, and not by its own path. So the listings
//!   of a subtree are one range, and so are its entries and its directories. The running totals in
//!   `listings` serve all three. One search finds both ends of a subtree.
//! - Distances between times take 36 bytes an entry where four plain times took 50. Programs that
//!   read the Parquet files themselves add them up.
//! - `xattrs` repeats path, name, owner and size of the entry. A search for values reads one file a
//!   shard and joins nothing.
//! - Names are always lz4. Other columns are zstd level 1 in files of 8 Ki rows or more, and lz4 in
//!   smaller files. The Parquet library allocates some 100 KB for zstd for each column of each
//!   file, which costs more than reading a small file.
//! - Small integers use dictionaries, sorted integers use deltas.
//! - Row groups have 128 Ki rows and most pages 8,192: late materialization skips whole pages.

use crate::column::*;
use arrow::datatypes::{Field, Schema, SchemaRef};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use std::sync::{Arc, LazyLock};

/// Format of everything in an index; others are refused.
pub const FORMAT: u32 = 15;

/// Distance of the fences in `listings`, and rows of its data pages and of those of `dirs`, where
/// single rows are looked up.
pub const FENCE_ROWS: usize = 512;

/// Key of the fences in the footer of `listings`.
pub(crate) const FENCES_KEY: &str = "canopy.fences";

/// Between two fences: no path has a NUL.
pub(crate) const FENCES_END: &str = "\0";

/// Rows of a row group.
pub const ROW_GROUP_ROWS: usize = 128 * 1024;

/// Rows of a data page of every other file.
const PAGE_ROWS: usize = 8192;

/// The files of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// Directories whose contents are in the shard.
    Listings,
    /// Entries that are not directories.
    Entries,
    /// Entries that are directories.
    Dirs,
    /// Sums by listing, owner and group.
    Usage,
    /// Entries with several links.
    Hardlinks,
    /// Statistics of blocks of listings.
    Summaries,
    /// Values of extended attributes.
    Xattrs,
}

impl FileKind {
    /// All kinds, in the order in which [`crate::ShardRecord`] keeps them.
    pub const ALL: [FileKind; FileKind::COUNT] = [
        FileKind::Listings,
        FileKind::Entries,
        FileKind::Dirs,
        FileKind::Usage,
        FileKind::Hardlinks,
        FileKind::Summaries,
        FileKind::Xattrs,
    ];

    /// How many kinds there are.
    pub const COUNT: usize = 7;

    /// Returns the word that file names use.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Listings => "listings",
            FileKind::Entries => "entries",
            FileKind::Dirs => "dirs",
            FileKind::Usage => "usage",
            FileKind::Hardlinks => "hardlinks",
            FileKind::Summaries => "summaries",
            FileKind::Xattrs => "xattrs",
        }
    }

    /// Returns the columns, in the order in which they are written.
    pub fn columns(self) -> &'static [ColumnId] {
        match self {
            FileKind::Listings => LISTINGS,
            FileKind::Entries => ENTRIES,
            FileKind::Dirs => DIRS,
            FileKind::Usage => USAGE,
            FileKind::Hardlinks => HARDLINKS,
            FileKind::Summaries => SUMMARIES,
            FileKind::Xattrs => VALUES,
        }
    }

    /// Returns the columns as Arrow has them.
    pub fn schema(self) -> SchemaRef {
        static SCHEMAS: LazyLock<[SchemaRef; FileKind::COUNT]> =
            LazyLock::new(|| FileKind::ALL.map(|kind| Arc::new(Schema::new(fields(kind)))));
        SCHEMAS[self as usize].clone()
    }

    /// Says how a file of so many rows is written.
    pub(crate) fn properties(self, rows: usize) -> WriterProperties {
        properties(self, rows)
    }
}

/// The columns of an inode, in the order in which the encoder writes them.
macro_rules! with_inode {
    ([$($before:ident),*], [$($after:ident),*]) => {
        &[
            $($before.id(),)*
            INO.id(), MODE.id(), NLINK.id(), UID.id(), GID.id(), SIZE.id(), BLKSIZE.id(), BLOCKS.id(),
            ATIME_AFTER_BTIME.id(), MTIME.id(), CTIME_AFTER_MTIME.id(), BTIME_AFTER_MTIME.id(),
            $($after.id()),*
        ]
    };
}

const LISTINGS: &[ColumnId] = with_inode!(
    [PATH, DEPTH, PART, DEV],
    [
        FILES,
        SYMLINKS,
        OTHERS,
        SUBDIRS,
        ENTRY_BYTES,
        ENTRY_BLOCKS,
        FIRST_ENTRY,
        FIRST_DIR,
        BYTES_BEFORE,
        DIR_BYTES_BEFORE,
        BLOCKS_BEFORE,
        CONTENT,
        ACCESS
    ]
);
const ENTRIES: &[ColumnId] = with_inode!([LISTING, NAME], [TARGET, RDEV, XATTRS]);
const DIRS: &[ColumnId] = with_inode!([LISTING, NAME], [XATTRS]);
const USAGE: &[ColumnId] = &[LISTING.id(), UID.id(), GID.id(), COUNT.id(), SIZE.id(), BLOCKS.id()];
const HARDLINKS: &[ColumnId] = &[LISTING.id(), DEV.id(), INO.id(), SIZE.id(), BLOCKS.id()];
const SUMMARIES: &[ColumnId] =
    &[FIRST_LISTING.id(), END_LISTING.id(), UID.id(), GID.id(), SUMMARY.id(), EXTENSIONS.id()];
const VALUES: &[ColumnId] = &[
    VALUE_PATH.id(),
    NAME.id(),
    KEY.id(),
    VALUE.id(),
    INO.id(),
    MODE.id(),
    UID.id(),
    GID.id(),
    SIZE.id(),
    MTIME.id(),
];

fn fields(kind: FileKind) -> Vec<Field> {
    let field = |id: &ColumnId| Field::new(id.name(), id.data_type(), id.is_nullable());
    kind.columns().iter().map(field).collect()
}

/// Rows from which on a file is compressed with zstd. A reader of zstd first sets up some 100 KB of
/// memory for each column, which costs more than reading a small file.
const ZSTD_ROWS_MIN: usize = 8 * 1024;

/// Says how each column is written. Figures and reasons are in `bench/RESULTS.md`.
fn properties(kind: FileKind, rows: usize) -> WriterProperties {
    let page_rows = match kind {
        FileKind::Listings | FileKind::Dirs => FENCE_ROWS,
        _ => PAGE_ROWS,
    };
    let compression = match rows {
        0..ZSTD_ROWS_MIN => Compression::LZ4_RAW,
        _ => Compression::ZSTD(ZstdLevel::try_new(1).expect("1 is a level of zstd")),
    };
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by("canopy".to_owned())
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_data_page_row_count_limit(page_rows)
        .set_write_batch_size(page_rows)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_compression(compression)
        .set_dictionary_enabled(false);
    for &id in kind.columns() {
        let column = || ColumnPath::from(id.name());
        builder = match id.coding() {
            Coding::Plain | Coding::Sum(_) => builder,
            Coding::Lz4 => builder.set_column_compression(column(), Compression::LZ4_RAW),
            Coding::Dictionary => builder.set_column_dictionary_enabled(column(), true),
            Coding::Delta => builder.set_column_encoding(column(), Encoding::DELTA_BINARY_PACKED),
        };
        if id.has_bounds() {
            builder = builder.set_column_statistics_enabled(column(), EnabledStatistics::Chunk);
        }
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::DataType;

    /// Returns what `docs/format.md` says of the columns below a heading: name, type, encoding,
    /// bounds.
    fn documented(heading: &str) -> Vec<[String; 4]> {
        let page = include_str!("../../../docs/format.md");
        let section = page.split(&format!("\n**{heading}**")).nth(1).expect("a table of each file");
        let section = section.split("\n**").next().unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows =
            section.lines().filter(|line| line.starts_with("| `") || line.contains("*inode*"));
        rows.flat_map(|row| {
            let mut cells = row.split('|').skip(1).map(|cell| cell.trim().replace('`', ""));
            let cells = std::array::from_fn(|_| cells.next().unwrap_or_default());
            if cells[0] == "*inode*" { documented("inode") } else { vec![cells] }
        })
        .collect()
    }

    #[test]
    fn the_page_about_the_format_has_every_column() {
        for kind in FileKind::ALL {
            let columns = kind.columns().iter().map(|id| {
                let holds = match id.data_type() {
                    DataType::UInt32 => "u32",
                    DataType::UInt64 => "u64",
                    DataType::Int64 => "i64",
                    DataType::Utf8 => "text",
                    DataType::Binary => "bytes",
                    _ => "time",
                };
                let encoding = match id.coding() {
                    Coding::Dictionary => "dictionary",
                    Coding::Delta => "delta",
                    _ => "plain",
                };
                let null = if id.is_nullable() { ", null" } else { "" };
                let bounds = if id.has_bounds() { "yes" } else { "no" };
                [id.name(), &format!("{holds}{null}"), encoding, bounds].map(str::to_owned)
            });
            assert_eq!(documented(kind.name()), columns.collect::<Vec<_>>(), "{}", kind.name());
        }
    }
}

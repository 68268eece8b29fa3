//! Opens Parquet files whose content nobody vouches for: an index may be another user's.
//!
//! Blocks are checked against the checksums of the manifest (`block_file`), which whoever makes an
//! index can make match. So the numbers in a footer, by which the Parquet library takes memory and
//! goes through the file, are compared with the file and with the manifest here; and where the
//! library panics all the same, that is an error like any other.

use crate::block_file::{BlockFile, BlockReader};
use crate::error::{Error, Result};
use crate::schema::ROW_GROUP_ROWS;
use crate::thrift;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};
use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

/// Reads the footer of a file that must have so many columns and rows. `options` must ask for the
/// offset index.
pub(crate) fn load(
    path: &Path,
    file: &BlockFile,
    options: ArrowReaderOptions,
    columns: usize,
    rows: u64,
) -> Result<ArrowReaderMetadata> {
    let load = || ArrowReaderMetadata::load(&Footer(file), options);
    let metadata = guarded(path, load)?;
    check(metadata.metadata(), file.len(), columns, rows)
        .map_err(|detail| Error::corrupt(path, detail))?;
    Ok(metadata)
}

/// Does what the Parquet library may panic at.
pub(crate) fn guarded<T, E: Display>(
    path: &Path,
    decode: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<T> {
    thread_local! {
        static GUARDED: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                hook(info);
            }
        }));
    });
    let before = GUARDED.replace(true);
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    GUARDED.set(before);
    match decoded {
        Ok(decoded) => decoded.map_err(|error| Error::corrupt(path, plain(&error.to_string()))),
        Err(_) => Err(Error::corrupt(path, "its contents make no sense")),
    }
}

/// Returns a message without the names of the libraries and layers that it came through.
pub(crate) fn plain(message: &str) -> &str {
    const LAYERS: [&str; 6] = [
        "Parquet argument error: ",
        "Parquet error: ",
        "External error: ",
        "External: ",
        "Arrow: ",
        "EOF: ",
    ];
    let layer = |message: &str| LAYERS.iter().find(|layer| message.starts_with(**layer)).copied();
    let mut message = message;
    while let Some(layer) = layer(message) {
        message = &message[layer.len()..];
    }
    message
}

/// Compares a footer with the file and with what the manifest says.
fn check(
    metadata: &ParquetMetaData,
    bytes: u64,
    columns: usize,
    rows: u64,
) -> std::result::Result<(), String> {
    let found = metadata.file_metadata().num_rows();
    if u64::try_from(found) != Ok(rows) {
        return Err(format!("it has {found} rows, expected {rows}"));
    }
    let groups = metadata.row_groups();
    let none = Vec::new();
    let index = metadata.offset_index().unwrap_or(&none);
    if groups.len() as u64 != rows.div_ceil(ROW_GROUP_ROWS as u64) || index.len() != groups.len() {
        return Err("it has a wrong number of row groups".to_owned());
    }
    for (number, (group, index)) in groups.iter().zip(index).enumerate() {
        let before = number as u64 * ROW_GROUP_ROWS as u64;
        let rows = (rows - before).min(ROW_GROUP_ROWS as u64) as i64;
        if group.num_rows() != rows || group.columns().len() != columns || index.len() != columns {
            return Err(format!("row group {number} is not as long or wide as it must be"));
        }
        for (column, pages) in group.columns().iter().zip(index) {
            if !is_sound(column, pages, bytes, rows) {
                let name = column.column_path().string();
                return Err(format!("row group {number} has wrong places for {name}"));
            }
        }
    }
    Ok(())
}

/// Returns whether all pages of a column lie one behind the other in the file and in the rows.
fn is_sound(
    column: &ColumnChunkMetaData,
    pages: &OffsetIndexMetaData,
    bytes: u64,
    rows: i64,
) -> bool {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let length = column.compressed_size();
    let end = start.checked_add(length).filter(|&end| end as u64 <= bytes);
    let Some(end) = end.filter(|_| start >= 0 && length >= 0) else { return false };
    let pages = pages.page_locations();
    let (mut at, mut row) = (start, 0);
    for (number, page) in pages.iter().enumerate() {
        let first = page.first_row_index;
        let in_order = if number == 0 { first == 0 } else { row < first };
        let fits = page.offset >= at && page.compressed_page_size > 0;
        let next = page.offset.checked_add(i64::from(page.compressed_page_size));
        match next.filter(|&next| in_order && fits && next <= end && first < rows) {
            Some(next) => (at, row) = (next, first),
            None => return false,
        }
    }
    column.num_values() == rows && !pages.is_empty()
}

/// A file of which the footer is read.
struct Footer<'a>(&'a BlockFile);

impl Length for Footer<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Footer<'_> {
    type T = BlockReader;

    fn get_read(&self, start: u64) -> ParquetResult<BlockReader> {
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let bytes = self.0.get_bytes(start, length)?;
        match thrift::are_structures(&bytes) {
            true => Ok(bytes),
            false => Err(ParquetError::General("its footer makes no sense".to_owned())),
        }
    }
}

/// A file of which whole pages are read, with the offset index.
#[derive(Clone)]
pub(crate) struct PageFile(pub(crate) BlockFile);

impl Length for PageFile {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for PageFile {
    type T = BlockReader;

    fn get_read(&self, start: u64) -> ParquetResult<BlockReader> {
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let bytes = self.0.get_bytes(start, length)?;
        let sound = |head: &thrift::PageHead| match head.is_dictionary {
            // Each value of a dictionary takes a byte at least.
            true => (0..=head.plain_bytes).contains(&head.values),
            false => (0..=ROW_GROUP_ROWS as i64).contains(&head.values),
        };
        match thrift::page_head(&bytes).filter(sound) {
            Some(_) => Ok(bytes),
            None => Err(ParquetError::General(format!("the page at byte {start} makes no sense"))),
        }
    }
}

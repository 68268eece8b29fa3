//! Columns by text, for callers that do not yet use `canopy_index::column`. To be removed.
#![allow(missing_docs)]

pub use crate::inode::{InodeColumns, one_row as row_of, text_or_empty};
use arrow::array::{ArrayRef, AsArray, PrimitiveArray, RecordBatch, StringArray};
use arrow::datatypes::ArrowPrimitiveType;

pub fn strings<'a>(batch: &'a RecordBatch, name: &str) -> &'a StringArray {
    column(batch, name).as_string()
}

pub fn numbers<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> &'a PrimitiveArray<T> {
    column(batch, name).as_primitive()
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> &'a ArrayRef {
    batch.column_by_name(name).unwrap_or_else(|| panic!("column {name} was not read"))
}

pub const INODE: [&str; 12] = [
    "ino", "mode", "nlink", "uid", "gid", "size", "blksize", "blocks", "atime", "mtime", "ctime",
    "btime",
];

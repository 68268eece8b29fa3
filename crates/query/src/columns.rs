//! Typed access to the columns of a shard, with errors instead of panics where a file is not as it should be.

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, RecordBatch, StringArray};
use arrow::datatypes::{ArrowPrimitiveType, Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use canopy_model::Attributes;

/// A string column. Panics if the batch has no such column: whoever reads names what is read.
pub(crate) fn strings<'a>(batch: &'a RecordBatch, name: &str) -> &'a StringArray {
    column(batch, name).as_string()
}

/// A column of numbers or times, as [`strings`].
pub(crate) fn numbers<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> &'a PrimitiveArray<T> {
    column(batch, name).as_primitive()
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> &'a ArrayRef {
    batch.column_by_name(name).unwrap_or_else(|| panic!("column {name} was not read"))
}

/// Columns that make up [`Attributes`], without `rdev`, which directories do not have.
pub(crate) const INODE: [&str; 12] =
    ["ino", "mode", "nlink", "uid", "gid", "size", "blksize", "blocks", "atime", "mtime", "ctime", "btime"];

/// The attribute columns of a batch; those that were not read give 0.
pub(crate) struct InodeColumns<'a> {
    batch: [Option<&'a ArrayRef>; 13],
}

impl<'a> InodeColumns<'a> {
    pub(crate) fn of(batch: &'a RecordBatch) -> Self {
        let mut columns = [None; 13];
        for (place, name) in columns.iter_mut().zip(INODE.into_iter().chain(["rdev"])) {
            *place = batch.column_by_name(name);
        }
        InodeColumns { batch: columns }
    }

    pub(crate) fn row(&self, at: usize) -> Attributes {
        let u32 = |c: usize| self.batch[c].map_or(0, |a| a.as_primitive::<UInt32Type>().value(at));
        let u64 = |c: usize| self.batch[c].map_or(0, |a| a.as_primitive::<UInt64Type>().value(at));
        let i64 = |c: usize| self.batch[c].map_or(0, |a| a.as_primitive::<Int64Type>().value(at));
        let time =
            |c: usize| self.batch[c].map_or(0, |a| a.as_primitive::<TimestampNanosecondType>().value(at));
        Attributes {
            ino: u64(0),
            mode: u32(1),
            nlink: u32(2),
            uid: u32(3),
            gid: u32(4),
            size_bytes: i64(5),
            blksize_bytes: u32(6),
            blocks: i64(7),
            atime_ns: time(8),
            mtime_ns: time(9),
            ctime_ns: time(10),
            btime_ns: time(11),
            rdev: u64(12),
        }
    }
}

/// A value of a nullable string column, empty for null.
pub(crate) fn text_or_empty(column: Option<&StringArray>, at: usize) -> &str {
    column.map_or("", |column| if column.is_null(at) { "" } else { column.value(at) })
}

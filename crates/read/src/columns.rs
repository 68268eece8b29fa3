//! Typed access to the columns of a shard, with errors instead of panics where a file is not as it
//! should be.

use crate::locate::Inode;
use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, PrimitiveArray, RecordBatch, StringArray,
    TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use arrow::datatypes::{
    ArrowPrimitiveType, Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type,
};
use canopy_model::Attributes;
use std::sync::Arc;

/// A string column. Panics if the batch has no such column: whoever reads names what is read.
pub fn strings<'a>(batch: &'a RecordBatch, name: &str) -> &'a StringArray {
    column(batch, name).as_string()
}

/// A column of numbers or times, as [`strings`].
pub fn numbers<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> &'a PrimitiveArray<T> {
    column(batch, name).as_primitive()
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> &'a ArrayRef {
    batch.column_by_name(name).unwrap_or_else(|| panic!("column {name} was not read"))
}

/// Columns that make up [`Attributes`], without `rdev`, which directories do not have.
pub const INODE: [&str; 12] = [
    "ino", "mode", "nlink", "uid", "gid", "size", "blksize", "blocks", "atime", "mtime", "ctime",
    "btime",
];

/// The attribute columns of a batch; those that were not read give 0.
pub struct InodeColumns<'a> {
    batch: [Option<&'a ArrayRef>; 13],
}

impl<'a> InodeColumns<'a> {
    pub fn of(batch: &'a RecordBatch) -> Self {
        let mut columns = [None; 13];
        for (place, name) in columns.iter_mut().zip(INODE.into_iter().chain(["rdev"])) {
            *place = batch.column_by_name(name);
        }
        InodeColumns { batch: columns }
    }

    pub fn row(&self, at: usize) -> Attributes {
        let u32 = |c: usize| self.batch[c].map_or(0, |a| a.as_primitive::<UInt32Type>().value(at));
        let u64 = |c: usize| self.batch[c].map_or(0, |a| a.as_primitive::<UInt64Type>().value(at));
        let i64 = |c: usize| self.batch[c].map_or(0, |a| a.as_primitive::<Int64Type>().value(at));
        let time = |c: usize| {
            self.batch[c].map_or(0, |a| a.as_primitive::<TimestampNanosecondType>().value(at))
        };
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

/// A batch with the columns of `entries` but `listing`, for one inode.
pub fn row_of(name: &str, inode: &Inode) -> RecordBatch {
    let u32 = |value: u32| Arc::new(UInt32Array::from(vec![value])) as ArrayRef;
    let i64 = |value: i64| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    let time = |value: i64| {
        Arc::new(TimestampNanosecondArray::from(vec![value]).with_timezone("UTC")) as ArrayRef
    };
    let a = &inode.attributes;
    let columns: [ArrayRef; 12] = [
        Arc::new(UInt64Array::from(vec![a.ino])),
        u32(a.mode),
        u32(a.nlink),
        u32(a.uid),
        u32(a.gid),
        i64(a.size_bytes),
        u32(a.blksize_bytes),
        i64(a.blocks),
        time(a.atime_ns),
        time(a.mtime_ns),
        time(a.ctime_ns),
        time(a.btime_ns),
    ];
    let name: ArrayRef = Arc::new(StringArray::from(vec![name]));
    let xattrs = Some(inode.xattrs.as_str()).filter(|names| !names.is_empty());
    let xattrs: ArrayRef = Arc::new(StringArray::from(vec![xattrs]));
    let target = Some(inode.target.as_str()).filter(|target| !target.is_empty());
    let target: ArrayRef = Arc::new(StringArray::from(vec![target]));
    let rdev: ArrayRef = Arc::new(UInt64Array::from(vec![a.rdev]));
    let others = [("name", name), ("xattrs", xattrs), ("target", target), ("rdev", rdev)];
    let named = INODE.into_iter().zip(columns).chain(others);
    let named = named.map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(named).expect("all columns have one row")
}

/// A value of a nullable string column, empty for null.
pub fn text_or_empty(column: Option<&StringArray>, at: usize) -> &str {
    column.map_or("", |column| if column.is_null(at) { "" } else { column.value(at) })
}

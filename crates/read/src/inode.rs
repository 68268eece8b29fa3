//! Single entries: what the index knows of one, from the columns of its row and back.

use arrow::array::{
    Array, ArrayRef, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray, UInt32Array,
    UInt64Array,
};
use canopy_index::column::*;
use canopy_index::{Columns, RowRange};
use canopy_model::{Attributes, Device};
use std::sync::Arc;

/// The columns that a name and its inode are made of; directories have neither a target nor a
/// device.
pub const ENTRY: Columns = Columns::of(&[
    INO.id(),
    MODE.id(),
    NLINK.id(),
    UID.id(),
    GID.id(),
    SIZE.id(),
    BLKSIZE.id(),
    BLOCKS.id(),
    ATIME.id(),
    MTIME.id(),
    CTIME.id(),
    BTIME.id(),
    NAME.id(),
    XATTRS.id(),
    TARGET.id(),
    RDEV.id(),
]);

/// The attributes of one entry, as the index knows them.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Its attributes.
    pub attributes: Attributes,
    /// Where it points if it is a symbolic link, escaped.
    pub target: String,
    /// Device that holds it.
    pub dev: Device,
    /// Names of its extended attributes, joined by ','.
    pub xattrs: String,
}

/// The attribute columns of a batch; those that were not read give 0.
pub struct InodeColumns<'a> {
    ino: Option<&'a [u64]>,
    mode: Option<&'a [u32]>,
    nlink: Option<&'a [u32]>,
    uid: Option<&'a [u32]>,
    gid: Option<&'a [u32]>,
    size: Option<&'a [i64]>,
    blksize: Option<&'a [u32]>,
    blocks: Option<&'a [i64]>,
    atime: Option<&'a [i64]>,
    mtime: Option<&'a [i64]>,
    ctime: Option<&'a [i64]>,
    btime: Option<&'a [i64]>,
    rdev: Option<&'a [u64]>,
}

impl<'a> InodeColumns<'a> {
    /// Takes the columns that a batch has.
    pub fn of(batch: &'a RecordBatch) -> Self {
        InodeColumns {
            ino: INO.find(batch),
            mode: MODE.find(batch),
            nlink: NLINK.find(batch),
            uid: UID.find(batch),
            gid: GID.find(batch),
            size: SIZE.find(batch),
            blksize: BLKSIZE.find(batch),
            blocks: BLOCKS.find(batch),
            atime: ATIME.find(batch),
            mtime: MTIME.find(batch),
            ctime: CTIME.find(batch),
            btime: BTIME.find(batch),
            rdev: RDEV.find(batch),
        }
    }

    /// The attributes of a row.
    pub fn row(&self, at: usize) -> Attributes {
        Attributes {
            ino: self.ino.map_or(0, |values| values[at]),
            mode: self.mode.map_or(0, |values| values[at]),
            nlink: self.nlink.map_or(0, |values| values[at]),
            uid: self.uid.map_or(0, |values| values[at]),
            gid: self.gid.map_or(0, |values| values[at]),
            size_bytes: self.size.map_or(0, |values| values[at]),
            blksize_bytes: self.blksize.map_or(0, |values| values[at]),
            blocks: self.blocks.map_or(0, |values| values[at]),
            atime_ns: self.atime.map_or(0, |values| values[at]),
            mtime_ns: self.mtime.map_or(0, |values| values[at]),
            ctime_ns: self.ctime.map_or(0, |values| values[at]),
            btime_ns: self.btime.map_or(0, |values| values[at]),
            rdev: self.rdev.map_or(0, |values| values[at]),
        }
    }
}

/// Gives rows of a batch with the columns of [`ENTRY`] as names, escaped, and inodes; `dev` is the
/// device of their directory.
///
/// # Errors
///
/// Fails with `Index` if a column is missing.
pub fn inodes(
    batch: &RecordBatch,
    rows: RowRange,
    dev: Device,
) -> crate::Result<impl Iterator<Item = (String, Inode)>> {
    let (names, xattrs, targets) = (NAME.of(batch)?, XATTRS.of(batch)?, TARGET.find(batch));
    let inodes = InodeColumns::of(batch);
    Ok(rows.map(move |at| {
        let inode = Inode {
            attributes: inodes.row(at),
            target: text_or_empty(targets, at).to_owned(),
            dev,
            xattrs: text_or_empty(Some(xattrs), at).to_owned(),
        };
        (names.value(at).to_owned(), inode)
    }))
}

/// Makes a batch of one inode, with the columns of `entries` but `listing`.
pub fn one_row(name: &str, inode: &Inode) -> RecordBatch {
    let u32 = |value: u32| Arc::new(UInt32Array::from(vec![value])) as ArrayRef;
    let u64 = |value: u64| Arc::new(UInt64Array::from(vec![value])) as ArrayRef;
    let i64 = |value: i64| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    let time = |value: i64| {
        Arc::new(TimestampNanosecondArray::from(vec![value]).with_timezone("UTC")) as ArrayRef
    };
    let text = |value: &str| {
        Arc::new(StringArray::from(vec![Some(value).filter(|text| !text.is_empty())])) as ArrayRef
    };
    let a = &inode.attributes;
    let columns = [
        (INO.name(), u64(a.ino)),
        (MODE.name(), u32(a.mode)),
        (NLINK.name(), u32(a.nlink)),
        (UID.name(), u32(a.uid)),
        (GID.name(), u32(a.gid)),
        (SIZE.name(), i64(a.size_bytes)),
        (BLKSIZE.name(), u32(a.blksize_bytes)),
        (BLOCKS.name(), i64(a.blocks)),
        (ATIME.name(), time(a.atime_ns)),
        (MTIME.name(), time(a.mtime_ns)),
        (CTIME.name(), time(a.ctime_ns)),
        (BTIME.name(), time(a.btime_ns)),
        (NAME.name(), Arc::new(StringArray::from(vec![name]))),
        (XATTRS.name(), text(&inode.xattrs)),
        (TARGET.name(), text(&inode.target)),
        (RDEV.name(), u64(a.rdev)),
    ];
    let columns = columns.map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("all columns have one row")
}

/// A value of a nullable column of texts, empty for null.
pub fn text_or_empty(column: Option<&StringArray>, at: usize) -> &str {
    column.map_or("", |column| if column.is_null(at) { "" } else { column.value(at) })
}

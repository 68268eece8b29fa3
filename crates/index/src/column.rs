//! The columns of a shard's files: one row a column, and typed access to what was read of them.
//!
//! [`Column`] knows the type of its values, and reading one returns that type. [`ColumnId`] is a
//! column of any type, and [`Columns`] a set of them for [`crate::Shard::read`]. `schema` has the
//! columns of each file.

use crate::error::{Error, Result};
use crate::listing_ordinal::ListingOrdinal;
use arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray};
use arrow::datatypes::{
    DataType, Field, Int64Type, TimeUnit, TimestampNanosecondType, UInt32Type, UInt64Type,
};
use canopy_model::Device;
use std::fmt;
use std::marker::PhantomData;
use std::ops::BitOr;

/// A type of values.
pub trait Value {
    /// The values of a column in a batch, by row.
    type Slice<'a>;

    /// Returns the type of a column of them.
    fn data_type() -> DataType;

    /// Gives the values of an array; `None` if it is of another type.
    fn of(array: &ArrayRef) -> Option<Self::Slice<'_>>;
}

/// Texts; null where the column is nullable and has none.
#[derive(Debug)]
pub struct Text;

/// Byte strings, or null.
#[derive(Debug)]
pub struct Bytes;

/// Times, in nanoseconds since 1970 in UTC.
#[derive(Debug)]
pub struct Time;

/// A number that has a type of its own, and is written as a plain one.
pub trait TypedNumber: Copy {
    /// The plain number.
    type Plain: Copy + 'static;

    /// Gives a number its type.
    fn of_plain(plain: Self::Plain) -> Self;
}

/// Numbers with a type of their own, by row.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a, T: TypedNumber>(&'a [T::Plain]);

impl<'a, T: TypedNumber> Numbers<'a, T> {
    /// Returns the number in a row. Panics if there is no such row.
    #[inline]
    pub fn value(self, row: usize) -> T {
        T::of_plain(self.0[row])
    }

    /// Returns the numbers of all rows.
    #[inline]
    pub fn iter(self) -> impl ExactSizeIterator<Item = T> + use<'a, T> {
        self.0.iter().map(|&plain| T::of_plain(plain))
    }
}

impl TypedNumber for ListingOrdinal {
    type Plain = u32;

    #[inline]
    fn of_plain(plain: u32) -> Self {
        ListingOrdinal(plain)
    }
}

impl TypedNumber for Device {
    type Plain = u64;

    #[inline]
    fn of_plain(plain: u64) -> Self {
        Device(plain)
    }
}

macro_rules! values {
    ($($value:ty, $slice:ty, $data_type:expr, $array:ident => $values:expr;)*) => {
        $(impl Value for $value {
            type Slice<'a> = $slice;

            fn data_type() -> DataType {
                $data_type
            }

            fn of($array: &ArrayRef) -> Option<Self::Slice<'_>> {
                $values
            }
        })*
    };
}

values! {
    u32, &'a [u32], DataType::UInt32, array => Some(array.as_primitive_opt::<UInt32Type>()?.values());
    u64, &'a [u64], DataType::UInt64, array => Some(array.as_primitive_opt::<UInt64Type>()?.values());
    i64, &'a [i64], DataType::Int64, array => Some(array.as_primitive_opt::<Int64Type>()?.values());
    Time, &'a [i64], DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), array =>
        Some(array.as_primitive_opt::<TimestampNanosecondType>()?.values());
    ListingOrdinal, Numbers<'a, ListingOrdinal>, DataType::UInt32, array =>
        Some(Numbers(array.as_primitive_opt::<UInt32Type>()?.values()));
    Device, Numbers<'a, Device>, DataType::UInt64, array =>
        Some(Numbers(array.as_primitive_opt::<UInt64Type>()?.values()));
    Text, &'a StringArray, DataType::Utf8, array => array.as_string_opt();
    Bytes, &'a BinaryArray, DataType::Binary, array => array.as_binary_opt();
}

/// Returns the type of all columns of times.
pub fn time_type() -> DataType {
    Time::data_type()
}

/// How the values of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As they are.
    Plain,
    /// As they are, compressed with LZ4 whatever the file's size.
    Lz4,
    /// As numbers in a list of distinct values.
    Dictionary,
    /// As distances from the value before.
    Delta,
    /// Not at all: each is the sum of the values of other columns.
    Sum(&'static [ColumnId]),
}

/// Properties of a column.
struct Row {
    name: &'static str,
    data_type: fn() -> DataType,
    nullable: bool,
    coding: Coding,
    bounds: bool,
}

/// A column, whatever the type of its values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnId(u8);

/// A column with values of type `T`.
pub struct Column<T> {
    id: ColumnId,
    values: PhantomData<fn() -> T>,
}

/// A set of columns.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Columns(u64);

macro_rules! columns {
    ($($(#[$doc:meta])* $constant:ident: $value:ty = $name:literal, $nullable:literal, $coding:expr, $bounds:literal;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Number { $($constant),* }

        $($(#[$doc])* pub const $constant: Column<$value> =
            Column { id: ColumnId(Number::$constant as u8), values: PhantomData };)*

        const ROWS: &[Row] = &[$(Row {
            name: $name,
            data_type: <$value as Value>::data_type,
            nullable: $nullable,
            coding: $coding,
            bounds: $bounds,
        }),*];
    };
}

use Coding::{Delta, Dictionary, Lz4, Plain, Sum};

// Name in the file; whether it is null where there is none; coding; whether the smallest and the
// largest value of each row group are kept, so that searches can skip row groups. Figures and
// reasons are in `bench/RESULTS.md`.
columns! {
    /// Path of a directory below the root of its source, escaped.
    PATH: Text = "path", false, Plain, false;
    /// Path of the directory that holds an entry with a value; repeats.
    VALUE_PATH: Text = "path", false, Dictionary, false;
    /// Components of the path.
    DEPTH: u32 = "depth", false, Delta, false;
    /// Number of the part of a huge directory, from 0.
    PART: u32 = "part", false, Dictionary, false;
    /// Device that holds a directory, or an entry with several links.
    DEV: Device = "dev", false, Dictionary, false;
    /// Ordinal of the listing that an entry is in.
    LISTING: ListingOrdinal = "listing", false, Delta, false;
    /// Name of an entry, escaped.
    NAME: Text = "name", false, Lz4, false;
    /// Inode number.
    INO: u64 = "ino", false, Delta, true;
    /// Type and permission bits, as in `st_mode`.
    MODE: u32 = "mode", false, Dictionary, true;
    /// Number of links.
    NLINK: u32 = "nlink", false, Dictionary, true;
    /// Owner.
    UID: u32 = "uid", false, Dictionary, true;
    /// Group.
    GID: u32 = "gid", false, Dictionary, true;
    /// Size in bytes.
    SIZE: i64 = "size", false, Plain, true;
    /// Preferred size of reads and writes, in bytes.
    BLKSIZE: u32 = "blksize", false, Dictionary, false;
    /// Space taken, in units of 512 bytes.
    BLOCKS: i64 = "blocks", false, Plain, true;
    /// Last access, as the distance from the birth.
    ATIME_AFTER_BTIME: i64 = "atime_after_btime", false, Plain, true;
    /// Last modification.
    MTIME: Time = "mtime", false, Delta, true;
    /// Last change of the inode, as the distance from the last modification.
    CTIME_AFTER_MTIME: i64 = "ctime_after_mtime", false, Plain, true;
    /// Birth, as the distance from the last modification.
    BTIME_AFTER_MTIME: i64 = "btime_after_mtime", false, Plain, true;
    /// Last access.
    ATIME: Time = "atime", false, Sum(&[MTIME.id, BTIME_AFTER_MTIME.id, ATIME_AFTER_BTIME.id]), false;
    /// Last change of the inode.
    CTIME: Time = "ctime", false, Sum(&[MTIME.id, CTIME_AFTER_MTIME.id]), false;
    /// Birth.
    BTIME: Time = "btime", false, Sum(&[MTIME.id, BTIME_AFTER_MTIME.id]), false;
    /// Where a symbolic link points, escaped.
    TARGET: Text = "target", true, Plain, false;
    /// Device that a special file stands for.
    RDEV: u64 = "rdev", false, Dictionary, false;
    /// Names of extended attributes; `canopy_model` decodes them.
    XATTRS: Text = "xattrs", true, Dictionary, false;
    /// Regular files in a directory.
    FILES: i64 = "files", false, Plain, false;
    /// Symbolic links in a directory.
    SYMLINKS: i64 = "symlinks", false, Plain, false;
    /// Other entries in a directory but directories.
    OTHERS: i64 = "others", false, Plain, false;
    /// Directories in a directory.
    SUBDIRS: i64 = "subdirs", false, Plain, false;
    /// Bytes of the entries of a directory but directories.
    ENTRY_BYTES: i64 = "entry_bytes", false, Plain, false;
    /// Space that those take, in units of 512 bytes.
    ENTRY_BLOCKS: i64 = "entry_blocks", false, Plain, false;
    /// First row of a listing in `entries`.
    FIRST_ENTRY: u32 = "first_entry", false, Delta, false;
    /// First row of a listing in `dirs`.
    FIRST_DIR: u32 = "first_dir", false, Delta, false;
    /// Bytes of the entries of all listings before this one.
    BYTES_BEFORE: i64 = "bytes_before", false, Delta, false;
    /// Bytes of the directories in all listings before this one.
    DIR_BYTES_BEFORE: i64 = "dir_bytes_before", false, Plain, false;
    /// Space of everything in all listings before this one, in units of 512 bytes.
    BLOCKS_BEFORE: i64 = "blocks_before", false, Delta, false;
    /// Digest of a listing: of its directory and its entries, keyed with a secret of the index.
    CONTENT: u64 = "content", false, Plain, false;
    /// Digest of the users who may see a listing.
    ACCESS: u64 = "access", false, Dictionary, false;
    /// How many entries a row of `usage` stands for.
    COUNT: i64 = "count", false, Plain, false;
    /// First listing of a block.
    FIRST_LISTING: ListingOrdinal = "first_listing", false, Delta, false;
    /// Listing behind the last one of a block.
    END_LISTING: ListingOrdinal = "end_listing", false, Delta, false;
    /// Statistics, encoded; see `schema`.
    SUMMARY: Bytes = "summary", false, Plain, false;
    /// Statistics by extension, encoded; see `schema`.
    EXTENSIONS: Bytes = "extensions", true, Plain, false;
    /// Name of an extended attribute, escaped.
    KEY: Text = "key", false, Dictionary, false;
    /// Value of an extended attribute, escaped.
    VALUE: Text = "value", false, Dictionary, false;
}

/// The attributes of an inode but `rdev`, which directories do not have.
pub const INODE: Columns = Columns::of(&[
    INO.id, MODE.id, NLINK.id, UID.id, GID.id, SIZE.id, BLKSIZE.id, BLOCKS.id, ATIME.id, MTIME.id,
    CTIME.id, BTIME.id,
]);

impl ColumnId {
    fn row(self) -> &'static Row {
        &ROWS[usize::from(self.0)]
    }

    /// Returns the column of this name; of `path`, that of listings.
    pub fn named(name: &str) -> Option<Self> {
        (0..ROWS.len() as u8).map(ColumnId).find(|column| column.name() == name)
    }

    /// Returns the name in the file.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The type of its values.
    pub fn data_type(self) -> DataType {
        (self.row().data_type)()
    }

    /// The column as Arrow has it.
    pub fn field(self) -> Field {
        Field::new(self.name(), self.data_type(), self.is_nullable())
    }

    /// The values in a batch, whatever their type. Fails if the batch was read without this column.
    pub fn array(self, batch: &RecordBatch) -> Result<&ArrayRef> {
        batch.column_by_name(self.name()).ok_or(Error::NotRead(self.name()))
    }

    /// Returns whether a row may have no value.
    pub fn is_nullable(self) -> bool {
        self.row().nullable
    }

    /// Returns whether the smallest and the largest value of each row group are kept.
    pub(crate) fn has_bounds(self) -> bool {
        self.row().bounds
    }

    pub(crate) fn coding(self) -> Coding {
        self.row().coding
    }

    /// Returns the columns whose sum it is; none for one that is stored.
    pub(crate) fn summands(self) -> &'static [ColumnId] {
        match self.coding() {
            Sum(summands) => summands,
            _ => &[],
        }
    }
}

impl<T> Column<T> {
    /// Returns the column, whatever its type.
    pub const fn id(self) -> ColumnId {
        self.id
    }

    /// Returns the name in the file.
    pub fn name(self) -> &'static str {
        self.id.name()
    }

    /// Returns whether a batch has it.
    pub fn is_in(self, batch: &RecordBatch) -> bool {
        batch.column_by_name(self.name()).is_some()
    }
}

impl<T: Value> Column<T> {
    /// Returns the values in a batch, by row. Fails if the batch was read without this column.
    pub fn of(self, batch: &RecordBatch) -> Result<T::Slice<'_>> {
        self.find(batch).ok_or(Error::NotRead(self.name()))
    }

    /// Returns the values in a batch, by row; `None` if the batch was read without this column.
    pub fn find(self, batch: &RecordBatch) -> Option<T::Slice<'_>> {
        T::of(batch.column_by_name(self.name())?)
    }
}

impl<T> Clone for Column<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Column<T> {}

impl<T> fmt::Debug for Column<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(formatter)
    }
}

impl fmt::Debug for ColumnId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl<T> From<Column<T>> for ColumnId {
    fn from(column: Column<T>) -> Self {
        column.id
    }
}

impl<T> From<Column<T>> for Columns {
    fn from(column: Column<T>) -> Self {
        Columns(1 << column.id.0)
    }
}

impl From<ColumnId> for Columns {
    fn from(column: ColumnId) -> Self {
        Columns(1 << column.0)
    }
}

impl Columns {
    /// No columns.
    pub const NONE: Columns = Columns(0);

    /// Returns these columns.
    pub const fn of(columns: &[ColumnId]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < columns.len() {
            set |= 1 << columns[at].0;
            at += 1;
        }
        Columns(set)
    }

    /// Adds columns.
    pub fn add(&mut self, more: impl Into<Columns>) {
        self.0 |= more.into().0;
    }

    /// Returns these columns if a condition holds, else none.
    pub fn when(self, condition: bool) -> Self {
        if condition { self } else { Columns::NONE }
    }

    /// Returns whether a column is among them.
    pub fn has(self, column: impl Into<ColumnId>) -> bool {
        self.0 & 1 << column.into().0 != 0
    }

    /// Returns whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the columns, in the order of the table above.
    pub fn iter(self) -> impl Iterator<Item = ColumnId> {
        (0..ROWS.len() as u8).map(ColumnId).filter(move |&column| self.has(column))
    }
}

impl fmt::Debug for Columns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<ColumnId> for Columns {
    fn from_iter<I: IntoIterator<Item = ColumnId>>(columns: I) -> Self {
        columns.into_iter().fold(Columns::NONE, |set, column| set | column)
    }
}

impl<C: Into<Columns>> BitOr<C> for Columns {
    type Output = Columns;

    fn bitor(self, other: C) -> Columns {
        Columns(self.0 | other.into().0)
    }
}

impl<T, C: Into<Columns>> BitOr<C> for Column<T> {
    type Output = Columns;

    fn bitor(self, other: C) -> Columns {
        Columns::from(self) | other
    }
}

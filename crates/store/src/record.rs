//! Records: what a table says of a key.

use crate::key::{Key, KeyRef};
use serde::{Deserialize, Serialize};

/// Effect of a record on its key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Op {
    /// Gives the key this value, whatever it had before.
    Put = 0,
    /// Changes the value that the key had before, by the table's merge operator.
    Merge = 1,
    /// Takes the key away. Its value is empty.
    Delete = 2,
}

impl Op {
    /// Returns the operation that `byte` stands for on disk.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Op::Put, Op::Merge, Op::Delete].into_iter().find(|op| *op as u8 == byte)
    }
}

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Key of the record.
    pub key: Key,
    /// Its operation.
    pub op: Op,
    /// The value, or the operand of a merge. First the columns of the table's [`Layout`], in little
    /// endian, then anything; or anything at all, if it is shorter than the columns together.
    pub value: Vec<u8>,
}

/// A record whose bytes lie elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// As in [`Record`].
    pub key: KeyRef<'a>,
    /// As in [`Record`].
    pub op: Op,
    /// As in [`Record`].
    pub value: &'a [u8],
}

impl Record {
    /// Returns a view of this record.
    pub fn as_ref(&self) -> RecordRef<'_> {
        RecordRef { key: self.key.as_ref(), op: self.op, value: &self.value }
    }
}

impl RecordRef<'_> {
    /// Returns a record that owns its bytes.
    pub fn to_record(self) -> Record {
        Record { key: self.key.to_key(), op: self.op, value: self.value.to_vec() }
    }
}

/// Values are this long at most, in bytes.
pub const VALUE_MAX: usize = 16 << 20;

/// A number of fixed width at the beginning of a table's values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Name under which it is displayed.
    pub name: String,
    /// Its width in bytes: 1, 2, 4 or 8.
    pub width: u8,
    /// A column before this one, of the same width, from which values are often little away.
    pub near: Option<u8>,
}

/// The columns at the beginning of a table's values. SSTables store them apart, each in as few bits
/// as a block's values need.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Layout {
    /// The columns, in the order in which they lie in a value.
    pub columns: Vec<Column>,
}

/// A layout has this many columns at most.
pub const COLUMNS_MAX: usize = 64;

impl Layout {
    /// Returns the bytes that the columns take in a value.
    pub fn width(&self) -> usize {
        self.columns.iter().map(|column| usize::from(column.width)).sum()
    }

    /// Returns whether widths and references are as they must be.
    pub fn is_sound(&self) -> bool {
        self.columns.len() <= COLUMNS_MAX
            && self.columns.iter().enumerate().all(|(at, column)| {
                let near = column.near.map(usize::from);
                let is_like = |near: usize| near < at && self.columns[near].width == column.width;
                [1, 2, 4, 8].contains(&column.width) && near.is_none_or(is_like)
            })
    }
}

//! Tables whose rows are made of values of extended attributes: each value gives any number of them.

use super::tables::{Table, external};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Schema};
use canopy_index::Columns;
use canopy_index::column::{KEY, SIZE, VALUE};
use canopy_model::unescape;
use datafusion::error::Result;
use std::sync::Arc;

/// A column that is no column of the value's row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DecodedColumn {
    pub(super) name: &'static str,
    pub(super) holds: Holds,
    pub(super) nullable: bool,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Text,
    U32,
    U64,
    /// As sizes of entries are.
    I64,
}

/// An extended attribute of an entry.
pub(super) struct XattrValue<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a [u8],
    /// Size of the entry.
    pub(super) size_bytes: u64,
}

/// Adds the rows that a value gives.
pub(super) type Decode = fn(&XattrValue<'_>, &mut DecodedRows);

/// A value of a column in a row.
pub(super) enum Cell {
    Null,
    Text(String),
    Number(u64),
}

/// Rows with a cell for each of the table's decoded columns, in their order.
#[derive(Default)]
pub(super) struct DecodedRows {
    /// The number of the value that each row comes from.
    values: Vec<u32>,
    value: u32,
    cells: Vec<Cell>,
}

impl DecodedRows {
    /// Adds a row.
    pub(super) fn push<const N: usize>(&mut self, row: [Cell; N]) {
        self.values.push(self.value);
        self.cells.extend(row);
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Cell::Number(number)
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Cell::Number(number.into())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, T::into)
    }
}

impl DecodedColumn {
    pub(super) const fn new(name: &'static str, holds: Holds) -> Self {
        DecodedColumn { name, holds, nullable: false }
    }

    pub(super) const fn or_null(self) -> Self {
        DecodedColumn { nullable: true, ..self }
    }

    /// Returns the column as Arrow has it.
    pub(super) fn field(&self) -> Field {
        let data_type = match self.holds {
            Holds::Text => DataType::Utf8,
            Holds::U32 => DataType::UInt32,
            Holds::U64 => DataType::UInt64,
            Holds::I64 => DataType::Int64,
        };
        Field::new(self.name, data_type, self.nullable)
    }

    /// Returns its values in a batch of [`decode`].
    pub(super) fn array<'a>(&self, batch: &'a RecordBatch) -> canopy_index::Result<&'a ArrayRef> {
        batch.column_by_name(self.name).ok_or(canopy_index::Error::NotRead(self.name))
    }

    fn of<'a>(&self, cells: impl Iterator<Item = &'a Cell>) -> ArrayRef {
        let numbers = |cell: &Cell| match cell {
            Cell::Number(number) => Some(*number),
            _ => None,
        };
        match self.holds {
            Holds::Text => {
                let texts = cells.map(|cell| match cell {
                    Cell::Text(text) => Some(text.as_str()),
                    _ => None,
                });
                Arc::new(texts.collect::<StringArray>())
            }
            Holds::U32 => {
                let numbers = cells.map(|cell| numbers(cell).map(|number| number as u32));
                Arc::new(numbers.collect::<UInt32Array>())
            }
            Holds::U64 => Arc::new(cells.map(numbers).collect::<UInt64Array>()),
            Holds::I64 => {
                let signed = |number| i64::try_from(number).unwrap_or(i64::MAX);
                let numbers = cells.map(|cell| numbers(cell).map(signed));
                Arc::new(numbers.collect::<Int64Array>())
            }
        }
    }
}

/// Returns the columns that rows are made of.
pub(super) fn columns() -> Columns {
    KEY | VALUE | SIZE
}

/// Most bytes of values of which rows are made at a time: a value of 64 KiB may give 2,700 rows, each
/// with the entry's path.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// Divides a batch of values into pieces that do not become too large.
pub(super) fn pieces(batch: RecordBatch) -> Result<Vec<RecordBatch>> {
    let values = VALUE.of(&batch).map_err(external)?;
    let (mut pieces, mut first, mut bytes) = (Vec::new(), 0, 0);
    for at in 0..batch.num_rows() {
        bytes += values.value(at).len();
        if bytes > PIECE_BYTES_MAX && at > first {
            pieces.push(batch.slice(first, at - first));
            (first, bytes) = (at, values.value(at).len());
        }
    }
    pieces.push(batch.slice(first, batch.num_rows() - first));
    Ok(pieces)
}

/// Makes the rows of a table of a batch of values, with the columns of the value and those of the
/// table.
pub(super) fn decode(table: &Table, decode: Decode, batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = rows(decode, batch).map_err(external)?;
    // Not the value itself, which would be there once for each row that it gives.
    let schema = batch.schema();
    let is_kept =
        |at: &usize| ![KEY.name(), VALUE.name()].contains(&schema.field(*at).name().as_str());
    let kept = Vec::from_iter((0..batch.num_columns()).filter(is_kept));
    let taken = take_record_batch(&batch.project(&kept)?, &UInt32Array::from(rows.values))?;
    let own: Vec<_> = table.decoded_columns().collect();
    let mut fields = taken.schema().fields().to_vec();
    let mut columns = taken.columns().to_vec();
    for (at, column) in own.iter().enumerate() {
        fields.push(Arc::new(column.field()));
        columns.push(column.of(rows.cells.iter().skip(at).step_by(own.len())));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

fn rows(decode: Decode, batch: &RecordBatch) -> canopy_index::Result<DecodedRows> {
    let (keys, values, sizes) = (KEY.of(batch)?, VALUE.of(batch)?, SIZE.of(batch)?);
    let mut rows = DecodedRows::default();
    for (at, size) in sizes.iter().enumerate() {
        rows.value = at as u32;
        let (key, value) = (keys.value(at), unescape(values.value(at)));
        decode(&XattrValue { key, value: &value, size_bytes: *size as u64 }, &mut rows);
    }
    Ok(rows)
}

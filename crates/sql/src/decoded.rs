//! Tables whose rows are made of values of extended attributes: each value gives any number of them.

use super::tables::external;
use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use canopy_index::Columns;
use canopy_index::column::{KEY, SIZE, VALUE};
use canopy_model::unescape;
use datafusion::error::Result;
use std::sync::Arc;

/// How rows are made of values.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The attributes whose values give rows.
    pub(super) keys: &'static [&'static str],
    /// The columns that are not columns of the value's row.
    pub(super) columns: &'static [DecodedColumn],
    /// Adds the rows that a value gives. One of which it returns `None` gives a row of nulls.
    pub(super) decode: fn(&XattrValue<'_>, &mut DecodedRows) -> Option<()>,
}

/// A column that is not a column of the value's row: of texts, or of numbers without a sign, which
/// are `Int64` where they are sizes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DecodedColumn {
    name: &'static str,
    data_type: DataType,
    nullable: bool,
}

/// An extended attribute of an entry.
pub(super) struct XattrValue<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a [u8],
    /// Size of the entry.
    pub(super) size_bytes: u64,
}

/// A value of a column in a row.
pub(super) enum Cell {
    Null,
    Text(String),
    Number(u64),
}

/// Rows with a cell for each of the decoder's columns, in their order.
#[derive(Default)]
pub(super) struct DecodedRows {
    /// The number of the value that each row comes from.
    values: Vec<u32>,
    value: u32,
    cells: Vec<Cell>,
}

impl DecodedRows {
    /// Adds a row.
    pub(super) fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
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
    pub(super) const fn new(name: &'static str, data_type: DataType) -> Self {
        DecodedColumn { name, data_type, nullable: false }
    }

    pub(super) const fn or_null(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// Returns the column as Arrow has it.
    pub(super) fn field(&self) -> Field {
        Field::new(self.name, self.data_type.clone(), self.nullable)
    }

    /// Returns its values in a batch of [`decode`].
    pub(super) fn array<'a>(&self, batch: &'a RecordBatch) -> canopy_index::Result<&'a ArrayRef> {
        batch.column_by_name(self.name).ok_or(canopy_index::Error::NotRead(self.name))
    }

    fn of<'a>(&self, cells: impl Iterator<Item = &'a Cell>) -> Result<ArrayRef, ArrowError> {
        if self.data_type == DataType::Utf8 {
            let texts = cells.map(|cell| match cell {
                Cell::Text(text) => Some(text.as_str()),
                _ => None,
            });
            return Ok(Arc::new(texts.collect::<StringArray>()));
        }
        let most = if self.data_type == DataType::Int64 { i64::MAX as u64 } else { u64::MAX };
        let numbers = cells.map(|cell| match cell {
            Cell::Number(number) => Some(most.min(*number)),
            _ => None,
        });
        cast(&numbers.collect::<UInt64Array>(), &self.data_type)
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

/// Makes rows of a batch of values, with the columns of the value and those of the decoder.
pub(super) fn decode(decoder: &Decoder, batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = rows(decoder, batch).map_err(external)?;
    // Not the value itself, which would be there once for each row that it gives.
    let schema = batch.schema();
    let is_kept =
        |at: &usize| ![KEY.name(), VALUE.name()].contains(&schema.field(*at).name().as_str());
    let kept = Vec::from_iter((0..batch.num_columns()).filter(is_kept));
    let taken = take_record_batch(&batch.project(&kept)?, &UInt32Array::from(rows.values))?;
    let mut fields = taken.schema().fields().to_vec();
    let mut columns = taken.columns().to_vec();
    for (at, column) in decoder.columns.iter().enumerate() {
        fields.push(Arc::new(column.field()));
        columns.push(column.of(rows.cells.iter().skip(at).step_by(decoder.columns.len()))?);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

fn rows(decoder: &Decoder, batch: &RecordBatch) -> canopy_index::Result<DecodedRows> {
    let (keys, values, sizes) = (KEY.of(batch)?, VALUE.of(batch)?, SIZE.of(batch)?);
    let mut rows = DecodedRows::default();
    for (at, size) in sizes.iter().enumerate() {
        let key = keys.value(at);
        if !decoder.keys.contains(&key) {
            continue;
        }
        rows.value = at as u32;
        let value = unescape(values.value(at));
        let xattr = XattrValue { key, value: &value, size_bytes: *size as u64 };
        if (decoder.decode)(&xattr, &mut rows).is_none() {
            rows.push(decoder.columns.iter().map(|_| Cell::Null));
        }
    }
    Ok(rows)
}

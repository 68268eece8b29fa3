//! Parquet: a table with the columns of the other tables.
//!
//! Texts are read as views, so that a value which a page holds once is in memory once, however many rows name it. The
//! decoder is meant for honest files: where it panics on others, that is an error of the file here.

use super::Taker;
use super::fields::{Fields, Holds};
use crate::error::{Error, Place, Result};
use crate::input::Input;
use arrow::array::{Array, ArrowPrimitiveType, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Field, Int8Type, Int16Type, Int32Type, Int64Type, Schema, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use bytes::Bytes;
use canopy_model::unescape;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::borrow::Cow;
use std::fs::File;
use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 4096;

/// What `canopy export` says in its files about who made them. Their paths and targets are escaped.
const EXPORTER: &str = "canopy";

/// Reads a file.
pub(super) fn read(input: &Input, taker: &mut Taker<'_>) -> Result<()> {
    let opened = guarded(|| open(input)).map_err(|reason| Error::file(&input.path, reason))?;
    let Some((mut reader, escaped)) = opened else { return Ok(()) };
    let mut row = 0;
    loop {
        let batch = guarded(|| reader.next().transpose().map_err(|error| error.to_string()));
        match batch {
            Ok(Some(batch)) => take(&batch, escaped, &mut row, taker)?,
            Ok(None) => return Ok(()),
            // Where the next row begins cannot be told any more.
            Err(reason) => return taker.problem(Place::Row(row + 1), reason),
        }
    }
}

/// What `decode` gives, or why it cannot, be it an error or a panic.
fn guarded<T>(decode: impl FnOnce() -> std::result::Result<T, String>) -> std::result::Result<T, String> {
    let damaged = |_| Err("the file is damaged: its lengths or offsets do not fit".to_owned());
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(damaged)
}

/// A reader of the columns that matter, and whether texts are escaped. `None` for a table without rows.
fn open(input: &Input) -> std::result::Result<Option<(ParquetRecordBatchReader, bool)>, String> {
    let file =
        Bounded { file: input.file.try_clone().map_err(|error| error.to_string())?, length: input.length };
    check_footer(&file)?;
    // The Arrow schema in the file would only say which of several types to take for the same bytes.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = ArrowReaderMetadata::load(&file, options).map_err(|error| error.to_string())?;
    let facts = metadata.metadata().file_metadata();
    let escaped = facts.created_by() == Some(EXPORTER);
    if facts.num_rows() <= 0 {
        return Ok(None);
    }
    let (mut fields, mut wanted) = (Vec::new(), Vec::new());
    for (number, field) in metadata.schema().fields().iter().enumerate() {
        let field = match field.data_type() {
            DataType::Utf8 => retyped(field, DataType::Utf8View),
            DataType::Binary => retyped(field, DataType::BinaryView),
            _ => field.clone(),
        };
        let name = field.name().to_lowercase();
        if let Some(holds) = Holds::of(&name) {
            check_type(&name, holds, field.data_type())?;
            wanted.push(number);
        }
        fields.push(field);
    }
    let options = ArrowReaderOptions::new()
        .with_skip_arrow_metadata(true)
        .with_schema(Arc::new(Schema::new_with_metadata(fields, metadata.schema().metadata().clone())));
    let metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options)
        .map_err(|error| error.to_string())?;
    let columns = ProjectionMask::roots(metadata.parquet_schema(), wanted);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_projection(columns)
        .with_batch_size(BATCH_ROWS)
        .build();
    Ok(Some((reader.map_err(|error| error.to_string())?, escaped)))
}

/// Checks that the footer is not shorter than the number of its row groups says: the decoder asks for memory for as many
/// as that before it reads one. The footer is a struct in Thrift's compact protocol; field 4 is the list of row groups.
fn check_footer(file: &Bounded) -> std::result::Result<(), String> {
    const ROW_GROUPS: i16 = 4;
    const TAIL_BYTES: u64 = 8;
    let text = |error: ParquetError| error.to_string();
    let tail_at = file.length.checked_sub(TAIL_BYTES).ok_or("the file is too short for Parquet")?;
    let tail = file.get_bytes(tail_at, TAIL_BYTES as usize).map_err(text)?;
    let &[a, b, c, d, b'P', b'A', b'R', b'1'] = &tail[..] else {
        return Err("no 'PAR1' at the end: it is no Parquet file, or an encrypted one".to_owned());
    };
    let length = u32::from_le_bytes([a, b, c, d]);
    let at = tail_at.checked_sub(length.into()).ok_or("the footer is longer than the file")?;
    let footer = file.get_bytes(at, length as usize).map_err(text)?;
    let mut footer = Compact(&footer);
    let damaged = "the footer is damaged";
    let mut field = 0;
    while let Some(kind) = footer.field(&mut field).ok_or(damaged)? {
        if field == ROW_GROUPS && kind == Compact::LIST {
            let (_, count) = footer.list().ok_or(damaged)?;
            let left = footer.0.len() as u64;
            return if count <= left { Ok(()) } else { Err(format!("{count} row groups in {left} bytes")) };
        }
        footer.skip(kind, 0).ok_or(damaged)?;
    }
    Ok(())
}

/// Bytes in Thrift's compact protocol. `None` where they end too early or make no sense.
struct Compact<'a>(&'a [u8]);

impl Compact<'_> {
    const LIST: u8 = 9;
    const DEPTH_MAX: usize = 32;

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// The type of the next field of a struct, whose number goes to `field`, or `Some(None)` at its end.
    fn field(&mut self, field: &mut i16) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *field = match head >> 4 {
            0 => {
                let zigzag = u16::try_from(self.varint()?).ok()?;
                (zigzag >> 1) as i16 ^ -((zigzag & 1) as i16)
            }
            delta => field.checked_add(delta.into())?,
        };
        Some(Some(head & 0xF))
    }

    /// The type and the number of the elements of a list.
    fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Some((head & 0xF, count))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let bytes = match kind {
            // In a field, the type is the value.
            1 | 2 => 0,
            3 => 1,
            4..=6 => self.varint().map(|_| 0)?,
            7 => 8,
            8 => usize::try_from(self.varint()?).ok()?,
            9 | 10 if depth < Self::DEPTH_MAX => {
                let (kind, count) = self.list()?;
                for _ in 0..count {
                    // In a list, truth values take a byte.
                    let kind = if kind <= 2 { 3 } else { kind };
                    self.skip(kind, depth + 1)?;
                }
                0
            }
            12 if depth < Self::DEPTH_MAX => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
                0
            }
            _ => return None,
        };
        self.0 = self.0.get(bytes..)?;
        Some(())
    }
}

/// A file that gives no memory for bytes that it does not have.
struct Bounded {
    file: File,
    length: u64,
}

impl Length for Bounded {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Bounded {
    type T = BufReader<File>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        self.file.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.length) {
            let reason = format!("{length} bytes at byte {start} reach beyond its end");
            return Err(ParquetError::EOF(reason));
        }
        self.file.get_bytes(start, length)
    }
}

fn retyped(field: &Field, data_type: DataType) -> Arc<Field> {
    Arc::new(field.clone().with_data_type(data_type))
}

fn check_type(name: &str, holds: Holds, data_type: &DataType) -> std::result::Result<(), String> {
    let text = matches!(data_type, DataType::Utf8View | DataType::BinaryView | DataType::Null);
    let number = data_type.is_integer();
    let time = matches!(data_type, DataType::Timestamp(..));
    let (fits, expected) = match holds {
        Holds::Text => (text, "texts"),
        Holds::Number => (text || number, "whole numbers"),
        Holds::Time => (text || number || time, "times or whole numbers"),
    };
    if fits { Ok(()) } else { Err(format!("column {name}: got {data_type}, expected {expected}")) }
}

fn take(batch: &RecordBatch, escaped: bool, row: &mut u64, taker: &mut Taker<'_>) -> Result<()> {
    let schema = batch.schema();
    let names: Vec<String> = schema.fields().iter().map(|field| field.name().to_lowercase()).collect();
    for at in 0..batch.num_rows() {
        *row += 1;
        let mut fields = Fields::default();
        let mut columns = names.iter().zip(batch.columns());
        let set = columns.try_for_each(|(name, column)| set(&mut fields, name, column, at, escaped));
        taker.take(Place::Row(*row), set.map(|()| fields))?;
    }
    Ok(())
}

/// Sets a column from row `at` of an array, which has a type that fits.
fn set(
    fields: &mut Fields,
    name: &str,
    array: &dyn Array,
    at: usize,
    escaped: bool,
) -> std::result::Result<(), String> {
    if array.is_null(at) {
        return Ok(());
    }
    match array.data_type() {
        DataType::Utf8View => {
            let text = array.as_string_view().value(at);
            let escaped = escaped && matches!(name, "path" | "target");
            let bytes = if escaped { unescape(text) } else { Cow::Borrowed(text.as_bytes()) };
            fields.set(name, &bytes)
        }
        DataType::BinaryView => fields.set(name, array.as_binary_view().value(at)),
        DataType::Int8 => fields.set_number(name, number::<Int8Type>(array, at)),
        DataType::Int16 => fields.set_number(name, number::<Int16Type>(array, at)),
        DataType::Int32 => fields.set_number(name, number::<Int32Type>(array, at)),
        DataType::Int64 => fields.set_number(name, number::<Int64Type>(array, at)),
        DataType::UInt8 => fields.set_number(name, number::<UInt8Type>(array, at)),
        DataType::UInt16 => fields.set_number(name, number::<UInt16Type>(array, at)),
        DataType::UInt32 => fields.set_number(name, number::<UInt32Type>(array, at)),
        DataType::UInt64 => fields.set_number(name, number::<UInt64Type>(array, at)),
        DataType::Timestamp(unit, _) => {
            let (time, unit_ns) = match unit {
                TimeUnit::Second => (number::<TimestampSecondType>(array, at), 1_000_000_000),
                TimeUnit::Millisecond => (number::<TimestampMillisecondType>(array, at), 1_000_000),
                TimeUnit::Microsecond => (number::<TimestampMicrosecondType>(array, at), 1000),
                TimeUnit::Nanosecond => (number::<TimestampNanosecondType>(array, at), 1),
            };
            fields.set_time(name, time * unit_ns);
            Ok(())
        }
        // A column of nothing but nulls.
        _ => Ok(()),
    }
}

fn number<T: ArrowPrimitiveType<Native: Into<i128>>>(array: &dyn Array, at: usize) -> i128 {
    array.as_primitive::<T>().value(at).into()
}

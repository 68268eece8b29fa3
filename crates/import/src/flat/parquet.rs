//! Parquet: a table with the columns of the other tables.
//!
//! Texts are read as views, so that a value which a page holds once is in memory once, however many
//! rows name it. The decoder is meant for honest files: where it panics on others, that is an error
//! of the file here.

use super::Collector;
use super::fields::{Fields, Holds};
use crate::error::{Error, Position, Result};
use crate::fault::{Checked, Fault};
use crate::foreign_parquet::open_foreign_parquet;
use crate::input::Input;
use crate::parquet_pages::bounded_batch_rows;
use arrow::array::{Array, ArrowPrimitiveType, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Field, Int8Type, Int16Type, Int32Type, Int64Type, Schema, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use canopy_model::unescape;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Rows that are decoded at a time, at most.
const BATCH_ROWS: usize = 4096;

/// Creator that `canopy export` names in its files. Their paths and targets are escaped.
const EXPORTER: &str = "canopy";

/// Reads a file.
pub(crate) fn read(input: &Input, collector: &mut Collector<'_>) -> Result<()> {
    let opened = guarded(|| open(input)).map_err(|reason| Error::file(&input.path, reason))?;
    let Some((mut reader, escaped)) = opened else { return Ok(()) };
    let mut row = 0;
    loop {
        let batch = guarded(|| reader.next().transpose().map_err(Fault::decoder));
        match batch {
            Ok(Some(batch)) => take(&batch, escaped, &mut row, collector)?,
            Ok(None) => return Ok(()),
            // Where the next row begins cannot be told any more.
            Err(reason) => return collector.problem(Position::Row(row + 1), reason),
        }
    }
}

/// Returns what `decode` gives, or why it cannot, be it an error or a panic.
fn guarded<T>(decode: impl FnOnce() -> Checked<T>) -> Checked<T> {
    let damaged = |_| Err(Fault::form("the file is damaged: its lengths or offsets do not fit"));
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(damaged)
}

/// Returns a reader of the columns that matter, and whether texts are escaped. `None` for a table
/// without rows.
fn open(input: &Input) -> Checked<Option<(ParquetRecordBatchReader, bool)>> {
    let (file, metadata) = open_foreign_parquet(input.file.try_clone().map_err(Fault::decoder)?)?;
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
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(Arc::new(
        Schema::new_with_metadata(fields, metadata.schema().metadata().clone()),
    ));
    let metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options)
        .map_err(Fault::decoder)?;
    let rows = bounded_batch_rows(&file, &metadata, &wanted, BATCH_ROWS, true)?;
    let columns = ProjectionMask::roots(metadata.parquet_schema(), wanted);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_projection(columns)
        .with_batch_size(rows)
        .build();
    Ok(Some((reader.map_err(Fault::decoder)?, escaped)))
}

fn retyped(field: &Field, data_type: DataType) -> Arc<Field> {
    Arc::new(field.clone().with_data_type(data_type))
}

fn check_type(name: &str, holds: Holds, data_type: &DataType) -> Checked<()> {
    let text = matches!(data_type, DataType::Utf8View | DataType::BinaryView | DataType::Null);
    let number = data_type.is_integer();
    let time = matches!(data_type, DataType::Timestamp(..));
    let (fits, expected) = match holds {
        Holds::Text => (text, "texts"),
        Holds::Number => (text || number, "whole numbers"),
        Holds::Time => (text || number || time, "times or whole numbers"),
    };
    if fits {
        Ok(())
    } else {
        Err(Fault::form(format!("column {name}: got {data_type}, expected {expected}")))
    }
}

fn take(
    batch: &RecordBatch,
    escaped: bool,
    row: &mut u64,
    collector: &mut Collector<'_>,
) -> Result<()> {
    let schema = batch.schema();
    let names: Vec<String> =
        schema.fields().iter().map(|field| field.name().to_lowercase()).collect();
    for at in 0..batch.num_rows() {
        *row += 1;
        let mut fields = Fields::default();
        let mut columns = names.iter().zip(batch.columns());
        let set =
            columns.try_for_each(|(name, column)| set(&mut fields, name, column, at, escaped));
        collector.take(Position::Row(*row), set.map(|()| fields))?;
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
) -> Checked<()> {
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

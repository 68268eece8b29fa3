//! A JSON object a line. Beside a number beyond 2^53, which readers with floating point alone would
//! round, stands a text with all digits: `ino_text` beside `ino`.

use super::blocks::{Blocks, Output};
use super::rows::{self, BatchSink};
use crate::error::Result;
use crate::json::EXACT_MAX;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, UInt64Type};
use arrow::json::writer::LineDelimitedWriter;
use canopy_read::locate::Start;
use parking_lot::Mutex;
use std::sync::Arc;

/// Writes the rows of all starts.
pub(super) fn write(starts: &[Start], threads: usize, output: &Mutex<Output>) -> Result<()> {
    rows::write(starts, threads, || Ok(NdJson(Blocks::new(output))))
}

struct NdJson<'a>(Blocks<'a>);

impl BatchSink for NdJson<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut writer = LineDelimitedWriter::new(&mut self.0.buffer);
        writer.write(&with_texts(batch)?).map_err(std::io::Error::other)?;
        writer.finish().map_err(std::io::Error::other)?;
        self.0.ends()
    }

    fn finish(self) -> Result<()> {
        self.0.finish()
    }
}

/// Adds texts of numbers that floating point rounds; a row without any has none.
fn with_texts(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    let mut columns = batch.columns().to_vec();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if let Some(texts) = texts_beside(column) {
            fields.push(Arc::new(Field::new(
                format!("{}_text", field.name()),
                DataType::Utf8,
                true,
            )));
            columns.push(texts);
        }
    }
    if columns.len() == batch.num_columns() {
        return Ok(batch.clone());
    }
    let schema = Arc::new(Schema::new(fields));
    Ok(RecordBatch::try_new(schema, columns).map_err(std::io::Error::other)?)
}

fn texts_beside(column: &ArrayRef) -> Option<ArrayRef> {
    let beyond = |number: i128| number.unsigned_abs() > EXACT_MAX;
    let texts: StringArray = match column.data_type() {
        DataType::Int64 => {
            let numbers = column.as_primitive::<Int64Type>();
            numbers.values().iter().find(|number| beyond(i128::from(**number)))?;
            let text = |number: i64| beyond(number.into()).then(|| number.to_string());
            numbers.iter().map(|number| number.and_then(text)).collect()
        }
        DataType::UInt64 => {
            let numbers = column.as_primitive::<UInt64Type>();
            numbers.values().iter().find(|number| beyond(i128::from(**number)))?;
            let text = |number: u64| beyond(number.into()).then(|| number.to_string());
            numbers.iter().map(|number| number.and_then(text)).collect()
        }
        _ => return None,
    };
    Some(Arc::new(texts))
}

//! How answers are printed.

use super::grid::Grid;
pub(super) use super::grid::Style;
use super::tables::batch_of;
use crate::error::{Error, Result};
use arrow::array::{Array, RecordBatch, StringArray};
use arrow::csv::writer::{Writer as CsvWriter, WriterBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::writer::{ArrayWriter, LineDelimitedWriter};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use canopy_text::safe::spreadsheet_cell;
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use std::io::Write;
use std::sync::Arc;

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerFormat {
    /// A table for people; [`SessionOptions`](crate::SessionOptions) say how it looks.
    #[default]
    Table,
    /// Comma-separated values with a header.
    Csv,
    /// Like `Csv`, with an apostrophe before texts that a spreadsheet would compute.
    SafeCsv,
    /// One JSON array of objects.
    Json,
    /// A JSON object a line.
    NdJson,
    /// A Parquet file.
    Parquet,
}

pub(super) enum Writer<'a> {
    Table(Grid<'a>),
    /// And why the output failed, and whether texts are made safe.
    Csv(CsvWriter<Remembering<'a>>, Arc<Mutex<Option<std::io::Error>>>, bool),
    Json(ArrayWriter<&'a mut (dyn Write + Send)>),
    NdJson(LineDelimitedWriter<&'a mut (dyn Write + Send)>),
    Parquet(ArrowWriter<&'a mut (dyn Write + Send)>),
}

impl<'a> Writer<'a> {
    /// Begins an answer; `style` is for tables alone.
    pub(super) fn new(
        format: AnswerFormat,
        schema: SchemaRef,
        style: Style,
        output: &'a mut (dyn Write + Send),
    ) -> Result<Self> {
        Ok(match format {
            AnswerFormat::Table => Writer::Table(Grid::new(&schema, style, output)),
            AnswerFormat::Csv | AnswerFormat::SafeCsv => {
                let failure = Arc::default();
                let output = Remembering { output, failure: Arc::clone(&failure) };
                let writer = WriterBuilder::new().with_header(true).build(output);
                let is_safe = format == AnswerFormat::SafeCsv;
                let mut writer = Writer::Csv(writer, failure, is_safe);
                // So that an answer without rows has its header too.
                writer.write(RecordBatch::new_empty(schema))?;
                writer
            }
            AnswerFormat::Json => Writer::Json(ArrayWriter::new(output)),
            AnswerFormat::NdJson => Writer::NdJson(LineDelimitedWriter::new(output)),
            AnswerFormat::Parquet => Writer::Parquet(ArrowWriter::try_new(output, schema, None)?),
        })
    }

    pub(super) fn write(&mut self, batch: RecordBatch) -> Result<()> {
        match self {
            Writer::Table(grid) => grid.write(&batch)?,
            Writer::Csv(writer, failure, is_safe) => {
                let written = writer.write(&flat(&batch, *is_safe).map_err(arrow_error)?);
                written.map_err(|error| match failure.lock().take() {
                    Some(failure) => Error::Output(failure),
                    None => arrow_error(error),
                })?;
            }
            Writer::Json(writer) => writer.write(&batch).map_err(arrow_error)?,
            Writer::NdJson(writer) => writer.write(&batch).map_err(arrow_error)?,
            Writer::Parquet(writer) => writer.write(&batch)?,
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<()> {
        match self {
            Writer::Table(grid) => grid.finish()?,
            Writer::Csv(writer, ..) => writer.into_inner().flush()?,
            Writer::Json(mut writer) => {
                writer.finish().map_err(arrow_error)?;
                let output = writer.into_inner();
                writeln!(output)?;
                output.flush()?;
            }
            Writer::NdJson(mut writer) => {
                writer.finish().map_err(arrow_error)?;
                writer.into_inner().flush()?;
            }
            Writer::Parquet(mut writer) => {
                // `into_inner` would tell a failed write by its text alone.
                writer.finish()?;
                writer.inner_mut().flush()?;
            }
        }
        Ok(())
    }
}

/// An output that remembers why it failed, of which the writer of CSV returns only the text.
pub(super) struct Remembering<'a> {
    output: &'a mut (dyn Write + Send),
    failure: Arc<Mutex<Option<std::io::Error>>>,
}

impl Remembering<'_> {
    fn remember<T>(&self, written: std::io::Result<T>) -> std::io::Result<T> {
        written.inspect_err(|error| {
            let same = std::io::Error::new(error.kind(), error.to_string());
            *self.failure.lock() =
                Some(error.raw_os_error().map_or(same, std::io::Error::from_raw_os_error));
        })
    }
}

impl Write for Remembering<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.output.write(bytes);
        self.remember(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let flushed = self.output.flush();
        self.remember(flushed)
    }
}

/// Turns lists and structures into text, since CSV has none; with `is_safe`, into texts that no
/// spreadsheet computes, and so all other texts and the names of columns.
fn flat(batch: &RecordBatch, is_safe: bool) -> std::result::Result<RecordBatch, ArrowError> {
    use DataType::{Dictionary, LargeUtf8, Utf8, Utf8View};
    let options = FormatOptions::default();
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let is_text = matches!(field.data_type(), Utf8 | LargeUtf8 | Utf8View | Dictionary(..));
        if !(field.data_type().is_nested() || is_safe && is_text) {
            fields.push(safe_name(field, is_safe));
            columns.push(column.clone());
            continue;
        }
        let formatter = ArrayFormatter::try_new(column, &options)?;
        let text = |at: usize| {
            let text = column.is_valid(at).then(|| formatter.value(at).to_string())?;
            Some(if is_safe { spreadsheet_cell(&text).into_owned() } else { text })
        };
        columns.push(Arc::new((0..column.len()).map(text).collect::<StringArray>()));
        let field = safe_name(field, is_safe);
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
    }
    batch_of(&Arc::new(Schema::new(fields)), columns, batch.num_rows())
}

/// Returns a column under a name that no spreadsheet computes.
fn safe_name(field: &Arc<Field>, is_safe: bool) -> Arc<Field> {
    match is_safe {
        true => Arc::new(field.as_ref().clone().with_name(spreadsheet_cell(field.name()))),
        false => field.clone(),
    }
}

pub(super) fn arrow_error(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, error) => Error::Output(error),
        other => Error::Output(std::io::Error::other(other)),
    }
}

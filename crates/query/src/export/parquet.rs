//! Parquet. Each worker encodes row groups in memory; they are appended one at a time.

use super::blocks::Output;
use super::rows::{self, Sink};
use crate::error::{Error, Result};
use crate::locate::Start;
use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use std::io::Write;
use std::sync::Mutex;

/// Rows from which on a row group is closed.
const ROW_GROUP_ROWS: usize = 128 * 1024;

/// Writes the rows of all starts.
pub(super) fn write(starts: &[Start], threads: usize, output: &mut Output) -> Result<()> {
    let zstd = Compression::ZSTD(ZstdLevel::try_new(1).expect("1 is a level of zstd"));
    let properties =
        WriterProperties::builder().set_compression(zstd).set_created_by("canopy".to_owned()).build();
    let writer = ArrowWriter::try_new(output, rows::schema(), Some(properties)).map_err(parquet_error)?;
    let (file, factory) = writer.into_serialized_writer().map_err(parquet_error)?;
    let file = Mutex::new(file);
    rows::write(starts, threads, || {
        Ok(RowGroups { file: &file, factory: &factory, columns: Vec::new(), rows: 0 })
    })?;
    let file = file.into_inner().expect("no thread panics while it writes");
    file.into_inner().map_err(parquet_error)?.flush()?;
    Ok(())
}

/// The row group that a worker is making.
struct RowGroups<'a, 'b> {
    file: &'a Mutex<SerializedFileWriter<&'b mut Output>>,
    factory: &'a ArrowRowGroupWriterFactory,
    columns: Vec<ArrowColumnWriter>,
    rows: usize,
}

impl RowGroups<'_, '_> {
    fn close(&mut self) -> Result<()> {
        let columns = std::mem::take(&mut self.columns);
        let mut chunks = Vec::with_capacity(columns.len());
        for column in columns {
            chunks.push(column.close().map_err(parquet_error)?);
        }
        let mut file = self.file.lock().expect("no thread panics while it writes");
        let mut group = file.next_row_group().map_err(parquet_error)?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut group).map_err(parquet_error)?;
        }
        group.close().map_err(parquet_error)?;
        self.rows = 0;
        Ok(())
    }
}

impl Sink for RowGroups<'_, '_> {
    fn batch(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.columns.is_empty() {
            self.columns = self.factory.create_column_writers(0).map_err(parquet_error)?;
        }
        let schema = batch.schema();
        let arrays = schema.fields().iter().zip(batch.columns());
        for (column, (field, array)) in self.columns.iter_mut().zip(arrays) {
            // Every column is flat, so it has one leaf.
            for leaf in compute_leaves(field, array).map_err(parquet_error)? {
                column.write(&leaf).map_err(parquet_error)?;
            }
        }
        self.rows += batch.num_rows();
        if self.rows >= ROW_GROUP_ROWS { self.close() } else { Ok(()) }
    }

    fn finish(mut self) -> Result<()> {
        if self.rows > 0 { self.close() } else { Ok(()) }
    }
}

fn parquet_error(error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(cause) => Error::Output(*cause),
            Err(cause) => Error::Output(std::io::Error::other(cause)),
        },
        other => Error::Output(std::io::Error::other(other)),
    }
}

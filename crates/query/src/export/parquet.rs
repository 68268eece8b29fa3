//! Parquet. Each worker encodes row groups in memory; they are appended one at a time.

use super::blocks::Output;
use super::rows::{self, Sink};
use crate::error::Result;
use crate::locate::Start;
use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, ZstdLevel};
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
    let writer = ArrowWriter::try_new(output, rows::schema(), Some(properties))?;
    let (file, factory) = writer.into_serialized_writer()?;
    let file = Mutex::new(file);
    rows::write(starts, threads, || {
        Ok(RowGroups { file: &file, factory: &factory, columns: Vec::new(), rows: 0 })
    })?;
    let mut file = file.into_inner().expect("no thread panics while it writes");
    // `into_inner` would tell a failed write by its text alone.
    file.finish()?;
    file.inner_mut().flush()?;
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
            chunks.push(column.close()?);
        }
        let mut file = self.file.lock().expect("no thread panics while it writes");
        let mut group = file.next_row_group()?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

impl Sink for RowGroups<'_, '_> {
    fn batch(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.columns.is_empty() {
            self.columns = self.factory.create_column_writers(0)?;
        }
        let schema = batch.schema();
        let arrays = schema.fields().iter().zip(batch.columns());
        for (column, (field, array)) in self.columns.iter_mut().zip(arrays) {
            // Every column is flat, so it has one leaf.
            for leaf in compute_leaves(field, array)? {
                column.write(&leaf)?;
            }
        }
        self.rows += batch.num_rows();
        if self.rows >= ROW_GROUP_ROWS { self.close() } else { Ok(()) }
    }

    fn finish(mut self) -> Result<()> {
        if self.rows > 0 { self.close() } else { Ok(()) }
    }
}

//! Parquet. Each worker encodes row groups in memory; they are appended one at a time.

use super::blocks::Output;
use super::rows::{self, BatchSink};
use crate::error::Result;
use arrow::array::RecordBatch;
use canopy_read::locate::Start;
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use std::io::Write;

/// Rows from which on a row group is closed.
const ROW_GROUP_ROWS: usize = 128 * 1024;

/// Writes the rows of all starts.
pub(super) fn write(starts: &[Start], threads: usize, output: &mut Output) -> Result<()> {
    let zstd = Compression::ZSTD(ZstdLevel::try_new(1).expect("1 is a level of zstd"));
    let properties = WriterProperties::builder()
        .set_compression(zstd)
        .set_created_by("canopy".to_owned())
        .build();
    let writer = ArrowWriter::try_new(output, rows::schema(), Some(properties))?;
    let (file, factory) = writer.into_serialized_writer()?;
    let file = Mutex::new(Some(file));
    rows::write(starts, threads, || {
        Ok(RowGroups { file: &file, factory: &factory, columns: Vec::new(), rows: 0 })
    })?;
    let file = file.into_inner();
    let mut file = file.expect("a failed write ends the work on rows");
    // `into_inner` would tell a failed write by its text alone.
    file.finish()?;
    file.inner_mut().flush()?;
    Ok(())
}

/// The row group that a worker is making.
struct RowGroups<'a, 'b> {
    /// None once a write has failed.
    file: &'a Mutex<Option<SerializedFileWriter<&'b mut Output>>>,
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
        let mut shared = self.file.lock();
        // After a failed write the file is of no use, and the worker whose write it was says why.
        let Some(mut file) = shared.take() else { return Ok(()) };
        let mut group = file.next_row_group()?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
        *shared = Some(file);
        self.rows = 0;
        Ok(())
    }
}

impl BatchSink for RowGroups<'_, '_> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, UInt64Array, new_null_array};
    use canopy_index::column::INO;
    use canopy_read::plan::BATCH_ROWS;
    use std::sync::Arc;

    #[test]
    fn the_first_failed_write_is_the_error() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut output: Output = Box::new(Gone);
        let writer = ArrowWriter::try_new(&mut output, rows::schema(), None).unwrap();
        let (file, factory) = writer.into_serialized_writer().unwrap();
        let file = Mutex::new(Some(file));
        // More than the writer gathers before it writes.
        let count = 8 * BATCH_ROWS;
        let noise: Vec<u64> =
            (0..count as u64).map(|row| row.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        let schema = rows::schema();
        let columns = schema.fields().iter().map(|field| match field {
            field if field.name() == INO.name() => {
                Arc::new(UInt64Array::from(noise.clone())) as ArrayRef
            }
            field if field.is_nullable() => new_null_array(field.data_type(), count),
            field => {
                arrow::compute::cast(&UInt64Array::from(vec![0; count]), field.data_type()).unwrap()
            }
        });
        let batch = RecordBatch::try_new(schema.clone(), columns.collect()).unwrap();
        let mut workers = [(); 2].map(|()| RowGroups {
            file: &file,
            factory: &factory,
            columns: Vec::new(),
            rows: 0,
        });
        for worker in &mut workers {
            worker.batch(&batch).unwrap();
        }
        let [first, second] = workers;
        let error = first.finish().unwrap_err();
        assert!(error.is_broken_pipe(), "{error}");
        second.finish().unwrap();
    }
}

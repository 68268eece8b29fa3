//! Arrow's IPC: the stream where it is piped, the file format (Feather 2) where it goes to a file.

use super::blocks::Output;
use super::rows::{self, BatchSink};
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::record_batch::RecordBatchWriter;
use canopy_read::locate::Start;
use parking_lot::Mutex;
use std::io::BufWriter;

/// Bytes written at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes the rows of all starts. Workers make batches, which are written one at a time.
pub(super) fn write(
    starts: &[Start],
    threads: usize,
    file: bool,
    output: &mut Output,
) -> Result<()> {
    let schema = rows::schema();
    let output = BufWriter::with_capacity(BUFFER_BYTES, output);
    match file {
        true => {
            write_to(FileWriter::try_new(output, &schema).map_err(arrow_error)?, starts, threads)
        }
        false => {
            write_to(StreamWriter::try_new(output, &schema).map_err(arrow_error)?, starts, threads)
        }
    }
}

fn write_to<W: RecordBatchWriter + Send>(
    writer: W,
    starts: &[Start],
    threads: usize,
) -> Result<()> {
    let writer = Mutex::new(writer);
    rows::write(starts, threads, || Ok(Shared(&writer)))?;
    writer.into_inner().close().map_err(arrow_error)
}

struct Shared<'a, W>(&'a Mutex<W>);

impl<W: RecordBatchWriter> BatchSink for Shared<'_, W> {
    fn batch(&mut self, batch: &RecordBatch) -> Result<()> {
        self.0.lock().write(batch).map_err(arrow_error)
    }

    fn finish(self) -> Result<()> {
        Ok(())
    }
}

fn arrow_error(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, error) => Error::Output(error),
        other => Error::Output(std::io::Error::other(other)),
    }
}

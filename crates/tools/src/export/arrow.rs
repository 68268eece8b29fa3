//! Arrow's IPC: the stream where it is piped, the file format (Feather 2) where it goes to a file.

use super::blocks::Output;
use super::rows::{self, BatchSink};
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use canopy_read::locate::Start;
use parking_lot::Mutex;
use std::io::{BufWriter, Write};

/// Bytes written at a time.
const BUFFER_BYTES: usize = 1 << 20;

enum Writer<'a> {
    Stream(StreamWriter<BufWriter<&'a mut Output>>),
    File(FileWriter<BufWriter<&'a mut Output>>),
}

/// Writes the rows of all starts. Workers make batches, which are written one at a time.
pub(super) fn write(
    starts: &[Start],
    threads: usize,
    file: bool,
    output: &mut Output,
) -> Result<()> {
    let schema = rows::schema();
    let output = BufWriter::with_capacity(BUFFER_BYTES, output);
    let writer = match file {
        true => Writer::File(FileWriter::try_new(output, &schema).map_err(arrow_error)?),
        false => Writer::Stream(StreamWriter::try_new(output, &schema).map_err(arrow_error)?),
    };
    let writer = Mutex::new(writer);
    rows::write(starts, threads, || Ok(Shared(&writer)))?;
    match writer.into_inner() {
        Writer::Stream(writer) => writer.into_inner().map_err(arrow_error)?.flush()?,
        Writer::File(writer) => writer.into_inner().map_err(arrow_error)?.flush()?,
    }
    Ok(())
}

struct Shared<'a, 'b>(&'a Mutex<Writer<'b>>);

impl BatchSink for Shared<'_, '_> {
    fn batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut writer = self.0.lock();
        match &mut *writer {
            Writer::Stream(writer) => writer.write(batch).map_err(arrow_error),
            Writer::File(writer) => writer.write(batch).map_err(arrow_error),
        }
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

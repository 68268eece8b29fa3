//! A JSON object a line.

use super::blocks::{Blocks, Output};
use super::rows::{self, BatchSink};
use crate::error::Result;
use arrow::array::RecordBatch;
use arrow::json::writer::LineDelimitedWriter;
use canopy_read::locate::Start;
use parking_lot::Mutex;

/// Writes the rows of all starts.
pub(super) fn write(starts: &[Start], threads: usize, output: &Mutex<Output>) -> Result<()> {
    rows::write(starts, threads, || Ok(NdJson(Blocks::new(output))))
}

struct NdJson<'a>(Blocks<'a>);

impl BatchSink for NdJson<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut writer = LineDelimitedWriter::new(&mut self.0.buffer);
        writer.write(batch).map_err(std::io::Error::other)?;
        writer.finish().map_err(std::io::Error::other)?;
        self.0.ends()
    }

    fn finish(self) -> Result<()> {
        self.0.finish()
    }
}

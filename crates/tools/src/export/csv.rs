//! Comma-separated values with a header.

use super::blocks::{Blocks, Output};
use super::rows::{self, BatchSink};
use crate::error::Result;
use arrow::array::RecordBatch;
use arrow::csv::writer::WriterBuilder;
use canopy_read::locate::Start;
use parking_lot::Mutex;

/// Writes the rows of all starts.
pub(super) fn write(starts: &[Start], threads: usize, output: &Mutex<Output>) -> Result<()> {
    let mut header = Csv(Blocks::new(output));
    header.rows(&RecordBatch::new_empty(rows::schema()), true)?;
    header.finish()?;
    rows::write(starts, threads, || Ok(Csv(Blocks::new(output))))
}

struct Csv<'a>(Blocks<'a>);

impl Csv<'_> {
    fn rows(&mut self, batch: &RecordBatch, header: bool) -> Result<()> {
        let mut writer = WriterBuilder::new().with_header(header).build(&mut self.0.buffer);
        Ok(writer.write(batch).map_err(std::io::Error::other)?)
    }
}

impl BatchSink for Csv<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows(batch, false)?;
        self.0.ends()
    }

    fn finish(self) -> Result<()> {
        self.0.finish()
    }
}

//! Comma-separated values with a header.

use super::blocks::{Blocks, Output};
use super::rows::{self, BatchSink};
use crate::error::Result;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::csv::writer::WriterBuilder;
use arrow::datatypes::DataType;
use canopy_read::locate::Start;
use canopy_text::safe::spreadsheet_cell;
use parking_lot::Mutex;
use std::sync::Arc;

/// Writes the rows of all starts. With `safe`, no spreadsheet computes a value.
pub(super) fn write(
    starts: &[Start],
    threads: usize,
    safe: bool,
    output: &Mutex<Output>,
) -> Result<()> {
    let mut header = Csv { blocks: Blocks::new(output), safe };
    header.rows(&RecordBatch::new_empty(rows::schema()), true)?;
    header.finish()?;
    rows::write(starts, threads, || Ok(Csv { blocks: Blocks::new(output), safe }))
}

struct Csv<'a> {
    blocks: Blocks<'a>,
    safe: bool,
}

impl Csv<'_> {
    fn rows(&mut self, batch: &RecordBatch, header: bool) -> Result<()> {
        let mut writer = WriterBuilder::new().with_header(header).build(&mut self.blocks.buffer);
        Ok(writer.write(batch).map_err(std::io::Error::other)?)
    }
}

impl BatchSink for Csv<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Result<()> {
        match self.safe {
            true => self.rows(&guarded(batch)?, false)?,
            false => self.rows(batch, false)?,
        }
        self.blocks.ends()
    }

    fn finish(self) -> Result<()> {
        self.blocks.finish()
    }
}

/// Returns rows whose texts no spreadsheet computes.
fn guarded(batch: &RecordBatch) -> Result<RecordBatch> {
    let column = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8 => {
                let texts = column.as_string::<i32>().iter();
                Arc::new(texts.map(|text| text.map(spreadsheet_cell)).collect::<StringArray>())
            }
            _ => column.clone(),
        }
    };
    let columns = batch.columns().iter().map(column).collect();
    Ok(RecordBatch::try_new(batch.schema(), columns).map_err(std::io::Error::other)?)
}

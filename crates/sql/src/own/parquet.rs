//! Parquet files. The decoder is meant for honest files; `attached` turns a panic of it into an
//! error.

use super::attached::{Content, FileResult, FileRows, open_regular};
use super::error::FileError;
use arrow::datatypes::SchemaRef;
use canopy_import::{BoundedFile, bounded_batch_rows, open_foreign_parquet};
use canopy_read::plan::BATCH_ROWS;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use std::path::Path;

/// An opened file.
#[derive(Debug)]
pub(super) struct Parquet {
    file: BoundedFile,
    metadata: ArrowReaderMetadata,
}

/// Opens a file and reads its footer.
pub(super) fn open(path: &Path) -> FileResult<Parquet> {
    let (file, metadata) = open_foreign_parquet(open_regular(path)?)
        .map_err(|why| FileError::Refused(why.to_string()))?;
    Ok(Parquet { file, metadata })
}

impl Content for Parquet {
    fn schema(&self) -> SchemaRef {
        self.metadata.schema().clone()
    }

    fn read(&self, columns: &[usize]) -> FileResult<FileRows> {
        let rows = bounded_batch_rows(&self.file, &self.metadata, columns, BATCH_ROWS, false)
            .map_err(|why| FileError::Refused(why.to_string()))?;
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied());
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.file.clone(),
            self.metadata.clone(),
        )
        .with_projection(mask)
        .with_batch_size(rows)
        .build()?;
        Ok(Box::new(reader.map(|batch| Ok(batch?.columns().to_vec()))))
    }
}

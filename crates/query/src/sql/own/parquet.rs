//! Parquet files. The decoder is meant for honest files; `attached` turns a panic of it into an error.

use super::attached::{BATCH_ROWS, Content, FileResult, FileRows, open_regular};
use super::footer;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// An opened file.
pub(super) struct Parquet {
    file: Bounded,
    metadata: ArrowReaderMetadata,
}

impl fmt::Debug for Parquet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Parquet({} bytes)", self.file.bytes)
    }
}

/// Opens a file and reads its footer.
pub(super) fn open(path: &Path) -> FileResult<Parquet> {
    let file = open_regular(path)?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    let file = Bounded { file: Arc::new(file), bytes };
    // The Arrow schema in the file would only say which of several types to take for the same bytes.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    footer::check(&file, bytes)?;
    let metadata = ArrowReaderMetadata::load(&file, options).map_err(|error| error.to_string())?;
    Ok(Parquet { file, metadata })
}

impl Content for Parquet {
    fn schema(&self) -> SchemaRef {
        self.metadata.schema().clone()
    }

    fn read(&self, columns: &[usize]) -> FileResult<FileRows> {
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied());
        let reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.file.clone(), self.metadata.clone())
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS)
                .build()
                .map_err(|error| error.to_string())?;
        Ok(Box::new(reader.map(|batch| match batch {
            Ok(batch) => Ok(batch.columns().to_vec()),
            Err(error) => Err(error.to_string()),
        })))
    }
}

/// A file that gives no memory for bytes that it does not have.
#[derive(Clone)]
pub(super) struct Bounded {
    file: Arc<File>,
    bytes: u64,
}

impl Length for Bounded {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Bounded {
    type T = BoundedReader;

    fn get_read(&self, start: u64) -> ParquetResult<BoundedReader> {
        Ok(BoundedReader { file: self.file.clone(), at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            let reason = format!("{length} bytes at byte {start} reach beyond its end");
            return Err(ParquetError::EOF(reason));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// Reads on from a place in a file.
pub(super) struct BoundedReader {
    file: Arc<File>,
    at: u64,
}

impl Read for BoundedReader {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(target, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

//! Parquet files. The decoder is meant for honest files: where it panics on others, that is an error of the file here.

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
use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Once};

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
    let metadata = guarded(|| ArrowReaderMetadata::load(&file, options).map_err(|error| error.to_string()))?;
    Ok(Parquet { file, metadata })
}

impl Content for Parquet {
    fn schema(&self) -> SchemaRef {
        self.metadata.schema().clone()
    }

    fn read(&self, columns: &[usize]) -> FileResult<FileRows> {
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied());
        let builder = || {
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.file.clone(), self.metadata.clone())
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS)
                .build()
                .map_err(|error| error.to_string())
        };
        let mut reader = Some(guarded(builder)?);
        let next = move || {
            let open = reader.as_mut()?;
            let batch = guarded(|| open.next().transpose().map_err(|error| error.to_string())).transpose()?;
            if batch.is_err() {
                reader = None;
            }
            Some(batch.map(|batch| batch.columns().to_vec()))
        };
        Ok(Box::new(std::iter::from_fn(next)))
    }
}

thread_local! {
    /// Whether this thread decodes what may make the decoder panic.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// What `decode` gives, or why it cannot, be it an error or a panic, which is not reported as one.
fn guarded<T>(decode: impl FnOnce() -> FileResult<T>) -> FileResult<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                report(panic);
            }
        }));
    });
    GUARDED.set(true);
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    GUARDED.set(false);
    decoded.unwrap_or_else(|_| Err("it is damaged: its lengths or offsets do not fit".to_owned()))
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

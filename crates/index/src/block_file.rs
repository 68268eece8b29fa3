//! A file of a shard that is read by blocks, each checked against its checksum before a byte of it
//! is used.

use crate::disk::BLOCK_BYTES;
use crate::error::{Error, Result};
use crate::plain_file;
use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files up to this size are read at once when they are opened.
const WHOLE_BYTES: u64 = 2 * BLOCK_BYTES as u64;

/// An open file of a shard. Cheap to clone.
#[derive(Clone)]
pub(crate) struct BlockFile {
    inner: Arc<Inner>,
}

struct Inner {
    /// `None` for one that is in memory as a whole.
    file: Option<File>,
    bytes: u64,
    sums: Vec<u32>,
    /// Blocks whose checksum was found right.
    checked: Vec<AtomicBool>,
    whole: Option<Bytes>,
}

impl BlockFile {
    /// Opens a file that has so many bytes, and blocks with these CRC-32, by its manifest.
    pub(crate) fn open(path: &Path, expected_bytes: u64, sums: Vec<u32>) -> Result<Self> {
        let (file, bytes) = plain_file::open(path)?;
        if bytes != expected_bytes {
            return Err(Error::corrupt(
                path,
                format!("it has {bytes} bytes, expected {expected_bytes}"),
            ));
        }
        if sums.len() as u64 != bytes.div_ceil(BLOCK_BYTES as u64) {
            return Err(Error::corrupt(path, "its manifest has a wrong number of checksums"));
        }
        let checked = sums.iter().map(|_| AtomicBool::new(false)).collect();
        let mut inner = Inner { file: Some(file), bytes, sums, checked, whole: None };
        if bytes <= WHOLE_BYTES {
            let whole = inner.read(0, bytes as usize).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => Error::corrupt(path, error),
                _ => Error::io("read", path)(error),
            })?;
            // An index may have more of these than a process may have files open.
            (inner.whole, inner.file) = (Some(whole), None);
        }
        Ok(BlockFile { inner: Arc::new(inner) })
    }

    /// Reads all of it; fails at the first block that does not match its checksum.
    pub(crate) fn check(&self) -> io::Result<()> {
        const STEP_BYTES: usize = 16 * BLOCK_BYTES;
        (0..self.inner.bytes).step_by(STEP_BYTES).try_for_each(|start| {
            let bytes = (self.inner.bytes - start).min(STEP_BYTES as u64);
            self.inner.read(start, bytes as usize).map(drop)
        })
    }

    /// Returns a file that is in memory.
    pub(crate) fn in_memory(file: Bytes) -> Self {
        let (bytes, sums, checked) = (file.len() as u64, Vec::new(), Vec::new());
        let inner = Inner { file: None, bytes, sums, checked, whole: Some(file) };
        BlockFile { inner: Arc::new(inner) }
    }
}

impl Inner {
    /// Reads bytes of the file; the blocks that hold them are checked if they were not yet.
    fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let end =
            start.checked_add(length as u64).filter(|&end| end <= self.bytes).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "it refers to bytes past its end")
            })?;
        if let Some(whole) = &self.whole {
            return Ok(whole.slice(start as usize..end as usize));
        }
        let Some(file) = &self.file else { return Ok(Bytes::new()) };
        let block_bytes = BLOCK_BYTES as u64;
        let blocks = (start / block_bytes) as usize..end.div_ceil(block_bytes) as usize;
        let unchecked = |&block: &usize| !self.checked[block].load(Ordering::Relaxed);
        // The range read is widened to whole blocks where there is one to be checked.
        let from = match blocks.clone().find(unchecked) {
            Some(first) => start.min(first as u64 * block_bytes),
            None => start,
        };
        let to = match blocks.clone().rfind(unchecked) {
            Some(last) => end.max((last as u64 + 1) * block_bytes).min(self.bytes),
            None => end,
        };
        let mut buffer = Vec::with_capacity((to - from) as usize);
        while buffer.len() < (to - from) as usize {
            let at = from + buffer.len() as u64;
            if rustix::io::pread(file, rustix::buffer::spare_capacity(&mut buffer), at)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        buffer.truncate((to - from) as usize);
        for block in blocks.filter(unchecked) {
            let at = (block as u64 * block_bytes - from) as usize;
            let bytes = &buffer[at..buffer.len().min(at + BLOCK_BYTES)];
            if crc32fast::hash(bytes) != self.sums[block] {
                let detail = format!(
                    "the checksum of the block at byte {} does not match",
                    block * BLOCK_BYTES
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, detail));
            }
            self.checked[block].store(true, Ordering::Relaxed);
        }
        Ok(Bytes::from(buffer).slice((start - from) as usize..(end - from) as usize))
    }
}

impl Length for BlockFile {
    fn len(&self) -> u64 {
        self.inner.bytes
    }
}

impl ChunkReader for BlockFile {
    type T = BlockReader;

    fn get_read(&self, start: u64) -> ParquetResult<BlockReader> {
        Ok(BlockReader { file: self.clone(), at: start, buffer: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        self.inner.read(start, length).map_err(ParquetError::from)
    }
}

/// Reads on from a place in a file, a block at a time.
pub(crate) struct BlockReader {
    file: BlockFile,
    at: u64,
    buffer: Bytes,
}

impl Read for BlockReader {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.buffer.is_empty() {
            let left = self.file.inner.bytes.saturating_sub(self.at);
            let in_block = BLOCK_BYTES as u64 - self.at % BLOCK_BYTES as u64;
            let length = left.min(in_block) as usize;
            self.buffer = self.file.inner.read(self.at, length)?;
            self.at += length as u64;
        }
        let taken = target.len().min(self.buffer.len());
        target[..taken].copy_from_slice(&self.buffer.split_to(taken));
        Ok(taken)
    }
}

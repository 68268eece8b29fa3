//! Opens Parquet files from untrusted sources; the decoder is meant for honest ones. A damaged file
//! gives an error here or, later, may make the decoder panic, which callers catch. It never takes
//! memory for bytes that a file does not have.

use crate::fault::{Checked, Fault};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Opens a file and reads its footer, without the Arrow schema in it, which would only say which of
/// several types to take for the same bytes. Blocks.
pub fn open_foreign_parquet(file: File) -> Checked<(BoundedFile, ArrowReaderMetadata)> {
    let bytes = file.metadata().map_err(Fault::decoder)?.len();
    let file = BoundedFile { file: Arc::new(file), bytes };
    check_footer(&file)?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = ArrowReaderMetadata::load(&file, options).map_err(Fault::decoder)?;
    Ok((file, metadata))
}

/// A file that gives no memory for bytes that it does not have.
#[derive(Clone, Debug)]
pub struct BoundedFile {
    file: Arc<File>,
    bytes: u64,
}

impl Length for BoundedFile {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for BoundedFile {
    type T = BoundedReader;

    fn get_read(&self, start: u64) -> parquet::errors::Result<BoundedReader> {
        Ok(BoundedReader { file: self.file.clone(), at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
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
pub struct BoundedReader {
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

/// Checks that the footer is not shorter than the number of its row groups says: the decoder asks
/// for memory for as many as that before it reads one. The footer is a struct in Thrift's compact
/// protocol; field 4 is the list of row groups.
fn check_footer(file: &BoundedFile) -> Checked<()> {
    const ROW_GROUPS: i16 = 4;
    const TAIL_BYTES: u64 = 8;
    let read = |at, length| file.get_bytes(at, length).map_err(Fault::decoder);
    let tail_at = file
        .bytes
        .checked_sub(TAIL_BYTES)
        .ok_or_else(|| Fault::form("it is too short for Parquet"))?;
    let tail = read(tail_at, TAIL_BYTES as usize)?;
    let &[a, b, c, d, b'P', b'A', b'R', b'1'] = &tail[..] else {
        let reason = "no 'PAR1' at the end: it is not a Parquet file, or an encrypted one";
        return Err(Fault::form(reason));
    };
    let length = u32::from_le_bytes([a, b, c, d]);
    let at = tail_at
        .checked_sub(length.into())
        .ok_or_else(|| Fault::form("its footer is longer than the file"))?;
    let footer = read(at, length as usize)?;
    let mut footer = Compact(&footer);
    let damaged = || Fault::form("its footer is damaged");
    let mut field = 0;
    while let Some(kind) = footer.field(&mut field).ok_or_else(damaged)? {
        if field == ROW_GROUPS && kind == Compact::LIST {
            let (_, count) = footer.list().ok_or_else(damaged)?;
            let left = footer.0.len() as u64;
            return if count <= left {
                Ok(())
            } else {
                Err(Fault::form(format!("{count} row groups in {left} bytes")))
            };
        }
        footer.skip(kind, 0).ok_or_else(damaged)?;
    }
    Ok(())
}

/// Bytes in Thrift's compact protocol. `None` where they end too early or make no sense.
pub(crate) struct Compact<'a>(pub(crate) &'a [u8]);

impl Compact<'_> {
    const LIST: u8 = 9;
    pub(crate) const I32: u8 = 5;
    pub(crate) const STRUCT: u8 = 12;
    const DEPTH_MAX: usize = 32;

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a number of 32 bits, which the protocol stores in zigzag order.
    pub(crate) fn i32(&mut self) -> Option<i32> {
        let zigzag = u32::try_from(self.varint()?).ok()?;
        Some((zigzag >> 1) as i32 ^ -((zigzag & 1) as i32))
    }

    /// Reads the type of the next field of a struct, whose number goes to `field`, or
    /// `Some(None)` at its end.
    pub(crate) fn field(&mut self, field: &mut i16) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *field = match head >> 4 {
            0 => {
                let zigzag = u16::try_from(self.varint()?).ok()?;
                (zigzag >> 1) as i16 ^ -((zigzag & 1) as i16)
            }
            delta => field.checked_add(delta.into())?,
        };
        Some(Some(head & 0xF))
    }

    /// Reads the type and the number of the elements of a list.
    fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Some((head & 0xF, count))
    }

    /// Skips a value of a type; `depth` counts the values around it.
    pub(crate) fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let bytes = match kind {
            // In a field, the type is the value.
            1 | 2 => 0,
            3 => 1,
            4..=6 => self.varint().map(|_| 0)?,
            7 => 8,
            8 => usize::try_from(self.varint()?).ok()?,
            9 | 10 if depth < Self::DEPTH_MAX => {
                let (kind, count) = self.list()?;
                for _ in 0..count {
                    // In a list, truth values take a byte.
                    let kind = if kind <= 2 { 3 } else { kind };
                    self.skip(kind, depth + 1)?;
                }
                0
            }
            12 if depth < Self::DEPTH_MAX => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
                0
            }
            _ => return None,
        };
        self.0 = self.0.get(bytes..)?;
        Some(())
    }
}

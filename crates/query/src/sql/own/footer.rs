//! A check of a Parquet file's footer, which is not trusted, before the decoder sees it.

use super::attached::FileResult;
use parquet::file::reader::ChunkReader;

/// Checks that the footer is not shorter than the number of its row groups says: the decoder asks for memory for as many
/// as that before it reads one. The footer is a struct in Thrift's compact protocol; field 4 is the list of row groups.
pub(super) fn check(file: &impl ChunkReader, file_bytes: u64) -> FileResult<()> {
    const ROW_GROUPS: i16 = 4;
    const TAIL_BYTES: u64 = 8;
    let read = |at, length| file.get_bytes(at, length).map_err(|error| error.to_string());
    let tail_at = file_bytes.checked_sub(TAIL_BYTES).ok_or("it is too short for Parquet")?;
    let tail = read(tail_at, TAIL_BYTES as usize)?;
    let &[a, b, c, d, b'P', b'A', b'R', b'1'] = &tail[..] else {
        return Err("no 'PAR1' at the end: it is no Parquet file, or an encrypted one".to_owned());
    };
    let length = u32::from_le_bytes([a, b, c, d]);
    let at = tail_at.checked_sub(length.into()).ok_or("its footer is longer than the file")?;
    let footer = read(at, length as usize)?;
    let mut footer = Compact(&footer);
    let damaged = "its footer is damaged";
    let mut field = 0;
    while let Some(kind) = footer.field(&mut field).ok_or(damaged)? {
        if field == ROW_GROUPS && kind == Compact::LIST {
            let (_, count) = footer.list().ok_or(damaged)?;
            let left = footer.0.len() as u64;
            return if count <= left { Ok(()) } else { Err(format!("{count} row groups in {left} bytes")) };
        }
        footer.skip(kind, 0).ok_or(damaged)?;
    }
    Ok(())
}

/// Bytes in Thrift's compact protocol. `None` where they end too early or make no sense.
struct Compact<'a>(&'a [u8]);

impl Compact<'_> {
    const LIST: u8 = 9;
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

    /// The type of the next field of a struct, whose number goes to `field`, or `Some(None)` at its end.
    fn field(&mut self, field: &mut i16) -> Option<Option<u8>> {
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

    /// The type and the number of the elements of a list.
    fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Some((head & 0xF, count))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
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

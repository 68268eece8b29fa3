//! Reading and writing numbers of variable length. Nothing here panics, whatever the bytes are.

/// A decoded value, or a description of what is wrong with the bytes.
pub(super) type Decoded<T> = Result<T, &'static str>;

/// Bytes that are read from the front.
pub(super) struct Decoder<'a> {
    /// Bytes that have not been read yet.
    pub rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub fn new(rest: &'a [u8]) -> Self {
        Decoder { rest }
    }

    pub fn take(&mut self, count: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or("ends too early")?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn byte(&mut self) -> Decoded<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn varint(&mut self) -> Decoded<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("has a number that is too great")
    }

    pub fn signed(&mut self) -> Decoded<i64> {
        let zigzag = self.varint()?;
        Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    /// Reads a varint that is at most `limit`.
    pub fn size(&mut self, limit: usize) -> Decoded<usize> {
        let size = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        if size <= limit { Ok(size) } else { Err("has a size that is too great") }
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value << 1 ^ value >> 63) as u64);
}

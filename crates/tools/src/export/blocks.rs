//! Outputs that several workers share: each gathers a block of whole records and writes it in one
//! go.

use crate::error::Result;
use std::io::Write;
use std::sync::{Mutex, MutexGuard};

/// An output of an export.
pub type Output = Box<dyn Write + Send>;

/// Bytes from which on a block is written at the next end of a record.
const BLOCK_BYTES: usize = 1 << 20;

/// Bytes from which on a block is written amid a record, which then keeps the output until it ends.
const HELD_BYTES: usize = 8 << 20;

/// What one worker is about to write.
pub(super) struct Blocks<'a> {
    output: &'a Mutex<Output>,
    held: Option<MutexGuard<'a, Output>>,
    pub(super) buffer: Vec<u8>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(output: &'a Mutex<Output>) -> Self {
        Blocks { output, held: None, buffer: Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 8) }
    }

    /// Says that a record goes on, so that a huge one does not pile up in memory.
    pub(super) fn goes_on(&mut self) -> Result<()> {
        if self.buffer.len() >= HELD_BYTES {
            self.write()?;
        }
        Ok(())
    }

    /// Says that a record ends here: others may write theirs next.
    pub(super) fn ends(&mut self) -> Result<()> {
        if self.held.is_some() || self.buffer.len() >= BLOCK_BYTES {
            self.write()?;
            self.held = None;
        }
        Ok(())
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> Result<()> {
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let output = self.output;
        let held = self
            .held
            .get_or_insert_with(|| output.lock().expect("no thread panics while it writes"));
        held.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Appends a number in decimal: `write!` would take a third of the time of an export in text.
pub(super) fn push_decimal(buffer: &mut Vec<u8>, number: i64) {
    if number < 0 {
        buffer.push(b'-');
    }
    push_unsigned(buffer, number.unsigned_abs());
}

/// As [`push_decimal`].
pub(super) fn push_unsigned(buffer: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    buffer.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_they_are_displayed() {
        for number in [0, 7, 10, 99, 100, -1, i64::MAX, i64::MIN] {
            let mut buffer = Vec::new();
            push_decimal(&mut buffer, number);
            assert_eq!(String::from_utf8(buffer).unwrap(), number.to_string());
        }
    }
}

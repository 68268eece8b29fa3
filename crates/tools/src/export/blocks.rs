//! Outputs that several workers share: each gathers a block of whole records and writes it in one
//! go.

use crate::error::Result;
use parking_lot::{Mutex, MutexGuard};
use std::io::Write;

/// An output of an export.
pub type Output = Box<dyn Write + Send>;

/// Bytes from which on a block is written at the next end of a record.
const BLOCK_BYTES: usize = 1 << 20;

/// Bytes from which on a block is written amid a record, which then keeps the output until it ends.
const HELD_BYTES: usize = 8 << 20;

/// Output of one worker that is not written yet.
pub(super) struct Blocks<'a> {
    output: &'a Mutex<Output>,
    held: Option<MutexGuard<'a, Output>>,
    pub(super) buffer: Vec<u8>,
}

impl<'a> Blocks<'a> {
    /// Begins with an empty block.
    pub(super) fn new(output: &'a Mutex<Output>) -> Self {
        Blocks { output, held: None, buffer: Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 8) }
    }

    /// Tells that a record goes on, so that a huge one does not pile up in memory.
    pub(super) fn goes_on(&mut self) -> Result<()> {
        if self.buffer.len() >= HELD_BYTES {
            self.write()?;
        }
        Ok(())
    }

    /// Tells that a record ends here: others may write theirs next.
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
        let held = self.held.get_or_insert_with(|| output.lock());
        held.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Appends a number in decimal: `write!` would take a third of the time of an export in text.
pub(super) fn push_number(buffer: &mut Vec<u8>, number: impl itoa::Integer) {
    buffer.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

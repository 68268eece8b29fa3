//! A file that its creator adds to, in place of zeros, while other machines read it.

use super::Append;
use crate::error::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;

pub(super) struct GrowingFile {
    name: String,
    file: File,
    /// Bytes that it has before its zeros.
    length: u64,
}

impl GrowingFile {
    pub(super) fn new(name: &str, file: File, length: u64) -> Self {
        GrowingFile { name: name.into(), file, length }
    }
}

impl Append for GrowingFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, self.length);
        written.map_err(|error| Error::storage(&*self.name, error))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Has the server store what was added. Neither the size of the file nor its blocks change.
    fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::storage(&*self.name, error))
    }
}

//! Files read in blocks at given places, so that several threads can read one file.
//!
//! Not mapped into memory: another program may cut a file short while it is read, which must be an
//! error and not a signal.

use crate::error::{Error, Result};
use crate::fault::Fault;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes read at a time. A record must fit; no format has larger ones.
pub(crate) const BLOCK_BYTES: usize = 2 << 20;

/// An input file that can be read at any place. Standard input and pipes are copied to a temporary
/// file first.
#[derive(Debug)]
pub(crate) struct Input {
    pub path: PathBuf,
    pub file: File,
    pub length: u64,
}

impl Input {
    /// Opens a file; `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Self::copied("standard input".into(), &mut io::stdin().lock());
        }
        let mut file = File::open(path).map_err(Error::io("open", path))?;
        let metadata = file.metadata().map_err(Error::io("look at", path))?;
        if metadata.is_dir() {
            return Err(Error::file(path, Fault::form("is a directory, expected a file")));
        }
        if !metadata.is_file() {
            return Self::copied(path.to_owned(), &mut file);
        }
        Ok(Input { path: path.to_owned(), file, length: metadata.len() })
    }

    fn copied(path: PathBuf, from: &mut dyn io::Read) -> Result<Self> {
        let mut file =
            tempfile::tempfile().map_err(Error::io("make a temporary copy of", &path))?;
        let length =
            io::copy(from, &mut file).map_err(Error::io("make a temporary copy of", &path))?;
        Ok(Input { path, file, length })
    }

    /// Reads a text from its beginning, without a byte order mark. An error for UTF-16.
    pub(crate) fn text(&self) -> Result<Blocks<'_>> {
        let mut mark = [0; 3];
        let read = self.file.read_at(&mut mark, 0).map_err(Error::io("read", &self.path))?;
        match mark[..read] {
            [0xEF, 0xBB, 0xBF] => Ok(self.blocks(3, self.length)),
            [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => {
                Err(Error::file(&self.path, Fault::form("is UTF-16: save it as UTF-8")))
            }
            _ => Ok(self.blocks(0, self.length)),
        }
    }

    /// Reads the bytes from `start` to `end`.
    pub(crate) fn blocks(&self, start: u64, end: u64) -> Blocks<'_> {
        Blocks {
            input: self,
            buffer: vec![0; BLOCK_BYTES],
            start: 0,
            filled: 0,
            offset: start,
            end,
        }
    }
}

/// A window that moves over a part of a file.
pub(crate) struct Blocks<'a> {
    input: &'a Input,
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
    /// Where the window begins in the file.
    offset: u64,
    end: u64,
}

impl Blocks<'_> {
    /// Returns the bytes in the window.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.filled]
    }

    /// Returns where the window begins in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Moves the beginning of the window on.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Returns whether the window reaches the end of the part.
    pub(crate) fn is_last(&self) -> bool {
        self.offset + self.bytes().len() as u64 >= self.end
    }

    /// Moves the end of the window on. Returns whether there is more in it then: not at the end of
    /// the part, or when the window is as large as it gets.
    pub(crate) fn more(&mut self) -> Result<bool> {
        self.buffer.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.start = 0;
        let at = self.offset + self.filled as u64;
        let wanted =
            usize::try_from(self.end - at).unwrap_or(usize::MAX).min(BLOCK_BYTES - self.filled);
        if wanted == 0 {
            return Ok(false);
        }
        let target = &mut self.buffer[self.filled..self.filled + wanted];
        match self.input.file.read_at(target, at) {
            Ok(0) => {
                let reason = format!(
                    "ends at byte {at}, expected {} bytes: it was changed meanwhile",
                    self.end
                );
                Err(Error::file(&self.input.path, Fault::form(reason)))
            }
            Ok(read) => {
                self.filled += read;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(Error::io("read", &self.input.path)(error)),
        }
    }
}

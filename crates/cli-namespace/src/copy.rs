//! Copying contents of files: shared with the source where the file system can, and with holes
//! where it has holes.

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are copied at once where the kernel does not copy.
const BUFFER_BYTES: usize = 256 << 10;

/// Copies between a pair of file systems. Notes the calls that they do not support.
#[derive(Default)]
pub struct Copier {
    shares_nothing: bool,
    buffer: Vec<u8>,
}

/// The file that could not be read or written.
pub enum Failed {
    /// The file to copy from.
    Source(io::Error),
    /// The one to copy to.
    Target(io::Error),
}

impl Copier {
    /// Copies the contents of a file into an empty one. `size` is its length, as far as is known;
    /// if it changes meanwhile, the copy has contents of some moment.
    pub fn copy(&mut self, source: &File, target: &File, size: u64) -> Result<(), Failed> {
        if !self.shares_nothing {
            match rustix::fs::ioctl_ficlone(target, source) {
                Ok(()) => return Ok(()),
                Err(_) => self.shares_nothing = true,
            }
        }
        let mut at = 0;
        while at < size {
            let (start, end) = match next_data(source, at, size) {
                Ok(Some(range)) => range,
                Ok(None) => break,
                Err(errno) => return Err(Failed::Source(errno.into())),
            };
            self.copy_range(source, target, start, end)?;
            at = end;
        }
        // A hole at the end, unless the source has lost it meanwhile.
        let end = source.metadata().map_err(Failed::Source)?.len().min(size);
        let length = target.metadata().map_err(Failed::Target)?.len();
        if length < end {
            target.set_len(end).map_err(Failed::Target)?;
        }
        Ok(())
    }

    fn copy_range(
        &mut self,
        source: &File,
        target: &File,
        mut start: u64,
        end: u64,
    ) -> Result<(), Failed> {
        while start < end {
            let (mut from, mut to) = (start, start);
            let left = usize::try_from(end - start).unwrap_or(usize::MAX).min(1 << 30);
            match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), left)
            {
                // Some file systems say so of what they do not copy.
                Ok(0) | Err(_) => return self.copy_by_hand(source, target, start, end),
                Ok(count) => start += count as u64,
            }
        }
        Ok(())
    }

    fn copy_by_hand(
        &mut self,
        source: &File,
        target: &File,
        mut start: u64,
        end: u64,
    ) -> Result<(), Failed> {
        self.buffer.resize(BUFFER_BYTES, 0);
        while start < end {
            let left = usize::try_from(end - start).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            match source.read_at(&mut self.buffer[..left], start) {
                Ok(0) => break,
                Ok(count) => {
                    target.write_all_at(&self.buffer[..count], start).map_err(Failed::Target)?;
                    start += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failed::Source(error)),
            }
        }
        Ok(())
    }
}

/// Returns where the next data at or behind an offset are, up to `size`.
pub fn next_data(source: &File, at: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    let start = match rustix::fs::seek(source, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // Not every file system knows.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, size))),
        Err(errno) => return Err(errno),
    };
    if start >= size {
        return Ok(None);
    }
    let end = rustix::fs::seek(source, SeekFrom::Hole(start)).unwrap_or(size);
    Ok(Some((start, end.clamp(start + 1, size))))
}

//! Opening files of an index, which may be somebody else's: what is not a plain file is refused,
//! and nothing waits for a pipe.

use crate::error::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Opens a file for reading, and returns it with its size in bytes. A symbolic link at the end of
/// the path is not followed.
pub(crate) fn open(path: &Path) -> Result<(File, u64)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP | Errno::NXIO) => return Err(no_file(path)),
        Err(errno) => return Err(Error::io("read", path)(errno.into())),
    };
    let about = file.metadata().map_err(Error::io("look at", path))?;
    if about.is_file() { Ok((file, about.len())) } else { Err(no_file(path)) }
}

fn no_file(path: &Path) -> Error {
    Error::corrupt(path, "it is not a plain file")
}

/// Reads a whole file, which may have so many bytes.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let (file, bytes) = open(path)?;
    let too_large = || Error::corrupt(path, format!("it has more than {bytes_max} bytes"));
    if bytes > bytes_max {
        return Err(too_large());
    }
    let mut content = Vec::with_capacity(bytes as usize);
    file.take(bytes_max + 1).read_to_end(&mut content).map_err(Error::io("read", path))?;
    if content.len() as u64 > bytes_max { Err(too_large()) } else { Ok(content) }
}

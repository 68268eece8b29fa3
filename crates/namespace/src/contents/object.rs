//! Where an open file has its contents that are too large for a record: a file of a directory, or
//! chunks in storage.

use crate::contents::chunks::Chunked;
use crate::contents::{allocate, read_object, seek, write_object};
use crate::error::{Error, Result};
use crate::records::inode::Inode;
use std::fs::File;

pub(crate) enum Object {
    File(File),
    Chunks(Chunked),
}

impl Object {
    /// Returns the length in bytes.
    pub(crate) fn size(&self) -> Result<u64> {
        match self {
            Object::File(file) => Ok(file.metadata().map_err(Error::io("an object"))?.len()),
            Object::Chunks(chunks) => Ok(chunks.size()),
        }
    }

    /// Reads up to `length` bytes, fewer only at the end.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        match self {
            Object::File(file) => read_object(file, offset, length),
            Object::Chunks(chunks) => chunks.read(offset, length),
        }
    }

    /// Writes bytes, and returns how many: fewer only where a disk became full, as write(2) does.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        match self {
            Object::File(file) => write_object(file, bytes, offset),
            Object::Chunks(chunks) => chunks.write(bytes, offset).map(|()| bytes.len()),
        }
    }

    /// Gives it a length. A length that stays changes no time by itself, so it is set here.
    pub(crate) fn truncate(&self, size: u64) -> Result<()> {
        match self {
            Object::Chunks(chunks) => chunks.truncate(size),
            Object::File(file) => {
                file.set_len(size).map_err(Error::io("an object"))?;
                let time = |tv_nsec| rustix::fs::Timespec { tv_sec: 0, tv_nsec };
                let times = rustix::fs::Timestamps {
                    last_access: time(rustix::fs::UTIME_OMIT),
                    last_modification: time(rustix::fs::UTIME_NOW),
                };
                Ok(rustix::fs::futimens(file, &times)?)
            }
        }
    }

    /// Changes what space a part takes, as fallocate(2) does.
    pub(crate) fn allocate(&self, mode: i32, offset: u64, length: u64) -> Result<()> {
        match self {
            Object::File(file) => allocate(file, mode, offset, length),
            Object::Chunks(chunks) => chunks.allocate(mode, offset, offset + length),
        }
    }

    /// Returns where data or a hole begins, as lseek(2) does.
    pub(crate) fn seek(&self, is_hole: bool, offset: u64) -> Result<u64> {
        match self {
            Object::File(file) => seek(file, is_hole, offset),
            Object::Chunks(chunks) => chunks.seek(is_hole, offset),
        }
    }

    /// Gives an inode what the object knows better than its record.
    pub(crate) fn describe(&self, inode: &mut Inode) {
        match self {
            Object::File(file) => crate::contents::describe(file, inode),
            Object::Chunks(chunks) => chunks.describe(inode),
        }
    }
}

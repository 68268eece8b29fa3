//! Calls that read and write the contents of files.

use super::refusal::{Refusal, done, value};
use super::words::Words;
use super::{Answer, Calls, Worker};
use crate::word;
use nix::fcntl::FallocateFlags;
use nix::unistd::Whence;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use vmap::{Flush, MapMut, Options};

/// Data is a word; offsets are `-` where a call is to use the one of the descriptor. `map FD LENGTH
/// [private]` has a number that `map-read`, `map-write`, `map-sync` and `unmap` take.
pub const CALLS: Calls = &[
    ("read", |worker, words| {
        let file = worker.descriptor(words)?;
        read(words, |data| Ok(rustix::io::read(file, data)?))
    }),
    ("pread", |worker, words| {
        let (file, offset) = (worker.descriptor(words)?, words.number()?);
        read(words, |data| Ok(nix::sys::uio::pread(file, data, offset)?))
    }),
    ("readv", |worker, words| {
        let file = worker.descriptor(words)?;
        read(words, |data| {
            let (left, right) = data.split_at_mut(data.len() / 2);
            let mut parts = [IoSliceMut::new(left), IoSliceMut::new(right)];
            Ok(rustix::io::readv(file, &mut parts)?)
        })
    }),
    ("write", |worker, words| {
        let file = worker.descriptor(words)?;
        value(rustix::io::write(file, &words.bytes()?))
    }),
    ("pwrite", |worker, words| {
        let (file, offset) = (worker.descriptor(words)?, words.number()?);
        value(nix::sys::uio::pwrite(file, &words.bytes()?, offset))
    }),
    ("writev", |worker, words| {
        let file = worker.descriptor(words)?;
        let (left, right) = (words.bytes()?, words.bytes()?);
        value(rustix::io::writev(file, &[IoSlice::new(&left), IoSlice::new(&right)]))
    }),
    ("lseek", lseek),
    ("truncate", |_, words| {
        done(nix::unistd::truncate(words.path()?.as_os_str(), words.number()?))
    }),
    ("ftruncate", |worker, words| {
        done(nix::unistd::ftruncate(worker.descriptor(words)?, words.number()?))
    }),
    ("fallocate", |worker, words| {
        let file = worker.descriptor(words)?;
        let flags = FallocateFlags::from_bits_retain(words.signed_flags()?);
        done(nix::fcntl::fallocate(file, flags, words.number()?, words.number()?))
    }),
    ("copy_file_range", copy_file_range),
    ("map", map),
    ("map-read", |worker, words| {
        let (map, offset) = (mapped(worker, words)?, words.number()? as usize);
        Ok(word::encode(&map[offset..offset + words.number()? as usize]))
    }),
    ("map-write", |worker, words| {
        let (map, offset) = (mapped(worker, words)?, words.number()? as usize);
        let data = words.bytes()?;
        map[offset..offset + data.len()].copy_from_slice(&data);
        Ok(String::new())
    }),
    ("map-sync", map_sync),
    ("unmap", |worker, words| {
        worker.maps.remove(words.word()?);
        Ok(String::new())
    }),
];

/// `read FD LENGTH` and the like, where the offset comes before the length.
fn read(words: &mut Words, read: impl FnOnce(&mut [u8]) -> Result<usize, Refusal>) -> Answer {
    let mut data = vec![0; words.number()? as usize];
    let length = read(&mut data)?;
    Ok(word::encode(&data[..length]))
}

fn lseek(worker: &mut Worker, words: &mut Words) -> Answer {
    let (file, offset) = (worker.descriptor(words)?, words.number()?);
    let whence = match words.word()? {
        "SEEK_SET" => Whence::SeekSet,
        "SEEK_CUR" => Whence::SeekCur,
        "SEEK_END" => Whence::SeekEnd,
        "SEEK_DATA" => Whence::SeekData,
        "SEEK_HOLE" => Whence::SeekHole,
        other => return Err(Refusal::broken(format!("{other} is not a place to seek from"))),
    };
    value(nix::unistd::lseek(file, offset, whence))
}

/// `copy_file_range FROM OFFSET TO OFFSET LENGTH`.
fn copy_file_range(worker: &mut Worker, words: &mut Words) -> Answer {
    let offset = |words: &mut Words| match words.word()? {
        "-" => Ok::<_, Refusal>(None),
        word => Ok(Some(super::words::number(word)? as u64)),
    };
    let (from, mut read) = (worker.descriptor(words)?, offset(words)?);
    let (to, mut written) = (worker.descriptor(words)?, offset(words)?);
    let length = words.number()? as usize;
    value(rustix::fs::copy_file_range(from, read.as_mut(), to, written.as_mut(), length))
}

fn map(worker: &mut Worker, words: &mut Words) -> Answer {
    let file = File::from(worker.descriptor(words)?.try_clone_to_owned()?);
    let mut options: Options<MapMut> = MapMut::with_options();
    options.len(words.number()? as usize);
    if words.optional() == Some("private") {
        options.copy();
    }
    let map = options.map(&file).map_err(|error| match error.raw_os_error() {
        Some(errno) => Refusal::from(nix::errno::Errno::from_raw(errno)),
        None => Refusal::broken(error.to_string()),
    })?;
    let number = worker.maps.len().to_string();
    worker.maps.insert(number.clone(), map);
    Ok(number)
}

fn mapped<'a>(worker: &'a mut Worker, words: &mut Words) -> Result<&'a mut MapMut, Refusal> {
    let map = worker.maps.get_mut(words.word()?);
    map.ok_or_else(|| Refusal::broken("there is no such map"))
}

/// `map-sync MAP FD`, which is msync.
fn map_sync(worker: &mut Worker, words: &mut Words) -> Answer {
    let map = words.word()?;
    let file = File::from(worker.descriptor(words)?.try_clone_to_owned()?);
    let map = worker.maps.get(map).ok_or_else(|| Refusal::broken("there is no such map"))?;
    map.flush(&file, Flush::Sync).map_err(|error| Refusal::broken(error.to_string()))?;
    Ok(String::new())
}

//! Entries in any order, grouped by directory in bounded memory: an external merge sort.
//!
//! Entries are collected until the memory is used up, sorted by directory and name, and written as
//! a run to a temporary file without a name. At the end, all runs are merged. Without any run on
//! disk, nothing is written.

use crate::error::{Error, Position, Result};
use canopy_model::Attributes;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// An entry on its way. Ordered by directory, name, and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub parent: Vec<u8>,
    pub name: Vec<u8>,
    pub input: u32,
    pub place: Position,
    pub attributes: Attributes,
    pub target: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Item {
    fn key(&self) -> (&[u8], &[u8], u32, u64) {
        let at = match self.place {
            Position::Offset(at) | Position::Line(at, _) | Position::Row(at) => at,
        };
        (&self.parent, &self.name, self.input, at)
    }

    fn bytes(&self) -> usize {
        let xattrs = self.xattrs.iter().map(|(key, value)| key.len() + value.len() + 64);
        size_of::<Item>()
            + self.parent.len()
            + self.name.len()
            + self.target.len()
            + 64
            + xattrs.sum::<usize>()
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let a = &self.attributes;
        let (kind, x, y) = match self.place {
            Position::Offset(x) => (0, x, 0),
            Position::Line(x, y) => (1, x, y),
            Position::Row(x) => (2, x, 0),
        };
        let signed = [a.size_bytes, a.blocks, a.atime_ns, a.mtime_ns, a.ctime_ns, a.btime_ns];
        let small = [
            a.mode,
            a.nlink,
            a.uid,
            a.gid,
            a.blksize_bytes,
            self.input,
            kind,
            self.xattrs.len() as u32,
        ];
        signed.iter().try_for_each(|number| out.write_all(&number.to_le_bytes()))?;
        [a.ino, a.rdev, x, y].iter().try_for_each(|number| out.write_all(&number.to_le_bytes()))?;
        small.iter().try_for_each(|number| out.write_all(&number.to_le_bytes()))?;
        let mut text = |text: &[u8]| {
            out.write_all(&(text.len() as u32).to_le_bytes())?;
            out.write_all(text)
        };
        [&self.parent, &self.name, &self.target].into_iter().try_for_each(|bytes| text(bytes))?;
        self.xattrs.iter().try_for_each(|(key, value)| text(key).and_then(|()| text(value)))
    }

    fn read(from: &mut impl Read) -> std::io::Result<Self> {
        let mut signed = [0_i64; 6];
        for number in &mut signed {
            *number = i64::from_le_bytes(array(from)?);
        }
        let [ino, rdev, x, y] =
            [array(from)?, array(from)?, array(from)?, array(from)?].map(u64::from_le_bytes);
        let mut small = [0_u32; 8];
        for number in &mut small {
            *number = u32::from_le_bytes(array(from)?);
        }
        let [size_bytes, blocks, atime_ns, mtime_ns, ctime_ns, btime_ns] = signed;
        let [mode, nlink, uid, gid, blksize_bytes, input, kind, pairs] = small;
        let mut text = || {
            let mut bytes = vec![0; u32::from_le_bytes(array(from)?) as usize];
            from.read_exact(&mut bytes)?;
            std::io::Result::Ok(bytes)
        };
        let (parent, name, target) = (text()?, text()?, text()?);
        let xattrs = (0..pairs).map(|_| Ok((text()?, text()?))).collect::<std::io::Result<_>>()?;
        let place = match kind {
            0 => Position::Offset(x),
            1 => Position::Line(x, y),
            _ => Position::Row(x),
        };
        let attributes = Attributes {
            ino,
            mode,
            nlink,
            uid,
            gid,
            size_bytes,
            blksize_bytes,
            blocks,
            atime_ns,
            mtime_ns,
            ctime_ns,
            btime_ns,
            rdev,
        };
        Ok(Item { parent, name, input, place, attributes, target, xattrs })
    }
}

fn array<const N: usize>(from: &mut impl Read) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Takes in entries.
#[derive(Debug)]
pub(crate) struct Spool {
    memory_bytes: usize,
    items: Vec<Item>,
    bytes: usize,
    file: Option<File>,
    /// Where each run lies in the file.
    runs: Vec<(u64, u64)>,
}

fn failed(error: std::io::Error) -> Error {
    Error::io("use a temporary file in", &std::env::temp_dir())(error)
}

impl Spool {
    pub(crate) fn new(memory_bytes: usize) -> Self {
        Spool { memory_bytes, items: Vec::new(), bytes: 0, file: None, runs: Vec::new() }
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, item: Item) -> Result<()> {
        self.bytes += item.bytes();
        self.items.push(item);
        // A vector that grows doubles, and sorting takes half as much again.
        if self.bytes > self.memory_bytes / 3 { self.write_run().map_err(failed) } else { Ok(()) }
    }

    fn write_run(&mut self) -> std::io::Result<()> {
        self.items.sort();
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile()?,
        };
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let start = out.seek(SeekFrom::End(0))?;
        self.items.drain(..).try_for_each(|item| item.write(&mut out))?;
        let end = out.stream_position()?;
        self.file = Some(out.into_inner().map_err(|error| error.into_error())?);
        self.runs.push((start, end));
        self.bytes = 0;
        Ok(())
    }

    /// Returns all entries, sorted. Can be asked for again.
    pub(crate) fn sorted(&mut self) -> Result<Merge<'_>> {
        if self.runs.is_empty() {
            self.items.sort();
        } else if !self.items.is_empty() {
            self.write_run().map_err(failed)?;
        }
        let mut readers = Vec::new();
        if let Some(file) = &self.file {
            for &(start, end) in &self.runs {
                readers.push(BufReader::with_capacity(64 << 10, Run { file, at: start, end }));
            }
        }
        let mut merge = Merge { items: self.items.iter(), readers, heap: BinaryHeap::new() };
        for number in 0..merge.readers.len() {
            merge.refill(number)?;
        }
        Ok(merge)
    }
}

/// A part of a file, read by its place.
struct Run<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Run<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let wanted = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(into.len());
        let read = self.file.read_at(&mut into[..wanted], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Entries in order.
pub(crate) struct Merge<'a> {
    items: std::slice::Iter<'a, Item>,
    readers: Vec<BufReader<Run<'a>>>,
    heap: BinaryHeap<Reverse<(Item, usize)>>,
}

impl Merge<'_> {
    fn refill(&mut self, number: usize) -> Result<()> {
        let reader = &mut self.readers[number];
        let ended = reader.buffer().is_empty() && reader.get_ref().at == reader.get_ref().end;
        if !ended {
            let item = Item::read(reader).map_err(failed)?;
            self.heap.push(Reverse((item, number)));
        }
        Ok(())
    }

    /// Returns the next entry, or `None` behind the last one.
    pub(crate) fn next(&mut self) -> Result<Option<Item>> {
        match self.heap.pop() {
            Some(Reverse((item, number))) => {
                self.refill(number)?;
                Ok(Some(item))
            }
            None => Ok(self.items.next().cloned()),
        }
    }
}

/// Returns the directory and the name of a path below the root, which is not empty.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_on_disk_give_the_same_as_memory() {
        let item = |number: u64| Item {
            parent: format!("d{}", number * 7919 % 13).into_bytes(),
            name: format!("n{}", number * 104_729 % 1009).into_bytes(),
            input: 0,
            place: Position::Line(number, number * 10),
            attributes: Attributes { ino: number, size_bytes: -1, ..Attributes::default() },
            target: vec![b't'; (number % 3) as usize],
            xattrs: vec![(b"user.k".to_vec(), vec![0; (number % 5) as usize])],
        };
        let all = |memory: usize| {
            let mut spool = Spool::new(memory);
            (0..1000).for_each(|number| spool.push(item(number)).unwrap());
            let mut merge = spool.sorted().unwrap();
            let mut items = Vec::new();
            while let Some(item) = merge.next().unwrap() {
                items.push(item);
            }
            items
        };
        let expected = all(1 << 30);
        assert!(expected.is_sorted() && expected.len() == 1000);
        assert_eq!(all(20_000), expected);
    }
}

//! PostMark (J. Katcher, NetApp TR-3022): files are made, each transaction reads a file or appends
//! to one, then makes a file or removes one, and at the end all are removed. Like the original with
//! its default biases; appends grow a file to at most the largest size.

use crate::bench::Bench;
use crate::tree::{create, mkdir};
use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ops::RangeInclusive;

const FILES: usize = 10_000;
const TRANSACTIONS: usize = 20_000;
const DIRECTORIES: usize = 100;

/// Bytes that one call reads or writes.
const BLOCK_BYTES: usize = 4096;

pub struct Kind {
    pub name: &'static str,
    sizes: RangeInclusive<usize>,
}

/// The paper's sizes, and those that are PostMark's default.
pub static KINDS: [Kind; 2] = [
    Kind { name: "200 to 400 KB", sizes: 200 << 10..=400 << 10 },
    Kind { name: "500 B to 10 KB", sizes: 500..=10_000 },
];

struct File {
    number: usize,
    size_bytes: usize,
}

impl File {
    fn path(&self) -> String {
        format!("s{:02}/{}", self.number % DIRECTORIES, self.number)
    }
}

struct PostMark<'a> {
    root: &'a OwnedFd,
    sizes: &'a RangeInclusive<usize>,
    random: StdRng,
    files: Vec<File>,
    next: usize,
    block: Vec<u8>,
}

pub fn run(bench: &mut Bench, kind: &Kind) -> Result<()> {
    let root = &bench.place.root;
    let mut random = bench.settings.random(20);
    let mut block = vec![0; BLOCK_BYTES];
    random.fill_bytes(&mut block);
    let sizes = &kind.sizes;
    let mut mark = PostMark { root, sizes, random, files: Vec::new(), next: 0, block };
    for at in 0..DIRECTORIES {
        mkdir(root, &format!("s{at:02}"))?;
    }
    let (files, transactions) = (bench.count(FILES), bench.count(TRANSACTIONS));
    bench
        .phase(&format!("create, {}", kind.name), || (0..files).try_for_each(|_| mark.create()))?;
    bench.phase(&format!("transactions, {}", kind.name), || {
        (0..transactions).try_for_each(|_| mark.transaction())
    })?;
    bench.phase(&format!("delete, {}", kind.name), || {
        while !mark.files.is_empty() {
            mark.delete()?;
        }
        Ok(())
    })
}

impl PostMark<'_> {
    fn transaction(&mut self) -> Result<()> {
        match self.random.random_bool(0.5) {
            true => self.read()?,
            false => self.append()?,
        }
        match self.random.random_bool(0.5) {
            true => self.create(),
            false => self.delete(),
        }
    }

    /// Returns the place of a random file, if there is any.
    fn any(&mut self) -> Option<usize> {
        (!self.files.is_empty()).then(|| self.random.random_range(0..self.files.len()))
    }

    fn create(&mut self) -> Result<()> {
        let size_bytes = self.random.random_range(self.sizes.clone());
        let file = File { number: self.next, size_bytes };
        self.next += 1;
        let opened = create(self.root, &file.path())?;
        self.write(&opened, size_bytes)?;
        self.files.push(file);
        Ok(())
    }

    fn write(&self, file: &OwnedFd, size_bytes: usize) -> Result<()> {
        let mut left = size_bytes;
        while left > 0 {
            left -= rustix::io::write(file, &self.block[..left.min(BLOCK_BYTES)])?;
        }
        Ok(())
    }

    fn open(&self, at: usize, flags: OFlags) -> Result<OwnedFd> {
        let path = self.files[at].path();
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat(self.root, &path, flags, Mode::empty()).context(path)
    }

    fn read(&mut self) -> Result<()> {
        let Some(at) = self.any() else { return Ok(()) };
        let file = self.open(at, OFlags::RDONLY)?;
        let mut read = 0;
        loop {
            match rustix::io::read(&file, &mut self.block[..])? {
                0 => break,
                count => read += count,
            }
        }
        let expected = self.files[at].size_bytes;
        anyhow::ensure!(read == expected, "read {read} bytes of a file of {expected}");
        Ok(())
    }

    fn append(&mut self) -> Result<()> {
        let Some(at) = self.any() else { return Ok(()) };
        let room = self.sizes.end() - self.files[at].size_bytes;
        if room > 0 {
            let added = self.random.random_range(1..=room);
            let file = self.open(at, OFlags::WRONLY | OFlags::APPEND)?;
            self.write(&file, added)?;
            self.files[at].size_bytes += added;
        }
        Ok(())
    }

    fn delete(&mut self) -> Result<()> {
        let Some(at) = self.any() else { return Ok(()) };
        let path = self.files.swap_remove(at).path();
        rustix::fs::unlinkat(self.root, &path, AtFlags::empty()).context(path)
    }
}

//! How many single operations are done in a second. Each thread has a directory and files of its
//! own; before each figure everything is synced, and the sync after it does not count.

use crate::bench::{Bench, on_threads, threads_suffix};
use crate::report::Unit;
use crate::tree::{create, mkdir};
use crate::walk;
use anyhow::Result;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::time::Instant;

const FILES: usize = 50_000;
const DIRECTORIES: usize = 10_000;
const LOOKS: usize = 100_000;
const BLOCKS: usize = 50_000;

/// So often each directory is listed.
const LISTINGS: usize = 5;

const BLOCK_BYTES: usize = 4096;

/// Length of the files with random blocks, of all threads together.
const RANDOM_BYTES: usize = 256 << 20;

/// Bytes that all threads together read and write in sequence.
const SEQUENTIAL_BYTES: usize = 1 << 30;
const CHUNK_BYTES: usize = 1 << 20;

struct Rates<'a, 'b> {
    bench: &'a mut Bench<'b>,
    root: &'b OwnedFd,
    threads: usize,
    /// The paths of the files of each thread, before and after they are renamed.
    files: Vec<Vec<String>>,
    renamed: Vec<Vec<String>>,
}

pub fn run(bench: &mut Bench, threads: usize) -> Result<()> {
    let (root, in_each) = (&bench.place.root, (bench.count(FILES) / threads).max(1));
    let paths = |what: &str| {
        let of_thread = |thread| (0..in_each).map(move |at| format!("t{thread}/{what}{at:06}"));
        Vec::from_iter((0..threads).map(|thread| Vec::from_iter(of_thread(thread))))
    };
    let (files, renamed) = (paths("file"), paths("renamed"));
    for thread in 0..threads {
        mkdir(root, &format!("t{thread}"))?;
        mkdir(root, &format!("d{thread}"))?;
    }
    let mut rates = Rates { bench, root, threads, files, renamed };
    rates.names()?;
    rates.blocks()?;
    rates.sequential()
}

/// Returns one of `count` in an order that is as good as random, the same each time.
fn scattered(at: usize, count: usize) -> usize {
    ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % count
}

impl Rates<'_, '_> {
    /// Reports the rate of something that all threads together do so many times.
    fn rate(
        &mut self,
        figure: &str,
        count: usize,
        work: impl Fn(usize, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let (threads, in_each) = (self.threads, (count / self.threads).max(1));
        self.bench.place.sync()?;
        let figure = format!("{figure}{}", threads_suffix(threads));
        self.bench.rate(&figure, Unit::Thousands, in_each * threads, || {
            on_threads(threads, |thread| (0..in_each).try_for_each(|at| work(thread, at)))
        })
    }

    /// Operations on names and inodes. Nothing is made after something was removed, for which see
    /// `Bench::settle`.
    fn names(&mut self) -> Result<()> {
        let (root, flags) = (self.root, AtFlags::SYMLINK_NOFOLLOW);
        let (files, renamed) = (self.files.clone(), self.renamed.clone());
        let in_each = files[0].len();
        let count = in_each * self.threads;
        let looks = self.bench.count(LOOKS);
        let directories = self.bench.count(DIRECTORIES);
        self.rate("create, close", count, |thread, at| {
            create(root, &files[thread][at]).map(|_| ())
        })?;
        self.rate("mkdir", directories, |thread, at| mkdir(root, &format!("d{thread}/{at:06}")))?;
        self.rate("stat, random, hot", looks, |thread, at| {
            rustix::fs::statat(root, &files[thread][scattered(at, in_each)], flags)?;
            Ok(())
        })?;
        self.rate("open, close", looks, |thread, at| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let path = &files[thread][scattered(at, in_each)];
            rustix::fs::openat(root, path, flags, Mode::empty())?;
            Ok(())
        })?;
        self.readdir()?;
        self.rate("rename", count, |thread, at| {
            Ok(rustix::fs::renameat(root, &files[thread][at], root, &renamed[thread][at])?)
        })?;
        self.rate("unlink", count, |thread, at| {
            Ok(rustix::fs::unlinkat(root, &renamed[thread][at], AtFlags::empty())?)
        })?;
        self.rate("rmdir", directories, |thread, at| {
            Ok(rustix::fs::unlinkat(root, format!("d{thread}/{at:06}"), AtFlags::REMOVEDIR)?)
        })
    }

    /// Entries of directories, without a look at what they are.
    fn readdir(&mut self) -> Result<()> {
        let (root, threads) = (self.root, self.threads);
        let entries = self.files[0].len() * threads * LISTINGS;
        let figure = format!("readdir, entries{}", threads_suffix(threads));
        self.bench.rate(&figure, Unit::Thousands, entries, || {
            on_threads(threads, |thread| {
                (0..LISTINGS).try_for_each(|_| {
                    walk::list(&walk::open(root, &format!("t{thread}"))?, false).map(|_| ())
                })
            })
        })
    }

    /// Random blocks of a file that is there and in the cache.
    fn blocks(&mut self) -> Result<()> {
        let size_bytes = (self.bench.count(RANDOM_BYTES) / self.threads).max(BLOCK_BYTES);
        let root = self.root;
        let files = Vec::from_iter((0..self.threads).map(|thread| format!("t{thread}/blocks")));
        for path in &files {
            write_all(&create(root, path)?, size_bytes)?;
        }
        let opened = files.iter().map(|path| {
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            Ok(rustix::fs::openat(root, path, flags, Mode::empty())?)
        });
        let opened = opened.collect::<Result<Vec<OwnedFd>>>()?;
        let start = |at| (scattered(at, size_bytes / BLOCK_BYTES) * BLOCK_BYTES) as u64;
        let count = self.bench.count(BLOCKS);
        self.rate("write of 4 KiB, random", count, |thread, at| {
            rustix::io::pwrite(&opened[thread], &[at as u8; BLOCK_BYTES], start(at))?;
            Ok(())
        })?;
        self.rate("read of 4 KiB, random, hot", count, |thread, at| {
            rustix::io::pread(&opened[thread], &mut [0; BLOCK_BYTES], start(at))?;
            Ok(())
        })?;
        drop(opened);
        files.iter().try_for_each(|path| Ok(rustix::fs::unlinkat(root, path, AtFlags::empty())?))
    }

    /// Large files, written and read in a row.
    fn sequential(&mut self) -> Result<()> {
        let (root, threads) = (self.root, self.threads);
        let size_bytes = (self.bench.count(SEQUENTIAL_BYTES) / threads).max(1);
        let total = Unit::Megabytes.of(size_bytes * threads);
        let suffix = threads_suffix(threads);
        self.bench.place.sync()?;
        let begin = Instant::now();
        on_threads(threads, |thread| {
            write_all(&create(root, &format!("t{thread}/large"))?, size_bytes)
        })?;
        let written = begin.elapsed().as_secs_f64();
        on_threads(threads, |thread| {
            Ok(rustix::fs::fsync(&open(root, &format!("t{thread}/large"))?)?)
        })?;
        let synced = begin.elapsed().as_secs_f64();
        let report = &mut self.bench.report;
        report.add(&format!("sequential write{suffix}"), Unit::Megabytes, total / written);
        let with_fsync = format!("sequential write and fsync{suffix}");
        report.add(&with_fsync, Unit::Megabytes, total / synced);
        let caches: &[&str] = if self.bench.drop_caches()? { &[", cold", ""] } else { &[""] };
        for cache in caches {
            let figure = format!("sequential read{cache}{suffix}");
            self.bench.rate(&figure, Unit::Megabytes, size_bytes * threads, || {
                on_threads(threads, |thread| {
                    read_all(&open(root, &format!("t{thread}/large"))?, size_bytes)
                })
            })?;
        }
        Ok(())
    }
}

fn open(root: &OwnedFd, path: &str) -> Result<OwnedFd> {
    Ok(rustix::fs::openat(root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn write_all(file: &OwnedFd, size_bytes: usize) -> Result<()> {
    let chunk = Vec::from_iter((0..CHUNK_BYTES).map(|at| scattered(at, 251) as u8));
    let mut left = size_bytes;
    while left > 0 {
        left -= rustix::io::write(file, &chunk[..left.min(CHUNK_BYTES)])?;
    }
    Ok(())
}

fn read_all(file: &OwnedFd, size_bytes: usize) -> Result<()> {
    let (mut chunk, mut read) = (vec![0; CHUNK_BYTES], 0);
    loop {
        match rustix::io::read(file, &mut chunk[..])? {
            0 => break,
            count => read += count,
        }
    }
    anyhow::ensure!(read == size_bytes, "read {read} bytes of {size_bytes}");
    Ok(())
}

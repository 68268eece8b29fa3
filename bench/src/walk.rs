//! The bare walk: what the kernel takes to list a tree and look at each entry, with nothing done
//! with the results.

use anyhow::Context;
use crossbeam_deque::{Steal, Stealer, Worker};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags};
use std::ffi::CString;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Task = (Arc<OwnedFd>, CString);

/// Walks a tree and returns how many entries it has, without the root.
pub fn walk(path: &Path, threads: usize) -> anyhow::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let root = rustix::fs::open(path, flags, Mode::empty())
        .with_context(|| format!("{}", path.display()))?;
    let stacks: Vec<Worker<Task>> = (0..threads).map(|_| Worker::new_lifo()).collect();
    let stealers: Vec<Stealer<Task>> = stacks.iter().map(Worker::stealer).collect();
    let waiting = AtomicUsize::new(1);
    if let Some(stack) = stacks.first() {
        stack.push((Arc::new(root), c".".to_owned()));
    }
    Ok(std::thread::scope(|scope| {
        let threads: Vec<_> = stacks
            .into_iter()
            .map(|stack| scope.spawn(|| work(stack, &stealers, &waiting)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the walk does not panic")).sum()
    }))
}

fn work(stack: Worker<Task>, stealers: &[Stealer<Task>], waiting: &AtomicUsize) -> u64 {
    let mut buffer = vec![MaybeUninit::uninit(); 64 * 1024];
    let mut entries = 0;
    let steal = || {
        stealers.iter().find_map(|stealer| match stealer.steal() {
            Steal::Success(task) => Some(task),
            _ => None,
        })
    };
    loop {
        match stack.pop().or_else(steal) {
            Some(task) => {
                entries += read(&task, &stack, waiting, &mut buffer);
                waiting.fetch_sub(1, Ordering::AcqRel);
            }
            None if waiting.load(Ordering::Acquire) == 0 => return entries,
            None => std::thread::yield_now(),
        }
    }
}

fn read(
    (parent, name): &Task,
    stack: &Worker<Task>,
    waiting: &AtomicUsize,
    buffer: &mut [MaybeUninit<u8>],
) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::openat(parent, name, flags, Mode::empty()) else { return 0 };
    let directory = Arc::new(directory);
    let mut count = 0;
    let mut entries = RawDir::new(&*directory, buffer);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let _ = black_box(rustix::fs::statx(&*directory, name, AtFlags::SYMLINK_NOFOLLOW, mask));
        count += 1;
        if entry.file_type() == FileType::Directory {
            waiting.fetch_add(1, Ordering::AcqRel);
            stack.push((directory.clone(), name.to_owned()));
        }
    }
    count
}

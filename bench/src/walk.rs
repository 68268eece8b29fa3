//! The bare walk: what the kernel takes to list a tree and look at each entry, with nothing done
//! with the results. As a scan does it, extended attributes are asked for, too, and each directory
//! is looked at when it is opened and again when it has been read.

use anyhow::Context;
use crossbeam_deque::{Steal, Stealer, Worker};
use nix::sched::{CloneFlags, unshare};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags};
use std::ffi::CString;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Task = (Arc<OwnedFd>, CString);

/// System calls that a walk makes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Those that list a tree and look at each entry.
    Bare,
    /// Those that a scan makes where no entry has extended attributes or is a symbolic link.
    OfScan,
}

/// Walks a tree and returns how many entries it has, without the root.
pub fn walk(path: &Path, threads: usize, calls: Calls) -> anyhow::Result<u64> {
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
            .map(|stack| scope.spawn(|| work(stack, &stealers, &waiting, calls)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the walk does not panic")).sum()
    }))
}

fn work(
    stack: Worker<Task>,
    stealers: &[Stealer<Task>],
    waiting: &AtomicUsize,
    calls: Calls,
) -> u64 {
    if calls == Calls::OfScan {
        // Entries are asked for extended attributes by names in the thread's working directory.
        unshare(CloneFlags::CLONE_FS).expect("a thread may have its own working directory");
    }
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
                entries += read(&task, &stack, waiting, &mut buffer, calls);
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
    calls: Calls,
) -> u64 {
    let of_scan = calls == Calls::OfScan;
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    flags.set(OFlags::NOATIME, of_scan);
    let Ok(directory) = rustix::fs::openat(parent, name, flags, Mode::empty()) else { return 0 };
    let directory = Arc::new(directory);
    if of_scan {
        look_at(&directory);
    }
    let mut count = 0;
    let mut entries = RawDir::new(&*directory, buffer);
    let mut entered = false;
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let _ = black_box(rustix::fs::statx(&*directory, name, AtFlags::SYMLINK_NOFOLLOW, mask));
        if of_scan {
            if !std::mem::replace(&mut entered, true) {
                let _ = rustix::process::fchdir(&*directory);
            }
            let _ = black_box(rustix::fs::llistxattr_query(name));
        }
        count += 1;
        if entry.file_type() == FileType::Directory {
            waiting.fetch_add(1, Ordering::AcqRel);
            stack.push((directory.clone(), name.to_owned()));
        }
    }
    if of_scan {
        look_at(&directory);
        let _ = black_box(rustix::fs::statx(
            &*directory,
            c"..",
            AtFlags::NO_AUTOMOUNT,
            StatxFlags::INO,
        ));
    }
    count
}

/// Looks at an open directory and its ACL.
fn look_at(directory: &OwnedFd) {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let _ = black_box(rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, mask));
    let mut acl = [0; 512];
    let _ = black_box(rustix::fs::fgetxattr(directory, "system.posix_acl_access", &mut acl[..]));
}

//! Table IV: many empty files, find and stat of all, random updates of metadata.

use crate::bench::{Bench, on_threads, threads_suffix};
use crate::tree::{Tree, create as create_file, mkdir};
use crate::walk;
use anyhow::{Result, ensure};
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid};

const CREATES: usize = 100_000;
const UPDATES: usize = 200_000;

/// Creates files, directory after directory. Two threads take turns at the files, so they work in
/// the same directory. One thread's files are then found and looked at.
pub fn create(bench: &mut Bench, directories: usize, threads: usize) -> Result<()> {
    let (root, files) = (&bench.place.root, bench.count(CREATES));
    let in_each = files.div_ceil(directories);
    mkdir(root, "tree")?;
    let what = format!("{directories} directories{}", threads_suffix(threads));
    bench.phase(&format!("create, {what}"), || {
        (0..directories).try_for_each(|at| mkdir(root, &format!("tree/{at:03}")))?;
        on_threads(threads, |thread| {
            (thread..files).step_by(threads).try_for_each(|at| {
                create_file(root, &format!("tree/{:03}/file{at:06}", at / in_each))?;
                Ok(())
            })
        })
    })?;
    if threads > 1 {
        return Ok(());
    }
    let count = bench.cold_and_hot(&format!("find and stat, {what}"), || {
        walk::walk(&walk::open(root, "tree")?, &mut |_| {})
    })?;
    ensure!(count as usize == files + directories, "{count} entries were found, not {files}");
    Ok(())
}

/// Makes a tree of three levels, then changes mode, owner or times of random files in it.
pub fn update(bench: &mut Bench) -> Result<()> {
    let (root, settings) = (&bench.place.root, bench.settings);
    let tree = Tree::new(bench.count(UPDATES));
    bench.phase("create, 3 levels", || {
        tree.make_directories(root)?;
        tree.make_files(root, 1)
    })?;
    for threads in [1, 2] {
        let count = bench.count(UPDATES) / threads;
        let figure = format!("random update{}", threads_suffix(threads));
        bench.phase(&figure, || {
            on_threads(threads, |thread| {
                let mut random = settings.random(10 + thread as u64);
                (0..count).try_for_each(|_| change(root, &tree, &mut random))
            })
        })?;
    }
    Ok(())
}

fn change(root: &OwnedFd, tree: &Tree, random: &mut StdRng) -> Result<()> {
    let path = tree.file(random.random_range(0..tree.files));
    match random.random_range(0..3) {
        0 => {
            let mode = Mode::from(0o600 | random.random_range(0..0o100u32));
            rustix::fs::chmodat(root, &path, mode, AtFlags::empty())?;
        }
        1 => {
            let (uid, gid) = owner(random);
            rustix::fs::chownat(root, &path, Some(uid), Some(gid), AtFlags::empty())?;
        }
        _ => {
            let mut time = || Timespec {
                tv_sec: random.random_range(1_000_000_000..1_700_000_000),
                tv_nsec: 0,
            };
            let times = Timestamps { last_access: time(), last_modification: time() };
            rustix::fs::utimensat(root, &path, &times, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Root gives files to anybody, others can give theirs only to themselves.
fn owner(random: &mut StdRng) -> (Uid, Gid) {
    let (uid, gid) = (random.random_range(100..200), random.random_range(100..200));
    match rustix::process::geteuid() {
        Uid::ROOT => (Uid::from_raw(uid), Gid::from_raw(gid)),
        own => (own, rustix::process::getegid()),
    }
}

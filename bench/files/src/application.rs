//! Table V's second half: a source tree is copied, built, searched and removed. The tree that is
//! copied lies on the same file system and is there before.

use crate::bench::{Bench, on_threads};
use crate::source::{Source, UNITS};
use crate::tree::mkdir;
use crate::walk;
use anyhow::{Context, Result, ensure};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use std::cell::Cell;
use std::ffi::CStr;
use std::path::Path;
use std::process::{Command, Stdio};

const FILES: usize = 7_500;
const BLOCK_BYTES: usize = 128 << 10;

/// A tree that is named with `--source` may have so many bytes.
const SOURCE_BYTES_MAX: u64 = 2_000_000_000;

/// Compilers that run at a time.
const COMPILERS: usize = 2;

pub fn run(bench: &mut Bench) -> Result<()> {
    let (place, root) = (bench.place, &bench.place.root);
    let units = bench.count(UNITS);
    let entries = make_source(bench, units)?;
    place.sync()?;
    bench.phase("copy", || {
        mkdir(root, "copy")?;
        copy(&walk::open(root, "source")?, &walk::open(root, "copy")?, &Cell::new(u64::MAX))
    })?;
    build(bench, units)?;
    let found =
        bench.cold_and_hot("find", || walk::walk(&walk::open(root, "copy")?, &mut |_| {}))?;
    ensure!(found >= entries, "the copy has {found} entries of {entries}");
    bench.phase("delete", || Ok(std::fs::remove_dir_all(place.path("copy"))?))
}

/// Makes `source` and returns how many entries it has.
fn make_source(bench: &Bench, units: usize) -> Result<u64> {
    let root = &bench.place.root;
    match &bench.settings.source {
        Some(path) => {
            mkdir(root, "source")?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let from = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
            let left = Cell::new(SOURCE_BYTES_MAX);
            copy(&from, &walk::open(root, "source")?, &left)
                .with_context(|| format!("--source {}", path.display()))?;
        }
        None => Source::new(bench.count(FILES), units, bench.settings.random(30)).write(root)?,
    }
    walk::walk(&walk::open(root, "source")?, &mut |_| {})
}

/// Copies directories, files and symbolic links, and nothing else, while no more than `left` bytes
/// are read. Data goes through this process, so that all file systems do the same.
fn copy(from: &OwnedFd, to: &OwnedFd, left: &Cell<u64>) -> Result<()> {
    let mut buffer = Vec::with_capacity(BLOCK_BYTES);
    let mut entries = RawDir::new(from, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                rustix::fs::mkdirat(to, name, mode | Mode::RWXU)?;
                copy(&open_directory(from, name)?, &open_directory(to, name)?, left)?;
            }
            FileType::RegularFile => copy_file(from, to, name, mode, left)?,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(from, name, Vec::new())?;
                rustix::fs::symlinkat(target, to, name)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn open_directory(parent: impl AsFd, name: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn copy_file(
    from: &OwnedFd,
    to: &OwnedFd,
    name: &CStr,
    mode: Mode,
    left: &Cell<u64>,
) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let from = rustix::fs::openat(from, name, flags, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let to = rustix::fs::openat(to, name, flags, mode)?;
    let mut buffer = vec![0; BLOCK_BYTES];
    loop {
        let count = rustix::io::read(&from, &mut buffer[..])?;
        if count == 0 {
            return Ok(());
        }
        let before = left.get();
        ensure!(before >= count as u64, "has more than {SOURCE_BYTES_MAX} bytes");
        left.set(before - count as u64);
        let mut bytes = &buffer[..count];
        while !bytes.is_empty() {
            bytes = &bytes[rustix::io::write(&to, bytes)?..];
        }
    }
}

/// Builds the copy: with make, if a tree was named and has a Makefile, or the C project that is in
/// one that was made up.
fn build(bench: &mut Bench, units: usize) -> Result<()> {
    let copy = bench.place.path("copy");
    let is_named = bench.settings.source.is_some();
    let program = if is_named { "make" } else { "cc" };
    if is_named && !copy.join("Makefile").exists() {
        bench.report.note("build is skipped: --source has no Makefile".into());
        return Ok(());
    }
    if quietly(Command::new(program).arg("--version")).is_err() {
        bench.report.note(format!("build is skipped: there is no {program}"));
        return Ok(());
    }
    bench.phase("build", || match is_named {
        true => quietly(Command::new("make").arg(format!("-j{COMPILERS}")).current_dir(&copy)),
        false => compile(&copy.join("project"), units),
    })
}

fn compile(project: &Path, units: usize) -> Result<()> {
    let mut names = Vec::from_iter((0..units).map(|at| format!("unit{at:03}")));
    names.push("main".into());
    let cc = || {
        let mut command = Command::new("cc");
        command.args(["-pipe", "-O1"]).current_dir(project);
        command
    };
    on_threads(COMPILERS, |thread| {
        names.iter().skip(thread).step_by(COMPILERS).try_for_each(|name| {
            quietly(cc().arg("-c").arg(format!("{name}.c")).arg("-o").arg(format!("{name}.o")))
        })
    })?;
    let objects = names.iter().map(|name| format!("{name}.o"));
    quietly(cc().args(objects).args(["-o", "program"]))
}

fn quietly(command: &mut Command) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().with_context(|| format!("{:?}", command.get_program()))?;
    ensure!(status.success(), "{:?}: {status}", command.get_program());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_everything_and_stops_at_its_limit() {
        let directory = std::env::temp_dir().join(format!("canopy-copy-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("from/a/b")).expect("directories are made");
        std::fs::create_dir(directory.join("to")).expect("a directory is made");
        std::fs::write(directory.join("from/a/b/file"), "text").expect("a file is made");
        std::os::unix::fs::symlink("a/b", directory.join("from/link")).expect("a link is made");
        let open = |name: &str| {
            walk::open(CWD, directory.join(name).to_str().expect("UTF-8")).expect("it is there")
        };
        copy(&open("from"), &open("to"), &Cell::new(4)).expect("it fits");
        assert_eq!(std::fs::read(directory.join("to/link/file")).expect("it is there"), b"text");
        std::fs::create_dir(directory.join("again")).expect("a directory is made");
        assert!(copy(&open("from"), &open("again"), &Cell::new(3)).is_err());
        std::fs::remove_dir_all(&directory).expect("the directory is removed");
    }
}

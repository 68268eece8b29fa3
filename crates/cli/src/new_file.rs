//! Files that are made anew and renamed to their names, relative to a directory that is held open:
//! what somebody else put there, be it a link or a pipe, is replaced and neither written to nor
//! waited for.

use anyhow::{Context, bail, ensure};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Writes the content of a file.
type Content<'a> = &'a dyn Fn(&mut dyn Write) -> anyhow::Result<()>;

/// Opens a directory for files of the caller, and makes it if it is missing. A link to one is
/// refused, and one that somebody else owns or everybody may change.
pub fn own_directory(path: &Path) -> anyhow::Result<OwnedFd> {
    // Behind a slash at its end, a link would be followed.
    let path: PathBuf = path.components().collect();
    let open = || -> anyhow::Result<OwnedFd> {
        DirBuilder::new().recursive(true).mode(0o755).create(&path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NOTDIR) => bail!("it is no directory, or a link to one"),
            opened => opened?,
        };
        let about = rustix::fs::fstat(&directory)?;
        ensure!(is_trusted(about.st_uid), "it belongs to uid {}", about.st_uid);
        let mode = Mode::from_raw_mode(about.st_mode);
        ensure!(!mode.contains(Mode::WOTH) || mode.contains(Mode::SVTX), "everybody may change it");
        Ok(directory)
    };
    open().with_context(|| format!("cannot write to the directory {}", path.display()))
}

/// Writes a file at a path: what is a plain file is replaced. A device, a pipe or a link is written
/// to as it is, if it is the caller's or root's.
pub fn write_at(path: &Path, write: Content<'_>) -> anyhow::Result<()> {
    let create = || format!("cannot create {}", path.display());
    if let Ok(there) = path.symlink_metadata()
        && !there.is_file()
    {
        let owner = there.uid();
        ensure!(is_trusted(owner), "{}: what is there belongs to uid {owner}", create());
        return written(File::create(path).with_context(create)?, write);
    }
    let name = path.file_name().with_context(create)?;
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        rustix::fs::openat(CWD, directory, flags, Mode::empty()).with_context(create)?;
    write_in(&directory, name, write).with_context(create)
}

/// Writes a file of a directory. One that is there loses its name to it, and gives it its
/// permissions: all of them if it is the caller's.
pub fn write_in(directory: &OwnedFd, name: &OsStr, write: Content<'_>) -> anyhow::Result<()> {
    let old = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let old = old.filter(|old| FileType::from_raw_mode(old.st_mode) == FileType::RegularFile);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
    let beside = |number| format!(".canopy-{}-{number}", std::process::id());
    let mut number = 0;
    let file = loop {
        match rustix::fs::openat(directory, beside(number), flags, mode) {
            Err(Errno::EXIST) if number < 100 => number += 1,
            opened => break File::from(opened?),
        }
    };
    let whole = || -> anyhow::Result<()> {
        if let Some(old) = old {
            let kept = if old.st_uid == caller() { 0o777 } else { 0o755 };
            file.set_permissions(Permissions::from_mode(old.st_mode & kept))?;
        }
        written(file, write)?;
        Ok(rustix::fs::renameat(directory, beside(number), directory, name)?)
    };
    whole().inspect_err(|_| {
        // Nothing more can be done about one that stays.
        let _ = rustix::fs::unlinkat(directory, beside(number), AtFlags::empty());
    })
}

fn written(file: File, write: Content<'_>) -> anyhow::Result<()> {
    let mut output = BufWriter::new(file);
    write(&mut output)?;
    Ok(output.flush()?)
}

fn is_trusted(owner: u32) -> bool {
    [0, caller()].contains(&owner)
}

fn caller() -> u32 {
    nix::unistd::geteuid().as_raw()
}

//! The walk that writes a tree: depth first, each directory opened in the one above it, as in
//! `import/tree.rs`. Nobody else can open the new files before the top directory gets its mode,
//! which is last.

use super::attributes::{give, said};
use crate::copy::{Copier, Failed};
use crate::faults::Faults;
use crate::moment::{Moment, Reading};
use crate::names::Names;
use anyhow::{Context, bail};
use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::{FileId, Inode, Namespace, PastFile};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// So much of a file is in memory at once.
const PART_BYTES: u64 = 1 << 20;

/// Zeros of so many bytes become a hole, of files of snapshots.
const HOLE_BYTES: u64 = 64 << 10;

/// Most directories of a path that stay open.
const OPEN_MAX: usize = 128;

/// A tree that is being written.
pub struct Tree<'a> {
    moment: &'a Moment<'a>,
    /// The names that lead to the tree from the root of the namespace.
    start: &'a [&'a [u8]],
    entries: &'a AtomicU64,
    faults: Faults,
    copier: Copier,
    levels: Vec<Level>,
    /// Files of which not all names were written: names of directories and of the file, and how
    /// many names are left.
    links: HashMap<FileId, (Vec<CString>, u32)>,
}

struct Level {
    name: CString,
    /// `None` if it had to be closed.
    fd: Option<OwnedFd>,
    /// Device and inode number.
    place: (u64, u64),
    inode: Inode,
    /// Directories in it that are still to be written.
    left: Names,
}

/// Makes a directory that nobody else may enter, unless it is there, and opens it.
pub fn make_directory(above: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(&above, name, Mode::RWXU)?;
    open_directory(above, name)
}

fn open_directory(above: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

fn place_of(directory: impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl<'a> Tree<'a> {
    /// Prepares to write a directory of a namespace into an open one. `entries` counts the written
    /// ones.
    pub fn new(
        moment: &'a Moment<'a>,
        start: &'a [&'a [u8]],
        inode: Inode,
        target: OwnedFd,
        entries: &'a AtomicU64,
    ) -> anyhow::Result<Self> {
        let place = place_of(&target)?;
        let (name, fd, left) = (c".".to_owned(), Some(target), Names::default());
        Ok(Tree {
            moment,
            start,
            entries,
            faults: Faults::default(),
            copier: Copier::default(),
            levels: vec![Level { name, fd, place, inode, left }],
            links: HashMap::new(),
        })
    }

    /// Writes everything, and returns the faults.
    pub fn run(mut self) -> anyhow::Result<Faults> {
        self.list()?;
        while let Some(level) = self.levels.last_mut() {
            match level.left.pop() {
                Some(name) => self.descend(&name)?,
                None => self.ascend()?,
            }
        }
        Ok(self.faults)
    }

    fn path(&self, name: &CStr) -> String {
        let names = self.levels.iter().skip(1).map(|level| level.name.to_bytes());
        let names = Vec::from_iter(names.chain([name.to_bytes()]));
        String::from_utf8_lossy(&names.join(&b'/')).into_owned()
    }

    /// Reports a fault of the directory where the walk is.
    fn fault_of(&mut self, name: &CStr, what: impl std::fmt::Display) {
        let above = self.levels.len().saturating_sub(1);
        let names = self.levels.iter().take(above).skip(1).map(|level| level.name.to_bytes());
        let names = Vec::from_iter(names.chain([name.to_bytes()]));
        self.faults.add(String::from_utf8_lossy(&names.join(&b'/')), what);
    }

    fn fault(&mut self, name: &CStr, what: impl std::fmt::Display) {
        self.faults.add(self.path(name), what);
    }

    /// Writes the files in the directory where the walk is, and notes its directories.
    fn list(&mut self) -> anyhow::Result<()> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let Some(fd) = level.fd.take() else { bail!("the walk has lost its way") };
        let (moment, id) = (self.moment, level.inode.id);
        let mut written = Ok(());
        let listed = moment.list(id, |name, inode| {
            written = self.write(&fd, name, inode);
            written.is_ok()
        });
        if let Err(error) = listed {
            let name = self.levels.last().map_or(c".".to_owned(), |level| level.name.clone());
            self.fault_of(&name, format_args!("some of its entries cannot be read: {error}"));
        }
        if let Some(level) = self.levels.last_mut() {
            level.fd = Some(fd);
        }
        written
    }

    fn write(&mut self, fd: &OwnedFd, name: &[u8], inode: &Inode) -> anyhow::Result<()> {
        let name = CString::new(name).context("a name with a NUL")?;
        if inode.is_directory() {
            if let Some(level) = self.levels.last_mut() {
                level.left.push(&name);
            }
            return Ok(());
        }
        self.entries.fetch_add(1, Ordering::Relaxed);
        if inode.nlink > 1 && self.link(fd, &name, inode)? {
            return Ok(());
        }
        let made = match inode.file_type() {
            file_type::REGULAR => self.write_regular(fd, &name, inode)?,
            _ => make_special(fd, &name, inode),
        };
        let place = match made {
            Ok(place) => place,
            Err(errno) => {
                self.fault(&name, said(errno));
                return Ok(());
            }
        };
        self.give(fd, &name, &place, inode)
    }

    fn give(
        &mut self,
        directory: impl AsFd,
        name: &CStr,
        place: &OwnedFd,
        inode: &Inode,
    ) -> anyhow::Result<()> {
        let mut missing = Vec::new();
        give(self.moment, directory, name, place, inode, |what| missing.push(what))?;
        missing.into_iter().for_each(|what| self.fault(name, what));
        Ok(())
    }

    /// Makes a name another one of a file that was written. Returns whether it is.
    fn link(&mut self, fd: &OwnedFd, name: &CStr, inode: &Inode) -> anyhow::Result<bool> {
        let Some((names, left)) = self.links.get_mut(&inode.id) else {
            let names = self.levels.iter().skip(1).map(|level| level.name.clone());
            let names = names.chain([name.to_owned()]).collect();
            self.links.insert(inode.id, (names, inode.nlink - 1));
            return Ok(false);
        };
        *left = left.saturating_sub(1);
        let names = match *left {
            0 => self.links.remove(&inode.id).map(|(names, _)| names).unwrap_or_default(),
            _ => names.clone(),
        };
        // The directory where the walk is may be the top one, which `list` has.
        let top = self.levels.first().and_then(|level| level.fd.as_ref()).unwrap_or(fd);
        match link_to(top, &names, fd, name) {
            Ok(()) => Ok(true),
            Err(errno) => {
                self.fault(name, format_args!("another name of a file: {}", said(errno)));
                Ok(false)
            }
        }
    }

    fn write_regular(
        &mut self,
        fd: &OwnedFd,
        name: &CStr,
        inode: &Inode,
    ) -> anyhow::Result<Result<OwnedFd, Errno>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let target = match rustix::fs::openat(fd, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(target) => File::from(target),
            Err(errno) => return Ok(Err(errno)),
        };
        if inode.has(flag::ABSENT) {
            self.fault(name, "its contents are not in the namespace: it has zeros");
            target.set_len(inode.size).with_context(|| self.path(name))?;
        } else if inode.size > 0 {
            match self.write_contents(&target, name, inode) {
                Ok(()) => {}
                Err(Failed::Source(error)) => {
                    self.fault(name, format_args!("its contents: {error}"));
                }
                Err(Failed::Target(error)) => return Err(error).context(self.path(name)),
            }
        }
        Ok(Ok(target.into()))
    }

    fn write_contents(&mut self, target: &File, name: &CStr, inode: &Inode) -> Result<(), Failed> {
        let source = |error: canopy_namespace::Error| Failed::Source(std::io::Error::other(error));
        match self.moment {
            Moment::Past(namespace, past) => {
                let opened = namespace.open_past(past, inode.id).map_err(source)?;
                write_past(namespace, &opened, target, inode.size)
            }
            Moment::Now(namespace) => {
                let opened = namespace.open_file(inode.id).map_err(source)?;
                let written = match opened.file() {
                    Some(object) => self.copier.copy(object, target, inode.size),
                    None => {
                        let seek = |is_hole, at| namespace.seek(&opened, is_hole, at);
                        let read = |at, length| namespace.read(&opened, at, length, false);
                        write_data(seek, read, target, inode.size)
                    }
                };
                let closed = namespace.close_file(&opened).map_err(source);
                written.and(closed)
            }
            Moment::OfServers(servers) => {
                let written = servers.read_file(inode.id, |Reading { seek, read }| {
                    write_data(seek, read, target, inode.size)
                });
                written.map_err(|error| Failed::Source(std::io::Error::other(error)))?
            }
            Moment::Beside(beside) => {
                let levels = self.levels.iter().skip(1).map(|level| level.name.to_bytes());
                let names = self.start.iter().copied().chain(levels).chain([name.to_bytes()]);
                let opened = beside.open_file(&Vec::from_iter(names), inode.id);
                let opened = opened.map_err(Failed::Source)?;
                let size = opened.metadata().map_err(Failed::Source)?.len();
                self.copier.copy(&opened, target, size)
            }
        }
    }

    fn descend(&mut self, name: &CStr) -> anyhow::Result<()> {
        let Some(above) = self.levels.last() else { return Ok(()) };
        let Some(above_fd) = &above.fd else { bail!("the walk has lost its way") };
        let inode = match self.moment.lookup(above.inode.id, name.to_bytes()) {
            Ok(inode) => inode,
            Err(error) => {
                self.fault(name, error);
                return Ok(());
            }
        };
        self.entries.fetch_add(1, Ordering::Relaxed);
        let made = make_directory(above_fd, name).and_then(|fd| Ok((place_of(&fd)?, fd)));
        let (place, fd) = match made {
            Ok(made) => made,
            Err(errno) => {
                self.fault(name, said(errno));
                return Ok(());
            }
        };
        let (name, fd, left) = (name.to_owned(), Some(fd), Names::default());
        self.levels.push(Level { name, fd, place, inode, left });
        if let Some(at) = self.levels.len().checked_sub(OPEN_MAX).filter(|at| *at > 0) {
            self.levels[at].fd = None;
        }
        self.list()
    }

    /// Goes back to the directory above, and gives this one its attributes.
    fn ascend(&mut self) -> anyhow::Result<()> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        let Some(fd) = level.fd else { bail!("the walk has lost its way") };
        if let Some(above) = self.levels.last_mut()
            && above.fd.is_none()
        {
            let above_fd = open_directory(&fd, c"..")?;
            if place_of(&above_fd)? != above.place {
                bail!("{}: it was moved while it was written", self.path(&level.name));
            }
            above.fd = Some(above_fd);
        }
        let above = self.levels.last_mut().and_then(|above| above.fd.take());
        match &above {
            Some(above_fd) => self.give(above_fd, &level.name, &fd, &level.inode)?,
            None => self.give(&fd, c".", &fd, &level.inode)?,
        }
        if let Some(level) = self.levels.last_mut() {
            level.fd = above;
        }
        Ok(())
    }
}

/// Writes the contents of an open file, a part at a time, with its holes. `seek` returns where a hole
/// or data begins, and `read` bytes.
fn write_data(
    seek: impl Fn(bool, u64) -> canopy_namespace::Result<u64>,
    read: impl Fn(u64, usize) -> canopy_namespace::Result<Vec<u8>>,
    target: &File,
    size: u64,
) -> Result<(), Failed> {
    let source = |error: canopy_namespace::Error| Failed::Source(std::io::Error::other(error));
    let mut at = 0;
    while at < size {
        let start = match seek(false, at) {
            Err(error) if error.errno() == Errno::NXIO => break,
            found => found.map_err(source)?,
        };
        let end = seek(true, start).map_err(source)?.min(size);
        at = start;
        while at < end {
            let length = (end - at).min(PART_BYTES) as usize;
            let bytes = read(at, length).map_err(source)?;
            if bytes.is_empty() {
                break;
            }
            target.write_all_at(&bytes, at).map_err(Failed::Target)?;
            at += bytes.len() as u64;
        }
        at = end.max(start + 1);
    }
    target.set_len(size).map_err(Failed::Target)
}

/// Writes the contents of a file of a snapshot, with holes where parts are zeros.
fn write_past(
    namespace: &Namespace,
    opened: &PastFile,
    target: &File,
    size: u64,
) -> Result<(), Failed> {
    let source = |error: canopy_namespace::Error| Failed::Source(std::io::Error::other(error));
    for at in (0..size).step_by(HOLE_BYTES as usize) {
        let length = (size - at).min(HOLE_BYTES) as usize;
        let bytes = namespace.read_past(opened, at, length).map_err(source)?;
        if bytes.iter().any(|byte| *byte != 0) {
            target.write_all_at(&bytes, at).map_err(Failed::Target)?;
        }
    }
    target.set_len(size).map_err(Failed::Target)
}

/// Makes a file that is neither a directory nor a regular file, and opens it without reading it.
fn make_special(fd: &OwnedFd, name: &CStr, inode: &Inode) -> Result<OwnedFd, Errno> {
    match inode.file_type() {
        file_type::SYMLINK => {
            let target = CString::new(&*inode.target).map_err(|_| Errno::INVAL)?;
            rustix::fs::symlinkat(&target, fd, name)?;
        }
        other => {
            let kind = FileType::from_raw_mode(other);
            let device = u64::from(inode.rdev);
            rustix::fs::mknodat(fd, name, kind, Mode::RUSR | Mode::WUSR, device)?;
        }
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(fd, name, flags, Mode::empty())
}

/// Makes `name` in a directory another name of the file at `names` below the top.
fn link_to(
    top: impl AsFd,
    names: &[CString],
    directory: impl AsFd,
    name: &CStr,
) -> Result<(), Errno> {
    let Some((last, above)) = names.split_last() else { return Err(Errno::NOENT) };
    let mut at: Option<OwnedFd> = None;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for name in above {
        let below = at.as_ref().map_or(top.as_fd(), AsFd::as_fd);
        at = Some(rustix::fs::openat(below, name, flags, Mode::empty())?);
    }
    let above = at.as_ref().map_or(top.as_fd(), AsFd::as_fd);
    rustix::fs::linkat(above, last, directory, name, AtFlags::empty())
}

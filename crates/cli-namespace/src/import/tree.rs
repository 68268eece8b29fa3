//! The walk that imports a tree: one directory after the other, depth first. Each is opened in the
//! one above it, so that paths may be as long as they like, and few stay open: of deep trees, those
//! further up are closed, and found again by "..".

use super::files::Links;
use super::look::{self, Mount, Xattrs};
use crate::copy::Copier;
use crate::faults::Faults;
use crate::names::Names;
use anyhow::{Context, bail};
use canopy_namespace::{Bulk, FileId, Inode, Namespace};
use canopy_store::hash_of;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, RawDir, Statx};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most directories of a path that stay open.
const OPEN_MAX: usize = 128;

/// Bytes asked of one getdents64.
const DIRENT_BYTES: usize = 256 << 10;

/// The tree to import, and the options.
pub struct Plan {
    /// Whether contents of files are copied.
    pub with_data: bool,
    /// Whether file systems that are mounted below are copied too.
    pub crosses_mounts: bool,
    /// The directory of the namespace itself and those directly in it, by device and inode number.
    pub own: Vec<(u64, u64)>,
    /// The directory that everything goes into.
    pub directory: Inode,
    /// Its name and the directory above it, if it is to be made.
    pub name: Option<(FileId, Vec<u8>)>,
    /// Whether it takes on the attributes of the source.
    pub takes_attributes: bool,
    /// Whether it has names already, each of which might be one of the source.
    pub has_names: bool,
}

/// A tree that is being imported.
pub struct Tree<'a> {
    pub(super) plan: &'a Plan,
    pub(super) bulk: Bulk<'a>,
    namespace: &'a Namespace,
    entries: &'a AtomicU64,
    pub(super) faults: Faults,
    pub(super) links: Links,
    pub(super) xattrs: Xattrs,
    pub(super) copier: Copier,
    pub(super) levels: Vec<Level>,
    mount: Mount,
    /// Hashes of the names of the directory that is being read: one that is replaced meanwhile may
    /// come twice.
    seen: HashSet<u64>,
    buffer: Vec<MaybeUninit<u8>>,
}

/// A directory on the way to where the walk is.
pub(super) struct Level {
    pub(super) name: Vec<u8>,
    /// `None` if it had to be closed.
    fd: Option<OwnedFd>,
    /// Device and inode number.
    place: (u64, u64),
    /// With a link for each directory in it that was imported.
    pub(super) inode: Inode,
    /// Directories in it that are still to be read.
    left: Names,
}

impl<'a> Tree<'a> {
    /// Prepares to import the tree below `source`. `entries` counts the imported ones.
    pub fn new(
        plan: &'a Plan,
        namespace: &'a Namespace,
        source: OwnedFd,
        entries: &'a AtomicU64,
    ) -> anyhow::Result<Self> {
        let stat = look::look_at_open(&source).context("the source")?;
        let mut tree = Tree {
            plan,
            bulk: Bulk::begin(namespace)?,
            namespace,
            entries,
            faults: Faults::default(),
            links: Links::default(),
            xattrs: Xattrs::default(),
            copier: Copier::default(),
            levels: Vec::new(),
            mount: look::mount_of(&stat),
            seen: HashSet::new(),
            buffer: vec![MaybeUninit::uninit(); DIRENT_BYTES],
        };
        let mut inode = plan.directory.clone();
        if plan.name.is_some() {
            (inode.id, inode.nlink) = (tree.bulk.new_id()?, 2);
        }
        let links = inode.nlink;
        if plan.takes_attributes {
            tree.check_times(c".", &stat);
            inode = look::inode_of(&stat, inode.id, inode.project);
            inode.nlink = links;
            tree.read_xattrs(&source, &mut inode, c".")?;
        }
        let place = (look::device_of(&stat), stat.stx_ino);
        let level =
            Level { name: Vec::new(), fd: Some(source), place, inode, left: Names::default() };
        tree.levels.push(level);
        Ok(tree)
    }

    /// Imports everything, and returns the faults. Nothing of it is visible before the end.
    pub fn run(mut self) -> anyhow::Result<Faults> {
        self.read()?;
        let top = loop {
            let is_top = self.levels.len() == 1;
            let Some(level) = self.levels.last_mut() else { bail!("the walk has lost its way") };
            match level.left.pop() {
                Some(name) => self.descend(&name)?,
                None if is_top => break level.inode.clone(),
                None => self.ascend()?,
            }
        };
        for inode in self.links.take_all() {
            self.bulk.add_linked(&inode)?;
        }
        let mut directory = top.clone();
        if let Some((parent, name)) = &self.plan.name {
            self.bulk.add(*parent, name, &top)?;
            directory = self.plan.directory.clone();
            directory.nlink += 1;
        }
        if !self.plan.takes_attributes || self.plan.name.is_some() {
            let now_ns = self.namespace.now_ns();
            (directory.mtime_ns, directory.ctime_ns) = (now_ns, now_ns);
        }
        self.bulk.commit(&directory)?;
        Ok(self.faults)
    }

    /// Returns the path of a file in the directory where the walk is, below the source.
    pub(super) fn path(&self, name: &CStr) -> String {
        let names = self.levels.iter().skip(1).map(|level| level.name.as_slice());
        let names = Vec::from_iter(names.chain([name.to_bytes()]));
        String::from_utf8_lossy(&names.join(&b'/')).into_owned()
    }

    /// Reports why a file was left out, also if it has vanished meanwhile.
    pub(super) fn leave_out(&mut self, name: &CStr, errno: Errno) {
        let path = self.path(name);
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE => {
                self.faults.add(path, "it vanished or was replaced meanwhile");
            }
            _ => self.faults.add(path, std::io::Error::from(errno)),
        }
    }

    /// Reads the directory where the walk is: adds its files, and notes its directories.
    fn read(&mut self) -> anyhow::Result<()> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let Some(fd) = level.fd.take() else { return Ok(()) };
        let mut buffer = std::mem::take(&mut self.buffer);
        self.seen.clear();
        // Without it, what comes says that it cannot be looked at.
        let entered = self.xattrs.enter(&fd);
        let mut entries = RawDir::new(&fd, &mut buffer);
        let read = loop {
            match entries.next() {
                None => break Ok(()),
                Some(Err(Errno::INTR)) => {}
                Some(Err(errno)) => break Err(errno),
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if !matches!(name.to_bytes(), b"." | b"..") {
                        self.entry(&fd, name, entry.file_type(), entered)?;
                    }
                }
            }
        };
        self.buffer = buffer;
        if let Some(level) = self.levels.last_mut() {
            level.fd = Some(fd);
        }
        if let Err(errno) = read {
            self.leave_out(c"", errno);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        fd: &OwnedFd,
        name: &CStr,
        kind: FileType,
        entered: Result<(), Errno>,
    ) -> anyhow::Result<()> {
        let bytes = name.to_bytes();
        if !self.seen.insert(hash_of(bytes)) {
            return Ok(());
        }
        if bytes.len() > canopy_namespace::NAME_BYTES_MAX {
            self.leave_out(name, Errno::NAMETOOLONG);
            return Ok(());
        }
        self.check_new(bytes)?;
        if kind == FileType::Directory {
            self.note(name);
            return Ok(());
        }
        let stat = match entered.and_then(|()| look::look_at(fd, name)) {
            Ok(stat) => stat,
            Err(errno) => {
                self.leave_out(name, errno);
                return Ok(());
            }
        };
        if FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory {
            self.note(name);
            return Ok(());
        }
        if !self.plan.crosses_mounts && !self.is_on_mount(&stat) {
            self.faults.add(self.path(name), "something is mounted there");
            return Ok(());
        }
        self.check_times(name, &stat);
        self.add_file(fd, name, &stat)?;
        self.entries.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Reports a file with a time that a namespace cannot keep.
    fn check_times(&mut self, name: &CStr, stat: &Statx) {
        if !look::keeps_times(stat) {
            let what = "one of its times is before 1677 or after 2262: it has the nearest now";
            self.faults.add(self.path(name), what);
        }
    }

    /// Notes a directory that is to be read once this one has been.
    fn note(&mut self, name: &CStr) {
        if let Some(level) = self.levels.last_mut() {
            level.left.push(name);
        }
    }

    /// Returns an error if there is such a name already where everything goes.
    fn check_new(&self, name: &[u8]) -> anyhow::Result<()> {
        if !self.plan.has_names || self.levels.len() > 1 {
            return Ok(());
        }
        match self.namespace.lookup(self.plan.directory.id, name) {
            Err(error) if error.errno() == Errno::NOENT => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => bail!(
                "the namespace has {} there already; nothing was imported",
                String::from_utf8_lossy(name)
            ),
        }
    }

    fn is_on_mount(&self, stat: &Statx) -> bool {
        match (self.mount, look::mount_of(stat)) {
            ((Some(one), _), (Some(other), _)) => one == other,
            ((_, one), (_, other)) => one == other,
        }
    }

    /// Goes into a directory and reads it. An unreadable one is imported as if it were empty.
    fn descend(&mut self, name: &CStr) -> anyhow::Result<()> {
        let id = self.bulk.new_id()?;
        let Some(above) = self.levels.last() else { return Ok(()) };
        let Some(above_fd) = &above.fd else { return Ok(()) };
        let (project, parent) = (above.inode.project, above.inode.id);
        let opened = look::open_directory(above_fd, name);
        let stat = match &opened {
            Ok(fd) => look::look_at_open(fd),
            Err(Errno::ACCESS | Errno::PERM | Errno::IO) => look::look_at(above_fd, name),
            Err(errno) => Err(*errno),
        };
        let is_directory =
            |stat: &Statx| FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory;
        let stat = match stat {
            Ok(stat) if is_directory(&stat) => stat,
            Ok(_) => {
                self.leave_out(name, Errno::NOTDIR);
                return Ok(());
            }
            Err(errno) => {
                self.leave_out(name, errno);
                return Ok(());
            }
        };
        let place = (look::device_of(&stat), stat.stx_ino);
        if self.plan.own.contains(&place) {
            self.faults.add(self.path(name), "the namespace itself is not imported into it");
            return Ok(());
        }
        self.check_times(name, &stat);
        let mut inode = look::inode_of(&stat, id, project);
        inode.nlink = 2;
        if let Some(above) = self.levels.last_mut() {
            above.inode.nlink += 1;
        }
        self.entries.fetch_add(1, Ordering::Relaxed);
        let fd = match opened {
            Ok(fd) => fd,
            Err(errno) => {
                self.leave_out(name, errno);
                return Ok(self.bulk.add(parent, name.to_bytes(), &inode)?);
            }
        };
        self.read_xattrs(&fd, &mut inode, name)?;
        if !self.plan.crosses_mounts && !self.is_on_mount(&stat) {
            return Ok(self.bulk.add(parent, name.to_bytes(), &inode)?);
        }
        let name = name.to_bytes().to_vec();
        self.levels.push(Level { name, fd: Some(fd), place, inode, left: Names::default() });
        // The source itself stays open.
        if let Some(at) = self.levels.len().checked_sub(OPEN_MAX).filter(|at| *at > 0) {
            self.levels[at].fd = None;
        }
        self.read()
    }

    /// Goes back to the directory above, once all of this one has been read.
    fn ascend(&mut self) -> anyhow::Result<()> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        let Some(above) = self.levels.last_mut() else { return Ok(()) };
        self.bulk.add(above.inode.id, &level.name, &level.inode)?;
        if above.fd.is_some() {
            return Ok(());
        }
        let found = level.fd.as_ref().ok_or(Errno::BADF).and_then(|fd| {
            let fd = look::open_directory(fd, c"..")?;
            let stat = look::look_at_open(&fd)?;
            Ok(((look::device_of(&stat), stat.stx_ino), fd))
        });
        match found {
            Ok((place, fd)) if place == above.place => above.fd = Some(fd),
            _ => {
                // The way back is lost, and with it what was still to be read there.
                let had_more = !std::mem::take(&mut above.left).is_empty();
                if had_more {
                    self.faults.add(self.path(c""), "it was moved while it was read");
                }
            }
        }
        Ok(())
    }
}

//! The walk that imports a tree: one directory after the other, depth first. Each is opened in the
//! one above it, so that paths may be as long as they like, and few stay open: of deep trees, those
//! further up are closed, and found again by "..".

use super::files::Links;
use super::look::{self, Mount, Xattrs};
use super::target::{NewFile, Place, Target};
use crate::faults::Faults;
use crate::names::Names;
use anyhow::{Context, anyhow, bail};
use canopy_namespace::{FileId, Inode};
use canopy_store::hash_of;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, RawDir, Statx};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most directories of a path that stay open.
const OPEN_MAX: usize = 128;

/// Bytes asked of one getdents64.
const DIRENT_BYTES: usize = 256 << 10;

/// Directories that are made at once.
const DIRECTORIES: usize = 256;

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
pub struct Tree<'a, T> {
    pub(super) plan: &'a Plan,
    pub(super) target: &'a mut T,
    entries: &'a AtomicU64,
    pub(super) faults: &'a Faults,
    pub(super) links: Links,
    pub(super) xattrs: Xattrs,
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
    /// Its extended attributes.
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Directories in it that are still to be made.
    left: Names,
    /// Directories in it that were made, and are still to be read.
    made: Vec<(CString, FileId)>,
}

impl<'a, T: Target> Tree<'a, T> {
    /// Prepares to import the tree below `source` into the directory `top`. `entries` counts the
    /// imported ones.
    pub fn new(
        plan: &'a Plan,
        (target, top): (&'a mut T, FileId),
        source: OwnedFd,
        entries: &'a AtomicU64,
        faults: &'a Faults,
    ) -> anyhow::Result<Self> {
        let stat = look::look_at_open(&source).context("the source")?;
        let mut tree = Tree {
            plan,
            target,
            entries,
            faults,
            links: Links::default(),
            xattrs: Xattrs::default(),
            levels: Vec::new(),
            mount: look::mount_of(&stat),
            seen: HashSet::new(),
            buffer: vec![MaybeUninit::uninit(); DIRENT_BYTES],
        };
        let mut inode = Inode { id: top, ..plan.directory.clone() };
        if plan.name.is_some() {
            inode.nlink = 2;
        }
        let (links, mut xattrs) = (inode.nlink, Vec::new());
        if plan.takes_attributes {
            tree.check_times(c".", &stat);
            inode = look::inode_of(&stat, inode.id, inode.project);
            inode.nlink = links;
            xattrs = tree.read_xattrs(&source, c".");
        }
        let level = Level {
            name: Vec::new(),
            fd: Some(source),
            place: (look::device_of(&stat), stat.stx_ino),
            inode,
            xattrs,
            left: Names::default(),
            made: Vec::new(),
        };
        tree.levels.push(level);
        Ok(tree)
    }

    /// Imports everything but the source itself, which is returned.
    pub fn run(mut self) -> anyhow::Result<NewFile> {
        self.read()?;
        loop {
            if let Some((name, id)) = self.next_directory()? {
                self.descend(&name, id)?;
            } else if self.levels.len() > 1 {
                self.ascend()?;
            } else {
                break;
            }
        }
        for inode in self.links.take_all() {
            self.target.add_linked(&inode)?;
        }
        let Some(Level { inode, xattrs, .. }) = self.levels.pop() else {
            bail!("the walk has lost its way")
        };
        Ok(NewFile { inode, xattrs, ..NewFile::default() })
    }

    /// Returns the next directory to read in the one where the walk is. Several are made at once.
    fn next_directory(&mut self) -> anyhow::Result<Option<(CString, FileId)>> {
        let Self { levels, target, .. } = self;
        loop {
            let Some(level) = levels.last_mut() else { return Ok(None) };
            if let Some(made) = level.made.pop() {
                return Ok(Some(made));
            }
            let left = std::iter::from_fn(|| level.left.pop());
            let names = Vec::from_iter(left.take(DIRECTORIES));
            if names.is_empty() {
                return Ok(None);
            }
            let parent = level.inode.id;
            let path = |name: &CString| path_of(levels, name.to_bytes());
            let made = target.new_directories(parent, &names, &path)?;
            let made = names.into_iter().zip(made).rev();
            let made = made.filter_map(|(name, id)| Some((name, id?)));
            let made = Vec::from_iter(made);
            if let Some(level) = levels.last_mut() {
                level.made = made;
            }
        }
    }

    /// Does something with a name of the directory where the walk is.
    pub(super) fn at<R>(
        &mut self,
        name: &CStr,
        work: impl FnOnce(&mut T, &Place<'_>) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let Self { levels, target, .. } = self;
        let parent = levels.last().context("the walk has lost its way")?.inode.id;
        let path = || path_of(levels, name.to_bytes());
        work(target, &Place { parent, name: name.to_bytes(), path: &path })
    }

    /// Returns the path of a file in the directory where the walk is, below the source.
    pub(super) fn path(&self, name: &CStr) -> String {
        path_of(&self.levels, name.to_bytes())
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
        let (id, is_top) = (level.inode.id, self.levels.len() == 1);
        let mut buffer = std::mem::take(&mut self.buffer);
        if let Some(most) = self.target.spreads_beyond()
            && !(is_top && self.plan.has_names)
            && has_more(&fd, &mut buffer, most)
        {
            self.target.spread(id);
        }
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
    fn check_new(&mut self, name: &[u8]) -> anyhow::Result<()> {
        if self.plan.has_names
            && self.levels.len() == 1
            && self.target.has_name(self.plan.directory.id, name)?
        {
            return Err(is_taken(name));
        }
        Ok(())
    }

    fn is_on_mount(&self, stat: &Statx) -> bool {
        match (self.mount, look::mount_of(stat)) {
            ((Some(one), _), (Some(other), _)) => one == other,
            ((_, one), (_, other)) => one == other,
        }
    }

    /// Goes into a directory and reads it. An unreadable one is imported as if it were empty.
    fn descend(&mut self, name: &CStr, id: FileId) -> anyhow::Result<()> {
        let Some(above) = self.levels.last() else { return Ok(()) };
        let Some(above_fd) = &above.fd else { return Ok(()) };
        let project = above.inode.project;
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
            unfit => {
                self.leave_out(name, unfit.err().unwrap_or(Errno::NOTDIR));
                return self.at(name, |target, place| target.drop_directory(place));
            }
        };
        let place = (look::device_of(&stat), stat.stx_ino);
        if self.plan.own.contains(&place) {
            self.faults.add(self.path(name), "the namespace itself is not imported into it");
            return self.at(name, |target, place| target.drop_directory(place));
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
                let directory = NewFile { inode, ..NewFile::default() };
                return self.at(name, |target, place| target.add_directory(place, directory));
            }
        };
        let xattrs = self.read_xattrs(&fd, name);
        if !self.plan.crosses_mounts && !self.is_on_mount(&stat) {
            let directory = NewFile { inode, xattrs, ..NewFile::default() };
            return self.at(name, |target, place| target.add_directory(place, directory));
        }
        self.levels.push(Level {
            name: name.to_bytes().to_vec(),
            fd: Some(fd),
            place,
            inode,
            xattrs,
            left: Names::default(),
            made: Vec::new(),
        });
        // The source itself stays open.
        if let Some(at) = self.levels.len().checked_sub(OPEN_MAX).filter(|at| *at > 0) {
            self.levels[at].fd = None;
        }
        self.read()
    }

    /// Goes back to the directory above, once all of this one has been read.
    fn ascend(&mut self) -> anyhow::Result<()> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        let Level { name, inode, xattrs, .. } = level;
        let Ok(name) = CString::new(name) else { return Ok(()) };
        let directory = NewFile { inode, xattrs, ..NewFile::default() };
        self.at(&name, |target, place| target.add_directory(place, directory))?;
        let Some(above) = self.levels.last_mut() else { return Ok(()) };
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
                let left = std::mem::take(&mut above.left);
                let made = std::mem::take(&mut above.made);
                for (name, _) in &made {
                    self.at(name, |target, place| target.drop_directory(place))?;
                }
                if !left.is_empty() || !made.is_empty() {
                    self.faults.add(self.path(c""), "it was moved while it was read");
                }
            }
        }
        Ok(())
    }
}

/// Returns the path of a name in the last of these directories, below the first.
fn path_of(levels: &[Level], name: &[u8]) -> String {
    let names = levels.iter().skip(1).map(|level| level.name.as_slice());
    let names = Vec::from_iter(names.chain([name]));
    String::from_utf8_lossy(&names.join(&b'/')).into_owned()
}

/// Returns the error of a name that the namespace has already.
pub fn is_taken(name: &[u8]) -> anyhow::Error {
    let name = String::from_utf8_lossy(name);
    anyhow!("the namespace has {name} there already; nothing was imported")
}

/// Returns whether a directory has more entries than this, and goes back to its beginning.
fn has_more(fd: &OwnedFd, buffer: &mut [MaybeUninit<u8>], most: u64) -> bool {
    let mut entries = RawDir::new(fd, buffer);
    let mut count = 0;
    // Reading it again reports an error.
    while count <= most && matches!(entries.next(), Some(Ok(_))) {
        count += 1;
    }
    let is_back = rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(0)).is_ok();
    count > most && is_back
}

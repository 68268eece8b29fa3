//! The tree of a namespace, as it is or as a snapshot has it: of a namespace that this process has
//! open, or beside the process that has it mounted, or beside its servers.

mod servers;

use crate::place;
use crate::servers::is_served;
use crate::viewed::{self, Viewed};
use anyhow::{Context, bail};
use canopy_namespace::{FileId, Inode, Listing, Namespace, Past, ROOT, ReadView, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use servers::{OfServers, Reading};

/// A namespace whose trees are read.
pub enum Source {
    Open(Box<Namespace>),
    Mounted(Box<Beside>),
    OfServers(Box<OfServers>),
}

/// A mounted namespace: its records at a checkpoint, and its files through the mount.
pub struct Beside {
    viewed: Viewed,
    /// The records of a snapshot, if one is read.
    past: Option<ReadView>,
    /// The top directory of the mount, or that of the snapshot.
    top: OwnedFd,
}

/// A tree at one moment.
pub enum Moment<'a> {
    Now(&'a Namespace),
    Past(&'a Namespace, Past),
    Beside(&'a Beside),
    OfServers(&'a OfServers),
}

impl Source {
    /// Opens a namespace, or the one that is mounted on a directory, which only root can do.
    pub fn open(place: &Path, snapshot: Option<&str>) -> anyhow::Result<Self> {
        match viewed::mounted(place)? {
            None if is_served(place)? => {
                Ok(Source::OfServers(Box::new(OfServers::open(place, snapshot)?)))
            }
            None => Ok(Source::Open(Box::new(place::open(place)?))),
            Some(_) => Ok(Source::Mounted(Box::new(Beside::open(place, snapshot)?))),
        }
    }

    /// Returns the tree as the snapshot of this name has it, or as it is without one; `place` is
    /// for messages.
    pub fn moment(&self, place: &Path, snapshot: Option<&str>) -> anyhow::Result<Moment<'_>> {
        match self {
            Source::Open(namespace) => Moment::of(namespace, place, snapshot),
            Source::Mounted(beside) => Ok(Moment::Beside(beside)),
            Source::OfServers(servers) => Ok(Moment::OfServers(servers)),
        }
    }
}

impl Beside {
    fn open(place: &Path, snapshot: Option<&str>) -> anyhow::Result<Self> {
        let viewed = Viewed::open(place)?;
        let mount = viewed.mount.as_ref().context("the namespace was unmounted: try again")?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let point = Path::new(OsStr::from_bytes(&mount.point));
        let mut top = rustix::fs::open(point, flags, Mode::empty())
            .with_context(|| format!("cannot open {}", point.display()))?;
        let past = match snapshot {
            None => None,
            Some(name) => {
                let Some(number) = viewed.view.snapshot(name)? else {
                    bail!("{} has no snapshot {name}", place.display());
                };
                top = rustix::fs::openat(&top, format!("[@{name}]"), flags, Mode::empty())
                    .with_context(|| format!("cannot open snapshot {name}"))?;
                Some(viewed.at(number)?)
            }
        };
        Ok(Beside { viewed, past, top })
    }

    fn view(&self) -> &ReadView {
        self.past.as_ref().unwrap_or(&self.viewed.view)
    }

    /// Opens a regular file by its path, to be read.
    pub fn open_file<T: AsRef<[u8]>>(&self, names: &[T], id: FileId) -> io::Result<File> {
        let Some((last, above)) = names.split_last() else { return Err(Errno::ISDIR.into()) };
        let common = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut directory = None;
        for name in above {
            let at = directory.as_ref().unwrap_or(&self.top);
            let flags = OFlags::PATH | OFlags::DIRECTORY | common;
            let next = rustix::fs::openat(at, name.as_ref(), flags, Mode::empty())?;
            directory = Some(next);
        }
        let at = directory.as_ref().unwrap_or(&self.top);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | common;
        let file = rustix::fs::openat(at, last.as_ref(), flags, Mode::empty())?;
        // Another file may have its name by now.
        if self.past.is_none() && rustix::fs::fstat(&file)?.st_ino != id.0 {
            return Err(io::Error::other("it was replaced meanwhile"));
        }
        Ok(file.into())
    }
}

impl<'a> Moment<'a> {
    pub fn now(namespace: &'a Namespace) -> Self {
        Moment::Now(namespace)
    }

    /// Returns the tree of a namespace that this process has open.
    fn of(namespace: &'a Namespace, place: &Path, snapshot: Option<&str>) -> anyhow::Result<Self> {
        Ok(match snapshot {
            None => Moment::Now(namespace),
            Some(name) => Moment::Past(namespace, past(namespace, place, name)?),
        })
    }

    pub fn root(&self) -> Result<Inode> {
        match self {
            Moment::Now(namespace) => namespace.inode(ROOT),
            Moment::Past(_, past) => past.inode(ROOT),
            Moment::Beside(beside) => beside.view().root(),
            Moment::OfServers(servers) => servers.view().root(),
        }
    }

    pub fn lookup(&self, directory: FileId, name: &[u8]) -> Result<Inode> {
        match self {
            Moment::Now(namespace) => namespace.lookup(directory, name),
            Moment::Past(_, past) => past.lookup(directory, name),
            Moment::Beside(beside) => {
                Ok(beside.view().lookup(directory, name)?.ok_or(Errno::NOENT)?)
            }
            Moment::OfServers(servers) => {
                Ok(servers.view().lookup(directory, name)?.ok_or(Errno::NOENT)?)
            }
        }
    }

    /// Gives `each` the names of a directory with their inodes until it returns false.
    pub fn list(
        &self,
        directory: FileId,
        mut each: impl FnMut(&[u8], &Inode) -> bool,
    ) -> Result<()> {
        let mut listing = Listing::new(directory);
        match self {
            Moment::Now(namespace) => {
                namespace.list(&mut listing, 0, |entry| each(entry.name, entry.inode))
            }
            Moment::Past(_, past) => {
                past.list(&mut listing, 0, |entry| each(entry.name, entry.inode))
            }
            Moment::Beside(beside) => {
                beside.view().list(directory, None, |name, inode| each(name, &inode))
            }
            Moment::OfServers(servers) => {
                servers.view().list(directory, None, |name, inode| each(name, &inode))
            }
        }
    }

    /// Returns the extended attributes of a file.
    pub fn xattrs(&self, id: FileId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        let mut add = |name: &[u8], value: &[u8]| all.push((name.to_vec(), value.to_vec()));
        match self {
            Moment::Past(_, past) => past.view().xattrs(id, add)?,
            Moment::Beside(beside) => beside.view().xattrs(id, add)?,
            Moment::OfServers(servers) => servers.view().xattrs(id, add)?,
            Moment::Now(namespace) => {
                for name in namespace.xattrs(id)? {
                    add(&name, &namespace.xattr(id, &name)?.unwrap_or_default());
                }
            }
        }
        Ok(all)
    }
}

/// Returns a snapshot of a namespace that this process has open; `place` is for messages.
pub fn past(namespace: &Namespace, place: &Path, name: &str) -> anyhow::Result<Past> {
    match namespace.past(name.as_bytes()) {
        Err(error) if error.errno() == Errno::NOENT => {
            bail!("{} has no snapshot {name}", place.display())
        }
        past => Ok(past?),
    }
}
